//! decide: from a snapshot to the actions that it asks for. Pure, total, ordered. (Client not required.)

pub mod action;
pub mod assess;
pub mod beside;
pub mod chores;
pub mod company;
pub mod decider;
pub mod memory;
pub mod neighbours;
pub mod snapshot;
pub mod workload;

use jiff::Timestamp;
use shared::workload::ObjectRef;

use action::{Action, Skip};
use decider::{Decider, Remark};
use memory::Memory;
use snapshot::{Dirty, Snapshot};

/// What a snapshot asks for at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The writes that may go now, in their order.
    pub actions: Vec<Action>,
    /// The writes that wait for their wave, for their minute or for the end of a pause.
    pub waiting: Vec<Action>,
    /// What is not done although it should be, and why.
    pub skips: Vec<(ObjectRef, Skip)>,
    /// What is to be told on objects.
    pub remarks: Vec<Remark>,
    /// The next instant at which the clock alone may change this.
    pub next: Option<Timestamp>,
}

/// Decides about everything.
pub fn decide(snapshot: &Snapshot, memory: &Memory, now: Timestamp) -> Decision {
    let mut decider = Decider::new(memory.clone());
    decider.update(snapshot, &Dirty::everything(), now);
    let next = decider.next_instant(now);
    let mut actions = Vec::new();
    while let Some(action) = decider.next_action(snapshot, now) {
        actions.push(action);
    }
    Decision {
        actions,
        waiting: decider.waiting(snapshot, now),
        skips: decider.skips(),
        remarks: decider.take_remarks(),
        next,
    }
}

#[cfg(test)]
pub(crate) mod tests;
