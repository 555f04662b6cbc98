//! The webhook's answer to one request: pure. Facts come from the request's own object first; the view adds what it lacks.
//!
//! No client, no clock, no waiting. What has to be asked or written because of a request ([`Ruling::ask`],
//! [`Ruling::remember`]) is told, and done by others.

mod asker;
mod autoscaler;
mod configuration;
mod facts;
mod namespace;
mod record;
mod scale;
mod scaled;
mod schedule;
mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::Patch;
use shared::messages::{self, Subject};
use shared::policy::{Origin, Schedules};
use shared::verdict::{Surroundings, Verdict};
use shared::workload::{Namespace, ObjectRef, Workload};

pub use asker::{Asker, Stance};
pub use scale::{Remember, is_down, remember_edits};

use crate::review::{Answer, Denial, Request};
use crate::state::{OnUncertainty, Policy, Seen, Sight};

/// Which of the two endpoints was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It may change the object.
    Mutate,
    /// It sees the final object.
    Validate,
}

/// Whether the who has the verb `override`, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// Nobody has asked yet.
    NotAsked,
    /// Yes.
    Granted,
    /// No, or nobody can tell; the text says why.
    Refused(String),
}

/// What a ruling came to; the label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing of ours.
    Passed,
    /// Put back to the held value.
    Held,
    /// Refused.
    Denied,
    /// Passed with a warning.
    Warned,
    /// A new workload came down at once.
    CreatedAsleep,
    /// A record that the request had stripped or edited was put back.
    PutBack,
    /// Passed by an exemption, or opens a hold: a wake, a protection, another schedule.
    Overridden,
    /// A duration became an instant, or was dropped.
    Configured,
    /// Refused because of what it configures.
    Misconfigured,
    /// Nobody could tell.
    Uncertain,
    /// It could not be read.
    Unreadable,
    /// It was not looked at: a webhook in dev mode serves this cluster.
    StoodAside,
    /// A self-test came through.
    Probed,
}

impl Outcome {
    /// The label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Held => "held",
            Self::Denied => "denied",
            Self::Warned => "warned",
            Self::CreatedAsleep => "created-asleep",
            Self::PutBack => "put-back",
            Self::Overridden => "overridden",
            Self::Configured => "configured",
            Self::Misconfigured => "misconfigured",
            Self::Uncertain => "uncertain",
            Self::Unreadable => "unreadable",
            Self::StoodAside => "stood-aside",
            Self::Probed => "probed",
        }
    }
}

/// The reason of an Event about an override.
const OVERRIDDEN: &str = "Overridden";

/// An Event on an object, told unless the request was a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tell {
    /// The object.
    pub object: ObjectRef,
    /// Its UID, where it is known.
    pub uid: Arc<str>,
    /// CamelCase reason.
    pub reason: &'static str,
    /// One line.
    pub message: String,
}

/// The verb `override` on this schedule has to be asked for, and the request ruled on again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The schedule.
    pub schedule: Arc<str>,
}

/// A workload that was held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The workload.
    pub workload: ObjectRef,
    /// The schedule of the cluster that holds it; `None`: a sleep by hand, or a schedule of another origin.
    pub schedule: Option<Arc<str>>,
}

impl Held {
    fn of(workload: &Workload, verdict: &Verdict) -> Self {
        let schedule = verdict.schedule.as_ref();
        Self {
            workload: workload.object_ref(),
            schedule: schedule
                .filter(|schedule| schedule.origin == Origin::Resource)
                .map(|schedule| Arc::clone(&schedule.name)),
        }
    }
}

/// The webhook's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// What goes over the wire.
    pub answer: Answer,
    /// What it came to.
    pub outcome: Outcome,
    /// What was held, for counting.
    pub held: Option<Held>,
    /// What has to be written to a parent before the answer is given.
    pub remember: Option<Remember>,
    /// What has to be asked before the request can be ruled on.
    pub ask: Option<Ask>,
    /// Events.
    pub tell: Vec<Tell>,
}

impl Ruling {
    /// It passes, untouched.
    pub fn pass() -> Self {
        Self {
            answer: Answer::default(),
            outcome: Outcome::Passed,
            held: None,
            remember: None,
            ask: None,
            tell: Vec::new(),
        }
    }

    /// It passes, because somebody else judges it.
    pub fn stood_aside() -> Self {
        Self::of(Outcome::StoodAside)
    }

    fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            ..Self::pass()
        }
    }

    fn warn(mut self, warning: String) -> Self {
        self.answer.warnings.push(warning);
        self
    }

    /// A wake, a protection or another label that opens a hold is counted as what it is told as.
    fn count_override(&mut self) {
        if self.outcome == Outcome::Passed && self.tell.iter().any(|tell| tell.reason == OVERRIDDEN) {
            self.outcome = Outcome::Overridden;
        }
    }

    fn patched(mut self, patch: Patch) -> Self {
        self.answer.patch = patch;
        self
    }

    fn deny(outcome: Outcome, message: String) -> Self {
        let mut ruling = Self::of(outcome);
        ruling.answer.denial = Some(Denial { message });
        ruling
    }
}

/// What a ruling is made of, beside the request.
#[derive(Clone, Copy)]
pub struct Bench<'b> {
    /// The view.
    pub sight: &'b dyn Sight,
    /// All schedules.
    pub schedules: &'b Schedules,
    /// What the installation says.
    pub policy: &'b Policy,
    /// Which endpoint was called.
    pub phase: Phase,
    /// What is known of the verb `override`.
    pub authority: &'b Authority,
    /// The present instant.
    pub now: Timestamp,
}

impl Bench<'_> {
    fn verdict(&self, workload: &Workload, namespace: Option<&Namespace>, scaled_by: Option<&str>) -> Verdict {
        let around = Surroundings {
            kinds: self.sight.kinds(),
            schedules: self.schedules,
            namespace,
            own_namespace: &self.policy.own_namespace,
            scaled_by,
        };
        shared::verdict::verdict(workload, &around, self.now)
    }

    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        match self.sight.namespace(name) {
            Seen::Known(namespace) => Some(namespace),
            Seen::Absent | Seen::Unknown(_) => None,
        }
    }

    /// Nobody can tell: by default it passes with a warning.
    fn uncertain(&self, subject: &Subject<'_>, why: &str) -> Ruling {
        match (self.policy.on_uncertainty, self.phase) {
            (OnUncertainty::Deny, _) => Ruling::deny(Outcome::Uncertain, messages::uncertain_denied(subject, why)),
            (OnUncertainty::Allow, _) => Ruling::of(Outcome::Uncertain).warn(messages::uncertain(subject, why)),
        }
    }

    /// The request itself cannot be read.
    fn unreadable(&self, why: &str) -> Ruling {
        unreadable(self.policy, why)
    }
}

/// The answer to a review that cannot be read.
pub fn unreadable(policy: &Policy, why: &str) -> Ruling {
    match policy.on_uncertainty {
        OnUncertainty::Allow => Ruling::of(Outcome::Unreadable).warn(messages::unreadable(why)),
        OnUncertainty::Deny => Ruling::deny(Outcome::Unreadable, messages::unreadable_denied(why)),
    }
}

/// Whether this is the self-test ([`crate::reach`]), whoever asks.
pub fn is_probe(request: &Request<'_>, phase: Phase) -> bool {
    let resource = &request.resource;
    phase == Phase::Validate
        && request.is_dry_run()
        && *request.name == *shared::api::PROBE
        && (&*resource.group, &*resource.resource) == (shared::api::GROUP, "offhoursschedules")
}

/// Rules on one request.
pub fn rule(request: &Request<'_>, bench: &Bench<'_>) -> Ruling {
    if is_probe(request, bench.phase) {
        return Ruling::deny(Outcome::Probed, messages::REACHED.to_owned());
    }
    let who = Asker::of(request, bench.policy);
    if who.is_own() {
        return Ruling::pass();
    }
    let (group, resource): (&str, &str) = (&request.resource.group, &request.resource.resource);
    let mut ruling = match (group, resource, &*request.sub_resource) {
        ("", "namespaces", "") => namespace::rule(request, &who, bench),
        (shared::api::GROUP, "offhoursschedules", "") => schedule::rule(request, bench),
        ("autoscaling", "horizontalpodautoscalers", "") => autoscaler::rule(request, &who, bench),
        (_, _, subresource) => match (bench.sight.kinds().by_resource(group, resource), subresource) {
            (Some(kind), "") => workload::rule(request, kind, &who, bench),
            (Some(kind), "scale") => scale::rule(request, kind, &who, bench),
            (Some(_), _) => Ruling::pass(),
            (None, _) => bench.unreadable(&format!("{resource} of group {group:?} is no kind that it knows")),
        },
    };
    messages::within_budget(&mut ruling.answer.warnings);
    ruling
}
