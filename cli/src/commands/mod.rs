//! The commands, and what they have in common: exit codes and where text goes.

pub mod crd;
pub mod timeline;

use std::io::Write;
use std::process::ExitCode;

/// How a command ended when it did not break off with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done: exit code 0.
    Done,
    /// What was given cannot be used, and why has been said: exit code 2.
    Usage,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Usage => Self::from(2),
        }
    }
}

/// Turns the end of a command into an exit code; an error is printed and is exit code 1.
pub fn finish(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(outcome) => outcome.into(),
        // Whoever reads us (`| head`) has seen enough: that is no failure of ours.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if standard error is gone.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
