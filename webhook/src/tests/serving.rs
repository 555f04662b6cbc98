//! The router without sockets: bodies in, bodies out.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode, header};
use serde_json::{Value, json};
use shared::annotations::{AWAKE_UNTIL, DOWN_SINCE, ORIGINAL_REPLICAS};
use shared::clock::Clock;
use shared::workload::{ObjectRef, Workload};
use tower::ServiceExt as _;

use super::world::*;
use crate::authorize::{self, Authorizer, Oracle, Question};
use crate::handlers::{App, BODY_LIMIT, Listener, Ruled, router};
use crate::remember::{Answered, Failed, Parents};
use crate::service::{Outcome, Tell};

struct At(jiff::Timestamp);

impl Clock for At {
    fn now(&self) -> jiff::Timestamp {
        self.0
    }
}

#[derive(Default)]
struct Heard {
    outcomes: Mutex<Vec<Outcome>>,
    told: Mutex<Vec<Tell>>,
    fought: Mutex<Vec<String>>,
    panics: AtomicUsize,
    shed: AtomicUsize,
}

impl Listener for Heard {
    fn ruled(&self, ruled: &Ruled<'_>) {
        self.outcomes.lock().unwrap().push(ruled.outcome);
    }

    fn tell(&self, tell: Tell) {
        self.told.lock().unwrap().push(tell);
    }

    fn fought_over(&self, _: &ObjectRef, schedule: Option<Arc<str>>, message: &str) {
        let schedule = schedule.unwrap_or_default();
        self.fought.lock().unwrap().push(format!("{schedule}: {message}"));
    }

    fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::SeqCst);
    }

    fn shed(&self) {
        self.shed.fetch_add(1, Ordering::SeqCst);
    }
}

/// An API server that holds one object.
struct Stored {
    object: Mutex<Value>,
    writes: AtomicUsize,
    reads: AtomicUsize,
    broken: bool,
}

impl Stored {
    fn new(object: Value) -> Arc<Self> {
        Arc::new(Self {
            object: Mutex::new(object),
            writes: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            broken: false,
        })
    }
}

impl Parents for Stored {
    fn patch(&self, _: &Workload, body: Vec<u8>) -> Pin<Box<dyn Future<Output = Answered> + Send + '_>> {
        Box::pin(async move {
            if self.broken {
                return std::future::pending().await;
            }
            let patch: json_patch::Patch = serde_json::from_slice(&body).unwrap();
            let mut object = self.object.lock().unwrap();
            let mut next = object.clone();
            if json_patch::patch(&mut next, &patch).is_err() {
                return Err(Failed::Precondition);
            }
            self.writes.fetch_add(1, Ordering::SeqCst);
            *object = next;
            Ok(object.to_string().into_bytes())
        })
    }

    fn get(&self, _: &Workload) -> Pin<Box<dyn Future<Output = Answered> + Send + '_>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let body = self.object.lock().unwrap().to_string().into_bytes();
        Box::pin(async move { Ok(body) })
    }
}

fn app(world: World, change: impl FnOnce(&mut App)) -> (Arc<App>, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let (now, policy) = (world.now, world.policy.clone());
    let mut app = App::new(Arc::new(world), policy, Arc::new(At(now)));
    app.listener = Arc::clone(&heard) as Arc<dyn Listener>;
    change(&mut app);
    (Arc::new(app), heard)
}

async fn post(app: &Arc<App>, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .unwrap();
    let response = router(Arc::clone(app)).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, body.to_vec())
}

async fn mutate(app: &Arc<App>, review: &Value) -> Value {
    let (status, body) = post(app, "/mutate", review.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    answer["response"].clone()
}

fn sleeping_world(world: World, object: &Value) -> World {
    let mut world = world;
    world.add(object);
    world
}

#[tokio::test]
async fn case_6_19_every_answer_is_a_whole_review() {
    let (app, _) = app(sleeping_world(World::rewriting(), &sleeping("2")), |_| {});
    let review = update(&sleeping("2"), &deployment(5));
    let mut unreadable = review.clone();
    unreadable["request"]["object"] = json!("no object");
    for path in ["/mutate", "/validate"] {
        for review in [&review, &unreadable] {
            let (status, body) = post(&app, path, review.to_string()).await;
            assert_eq!(status, StatusCode::OK);
            let text = String::from_utf8(body).unwrap();
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["apiVersion"], "admission.k8s.io/v1", "{text}");
            assert_eq!(answer["kind"], "AdmissionReview", "{text}");
            assert!(review["request"]["uid"].is_string());
            assert_eq!(answer["response"]["uid"], review["request"]["uid"], "{text}");
            assert!(answer["response"]["allowed"].is_boolean(), "{text}");
        }
    }
}

#[tokio::test]
async fn case_6_20_the_patch_is_a_text_that_decodes_to_a_list_of_operations() {
    use base64::Engine as _;

    let (app, _) = app(sleeping_world(World::rewriting(), &sleeping("2")), |_| {});
    let answer = mutate(&app, &update(&sleeping("2"), &deployment(5))).await;
    assert_eq!(answer["patchType"], "JSONPatch");
    let text = answer["patch"].as_str().unwrap();
    let json = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let operations: Vec<Value> = serde_json::from_slice(&json).unwrap();
    assert!(!operations.is_empty());
    for operation in &operations {
        assert!(
            operation["op"].is_string() && operation["path"].is_string(),
            "{operation}"
        );
    }
}

#[tokio::test]
async fn case_5_04_a_number_is_remembered_before_the_answer_and_never_on_dry_run() {
    let stored = Stored::new(sleeping("2"));
    let parents = Arc::clone(&stored);
    let (app, heard) = app(sleeping_world(World::rewriting(), &sleeping("2")), |app| {
        app.parents = Some(parents);
    });
    let mut dry = scale(0, 5);
    dry["request"]["dryRun"] = json!(true);
    let answer = mutate(&app, &dry).await;
    assert_eq!(stored.writes.load(Ordering::SeqCst), 0);
    assert!(heard.told.lock().unwrap().is_empty());

    assert_eq!(mutate(&app, &scale(0, 5)).await, answer);
    assert_eq!(record(&stored.object.lock().unwrap()), Some("5"));
    assert_eq!(stored.writes.load(Ordering::SeqCst), 1);
    assert_eq!(stored.reads.load(Ordering::SeqCst), 0);
    assert_eq!(heard.told.lock().unwrap()[0].reason, "Remembered");

    // Our view lags: the repeat finds it there and writes nothing.
    let repeat = mutate(&app, &scale(0, 5)).await;
    assert_eq!(repeat, answer);
    assert_eq!(stored.writes.load(Ordering::SeqCst), 1);
    assert_eq!(replicas(&stored.object.lock().unwrap()), Some(0));
}

#[tokio::test]
async fn a_view_that_lags_behind_the_scheduler_reads_the_parent_once() {
    let stored = Stored::new(sleeping("3"));
    let parents = Arc::clone(&stored);
    let (app, _) = app(sleeping_world(World::rewriting(), &deployment(3)), |app| {
        app.parents = Some(parents);
    });
    mutate(&app, &scale(0, 5)).await;
    let object = stored.object.lock().unwrap().clone();
    assert_eq!(record(&object), Some("5"));
    assert_eq!(object["metadata"]["annotations"][DOWN_SINCE], "2026-11-30T23:00:00Z");
    assert_eq!(stored.reads.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_e8_what_could_not_be_remembered_is_held_all_the_same_and_said() {
    let stored = Arc::new(Stored {
        broken: true,
        ..Arc::into_inner(Stored::new(sleeping("2"))).unwrap()
    });
    let (app, _) = app(sleeping_world(World::rewriting(), &sleeping("2")), |app| {
        app.parents = Some(stored);
    });
    let began = tokio::time::Instant::now();
    let answer = mutate(&app, &scale(0, 5)).await;
    assert!(began.elapsed() <= Duration::from_secs(1));
    assert_eq!(answer["allowed"], true);
    assert!(answer["patch"].is_string());
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("5 NOT remembered"), "{warning}");
}

#[tokio::test]
async fn a_parent_that_was_made_again_or_is_up_by_now_is_not_written() {
    let other = changed(&sleeping("2"), |object| {
        object["metadata"]["uid"] = json!("d-2");
        object["metadata"]["annotations"][ORIGINAL_REPLICAS] = json!("7");
    });
    for object in [other, deployment(4)] {
        let stored = Stored::new(object.clone());
        let parents = Arc::clone(&stored);
        let (app, _) = app(sleeping_world(World::rewriting(), &sleeping("2")), |app| {
            app.parents = Some(parents);
        });
        let answer = mutate(&app, &scale(0, 5)).await;
        assert!(answer["warnings"][0].as_str().unwrap().contains("NOT remembered"));
        assert_eq!(*stored.object.lock().unwrap(), object);
    }
}

#[tokio::test]
async fn rule_a8_what_is_held_again_and_again_is_reported_once_and_dry_runs_do_not_count() {
    let mut world = World::rewriting();
    world.add(&sleeping("3"));
    let (app, heard) = app(world, |_| {});
    let old = sleeping("3");
    let mut review = update(&old, &changed(&old, |object| object["spec"]["replicas"] = json!(5)));
    review["request"]["dryRun"] = json!(true);
    for _ in 0..20 {
        mutate(&app, &review).await;
    }
    assert!(heard.fought.lock().unwrap().is_empty());
    review["request"]["dryRun"] = json!(false);
    for _ in 0..20 {
        mutate(&app, &review).await;
    }
    let fought = heard.fought.lock().unwrap();
    assert_eq!(fought.len(), 1);
    assert!(
        fought[0].starts_with("dev-weekday: ") && fought[0].contains("held 6 times"),
        "{}",
        fought[0]
    );
}

#[tokio::test]
async fn case_5_33_large_bodies_are_read_and_larger_ones_refused() {
    let (app, _) = app(World::rewriting(), |_| {});
    let old = sleeping("3");
    let of_size = |bytes: usize| {
        let new = changed(&old, |object| {
            object["spec"]["replicas"] = json!(5);
            object["spec"]["template"]["big"] = json!("x".repeat(bytes));
        });
        update(&old, &new).to_string()
    };
    for (bytes, expected) in [
        (2_900_000, StatusCode::OK),
        (6_900_000, StatusCode::OK),
        (BODY_LIMIT + 500_000, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let (status, body) = post(&app, "/mutate", of_size(bytes)).await;
        assert_eq!(status, expected, "{bytes}");
        if status == StatusCode::OK {
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert!(answer["response"]["patch"].is_string());
        }
    }
}

#[tokio::test]
async fn what_is_no_review_gets_a_4xx_and_what_cannot_be_read_a_review() {
    let (app, heard) = app(World::rewriting(), |_| {});
    for body in ["", "{}", "[", "\u{0}", r#"{"kind":"AdmissionReview"}"#] {
        assert_eq!(post(&app, "/mutate", body).await.0, StatusCode::BAD_REQUEST);
    }
    let odd = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":7}}"#;
    let (status, body) = post(&app, "/validate", odd).await;
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &json!("u")));
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(answer["response"]["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(*heard.outcomes.lock().unwrap(), [Outcome::Unreadable]);
    let plain = Request::post("/mutate").body(Body::from("{}")).unwrap();
    let response = router(Arc::clone(&app)).oneshot(plain).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn too_many_at_a_time_are_turned_away_at_once() {
    let (app, heard) = app(World::rewriting(), |app| app.slots = tokio::sync::Semaphore::new(0));
    let (status, _) = post(&app, "/mutate", create(&deployment(2)).to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(heard.shed.load(Ordering::SeqCst), 1);
}

/// A body of this many bytes that says when it is read, and comes only when told to.
fn watched_body(length: usize, read: &Arc<AtomicUsize>, come: &Arc<tokio::sync::Semaphore>) -> Request<Body> {
    let (read, come) = (Arc::clone(read), Arc::clone(come));
    let stream = futures::stream::once(async move {
        read.fetch_add(1, Ordering::SeqCst);
        let _ = come.acquire().await;
        Ok::<_, std::convert::Infallible>(vec![b' '; length])
    });
    Request::post("/mutate")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, length)
        .body(Body::from_stream(stream))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_only_where_there_is_a_slot_and_room_for_it() {
    let (read, come) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let ask =
        |app: &Arc<App>, length| tokio::spawn(router(Arc::clone(app)).oneshot(watched_body(length, &read, &come)));
    let (full, heard) = app(World::rewriting(), |app| app.slots = tokio::sync::Semaphore::new(0));
    let response = ask(&full, 1000).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((read.load(Ordering::SeqCst), heard.shed.load(Ordering::SeqCst)), (0, 1));

    // One that is too long is not waited for, and no room is made for it.
    let (app, heard) = app(World::rewriting(), |app| app.room = tokio::sync::Semaphore::new(5));
    let response = ask(&app, BODY_LIMIT + 1).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(read.load(Ordering::SeqCst), 0);

    // Two of 2 KiB have room, the third waits until one of them is answered.
    let running: Vec<_> = (0..3).map(|_| ask(&app, 2048)).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(read.load(Ordering::SeqCst), 2);
    come.add_permits(1000);
    for task in running {
        // Blanks are no review.
        assert_eq!(task.await.unwrap().unwrap().status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!((read.load(Ordering::SeqCst), app.room.available_permits()), (3, 5));

    // Whoever sends too slowly gives the room back.
    come.forget_permits(1000);
    let response = ask(&app, 5 * 1024).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (heard.shed.load(Ordering::SeqCst), app.room.available_permits()),
        (1, 5)
    );
}

/// A sight that fails in the worst way.
struct Panicking(World);

impl crate::state::Sight for Panicking {
    fn kinds(&self) -> &shared::kinds::Kinds {
        self.0.kinds()
    }
    fn schedules(&self) -> Arc<shared::policy::Schedules> {
        self.0.schedules()
    }
    fn namespace(&self, _: &str) -> crate::state::Seen<Arc<shared::workload::Namespace>> {
        panic!("a fault of ours")
    }
    fn workload(&self, _: &shared::kinds::Kind, _: &str, _: &str) -> crate::state::Seen<Arc<Workload>> {
        panic!("a fault of ours")
    }
    fn scaled_objects(&self, _: &str) -> Vec<Arc<Workload>> {
        Vec::new()
    }
    fn absorb(&self, _: &shared::kinds::Kind, _: &str, _: &str, _: &[u8]) {}
}

#[tokio::test]
async fn a_panic_in_the_service_is_an_answer_and_counted() {
    let (app, heard) = app(World::rewriting(), |app| {
        app.sight = Arc::new(Panicking(World::rewriting()));
    });
    let answer = mutate(&app, &create(&deployment(2))).await;
    assert_eq!(answer["allowed"], true);
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(heard.panics.load(Ordering::SeqCst), 1);
}

struct Says {
    answer: authorize::Verdict,
    asked: Arc<AtomicUsize>,
}

impl Oracle for Says {
    fn ask(&self, question: Question) -> Pin<Box<dyn Future<Output = authorize::Verdict> + Send + '_>> {
        assert_eq!(
            (question.user.as_str(), question.schedule.as_str()),
            ("ana", "dev-weekday")
        );
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.clone();
        Box::pin(async move {
            if answer.as_ref().is_err_and(String::is_empty) {
                return std::future::pending().await;
            }
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn rule_e5_the_verb_is_asked_for_once_in_ten_seconds_and_no_answer_is_a_no() {
    let old = sleeping("3");
    let review = update(
        &old,
        &changed(&old, |object| {
            object["metadata"]["annotations"][AWAKE_UNTIL] = json!("2026-12-01T01:00:00Z");
        }),
    )
    .to_string();
    for (answer, allowed, asked_in_three) in [
        (Ok(true), true, 1),
        (Ok(false), false, 1),
        (Err("refused".to_owned()), false, 3),
        (Err(String::new()), false, 3),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let oracle = Says {
            answer,
            asked: Arc::clone(&asked),
        };
        let world = World::with(&json!({"guardOverrides": true}));
        let (app, _) = app(world, |app| app.authorizer = Some(Authorizer::new(oracle)));
        for _ in 0..3 {
            let (_, body) = post(&app, "/validate", review.clone()).await;
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(answer["response"]["allowed"], allowed);
        }
        assert_eq!(asked.load(Ordering::SeqCst), asked_in_three);
        tokio::time::advance(Duration::from_secs(11)).await;
        post(&app, "/validate", review.clone()).await;
        assert_eq!(asked.load(Ordering::SeqCst), asked_in_three + 1);
    }
}

/// What a router over this world answers to these bytes; a panic in it fails the test.
pub(super) fn answer_to(world: Arc<World>, mutates: bool, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let heard = Arc::new(Heard::default());
    let (now, policy) = (world.now, world.policy.clone());
    let mut app = App::new(world, policy, Arc::new(At(now)));
    app.listener = Arc::clone(&heard) as Arc<dyn Listener>;
    let path = if mutates { "/mutate" } else { "/validate" };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answer = runtime.block_on(post(&Arc::new(app), path, body));
    assert_eq!(heard.panics.load(Ordering::SeqCst), 0, "the service panicked");
    answer
}
