//! KEDA: the ScaledObject is what sleeps; what it scales, and its HPA, are left alone.

use serde_json::{Value, json};
use shared::api::KindFilter;
use shared::kinds::Readiness;
use shared::policy::{Schedule, Schedules};
use shared::workload::ObjectRef;
use std::sync::Arc;

use super::world::{DAY, MORNING, NIGHT, World, at, office, schedules};
use crate::decide::action::Action;
use crate::decide::decider::Decider;

const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
const PAUSED: &str = "autoscaling.keda.sh/paused";

struct Keda {
    world: World,
    decider: Decider,
    schedules: Arc<Schedules>,
}

fn keda(schedule: Schedule) -> Keda {
    let mut world = World::default();
    world.namespace("shop", "office");
    Keda {
        world,
        decider: Decider::default(),
        schedules: schedules([schedule]),
    }
}

impl Keda {
    fn scaled_object(&mut self) -> ObjectRef {
        let spec = json!({"scaleTargetRef": {"name": "web"}, "minReplicaCount": 0, "maxReplicaCount": 9});
        self.world.create("ScaledObject", "shop", "web", spec)
    }

    fn at(&mut self, instant: &str) -> Vec<Action> {
        let mut now = at(instant);
        self.world
            .settle(&mut self.decider, &self.schedules, &mut now, &|_| None)
    }

    fn annotations(&self, object: &ObjectRef) -> Value {
        let annotations = &self.world.objects[object]["metadata"]["annotations"];
        if annotations.is_null() {
            json!({})
        } else {
            annotations.clone()
        }
    }
}

#[test]
fn case_3_10_without_a_pause_of_its_owner_it_is_paused_at_zero_and_awake_again_by_day() {
    let mut keda = keda(office());
    let web = keda.world.deployment("shop", "web", 4);
    let scaler = keda.scaled_object();
    let writes = keda.at(NIGHT);
    assert_eq!(writes.len(), 1, "the Deployment is KEDA's: {writes:?}");
    assert_eq!(keda.world.annotation(&scaler, PAUSED_REPLICAS), Some("0"));
    assert_eq!(keda.world.replicas(&web), Some(4));
    assert_eq!(keda.at(MORNING).len(), 1);
    assert_eq!(keda.annotations(&scaler), json!({}));
    assert_eq!(keda.world.replicas(&web), Some(4));
}

#[test]
fn an_earlier_pause_of_its_owner_comes_back_exactly() {
    for (key, value) in [
        (PAUSED_REPLICAS, "3"),
        (PAUSED, "false"),
        ("autoscaling.keda.sh/paused-scale-in", "true"),
    ] {
        let mut keda = keda(office());
        let scaler = keda.scaled_object();
        keda.world.annotate(&scaler, key, Some(value));
        let before = keda.annotations(&scaler);
        assert_eq!(keda.at(NIGHT).len(), 1, "{key}");
        assert_eq!(keda.world.annotation(&scaler, PAUSED_REPLICAS), Some("0"), "{key}");
        keda.at(MORNING);
        assert_eq!(keda.annotations(&scaler), before, "{key}");
    }
}

/// KEDA 2.21: a target of one that is `paused` stands where it is, and one under `paused-scale-out` is never raised from 0.
#[test]
fn one_whose_number_keda_would_not_give_back_stays_up_and_that_is_told() {
    for key in [PAUSED, "autoscaling.keda.sh/paused-scale-out"] {
        let mut keda = keda(office());
        let web = keda.world.deployment("shop", "web", 4);
        let scaler = keda.scaled_object();
        keda.world.annotate(&scaler, key, Some("true"));
        assert_eq!(keda.at(NIGHT), [], "{key}");
        let trouble = keda.decider.assessment(&scaler).unwrap().trouble.clone().unwrap();
        assert_eq!(trouble.reason, "FrozenByOwner");
        assert!(trouble.message.contains(key), "{}", trouble.message);
        assert_eq!(keda.world.replicas(&web), Some(4));
        // With a number of its own it comes back to that.
        keda.world.annotate(&scaler, PAUSED_REPLICAS, Some("4"));
        assert_eq!(keda.at("2026-12-01T23:00:00Z").len(), 1, "{key}");
        assert_eq!(keda.world.annotation(&scaler, PAUSED_REPLICAS), Some("0"));
        keda.at(MORNING);
        assert_eq!(keda.annotations(&scaler), json!({key: "true", PAUSED_REPLICAS: "4"}));
    }
}

#[test]
fn one_that_its_owner_paused_at_zero_is_its_owners_sleep() {
    let mut keda = keda(office());
    let scaler = keda.scaled_object();
    keda.world.annotate(&scaler, PAUSED_REPLICAS, Some("0"));
    assert_eq!(keda.at(NIGHT), []);
    assert_eq!(keda.at(MORNING), []);
    assert_eq!(keda.world.annotation(&scaler, PAUSED_REPLICAS), Some("0"));
}

#[test]
fn case_3_13_what_keda_brought_to_zero_is_not_ours_to_wake() {
    let mut keda = keda(office());
    let web = keda.world.deployment("shop", "web", 0);
    keda.scaled_object();
    for instant in [NIGHT, MORNING] {
        let writes = keda.at(instant);
        assert!(writes.iter().all(|write| *write.target.object.kind == *"ScaledObject"));
    }
    assert_eq!(keda.world.replicas(&web), Some(0));
    assert!(keda.world.own_keys(&web).is_empty());
}

#[test]
fn a_scaled_job_is_paused_where_the_schedule_names_the_kind() {
    let mut schedule = office();
    schedule.kinds = Some(vec![KindFilter {
        kind: "ScaledJob".to_owned(),
        ..KindFilter::default()
    }]);
    let mut keda = keda(schedule);
    let job = keda
        .world
        .create("ScaledJob", "shop", "batch", json!({"maxReplicaCount": 3}));
    keda.world.annotate(&job, PAUSED, Some("false"));
    keda.at(NIGHT);
    assert_eq!(keda.world.annotation(&job, PAUSED), Some("true"));
    keda.at(MORNING);
    assert_eq!(keda.annotations(&job), json!({PAUSED: "false"}));
}

#[test]
fn case_3_12_one_that_stays_paused_is_reported_and_not_hammered() {
    let mut keda = keda(office());
    let scaler = keda.scaled_object();
    keda.at(NIGHT);
    let stuck = json!({"conditions": [{"type": "Paused", "status": "True"}]});
    keda.world.edit(&scaler, |object| object["status"] = stuck);
    assert_eq!(keda.at(MORNING).len(), 1);
    assert_eq!(keda.world.workload(&scaler).kind.readiness, Readiness::NotPaused);
    for minute in ["08:01:00", "08:05:02", "08:10:00", "08:20:00"] {
        assert_eq!(keda.at(&format!("2026-12-02T{minute}Z")), []);
    }
    let trouble = keda.decider.assessment(&scaler).unwrap().trouble.clone().unwrap();
    assert_eq!(trouble.reason, "RestoreIncomplete");
    assert!(trouble.message.contains("scaledobject shop/web"), "{}", trouble.message);
    keda.world
        .edit(&scaler, |object| object["status"]["conditions"] = json!([]));
    keda.at("2026-12-02T08:21:00Z");
    assert_eq!(keda.decider.assessment(&scaler).unwrap().trouble, None);
    assert_eq!(keda.at(DAY), []);
}
