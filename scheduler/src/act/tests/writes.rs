use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{
    act, act_with, carry_out,
    server::{Reply, Server, scale, target},
    settings,
};
use crate::{
    act::{Act, Ended},
    decide::action::{Action, Purpose, Request},
    lease::tests::double::{Replica, Server as LeaseServer, WRITE_TIMEOUT, assert_only_the_holder_wrote},
};

#[tokio::test(start_paused = true)]
async fn all_are_written_once_with_bounded_concurrency_and_the_answers_are_in_the_view() {
    let server = Server::default();
    let names: Vec<String> = (0..200).map(|number| format!("d{number}")).collect();
    for name in &names {
        server.deployment(name, 3);
    }
    let mut act = act(&server, 16);
    let began = Instant::now();
    let answers = carry_out(&mut act, names.iter().map(|name| scale(name, 3, 0)).collect()).await;
    assert_eq!(answers.len(), 200);
    for answer in &answers {
        assert_eq!(answer.ended, Ended::Done);
        let workload = answer.workload.as_ref().unwrap();
        assert_eq!(workload.knobs[0].value, Some(json!(0)));
    }
    server.with(|state| {
        assert_eq!(state.seen.len(), 200);
        assert_eq!(state.most_under_way, 16);
    });
    assert!(
        began.elapsed() < Duration::from_millis(3 * 200 / 16 + 20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(act.stats().counts(), [("down", "done", 200)]);
}

#[tokio::test(start_paused = true)]
async fn requests_are_as_the_api_wants_them() {
    let server = Server::default();
    server.deployment("web", 3);
    let mut act = act(&server, 4);
    let mut status = scale("web", 3, 0);
    status.request = Request::Patch {
        body: serde_json::from_value(json!([])).unwrap(),
        subresource: Some("status"),
        dry_run: true,
    };
    let create = Action {
        request: Request::Create(json!({"kind": "Deployment"})),
        ..scale("new", 0, 0)
    };
    let delete = Action {
        request: Request::Delete,
        ..scale("web", 3, 0)
    };
    let mut namespace = scale("shop", 0, 0);
    namespace.target.object.group = "".into();
    namespace.target.object.namespace = "".into();
    namespace.target.plural = "namespaces".into();
    carry_out(&mut act, vec![scale("web", 3, 0), status, create, delete, namespace]).await;
    let seen = server.with(|state| state.seen.clone());
    let lines: Vec<String> = seen
        .iter()
        .map(|seen| format!("{} {} {}", seen.method, seen.uri, seen.content_type))
        .collect();
    for expected in [
        "PATCH /apis/apps/v1/namespaces/shop/deployments/web?fieldManager=offhours application/json-patch+json",
        "PATCH /apis/apps/v1/namespaces/shop/deployments/web/status?fieldManager=offhours&dryRun=All application/json-patch+json",
        "POST /apis/apps/v1/namespaces/shop/deployments?fieldManager=offhours application/json",
        "DELETE /apis/apps/v1/namespaces/shop/deployments/web application/json",
        "PATCH /api/v1/namespaces/shop?fieldManager=offhours application/json-patch+json",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} is not in {lines:#?}"
        );
    }
    let delete = seen.iter().find(|seen| seen.method == "DELETE").unwrap();
    assert_eq!(delete.body["preconditions"]["uid"], "uid-web");
}

#[tokio::test(start_paused = true)]
async fn case_2_15_of_two_replicas_only_the_leader_writes_and_each_object_once() {
    let server = LeaseServer::new();
    let replicas = [Replica::start(&server, "a", 0), Replica::start(&server, "b", 0)];
    for replica in &replicas {
        replica.freezer.freeze();
    }
    // Writers of their own would count; only the election runs.
    for replica in &replicas {
        replica.without_writer();
    }
    for replica in &replicas {
        replica.freezer.thaw();
    }
    let objects = Server::default();
    let mut acts: Vec<Act> = replicas
        .iter()
        .map(|replica| {
            let (follower, view) = super::view(&objects);
            drop(follower);
            let settings = super::ActSettings {
                write_timeout: WRITE_TIMEOUT,
                ..settings(8)
            };
            Act::new(
                server.client(&replica.name),
                replica.leadership.clone(),
                view,
                None,
                settings,
            )
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut not_sent = 0;
    for act in &mut acts {
        for number in 0..20 {
            act.submit(scale(&format!("d{number}"), 3, 0));
        }
        for _ in 0..20 {
            match act.next().await.ended {
                Ended::Done => {}
                Ended::NotSent(_) => not_sent += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(not_sent, 20);
    server.with(|state| assert_eq!(state.writes.len(), 20));
    assert_only_the_holder_wrote(&server);
}

#[tokio::test(start_paused = true)]
async fn case_2_16_a_server_that_asks_for_two_seconds_gets_them_and_all_is_done() {
    let server = Server::default();
    let names: Vec<String> = (0..60).map(|number| format!("d{number}")).collect();
    for (index, name) in names.iter().enumerate() {
        server.deployment(name, 3);
        if index < 50 {
            server.replies(name, [Reply::RetryAfter(429, 2)]);
        }
    }
    let mut act = act(&server, 16);
    let answers = carry_out(&mut act, names.iter().map(|name| scale(name, 3, 0)).collect()).await;
    assert_eq!(answers.iter().filter(|answer| answer.ended == Ended::Done).count(), 60);
    for name in &names {
        let writes = server.writes_to(name);
        assert!(writes.len() <= 2);
        if let [first, second] = writes.as_slice() {
            assert!(second.at - first.at >= Duration::from_secs(2), "{name}");
        }
    }
    assert_eq!(act.stats().ended("TooManyRequests"), 50);
    assert_eq!(server.with(|state| state.most_under_way), 16);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_too_much_gets_fewer_writes_at_a_time() {
    let server = Server::default();
    for number in 0..40 {
        let name = format!("d{number}");
        server.deployment(&name, 3);
        server.with(|state| state.always.insert(name, Reply::RetryAfter(429, 1)));
    }
    let mut act = act(&server, 16);
    let mut queue: Vec<Action> = (0..40).map(|number| scale(&format!("d{number}"), 3, 0)).collect();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        while act.has_room() {
            let Some(action) = queue.pop() else { break };
            act.submit(action);
        }
        while act.in_flight() > 0 {
            act.next().await;
        }
    }
    act.submit(scale("d0", 3, 0));
    assert!(!act.has_room(), "one at a time in the end");
    act.next().await;
    server.with(|state| {
        state.always.clear();
        state.most_under_way = 0;
    });
    let all = (0..40)
        .cycle()
        .take(400)
        .map(|number| scale(&format!("d{number}"), 3, 3))
        .collect();
    carry_out(&mut act, all).await;
    assert_eq!(
        server.with(|state| state.most_under_way),
        16,
        "and as many as before after some time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bounded_rate_is_kept() {
    let server = Server::default();
    (0..50).for_each(|number| server.deployment(&format!("d{number}"), 3));
    let mut act = act_with(
        &server,
        super::ActSettings {
            per_second: Some(10),
            ..settings(16)
        },
    );
    let began = Instant::now();
    carry_out(
        &mut act,
        (0..50).map(|number| scale(&format!("d{number}"), 3, 0)).collect(),
    )
    .await;
    assert!(
        (4.8..5.3).contains(&began.elapsed().as_secs_f64()),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn rule_s7_ownership_is_given_up_by_a_second_patch_where_somebody_else_applies() {
    let server = Server::default();
    server.deployment("web", 3);
    server.with(|state| {
        state.objects.get_mut("web").unwrap()["metadata"]["managedFields"] = json!([
            {"manager": "kubectl", "operation": "Apply", "fieldsV1": {}},
            {"manager": "offhours", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        ]);
    });
    server.deployment("plain", 3);
    let mut act = act(&server, 4);
    let actions = vec![
        Action {
            disown: true,
            ..scale("web", 3, 0)
        },
        Action {
            disown: true,
            ..scale("plain", 3, 0)
        },
    ];
    carry_out(&mut act, actions).await;
    let writes = server.writes_to("web");
    assert_eq!(writes.len(), 2);
    assert_eq!(
        writes[1].body,
        json!([
            {"op": "test", "path": "/metadata/managedFields/1/manager", "value": "offhours"},
            {"op": "test", "path": "/metadata/managedFields/1/operation", "value": "Update"},
            {"op": "remove", "path": "/metadata/managedFields/1"},
        ])
    );
    server.with(|state| {
        assert_eq!(
            state.objects["web"]["metadata"]["managedFields"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    });
    assert_eq!(server.writes_to("plain").len(), 1);
    assert_eq!(act.stats().counts(), [("disown", "done", 1), ("down", "done", 2)]);
}

#[tokio::test(start_paused = true)]
async fn rule_s7_ownership_is_given_up_after_a_refusal_that_passes_and_left_after_one_that_does_not() {
    for (code, requests) in [(500, 3), (429, 3), (403, 2)] {
        let server = Server::default();
        server.deployment("web", 3);
        server.with(|state| {
            state.objects.get_mut("web").unwrap()["metadata"]["managedFields"] = json!([
                {"manager": "kubectl", "operation": "Apply", "fieldsV1": {}},
                {"manager": "offhours", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            ]);
            let replies = [Reply::Late(Duration::ZERO), Reply::Status(code, "not now")];
            state.replies.insert("web".to_owned(), replies.into());
        });
        let mut act = act(&server, 4);
        let down = Action {
            disown: true,
            ..scale("web", 3, 0)
        };
        carry_out(&mut act, vec![down]).await;
        assert_eq!(server.writes_to("web").len(), requests, "{code}");
        let ended = if requests == 3 { "done" } else { "failed" };
        assert_eq!(
            act.stats().counts(),
            [("disown", ended, 1), ("down", "done", 1)],
            "{code}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_sends_nothing() {
    let server = Server::default();
    server.deployment("web", 3);
    let mut act = act_with(
        &server,
        super::ActSettings {
            dry_run: true,
            ..settings(4)
        },
    );
    let answers = carry_out(&mut act, vec![scale("web", 3, 0)]).await;
    assert_eq!(answers[0].ended, Ended::Done);
    assert!(server.with(|state| state.seen.is_empty()));
    assert_eq!(target("Deployment", "deployments", "web"), answers[0].action.target);
    assert_eq!(answers[0].action.purpose, Purpose::Down);
}
