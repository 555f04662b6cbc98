//! Flux: the Kustomization or `HelmRelease` that owns a workload is suspended while that sleeps. (Client not required.)

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared::annotations::{ABSENT, DOWN_SINCE, ORIGINAL_SUSPEND, format_instant, parse_instant};
use shared::kinds::{ByDefault, Form, Kind, Knob, Readiness, value_text};
use shared::patch::{Edits, Preconditions};
use shared::prune::Keep;
use shared::workload::{ObjectRef, Workload};

use crate::argo::{MEMORY, Pauses, Way};
use crate::decide::action::{Purpose, Request, Skip, Target};
use crate::decide::beside::{Look, Move, Want};
use crate::decide::memory::later;

/// How long a suspension must have held before anything is scaled.
const SETTLE: SignedDuration = SignedDuration::from_secs(3);

/// How long a reconciliation under way is waited for before people are told.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// So many suspensions that somebody reverts are enough: then it is told, and not fought.
const TRIES: usize = 2;

/// What Flux' controllers call a reconciliation that has failed and will be tried again.
const WAITS_FOR_RETRY: &str = "ProgressingWithRetry";

const KNOBS: &[Knob] = &[Knob {
    name: Cow::Borrowed("suspend"),
    pointer: Cow::Borrowed("/spec/suspend"),
    form: Form::Flag(true),
}];

fn row(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Arc<Kind> {
    Arc::new(Kind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        kind: Cow::Borrowed(kind),
        plural: Cow::Borrowed(plural),
        knobs: Cow::Borrowed(KNOBS),
        by_default: ByDefault::No,
        readiness: Readiness::None,
        scale: false,
        built_in: false,
    })
}

static KINDS: LazyLock<[Arc<Kind>; 2]> = LazyLock::new(|| {
    [
        row("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
        row("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
    ]
});

/// The rows of Flux' objects: no workloads, but read and patched like them.
pub fn kinds() -> &'static [Arc<Kind>; 2] {
    &KINDS
}

/// A Kustomization or `HelmRelease`.
#[derive(Debug, Clone, PartialEq)]
pub struct FluxObject {
    /// Metadata, and the knob `suspend`.
    pub object: Workload,
    /// It is being reconciled.
    pub reconciling: bool,
}

impl FluxObject {
    /// Reads the facts from a pruned (or whole) object.
    pub fn read(kind: &Arc<Kind>, object: &Value) -> Result<Self, String> {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let text = |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).map(str::to_owned);
        let reconciling = conditions.into_iter().flatten().any(|condition| {
            text(condition, "type").as_deref() == Some("Reconciling")
                && text(condition, "status").as_deref() == Some("True")
                // One that failed and waits for its next try; a suspended one keeps this for ever.
                && text(condition, "reason").as_deref() != Some(WAITS_FOR_RETRY)
        });
        Ok(Self {
            object: Workload::read(kind, object).map_err(|error| error.to_string())?,
            reconciling,
        })
    }

    fn is_suspended(&self) -> bool {
        self.object.knobs.first().and_then(|reading| reading.value.as_ref()) == Some(&Value::Bool(true))
    }
}

/// The fields that have to be read of them.
pub fn keep() -> Keep {
    shared::workload::keep(kinds().iter().map(AsRef::as_ref))
}

/// The Flux object that owns a workload, by the labels that Flux writes.
pub fn owner(workload: &Workload) -> Option<ObjectRef> {
    // What Helm made of a chart is reverted by the HelmRelease, not by the Kustomization that made that.
    kinds().iter().rev().find_map(|kind| {
        let name = workload.label(&format!("{}/name", kind.group))?;
        let namespace = workload.label(&format!("{}/namespace", kind.group))?;
        Some(ObjectRef {
            group: Arc::from(kind.group.as_ref()),
            kind: Arc::from(kind.kind.as_ref()),
            namespace: Arc::from(namespace),
            name: Arc::from(name),
        })
    })
}

/// Looks at one: what is to be written, and whether its workloads may be put down. `held`: the webhook holds what is down, so
/// that they may sleep even where Flux is awake.
pub fn look(flux: &FluxObject, want: &Want, held: bool, pauses: &Pauses, now: Timestamp) -> Look {
    match want {
        Want::Leave | Want::Opening(_) => Look::settled(),
        Want::Up(_) => resume(flux, want),
        Want::Down { .. } => suspend(flux, want, held, pauses, now),
    }
}

fn suspend(flux: &FluxObject, want: &Want, held: bool, pauses: &Pauses, now: Timestamp) -> Look {
    let object = &flux.object;
    let since = object
        .annotation(DOWN_SINCE)
        .and_then(|text| parse_instant(DOWN_SINCE, text).ok());
    if flux.is_suspended() {
        let name = object.object_ref();
        if flux.reconciling {
            let patience = later(since.unwrap_or(now), PATIENCE);
            let message = format!("{name} is still being reconciled: that would put the replicas back");
            return if now < patience {
                Look::until(patience, "ReconciliationRunning", message)
            } else {
                Look::refused("ReconciliationRunning", message)
            };
        }
        return match since.map(|since| later(since, SETTLE)) {
            Some(end) if now < end => Look::until(end, "PauseSettling", format!("{name} was suspended a moment ago")),
            // Suspended by us long enough ago, or by its owner: then it is not ours, and never resumed.
            _ => Look::settled(),
        };
    }
    if let (TRIES.., Some(last)) = pauses.lately(&object.uid, now) {
        return reverted(flux, held, later(last, MEMORY));
    }
    let present = object.knobs.first().and_then(|reading| reading.value.as_ref());
    let mut edits = Edits::default();
    edits.knobs.insert(0, Some(Value::Bool(true)));
    edits
        .annotations
        .insert(ORIGINAL_SUSPEND.to_owned(), Some(value_text(present)));
    edits
        .annotations
        .insert(DOWN_SINCE.to_owned(), Some(format_instant(now)));
    Look::after(
        vec![write(flux, &edits, Purpose::Pause, want).pausing(Way::Disabled)],
        "PausePending",
        format!("{} is suspended first", object.object_ref()),
    )
}

/// It was suspended again and again, and reconciles all the same.
fn reverted(flux: &FluxObject, held: bool, again: Timestamp) -> Look {
    let object = &flux.object;
    let parent = owner(object).filter(|parent| *parent != object.object_ref());
    let who = match (&parent, object.managers.knob.as_deref()) {
        (Some(parent), _) => format!("{parent} resumed it: leave spec.suspend out of what that applies"),
        (None, Some(who)) => format!("{who} resumed it: suspend it there, or exempt its workloads from the schedule"),
        (None, None) => "somebody resumed it: exempt its workloads from the schedule, if that was meant".to_owned(),
    };
    let skip = Skip {
        reason: "PauseReverted",
        message: format!("{} was suspended, and {who}", object.object_ref()),
        tell: true,
        again: None,
    };
    Look {
        closed: Some(skip.clone()).filter(|_| !held),
        trouble: Some(skip),
        again: Some(again),
        ..Look::settled()
    }
}

fn resume(flux: &FluxObject, want: &Want) -> Look {
    let mut look = Look::settled();
    let object = &flux.object;
    let Some(record) = object.annotation(ORIGINAL_SUSPEND) else {
        return look;
    };
    let mut edits = Edits::default();
    if flux.is_suspended() {
        let original = match record {
            ABSENT => None,
            text => Some(Value::Bool(text == "true")),
        };
        edits.knobs.insert(0, original);
    }
    edits.annotations.insert(ORIGINAL_SUSPEND.to_owned(), None);
    edits.annotations.insert(DOWN_SINCE.to_owned(), None);
    look.moves.push(write(flux, &edits, Purpose::Resume, want));
    look
}

fn write(flux: &FluxObject, edits: &Edits, purpose: Purpose, want: &Want) -> Move {
    let object = &flux.object;
    let target = Target {
        object: object.object_ref(),
        version: Arc::from(object.kind.version.as_ref()),
        plural: Arc::from(object.kind.plural.as_ref()),
        uid: Arc::clone(&object.uid),
    };
    let request = Request::Patch {
        body: edits.clone().without_idle(object).patch(object, Preconditions::State),
        subresource: None,
        dry_run: false,
    };
    Move::new(target, &object.resource_version, request, purpose, want)
}

#[cfg(test)]
mod tests;
