//! `offhours simulate`: what a week (or another time) of schedules will do, and what it saves, from requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use shared::clock::Clock;
use shared::kinds::{Form, Kind};
use shared::policy::Schedule;
use shared::record::{self, Record};
use shared::schedule::State;
use shared::verdict::verdict;
use shared::workload::Workload;

use super::Outcome;
use super::look::Look;
use super::plan::instant;
use super::status::at_zone;
use super::tool::{self, Refused, Tool, ToolArguments};

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

/// What one replica asks for: cores and GiB.
type Requests = (f64, f64);

/// The same by kind, namespace and name.
type RequestsOf = BTreeMap<(Arc<str>, Arc<str>, Arc<str>), Requests>;

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
    let mut look = Look::at(&tool).await?;
    look.decide(now);
    let mut requests = BTreeMap::new();
    for (kind, _) in look.view.workload_stores() {
        if kind.knobs.iter().any(|knob| knob.form == Form::Count) {
            of_kind(&tool, &kind, &mut requests).await?;
        }
    }
    let mut by_schedule: BTreeMap<Arc<str>, (u32, Saved)> = BTreeMap::new();
    for (_, workload) in look.snapshot().workloads() {
        let Some((name, saved)) = saved(&look, workload, &requests, from, to) else {
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
        from: from.to_string(),
        to: to.to_string(),
        schedules,
        total: total.rounded(),
    };
    super::tell_blind_spots(&look)?;
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
fn saved(
    look: &Look,
    workload: &Workload,
    requests: &RequestsOf,
    from: Timestamp,
    to: Timestamp,
) -> Option<(Arc<str>, Saved)> {
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
    let key = (
        Arc::from(workload.kind.kind.as_ref()),
        Arc::clone(&workload.namespace),
        Arc::clone(&workload.name),
    );
    let (cores, memory) = requests.get(&key).copied().unwrap_or_default();
    Some((
        name?,
        Saved {
            replicas: hours,
            cores: hours * cores,
            memory: hours * memory,
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

/// What a replica of each object of a kind asks for.
async fn of_kind(tool: &Tool, kind: &Kind, requests: &mut RequestsOf) -> Result<(), Refused> {
    let root = format!("/apis/{}/{}/{}", kind.group, kind.version, kind.plural);
    let mut next = String::new();
    loop {
        let url = format!("{root}?limit=500{next}");
        let page = match tool.send(Method::GET, &url, "application/json", Vec::new()).await {
            Ok(page) => page,
            // Told as a blind spot already, or not installed.
            Err(error) if matches!(error.code(), Some(403 | 404)) => return Ok(()),
            Err(error) => {
                return Err(Refused::Failed(anyhow::anyhow!(
                    "failed to list {}: {error}",
                    kind.plural
                )));
            }
        };
        for object in page.pointer("/items").and_then(Value::as_array).into_iter().flatten() {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(Arc::<str>::from);
            if let (Some(namespace), Some(name)) = (text("/metadata/namespace"), text("/metadata/name")) {
                requests.insert((Arc::from(kind.kind.as_ref()), namespace, name), of_template(object));
            }
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => next = format!("&continue={token}"),
            _ => return Ok(()),
        }
    }
}

fn of_template(object: &Value) -> Requests {
    let containers = object
        .pointer("/spec/template/spec/containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut sum = (0.0, 0.0);
    for container in containers {
        let ask = |what: &str| {
            container
                .pointer(&format!("/resources/requests/{what}"))
                .and_then(quantity)
        };
        sum.0 += ask("cpu").unwrap_or(0.0);
        sum.1 += ask("memory").unwrap_or(0.0) / (1024.0 * 1024.0 * 1024.0);
    }
    sum
}

/// What the suffixes of quantities mean.
const SUFFIXES: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// A Kubernetes quantity, such as `100m`, `1.5` or `128Mi`.
fn quantity(value: &Value) -> Option<f64> {
    let text = match value {
        Value::Number(number) => return number.as_f64(),
        Value::String(text) => text.as_str(),
        _ => return None,
    };
    if let Ok(plain) = text.parse::<f64>() {
        return Some(plain);
    }
    SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some(text.strip_suffix(suffix)?.parse::<f64>().ok()? * factor))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, value) in [
            ("100m", 0.1),
            ("2", 2.0),
            ("1.5", 1.5),
            ("128Mi", 134_217_728.0),
            ("1Gi", 1_073_741_824.0),
            ("1k", 1000.0),
            ("2e3", 2000.0),
        ] {
            let found = quantity(&json!(text)).unwrap();
            assert!((found - value).abs() < 1e-6, "{text}: {found}");
        }
        assert_eq!(quantity(&json!("much")), None);
    }

    #[test]
    fn requests_of_all_containers_count() {
        let object = json!({"spec": {"template": {"spec": {"containers": [
            {"resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}},
            {"resources": {"requests": {"cpu": "250m"}}},
            {}
        ]}}}});
        let (cores, memory) = of_template(&object);
        assert!(
            (cores - 0.5).abs() < 1e-9 && (memory - 0.5).abs() < 1e-9,
            "{cores} {memory}"
        );
    }
}
