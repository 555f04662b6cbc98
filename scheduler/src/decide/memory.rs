//! What is known beyond the present facts: seen earlier, or done by us. (Client not required.)
//!
//! It changes by observed facts and by the outcome of actions only, and everything works without it: a new leader starts with
//! an empty one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::record::Record;
use shared::workload::{ObjectRef, Workload};

use crate::argo::Pauses;
use crate::hpa::{Unasked, Zeros};

use super::action::Purpose;
use super::beside::Move;
use super::workload::RAISE_WINDOW;

/// After a conflict: how long the watch has time to show what was in the way before we try all the same.
const CONFLICT_PATIENCE: SignedDuration = SignedDuration::from_secs(5);
/// A dry run says once in this time what it would write, and again when the object changes.
const DRY_RUN_PATIENCE: SignedDuration = SignedDuration::from_hours(1);
/// First pause after a failed write.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// Longest pause after failed writes.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// Shortest pause after a write that was refused for want of rights.
const FORBIDDEN_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// The API server's own wish is followed for so long at most.
const LONGEST_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// So many conflicts in a row are no race with somebody else any more.
const CONFLICT_LIMIT: u32 = 5;
/// Reason of a failure that consists of conflicts.
pub const CONFLICT_LASTS: &str = "ConflictLasts";
/// What was not tried again for so long after its time is not wanted any more.
const STALE: SignedDuration = SignedDuration::from_hours(1);

/// How an action ended, as far as the next decision is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Written.
    Done,
    /// A dry run: it would be written, and nothing changed.
    WouldWrite,
    /// What we relied on was not so (409, or the 422 of a failed test), or the object is gone.
    Conflict {
        /// One line: verb, resource and what the API server said.
        message: String,
    },
    /// Refused or broken off; it may be tried again.
    Failed {
        /// CamelCase reason for conditions, such as `Forbidden`.
        reason: &'static str,
        /// One line: verb, resource and what the API server said.
        message: String,
        /// The API server's own wish.
        retry_after: Option<SignedDuration>,
    },
    /// Not sent: we do not lead any more, or are shutting down.
    NotSent,
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// How many times in a row.
    pub times: u32,
    /// Since when.
    pub since: Timestamp,
    /// When it is tried again.
    pub again: Timestamp,
    /// CamelCase reason.
    pub reason: &'static str,
    /// One line.
    pub message: Arc<str>,
}

impl Failure {
    /// Whether people should hear of it: it lasts, or waiting will not help.
    pub fn is_worth_telling(&self) -> bool {
        self.times >= 3 || self.is_final() || self.reason == CONFLICT_LASTS
    }

    /// Whether trying again changes nothing until somebody mends what is wrong.
    pub fn is_final(&self) -> bool {
        matches!(self.reason, "Forbidden" | "Invalid" | "RecordTooLarge")
    }
}

/// A conflict: wait until something newer than this version was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Conflict {
    version: Arc<str>,
    again: Timestamp,
    /// How long it may last at most.
    patience: SignedDuration,
}

/// What is remembered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The last readable record of what sleeps, by UID.
    records: BTreeMap<Arc<str>, Record>,
    /// When a workload was put down again because somebody had raised it, by UID.
    raised: BTreeMap<Arc<str>, Vec<Timestamp>>,
    /// Restored and not ready since, by UID.
    waking: BTreeMap<Arc<str>, Timestamp>,
    /// Not ready within its time, by UID.
    late: BTreeSet<Arc<str>>,
    /// Should be down and is being rolled out: since when this is known, by UID.
    rolling: BTreeMap<Arc<str>, Timestamp>,
    /// UIDs that were seen before.
    seen: BTreeSet<Arc<str>>,
    /// When workloads of a schedule were restored in the last minute.
    starts: BTreeMap<Arc<str>, VecDeque<Timestamp>>,
    /// Whether HPAs may have a minimum of 0.
    pub(crate) zeros: Zeros,
    /// HPAs whose controller cannot be asked to look.
    pub(crate) unasked: Unasked,
    /// How Applications were paused lately.
    pub(crate) pauses: Pauses,
    /// Workloads whose HPA was deleted for good: until somebody creates it again they are not all that they were.
    pub(crate) bereft: BTreeSet<ObjectRef>,
    failures: BTreeMap<ObjectRef, Failure>,
    conflicts: BTreeMap<ObjectRef, Conflict>,
    /// Conflicts in a row: how many, since when and the last one. Newer versions do not end them, writes do.
    rows: BTreeMap<ObjectRef, (u32, Timestamp, Timestamp)>,
}

impl Memory {
    /// Takes in what was seen of a workload. True the first time.
    pub fn observe(&mut self, workload: &Workload) -> bool {
        let uid = &workload.uid;
        match Record::read(workload) {
            Some(record) if record.foreign || record.unreadable().is_some() => {}
            Some(record) => {
                self.records.insert(Arc::clone(uid), record);
            }
            None => {
                if self.records.get(uid).is_some_and(|record| !record.asleep(workload)) {
                    self.records.remove(uid);
                }
            }
        }
        if workload.ready {
            self.waking.remove(uid);
            self.late.remove(uid);
        }
        // The pruned facts change only with the version: what was in the way has been seen.
        if let Some(conflict) = self.conflicts.get(&workload.object_ref())
            && conflict.version != workload.resource_version
        {
            self.conflicts.remove(&workload.object_ref());
        }
        self.seen.insert(Arc::clone(uid))
    }

    /// Takes in that an object is gone.
    pub fn forget(&mut self, object: &ObjectRef, uid: &str) {
        self.records.remove(uid);
        self.raised.remove(uid);
        self.waking.remove(uid);
        self.late.remove(uid);
        self.rolling.remove(uid);
        self.seen.remove(uid);
        self.bereft.remove(object);
        self.settled(object);
    }

    /// Takes in how an action ended. `version` is the resource version that it was decided on.
    pub fn note(
        &mut self,
        object: &ObjectRef,
        uid: &Arc<str>,
        version: &Arc<str>,
        purpose: Purpose,
        outcome: &Outcome,
        now: Timestamp,
    ) {
        match outcome {
            Outcome::Done => {
                self.settled(object);
                match purpose {
                    Purpose::DownAgain => {
                        let raised = self.raised.entry(Arc::clone(uid)).or_default();
                        raised.retain(|at| now.duration_since(*at) < RAISE_WINDOW * 3);
                        raised.push(now);
                    }
                    Purpose::Restore => {
                        self.waking.insert(Arc::clone(uid), now);
                        self.records.remove(uid);
                    }
                    Purpose::Forget => {
                        self.records.remove(uid);
                    }
                    Purpose::Down => {
                        self.waking.remove(uid);
                        self.late.remove(uid);
                    }
                    _ => {}
                }
            }
            Outcome::WouldWrite => self.waits_for_news(object, version, DRY_RUN_PATIENCE, now),
            Outcome::Conflict { message } => {
                self.waits_for_news(object, version, CONFLICT_PATIENCE, now);
                let row = self.rows.entry(object.clone()).or_insert((0, now, now));
                *row = (row.0.saturating_add(1), row.1, now);
                if row.0 >= CONFLICT_LIMIT {
                    let (since, message) = (row.1, format!("conflicts again and again: {message}"));
                    self.fail(object, CONFLICT_LASTS, &message, CONFLICT_PATIENCE, since, now);
                }
            }
            Outcome::Failed {
                reason,
                message,
                retry_after,
            } => {
                let forbidden = if *reason == "Forbidden" {
                    FORBIDDEN_PAUSE
                } else {
                    FIRST_PAUSE
                };
                let least = retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER).max(forbidden);
                self.fail(object, reason, message, least, now, now);
            }
            Outcome::NotSent => {}
        }
    }

    /// A write failed, since `since` if it had not failed before; it is tried again after `least` or later.
    fn fail(
        &mut self,
        object: &ObjectRef,
        reason: &'static str,
        message: &str,
        least: SignedDuration,
        since: Timestamp,
        now: Timestamp,
    ) {
        let former = self.failures.get(object);
        let times = former.map_or(0, |failure| failure.times).saturating_add(1);
        let since = former.map_or(since, |failure| failure.since);
        let pause = (FIRST_PAUSE * 2_i32.pow(times.saturating_sub(1).min(12))).min(LONGEST_PAUSE);
        let failure = Failure {
            times,
            since,
            again: later(now, pause.max(least)),
            reason,
            message: Arc::from(message),
        };
        self.failures.insert(object.clone(), failure);
    }

    /// An object is left alone until the watch shows something newer than `version`, or for so long.
    fn waits_for_news(&mut self, object: &ObjectRef, version: &Arc<str>, patience: SignedDuration, now: Timestamp) {
        let conflict = Conflict {
            version: Arc::clone(version),
            again: later(now, patience),
            patience,
        };
        self.conflicts.insert(object.clone(), conflict);
    }

    /// The clock was set back: what seems to lie ahead of us has happened just now, and no pause is longer than a new one.
    pub fn set_back(&mut self, now: Timestamp) {
        let early = |at: &mut Timestamp| *at = now.min(*at);
        self.raised.values_mut().flatten().for_each(early);
        self.waking.values_mut().for_each(early);
        self.rolling.values_mut().for_each(early);
        self.starts.values_mut().flatten().for_each(early);
        self.pauses.set_back(now);
        for failure in self.failures.values_mut() {
            early(&mut failure.since);
            failure.again = failure.again.min(later(now, LONGEST_PAUSE));
        }
        for conflict in self.conflicts.values_mut() {
            conflict.again = conflict.again.min(later(now, conflict.patience));
        }
        for (_, since, last) in self.rows.values_mut() {
            early(since);
            early(last);
        }
    }

    /// Lets go of what nobody asks for any more. `hpas`: the UIDs of those that are there; `followed`: the workloads, of whose end
    /// [`Self::forget`] hears.
    pub fn prune(&mut self, hpas: &BTreeSet<&str>, followed: impl Fn(&ObjectRef) -> bool, now: Timestamp) {
        let fresh = |at: Timestamp| now < later(at, STALE);
        self.zeros.retain(|uid, _| hpas.contains(&**uid));
        self.unasked.retain(|uid, _| hpas.contains(&**uid));
        self.pauses.prune(now);
        self.failures
            .retain(|object, failure| fresh(failure.again) || followed(object));
        self.conflicts
            .retain(|object, conflict| fresh(conflict.again) || followed(object));
        self.rows
            .retain(|object, (_, _, last)| fresh(*last) || followed(object));
        self.starts
            .retain(|_, starts| starts.back().is_some_and(|at| now < later(*at, MINUTE)));
    }

    /// Takes in how a write beside workloads ended.
    pub fn note_move(&mut self, step: &Move, outcome: &Outcome, now: Timestamp) {
        let target = &step.action.target;
        let object = &target.object;
        if step.is_question() {
            let answer = match outcome {
                Outcome::Done => Ok(()),
                Outcome::Failed {
                    reason: "Invalid",
                    message,
                    ..
                } => Err(Arc::from(message.as_str())),
                _ => {
                    self.note(object, &target.uid, &step.version, step.action.purpose, outcome, now);
                    return;
                }
            };
            self.settled(object);
            self.zeros.insert(Arc::clone(&target.uid), answer);
            return;
        }
        if step.asks_controller()
            && let Outcome::Failed {
                reason: "Forbidden" | "Invalid",
                message,
                ..
            } = outcome
        {
            // Its target is restored all the same, and the next night it is asked again.
            self.settled(object);
            self.unasked
                .insert(Arc::clone(&target.uid), Arc::from(message.as_str()));
            return;
        }
        if *outcome == Outcome::Done {
            self.unasked.remove(&target.uid);
        }
        self.note(object, &target.uid, &step.version, step.action.purpose, outcome, now);
        // Also where the answer was lost: from now on, one that is awake may be so by us, and nobody has reverted our pause.
        if step.action.purpose == Purpose::Resume && *outcome != Outcome::NotSent {
            self.pauses.forget(&target.uid);
        }
        if *outcome == Outcome::Done {
            if let Some(way) = step.pausing {
                self.pauses.note(&target.uid, way, now);
            }
            // What was written is seen in a moment: until then, the same is not written again.
            self.waits_for_news(object, &step.version, CONFLICT_PATIENCE, now);
        }
    }

    /// Until when a write beside workloads waits. `None`: it may go.
    pub fn move_waits(&self, step: &Move, now: Timestamp) -> Option<Timestamp> {
        let object = &step.action.target.object;
        let failed = self.failures.get(object).map(|failure| failure.again);
        // What is newer than what was in the way is decided on anew at once.
        let conflict = self
            .conflicts
            .get(object)
            .filter(|conflict| conflict.version == step.version)
            .map(|conflict| conflict.again);
        [failed, conflict]
            .into_iter()
            .flatten()
            .filter(|again| *again > now)
            .max()
    }

    /// Takes in that a restore for a schedule with a budget was sent.
    pub fn started(&mut self, schedule: &Arc<str>, now: Timestamp) {
        let starts = self.starts.entry(Arc::clone(schedule)).or_default();
        while starts.front().is_some_and(|at| now.duration_since(*at) >= MINUTE) {
            starts.pop_front();
        }
        starts.push_back(now);
    }

    /// When a schedule that restores `per_minute` workloads may restore the next one. `None`: now.
    pub fn next_start(&self, schedule: &str, per_minute: u32, now: Timestamp) -> Option<Timestamp> {
        let starts = self.starts.get(schedule)?;
        // A start in the future is one before the clock was set back.
        let recent = starts
            .iter()
            .filter(|at| (SignedDuration::ZERO..MINUTE).contains(&now.duration_since(**at)));
        let surplus = recent.clone().count().checked_sub(per_minute as usize)?;
        recent.clone().nth(surplus).map(|at| later(*at, MINUTE))
    }

    /// The last readable record of an object that slept when last seen.
    pub fn record(&self, uid: &str) -> Option<&Record> {
        self.records.get(uid)
    }

    /// When it was put down again because somebody had raised it.
    pub fn raised(&self, uid: &str) -> &[Timestamp] {
        self.raised.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Since when it is restored and not ready.
    pub fn waking(&self, uid: &str) -> Option<Timestamp> {
        self.waking.get(uid).copied()
    }

    /// Treats a workload as restored at `at` and not yet ready.
    pub fn wakes(&mut self, uid: &Arc<str>, at: Timestamp) {
        self.waking.insert(Arc::clone(uid), at);
    }

    /// It did not become ready in its time: nobody waits for it any more.
    pub fn give_up(&mut self, uid: &Arc<str>) {
        if self.waking.remove(uid).is_some() {
            self.late.insert(Arc::clone(uid));
        }
    }

    /// Nobody waits for it, and it is not late.
    pub fn rests(&mut self, uid: &str) {
        self.waking.remove(uid);
        self.late.remove(uid);
    }

    /// Whether it did not become ready in its time and still is not.
    pub fn is_late(&self, uid: &str) -> bool {
        self.late.contains(uid)
    }

    /// Since when it is known to be rolled out while it should be down.
    pub fn rolling(&self, uid: &str) -> Option<Timestamp> {
        self.rolling.get(uid).copied()
    }

    /// Takes in whether it is being rolled out while it should be down.
    pub fn rolls(&mut self, uid: &Arc<str>, rolls: bool, now: Timestamp) {
        if rolls {
            self.rolling.entry(Arc::clone(uid)).or_insert(now);
        } else {
            self.rolling.remove(uid);
        }
    }

    /// The failure of the last writes of an object.
    pub fn failure(&self, object: &ObjectRef) -> Option<&Failure> {
        self.failures.get(object)
    }

    /// Whether a dry run has said what it would write, and nothing has changed since.
    pub fn is_said(&self, object: &ObjectRef) -> bool {
        self.conflicts
            .get(object)
            .is_some_and(|conflict| conflict.patience == DRY_RUN_PATIENCE)
    }

    /// A failed write is no concern any more: there is nothing to write.
    pub fn settled(&mut self, object: &ObjectRef) {
        self.failures.remove(object);
        self.conflicts.remove(object);
        self.rows.remove(object);
    }

    /// Until when an object is left alone after a failure or conflict. `None`: it may be written.
    pub fn paused(&self, object: &ObjectRef, now: Timestamp) -> Option<Timestamp> {
        let failed = self.failures.get(object).map(|failure| failure.again);
        let conflict = self.conflicts.get(object).map(|conflict| conflict.again);
        [failed, conflict]
            .into_iter()
            .flatten()
            .filter(|again| now < *again)
            .max()
    }
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// `at` and so much later; at the end of time, its end.
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
