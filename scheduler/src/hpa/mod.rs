//! HPAs: what their mode asks for while their target sleeps. (Client not required.)
//!
//! An HPA stands still while its target is at 0; above 0 it would fight at every sync, and is capped.
//!
//! Its controller acts at any moment, also between two writes of ours, so the order is what keeps a count from being lost. At
//! closing: the minimum goes down (and the count is kept on the HPA), the target is put down with its record, and only then is
//! the maximum capped. At opening: the maximum is given back, then the target is restored, and then the minimum is given back. A
//! number that the controller sets in between is nobody's wish.
//!
//! It works from a copy of the HPA that may be old. So before the maximum is given back it is asked to look, in the one condition
//! that it writes anew each time; its answer is taken by the API server only if it has seen the newest version, and then its copy
//! will never be an older one again. Only after that answer is the target restored.

mod backup;
mod bounds;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::api::HpaMode;
use shared::hpa::Hpa;
use shared::patch::{self, Preconditions};
use shared::record::Record;
use shared::workload::ObjectRef;

pub use backup::{Backup, backup_keep};
use bounds::{Back, Holding, Stage};

use crate::decide::action::{Purpose, Request, Skip, Target};
use crate::decide::beside::{Look, Move, Want};
use crate::decide::memory::{Memory, later};
use crate::keda;

/// Where K8s-OffHours kept its backups, whatever namespace it was installed in.
pub const FOREIGN_NAMESPACE: &str = "offhours-system";

/// The field manager of the HPA controller, until its status tells another one.
pub const HPA_CONTROLLER: &str = "kube-controller-manager";
/// Reason of what is said of an HPA that its controller does not look at.
pub const AUTOSCALER_SILENT: &str = "AutoscalerSilent";
/// Reason of the Event about an HPA that is deleted for good.
pub const HPA_DELETED: &str = "HpaDeleted";

/// How long the HPA controller is waited for: it looks every 15 seconds unless it is told otherwise, or has very much to do.
const PATIENCE: SignedDuration = SignedDuration::from_secs(90);

/// All HPAs of one target, and all that is known of them.
#[derive(Debug, Clone)]
pub struct Autoscalers<'a> {
    /// The target.
    pub target: &'a ObjectRef,
    /// Its count now.
    pub count: Option<u64>,
    /// Its HPAs, by name.
    pub hpas: Vec<&'a Hpa>,
    /// Backups of HPAs of it.
    pub backups: Vec<&'a Backup>,
    /// Our namespace, where backups go.
    pub own_namespace: &'a str,
    /// Why backups cannot be read; nothing is deleted then.
    pub blind: Option<&'a str>,
    /// The namespace is being deleted: whatever is created there is refused.
    pub terminating: bool,
}

/// Whether `minReplicas: 0` is legal for an HPA, by its UID. Absent: not asked yet. `Err`: what the API server said.
pub type Zeros = BTreeMap<Arc<str>, Result<(), Arc<str>>>;

/// Why the controller of an HPA could not be asked to look at it, by the HPA's UID, until its maximum is given back.
pub type Unasked = BTreeMap<Arc<str>, Arc<str>>;

impl Autoscalers<'_> {
    /// `[min, max]` that the target is held in by day; `None` without an HPA.
    pub fn range(&self) -> Option<(u64, u64)> {
        let live = self.hpas.iter().map(|hpa| bounds::by_day(hpa));
        let saved = self
            .backups
            .iter()
            .filter(|backup| !self.hpas.iter().any(|hpa| *hpa.object.name == *backup.hpa_name))
            .filter_map(|backup| backup.range());
        live.chain(saved)
            .reduce(|left, right| (left.0.min(right.0), left.1.max(right.1)))
    }

    /// The field manager of their controller.
    pub fn controller(&self) -> &str {
        let told = self.hpas.iter().find_map(|hpa| hpa.controller.as_deref());
        told.unwrap_or(HPA_CONTROLLER)
    }

    /// Looks at them: what is to be written, and whether the target may be put down.
    pub fn look(&self, want: &Want, memory: &Memory, now: Timestamp) -> Look {
        let mut look = match want {
            Want::Leave => return Look::settled(),
            Want::Opening(_) => self.open(want, &memory.unasked, now),
            Want::Up(_) => self.give_back(want),
            Want::Down {
                replicas,
                recorded,
                schedule,
                ..
            } => {
                let mode = schedule.as_ref().map_or(HpaMode::Keep, |schedule| schedule.hpa);
                let stage = if *recorded {
                    Stage::Recorded
                } else {
                    Stage::Unrecorded(self.count)
                };
                match mode {
                    HpaMode::Keep | HpaMode::MinZero => self.hold(want, *replicas, stage, mode, &memory.zeros),
                    HpaMode::DeleteRestore | HpaMode::DeleteOnly => self.delete(want, mode),
                }
            }
        };
        // Two writes to one object would only get in each other's way.
        let mut seen = std::collections::BTreeSet::new();
        look.moves.retain(|step| seen.insert(step.action.target.object.clone()));
        look
    }

    /// The HPAs that are ours to change: KEDA looks after its own.
    fn ours(&self) -> impl Iterator<Item = &Hpa> {
        self.hpas
            .iter()
            .copied()
            .filter(|hpa| !hpa.object.terminating && !is_kedas(hpa))
    }

    /// Whether one of them is held by us.
    pub fn is_held(&self) -> bool {
        self.hpas.iter().any(|hpa| bounds::is_held(hpa))
    }

    /// What the target was when it was first held, as long as its own record was not seen.
    pub fn saved(&self) -> Option<Record> {
        self.hpas.iter().find_map(|hpa| bounds::saved(hpa))
    }

    fn hold(&self, want: &Want, replicas: u64, stage: Stage, mode: HpaMode, zeros: &Zeros) -> Look {
        let mut look = Look::settled();
        for hpa in self.ours() {
            let Some(holding) = Holding::of(replicas, mode) else {
                continue;
            };
            if holding == Holding::MinZero {
                // At 0 it stands still with any minimum, and with 0 its controller could be the first to lower the target.
                if stage != Stage::Recorded {
                    continue;
                }
                match zeros.get(&hpa.object.uid) {
                    Some(Err(why)) => {
                        look.trouble = Some(refused_zero(hpa, why));
                        continue;
                    }
                    None if hpa.min_replicas() != Some(0) => {
                        look.moves.push(ask_zero(hpa, want));
                        continue;
                    }
                    _ => {}
                }
            }
            let edits = bounds::hold(hpa, holding, stage, instant(want));
            if !edits.is_empty() {
                let body = edits.patch(&hpa.object, Preconditions::State);
                look.moves.push(patched(hpa, body, false, want));
            }
        }
        if !look.moves.is_empty() {
            look.closed = Some(Skip {
                reason: "AutoscalerPending",
                message: "its HPA is changed first".to_owned(),
                tell: false,
                again: None,
            });
        }
        look
    }

    fn delete(&self, want: &Want, mode: HpaMode) -> Look {
        let mut look = Look::settled();
        let mut blocked: Option<Skip> = None;
        for hpa in self.ours() {
            if let Some(owner) = hpa.object.owners.iter().find(|owner| owner.controller) {
                look.trouble = Some(told(
                    "HpaOwned",
                    format!(
                        "HPA {} is not deleted: {} {} would create it again",
                        hpa.object.name, owner.kind, owner.name
                    ),
                ));
                continue;
            }
            if mode == HpaMode::DeleteOnly {
                look.moves.push(delete(hpa, want).telling(
                    HPA_DELETED,
                    "deleted for good while its target is off hours (hpa mode DeleteOnly): nothing of ours brings it back",
                    true,
                ));
                continue;
            }
            if let Some(why) = self.blind {
                blocked = Some(told(
                    "BackupImpossible",
                    format!("HPA {} is not deleted: backups cannot be read ({why})", hpa.object.name),
                ));
                continue;
            }
            match self.backup_of(hpa) {
                Some(backup) if backup.holds(hpa) => look.moves.push(delete(hpa, want)),
                Some(backup) => look.moves.push(backup.renewed(hpa, want)),
                None if self.terminating => {
                    blocked = Some(told(
                        "BackupImpossible",
                        format!("HPA {} is not deleted: its namespace is being deleted", hpa.object.name),
                    ));
                }
                None => match backup::create(self, hpa, want) {
                    Ok(step) => look.moves.push(step),
                    Err(why) => blocked = Some(told("RecordTooLarge", why)),
                },
            }
        }
        look.closed = blocked.or_else(|| {
            (!look.moves.is_empty()).then(|| Skip {
                reason: "AutoscalerPending",
                message: "its HPA is saved and deleted first".to_owned(),
                tell: false,
                again: None,
            })
        });
        look
    }

    /// Before the target is restored: a bound that is capped still, or is in the controller's old copy, would pull it down again,
    /// and its record would be gone.
    fn open(&self, want: &Want, unasked: &Unasked, now: Timestamp) -> Look {
        // The only copy of that record goes last; nothing is capped as long as it is here.
        if self.saved().is_some() {
            return Look::settled();
        }
        let mut look = Look::settled();
        let mut message = None;
        for hpa in self.live() {
            if !bounds::is_capped(hpa) {
                look.moves.extend(bounds_back(hpa, want, Back::Cap));
                if let Some(end) = waits_until(hpa, now) {
                    look.again = look.again.into_iter().chain([end]).min();
                    message = message.or(Some("its HPA is given back; its controller is to see that first"));
                }
                continue;
            }
            message = Some("its HPA is given back first");
            match (hpa.able.asked, unasked.get(&hpa.object.uid)) {
                (None, None) => look.moves.push(ask_controller(hpa, want, now)),
                (None, Some(why)) => {
                    let message = format!(
                        "maxReplicas is given back unseen: the HPA controller could not be asked to look first ({why}); should it \
                         act on the former maximum once more, the target keeps that number"
                    );
                    let step = bounds_back(hpa, want, Back::Cap);
                    look.moves
                        .extend(step.map(|step| step.telling("AutoscalerNotAsked", message, true)));
                }
                (Some(_), _) => look.moves.extend(bounds_back(hpa, want, Back::Cap)),
            }
        }
        look.closed = message.map(|message| Skip {
            reason: "AutoscalerPending",
            message: message.to_owned(),
            tell: false,
            again: look.again,
        });
        look
    }

    /// Those whose controller was asked to look, and did not in time: what to say of them.
    pub fn silent(&self, now: Timestamp) -> Option<Skip> {
        let asked = |hpa: &&Hpa| hpa.able.asked.is_some() && !bounds::is_capped(hpa) && waits_until(hpa, now).is_none();
        let hpa = self.live().find(asked)?;
        let message = format!(
            "HPA {} was given back, but the HPA controller does not look at it: does kube-controller-manager run?",
            hpa.object.name
        );
        Some(told(AUTOSCALER_SILENT, message))
    }

    fn live(&self) -> impl Iterator<Item = &Hpa> {
        self.hpas.iter().copied().filter(|hpa| !hpa.object.terminating)
    }

    fn give_back(&self, want: &Want) -> Look {
        let mut look = Look::settled();
        look.moves
            .extend(self.live().filter_map(|hpa| bounds_back(hpa, want, Back::All)));
        for backup in &self.backups {
            match self.hpas.iter().find(|hpa| *hpa.object.name == *backup.hpa_name) {
                // Ours from a moment ago, or somebody else's: both stay.
                Some(hpa) => {
                    let step = backup.dropped(want);
                    look.moves.push(if backup.made(hpa) {
                        step
                    } else {
                        let message = format!(
                            "HPA {}/{} was created again meanwhile and is kept; its backup is dropped",
                            hpa.object.namespace, hpa.object.name
                        );
                        step.telling("HpaKept", message, false)
                    });
                }
                None if self.terminating => {}
                None => match backup.restored(want) {
                    Ok(step) => look.moves.push(step),
                    Err(why) => look.trouble = Some(told("BackupUnreadable", why)),
                },
            }
        }
        look
    }

    fn backup_of(&self, hpa: &Hpa) -> Option<&Backup> {
        // Only our own: K8s-OffHours' place may not be ours to write to.
        self.backups
            .iter()
            .copied()
            .find(|backup| *backup.hpa_name == *hpa.object.name && *backup.object.namespace == *self.own_namespace)
    }
}

/// Until when a target waits for the controller that was asked to look at its HPA. `None`: it has, or took too long.
fn waits_until(hpa: &Hpa, now: Timestamp) -> Option<Timestamp> {
    let end = later(hpa.able.asked?, PATIENCE);
    // What was asked in the future was asked by a clock that is wrong.
    (now < end && end.duration_since(now) <= PATIENCE * 2).then_some(end)
}

/// The write that gives bounds back, if there is any.
fn bounds_back(hpa: &Hpa, want: &Want, back: Back) -> Option<Move> {
    let (edits, unreadable) = bounds::give_back(hpa, back);
    if edits.is_empty() {
        return None;
    }
    let mut body = edits.patch(&hpa.object, Preconditions::State);
    if back == Back::Cap {
        body = patch::while_asked(hpa, body);
    }
    let step = patched(hpa, body, false, want);
    Some(match unreadable {
        Some(text) => {
            let message = format!("the record {text:?} could not be read; that field stays as it is");
            step.telling("RecordUnreadable", message, true)
        }
        None => step,
    })
}

fn ask_controller(hpa: &Hpa, want: &Want, now: Timestamp) -> Move {
    let request = Request::Patch {
        body: patch::ask_controller(hpa, now),
        subresource: Some("status"),
        dry_run: false,
    };
    step(hpa, request, want)
}

fn instant(want: &Want) -> Timestamp {
    match want {
        Want::Down { now, .. } => *now,
        Want::Leave | Want::Opening(_) | Want::Up(_) => Timestamp::UNIX_EPOCH,
    }
}

/// Whether KEDA made it: then its ScaledObject is what is put to sleep.
fn is_kedas(hpa: &Hpa) -> bool {
    hpa.object
        .owners
        .iter()
        .any(|owner| keda::is_scaled_object(&owner.group, &owner.kind))
        || hpa.object.label("scaledobject.keda.sh/name").is_some()
}

fn told(reason: &'static str, message: String) -> Skip {
    Skip {
        reason,
        message,
        tell: true,
        again: None,
    }
}

fn refused_zero(hpa: &Hpa, why: &str) -> Skip {
    told(
        "HpaMinZeroRefused",
        format!(
            "HPA {} keeps its minReplicas: the API server takes no 0 there ({why}); it stands still all the same",
            hpa.object.name
        ),
    )
}

/// An HPA as the target of a write.
fn target(hpa: &Hpa) -> Target {
    let kind = shared::hpa::kind();
    Target {
        object: hpa.object.object_ref(),
        version: Arc::from(kind.version.as_ref()),
        plural: Arc::from(kind.plural.as_ref()),
        uid: Arc::clone(&hpa.object.uid),
    }
}

fn step(hpa: &Hpa, request: Request, want: &Want) -> Move {
    let version = &hpa.object.resource_version;
    Move::new(target(hpa), version, request, Purpose::Autoscaler, want)
}

fn patched(hpa: &Hpa, body: json_patch::Patch, dry_run: bool, want: &Want) -> Move {
    let request = Request::Patch {
        body,
        subresource: None,
        dry_run,
    };
    step(hpa, request, want)
}

fn delete(hpa: &Hpa, want: &Want) -> Move {
    step(hpa, Request::Delete, want)
}

/// Asks whether the API server would take a minimum of 0: that depends on its version, its feature gates and on the metrics.
fn ask_zero(hpa: &Hpa, want: &Want) -> Move {
    let mut edits = shared::patch::Edits::default();
    edits.knobs.insert(0, Some(0.into()));
    patched(hpa, edits.patch(&hpa.object, Preconditions::State), true, want)
}

/// The reference of an HPA by its name.
pub fn hpa_ref(namespace: &Arc<str>, name: impl Into<Arc<str>>) -> ObjectRef {
    let kind = shared::hpa::kind();
    let text = |text: &Cow<'static, str>| Arc::from(text.as_ref());
    ObjectRef {
        group: text(&kind.group),
        kind: text(&kind.kind),
        namespace: Arc::clone(namespace),
        name: name.into(),
    }
}

#[cfg(test)]
mod asked_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
pub(crate) mod tests;
