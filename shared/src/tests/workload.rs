use serde_json::json;

use super::*;

fn read_as(kind: &str, group: &str, object: &Value) -> Workload {
    let kinds = Kinds::default();
    let text = serde_json::to_vec(object).unwrap();
    parse(&kinds, kinds.by_kind(group, kind).unwrap(), &text).unwrap()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "namespace": "shop", "name": "checkout", "uid": "u1", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-11-30T10:00:00Z",
            "labels": {"app": "checkout"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "long", "offhours.platform.io/original-replicas": "3"},
            "managedFields": [
                {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:spec": {"f:template": {}}}},
                {"manager": "offhours", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            ],
        },
        "spec": {"replicas": 3, "template": {"spec": {"containers": []}}},
        "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3},
    })
}

#[test]
fn a_deployment_is_reduced_to_its_facts() {
    let workload = read_as("Deployment", "apps", &deployment());
    assert_eq!(
        workload.knobs,
        [Reading {
            value: Some(json!(3)),
            depth: 2
        }]
    );
    assert_eq!(workload.annotations.as_ref().unwrap().len(), 1);
    assert_eq!(workload.label("app"), Some("checkout"));
    assert_eq!(workload.rollout, Rollout::Settled);
    assert!(workload.ready);
    assert_eq!(
        workload.managers,
        Managers {
            knob: Some(Arc::from("offhours")),
            applied_by_other: true,
            own_entry: Some(1)
        }
    );
}

#[test]
fn rule_v7_a_rollout_with_old_pods_is_moving_stuck_or_paused() {
    let mut object = deployment();
    object["status"]["updatedReplicas"] = json!(1);
    object["spec"]["progressDeadlineSeconds"] = json!(60);
    object["status"]["conditions"] =
        json!([{"type": "Progressing", "status": "True", "lastUpdateTime": "2026-11-30T10:00:00Z"}]);
    let deadline = Some("2026-11-30T10:01:00Z".parse().unwrap());
    assert_eq!(
        read_as("Deployment", "apps", &object).rollout,
        Rollout::Moving { deadline }
    );
    object["status"]["conditions"][0]["status"] = json!("False");
    assert!(matches!(
        read_as("Deployment", "apps", &object).rollout,
        Rollout::Unfinished(_)
    ));
    object["spec"]["paused"] = json!(true);
    object["status"]["conditions"][0]["status"] = json!("True");
    assert!(matches!(
        read_as("Deployment", "apps", &object).rollout,
        Rollout::Unfinished(_)
    ));
    // not seen by its controller yet: nobody knows
    let mut fresh = deployment();
    fresh["metadata"]["generation"] = json!(3);
    assert_eq!(
        read_as("Deployment", "apps", &fresh).rollout,
        Rollout::Moving { deadline: None }
    );
}

#[test]
fn rule_v7_partitions_and_on_delete_keep_two_revisions() {
    let mut object = json!({
        "metadata": {"namespace": "shop", "name": "db", "generation": 1},
        "spec": {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
        "status": {"observedGeneration": 1, "currentRevision": "a", "updateRevision": "b"},
    });
    assert!(matches!(
        read_as("StatefulSet", "apps", &object).rollout,
        Rollout::Unfinished(_)
    ));
    object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    assert!(matches!(
        read_as("StatefulSet", "apps", &object).rollout,
        Rollout::Unfinished(_)
    ));
    object["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    assert_eq!(
        read_as("StatefulSet", "apps", &object).rollout,
        Rollout::Moving { deadline: None }
    );
    object["status"]["currentRevision"] = json!("b");
    assert_eq!(read_as("StatefulSet", "apps", &object).rollout, Rollout::Settled);
}

#[test]
fn a_missing_parent_of_a_knob_is_noted() {
    let object = json!({"metadata": {"name": "agent"}, "spec": {"template": {"spec": {"containers": []}}}});
    let workload = read_as("DaemonSet", "apps", &object);
    // what is not kept is not seen, but `spec.template.spec` is
    assert_eq!(workload.knobs, [Reading { value: None, depth: 3 }]);
    assert_eq!(workload.labels, None);
    assert_eq!(workload.annotations, None);
}

#[test]
fn odd_objects_are_an_error_or_empty_facts_never_a_panic() {
    let kinds = Kinds::default();
    let kind = kinds.by_kind("apps", "Deployment").unwrap();
    for wrong in ["", "null", "[]", "{}", r#"{"metadata": 3}"#] {
        assert!(parse(&kinds, kind, wrong.as_bytes()).is_err(), "{wrong}");
    }
    for odd in [
        r#"{"metadata": {}, "spec": 3}"#,
        r#"{"metadata": {"labels": [], "ownerReferences": {}}, "status": "x"}"#,
    ] {
        let workload = parse(&kinds, kind, odd.as_bytes()).unwrap();
        assert_eq!(workload.knobs.first().unwrap().value, None);
    }
}

#[test]
fn what_the_containers_ask_for_is_added_up_also_from_a_pruned_object() {
    let object = json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "x", "image": "y", "resources": {"requests": {"cpu": "250m", "memory": "1.5Gi"}}},
            {"name": "z", "resources": {"requests": {"cpu": 1, "memory": "512M"}, "limits": {"cpu": "8"}}},
            {"name": "none"},
            {"name": "odd", "resources": {"requests": {"cpu": "-1", "memory": "much"}}},
        ]}}},
    });
    let kinds = Kinds::default();
    let whole = Workload::read(kinds.by_kind("apps", "Deployment").unwrap(), &object).unwrap();
    for workload in [whole, read_as("Deployment", "apps", &object)] {
        assert_eq!(workload.requests.milli_cpu, 1250);
        assert_eq!(workload.requests.memory, 1_610_612_736 + 512_000_000);
        assert!((workload.requests.cores() - 1.25).abs() < 1e-9);
    }
    // A request is judged without reading any of it.
    let text = object.to_string();
    let judged = serde::de::DeserializeSeed::deserialize(
        kinds.keep_of_review().as_ref(),
        &mut serde_json::Deserializer::from_str(&text),
    );
    assert_eq!(judged.unwrap()["spec"]["template"]["spec"], json!({}));
}

#[test]
fn quantities_are_read_as_kubernetes_writes_them() {
    for (text, number) in [
        ("100m", 0.1),
        ("1.5", 1.5),
        ("128Mi", 134_217_728.0),
        ("2k", 2000.0),
        ("1Ti", 1_099_511_627_776.0),
    ] {
        let found = quantity(&json!(text)).unwrap();
        assert!((found - number).abs() < 1e-9, "{text}: {found}");
    }
    for wrong in [json!("much"), json!("-1"), json!(null)] {
        assert_eq!(quantity(&wrong), None, "{wrong}");
    }
}
