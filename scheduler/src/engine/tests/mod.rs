//! The whole loop against an API server in memory, with paused time and a clock of its own.

mod server;

use std::sync::Arc;
use std::time::Duration;

use cluster::events::{EventSettings, Events};
use cluster::follow::{Follower, Scope};
use cluster::reflector::Pace;
use cluster::schedules::ScheduleSource;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shared::annotations::{ORIGINAL_REPLICAS, SCHEDULE};
use shared::api::FINALIZER;
use shared::clock::Clock;
use shared::kinds::Kinds;
use shared::schedule::State;
use std::sync::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ledger::Ledger;
use super::{Engine, EngineSettings, Reporter};
use crate::act::{Act, ActSettings};
use crate::decide::snapshot::{Forced, Snapshot};
use crate::lease::Leadership;
use crate::observe::Observer;
use crate::pass::{PassError, Summary, check_schedule, pass};
use server::{Fault, Server};

/// A wall clock that runs with the runtime's and can be set.
struct Wall {
    origin: Mutex<(Timestamp, Instant)>,
}

impl Wall {
    fn at(text: &str) -> Arc<Self> {
        Arc::new(Self {
            origin: Mutex::new((text.parse().unwrap(), Instant::now())),
        })
    }

    fn set(&self, text: &str) {
        *self.origin.lock().unwrap() = (text.parse().unwrap(), Instant::now());
    }
}

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let (wall, moment) = *self.origin.lock().unwrap();
        wall + SignedDuration::try_from(moment.elapsed()).unwrap()
    }
}

const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

struct Parts {
    server: Server,
    follower: Follower,
    observer: Observer,
    act: Act,
    clock: Arc<Wall>,
    events: Events,
}

fn schedule(spec: &Value) -> Value {
    json!({"apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
        "metadata": {"name": "office", "generation": 1, "finalizers": [FINALIZER]}, "spec": spec})
}

fn office() -> Value {
    schedule(&json!({"timeZone": "UTC", "downtime": ["Mon-Sun 20:00-21:00"]}))
}

/// A server with one namespace, the custom resource, and `count` Deployments of 2 replicas.
fn server(count: usize) -> Server {
    let server = Server::default();
    let definition = json!({"metadata": {"name": "offhoursschedules.offhours.platform.io"}});
    server.set("customresourcedefinitions.apiextensions.k8s.io", definition);
    server.set(
        "namespaces",
        json!({"metadata": {"name": "shop", "labels": {SCHEDULE: "office"}}}),
    );
    server.set("offhoursschedules.offhours.platform.io", office());
    for index in 0..count {
        server.deployment("shop", &format!("w{index}"), 2);
    }
    server
}

fn parts(server: &Server, now: &str, dry_run: bool, finalizers: bool) -> Parts {
    let clock = Wall::at(now);
    let follower = Follower::start(server.client(), Kinds::default(), Scope::Cluster, Pace::default());
    let view = Arc::clone(follower.view());
    follower.follow_kind(view.kinds().by_kind("apps", "Deployment").unwrap());
    let source = Arc::new(ScheduleSource::new(Arc::clone(&view), Vec::new(), None));
    let mut snapshot = Snapshot::new(Arc::new(view.kinds().clone()), "offhours-system");
    snapshot.finalizers = finalizers;
    let observer = Observer::new(Arc::clone(&view), source, snapshot);
    let settings = ActSettings {
        concurrency: 8,
        per_second: None,
        write_timeout: WRITE_TIMEOUT,
        dry_run,
    };
    let (events, _task) = Events::start(
        server.client(),
        Arc::clone(&clock) as _,
        EventSettings::new("test", "test"),
    );
    let act = Act::new(
        server.client(),
        Leadership::alone(),
        view,
        Some(events.clone()),
        settings,
    );
    Parts {
        server: server.clone(),
        follower,
        observer,
        act,
        clock,
        events,
    }
}

struct Running {
    clock: Arc<Wall>,
    ledger: Ledger,
    stop: oneshot::Sender<()>,
    engine: JoinHandle<()>,
    _follower: Follower,
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.engine.await.unwrap();
    }
}

fn start(server: &Server, now: &str) -> Running {
    start_with(server, now, false)
}

fn start_with(server: &Server, now: &str, dry_run: bool) -> Running {
    let parts = parts(server, now, dry_run, true);
    let settings = EngineSettings {
        write_timeout: WRITE_TIMEOUT,
        drain: Duration::from_secs(10),
        dry_run,
    };
    let reporter = Reporter::new(parts.server.client(), Leadership::alone(), WRITE_TIMEOUT);
    let engine = Engine::new(
        Arc::clone(parts.follower.view()),
        parts.observer,
        parts.act,
        Leadership::alone(),
        Arc::clone(&parts.clock) as _,
        Some(parts.events),
        Some(reporter),
        settings,
    );
    let (stop, stopped) = oneshot::channel();
    let ledger = engine.ledger().clone();
    let engine = tokio::spawn(engine.run(async move {
        let _ = stopped.await;
    }));
    Running {
        clock: parts.clock,
        ledger,
        stop,
        engine,
        _follower: parts.follower,
    }
}

/// Waits until something is true; time is paused, so this costs little. Ends the test after a simulated while.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for look in 0..10_000 {
        if condition() {
            return;
        }
        let pause = if look < 400 { 100 } else { 3_000 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    panic!("never: {what}");
}

fn all(server: &Server, count: usize, replicas: u64) -> bool {
    (0..count).all(|index| server.replicas("shop", &format!("w{index}")) == replicas)
}

#[tokio::test(start_paused = true)]
async fn the_first_write_comes_within_a_tenth_of_a_second_of_the_boundary_and_each_object_is_written_once() {
    let server = server(40);
    let running = start(&server, "2026-12-01T19:30:00Z");
    let boundary = Instant::now() + Duration::from_mins(30);
    eventually("all asleep", || all(&server, 40, 0)).await;
    let writes = server.writes();
    assert_eq!(writes.len(), 40);
    let first = writes.iter().map(|seen| seen.at).min().unwrap();
    assert!(
        first >= boundary && first - boundary <= Duration::from_millis(100),
        "{:?}",
        first - boundary
    );
    eventually("all awake", || all(&server, 40, 2)).await;
    assert_eq!(server.writes().len(), 80);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rule_s10_between_transitions_nothing_is_asked_of_the_api() {
    let server = server(5);
    let running = start(&server, "2026-12-01T20:30:00Z");
    eventually("all asleep", || all(&server, 5, 0)).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let before = server.count(|seen| !seen.watch);
    tokio::time::sleep(Duration::from_mins(25)).await;
    assert_eq!(server.count(|seen| !seen.watch), before);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_6_21_a_boundary_is_acted_on_although_the_watches_are_silent() {
    let server = server(3);
    let running = start(&server, "2026-12-01T19:50:00Z");
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.deaf(true);
    eventually("all asleep", || all(&server, 3, 0)).await;
    // The answers of our own writes are known without any watch: opening time needs none either.
    eventually("all awake", || all(&server, 3, 2)).await;
    assert_eq!(server.writes().len(), 6);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_is_noticed() {
    let server = server(3);
    let running = start(&server, "2026-12-01T10:00:00Z");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(all(&server, 3, 2));
    running.clock.set("2026-12-01T20:10:00Z");
    let set = Instant::now();
    eventually("all asleep", || all(&server, 3, 0)).await;
    assert!(set.elapsed() <= Duration::from_secs(30));
    running.clock.set("2026-12-01T11:00:00Z");
    let set = Instant::now();
    eventually("all awake", || all(&server, 3, 2)).await;
    assert!(set.elapsed() <= Duration::from_secs(30));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_and_refusals_end_well_and_lose_no_number() {
    let server = server(6);
    server.with(|state| {
        let faults = [
            Fault::Unanswered,
            Fault::Swallowed,
            Fault::Refused(500),
            Fault::Refused(429),
            Fault::Refused(409),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            // By night and by day.
            state.faults.insert(format!("w{index}"), [fault, fault].into());
        }
    });
    let running = start(&server, "2026-12-01T20:30:00Z");
    eventually("all asleep", || all(&server, 6, 0)).await;
    for index in 0..6 {
        let object = server.get("deployments.apps", "shop", &format!("w{index}"));
        assert_eq!(object["metadata"]["annotations"][ORIGINAL_REPLICAS], "2");
    }
    eventually("all awake", || all(&server, 6, 2)).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_when_it_changes_and_at_most_once_a_second() {
    let server = server(200);
    let running = start(&server, "2026-12-01T19:59:50Z");
    eventually("all asleep", || all(&server, 200, 0)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let status = server.get("offhoursschedules.offhours.platform.io", "", "office")["status"].clone();
    assert_eq!(
        status["workloads"],
        json!({"total": 200, "up": 0, "down": 200, "protected": 0, "failing": 0})
    );
    assert_eq!(status["state"], "Down");
    assert_eq!(status["next"][0]["at"], "2026-12-01T21:00:00Z");
    let moments: Vec<_> = server.with(|state| {
        state
            .seen
            .iter()
            .filter(|seen| seen.path.ends_with("/office/status"))
            .map(|seen| seen.at)
            .collect()
    });
    assert!(moments.len() >= 2, "{}", moments.len());
    assert!(
        moments
            .windows(2)
            .all(|pair| pair[1] - pair[0] >= Duration::from_secs(1))
    );
    tokio::time::sleep(Duration::from_mins(20)).await;
    let later = server.count(|seen| seen.path.ends_with("/office/status"));
    assert_eq!(later, moments.len());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rule_e13_a_transition_is_one_event_per_schedule_and_namespace() {
    let server = server(20);
    let running = start(&server, "2026-12-01T20:30:00Z");
    eventually("all asleep", || all(&server, 20, 0)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events: Vec<Value> = server.with(|state| {
        let posts = state.seen.iter().filter(|seen| seen.method == Method::POST);
        posts.map(|seen| seen.body.clone()).collect()
    });
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["reason"], "PutToSleep");
    assert!(events[0]["note"].as_str().unwrap().contains("20 workloads"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_appears_by_night_is_put_down_and_an_edit_of_the_schedule_is_followed() {
    let server = server(1);
    let running = start(&server, "2026-12-01T20:30:00Z");
    eventually("asleep", || all(&server, 1, 0)).await;
    server.deployment("shop", "new", 4);
    eventually("the new one asleep", || server.replicas("shop", "new") == 0).await;
    server.edit("offhoursschedules.offhours.platform.io", "", "office", |object| {
        object["spec"]["downtime"] = json!(["Mon-Sun 23:00-24:00"]);
        object["metadata"]["generation"] = json!(2);
    });
    eventually("awake", || server.replicas("shop", "new") == 4 && all(&server, 1, 2)).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_deleted_by_night_is_restored_and_then_let_go() {
    let server = server(3);
    let running = start(&server, "2026-12-01T20:30:00Z");
    eventually("asleep", || all(&server, 3, 0)).await;
    server.edit("offhoursschedules.offhours.platform.io", "", "office", |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-12-01T20:31:00Z");
    });
    eventually("let go", || {
        let object = server.get("offhoursschedules.offhours.platform.io", "", "office");
        object["metadata"]["finalizers"] == json!([])
    })
    .await;
    assert!(all(&server, 3, 2));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing_and_does_not_spin() {
    let server = server(3);
    let running = start_with(&server, "2026-12-01T20:30:00Z", true);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert!(all(&server, 3, 2));
    assert!(server.writes().is_empty());
    running.stop().await;
}

async fn one_shot(server: &Server, state: State, dry_run: bool) -> Summary {
    one_shot_until(server, state, dry_run, std::future::pending()).await
}

async fn one_shot_until(server: &Server, state: State, dry_run: bool, stop: impl Future<Output = ()>) -> Summary {
    let mut parts = parts(server, "2026-12-01T10:00:00Z", dry_run, false);
    parts.observer.snapshot_mut().forced = Some(Forced {
        schedule: Arc::from("office"),
        state,
        since: parts.clock.now(),
    });
    let view = Arc::clone(parts.follower.view());
    let limit = Duration::from_mins(15);
    pass(
        &view,
        &mut parts.observer,
        &mut parts.act,
        parts.clock.as_ref(),
        dry_run,
        limit,
        stop,
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_pass_that_is_stopped_finishes_what_is_under_way_and_tells_the_rest() {
    let server = server(30);
    // Answered by nobody: under way until their time is up.
    let hang = |number| (format!("w{number}"), [Fault::Swallowed].into());
    server.with(|state| state.faults.extend((0..30).map(hang)));
    let stop = tokio::time::sleep(WRITE_TIMEOUT / 2);
    let summary = one_shot_until(&server, State::Down, false, stop).await;
    assert_eq!(server.writes().len(), 8, "as many as may be under way at once");
    assert_eq!((summary.done.len(), summary.failed.len()), (0, 30));
    let stopped = summary.failed.iter().filter(|(_, reason, _)| *reason == "Stopped");
    assert_eq!(stopped.count(), 22);
    assert!(all(&server, 30, 2));
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_pass_tells_what_was_done_skipped_and_failed() {
    let server = server(4);
    server.with(|state| state.faults.insert("w3".to_owned(), [Fault::Refused(403); 9].into()));
    let summary = one_shot(&server, State::Down, false).await;
    assert_eq!(summary.done.len(), 3);
    assert_eq!(summary.failed.len(), 1);
    assert_eq!((&*summary.failed[0].0.name, summary.failed[0].1), ("w3", "Forbidden"));
    assert!(all(&server, 3, 0));
    server.with(|state| state.faults.clear());
    let summary = one_shot(&server, State::Up, false).await;
    assert_eq!(
        (summary.done.len(), summary.failed.len(), summary.skipped.len()),
        (3, 0, 0)
    );
    assert!(all(&server, 4, 2));
}

#[tokio::test(start_paused = true)]
async fn fault_8_a_one_shot_pass_sends_one_request_per_workload() {
    let server = server(30);
    one_shot(&server, State::Down, false).await;
    assert_eq!(server.writes().len(), 30);
    assert_eq!(
        server.count(|seen| seen.method == Method::GET && seen.path.contains("/deployments/")),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_one_shot_pass_says_what_it_would_do() {
    let server = server(4);
    let summary = one_shot(&server, State::Down, true).await;
    assert_eq!(summary.done.len(), 4);
    assert!(server.writes().is_empty());
}

#[test]
fn rule_g2_a_one_shot_pass_is_refused_for_a_custom_resource() {
    let resource = crate::decide::tests::world::office();
    let schedules = shared::policy::Schedules::new([Arc::new(resource)]);
    let refused = check_schedule(&schedules, "office").unwrap_err();
    assert_eq!(
        refused,
        PassError::ScheduleIsResource {
            name: "office".to_owned()
        }
    );
    assert!(refused.to_string().contains("offhours sleep"));
    assert_eq!(check_schedule(&schedules, "other"), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_sleeps_is_counted_while_it_sleeps() {
    let server = server(5);
    let running = start(&server, "2026-12-01T19:59:00Z");
    eventually("all asleep", || all(&server, 5, 0)).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let figures = running.ledger.figures()["office"];
    assert_eq!(
        (figures.up, figures.down, figures.protected, figures.failing),
        (0, 5, 0, 0)
    );
    assert_eq!((figures.shutdowns, figures.startups), (1, 0));
    // Ten replicas for half an hour, looked at every ten seconds.
    assert!((figures.replica_hours - 5.0).abs() < 0.1, "{figures:?}");
    eventually("all awake", || all(&server, 5, 2)).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let morning = running.ledger.figures()["office"];
    assert_eq!((morning.up, morning.down, morning.startups), (5, 0, 1));
    assert!((morning.replica_hours - 10.0).abs() < 0.1, "{morning:?}");
    tokio::time::sleep(Duration::from_mins(30)).await;
    let later = running.ledger.figures()["office"];
    assert!((later.replica_hours - morning.replica_hours).abs() < 1e-9, "{later:?}");
    let ended: Vec<State> = running.ledger.take_ended().into_iter().map(|(to, _)| to).collect();
    assert_eq!(ended, [State::Down, State::Up]);
    running.stop().await;
}
