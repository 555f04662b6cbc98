//! Renewing only what changed gives the same as deciding everything anew.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use shared::annotations::{AWAKE_UNTIL, PROTECTED, SCHEDULE, STARTUP_ORDER};
use shared::policy::Schedules;

use super::world::{Refused, World, office, schedules, settled, up_in};
use crate::decide::action::Action;
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::snapshot::{Dirty, Snapshot};

#[derive(Debug, Clone)]
enum Event {
    Pass(i64),
    Scale(usize, u64),
    Annotate(usize, &'static str, Option<&'static str>),
    Namespace(usize, &'static str, Option<&'static str>),
    Ready(usize, bool),
    Delete(usize),
    Create(usize),
    Schedules(bool),
    Fail,
}

fn event() -> impl Strategy<Value = Event> {
    let key = prop_oneof![
        Just((AWAKE_UNTIL, Some("3h"))),
        Just((AWAKE_UNTIL, Some("2026-12-01T21:30:00Z"))),
        Just((AWAKE_UNTIL, None)),
        Just((PROTECTED, Some("true"))),
        Just((PROTECTED, None)),
        Just((STARTUP_ORDER, Some("-3"))),
        Just((STARTUP_ORDER, Some("7"))),
        Just((SCHEDULE, Some("late"))),
    ];
    prop_oneof![
        5 => (0..14_400_i64).prop_map(Event::Pass),
        2 => (0..6_usize, 0..4_u64).prop_map(|(object, replicas)| Event::Scale(object, replicas)),
        2 => (0..6_usize, key.clone()).prop_map(|(object, (key, value))| Event::Annotate(object, key, value)),
        1 => (0..2_usize, key).prop_map(|(namespace, (key, value))| Event::Namespace(namespace, key, value)),
        2 => (0..6_usize, any::<bool>()).prop_map(|(object, ready)| Event::Ready(object, ready)),
        1 => (0..6_usize).prop_map(Event::Delete),
        1 => (0..6_usize).prop_map(Event::Create),
        1 => any::<bool>().prop_map(Event::Schedules),
        1 => Just(Event::Fail),
    ]
}

fn those(paced: bool) -> Arc<Schedules> {
    let mut office = office();
    if paced {
        office.startup.max_concurrent = Some(2);
        office.startup.per_minute = Some(3);
    }
    schedules([office, up_in("late", "Mon-Fri 10:00-22:00")])
}

/// The snapshot follows the world as an observer of single events does.
fn follow(world: &World, snapshot: &mut Snapshot, dirty: &mut Dirty) {
    let gone: Vec<_> = snapshot
        .workloads()
        .map(|(object, _)| object.clone())
        .filter(|object| !world.objects.contains_key(object))
        .collect();
    for object in gone {
        snapshot.remove_workload(&object, dirty);
    }
    for object in world.objects.keys() {
        let workload = world.workload(object);
        if snapshot.workload(object).is_none_or(|known| **known != workload) {
            snapshot.set_workload(&Arc::new(workload), dirty);
        }
    }
    for name in world.namespaces.keys() {
        let namespace = world.namespace_facts(name);
        if snapshot.namespace(name).is_none_or(|known| **known != namespace) {
            snapshot.set_namespace(&Arc::new(namespace), dirty);
        }
    }
}

fn all(mut decider: Decider, snapshot: &Snapshot, now: Timestamp) -> (Vec<Action>, Option<Timestamp>) {
    let next = decider.next_instant(now);
    let mut actions: Vec<_> = std::iter::from_fn(|| decider.next_action(snapshot, now)).collect();
    actions.extend(decider.waiting(snapshot, now));
    (actions, next)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn a_dirty_set_gives_what_a_full_pass_gives(events in proptest::collection::vec(event(), 1..40)) {
        let mut world = World::default();
        let places: Vec<_> = (0..6).map(|index| (["shop", "bank"][index % 2], format!("w{index}"))).collect();
        world.namespace("shop", "office");
        world.namespace("bank", "late");
        for (namespace, name) in &places {
            world.deployment(namespace, name, 2);
        }
        let mut now: Timestamp = "2026-12-01T17:00:00Z".parse().unwrap();
        let mut snapshot = Snapshot::new(Arc::clone(&world.kinds), "offhours-system");
        let mut decider = Decider::default();
        let mut dirty = Dirty::default();
        snapshot.set_schedules(those(true), std::collections::BTreeMap::new(), &mut dirty);
        let mut fail = false;
        for event in events {
            let object = |world: &World, index: usize| {
                world.objects.keys().find(|object| *object.name == *places[index].1).cloned()
            };
            match event {
                Event::Pass(seconds) => now += SignedDuration::from_secs(seconds),
                Event::Scale(index, replicas) => if let Some(object) = object(&world, index) {
                    world.edit(&object, |object| object["spec"]["replicas"] = json!(replicas));
                },
                Event::Annotate(index, key, value) => if let Some(object) = object(&world, index) {
                    if key == SCHEDULE { world.label(&object, key, value) } else { world.annotate(&object, key, value) }
                },
                Event::Namespace(index, key, value) => if key != SCHEDULE {
                    world.annotate_namespace(["shop", "bank"][index], key, value);
                },
                Event::Ready(index, ready) => if let Some(object) = object(&world, index) {
                    let status = if ready { settled(9) } else { json!({"observedGeneration": 1_000_000}) };
                    world.edit(&object, |object| object["status"] = status);
                },
                Event::Delete(index) => if let Some(object) = object(&world, index) {
                    world.objects.remove(&object);
                },
                Event::Create(index) => if object(&world, index).is_none() {
                    world.deployment(places[index].0, &places[index].1, 2);
                },
                Event::Schedules(paced) => {
                    snapshot.set_schedules(those(paced), std::collections::BTreeMap::new(), &mut dirty);
                }
                Event::Fail => fail = true,
            }
            follow(&world, &mut snapshot, &mut dirty);
            decider.update(&snapshot, &std::mem::take(&mut dirty), now);

            let mut anew = Decider::new(decider.memory().clone());
            anew.update(&snapshot, &Dirty::everything(), now);
            prop_assert_eq!(all(decider.clone(), &snapshot, now), all(anew.clone(), &snapshot, now));
            for (object, assessment) in anew.assessments() {
                let kept = decider.assessment(object).unwrap();
                prop_assert_eq!(format!("{:?}", kept.step), format!("{:?}", assessment.step));
                prop_assert_eq!(kept.class, assessment.class);
            }
            for name in ["office", "late"] {
                let groups = [decider.group(name), anew.group(name)].map(|group| group.map(|group| format!("{group:?}")));
                prop_assert_eq!(&groups[0], &groups[1]);
            }

            while let Some(action) = decider.next_action(&snapshot, now) {
                let outcome = if std::mem::take(&mut fail) {
                    Outcome::Failed { reason: "ServerError", message: String::new(), retry_after: None }
                } else {
                    match world.apply(&action) {
                        Ok(()) => Outcome::Done,
                        Err(Refused::Conflict | Refused::Gone) => Outcome::Conflict { message: String::new() },
                    }
                };
                follow(&world, &mut snapshot, &mut dirty);
                decider.answered(&snapshot, &action.target.object, &outcome, now);
            }
        }
    }
}
