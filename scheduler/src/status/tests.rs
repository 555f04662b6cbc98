use serde_json::json;
use shared::annotations::PROTECTED;

use super::*;
use crate::decide::action::Purpose;
use crate::decide::decider::Decider;
use crate::decide::memory::{Memory, Outcome};
use crate::decide::snapshot::Dirty;
use crate::decide::tests::world::{NIGHT, World, at, office, schedules};
use shared::policy::Origin;

fn condition<'s>(status: &'s OffHoursScheduleStatus, name: &str) -> &'s Condition {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == name)
        .unwrap()
}

/// Three Deployments: one cannot be written, one is protected.
fn decider(now: &str) -> Decider {
    let mut world = World::default();
    world.namespace("shop", "office");
    let stuck = world.deployment("shop", "stuck", 2);
    world.deployment("shop", "web", 2);
    let safe = world.deployment("shop", "safe", 2);
    world.annotate(&safe, PROTECTED, Some("true"));
    let snapshot = world.snapshot(&schedules([office()]));
    let mut memory = Memory::default();
    let failed = Outcome::Failed {
        reason: "Forbidden",
        message: "failed to patch deployments.apps".to_owned(),
        retry_after: None,
    };
    let workload = world.workload(&stuck);
    memory.note(
        &stuck,
        &workload.uid,
        &workload.resource_version,
        Purpose::Down,
        &failed,
        at(now),
    );
    let mut decider = Decider::new(memory);
    decider.update(&snapshot, &Dirty::everything(), at(now));
    decider
}

#[test]
fn a_status_counts_its_workloads_and_names_what_fails() {
    let decider = decider(NIGHT);
    let status = status(&office(), decider.group("office"), &[], None, None, at(NIGHT));
    let expected = json!({"total": 3, "up": 1, "down": 0, "protected": 1, "failing": 1});
    assert_eq!(serde_json::to_value(status.workloads).unwrap(), expected);
    assert_eq!(
        (status.state.as_deref(), status.decided_by.as_deref()),
        (Some("Down"), Some("uptime"))
    );
    let degraded = condition(&status, "Degraded");
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", "Forbidden")
    );
    assert!(degraded.message.contains("deployment shop/stuck") && degraded.message.contains("patch"));
    assert_eq!(condition(&status, "Ready").status, "False");
    assert_eq!(condition(&status, "Valid").status, "True");
}

#[test]
fn the_next_three_transitions_name_the_zone() {
    let status = status(&office(), None, &[], None, None, at(NIGHT));
    let next: Vec<_> = status
        .next
        .iter()
        .map(|next| (next.at.as_str(), next.to.as_str()))
        .collect();
    let expected = [
        ("2026-12-02T08:00:00Z", "Up"),
        ("2026-12-02T20:00:00Z", "Down"),
        ("2026-12-03T08:00:00Z", "Up"),
    ];
    assert_eq!(next, expected);
    assert!(status.next[0].local.contains("[UTC]"), "{}", status.next[0].local);
    assert_eq!(status.since.as_deref(), Some("2026-12-01T20:00:00Z"));
    assert_eq!(serde_json::to_value(status.workloads).unwrap()["total"], 0);
}

#[test]
fn conditions_keep_their_time_until_their_status_changes() {
    let first = status(&office(), None, &[], None, None, at(NIGHT));
    let later = status(&office(), None, &[], Some(&first), None, at("2026-12-01T22:30:00Z"));
    assert_eq!(first.conditions, later.conditions);
    let mut suspended = office();
    suspended.suspend = true;
    let after = status(&suspended, None, &[], Some(&later), None, at("2026-12-01T23:00:00Z"));
    assert_eq!(
        condition(&after, "Suspended").last_transition_time,
        "2026-12-01T23:00:00Z"
    );
    assert_eq!(condition(&after, "Valid").last_transition_time, NIGHT);
    assert_eq!(
        (after.state.as_deref(), after.decided_by.as_deref()),
        (Some("Up"), Some("suspended"))
    );
}

#[test]
fn an_invalid_schedule_is_unknown_and_says_why() {
    let broken = Schedule::new(
        "office",
        Origin::Resource,
        Err(Arc::from("spec.timeZone: no such zone")),
    );
    let status = status(&broken, None, &[], None, None, at(NIGHT));
    assert_eq!(status.state.as_deref(), Some("Unknown"));
    let valid = condition(&status, "Valid");
    assert_eq!(valid.status, "False");
    assert!(valid.message.contains("spec.timeZone: no such zone"));
    assert_eq!(condition(&status, "Ready").reason, "Invalid");
}

#[test]
fn case_7_01_a_kind_without_rights_is_named_in_the_condition() {
    let trouble = Trouble {
        reason: "Forbidden",
        message: "jobs.batch is forbidden: cannot list resource \"jobs\"".to_owned(),
    };
    let status = status(&office(), None, &[trouble], None, None, at(NIGHT));
    let degraded = condition(&status, "Degraded");
    assert_eq!(degraded.reason, "Forbidden");
    assert!(degraded.message.contains("jobs"));
}

#[test]
fn rule_a8_what_is_fought_over_is_degraded_until_the_window_ends() {
    let fight = Condition {
        type_: FOUGHT_OVER.to_owned(),
        status: "True".to_owned(),
        reason: "HeldRepeatedly".to_owned(),
        message: "deployment \"web\" in shop was held 6 times in ten minutes".to_owned(),
        last_transition_time: format_instant(at(NIGHT)),
        observed_generation: None,
    };
    let night = status(&office(), None, &[], None, Some(&fight), at(NIGHT));
    assert_eq!(night.state.as_deref(), Some("Down"));
    let degraded = condition(&night, "Degraded");
    assert_eq!((&*degraded.status, &*degraded.reason), ("True", "HeldRepeatedly"));
    assert_eq!(degraded.message, fight.message);
    // What the webhook said is left as it is.
    assert_eq!(condition(&night, FOUGHT_OVER), &fight);

    let next = night.next.first().unwrap();
    assert_eq!(next.to, "Up");
    let day = status(&office(), None, &[], Some(&night), Some(&fight), at(&next.at));
    assert_eq!(condition(&day, "Degraded").status, "False");
    let ended = condition(&day, FOUGHT_OVER);
    assert_eq!((&*ended.status, &*ended.reason), ("False", "WindowEnded"));

    // A webhook's word of a night before says nothing of this one.
    let next = day.next.first().unwrap();
    assert_eq!(next.to, "Down");
    let again = status(&office(), None, &[], Some(&day), Some(&fight), at(&next.at));
    assert_eq!(condition(&again, "Degraded").status, "False");
    let again = status(&office(), None, &[], Some(&day), Some(ended), at(&next.at));
    assert_eq!(condition(&again, FOUGHT_OVER), ended);
}
