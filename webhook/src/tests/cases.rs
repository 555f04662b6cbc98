//! Public reports about tools of this kind, retold as tests; the numbers are those of our list of cases.

use jiff::ToSpan as _;
use serde_json::{Value, json};
use shared::annotations::ORIGINAL_REPLICAS;

use super::world::*;
use crate::review::encode;
use crate::service::{Outcome, remember_edits};
use crate::state::Seen;

fn wire(ruling: &crate::service::Ruling) -> Value {
    serde_json::from_slice(&encode("uid-1", &ruling.answer)).unwrap()
}

#[test]
fn rule_v8_and_case_2_10_a_night_deploy_is_admitted_asleep_and_says_so_and_grace_is_honoured() {
    let review = create(&deployment(2));
    let ruling = World::rewriting().mutate(&review);
    let object = patched(&review, &ruling);
    assert_eq!((replicas(&object), record(&object)), (Some(0), Some("2")));
    assert_eq!(ruling.answer.warnings.len(), 1);
    assert!(ruling.answer.warnings[0].len() <= 256);
    assert!(ruling.answer.warnings[0].contains("Tue 2026-12-01 08:00 America/Sao_Paulo"));

    let mut spec = spec(&json!({}));
    spec.grace_period = Some("15m".to_owned());
    let ruling = World::of_spec(&spec).mutate(&review);
    assert_eq!(ruling.answer, crate::review::Answer::default());
    // Old enough, it is held like everything else.
    let mut world = World::of_spec(&spec);
    let old = sleeping("2");
    world.now = world.now.checked_add(15.minutes()).unwrap();
    let raise = update(&old, &changed(&old, |object| object["spec"]["replicas"] = json!(2)));
    assert_eq!(world.mutate(&raise).outcome, Outcome::Held);
}

#[test]
fn case_2_12_a_removed_field_means_one_and_a_manifest_that_never_had_it_means_nothing() {
    let world = World::rewriting();
    let old = sleeping("4");
    // The API server has put in its default by the time that it calls.
    let removed = update(&old, &changed(&old, |object| object["spec"]["replicas"] = json!(1)));
    let object = patched(&removed, &world.mutate(&removed));
    assert_eq!((replicas(&object), record(&object)), (Some(0), Some("1")));
    let image = update(
        &old,
        &changed(&old, |object| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("shop/checkout:2");
        }),
    );
    let object = patched(&image, &world.mutate(&image));
    assert_eq!((replicas(&object), record(&object)), (Some(0), Some("4")));
    // A custom resource without that default.
    let null = update(&old, &changed(&old, |object| object["spec"]["replicas"] = Value::Null));
    let object = patched(&null, &world.mutate(&null));
    assert_eq!((replicas(&object), record(&object)), (Some(0), Some("absent")));
}

#[test]
fn case_4_06_a_sync_at_night_is_accepted_and_remembered() {
    let argo = "system:serviceaccount:argocd:argocd-application-controller";
    let old = sleeping("2");
    let review = update(&old, &changed(&old, |object| object["spec"]["replicas"] = json!(3)));
    for world in [World::rewriting(), World::denying()] {
        let ruling = world.mutate(&by(review.clone(), argo));
        let object = patched(&review, &ruling);
        assert_eq!((replicas(&object), record(&object)), (Some(0), Some("3")));
        assert_eq!(wire(&ruling)["response"]["allowed"], true);
        assert_eq!(ruling.answer.warnings.len(), 1);
    }
}

#[test]
fn case_5_01_scale_gets_the_same_verdict_as_an_update() {
    let mut world = World::rewriting();
    world.add(&sleeping("2"));
    let ruling = world.mutate(&scale(0, 3));
    assert_eq!(
        serde_json::to_value(&ruling.answer.patch).unwrap(),
        json!([{"op": "replace", "path": "/spec/replicas", "value": 0}])
    );
    let mut world = World::denying();
    world.add(&sleeping("2"));
    assert_eq!(wire(&world.mutate(&scale(0, 3)))["response"]["status"]["code"], 403);
    assert!(world.validate(&scale(0, 3)).answer.denial.is_some());
    assert_eq!(world.mutate(&scale(3, 0)).outcome, Outcome::Passed);
}

#[test]
fn case_5_03_a_scale_without_a_known_parent_is_allowed_with_a_warning() {
    let world = World::rewriting();
    let mut bare = scale(0, 3);
    bare["request"]["object"]["metadata"] =
        json!({"name": "checkout", "namespace": "shop", "uid": "d-1", "resourceVersion": "1"});
    let ruling = world.mutate(&bare);
    assert_eq!((ruling.outcome, ruling.answer.warnings.len()), (Outcome::Uncertain, 1));
    assert!(ruling.answer.patch.0.is_empty());
    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    let text = serde_json::to_string(&world.mutate(&bare).answer.patch).unwrap();
    assert!(!text.contains("/metadata"), "{text}");
}

#[test]
fn case_5_04_what_scale_asks_for_is_remembered_on_the_parent() {
    let mut world = World::rewriting();
    world.add(&sleeping("2"));
    let ruling = world.mutate(&scale(0, 5));
    let remember = ruling.remember.unwrap();
    let edits = remember_edits(&remember.parent, remember.asked, remember.down, remember.now);
    assert_eq!(edits.annotations.get(ORIGINAL_REPLICAS), Some(&Some("5".to_owned())));
    assert!(edits.knobs.is_empty());
    // A repeat finds it there and writes nothing.
    world.add(&sleeping("5"));
    let remember = world.mutate(&scale(0, 5)).remember.unwrap();
    assert!(remember_edits(&remember.parent, remember.asked, remember.down, remember.now).is_empty());
    // The owner's own zero becomes a whole record.
    world.add(&deployment(0));
    let remember = world.mutate(&scale(0, 5)).remember.unwrap();
    let edits = remember_edits(&remember.parent, remember.asked, remember.down, remember.now);
    assert_eq!(edits.annotations.len(), 2, "{edits:?}");
    assert_eq!(edits.labels.len(), 1);
}

#[test]
fn case_5_06_the_old_object_of_a_scale_may_be_missing_or_of_another_kind() {
    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    let mut none = scale(0, 5);
    none["request"]["oldObject"] = Value::Null;
    let mut other = scale(0, 5);
    other["request"]["oldObject"] = sleeping("3");
    for review in [none, other] {
        assert_eq!(world.mutate(&review).outcome, Outcome::Held);
    }
}

#[test]
fn case_5_07_a_slash_in_a_key_is_escaped_and_other_annotations_stay() {
    let review = create(&deployment(2));
    let ruling = World::rewriting().mutate(&review);
    let text = serde_json::to_string(&ruling.answer.patch).unwrap();
    assert!(
        text.contains("/metadata/annotations/offhours.platform.io~1original-replicas"),
        "{text}"
    );
    assert_eq!(patched(&review, &ruling)["metadata"]["annotations"]["a"], "1");
}

#[test]
fn case_5_09_tilde_is_escaped_before_slash() {
    let pointer = json_patch::jsonptr::PointerBuf::from_tokens(["metadata", "annotations", "x~y/z"]);
    assert_eq!(pointer.as_str(), "/metadata/annotations/x~0y~1z");
}

#[test]
fn case_5_10_a_delete_is_judged_by_the_old_object_and_without_one_allowed() {
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "checkout", "namespace": "shop", "uid": "h"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}},
    });
    let mut world = World::denying();
    world.add(&sleeping("3"));
    let mut review = review("DELETE", Some(&hpa), None);
    assert!(world.validate(&review).answer.denial.is_some());
    review["request"]["oldObject"] = Value::Null;
    assert_eq!(world.validate(&review).answer, crate::review::Answer::default());
}

#[test]
fn case_5_12_the_validating_endpoint_never_patches() {
    let review = update(&sleeping("3"), &deployment(5));
    let response = wire(&World::rewriting().validate(&review))["response"].clone();
    assert!(response.get("patch").is_none() && response.get("patchType").is_none());
    let response = wire(&World::rewriting().mutate(&review))["response"].clone();
    assert_eq!(response["patchType"], "JSONPatch");
}

#[test]
fn case_5_13_a_dry_run_gets_the_same_answer_byte_for_byte() {
    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    for mut review in [
        update(&sleeping("3"), &deployment(5)),
        scale(0, 5),
        create(&deployment(2)),
    ] {
        let wet = encode("u", &world.mutate(&review).answer);
        review["request"]["dryRun"] = json!(true);
        assert_eq!(wet, encode("u", &world.mutate(&review).answer));
    }
}

#[test]
fn case_5_29_the_object_is_judged_never_the_kind_that_the_client_spoke_of() {
    let hpa = |min: u64| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "checkout", "namespace": "shop", "uid": "h"},
            "spec": {"minReplicas": min, "maxReplicas": 9,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}},
        })
    };
    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    let mut review = update(&hpa(2), &hpa(4));
    review["request"]["requestKind"] =
        json!({"group": "autoscaling", "version": "v1", "kind": "HorizontalPodAutoscaler"});
    let ruling = world.mutate(&review);
    assert_eq!(ruling.outcome, Outcome::Held);
    assert_eq!(patched(&review, &ruling)["spec"]["minReplicas"], 2);
}

#[test]
fn case_5_32_identical_updates_change_nothing_after_the_first() {
    let mut world = World::rewriting();
    let mut stored = sleeping("3");
    let asked = changed(&stored, |object| object["spec"]["replicas"] = json!(5));
    for time in 0..100 {
        world.now = world.now.checked_add(1.seconds()).unwrap();
        // kubectl sends the number again; what else is there is kept by its merge.
        let new = changed(&stored, |object| {
            object["spec"]["replicas"] = asked["spec"]["replicas"].clone();
        });
        let review = update(&stored, &new);
        let after = patched(&review, &world.mutate(&review));
        if time > 0 {
            assert_eq!(after, stored);
        }
        stored = after;
    }
}

#[test]
fn case_5_35_a_denial_carries_message_code_and_reason() {
    let response = wire(&World::denying().mutate(&update(&sleeping("3"), &deployment(5))))["response"].clone();
    assert_eq!(response["allowed"], false);
    assert_eq!(response["uid"], "uid-1");
    assert_eq!(
        (&response["status"]["code"], &response["status"]["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    assert!(!response["status"]["message"].as_str().unwrap().is_empty());
    assert!(response.get("patch").is_none());
}

#[test]
fn a_view_older_than_the_scale_that_is_there_does_not_open_the_hold() {
    let mut world = World::rewriting();
    // Seen before the scheduler put it down a moment ago.
    world.add(&deployment(3));
    assert_eq!(world.mutate(&scale(0, 5)).outcome, Outcome::Held);
    // Deleted and made again.
    let mut other = sleeping("3");
    other["metadata"]["uid"] = json!("d-2");
    world.add(&other);
    assert_eq!(world.mutate(&scale(0, 5)).outcome, Outcome::Uncertain);
    world.objects.insert(
        ("Deployment".to_owned(), "shop".to_owned(), "checkout".to_owned()),
        Seen::Unknown("not listed yet".into()),
    );
    assert_eq!(world.mutate(&scale(0, 5)).outcome, Outcome::Uncertain);
}
