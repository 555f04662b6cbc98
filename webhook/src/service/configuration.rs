//! What a request configures: our labels and annotations, checked where they are written and only where they change. Pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::annotations::{
    self, ASLEEP_UNTIL, AWAKE_UNTIL, DOWN_REPLICAS, DOWNTIME, PROTECTED, REASON, SCHEDULE, TIME_ZONE, UPTIME, Until,
};
use shared::messages::{self, Deed, Subject};
use shared::patch::{self, Edits};
use shared::policy::{Schedule, Schedules};
use shared::schedule::{State, Zone};
use shared::verdict::Verdict;
use shared::workload::{Keys, Namespace, ObjectRef, Workload};

use super::asker::Asker;
use super::facts::{Change, changes, differs};
use super::{Ask, Authority, Bench, Outcome, Ruling, Tell};

/// Where keys of ours are written.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    /// On a workload.
    Workload {
        workload: &'p Workload,
        old: Option<&'p Workload>,
        namespace: Option<&'p Namespace>,
    },
    /// On a namespace.
    Namespace {
        namespace: &'p Namespace,
        old: Option<&'p Namespace>,
    },
}

impl<'p> Place<'p> {
    fn annotations(&self) -> Option<&'p Keys> {
        match self {
            Self::Workload { workload, .. } => workload.annotations.as_ref(),
            Self::Namespace { namespace, .. } => namespace.annotations.as_ref(),
        }
    }

    fn old_annotations(&self) -> Option<&'p Keys> {
        match self {
            Self::Workload { old, .. } => old.and_then(|old| old.annotations.as_ref()),
            Self::Namespace { old, .. } => old.and_then(|old| old.annotations.as_ref()),
        }
    }

    fn labels(&self) -> Option<&'p Keys> {
        match self {
            Self::Workload { workload, .. } => workload.labels.as_ref(),
            Self::Namespace { namespace, .. } => namespace.labels.as_ref(),
        }
    }

    fn old_labels(&self) -> Option<&'p Keys> {
        match self {
            Self::Workload { old, .. } => old.and_then(|old| old.labels.as_ref()),
            Self::Namespace { old, .. } => old.and_then(|old| old.labels.as_ref()),
        }
    }

    fn subject(&self) -> Subject<'p> {
        match self {
            Self::Workload { workload, .. } => Subject::workload(workload),
            Self::Namespace { namespace, .. } => Subject::namespace(&namespace.name),
        }
    }

    fn object(&self) -> (ObjectRef, Arc<str>) {
        match self {
            Self::Workload { workload, .. } => (workload.object_ref(), Arc::clone(&workload.uid)),
            Self::Namespace { namespace, .. } => (
                ObjectRef {
                    group: Arc::from(""),
                    kind: Arc::from("Namespace"),
                    namespace: Arc::from(""),
                    name: Arc::clone(&namespace.name),
                },
                Arc::clone(&namespace.uid),
            ),
        }
    }

    fn annotation(&self, key: &str) -> Option<&'p str> {
        Some(self.annotations()?.get(key)?)
    }

    fn changes(&self) -> impl Iterator<Item = Change<'p>> {
        changes(self.annotations(), self.old_annotations(), false).chain(changes(
            self.labels(),
            self.old_labels(),
            true,
        ))
    }
}

/// The edits that turn durations into instants, cut what is too long, and drop durations that come from Git.
pub(super) fn instants(
    place: &Place<'_>,
    who: &Asker<'_>,
    schedule: Option<&Arc<Schedule>>,
    bench: &Bench<'_>,
    warnings: &mut Vec<String>,
) -> Edits {
    let mut edits = Edits::default();
    for key in [AWAKE_UNTIL, ASLEEP_UNTIL] {
        let Some(text) = place.annotation(key) else { continue };
        if !differs(place.annotations(), place.old_annotations(), key) {
            continue;
        }
        // What cannot be parsed is refused when the final object is checked.
        let Ok(until) = annotations::parse_until(key, text) else {
            continue;
        };
        let from_git = who.is_pipeline()
            || schedule
                .and_then(|schedule| schedule.enforcement.rewrite_for.as_ref())
                .is_some_and(|subjects| who.is_among(subjects));
        if from_git {
            if let Until::For(_) = until {
                let before = place.old_annotations().and_then(|keys| keys.get(key));
                edits
                    .annotations
                    .insert(key.to_owned(), before.map(ToString::to_string));
                warnings.push(messages::duration_dropped(&place.subject(), key));
            }
            continue;
        }
        let Some(mut end) = until.instant(bench.now) else {
            continue;
        };
        let limit = schedule
            .filter(|_| key == AWAKE_UNTIL)
            .and_then(|schedule| schedule.enforcement.max_wake);
        let mut cut = false;
        if let Some((limit, latest)) = limit.and_then(|limit| Some((limit, bench.now.checked_add(limit).ok()?)))
            && end > latest
        {
            end = latest;
            cut = true;
            let until = messages::instant(end, &zone(schedule));
            warnings.push(messages::wake_cut(&place.subject(), &span(limit), &until));
        }
        if cut || matches!(until, Until::For(_)) {
            edits.annotations.extend(patch::fix_instant(key, end).annotations);
        }
    }
    edits
}

fn zone(schedule: Option<&Arc<Schedule>>) -> Zone {
    schedule
        .and_then(|schedule| schedule.timeline.as_ref().ok())
        .map_or(Zone::UTC, |timeline| timeline.zone().clone())
}

fn span(duration: SignedDuration) -> String {
    format!("{duration:#}").replace(' ', "")
}

/// Checks what a request sets. `before`: the verdict on the object as it was. `Err`: the ruling, where it is not let pass.
pub(super) fn check(
    place: &Place<'_>,
    before: Option<&Verdict>,
    who: &Asker<'_>,
    bench: &Bench<'_>,
    warnings: &mut Vec<String>,
    tell: &mut Vec<Tell>,
) -> Result<(), Box<Ruling>> {
    let mut windows = false;
    let mut opening: Option<Change<'_>> = None;
    for change in place.changes() {
        windows |= !change.is_label && [UPTIME, DOWNTIME, TIME_ZONE].contains(&change.key);
        if opens(&change) {
            opening = opening.or(Some(change));
        }
        check_one(&change, bench.schedules, warnings)?;
    }
    if windows {
        check_windows(place, warnings)?;
    }
    match opening {
        Some(change) => may_open(place, &change, before, who, bench, tell),
        None => Ok(()),
    }
}

/// Whether a change may open a hold.
fn opens(change: &Change<'_>) -> bool {
    match change.key {
        SCHEDULE => change.is_label,
        AWAKE_UNTIL => !change.is_label && change.value.is_some(),
        PROTECTED => change.value.is_some_and(|value| value != "false"),
        UPTIME | DOWNTIME | TIME_ZONE | DOWN_REPLICAS => !change.is_label,
        _ => false,
    }
}

fn misconfigured(problem: &impl std::fmt::Display) -> Box<Ruling> {
    Box::new(Ruling::deny(Outcome::Misconfigured, messages::problem(problem)))
}

fn check_one(change: &Change<'_>, schedules: &Schedules, warnings: &mut Vec<String>) -> Result<(), Box<Ruling>> {
    let Some(value) = change.value else { return Ok(()) };
    if let Some(problem) = annotations::unknown_key(change.key) {
        warnings.push(messages::problem(&problem));
        return Ok(());
    }
    let label_only = change.key == SCHEDULE;
    let annotation_only = [
        UPTIME,
        DOWNTIME,
        TIME_ZONE,
        AWAKE_UNTIL,
        ASLEEP_UNTIL,
        DOWN_REPLICAS,
        REASON,
    ]
    .contains(&change.key);
    if (label_only && !change.is_label) || (annotation_only && change.is_label) {
        warnings.push(messages::wrong_place(change.key, label_only));
        return Ok(());
    }
    annotations::check(change.key, value).map_err(|problem| misconfigured(&problem))?;
    if change.key == SCHEDULE && schedules.get(value).is_none() && schedules.unavailability().is_none() {
        warnings.push(messages::no_such_schedule(value));
    }
    Ok(())
}

fn check_windows(place: &Place<'_>, warnings: &mut Vec<String>) -> Result<(), Box<Ruling>> {
    let (uptime, downtime) = (place.annotation(UPTIME), place.annotation(DOWNTIME));
    let own_zone = place.annotation(TIME_ZONE);
    if uptime.is_none() && downtime.is_none() {
        return match own_zone.map(shared::schedule::parse_zone) {
            Some(Err(why)) => Err(misconfigured(&format!("{TIME_ZONE}: {why}"))),
            _ => Ok(()),
        };
    }
    let zone = own_zone.or_else(|| match place {
        Place::Workload { namespace, .. } => namespace.and_then(|namespace| namespace.annotation(TIME_ZONE)),
        Place::Namespace { .. } => None,
    });
    match shared::schedule::from_annotations(uptime, downtime, zone) {
        Ok((_, told)) => {
            warnings.extend(told.iter().map(messages::problem));
            Ok(())
        }
        Err(problems) => match problems.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(misconfigured(first)),
        },
    }
}

/// Whether the who may change what opens a hold. What opens one is told.
fn may_open(
    place: &Place<'_>,
    change: &Change<'_>,
    before: Option<&Verdict>,
    who: &Asker<'_>,
    bench: &Bench<'_>,
    tell: &mut Vec<Tell>,
) -> Result<(), Box<Ruling>> {
    let guards = guards(place, before, bench);
    let guard = guards
        .iter()
        .find(|schedule| schedule.enforcement.guard_overrides && !who.is_exempt(&schedule.enforcement));
    if let Some(schedule) = guard {
        match bench.authority {
            Authority::Granted => {}
            Authority::NotAsked => {
                let mut ruling = Ruling::pass();
                ruling.ask = Some(Ask {
                    schedule: Arc::clone(&schedule.name),
                });
                return Err(Box::new(ruling));
            }
            Authority::Refused(why) => {
                let message = messages::override_refused(who.user(), &schedule.name, change.key, why);
                return Err(Box::new(Ruling::deny(Outcome::Denied, message)));
            }
        }
    }
    let down = match before {
        Some(verdict) => verdict.state == State::Down,
        None => guards.iter().any(|schedule| is_down(schedule, bench.now)),
    };
    let updates = match place {
        Place::Workload { old, .. } => old.is_some(),
        Place::Namespace { old, .. } => old.is_some(),
    };
    if updates && (down || guard.is_some()) {
        let (object, uid) = place.object();
        let key = change.key;
        let deed = match change.value {
            Some(value) => Deed::Set { key, value },
            None => Deed::Removed { key },
        };
        tell.push(Tell {
            object,
            uid,
            reason: super::OVERRIDDEN,
            message: messages::told(who.user(), deed),
        });
    }
    Ok(())
}

fn is_down(schedule: &Schedule, now: Timestamp) -> bool {
    schedule
        .present(now)
        .is_ok_and(|present| present.moment.state == State::Down)
}

/// The schedules whose hold a change might open.
fn guards(place: &Place<'_>, before: Option<&Verdict>, bench: &Bench<'_>) -> Vec<Arc<Schedule>> {
    match place {
        Place::Workload { old: Some(_), .. } => before
            .and_then(|verdict| verdict.schedule.clone())
            .into_iter()
            .collect(),
        Place::Workload {
            workload,
            old: None,
            namespace,
        } => {
            // What would claim it without its own keys.
            let mut plain = (*workload).clone();
            for keys in [&mut plain.annotations, &mut plain.labels].into_iter().flatten() {
                keys.retain(|key, _| !key.starts_with(annotations::PREFIX));
            }
            bench.verdict(&plain, *namespace, None).schedule.into_iter().collect()
        }
        Place::Namespace { namespace, old } => of_namespace(old.unwrap_or(namespace), bench.schedules),
    }
}

/// The schedules that claim what is in a namespace.
pub(super) fn of_namespace(namespace: &Namespace, schedules: &Schedules) -> Vec<Arc<Schedule>> {
    if let Some(schedule) = namespace.label(SCHEDULE).and_then(|name| schedules.get(name)) {
        return vec![Arc::clone(schedule)];
    }
    schedules
        .selecting()
        .iter()
        .filter(|schedule| {
            schedule.selector.as_ref().is_some_and(|selector| {
                selector
                    .namespaces
                    .as_ref()
                    .is_some_and(|wanted| wanted.matches(namespace.labels.as_ref()))
            })
        })
        .map(Arc::clone)
        .collect()
}
