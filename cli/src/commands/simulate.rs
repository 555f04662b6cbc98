//! `offhours simulate`: what a week (or another time) of schedules will do, and what it saves, from requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use shared::annotations::format_instant;
use shared::clock::Clock;
use shared::kinds::Form;
use shared::policy::Schedule;
use shared::record::{self, Record};
use shared::schedule::State;
use shared::verdict::verdict;
use shared::workload::Workload;

use super::Outcome;
use super::look::Look;
use super::plan::instant;
use super::status::at_zone;
use super::tool::{self, AllNamespaces, Refused, Tool, ToolArguments};

/// How far ahead where nobody says.
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Changes of one workload that are followed at most.
const CHANGES: usize = 20_000;
/// Transitions of one schedule that are shown at most.
const SHOWN: usize = 1_000;

/// Arguments of `offhours simulate`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// From when, such as 2026-12-01T00:00:00-03:00 [default: now]
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,

    /// Until when [default: 7 days after --from]
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,

    #[command(flatten)]
    all: AllNamespaces,

    #[command(flatten)]
    tool: ToolArguments,
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Simulation {
    from: String,
    to: String,
    schedules: Vec<Simulated>,
    total: Saved,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Simulated {
    schedule: String,
    workloads: u32,
    transitions: Vec<Moved>,
    saved: Saved,
}

#[derive(Debug, Serialize)]
struct Moved {
    at: String,
    to: &'static str,
}

/// What is not used in the time.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Saved {
    #[serde(rename = "replicaHours")]
    replicas: f64,
    #[serde(rename = "cpuCoreHours")]
    cores: f64,
    #[serde(rename = "memoryGibHours")]
    memory: f64,
}

impl Saved {
    fn add(&mut self, other: Self) {
        self.replicas += other.replicas;
        self.cores += other.cores;
        self.memory += other.memory;
    }

    fn rounded(self) -> Self {
        let round = |value: f64| (value * 100.0).round() / 100.0;
        Self {
            replicas: round(self.replicas),
            cores: round(self.cores),
            memory: round(self.memory),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    tool::block_on(simulate(arguments, clock), |outcome| outcome)
}

async fn simulate(arguments: &Arguments, clock: &dyn Clock) -> Result<Outcome, Refused> {
    let now = clock.now();
    let from = arguments.from.as_deref().map_or(Ok(now), instant)?;
    let to = match &arguments.to {
        Some(text) => instant(text)?,
        None => from
            .checked_add(WEEK)
            .map_err(|error| Refused::Failed(anyhow::Error::new(error)))?,
    };
    if to <= from {
        return Err(Refused::Usage(format!("--to {to} is not after --from {from}")));
    }
    let tool = Tool::start(&arguments.tool).await?;
    let mut look = Look::as_far_as_one_may(&tool, &arguments.all).await?;
    look.decide(now);
    let mut by_schedule: BTreeMap<Arc<str>, (u32, Saved)> = BTreeMap::new();
    for (object, workload) in look.snapshot().workloads() {
        if !look.shows(object) {
            continue;
        }
        let Some((name, saved)) = saved(&look, workload, from, to) else {
            continue;
        };
        let entry = by_schedule.entry(name).or_default();
        entry.0 += 1;
        entry.1.add(saved);
    }
    let mut total = Saved::default();
    let mut schedules = Vec::new();
    for schedule in look.snapshot().schedules().iter() {
        let (workloads, saved) = by_schedule.remove(&schedule.name).unwrap_or_default();
        total.add(saved);
        schedules.push(Simulated {
            schedule: schedule.name.to_string(),
            workloads,
            transitions: transitions(schedule, from, to),
            saved: saved.rounded(),
        });
    }
    // Schedules in place have no resource, but save as well.
    for (name, (workloads, saved)) in by_schedule {
        total.add(saved);
        schedules.push(Simulated {
            schedule: name.to_string(),
            workloads,
            transitions: Vec::new(),
            saved: saved.rounded(),
        });
    }
    let simulation = Simulation {
        from: format_instant(from),
        to: format_instant(to),
        schedules,
        total: total.rounded(),
        unreadable: look.blind_spots(),
    };
    super::tell_blind_spots(&look)?;
    for schedule in simulation.schedules.iter().filter(|one| one.transitions.len() >= SHOWN) {
        writeln!(
            std::io::stderr(),
            "note: schedule {:?} has more than {SHOWN} transitions in this time, and the list ends there; ask for a shorter one with --to",
            schedule.schedule
        )
        .context("failed to write to standard error")?;
    }
    tool::answer(tool.output, &simulation, || table(&simulation))?;
    Ok(Outcome::Done)
}

fn transitions(schedule: &Schedule, from: Timestamp, to: Timestamp) -> Vec<Moved> {
    let Ok(timeline) = &schedule.timeline else {
        return Vec::new();
    };
    let found = timeline.transitions(from, to, SHOWN).unwrap_or_default();
    found
        .iter()
        .map(|transition| Moved {
            at: at_zone(schedule, transition.at),
            to: transition.to.as_str(),
        })
        .collect()
}

/// What a workload does not use between two instants, and the schedule that says so.
fn saved(look: &Look, workload: &Workload, from: Timestamp, to: Timestamp) -> Option<(Arc<str>, Saved)> {
    let around = look.snapshot().surroundings(workload);
    let count = replicas(workload);
    let mut name = None;
    let mut hours = 0.0;
    let mut at = from;
    for _ in 0..CHANGES {
        let said = verdict(workload, &around, at);
        let end = said.until.filter(|until| *until > at).map_or(to, |until| until.min(to));
        if name.is_none() {
            name = said.schedule.as_ref().map(|schedule| Arc::clone(&schedule.name));
        }
        if said.state == State::Down {
            let gone = count.saturating_sub(said.down_replicas.of(count));
            hours += gone as f64 * end.duration_since(at).as_secs_f64() / 3600.0;
        }
        if end >= to {
            break;
        }
        at = end;
    }
    Some((
        name?,
        Saved {
            replicas: hours,
            cores: hours * workload.requests.cores(),
            memory: hours * workload.requests.gib(),
        },
    ))
}

/// How many replicas it has when it is awake.
fn replicas(workload: &Workload) -> u64 {
    if let Some(count) = Record::read(workload).and_then(|record| record.replicas()) {
        return count;
    }
    let knob = workload.kind.knobs.first().filter(|knob| knob.form == Form::Count);
    knob.and_then(|_| workload.knobs.first()?.value.as_ref())
        .and_then(record::count)
        .unwrap_or(1)
}

fn table(simulation: &Simulation) -> String {
    let mut text = format!("From {} to {}\n\n", simulation.from, simulation.to);
    let row = |name: &str, workloads: String, transitions: String, saved: &Saved| {
        vec![
            name.to_owned(),
            workloads,
            transitions,
            format!("{:.1}", saved.replicas),
            format!("{:.1}", saved.cores),
            format!("{:.1}", saved.memory),
        ]
    };
    let mut rows: Vec<Vec<String>> = simulation
        .schedules
        .iter()
        .map(|one| {
            row(
                &one.schedule,
                one.workloads.to_string(),
                one.transitions.len().to_string(),
                &one.saved,
            )
        })
        .collect();
    rows.push(row("total", String::new(), String::new(), &simulation.total));
    text.push_str(&tool::table(
        &[
            "SCHEDULE",
            "WORKLOADS",
            "TRANSITIONS",
            "REPLICA-HOURS SAVED",
            "CPU CORE-HOURS",
            "MEMORY GIB-HOURS",
        ],
        &rows,
    ));
    for one in &simulation.schedules {
        if !one.transitions.is_empty() {
            let _ = writeln!(text, "\n{}", one.schedule);
        }
        for moved in &one.transitions {
            let _ = writeln!(text, "  {} {}", moved.at, moved.to);
        }
    }
    text
}
