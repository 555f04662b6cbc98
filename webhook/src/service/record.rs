//! What the record of a sleeping workload is after a request: who may move it, and what is put back. Pure.

use shared::annotations::{ASLEEP, DownReplicas, is_own_state};
use shared::kinds::Form;
use shared::record::{Entry, Record, is_down, kept};
use shared::workload::Workload;

use super::facts::changes;

/// Whether a request touches what only the product writes.
pub(super) fn is_touched(new: &Workload, old: &Workload) -> bool {
    changes(new.annotations.as_ref(), old.annotations.as_ref(), false)
        .chain(changes(new.labels.as_ref(), old.labels.as_ref(), true))
        .any(|change| is_own_state(change.key))
}

/// Our own record of a workload. Other products' are not ours to defend.
pub(super) fn own(workload: &Workload) -> Option<Record> {
    Record::read(workload).filter(|record| !record.foreign)
}

/// Whether every knob that was moved is where we put it, or below.
pub(super) fn is_at_or_below(workload: &Workload, record: &Record) -> bool {
    let mut moved = workload
        .kind
        .knobs
        .iter()
        .zip(&record.entries)
        .zip(&workload.knobs)
        .filter(|((knob, entry), _)| **entry != Entry::None && !matches!(knob.form, Form::Guard { .. }))
        .peekable();
    moved.peek().is_some()
        && moved.all(|((knob, _), reading)| is_down(&knob.form, reading.value.as_ref(), record.held_replicas))
}

/// The record that counts after a request on a sleeping workload.
///
/// A record that vanished or was edited is the old one. Where annotation and label agree on a new count, it is the webhook's
/// own word of an earlier call in the same request (an API server may call again after other webhooks), and stays.
pub(super) fn effective(new: &Workload, old: &Record, down: DownReplicas) -> Record {
    let mut record = old.clone();
    let Some(theirs) = own(new) else { return record };
    let agree = !theirs.differs && new.label(ASLEEP).is_some();
    for (index, knob) in new.kind.knobs.iter().enumerate() {
        let (Some(mine), Some(other)) = (record.entries.get_mut(index), theirs.entries.get(index)) else {
            continue;
        };
        let readable = matches!(other, Entry::Was(_));
        let accepted = match &knob.form {
            Form::Count | Form::CountText if index == 0 => readable && agree,
            // Further counts have no second copy: what is readable stays, what vanished comes back.
            Form::Count | Form::CountText => readable,
            Form::Guard { .. } => readable && *mine == Entry::None,
            Form::Flag(_) | Form::Text(_) => false,
        };
        if accepted {
            mine.clone_from(other);
        }
    }
    if theirs.held_replicas != record.held_replicas && theirs.held_replicas == wanted(&record, down) {
        record.held_replicas = theirs.held_replicas;
    }
    record.down_since = old.down_since.or(theirs.down_since);
    record
}

/// Replicas to hold under this record.
pub(super) fn wanted(record: &Record, down: DownReplicas) -> u64 {
    let kept = match record.entries.first() {
        Some(Entry::Was(value)) => kept(value.as_ref(), down),
        _ => None,
    };
    kept.unwrap_or(record.held_replicas)
}

/// Whether an object carries a record of ours and is where that record holds it: the output of an earlier call.
pub(super) fn is_settled(workload: &Workload, down: DownReplicas) -> bool {
    own(workload).is_some_and(|record| {
        !record.differs && is_at_or_below(workload, &record) && record.held_replicas == wanted(&record, down)
    })
}
