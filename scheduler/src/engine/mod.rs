//! The loop: observe, decide, act; woken by changes, answers and its own clock. Client required (through act and report).

mod journal;
pub mod ledger;
mod mistakes;
mod report;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cluster::events::{Events, Remark};
use cluster::view::View;
use jiff::{SignedDuration, Timestamp};
use shared::clock::Clock;
use shared::kinds::Kind;
use shared::schedule::State;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use crate::act::{Act, Answer, Ended};
use crate::argo;
use crate::decide::action::Purpose;
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::snapshot::Dirty;
use crate::flux;
use crate::lease::{LeaderState, Leadership};
use crate::observe::Observer;
use journal::Journal;
use ledger::Ledger;
use mistakes::Mistakes;
pub use report::Reporter;

/// We look at the wall clock at least this often: it may have been set, and no timer would tell.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// How soon a leader whose lease is about to be renewed looks again.
const LEASE_PAUSE: Duration = Duration::from_millis(100);

/// The times of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSettings {
    /// The longest that one write may take, as [`crate::act::ActSettings::write_timeout`].
    pub write_timeout: Duration,
    /// How long writes that are under way may take after the end was asked for.
    pub drain: Duration,
    /// Writes are only said, not sent.
    pub dry_run: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            write_timeout: Duration::from_secs(5),
            drain: Duration::from_secs(10),
            dry_run: false,
        }
    }
}

/// All parts of a scheduler.
pub struct Engine {
    view: Arc<View>,
    observer: Observer,
    decider: Decider,
    act: Act,
    leadership: Leadership,
    clock: Arc<dyn Clock>,
    events: Option<Events>,
    reporter: Option<Reporter>,
    settings: EngineSettings,
    journal: Journal,
    ledger: Ledger,
    mistakes: Mistakes,
    leading: bool,
}

impl Engine {
    /// Puts the parts together. `reporter`: for the status of schedules that are custom resources.
    #[allow(clippy::too_many_arguments)] // each is a part, made by whoever knows how
    pub fn new(
        view: Arc<View>,
        observer: Observer,
        act: Act,
        leadership: Leadership,
        clock: Arc<dyn Clock>,
        events: Option<Events>,
        reporter: Option<Reporter>,
        settings: EngineSettings,
    ) -> Self {
        Self {
            view,
            observer,
            decider: Decider::default(),
            act,
            leadership,
            clock,
            events,
            reporter,
            settings,
            journal: Journal::default(),
            ledger: Ledger::default(),
            mistakes: Mistakes::default(),
            leading: false,
        }
    }

    /// What it does, in figures, for whoever serves metrics.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Runs until `shutdown` ends; then finishes what is under way, within its time.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        tokio::select! {
            () = &mut shutdown => return,
            () = self.view.filled() => {}
        }
        info!(kinds = self.view.workload_stores().len(), "the cluster is known");
        let view = Arc::clone(&self.view);
        let mut leader = self.leadership.changes();
        let mut dirty = Dirty::everything();
        loop {
            let wake = self.pass(&mut leader, std::mem::take(&mut dirty));
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                answer = self.act.next() => self.take_answer(answer),
                () = view.changes().changed() => {}
                Ok(()) = leader.changed() => {}
                () = async {
                    match &mut self.reporter {
                        Some(reporter) => reporter.answered().await,
                        None => std::future::pending().await,
                    }
                } => {}
                () = sleep_until(wake) => {}
            }
        }
        for answer in self.act.drain(self.settings.drain).await {
            self.take_answer(answer);
        }
        self.journal
            .flush(&self.decider, self.observer.snapshot(), self.events.as_ref(), true);
    }

    /// One pass over what changed. When to make the next one at the latest.
    fn pass(&mut self, leader: &mut watch::Receiver<LeaderState>, mut dirty: Dirty) -> Instant {
        let led = std::mem::replace(&mut self.leading, leader.borrow_and_update().leading);
        if self.leading && !led {
            info!("leading: what should be is made so");
            dirty.everything = true;
        }
        let changed = self.observer.refresh();
        dirty.merge(changed);
        let now = self.clock.now();
        self.decider.update(self.observer.snapshot(), &dirty, now);
        self.tell();
        let mut wake = Instant::now() + LONGEST_SLEEP;
        if self.leading {
            if self.leadership.is_leader_with(self.settings.write_timeout) {
                self.hand_out(now);
            } else {
                wake = wake.min(Instant::now() + LEASE_PAUSE);
            }
            if let Some(reporter) = &mut self.reporter {
                let report = reporter.report(&self.view, &self.observer, &self.decider, now);
                wake = wake.min(report);
            }
            let snapshot = self.observer.snapshot();
            if self.ledger.look(&self.decider, snapshot, now)
                && let Some(events) = &self.events
            {
                self.mistakes
                    .found(snapshot)
                    .into_iter()
                    .for_each(|remark| events.tell(remark));
            }
            self.journal.flush(&self.decider, snapshot, self.events.as_ref(), false);
        } else if led {
            self.ledger.rest();
        }
        match self.decider.next_instant(now) {
            Some(at) => wake.min(self.instant_of(at)),
            None => wake,
        }
    }

    /// The moment of the runtime's clock at which the wall clock shows `at`.
    fn instant_of(&self, at: Timestamp) -> Instant {
        let left = at.duration_since(self.clock.now()).max(SignedDuration::ZERO);
        let left = Duration::try_from(left).unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        Instant::now() + left
    }

    fn hand_out(&mut self, now: Timestamp) {
        while self.act.has_room() {
            let Some(action) = self.decider.next_action(self.observer.snapshot(), now) else {
                return;
            };
            debug!(
                object = %action.target.object,
                purpose = action.purpose.label(),
                schedule = action.schedule.as_deref().unwrap_or("none"),
                "decided"
            );
            self.act.submit(action);
        }
    }

    fn take_answer(&mut self, answer: Answer) {
        let Answer { action, ended, .. } = answer;
        let object = &action.target.object;
        let outcome = outcome(ended, self.settings.dry_run);
        let now = self.clock.now();
        // The View has the answer; what else changed meanwhile comes with the next pass.
        let dirty = self.observer.refresh_one(object);
        self.decider.answered(self.observer.snapshot(), object, &outcome, now);
        self.decider.update(self.observer.snapshot(), &dirty, now);
        self.journal.note(&action, &outcome);
        if let (Some(schedule), Outcome::Done) = (&action.schedule, &outcome) {
            match action.purpose {
                Purpose::Down => self.ledger.wrote(schedule, State::Down, now),
                Purpose::Restore => self.ledger.wrote(schedule, State::Up, now),
                _ => {}
            }
        }
    }

    /// Tells on objects what the decisions have to say. Followers keep silent.
    fn tell(&mut self) {
        let remarks = self.decider.take_remarks();
        let Some(events) = self.events.as_ref().filter(|_| self.leading) else {
            return;
        };
        for remark in remarks {
            let kinds = &self.observer.snapshot().kinds;
            let (group, kind) = (&remark.object.group, &remark.object.kind);
            // Argo CD shows nobody our warnings, so they are Events on its Applications; the same on Flux' objects.
            let beside = flux::kinds().iter().chain([argo::kind()]);
            let named = |row: &&Arc<Kind>| row.group == **group && row.kind == **kind;
            let Some(kind) = kinds.by_kind(group, kind).or_else(|| beside.into_iter().find(named)) else {
                continue;
            };
            events.tell(Remark {
                version: Arc::from(kind.version.as_ref()),
                object: remark.object,
                uid: remark.uid,
                action: "Decide",
                reason: remark.note.reason,
                note: remark.note.message,
                warning: remark.note.warning,
            });
        }
    }
}

/// What the end of an action means for the next decision.
pub(crate) fn outcome(ended: Ended, dry_run: bool) -> Outcome {
    match ended {
        Ended::Done if dry_run => Outcome::WouldWrite,
        Ended::Done => Outcome::Done,
        Ended::Conflict { message } => Outcome::Conflict { message },
        Ended::Failed {
            reason,
            message,
            retry_after,
        } => Outcome::Failed {
            reason,
            message,
            retry_after: retry_after.and_then(|pause| pause.try_into().ok()),
        },
        Ended::NotSent(_) => Outcome::NotSent,
    }
}

#[cfg(test)]
mod tests;
