//! What lasts: conflicts, long waits, a clock that was set back, objects that are gone, wrong values.

use std::cell::Cell;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shared::annotations::{AWAKE_UNTIL, DOWN_REPLICAS, STARTUP_ORDER};
use shared::api::HpaMode;
use shared::policy::Schedules;
use shared::workload::ObjectRef;

use super::world::{NIGHT, World, at, office, schedules};
use crate::argo::Way;
use crate::decide::action::{Action, Purpose};
use crate::decide::decider::Decider;
use crate::decide::memory::{Memory, Outcome};
use crate::decide::snapshot::Dirty;
use crate::hpa::tests::{hpa, night};

/// A cluster with one Deployment that should be put down, and somebody who goes by its clock alone.
struct Shop {
    world: World,
    schedules: Arc<Schedules>,
    web: ObjectRef,
    decider: Decider,
    now: Timestamp,
}

fn conflict() -> Outcome {
    Outcome::Conflict {
        message: "failed to patch deployments shop/web: 409".to_owned(),
    }
}

fn failed(retry_after: Option<SignedDuration>) -> Outcome {
    Outcome::Failed {
        reason: "TooManyRequests",
        message: "too many".to_owned(),
        retry_after,
    }
}

impl Shop {
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

    /// One pass over everything.
    fn look(&mut self) -> Vec<Action> {
        let snapshot = self.world.snapshot(&self.schedules);
        self.decider.update(&snapshot, &Dirty::everything(), self.now);
        std::iter::from_fn(|| self.decider.next_action(&snapshot, self.now)).collect()
    }

    fn answer(&mut self, action: &Action, outcome: &Outcome) {
        let snapshot = self.world.snapshot(&self.schedules);
        let object = &action.target.object;
        self.decider.answered(&snapshot, object, outcome, self.now);
    }

    /// Does what is wanted.
    fn settle(&mut self) -> Vec<Purpose> {
        let mut purposes = Vec::new();
        for action in self.look() {
            self.world.apply(&action).unwrap();
            self.answer(&action, &Outcome::Done);
            purposes.push(action.purpose);
        }
        purposes
    }

    /// When writes were tried within `span`, each answered so; the watch shows nothing of what the answer was about.
    fn tried(&mut self, span: SignedDuration, outcome: &Outcome, moves: bool) -> Vec<i64> {
        let (began, mut tried) = (self.now, Vec::new());
        while self.now.duration_since(began) <= span && tried.len() < 1000 {
            let mut actions = self.look();
            while let Some(action) = actions.pop().filter(|_| tried.len() < 1000) {
                tried.push(self.now.duration_since(began).as_secs());
                if moves {
                    self.world.edit(&self.web.clone(), |_| {});
                }
                self.answer(&action, outcome);
                actions.extend(self.look());
            }
            let snapshot = self.world.snapshot(&self.schedules);
            self.now = match self.decider.next_instant(self.now) {
                // A status that moves is news each second.
                Some(next) if !moves => next,
                _ => self.now + SignedDuration::from_secs(1),
            };
            self.decider.update(&snapshot, &Dirty::default(), self.now);
        }
        tried
    }
}

#[test]
fn a_conflict_that_lasts_becomes_a_failure_with_growing_pauses() {
    for moves in [false, true] {
        let mut shop = Shop::new();
        let tried = shop.tried(SignedDuration::from_hours(1), &conflict(), moves);
        assert!((10..30).contains(&tried.len()), "version moves: {moves}: {tried:?}");
        assert!(tried.windows(2).all(|pair| pair[1] - pair[0] <= 301), "{tried:?}");
        let failure = shop.decider.memory().failure(&shop.web).unwrap();
        assert_eq!(failure.reason, "ConflictLasts");
        // The watch that shows nothing new is no reason to forget since when.
        assert!(failure.since <= at(NIGHT) + SignedDuration::from_secs(1));
        let remarks = shop.decider.take_remarks();
        let told = remarks.iter().filter(|remark| remark.note.reason == "ConflictLasts");
        assert_eq!(told.count(), 1, "{remarks:?}");
        let troubles = shop.decider.group("office").unwrap().troubles();
        assert_eq!(troubles[&shop.web].reason, "ConflictLasts");
    }
}

#[test]
fn a_conflict_that_lasts_beside_a_workload_is_told_on_the_workload() {
    for kind in ["HorizontalPodAutoscaler", "Deployment"] {
        let mut night = night(HpaMode::DeleteRestore, 0);
        night.add(&hpa("shop", "web", "web", Some(2), 10));
        let tried = Cell::new(0);
        let refuse = |action: &Action| {
            let refused = *action.target.object.kind == *kind;
            tried.set(tried.get() + u32::from(refused));
            refused.then(conflict)
        };
        let began = at(NIGHT);
        // Written beside it all the time, and the watch is quick.
        while night.now < began + SignedDuration::from_mins(30) {
            let next = night.now.max(began) + SignedDuration::from_secs(10);
            night.refusing(&next.to_string(), &refuse);
        }
        assert!((6..40).contains(&tried.get()), "{kind}: {}", tried.get());
        let assessment = night.decider.assessment(&night.web).unwrap();
        let reason = assessment.trouble.as_ref().map(|skip| skip.reason);
        assert_eq!(reason, Some("ConflictLasts"), "{kind}");
        assert_eq!(night.world.replicas(&night.web), Some(7));
    }
}

#[test]
fn conflicts_that_pass_are_no_failure_and_a_write_ends_their_story() {
    let mut shop = Shop::new();
    for _ in 0..3 {
        for _ in 0..3 {
            let actions = shop.look();
            assert_eq!(actions.len(), 1);
            shop.world.edit(&shop.web.clone(), |_| {});
            shop.answer(&actions[0], &conflict());
        }
        assert_eq!(shop.settle(), [Purpose::Down]);
        let web = shop.web.clone();
        shop.world.edit(&web, |web| {
            web["spec"]["replicas"] = json!(3);
            web["metadata"]["annotations"] = json!({});
            web["metadata"]["labels"] = json!({});
        });
        shop.decider = Decider::new(shop.decider.memory().clone());
        assert_eq!(shop.decider.memory().failure(&shop.web), None);
        // Another day.
        shop.now += SignedDuration::from_hours(24);
    }
}

#[test]
fn what_the_api_server_asks_us_to_wait_is_kept_to_ten_minutes_and_never_makes_a_hot_loop() {
    let hour = SignedDuration::from_hours(1);
    for wait in [
        SignedDuration::from_secs(601),
        SignedDuration::from_hours(7),
        SignedDuration::MAX,
    ] {
        let mut shop = Shop::new();
        let tried = shop.tried(hour, &failed(Some(wait)), false);
        assert_eq!(tried, [0, 600, 1200, 1800, 2400, 3000, 3600], "{wait:?}");
    }
    for wait in [None, Some(SignedDuration::ZERO), Some(SignedDuration::MIN)] {
        let mut shop = Shop::new();
        let tried = shop.tried(hour, &failed(wait), false);
        assert_eq!(tried[..5], [0, 1, 3, 7, 15], "{wait:?}");
        assert!(tried.len() < 30, "{wait:?}: {tried:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_silences_what_was_counted_for_ten_minutes_at_most() {
    let mut shop = Shop::new();
    assert_eq!(shop.settle(), [Purpose::Down]);
    let web = shop.web.clone();
    let raise = |shop: &mut Shop| shop.world.edit(&web, |web| web["spec"]["replicas"] = json!(3));
    for _ in 0..2 {
        shop.now += SignedDuration::from_secs(5);
        raise(&mut shop);
        assert_eq!(shop.settle(), [Purpose::DownAgain]);
    }
    raise(&mut shop);
    assert_eq!(shop.settle(), []);
    shop.now -= SignedDuration::from_mins(90);
    assert_eq!(shop.settle(), []);
    shop.now += SignedDuration::from_mins(10);
    assert_eq!(shop.settle(), [Purpose::DownAgain]);
}

#[test]
fn a_clock_that_is_set_back_leaves_no_pause_of_hours() {
    let (uid, mut shop) = (Arc::<str>::from("app"), Shop::new());
    let mut memory = Memory::default();
    memory.pauses.note(&uid, Way::Disabled, shop.now);
    shop.decider = Decider::new(memory);
    let actions = shop.look();
    shop.answer(&actions[0], &failed(None));
    shop.now -= SignedDuration::from_hours(1);
    let _ = shop.look();
    let since = shop.decider.memory().failure(&shop.web).map(|failure| failure.since);
    assert!(since.is_none_or(|since| since <= shop.now), "{since:?}");
    shop.now += SignedDuration::from_mins(11);
    let _ = shop.look();
    assert_eq!(shop.decider.memory().pauses.lately(&uid, shop.now), (0, None));
}

#[test]
fn nothing_is_remembered_of_what_is_gone() {
    let mut shop = Shop::new();
    let mut memory = Memory::default();
    let uid = Arc::<str>::from("gone");
    let object = ObjectRef {
        group: Arc::from("autoscaling"),
        kind: Arc::from("HorizontalPodAutoscaler"),
        namespace: Arc::from("shop"),
        name: Arc::from("gone"),
    };
    memory.zeros.insert(Arc::clone(&uid), Ok(()));
    memory.unasked.insert(Arc::clone(&uid), Arc::from("no"));
    memory.pauses.note(&uid, Way::Disabled, shop.now);
    let version = Arc::from("1");
    memory.note(&object, &uid, &version, Purpose::Autoscaler, &failed(None), shop.now);
    memory.note(&object, &uid, &version, Purpose::Autoscaler, &conflict(), shop.now);
    memory.started(&Arc::from("former"), shop.now);
    shop.decider = Decider::new(memory);
    shop.settle();
    shop.world.objects.clear();
    shop.now += SignedDuration::from_hours(2);
    shop.settle();
    assert_eq!(*shop.decider.memory(), Memory::default());
}

#[test]
fn each_wrong_value_is_told_once() {
    let mut shop = Shop::new();
    let told = |shop: &mut Shop| {
        shop.settle();
        let mut wrong = shop.decider.take_remarks();
        wrong.retain(|remark| remark.note.reason == "ValueIgnored");
        wrong.into_iter().map(|remark| remark.note.message).collect::<Vec<_>>()
    };
    shop.world.annotate(&shop.web.clone(), AWAKE_UNTIL, Some("tomorrow"));
    let first = told(&mut shop);
    assert!(first.len() == 1 && first[0].contains("tomorrow"), "{first:?}");
    shop.world.annotate(&shop.web.clone(), DOWN_REPLICAS, Some("few"));
    shop.world.annotate(&shop.web.clone(), STARTUP_ORDER, Some("soon"));
    let more = told(&mut shop);
    assert!(
        more.len() == 2 && more[0].contains("few") && more[1].contains("soon"),
        "{more:?}"
    );
    assert_eq!(told(&mut shop), [""; 0]);
}
