//! The compiled schedule, and the questions that it answers.

use std::fmt;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde::{Deserialize, Serialize};

use super::calendar::Calendar;
use super::cron::CronExpression;
use super::exception::DatedState;
use super::weekly::WeekSet;
use super::zone::Zone;

/// Instants that one search may look at before it gives up.
pub const CANDIDATE_LIMIT: u32 = 10_000;

/// The first instant that a schedule speaks of: before it everything is `Unknown`.
pub const EARLIEST: Timestamp = Timestamp::constant(0, 0);

/// The year 2100: from here on everything is `Unknown`, since that is where the cron library ends.
pub const LATEST: Timestamp = Timestamp::constant(4_102_444_800, 0);

/// What a schedule wants at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Workloads run.
    Up,
    /// Workloads sleep.
    Down,
    /// It cannot be told: nothing is written, nothing is held, and it is reported.
    Unknown,
}

impl State {
    /// `Up`, `Down` or `Unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "Up",
            Self::Down => "Down",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The rule of a schedule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// An exception of the schedule.
    Exception,
    /// An event of a calendar, or a calendar that is missing.
    Calendar,
    /// A window of the `downtime` list.
    Downtime,
    /// The `uptime` list: inside one of its windows, or outside all of them.
    Uptime,
    /// The last firing of a cron expression.
    Cron,
    /// No rule speaks of this instant.
    Default,
    /// The instant lies outside of what schedules can be asked about.
    Horizon,
}

impl DecidedBy {
    /// The word used in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exception => "exception",
            Self::Calendar => "calendar",
            Self::Downtime => "downtime",
            Self::Uptime => "uptime",
            Self::Cron => "cron",
            Self::Default => "default",
            Self::Horizon => "horizon",
        }
    }
}

impl fmt::Display for DecidedBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// What holds at one instant, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What the schedule wants.
    pub state: State,
    /// Which rule says so.
    pub decided_by: DecidedBy,
    /// The reason given with an exception, or a calendar event's summary.
    pub reason: Option<Arc<str>>,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The first instant of the new state.
    pub at: Timestamp,
    /// The new state.
    pub to: State,
    /// Which rule decides from then on.
    pub decided_by: DecidedBy,
    /// The reason given with it.
    pub reason: Option<Arc<str>>,
    /// The schedule's zone.
    pub zone: Zone,
}

impl Transition {
    /// The instant on the clocks of the schedule's zone; displays as `2026-12-01T08:00:00-03:00[America/Sao_Paulo]`.
    pub fn local(&self) -> Zoned {
        self.at.to_zoned(self.zone.time_zone().clone())
    }
}

/// A search looked at [`CANDIDATE_LIMIT`] instants without an answer. Whoever gets this does nothing and reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no change of state among the next {CANDIDATE_LIMIT} candidates after {after}; simplify the schedule")]
pub struct SearchExhausted {
    /// Where the search began.
    pub after: Timestamp,
}

/// Counts down the candidates of one search.
pub(crate) struct Budget {
    left: u32,
    after: Timestamp,
}

impl Budget {
    pub(crate) fn new(after: Timestamp) -> Self {
        Self {
            left: CANDIDATE_LIMIT,
            after,
        }
    }

    /// Pays for one candidate.
    pub(crate) fn spend(&mut self) -> Result<(), SearchExhausted> {
        self.left = self.left.checked_sub(1).ok_or(SearchExhausted { after: self.after })?;
        #[cfg(test)]
        SPENT.with(|spent| spent.set(spent.get() + 1));
        Ok(())
    }
}

#[cfg(test)]
thread_local! {
    /// Candidates looked at on this thread, for the tests that count them.
    pub(crate) static SPENT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A schedule, compiled. Immutable and cheap to clone; the answer to every question depends on it and on the instant alone.
#[derive(Clone, Debug)]
pub struct Timeline {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) zone: Zone,
    /// In the order of the list: the first that holds decides.
    pub(crate) exceptions: Vec<DatedState>,
    /// In the order of the list.
    pub(crate) calendars: Vec<CalendarRule>,
    pub(crate) rhythm: Rhythm,
}

/// A calendar and what its events mean.
#[derive(Debug)]
pub(crate) struct CalendarRule {
    pub(crate) state: State,
    /// `Err`: why its events are not known.
    pub(crate) calendar: Result<Arc<Calendar>, Arc<str>>,
}

/// What holds when no exception and no calendar speaks.
#[derive(Debug)]
pub(crate) enum Rhythm {
    /// Always up.
    Nothing,
    Cron {
        shutdown: Vec<CronExpression>,
        startup: Vec<CronExpression>,
    },
    Windows {
        downtime: Option<WindowSet>,
        uptime: Option<WindowSet>,
    },
}

/// A list of windows, sorted by what they have in common.
#[derive(Debug, Default)]
pub(crate) struct WindowSet {
    /// Weekly windows, one set for each zone.
    pub(crate) weekly: Vec<(Zone, WeekSet)>,
    /// Absolute ranges: sorted, disjoint, not adjacent.
    pub(crate) absolute: Vec<(Timestamp, Timestamp)>,
    /// The windows of one zone cover the whole week.
    pub(crate) always: bool,
}

impl Timeline {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// A schedule that keeps everything up.
    pub fn always_up() -> Self {
        Self::new(Inner {
            zone: Zone::UTC,
            exceptions: Vec::new(),
            calendars: Vec::new(),
            rhythm: Rhythm::Nothing,
        })
    }

    /// The schedule's zone.
    pub fn zone(&self) -> &Zone {
        &self.inner.zone
    }

    pub(crate) fn rhythm(&self) -> &Rhythm {
        &self.inner.rhythm
    }

    /// What holds at `at`.
    pub fn state_at(&self, at: Timestamp) -> Moment {
        if at < EARLIEST || at >= LATEST {
            return Moment {
                state: State::Unknown,
                decided_by: DecidedBy::Horizon,
                reason: None,
            };
        }
        self.inner.moment(at)
    }

    /// The first change of state strictly after `at`. `None`: there is none before the year 2100.
    ///
    /// # Errors
    /// [`SearchExhausted`] if the bounded search found neither a change nor the end. Do nothing then, and report it.
    pub fn next_transition(&self, at: Timestamp) -> Result<Option<Transition>, SearchExhausted> {
        let from = self.state_at(at).state;
        let mut budget = Budget::new(at);
        let mut candidate = at;
        loop {
            budget.spend()?;
            let Some(next) = self.inner.next_edge(candidate, &mut budget)? else {
                return Ok(None);
            };
            if next >= LATEST {
                return Ok(None);
            }
            candidate = next;
            let moment = self.state_at(candidate);
            if moment.state != from {
                return Ok(Some(Transition {
                    at: candidate,
                    to: moment.state,
                    decided_by: moment.decided_by,
                    reason: moment.reason,
                    zone: self.inner.zone.clone(),
                }));
            }
        }
    }

    /// The instant at which the state that holds at `at` began. `None`: it has no beginning since 1970, or a bounded search
    /// did not find it.
    pub fn since(&self, at: Timestamp) -> Option<Timestamp> {
        let state = self.state_at(at).state;
        let mut budget = Budget::new(at);
        let mut candidate = at;
        loop {
            budget.spend().ok()?;
            let edge = self.inner.previous_edge(candidate, &mut budget).ok()??;
            let before = edge.checked_sub(SignedDuration::from_nanos(1)).ok()?;
            if before < EARLIEST {
                return None;
            }
            if self.state_at(before).state != state {
                return Some(edge);
            }
            candidate = before;
        }
    }

    /// The changes of state in `[from, to)`, in order, at most `limit` of them.
    ///
    /// A change at `from` itself belongs to it, so that `[a, b)` and `[b, c)` together give the changes of `[a, c)`.
    ///
    /// # Errors
    /// [`SearchExhausted`] as for [`Self::next_transition`].
    pub fn transitions(
        &self,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<Transition>, SearchExhausted> {
        let mut found = Vec::new();
        let mut after = from.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(from);
        while found.len() < limit {
            match self.next_transition(after)? {
                Some(transition) if transition.at < to => {
                    after = transition.at;
                    found.push(transition);
                }
                _ => break,
            }
        }
        Ok(found)
    }
}

impl Inner {
    fn moment(&self, at: Timestamp) -> Moment {
        if !self.exceptions.is_empty() {
            let wall = self.zone.wall(at);
            if let Some(exception) = self
                .exceptions
                .iter()
                .find(|exception| exception.when.contains(at, wall))
            {
                return Moment {
                    state: exception.state,
                    decided_by: DecidedBy::Exception,
                    reason: exception.reason.clone(),
                };
            }
        }
        for rule in &self.calendars {
            let decided_by = DecidedBy::Calendar;
            match &rule.calendar {
                Err(missing) => {
                    return Moment {
                        state: State::Unknown,
                        decided_by,
                        reason: Some(missing.clone()),
                    };
                }
                Ok(calendar) if calendar.ends_before(at) => {
                    let reason = Some(Arc::from("the calendar repeats too often to be known this far ahead"));
                    return Moment {
                        state: State::Unknown,
                        decided_by,
                        reason,
                    };
                }
                Ok(calendar) => {
                    if let Some(reason) = calendar.event_at(at) {
                        return Moment {
                            state: rule.state,
                            decided_by,
                            reason: Some(reason),
                        };
                    }
                }
            }
        }
        let (state, decided_by) = self.rhythm.state_at(at, &self.zone);
        Moment {
            state,
            decided_by,
            reason: None,
        }
    }

    /// The first instant strictly after `at` at which any rule may say something else.
    fn next_edge(&self, at: Timestamp, budget: &mut Budget) -> Result<Option<Timestamp>, SearchExhausted> {
        let mut first = self.rhythm.next_edge(at, &self.zone, budget)?;
        let mut consider = |edge: Option<Timestamp>| {
            if let Some(edge) = edge {
                first = Some(first.map_or(edge, |known| known.min(edge)));
            }
        };
        if !self.exceptions.is_empty() {
            let wall = self.zone.wall(at);
            for exception in &self.exceptions {
                consider(exception.when.next_edge(at, wall, &self.zone));
            }
        }
        for rule in &self.calendars {
            if let Ok(calendar) = &rule.calendar {
                consider(calendar.next_edge(at));
            }
        }
        Ok(first)
    }

    /// The last instant at or before `at` at which any rule may have begun to say something else.
    fn previous_edge(&self, at: Timestamp, budget: &mut Budget) -> Result<Option<Timestamp>, SearchExhausted> {
        let mut last = self.rhythm.previous_edge(at, &self.zone, budget)?;
        let mut consider = |edge: Option<Timestamp>| last = last.max(edge);
        if !self.exceptions.is_empty() {
            let wall = self.zone.wall(at);
            for exception in &self.exceptions {
                consider(exception.when.previous_edge(at, wall, &self.zone));
            }
        }
        for rule in &self.calendars {
            if let Ok(calendar) = &rule.calendar {
                consider(calendar.previous_edge(at));
            }
        }
        Ok(last)
    }
}

impl Rhythm {
    fn state_at(&self, at: Timestamp, zone: &Zone) -> (State, DecidedBy) {
        match self {
            Self::Nothing => (State::Up, DecidedBy::Default),
            Self::Cron { shutdown, startup } => {
                match (last_firing(shutdown, at, zone), last_firing(startup, at, zone)) {
                    (None, None) => (State::Up, DecidedBy::Default),
                    (down, up) if down > up => (State::Down, DecidedBy::Cron),
                    _ => (State::Up, DecidedBy::Cron),
                }
            }
            Self::Windows { downtime, uptime } => {
                if downtime.as_ref().is_some_and(|windows| windows.contains(at)) {
                    return (State::Down, DecidedBy::Downtime);
                }
                match uptime {
                    Some(windows) if windows.contains(at) => (State::Up, DecidedBy::Uptime),
                    Some(_) => (State::Down, DecidedBy::Uptime),
                    None => (State::Up, DecidedBy::Default),
                }
            }
        }
    }

    fn next_edge(&self, at: Timestamp, zone: &Zone, budget: &mut Budget) -> Result<Option<Timestamp>, SearchExhausted> {
        match self {
            Self::Nothing => Ok(None),
            Self::Windows { downtime, uptime } => {
                let edges =
                    [downtime, uptime].map(|windows| windows.as_ref().and_then(|windows| windows.next_edge(at)));
                Ok(edges.into_iter().flatten().min())
            }
            Self::Cron { shutdown, startup } => {
                // Only a firing of the other kind changes anything; at a tie the startup wins.
                if self.state_at(at, zone).0 == State::Down {
                    return Ok(next_firing(startup, at, zone));
                }
                let mut after = at;
                loop {
                    let Some(down) = next_firing(shutdown, after, zone) else {
                        return Ok(None);
                    };
                    if last_firing(startup, down, zone) != Some(down) {
                        return Ok(Some(down));
                    }
                    budget.spend()?;
                    after = down;
                }
            }
        }
    }

    fn previous_edge(
        &self,
        at: Timestamp,
        zone: &Zone,
        budget: &mut Budget,
    ) -> Result<Option<Timestamp>, SearchExhausted> {
        match self {
            Self::Nothing => Ok(None),
            Self::Windows { downtime, uptime } => {
                let edges =
                    [downtime, uptime].map(|windows| windows.as_ref().and_then(|windows| windows.previous_edge(at)));
                Ok(edges.into_iter().flatten().max())
            }
            Self::Cron { shutdown, startup } => {
                if self.state_at(at, zone).0 == State::Down {
                    // Down since the first shutdown after the last startup.
                    let up = last_firing(startup, at, zone).unwrap_or(EARLIEST);
                    return Ok(next_firing(shutdown, up, zone).filter(|down| *down <= at));
                }
                // Up since the first startup after the last shutdown that no startup went with.
                let mut until = at;
                let down = loop {
                    let Some(down) = last_firing(shutdown, until, zone) else {
                        return Ok(None);
                    };
                    if last_firing(startup, down, zone) != Some(down) {
                        break down;
                    }
                    budget.spend()?;
                    let Ok(earlier) = down.checked_sub(SignedDuration::from_nanos(1)) else {
                        return Ok(None);
                    };
                    until = earlier;
                };
                Ok(next_firing(startup, down, zone).filter(|up| *up <= at))
            }
        }
    }
}

fn last_firing(expressions: &[CronExpression], at: Timestamp, zone: &Zone) -> Option<Timestamp> {
    expressions
        .iter()
        .filter_map(|expression| expression.previous(at, zone))
        .max()
}

fn next_firing(expressions: &[CronExpression], at: Timestamp, zone: &Zone) -> Option<Timestamp> {
    expressions
        .iter()
        .filter_map(|expression| expression.next(at, zone))
        .min()
}

impl WindowSet {
    pub(crate) fn contains(&self, at: Timestamp) -> bool {
        if self.always {
            return true;
        }
        let after = self.absolute.partition_point(|&(start, _)| start <= at);
        let in_range = after
            .checked_sub(1)
            .and_then(|index| self.absolute.get(index))
            .is_some_and(|&(_, end)| at < end);
        in_range || self.weekly.iter().any(|(zone, set)| set.contains(zone.wall(at)))
    }

    fn next_edge(&self, at: Timestamp) -> Option<Timestamp> {
        if self.always {
            return None;
        }
        let edges = |wall: fn(&WeekSet, DateTime) -> Option<DateTime>| {
            self.weekly
                .iter()
                .filter_map(move |(zone, set)| wall(set, zone.wall(at)).map(|edge| zone.instant(edge)))
                .min()
        };
        let weekly = edges(WeekSet::next_edge);
        let index = self.absolute.partition_point(|&(_, end)| end <= at);
        let absolute = self
            .absolute
            .get(index)
            .map(|&(start, end)| if start > at { start } else { end });
        weekly.into_iter().chain(absolute).min()
    }

    fn previous_edge(&self, at: Timestamp) -> Option<Timestamp> {
        if self.always {
            return None;
        }
        let weekly = self
            .weekly
            .iter()
            .filter_map(|(zone, set)| set.previous_edge(zone.wall(at)).map(|edge| zone.instant(edge)))
            .max();
        let index = self.absolute.partition_point(|&(start, _)| start <= at);
        let absolute = index
            .checked_sub(1)
            .and_then(|index| self.absolute.get(index))
            .map(|&(start, end)| if end <= at { end } else { start });
        weekly.max(absolute)
    }
}
