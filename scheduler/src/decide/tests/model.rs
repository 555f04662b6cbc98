//! The scheduler against everything that happens to it, and against a small model of what should be.
//!
//! The model reads objects by itself, and knows windows as hours of a day: it shares no code with what it judges.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::annotations::DownReplicas;
use shared::policy::Schedules;
use shared::workload::ObjectRef;

use super::world::{Refused, World, schedules, up_in};
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::snapshot::{Dirty, Snapshot};

const PREFIX: &str = "offhours.platform.io/";
/// Name, first hour up, first hour down, replicas kept while down.
const SCHEDULES: [(&str, i8, i8, u64); 3] = [("office", 8, 20, 0), ("late", 11, 23, 0), ("thrifty", 6, 18, 1)];

#[derive(Debug, Clone, Copy)]
enum Op {
    /// Time passes.
    Minutes(i64),
    /// A person sets the replicas; the number is one that was never used before, or 0.
    Scale(usize, bool),
    /// A wake for so many hours from the last full one; 0 takes it away.
    Awake(usize, i64),
    Protect(usize, bool),
    /// The label of a schedule; one too many names none.
    Label(usize, usize),
    /// `kubectl rollout undo` takes all annotations away.
    Strip(usize),
    /// Deleted and created anew.
    Recreate(usize),
    /// The process ends between two actions, and another one starts.
    Restart,
    /// The watch tells nothing for a while.
    Deaf(bool),
    /// Events come again.
    Repeat,
    /// So many writes are sent; the last one ends like this.
    Run(usize, End),
}

#[derive(Debug, Clone, Copy)]
enum End {
    Answered,
    /// Written, and the answer was lost.
    Lost,
    /// Not written.
    Failed,
    /// Written, and the process died before it heard.
    Killed,
}

fn op() -> impl Strategy<Value = Op> {
    let end =
        prop_oneof![4 => Just(End::Answered), 1 => Just(End::Lost), 1 => Just(End::Failed), 1 => Just(End::Killed)];
    prop_oneof![
        6 => prop_oneof![0..20_i64, 60..900_i64].prop_map(Op::Minutes),
        3 => (0..4_usize, prop::bool::weighted(0.2)).prop_map(|(object, zero)| Op::Scale(object, zero)),
        1 => (0..4_usize, 0..5_i64).prop_map(|(object, hours)| Op::Awake(object, hours)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(object, yes)| Op::Protect(object, yes)),
        1 => (0..4_usize, 0..4_usize).prop_map(|(object, schedule)| Op::Label(object, schedule)),
        1 => (0..4_usize).prop_map(Op::Strip),
        1 => (0..4_usize).prop_map(Op::Recreate),
        1 => Just(Op::Restart),
        2 => any::<bool>().prop_map(Op::Deaf),
        1 => Just(Op::Repeat),
        8 => (1..6_usize, end).prop_map(|(writes, end)| Op::Run(writes, end)),
    ]
}

/// What one object says, read by the model.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    replicas: u64,
    /// The record; the label counts more than the annotation.
    record: Option<u64>,
    held: u64,
    since: Option<Timestamp>,
    own_keys: usize,
}

fn read(object: &Value) -> Said {
    let key = |map: &str, key: &str| {
        object["metadata"][map][format!("{PREFIX}{key}")]
            .as_str()
            .map(str::to_owned)
    };
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let own = ["original-replicas", "down-since", "held-replicas", "asleep"];
    Said {
        replicas: object["spec"]["replicas"].as_u64().unwrap(),
        record: number(key("labels", "asleep")).or(number(key("annotations", "original-replicas"))),
        held: number(key("annotations", "held-replicas")).unwrap_or(0),
        since: key("annotations", "down-since").map(|text| text.parse().unwrap()),
        own_keys: own
            .iter()
            .filter(|name| key("annotations", name).is_some() || key("labels", name).is_some())
            .count(),
    }
}

impl Said {
    fn asleep(&self) -> bool {
        self.record.is_some() && self.replicas == self.held
    }
}

/// What the model knows of one object.
#[derive(Debug, Clone, Default)]
struct Truth {
    /// The number that its owner wants by day.
    wish: u64,
    awake_until: Option<Timestamp>,
    protected: bool,
    schedule: usize,
    /// Writes of ours since something last changed that asks for one.
    writes: u32,
    should_be_up: bool,
}

impl Truth {
    fn is_up(&self, now: Timestamp) -> bool {
        let hour = now.to_zoned(TimeZone::UTC).hour();
        let Some((_, from, to, _)) = SCHEDULES.get(self.schedule) else {
            return true;
        };
        self.protected || self.awake_until.is_some_and(|end| now < end) || (*from..*to).contains(&hour)
    }

    fn down_to(&self) -> u64 {
        SCHEDULES.get(self.schedule).map_or(0, |(.., down)| *down)
    }

    /// When the present night of its schedule began.
    fn window_start(&self, now: Timestamp) -> Timestamp {
        let (_, _, to, _) = SCHEDULES[self.schedule];
        let local = now.to_zoned(TimeZone::UTC);
        let day = if local.hour() >= to {
            local.date()
        } else {
            local.date().yesterday().unwrap()
        };
        day.at(to, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp()
    }
}

struct Sim {
    world: World,
    truths: BTreeMap<String, Truth>,
    now: Timestamp,
    number: u64,
    decider: Decider,
    snapshot: Snapshot,
    schedules: Arc<Schedules>,
    dirty: Dirty,
    deaf: bool,
}

impl Sim {
    fn new() -> Self {
        let mut world = World::default();
        world.namespace("shop", "");
        let all = SCHEDULES.map(|(name, from, to, down)| {
            let mut schedule = up_in(name, &format!("Mon-Sun {from:02}:00-{to:02}:00"));
            schedule.down_replicas = DownReplicas::Count(down as u32);
            schedule
        });
        let schedules = schedules(all);
        let mut sim = Self {
            snapshot: Snapshot::new(Arc::clone(&world.kinds), "offhours-system"),
            world,
            truths: BTreeMap::new(),
            now: "2026-12-01T09:10:00Z".parse().unwrap(),
            number: 1,
            decider: Decider::default(),
            schedules,
            dirty: Dirty::default(),
            deaf: false,
        };
        for index in 0..4 {
            sim.create(index);
        }
        sim.restart();
        sim
    }

    fn name(index: usize) -> String {
        format!("w{index}")
    }

    fn object(index: usize) -> ObjectRef {
        ObjectRef {
            group: Arc::from("apps"),
            kind: Arc::from("Deployment"),
            namespace: Arc::from("shop"),
            name: Arc::from(Self::name(index).as_str()),
        }
    }

    fn create(&mut self, index: usize) {
        self.number += 1;
        let object = self.world.deployment("shop", &Self::name(index), self.number);
        // No status: no controller tells of a rollout here.
        self.world.edit(&object, |object| object["status"] = json!({}));
        let schedule = index % SCHEDULES.len();
        self.world
            .label(&object, "offhours.platform.io/schedule", Some(SCHEDULES[schedule].0));
        let truth = Truth {
            wish: self.number,
            schedule,
            ..Truth::default()
        };
        self.truths.insert(Self::name(index), truth);
        self.touched(index);
    }

    /// Something that may ask for one more write.
    fn touched(&mut self, index: usize) {
        let now = self.now;
        let truth = self.truths.get_mut(&Self::name(index)).unwrap();
        truth.writes = 0;
        truth.should_be_up = truth.is_up(now);
    }

    fn restart(&mut self) {
        self.snapshot = self.world.snapshot(&self.schedules);
        self.decider = Decider::default();
        self.dirty = Dirty::everything();
    }

    /// What the watch has told is known; repeated or not.
    fn listen(&mut self, repeat: bool) {
        if self.deaf {
            return;
        }
        for object in self.world.objects.keys() {
            let workload = self.world.workload(object);
            if repeat || self.snapshot.workload(object).is_none_or(|known| **known != workload) {
                self.snapshot.set_workload(&Arc::new(workload), &mut self.dirty);
            }
        }
    }

    fn pass_time(&mut self, minutes: i64) {
        self.now += SignedDuration::from_mins(minutes);
        for index in 0..4 {
            let truth = &self.truths[&Self::name(index)];
            if truth.is_up(self.now) != truth.should_be_up || minutes >= 60 {
                self.touched(index);
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Minutes(minutes) => self.pass_time(minutes),
            Op::Scale(index, zero) => {
                self.number += 1;
                let replicas = if zero { 0 } else { self.number };
                let object = Self::object(index);
                let before = read(&self.world.objects[&object]);
                self.world
                    .edit(&object, |object| object["spec"]["replicas"] = json!(replicas));
                // With a record on it, whether this is a wish is decided by whoever writes next.
                if before.record.is_none() {
                    self.truths.get_mut(&Self::name(index)).unwrap().wish = replicas;
                }
                self.touched(index);
            }
            Op::Awake(index, hours) => {
                let hour = self.now.as_second() / 3600 * 3600;
                let end = (hours > 0).then(|| Timestamp::from_second(hour + hours * 3600).unwrap());
                let text = end.map(|end| end.to_string());
                self.world.annotate(
                    &Self::object(index),
                    "offhours.platform.io/awake-until",
                    text.as_deref(),
                );
                self.truths.get_mut(&Self::name(index)).unwrap().awake_until = end;
                self.touched(index);
            }
            Op::Protect(index, yes) => {
                let value = if yes { "true" } else { "false" };
                // A label: `Strip` takes annotations.
                self.world
                    .label(&Self::object(index), "offhours.platform.io/protected", Some(value));
                self.truths.get_mut(&Self::name(index)).unwrap().protected = yes;
                self.touched(index);
            }
            Op::Label(index, schedule) => {
                let name = SCHEDULES.get(schedule).map_or("nowhere", |(name, ..)| name);
                self.world
                    .label(&Self::object(index), "offhours.platform.io/schedule", Some(name));
                self.truths.get_mut(&Self::name(index)).unwrap().schedule = schedule;
                self.touched(index);
            }
            Op::Strip(index) => {
                let object = Self::object(index);
                let before = read(&self.world.objects[&object]);
                // Where a number is kept by night, what we held goes with the annotations and cannot be known without memory.
                if before.held == 0 {
                    self.world
                        .edit(&object, |object| object["metadata"]["annotations"] = json!({}));
                    self.truths.get_mut(&Self::name(index)).unwrap().awake_until = None;
                    self.touched(index);
                }
            }
            Op::Recreate(index) => {
                self.world.objects.remove(&Self::object(index));
                self.create(index);
            }
            Op::Restart => self.restart(),
            Op::Deaf(deaf) => self.deaf = deaf,
            Op::Repeat => self.listen(true),
            Op::Run(writes, end) => self.run(writes, end),
        }
    }

    fn run(&mut self, writes: usize, end: End) {
        self.listen(false);
        let dirty = std::mem::take(&mut self.dirty);
        self.decider.update(&self.snapshot, &dirty, self.now);
        let mut killed = false;
        for left in (0..writes).rev() {
            let Some(action) = self.decider.next_action(&self.snapshot, self.now) else {
                break;
            };
            let end = if left == 0 { end } else { End::Answered };
            let object = action.target.object.clone();
            let failed = || Outcome::Failed {
                reason: "Timeout",
                message: String::new(),
                retry_after: None,
            };
            let outcome = match end {
                End::Failed => failed(),
                End::Answered | End::Lost | End::Killed => {
                    let before = self.world.objects[&object].clone();
                    let known = self.snapshot.workload(&object).unwrap();
                    let stale = before["metadata"]["resourceVersion"] != *known.resource_version;
                    let before = read(&before);
                    match self.world.apply(&action) {
                        Err(Refused::Gone | Refused::Conflict) => Outcome::Conflict { message: String::new() },
                        Ok(()) => {
                            self.judge(&object, &before, stale);
                            match end {
                                End::Lost => failed(),
                                _ => Outcome::Done,
                            }
                        }
                    }
                }
            };
            if matches!(end, End::Killed) {
                killed = true;
                break;
            }
            if outcome == Outcome::Done {
                // An answer is known at once, whatever the watch does.
                let workload = Arc::new(self.world.workload(&object));
                self.snapshot.set_workload(&workload, &mut self.dirty);
            }
            self.decider.answered(&self.snapshot, &object, &outcome, self.now);
        }
        if killed {
            self.restart();
        }
    }

    /// Whether a write of ours was one that may be.
    fn judge(&mut self, object: &ObjectRef, before: &Said, stale: bool) {
        let after = read(&self.world.objects[object]);
        let now = self.now;
        let truth = self.truths.get_mut(object.name.as_ref()).unwrap();
        // Who does not know yet what was asked for may write once more when it is told.
        truth.writes += u32::from(!stale);
        assert!(
            truth.writes <= 1,
            "more than one write on {object} at {now}: {before:?} -> {after:?}"
        );
        match (before.record, after.record) {
            (None, Some(record)) => {
                assert_eq!(record, before.replicas, "a record was invented on {object}");
                assert!(
                    after.replicas < before.replicas && after.replicas == after.held,
                    "{before:?} -> {after:?}"
                );
            }
            (Some(record), None) if before.asleep() => {
                assert_eq!(after.replicas, record, "a record was lost on {object}");
                assert_eq!(after.own_keys, 0);
            }
            (Some(_), None) => {
                assert_eq!(
                    after.replicas, before.replicas,
                    "somebody's number was lost on {object}"
                );
                assert_eq!(after.own_keys, 0);
                truth.wish = before.replicas;
            }
            (Some(record), Some(kept)) if before.asleep() => {
                assert_eq!(record, kept, "a record was changed on {object}");
                assert!(after.asleep(), "{before:?} -> {after:?}");
            }
            (Some(record), Some(kept)) => {
                assert!(after.asleep(), "{before:?} -> {after:?}");
                let ours = before.since.is_some_and(|since| since >= truth.window_start(now));
                if ours {
                    assert_eq!(record, kept, "a record was changed within its window on {object}");
                } else {
                    assert_eq!(before.replicas, kept, "the newer number was lost on {object}");
                    truth.wish = before.replicas;
                }
            }
            // A wake that is over, or an instant, was written.
            (None, None) => assert_eq!(after.replicas, before.replicas),
        }
    }

    /// Everybody keeps quiet until all is done.
    fn come_to_rest(&mut self) {
        self.deaf = false;
        // Ten past a full hour: no boundary comes within the next half hour.
        let hour = self.now.as_second() / 3600 * 3600;
        let minutes = (hour + 3600 + 600 - self.now.as_second()) / 60;
        self.pass_time(minutes);
        for _ in 0..40 {
            self.run(usize::MAX, End::Answered);
            self.now += SignedDuration::from_mins(1);
        }
        for index in 0..4 {
            let object = Self::object(index);
            let said = read(&self.world.objects[&object]);
            let truth = self.truths[&Self::name(index)].clone();
            if truth.is_up(self.now) {
                assert_eq!(
                    (said.replicas, said.own_keys),
                    (truth.wish, 0),
                    "{object} by day: {said:?} {truth:?}"
                );
            } else if said.record.is_none() {
                // Its owner's own sleep.
                assert_eq!(
                    (said.replicas, said.own_keys),
                    (truth.wish, 0),
                    "{object} by night: {said:?} {truth:?}"
                );
                assert!(
                    said.replicas <= truth.down_to(),
                    "{object} stayed up: {said:?} {truth:?}"
                );
            } else if said.replicas <= said.held {
                assert_eq!(said.record, Some(truth.wish), "{object} by night: {said:?} {truth:?}");
            } else {
                panic!("{object} stayed up by night: {said:?} {truth:?}");
            }
        }
        let mut anew = Decider::new(self.decider.memory().clone());
        anew.update(&self.world.snapshot(&self.schedules), &Dirty::everything(), self.now);
        assert_eq!(anew.next_action(&self.snapshot, self.now), None);
    }
}

fn drive(ops: &[Op]) {
    let mut sim = Sim::new();
    for op in ops {
        sim.apply(*op);
    }
    sim.come_to_rest();
    // And once more around the clock.
    for _ in 0..4 {
        sim.pass_time(6 * 60);
        sim.come_to_rest();
    }
}

/// How many histories are tried; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(2026), max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_no_number_is_lost_and_all_is_as_the_clock_says(ops in proptest::collection::vec(op(), 1..60)) {
        drive(&ops);
    }
}
