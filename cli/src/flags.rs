//! Flags made from the table of options.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use shared::settings::{Form, Group, OPTIONS, Row};

/// Which options a command has.
pub trait Selection {
    /// Their groups.
    const GROUPS: &'static [Group];
}

/// What every command that talks to a cluster has.
#[derive(Debug, Clone, Copy)]
pub struct OfTools;

/// What the servers have.
#[derive(Debug, Clone, Copy)]
pub struct OfServers;

/// What one pass has.
#[derive(Debug, Clone, Copy)]
pub struct OfOnePass;

impl Selection for OfTools {
    const GROUPS: &'static [Group] = &[Group::Cluster, Group::Output];
}

impl Selection for OfServers {
    const GROUPS: &'static [Group] = &[
        Group::Cluster,
        Group::Output,
        Group::Servers,
        Group::Webhook,
        Group::Scheduler,
        Group::Schedule,
        Group::Argo,
    ];
}

impl Selection for OfOnePass {
    const GROUPS: &'static [Group] = &[
        Group::Cluster,
        Group::Output,
        Group::Schedule,
        Group::Argo,
        Group::OneShot,
    ];
}

/// The flags that were given, by name.
#[derive(Debug, Clone)]
pub struct Options<S> {
    /// Flag without dashes, and its text.
    pub given: BTreeMap<String, String>,
    /// The settings file.
    pub file: Option<String>,
    selection: PhantomData<S>,
}

impl<S> Default for Options<S> {
    fn default() -> Self {
        Self {
            given: BTreeMap::new(),
            file: None,
            selection: PhantomData,
        }
    }
}

/// The flag and the variable of the settings file, which is no option of its own.
const FILE: &str = "settings";
/// See [`FILE`].
pub const FILE_VARIABLE: &str = "OFFHOURS_SETTINGS";

fn argument(row: &'static Row) -> Arg {
    let mut help = format!("{} [env: {}]", row.help, row.variable);
    if let Some(default) = row.default {
        help.push_str(" [default: ");
        help.push_str(default);
        help.push(']');
    }
    let argument = Arg::new(row.flag)
        .long(row.flag)
        .help(help)
        .help_heading(row.group.heading())
        .action(ArgAction::Set);
    match row.form {
        // What is allowed is checked by the settings, which name the flag in the same words as a variable.
        Form::Boolean => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("true|false"),
        Form::OneOf(words) => {
            // A flag is made once per process, and its words are there as long as that.
            let words: &str = String::leak(words.join("|"));
            argument.value_name(words)
        }
        Form::Whole { .. } => argument.value_name("N"),
        Form::Seconds => argument.value_name("SECONDS"),
        Form::Duration => argument.value_name("DURATION"),
        Form::Address => argument.value_name("ADDRESS:PORT"),
        Form::List => argument.value_name("A,B"),
        Form::CronList => argument.value_name("CRON"),
        Form::Name => argument.value_name("NAME"),
        Form::Text | Form::Secret if row.is_path() => argument.value_name("PATH").value_hint(ValueHint::AnyPath),
        Form::Text | Form::Secret => argument.value_name("TEXT"),
    }
}

fn rows<S: Selection>() -> impl Iterator<Item = &'static Row> {
    OPTIONS.iter().filter(|row| S::GROUPS.contains(&row.group))
}

impl<S: Selection> FromArgMatches for Options<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = rows::<S>()
            .filter_map(|row| {
                let text = matches.get_one::<String>(row.flag)?;
                Some((row.flag.to_owned(), text.clone()))
            })
            .collect();
        Ok(Self {
            given,
            file: matches.get_one::<String>(FILE).cloned(),
            selection: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Selection> Args for Options<S> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long(FILE)
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .help(format!(
                "YAML file with options, schedules and kinds [env: {FILE_VARIABLE}]"
            ))
            .help_heading(Group::Cluster.heading())
            .action(ArgAction::Set);
        rows::<S>().fold(command.arg(file), |command, row| command.arg(argument(row)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
