//! `offhours explain`: why one workload is up or down, until when, and who set what.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use http::Method;
use jiff::Timestamp;
use scheduler::decide::workload::Step;
use serde::Serialize;
use serde_json::Value;
use shared::annotations::{self, ASLEEP_UNTIL, AWAKE_UNTIL, PREFIX};
use shared::clock::Clock;
use shared::kinds::Kind;
use shared::record::Record;
use shared::schedule::State;
use shared::verdict::{Note, verdict};
use shared::workload::{ObjectRef, Workload};

use super::Outcome;
use super::look::Look;
use super::status::at_zone;
use super::tool::{self, AllNamespaces, Refused, Target, Tool, ToolArguments};

/// Arguments of `offhours explain`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What: KIND/NAME, such as deployment/checkout
    target: String,

    #[command(flatten)]
    tool: ToolArguments,
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    kind: String,
    namespace: String,
    name: String,
    /// `Up`, `Down` or `Unknown`: what should be.
    state: &'static str,
    decided_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    mode: String,
    asleep: bool,
    knobs: Vec<KnobState>,
    /// What the scheduler would do now.
    now: String,
    /// What it would do at the next transition.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    notes: Vec<String>,
    managers: Vec<Manager>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

#[derive(Debug, Serialize)]
struct KnobState {
    knob: String,
    value: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
}

/// Who set a field that concerns us.
#[derive(Debug, Serialize)]
struct Manager {
    field: String,
    #[serde(rename = "manager")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    tool::block_on(explain(arguments, clock), |outcome| outcome)
}

async fn explain(arguments: &Arguments, clock: &dyn Clock) -> Result<Outcome, Refused> {
    Target::split(&arguments.target)?;
    let tool = Tool::start(&arguments.tool).await?;
    let target = Target::parse(&arguments.target, &tool.settings.kinds, &tool.namespace)?;
    let Target::Workload { kind, name, namespace } = &target else {
        return Err(Refused::Usage(format!(
            "{} has no verdict of its own; explain a workload, such as deployment/checkout",
            target.told()
        )));
    };
    let mut look = Look::as_far_as_one_may(&tool, &AllNamespaces::default()).await?;
    let now = clock.now();
    look.decide(now);
    let object = ObjectRef {
        group: Arc::from(kind.group.as_ref()),
        kind: Arc::from(kind.kind.as_ref()),
        namespace: Arc::from(namespace.as_str()),
        name: Arc::from(name.as_str()),
    };
    let raw = tool
        .send(Method::GET, &target.url(), "application/json", Vec::new())
        .await
        .map_err(|error| match error.code() {
            Some(404) => Refused::Failed(anyhow::anyhow!(target.missing())),
            _ => Refused::Failed(anyhow::anyhow!("failed to read {}: {error}", target.told())),
        })?;
    let workload = match look.workload(&object) {
        Some(workload) => Arc::clone(workload),
        // A kind that no schedule asks for is not followed.
        None => Arc::new(
            Workload::read(kind, &raw)
                .map_err(|error| Refused::Failed(anyhow::anyhow!("failed to read {}: {error}", target.told())))?,
        ),
    };
    let found = explanation(&look, &workload, &object, &raw, now);
    super::tell_blind_spots(&look)?;
    tool::answer(tool.output, &found, || text(&found))?;
    Ok(Outcome::Done)
}

fn explanation(look: &Look, workload: &Workload, object: &ObjectRef, raw: &Value, now: Timestamp) -> Explanation {
    let around = look.snapshot().surroundings(workload);
    let verdict = verdict(workload, &around, now);
    let record = Record::read(workload);
    let zoned = |at: Timestamp| {
        verdict
            .schedule
            .as_ref()
            .map_or_else(|| at.to_string(), |schedule| at_zone(schedule, at))
    };
    let mut notes: Vec<String> = verdict.notes.iter().map(note).collect();
    notes.extend(unknown_keys(workload));
    let next = verdict.until.map(|until| {
        let then = look.decision(until);
        let write = then
            .actions
            .iter()
            .chain(&then.waiting)
            .find(|action| action.target.object == *object);
        let told = write.map_or("nothing to write", |action| action.purpose.label());
        format!("{}: {told}", zoned(until))
    });
    Explanation {
        kind: object.kind.to_string(),
        namespace: object.namespace.to_string(),
        name: object.name.to_string(),
        state: match verdict.state {
            State::Up => "Up",
            State::Down => "Down",
            State::Unknown => "Unknown",
        },
        decided_by: verdict.decided_by.to_string(),
        reason: verdict.reason.as_ref().map(ToString::to_string),
        since: verdict.since.map(zoned),
        until: verdict.until.map(zoned),
        schedule: verdict.schedule.as_ref().map(|schedule| schedule.name.to_string()),
        mode: format!("{:?}", verdict.mode()),
        asleep: record.as_ref().is_some_and(|record| record.asleep(workload)),
        knobs: workload
            .kind
            .knobs
            .iter()
            .zip(&workload.knobs)
            .map(|(knob, reading)| KnobState {
                knob: knob.name.to_string(),
                value: reading.value.clone().unwrap_or(Value::Null),
                record: workload.annotation(&knob.record_key()).map(str::to_owned),
            })
            .collect(),
        now: match look.assessment(object).map(|found| &found.step) {
            None | Some(Step::Nothing) => "nothing: it is as it should be, or not ours".to_owned(),
            Some(Step::Skip(skip)) => format!("skipped: {} ({})", skip.message, skip.reason),
            Some(Step::Write { purpose, .. }) => format!("a write: {}", purpose.label()),
        },
        next,
        notes,
        managers: managers(raw, &workload.kind),
        unreadable: look.blind_spots(),
    }
}

fn note(note: &Note) -> String {
    match note {
        Note::Ignored(on, problem) => format!("ignored on {on}: {problem}"),
        Note::Ambiguous(names) => format!("several schedules claim it: {}", names.join(", ")),
        Note::Duration { on, key, instant, cut } => format!(
            "{key} on {on} is a duration, which becomes {instant}{}",
            if *cut { " (cut to maxWake)" } else { "" }
        ),
    }
}

fn unknown_keys(workload: &Workload) -> Vec<String> {
    let maps = [&workload.labels, &workload.annotations];
    maps.into_iter()
        .flatten()
        .flat_map(|keys| keys.keys())
        .filter_map(|key| annotations::unknown_key(key))
        .map(|problem| problem.to_string())
        .collect()
}

/// Who owns the knobs and our keys, from managedFields.
fn managers(raw: &Value, kind: &Kind) -> Vec<Manager> {
    let entries = raw.pointer("/metadata/managedFields").and_then(Value::as_array);
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        let Some(fields) = entry.get("fieldsV1") else { continue };
        let mut owned = Vec::new();
        for knob in kind.knobs.iter() {
            if fields.pointer(&knob.pointer.replace('/', "/f:")).is_some() {
                let path = knob.pointer.trim_start_matches('/').replace('/', ".");
                owned.push(path.replace("~1", "/").replace("~0", "~"));
            }
        }
        for part in ["f:annotations", "f:labels"] {
            let keys = fields
                .pointer(&format!("/f:metadata/{part}"))
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            owned.extend(
                keys.filter_map(|(key, _)| key.strip_prefix("f:"))
                    .filter(|key| key.starts_with(PREFIX))
                    .map(str::to_owned),
            );
        }
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        for field in owned {
            found.push(Manager {
                field,
                name: text("manager").unwrap_or_default(),
                at: text("time"),
            });
        }
    }
    found
}

fn text(found: &Explanation) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line(
        "Workload",
        &format!(
            "{}/{} in {}",
            found.kind.to_ascii_lowercase(),
            found.name,
            found.namespace
        ),
    );
    line("Should be", found.state);
    line("Because", &found.decided_by);
    if let Some(reason) = &found.reason {
        line("Reason", reason);
    }
    if let Some(schedule) = &found.schedule {
        line("Schedule", &format!("{schedule} (enforcement {})", found.mode));
    }
    if let Some(since) = &found.since {
        line("Since", since);
    }
    line("Until", found.until.as_deref().unwrap_or("nobody knows of an end"));
    line("Asleep", if found.asleep { "yes" } else { "no" });
    for knob in &found.knobs {
        let record = knob
            .record
            .as_ref()
            .map_or_else(String::new, |record| format!(", saved: {record}"));
        line("Knob", &format!("{} = {}{record}", knob.knob, knob.value));
    }
    line("Now", &found.now);
    if let Some(next) = &found.next {
        line("Next", next);
    }
    for note in &found.notes {
        line("Note", note);
    }
    for manager in &found.managers {
        let at = manager.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
        line("Set by", &format!("{}: {}{at}", manager.field, manager.name));
    }
    if found.state == "Down" {
        let _ = writeln!(
            text,
            "\nWake it: kubectl offhours wake {}/{} -n {} --for 2h   (or annotate it with {AWAKE_UNTIL}=2h)",
            found.kind.to_ascii_lowercase(),
            found.name,
            found.namespace
        );
    } else if found.decided_by.contains(AWAKE_UNTIL.trim_start_matches(PREFIX)) {
        let _ = writeln!(
            text,
            "\nEnd the wake: remove the annotation {AWAKE_UNTIL}, or write {ASLEEP_UNTIL}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::Kinds;

    use super::*;

    #[test]
    fn whoever_owns_a_knob_or_a_key_of_ours_is_named_whatever_the_kind() {
        let raw = json!({"metadata": {"managedFields": [
            {"manager": "kubectl", "time": "2026-11-30T20:00:00Z", "fieldsV1": {
                "f:metadata": {"f:annotations": {"f:offhours.platform.io/reason": {}, "f:team": {}}},
                "f:spec": {"f:suspend": {}, "f:replicas": {}}}},
            {"manager": "keda", "fieldsV1": {"f:metadata": {"f:annotations": {"f:autoscaling.keda.sh/paused-replicas": {}}}}},
        ]}});
        let kinds = Kinds::default();
        let told = |group: &str, kind: &str| -> Vec<String> {
            let all = managers(&raw, kinds.by_kind(group, kind).unwrap());
            all.into_iter()
                .map(|one| format!("{} {}", one.name, one.field))
                .collect()
        };
        let reason = "kubectl offhours.platform.io/reason";
        assert_eq!(told("batch", "CronJob"), ["kubectl spec.suspend", reason]);
        assert_eq!(told("apps", "Deployment"), ["kubectl spec.replicas", reason]);
        let paused = "keda metadata.annotations.autoscaling.keda.sh/paused-replicas";
        assert_eq!(told("keda.sh", "ScaledObject"), [reason, paused]);
    }
}
