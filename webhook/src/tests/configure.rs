//! E5 to E7: what people write into labels, annotations and schedules.

use serde_json::{Value, json};
use shared::annotations::{AWAKE_UNTIL, DOWN_REPLICAS, PROTECTED, SCHEDULE, UPTIME};

use super::world::*;
use crate::service::{Authority, Outcome};

const ARGO: &str = "system:serviceaccount:argocd:argocd-application-controller";

fn annotated(object: &Value, key: &str, value: &str) -> Value {
    changed(object, |object| object["metadata"]["annotations"][key] = json!(value))
}

fn wake(object: &Value) -> &Value {
    &object["metadata"]["annotations"][AWAKE_UNTIL]
}

fn namespace(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "uid": "ns", "labels": {SCHEDULE: "dev-weekday"}, "annotations": annotations},
    })
}

#[test]
fn rule_e6_a_duration_becomes_an_instant_at_admission() {
    let world = World::denying();
    let old = sleeping("3");
    let review = update(&old, &annotated(&old, AWAKE_UNTIL, "2h"));
    assert_eq!(wake(&patched(&review, &world.mutate(&review))), "2026-12-01T01:00:00Z");
    let review = update(&namespace(&json!({})), &namespace(&json!({AWAKE_UNTIL: "90m"})));
    assert_eq!(wake(&patched(&review, &world.mutate(&review))), "2026-12-01T00:30:00Z");
}

#[test]
fn rule_e6_a_wake_longer_than_allowed_is_cut_with_a_warning() {
    let world = World::with(&json!({"maxWake": "4h"}));
    let old = sleeping("3");
    for text in ["12h", "2026-12-02T00:00:00Z"] {
        let review = update(&old, &annotated(&old, AWAKE_UNTIL, text));
        let ruling = world.mutate(&review);
        assert_eq!(wake(&patched(&review, &ruling)), "2026-12-01T03:00:00Z");
        assert!(
            ruling.answer.warnings[0].contains("at most 4h"),
            "{:?}",
            ruling.answer.warnings
        );
        let review = update(&namespace(&json!({})), &namespace(&json!({AWAKE_UNTIL: text})));
        assert_eq!(wake(&patched(&review, &world.mutate(&review))), "2026-12-01T03:00:00Z");
    }
}

#[test]
fn rule_e6_a_duration_from_git_is_dropped_and_an_instant_is_not() {
    let world = World::rewriting();
    let old = sleeping("3");
    let review = by(update(&old, &annotated(&old, AWAKE_UNTIL, "2h")), ARGO);
    let ruling = world.mutate(&review);
    assert_eq!(wake(&patched(&review, &ruling)), &Value::Null);
    assert_eq!(ruling.answer.warnings.len(), 1);
    let awake = annotated(&old, AWAKE_UNTIL, "2026-12-01T01:00:00Z");
    let review = by(update(&awake, &annotated(&old, AWAKE_UNTIL, "2h")), ARGO);
    assert_eq!(
        wake(&patched(&review, &world.mutate(&review))),
        "2026-12-01T01:00:00Z",
        "a person's wake stays"
    );
    let review = by(update(&old, &awake), ARGO);
    assert_eq!(wake(&patched(&review, &world.mutate(&review))), "2026-12-01T01:00:00Z");
}

#[test]
fn rule_e7_what_cannot_be_parsed_is_refused_only_where_it_changes() {
    let world = World::rewriting();
    let old = sleeping("3");
    for (key, value) in [
        (AWAKE_UNTIL, "tomorrow"),
        (PROTECTED, "yes"),
        (DOWN_REPLICAS, "half"),
        (UPTIME, "Mon-Fry 08:00-20:00"),
    ] {
        let wrong = annotated(&old, key, value);
        for review in [update(&old, &wrong), create(&wrong)] {
            let ruling = world.validate(&review);
            assert_eq!(ruling.outcome, Outcome::Misconfigured, "{key}");
            assert!(ruling.answer.denial.unwrap().message.len() <= 250);
        }
        let later = changed(&wrong, |object| object["spec"]["template"]["x"] = json!(1));
        assert_eq!(world.validate(&update(&wrong, &later)).answer.denial, None, "{key}");
        let right = changed(&wrong, |object| {
            object["metadata"]["annotations"] = old["metadata"]["annotations"].clone();
        });
        assert_eq!(world.validate(&update(&wrong, &right)).answer.denial, None, "{key}");
    }
    let wrong = namespace(&json!({AWAKE_UNTIL: "tomorrow"}));
    assert_eq!(
        world.validate(&update(&namespace(&json!({})), &wrong)).outcome,
        Outcome::Misconfigured
    );
}

#[test]
fn rule_e7_unknown_keys_and_schedules_are_warned_about() {
    let world = World::rewriting();
    let warnings = |object: &Value| world.validate(&create(object)).answer.warnings;
    let typo = annotated(&deployment(0), "offhours.platform.io/awake-untill", "2h");
    assert!(warnings(&typo)[0].contains("did you mean offhours.platform.io/awake-until?"));
    let nobody = changed(&deployment(0), |object| {
        object["metadata"]["labels"][SCHEDULE] = json!("nobody");
    });
    assert!(warnings(&nobody)[0].contains("no schedule \"nobody\""));
    let place = annotated(&deployment(0), SCHEDULE, "dev-weekday");
    assert!(warnings(&place)[0].contains("read from a label"));
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "report", "namespace": "shop", "labels": {SCHEDULE: "dev-weekday"}, "annotations": {}},
        "spec": {"suspend": false},
    });
    assert!(warnings(&job)[0].contains("does not include the kind"));
    job["metadata"]["labels"] = json!({});
    assert!(warnings(&job).is_empty());
}

#[test]
fn rule_e5_under_guard_overrides_wakes_protection_and_labels_need_the_verb() {
    let mut world = World::with(&json!({"mode": "Deny", "guardOverrides": true, "exempt": {"groups": ["sre"]}}));
    let old = sleeping("3");
    let relabelled = changed(&old, |object| object["metadata"]["labels"][SCHEDULE] = json!("other"));
    let reviews = [
        update(&old, &annotated(&old, AWAKE_UNTIL, "2026-12-01T01:00:00Z")),
        update(&old, &annotated(&old, PROTECTED, "true")),
        update(&old, &annotated(&old, UPTIME, "Mon-Sun 00:00-24:00")),
        update(&old, &relabelled),
        create(&annotated(&deployment(3), PROTECTED, "true")),
        update(
            &namespace(&json!({})),
            &namespace(&json!({AWAKE_UNTIL: "2026-12-01T01:00:00Z"})),
        ),
    ];
    for review in &reviews {
        world.authority = Authority::NotAsked;
        assert_eq!(
            world.validate(review).ask.unwrap().schedule.as_ref(),
            "dev-weekday",
            "{review}"
        );
        world.authority = Authority::Granted;
        assert_eq!(world.validate(review).answer.denial, None);
        world.authority = Authority::Refused("not allowed".to_owned());
        let message = world.validate(review).answer.denial.unwrap().message;
        assert!(
            message.contains("guardOverrides") && message.contains("\"ana\""),
            "{message}"
        );
        let mut exempt = review.clone();
        exempt["request"]["userInfo"]["groups"] = json!(["sre"]);
        assert_eq!(world.validate(&exempt).answer.denial, None);
    }
    world.authority = Authority::NotAsked;
    let asleep_again = update(&annotated(&old, AWAKE_UNTIL, "2026-12-01T01:00:00Z"), &old);
    assert_eq!(world.validate(&asleep_again).ask, None, "ending a wake opens nothing");
}

#[test]
fn rule_e5_an_override_is_told_with_the_users_name() {
    let world = World::rewriting();
    let old = sleeping("3");
    let ruling = world.validate(&update(&old, &annotated(&old, AWAKE_UNTIL, "2026-12-01T01:00:00Z")));
    assert!(
        ruling.tell[0].message.contains("\"ana\" set awake-until"),
        "{:?}",
        ruling.tell
    );
}

#[test]
fn rule_e5_wake_protection_and_another_label_are_told_and_counted_as_overrides() {
    let old = sleeping("3");
    let labelled = |name: Option<&str>| {
        changed(&old, |object| {
            let labels = object["metadata"]["labels"].as_object_mut().unwrap();
            match name {
                Some(name) => labels.insert(SCHEDULE.to_owned(), json!(name)),
                None => labels.remove(SCHEDULE),
            };
        })
    };
    let shop = namespace(&json!({}));
    let unlabelled = changed(&shop, |object| object["metadata"]["labels"] = json!({}));
    let awake = json!({AWAKE_UNTIL: "2026-12-01T01:00:00Z"});
    for (review, deed) in [
        (
            update(&old, &annotated(&old, AWAKE_UNTIL, "2026-12-01T01:00:00Z")),
            "set awake-until",
        ),
        (update(&old, &annotated(&old, PROTECTED, "true")), "set protected"),
        (
            update(&old, &annotated(&old, UPTIME, "Mon-Sun 00:00-24:00 UTC")),
            "set uptime",
        ),
        (update(&old, &labelled(Some("other"))), "set schedule"),
        (
            update(&labelled(Some("dev-weekday")), &labelled(None)),
            "removed schedule",
        ),
        (update(&shop, &namespace(&awake)), "set awake-until"),
        (update(&shop, &namespace(&json!({PROTECTED: "true"}))), "set protected"),
        (update(&shop, &unlabelled), "removed schedule"),
    ] {
        let ruling = World::rewriting().validate(&review);
        assert_eq!(ruling.outcome, Outcome::Overridden, "{deed}: {ruling:?}");
        assert_eq!(ruling.tell.len(), 1);
        assert!(
            ruling.tell[0].message.starts_with(&format!("\"ana\" {deed}")),
            "{:?}",
            ruling.tell
        );
        let by_day = World::rewriting().by_day().validate(&review);
        assert_ne!(by_day.outcome, Outcome::Overridden, "{deed}: nothing is held by day");
        assert_eq!(by_day.tell, []);
    }
}

#[test]
fn rule_e7_a_schedule_is_understood_or_refused_where_its_spec_changes() {
    let world = World::rewriting();
    let schedule = |shutdown: &str| {
        json!({
            "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
            "metadata": {"name": "nights"},
            "spec": {"timeZone": "Europe/Berlin", "cron": {"shutdown": [shutdown], "startup": ["0 8 * * 1-5"]}},
        })
    };
    assert_eq!(
        world.validate(&create(&schedule("0 20 * * 1-5"))).answer,
        crate::review::Answer::default()
    );
    let broken = schedule("0 25 * * 1-5");
    let message = world.validate(&create(&broken)).answer.denial.unwrap().message;
    assert!(
        message.starts_with("schedule \"nights\": spec.cron.shutdown[0]"),
        "{message}"
    );
    let finalized = changed(&broken, |object| object["metadata"]["finalizers"] = json!([]));
    assert_eq!(world.validate(&update(&broken, &finalized)).answer.denial, None);
    let no_zone = changed(&schedule("0 20 * * 1-5"), |object| {
        object["spec"].as_object_mut().unwrap().remove("timeZone");
    });
    assert_eq!(world.validate(&create(&no_zone)).answer.warnings.len(), 1);
}
