//! One workload: each branch of its step.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use shared::annotations::{ASLEEP, AWAKE_UNTIL, DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS};
use shared::api::{CatchUp, EnforcementMode, KindFilter, UnfinishedRollouts};
use shared::policy::{Schedule, Schedules};
use shared::workload::ObjectRef;

use super::world::{MORNING, NEXT_NIGHT, NIGHT, World, at, office, schedules, settled};
use crate::decide::action::{Action, Purpose, Request};
use crate::decide::decide;
use crate::decide::decider::Decider;
use crate::decide::memory::{Memory, Outcome};
use crate::decide::snapshot::Dirty;

/// A cluster with one Deployment that sleeps, and a memory that has seen it.
struct Sleeping {
    world: World,
    schedules: Arc<Schedules>,
    object: ObjectRef,
    decider: Decider,
}

impl Sleeping {
    fn new(schedule: Schedule) -> Self {
        let mut world = World::default();
        world.namespace("shop", "office");
        let object = world.deployment("shop", "web", 3);
        let mut sleeping = Self {
            world,
            schedules: schedules([schedule]),
            object,
            decider: Decider::default(),
        };
        assert_eq!(sleeping.purposes(NIGHT), [Purpose::Down]);
        assert_eq!(sleeping.purposes(NIGHT), []);
        sleeping
    }

    /// Looks again, carries out what is decided, and takes in the answers.
    fn actions(&mut self, now: &str) -> Vec<Action> {
        let now = at(now);
        self.decider
            .update(&self.world.snapshot(&self.schedules), &Dirty::everything(), now);
        let mut actions = Vec::new();
        while let Some(action) = self.decider.next_action(&self.world.snapshot(&self.schedules), now) {
            let outcome = match self.world.apply(&action) {
                Ok(()) => Outcome::Done,
                Err(_) => Outcome::Conflict { message: String::new() },
            };
            let snapshot = self.world.snapshot(&self.schedules);
            self.decider.answered(&snapshot, &action.target.object, &outcome, now);
            actions.push(action);
        }
        actions
    }

    fn purposes(&mut self, now: &str) -> Vec<Purpose> {
        self.actions(now).iter().map(|action| action.purpose).collect()
    }

    fn raise(&mut self, replicas: u64) {
        let object = self.object.clone();
        self.world
            .edit(&object, |object| object["spec"]["replicas"] = json!(replicas));
    }

    fn forget_keys(&mut self, label_too: bool) {
        let object = self.object.clone();
        self.world.edit(&object, |object| {
            object["metadata"]["annotations"] = json!({});
            if label_too {
                object["metadata"]["labels"] = json!({});
            }
        });
    }

    fn original(&self) -> Option<&str> {
        self.world.annotation(&self.object, ORIGINAL_REPLICAS)
    }

    fn replicas(&self) -> u64 {
        self.world.replicas(&self.object).unwrap()
    }
}

fn enforcing(mode: EnforcementMode) -> Schedule {
    let mut schedule = office();
    schedule.enforcement.mode = mode;
    schedule
}

#[test]
fn rule_s4_a_raise_is_put_down_again_with_the_record_as_it_is() {
    for mode in [EnforcementMode::Rewrite, EnforcementMode::Deny] {
        let mut sleeping = Sleeping::new(enforcing(mode));
        sleeping.raise(7);
        let actions = sleeping.actions("2026-12-01T22:01:00Z");
        assert_eq!(actions.len(), 1);
        assert_eq!(actions[0].purpose, Purpose::DownAgain);
        let message = &actions[0].event.as_ref().unwrap().message;
        assert!(
            message.contains('7') && message.contains("the record stays 3"),
            "{message}"
        );
        assert_eq!((sleeping.replicas(), sleeping.original()), (0, Some("3")));
    }
}

#[test]
fn rule_s4_under_warn_and_off_a_raise_stays_until_the_next_window() {
    for mode in [EnforcementMode::Warn, EnforcementMode::Off] {
        let mut sleeping = Sleeping::new(enforcing(mode));
        sleeping.raise(7);
        assert_eq!(sleeping.purposes("2026-12-01T22:01:00Z"), []);
        assert_eq!(sleeping.purposes(MORNING), [Purpose::Forget]);
        assert_eq!(sleeping.replicas(), 7);
        assert_eq!(sleeping.purposes(NEXT_NIGHT), [Purpose::Down]);
        assert_eq!(sleeping.original(), Some("7"));
    }
}

#[test]
fn rule_s4_a_record_of_an_earlier_window_is_replaced_by_the_present_knob() {
    let mut sleeping = Sleeping::new(office());
    sleeping.raise(5);
    // Nobody looked all day.
    assert_eq!(sleeping.purposes(NEXT_NIGHT), [Purpose::Down]);
    assert_eq!((sleeping.replicas(), sleeping.original()), (0, Some("5")));
}

#[test]
fn rule_s4_the_third_raise_within_ten_minutes_waits() {
    let mut sleeping = Sleeping::new(office());
    for minute in ["00", "01"] {
        sleeping.raise(7);
        assert_eq!(
            sleeping.purposes(&format!("2026-12-01T22:{minute}:30Z")),
            [Purpose::DownAgain]
        );
    }
    sleeping.raise(7);
    assert_eq!(sleeping.purposes("2026-12-01T22:02:00Z"), []);
    assert_eq!(
        sleeping.decider.next_instant(at("2026-12-01T22:02:00Z")),
        Some(at("2026-12-01T22:11:30Z"))
    );
    assert_eq!(sleeping.purposes("2026-12-01T22:11:30Z"), [Purpose::DownAgain]);
    // From then on once in ten minutes, for as long as it goes on.
    sleeping.raise(7);
    assert_eq!(sleeping.purposes("2026-12-01T22:12:00Z"), []);
    assert_eq!(sleeping.purposes("2026-12-01T22:21:30Z"), [Purpose::DownAgain]);
    // After a pause it is somebody else again.
    sleeping.raise(7);
    assert_eq!(sleeping.purposes("2026-12-01T23:00:00Z"), [Purpose::DownAgain]);
}

#[test]
fn lowered_below_what_is_held_stays_so() {
    let mut schedule = office();
    schedule.down_replicas = shared::annotations::DownReplicas::Count(2);
    let mut sleeping = Sleeping::new(schedule);
    assert_eq!(sleeping.world.annotation(&sleeping.object, HELD_REPLICAS), Some("2"));
    sleeping.raise(1);
    assert_eq!(sleeping.purposes("2026-12-01T22:01:00Z"), []);
    assert_eq!(sleeping.purposes(MORNING), [Purpose::Forget]);
    assert_eq!(sleeping.replicas(), 1);
}

#[test]
fn rule_s5_a_record_that_vanished_is_put_back_from_the_label() {
    let mut sleeping = Sleeping::new(office());
    sleeping.decider = Decider::default();
    sleeping.forget_keys(false);
    let actions = sleeping.actions("2026-12-01T22:05:00Z");
    assert_eq!(actions.len(), 1);
    assert_eq!(actions[0].event.as_ref().unwrap().reason, "RecordPutBack");
    assert_eq!(sleeping.original(), Some("3"));
    assert_eq!(sleeping.purposes(MORNING), [Purpose::Restore]);
    assert_eq!(sleeping.replicas(), 3);
}

#[test]
fn rule_s5_a_record_that_vanished_wholly_is_put_back_from_memory() {
    let mut sleeping = Sleeping::new(office());
    sleeping.forget_keys(true);
    assert_eq!(sleeping.purposes("2026-12-01T22:05:00Z"), [Purpose::PutBack]);
    assert_eq!(sleeping.original(), Some("3"));
    assert!(sleeping.world.annotation(&sleeping.object, DOWN_SINCE).is_some());
    // Just before opening time: restored from memory.
    sleeping.forget_keys(true);
    assert_eq!(sleeping.purposes(MORNING), [Purpose::Restore]);
    assert_eq!(sleeping.replicas(), 3);
}

#[test]
fn rule_s5_by_day_the_owners_zero_is_believed_more_than_memory() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    sleeping.forget_keys(true);
    sleeping.world.edit(&object, |object| {
        object["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    });
    assert_eq!(sleeping.purposes(MORNING), []);
    assert_eq!(sleeping.replicas(), 0);
}

#[test]
fn rule_s2_where_the_copies_differ_the_label_wins() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    // `kubectl rollout undo` brought an old ReplicaSet's record back.
    sleeping.world.annotate(&object, ORIGINAL_REPLICAS, Some("9"));
    assert_eq!(sleeping.purposes("2026-12-01T22:05:00Z"), [Purpose::PutBack]);
    assert_eq!(sleeping.original(), Some("3"));
}

#[test]
fn rule_s6_an_unreadable_record_gives_the_default_and_is_told() {
    let mut sleeping = Sleeping::new(office());
    sleeping.decider = Decider::default();
    let object = sleeping.object.clone();
    sleeping.world.annotate(&object, ORIGINAL_REPLICAS, Some("three"));
    sleeping.world.label(&object, ASLEEP, None);
    assert_eq!(sleeping.purposes("2026-12-01T22:05:00Z"), []);
    let actions = sleeping.actions(MORNING);
    assert_eq!(actions.len(), 1);
    let note = actions[0].event.as_ref().unwrap();
    assert_eq!(note.reason, "RecordUnreadable");
    assert!(note.message.contains("three"));
    assert_eq!(sleeping.replicas(), 1);
}

#[test]
fn rule_s6_a_record_spoilt_under_our_eyes_is_put_back_from_memory() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    sleeping.world.annotate(&object, ORIGINAL_REPLICAS, Some("three"));
    sleeping.world.label(&object, ASLEEP, None);
    assert_eq!(sleeping.purposes("2026-12-01T22:05:00Z"), [Purpose::PutBack]);
    assert_eq!(sleeping.original(), Some("3"));
}

#[test]
fn rule_s3_by_day_a_record_on_what_was_raised_only_goes() {
    let mut sleeping = Sleeping::new(office());
    sleeping.raise(6);
    assert_eq!(sleeping.purposes(MORNING), [Purpose::Forget]);
    assert_eq!(sleeping.replicas(), 6);
    assert!(sleeping.world.own_keys(&sleeping.object).is_empty());
}

#[test]
fn rule_s8_a_restore_keeps_to_the_range_of_the_autoscaler() {
    for (range, expected) in [((1, 2), 2), ((5, 9), 5), ((1, 9), 3)] {
        let sleeping = Sleeping::new(office());
        let mut snapshot = sleeping.world.snapshot(&sleeping.schedules);
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": &*sleeping.object.name});
        let hpa = json!({"metadata": {"namespace": &*sleeping.object.namespace, "name": "web"},
            "spec": {"minReplicas": range.0, "maxReplicas": range.1, "scaleTargetRef": target}});
        let hpa = Arc::new(shared::hpa::Hpa::read(&hpa).unwrap());
        snapshot.beside.set_hpa(&hpa, &mut Dirty::default());
        let decision = decide(&snapshot, &Memory::default(), at(MORNING));
        let mut world = sleeping.world.clone();
        world.apply(&decision.actions[0]).unwrap();
        assert_eq!(world.replicas(&sleeping.object), Some(expected), "{range:?}");
    }
}

#[test]
fn rule_v6_claims_of_a_stateful_set_are_retained_while_it_sleeps() {
    let mut world = World::default();
    world.namespace("shop", "office");
    let spec = json!({"replicas": 3, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"}});
    let object = world.create("StatefulSet", "shop", "db", spec.clone());
    let schedules = schedules([office()]);
    let decision = decide(&world.snapshot(&schedules), &Memory::default(), at(NIGHT));
    assert_eq!(decision.actions.len(), 1);
    world.apply(&decision.actions[0]).unwrap();
    let policy = &world.objects[&object]["spec"]["persistentVolumeClaimRetentionPolicy"];
    assert_eq!(policy["whenScaled"], "Retain");
    assert_eq!(world.pass(&schedules, &Memory::default(), at(MORNING)), 1);
    assert_eq!(world.objects[&object]["spec"], spec);
}

fn rolling(
    status: serde_json::Value,
    sleep: UnfinishedRollouts,
    now: &str,
) -> (Vec<Purpose>, Vec<&'static str>, Option<jiff::Timestamp>) {
    let mut world = World::default();
    world.namespace("shop", "office");
    let object = world.deployment("shop", "web", 3);
    world.edit(&object, |object| object["status"] = status);
    let mut schedule = office();
    schedule.unfinished_rollouts = sleep;
    let decision = decide(&world.snapshot(&schedules([schedule])), &Memory::default(), at(now));
    (
        decision.actions.iter().map(|action| action.purpose).collect(),
        decision.skips.iter().map(|(_, skip)| skip.reason).collect(),
        decision.next,
    )
}

fn mixed(progressing: &str, updated: &str) -> serde_json::Value {
    let mut status = settled(3);
    status["updatedReplicas"] = json!(1);
    status["conditions"] = json!([{"type": "Progressing", "status": progressing, "lastUpdateTime": updated}]);
    status
}

#[test]
fn rule_v7_a_rollout_in_progress_is_waited_for_until_its_deadline() {
    for sleep in [UnfinishedRollouts::Skip, UnfinishedRollouts::Sleep] {
        let (purposes, skips, next) = rolling(mixed("True", "2026-12-01T21:55:00Z"), sleep, NIGHT);
        assert_eq!(purposes, []);
        assert_eq!(skips, ["RolloutInProgress"]);
        assert_eq!(next, Some(at("2026-12-01T22:05:00Z")));
    }
}

#[test]
fn rule_v7_a_stuck_rollout_stays_up_unless_it_is_meant_to_sleep() {
    let stuck = mixed("False", "2026-12-01T19:00:00Z");
    let (purposes, skips, _) = rolling(stuck.clone(), UnfinishedRollouts::Skip, NIGHT);
    assert_eq!((purposes, skips), (vec![], vec!["RolloutUnfinished"]));
    let (purposes, skips, _) = rolling(stuck, UnfinishedRollouts::Sleep, NIGHT);
    assert_eq!((purposes, skips), (vec![Purpose::Down], vec![]));
}

#[test]
fn rule_v7_a_rollout_that_misses_its_deadline_under_our_eyes_is_skipped() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    sleeping.purposes(MORNING);
    sleeping.world.edit(&object, |object| {
        object["status"] = mixed("True", "2026-12-02T19:00:00Z");
    });
    // Its deadline is of an earlier rollout: the controller gets a minute to say so.
    assert_eq!(sleeping.purposes("2026-12-02T20:00:00Z"), []);
    assert_eq!(sleeping.decider.skips()[0].1.reason, "RolloutInProgress");
    assert_eq!(sleeping.purposes("2026-12-02T20:01:00Z"), []);
    assert_eq!(sleeping.decider.skips()[0].1.reason, "RolloutUnfinished");
    sleeping.world.edit(&object, |object| object["status"] = settled(3));
    assert_eq!(sleeping.purposes("2026-12-02T20:30:00Z"), [Purpose::Down]);
}

#[test]
fn rule_v5_missed_runs_of_a_cronjob_are_skipped_before_it_goes_on() {
    let mut sleeping = Sleeping::new(office());
    let mut schedule = office();
    let cronjobs = KindFilter {
        kind: "CronJob".to_owned(),
        ..KindFilter::default()
    };
    schedule.kinds = Some(vec![cronjobs.clone()]);
    sleeping.schedules = schedules([schedule]);
    let object = sleeping
        .world
        .create("CronJob", "shop", "report", json!({"schedule": "* * * * *"}));
    sleeping.world.edit(&object, |object| {
        object["status"] = json!({"lastScheduleTime": "2026-12-01T19:59:00Z"});
    });
    let purposes = sleeping.purposes(NIGHT);
    assert!(purposes.contains(&Purpose::Down), "{purposes:?}");
    let actions = sleeping.actions(MORNING);
    let purposes: Vec<_> = actions.iter().map(|action| action.purpose).collect();
    assert_eq!(purposes, [Purpose::SkipMissedRuns, Purpose::Restore]);
    assert!(matches!(
        actions[0].request,
        Request::Patch {
            subresource: Some("status"),
            ..
        }
    ));
    assert_eq!(sleeping.world.objects[&object]["status"]["lastScheduleTime"], MORNING);
    assert!(sleeping.world.objects[&object]["spec"].get("suspend").is_none());

    let mut once = office();
    once.kinds = Some(vec![cronjobs]);
    once.catch_up = CatchUp::Once;
    sleeping.schedules = schedules([once]);
    assert_eq!(sleeping.purposes(NEXT_NIGHT), [Purpose::Down]);
    assert_eq!(sleeping.purposes("2026-12-03T08:00:00Z"), [Purpose::Restore]);
}

#[test]
fn rule_v5_running_and_finished_jobs_are_not_suspended() {
    for (status, running, expected) in [
        (json!({"startTime": "2026-12-01T21:00:00Z"}), false, vec![]),
        (json!({"startTime": "2026-12-01T21:00:00Z"}), true, vec![Purpose::Down]),
        (
            json!({"startTime": "2026-12-01T21:00:00Z", "completionTime": "2026-12-01T21:10:00Z"}),
            true,
            vec![],
        ),
        (
            json!({"startTime": "2026-12-01T21:00:00Z", "conditions": [{"type": "Failed", "status": "True"}]}),
            true,
            vec![],
        ),
        (json!({}), false, vec![Purpose::Down]),
    ] {
        let mut world = World::default();
        world.namespace("shop", "office");
        let object = world.create("Job", "shop", "import", json!({}));
        world.edit(&object, |object| object["status"] = status.clone());
        let mut schedule = office();
        schedule.kinds = Some(vec![KindFilter {
            kind: "Job".to_owned(),
            running,
            ..KindFilter::default()
        }]);
        let decision = decide(&world.snapshot(&schedules([schedule])), &Memory::default(), at(NIGHT));
        let purposes: Vec<_> = decision.actions.iter().map(|action| action.purpose).collect();
        assert_eq!(purposes, expected, "{status}");
    }
}

#[test]
fn rule_e6_a_wake_given_as_a_duration_restores_and_becomes_an_instant_in_one_write() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    sleeping.world.annotate(&object, AWAKE_UNTIL, Some("2h"));
    assert_eq!(sleeping.purposes("2026-12-01T22:30:00Z"), [Purpose::Restore]);
    assert_eq!(
        sleeping.world.annotation(&object, AWAKE_UNTIL),
        Some("2026-12-02T00:30:00Z")
    );
    assert_eq!(sleeping.replicas(), 3);
    let actions = sleeping.actions("2026-12-02T00:30:00Z");
    assert_eq!(actions[0].purpose, Purpose::Down);
    assert_eq!(actions[0].event.as_ref().unwrap().reason, "WakeEnded");
    // An expired one goes with our next write.
    assert_eq!(sleeping.world.annotation(&object, AWAKE_UNTIL), None);
}

#[test]
fn every_kind_sleeps_and_comes_back_byte_for_byte() {
    let specs = [
        ("Deployment", json!({"replicas": 4})),
        ("StatefulSet", json!({"replicas": 2})),
        ("ReplicaSet", json!({"replicas": 2})),
        (
            "DaemonSet",
            json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}),
        ),
        ("DaemonSet", json!({"template": {"spec": {}}})),
        ("CronJob", json!({"schedule": "0 3 * * *"})),
        ("Rollout", json!({"replicas": 4})),
        ("ScaledObject", json!({"scaleTargetRef": {"name": "web"}})),
        ("ScaledJob", json!({})),
        ("AutoscalingRunnerSet", json!({"minRunners": 1, "maxRunners": 5})),
        ("AutoscalingRunnerSet", json!({"minRunners": 0, "maxRunners": 5})),
        ("AutoscalingRunnerSet", json!({})),
        ("Stack", json!({})),
        ("KafkaConnect", json!({"replicas": 3})),
        ("KafkaMirrorMaker2", json!({"replicas": 3})),
        ("KafkaBridge", json!({})),
        ("Prometheus", json!({"replicas": 2})),
        ("Cluster", json!({"instances": 3})),
    ];
    let mut world = World::default();
    world.namespace("shop", "office");
    let mut schedule = office();
    schedule.catch_up = CatchUp::Once;
    let all = specs.iter().map(|(kind, _)| KindFilter {
        kind: (*kind).to_owned(),
        ..KindFilter::default()
    });
    schedule.kinds = Some(all.collect());
    let schedules = schedules([schedule]);
    let mut before = Vec::new();
    for (index, (kind, spec)) in specs.iter().enumerate() {
        let object = world.create(kind, "shop", &format!("w{index}"), spec.clone());
        before.push((object.clone(), world.objects[&object].clone()));
    }
    let count = specs.len() as u32;
    assert_eq!(world.pass(&schedules, &Memory::default(), at(NIGHT)), count);
    assert_eq!(world.pass(&schedules, &Memory::default(), at(NIGHT)), 0);
    for (object, before) in &before {
        assert_ne!(&world.objects[object], before);
        assert!(!world.own_keys(object).is_empty(), "{object}");
    }
    assert_eq!(world.pass(&schedules, &Memory::default(), at(MORNING)), count);
    assert_eq!(world.pass(&schedules, &Memory::default(), at(MORNING)), 0);
    for (object, before) in &before {
        let after = &world.objects[object];
        // Maps that we had to make stay behind empty: an empty map means the same as none.
        let spec = |value: &serde_json::Value| {
            let mut spec = value["spec"].clone();
            if let Some(pod) = spec
                .pointer_mut("/template/spec")
                .and_then(serde_json::Value::as_object_mut)
            {
                pod.retain(|key, value| key != "nodeSelector" || value.as_object().is_none_or(|map| !map.is_empty()));
            }
            spec
        };
        assert_eq!(spec(after), spec(before), "{object}");
        for map in ["annotations", "labels"] {
            let left = after["metadata"].get(map).and_then(serde_json::Value::as_object);
            assert!(left.is_none_or(serde_json::Map::is_empty), "{object}: {left:?}");
        }
    }
}

#[test]
fn after_a_pause_what_failed_is_tried_again() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    let now = at(MORNING);
    let snapshot = sleeping.world.snapshot(&sleeping.schedules);
    sleeping.decider.update(&snapshot, &Dirty::everything(), now);
    let action = sleeping.decider.next_action(&snapshot, now).unwrap();
    assert_eq!(sleeping.decider.next_action(&snapshot, now), None);
    let failed = Outcome::Failed {
        reason: "ServerError",
        message: "etcd is away".to_owned(),
        retry_after: Some(SignedDuration::from_secs(2)),
    };
    sleeping
        .decider
        .answered(&snapshot, &action.target.object, &failed, now);
    assert_eq!(sleeping.decider.next_action(&snapshot, now), None);
    let again = sleeping.decider.next_instant(now).unwrap();
    assert_eq!(again.duration_since(now), SignedDuration::from_secs(2));
    sleeping.decider.update(&snapshot, &Dirty::default(), again);
    assert_eq!(
        sleeping.decider.next_action(&snapshot, again).unwrap().target.object,
        object
    );
}

#[test]
fn after_a_conflict_the_watch_is_waited_for() {
    let mut sleeping = Sleeping::new(office());
    let object = sleeping.object.clone();
    let now = at(MORNING);
    let stale = sleeping.world.snapshot(&sleeping.schedules);
    sleeping.decider.update(&stale, &Dirty::everything(), now);
    let action = sleeping.decider.next_action(&stale, now).unwrap();
    sleeping.decider.answered(
        &stale,
        &action.target.object,
        &Outcome::Conflict { message: String::new() },
        now,
    );
    sleeping.decider.update(&stale, &Dirty::everything(), now);
    assert_eq!(sleeping.decider.next_action(&stale, now), None);
    // Nothing of ours was in the way, and the version moves: decided anew at once.
    sleeping.world.edit(&object, |_| {});
    assert_eq!(sleeping.purposes(MORNING), [Purpose::Restore]);
}

#[test]
fn an_object_created_anew_under_the_same_name_is_another_one() {
    let mut sleeping = Sleeping::new(office());
    sleeping.object = sleeping.world.deployment("shop", "web", 0);
    assert_eq!(sleeping.purposes("2026-12-01T23:00:00Z"), []);
    assert_eq!(sleeping.purposes(MORNING), []);
    assert_eq!(sleeping.replicas(), 0);
}

#[test]
fn what_never_becomes_ready_is_told_and_counted() {
    let mut schedule = office();
    schedule.startup.timeout = SignedDuration::from_mins(2);
    let mut sleeping = Sleeping::new(schedule);
    let object = sleeping.object.clone();
    sleeping.world.edit(&object, |object| {
        object["status"] = json!({"observedGeneration": 1_000_000, "conditions":
            [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}]});
    });
    assert_eq!(sleeping.purposes(MORNING), [Purpose::Restore]);
    sleeping.decider.take_remarks();
    assert_eq!(sleeping.purposes("2026-12-02T08:01:00Z"), []);
    assert_eq!(sleeping.decider.take_remarks(), []);
    assert_eq!(sleeping.purposes("2026-12-02T08:02:01Z"), []);
    let remarks = sleeping.decider.take_remarks();
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].note.reason, "ReplicaFailure");
    assert!(remarks[0].note.message.contains("exceeded quota"));
    assert_eq!(sleeping.decider.group("office").unwrap().troubles().len(), 1);
    sleeping.world.edit(&object, |object| object["status"] = settled(3));
    sleeping.purposes("2026-12-02T08:03:00Z");
    assert!(sleeping.decider.group("office").unwrap().troubles().is_empty());
}
