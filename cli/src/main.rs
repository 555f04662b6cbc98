//! The `offhours` binary: one file per command under `commands`.

mod clock;
mod commands;
#[cfg(test)]
mod docs;
mod flags;
mod logs;
mod ops;
mod process;
mod sources;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use clock::SystemClock;
use commands::Outcome;
use commands::by_hand::Wish;
use flags::{OfServers, Options};
use shared::settings::OneShotAction;

/// Puts development clusters to sleep outside working hours and brings them back exactly as they were.
#[derive(Debug, Parser)]
#[command(name = "offhours", version, propagate_version = true, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scheduler and webhook, on one view of the cluster
    Run(Box<Options<OfServers>>),
    /// Run the scheduler: puts to sleep and wakes
    Scheduler(Box<Options<OfServers>>),
    /// Run the webhook: holds what sleeps
    #[command(args_conflicts_with_subcommands = true)]
    Webhook(Box<commands::webhook::Arguments>),
    /// Show schedules, what sleeps, what fails and why
    Status(commands::status::Arguments),
    /// Explain why a workload is up or down, until when, and who set what
    Explain(Box<commands::explain::Arguments>),
    /// Print the exact writes that the scheduler would make, now or at another instant
    Plan(commands::plan::Arguments),
    /// Simulate a time ahead: transitions, and what they save
    Simulate(commands::simulate::Arguments),
    /// Read another product's installation, and print it as schedules, labels and annotations
    Migrate(Box<commands::migrate::Arguments>),
    /// Look over the installation, and say what is wrong and how to mend it
    Check(commands::check::Arguments),
    /// Restore everything and take away what the product wrote
    Uninstall(commands::uninstall::Arguments),
    /// Put what follows a schedule to sleep now, once
    Shutdown(Box<commands::one_shot::Arguments>),
    /// Restore what follows a schedule now, once
    Startup(Box<commands::one_shot::Arguments>),
    /// Wake something for a while
    Wake(Box<commands::by_hand::UntilArguments>),
    /// Send something to sleep for a while
    Sleep(Box<commands::by_hand::UntilArguments>),
    /// Keep something from being put to sleep
    Protect(Box<commands::by_hand::ProtectArguments>),
    /// Take a protection away
    Unprotect(Box<commands::by_hand::ProtectArguments>),
    /// Print the OffHoursSchedule custom resource definition
    Crd(commands::crd::Arguments),
    /// Show when a schedule is up and down
    Timeline(commands::timeline::Arguments),
    /// Print a script that completes commands in a shell
    Completion(commands::reference::CompletionArguments),
    /// Complete the last of these words, for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(commands::complete::Arguments),
    /// Write man pages into a directory
    Man(commands::reference::ManArguments),
    /// Print what the chart is made of: roles and webhooks, or the schema of its values
    #[command(hide = true)]
    Rules(commands::rules::Arguments),
    /// Print the reference of commands or of options, as Markdown
    #[command(hide = true)]
    Reference(commands::reference::ReferenceArguments),
}

fn main() -> ExitCode {
    // The provider has to be there before the first TLS connection, whoever makes it. A second one is refused: the first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let parsed = command()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no failure. Nothing is left to do if the terminal is gone.
            let _ = error.print();
            return if error.use_stderr() {
                Outcome::Usage.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    commands::finish(run(cli))
}

/// The commands, under the name by which the program was called: kubectl starts `kubectl-offhours` for `kubectl offhours`.
fn command() -> clap::Command {
    let called = std::env::args_os().next().unwrap_or_default();
    let command = Cli::command();
    if Path::new(&called)
        .file_name()
        .is_some_and(|name| name == commands::reference::PLUGIN)
    {
        command.bin_name("kubectl offhours")
    } else {
        command
    }
}

fn run(cli: Cli) -> anyhow::Result<Outcome> {
    use commands::{by_hand, one_shot, serve};
    let Some(command) = cli.command else {
        // K8s-OffHours' container has no command, only an environment.
        if sources::environment_asks_for_one_pass() {
            return one_shot::run(&Options::default(), None, None);
        }
        // Nothing is left to do if standard error is gone.
        let _ = write!(std::io::stderr(), "{}", command().render_help());
        return Ok(Outcome::Usage);
    };
    match command {
        Command::Run(options) => serve::run(&options, serve::Parts::BOTH),
        Command::Scheduler(options) => serve::run(&options, serve::Parts::SCHEDULER),
        Command::Webhook(arguments) => commands::webhook::run(&arguments, &SystemClock),
        Command::Status(arguments) => commands::status::run(&arguments, &SystemClock),
        Command::Explain(arguments) => commands::explain::run(&arguments, &SystemClock),
        Command::Plan(arguments) => commands::plan::run(&arguments, &SystemClock),
        Command::Simulate(arguments) => commands::simulate::run(&arguments, &SystemClock),
        Command::Migrate(arguments) => commands::migrate::run(&arguments, &SystemClock),
        Command::Check(arguments) => commands::check::run(&arguments, &SystemClock),
        Command::Uninstall(arguments) => commands::uninstall::run(&arguments),
        Command::Shutdown(arguments) => one_shot::asked(&arguments, OneShotAction::Shutdown),
        Command::Startup(arguments) => one_shot::asked(&arguments, OneShotAction::Startup),
        Command::Wake(arguments) => by_hand::until(&arguments, Wish::Wake, &SystemClock),
        Command::Sleep(arguments) => by_hand::until(&arguments, Wish::Sleep, &SystemClock),
        Command::Protect(arguments) => by_hand::protect(&arguments, true),
        Command::Unprotect(arguments) => by_hand::protect(&arguments, false),
        Command::Crd(arguments) => commands::crd::run(&arguments),
        Command::Timeline(arguments) => commands::timeline::run(&arguments, &SystemClock),
        Command::Completion(arguments) => commands::reference::completion(&arguments, Cli::command()),
        Command::Complete(arguments) => commands::complete::run(&arguments, Cli::command()),
        Command::Man(arguments) => commands::reference::man(&arguments, Cli::command()),
        Command::Rules(arguments) => commands::rules::run(&arguments),
        Command::Reference(arguments) => commands::reference::reference(&arguments, Cli::command()),
    }
}
