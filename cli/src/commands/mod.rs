//! The commands, and what they have in common: exit codes and where text goes.

pub mod beside;
pub mod by_hand;
pub mod check;
pub mod complete;
pub mod crd;
pub mod explain;
pub mod look;
pub mod migrate;
pub mod one_shot;
pub mod plan;
pub mod reference;
pub mod rules;
pub mod serve;
pub mod simulate;
pub mod status;
pub mod timeline;
pub mod tool;
pub mod uninstall;
mod values;
pub mod webhook;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

/// How a command ended when it did not break off with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done: exit code 0.
    Done,
    /// It failed, and why has been said: exit code 1.
    Failed,
    /// What was given cannot be used, and why has been said: exit code 2.
    Usage,
    /// Not everything asked for was done, and what was not has been said: exit code 3.
    Partly,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Failed => Self::FAILURE,
            Outcome::Usage => Self::from(2),
            Outcome::Partly => Self::from(3),
        }
    }
}

/// Tells on standard error what could not be read: an answer without it would be taken for the whole.
///
/// # Errors
/// If standard error is gone.
pub fn tell_blind_spots(look: &look::Look) -> anyhow::Result<()> {
    if let Some(limits) = look.limits() {
        writeln!(std::io::stderr(), "note: {limits}").context("failed to write to standard error")?;
    }
    for blind in look.blind_spots() {
        writeln!(std::io::stderr(), "warning: cannot read {blind}").context("failed to write to standard error")?;
    }
    Ok(())
}

/// Turns the end of a command into an exit code; an error is printed and is exit code 1.
pub fn finish(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(outcome) => outcome.into(),
        // Whoever reads us (`| head`) has seen enough: that is no failure of ours.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if standard error is gone.
            let _ = writeln!(std::io::stderr(), "error: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, each once: those that say themselves what lies below them are not followed by it again.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    let root = error.root_cause().to_string();
    if text.contains(&root) {
        return text;
    }
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        if text.contains(&root) {
            break;
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::told;

    #[test]
    fn a_cause_is_told_once() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = anyhow::Error::new(refused())
            .context("client error")
            .context("failed to list");
        assert_eq!(told(&error), "failed to list: client error: connection refused");
        let whole = Err::<(), _>(refused())
            .context("failed to read: connection refused; try another")
            .unwrap_err();
        assert_eq!(told(&whole), "failed to read: connection refused; try another");
    }
}
