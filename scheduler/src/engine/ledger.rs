//! What a scheduler that leads has done, in figures: workloads by state, transitions and their times, what sleeping saves.
//! (Client not required.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use shared::record::Record;
use shared::schedule::State;
use tokio::time::Instant;

use crate::decide::assess::Class;
use crate::decide::decider::{Decider, Group};
use crate::decide::snapshot::Snapshot;

/// How often what sleeps is summed up at most.
const PERIOD: Duration = Duration::from_secs(10);
/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// Figures of one schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Workloads that are up.
    pub up: u32,
    /// Workloads that are down.
    pub down: u32,
    /// Workloads that are never touched.
    pub protected: u32,
    /// Workloads that could not be brought where they should be.
    pub failing: u32,
    /// Shutdowns that came to rest.
    pub shutdowns: u64,
    /// Startups that came to rest.
    pub startups: u64,
    /// Replicas that sleep, times hours.
    pub replica_hours: f64,
    /// Their CPU requests in cores, times hours.
    pub cpu_hours: f64,
    /// Their memory requests in GiB, times hours.
    pub memory_hours: f64,
}

/// What one schedule does not use at an instant.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    replicas: f64,
    cores: f64,
    gib: f64,
}

#[derive(Debug, Default)]
struct Inner {
    figures: BTreeMap<Arc<str>, Figures>,
    rates: BTreeMap<Arc<str>, Rate>,
    /// Until when hours are counted.
    counted: Option<Timestamp>,
    looked: Option<Instant>,
    /// Transitions under way: where to, and since when.
    moving: BTreeMap<Arc<str>, (State, Timestamp)>,
    /// Times of transitions that ended and that nobody has fetched: where to, in seconds.
    ended: Vec<(State, f64)>,
}

/// Shared by the engine, which writes, and by whoever serves metrics.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Inner>>);

impl Ledger {
    /// The figures of every schedule that has workloads.
    pub fn figures(&self) -> BTreeMap<Arc<str>, Figures> {
        self.lock().figures.clone()
    }

    /// The times of transitions that came to rest since the last call: where to, in seconds.
    pub fn take_ended(&self) -> Vec<(State, f64)> {
        std::mem::take(&mut self.lock().ended)
    }

    /// The process leads no more: who leads now counts.
    pub(crate) fn rest(&self) {
        let mut inner = self.lock();
        inner.figures.clear();
        inner.rates.clear();
        inner.moving.clear();
        inner.counted = None;
        inner.looked = None;
    }

    /// A write of a transition has ended.
    pub(crate) fn wrote(&self, schedule: &Arc<str>, to: State, now: Timestamp) {
        let mut inner = self.lock();
        let moving = inner.moving.entry(Arc::clone(schedule)).or_insert((to, now));
        // The day began before the night was over.
        if moving.0 != to {
            *moving = (to, now);
        }
    }

    /// Looks at everything, if it is time (and says so); hours are counted with what slept at the last look.
    pub(crate) fn look(&self, decider: &Decider, snapshot: &Snapshot, now: Timestamp) -> bool {
        let mut inner = self.lock();
        inner.settle(decider, now);
        let moment = Instant::now();
        if inner.looked.is_some_and(|looked| moment < looked + PERIOD) {
            return false;
        }
        inner.looked = Some(moment);
        inner.count(now);
        inner.rates.clear();
        // A schedule without workloads any more keeps what it has saved, which only goes up.
        for figures in inner.figures.values_mut() {
            (figures.up, figures.down, figures.protected, figures.failing) = (0, 0, 0, 0);
        }
        for (schedule, group) in decider.groups() {
            let figures = inner.figures.entry(Arc::clone(schedule)).or_default();
            figures.up = group.count(Class::Up);
            figures.down = group.count(Class::Down);
            figures.protected = group.count(Class::Protected);
            figures.failing = group.count(Class::Failing);
            let mut rate = Rate::default();
            for workload in group.asleep().iter().filter_map(|object| snapshot.workload(object)) {
                let Some(record) = Record::read(workload) else { continue };
                let gone = record.replicas().unwrap_or(0).saturating_sub(record.held_replicas) as f64;
                rate.replicas += gone;
                rate.cores += gone * workload.requests.cores();
                rate.gib += gone * workload.requests.gib();
            }
            inner.rates.insert(Arc::clone(schedule), rate);
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Transitions whose schedule has come to rest.
    fn settle(&mut self, decider: &Decider, now: Timestamp) {
        let rests = |schedule: &Arc<str>| !decider.group(schedule).is_some_and(Group::is_moving);
        let ended: Vec<Arc<str>> = self.moving.keys().filter(|schedule| rests(schedule)).cloned().collect();
        for schedule in ended {
            let Some((to, since)) = self.moving.remove(&schedule) else {
                continue;
            };
            let figures = self.figures.entry(schedule).or_default();
            if to == State::Down {
                figures.shutdowns += 1;
            } else {
                figures.startups += 1;
            }
            // Nobody fetches them where metrics are off.
            if self.ended.len() < 1000 {
                self.ended.push((to, now.duration_since(since).as_secs_f64().max(0.0)));
            }
        }
    }

    /// Adds what was saved since the last time.
    fn count(&mut self, now: Timestamp) {
        let since = self.counted.replace(now);
        // A clock that was set back, or forward over a suspended machine's sleep, makes no savings.
        let hours = since.map_or(0.0, |since| {
            now.duration_since(since).as_secs_f64().clamp(0.0, 600.0) / HOUR
        });
        for (schedule, rate) in &self.rates {
            let figures = self.figures.entry(Arc::clone(schedule)).or_default();
            figures.replica_hours += rate.replicas * hours;
            figures.cpu_hours += rate.cores * hours;
            figures.memory_hours += rate.gib * hours;
        }
    }
}
