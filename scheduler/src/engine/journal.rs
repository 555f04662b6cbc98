//! One summary per transition: a log line for each schedule, an Event for each schedule and namespace. (Client not required.)

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::events::{Events, Remark};
use shared::schedule::State;
use shared::workload::ObjectRef;
use tracing::info;

use crate::decide::action::{Action, Purpose};
use crate::decide::decider::{Decider, Group};
use crate::decide::memory::Outcome;
use crate::decide::snapshot::Snapshot;

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    down: u32,
    up: u32,
    failed: u32,
}

/// What was done since the last summary, by schedule and namespace.
#[derive(Debug, Default)]
pub struct Journal {
    done: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Counts>>,
}

impl Journal {
    /// Takes in how a write ended.
    pub fn note(&mut self, action: &Action, outcome: &Outcome) {
        let Some(schedule) = &action.schedule else { return };
        let count = |counts: &mut Counts| match (action.purpose, outcome) {
            (Purpose::Down, Outcome::Done) => counts.down += 1,
            (Purpose::Restore, Outcome::Done) => counts.up += 1,
            (Purpose::Down | Purpose::Restore, Outcome::Failed { .. }) => counts.failed += 1,
            _ => {}
        };
        let relevant = matches!(action.purpose, Purpose::Down | Purpose::Restore)
            && matches!(outcome, Outcome::Done | Outcome::Failed { .. });
        if relevant {
            let namespaces = self.done.entry(Arc::clone(schedule)).or_default();
            count(
                namespaces
                    .entry(Arc::clone(&action.target.object.namespace))
                    .or_default(),
            );
        }
    }

    /// Sums up the schedules that have come to rest, or all of them.
    pub fn flush(&mut self, decider: &Decider, snapshot: &Snapshot, events: Option<&Events>, all: bool) {
        if self.done.is_empty() {
            return;
        }
        self.done.retain(|schedule, namespaces| {
            if !all && decider.group(schedule).is_some_and(Group::is_moving) {
                return true;
            }
            let sum = |part: fn(&Counts) -> u32| namespaces.values().map(part).sum::<u32>();
            info!(
                schedule = &**schedule,
                put_to_sleep = sum(|counts| counts.down),
                woken = sum(|counts| counts.up),
                failed_attempts = sum(|counts| counts.failed),
                namespaces = namespaces.len(),
                "transition done"
            );
            for (namespace, counts) in namespaces {
                for (count, state) in [(counts.down, State::Down), (counts.up, State::Up)] {
                    if let Some(events) = events.filter(|_| count > 0) {
                        tell(events, snapshot, schedule, namespace, count, state);
                    }
                }
            }
            false
        });
    }
}

fn tell(events: &Events, snapshot: &Snapshot, schedule: &str, namespace: &Arc<str>, count: u32, state: State) {
    let uid = snapshot
        .namespace(namespace)
        .map_or_else(|| Arc::from(""), |namespace| Arc::clone(&namespace.uid));
    let noun = if count == 1 { "workload" } else { "workloads" };
    let (reason, verb) = if state == State::Down {
        ("PutToSleep", "put to sleep")
    } else {
        ("Woken", "woken")
    };
    events.tell(Remark {
        // In the namespace itself, where its people look.
        object: ObjectRef {
            group: Arc::from(""),
            kind: Arc::from("Namespace"),
            namespace: Arc::clone(namespace),
            name: Arc::clone(namespace),
        },
        version: Arc::from("v1"),
        uid,
        action: "Transition",
        reason,
        note: format!("schedule {schedule}: {count} {noun} {verb}"),
        warning: false,
    });
}
