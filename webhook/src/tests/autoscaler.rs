//! E4: the HPA of what sleeps.

use serde_json::{Value, json};
use shared::annotations::{DOWN_SINCE, HELD_REPLICAS};

use super::world::*;
use crate::service::{Outcome, Phase};

fn hpa(min: u64, target: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "checkout", "namespace": "shop", "uid": "h", "resourceVersion": "9"},
        "spec": {"minReplicas": min, "maxReplicas": 9, "metrics": [],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
    })
}

#[test]
fn rule_e4_an_hpa_that_is_pointed_at_a_sleeper_is_as_if_it_were_created_there() {
    let retarget = update(&hpa(2, "other"), &hpa(2, "checkout"));
    let mut world = World::with(&json!({"mode": "Deny", "exempt": {"users": ["ci"]}}));
    world.add(&sleeping("3"));
    for phase in [Phase::Mutate, Phase::Validate] {
        for review in [&retarget, &create(&hpa(2, "checkout"))] {
            let denial = world.rule_on(review, phase).answer.denial.unwrap();
            assert!(
                denial.message.contains("deployment \"checkout\" is off hours"),
                "{denial:?}"
            );
        }
        let away = update(&hpa(2, "other"), &hpa(2, "another"));
        assert_eq!(world.rule_on(&away, phase).outcome, Outcome::Passed);
    }
    // Whatever became of the former target.
    let gone = update(&hpa(2, "gone"), &hpa(5, "checkout"));
    assert_eq!(world.validate(&gone).outcome, Outcome::Denied);
    let argo = "system:serviceaccount:argocd:argocd-application-controller";
    assert_eq!(world.validate(&by(retarget.clone(), argo)).answer.denial, None);
    let exempt = world.validate(&by(retarget.clone(), "ci"));
    assert_eq!(exempt.outcome, Outcome::Overridden);
    assert!(
        exempt.tell[0]
            .message
            .contains("\"ci\" changed it while its target sleeps"),
        "{exempt:?}"
    );
    assert_eq!(world.by_day().validate(&retarget).outcome, Outcome::Passed);

    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    let ruling = world.mutate(&retarget);
    assert_eq!((ruling.outcome, ruling.answer.patch.0.len()), (Outcome::Passed, 0));
    // A sleeper's HPA keeps its target, whatever the other one does.
    let mut other = sleeping("4");
    other["metadata"]["name"] = json!("other");
    world.add(&other);
    assert_eq!(
        patched(&retarget, &world.mutate(&retarget))["spec"],
        hpa(2, "other")["spec"]
    );
}

#[test]
fn rule_e4_the_hpa_of_a_sleeper_is_held_with_it() {
    let old = hpa(2, "checkout");
    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    let review = update(&old, &hpa(5, "other"));
    let ruling = world.mutate(&review);
    let object = patched(&review, &ruling);
    assert_eq!(object["spec"], old["spec"]);
    assert_eq!(
        object["metadata"]["annotations"]["offhours.platform.io/original-min-replicas"],
        "5"
    );
    let target: Value = serde_json::from_str(
        object["metadata"]["annotations"]["offhours.platform.io/original-scale-target"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(target["name"], "other");
    assert_eq!(world.mutate(&create(&old)).outcome, Outcome::Passed);
    assert_eq!(
        world
            .validate(&super::world::review("DELETE", Some(&old), None))
            .outcome,
        Outcome::Passed
    );
    // What holds it may not be stripped.
    let capped = changed(&old, |object| {
        object["metadata"]["annotations"] = json!({DOWN_SINCE: "2026-11-30T23:00:00Z", HELD_REPLICAS: "2"});
    });
    let review = update(&capped, &old);
    let object = patched(&review, &world.mutate(&review));
    assert_eq!(object["metadata"]["annotations"], capped["metadata"]["annotations"]);
    let metrics = changed(&old, |object| object["spec"]["metrics"] = json!([{"type": "Resource"}]));
    assert_eq!(world.mutate(&update(&old, &metrics)).outcome, Outcome::Passed);

    let mut world = World::denying();
    world.add(&sleeping("3"));
    let delete = super::world::review("DELETE", Some(&old), None);
    for review in [update(&old, &hpa(5, "checkout")), create(&old), delete.clone()] {
        assert!(world.validate(&review).answer.denial.is_some(), "{review}");
    }
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    assert_eq!(world.validate(&by(delete.clone(), collector)).answer.denial, None);
    // The workload goes too.
    let mut going = sleeping("3");
    going["metadata"]["deletionTimestamp"] = json!("2026-11-30T23:00:00Z");
    world.add(&going);
    assert_eq!(world.validate(&delete).answer.denial, None);
    world.add(&deployment(3));
    assert_eq!(world.validate(&delete).answer.denial, None, "a workload that is up");
    world.objects.clear();
    assert_eq!(
        world.validate(&delete).answer.denial,
        None,
        "the workload is gone, as at the second `helm uninstall`"
    );
}
