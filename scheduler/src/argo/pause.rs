//! The pause of one Application: record, pause, wait for what runs, see that it holds; and the way back. (Client not required.)

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, TestOperation};
use serde_json::{Value, json};
use shared::annotations::{
    DOWN_SINCE, ORIGINAL_AUTOMATED, STATE_ARGO, STATE_TYPE, TARGET_APPLICATION, TARGET_NAMESPACE, format_instant,
};
use shared::patch::{Edits, Preconditions};

use super::facts::{Application, Saved, State, Way};
use crate::decide::action::{Purpose, Request, Skip, Target};
use crate::decide::beside::{Look, Move, Want};
use crate::decide::memory::later;
use crate::states::{config_map, config_map_ref, manifest, short_hash};

/// How long a pause must have held before anything is scaled: what began before it shows by then.
pub const SETTLE: SignedDuration = SignedDuration::from_secs(3);

/// How long an operation is waited for before people are told.
const OPERATION_PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// After so long, a pause that was reverted is tried again from the beginning.
pub const MEMORY: SignedDuration = SignedDuration::from_mins(10);

/// The ways in which an Application was paused lately, by its UID. (And when a Flux object was, which has one way.)
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pauses(BTreeMap<Arc<str>, Vec<(Timestamp, Way)>>);

impl Pauses {
    /// Takes in that one was paused.
    pub fn note(&mut self, uid: &Arc<str>, way: Way, now: Timestamp) {
        let pauses = self.0.entry(Arc::clone(uid)).or_default();
        pauses.retain(|(at, _)| later(*at, MEMORY) > now);
        pauses.push((now, way));
    }

    /// Takes in that one is awake, or gone.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// The clock was set back: what seems to lie ahead happened just now.
    pub fn set_back(&mut self, now: Timestamp) {
        self.0.values_mut().flatten().for_each(|(at, _)| *at = now.min(*at));
    }

    /// Lets go of what is too old to count.
    pub fn prune(&mut self, now: Timestamp) {
        self.0
            .retain(|_, pauses| pauses.iter().any(|(at, _)| later(*at, MEMORY) > now));
    }

    /// How often it was paused lately, and the last time.
    pub fn lately(&self, uid: &str, now: Timestamp) -> (usize, Option<Timestamp>) {
        let all = self.0.get(uid).into_iter().flatten().map(|(at, _)| *at);
        let lately: Vec<Timestamp> = all.filter(|at| later(*at, MEMORY) > now).collect();
        (lately.len(), lately.into_iter().max())
    }

    fn tried(&self, uid: &str, way: Way, now: Timestamp) -> Option<Timestamp> {
        let pauses = self
            .0
            .get(uid)?
            .iter()
            .filter(|(at, tried)| *tried == way && later(*at, MEMORY) > now);
        pauses.map(|(at, _)| *at).max()
    }
}

/// All that is known of one Application.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    /// Its facts.
    pub application: &'k Application,
    /// What our ConfigMap says of it.
    pub state: Option<&'k State>,
    /// How it was paused lately.
    pub pauses: &'k Pauses,
    /// Our namespace, where records go.
    pub own_namespace: &'k str,
    /// Why records cannot be read; nothing is paused then.
    pub blind: Option<&'k str>,
    /// What is down is held by the webhook, so that it may sleep even where Argo CD is awake.
    pub held: bool,
    /// Ask for a sync at opening time.
    pub sync: bool,
    /// Terminate an operation that does not end by itself.
    pub terminate: bool,
}

/// Where an Application says how far its operation is; who writes `Terminating` there ends it.
pub(super) const PHASE: [&str; 3] = ["status", "operationState", "phase"];

/// By this label Argo CD 2.x knows what it manages. Others write it, too: it tells of a parent only where Argo CD wrote last.
const COMMON_INSTANCE: &str = "app.kubernetes.io/instance";

/// Looks at it: what is to be written, and whether its workloads may be put down.
pub fn look(known: &Known<'_>, want: &Want, now: Timestamp) -> Look {
    // A record of a former Application of this name is nothing.
    let uid = &known.application.object.uid;
    let state = known
        .state
        .filter(|state| state.application_uid.is_empty() || state.application_uid == *uid);
    let known = Known { state, ..*known };
    match want {
        Want::Leave | Want::Opening(_) => Look::settled(),
        Want::Up(_) => resume(&known, want),
        Want::Down { .. } => pause(&known, want, now),
    }
}

fn saved(known: &Known<'_>) -> Option<Saved> {
    match known.application.saved() {
        Some(Ok(saved)) => Some(saved),
        _ => known.state.map(|state| state.saved.clone()),
    }
}

fn pause(known: &Known<'_>, want: &Want, now: Timestamp) -> Look {
    let application = known.application;
    if !application.is_automated() {
        // Paused by us, or never automated: then it is not ours, and never resumed.
        let since = saved(known).and_then(|saved| saved.since);
        return settle(known, since, want, now);
    }
    let Some(present) = application.automated() else {
        return Look::settled();
    };
    let uid = &application.object.uid;
    let written = match application.saved() {
        Some(Ok(saved)) => saved.way,
        _ => None,
    };
    let tried = |way: Way| known.pauses.tried(uid, way, now).is_some() || written == Some(way);
    let way = match (tried(Way::Disabled), tried(Way::Removed)) {
        (false, false) => Way::Disabled,
        (true, false) => Way::Removed,
        (_, true) => return reverted(known, now),
    };
    // What is active now is what counts: after a pause that somebody reverted, it is what they made of it.
    let original = present.clone();
    let Some(state) = known.state else {
        if let Some(why) = known.blind {
            let message = format!(
                "Application {} is not paused: records cannot be read ({why})",
                application.reference()
            );
            return Look::refused("PauseImpossible", message);
        }
        return Look::after(
            vec![record(known, &original, way, want, now)],
            "PausePending",
            "its Application is paused first",
        );
    };
    let mut moves = Vec::new();
    if state.saved.automated != original || state.application_uid != *uid || state.saved.way != Some(way) {
        moves.push(renewed(state, known, &original, way, want, now));
    } else {
        moves.push(written_pause(known, present, &original, way, want, now));
    }
    Look::after(moves, "PausePending", "its Application is paused first")
}

fn settle(known: &Known<'_>, since: Option<Timestamp>, want: &Want, now: Timestamp) -> Look {
    let application = known.application;
    if let Some(operation) = &application.operation {
        let began = operation.since.max(since).unwrap_or(now);
        let patience = later(began, OPERATION_PATIENCE);
        let message = format!(
            "an operation runs on Application {}: it would put the replicas back",
            application.reference()
        );
        return if now < patience {
            Look::until(patience, "OperationRunning", message)
        } else if known.terminate && operation.runs {
            Look::after(vec![terminated(application, want)], "OperationRunning", message)
        } else {
            Look::refused("OperationRunning", message)
        };
    }
    match since.map(|since| later(since, SETTLE)) {
        Some(end) if now < end => Look::until(end, "PauseSettling", "its Application was paused a moment ago"),
        _ => Look::settled(),
    }
}

/// Ends its operation, as `argocd app terminate-op` does.
fn terminated(application: &Application, want: &Want) -> Move {
    let object = &application.object;
    let path = || PointerBuf::from_tokens(PHASE);
    let body = Patch(vec![
        PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["metadata", "uid"]),
            value: Value::from(&*object.uid),
        }),
        PatchOperation::Test(TestOperation {
            path: path(),
            value: json!("Running"),
        }),
        PatchOperation::Replace(ReplaceOperation {
            path: path(),
            value: json!("Terminating"),
        }),
    ]);
    let request = Request::Patch {
        body,
        subresource: None,
        dry_run: false,
    };
    Move::new(
        target(application),
        &object.resource_version,
        request,
        Purpose::Pause,
        want,
    )
    .telling(
        "OperationTerminated",
        "its operation ran on after closing time and was terminated, so that its workloads can be put to sleep \
         (argo.terminate)",
        true,
    )
}

/// Both ways were tried, and it syncs all the same.
fn reverted(known: &Known<'_>, now: Timestamp) -> Look {
    let application = known.application;
    let message = format!(
        "Application {} was paused, and {}",
        application.reference(),
        who_reverts(application)
    );
    let skip = Skip {
        reason: "PauseReverted",
        message,
        tell: true,
        again: None,
    };
    let again = [Way::Disabled, Way::Removed]
        .into_iter()
        .filter_map(|way| known.pauses.tried(&application.object.uid, way, now))
        .max()
        .map(|at| later(at, MEMORY));
    if known.held {
        Look {
            trouble: Some(skip),
            again,
            ..Look::settled()
        }
    } else {
        Look {
            closed: Some(skip.clone()),
            trouble: Some(skip),
            again,
            ..Look::settled()
        }
    }
}

fn who_reverts(application: &Application) -> String {
    let object = &application.object;
    if let Some(owner) = object.owners.iter().find(|owner| *owner.kind == *"ApplicationSet") {
        return format!(
            "ApplicationSet {} switches automated sync on again: set spec.ignoreApplicationDifferences \
             (jsonPointers: [/spec/syncPolicy/automated]) and spec.preservedFields.annotations there",
            owner.name
        );
    }
    let tracking = object
        .annotation("argocd.argoproj.io/tracking-id")
        .and_then(|id| id.split_once(':'))
        .map(|(name, _)| name);
    let who = object.managers.knob.as_deref();
    let labelled = || {
        let by_argo = who.is_some_and(|who| who.starts_with("argocd"));
        let common = || object.label(COMMON_INSTANCE).filter(|_| by_argo);
        object.label("argocd.argoproj.io/instance").or_else(common)
    };
    if let Some(parent) = tracking.or_else(labelled) {
        return format!(
            "its parent Application {parent} switches automated sync on again: set ignoreDifferences for \
             /spec/syncPolicy/automated there, with the sync option RespectIgnoreDifferences=true"
        );
    }
    let who = who.unwrap_or("somebody");
    format!("{who} switched automated sync on again: switch it off there, or exempt its workloads from the schedule")
}

fn target(application: &Application) -> Target {
    let kind = super::kind();
    Target {
        object: application.reference(),
        version: Arc::from(kind.version.as_ref()),
        plural: Arc::from(kind.plural.as_ref()),
        uid: Arc::clone(&application.object.uid),
    }
}

fn written_pause(known: &Known<'_>, present: &Value, original: &Value, way: Way, want: &Want, now: Timestamp) -> Move {
    let application = known.application;
    let mut edits = Edits::default();
    let after = match way {
        Way::Disabled => {
            let mut block = present.clone();
            if let Some(block) = block.as_object_mut() {
                block.insert("enabled".to_owned(), Value::Bool(false));
            }
            Some(block)
        }
        Way::Removed => None,
    };
    edits.knobs.insert(0, after);
    edits
        .annotations
        .insert(ORIGINAL_AUTOMATED.to_owned(), Some(Saved::text(original, way)));
    edits
        .annotations
        .insert(DOWN_SINCE.to_owned(), Some(format_instant(now)));
    let request = Request::Patch {
        body: edits
            .without_idle(&application.object)
            .patch(&application.object, Preconditions::State),
        subresource: None,
        dry_run: false,
    };
    Move::new(
        target(application),
        &application.object.resource_version,
        request,
        Purpose::Pause,
        want,
    )
    .pausing(way)
}

fn data(known: &Known<'_>, original: &Value, way: Way, now: Timestamp) -> [(&'static str, String); 5] {
    let object = &known.application.object;
    [
        ("application.json", Saved::text(original, way)),
        ("since", format_instant(now)),
        ("targetNamespace", object.namespace.to_string()),
        ("targetApplication", object.name.to_string()),
        ("targetUid", object.uid.to_string()),
    ]
}

/// Writes the record of one that has none.
fn record(known: &Known<'_>, original: &Value, way: Way, want: &Want, now: Timestamp) -> Move {
    let facts = &known.application.object;
    let id = format!(
        "offhours-argo-state-{}",
        short_hash(&format!("{}/{}", facts.namespace, facts.name))
    );
    let object = config_map_ref(known.own_namespace, id);
    let labels = [
        ("app.kubernetes.io/name", "offhours"),
        (STATE_TYPE, STATE_ARGO),
        (TARGET_NAMESPACE, &*facts.namespace),
        (TARGET_APPLICATION, &*facts.name),
    ];
    let data = data(known, original, way, now);
    let data: Vec<(&str, &str)> = data.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let body = manifest(&object, &labels, &data);
    Move::new(
        config_map(object, &Arc::from("")),
        &Arc::from(""),
        Request::Create(body),
        Purpose::Backup,
        want,
    )
}

/// Writes a record anew.
fn renewed(state: &State, known: &Known<'_>, original: &Value, way: Way, want: &Want, now: Timestamp) -> Move {
    let data = data(known, original, way, now);
    let data: Vec<(&str, &str)> = data.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let request = Request::Patch {
        body: crate::states::replaced(&state.uid, &state.resource_version, &data),
        subresource: None,
        dry_run: false,
    };
    Move::new(
        config_map(state.object.clone(), &state.uid),
        &state.resource_version,
        request,
        Purpose::Backup,
        want,
    )
}

fn resume(known: &Known<'_>, want: &Want) -> Look {
    let application = known.application;
    let mut look = Look::settled();
    let object = &application.object;
    let annotated = object.annotation(ORIGINAL_AUTOMATED).is_some() || object.annotation(DOWN_SINCE).is_some();
    if let Some(Err(text)) = application.saved()
        && known.state.is_none()
    {
        look.trouble = Some(Skip {
            reason: "RecordUnreadable",
            message: format!(
                "Application {} is not resumed: its record {text:?} cannot be read",
                application.reference()
            ),
            tell: true,
            again: None,
        });
        return look;
    }
    let mut edits = Edits::default();
    if let Some(saved) = saved(known)
        && let Some(block) = resumed(application.automated(), &saved)
    {
        edits.knobs.insert(0, Some(block));
    }
    if annotated {
        edits.annotations.insert(ORIGINAL_AUTOMATED.to_owned(), None);
        edits.annotations.insert(DOWN_SINCE.to_owned(), None);
    }
    let edits = edits.without_idle(object);
    if !edits.is_empty() {
        let mut body = edits.patch(object, Preconditions::State);
        if known.sync && application.operation.is_none() {
            body.0.push(PatchOperation::Add(AddOperation {
                path: PointerBuf::from_tokens(["operation"]),
                value: json!({"initiatedBy": {"username": "offhours"}, "sync": {"syncStrategy": {"hook": {}}}}),
            }));
        }
        let request = Request::Patch {
            body,
            subresource: None,
            dry_run: false,
        };
        look.moves.push(Move::new(
            target(application),
            &object.resource_version,
            request,
            Purpose::Resume,
            want,
        ));
    } else if let Some(state) = known.state {
        look.moves.push(dropped(state, want));
    }
    look
}

/// What `automated` is to be after the pause. `None`: it stays as it is, which is somebody's wish.
fn resumed(present: Option<&Value>, saved: &Saved) -> Option<Value> {
    match present {
        // Somebody else took the whole block away where we had only switched it off.
        None if saved.way == Some(Way::Disabled) => None,
        None => Some(saved.automated.clone()),
        Some(block) if block.get("enabled").and_then(Value::as_bool) == Some(false) => {
            let mut block = block.clone();
            let map = block.as_object_mut()?;
            match saved.automated.get("enabled") {
                Some(enabled) => map.insert("enabled".to_owned(), enabled.clone()),
                None => map.remove("enabled"),
            };
            Some(block)
        }
        Some(_) => None,
    }
}

/// The ConfigMap is not needed any more.
pub fn dropped(state: &State, want: &Want) -> Move {
    Move::new(
        config_map(state.object.clone(), &state.uid),
        &state.resource_version,
        Request::Delete,
        Purpose::Backup,
        want,
    )
}
