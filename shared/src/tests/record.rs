use serde_json::json;

use super::*;
use crate::annotations::ORIGINAL_REPLICAS;
use crate::kinds::Kinds;

fn workload(kind: &str, group: &str, object: &Value) -> Workload {
    let kinds = Kinds::default();
    Workload::read(kinds.by_kind(group, kind).unwrap(), object).unwrap()
}

fn deployment(replicas: u64, annotations: &Value, labels: &Value) -> Workload {
    let object = json!({"metadata": {"name": "a", "annotations": annotations, "labels": labels}, "spec": {"replicas": replicas}});
    workload("Deployment", "apps", &object)
}

#[test]
fn a_workload_without_our_keys_has_no_record() {
    assert_eq!(
        Record::read(&deployment(0, &json!({"other": "1"}), &json!({"app": "a"}))),
        None
    );
}

#[test]
fn rule_s2_asleep_is_a_record_and_the_knob_where_we_put_it() {
    let keys = json!({ORIGINAL_REPLICAS: "3", DOWN_SINCE: "2026-11-30T20:00:00Z"});
    let label = json!({ASLEEP: "3"});
    let record = |replicas, keys: &Value| {
        let workload = deployment(replicas, keys, &label);
        Record::read(&workload).unwrap().asleep(&workload)
    };
    assert!(record(0, &keys));
    assert!(!record(1, &keys));
    let partial = json!({ORIGINAL_REPLICAS: "3", DOWN_SINCE: "2026-11-30T20:00:00Z", HELD_REPLICAS: "1"});
    assert!(record(1, &partial));
    assert!(!record(0, &partial));
}

#[test]
fn rule_s2_where_label_and_annotation_differ_the_label_wins() {
    // `kubectl rollout undo` brought an old record back
    let record = Record::read(&deployment(0, &json!({ORIGINAL_REPLICAS: "7"}), &json!({ASLEEP: "3"}))).unwrap();
    assert_eq!((record.replicas(), record.differs), (Some(3), true));
    // ... or took it away
    let record = Record::read(&deployment(0, &json!({}), &json!({ASLEEP: "3"}))).unwrap();
    assert_eq!((record.replicas(), record.differs), (Some(3), true));
    // the label alone was removed
    let keys = json!({ORIGINAL_REPLICAS: "3", DOWN_SINCE: "2026-11-30T20:00:00Z"});
    let record = Record::read(&deployment(0, &keys, &json!({}))).unwrap();
    assert_eq!((record.replicas(), record.differs), (Some(3), true));
    let record = Record::read(&deployment(0, &keys, &json!({ASLEEP: "3"}))).unwrap();
    assert!(!record.differs);
}

#[test]
fn rule_s6_an_unreadable_record_gives_the_default_never_a_guess() {
    for text in ["three", "-1", "2147483648", "", "3.0"] {
        let workload = deployment(0, &json!({ORIGINAL_REPLICAS: text}), &json!({}));
        let record = Record::read(&workload).unwrap();
        assert_eq!(record.unreadable(), Some(text));
        assert_eq!(record.original(0, &workload.kind.knobs[0], 1), Some(Some(json!(1))));
    }
    // only the instant is left
    let workload = deployment(0, &json!({DOWN_SINCE: "2026-11-30T20:00:00Z"}), &json!({}));
    assert_eq!(Record::read(&workload).unwrap().unreadable(), Some(""));
}

#[test]
fn a_count_of_a_custom_kind_that_needs_more_than_32_bits_is_kept_and_comes_back() {
    let kinds = Kinds::with([Kind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Farm".into(),
        plural: "farms".into(),
        built_in: false,
        ..(**Kinds::default().by_kind("apps", "Deployment").unwrap()).clone()
    }]);
    let read = |object: &Value| Workload::read(kinds.by_kind("example.com", "Farm").unwrap(), object).unwrap();
    let now: Timestamp = "2026-11-30T23:00:00Z".parse().unwrap();
    for count in [2_147_483_648_u64, 5_000_000_000, i64::MAX.unsigned_abs()] {
        for (down, held) in [
            (DownReplicas::Count(0), 0),
            (DownReplicas::Percent(50), count.div_ceil(2)),
        ] {
            let up = json!({"metadata": {"name": "a", "uid": "u", "labels": {}, "annotations": {}}, "spec": {"replicas": count}});
            let workload = read(&up);
            let plan = plan(&workload, down, None).unwrap();
            assert_eq!(plan.moves, [(0, json!(held))]);
            let mut object = up.clone();
            let patch = crate::patch::down(&workload, &plan, now).patch(&workload, crate::patch::Preconditions::State);
            json_patch::patch(&mut object, &patch).unwrap();
            let asleep = read(&object);
            let record = Record::read(&asleep).unwrap();
            assert_eq!((record.replicas(), record.held_replicas), (Some(count), held));
            assert!(record.asleep(&asleep) && !record.differs);
            assert_eq!(plan_at(&asleep, record.held_replicas), None);
            let patch = crate::patch::restore(&asleep, &record, None, 1, now);
            json_patch::patch(&mut object, &patch.patch(&asleep, crate::patch::Preconditions::State)).unwrap();
            assert_eq!(object, up);
        }
    }
    // More than any object can have is nobody's count.
    let odd = json!({"metadata": {"annotations": {ORIGINAL_REPLICAS: "9223372036854775808"}}, "spec": {"replicas": 0}});
    assert_eq!(
        Record::read(&read(&odd)).unwrap().unreadable(),
        Some("9223372036854775808")
    );
}

#[test]
fn an_absent_knob_is_recorded_as_absent() {
    let record = Record::read(&deployment(
        0,
        &json!({ORIGINAL_REPLICAS: "absent"}),
        &json!({ASLEEP: "absent"}),
    ))
    .unwrap();
    assert_eq!(record.entries, [Entry::Was(None)]);
    assert!(!record.differs);
}

#[test]
fn case_2_17_records_of_k8s_offhours_and_of_both_downscalers_are_read() {
    let record = Record::read(&deployment(0, &json!({ORIGINAL_REPLICAS: "3"}), &json!({}))).unwrap();
    assert_eq!(
        (record.replicas(), record.foreign, record.differs),
        (Some(3), false, false)
    );
    let record = Record::read(&deployment(0, &json!({DOWNSCALER_REPLICAS: "3"}), &json!({}))).unwrap();
    assert_eq!((record.replicas(), record.foreign), (Some(3), true));
    for (text, suspended) in [("1", false), ("0", true), ("false", false), ("true", true)] {
        let object = json!({"metadata": {"annotations": {DOWNSCALER_REPLICAS: text}}, "spec": {"suspend": true}});
        let record = Record::read(&workload("CronJob", "batch", &object)).unwrap();
        assert_eq!(record.entries, [Entry::Was(Some(json!(suspended)))], "{text}");
    }
}

#[test]
fn rule_s1_down_never_raises_and_leaves_an_owners_sleep_alone() {
    let of = |replicas, down| plan(&deployment(replicas, &json!({}), &json!({})), down, None);
    assert_eq!(
        of(3, DownReplicas::Count(0)),
        Some(Plan {
            moves: vec![(0, json!(0))],
            replicas: 0
        })
    );
    assert_eq!(
        of(3, DownReplicas::Percent(50)),
        Some(Plan {
            moves: vec![(0, json!(2))],
            replicas: 2
        })
    );
    assert_eq!(of(0, DownReplicas::Count(0)), None);
    assert_eq!(of(1, DownReplicas::Count(2)), None);
    assert_eq!(of(2, DownReplicas::Count(2)), None);
}

#[test]
fn rule_v6_a_guard_goes_along_but_puts_nothing_to_sleep_by_itself() {
    let set = |replicas, policy| {
        workload(
            "StatefulSet",
            "apps",
            &json!({"metadata": {}, "spec": {"replicas": replicas, "persistentVolumeClaimRetentionPolicy": {"whenScaled": policy}}}),
        )
    };
    assert_eq!(
        plan(&set(3, "Delete"), DownReplicas::Count(0), None).unwrap().moves,
        [(0, json!(0)), (1, json!("Retain"))]
    );
    assert_eq!(
        plan(&set(3, "Retain"), DownReplicas::Count(0), None).unwrap().moves,
        [(0, json!(0))]
    );
    assert_eq!(plan(&set(0, "Delete"), DownReplicas::Count(0), None), None);
}

#[test]
fn a_runner_set_moves_only_what_is_above() {
    let object = json!({"metadata": {"name": "ci"}, "spec": {"minRunners": 0, "maxRunners": 10}});
    let set = workload("AutoscalingRunnerSet", "actions.github.com", &object);
    assert_eq!(plan(&set, DownReplicas::Count(0), None).unwrap().moves, [(0, json!(0))]);
    // A minimum that is absent is none: not even what is kept by night raises it.
    let object = json!({"metadata": {"name": "ci"}, "spec": {}});
    let set = workload("AutoscalingRunnerSet", "actions.github.com", &object);
    for (down, held) in [(0, 0), (2, 1)] {
        assert_eq!(
            plan(&set, DownReplicas::Count(down), None).unwrap().moves,
            [(0, json!(held))]
        );
    }
}

#[test]
fn rule_s1_what_is_kept_is_never_more_than_there_was() {
    for (was, down, wanted) in [
        (Some(json!(5)), DownReplicas::Count(2), Some(2)),
        (Some(json!(1)), DownReplicas::Count(2), Some(1)),
        (Some(json!("5")), DownReplicas::Percent(50), Some(3)),
        // An absent count stands for one.
        (None, DownReplicas::Count(2), Some(1)),
        (None, DownReplicas::Percent(50), Some(1)),
        (None, DownReplicas::Count(0), Some(0)),
        (Some(json!(true)), DownReplicas::Count(2), None),
    ] {
        assert_eq!(kept(was.as_ref(), down), wanted, "{was:?} {down}");
    }
}

#[test]
fn case_2_23_an_owners_suspend_survives() {
    let job = |suspend| {
        workload(
            "CronJob",
            "batch",
            &json!({"metadata": {}, "spec": {"suspend": suspend}}),
        )
    };
    assert_eq!(plan(&job(true), DownReplicas::Count(0), None), None);
    assert_eq!(
        plan(&job(false), DownReplicas::Count(0), None).unwrap().moves,
        [(0, json!(true))]
    );
}
