//! All workloads: assessments that are renewed where something changed, and the order in which writes may go. (Client not
//! required.)
//!
//! What is decided depends on the snapshot, the memory and `now` alone: renewing only what changed gives the same as
//! deciding everything anew.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::policy::Schedule;
use shared::workload::ObjectRef;

use crate::hpa::HPA_DELETED;

use super::action::{Action, Note, Purpose, Skip};
use super::assess::{Assessment, Class, Order, action, assess, namespace_ref};
use super::beside::Unit;
use super::chores::{Chore, chores, patience_ends, schedule_ref};
use super::company::Company;
use super::memory::{Failure, Memory, Outcome, later};
use super::snapshot::{Dirty, Snapshot};
use super::workload::Step;

/// How often the memory is looked through for what is gone.
const PRUNE_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// The order of writes that need not keep a pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Small things first: a record that is put back, an instant that is fixed.
    Small,
    /// Shutdown runs in the reverse order of waking, without waiting.
    Down(Reverse<Order>),
    /// A single workload that somebody woke.
    Restore(Order),
}

/// A write that was handed out and not yet answered.
#[derive(Debug, Clone)]
struct InFlight {
    uid: Arc<str>,
    version: Arc<str>,
    purpose: Purpose,
    /// Group and wave of a paced restore.
    paced: Option<(Arc<str>, Order)>,
}

/// Something to tell on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The object.
    pub object: ObjectRef,
    /// Its UID.
    pub uid: Arc<str>,
    /// What.
    pub note: Note,
}

/// The workloads of one schedule.
#[derive(Debug, Clone)]
pub struct Group {
    schedule: Arc<Schedule>,
    counts: BTreeMap<Class, u32>,
    asleep: BTreeSet<ObjectRef>,
    troubles: BTreeMap<ObjectRef, Skip>,
    /// Restores that may go as soon as the pace allows.
    restores: BTreeSet<(Order, ObjectRef)>,
    /// Restores that pause after a failure: later waves wait for them for a while.
    paused: BTreeSet<(Order, ObjectRef)>,
    /// Restores on their way.
    flying: BTreeSet<(Order, ObjectRef)>,
    /// Restored and not yet ready.
    waking: BTreeSet<(Order, ObjectRef)>,
    /// Anything else that is wanted and not yet done.
    others: u32,
}

impl Group {
    fn new(schedule: &Arc<Schedule>) -> Self {
        Self {
            schedule: Arc::clone(schedule),
            counts: BTreeMap::new(),
            asleep: BTreeSet::new(),
            troubles: BTreeMap::new(),
            restores: BTreeSet::new(),
            paused: BTreeSet::new(),
            flying: BTreeSet::new(),
            waking: BTreeSet::new(),
            others: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.flying.is_empty()
    }

    /// How many workloads count so.
    pub fn count(&self, class: Class) -> u32 {
        self.counts.get(&class).copied().unwrap_or(0)
    }

    /// What sleeps.
    pub fn asleep(&self) -> &BTreeSet<ObjectRef> {
        &self.asleep
    }

    /// What could not be brought where it should be.
    pub fn troubles(&self) -> &BTreeMap<ObjectRef, Skip> {
        &self.troubles
    }

    /// Whether writes are outstanding.
    pub fn is_moving(&self) -> bool {
        self.others > 0 || !self.restores.is_empty() || !self.paused.is_empty() || !self.flying.is_empty()
    }

    /// The next restore that the waves and `maxConcurrent` allow.
    fn next_restore(&self) -> Option<&(Order, ObjectRef)> {
        let startup = &self.schedule.startup;
        let candidate = self.restores.first()?;
        if let Some(limit) = startup.max_concurrent
            && self.flying.len() + self.waking.len() >= limit as usize
        {
            return None;
        }
        let waking = self.waking.first().filter(|_| startup.wait_ready);
        let before = [self.flying.first(), self.paused.first(), waking];
        let lowest = before.into_iter().flatten().map(|(order, _)| *order).min();
        lowest.is_none_or(|lowest| candidate.0 <= lowest).then_some(candidate)
    }
}

/// Decides about all workloads, and remembers what it needs for the next time.
#[derive(Debug, Clone, Default)]
pub struct Decider {
    memory: Memory,
    assessed: BTreeMap<ObjectRef, Assessment>,
    due: BTreeSet<(Timestamp, ObjectRef)>,
    unpaced: BTreeSet<(Rank, ObjectRef)>,
    groups: BTreeMap<Arc<str>, Group>,
    /// Groups with restores that wait for their turn.
    open: BTreeSet<Arc<str>>,
    chores: BTreeMap<ObjectRef, Chore>,
    /// When a chore is wanted by the clock alone.
    next_chore: Option<Timestamp>,
    in_flight: BTreeMap<ObjectRef, InFlight>,
    /// What is to be done beside workloads.
    company: Company,
    told: BTreeMap<ObjectRef, Vec<Note>>,
    remarks: Vec<Remark>,
    last: Option<Timestamp>,
    /// When the memory let go of what is gone.
    pruned: Option<Timestamp>,
}

impl Decider {
    /// Starts from what is remembered.
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    /// What is remembered.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What was found about a workload.
    pub fn assessment(&self, object: &ObjectRef) -> Option<&Assessment> {
        self.assessed.get(object)
    }

    /// All assessments.
    pub fn assessments(&self) -> impl Iterator<Item = (&ObjectRef, &Assessment)> {
        self.assessed.iter()
    }

    /// The workloads of a schedule. `None`: it has none.
    pub fn group(&self, schedule: &str) -> Option<&Group> {
        self.groups.get(schedule)
    }

    /// The workloads of each schedule that has any.
    pub fn groups(&self) -> impl Iterator<Item = (&Arc<str>, &Group)> {
        self.groups.iter()
    }

    /// Takes what is to be told on objects since the last call.
    pub fn take_remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    /// How many writes were handed out and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() + self.company.in_flight()
    }

    /// Whether something beside workloads still wants a write, or is waited for.
    pub fn is_waiting_beside(&self) -> bool {
        self.company.is_busy()
    }

    /// Decides anew about what changed and about what the clock has moved on.
    pub fn update(&mut self, snapshot: &Snapshot, dirty: &Dirty, now: Timestamp) {
        let set_back = self.last.is_some_and(|last| now < last);
        self.last = Some(now);
        if set_back {
            self.memory.set_back(now);
        }
        if set_back || self.pruned.is_none_or(|at| now >= later(at, PRUNE_EVERY)) {
            self.pruned = Some(now);
            let followed = |object: &ObjectRef| self.assessed.contains_key(object);
            self.memory.prune(&snapshot.beside.hpa_uids(), followed, now);
        }
        self.company.stir(dirty.units.iter().cloned());
        let mut beside: BTreeSet<ObjectRef> = dirty
            .units
            .iter()
            .flat_map(|unit| snapshot.workloads_of(unit))
            .collect();
        if dirty.everything || set_back {
            self.company.stir(snapshot.beside.units());
            let mut all: BTreeSet<ObjectRef> = snapshot.workloads().map(|(object, _)| object.clone()).collect();
            all.extend(self.assessed.keys().cloned());
            for object in &all {
                self.renew(snapshot, object, now);
            }
        } else {
            beside.extend(dirty.objects.iter().cloned());
            for object in &beside {
                self.renew(snapshot, object, now);
            }
            while let Some((at, object)) = self.due.first().cloned() {
                if at > now {
                    break;
                }
                self.due.remove(&(at, object.clone()));
                self.renew(snapshot, &object, now);
            }
        }
        self.look_beside(snapshot, now);
        self.chore(snapshot, now);
    }

    /// Looks at what stands beside the workloads that were decided about anew.
    fn look_beside(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let remarks = self.company.look(snapshot, &self.memory, &self.assessed, now);
        self.remarks.extend(remarks);
    }

    fn chore(&mut self, snapshot: &Snapshot, now: Timestamp) {
        self.chores = chores(snapshot, &self.groups, &self.memory, now);
        let patience = snapshot.resources().filter_map(|(_, resource)| patience_ends(resource));
        let places = snapshot.resources().map(|(name, _)| schedule_ref(name));
        let places = places.chain(snapshot.durations().map(|namespace| namespace_ref(&namespace.name)));
        let pauses = places.filter_map(|object| self.memory.paused(&object, now));
        self.next_chore = patience.chain(pauses).filter(|at| *at > now).min();
    }

    fn renew(&mut self, snapshot: &Snapshot, object: &ObjectRef, now: Timestamp) {
        // What is on its way is looked at again when its answer is there.
        if self.in_flight.contains_key(object) {
            return;
        }
        let former = self.assessed.remove(object);
        if let Some(former) = &former {
            self.displace(object, former);
            self.company.stir(former.units.iter().cloned());
        }
        let Some(workload) = snapshot.workload(object) else {
            if let Some(former) = former {
                self.memory.forget(object, &former.uid);
            }
            self.told.remove(object);
            return;
        };
        if let Some(former) = former.filter(|former| former.uid != workload.uid) {
            self.memory.forget(object, &former.uid);
            self.told.remove(object);
        }
        let assessment = assess(snapshot, &mut self.memory, workload, now);
        self.company.stir(assessment.units.iter().cloned());
        self.tell(object, &assessment);
        self.place(object, &assessment, now);
        self.assessed.insert(object.clone(), assessment);
    }

    /// Tells what is new about an object, once for as long as it lasts.
    fn tell(&mut self, object: &ObjectRef, assessment: &Assessment) {
        let mut notes = assessment.notes.clone();
        if let Some(trouble) = &assessment.trouble {
            notes.push(Note {
                reason: trouble.reason,
                message: trouble.message.clone(),
                warning: true,
            });
        }
        let told = self.told.get(object).map_or(&[][..], Vec::as_slice);
        for note in notes
            .iter()
            // A second wrong value is another matter; what a trouble says may change while it lasts.
            .filter(|note| {
                let lasts = |told: &Note| told.reason == note.reason;
                let same = |told: &Note| lasts(told) && told.message == note.message;
                if assessment.notes.contains(note) {
                    !told.iter().any(same)
                } else {
                    !told.iter().any(lasts)
                }
            })
        {
            self.remarks.push(Remark {
                object: object.clone(),
                uid: Arc::clone(&assessment.uid),
                note: note.clone(),
            });
        }
        if notes.is_empty() {
            self.told.remove(object);
        } else {
            self.told.insert(object.clone(), notes);
        }
    }

    fn place(&mut self, object: &ObjectRef, assessment: &Assessment, now: Timestamp) {
        if let Some(at) = assessment.again {
            self.due.insert((at, object.clone()));
        }
        let purpose = assessment.purpose();
        let free = self.memory.paused(object, now).is_none() && assessment.opening.is_none();
        let Some(schedule) = &assessment.schedule else {
            if let Some(purpose) = purpose.filter(|_| free) {
                self.unpaced.insert((rank(purpose, assessment), object.clone()));
            }
            return;
        };
        let group = self
            .groups
            .entry(Arc::clone(&schedule.name))
            .or_insert_with(|| Group::new(schedule));
        group.schedule = Arc::clone(schedule);
        *group.counts.entry(assessment.class).or_default() += 1;
        if assessment.asleep {
            group.asleep.insert(object.clone());
        }
        if let Some(trouble) = &assessment.trouble {
            group.troubles.insert(object.clone(), trouble.clone());
        }
        if assessment.waking && purpose.is_none() {
            group.waking.insert((assessment.order, object.clone()));
        }
        let Some(purpose) = purpose else { return };
        if purpose == Purpose::Restore && assessment.paced {
            let entry = (assessment.order, object.clone());
            if free {
                group.restores.insert(entry);
                self.open.insert(Arc::clone(&schedule.name));
            } else if !self.is_stuck(object, assessment, now) {
                self.groups.entry(Arc::clone(&schedule.name)).and_modify(|group| {
                    group.paused.insert(entry);
                });
            }
        } else {
            group.others += 1;
            if free {
                self.unpaced.insert((rank(purpose, assessment), object.clone()));
            }
        }
    }

    /// Whether a restore has failed for so long that later waves go on without it.
    fn is_stuck(&self, object: &ObjectRef, assessment: &Assessment, now: Timestamp) -> bool {
        let timeout = assessment.schedule.as_ref().map(|schedule| schedule.startup.timeout);
        let failed = |failure: &Failure| now >= later(failure.since, timeout.unwrap_or_default());
        self.memory.failure(object).is_some_and(failed) || assessment.opening.as_ref().is_some_and(|skip| skip.tell)
    }

    fn displace(&mut self, object: &ObjectRef, assessment: &Assessment) {
        if let Some(at) = assessment.again {
            self.due.remove(&(at, object.clone()));
        }
        let purpose = assessment.purpose();
        if let Some(purpose) = purpose {
            self.unpaced.remove(&(rank(purpose, assessment), object.clone()));
        }
        let Some(schedule) = &assessment.schedule else { return };
        let Some(group) = self.groups.get_mut(&schedule.name) else {
            return;
        };
        if let Some(count) = group.counts.get_mut(&assessment.class) {
            *count = count.saturating_sub(1);
        }
        group.counts.retain(|_, count| *count > 0);
        group.asleep.remove(object);
        group.troubles.remove(object);
        let entry = (assessment.order, object.clone());
        group.restores.remove(&entry);
        group.paused.remove(&entry);
        group.waking.remove(&entry);
        if purpose.is_some_and(|purpose| !(purpose == Purpose::Restore && assessment.paced)) {
            group.others = group.others.saturating_sub(1);
        }
        if group.restores.is_empty() {
            self.open.remove(&schedule.name);
        }
        if group.is_empty() {
            self.groups.remove(&schedule.name);
        }
    }

    /// Hands out the next write, if one may go now. Its object is left alone until [`Self::answered`].
    pub fn next_action(&mut self, snapshot: &Snapshot, now: Timestamp) -> Option<Action> {
        if let Some(action) = self.company.next_action(&self.memory, now) {
            return Some(action);
        }
        if let Some((object, chore)) = self.chores.pop_first() {
            let flight = InFlight {
                uid: Arc::clone(&chore.action.target.uid),
                version: chore.version,
                purpose: chore.action.purpose,
                paced: None,
            };
            if self.in_flight.contains_key(&object) || self.memory.paused(&object, now).is_some() {
                return self.next_action(snapshot, now);
            }
            self.in_flight.insert(object, flight);
            return Some(chore.action);
        }
        if let Some((_, object)) = self.unpaced.pop_first() {
            return self
                .hand_out(snapshot, &object, None, now)
                .or_else(|| self.next_action(snapshot, now));
        }
        let (name, order, object) = self.open.iter().find_map(|name| {
            let group = self.groups.get(name)?;
            let (order, object) = group.next_restore()?;
            let limit = group.schedule.startup.per_minute;
            let spent = limit.is_some_and(|limit| {
                let left = limit.saturating_sub(u32::try_from(group.flying.len()).unwrap_or(u32::MAX));
                left == 0 || self.memory.next_start(name, left, now).is_some()
            });
            (!spent).then(|| (Arc::clone(name), *order, object.clone()))
        })?;
        if let Some(group) = self.groups.get_mut(&name) {
            group.restores.remove(&(order, object.clone()));
            if group.restores.is_empty() {
                self.open.remove(&name);
            }
        }
        self.hand_out(snapshot, &object, Some((name, order)), now)
            .or_else(|| self.next_action(snapshot, now))
    }

    fn hand_out(
        &mut self,
        snapshot: &Snapshot,
        object: &ObjectRef,
        paced: Option<(Arc<str>, Order)>,
        now: Timestamp,
    ) -> Option<Action> {
        let assessment = self.assessed.get(object)?;
        let action = action(snapshot.workload(object)?, assessment, now)?;
        if let Some((name, order)) = &paced
            && let Some(group) = self.groups.get_mut(name)
        {
            group.flying.insert((*order, object.clone()));
        }
        let flight = InFlight {
            uid: Arc::clone(&assessment.uid),
            version: Arc::clone(&assessment.version),
            purpose: action.purpose,
            paced,
        };
        self.in_flight.insert(object.clone(), flight);
        Some(action)
    }

    /// Takes in how a write ended. The snapshot has the answer already, if there was one; the object is decided about anew.
    pub fn answered(&mut self, snapshot: &Snapshot, object: &ObjectRef, outcome: &Outcome, now: Timestamp) {
        if let Some((unit, step)) = self.company.answered(object) {
            self.memory.note_move(&step, outcome, now);
            if let (Unit::Autoscalers(target), Outcome::Done) = (&unit, outcome)
                && step
                    .action
                    .event
                    .as_ref()
                    .is_some_and(|note| note.reason == HPA_DELETED)
            {
                self.memory.bereft.insert(target.clone());
            }
            for object in snapshot.workloads_of(&unit) {
                self.renew(snapshot, &object, now);
            }
            self.company.stir([unit]);
            self.look_beside(snapshot, now);
            return;
        }
        let Some(flight) = self.in_flight.remove(object) else {
            return;
        };
        if let Some((name, order)) = &flight.paced
            && let Some(group) = self.groups.get_mut(name)
        {
            group.flying.remove(&(*order, object.clone()));
            if *outcome == Outcome::Done
                && flight.purpose == Purpose::Restore
                && group.schedule.startup.per_minute.is_some()
            {
                self.memory.started(name, now);
            }
        }
        self.memory
            .note(object, &flight.uid, &flight.version, flight.purpose, outcome, now);
        self.renew(snapshot, object, now);
        self.look_beside(snapshot, now);
        self.chore(snapshot, now);
    }

    /// The next instant at which the clock alone may change what is to be done.
    pub fn next_instant(&self, now: Timestamp) -> Option<Timestamp> {
        let budgets = self.open.iter().filter_map(|name| {
            let group = self.groups.get(name)?;
            let limit = group.schedule.startup.per_minute?;
            self.memory.next_start(name, limit, now)
        });
        budgets
            .chain(self.next_chore)
            .chain(self.company.next_instant())
            .chain(self.due.first().map(|(at, _)| *at))
            .map(|at| {
                if at <= now {
                    later(now, SignedDuration::from_millis(100))
                } else {
                    at
                }
            })
            .min()
    }

    /// The writes that wait for their turn (their wave, their minute, the end of a pause), in the order of waking.
    pub fn waiting(&self, snapshot: &Snapshot, now: Timestamp) -> Vec<Action> {
        let waits = self
            .assessed
            .iter()
            .filter(|(object, _)| !self.in_flight.contains_key(*object));
        let mut waiting: Vec<(Order, Action)> = waits
            .filter_map(|(object, assessment)| {
                let action = action(snapshot.workload(object)?, assessment, now)?;
                Some((assessment.order, action))
            })
            .collect();
        waiting.sort_by_key(|(order, _)| *order);
        waiting.into_iter().map(|(_, action)| action).collect()
    }

    /// The workloads that want a write and have not failed `tries` times yet, or for good, those on their way included.
    pub fn outstanding(&self, tries: u32) -> Vec<ObjectRef> {
        let wants = self.assessed.iter().filter(|(object, assessment)| {
            let failed = self.memory.failure(object).map_or(0, |failure| {
                let spent = failure.is_final() && tries < u32::MAX;
                if spent { tries } else { failure.times }
            });
            // What waits for an HPA that cannot be written is told as that.
            let blocked = assessment.opening.as_ref().is_some_and(|skip| skip.tell) && tries < u32::MAX;
            !self.memory.is_said(object) && assessment.purpose().is_some() && failed < tries && !blocked
        });
        wants.map(|(object, _)| object.clone()).collect()
    }

    /// What is not done although it should be, and why.
    pub fn skips(&self) -> Vec<(ObjectRef, Skip)> {
        self.assessed
            .iter()
            .filter_map(|(object, assessment)| match &assessment.step {
                Step::Skip(skip) => Some((object.clone(), skip.clone())),
                _ => None,
            })
            .collect()
    }
}

fn rank(purpose: Purpose, assessment: &Assessment) -> Rank {
    match purpose {
        Purpose::Down => Rank::Down(Reverse(assessment.order)),
        Purpose::Restore => Rank::Restore(assessment.order),
        _ => Rank::Small,
    }
}
