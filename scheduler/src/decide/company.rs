//! What is to be done beside workloads, and what is on its way. (Client not required.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::schedule::State;
use shared::workload::ObjectRef;

use super::action::{Action, Note, Skip};
use super::assess::Assessment;
use super::beside::{Look, Move, Unit, Want};
use super::decider::Remark;
use super::memory::{Memory, later};
use super::snapshot::Snapshot;

/// The units that are looked at, and their writes.
#[derive(Debug, Clone, Default)]
pub struct Company {
    /// To be looked at.
    stirred: BTreeSet<Unit>,
    looks: BTreeMap<Unit, Look>,
    due: BTreeSet<(Timestamp, Unit)>,
    /// Writes that may go.
    ready: BTreeMap<ObjectRef, (Unit, Move)>,
    flying: BTreeMap<ObjectRef, (Unit, Move)>,
    told: BTreeMap<Unit, &'static str>,
}

impl Company {
    /// Takes in what is to be looked at.
    pub fn stir(&mut self, units: impl IntoIterator<Item = Unit>) {
        self.stirred.extend(units);
    }

    /// Writes on their way.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Whether something is wanted, on its way or waited for.
    pub fn is_busy(&self) -> bool {
        !self.ready.is_empty()
            || !self.flying.is_empty()
            || self
                .looks
                .values()
                .any(|look| !look.moves.is_empty() || look.closed.as_ref().is_some_and(|skip| !skip.tell))
    }

    /// When something may change by the clock alone.
    pub fn next_instant(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Looks at what was stirred or is due. What is to be told on objects.
    pub fn look(
        &mut self,
        snapshot: &Snapshot,
        memory: &Memory,
        assessed: &BTreeMap<ObjectRef, Assessment>,
        now: Timestamp,
    ) -> Vec<Remark> {
        while let Some((at, unit)) = self.due.first().cloned() {
            if at > now {
                break;
            }
            self.due.remove(&(at, unit.clone()));
            self.stirred.insert(unit);
        }
        let mut remarks = Vec::new();
        for unit in std::mem::take(&mut self.stirred) {
            self.displace(&unit);
            let want = want(snapshot, &unit, assessed, now);
            let mut look = snapshot.look(&unit, &want, memory, now);
            remarks.extend(self.remark(snapshot, &unit, &look));
            for step in &look.moves {
                let object = &step.action.target.object;
                if !self.flying.contains_key(object) && memory.move_waits(step, now).is_none() {
                    self.ready.insert(object.clone(), (unit.clone(), step.clone()));
                }
            }
            // The write of an object that changed while it was on its way is decided again when its answer is there.
            look.again = look.again.map(|at| {
                if at <= now {
                    later(now, SignedDuration::from_secs(1))
                } else {
                    at
                }
            });
            if look == Look::settled() {
                continue;
            }
            if let Some(at) = look.again {
                self.due.insert((at, unit.clone()));
            }
            self.looks.insert(unit, look);
        }
        remarks
    }

    fn displace(&mut self, unit: &Unit) {
        let Some(former) = self.looks.remove(unit) else { return };
        if let Some(at) = former.again {
            self.due.remove(&(at, unit.clone()));
        }
        for step in &former.moves {
            self.ready.remove(&step.action.target.object);
        }
    }

    /// What is told on the unit's own object, once for as long as it lasts.
    fn remark(&mut self, snapshot: &Snapshot, unit: &Unit, look: &Look) -> Option<Remark> {
        let skip: Option<&Skip> = look.trouble.as_ref().or(look.closed.as_ref()).filter(|skip| skip.tell);
        let Some(skip) = skip else {
            self.told.remove(unit);
            return None;
        };
        if self.told.insert(unit.clone(), skip.reason) == Some(skip.reason) {
            return None;
        }
        let (object, uid) = snapshot.beside.place(unit)?;
        Some(Remark {
            object,
            uid,
            note: Note {
                reason: skip.reason,
                message: skip.message.clone(),
                warning: true,
            },
        })
    }

    /// Hands out the next write.
    pub fn next_action(&mut self, memory: &Memory, now: Timestamp) -> Option<Action> {
        loop {
            let (object, (unit, step)) = self.ready.pop_first()?;
            if self.flying.contains_key(&object) || memory.move_waits(&step, now).is_some() {
                continue;
            }
            let action = step.action.clone();
            self.flying.insert(object, (unit, step));
            return Some(action);
        }
    }

    /// Takes in that a write has ended. `None`: it was none of ours.
    pub fn answered(&mut self, object: &ObjectRef) -> Option<(Unit, Move)> {
        self.flying.remove(object)
    }
}

/// What the workloads of a unit ask of it, all together: it sleeps while any of them does.
fn want(snapshot: &Snapshot, unit: &Unit, assessed: &BTreeMap<ObjectRef, Assessment>, now: Timestamp) -> Want {
    let workloads = snapshot.workloads_of(unit);
    let mut want: Option<Want> = None;
    for assessment in workloads.iter().filter_map(|object| assessed.get(object)) {
        let schedule = assessment.schedule.as_ref().map(Arc::clone);
        let asks = match unit {
            Unit::Autoscalers(_) => true,
            Unit::Application(_) => schedule
                .as_ref()
                .and_then(|schedule| schedule.argo.as_ref())
                .is_some_and(|argo| {
                    argo.pause && !(argo.strict_protected && snapshot.protected_beside(unit).is_some())
                }),
            Unit::Flux(_) => schedule
                .as_ref()
                .and_then(|schedule| schedule.flux.as_ref())
                .is_some_and(|flux| flux.pause),
        };
        want = Some(match (want, assessment.state, assessment.held) {
            (_, State::Down, Some(replicas)) if asks => {
                return Want::Down {
                    replicas,
                    recorded: assessment.recorded,
                    now,
                    schedule,
                };
            }
            // Asleep, and about to be restored, or nobody knows.
            (_, State::Up, Some(_)) if matches!(unit, Unit::Autoscalers(_)) => Want::Opening(schedule),
            (_, State::Up | State::Unknown, Some(_)) | (Some(Want::Leave), _, _) => Want::Leave,
            (Some(Want::Up(Some(former))), _, _) => Want::Up(Some(former)),
            (_, State::Up | State::Down, _) => Want::Up(schedule),
            (former, State::Unknown, None) => former.unwrap_or(Want::Leave),
        });
    }
    match (want, unit) {
        (Some(want), _) => want,
        // An HPA whose target is gone stays as it is: whoever creates it again will want it so.
        (None, Unit::Autoscalers(_)) => Want::Leave,
        (None, Unit::Application(_) | Unit::Flux(_)) if snapshot.forced.is_some() => Want::Leave,
        (None, Unit::Application(_) | Unit::Flux(_)) => Want::Up(None),
    }
}
