use std::time::Duration;

use tokio::time::Instant;

use super::{
    act, act_with, carry_out,
    server::{Reply, Server, scale, target},
    settings,
};
use crate::{
    act::{Act, Ended, NotSent},
    decide::action::Action,
    lease::tests::double::{Fault, Replica, Server as LeaseServer, WRITE_TIMEOUT},
};

async fn ended(reply: Reply) -> Ended {
    let server = Server::default();
    server.deployment("web", 3);
    server.replies("web", [reply]);
    let mut act = act(&server, 1);
    act.submit(scale("web", 3, 0));
    act.next().await.ended
}

#[tokio::test(start_paused = true)]
async fn rule_s1_a_409_a_failed_test_and_a_missing_object_all_mean_decide_again() {
    for code in [409, 404] {
        assert!(
            matches!(ended(Reply::Status(code, "x")).await, Ended::Conflict { .. }),
            "{code}"
        );
    }
    let server = Server::default();
    server.deployment("web", 5);
    let mut act = act(&server, 1);
    act.submit(scale("web", 3, 0));
    let answer = act.next().await;
    assert!(matches!(answer.ended, Ended::Conflict { .. }), "{answer:?}");
    assert_eq!(server.writes_to("web").len(), 1, "never repeated blindly");
    server.with(|state| assert_eq!(state.objects["web"]["spec"]["replicas"], 5));
    assert_eq!(act.stats().counts(), [("down", "conflict", 1)]);
}

#[tokio::test(start_paused = true)]
async fn every_refusal_has_a_reason_of_its_own() {
    for (code, message, expected) in [
        (400, "x", "Invalid"),
        (401, "x", "Unauthorized"),
        (403, "x", "Forbidden"),
        (422, "Deployment.apps \"web\" is invalid: spec.replicas", "Invalid"),
        (429, "x", "TooManyRequests"),
        (500, "x", "ServerError"),
        (503, "x", "ServerError"),
        (418, "x", "Refused"),
    ] {
        match ended(Reply::Status(code, message)).await {
            Ended::Failed { reason, .. } => assert_eq!(reason, expected, "{code}"),
            other => panic!("{code}: {other:?}"),
        }
    }
    let retry = ended(Reply::RetryAfter(503, 7)).await;
    assert!(
        matches!(retry, Ended::Failed { retry_after: Some(wait), .. } if wait.as_secs() == 7),
        "{retry:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_s9_a_record_that_does_not_fit_has_a_reason_of_its_own() {
    for (code, message) in [
        (413, "x"),
        (422, "metadata.annotations: Too long: may not be more than 262144 bytes"),
    ] {
        let ended = ended(Reply::Status(code, message)).await;
        assert!(
            matches!(
                ended,
                Ended::Failed {
                    reason: "RecordTooLarge",
                    ..
                }
            ),
            "{code}: {ended:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn case_6_15_a_missing_right_is_named_by_verb_and_resource_and_others_go_on() {
    let server = Server::default();
    server.deployment("web", 3);
    server.with(|state| state.always.insert("db".to_owned(), Reply::Status(403, "cannot patch")));
    let mut act = act(&server, 4);
    let forbidden = Action {
        target: target("StatefulSet", "statefulsets", "db"),
        ..scale("db", 3, 0)
    };
    act.submit(forbidden);
    act.submit(scale("web", 3, 0));
    let (mut done, mut failed) = (0, 0);
    for _ in 0..2 {
        match act.next().await.ended {
            Ended::Done => done += 1,
            Ended::Failed {
                reason: "Forbidden",
                message,
                ..
            } => {
                assert!(
                    message.contains("patch statefulsets.apps shop/db") && message.contains("403"),
                    "{message}"
                );
                failed += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((done, failed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_object_that_hangs_or_always_fails_delays_no_other() {
    let server = Server::default();
    let names: Vec<String> = (0..100).map(|number| format!("d{number}")).collect();
    for name in &names {
        server.deployment(name, 3);
    }
    server.replies("d0", [Reply::Hang]);
    server.replies("d1", (0..8).map(|_| Reply::Status(500, "x")));
    let mut act = act(&server, 4);
    let began = Instant::now();
    let actions = names.iter().map(|name| scale(name, 3, 0)).collect();
    let run = tokio::spawn(async move { carry_out(&mut act, actions).await });
    while server.with(|state| {
        state
            .objects
            .values()
            .filter(|object| object["spec"]["replicas"] == 0)
            .count()
    }) < 98
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    let answers = run.await.unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.ended == Ended::Done).count(), 100);
    assert!(answers.iter().any(|answer| answer.ended.label() == "Timeout"));
    assert_eq!(server.writes_to("d1").len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_ends_at_its_timeout() {
    let began = Instant::now();
    let Ended::Failed { reason, message, .. } = ended(Reply::Hang).await else {
        panic!()
    };
    assert_eq!(reason, "Timeout");
    assert!(message.contains("patch deployments.apps shop/web"), "{message}");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_no_more_and_finishes_what_is_under_way_within_its_time() {
    let server = Server::default();
    for name in ["quick", "slow", "hangs", "late"] {
        server.deployment(name, 3);
    }
    server.replies("slow", [Reply::Late(Duration::from_secs(8))]);
    server.replies("hangs", [Reply::Hang]);
    let mut act = act_with(
        &server,
        super::ActSettings {
            write_timeout: Duration::from_secs(30),
            ..settings(8)
        },
    );
    for name in ["quick", "slow", "hangs"] {
        act.submit(scale(name, 3, 0));
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    let answers = act.drain(Duration::from_secs(10)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(answers.iter().filter(|answer| answer.ended == Ended::Done).count(), 2);
    assert_eq!(act.in_flight(), 0);
    assert!(!act.has_room());
    act.submit(scale("late", 3, 0));
    assert_eq!(act.next().await.ended, Ended::NotSent(NotSent::Stopping));
    assert!(server.writes_to("late").is_empty());

    let mut idle = super::act(&server, 4);
    let began = Instant::now();
    assert!(idle.drain(Duration::from_secs(10)).await.is_empty());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn rule_l1_a_leader_that_loses_its_lease_gives_up_what_is_under_way_and_sends_nothing_more() {
    let leases = LeaseServer::new();
    let replica = Replica::start(&leases, "a", 0);
    replica.without_writer();
    replica.leads().await;
    let server = Server::default();
    server.deployment("web", 3);
    server.replies("web", [Reply::Hang]);
    let (follower, view) = super::view(&server);
    drop(follower);
    let settings = super::ActSettings {
        write_timeout: WRITE_TIMEOUT,
        ..settings(4)
    };
    let mut act = Act::new(server.client(), replica.leadership.clone(), view, None, settings);
    act.submit(scale("web", 3, 0));
    assert_eq!(act.next().await.ended.label(), "Timeout");
    leases.fault("a", Some(Fault::Hang));
    tokio::time::sleep(Duration::from_secs(2)).await;
    act.submit(scale("web", 3, 0));
    assert_eq!(act.next().await.ended, Ended::NotSent(NotSent::NotLeader));
    assert_eq!(server.writes_to("web").len(), 1);
    leases.fault("a", None);
    replica.leads().await;
    act.submit(scale("web", 3, 0));
    assert_eq!(act.next().await.ended, Ended::Done);
    let labels: Vec<&str> = act.stats().counts().iter().map(|(_, ended, _)| *ended).collect();
    assert_eq!(labels, ["Timeout", "done", "not-leader"]);
}
