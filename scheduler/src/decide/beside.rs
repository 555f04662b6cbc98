//! What stands beside workloads and would fight their sleep: autoscalers, Applications, Flux objects. (Client not required.)
//!
//! Before a workload is put down it is asked whether what stands beside it lets it sleep; after it is restored, what was done
//! to that is undone. "Pause, then scale; restore, then resume": a pause that fails leaves the workload as it is. An autoscaler
//! has an order of its own (see [`crate::hpa`]).

use std::sync::Arc;

use jiff::Timestamp;
use shared::policy::Schedule;
use shared::workload::ObjectRef;

use crate::argo::Way;

use super::action::{Action, Note, Purpose, Request, Skip, Target};
use super::memory::{Failure, Memory};

/// Things beside workloads that are decided about together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// All HPAs (and backups of HPAs) of this workload.
    Autoscalers(ObjectRef),
    /// One Argo CD Application.
    Application(ObjectRef),
    /// One Flux Kustomization or `HelmRelease`.
    Flux(ObjectRef),
}

/// What a workload asks of what stands beside it.
#[derive(Debug, Clone)]
pub enum Want {
    /// Nobody knows, or it is not yet restored: nothing is changed.
    Leave,
    /// It is asleep and about to be restored: what would undo that is undone first.
    Opening(Option<Arc<Schedule>>),
    /// It is up: what was done is undone.
    Up(Option<Arc<Schedule>>),
    /// It sleeps, or is to be put down.
    Down {
        /// Replicas that are kept.
        replicas: u64,
        /// What it was is written down on it.
        recorded: bool,
        /// The instant of the decision.
        now: Timestamp,
        /// On whose behalf.
        schedule: Option<Arc<Schedule>>,
    },
}

impl Want {
    /// The schedule on whose behalf.
    pub fn schedule(&self) -> Option<&Arc<Schedule>> {
        match self {
            Self::Leave => None,
            Self::Opening(schedule) | Self::Up(schedule) | Self::Down { schedule, .. } => schedule.as_ref(),
        }
    }
}

/// One write beside a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// The write.
    pub action: Action,
    /// The version that it was decided on.
    pub version: Arc<str>,
    /// It pauses an Application (or a Flux object), in this way.
    pub pausing: Option<Way>,
}

impl Move {
    /// A write on behalf of `schedule`.
    pub fn new(target: Target, version: &Arc<str>, request: Request, purpose: Purpose, want: &Want) -> Self {
        Self {
            action: Action {
                target,
                request,
                purpose,
                schedule: want.schedule().map(|schedule| Arc::clone(&schedule.name)),
                event: None,
                disown: false,
            },
            version: Arc::clone(version),
            pausing: None,
        }
    }

    /// The same, as a pause of an Application.
    #[must_use]
    pub fn pausing(mut self, way: Way) -> Self {
        self.pausing = Some(way);
        self
    }

    /// Whether it only asks.
    pub fn is_question(&self) -> bool {
        matches!(self.action.request, Request::Patch { dry_run: true, .. })
    }

    /// Whether it asks the HPA controller to look at an HPA.
    pub fn asks_controller(&self) -> bool {
        let status = matches!(
            self.action.request,
            Request::Patch {
                subresource: Some("status"),
                ..
            }
        );
        status && self.action.purpose == Purpose::Autoscaler
    }

    /// The same, with something to tell on the object.
    #[must_use]
    pub fn telling(mut self, reason: &'static str, message: impl Into<String>, warning: bool) -> Self {
        self.action.event = Some(Note {
            reason,
            message: message.into(),
            warning,
        });
        self
    }
}

/// What was found when a unit was looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// The writes that are wanted now; at most one for each object.
    pub moves: Vec<Move>,
    /// Why the workload may not be put down yet. `None`: it may.
    pub closed: Option<Skip>,
    /// What keeps it from where it should be, without standing in anybody's way.
    pub trouble: Option<Skip>,
    /// When all this may change by the clock alone.
    pub again: Option<Timestamp>,
}

impl Look {
    /// Nothing to do, nothing in the way.
    pub fn settled() -> Self {
        Self::default()
    }

    /// Closed until these writes are done.
    pub fn after(moves: Vec<Move>, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            moves,
            closed: Some(waiting(reason, message, None)),
            ..Self::default()
        }
    }

    /// Closed, for a reason that people should hear.
    pub fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            closed: Some(Skip {
                reason,
                message: message.into(),
                tell: true,
                again: None,
            }),
            ..Self::default()
        }
    }

    /// Closed until `again` at the latest.
    pub fn until(again: Timestamp, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            closed: Some(waiting(reason, message, Some(again))),
            again: Some(again),
            ..Self::default()
        }
    }

    /// Takes the writes that failed a moment ago out, and says why the way is closed.
    #[must_use]
    pub fn with_failures(mut self, memory: &Memory, now: Timestamp) -> Self {
        let mut failed: Option<(&ObjectRef, &Failure)> = None;
        let mut again = self.again;
        for step in &self.moves {
            let object = &step.action.target.object;
            again = [again, memory.move_waits(step, now)].into_iter().flatten().min();
            if let Some(failure) = memory.failure(object) {
                failed = Some((object, failure));
            }
        }
        if let Some((object, failure)) = failed {
            let skip = Skip {
                reason: failure.reason,
                message: format!("{object} must be changed first: {}", failure.message),
                tell: failure.is_worth_telling(),
                again: Some(failure.again),
            };
            if self.closed.is_some() {
                self.closed = Some(skip);
            } else {
                self.trouble = Some(skip).filter(|skip| skip.tell);
            }
        }
        self.again = again;
        if let Some(closed) = &mut self.closed {
            closed.again = [closed.again, again].into_iter().flatten().min();
        }
        self
    }
}

fn waiting(reason: &'static str, message: impl Into<String>, again: Option<Timestamp>) -> Skip {
    Skip {
        reason,
        message: message.into(),
        tell: false,
        again,
    }
}
