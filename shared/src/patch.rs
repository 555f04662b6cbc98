//! The only builder of PATCH bodies: down, restore, release, remember, put back.
//!
//! A change is first a list of [`Edits`]; it is rendered as a JSON patch that names what it relies on (for the scheduler) or as
//! bare operations (for the webhook, which holds the object in its hands).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::{Map, Value, json};

use crate::annotations::{self, ASLEEP, ASLEEP_UNTIL, AWAKE_UNTIL, DOWN_SINCE, HELD_REPLICAS, Until};
use crate::hpa::{ABLE_TO_SCALE, ASKED, Hpa};
use crate::kinds::{Form, value_text};
use crate::record::{self, DOWNSCALER_REPLICAS, Entry, Plan, Record};
use crate::workload::{FIELD_MANAGER, Keys, Managers, Namespace, Reading, Workload};

/// What is to change on one object. `None` removes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edits {
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Knobs, by their index in the kind's row.
    pub knobs: BTreeMap<usize, Option<Value>>,
}

/// What a patch relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preconditions {
    /// The UID, and the present value of everything that is changed: status writes of controllers do not disturb it. Where
    /// something has to be added in a map that does not exist, also the resource version.
    ///
    /// A count that changed and changed back in between passes, and is what is recorded: nothing is lost by it. Testing
    /// `metadata.generation` would see it, but also refuse each write beside a roll-out, and all writes beside a controller of a
    /// custom kind without a status subresource, whose every status moves it; labels and annotations do not move it at all.
    State,
    /// Nothing: the object is in our hands (admission).
    None,
}

impl Edits {
    /// Whether nothing is to change.
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty() && self.knobs.is_empty()
    }

    fn annotation(&mut self, key: &str, value: Option<String>) {
        self.annotations.insert(key.to_owned(), value);
    }

    fn label(&mut self, key: &str, value: Option<String>) {
        self.labels.insert(key.to_owned(), value);
    }

    /// Drops what would change nothing of `workload`.
    #[must_use]
    pub fn without_idle(mut self, workload: &Workload) -> Self {
        self.annotations
            .retain(|key, value| workload.annotation(key) != value.as_deref());
        self.labels.retain(|key, value| workload.label(key) != value.as_deref());
        self.knobs.retain(|index, value| {
            workload
                .knobs
                .get(*index)
                .is_some_and(|reading| reading.value != *value)
        });
        self
    }

    /// The JSON patch that makes these edits on `workload`.
    pub fn patch(&self, workload: &Workload, preconditions: Preconditions) -> Patch {
        let mut body = Body::new(preconditions, &workload.uid);
        let mut annotations = self.annotations.clone();
        for (index, value) in &self.knobs {
            let (Some(knob), Some(reading)) = (workload.kind.knobs.get(*index), workload.knobs.get(*index)) else {
                continue;
            };
            let path: Vec<_> = knob.path().collect();
            match path.as_slice() {
                // Such a knob shares its map with the other annotations.
                [metadata, map, key] if metadata == "metadata" && map == "annotations" => {
                    annotations.insert(key.to_string(), value.as_ref().map(|value| value_text(Some(value))));
                }
                path => body.field(path, reading, value.as_ref()),
            }
        }
        body.knobs_stay(workload, self);
        body.map("annotations", workload.annotations.as_ref(), &annotations);
        body.map("labels", workload.labels.as_ref(), &self.labels);
        body.finish(&workload.resource_version)
    }

    /// The JSON patch that makes these edits (of keys only) on a namespace.
    pub fn namespace_patch(&self, namespace: &Namespace, preconditions: Preconditions) -> Patch {
        let mut body = Body::new(preconditions, &namespace.uid);
        body.map("annotations", namespace.annotations.as_ref(), &self.annotations);
        body.map("labels", namespace.labels.as_ref(), &self.labels);
        body.finish(&namespace.resource_version)
    }
}

/// The change that puts a workload down: record, instant, label and knobs together.
pub fn down(workload: &Workload, plan: &Plan, now: Timestamp) -> Edits {
    let mut edits = forget(workload, now);
    for (index, held) in &plan.moves {
        let (Some(knob), Some(reading)) = (workload.kind.knobs.get(*index), workload.knobs.get(*index)) else {
            continue;
        };
        edits.annotation(&knob.record_key(), Some(value_text(reading.value.as_ref())));
        edits.knobs.insert(*index, Some(held.clone()));
    }
    let first = plan.moves.first().map_or(0, |(index, _)| *index);
    if let (Some(knob), Some(reading)) = (workload.kind.knobs.get(first), workload.knobs.get(first)) {
        let text = if first == 0 {
            record::label_text(knob, reading.value.as_ref())
        } else {
            "true".to_owned()
        };
        edits.label(ASLEEP, Some(text));
    }
    edits.annotation(DOWN_SINCE, Some(annotations::format_instant(now)));
    if plan.replicas > 0 {
        edits.annotation(HELD_REPLICAS, Some(plan.replicas.to_string()));
    }
    edits.without_idle(workload)
}

/// The change that puts down again what somebody raised: the record stays as it is.
pub fn down_again(workload: &Workload, record: &Record) -> Edits {
    let mut edits = put_back(workload, record);
    for (index, knob) in workload.kind.knobs.iter().enumerate() {
        if record.entries.get(index).is_some_and(|entry| *entry != Entry::None) {
            edits.knobs.insert(index, Some(record.held(knob)));
        }
    }
    edits.without_idle(workload)
}

/// The change that gives everything back and forgets.
///
/// `clamp` is the `[min, max]` of the HPA that scales the first knob, if there is one; `default_replicas` is for records that
/// nobody can read.
pub fn restore(
    workload: &Workload,
    record: &Record,
    clamp: Option<(u64, u64)>,
    default_replicas: u64,
    now: Timestamp,
) -> Edits {
    let mut edits = forget(workload, now);
    for (index, knob) in workload.kind.knobs.iter().enumerate() {
        let Some(mut original) = record.original(index, knob, default_replicas) else {
            continue;
        };
        let guard = matches!(knob.form, crate::kinds::Form::Guard { .. });
        // A guard that somebody changed meanwhile is their wish.
        if guard && workload.knobs.get(index).and_then(|reading| reading.value.as_ref()) != Some(&record.held(knob)) {
            continue;
        }
        if index == 0
            && let Some((min, max)) = clamp
            && let Some(count) = original.as_ref().and_then(Value::as_u64)
            && count > 0
        {
            original = Some(count.clamp(min, max.max(min)).into());
        }
        edits.knobs.insert(index, original);
    }
    edits.without_idle(workload)
}

/// The change that takes our keys away and leaves the knobs: what they say now is somebody's wish.
pub fn forget(workload: &Workload, now: Timestamp) -> Edits {
    let mut edits = Edits::default();
    let present = workload.annotations.iter().flat_map(Keys::keys);
    for key in present.filter(|key| is_record(key)) {
        edits.annotation(key, None);
    }
    for key in [AWAKE_UNTIL, ASLEEP_UNTIL] {
        if workload.annotation(key).is_some_and(|text| is_expired(key, text, now)) {
            edits.annotation(key, None);
        }
    }
    if workload.label(ASLEEP).is_some() {
        edits.label(ASLEEP, None);
    }
    edits
}

fn is_record(key: &str) -> bool {
    key == DOWNSCALER_REPLICAS || key == HELD_REPLICAS || key == DOWN_SINCE || key.starts_with(annotations::ORIGINAL)
}

/// Whether a wake or sleep by hand is over. Durations and what cannot be read are not.
pub fn is_expired(key: &str, text: &str, now: Timestamp) -> bool {
    matches!(annotations::parse_until(key, text), Ok(Until::Instant(at)) if at <= now)
}

/// The change that writes a known record back onto a workload that lost it, wholly or in one of its two copies.
pub fn put_back(workload: &Workload, record: &Record) -> Edits {
    let mut edits = Edits::default();
    for (index, (knob, entry)) in workload.kind.knobs.iter().zip(&record.entries).enumerate() {
        let Entry::Was(value) = entry else { continue };
        edits.annotation(&knob.record_key(), Some(value_text(value.as_ref())));
        if index == 0 {
            edits.label(ASLEEP, Some(record::label_text(knob, value.as_ref())));
        } else {
            edits
                .labels
                .entry(ASLEEP.to_owned())
                .or_insert_with(|| Some("true".to_owned()));
        }
    }
    if let Some(at) = record.down_since {
        edits.annotation(DOWN_SINCE, Some(annotations::format_instant(at)));
    }
    edits.annotation(
        HELD_REPLICAS,
        (record.held_replicas > 0).then(|| record.held_replicas.to_string()),
    );
    edits.without_idle(workload)
}

/// The change that makes `value` the record of the first knob: what somebody asked for while it is down.
pub fn remember(workload: &Workload, value: Option<&Value>) -> Edits {
    let mut edits = Edits::default();
    if let Some(knob) = workload.kind.knobs.first() {
        edits.annotation(&knob.record_key(), Some(value_text(value)));
        edits.label(ASLEEP, Some(record::label_text(knob, value)));
    }
    edits.without_idle(workload)
}

/// The change that turns a wake or sleep by hand, given as a duration, into the instant it means.
pub fn fix_instant(key: &str, at: Timestamp) -> Edits {
    let mut edits = Edits::default();
    edits.annotation(key, Some(annotations::format_instant(at)));
    edits
}

/// The patch of a CronJob's `status` that makes its controller start none of the runs missed before `now`.
pub fn skip_missed_runs(workload: &Workload, now: Timestamp) -> Patch {
    let mut body = Body::new(Preconditions::State, &workload.uid);
    body.operations.push(PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(["status", "lastScheduleTime"]),
        value: Value::String(annotations::format_instant(now)),
    }));
    Patch(body.operations)
}

/// The patch of an HPA's `status` that asks its controller to look at it (see [`ASKED`]).
pub fn ask_controller(hpa: &Hpa, now: Timestamp) -> Patch {
    let mut body = Body::new(Preconditions::State, &hpa.object.uid);
    let condition = json!({
        "type": ABLE_TO_SCALE, "status": "Unknown", "reason": ASKED, "lastTransitionTime": annotations::format_instant(now),
        "message": "offhours gives maxReplicas back, and restores the target when the HPA controller has looked at this HPA",
    });
    let at = |tokens: &[&str]| PointerBuf::from_tokens(["status", "conditions"].iter().chain(tokens).copied());
    let operation = if let Some(index) = hpa.able.index {
        let index = index.to_string();
        body.test(["status", "conditions", &index, "type"], Value::from(ABLE_TO_SCALE));
        PatchOperation::Replace(ReplaceOperation {
            path: at(&[&index]),
            value: condition,
        })
    } else {
        body.needs_version = true;
        let (path, value) = if hpa.able.any {
            (at(&["-"]), condition)
        } else {
            (at(&[]), json!([condition]))
        };
        PatchOperation::Add(AddOperation { path, value })
    };
    body.operations.push(operation);
    body.finish(&hpa.object.resource_version)
}

/// A patch of an HPA that holds only as long as its controller has not looked at it since it was asked: when it has looked, it
/// has seen what this patch made, too.
#[must_use]
pub fn while_asked(hpa: &Hpa, patch: Patch) -> Patch {
    let Some(index) = hpa.able.index.filter(|_| hpa.able.asked.is_some()) else {
        return patch;
    };
    let index = index.to_string();
    let mut body = Body::new(Preconditions::None, &hpa.object.uid);
    for (field, value) in [("type", ABLE_TO_SCALE), ("reason", ASKED)] {
        body.test(["status", "conditions", &index, field], Value::from(value));
    }
    body.operations.extend(patch.0);
    Patch(body.operations)
}

/// The patch that puts `finalizer` on an object that has `present` ones, or takes it away. `None` if there is nothing to do.
pub fn finalizer(
    uid: &str,
    resource_version: &str,
    present: &[Arc<str>],
    finalizer: &str,
    wanted: bool,
) -> Option<Patch> {
    let index = present.iter().position(|name| **name == *finalizer);
    let mut body = Body::new(Preconditions::State, uid);
    // The list is written by its indices, which hold for this version only.
    body.needs_version = true;
    let at = |token: &str| PointerBuf::from_tokens(["metadata", "finalizers", token]);
    body.operations.push(match (index, wanted) {
        (None, true) if present.is_empty() => PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["metadata", "finalizers"]),
            value: Value::Array(vec![Value::from(finalizer)]),
        }),
        (None, true) => PatchOperation::Add(AddOperation {
            path: at("-"),
            value: Value::from(finalizer),
        }),
        (Some(index), false) => PatchOperation::Remove(RemoveOperation {
            path: at(&index.to_string()),
        }),
        _ => return None,
    });
    Some(body.finish(resource_version))
}

/// The second patch where somebody uses server-side apply on the object: it gives the ownership up that our first one took, so
/// that their next apply is no conflict. `None` if there is nothing to give up.
pub fn disown(managers: &Managers) -> Option<Patch> {
    let index = managers.own_entry.filter(|_| managers.applied_by_other)?.to_string();
    let at = |field: Option<&str>| {
        PointerBuf::from_tokens(["metadata", "managedFields", index.as_str()].into_iter().chain(field))
    };
    let test = |field: &str, value: &str| {
        PatchOperation::Test(TestOperation {
            path: at(Some(field)),
            value: Value::from(value),
        })
    };
    Some(Patch(vec![
        test("manager", FIELD_MANAGER),
        test("operation", "Update"),
        PatchOperation::Remove(RemoveOperation { path: at(None) }),
    ]))
}

struct Body {
    operations: Vec<PatchOperation>,
    state: bool,
    needs_version: bool,
}

impl Body {
    fn new(preconditions: Preconditions, uid: &str) -> Self {
        let mut body = Self {
            operations: Vec::new(),
            state: preconditions == Preconditions::State,
            needs_version: false,
        };
        if body.state {
            body.test(["metadata", "uid"], Value::from(uid));
        }
        body
    }

    fn test<'t>(&mut self, path: impl IntoIterator<Item = &'t str>, value: Value) {
        let path = PointerBuf::from_tokens(path);
        self.operations
            .push(PatchOperation::Test(TestOperation { path, value }));
    }

    /// What is written about a record relies on the knobs, be it only that they stay as they are: a record that goes because
    /// its workload is not asleep must not go when it is.
    fn knobs_stay(&mut self, workload: &Workload, edits: &Edits) {
        let keys = edits.annotations.keys().chain(edits.labels.keys());
        if !self.state || !keys.into_iter().any(|key| annotations::is_own_state(key)) {
            return;
        }
        let knobs = workload.kind.knobs.iter().zip(&workload.knobs).enumerate();
        for (index, (knob, reading)) in knobs {
            if edits.knobs.contains_key(&index) || matches!(knob.form, Form::Guard { .. }) {
                continue;
            }
            match &reading.value {
                Some(value) => self.test(knob.path().collect::<Vec<_>>().iter().map(AsRef::as_ref), value.clone()),
                None => self.needs_version = true,
            }
        }
    }

    fn field(&mut self, path: &[std::borrow::Cow<'_, str>], reading: &Reading, value: Option<&Value>) {
        if reading.value.as_ref() == value {
            return;
        }
        let tokens = || path.iter().map(AsRef::as_ref);
        if self.state {
            match &reading.value {
                Some(present) => self.test(tokens(), present.clone()),
                None => self.needs_version = true,
            }
        }
        let operation = match (value, &reading.value) {
            (None, _) => PatchOperation::Remove(RemoveOperation {
                path: PointerBuf::from_tokens(tokens()),
            }),
            (Some(value), Some(_)) => PatchOperation::Replace(ReplaceOperation {
                path: PointerBuf::from_tokens(tokens()),
                value: value.clone(),
            }),
            (Some(value), None) => {
                // The nearest map that is missing is added with all that is below it.
                let add = reading.depth.min(path.len().saturating_sub(1)) + 1;
                let below = path.iter().skip(add).rev().fold(value.clone(), |value, token| {
                    Value::Object(Map::from_iter([(token.to_string(), value)]))
                });
                PatchOperation::Add(AddOperation {
                    path: PointerBuf::from_tokens(tokens().take(add)),
                    value: below,
                })
            }
        };
        self.operations.push(operation);
    }

    fn map(&mut self, name: &str, present: Option<&Keys>, edits: &BTreeMap<String, Option<String>>) {
        let Some(present) = present else {
            let added: Map<String, Value> = edits
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), Value::String(value.clone()?))))
                .collect();
            if !added.is_empty() {
                self.needs_version = true;
                let path = PointerBuf::from_tokens(["metadata", name]);
                self.operations.push(PatchOperation::Add(AddOperation {
                    path,
                    value: Value::Object(added),
                }));
            }
            return;
        };
        for (key, value) in edits {
            let was = present.get(key.as_str()).map(AsRef::as_ref);
            if was == value.as_deref() {
                continue;
            }
            if let (true, Some(was)) = (self.state, was) {
                self.test(["metadata", name, key], Value::from(was));
            }
            let path = PointerBuf::from_tokens(["metadata", name, key]);
            self.operations.push(match value {
                Some(value) => PatchOperation::Add(AddOperation {
                    path,
                    value: Value::from(value.as_str()),
                }),
                None => PatchOperation::Remove(RemoveOperation { path }),
            });
        }
    }

    fn finish(mut self, resource_version: &str) -> Patch {
        if self.state && self.needs_version {
            let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
            self.operations.insert(
                0,
                PatchOperation::Test(TestOperation {
                    path,
                    value: Value::from(resource_version),
                }),
            );
        }
        let only_tests = self
            .operations
            .iter()
            .all(|operation| matches!(operation, PatchOperation::Test(_)));
        Patch(if only_tests { Vec::new() } else { self.operations })
    }
}

#[cfg(test)]
#[path = "tests/patch.rs"]
mod tests;
