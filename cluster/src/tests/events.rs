use std::{
    convert::Infallible,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use http::{Request, Response};
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::Value;
use shared::{clock::Clock, workload::ObjectRef};
use tokio::time::{Instant, sleep};

use super::{double::status, eventually};
use crate::events::{EventSettings, Events, Remark};

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        "2026-11-30T20:00:00.123456789Z".parse().unwrap()
    }
}

type Posts = Arc<Mutex<Vec<(Instant, String, Value)>>>;

/// A server that takes Events, after having answered `codes`.
fn server(codes: &[u16]) -> (Client, Posts) {
    let posts = Posts::default();
    let codes = Arc::new(Mutex::new(codes.to_vec()));
    let seen = Arc::clone(&posts);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (seen, codes) = (Arc::clone(&seen), Arc::clone(&codes));
        async move {
            let (head, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
            seen.lock()
                .unwrap()
                .push((Instant::now(), head.uri.path().to_owned(), body));
            let code = codes.lock().unwrap().pop().unwrap_or(201);
            let body = if code == 201 {
                "{}".to_owned()
            } else {
                status(code).to_string()
            };
            Ok::<_, Infallible>(
                Response::builder()
                    .status(code)
                    .body(Body::from(body.into_bytes()))
                    .unwrap(),
            )
        }
    });
    (Client::new(service, "default"), posts)
}

fn remark(name: &str, note: &str) -> Remark {
    Remark {
        object: ObjectRef {
            group: "apps".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: name.into(),
        },
        version: "v1".into(),
        uid: "u".into(),
        action: "PutDown",
        reason: "RolloutUnfinished",
        note: note.to_owned(),
        warning: true,
    }
}

fn start(client: Client, capacity: usize) -> (Events, crate::events::EventTask) {
    let settings = EventSettings {
        capacity,
        ..EventSettings::new("offhours.platform.io/scheduler", "pod-0")
    };
    Events::start(client, Arc::new(Fixed), settings)
}

#[tokio::test(start_paused = true)]
async fn an_event_has_all_that_the_api_asks_for() {
    let (client, posts) = server(&[]);
    let (events, task) = start(client, 10);
    events.tell(remark("web", "one\ntwo\t\u{7f}three"));
    events.tell(Remark {
        object: ObjectRef {
            group: "".into(),
            kind: "Namespace".into(),
            namespace: "".into(),
            name: "n".into(),
        },
        warning: false,
        ..remark("", &"é".repeat(2000))
    });
    drop(events);
    task.finish(Duration::from_secs(10)).await;
    let posts = posts.lock().unwrap();
    let (_, path, body) = &posts[0];
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/shop/events");
    assert_eq!(body["eventTime"], "2026-11-30T20:00:00.123456Z");
    assert_eq!(body["note"], "one two  three");
    assert_eq!(body["type"], "Warning");
    assert_eq!(body["regarding"]["apiVersion"], "apps/v1");
    assert_eq!(body["regarding"]["uid"], "u");
    assert!(body["metadata"]["name"].as_str().unwrap().starts_with("web."));
    let (_, path, body) = &posts[1];
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!(body["regarding"]["apiVersion"], "v1");
    assert_eq!(body["note"].as_str().unwrap().len(), 1024);
    assert_ne!(posts[0].2["metadata"]["name"], body["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn a_remark_is_told_once_in_ten_minutes_and_a_flood_is_dropped_and_counted() {
    let (client, posts) = server(&[]);
    let (events, _task) = start(client, 50);
    for _ in 0..5 {
        events.tell(remark("web", "same"));
    }
    eventually("it is told", || events.stats().repeated.load(Ordering::Relaxed) == 4).await;
    assert_eq!(posts.lock().unwrap().len(), 1);
    sleep(Duration::from_secs(601)).await;
    events.tell(remark("web", "same"));
    eventually("it is told again", || posts.lock().unwrap().len() == 2).await;

    for number in 0..1000 {
        events.tell(remark(&format!("d{number}"), "flood"));
    }
    assert!(events.stats().dropped.load(Ordering::Relaxed) >= 940);
    let before = Instant::now();
    eventually("those that wait are sent", || posts.lock().unwrap().len() >= 52).await;
    assert!(
        before.elapsed() >= Duration::from_secs(2),
        "20 in a second: {:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_what_does_not_is_counted() {
    let (client, posts) = server(&[429, 500]);
    let (events, _task) = start(client, 50);
    events.tell(remark("web", "a"));
    eventually("sent at the third try", || {
        events.stats().sent.load(Ordering::Relaxed) == 1
    })
    .await;
    assert_eq!(posts.lock().unwrap().len(), 3);

    let (client, posts) = server(&[403]);
    let (events, _task) = start(client, 50);
    events.tell(remark("web", "a"));
    eventually("given up", || events.stats().failed.load(Ordering::Relaxed) == 1).await;
    events.tell(remark("web", "b"));
    eventually("the next goes on", || events.stats().sent.load(Ordering::Relaxed) == 1).await;
    assert_eq!(posts.lock().unwrap().len(), 2);
}
