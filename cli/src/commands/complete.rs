//! `offhours __complete`: the words that may come next, as kubectl asks a plugin for them.
//!
//! kubectl starts `kubectl_complete-offhours` with the words after `kubectl offhours`; the last one, which may be empty, is to be
//! completed. It reads one candidate per line, a tab before what it means, and at last a colon with a number.

use std::fmt::Write as _;

use clap::{Arg, Command, ValueHint};
use shared::kinds::Kinds;
use shared::settings::{Form, option};

use super::Outcome;
use super::reference::print;

/// Arguments of `offhours __complete`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What the shell does with the candidates, in the numbers of kubectl's library.
const FILES_TOO: u8 = 0;
const NO_FILES: u8 = 4;
const NO_FILES_NO_SPACE: u8 = 6;

/// The answer.
#[derive(Debug, Default)]
struct Candidates {
    /// A word, and what it means.
    found: Vec<(String, String)>,
    directive: u8,
}

/// Prints what may come next.
///
/// # Errors
/// If it cannot be written.
pub fn run(arguments: &Arguments, mut command: Command) -> anyhow::Result<Outcome> {
    command.build();
    let candidates = complete(&command, &arguments.words);
    let mut text = String::new();
    for (word, meaning) in &candidates.found {
        let meaning = meaning.lines().next().unwrap_or_default();
        let _ = if meaning.is_empty() {
            writeln!(text, "{word}")
        } else {
            writeln!(text, "{word}\t{meaning}")
        };
    }
    let _ = writeln!(text, ":{}", candidates.directive);
    print(text.as_bytes())
}

fn complete(command: &Command, words: &[String]) -> Candidates {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let mut command = command;
    let mut waiting: Option<&Arg> = None;
    let mut positional = 0;
    let mut flags_end = false;
    for word in before {
        if waiting.take().is_some() {
            continue;
        }
        if !flags_end && word == "--" {
            flags_end = true;
        } else if !flags_end && word.len() > 1 && word.starts_with('-') {
            waiting = waits_for_value(command, word);
        } else if let Some(inner) = command.find_subcommand(word).filter(|_| positional == 0 && !flags_end) {
            command = inner;
        } else {
            positional += 1;
        }
    }
    if let Some(argument) = waiting {
        return values(argument, "", last);
    }
    if !flags_end && last.starts_with('-') {
        if let Some((flag, value)) = last.split_once('=') {
            return match long(command, flag) {
                Some(argument) => values(argument, &format!("{flag}="), value),
                None => chosen(Vec::new(), last, NO_FILES),
            };
        }
        return chosen(flags(command), last, NO_FILES);
    }
    if positional == 0 && command.has_subcommands() && !flags_end {
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let found = shown.map(|inner| (inner.get_name().to_owned(), meaning(inner.get_about())));
        return chosen(found.collect(), last, NO_FILES);
    }
    match command.get_positionals().nth(positional) {
        Some(argument) => values(argument, "", last),
        None => chosen(Vec::new(), last, NO_FILES),
    }
}

fn meaning(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn long<'c>(command: &'c Command, flag: &str) -> Option<&'c Arg> {
    let name = flag.strip_prefix("--")?;
    command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(name))
}

/// One that is written with `=` has its value in the same word.
fn takes_next(argument: &Arg) -> bool {
    argument.get_action().takes_values() && !argument.is_require_equals_set()
}

/// The flag of this word, if its value is the next word.
fn waits_for_value<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    if word.starts_with("--") {
        return long(command, word).filter(|argument| takes_next(argument));
    }
    // Several short ones may stand together; what follows one that takes a value is its value.
    let mut letters = word.chars().skip(1);
    while let Some(letter) = letters.next() {
        let argument = command
            .get_arguments()
            .find(|argument| argument.get_short() == Some(letter))?;
        if takes_next(argument) {
            return letters.next().is_none().then_some(argument);
        }
    }
    None
}

fn flags(command: &Command) -> Vec<(String, String)> {
    let shown = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && !argument.is_positional());
    let mut found = Vec::new();
    for argument in shown {
        let meaning = meaning(argument.get_help());
        found.extend(argument.get_long().map(|long| (format!("--{long}"), meaning.clone())));
        found.extend(argument.get_short().map(|short| (format!("-{short}"), meaning)));
    }
    found
}

/// What an argument may be; `before` stands in the same word before it.
fn values(argument: &Arg, before: &str, last: &str) -> Candidates {
    let words = |words: &[&str]| -> Vec<(String, String)> {
        let words = words.iter().map(|word| (format!("{before}{word}"), String::new()));
        words.collect()
    };
    let typed = format!("{before}{last}");
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        let found = shown.map(|value| (format!("{before}{}", value.get_name()), meaning(value.get_help())));
        return chosen(found.collect(), &typed, NO_FILES);
    }
    let id = argument.get_id().as_str();
    match option(id).map(|row| row.form) {
        Some(Form::Boolean) => return chosen(words(&["true", "false"]), &typed, NO_FILES),
        Some(Form::OneOf(allowed)) => return chosen(words(allowed), &typed, NO_FILES),
        _ => {}
    }
    if id == "target" && !last.contains('/') {
        let kinds = Kinds::default();
        let named = kinds.rows().iter().map(|kind| kind.kubectl_name());
        let found = std::iter::once("namespace".to_owned()).chain(named);
        return chosen(
            found.map(|kind| (format!("{kind}/"), String::new())).collect(),
            last,
            NO_FILES_NO_SPACE,
        );
    }
    let is_path = matches!(
        argument.get_value_hint(),
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
    );
    chosen(Vec::new(), last, if is_path { FILES_TOO } else { NO_FILES })
}

fn chosen(found: Vec<(String, String)>, typed: &str, directive: u8) -> Candidates {
    let found = found.into_iter().filter(|(word, _)| word.starts_with(typed)).collect();
    Candidates { found, directive }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn of(words: &[&str]) -> (Vec<String>, u8) {
        let mut command = Cli::command();
        command.build();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let candidates = complete(&command, &words);
        let found = candidates.found.into_iter().map(|(word, _)| word).collect();
        (found, candidates.directive)
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        for (words, found, directive) in [
            (&["wa"][..], &["wake"][..], NO_FILES),
            (&["webhook", "ch"], &["check"], NO_FILES),
            (&["status", "--all"], &["--all-namespaces"], NO_FILES),
            (
                &["status", "-n", "shop", "-o", ""],
                &["table", "json", "yaml"],
                NO_FILES,
            ),
            (&["status", "--output=j"], &["--output=json"], NO_FILES),
            (&["status", "-Ao", "y"], &["yaml"], NO_FILES),
            (&["run", "--on-uncertainty", ""], &["allow", "deny"], NO_FILES),
            (&["run", "--verbose=f"], &["--verbose=false"], NO_FILES),
            (&["wake", "deployment"], &["deployment/"], NO_FILES_NO_SPACE),
            (&["wake", "--for", "2h", "names"], &["namespace/"], NO_FILES_NO_SPACE),
            (&["completion", "k"], &["kubectl"], NO_FILES),
            (&["completion", "--", "k"], &["kubectl"], NO_FILES),
            (&["timeline", "-f", "sch"], &[], FILES_TOO),
            (&["status", "--settings", ""], &[], FILES_TOO),
            (&["man", ""], &[], FILES_TOO),
            (&["wake", "deployment/a", ""], &[], NO_FILES),
            (&["no-such-command", ""], &[], NO_FILES),
            (&["status", "--no-such-flag=x"], &[], NO_FILES),
        ] {
            assert_eq!(
                of(words),
                (found.iter().map(|word| (*word).to_owned()).collect(), directive),
                "{words:?}"
            );
        }
    }

    #[test]
    fn nothing_hidden_is_offered() {
        let (found, _) = of(&[""]);
        assert!(
            found.contains(&"explain".to_owned()) && found.contains(&"help".to_owned()),
            "{found:?}"
        );
        assert!(
            !found.iter().any(|word| word.starts_with('_') || word == "rules"),
            "{found:?}"
        );
        assert_eq!(of(&[]).0, found);
        let (flags, _) = of(&["explain", "-"]);
        assert!(
            flags.contains(&"-n".to_owned()) && flags.contains(&"--namespace".to_owned()),
            "{flags:?}"
        );
        assert!(
            !flags.contains(&"-A".to_owned()),
            "one target is in one namespace: {flags:?}"
        );
    }
}
