//! `offhours status`: schedules, what is down, what fails and why.

use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use scheduler::decide::assess::Class;
use serde::Serialize;
use shared::clock::Clock;
use shared::policy::{Origin, Schedule};

use super::Outcome;
use super::look::Look;
use super::tool::{self, AllNamespaces, Refused, Tool, ToolArguments};

/// Arguments of `offhours status`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    all: AllNamespaces,

    #[command(flatten)]
    tool: ToolArguments,
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    at: String,
    /// The one namespace that this is about; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    schedules: Vec<ScheduleStatus>,
    /// Why nobody can say which schedules there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedules_unknown: Option<String>,
    /// What sleeps.
    asleep: Vec<Sleeper>,
    /// What is not where it should be.
    troubles: Vec<Trouble>,
    /// What could not be read.
    unreadable: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScheduleStatus {
    name: String,
    origin: &'static str,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    zone: String,
    suspended: bool,
    mode: String,
    up: u32,
    down: u32,
    protected: u32,
    failing: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What the running product reports: the condition `Degraded` of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sleeper {
    kind: String,
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<String>,
}

#[derive(Debug, Serialize)]
struct Trouble {
    kind: String,
    namespace: String,
    name: String,
    reason: &'static str,
    message: String,
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    tool::block_on(status(arguments, clock), |outcome| outcome)
}

async fn status(arguments: &Arguments, clock: &dyn Clock) -> Result<Outcome, Refused> {
    let tool = Tool::start(&arguments.tool).await?;
    let mut look = Look::as_far_as_one_may(&tool, &arguments.all).await?;
    let now = clock.now();
    look.decide(now);
    let status = Status {
        at: now.to_string(),
        namespace: look.only().map(str::to_owned),
        schedules_unknown: look.snapshot().schedules().unavailability().map(ToString::to_string),
        schedules: look
            .snapshot()
            .schedules()
            .iter()
            .map(|schedule| of_schedule(&look, schedule, now))
            .collect(),
        asleep: asleep(&look),
        troubles: troubles(&look),
        unreadable: look.blind_spots(),
    };
    super::tell_blind_spots(&look)?;
    tool::answer(tool.output, &status, || table(&status))?;
    Ok(Outcome::Done)
}

fn of_schedule(look: &Look, schedule: &Schedule, now: Timestamp) -> ScheduleStatus {
    let count = |class: Class| {
        let all = look.assessments().filter(|(_, found)| {
            found.class == class && found.schedule.as_ref().is_some_and(|own| own.name == schedule.name)
        });
        u32::try_from(all.count()).unwrap_or(u32::MAX)
    };
    let present = schedule.present(now);
    let next = present.as_ref().ok().and_then(|present| present.until);
    ScheduleStatus {
        name: schedule.name.to_string(),
        origin: match schedule.origin {
            Origin::Resource => "resource",
            Origin::Settings => "settings",
            Origin::InPlace => "inPlace",
        },
        state: present
            .as_ref()
            .map_or("Unknown", |present| present.moment.state.as_str())
            .to_owned(),
        decided_by: present
            .as_ref()
            .ok()
            .map(|present| present.moment.decided_by.to_string()),
        next: next.map(|at| at_zone(schedule, at)),
        zone: schedule.zone_name(),
        suspended: schedule.suspend,
        mode: format!("{:?}", schedule.enforcement.mode),
        up: count(Class::Up),
        down: count(Class::Down),
        protected: count(Class::Protected),
        failing: count(Class::Failing),
        problem: present.err().map(|why| why.to_string()),
        degraded: degraded(look, schedule),
    }
}

/// What the product that runs says of it: failed writes, for one, are nothing that a look could see.
fn degraded(look: &Look, schedule: &Schedule) -> Option<String> {
    if schedule.origin != Origin::Resource {
        return None;
    }
    let item = look.compiled().resources.get(&schedule.name)?;
    let status = item.object.as_ref().ok()?.status.as_ref()?;
    let condition = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Degraded" && condition.status == "True")?;
    Some(format!("{} ({})", condition.message, condition.reason))
}

/// An instant in the schedule's zone.
pub fn at_zone(schedule: &Schedule, at: Timestamp) -> String {
    match &schedule.timeline {
        Ok(timeline) => timeline.zone().display(at),
        Err(_) => at.to_string(),
    }
}

fn asleep(look: &Look) -> Vec<Sleeper> {
    let all = look.assessments().filter(|(_, found)| found.asleep);
    all.map(|(object, found)| Sleeper {
        kind: object.kind.to_string(),
        namespace: object.namespace.to_string(),
        name: object.name.to_string(),
        schedule: found.schedule.as_ref().map(|schedule| schedule.name.to_string()),
        original: look
            .workload(object)
            .and_then(|workload| workload.label(shared::annotations::ASLEEP).map(str::to_owned)),
    })
    .collect()
}

fn troubles(look: &Look) -> Vec<Trouble> {
    look.assessments()
        .filter_map(|(object, found)| {
            let skip = found.trouble.as_ref()?;
            Some(Trouble {
                kind: object.kind.to_string(),
                namespace: object.namespace.to_string(),
                name: object.name.to_string(),
                reason: skip.reason,
                message: skip.message.clone(),
            })
        })
        .collect()
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    if let Some(namespace) = &status.namespace {
        let _ = writeln!(text, "In namespace {namespace}:");
    }
    if let (true, Some(why)) = (status.schedules.is_empty(), &status.schedules_unknown) {
        let _ = writeln!(text, "Nobody can say which schedules there are: {why}");
    } else if status.schedules.is_empty() {
        text.push_str("There are no schedules. Create an OffHoursSchedule, or write one into the settings file.\n");
    } else {
        let rows: Vec<Vec<String>> = status
            .schedules
            .iter()
            .map(|schedule| {
                vec![
                    schedule.name.clone(),
                    if schedule.suspended {
                        "Suspended".to_owned()
                    } else {
                        schedule.state.clone()
                    },
                    schedule.next.clone().unwrap_or_else(|| "never".to_owned()),
                    schedule.mode.clone(),
                    format!("{}/{}", schedule.down, schedule.up + schedule.down + schedule.failing),
                    schedule.protected.to_string(),
                    schedule.failing.to_string(),
                ]
            })
            .collect();
        text.push_str(&tool::table(
            &["SCHEDULE", "STATE", "UNTIL", "MODE", "DOWN", "PROTECTED", "FAILING"],
            &rows,
        ));
    }
    for schedule in &status.schedules {
        if let Some(problem) = &schedule.problem {
            let _ = writeln!(text, "schedule {}: {problem}", schedule.name);
        }
        if let Some(degraded) = &schedule.degraded {
            let _ = writeln!(text, "schedule {}, as the scheduler reports: {degraded}", schedule.name);
        }
    }
    if !status.asleep.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<String>> = status
            .asleep
            .iter()
            .map(|sleeper| {
                vec![
                    sleeper.namespace.clone(),
                    format!("{}/{}", sleeper.kind.to_ascii_lowercase(), sleeper.name),
                    sleeper.schedule.clone().unwrap_or_else(|| "-".to_owned()),
                    sleeper.original.clone().unwrap_or_else(|| "-".to_owned()),
                ]
            })
            .collect();
        text.push_str(&tool::table(&["NAMESPACE", "ASLEEP", "SCHEDULE", "ORIGINAL"], &rows));
    }
    if !status.troubles.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<String>> = status
            .troubles
            .iter()
            .map(|trouble| {
                vec![
                    trouble.namespace.clone(),
                    format!("{}/{}", trouble.kind.to_ascii_lowercase(), trouble.name),
                    trouble.reason.to_owned(),
                    trouble.message.clone(),
                ]
            })
            .collect();
        text.push_str(&tool::table(
            &["NAMESPACE", "NOT AS IT SHOULD BE", "REASON", "WHY"],
            &rows,
        ));
    }
    text
}
