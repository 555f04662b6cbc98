use serde_json::json;

use super::*;
use crate::annotations::{DownReplicas, ORIGINAL_REPLICAS, SCHEDULE};
use crate::kinds::Kinds;
use crate::record::plan;

fn read(kind: &str, group: &str, object: &Value) -> Workload {
    let kinds = Kinds::default();
    Workload::read(kinds.by_kind(group, kind).unwrap(), object).unwrap()
}

fn now() -> Timestamp {
    "2026-11-30T20:00:00Z".parse().unwrap()
}

fn apply(object: &Value, patch: &Patch) -> Value {
    let mut object = object.clone();
    json_patch::patch(&mut object, patch).unwrap();
    object
}

fn put_down(kind: &str, group: &str, object: &Value) -> Value {
    let workload = read(kind, group, object);
    let plan = plan(&workload, DownReplicas::Count(0), None).unwrap();
    apply(
        object,
        &down(&workload, &plan, now()).patch(&workload, Preconditions::State),
    )
}

fn bring_up(kind: &str, group: &str, object: &Value) -> Value {
    let workload = read(kind, group, object);
    let record = Record::read(&workload).unwrap();
    assert!(record.asleep(&workload));
    apply(
        object,
        &restore(&workload, &record, None, 1, now()).patch(&workload, Preconditions::State),
    )
}

/// Empty maps are as good as none: Kubernetes leaves them out.
fn without_empty(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        *map = std::mem::take(map)
            .into_iter()
            .map(|(key, value)| (key, without_empty(value)))
            .filter(|(_, value)| value.as_object().is_none_or(|map| !map.is_empty()))
            .collect();
    }
    value
}

#[test]
fn case_2_03_record_label_instant_and_knob_are_one_patch_that_names_what_it_relies_on() {
    let object = json!({"metadata": {"name": "a", "uid": "u1", "resourceVersion": "7"}, "spec": {"replicas": 1}});
    let workload = read("Deployment", "apps", &object);
    let plan = plan(&workload, DownReplicas::Count(0), None).unwrap();
    let patch = down(&workload, &plan, now()).patch(&workload, Preconditions::State);
    assert_eq!(
        serde_json::to_value(&patch).unwrap(),
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 0},
            {"op": "add", "path": "/metadata/annotations", "value":
                {"offhours.platform.io/down-since": "2026-11-30T20:00:00Z", "offhours.platform.io/original-replicas": "1"}},
            {"op": "add", "path": "/metadata/labels", "value": {"offhours.platform.io/asleep": "1"}},
        ])
    );
}

#[test]
fn status_writes_do_not_disturb_a_patch_on_an_object_that_has_annotations_and_labels() {
    let object = json!({"metadata": {"name": "a", "uid": "u1", "resourceVersion": "7", "annotations": {"a": "1"}, "labels": {"b": "2"}},
                        "spec": {"replicas": 1}});
    let workload = read("Deployment", "apps", &object);
    let plan = plan(&workload, DownReplicas::Count(0), None).unwrap();
    let patch = down(&workload, &plan, now()).patch(&workload, Preconditions::State);
    let text = serde_json::to_string(&patch).unwrap();
    assert!(!text.contains("resourceVersion"), "{text}");
}

#[test]
fn case_5_07_and_5_09_slashes_and_tildes_in_keys_are_escaped() {
    let object = json!({"metadata": {"annotations": {"a": "1"}, "labels": {}}, "spec": {"replicas": 1}});
    let workload = read("Deployment", "apps", &object);
    let mut edits = Edits::default();
    edits.annotation("x~y/z", Some("1".to_owned()));
    edits.annotation(ORIGINAL_REPLICAS, Some("3".to_owned()));
    let patch = edits.patch(&workload, Preconditions::None);
    let text = serde_json::to_string(&patch).unwrap();
    assert!(text.contains("/metadata/annotations/x~0y~1z"), "{text}");
    assert!(
        text.contains("/metadata/annotations/offhours.platform.io~1original-replicas"),
        "{text}"
    );
    assert_eq!(
        apply(&object, &patch)["metadata"]["annotations"],
        json!({"a": "1", "x~y/z": "1", ORIGINAL_REPLICAS: "3"})
    );
}

#[test]
fn what_goes_down_comes_back_exactly_for_every_kind() {
    let kinds = Kinds::default();
    let bodies = [
        json!({"replicas": 3, "suspend": false, "maxRunners": 5, "minRunners": 2, "template": {"spec": {"nodeSelector": {"a": "b"}}},
               "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"}}),
        json!({"replicas": 1, "suspend": false, "template": {"spec": {}}, "startingDeadlineSeconds": 60}),
    ];
    let metadata = [
        json!({"name": "a", "uid": "u1", "resourceVersion": "7", "annotations": {"x": "y", "autoscaling.keda.sh/paused-replicas": "4",
                "cnpg.io/hibernation": "off"}, "labels": {SCHEDULE: "dev"}}),
        json!({"name": "a", "uid": "u1", "resourceVersion": "7"}),
    ];
    for kind in kinds.rows() {
        for spec in &bodies {
            for metadata in &metadata {
                let object = json!({"metadata": metadata, "spec": spec});
                let asleep = put_down(&kind.kind, &kind.group, &object);
                assert_ne!(asleep, object, "{}", kind.kind);
                let awake = bring_up(&kind.kind, &kind.group, &asleep);
                assert_eq!(without_empty(awake), without_empty(object), "{}", kind.kind);
            }
        }
    }
}

#[test]
fn case_2_20_only_suspend_changes_on_a_cron_job() {
    let object = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"schedule": "* * * * *", "startingDeadlineSeconds": 60}});
    let asleep = put_down("CronJob", "batch", &object);
    assert_eq!(
        asleep["spec"],
        json!({"schedule": "* * * * *", "startingDeadlineSeconds": 60, "suspend": true})
    );
    // the field was absent, so it is again
    assert_eq!(bring_up("CronJob", "batch", &asleep)["spec"], object["spec"]);
}

#[test]
fn rule_s8_a_restore_is_clamped_into_its_autoscalers_range() {
    let object = json!({"metadata": {"uid": "u", "annotations": {ORIGINAL_REPLICAS: "9"}, "labels": {}}, "spec": {"replicas": 0}});
    let workload = read("Deployment", "apps", &object);
    let record = Record::read(&workload).unwrap();
    let up = |clamp| {
        apply(
            &object,
            &restore(&workload, &record, clamp, 1, now()).patch(&workload, Preconditions::State),
        )
    };
    assert_eq!(up(None)["spec"]["replicas"], json!(9));
    assert_eq!(up(Some((1, 5)))["spec"]["replicas"], json!(5));
    assert_eq!(up(Some((12, 20)))["spec"]["replicas"], json!(12));
}

#[test]
fn rule_e6_an_expired_wake_goes_with_our_next_write() {
    let object = json!({"metadata": {"uid": "u", "annotations": {AWAKE_UNTIL: "2026-11-30T19:00:00Z", ASLEEP_UNTIL: "2h"}, "labels": {}},
                        "spec": {"replicas": 2}});
    let asleep = put_down("Deployment", "apps", &object);
    assert_eq!(asleep["metadata"]["annotations"].get(AWAKE_UNTIL), None);
    assert_eq!(asleep["metadata"]["annotations"][ASLEEP_UNTIL], json!("2h"));
}

#[test]
fn a_patch_that_would_change_nothing_is_empty() {
    let object = json!({"metadata": {"uid": "u"}, "spec": {"replicas": 2}});
    let workload = read("Deployment", "apps", &object);
    assert_eq!(
        forget(&workload, now()).patch(&workload, Preconditions::State),
        Patch(Vec::new())
    );
}

#[test]
fn what_is_remembered_moves_both_copies_of_the_record() {
    let object = json!({"metadata": {"uid": "u", "annotations": {ORIGINAL_REPLICAS: "3"}, "labels": {ASLEEP: "3"}}, "spec": {"replicas": 0}});
    let workload = read("Deployment", "apps", &object);
    let after = apply(
        &object,
        &remember(&workload, Some(&json!(5))).patch(&workload, Preconditions::State),
    );
    assert_eq!(after["metadata"]["annotations"][ORIGINAL_REPLICAS], json!("5"));
    assert_eq!(after["metadata"]["labels"][ASLEEP], json!("5"));
    let again = read("Deployment", "apps", &after);
    assert!(remember(&again, Some(&json!(5))).is_empty());
}

#[test]
fn rule_s7_ownership_is_given_up_only_where_another_manager_applies() {
    let mut managers = Managers {
        knob: None,
        applied_by_other: true,
        own_entry: Some(2),
    };
    assert_eq!(
        serde_json::to_value(disown(&managers).unwrap()).unwrap(),
        json!([
            {"op": "test", "path": "/metadata/managedFields/2/manager", "value": "offhours"},
            {"op": "test", "path": "/metadata/managedFields/2/operation", "value": "Update"},
            {"op": "remove", "path": "/metadata/managedFields/2"},
        ])
    );
    managers.applied_by_other = false;
    assert_eq!(disown(&managers), None);
}

#[test]
fn a_lost_record_is_written_back_whole() {
    let asleep = put_down(
        "Deployment",
        "apps",
        &json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 4}}),
    );
    let record = Record::read(&read("Deployment", "apps", &asleep)).unwrap();
    let stripped =
        json!({"metadata": {"uid": "u", "annotations": {"other": "1"}, "labels": {}}, "spec": {"replicas": 0}});
    let workload = read("Deployment", "apps", &stripped);
    let healed = apply(
        &stripped,
        &put_back(&workload, &record).patch(&workload, Preconditions::State),
    );
    assert_eq!(Record::read(&read("Deployment", "apps", &healed)).unwrap(), record);
}

#[test]
fn the_controller_of_an_hpa_is_asked_in_its_own_condition_and_what_relies_on_that_ends_with_its_answer() {
    let able = json!({"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "m"});
    let other = json!({"type": "ScalingActive", "status": "True"});
    for (status, index) in [
        (json!({"desiredReplicas": 1, "conditions": [other, able]}), 1),
        (json!({"desiredReplicas": 1, "conditions": [other]}), 1),
        (json!({"desiredReplicas": 1, "conditions": []}), 0),
        (json!({"desiredReplicas": 1}), 0),
    ] {
        let object = json!({
            "metadata": {"name": "web", "uid": "u1", "resourceVersion": "7"}, "spec": {"maxReplicas": 1}, "status": status,
        });
        let asked = apply(&object, &ask_controller(&Hpa::read(&object).unwrap(), now()));
        let condition = &asked["status"]["conditions"][index];
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!(ABLE_TO_SCALE), &json!(ASKED))
        );
        assert_eq!(condition["status"], "Unknown");
        let hpa = Hpa::read(&asked).unwrap();
        assert_eq!((hpa.able.asked, hpa.able.index), (Some(now()), Some(index)));
        // A list that has moved meanwhile is not written into.
        let mut moved = object.clone();
        moved["metadata"]["resourceVersion"] = json!("8");
        moved["status"]["conditions"] = json!([able, other]);
        let patch = ask_controller(&Hpa::read(&object).unwrap(), now());
        assert!(json_patch::patch(&mut moved, &patch).is_err(), "{patch:?}");

        let mut edits = Edits::default();
        edits.knobs.insert(1, Some(json!(9)));
        let given_back = while_asked(&hpa, edits.patch(&hpa.object, Preconditions::State));
        assert_eq!(apply(&asked, &given_back)["spec"]["maxReplicas"], 9);
        let mut answered = asked.clone();
        answered["status"]["conditions"][index] = able.clone();
        assert!(json_patch::patch(&mut answered, &given_back).is_err());
        // Who has not asked relies on nothing.
        let hpa = Hpa::read(&answered).unwrap();
        let patch = edits.patch(&hpa.object, Preconditions::State);
        assert_eq!(while_asked(&hpa, patch.clone()), patch);
    }
}
