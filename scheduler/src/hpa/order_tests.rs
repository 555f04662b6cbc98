//! The controller of an HPA acts between any two writes of ours, and processes die there: no count is lost.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::annotations::{self, ORIGINAL_REPLICAS};
use shared::api::{EnforcementMode, HpaMode};
use shared::workload::ObjectRef;

use super::tests::{Night, hpa, kinds, lasting, night};
use crate::decide::memory::Outcome;
use crate::decide::snapshot::Dirty;
use crate::decide::tests::world::{MORNING, NIGHT, at, owned_by, schedules};

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

/// What happens between two writes of ours.
#[derive(Debug, Clone, Copy)]
enum Beat {
    Nothing,
    Controller(Load),
    /// It decides now and writes after our next write: a conflict makes it write the same again.
    Slow(Load),
    /// The process dies, and another one begins.
    Crash,
    /// The next write is done, and the process dies before it hears of it.
    Lost,
}

fn beat() -> impl Strategy<Value = Beat> {
    let load = prop_oneof![
        3 => Just(Load::Steady), 1 => Just(Load::Idle), 1 => Just(Load::Half), 1 => Just(Load::More), 1 => Just(Load::High)
    ];
    prop_oneof![
        2 => Just(Beat::Nothing),
        4 => load.clone().prop_map(Beat::Controller),
        2 => load.prop_map(Beat::Slow),
        1 => Just(Beat::Crash),
        1 => Just(Beat::Lost),
    ]
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
    /// What its controller has decided and not yet written.
    pending: Option<u64>,
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
        let before = hpa("shop", "web", "web", Some(min), max);
        let autoscaler = night.add(&before);
        Self {
            night,
            autoscaler,
            before,
            range: (min, max),
            down,
            right: BTreeSet::from([count]),
            pending: None,
        }
    }

    fn replicas(&self) -> u64 {
        self.night.world.replicas(&self.night.web).unwrap()
    }

    fn bounds(&self) -> (u64, u64) {
        let spec = self.night.spec(&self.autoscaler);
        let number = |field: &str| spec[field].as_u64();
        (number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap())
    }

    /// One sync of the controller, which writes at once or later.
    fn sync(&mut self, load: Load, slow: bool) {
        let present = self.replicas();
        let (min, max) = self.bounds();
        let wanted = match load {
            Load::Steady => present,
            Load::Idle => 1,
            Load::Half => present.div_ceil(2),
            Load::More => present + 1,
            Load::High => 100,
        };
        let wanted = wanted.clamp(min, max);
        if wanted == present {
            return;
        }
        let record = self.night.world.annotation(&self.night.web, ORIGINAL_REPLICAS);
        let record = record.and_then(|text| text.parse::<u64>().ok());
        match record {
            // More than was recorded, under load, and within its own maximum.
            Some(record) if wanted >= record && max == self.range.1 => {
                self.right.insert(wanted);
            }
            // Its own range: what it does there is its business.
            None if (min, max) == self.range && !slow => self.right = BTreeSet::from([wanted]),
            // With the minimum lowered: no less than its own minimum would have left.
            None if wanted > self.down => {
                self.right.insert(wanted.max(self.range.0));
            }
            Some(_) | None => {}
        }
        if !slow {
            self.scale(wanted);
            return;
        }
        // Under load, or by its own range, it is right to do so; else it must have no reason.
        if !matches!(load, Load::Steady) || (record.is_none() && (min, max) == self.range) {
            self.right.insert(wanted);
        }
        self.pending = Some(wanted);
    }

    fn scale(&mut self, wanted: u64) {
        self.night.world.edit(&self.night.web.clone(), |web| {
            web["spec"]["replicas"] = wanted.into();
            owned_by(web, "kube-controller-manager");
        });
    }

    /// Until all is done and the beats are over; no longer than so many rounds.
    fn run(&mut self, instant: &str, beats: &[Beat], rounds: usize) {
        let night = &mut self.night;
        night.now = night.now.max(at(instant));
        let mut beats = beats.iter();
        for _ in 0..rounds {
            let beat = beats.next().copied();
            if let Some(wanted) = self.pending.take() {
                self.scale(wanted);
            }
            match beat {
                Some(Beat::Controller(load)) => self.sync(load, false),
                Some(Beat::Slow(load)) => self.sync(load, true),
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
                Err(_) => Outcome::Conflict,
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
        stage.sync(Load::Steady, false);
        stage.check_morning();
    }
}

#[test]
fn a_controller_that_is_faster_than_we_are_takes_no_count_away() {
    // Idle, it lowers its target as soon as the minimum is lowered: before the target has a record.
    let mut stage = Stage::new(7, (3, 10), 1, EnforcementMode::Rewrite);
    let idle = [Beat::Nothing, Beat::Controller(Load::Idle)];
    stage.run(NIGHT, &idle, 300);
    assert_eq!(stage.replicas(), 1);
    let web = stage.night.web.clone();
    assert_eq!(stage.night.world.annotation(&web, ORIGINAL_REPLICAS), Some("7"));
    assert_eq!(stage.night.world.annotation(&stage.autoscaler, ORIGINAL_REPLICAS), None);
    // Under load, it raises its target as soon as its maximum is given back: before the target is restored.
    stage.run(MORNING, &[Beat::Nothing, Beat::Controller(Load::More)], 300);
    assert_eq!(stage.replicas(), 7);
    stage.check_morning();
}

#[test]
fn a_controller_that_writes_late_has_no_reason_to_raise_the_target_to_its_minimum() {
    let mut stage = Stage::new(7, (3, 10), 1, EnforcementMode::Rewrite);
    stage.run(NIGHT, &[], 300);
    let slow = [Beat::Nothing, Beat::Slow(Load::Steady), Beat::Slow(Load::Steady)];
    stage.run(MORNING, &slow, 300);
    assert_eq!(stage.replicas(), 7);
    stage.check_morning();
}

#[test]
fn while_the_autoscaler_cannot_be_given_back_its_target_keeps_its_record() {
    let mut night = night(HpaMode::Keep, 1);
    let before = hpa("shop", "web", "web", Some(3), 10);
    let autoscaler = night.add(&before);
    night.at(NIGHT);
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
        "patch HorizontalPodAutoscaler",
        "patch Deployment",
        "patch HorizontalPodAutoscaler",
    ];
    assert_eq!(kinds(&writes), expected);
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
}
