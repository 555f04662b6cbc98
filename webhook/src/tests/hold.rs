//! E1 to E5, S5: what is held, by whom it is asked, and what becomes of the record.

use serde_json::{Value, json};
use shared::annotations::{
    ASLEEP, AWAKE_UNTIL, DOWN_REPLICAS, DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS, PROTECTED,
};
use shared::kinds::{Kind, Kinds};

use super::world::*;
use crate::service::{Outcome, Phase};
use crate::state::{OnUncertainty, Seen};

fn scaled_to(replicas: u64) -> impl FnOnce(&mut Value) {
    move |object| object["spec"]["replicas"] = json!(replicas)
}

#[test]
fn rule_e1_what_is_up_in_a_window_is_not_put_down_by_the_webhook() {
    for world in [World::rewriting(), World::denying()] {
        let old = deployment(3);
        let ruling = world.mutate(&update(&old, &changed(&old, scaled_to(5))));
        assert_eq!(ruling.outcome, Outcome::Passed);
        assert_eq!(ruling.answer, crate::review::Answer::default());
    }
}

#[test]
fn rule_e1_by_day_everything_passes() {
    let old = sleeping("3");
    for world in [World::rewriting().by_day(), World::denying().by_day()] {
        let review = update(&old, &changed(&old, scaled_to(5)));
        assert_eq!(world.mutate(&review).outcome, Outcome::Passed);
        assert_eq!(world.validate(&review).outcome, Outcome::Passed);
    }
}

#[test]
fn rule_e2_rewrite_puts_the_knob_back_and_remembers_what_was_asked() {
    let world = World::rewriting();
    let old = sleeping("3");
    let review = update(&old, &changed(&old, scaled_to(5)));
    let ruling = world.mutate(&review);
    assert_eq!(ruling.outcome, Outcome::Held);
    let object = patched(&review, &ruling);
    assert_eq!(replicas(&object), Some(0));
    assert_eq!(record(&object), Some("5"));
    assert_eq!(object["metadata"]["labels"][ASLEEP], "5");
    assert_eq!(
        object["metadata"]["annotations"][DOWN_SINCE],
        old["metadata"]["annotations"][DOWN_SINCE]
    );
    assert_eq!(
        ruling.answer.warnings,
        [
            "deployment \"checkout\" is off hours (schedule dev-weekday) until Tue 2026-12-01 08:00 America/Sao_Paulo; kept at 0 \
          replicas, 5 remembered. Wake it: kubectl annotate --overwrite deployment checkout -n shop \
          offhours.platform.io/awake-until=2h"
        ]
    );
}

#[test]
fn rule_e2_deny_refuses_people_and_lets_an_unchanged_knob_pass_whatever_else_changes() {
    let world = World::denying();
    let old = sleeping("3");
    for phase in [Phase::Mutate, Phase::Validate] {
        let ruling = world.rule_on(&update(&old, &changed(&old, scaled_to(5))), phase);
        let message = ruling.answer.denial.unwrap().message;
        assert_eq!(
            message,
            "deployment \"checkout\" is off hours (schedule dev-weekday) until Tue 2026-12-01 08:00 America/Sao_Paulo; kept at \
             0 replicas. Wake it: kubectl annotate --overwrite deployment checkout -n shop offhours.platform.io/awake-until=2h"
        );
    }
    let image = changed(&old, |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("shop/checkout:2");
    });
    assert_eq!(world.mutate(&update(&old, &image)).outcome, Outcome::Passed);
}

#[test]
fn rule_e2_pipelines_are_rewritten_under_deny_and_autoscalers_never_recorded() {
    let old = sleeping("3");
    let review = update(&old, &changed(&old, scaled_to(5)));
    let argo = "system:serviceaccount:argocd:argocd-application-controller";
    let ruling = World::denying().mutate(&by(review.clone(), argo));
    assert_eq!(record(&patched(&review, &ruling)), Some("5"));
    assert_eq!(ruling.answer.warnings.len(), 1);

    let hpa = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
    for world in [World::denying(), World::rewriting()] {
        let ruling = world.mutate(&by(review.clone(), hpa));
        let object = patched(&review, &ruling);
        assert_eq!((replicas(&object), record(&object)), (Some(0), Some("3")));
        assert!(ruling.answer.warnings.is_empty());
    }
}

#[test]
fn rule_e2_warn_warns_and_off_does_not_look() {
    let old = sleeping("3");
    let review = update(&old, &changed(&old, scaled_to(5)));
    let ruling = World::with(&json!({"mode": "Warn"})).mutate(&review);
    assert_eq!((ruling.outcome, ruling.answer.patch.0.len()), (Outcome::Warned, 0));
    assert_eq!(ruling.answer.warnings.len(), 1);
    let ruling = World::with(&json!({"mode": "Off"})).mutate(&review);
    assert_eq!((ruling.outcome, ruling.answer.warnings.len()), (Outcome::Passed, 0));
}

#[test]
fn rule_e3_a_new_workload_comes_down_at_once_with_its_own_number_as_record() {
    for world in [World::rewriting(), World::denying()] {
        let review = create(&deployment(2));
        let ruling = world.mutate(&review);
        let object = patched(&review, &ruling);
        assert_eq!((replicas(&object), record(&object)), (Some(0), Some("2")));
        assert_eq!(object["metadata"]["annotations"][DOWN_SINCE], "2026-11-30T23:00:00Z");
        assert_eq!(object["metadata"]["annotations"]["a"], "1");
        assert_eq!(ruling.answer.warnings.len(), 1);
        assert_eq!(world.validate(&review).answer.denial, None);
    }
    let ruling = World::with(&json!({"mode": "Warn"})).mutate(&create(&deployment(2)));
    assert_eq!((ruling.outcome, ruling.answer.patch.0.len()), (Outcome::Warned, 0));
}

#[test]
fn rule_e5_own_identities_and_the_exempt_pass_and_an_exemption_is_told() {
    let mut world = World::with(&json!({"mode": "Deny", "exempt": {"users": ["root-*"], "groups": ["sre"]}}));
    world.add(&sleeping("3"));
    let old = sleeping("3");
    let review = update(&old, &changed(&old, scaled_to(5)));
    let own = world.mutate(&by(review.clone(), "system:serviceaccount:offhours-system:offhours"));
    assert_eq!(own.outcome, Outcome::Passed);
    for ruling in [
        world.mutate(&by(review, "root-7")),
        world.mutate(&by(scale(0, 5), "root-7")),
    ] {
        assert_eq!(ruling.outcome, Outcome::Overridden);
        assert!(ruling.answer.patch.0.is_empty());
        assert!(ruling.tell[0].message.contains("root-7"));
    }
}

#[test]
fn rule_e5_a_wake_or_protection_in_the_same_request_opens_the_hold() {
    let world = World::denying();
    let old = sleeping("3");
    for (key, value) in [(AWAKE_UNTIL, "2026-12-01T01:00:00Z"), (PROTECTED, "true")] {
        let new = changed(&old, |object| {
            object["metadata"]["annotations"][key] = json!(value);
            object["spec"]["replicas"] = json!(5);
        });
        assert_eq!(
            replicas(&patched(&update(&old, &new), &world.mutate(&update(&old, &new)))),
            Some(5)
        );
    }
}

#[test]
fn rule_s1_an_owners_own_zero_raised_at_night_becomes_a_sleep_with_a_record() {
    let world = World::rewriting();
    let old = deployment(0);
    let review = update(&old, &changed(&old, scaled_to(4)));
    let object = patched(&review, &world.mutate(&review));
    assert_eq!((replicas(&object), record(&object)), (Some(0), Some("4")));
    assert_eq!(object["metadata"]["labels"][ASLEEP], "4");
}

#[test]
fn rule_s1_percentages_are_of_the_number_asked_for() {
    let world = World::rewriting();
    let mut old = sleeping("4");
    old["metadata"]["annotations"][DOWN_REPLICAS] = json!("50%");
    old["metadata"]["annotations"][HELD_REPLICAS] = json!("2");
    old["spec"]["replicas"] = json!(2);
    let held = |asked: u64| {
        let review = update(&old, &changed(&old, scaled_to(asked)));
        let object = patched(&review, &world.mutate(&review));
        let annotations = object["metadata"]["annotations"].clone();
        (
            replicas(&object),
            record(&object).map(str::to_owned),
            annotations[HELD_REPLICAS].clone(),
        )
    };
    assert_eq!(held(8), (Some(4), Some("8".to_owned()), json!("4")));
    assert_eq!(held(3), (Some(2), Some("3".to_owned()), json!("2")));
    assert_eq!(
        held(1),
        (Some(1), Some("4".to_owned()), json!("2")),
        "lowering is a wish"
    );
}

#[test]
fn rule_s5_a_stripped_or_edited_record_is_put_back() {
    let world = World::denying();
    let old = sleeping("3");
    let annotation_gone = changed(&old, |object| {
        object["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "2"});
    });
    let both_gone = changed(&old, |object| {
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        object["metadata"]["labels"] = json!({"app": "checkout"});
    });
    let edited = changed(&old, |object| {
        object["metadata"]["annotations"][ORIGINAL_REPLICAS] = json!("9");
    });
    let broken = changed(&old, |object| {
        object["metadata"]["annotations"][ORIGINAL_REPLICAS] = json!("many");
        object["metadata"]["labels"][ASLEEP] = json!("many");
    });
    let since = changed(&old, |object| {
        object["metadata"]["annotations"][DOWN_SINCE] = json!("2020-01-01T00:00:00Z");
    });
    for new in [annotation_gone, both_gone, edited, broken, since] {
        let review = update(&old, &new);
        let ruling = world.mutate(&review);
        assert_eq!(ruling.outcome, Outcome::PutBack, "{new}");
        let object = patched(&review, &ruling);
        assert_eq!(record(&object), Some("3"));
        assert_eq!(object["metadata"]["labels"][ASLEEP], "3");
        assert_eq!(object["metadata"]["annotations"][DOWN_SINCE], "2026-11-30T23:00:00Z");
        assert_eq!(ruling.answer.warnings.len(), 1);
        assert_eq!(ruling.tell.len(), 1);
    }
}

#[test]
fn rule_s5_a_replace_that_takes_annotation_and_label_and_raises_keeps_the_start_of_the_sleep() {
    let world = World::rewriting();
    let old = sleeping("3");
    let review = update(&old, &deployment(2));
    let object = patched(&review, &world.mutate(&review));
    assert_eq!((replicas(&object), record(&object)), (Some(0), Some("2")));
    assert_eq!(object["metadata"]["annotations"][DOWN_SINCE], "2026-11-30T23:00:00Z");
}

#[test]
fn rule_s5_the_exempt_may_remove_a_record() {
    let world = World::with(&json!({"exempt": {"users": ["ana"]}}));
    let old = sleeping("3");
    let new = changed(&old, |object| object["metadata"]["annotations"] = json!({}));
    assert_eq!(world.mutate(&update(&old, &new)).answer.patch.0.len(), 0);
}

#[test]
fn rule_s5_a_record_survives_when_nobody_knows_the_schedule() {
    let mut world = World::rewriting();
    world.namespaces.clear();
    let old = sleeping("3");
    let new = changed(&old, |object| object["metadata"]["annotations"] = json!({}));
    assert_eq!(world.mutate(&update(&old, &new)).outcome, Outcome::PutBack);
}

#[test]
fn rule_v6_claims_of_a_sleeping_stateful_set_are_not_given_away() {
    let world = World::denying();
    let mut old = sleeping("3");
    old["kind"] = json!("StatefulSet");
    old["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": "Retain", "whenDeleted": "Retain"});
    let new = changed(&old, |object| {
        object["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Delete");
    });
    let review = update(&old, &new);
    let object = patched(&review, &world.mutate(&review));
    assert_eq!(
        object["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"],
        "Retain"
    );
    assert_eq!(
        object["metadata"]["annotations"]["offhours.platform.io/original-when-scaled"],
        "Delete"
    );
}

#[test]
fn rule_v4_what_is_never_touched_passes() {
    let mut world = World::denying();
    world.add_namespace(
        &json!({"metadata": {"name": "kube-system", "labels": {"offhours.platform.io/schedule": "dev-weekday"}}}),
    );
    let mut system = deployment(2);
    system["metadata"]["namespace"] = json!("kube-system");
    let mut hook = deployment(2);
    hook["metadata"]["annotations"]["helm.sh/hook"] = json!("pre-install");
    let mut owned = deployment(2);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "r", "uid": "x", "controller": true}]);
    for object in [system, hook, owned] {
        assert_eq!(world.mutate(&create(&object)).outcome, Outcome::Passed);
    }
}

fn scaled_object(asleep: bool) -> Value {
    let mut object = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "checkout-so", "namespace": "shop", "uid": "s", "resourceVersion": "1", "annotations": {}, "labels": {}},
        "spec": {"scaleTargetRef": {"name": "checkout"}, "minReplicaCount": 1},
    });
    if asleep {
        object["metadata"]["annotations"] = json!({
            "autoscaling.keda.sh/paused-replicas": "0",
            "offhours.platform.io/original-paused-replicas": "absent",
            DOWN_SINCE: "2026-11-30T23:00:00Z",
        });
        object["metadata"]["labels"][ASLEEP] = json!("absent");
    }
    object
}

#[test]
fn rule_e8_the_target_of_a_scaled_object_is_held_and_not_remembered() {
    let old = deployment(0);
    let review = update(&old, &changed(&old, scaled_to(4)));
    let mut world = World::rewriting();
    world.add(&scaled_object(true));
    world.add(&old);
    for (review, ruling) in [
        (&review, world.mutate(&review)),
        (&scale(0, 4), world.mutate(&scale(0, 4))),
    ] {
        assert_eq!(replicas(&patched(review, &ruling)), Some(0));
        assert_eq!(ruling.remember, None);
        assert!(
            ruling.answer.warnings[0].contains("4 not remembered"),
            "{:?}",
            ruling.answer.warnings
        );
        assert!(ruling.answer.warnings[0].contains("scaledobjects.keda.sh checkout-so"));
    }
    world.add(&scaled_object(false));
    assert_eq!(
        world.mutate(&review).outcome,
        Outcome::Passed,
        "the ScaledObject is awake"
    );
}

#[test]
fn a_removed_pause_of_a_scaled_object_is_put_back() {
    let world = World::rewriting();
    let old = scaled_object(true);
    let new = changed(&old, |object| {
        object["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("autoscaling.keda.sh/paused-replicas");
    });
    let review = update(&old, &new);
    let object = patched(&review, &world.mutate(&review));
    assert_eq!(
        object["metadata"]["annotations"]["autoscaling.keda.sh/paused-replicas"],
        "0"
    );
}

#[test]
fn a_cron_job_is_kept_suspended() {
    let mut spec = spec(&json!({"mode": "Rewrite"}));
    spec.kinds = serde_json::from_value(json!([{"kind": "CronJob"}])).unwrap();
    let world = World::of_spec(&spec);
    let cron_job = |suspend: bool| {
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "report", "namespace": "shop", "uid": "c", "resourceVersion": "1"},
            "spec": {"suspend": suspend, "schedule": "* * * * *"},
        })
    };
    let review = create(&cron_job(false));
    let object = patched(&review, &world.mutate(&review));
    assert_eq!(object["spec"]["suspend"], true);
    let old = object;
    let review = update(&old, &changed(&old, |object| object["spec"]["suspend"] = json!(false)));
    let ruling = world.mutate(&review);
    assert_eq!(patched(&review, &ruling)["spec"]["suspend"], true);
    assert!(
        ruling.answer.warnings[0].contains("kept suspended"),
        "{:?}",
        ruling.answer.warnings
    );
}

#[test]
fn rule_v5_a_sleep_in_a_pod_template_is_refused_outside_a_window() {
    let mut spec = spec(&json!({}));
    spec.kinds = serde_json::from_value(json!([{"kind": "DaemonSet"}])).unwrap();
    let daemon_set = |asleep: bool| {
        let selector = if asleep {
            json!({"offhours.platform.io/asleep": "true"})
        } else {
            json!({})
        };
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "shop", "uid": "x", "resourceVersion": "1"},
            "spec": {"template": {"spec": {"nodeSelector": selector}}},
        })
    };
    let review = update(&daemon_set(false), &daemon_set(true));
    let world = World::of_spec(&spec).by_day();
    assert!(world.validate(&review).answer.denial.is_some());
    assert_eq!(World::of_spec(&spec).mutate(&review).answer.denial, None);
}

#[test]
fn rule_e10_what_cannot_be_told_passes_with_a_warning_or_is_refused_on_request() {
    let old = sleeping("3");
    let review = update(&old, &changed(&old, scaled_to(5)));
    let mut world = World::denying();
    world
        .namespaces
        .insert("shop".to_owned(), Seen::Unknown("not listed yet".into()));
    for review in [&review, &create(&deployment(3))] {
        let ruling = world.mutate(review);
        assert_eq!(ruling.outcome, Outcome::Uncertain);
        assert_eq!((ruling.answer.denial, ruling.answer.warnings.len()), (None, 1));
    }
    world.policy.on_uncertainty = OnUncertainty::Deny;
    assert!(world.mutate(&review).answer.denial.is_some());
}

#[test]
fn rule_e11_what_another_webhook_raised_is_seen_in_the_final_object() {
    let old = sleeping("3");
    let review = update(&old, &changed(&old, scaled_to(5)));
    let ruling = World::rewriting().validate(&review);
    assert_eq!((ruling.answer.denial, ruling.answer.warnings.len()), (None, 1));
    assert!(World::denying().validate(&review).answer.denial.is_some());
}

#[test]
fn an_absent_count_is_one_so_a_partial_hold_without_a_record_does_not_raise_it() {
    for user in ["ana", "system:serviceaccount:kube-system:horizontal-pod-autoscaler"] {
        let mut old = sleeping("3");
        let annotations = old["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove(ORIGINAL_REPLICAS);
        annotations.insert(HELD_REPLICAS.to_owned(), json!("2"));
        old["metadata"]["labels"][ASLEEP] = json!("true");
        let new = changed(&old, |object| {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
            object["spec"].as_object_mut().unwrap().remove("replicas");
        });
        let review = by(update(&old, &new), user);
        let object = patched(&review, &World::rewriting().mutate(&review));
        assert!(replicas(&object).unwrap_or(1) <= 1, "{object}");
    }
}

#[test]
fn an_absent_count_is_one_so_what_an_autoscaler_left_out_does_not_come_back_as_more() {
    let old = deployment(2);
    let new = changed(&old, |object| {
        object["metadata"]["annotations"][DOWN_REPLICAS] = json!("2");
        object["spec"].as_object_mut().unwrap().remove("replicas");
    });
    let review = by(
        update(&old, &new),
        "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    );
    let object = patched(&review, &World::rewriting().mutate(&review));
    assert!(replicas(&object).unwrap_or(1) <= 1, "{object}");
}

#[test]
fn a_count_of_more_than_32_bits_is_held_and_remembered_as_it_is() {
    let farm = |object: Value| {
        changed(&object, |object| {
            object["apiVersion"] = json!("example.com/v1");
            object["kind"] = json!("Farm");
        })
    };
    for mode in ["Rewrite", "Deny"] {
        let mut world = World::with(&json!({"mode": mode}));
        world.kinds = Kinds::with([Kind {
            group: "example.com".into(),
            kind: "Farm".into(),
            plural: "farms".into(),
            built_in: false,
            ..(**world.kinds.by_kind("apps", "Deployment").unwrap()).clone()
        }]);
        let old = farm(sleeping("5000000000"));
        for asked in [7_000_000_000, i64::MAX.unsigned_abs()] {
            let review = update(&old, &changed(&old, scaled_to(asked)));
            let ruling = world.mutate(&review);
            if mode == "Deny" {
                assert_eq!(ruling.outcome, Outcome::Denied);
                continue;
            }
            let object = patched(&review, &ruling);
            assert_eq!(
                (replicas(&object), record(&object)),
                (Some(0), Some(asked.to_string().as_str()))
            );
            let review = create(&farm(deployment(asked)));
            let object = patched(&review, &world.mutate(&review));
            assert_eq!(record(&object), Some(asked.to_string().as_str()));
        }
        // What changes nothing of it leaves the record alone.
        let review = update(
            &old,
            &changed(&old, |object| object["spec"]["template"]["x"] = json!(1)),
        );
        assert_eq!(record(&patched(&review, &world.mutate(&review))), Some("5000000000"));
        // A number that no object can have is one that cannot be judged; the API server refuses it.
        for asked in ["18446744073709551616", "-1", "1.5"] {
            let mut review = scale(0, 5);
            review["request"]["object"]["spec"]["replicas"] = serde_json::from_str(asked).unwrap();
            world.add(&sleeping("3"));
            assert_eq!(world.mutate(&review).outcome, Outcome::Unreadable, "{asked}");
        }
    }
}
