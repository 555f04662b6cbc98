//! `offhours webhook`: the server, and what people do with its registration.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde::Serialize;
use shared::clock::Clock;

use super::tool::{self, Refused, Tool, ToolArguments};
use super::{Outcome, check, serve};
use crate::flags::{OfServers, Options};

/// Arguments of `offhours webhook`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    options: Options<OfServers>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look over the webhook's registration by the good practices for admission webhooks, and explain each finding
    Check(ToolArguments),
    /// Remove the webhook's registration, and those of dev mode: nothing is held any more, and nothing waits for us
    Uninstall(ToolArguments),
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Removed {
    /// Names, and how many configurations bore each.
    removed: Vec<(String, usize)>,
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    match &arguments.command {
        None => serve::run(&arguments.options, serve::Parts::WEBHOOK),
        Some(Command::Check(arguments)) => tool::block_on(check::registration(arguments, clock), |outcome| outcome),
        Some(Command::Uninstall(arguments)) => tool::block_on(uninstall(arguments), |outcome| outcome),
    }
}

async fn uninstall(arguments: &ToolArguments) -> Result<Outcome, Refused> {
    let failed = |error: webhook::install::InstallError| Refused::Failed(error.into());
    let tool = Tool::start(arguments).await?;
    let client = &tool.clients.calls;
    let mut names = vec![tool.settings.webhook.configuration.clone()];
    names.extend(webhook::install::of_dev_mode(client).await.map_err(failed)?);
    let mut done = Removed { removed: Vec::new() };
    for name in names {
        let count = webhook::install::uninstall(client, &name).await.map_err(failed)?;
        if count > 0 {
            done.removed.push((name, count));
        }
    }
    tool::answer(tool.output, &done, || table(&done))?;
    Ok(Outcome::Done)
}

fn table(done: &Removed) -> String {
    if done.removed.is_empty() {
        return "No webhook configuration of ours was there.\n".to_owned();
    }
    let mut text = String::new();
    for (name, count) in &done.removed {
        // Writing into text cannot fail.
        let _ = writeln!(text, "Removed {count} webhook configurations {name}.");
    }
    text.push_str("Nothing is held any more. A chart that is installed brings them back at its next upgrade.\n");
    text
}
