use std::{sync::atomic::Ordering, time::Duration};

use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::double::{Replica, Server, WRITE_TIMEOUT, assert_only_the_holder_wrote, settings, wall};
use crate::lease::{Leadership, LeaseSettings, PermitError, new_identity};

#[tokio::test(start_paused = true)]
async fn case_2_15_of_two_replicas_one_leads_and_the_other_never_writes() {
    let server = Server::new();
    let (a, b) = (Replica::start(&server, "a", 0), Replica::start(&server, "b", 0));
    sleep(Duration::from_secs(30)).await;
    let leaders = [&a, &b].map(|replica| replica.leadership.state().leading);
    assert_eq!(leaders.iter().filter(|leads| **leads).count(), 1);
    let writers: std::collections::HashSet<String> =
        server.with(|state| state.writes.iter().map(|write| write.by.clone()).collect());
    assert_eq!(writers.len(), 1, "only one replica writes: {writers:?}");
    assert_only_the_holder_wrote(&server);
    assert_eq!(
        server.with(|state| state.changes.len()),
        1,
        "the lease changed hands once"
    );
}

#[tokio::test(start_paused = true)]
async fn while_all_is_well_the_holder_sends_one_renewal_per_third_and_nothing_else() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    server.with(|state| state.requests.clear());
    sleep(Duration::from_secs(20)).await;
    let requests = server.with(|state| state.requests.clone());
    assert!(requests.iter().all(|(_, method)| method == Method::PUT), "{requests:?}");
    assert!(
        (29..=31).contains(&requests.len()),
        "20 s are 30 thirds of 2 s: {}",
        requests.len()
    );
    assert!(a.leadership.state().steady);
    assert_eq!(a.stats.failures.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_gives_the_lease_back_and_the_next_starts_within_a_retry_period() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    let b = Replica::start(&server, "b", 0);
    sleep(Duration::from_secs(5)).await;
    let handle = a.leadership.clone();
    a.stop().await;
    assert_eq!(handle.permit(WRITE_TIMEOUT).err(), Some(PermitError::NotLeader));
    assert!(handle.state().ended);
    let stopped = Instant::now();
    b.leads().await;
    assert!(
        stopped.elapsed() <= settings("b").retry_period * 2,
        "{:?}",
        stopped.elapsed()
    );
    assert_only_the_holder_wrote(&server);
    let transitions = server.with(|state| state.lease.as_ref().unwrap()["spec"]["leaseTransitions"].clone());
    assert_eq!(transitions, json!(2));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_after_the_lease_and_not_before() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    let b = Replica::start(&server, "b", 0);
    sleep(Duration::from_secs(5)).await;
    a.kill();
    let died = Instant::now();
    b.leads().await;
    let took = died.elapsed();
    assert!(
        took >= Duration::from_millis(1300) && took <= Duration::from_millis(2500),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn clocks_a_minute_apart_change_nothing_for_either() {
    for (skew_a, skew_b) in [(-60, 0), (60, 0), (0, -60), (0, 60)] {
        let server = Server::new();
        let a = Replica::start(&server, "a", skew_a);
        a.leads().await;
        let b = Replica::start(&server, "b", skew_b);
        sleep(Duration::from_secs(60)).await;
        assert!(
            a.leadership.state().leading && !b.leadership.state().leading,
            "{skew_a} {skew_b}"
        );
        assert_eq!(server.with(|state| state.changes.len()), 1);
        a.kill();
        b.leads().await;
        sleep(Duration::from_secs(5)).await;
        assert_only_the_holder_wrote(&server);
    }
}

#[tokio::test(start_paused = true)]
async fn two_who_find_a_free_lease_at_once_are_told_apart_by_the_server() {
    for _ in 0..20 {
        let server = Server::new();
        let replicas: Vec<Replica> = (0..5).map(|n| Replica::start(&server, &format!("r{n}"), 0)).collect();
        sleep(Duration::from_secs(3)).await;
        assert_eq!(
            replicas
                .iter()
                .filter(|replica| replica.leadership.state().leading)
                .count(),
            1
        );
        assert_only_the_holder_wrote(&server);
        replicas.into_iter().for_each(Replica::kill);
    }
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_of_the_lease_are_kept_and_an_edit_costs_no_leadership() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    server.with(|state| {
        let mut lease = state.lease.clone().unwrap();
        lease["metadata"]["labels"] = json!({"team": "platform"});
        state.store(lease);
    });
    sleep(Duration::from_secs(10)).await;
    assert!(a.leadership.state().leading);
    assert_eq!(a.leadership.state().term, 1);
    server.with(|state| assert_eq!(state.lease.as_ref().unwrap()["metadata"]["labels"]["team"], "platform"));
    assert_eq!(a.stats.conflicts.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_under_its_holder_never_makes_two_writers() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    let b = Replica::start(&server, "b", 0);
    sleep(Duration::from_secs(5)).await;
    server.with(super::double::State::delete);
    sleep(Duration::from_secs(20)).await;
    let leaders = [&a, &b].map(|replica| replica.leadership.state().leading);
    assert_eq!(leaders.iter().filter(|leads| **leads).count(), 1);
    // Between the deletion and the holder's next renewal the server names nobody; another writer there is the fault.
    server.with(|state| {
        for write in &state.writes {
            assert!(
                write.holder.is_none() || write.holder.as_deref() == Some(write.by.as_str()),
                "{write:?}"
            );
        }
        assert!(
            state
                .writes
                .iter()
                .all(|write| write.holder.is_some() || write.by == "a")
        );
    });
}

#[tokio::test(start_paused = true)]
async fn a_take_over_leads_only_after_the_former_holder_must_have_stopped() {
    let server = Server::new();
    let a = Replica::start(&server, "a", 0);
    a.leads().await;
    sleep(Duration::from_secs(3)).await;
    let began = Instant::now();
    let uninstall = Replica::start_with(
        &server,
        LeaseSettings {
            take_over: true,
            ..settings("uninstall")
        },
        wall(0),
    );
    uninstall.leads().await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(began.elapsed() <= Duration::from_millis(2200), "{:?}", began.elapsed());
    sleep(Duration::from_secs(10)).await;
    assert!(uninstall.leadership.state().leading && !a.leadership.state().leading);
    let first = server
        .with(|state| state.writes.iter().find(|write| write.by == "uninstall").cloned())
        .unwrap();
    let last = server
        .with(|state| state.writes.iter().rfind(|write| write.by == "a").cloned())
        .unwrap();
    assert!(last.at < first.at);
}

#[test]
fn every_process_has_an_identity_of_its_own() {
    let identities: std::collections::HashSet<String> = (0..100).map(|_| new_identity("pod-0")).collect();
    assert_eq!(identities.len(), 100);
    assert!(identities.iter().all(|identity| identity.starts_with("pod-0_")));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_alone_always_gets_its_permits() {
    let leadership = Leadership::alone();
    sleep(Duration::from_hours(1000)).await;
    assert!(leadership.leads().await);
    let permit = leadership.permit(WRITE_TIMEOUT).unwrap();
    assert_eq!(permit.run(async { 7 }).await, Ok(7));
    let permit = leadership.permit(WRITE_TIMEOUT).unwrap();
    assert_eq!(
        permit.run(std::future::pending::<()>()).await,
        Err(PermitError::Unanswered)
    );
}
