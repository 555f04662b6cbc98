//! Cases of other products that concern what is decided, and the faults of the engine that ours replaces.

use std::sync::Arc;

use serde_json::json;
use shared::annotations::DownReplicas;
use shared::annotations::{
    ASLEEP, AWAKE_UNTIL, DOWN_REPLICAS, DOWN_SINCE, DOWNTIME, ORIGINAL_REPLICAS, PROTECTED, SCHEDULE, TIME_ZONE, UPTIME,
};
use shared::api::KindFilter;
use shared::policy::{Origin, Schedule, Schedules};
use shared::schedule::{State, Timeline};
use shared::workload::ObjectRef;

use super::world::{DAY, MORNING, NEXT_NIGHT, NIGHT, Refused, World, at, office, schedules, up_in};
use crate::decide::action::Purpose;
use crate::decide::decide;
use crate::decide::memory::Memory;
use crate::decide::snapshot::Forced;

pub fn shop() -> (World, Arc<Schedules>) {
    let mut world = World::default();
    world.namespace("shop", "office");
    (world, schedules([office()]))
}

pub fn pass(world: &mut World, schedules: &Arc<Schedules>, now: &str) -> u32 {
    world.pass(schedules, &Memory::default(), at(now))
}

fn kinds(names: &[&str]) -> Vec<KindFilter> {
    let filter = |name: &&str| KindFilter {
        kind: (*name).to_owned(),
        ..KindFilter::default()
    };
    names.iter().map(filter).collect()
}

#[test]
fn case_2_01_the_record_is_written_once_per_window() {
    let (mut world, _) = shop();
    let mut schedule = office();
    schedule.down_replicas = DownReplicas::Count(2);
    let schedules = schedules([schedule]);
    let object = world.create("StatefulSet", "shop", "db", json!({"replicas": 3}));
    assert_eq!(pass(&mut world, &schedules, NIGHT), 1);
    assert_eq!(world.replicas(&object), Some(2));
    for _ in 0..2 {
        assert_eq!(pass(&mut world, &schedules, NIGHT), 0);
        assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("3"));
    }
    assert_eq!(pass(&mut world, &schedules, MORNING), 1);
    assert_eq!(world.replicas(&object), Some(3));
}

#[test]
fn case_2_03_record_and_knob_change_together_where_no_annotations_exist() {
    let (mut world, schedules) = shop();
    let object = world.create("StatefulSet", "shop", "db", json!({"replicas": 1}));
    assert!(world.objects[&object]["metadata"].get("annotations").is_none());
    let decision = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
    assert_eq!(decision.actions.len(), 1);
    world.apply(&decision.actions[0]).unwrap();
    assert_eq!(world.replicas(&object), Some(0));
    assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("1"));
}

#[test]
fn case_2_04_a_zero_set_by_day_is_respected() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    pass(&mut world, &schedules, NIGHT);
    pass(&mut world, &schedules, MORNING);
    assert_eq!(world.replicas(&object), Some(3));
    assert!(world.own_keys(&object).is_empty());
    world.edit(&object, |object| object["spec"]["replicas"] = json!(0));
    for now in [
        "2026-12-02T11:00:00Z",
        "2026-12-02T12:00:00Z",
        NEXT_NIGHT,
        "2026-12-03T09:00:00Z",
    ] {
        assert_eq!(pass(&mut world, &schedules, now), 0, "{now}");
        assert_eq!(world.replicas(&object), Some(0));
    }
}

#[test]
fn case_2_06_kinds_named_twice_are_a_set() {
    let (mut world, _) = shop();
    let mut schedule = office();
    schedule.kinds = Some(kinds(&["deployment", "deployment", "statefulset"]));
    let schedules = schedules([schedule]);
    let objects: Vec<ObjectRef> = [("a", 1), ("b", 2), ("c", 2), ("d", 1)]
        .map(|(name, replicas)| world.deployment("shop", name, replicas))
        .into();
    assert_eq!(pass(&mut world, &schedules, NIGHT), 4);
    assert_eq!(pass(&mut world, &schedules, MORNING), 4);
    let replicas: Vec<_> = objects.iter().map(|object| world.replicas(object).unwrap()).collect();
    assert_eq!(replicas, [1, 2, 2, 1]);
}

#[test]
fn case_2_07_protection_by_night_restores_once_and_forgets() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    pass(&mut world, &schedules, NIGHT);
    world.annotate(&object, PROTECTED, Some("true"));
    assert_eq!(pass(&mut world, &schedules, NIGHT), 1);
    assert_eq!(world.replicas(&object), Some(3));
    assert!(world.own_keys(&object).is_empty());
    world.edit(&object, |object| object["spec"]["replicas"] = json!(1));
    assert_eq!(pass(&mut world, &schedules, NIGHT), 0);
    assert_eq!(world.replicas(&object), Some(1));
}

#[test]
fn case_2_09_only_true_protects_and_other_words_are_told() {
    for (value, protects, told) in [
        ("true", true, false),
        ("false", false, false),
        ("yes", false, true),
        ("", false, true),
    ] {
        let (mut world, schedules) = shop();
        let object = world.deployment("shop", "web", 3);
        world.annotate(&object, PROTECTED, Some(value));
        let decision = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
        assert_eq!(decision.actions.is_empty(), protects, "{value}");
        let remark = decision
            .remarks
            .iter()
            .find(|remark| remark.note.reason == "ValueIgnored");
        assert_eq!(remark.is_some(), told, "{value}");
        assert!(remark.is_none_or(|remark| remark.note.message.contains(PROTECTED)));
    }
}

#[test]
fn rule_v8_and_case_2_10_grace_is_counted_from_creation_and_wakes_the_decision() {
    let (mut world, _) = shop();
    let mut schedule = office();
    schedule.grace = jiff::SignedDuration::from_mins(15);
    let schedules = schedules([schedule]);
    let object = world.deployment("shop", "web", 2);
    world.edit(&object, |object| {
        object["metadata"]["creationTimestamp"] = json!("2026-12-01T22:00:00Z");
    });
    let decision = decide(
        &world.snapshot(&schedules),
        &Memory::default(),
        at("2026-12-01T22:10:00Z"),
    );
    assert!(decision.actions.is_empty());
    assert_eq!(decision.next, Some(at("2026-12-01T22:15:00Z")));
    assert_eq!(pass(&mut world, &schedules, "2026-12-01T22:15:00Z"), 1);
    assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("2"));
}

#[test]
fn case_2_13_a_conflict_is_decided_anew_with_the_newer_number() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    let stale = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
    world.edit(&object, |object| object["spec"]["replicas"] = json!(4));
    assert_eq!(world.apply(&stale.actions[0]), Err(Refused::Conflict));
    pass(&mut world, &schedules, NIGHT);
    assert_eq!(world.replicas(&object), Some(0));
    assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("4"));
}

#[test]
fn case_2_17_records_of_every_older_form_are_restored() {
    let forms: [&[(&str, &str)]; 4] = [
        // K8s-OffHours
        &[(ORIGINAL_REPLICAS, "4")],
        // py-kube-downscaler and GoKubeDownscaler
        &[("downscaler/original-replicas", "4")],
        // ours, without the label
        &[(ORIGINAL_REPLICAS, "4"), (DOWN_SINCE, "2026-12-01T20:00:00Z")],
        // ours, whose annotation was spoilt while the label stayed
        &[
            (ORIGINAL_REPLICAS, "x"),
            (DOWN_SINCE, "2026-12-01T20:00:00Z"),
            (ASLEEP, "4"),
        ],
    ];
    for keys in forms {
        let (mut world, schedules) = shop();
        let object = world.deployment("shop", "web", 0);
        for (key, value) in keys {
            if *key == ASLEEP {
                world.label(&object, key, Some(value));
            } else {
                world.annotate(&object, key, Some(value));
            }
        }
        assert_eq!(pass(&mut world, &schedules, MORNING), 1, "{keys:?}");
        assert_eq!(world.replicas(&object), Some(4), "{keys:?}");
        let left = world.objects[&object]["metadata"]["annotations"].as_object().unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn case_2_19_a_wake_on_the_namespace_ends_by_itself() {
    let mut world = World::default();
    world.namespace("shop", "office");
    let schedules = schedules([office()]);
    let object = world.deployment("shop", "web", 3);
    // A weekend.
    assert_eq!(pass(&mut world, &schedules, "2026-01-10T03:00:00Z"), 1);
    world.annotate_namespace("shop", AWAKE_UNTIL, Some("2026-01-10T12:00:00Z"));
    assert_eq!(pass(&mut world, &schedules, "2026-01-10T11:00:00Z"), 1);
    assert_eq!(pass(&mut world, &schedules, "2026-01-10T11:59:59Z"), 0);
    assert_eq!(world.replicas(&object), Some(3));
    assert_eq!(pass(&mut world, &schedules, "2026-01-10T12:00:00Z"), 1);
    assert_eq!(world.replicas(&object), Some(0));
}

#[test]
fn case_2_19_a_malformed_wake_is_ignored_with_a_remark() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    world.annotate(&object, AWAKE_UNTIL, Some("tomorrow"));
    let decision = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
    assert_eq!(decision.actions.len(), 1);
    assert!(
        decision
            .remarks
            .iter()
            .any(|remark| remark.note.message.contains(AWAKE_UNTIL))
    );
}

#[test]
fn case_2_20_only_suspend_changes_on_a_cronjob() {
    let (mut world, _) = shop();
    let mut schedule = office();
    schedule.kinds = Some(kinds(&["CronJob"]));
    let schedules = schedules([schedule]);
    let spec = json!({"schedule": "* * * * *", "startingDeadlineSeconds": 60, "suspend": false});
    let object = world.create("CronJob", "shop", "report", spec.clone());
    pass(&mut world, &schedules, NIGHT);
    let mut expected = spec.clone();
    expected["suspend"] = json!(true);
    assert_eq!(world.objects[&object]["spec"], expected);
    pass(&mut world, &schedules, MORNING);
    pass(&mut world, &schedules, MORNING);
    assert_eq!(world.objects[&object]["spec"], spec);
}

#[test]
fn case_2_23_a_namespace_of_cronjobs_sleeps_and_the_owners_suspend_survives() {
    let (mut world, _) = shop();
    let mut schedule = office();
    schedule.kinds = Some(kinds(&["CronJob"]));
    let schedules = schedules([schedule]);
    let runs = world.create("CronJob", "shop", "runs", json!({"suspend": false}));
    let rests = world.create("CronJob", "shop", "rests", json!({"suspend": true}));
    let suspended = |world: &World, object: &ObjectRef| world.objects[object]["spec"]["suspend"].as_bool().unwrap();
    assert_eq!(pass(&mut world, &schedules, NIGHT), 1);
    assert!(suspended(&world, &runs) && suspended(&world, &rests));
    pass(&mut world, &schedules, MORNING);
    pass(&mut world, &schedules, MORNING);
    assert!(!suspended(&world, &runs) && suspended(&world, &rests));
    assert_eq!(pass(&mut world, &schedules, MORNING), 0);
}

#[test]
fn rule_s1_a_count_that_changed_and_changed_back_is_recorded_and_one_that_changed_is_not_overwritten() {
    let mut world = World::default();
    world.namespace("shop", "office");
    let web = world.deployment("shop", "web", 3);
    // Where a map is missing, the version is tested, too.
    world.annotate(&web, "team", Some("shop"));
    world.label(&web, "team", Some("shop"));
    let schedules = schedules([office()]);
    let decided = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT)).actions;
    world.edit(&web, |object| object["spec"]["replicas"] = json!(5));
    assert_eq!(world.apply(&decided[0]), Err(Refused::Conflict));
    assert_eq!(world.replicas(&web), Some(5));
    world.edit(&web, |object| object["spec"]["replicas"] = json!(3));
    assert_eq!(world.apply(&decided[0]), Ok(()));
    assert_eq!(world.replicas(&web), Some(0));
    assert_eq!(world.annotation(&web, ORIGINAL_REPLICAS), Some("3"));
}

#[test]
fn case_6_09_a_stale_list_cannot_overwrite_the_record() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    let stale = world.clone();
    pass(&mut world, &schedules, NIGHT);
    let decision = decide(&stale.snapshot(&schedules), &Memory::default(), at(NIGHT));
    assert_eq!(world.apply(&decision.actions[0]), Err(Refused::Conflict));
    assert_eq!(pass(&mut world, &schedules, NIGHT), 0);
    assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("3"));
    assert_eq!(world.replicas(&object), Some(0));
}

#[test]
fn case_6_21_the_boundary_is_known_beforehand() {
    let (mut world, schedules) = shop();
    world.deployment("shop", "web", 3);
    let decision = decide(&world.snapshot(&schedules), &Memory::default(), at(DAY));
    assert!(decision.actions.is_empty());
    assert_eq!(decision.next, Some(at("2026-12-01T20:00:00Z")));
}

#[test]
fn case_7_04_a_schedule_of_its_own_works_without_any_other() {
    let mut world = World::default();
    world.namespace("shop", "");
    let schedules = schedules([]);
    let own = world.deployment("shop", "own", 3);
    let sibling = world.deployment("shop", "sibling", 3);
    world.annotate(&own, DOWNTIME, Some("Mon-Fri 20:00-08:00"));
    world.annotate(&own, TIME_ZONE, Some("UTC"));
    assert_eq!(pass(&mut world, &schedules, NIGHT), 1);
    assert_eq!((world.replicas(&own), world.replicas(&sibling)), (Some(0), Some(3)));
    assert_eq!(pass(&mut world, &schedules, MORNING), 1);
    assert_eq!(world.replicas(&own), Some(3));
}

#[test]
fn fault_2_the_record_goes_at_startup_and_the_days_number_counts_the_next_night() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    pass(&mut world, &schedules, NIGHT);
    pass(&mut world, &schedules, MORNING);
    world.edit(&object, |object| object["spec"]["replicas"] = json!(5));
    pass(&mut world, &schedules, NEXT_NIGHT);
    assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("5"));
    pass(&mut world, &schedules, "2026-12-03T09:00:00Z");
    assert_eq!(world.replicas(&object), Some(5));
}

#[test]
fn fault_3_startup_without_a_record_leaves_the_owners_zero() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 0);
    let mut snapshot = world.snapshot(&schedules);
    snapshot.forced = Some(Forced {
        schedule: Arc::from("office"),
        state: State::Up,
        since: at(DAY),
    });
    assert!(decide(&snapshot, &Memory::default(), at(DAY)).actions.is_empty());
    assert_eq!(pass(&mut world, &schedules, NIGHT), 0);
    assert_eq!(world.replicas(&object), Some(0));
}

#[test]
fn fault_4_a_manifest_without_replicas_gets_its_count_from_the_record_not_from_a_sync() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    assert_eq!(forced(&mut world, &schedules, State::Down, NIGHT), 1);
    assert_eq!(world.replicas(&object), Some(0));
    // A sync of a manifest that does not name the replicas leaves them as they are.
    world.edit(&object, |object| object["spec"]["template"] = json!({"metadata": {}}));
    assert_eq!(forced(&mut world, &schedules, State::Up, MORNING), 1);
    assert_eq!(world.replicas(&object), Some(3));
    assert!(world.own_keys(&object).is_empty());
}

#[test]
fn fault_5_a_missed_closing_is_made_up_for_and_the_new_are_put_down_by_night() {
    let (mut world, schedules) = shop();
    let old = world.deployment("shop", "old", 3);
    // The first look is long after the boundary.
    assert_eq!(pass(&mut world, &schedules, "2026-12-02T03:00:00Z"), 1);
    let new = world.deployment("shop", "new", 2);
    assert_eq!(pass(&mut world, &schedules, "2026-12-02T03:10:00Z"), 1);
    assert_eq!((world.replicas(&old), world.replicas(&new)), (Some(0), Some(0)));
    assert_eq!(world.annotation(&new, ORIGINAL_REPLICAS), Some("2"));
}

#[test]
fn fault_6_each_workload_changes_in_one_write() {
    let (mut world, schedules) = shop();
    world.deployment("shop", "web", 3);
    let closing = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
    assert_eq!(closing.actions.len(), 1);
    world.apply(&closing.actions[0]).unwrap();
    let opening = decide(&world.snapshot(&schedules), &Memory::default(), at(MORNING));
    assert_eq!(opening.actions.len(), 1);
}

#[test]
fn fault_7_a_workload_that_fails_does_not_keep_the_others() {
    let (mut world, schedules) = shop();
    let objects: Vec<_> = ["a", "b", "c"].map(|name| world.deployment("shop", name, 1)).into();
    let mut memory = Memory::default();
    let workload = world.workload(&objects[0]);
    let failed = crate::decide::memory::Outcome::Failed {
        reason: "Forbidden",
        message: "may not patch deployments".to_owned(),
        retry_after: None,
    };
    memory.note(
        &objects[0],
        &workload.uid,
        &workload.resource_version,
        Purpose::Down,
        &failed,
        at(NIGHT),
    );
    let decision = decide(&world.snapshot(&schedules), &memory, at(NIGHT));
    assert_eq!(decision.actions.len(), 2);
    assert_eq!(decision.waiting.len(), 1);
    // Tried again after at least half a minute (case 6.15).
    assert!(decision.next.unwrap() >= at("2026-12-01T22:00:30Z"));
    assert!(decision.remarks.iter().any(|remark| remark.note.reason == "Forbidden"));
}

fn forced(world: &mut World, schedules: &Arc<Schedules>, state: State, now: &str) -> u32 {
    let mut snapshot = world.snapshot(schedules);
    snapshot.forced = Some(Forced {
        schedule: Arc::from("office"),
        state,
        since: at(now),
    });
    let decision = decide(&snapshot, &Memory::default(), at(now));
    let actions = decision.actions.iter().chain(&decision.waiting);
    let before = world.writes;
    for action in actions {
        world.apply(action).unwrap();
    }
    world.writes - before
}

#[test]
fn one_shot_passes_touch_only_their_schedule_whatever_the_clock_says() {
    let mut world = World::default();
    world.namespace("shop", "office");
    world.namespace("bank", "vault");
    let always = Schedule::new("office", Origin::Settings, Ok(Timeline::always_up()));
    let schedules = schedules([always]);
    let web = world.deployment("shop", "web", 3);
    let safe = world.deployment("shop", "safe", 2);
    world.annotate(&safe, PROTECTED, Some("true"));
    // Asleep under another release's schedule: none of our business.
    let other = world.deployment("bank", "other", 0);
    world.annotate(&other, ORIGINAL_REPLICAS, Some("7"));
    assert_eq!(forced(&mut world, &schedules, State::Down, DAY), 1);
    assert_eq!(
        (world.replicas(&web), world.replicas(&safe), world.replicas(&other)),
        (Some(0), Some(2), Some(0))
    );
    assert_eq!(forced(&mut world, &schedules, State::Down, NIGHT), 0);
    assert_eq!(forced(&mut world, &schedules, State::Up, NIGHT), 1);
    assert_eq!((world.replicas(&web), world.replicas(&other)), (Some(3), Some(0)));
    // Raised by hand after a startup that never came: the newer number counts.
    forced(&mut world, &schedules, State::Down, NIGHT);
    world.edit(&web, |object| object["spec"]["replicas"] = json!(5));
    forced(&mut world, &schedules, State::Down, NEXT_NIGHT);
    assert_eq!(world.annotation(&web, ORIGINAL_REPLICAS), Some("5"));
}

#[test]
fn rule_s11_whoever_leaves_scope_is_restored_once() {
    let (mut world, schedules) = shop();
    let object = world.deployment("shop", "web", 3);
    pass(&mut world, &schedules, NIGHT);
    // The schedule is gone: its name means nothing any more.
    let none = super::world::schedules([]);
    assert_eq!(pass(&mut world, &none, NIGHT), 1);
    assert_eq!(world.replicas(&object), Some(3));
    assert_eq!(pass(&mut world, &none, NIGHT), 0);
    // With a number in the same request, the person's counts.
    pass(&mut world, &schedules, NIGHT);
    world.edit(&object, |object| object["spec"]["replicas"] = json!(9));
    world.annotate(&object, PROTECTED, Some("true"));
    pass(&mut world, &schedules, NIGHT);
    assert_eq!(world.replicas(&object), Some(9));
    assert!(world.own_keys(&object).is_empty());
}

#[test]
fn rule_s12_a_label_moved_by_night_follows_the_new_schedule() {
    let (mut world, _) = shop();
    let schedules = schedules([office(), up_in("late", "Mon-Fri 06:00-23:00")]);
    let object = world.deployment("shop", "web", 3);
    pass(&mut world, &schedules, NIGHT);
    assert_eq!(world.replicas(&object), Some(0));
    world.label(&object, SCHEDULE, Some("late"));
    assert_eq!(pass(&mut world, &schedules, NIGHT), 1);
    assert_eq!(world.replicas(&object), Some(3));
}

#[test]
fn rule_v1_two_schedules_of_equal_rank_sleep_only_together() {
    let mut world = World::default();
    world.namespace("shop", "office");
    let schedules = schedules([office()]);
    let object = world.deployment("shop", "web", 3);
    world.annotate_namespace("shop", UPTIME, Some("Mon-Fri 06:00-23:00"));
    world.annotate_namespace("shop", TIME_ZONE, Some("UTC"));
    let decision = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
    assert!(decision.actions.is_empty());
    assert!(decision.remarks.iter().any(|remark| remark.note.reason == "Ambiguous"));
    assert_eq!(pass(&mut world, &schedules, "2026-12-01T23:30:00Z"), 1);
    assert_eq!(world.replicas(&object), Some(0));
}

#[test]
fn rule_v3_what_is_unknown_is_left_alone() {
    let (mut world, _) = shop();
    let object = world.deployment("shop", "web", 3);
    let unknown = Arc::new(Schedules::new([]).unavailable("the CRD is not installed"));
    assert_eq!(pass(&mut world, &unknown, NIGHT), 0);
    pass(&mut world, &schedules([office()]), NIGHT);
    assert_eq!(pass(&mut world, &unknown, MORNING), 0);
    let broken = Schedule::new("office", Origin::Resource, Err(Arc::from("no such zone")));
    assert_eq!(pass(&mut world, &schedules([broken]), MORNING), 0);
    assert_eq!(world.replicas(&object), Some(0));
    assert_eq!(world.annotation(&object, ORIGINAL_REPLICAS), Some("3"));
}

#[test]
fn rule_e6_a_duration_on_a_namespace_becomes_an_instant() {
    let (mut world, _) = shop();
    let mut schedule = office();
    schedule.enforcement.max_wake = Some(jiff::SignedDuration::from_hours(1));
    let schedules = schedules([schedule]);
    let object = world.deployment("shop", "web", 3);
    pass(&mut world, &schedules, NIGHT);
    world.annotate_namespace("shop", AWAKE_UNTIL, Some("2h"));
    let decision = decide(
        &world.snapshot(&schedules),
        &Memory::default(),
        at("2026-12-01T22:30:00Z"),
    );
    assert_eq!(decision.actions[0].purpose, Purpose::FixInstant);
    assert_eq!(decision.actions[0].event.as_ref().unwrap().reason, "WakeCut");
    for action in &decision.actions {
        world.apply(action).unwrap();
    }
    let written = world.namespaces["shop"]["metadata"]["annotations"][AWAKE_UNTIL].as_str();
    assert_eq!(written, Some("2026-12-01T23:30:00Z"));
    assert_eq!(world.replicas(&object), Some(3));
    assert_eq!(pass(&mut world, &schedules, "2026-12-01T23:30:00Z"), 1);
}

#[test]
fn rule_s1_percentages_are_of_the_record_and_down_never_raises() {
    for (down, replicas, held) in [("50%", 3, 2), ("2", 5, 2), ("4", 3, 3), ("0%", 3, 0), ("100%", 3, 3)] {
        let (mut world, schedules) = shop();
        let object = world.deployment("shop", "web", replicas);
        world.annotate(&object, DOWN_REPLICAS, Some(down));
        pass(&mut world, &schedules, NIGHT);
        assert_eq!(world.replicas(&object), Some(held), "{down} of {replicas}");
        assert_eq!(pass(&mut world, &schedules, NIGHT), 0, "{down}");
        pass(&mut world, &schedules, MORNING);
        assert_eq!(world.replicas(&object), Some(replicas), "{down}");
        assert!(world.own_keys(&object).is_empty());
    }
}
