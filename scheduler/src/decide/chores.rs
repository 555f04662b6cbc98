//! Writes beside workloads: instants for wakes on namespaces, and the finalizer of schedules. (Client not required.)

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::annotations::{ASLEEP_UNTIL, AWAKE_UNTIL, Until, parse_until};
use shared::api::{FINALIZER, GROUP, VERSION};
use shared::patch::{self, Preconditions};
use shared::policy::Origin;
use shared::verdict::NEVER_TOUCHED;
use shared::workload::{Namespace, ObjectRef};

use super::action::{Action, Note, Purpose, Request, Target};
use super::assess::namespace_ref;
use super::decider::Group;
use super::memory::{Memory, later};
use super::snapshot::{Resource, Snapshot};

/// How long the restores of a schedule that is being deleted may fail before it is let go.
pub const FINALIZER_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// How many objects a message lists by name.
const LISTED: usize = 20;

/// A write beside workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct Chore {
    /// The write.
    pub action: Action,
    /// The version that it was decided on.
    pub version: Arc<str>,
}

/// All that are wanted now.
pub fn chores(
    snapshot: &Snapshot,
    groups: &BTreeMap<Arc<str>, Group>,
    memory: &Memory,
    now: Timestamp,
) -> BTreeMap<ObjectRef, Chore> {
    let namespaces = snapshot
        .durations()
        .filter_map(|namespace| fix_instants(snapshot, namespace, now));
    let schedules = snapshot
        .resources()
        .filter_map(|(name, resource)| finalizer(snapshot, name, resource, groups.get(name), now));
    namespaces
        .chain(schedules)
        .map(|chore| (chore.action.target.object.clone(), chore))
        .filter(|(object, _)| memory.paused(object, now).is_none())
        .collect()
}

fn fix_instants(snapshot: &Snapshot, namespace: &Namespace, now: Timestamp) -> Option<Chore> {
    let name = &namespace.name;
    let untouched = NEVER_TOUCHED.contains(&name.as_ref()) || *name == snapshot.own_namespace || namespace.terminating;
    if untouched || snapshot.forced.is_some() {
        return None;
    }
    let schedule = namespace
        .label(shared::annotations::SCHEDULE)
        .and_then(|name| snapshot.schedules().get(name));
    let limit = schedule.and_then(|schedule| schedule.enforcement.max_wake);
    let mut edits = patch::Edits::default();
    let mut cut = None;
    for key in [AWAKE_UNTIL, ASLEEP_UNTIL] {
        let Some(text) = namespace.annotation(key) else {
            continue;
        };
        match parse_until(key, text) {
            Ok(Until::For(wanted)) => {
                let allowed = limit.filter(|limit| key == AWAKE_UNTIL && wanted > *limit);
                let at = later(now, allowed.unwrap_or(wanted));
                if allowed.is_some() {
                    cut = Some(at);
                }
                edits.annotations.extend(patch::fix_instant(key, at).annotations);
            }
            Ok(Until::Instant(at)) if at <= now => {
                edits.annotations.insert(key.to_owned(), None);
            }
            Ok(Until::Instant(_)) | Err(_) => {}
        }
    }
    let action = Action {
        target: Target {
            object: namespace_ref(name),
            version: Arc::from("v1"),
            plural: Arc::from("namespaces"),
            uid: Arc::clone(&namespace.uid),
        },
        request: Request::Patch {
            body: edits.namespace_patch(namespace, Preconditions::State),
            subresource: None,
            dry_run: false,
        },
        purpose: Purpose::FixInstant,
        schedule: schedule.map(|schedule| Arc::clone(&schedule.name)),
        event: cut.map(|at| Note {
            reason: "WakeCut",
            message: format!("{AWAKE_UNTIL} was longer than the schedule's maxWake allows; it ends at {at}"),
            warning: true,
        }),
        disown: false,
    };
    Some(Chore {
        action,
        version: Arc::clone(&namespace.resource_version),
    })
}

/// A schedule carries our finalizer, so that what it put to sleep is restored before it goes away.
fn finalizer(
    snapshot: &Snapshot,
    name: &Arc<str>,
    resource: &Resource,
    group: Option<&Group>,
    now: Timestamp,
) -> Option<Chore> {
    if !snapshot.finalizers {
        return None;
    }
    let schedule = snapshot.schedules().get(name)?;
    if schedule.origin != Origin::Resource {
        return None;
    }
    let sleeping = group.map(Group::asleep).into_iter().flatten();
    let mut event = None;
    let wanted = match resource.deleted {
        None => true,
        Some(at) if now < later(at, FINALIZER_PATIENCE) => sleeping.count() > 0 || group.is_some_and(Group::is_moving),
        Some(_) => {
            let names: Vec<String> = sleeping.clone().take(LISTED).map(ToString::to_string).collect();
            let more = sleeping.count().saturating_sub(names.len());
            if !names.is_empty() {
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                event = Some(Note {
                    reason: "NotRestored",
                    message: format!(
                        "deleted although these could not be restored within ten minutes; they keep their records: {}{more}",
                        names.join(", ")
                    ),
                    warning: true,
                });
            }
            false
        }
    };
    // Kubernetes takes no new finalizer on what is being deleted.
    if wanted && resource.deleted.is_some() {
        return None;
    }
    let body = patch::finalizer(
        &resource.uid,
        &resource.resource_version,
        &resource.finalizers,
        FINALIZER,
        wanted,
    )?;
    let action = Action {
        target: Target {
            object: schedule_ref(name),
            version: Arc::from(VERSION),
            plural: Arc::from("offhoursschedules"),
            uid: Arc::clone(&resource.uid),
        },
        request: Request::Patch {
            body,
            subresource: None,
            dry_run: false,
        },
        purpose: Purpose::Finalizer,
        schedule: Some(Arc::clone(name)),
        event,
        disown: false,
    };
    Some(Chore {
        action,
        version: Arc::clone(&resource.resource_version),
    })
}

/// The key of a schedule among objects.
pub fn schedule_ref(name: &Arc<str>) -> ObjectRef {
    ObjectRef {
        group: Arc::from(GROUP),
        kind: Arc::from("OffHoursSchedule"),
        namespace: Arc::from(""),
        name: Arc::clone(name),
    }
}

/// When a schedule that is being deleted is let go whatever sleeps.
pub fn patience_ends(resource: &Resource) -> Option<Timestamp> {
    resource.deleted.map(|at| later(at, FINALIZER_PATIENCE))
}
