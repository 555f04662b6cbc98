//! Flux objects through a night.

use serde_json::{Value, json};
use shared::annotations;
use shared::api::Flux;
use shared::workload::ObjectRef;

use crate::decide::action::{Action, Purpose};
use crate::decide::decider::Decider;
use crate::decide::tests::world::{MORNING, NIGHT, World, at, office, schedules};

fn kustomization(spec: &Value) -> Value {
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"namespace": "flux-system", "name": "shop"}, "spec": spec})
}

fn world(owner: &str) -> (World, ObjectRef) {
    let mut world = World::default();
    world.namespace("shop", "office");
    let web = world.deployment("shop", "web", 3);
    // What kustomize-controller and helm-controller write on all that they apply.
    world.label(&web, &format!("{owner}.toolkit.fluxcd.io/name"), Some("shop"));
    world.label(
        &web,
        &format!("{owner}.toolkit.fluxcd.io/namespace"),
        Some("flux-system"),
    );
    (world, web)
}

fn pass(world: &mut World, instant: &str, pause: bool) -> Vec<Action> {
    let mut schedule = office();
    schedule.flux = pause.then(Flux::default);
    let mut now = at(instant);
    world.settle(&mut Decider::default(), &schedules([schedule]), &mut now, &|_| None)
}

fn purposes(writes: &[Action]) -> Vec<Purpose> {
    writes.iter().map(|action| action.purpose).collect()
}

#[test]
fn the_owner_is_suspended_before_its_workload_sleeps_and_resumed_after_it_is_restored() {
    for spec in [json!({"interval": "10m"}), json!({"interval": "10m", "suspend": false})] {
        let (mut world, web) = world("kustomize");
        let owner = world.add("kustomize.toolkit.fluxcd.io", &kustomization(&spec));
        assert_eq!(
            purposes(&pass(&mut world, NIGHT, true)),
            [Purpose::Pause, Purpose::Down]
        );
        assert_eq!(world.objects[&owner]["spec"]["suspend"], true);
        assert_eq!(
            purposes(&pass(&mut world, MORNING, true)),
            [Purpose::Restore, Purpose::Resume]
        );
        assert_eq!(world.objects[&owner]["spec"], spec);
        assert_eq!(world.replicas(&web), Some(3));
        assert!(world.own_keys(&owner).is_empty());
    }
}

#[test]
fn case_4_11_one_that_its_owner_suspended_stays_suspended() {
    let (mut world, web) = world("helm");
    let spec = json!({"interval": "10m", "suspend": true});
    let mut release = kustomization(&spec);
    release["kind"] = "HelmRelease".into();
    release["apiVersion"] = "helm.toolkit.fluxcd.io/v2".into();
    let owner = world.add("helm.toolkit.fluxcd.io", &release);
    assert_eq!(purposes(&pass(&mut world, NIGHT, true)), [Purpose::Down]);
    assert_eq!(purposes(&pass(&mut world, MORNING, true)), [Purpose::Restore]);
    assert_eq!(world.objects[&owner]["spec"], spec);
    assert_eq!(world.replicas(&web), Some(3));
}

#[test]
fn without_a_wish_of_the_schedule_nothing_is_suspended_and_what_was_is_resumed() {
    let (mut world, _) = world("kustomize");
    let spec = json!({"interval": "10m"});
    let owner = world.add("kustomize.toolkit.fluxcd.io", &kustomization(&spec));
    assert_eq!(purposes(&pass(&mut world, NIGHT, false)), [Purpose::Down]);
    assert_eq!(world.objects[&owner]["spec"], spec);
    assert_eq!(
        purposes(&pass(&mut world, "2026-12-01T23:00:00Z", true)),
        [Purpose::Pause]
    );
    assert_eq!(
        purposes(&pass(&mut world, "2026-12-02T00:00:00Z", false)),
        [Purpose::Resume]
    );
    assert_eq!(world.objects[&owner]["spec"], spec);
}

#[test]
fn rule_a7_a_suspension_that_somebody_reverts_is_tried_twice_and_then_reported() {
    for webhook in [false, true] {
        let (mut world, web) = world("kustomize");
        world.webhook = webhook;
        let spec = json!({"interval": "10m"});
        let mut child = kustomization(&spec);
        child["metadata"]["labels"] = json!({
            "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
        });
        let owner = world.add("kustomize.toolkit.fluxcd.io", &child);
        let mut schedule = office();
        schedule.flux = Some(Flux::default());
        let schedules = schedules([schedule]);
        let (mut decider, mut now) = (Decider::default(), at("2026-12-01T10:00:00Z"));
        let mut pauses = 0;
        for minute in 0..10 {
            now = now.max(at(&format!("2026-12-01T22:{minute:02}:00Z")));
            let parent = owner.clone();
            // Its manifest in Git says so.
            let mut parent = |world: &mut World| world.edit(&parent, |object| object["spec"]["suspend"] = false.into());
            let writes = world.settle_beside(&mut decider, &schedules, &mut now, &|_| None, &mut parent);
            pauses += writes.iter().filter(|action| action.purpose == Purpose::Pause).count();
        }
        assert_eq!(pauses, 2, "webhook: {webhook}");
        let trouble = decider.assessment(&web).unwrap().trouble.clone().unwrap();
        assert_eq!(trouble.reason, "PauseReverted");
        assert!(trouble.message.contains("apps"), "{}", trouble.message);
        let told = decider.take_remarks();
        assert!(told.iter().any(|remark| remark.object == owner), "{told:?}");
        // Where the webhook holds what is down, it sleeps all the same.
        assert_eq!(world.replicas(&web), if webhook { Some(0) } else { Some(3) });
        now = now.max(at(MORNING));
        world.settle(&mut decider, &schedules, &mut now, &|_| None);
        assert_eq!(world.replicas(&web), Some(3));
        assert_eq!(world.objects[&owner]["spec"]["suspend"], false);
        assert!(world.own_keys(&owner).is_empty());
    }
}

/// kustomize-controller v1.9: a reconciliation that fails ends with this condition, and one that is suspended keeps it
/// (`finalizeStatus`; a suspended object is returned from before anything is looked at).
#[test]
fn one_that_failed_and_waits_for_its_next_try_is_not_waited_for() {
    let (mut world, web) = world("kustomize");
    let owner = world.add(
        "kustomize.toolkit.fluxcd.io",
        &kustomization(&json!({"interval": "10m"})),
    );
    world.edit(&owner, |object| {
        object["status"] = json!({"conditions": [
            {"type": "Reconciling", "status": "True", "reason": "ProgressingWithRetry"},
            {"type": "Ready", "status": "False", "reason": "HealthCheckFailed"},
        ]});
    });
    assert_eq!(
        purposes(&pass(&mut world, NIGHT, true)),
        [Purpose::Pause, Purpose::Down]
    );
    assert_eq!(world.replicas(&web), Some(0));
}

#[test]
fn a_reconciliation_in_flight_is_waited_for() {
    let (mut world, web) = world("kustomize");
    let owner = world.add(
        "kustomize.toolkit.fluxcd.io",
        &kustomization(&json!({"interval": "10m"})),
    );
    world.edit(&owner, |object| {
        object["status"] = json!({"conditions": [{"type": "Reconciling", "status": "True"}]});
    });
    assert_eq!(purposes(&pass(&mut world, NIGHT, true)), [Purpose::Pause]);
    assert_eq!(world.replicas(&web), Some(3));
    world.edit(&owner, |object| object["status"] = json!({"conditions": []}));
    assert_eq!(
        purposes(&pass(&mut world, "2026-12-01T22:30:00Z", true)),
        [Purpose::Down]
    );
    assert!(world.annotation(&owner, annotations::ORIGINAL_SUSPEND).is_some());
}
