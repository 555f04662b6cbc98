//! The `offhours` binary: one file per command under `commands`.

mod clock;
mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Puts development clusters to sleep outside working hours and brings them back exactly as they were.
#[derive(Debug, Parser)]
#[command(name = "offhours", version, propagate_version = true, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the OffHoursSchedule custom resource definition
    Crd(commands::crd::Arguments),
    /// Show when a schedule is up and down
    Timeline(commands::timeline::Arguments),
}

fn main() -> ExitCode {
    // The provider has to be there before the first TLS connection, whoever makes it. A second one is refused: the first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no failure. Nothing is left to do if the terminal is gone.
            let _ = error.print();
            return if error.use_stderr() {
                commands::Outcome::Usage.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let result = match cli.command {
        Command::Crd(arguments) => commands::crd::run(&arguments),
        Command::Timeline(arguments) => commands::timeline::run(&arguments, &clock::SystemClock),
    };
    commands::finish(result)
}
