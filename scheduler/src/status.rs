//! What is reported on a schedule: pure. (Client not required.)

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use shared::annotations::format_instant;
use shared::api::{Condition, FOUGHT_OVER, OffHoursScheduleStatus, PlannedTransition, WorkloadCounts};
use shared::policy::Schedule;
use shared::schedule::{LATEST, State};

use crate::decide::assess::Class;
use crate::decide::decider::Group;

/// How many transitions to come are listed.
const LISTED_TRANSITIONS: usize = 3;
/// How many objects a message names.
const LISTED_OBJECTS: usize = 10;
/// Messages stay well below what the API takes.
const LONGEST_MESSAGE: usize = 2_000;

/// A trouble of a schedule as a whole: a kind that cannot be read, say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// CamelCase reason.
    pub reason: &'static str,
    /// One line.
    pub message: String,
}

/// The status of a schedule at `now`. `former` is what was reported last: conditions that have not changed keep their time.
/// `fight` is what webhooks last told of sleeps that are fought over.
pub fn status(
    schedule: &Schedule,
    group: Option<&Group>,
    troubles: &[Trouble],
    former: Option<&OffHoursScheduleStatus>,
    fight: Option<&Condition>,
    now: Timestamp,
) -> OffHoursScheduleStatus {
    let mut status = OffHoursScheduleStatus {
        observed_generation: Some(schedule.generation),
        workloads: Some(counts(group)),
        ..OffHoursScheduleStatus::default()
    };
    let unknown = match schedule.present(now) {
        Ok(present) => {
            status.state = Some(present.moment.state.to_string());
            status.since = present.since.map(format_instant);
            status.decided_by = Some(present.moment.decided_by.to_string());
            status.next = next(schedule, now);
            (present.moment.state == State::Unknown).then(|| {
                present
                    .moment
                    .reason
                    .unwrap_or_else(|| Arc::from("the schedule does not speak of this instant"))
            })
        }
        Err(why) => {
            status.state = Some(State::Unknown.to_string());
            Some(why)
        }
    };
    if schedule.suspend || schedule.deleting {
        status.state = Some(State::Up.to_string());
        status.decided_by = Some("suspended".to_owned());
        status.since = None;
        status.next = Vec::new();
    }
    let valid = match &schedule.timeline {
        Ok(_) => said("Valid", true, "Accepted", "the spec can be acted upon"),
        Err(why) => said(
            "Valid",
            false,
            "Invalid",
            &format!("{why}; nothing is written or held until that is mended"),
        ),
    };
    let suspended = match (schedule.deleting, schedule.suspend) {
        (true, _) => said("Suspended", true, "Deleting", "what sleeps is restored first"),
        (false, true) => said(
            "Suspended",
            true,
            "Suspended",
            "spec.suspend is true: everything is up, nothing is held",
        ),
        (false, false) => said("Suspended", false, "Active", "the schedule is followed"),
    };
    let (fight, is_on) = fought_over(&status, fight);
    let mut troubles = troubles.to_vec();
    troubles.extend(fight.as_ref().filter(|_| is_on).map(|fight| Trouble {
        reason: "HeldRepeatedly",
        message: fight.message.clone(),
    }));
    let degraded = degraded(group, &troubles, unknown.as_ref().filter(|_| schedule.timeline.is_ok()));
    let ready = if schedule.timeline.is_err() {
        said(
            "Ready",
            false,
            "Invalid",
            "the spec is invalid, see the condition Valid",
        )
    } else if degraded.status == "True" {
        said("Ready", false, &degraded.reason, "see the condition Degraded")
    } else if group.is_some_and(Group::is_moving) {
        said("Ready", false, "Moving", "workloads are on their way")
    } else {
        said("Ready", true, "Settled", "every workload is where it should be")
    };
    status.conditions = [ready, valid, suspended, degraded]
        .into_iter()
        .map(|condition| timed(condition, schedule.generation, former, now))
        .collect();
    // What webhooks said stays as they said it; its end is ours to say.
    status.conditions.extend(fight.map(|fight| {
        if is_on || fight.status != "True" {
            return fight;
        }
        let ended = said(
            FOUGHT_OVER,
            false,
            "WindowEnded",
            "the window in which it was fought over has ended",
        );
        timed(ended, schedule.generation, former, now)
    }));
    status
}

/// What webhooks told, and whether it is of the window that is on now.
fn fought_over(status: &OffHoursScheduleStatus, fight: Option<&Condition>) -> (Option<Condition>, bool) {
    let instant = |text: &str| text.parse::<Timestamp>().ok();
    let is_on = fight.is_some_and(|fight| {
        let since = status.since.as_deref().and_then(instant);
        let told = instant(&fight.last_transition_time);
        fight.status == "True" && status.state.as_deref() == Some("Down") && (since.is_none() || told >= since)
    });
    (fight.cloned(), is_on)
}

fn counts(group: Option<&Group>) -> WorkloadCounts {
    let count = |class| group.map_or(0, |group| group.count(class));
    let (up, down, protected, failing) = (
        count(Class::Up),
        count(Class::Down),
        count(Class::Protected),
        count(Class::Failing),
    );
    WorkloadCounts {
        total: up + down + protected + failing,
        up,
        down,
        protected,
        failing,
    }
}

fn next(schedule: &Schedule, now: Timestamp) -> Vec<PlannedTransition> {
    let Ok(timeline) = &schedule.timeline else {
        return Vec::new();
    };
    // A change at `now` itself has happened.
    let after = now.checked_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(now);
    let transitions = timeline
        .transitions(after, LATEST, LISTED_TRANSITIONS)
        .unwrap_or_default();
    transitions
        .into_iter()
        .map(|transition| PlannedTransition {
            at: format_instant(transition.at),
            local: transition.local().to_string(),
            to: transition.to.to_string(),
            decided_by: Some(transition.decided_by.to_string()),
            reason: transition.reason.as_deref().map(str::to_owned),
        })
        .collect()
}

fn degraded(group: Option<&Group>, troubles: &[Trouble], unknown: Option<&Arc<str>>) -> Condition {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    if let Some(why) = unknown {
        reasons.entry("Unknown").or_default().push(why.to_string());
    }
    for trouble in troubles {
        reasons.entry(trouble.reason).or_default().push(trouble.message.clone());
    }
    for (object, skip) in group.map(Group::troubles).into_iter().flatten() {
        reasons
            .entry(skip.reason)
            .or_default()
            .push(format!("{object}: {}", skip.message));
    }
    // The reason of most objects names the condition.
    let Some((reason, _)) = reasons.iter().max_by_key(|(_, messages)| messages.len()) else {
        return said("Degraded", false, "AsExpected", "nothing is amiss");
    };
    let all: usize = reasons.values().map(Vec::len).sum();
    let listed: Vec<&str> = reasons
        .values()
        .flatten()
        .take(LISTED_OBJECTS)
        .map(String::as_str)
        .collect();
    let mut message = listed.join("; ");
    if all > listed.len() {
        message = format!("{message}; and {} more", all - listed.len());
    }
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message.push('…');
    }
    said("Degraded", true, reason, &message)
}

fn said(type_: &str, holds: bool, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..Condition::default()
    }
}

fn timed(
    mut condition: Condition,
    generation: i64,
    former: Option<&OffHoursScheduleStatus>,
    now: Timestamp,
) -> Condition {
    let same = former
        .into_iter()
        .flat_map(|former| &former.conditions)
        .find(|former| former.type_ == condition.type_ && former.status == condition.status);
    condition.last_transition_time = same.map_or_else(|| format_instant(now), |same| same.last_transition_time.clone());
    condition.observed_generation = Some(generation);
    condition
}

#[cfg(test)]
mod tests;
