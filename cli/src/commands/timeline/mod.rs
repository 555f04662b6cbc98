//! `offhours timeline`: when a schedule is up and down, from a file or from the cluster.

mod output;
mod source;

use std::io::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};
use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Timestamp, Unit};
use shared::clock::Clock;
use shared::schedule::{Problem, Zone, parse_zone};

use super::Outcome;
use crate::flags::{OfTools, Options};
use source::{Loaded, Refused};

/// Arguments of `offhours timeline`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A file with an OffHoursSchedule (YAML or JSON, also several documents), or - for standard input; else the cluster is asked
    #[arg(short, long, value_name = "FILE")]
    file: Option<std::path::PathBuf>,

    /// Which schedule, where there are several
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,

    /// From when: an RFC 3339 instant, or a local date-time or date in the zone shown [default: now]
    #[arg(long, value_name = "T")]
    from: Option<String>,

    /// Until when (excluded) [default: 7 days after --from]
    #[arg(long, value_name = "T", conflicts_with = "at")]
    to: Option<String>,

    /// Show one instant instead
    #[arg(long, value_name = "T", conflicts_with = "from")]
    at: Option<String>,

    /// The zone in which local times are read and shown [default: the schedule's]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,

    #[command(flatten)]
    options: Options<OfTools>,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and files
    Yaml,
    /// iCalendar, an event for each time down
    Ics,
}

/// Transitions shown at most; whoever wants more asks for a shorter range.
const SHOWN: usize = 100_000;

/// Runs the command.
///
/// # Errors
/// If the cluster cannot be asked, or nothing can be written.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    let loaded = match &arguments.file {
        Some(path) => source::from_file(path, arguments.schedule.as_deref()),
        None => source::from_cluster(arguments.schedule.as_deref(), &arguments.options),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(Refused::Input(problems)) => return refuse(arguments, &problems),
        Err(Refused::Settings(wrong)) => {
            wrong.tell();
            return Ok(Outcome::Usage);
        }
        Err(Refused::Failed(error)) => return Err(error),
    };
    for warning in &loaded.validated.warnings {
        writeln!(std::io::stderr(), "warning: {warning}").context("failed to write to standard error")?;
    }
    let view = match view(arguments, clock, &loaded) {
        Ok(view) => view,
        Err(problem) => return refuse(arguments, &[problem]),
    };
    let text = match view {
        View::At { at, zone } => output::instant(&loaded, at, &zone, arguments.output)?,
        View::Range { from, to, zone } => {
            let transitions = loaded.validated.timeline.transitions(from, to, SHOWN)?;
            anyhow::ensure!(
                transitions.len() < SHOWN,
                "more than {SHOWN} transitions; ask for a shorter range"
            );
            output::range(
                &loaded,
                &output::Range {
                    from,
                    to,
                    zone,
                    transitions,
                },
                arguments.output,
            )?
        }
    };
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")?;
    Ok(Outcome::Done)
}

/// Says what is wrong: for people on standard error, under `-o json` and `-o yaml` also for programs.
fn refuse(arguments: &Arguments, problems: &[Problem]) -> anyhow::Result<Outcome> {
    if matches!(arguments.output, Format::Json | Format::Yaml) {
        let text = output::problems(problems, &[], arguments.output)?;
        std::io::stdout()
            .lock()
            .write_all(text.as_bytes())
            .context("failed to write to standard output")?;
    }
    for problem in problems {
        writeln!(std::io::stderr(), "error: {problem}").context("failed to write to standard error")?;
    }
    Ok(Outcome::Usage)
}

/// What is to be shown.
enum View {
    At { at: Timestamp, zone: Zone },
    Range { from: Timestamp, to: Timestamp, zone: Zone },
}

fn view(arguments: &Arguments, clock: &dyn Clock, loaded: &Loaded) -> Result<View, Problem> {
    let zone = match &arguments.zone {
        Some(name) => parse_zone(name).map_err(|message| Problem::new("--zone", message))?,
        None => loaded.validated.timeline.zone().clone(),
    };
    let read = |flag: &str, text: &Option<String>| text.as_ref().map(|text| instant(flag, text, &zone)).transpose();
    if let Some(at) = read("--at", &arguments.at)? {
        if arguments.output == Format::Ics {
            return Err(Problem::new(
                "--at",
                "one instant has no iCalendar form; use -o table, -o json or -o yaml",
            ));
        }
        return Ok(View::At { at, zone });
    }
    let from = match read("--from", &arguments.from)? {
        Some(from) => from,
        // Nobody wants to read fractions of a second.
        None => clock
            .now()
            .round(Unit::Second)
            .map_err(|error| Problem::new("--from", error.to_string()))?,
    };
    let week = SignedDuration::from_hours(7 * 24);
    let to = match read("--to", &arguments.to)? {
        Some(to) => to,
        None => from
            .checked_add(week)
            .map_err(|error| Problem::new("--to", error.to_string()))?,
    };
    if to <= from {
        return Err(Problem::new(
            "--to",
            format!("{to} is not after {from}; swap --from and --to"),
        ));
    }
    Ok(View::Range { from, to, zone })
}

fn instant(flag: &str, text: &str, zone: &Zone) -> Result<Timestamp, Problem> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let wall = text
        .parse::<DateTime>()
        .ok()
        .or_else(|| Some(text.parse::<Date>().ok()?.to_datetime(jiff::civil::Time::MIN)));
    // A repeated time is its first occurrence, a missing one the first after the gap: as in schedules.
    wall.map(|wall| zone.instant(wall)).ok_or_else(|| {
        Problem::new(
            flag,
            format!("{text:?} is neither an instant such as 2026-12-01T08:00:00Z nor a local date-time such as 2026-12-01T08:00"),
        )
    })
}

#[cfg(test)]
mod tests;
