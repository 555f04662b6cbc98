//! What the scheduler wants of the API server: plain data, made by `decide`, carried out by `act`.

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::Patch;
use serde_json::Value;
use shared::workload::ObjectRef;

/// An object in the API, with what its URL needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// What names it.
    pub object: ObjectRef,
    /// API version.
    pub version: Arc<str>,
    /// Resource name in the URL.
    pub plural: Arc<str>,
    /// Its UID at the time of the decision; empty for what is to be created.
    pub uid: Arc<str>,
}

/// One API write.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A JSON patch, which tests what it relies on.
    Patch {
        /// The body.
        body: Patch,
        /// `status`, or nothing.
        subresource: Option<&'static str>,
        /// Only ask whether the API server would take it.
        dry_run: bool,
    },
    /// A POST of this object.
    Create(Value),
    /// A DELETE with the target's UID as precondition.
    Delete,
}

/// Why an action is taken; also its label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// A workload is put down.
    Down,
    /// Somebody raised it while down: it is put down again.
    DownAgain,
    /// A workload is given back what it was.
    Restore,
    /// Our keys go; the knob is somebody's wish.
    Forget,
    /// A lost or changed record is written back.
    PutBack,
    /// What is held while down changed with the schedule.
    Adjust,
    /// A duration becomes an instant.
    FixInstant,
    /// A CronJob's missed runs are skipped.
    SkipMissedRuns,
    /// An autoscaler is changed, or given back what it was.
    Autoscaler,
    /// A GitOps object is paused.
    Pause,
    /// A GitOps object is resumed.
    Resume,
    /// A backup is written or removed.
    Backup,
    /// A finalizer is added or removed.
    Finalizer,
}

impl Purpose {
    /// The label in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::DownAgain => "down-again",
            Self::Restore => "restore",
            Self::Forget => "forget",
            Self::PutBack => "put-back",
            Self::Adjust => "adjust",
            Self::FixInstant => "fix-instant",
            Self::SkipMissedRuns => "skip-missed-runs",
            Self::Autoscaler => "autoscaler",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Backup => "backup",
            Self::Finalizer => "finalizer",
        }
    }
}

/// An API write that the scheduler wants.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// The object that is written.
    pub target: Target,
    /// What is sent.
    pub request: Request,
    /// Why.
    pub purpose: Purpose,
    /// The schedule on whose behalf; `None` where there is none any more.
    pub schedule: Option<Arc<str>>,
    /// What to say about it on the object itself, once it is done.
    pub event: Option<Note>,
    /// Give up the ownership that this write takes where somebody uses server-side apply (one more PATCH then).
    pub disown: bool,
}

/// A remark for an Event on the object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// CamelCase reason.
    pub reason: &'static str,
    /// One line.
    pub message: String,
    /// A warning, or merely good to know.
    pub warning: bool,
}

/// Something that was not done, and why. The word is the reason of the condition and of the Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// CamelCase reason, such as `RolloutUnfinished`.
    pub reason: &'static str,
    /// One line.
    pub message: String,
    /// Worth telling a person (an Event and a condition), or only a matter of waiting.
    pub tell: bool,
    /// When to look again, if the clock alone can change it.
    pub again: Option<Timestamp>,
}

#[cfg(test)]
impl Action {
    /// The body of a PATCH.
    pub(crate) fn request_body(&self) -> Patch {
        match &self.request {
            Request::Patch { body, .. } => body.clone(),
            other => panic!("{other:?} is no PATCH"),
        }
    }
}
