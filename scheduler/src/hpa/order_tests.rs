//! The controller of an HPA acts between any two writes of ours, and processes die there: no count is lost.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::annotations::{self, ORIGINAL_REPLICAS};
use shared::api::{EnforcementMode, HpaMode};
use shared::workload::ObjectRef;

use super::tests::{Night, hpa, is_asked, kinds, lasting, look_at, night};
use crate::decide::memory::Outcome;
use crate::decide::snapshot::Dirty;
use crate::decide::tests::world::{MORNING, NIGHT, at, owned_by, schedules};

/// The field manager of the controller.
const CONTROLLER: &str = "k3s";

/// What the metrics tell the controller.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// At its target: nothing but the range matters.
    Steady,
    Idle,
    /// Half of what runs would do.
    Half,
    /// One more is needed.
    More,
    High,
}

/// How the controller looks.
#[derive(Debug, Clone, Copy)]
struct Sync {
    load: Load,
    /// Its copy of the HPA is the newest; else the one that it had before.
    fresh: bool,
    /// It decides now and writes after our next write: a conflict makes it write the same again.
    slow: bool,
}

/// What happens between two writes of ours.
#[derive(Debug, Clone, Copy)]
enum Beat {
    Nothing,
    Controller(Sync),
    /// The process dies, and another one begins.
    Crash,
    /// The next write is done, and the process dies before it hears of it.
    Lost,
}

const fn prompt(load: Load) -> Beat {
    Beat::Controller(Sync {
        load,
        fresh: true,
        slow: false,
    })
}

const fn slow(load: Load) -> Beat {
    Beat::Controller(Sync {
        load,
        fresh: true,
        slow: true,
    })
}

/// On its old copy of the HPA.
const fn stale(load: Load) -> Beat {
    Beat::Controller(Sync {
        load,
        fresh: false,
        slow: false,
    })
}

fn beat() -> impl Strategy<Value = Beat> {
    let load = prop_oneof![
        3 => Just(Load::Steady), 1 => Just(Load::Idle), 1 => Just(Load::Half), 1 => Just(Load::More), 1 => Just(Load::High)
    ];
    let sync = (load, prop::bool::weighted(0.6), prop::bool::weighted(0.3))
        .prop_map(|(load, fresh, slow)| Beat::Controller(Sync { load, fresh, slow }));
    prop_oneof![2 => Just(Beat::Nothing), 6 => sync, 1 => Just(Beat::Crash), 1 => Just(Beat::Lost)]
}

/// What the controller knows of the HPA: as of its informer, some moments old.
#[derive(Debug, Clone, PartialEq)]
struct Informed {
    version: String,
    bounds: (u64, u64),
    asked: bool,
}

/// One night beside a controller.
struct Stage {
    night: Night,
    autoscaler: ObjectRef,
    before: Value,
    range: (u64, u64),
    down: u64,
    /// What the target may be by day: what it was, or what its controller made of it within the HPA's own range.
    right: BTreeSet<u64>,
    copy: Informed,
    /// The controller has decided, and not yet written all that follows.
    at_work: bool,
    /// The count that it is about to write.
    pending: Option<u64>,
    /// Counts that nobody had written down when the controller lowered them to the number of the night.
    lost: Vec<String>,
}

impl Stage {
    fn new(count: u64, (min, max): (u64, u64), down: u64, mode: EnforcementMode) -> Self {
        let mut night = night(HpaMode::Keep, 0);
        let mut schedule = crate::decide::tests::world::office();
        schedule.down_replicas = annotations::DownReplicas::Count(down as u32);
        schedule.enforcement.mode = mode;
        night.schedules = schedules([schedule]);
        night.world.edit(&night.web, |web| {
            web["spec"]["replicas"] = count.into();
            // No status: no controller tells of a rollout here.
            web["status"] = json!({});
            web["metadata"]["managedFields"] = json!([]);
            owned_by(web, "kubectl");
        });
        let mut before = hpa("shop", "web", "web", Some(min), max);
        // As where one program is all controllers.
        before["metadata"]["managedFields"] =
            json!([{"manager": CONTROLLER, "operation": "Update", "subresource": "status"}]);
        let autoscaler = night.add(&before);
        Self {
            copy: copy_of(&night.world.objects[&autoscaler]),
            night,
            autoscaler,
            before,
            range: (min, max),
            down,
            right: BTreeSet::from([count]),
            at_work: false,
            pending: None,
            lost: Vec::new(),
        }
    }

    fn replicas(&self) -> u64 {
        self.night.world.replicas(&self.night.web).unwrap()
    }

    fn bounds(&self) -> (u64, u64) {
        copy_of(&self.night.world.objects[&self.autoscaler]).bounds
    }

    fn record(&self) -> Option<u64> {
        let record = self.night.world.annotation(&self.night.web, ORIGINAL_REPLICAS);
        record.and_then(|text| text.parse::<u64>().ok())
    }

    /// One sync of the controller, which writes at once or later.
    fn sync(&mut self, Sync { load, fresh, slow }: Sync) {
        self.finish();
        if fresh {
            self.copy = copy_of(&self.night.world.objects[&self.autoscaler]);
        }
        let present = self.replicas();
        let (min, max) = self.copy.bounds;
        let wanted = match load {
            Load::Steady => present,
            Load::Idle => 1,
            Load::Half => present.div_ceil(2),
            Load::More => present + 1,
            Load::High => 100,
        };
        let wanted = wanted.clamp(min, max);
        self.at_work = true;
        self.pending = (wanted != present).then_some(wanted);
        if wanted != present {
            let own_range = self.copy.bounds == self.range;
            match self.record() {
                // More than was recorded, under load, and within its own maximum.
                Some(record) if wanted >= record && max == self.range.1 => {
                    self.right.insert(wanted);
                }
                // Its own range: what it does there is its business.
                None if own_range && self.bounds() == self.range && !slow => self.right = BTreeSet::from([wanted]),
                None if own_range => {
                    self.right.insert(wanted);
                }
                // With the minimum lowered: no less than its own minimum would have left.
                None if wanted > self.down => {
                    self.right.insert(wanted.max(self.range.0));
                }
                Some(_) | None => {}
            }
            // Under load it is right to do so; else it must have no reason.
            if slow && !matches!(load, Load::Steady) {
                self.right.insert(wanted);
            }
        }
        if !slow {
            self.finish();
        }
    }

    /// The controller writes what it has decided, and then, where its copy lacks it, that it has looked.
    fn finish(&mut self) {
        if !std::mem::take(&mut self.at_work) {
            return;
        }
        if let Some(wanted) = self.pending.take() {
            let present = self.replicas();
            if self.record().is_none() && wanted < present && self.copy.bounds.1 != self.range.1 {
                self.lost.push(format!("{present} became {wanted} by {:?}", self.copy));
            }
            self.night.world.edit(&self.night.web.clone(), |web| {
                web["spec"]["replicas"] = wanted.into();
                owned_by(web, CONTROLLER);
            });
        }
        // The status of another version is refused.
        if self.copy.asked && self.copy == copy_of(&self.night.world.objects[&self.autoscaler]) {
            look_at(&mut self.night.world, &self.autoscaler);
        }
    }

    /// Until all is done and the beats are over; no longer than so many rounds.
    fn run(&mut self, instant: &str, beats: &[Beat], rounds: usize) {
        let night = &mut self.night;
        night.now = night.now.max(at(instant));
        let mut beats = beats.iter();
        for _ in 0..rounds {
            let beat = beats.next().copied();
            self.finish();
            match beat {
                Some(Beat::Controller(sync)) => self.sync(sync),
                Some(Beat::Crash) => self.night.new_leader(),
                Some(Beat::Nothing | Beat::Lost) | None => {}
            }
            let night = &mut self.night;
            let snapshot = night.world.snapshot(&night.schedules);
            night.decider.update(&snapshot, &Dirty::everything(), night.now);
            let Some(action) = night.decider.next_action(&snapshot, night.now) else {
                if beat.is_none() && !night.decider.is_waiting_beside() {
                    return;
                }
                night.now = night.now.checked_add(SignedDuration::from_secs(1)).unwrap();
                continue;
            };
            let outcome = match night.world.apply(&action) {
                Ok(()) => Outcome::Done,
                Err(_) => Outcome::Conflict { message: String::new() },
            };
            if matches!(beat, Some(Beat::Lost)) {
                night.new_leader();
                continue;
            }
            let snapshot = night.world.snapshot(&night.schedules);
            night
                .decider
                .answered(&snapshot, &action.target.object, &outcome, night.now);
        }
    }

    fn check_morning(&self) {
        assert_eq!(self.lost, Vec::<String>::new());
        assert!(
            self.right.contains(&self.replicas()),
            "{} is none of {:?}: {:#}",
            self.replicas(),
            self.right,
            self.night.world.objects[&self.night.web]
        );
        assert_eq!(
            lasting(&self.night.world.objects[&self.autoscaler]),
            lasting(&self.before)
        );
        assert_eq!(self.night.world.own_keys(&self.night.web), Vec::<String>::new());
        assert_eq!(self.night.world.own_keys(&self.autoscaler), Vec::<String>::new());
    }
}

fn copy_of(hpa: &Value) -> Informed {
    let number = |field: &str| hpa["spec"][field].as_u64();
    Informed {
        version: hpa["metadata"]["resourceVersion"].as_str().unwrap().to_owned(),
        bounds: (number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap()),
        asked: is_asked(hpa),
    }
}

/// How many histories are tried; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(150)
}

fn range_and_count() -> impl Strategy<Value = (u64, (u64, u64))> {
    (1..8_u64, 0..6_u64, 0..6_u64).prop_map(|(min, more, room)| (min + more, (min, min + more + room)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    #[test]
    fn beside_a_controller_that_acts_at_any_moment_no_count_is_lost(
        (count, range) in range_and_count(),
        down in 1..4_u64,
        warn in any::<bool>(),
        closing in proptest::collection::vec(beat(), 0..14),
        opening in proptest::collection::vec(beat(), 0..14),
        // The morning may come before the evening's work is done.
        rounds in prop_oneof![3 => Just(300_usize), 1 => 0..6_usize],
    ) {
        let mode = if warn { EnforcementMode::Warn } else { EnforcementMode::Rewrite };
        let mut stage = Stage::new(count, range, down, mode);
        stage.run(NIGHT, &closing, rounds);
        if rounds > 100 && !warn {
            prop_assert!(stage.replicas() <= down, "{} are up by night", stage.replicas());
            let asleep = stage.night.world.annotation(&stage.night.web, ORIGINAL_REPLICAS).is_some();
            prop_assert!(!asleep || stage.bounds().1 <= down, "{:?}", stage.bounds());
        }
        stage.run(MORNING, &opening, 300);
        // Its controller goes on with its own range.
        let Beat::Controller(own) = prompt(Load::Steady) else { unreachable!() };
        stage.sync(own);
        stage.check_morning();
    }
}

#[test]
fn a_controller_that_is_faster_than_we_are_takes_no_count_away() {
    // Idle, it lowers its target as soon as the minimum is lowered: before the target has a record.
    let mut stage = Stage::new(7, (3, 10), 1, EnforcementMode::Rewrite);
    let idle = [Beat::Nothing, prompt(Load::Idle)];
    stage.run(NIGHT, &idle, 300);
    assert_eq!(stage.replicas(), 1);
    let web = stage.night.web.clone();
    assert_eq!(stage.night.world.annotation(&web, ORIGINAL_REPLICAS), Some("7"));
    assert_eq!(stage.night.world.annotation(&stage.autoscaler, ORIGINAL_REPLICAS), None);
    // Under load, it raises its target as soon as its maximum is given back: before the target is restored.
    let beats = [Beat::Nothing, Beat::Nothing, prompt(Load::More)];
    stage.run(MORNING, &beats, 300);
    assert_eq!(stage.replicas(), 7);
    stage.check_morning();
}

#[test]
fn a_controller_that_writes_late_has_no_reason_to_raise_the_target_to_its_minimum() {
    let mut stage = Stage::new(7, (3, 10), 1, EnforcementMode::Rewrite);
    stage.run(NIGHT, &[], 300);
    let beats = [Beat::Nothing, slow(Load::Steady), slow(Load::Steady)];
    stage.run(MORNING, &beats, 300);
    assert_eq!(stage.replicas(), 7);
    stage.check_morning();
}

#[test]
fn a_controller_that_knows_the_capped_maximum_only_finds_nothing_to_lower() {
    let mut stage = Stage::new(7, (3, 10), 1, EnforcementMode::Rewrite);
    // It has seen the cap, and from then on nothing until it catches up with what it was asked.
    stage.run(NIGHT, &[Beat::Nothing; 4], 300);
    stage.sync(Sync {
        load: Load::Steady,
        fresh: true,
        slow: false,
    });
    assert_eq!(stage.copy.bounds, (1, 1));
    let mut beats = vec![stale(Load::Steady); 10];
    stage.run(MORNING, &beats, 10);
    assert_eq!(
        stage.replicas(),
        1,
        "restored before the controller has seen its maximum"
    );
    beats.truncate(3);
    beats.push(prompt(Load::Steady));
    beats.extend([stale(Load::Steady); 5]);
    stage.run(MORNING, &beats, 300);
    assert_eq!(stage.replicas(), 7);
    stage.check_morning();
}

#[test]
fn while_the_autoscaler_cannot_be_given_back_its_target_keeps_its_record() {
    let mut night = night(HpaMode::Keep, 1);
    let before = hpa("shop", "web", "web", Some(3), 10);
    let autoscaler = night.add(&before);
    night.at(NIGHT);
    // Not just between the question and what relies on it.
    night.looks_every = Some(40);
    let failures = std::cell::Cell::new(0);
    let writes = night.refusing(MORNING, &|action| {
        if *action.target.object.kind == *"Deployment" || failures.get() == 4 {
            return None;
        }
        failures.set(failures.get() + 1);
        Some(Outcome::Failed {
            reason: "ServerError",
            message: "500".to_owned(),
            retry_after: None,
        })
    });
    assert_eq!(failures.get(), 4);
    let expected = [
        "patch HorizontalPodAutoscaler/status",
        "patch HorizontalPodAutoscaler",
        "patch Deployment",
        "patch HorizontalPodAutoscaler",
    ];
    assert_eq!(kinds(&writes), expected);
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
}
