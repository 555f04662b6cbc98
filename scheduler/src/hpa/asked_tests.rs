//! The HPA controller is asked to look before a target that slept in part is restored: when it does, does not, and may not be asked.

use shared::api::HpaMode;

use super::tests::{Night, hpa, is_asked, kinds, lasting, look_at, night};
use crate::decide::action::Action;
use crate::decide::assess::Class;
use crate::decide::memory::Outcome;
use crate::decide::tests::world::{MORNING, NIGHT, World, at};

#[test]
fn where_the_controller_does_not_run_a_workload_comes_back_all_the_same_and_it_is_said() {
    let mut night = night(HpaMode::Keep, 1);
    let before = hpa("shop", "web", "web", Some(3), 10);
    let autoscaler = night.add(&before);
    night.at(NIGHT);
    night.looks_every = None;
    let writes = night.at(MORNING);
    assert_eq!(writes.len(), 4, "{:?}", kinds(&writes));
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
    let waited = night.now.duration_since(at(MORNING)).as_secs();
    assert!((90..95).contains(&waited), "{waited} s");
    let said = |night: &Night| {
        let assessment = night.decider.assessment(&night.web).unwrap();
        (assessment.trouble.as_ref().map(|skip| skip.reason), assessment.class)
    };
    assert_eq!(said(&night), (Some("AutoscalerSilent"), Class::Up));
    // A new leader says the same, and the next morning is as good as the first.
    night.new_leader();
    assert_eq!(night.at("2026-12-02T12:00:00Z"), []);
    assert_eq!(said(&night), (Some("AutoscalerSilent"), Class::Up));
    night.at("2026-12-02T22:00:00Z");
    night.at("2026-12-03T08:00:01Z");
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
    night.looks_every = Some(1);
    assert_eq!(night.at("2026-12-03T12:00:00Z"), []);
    assert_eq!(said(&night), (None, Class::Up));
}

#[test]
fn where_the_controller_may_not_be_asked_the_workload_does_not_wait_and_it_is_said() {
    let mut night = night(HpaMode::Keep, 1);
    let before = hpa("shop", "web", "web", Some(3), 10);
    let autoscaler = night.add(&before);
    let asked = std::cell::Cell::new(0);
    let forbidden = |action: &Action| {
        let status = kinds(std::slice::from_ref(action)) == ["patch HorizontalPodAutoscaler/status"];
        status.then(|| {
            asked.set(asked.get() + 1);
            Outcome::Failed {
                reason: "Forbidden",
                message: "no rights".to_owned(),
                retry_after: None,
            }
        })
    };
    for (nights, (evening, morning)) in [(NIGHT, MORNING), ("2026-12-02T22:00:00Z", "2026-12-03T08:00:01Z")]
        .into_iter()
        .enumerate()
    {
        night.at(evening);
        let writes = night.refusing(morning, &forbidden);
        let event = writes[0].event.as_ref().unwrap();
        assert_eq!((event.reason, event.warning), ("AutoscalerNotAsked", true));
        assert_eq!(night.world.replicas(&night.web), Some(7));
        assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
        assert!(night.now < at(morning).checked_add(jiff::SignedDuration::from_secs(5)).unwrap());
        // Rights may have come by the next morning.
        assert_eq!(asked.get(), nights + 1);
    }
}

#[test]
fn a_controller_that_looked_before_the_maximum_was_back_is_asked_again() {
    let mut night = night(HpaMode::Keep, 1);
    let autoscaler = night.add(&hpa("shop", "web", "web", None, 10));
    night.at(NIGHT);
    let mut hasty = Some(());
    let (mut beats, now) = (0, &mut at(MORNING));
    let mut controller = |world: &mut World| {
        beats += 1;
        if is_asked(&world.objects[&autoscaler]) && (hasty.take().is_some() || beats % 5 == 0) {
            look_at(world, &autoscaler);
        }
    };
    let writes = night
        .world
        .settle_beside(&mut night.decider, &night.schedules, now, &|_| None, &mut controller);
    let asks = "patch HorizontalPodAutoscaler/status";
    assert_eq!(
        kinds(&writes),
        [asks, asks, "patch HorizontalPodAutoscaler", "patch Deployment"]
    );
    assert_eq!(night.world.replicas(&night.web), Some(7));
}
