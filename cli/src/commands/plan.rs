//! `offhours plan`: the exact writes that the scheduler would make, as a diff.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use json_patch::PatchOperation;
use scheduler::decide::action::{Action, Request};
use serde::Serialize;
use serde_json::Value;
use shared::clock::Clock;
use shared::workload::ObjectRef;

use super::Outcome;
use super::look::Look;
use super::tool::{self, AllNamespaces, Refused, Tool, ToolArguments};

/// Arguments of `offhours plan`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// At which instant, such as 2026-12-01T20:00:00-03:00 [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<String>,

    /// Only of this schedule
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,

    #[command(flatten)]
    all: AllNamespaces,

    #[command(flatten)]
    tool: ToolArguments,
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    at: String,
    writes: Vec<Planned>,
    skipped: Vec<Skipped>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

/// One write.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    purpose: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// It waits for its wave, its minute or the end of a pause.
    waits: bool,
    request: &'static str,
    #[serde(skip_serializing_if = "Value::is_null")]
    body: Value,
    #[serde(skip)]
    lines: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Skipped {
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
    tool::block_on(plan(arguments, clock), |outcome| outcome)
}

async fn plan(arguments: &Arguments, clock: &dyn Clock) -> Result<Outcome, Refused> {
    let at = match &arguments.at {
        None => clock.now(),
        Some(text) => instant(text)?,
    };
    let tool = Tool::start(&arguments.tool).await?;
    let mut look = Look::as_far_as_one_may(&tool, &arguments.all).await?;
    look.decide(at);
    if let Some(name) = &arguments.schedule {
        known(&look, name)?;
    }
    let decision = look.decision(at);
    let wanted = |schedule: Option<&str>| arguments.schedule.as_deref().is_none_or(|name| schedule == Some(name));
    let now = decision.actions.iter().map(|action| (action, false));
    let later = decision.waiting.iter().map(|action| (action, true));
    let writes = now
        .chain(later)
        .filter(|(action, _)| wanted(action.schedule.as_deref()) && look.shows(&action.target.object))
        .map(|(action, waits)| planned(action, waits))
        .collect();
    let skipped = decision
        .skips
        .into_iter()
        .filter(|(object, _)| look.shows(object))
        .filter(|(object, _)| {
            let assessment = look.assessment(object);
            wanted(
                assessment
                    .and_then(|found| found.schedule.as_ref())
                    .map(|schedule| &*schedule.name),
            )
        })
        .map(|(object, skip)| Skipped {
            kind: object.kind.to_string(),
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
            reason: skip.reason,
            message: skip.message,
        })
        .collect();
    let plan = Plan {
        at: at.to_string(),
        writes,
        skipped,
        unreadable: look.blind_spots(),
    };
    super::tell_blind_spots(&look)?;
    tool::answer(tool.output, &plan, || table(&plan))?;
    Ok(Outcome::Done)
}

/// Sees that a schedule is there: a plan of none would look like one without work.
fn known(look: &Look, name: &str) -> Result<(), Refused> {
    let schedules = look.snapshot().schedules();
    // Schedules in place bear names that nobody gave them.
    let in_place = || {
        let mut claims = look.assessments().filter_map(|(_, found)| found.schedule.as_ref());
        claims.any(|schedule| *schedule.name == *name)
    };
    if schedules.get(name).is_some() || in_place() {
        return Ok(());
    }
    if let Some(why) = schedules.unavailability() {
        return Err(Refused::Failed(anyhow::anyhow!(
            "nobody can say whether there is a schedule {name:?}: {why}"
        )));
    }
    let names: Vec<&str> = schedules.iter().map(|schedule| &*schedule.name).collect();
    Err(Refused::Usage(if names.is_empty() {
        format!("there is no schedule {name:?}, nor any other; create an OffHoursSchedule first")
    } else {
        format!("there is no schedule {name:?}; there are {}", names.join(", "))
    }))
}

/// Reads an instant.
pub fn instant(text: &str) -> Result<Timestamp, Refused> {
    text.parse().map_err(|_| {
        Refused::Usage(format!(
            "{text:?} is no instant; write it such as 2026-12-01T20:00:00-03:00 or 2026-12-01T23:00:00Z"
        ))
    })
}

/// One action, for people and programs.
pub fn planned(action: &Action, waits: bool) -> Planned {
    let ObjectRef {
        kind, namespace, name, ..
    } = &action.target.object;
    let (request, body, lines) = match &action.request {
        Request::Patch { body, .. } => ("patch", serde_json::to_value(body).unwrap_or_default(), diff(&body.0)),
        Request::Create(object) => ("create", object.clone(), vec!["+ the whole object".to_owned()]),
        Request::Delete => ("delete", Value::Null, vec!["- the whole object".to_owned()]),
    };
    Planned {
        kind: kind.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        purpose: action.purpose.label(),
        schedule: action.schedule.as_ref().map(ToString::to_string),
        waits,
        request,
        body,
        lines,
    }
}

impl Planned {
    /// One line without the diff.
    pub fn line(&self) -> String {
        let place = if self.namespace.is_empty() {
            String::new()
        } else {
            format!(" in {}", self.namespace)
        };
        let schedule = self
            .schedule
            .as_ref()
            .map_or_else(String::new, |schedule| format!(" (schedule {schedule})"));
        let waits = if self.waits { ", in its turn" } else { "" };
        format!(
            "{} {}/{}{place}{schedule}{waits}",
            self.purpose,
            self.kind.to_ascii_lowercase(),
            self.name
        )
    }

    /// What changes.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// What a JSON patch changes; what it tests tells what was there.
fn diff(operations: &[PatchOperation]) -> Vec<String> {
    let mut before: BTreeMap<String, &Value> = BTreeMap::new();
    let mut lines = Vec::new();
    let own = |pointer: &str| pointer.replace("~1", "/").replace("~0", "~");
    for operation in operations {
        match operation {
            PatchOperation::Test(test) => {
                before.insert(test.path.to_string(), &test.value);
            }
            PatchOperation::Add(add) => lines.push(change(
                &own(&add.path.to_string()),
                before.get(&add.path.to_string()),
                Some(&add.value),
            )),
            PatchOperation::Replace(replace) => lines.push(change(
                &own(&replace.path.to_string()),
                before.get(&replace.path.to_string()),
                Some(&replace.value),
            )),
            PatchOperation::Remove(remove) => {
                lines.push(change(
                    &own(&remove.path.to_string()),
                    before.get(&remove.path.to_string()),
                    None,
                ));
            }
            PatchOperation::Move(_) | PatchOperation::Copy(_) => {}
        }
    }
    lines
}

fn change(path: &str, before: Option<&&Value>, after: Option<&Value>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => format!("~ {path}: {before} -> {after}"),
        (None, Some(after)) => format!("+ {path}: {after}"),
        (Some(before), None) => format!("- {path}: {before}"),
        (None, None) => format!("- {path}"),
    }
}

fn table(plan: &Plan) -> String {
    let mut text = String::new();
    for write in &plan.writes {
        let _ = writeln!(text, "{}", write.line());
        for line in write.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    for skipped in &plan.skipped {
        let _ = writeln!(
            text,
            "skip {}/{} in {}: {} ({})",
            skipped.kind.to_ascii_lowercase(),
            skipped.name,
            skipped.namespace,
            skipped.message,
            skipped.reason
        );
    }
    let _ = writeln!(
        text,
        "{} at {}: {} to write, {} skipped",
        if plan.writes.is_empty() {
            "Nothing to do"
        } else {
            "Plan"
        },
        plan.at,
        plan.writes.len(),
        plan.skipped.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_diff_tells_what_was_there_from_the_tests_of_the_patch() {
        let patch: json_patch::Patch = serde_json::from_value(json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/spec/replicas", "value": 3},
            {"op": "replace", "path": "/spec/replicas", "value": 0},
            {"op": "add", "path": "/metadata/annotations/offhours.platform.io~1original-replicas", "value": "3"},
            {"op": "remove", "path": "/metadata/labels/offhours.platform.io~1asleep"}
        ]))
        .unwrap();
        assert_eq!(
            diff(&patch.0),
            [
                "~ /spec/replicas: 3 -> 0",
                "+ /metadata/annotations/offhours.platform.io/original-replicas: \"3\"",
                "- /metadata/labels/offhours.platform.io/asleep",
            ]
        );
    }
}
