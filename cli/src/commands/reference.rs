//! `offhours completion`, `man` and `reference`: what is made from the definition of the commands itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::Shell;
use shared::annotations::{KEYS, KeyRow, WRITTEN_BY_PEOPLE};
use shared::settings::OPTIONS;

use super::Outcome;
use crate::ops::table;

/// The name under which kubectl finds the program as a plugin.
pub const PLUGIN: &str = "kubectl-offhours";

/// Arguments of `offhours completion`.
#[derive(Debug, Args)]
pub struct CompletionArguments {
    /// The shell, or kubectl: then it is what kubectl asks for the completions of `kubectl offhours`, to be put on the PATH as
    /// kubectl_complete-offhours
    #[arg(value_enum)]
    shell: Completes,

    /// Complete the name kubectl-offhours instead
    #[arg(long)]
    plugin: bool,
}

/// Who completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Completes {
    Bash,
    Elvish,
    Fish,
    Kubectl,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

impl Completes {
    /// `None`: kubectl, which is no shell.
    fn shell(self) -> Option<Shell> {
        match self {
            Self::Bash => Some(Shell::Bash),
            Self::Elvish => Some(Shell::Elvish),
            Self::Fish => Some(Shell::Fish),
            Self::PowerShell => Some(Shell::PowerShell),
            Self::Zsh => Some(Shell::Zsh),
            Self::Kubectl => None,
        }
    }
}

/// What kubectl looks for on the PATH, and starts with the words after `kubectl offhours`.
const FOR_KUBECTL: &str = "#!/bin/sh\n\
    # kubectl asks this for the completions of `kubectl offhours`. Made by `offhours completion kubectl`.\n\
    exec kubectl-offhours __complete -- \"$@\"\n";

/// Arguments of `offhours man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// The directory, made if it is absent
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Arguments of `offhours reference`.
#[derive(Debug, Args)]
pub struct ReferenceArguments {
    /// What
    #[arg(value_enum)]
    what: Reference,
}

/// A page of the reference.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Reference {
    /// All commands
    Cli,
    /// All options: flag, variable, key of the file
    Options,
    /// All labels and annotations
    Annotations,
    /// The fields of an OffHoursSchedule
    Crd,
    /// All metrics
    Metrics,
}

/// Prints a completion script.
///
/// # Errors
/// If it cannot be written.
pub fn completion(arguments: &CompletionArguments, mut command: Command) -> anyhow::Result<Outcome> {
    let Some(shell) = arguments.shell.shell() else {
        return print(FOR_KUBECTL.as_bytes());
    };
    let name = if arguments.plugin { PLUGIN } else { "offhours" };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(&text)
}

/// Writes man pages.
///
/// # Errors
/// If they cannot be written.
pub fn man(arguments: &ManArguments, command: Command) -> anyhow::Result<Outcome> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("failed to write man pages into {}", directory.display()))?;
    Ok(Outcome::Done)
}

/// Prints a page of the reference.
///
/// # Errors
/// If it cannot be written.
pub fn reference(arguments: &ReferenceArguments, mut command: Command) -> anyhow::Result<Outcome> {
    let text = match arguments.what {
        Reference::Options => options(),
        Reference::Annotations => annotations(),
        Reference::Crd => super::crd::page()?,
        Reference::Metrics => table::page(),
        Reference::Cli => {
            command.build();
            let mut text = "<!-- Made by `offhours reference cli`; do not edit. -->\n# Commands\n\n".to_owned();
            text.push_str(
                "Exit codes: 0 done, 1 failed, 2 the command or the settings cannot be used, 3 not everything was done.\n\
                 Options that are also variables and keys of the settings file are in [options](options.md).\n",
            );
            section(&mut text, &command, "offhours");
            text
        }
    };
    print(text.as_bytes())
}

pub(super) fn print(text: &[u8]) -> anyhow::Result<Outcome> {
    std::io::stdout()
        .lock()
        .write_all(text)
        .context("failed to write to standard output")?;
    Ok(Outcome::Done)
}

fn options() -> String {
    let mut text = "<!-- Made by `offhours reference options`; do not edit. -->\n# Options\n\n".to_owned();
    text.push_str(
        "A flag wins over the environment, the environment over the settings file (`--settings`, `OFFHOURS_SETTINGS`), the \
         file over the default. Every mistake is told at start, with the name, the value and what is allowed.\n",
    );
    let mut group = None;
    for row in OPTIONS {
        if group != Some(row.group) {
            group = Some(row.group);
            let _ = write!(
                text,
                "\n## {}\n\n| flag | variable | file | default | meaning |\n|---|---|---|---|---|\n",
                row.group.heading()
            );
        }
        let default = row.default.map_or_else(String::new, |default| format!("`{default}`"));
        let _ = writeln!(
            text,
            "| `--{}` | `{}` | `{}` | {default} | {}. Allowed: {} |",
            row.flag,
            row.variable,
            row.file_key(),
            row.help.replace('|', "\\|"),
            row.form.allowed().replace('|', "\\|")
        );
    }
    text
}

fn annotations() -> String {
    let mut text =
        "<!-- Made by `offhours reference annotations`; do not edit. -->\n# Labels and annotations\n\n".to_owned();
    text.push_str(
        "Values are parsed strictly; one that cannot be read is refused by the webhook where it is written, else ignored and told in an \
         Event. A key under the prefix that nobody knows is warned about.\n",
    );
    let by_people = |row: &&KeyRow| WRITTEN_BY_PEOPLE.contains(&row.key);
    for (title, people) in [("Written by people", true), ("Written by the product", false)] {
        let _ = write!(
            text,
            "\n## {title}\n\n| key | form | on | meaning |\n|---|---|---|---|\n"
        );
        for row in KEYS.iter().filter(|row| by_people(row) == people) {
            let _ = writeln!(text, "| `{}` | {} | {} | {} |", row.key, row.form, row.on, row.meaning);
        }
    }
    text
}

fn section(text: &mut String, command: &Command, path: &str) {
    let hidden = |command: &Command| command.is_hide_set() || command.get_name() == "help";
    if let Some(about) = command.get_about() {
        let _ = write!(text, "\n## {path}\n\n{about}.\n");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let _ = write!(text, "\n```\n{usage}\n```\n");
    // Options of the settings have a page of their own.
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version"))
        .filter(|argument| !OPTIONS.iter().any(|row| row.flag == argument.get_id().as_str()))
        .collect();
    if !own.is_empty() {
        text.push_str("\n| argument | meaning |\n|---|---|\n");
    }
    for argument in own {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let short = argument
            .get_short()
            .map(|short| format!("-{short}, "))
            .unwrap_or_default();
        let _ = writeln!(text, "| `{short}{argument}` | {} |", help.replace('|', "\\|"));
    }
    for inner in command.get_subcommands().filter(|inner| !hidden(inner)) {
        section(text, inner, &format!("{path} {}", inner.get_name()));
    }
}
