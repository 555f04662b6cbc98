//! Waves, concurrency and budgets of waking.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shared::annotations::{AWAKE_UNTIL, STARTUP_ORDER};
use shared::api::FINALIZER;
use shared::policy::{Schedule, Schedules};
use shared::workload::ObjectRef;

use super::world::{MORNING, NIGHT, World, at, office, schedules, settled, up_in};
use crate::decide::action::{Action, Purpose};
use crate::decide::chores::schedule_ref;
use crate::decide::decider::Decider;
use crate::decide::memory::{Memory, Outcome};
use crate::decide::snapshot::{Dirty, Resource, Snapshot};

struct Fleet {
    world: World,
    schedules: Arc<Schedules>,
    decider: Decider,
    now: Timestamp,
}

impl Fleet {
    /// Deployments with these names and orders, asleep, at opening time.
    fn asleep(schedule: Schedule, members: &[(&str, Option<&str>)]) -> Self {
        let mut world = World::default();
        world.namespace("shop", "office");
        for (name, order) in members {
            let object = world.deployment("shop", name, 2);
            if let Some(order) = order {
                world.annotate(&object, STARTUP_ORDER, Some(order));
            }
        }
        let schedules = schedules([schedule, up_in("other", "Mon-Fri 08:00-20:00")]);
        world.pass(&schedules, &Memory::default(), at(NIGHT));
        Self {
            world,
            schedules,
            decider: Decider::default(),
            now: at(MORNING),
        }
    }

    fn snapshot(&self) -> Snapshot {
        self.world.snapshot(&self.schedules)
    }

    /// What is handed out now, without any answer yet.
    fn handed_out(&mut self) -> Vec<Action> {
        let snapshot = self.snapshot();
        self.decider.update(&snapshot, &Dirty::everything(), self.now);
        std::iter::from_fn(|| self.decider.next_action(&snapshot, self.now)).collect()
    }

    fn answer(&mut self, actions: &[Action]) {
        for action in actions {
            self.world.apply(action).unwrap();
            let snapshot = self.snapshot();
            self.decider
                .answered(&snapshot, &action.target.object, &Outcome::Done, self.now);
        }
    }

    /// Hands out and answers; the pods of what was woken are not ready.
    fn step(&mut self) -> Vec<String> {
        let actions = self.handed_out();
        for action in &actions {
            self.set_ready(&action.target.object.name, false);
        }
        // A status write of a controller disturbs nobody.
        self.answer(&actions);
        let mut names: Vec<_> = actions
            .iter()
            .map(|action| action.target.object.name.to_string())
            .collect();
        names.sort();
        names
    }

    fn set_ready(&mut self, name: &str, ready: bool) {
        let object = self.object(name);
        let status = if ready {
            settled(2)
        } else {
            json!({"observedGeneration": 1_000_000})
        };
        self.world.edit(&object, |object| object["status"] = status);
    }

    fn object(&self, name: &str) -> ObjectRef {
        self.world
            .objects
            .keys()
            .find(|object| *object.name == *name)
            .unwrap()
            .clone()
    }

    fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }
}

const THREE: &[(&str, Option<&str>)] = &[("web", Some("20")), ("database", Some("-5")), ("queue", None)];

#[test]
fn rule_s12_a_wave_waits_until_the_one_before_is_ready() {
    let mut fleet = Fleet::asleep(office(), THREE);
    assert_eq!(fleet.step(), ["database"]);
    assert_eq!(fleet.step(), [""; 0]);
    fleet.set_ready("database", true);
    assert_eq!(fleet.step(), ["queue"]);
    fleet.set_ready("queue", true);
    assert_eq!(fleet.step(), ["web"]);
}

#[test]
fn rule_s12_after_the_timeout_the_next_wave_goes_and_it_is_told() {
    let mut schedule = office();
    schedule.startup.timeout = SignedDuration::from_secs(90);
    let mut fleet = Fleet::asleep(schedule, THREE);
    assert_eq!(fleet.step(), ["database"]);
    assert_eq!(
        fleet.decider.next_instant(fleet.now),
        Some(fleet.now + SignedDuration::from_secs(90))
    );
    fleet.pass_time(89);
    assert_eq!(fleet.step(), [""; 0]);
    fleet.pass_time(1);
    assert_eq!(fleet.step(), ["queue"]);
    let remarks = fleet.decider.take_remarks();
    assert_eq!(remarks[0].note.reason, "NotReadyInTime");
    assert_eq!(*remarks[0].object.name, *"database");
}

#[test]
fn rule_s12_without_wait_ready_a_wave_only_follows_the_writes_of_the_one_before() {
    let mut schedule = office();
    schedule.startup.wait_ready = false;
    let mut fleet = Fleet::asleep(schedule, THREE);
    assert_eq!(fleet.step(), ["database"]);
    assert_eq!(fleet.step(), ["queue"]);
    assert_eq!(fleet.step(), ["web"]);
}

#[test]
fn rule_s12_shutdown_runs_in_the_reverse_order_without_waiting() {
    let mut fleet = Fleet::asleep(office(), THREE);
    for name in ["database", "queue", "web"] {
        fleet.step();
        fleet.set_ready(name, true);
    }
    fleet.now = at("2026-12-02T20:00:00Z");
    let names: Vec<_> = fleet
        .handed_out()
        .iter()
        .map(|action| (action.purpose, action.target.object.name.to_string()))
        .collect();
    let expected = ["web", "queue", "database"].map(|name| (Purpose::Down, name.to_owned()));
    assert_eq!(names, expected);
}

#[test]
fn rule_s12_max_concurrent_counts_what_is_restored_and_not_ready() {
    let mut schedule = office();
    schedule.startup.max_concurrent = Some(2);
    let members = [("a", None), ("b", None), ("c", None), ("d", None), ("e", None)];
    let mut fleet = Fleet::asleep(schedule, &members);
    assert_eq!(fleet.step(), ["a", "b"]);
    assert_eq!(fleet.step(), [""; 0]);
    fleet.set_ready("b", true);
    assert_eq!(fleet.step(), ["c"]);
    fleet.set_ready("a", true);
    fleet.set_ready("c", true);
    assert_eq!(fleet.step(), ["d", "e"]);
}

#[test]
fn rule_s12_per_minute_is_a_sliding_budget() {
    let mut schedule = office();
    schedule.startup.per_minute = Some(2);
    let members = [("a", None), ("b", None), ("c", None), ("d", None), ("e", None)];
    let mut fleet = Fleet::asleep(schedule, &members);
    assert_eq!(fleet.step(), ["a", "b"]);
    assert_eq!(fleet.step(), [""; 0]);
    assert_eq!(
        fleet.decider.next_instant(fleet.now),
        Some(fleet.now + SignedDuration::from_mins(1))
    );
    fleet.pass_time(59);
    assert_eq!(fleet.step(), [""; 0]);
    fleet.pass_time(1);
    assert_eq!(fleet.step(), ["c", "d"]);
    fleet.pass_time(60);
    assert_eq!(fleet.step(), ["e"]);
}

#[test]
fn rule_s12_a_slow_wave_delays_only_its_own_schedule() {
    let mut fleet = Fleet::asleep(office(), THREE);
    fleet.world.namespace("bank", "other");
    let vault = fleet.world.deployment("bank", "vault", 2);
    fleet.world.pass(&fleet.schedules, &Memory::default(), at(NIGHT));
    assert_eq!(fleet.world.replicas(&vault), Some(0));
    assert_eq!(fleet.step(), ["database", "vault"]);
    assert_eq!(fleet.step(), [""; 0]);
}

#[test]
fn rule_s12_the_namespaces_order_comes_first() {
    let mut fleet = Fleet::asleep(office(), &[("web", Some("-9"))]);
    fleet.world.namespace("base", "office");
    let database = fleet.world.deployment("base", "database", 2);
    fleet.world.annotate(&database, STARTUP_ORDER, Some("50"));
    fleet.world.annotate_namespace("base", STARTUP_ORDER, Some("-1"));
    fleet.world.pass(&fleet.schedules, &Memory::default(), at(NIGHT));
    assert_eq!(fleet.step(), ["database"]);
}

#[test]
fn one_that_somebody_wakes_by_hand_waits_for_no_wave() {
    let mut fleet = Fleet::asleep(office(), THREE);
    fleet.now = at(NIGHT);
    let web = fleet.object("web");
    fleet.world.annotate(&web, AWAKE_UNTIL, Some("2026-12-02T03:00:00Z"));
    assert_eq!(fleet.step(), ["web"]);
    fleet.now = at(MORNING);
    assert_eq!(fleet.step(), ["database"]);
    let queue = fleet.object("queue");
    fleet.world.annotate(&queue, AWAKE_UNTIL, Some("2026-12-03T03:00:00Z"));
    assert_eq!(fleet.step(), ["queue"]);
}

#[test]
fn one_that_always_fails_holds_later_waves_up_only_for_the_timeout() {
    let mut schedule = office();
    schedule.startup.timeout = SignedDuration::from_secs(90);
    let mut fleet = Fleet::asleep(schedule, THREE);
    let failed = Outcome::Failed {
        reason: "ServerError",
        message: "no".to_owned(),
        retry_after: None,
    };
    let (began, mut others) = (fleet.now, Vec::new());
    for _ in 0..400 {
        for action in fleet.handed_out() {
            if *action.target.object.name == *"database" {
                let snapshot = fleet.snapshot();
                fleet
                    .decider
                    .answered(&snapshot, &action.target.object, &failed, fleet.now);
            } else {
                others.push((
                    action.target.object.name.to_string(),
                    fleet.now.duration_since(began).as_secs(),
                ));
                fleet.answer(&[action]);
            }
        }
        fleet.pass_time(1);
    }
    assert_eq!(others.len(), 2, "{others:?}");
    assert!(others.iter().all(|(_, after)| (90..200).contains(after)), "{others:?}");
}

#[test]
fn rule_s12_later_waves_follow_by_the_clock_alone() {
    for fails in [false, true] {
        let mut schedule = office();
        schedule.startup.timeout = SignedDuration::from_secs(90);
        let mut fleet = Fleet::asleep(schedule, THREE);
        let began = fleet.now;
        let first = fleet.handed_out();
        assert_eq!(first.len(), 1);
        if fails {
            let failed = Outcome::Failed {
                reason: "TooManyRequests",
                message: "come back later".to_owned(),
                retry_after: Some(SignedDuration::from_mins(10)),
            };
            let snapshot = fleet.snapshot();
            let object = &first[0].target.object;
            fleet.decider.answered(&snapshot, object, &failed, fleet.now);
        } else {
            fleet.set_ready("database", false);
            fleet.answer(&first);
            fleet.handed_out();
        }
        // The watch says nothing: only the instants that were asked for.
        let snapshot = fleet.snapshot();
        let next = loop {
            fleet.now = fleet.decider.next_instant(fleet.now).unwrap();
            fleet.decider.update(&snapshot, &Dirty::default(), fleet.now);
            if let Some(action) = fleet.decider.next_action(&snapshot, fleet.now) {
                break action;
            }
        };
        assert_eq!(&*next.target.object.name, "queue");
        let after = fleet.now.duration_since(began).as_secs();
        assert!((90..=91).contains(&after), "fails: {fails}: {after}");
    }
}

#[test]
fn a_new_leader_waits_for_what_the_former_one_had_just_woken() {
    let mut fleet = Fleet::asleep(office(), THREE);
    assert_eq!(fleet.step(), ["database"]);
    fleet.decider = Decider::default();
    fleet.pass_time(5);
    assert_eq!(fleet.step(), [""; 0]);
    fleet.set_ready("database", true);
    assert_eq!(fleet.step(), ["queue"]);
}

fn deleting(fleet: &Fleet, deleted: Option<&str>, finalizers: &[&str]) -> Snapshot {
    let mut schedule = office();
    schedule.deleting = deleted.is_some();
    let all = Arc::new(Schedules::new([Arc::new(schedule)]));
    let resource = Resource {
        uid: Arc::from("s1"),
        resource_version: Arc::from("7"),
        finalizers: finalizers.iter().map(|name| Arc::from(*name)).collect(),
        deleted: deleted.map(at),
    };
    let mut snapshot = fleet.snapshot();
    snapshot.finalizers = true;
    let resources = BTreeMap::from([(Arc::from("office"), resource)]);
    snapshot.set_schedules(all, resources, &mut Dirty::default());
    snapshot
}

fn handed_out(decider: &mut Decider, snapshot: &Snapshot, now: &str) -> Vec<Action> {
    decider.update(snapshot, &Dirty::everything(), at(now));
    std::iter::from_fn(|| decider.next_action(snapshot, at(now))).collect()
}

#[test]
fn a_schedule_carries_our_finalizer_and_is_let_go_when_all_is_restored() {
    let mut fleet = Fleet::asleep(office(), &[("web", None)]);
    let actions = handed_out(&mut Decider::default(), &deleting(&fleet, None, &["x"]), NIGHT);
    assert_eq!(actions[0].target.object, schedule_ref(&Arc::from("office")));
    let text = serde_json::to_string(&actions[0].request_body()).unwrap();
    assert!(text.contains("/metadata/finalizers/-"), "{text}");
    assert!(handed_out(&mut Decider::default(), &deleting(&fleet, None, &[FINALIZER]), NIGHT).is_empty());

    let snapshot = deleting(&fleet, Some(NIGHT), &["x", FINALIZER]);
    let mut decider = Decider::default();
    let actions = handed_out(&mut decider, &snapshot, NIGHT);
    assert_eq!(
        actions.iter().map(|action| action.purpose).collect::<Vec<_>>(),
        [Purpose::Restore]
    );
    fleet.world.apply(&actions[0]).unwrap();
    let snapshot = deleting(&fleet, Some(NIGHT), &["x", FINALIZER]);
    decider.answered(&snapshot, &actions[0].target.object, &Outcome::Done, at(NIGHT));
    let actions = handed_out(&mut decider, &snapshot, NIGHT);
    assert_eq!(actions[0].purpose, Purpose::Finalizer);
    let text = serde_json::to_string(&actions[0].request_body()).unwrap();
    assert!(
        text.contains("/metadata/finalizers/1") && text.contains("remove"),
        "{text}"
    );
    assert_eq!(actions[0].event, None);
}

#[test]
fn rule_g1_after_ten_minutes_of_failed_restores_the_finalizer_goes_with_a_warning() {
    let fleet = Fleet::asleep(office(), &[("web", None)]);
    let snapshot = deleting(&fleet, Some(NIGHT), &[FINALIZER]);
    let mut decider = Decider::default();
    let actions = handed_out(&mut decider, &snapshot, NIGHT);
    let failed = Outcome::Failed {
        reason: "Forbidden",
        message: "no".to_owned(),
        retry_after: None,
    };
    decider.answered(&snapshot, &actions[0].target.object, &failed, at(NIGHT));
    decider.update(&snapshot, &Dirty::default(), at("2026-12-01T22:09:59Z"));
    assert!(decider.next_instant(at("2026-12-01T22:09:59Z")).unwrap() <= at("2026-12-01T22:10:00Z"));
    let actions = handed_out(&mut decider, &snapshot, "2026-12-01T22:10:00Z");
    let finalizer = actions
        .iter()
        .find(|action| action.purpose == Purpose::Finalizer)
        .unwrap();
    let note = finalizer.event.as_ref().unwrap();
    assert!(note.warning && note.message.contains("deployment shop/web"), "{note:?}");
}
