use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::double::{Fault, Replica, Server, WRITE_TIMEOUT, assert_only_the_holder_wrote, settings, wall};
use crate::lease::PermitError;

/// How long the leader still got permits after `from`, looked at every 10 ms.
async fn permits_end_after(replica: &Replica, from: Instant) -> Duration {
    while replica.leadership.time_left().is_some() {
        assert!(from.elapsed() < Duration::from_mins(1), "never stops leading");
        sleep(Duration::from_millis(10)).await;
    }
    from.elapsed()
}

#[tokio::test(start_paused = true)]
async fn case_6_12_renewals_refused_with_403_then_429_end_the_leadership_at_the_renew_deadline() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    server.fault("a", Some(Fault::Status(403)));
    let refused = Instant::now();
    sleep(Duration::from_millis(700)).await;
    server.fault("a", Some(Fault::Status(429)));
    let led = permits_end_after(&a, refused).await;
    assert!(
        led <= settings("a").renew_deadline + Duration::from_millis(10),
        "{led:?}"
    );
    sleep(Duration::from_millis(50)).await;
    assert!(!a.leadership.state().leading, "the loss is told, not only computed");
    assert!(!a.leadership.state().steady);
    sleep(Duration::from_secs(20)).await;
    server.fault("a", None);
    a.leads().await;
    assert_eq!(a.leadership.state().term, 2);
    assert_only_the_holder_wrote(&server);
}

#[tokio::test(start_paused = true)]
async fn case_6_12_a_clock_set_back_by_a_minute_does_not_prolong_a_leadership() {
    for step in [-60, 60] {
        let server = Server::new();
        let clock = wall(0);
        let a = Replica::start_with(&server, settings("a"), Arc::clone(&clock) as _);
        a.leads().await;
        sleep(Duration::from_secs(10)).await;
        server.fault("a", Some(Fault::Status(429)));
        clock.offset.store(step, Ordering::Relaxed);
        let led = permits_end_after(&a, Instant::now()).await;
        assert!(
            led <= settings("a").renew_deadline + Duration::from_millis(10),
            "step {step}: {led:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_virtual_machine_that_was_suspended_writes_nothing_before_it_has_renewed() {
    // Its monotonic clock stood still, its wall clock was set on resume.
    let server = Server::new();
    let clock = wall(0);
    let a = Replica::start_with(&server, settings("a"), Arc::clone(&clock) as _);
    a.leads().await;
    clock.offset.store(3600, Ordering::Relaxed);
    assert_eq!(a.leadership.permit(WRITE_TIMEOUT).err(), Some(PermitError::NotLeader));
    sleep(Duration::from_secs(1)).await;
    assert!(
        a.leadership.permit(WRITE_TIMEOUT).is_ok(),
        "the next renewal settles it"
    );
}

#[tokio::test(start_paused = true)]
async fn case_6_10_a_leader_cut_off_for_a_minute_writes_nothing_after_the_other_acquired() {
    for fault in [Fault::Hang, Fault::AnswerLost, Fault::Status(500)] {
        let server = Server::new();
        let a = Replica::start(&server, "a", 0);
        a.leads().await;
        let b = Replica::start(&server, "b", 0);
        sleep(Duration::from_secs(3)).await;
        server.fault("a", Some(fault));
        sleep(Duration::from_mins(1)).await;
        let acquired = server.with(|state| {
            state
                .changes
                .iter()
                .find(|change| change.holder.as_deref() == Some("b"))
                .cloned()
        });
        // A renewal whose answer was lost took effect once; then the resourceVersion is unknown and nothing does.
        let acquired = acquired.expect("the second takes over");
        server.with(|state| {
            assert!(
                state
                    .writes
                    .iter()
                    .all(|write| write.by != "a" || write.at < acquired.at)
            );
        });
        assert!(b.leadership.state().leading);
        server.fault("a", None);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(a.leadership.state().term, 1, "it works again only after winning again");
        b.stop().await;
        a.leads().await;
        assert_eq!(a.leadership.state().term, 2);
        assert_only_the_holder_wrote(&server);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_l1_a_process_frozen_for_longer_than_the_lease_writes_nothing_when_it_goes_on() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    let b = Replica::start(&server, "b", 0);
    sleep(Duration::from_secs(3)).await;
    // At every phase of a renewal period.
    for phase in 0..10 {
        sleep(Duration::from_millis(67 * phase)).await;
        let (leader, other) = if a.leadership.state().leading {
            (&a, &b)
        } else {
            (&b, &a)
        };
        leader.freezer.freeze();
        other.leads().await;
        sleep(Duration::from_secs(3)).await;
        let thawed = Instant::now();
        leader.freezer.thaw();
        sleep(Duration::from_secs(3)).await;
        server.with(|state| {
            assert!(
                state
                    .writes
                    .iter()
                    .all(|write| write.by != leader.name || write.at < thawed)
            );
        });
        assert!(!leader.leadership.state().leading && other.leadership.state().leading);
    }
    assert_only_the_holder_wrote(&server);
}

#[tokio::test(start_paused = true)]
async fn a_permit_held_through_a_freeze_sends_nothing() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    let permit = a.leadership.permit(WRITE_TIMEOUT).unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    let sent = std::sync::atomic::AtomicBool::new(false);
    let outcome = permit.run(async { sent.store(true, Ordering::Relaxed) }).await;
    assert_eq!(outcome, Err(PermitError::NotLeader));
    assert!(!sent.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_is_given_up_when_the_leadership_is_lost() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    let permit = a.leadership.permit(WRITE_TIMEOUT).unwrap();
    server.with(|state| {
        let mut lease = state.lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = serde_json::json!("somebody");
        state.store(lease);
    });
    let lost = async {
        a.leadership.lost().await;
        Instant::now()
    };
    let (outcome, at) = tokio::join!(permit.run(std::future::pending::<()>()), lost);
    assert_eq!(outcome, Err(PermitError::Unanswered));
    assert!(Instant::now() - at < Duration::from_millis(700));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(a.leadership.state().holder.as_deref(), Some("somebody"));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_away_for_two_minutes_is_asked_at_the_retry_period_and_led_again() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    server.fault("a", Some(Fault::Status(503)));
    server.with(|state| state.requests.clear());
    sleep(Duration::from_mins(2)).await;
    let asked = server.with(|state| state.requests.len());
    assert!((300..=620).contains(&asked), "every 200 ms for 120 s: {asked}");
    server.fault("a", None);
    a.leads().await;
    assert_only_the_holder_wrote(&server);
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_within_the_call_timeout_costs_no_leadership() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    server.fault("a", Some(Fault::Slow(Duration::from_millis(250))));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(a.leadership.state().term, 1);
    assert!(a.leadership.state().leading);
}
