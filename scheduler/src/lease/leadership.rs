//! What a writer holds: may I write now, and for how long? No client required.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use jiff::Timestamp;
use shared::clock::Clock;
use thiserror::Error;
use tokio::{sync::watch, time::Instant};

use super::settings::LeaseSettings;

/// What changes are told about: for logs, metrics, probes and for starting and stopping work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaderState {
    /// Whether this process leads. Ask [`Leadership::permit`] before a write, not this: it is as old as the last change.
    pub leading: bool,
    /// Counts the times that this process began to lead; 0 before the first.
    pub term: u64,
    /// Whether the last look at the lease, or its last renewal, succeeded.
    pub steady: bool,
    /// Who holds the lease as far as is known.
    pub holder: Option<String>,
    /// Whether the election has ended (shutdown).
    pub ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Lead {
    renewed_at: Instant,
    renewed_wall: Timestamp,
    leads_from: Instant,
}

struct Inner {
    renew_deadline: Duration,
    writes_end: Duration,
    /// None for a lone process without an election (one-shot mode).
    wall: Option<Arc<dyn Clock>>,
    lead: Mutex<Option<Lead>>,
    state: watch::Sender<LeaderState>,
}

/// The handle that writers ask; cheap to clone.
#[derive(Clone)]
pub struct Leadership {
    inner: Arc<Inner>,
}

/// Why a write may not be sent now.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PermitError {
    /// Another process leads, or nobody.
    #[error("not the leader")]
    NotLeader,
    /// The write could outlive the lease.
    #[error("too little time left on the lease: {left:?}")]
    TooLittleTime {
        /// How long writes may still last.
        left: Duration,
    },
    /// The permit's time ended, or the leadership, before the call was answered: its outcome is unknown.
    #[error("the call was not answered within its time, its outcome is unknown")]
    Unanswered,
}

impl Leadership {
    pub(super) fn new(settings: &LeaseSettings, wall: Arc<dyn Clock>) -> Self {
        Self {
            inner: Arc::new(Inner {
                renew_deadline: settings.renew_deadline,
                writes_end: settings.writes_end(),
                wall: Some(wall),
                lead: Mutex::new(None),
                state: watch::Sender::new(LeaderState::default()),
            }),
        }
    }

    /// A leadership that nobody disputes: one-shot mode, and tests of what asks for permits.
    pub fn alone() -> Self {
        let state = LeaderState {
            leading: true,
            term: 1,
            steady: true,
            ..LeaderState::default()
        };
        Self {
            inner: Arc::new(Inner {
                renew_deadline: Duration::MAX,
                writes_end: Duration::MAX,
                wall: None,
                lead: Mutex::new(None),
                state: watch::Sender::new(state),
            }),
        }
    }

    /// For how long a write that is sent now may last; none when no write may be sent.
    ///
    /// Computed from the clocks at each call, so a process that was frozen knows at its first instruction.
    pub fn time_left(&self) -> Option<Duration> {
        let Some(wall) = &self.inner.wall else {
            return Some(Duration::MAX);
        };
        let lead = (*self.lead())?;
        let now = Instant::now();
        if now < lead.leads_from {
            return None;
        }
        // The monotonic clock of a suspended virtual machine stands still, the wall clock is set on resume: the longer
        // age counts. A wall clock that was stepped makes us only more careful.
        let by_wall = Duration::try_from(wall.now().duration_since(lead.renewed_wall)).unwrap_or_default();
        let age = now.saturating_duration_since(lead.renewed_at).max(by_wall);
        if age >= self.inner.renew_deadline {
            return None;
        }
        self.inner.writes_end.checked_sub(age)
    }

    /// Whether we lead with at least this much time left.
    pub fn is_leader_with(&self, time_left: Duration) -> bool {
        self.time_left().is_some_and(|left| left >= time_left)
    }

    /// Leave to send one write that is answered, or given up, within `call_timeout`.
    pub fn permit(&self, call_timeout: Duration) -> Result<Permit, PermitError> {
        let left = self.time_left().ok_or(PermitError::NotLeader)?;
        if left < call_timeout {
            return Err(PermitError::TooLittleTime { left });
        }
        let changes = self.inner.state.subscribe();
        let term = changes.borrow().term;
        let ends_at = Instant::now()
            .checked_add(call_timeout)
            .ok_or(PermitError::TooLittleTime { left })?;
        Ok(Permit {
            leadership: self.clone(),
            term,
            ends_at,
            changes,
        })
    }

    /// The changes of the leadership.
    pub fn changes(&self) -> watch::Receiver<LeaderState> {
        self.inner.state.subscribe()
    }

    /// The state as of the last change.
    pub fn state(&self) -> LeaderState {
        self.inner.state.borrow().clone()
    }

    /// Waits until this process leads; ends with false when the election ends first.
    pub async fn leads(&self) -> bool {
        let mut changes = self.changes();
        match changes.wait_for(|state| state.leading || state.ended).await {
            Ok(state) => state.leading,
            Err(_) => false,
        }
    }

    /// Waits until this process does not lead any more in the term that is running now.
    pub async fn lost(&self) {
        let mut changes = self.changes();
        let term = changes.borrow().term;
        // The sender lives as long as `self`; an error cannot come and would mean the same.
        let _ = changes.wait_for(|state| !state.leading || state.term != term).await;
    }

    pub(super) fn renewed(&self, renewed_at: Instant, renewed_wall: Timestamp, leads_from: Instant) {
        *self.lead() = Some(Lead {
            renewed_at,
            renewed_wall,
            leads_from,
        });
    }

    /// Forgets the lead first and tells about it then, so that nobody who hears it can still get a permit.
    pub(super) fn resign(&self, holder: Option<String>, ended: bool) {
        *self.lead() = None;
        self.tell(|state| {
            state.leading = false;
            state.holder = holder;
            state.ended |= ended;
        });
    }

    pub(super) fn begin(&self, holder: &str) {
        self.tell(|state| {
            if !state.leading {
                state.leading = true;
                state.term += 1;
            }
            state.steady = true;
            state.holder = Some(holder.to_owned());
        });
    }

    pub(super) fn steady(&self, steady: bool) {
        self.tell(|state| state.steady = steady);
    }

    pub(super) fn holder(&self, holder: Option<String>) {
        self.tell(|state| state.holder = holder);
    }

    fn tell(&self, change: impl FnOnce(&mut LeaderState)) {
        self.inner.state.send_if_modified(|state| {
            let before = state.clone();
            change(state);
            *state != before
        });
    }

    fn lead(&self) -> MutexGuard<'_, Option<Lead>> {
        self.inner.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leave to send one write.
pub struct Permit {
    leadership: Leadership,
    term: u64,
    ends_at: Instant,
    changes: watch::Receiver<LeaderState>,
}

impl Permit {
    /// When the call must have been answered.
    pub fn ends_at(&self) -> Instant {
        self.ends_at
    }

    /// Sends the call, and gives it up when the permit's time or the leadership ends.
    ///
    /// Checks once more before the first poll: a process that was frozen after it got its permit sends nothing.
    pub async fn run<T>(mut self, call: impl Future<Output = T>) -> Result<T, PermitError> {
        if Instant::now() >= self.ends_at || self.leadership.time_left().is_none() {
            return Err(PermitError::NotLeader);
        }
        let term = self.term;
        let lost = self.changes.wait_for(|state| !state.leading || state.term != term);
        let mut call = pin!(call);
        let ends_at = self.ends_at;
        // The clock is read before each poll: a call that was still connecting when the process was frozen must not
        // send its bytes afterwards, and a timer may fire later than the call is polled.
        let call_in_time = poll_fn(|context| {
            if Instant::now() >= ends_at {
                return Poll::Ready(Err(PermitError::Unanswered));
            }
            call.as_mut().poll(context).map(Ok)
        });
        tokio::select! {
            biased;
            _ = lost => Err(PermitError::Unanswered),
            () = tokio::time::sleep_until(ends_at) => Err(PermitError::Unanswered),
            answer = call_in_time => answer,
        }
    }
}
