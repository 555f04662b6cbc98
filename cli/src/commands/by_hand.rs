//! `offhours wake`, `sleep`, `protect` and `unprotect`: what a person asks for by annotations, written by one command.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use cluster::call::CallError;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shared::annotations::{self, ASLEEP, ASLEEP_UNTIL, AWAKE_UNTIL, PROTECTED, REASON, Until};
use shared::clock::Clock;
use shared::kinds::{Form, Kind};
use shared::record;
use shared::workload::Workload;

use super::Outcome;
use super::tool::{self, Refused, Target, Tool, ToolArguments};

/// How long a wake lasts where nobody says.
const WAKE: SignedDuration = SignedDuration::from_hours(2);
/// How long a sleep lasts where nobody says.
const SLEEP: SignedDuration = SignedDuration::from_hours(12);
/// Merge patches set and remove keys of maps without knowing them.
const MERGE: &str = "application/merge-patch+json";

/// Arguments of `offhours wake` and `offhours sleep`.
#[derive(Debug, Args)]
pub struct UntilArguments {
    /// What: KIND/NAME, such as deployment/checkout or namespace/shop
    target: String,

    /// For how long, such as 90m or 2h [default: 2h for wake, 12h for sleep]
    #[arg(
        long = "for",
        value_name = "DURATION",
        conflicts_with = "until",
        allow_hyphen_values = true
    )]
    lasting: Option<String>,

    /// Until when: an instant such as 2026-12-01T20:00:00-03:00
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,

    /// Why, shown in messages
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Wait until it has happened
    #[arg(long)]
    wait: bool,

    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    timeout: String,

    #[command(flatten)]
    tool: ToolArguments,
}

/// Arguments of `offhours protect` and `offhours unprotect`.
#[derive(Debug, Args)]
pub struct ProtectArguments {
    /// What: KIND/NAME, such as deployment/checkout or namespace/shop
    target: String,

    /// Why, shown in messages
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    tool: ToolArguments,
}

/// What a person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Up for a while.
    Wake,
    /// Down for a while.
    Sleep,
}

/// What was done; the documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    /// `wake`, `sleep`, `protect` or `unprotect`.
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    changed: Vec<Named>,
    failed: Vec<Failure>,
}

#[derive(Debug, Serialize)]
struct Named {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
}

#[derive(Debug, Serialize)]
struct Failure {
    #[serde(flatten)]
    object: Named,
    error: String,
}

impl Named {
    fn of(target: &Target) -> Self {
        match target {
            Target::Namespace(name) => Self {
                kind: "Namespace".to_owned(),
                namespace: None,
                name: name.clone(),
            },
            Target::Workload { kind, name, namespace } => Self {
                kind: kind.kind.to_string(),
                namespace: Some(namespace.clone()),
                name: name.clone(),
            },
        }
    }
}

/// Runs `offhours wake` or `offhours sleep`.
///
/// # Errors
/// What failed.
pub fn until(arguments: &UntilArguments, wish: Wish, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    tool::block_on(until_async(arguments, wish, clock), |outcome| outcome)
}

async fn until_async(arguments: &UntilArguments, wish: Wish, clock: &dyn Clock) -> Result<Outcome, Refused> {
    let now = clock.now();
    let end = end(arguments, wish, now)?;
    Target::split(&arguments.target)?;
    let limit = annotations::parse_duration(&arguments.timeout)
        .and_then(|limit| Duration::try_from(limit).ok())
        .ok_or_else(|| Refused::Usage(format!("--timeout {:?} is no duration such as 5m", arguments.timeout)))?;
    let tool = Tool::start(&arguments.tool).await?;
    let target = Target::parse(&arguments.target, &tool.settings.kinds, &tool.namespace)?;
    let (set, gone, action) = match wish {
        Wish::Wake => (AWAKE_UNTIL, ASLEEP_UNTIL, "wake"),
        Wish::Sleep => (ASLEEP_UNTIL, AWAKE_UNTIL, "sleep"),
    };
    let text = annotations::format_instant(end);
    // The one written later replaces the other.
    let mut keys = Map::new();
    keys.insert(set.to_owned(), Value::String(text.clone()));
    keys.insert(gone.to_owned(), Value::Null);
    if let Some(reason) = &arguments.reason {
        keys.insert(REASON.to_owned(), Value::String(reason.clone()));
    }
    let body = json!({"metadata": {"annotations": keys}});
    let done = write(&tool, &target, &body, action, Some(text)).await?;
    let outcome = tell(&tool, &done)?;
    if arguments.wait && outcome == Outcome::Done {
        wait(&tool, &target, wish, limit).await?;
    }
    Ok(outcome)
}

fn end(arguments: &UntilArguments, wish: Wish, now: Timestamp) -> Result<Timestamp, Refused> {
    let (key, text) = match (&arguments.lasting, &arguments.until) {
        (Some(text), _) => ("--for", text),
        (None, Some(text)) => ("--until", text),
        (None, None) => {
            let lasting = match wish {
                Wish::Wake => WAKE,
                Wish::Sleep => SLEEP,
            };
            return now
                .checked_add(lasting)
                .map_err(|error| Refused::Failed(anyhow::Error::new(error)));
        }
    };
    let read = annotations::parse_until(key, text).map_err(|problem| Refused::Usage(problem.to_string()))?;
    let fits = matches!((key, read), ("--for", Until::For(_)) | ("--until", Until::Instant(_)));
    let end = read.instant(now).filter(|end| fits && *end > now);
    end.ok_or_else(|| {
        Refused::Usage(if fits {
            format!("{key} {text:?} is not after now; write a later one")
        } else {
            format!(
                "{key} {text:?}: durations such as 2h go with --for, instants such as 2026-12-01T20:00:00Z with --until"
            )
        })
    })
}

/// Runs `offhours protect` or `offhours unprotect`.
///
/// # Errors
/// What failed.
pub fn protect(arguments: &ProtectArguments, protect: bool) -> anyhow::Result<Outcome> {
    tool::block_on(protect_async(arguments, protect), |outcome| outcome)
}

async fn protect_async(arguments: &ProtectArguments, protect: bool) -> Result<Outcome, Refused> {
    Target::split(&arguments.target)?;
    let tool = Tool::start(&arguments.tool).await?;
    let target = Target::parse(&arguments.target, &tool.settings.kinds, &tool.namespace)?;
    let mut keys = Map::new();
    let mut labels = Map::new();
    if protect {
        keys.insert(PROTECTED.to_owned(), json!("true"));
    } else {
        // It may have been written as either.
        keys.insert(PROTECTED.to_owned(), Value::Null);
        labels.insert(PROTECTED.to_owned(), Value::Null);
    }
    if let Some(reason) = &arguments.reason {
        keys.insert(REASON.to_owned(), Value::String(reason.clone()));
    }
    let body = json!({"metadata": {"annotations": keys, "labels": labels}});
    let action = if protect { "protect" } else { "unprotect" };
    let done = write(&tool, &target, &body, action, None).await?;
    Ok(tell(&tool, &done)?)
}

/// Writes to the target; to each workload of a namespace that one may not write to.
async fn write(
    tool: &Tool,
    target: &Target,
    body: &Value,
    action: &'static str,
    until: Option<String>,
) -> Result<Done, Refused> {
    let mut done = Done {
        action,
        until,
        changed: Vec::new(),
        failed: Vec::new(),
    };
    match (patch(tool, target, body).await, target) {
        (Ok(_), _) => done.changed.push(Named::of(target)),
        (Err(error), Target::Namespace(namespace)) if error.code() == Some(403) => {
            let workloads = workloads(tool, namespace).await?;
            if workloads.is_empty() {
                return Err(failed(&error, target));
            }
            for workload in workloads {
                match patch(tool, &workload, body).await {
                    Ok(_) => done.changed.push(Named::of(&workload)),
                    Err(error) => done.failed.push(Failure {
                        object: Named::of(&workload),
                        error: error.to_string(),
                    }),
                }
            }
        }
        (Err(error), _) => return Err(failed(&error, target)),
    }
    Ok(done)
}

async fn patch(tool: &Tool, target: &Target, body: &Value) -> Result<Value, CallError> {
    let url = format!("{}?fieldManager=kubectl-offhours", target.url());
    tool.send(Method::PATCH, &url, MERGE, body.to_string().into_bytes())
        .await
}

fn failed(error: &CallError, target: &Target) -> Refused {
    Refused::Failed(match error {
        CallError::Refused { code: 404, .. } => anyhow::anyhow!(target.missing()),
        _ => anyhow::anyhow!("failed to write to {}: {error}", target.told()),
    })
}

/// The workloads of a namespace that sleep by default and that one may list.
async fn workloads(tool: &Tool, namespace: &str) -> Result<Vec<Target>, Refused> {
    let mut found = Vec::new();
    for kind in tool.settings.kinds.rows() {
        if kind.by_default != shared::kinds::ByDefault::Yes {
            continue;
        }
        match list(tool, kind, namespace).await {
            Ok(objects) => found.extend(objects.iter().filter_map(|object| {
                let name = object.pointer("/metadata/name")?.as_str()?;
                Some(Target::Workload {
                    kind: Arc::clone(kind),
                    name: name.to_owned(),
                    namespace: namespace.to_owned(),
                })
            })),
            // A kind that is not installed, or that this person may not see, has nothing for them here.
            Err(error) if matches!(error.code(), Some(403 | 404)) => {}
            Err(error) => {
                return Err(Refused::Failed(anyhow::anyhow!(
                    "failed to list {}: {error}",
                    kind.plural
                )));
            }
        }
    }
    Ok(found)
}

async fn list(tool: &Tool, kind: &Kind, namespace: &str) -> Result<Vec<Value>, CallError> {
    let url = tool::collection(kind, namespace);
    let mut answer = tool.send(Method::GET, &url, "application/json", Vec::new()).await?;
    Ok(match answer.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    })
}

fn tell(tool: &Tool, done: &Done) -> anyhow::Result<Outcome> {
    tool::answer(tool.output, done, || {
        let mut text = String::new();
        let what = match (done.action, &done.until) {
            ("wake", Some(until)) => format!("awake until {until}"),
            ("sleep", Some(until)) => format!("asleep until {until}"),
            ("protect", _) => "protected".to_owned(),
            _ => "no longer protected".to_owned(),
        };
        let place = |object: &Named| match &object.namespace {
            Some(namespace) => format!("{}/{} in {namespace}", object.kind.to_ascii_lowercase(), object.name),
            None => format!("{}/{}", object.kind.to_ascii_lowercase(), object.name),
        };
        for object in &done.changed {
            let _ = writeln!(text, "{} {what}", place(object));
        }
        for failure in &done.failed {
            let _ = writeln!(text, "{} failed: {}", place(&failure.object), failure.error);
        }
        text
    })?;
    Ok(if done.failed.is_empty() {
        Outcome::Done
    } else {
        Outcome::Partly
    })
}

/// Waits until what was asked for has happened.
async fn wait(tool: &Tool, target: &Target, wish: Wish, limit: Duration) -> Result<(), Refused> {
    let end = tokio::time::Instant::now() + limit;
    let mut told = usize::MAX;
    loop {
        let all = match target {
            Target::Namespace(namespace) => workloads(tool, namespace).await?,
            workload @ Target::Workload { .. } => vec![workload.clone()],
        };
        let mut waiting = Vec::new();
        for target in &all {
            let object = tool
                .send(Method::GET, &target.url(), "application/json", Vec::new())
                .await
                .map_err(|error| failed(&error, target))?;
            let Target::Workload { kind, .. } = target else {
                continue;
            };
            let workload =
                Workload::read(kind, &object).with_context(|| format!("failed to read {}", target.told()))?;
            let asleep = workload.label(ASLEEP).is_some();
            let there = match wish {
                Wish::Wake => !asleep && workload.ready,
                // What its owner had down, or what is protected, never gets the label.
                Wish::Sleep if is_down(&workload) => no_pod_left(&object),
                Wish::Sleep => asleep || workload.annotation(PROTECTED) == Some("true"),
            };
            if !there {
                waiting.push(target.told());
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if waiting.len() != told {
            told = waiting.len();
            // Nothing is left to do if standard error is gone.
            let _ = writeln!(std::io::stderr(), "Waiting for {told} of {} ...", all.len());
        }
        if tokio::time::Instant::now() >= end {
            return Err(Refused::Failed(anyhow::anyhow!(
                "after {limit:?} still waiting for {}; see `offhours explain`",
                waiting.join(", ")
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Where its controller counts pods, it counts none: `kubectl get` shows what was asked for.
fn no_pod_left(object: &Value) -> bool {
    let count = object.pointer("/status/replicas").and_then(Value::as_u64);
    count.unwrap_or_default() == 0
}

fn is_down(workload: &Workload) -> bool {
    let readings = workload.kind.knobs.iter().zip(&workload.knobs);
    let mut knobs = readings.filter(|(knob, _)| !matches!(knob.form, Form::Guard { .. }));
    knobs.all(|(knob, reading)| record::is_down(&knob.form, reading.value.as_ref(), 0))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        until: UntilArguments,
    }

    fn end_of(line: &[&str], wish: Wish) -> Result<String, String> {
        let parsed =
            Line::try_parse_from([&["wake", "deployment/a"], line].concat()).map_err(|error| error.to_string())?;
        match end(&parsed.until, wish, "2026-12-01T10:00:00Z".parse().unwrap()) {
            Ok(end) => Ok(end.to_string()),
            Err(Refused::Usage(message)) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_end_is_an_instant_whatever_was_written() {
        assert_eq!(end_of(&[], Wish::Wake).unwrap(), "2026-12-01T12:00:00Z");
        assert_eq!(end_of(&[], Wish::Sleep).unwrap(), "2026-12-01T22:00:00Z");
        assert_eq!(end_of(&["--for", "90m"], Wish::Wake).unwrap(), "2026-12-01T11:30:00Z");
        assert_eq!(
            end_of(&["--until", "2026-12-01T20:00:00-03:00"], Wish::Wake).unwrap(),
            "2026-12-01T23:00:00Z"
        );
    }

    #[test]
    fn an_end_that_cannot_be_is_refused_with_what_is_allowed() {
        for (line, said) in [
            (["--for", "2"], "a duration such as"),
            (["--for", "2026-12-01T20:00:00Z"], "go with --for"),
            (["--until", "2h"], "instants such as"),
            (["--until", "2026-12-01T09:00:00Z"], "not after now"),
        ] {
            let message = end_of(&line, Wish::Wake).unwrap_err();
            assert!(message.contains(said), "{line:?}: {message}");
        }
        assert!(end_of(&["--for", "1h", "--until", "2026-12-01T20:00:00Z"], Wish::Wake).is_err());
    }
}
