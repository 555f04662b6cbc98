//! How a write ended, and what the API server's answers mean. No client required.

use std::time::Duration;

use cluster::call::CallError;

use crate::argo::ArgoError;

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Written; in a dry run: would be.
    Done,
    /// What the decision relied on is not so any more (409, the 422 of a failed test), or the object is gone (404).
    Conflict {
        /// One line: verb, resource, object and what the API server said.
        message: String,
    },
    /// Refused, or broken off with unknown outcome.
    Failed {
        /// CamelCase reason for conditions.
        reason: &'static str,
        /// One line: verb, resource, object and what the API server said.
        message: String,
        /// What the API server asks us to wait.
        retry_after: Option<Duration>,
    },
    /// Not sent.
    NotSent(NotSent),
}

/// Why an action was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// Another process leads, or nobody.
    NotLeader,
    /// The write could outlive the lease.
    TooLittleTime,
    /// We are stopping.
    Stopping,
}

impl Ended {
    /// Whether the same request may well succeed a moment later, on newer facts.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::NotSent(NotSent::TooLittleTime) => true,
            Self::Failed { reason, .. } => matches!(
                *reason,
                "TooManyRequests" | "ServerError" | "Timeout" | "ConnectionFailed"
            ),
            Self::Done | Self::NotSent(NotSent::NotLeader | NotSent::Stopping) => false,
        }
    }

    /// A stable word for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict { .. } => "conflict",
            Self::Failed { reason, .. } => reason,
            Self::NotSent(NotSent::NotLeader) => "not-leader",
            Self::NotSent(NotSent::TooLittleTime) => "too-little-time",
            Self::NotSent(NotSent::Stopping) => "stopping",
        }
    }
}

/// The message of a JSON patch that could not be applied: a test failed, or a path is not there. Kubernetes says no more.
const PATCH_DID_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

/// What a failed call means. `what` names verb, resource and object.
pub(super) fn of(what: &str, error: &CallError) -> Ended {
    let message = format!("failed to {what}: {error}");
    let (reason, retry_after) = match error {
        CallError::Refused {
            code,
            message: said,
            retry_after,
            ..
        } => {
            let reason = match code {
                404 | 409 => return Ended::Conflict { message },
                422 if said.starts_with(PATCH_DID_NOT_APPLY) => return Ended::Conflict { message },
                422 if said.contains("annotations: Too long") => "RecordTooLarge",
                413 => "RecordTooLarge",
                400 | 422 => "Invalid",
                401 => "Unauthorized",
                403 => "Forbidden",
                429 => "TooManyRequests",
                500..=599 => "ServerError",
                _ => "Refused",
            };
            (reason, *retry_after)
        }
        CallError::TimedOut(_) => ("Timeout", None),
        CallError::Connection(_) => ("ConnectionFailed", None),
        CallError::Unreadable(_) => ("Unreadable", None),
    };
    Ended::Failed {
        reason,
        message,
        retry_after,
    }
}

/// What a failed call of Argo CD's API means.
pub(super) fn of_argo(what: &str, error: &ArgoError) -> Ended {
    let message = format!("failed to {what}: {error}");
    let reason = match error {
        // A test of the patch that failed is told no other way.
        ArgoError::Refused {
            status: 500, code: 2, ..
        } => return Ended::Conflict { message },
        ArgoError::Refused { status: 403 | 404, .. } => "Forbidden",
        ArgoError::Refused { status: 429, .. } => "TooManyRequests",
        ArgoError::Refused { status, .. } if *status >= 500 => "ServerError",
        ArgoError::Refused { .. } => "Invalid",
        ArgoError::TokenExpired(_) | ArgoError::ReadToken { .. } => "Unauthorized",
        ArgoError::Untrusted { .. } => "Untrusted",
        ArgoError::Unreachable { .. } => "ConnectionFailed",
        ArgoError::NothingListed | ArgoError::Unreadable(_) | ArgoError::MakeClient { .. } => "Unreadable",
    };
    Ended::Failed {
        reason,
        message,
        retry_after: None,
    }
}
