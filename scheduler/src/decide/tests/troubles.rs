//! Writes that go wrong again and again, and a clock that goes back.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shared::annotations::{AWAKE_UNTIL, DOWN_REPLICAS, STARTUP_ORDER};
use shared::policy::Schedules;
use shared::workload::ObjectRef;

use super::world::{NIGHT, World, at, office, schedules};
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::snapshot::Dirty;

struct Night {
    world: World,
    schedules: Arc<Schedules>,
    web: ObjectRef,
    decider: Decider,
    now: Timestamp,
}

impl Night {
    fn new() -> Self {
        let mut world = World::default();
        world.namespace("shop", "office");
        let web = world.deployment("shop", "web", 3);
        Self {
            world,
            schedules: schedules([office()]),
            web,
            decider: Decider::default(),
            now: at(NIGHT),
        }
    }

    /// Looks again; what is sent now is answered so, and carried out where that is `Done`.
    fn look(&mut self, outcome: &Outcome) -> usize {
        let snapshot = self.world.snapshot(&self.schedules);
        self.decider.update(&snapshot, &Dirty::everything(), self.now);
        let mut sent = 0;
        while let Some(action) = self
            .decider
            .next_action(&self.world.snapshot(&self.schedules), self.now)
        {
            if *outcome == Outcome::Done {
                self.world.apply(&action).unwrap();
            }
            let snapshot = self.world.snapshot(&self.schedules);
            self.decider
                .answered(&snapshot, &action.target.object, outcome, self.now);
            sent += 1;
        }
        sent
    }

    /// How many writes there are in so long, when each is answered so, and the watch shows a new version every second.
    fn writes_in(&mut self, time: SignedDuration, outcome: &Outcome) -> usize {
        let end = self.now + time;
        let mut sent = 0;
        while self.now < end {
            let version = self.world.next_version();
            self.world.edit(&self.web.clone(), |object| {
                object["metadata"]["resourceVersion"] = json!(version);
            });
            sent += self.look(outcome);
            self.now += SignedDuration::from_secs(1);
        }
        sent
    }

    fn trouble(&self) -> Option<&'static str> {
        Some(self.decider.assessment(&self.web)?.trouble.as_ref()?.reason)
    }
}

fn failed(reason: &'static str, retry_after: Option<SignedDuration>) -> Outcome {
    Outcome::Failed {
        reason,
        message: "said so".to_owned(),
        retry_after,
    }
}

#[test]
fn rule_s1_conflicts_that_last_become_a_failure_that_is_told_and_slowed_down() {
    let mut night = Night::new();
    assert_eq!(night.writes_in(SignedDuration::from_secs(4), &Outcome::Conflict), 4);
    assert_eq!(night.trouble(), None, "somebody was quicker: that is everyday life");
    let sent = night.writes_in(SignedDuration::from_hours(1), &Outcome::Conflict);
    assert!((10..=25).contains(&sent), "{sent} in an hour");
    assert_eq!(night.trouble(), Some("ConflictLasts"));
    // It ends as soon as one applies.
    night.now += SignedDuration::from_mins(6);
    assert_eq!(night.look(&Outcome::Done), 1);
    assert_eq!(night.trouble(), None);
}

#[test]
fn a_wish_to_be_asked_later_is_heeded_and_never_for_hours() {
    for (wish, longest) in [(7, 8), (120, 121), (480, 301), (86_400, 301)] {
        let mut night = Night::new();
        let wish = SignedDuration::from_secs(wish);
        assert_eq!(night.look(&failed("TooManyRequests", Some(wish))), 1);
        let asked = night.now;
        while night.look(&Outcome::Conflict) == 0 {
            night.now += SignedDuration::from_secs(1);
        }
        let waited = night.now.duration_since(asked).as_secs();
        assert!(
            (wish.as_secs().min(300)..=longest).contains(&waited),
            "{wish}: {waited} s"
        );
    }
}

#[test]
fn after_the_clock_was_set_back_nothing_waits_for_the_former_time() {
    let mut night = Night::new();
    // Raised again and again: at last it is put down again once in ten minutes.
    while night.look(&Outcome::Done) == 1 {
        night
            .world
            .edit(&night.web.clone(), |object| object["spec"]["replicas"] = json!(3));
        night.now += SignedDuration::from_secs(10);
        assert!(night.now < at("2026-12-02T00:00:00Z"), "never");
    }
    assert_eq!(night.trouble(), Some("RaisedRepeatedly"));
    night.now -= SignedDuration::from_hours(3);
    assert_eq!(night.look(&Outcome::Conflict), 1);

    let mut night = Night::new();
    assert_eq!(night.look(&failed("ServerError", None)), 1);
    night.now -= SignedDuration::from_hours(2);
    night.look(&Outcome::Conflict);
    night.now += SignedDuration::from_mins(5);
    assert_eq!(night.look(&Outcome::Conflict), 1);
}

#[test]
fn each_wrong_value_is_told_once() {
    let mut night = Night::new();
    let told = |night: &mut Night| {
        night.look(&Outcome::Conflict);
        let remarks = night.decider.take_remarks();
        let wrong = remarks
            .into_iter()
            .filter(|remark| remark.note.reason == "ValueIgnored");
        wrong.map(|remark| remark.note.message).collect::<Vec<_>>()
    };
    night.world.annotate(&night.web.clone(), AWAKE_UNTIL, Some("tomorrow"));
    let first = told(&mut night);
    assert!(first.len() == 1 && first[0].contains("tomorrow"), "{first:?}");
    night.world.annotate(&night.web.clone(), DOWN_REPLICAS, Some("few"));
    night.world.annotate(&night.web.clone(), STARTUP_ORDER, Some("soon"));
    let more = told(&mut night);
    assert!(
        more.len() == 2 && more[0].contains("few") && more[1].contains("soon"),
        "{more:?}"
    );
    assert_eq!(told(&mut night), [""; 0]);
}
