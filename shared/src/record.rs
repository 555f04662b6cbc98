//! The record: what a workload was before it was put to sleep, and where it is kept.
//!
//! One annotation per knob (`original-<knob>`), and a second copy in the label `asleep`: `kubectl rollout undo` replaces all
//! annotations by those of an old ReplicaSet, while labels stay. Where the two differ, the label wins.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::annotations::{self, ABSENT, ASLEEP, DOWN_SINCE, DownReplicas, HELD_REPLICAS, whole};
use crate::kinds::{Form, Kind, Knob, value_text};
use crate::workload::Workload;

/// The record key of py-kube-downscaler and GoKubeDownscaler; read, and removed on restore.
pub const DOWNSCALER_REPLICAS: &str = "downscaler/original-replicas";

/// What the record says of one knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: we did not move it.
    None,
    /// It was this; `None`: the field was absent.
    Was(Option<Value>),
    /// Something that is no value of this knob.
    Unreadable(Arc<str>),
}

/// Everything saved on one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What each knob was, in the order of the kind's row.
    pub entries: Vec<Entry>,
    /// When it was put down by us. `None`: not written, or not readable.
    pub down_since: Option<Timestamp>,
    /// Replicas that we wrote (0 where nothing else is said).
    pub held_replicas: u64,
    /// It is another product's; ours only to read within a schedule.
    pub foreign: bool,
    /// The annotation and the label tell different stories (the label won), or one of them is missing.
    pub differs: bool,
}

impl Record {
    /// Reads the record of a workload. `None` if it carries none.
    pub fn read(workload: &Workload) -> Option<Self> {
        let first = workload.kind.knobs.first()?;
        let held_replicas = workload.annotation(HELD_REPLICAS).and_then(whole).unwrap_or(0);
        let down_since = workload.annotation(DOWN_SINCE);
        let label = workload.label(ASLEEP);
        let mut differs = false;
        let mut entries: Vec<Entry> = workload
            .kind
            .knobs
            .iter()
            .map(|knob| {
                workload
                    .annotation(&knob.record_key())
                    .map_or(Entry::None, |text| parse(&workload.kind, knob, text))
            })
            .collect();
        let ours = label.is_some() || down_since.is_some() || entries.iter().any(|entry| *entry != Entry::None);
        if !ours {
            let text = workload.annotation(DOWNSCALER_REPLICAS)?;
            let entry = parse_downscaler(&workload.kind, first, text);
            entries.truncate(0);
            entries.push(entry);
            entries.resize(workload.kind.knobs.len(), Entry::None);
            return Some(Self {
                entries,
                down_since: None,
                held_replicas,
                foreign: true,
                differs: false,
            });
        }
        // A first knob that was left alone (a minimum of 0 runners, say) has no entry, and the label no value.
        let others = entries
            .iter()
            .zip(workload.kind.knobs.iter())
            .skip(1)
            .any(|(entry, knob)| moves(knob, entry));
        if let Some(entry) = entries.first_mut() {
            let copy = label
                .filter(|_| is_count(&first.form))
                .map(|text| parse(&workload.kind, first, text))
                .filter(|copy| {
                    matches!(copy, Entry::Was(Some(value)) if count(value).is_some()) || *copy == Entry::Was(None)
                });
            match copy {
                _ if others && *entry == Entry::None => differs = label.is_none(),
                Some(copy) => {
                    differs = *entry != copy;
                    *entry = copy;
                }
                // Something was here, and nobody knows what.
                None if *entry == Entry::None => {
                    differs = label.is_some();
                    *entry = Entry::Unreadable(Arc::from(""));
                }
                None => differs = label.is_none() && down_since.is_some(),
            }
        }
        let down_since = down_since.and_then(|text| annotations::parse_instant(DOWN_SINCE, text).ok());
        Some(Self {
            entries,
            down_since,
            held_replicas,
            foreign: false,
            differs,
        })
    }

    /// Where a recorded knob is held: what we wrote.
    pub fn held(&self, knob: &Knob) -> Value {
        held_value(&knob.form, self.held_replicas)
    }

    /// Whether each knob that was moved is where we put it. A guard does not count: it goes along.
    pub fn asleep(&self, workload: &Workload) -> bool {
        self.moved(workload).all(|(index, knob)| {
            workload.knobs.get(index).and_then(|reading| reading.value.as_ref()) == Some(&self.held(knob))
        })
    }

    /// The knobs that were moved to put it to sleep, without guards.
    fn moved<'w>(&'w self, workload: &'w Workload) -> impl Iterator<Item = (usize, &'w Knob)> {
        workload
            .kind
            .knobs
            .iter()
            .enumerate()
            .filter(|(index, knob)| self.entries.get(*index).is_some_and(|entry| moves(knob, entry)))
    }

    /// The text of the first entry that could not be read.
    pub fn unreadable(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Unreadable(text) => Some(text.as_ref()),
            _ => None,
        })
    }

    /// The count that the first knob had, where it is one.
    pub fn replicas(&self) -> Option<u64> {
        match self.entries.first()? {
            Entry::Was(Some(value)) => count(value),
            _ => None,
        }
    }

    /// What a knob is to become on restore. An entry that cannot be read gives the default for counts (never a guess), and for
    /// other forms the awake value. `None`: the knob is not recorded.
    #[allow(clippy::option_option)]
    pub fn original(&self, index: usize, knob: &Knob, default_replicas: u64) -> Option<Option<Value>> {
        match self.entries.get(index)? {
            Entry::None => None,
            Entry::Was(value) => Some(value.clone()),
            Entry::Unreadable(_) => Some(match &knob.form {
                Form::Count => Some(default_replicas.into()),
                Form::Flag(down) => Some((!down).into()),
                Form::CountText | Form::Text(_) => None,
                Form::Guard { from, .. } => Some(Value::String(from.to_string())),
            }),
        }
    }
}

fn moves(knob: &Knob, entry: &Entry) -> bool {
    *entry != Entry::None && !matches!(knob.form, Form::Guard { .. })
}

fn is_count(form: &Form) -> bool {
    matches!(form, Form::Count | Form::CountText)
}

/// What Kubernetes makes of the first count of a workload where the field is absent.
pub const UNSET: u64 = 1;

/// How many there are to be by the first count: [`UNSET`] where it is absent. `None`: it is no count.
pub fn standing(value: Option<&Value>) -> Option<u64> {
    value.map_or(Some(UNSET), count)
}

/// Replicas that are kept of a first count: the down value of it, and never more than it. `None`: it is no count.
pub fn kept(was: Option<&Value>, down: DownReplicas) -> Option<u64> {
    standing(was).map(|count| down.of(count).min(count))
}

/// A count, as a number or as text.
pub fn count(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => whole(text),
        other => other.as_u64(),
    }
}

/// The value of a knob that is down, when `replicas` are kept.
pub fn held_value(form: &Form, replicas: u64) -> Value {
    match form {
        Form::Count => replicas.into(),
        Form::CountText => Value::String(replicas.to_string()),
        Form::Flag(down) => Value::Bool(*down),
        Form::Text(down) => Value::String(down.to_string()),
        Form::Guard { to, .. } => Value::String(to.to_string()),
    }
}

/// The highest count that an object of this kind may have: what Kubernetes itself counts has 32 bits, a custom kind up to 64.
fn most(kind: &Kind) -> u64 {
    if kind.built_in {
        i32::MAX.unsigned_abs().into()
    } else {
        i64::MAX.unsigned_abs()
    }
}

/// Reads one record's text.
pub fn parse(kind: &Kind, knob: &Knob, text: &str) -> Entry {
    if text == ABSENT {
        return Entry::Was(None);
    }
    let value = match &knob.form {
        Form::Count => whole(text).filter(|count| *count <= most(kind)).map(Value::from),
        Form::Flag(_) => text.parse::<bool>().ok().map(Value::Bool),
        Form::CountText | Form::Text(_) | Form::Guard { .. } => Some(Value::String(text.to_owned())),
    };
    value.map_or_else(|| Entry::Unreadable(Arc::from(text)), |value| Entry::Was(Some(value)))
}

/// Reads a record of the downscalers: a count for everything, 0 for what was suspended.
fn parse_downscaler(kind: &Kind, knob: &Knob, text: &str) -> Entry {
    match (&knob.form, text) {
        (Form::Flag(down), "0" | "true") => Entry::Was(Some(Value::Bool(*down))),
        (Form::Flag(down), "false") => Entry::Was(Some(Value::Bool(!*down))),
        (Form::Flag(down), number) if whole(number).is_some() => Entry::Was(Some(Value::Bool(!*down))),
        (Form::Count, _) => parse(kind, knob, text),
        _ => Entry::Was(None),
    }
}

/// What has to be moved to put a workload to sleep, and to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Index of the knob in the kind's row, and what it is to become.
    pub moves: Vec<(usize, Value)>,
    /// Replicas kept by the counts among them.
    pub replicas: u64,
}

/// What putting this workload down would move. `None` if it is at or below that already: its owner's sleep.
///
/// Never raises anything. Percentages are of `of` (the record, where there is one), else of the first count present.
pub fn plan(workload: &Workload, down: DownReplicas, of: Option<u64>) -> Option<Plan> {
    let present = |index: usize| workload.knobs.get(index).and_then(|reading| reading.value.as_ref());
    let replicas = match of.or_else(|| present(0).and_then(count)) {
        Some(base) => down.of(base),
        // More than an absent count stands for would raise it.
        None => kept(None, down).unwrap_or(0),
    };
    plan_at(workload, replicas)
}

/// The same, where it is known how many are kept.
pub fn plan_at(workload: &Workload, replicas: u64) -> Option<Plan> {
    let present = |index: usize| workload.knobs.get(index).and_then(|reading| reading.value.as_ref());
    let mut moves = Vec::new();
    let mut guards = Vec::new();
    for (index, knob) in workload.kind.knobs.iter().enumerate() {
        let held = held_value(&knob.form, replicas);
        match &knob.form {
            Form::Guard { from, .. } => {
                if present(index).and_then(Value::as_str) == Some(from.as_ref()) {
                    guards.push((index, held));
                }
            }
            // Further counts are minimums, of which an absent one asks for nothing.
            Form::Count if index > 0 && present(index).is_none() => {}
            _ if is_down(&knob.form, present(index), replicas) => {}
            _ => moves.push((index, held)),
        }
    }
    if moves.is_empty() {
        return None;
    }
    moves.extend(guards);
    Some(Plan { moves, replicas })
}

/// Whether a knob with this value is at or below what is kept while down.
pub fn is_down(form: &Form, value: Option<&Value>, replicas: u64) -> bool {
    match form {
        // What is neither a number nor absent is not ours to judge: leave it.
        Form::Count => value.is_some_and(|value| count(value).is_none_or(|present| present <= replicas)),
        Form::CountText => value.and_then(count).is_some_and(|present| present <= replicas),
        Form::Flag(down) => value.and_then(Value::as_bool).unwrap_or(false) == *down,
        Form::Text(down) => value.and_then(Value::as_str) == Some(down.as_ref()),
        Form::Guard { from, .. } => value.and_then(Value::as_str) != Some(from.as_ref()),
    }
}

/// The text of the label `asleep` for what is recorded of the first knob.
pub fn label_text(knob: &Knob, was: Option<&Value>) -> String {
    match (&knob.form, was) {
        (Form::Count | Form::CountText, None) => ABSENT.to_owned(),
        (Form::Count | Form::CountText, Some(value)) if count(value).is_some() => value_text(Some(value)),
        _ => "true".to_owned(),
    }
}

#[cfg(test)]
#[path = "tests/record.rs"]
mod tests;
