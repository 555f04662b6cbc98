//! Events on objects (`events.k8s.io/v1`): told when they can be, dropped and counted when there are too many. Client required.
//!
//! Nothing waits for an Event: a flood of them, or an API server that refuses them, delays no write.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use shared::{clock::Clock, workload::ObjectRef};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, warn};

use crate::call::{CallError, call};

/// Longest note that the API takes; bytes.
const NOTE_LIMIT: usize = 1024;
/// The same remark about the same object is told once in this time.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// How many remarks are remembered for that.
const REMEMBERED: usize = 10_000;

/// What Events say about us, and how many there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSettings {
    /// Which part of the product speaks, such as `offhours.platform.io/scheduler`.
    pub controller: String,
    /// Which process speaks.
    pub instance: String,
    /// How many Events may wait; further ones are dropped.
    pub capacity: usize,
    /// How many Events are sent in a second.
    pub per_second: u32,
    /// Longest time for one call.
    pub call_timeout: Duration,
}

impl EventSettings {
    /// Defaults for a part of the product.
    pub fn new(controller: impl Into<String>, instance: impl Into<String>) -> Self {
        Self {
            controller: controller.into(),
            instance: instance.into(),
            capacity: 500,
            per_second: 20,
            call_timeout: Duration::from_secs(5),
        }
    }
}

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The object that it is about.
    pub object: ObjectRef,
    /// Its API version without the group, such as `v1`.
    pub version: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
    /// What we did or meant to do, in CamelCase.
    pub action: &'static str,
    /// Why it is told, in CamelCase.
    pub reason: &'static str,
    /// One line for people.
    pub note: String,
    /// A warning, or merely good to know.
    pub warning: bool,
}

/// Counters of Events.
#[derive(Debug, Default)]
pub struct EventStats {
    /// Accepted by the API server.
    pub sent: AtomicU64,
    /// Told a short while ago already.
    pub repeated: AtomicU64,
    /// Dropped because too many waited.
    pub dropped: AtomicU64,
    /// Refused by the API server, or not answered.
    pub failed: AtomicU64,
}

/// The handle for those who have something to tell; cheap to clone.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<(Remark, Timestamp)>,
    clock: Arc<dyn Clock>,
    stats: Arc<EventStats>,
}

impl Events {
    /// Starts the task that sends them; it ends when the last handle is gone and everything is sent.
    pub fn start(client: Client, clock: Arc<dyn Clock>, settings: EventSettings) -> (Self, EventTask) {
        let (sender, receiver) = mpsc::channel(settings.capacity.max(1));
        let stats = Arc::new(EventStats::default());
        let worker = Worker {
            client,
            settings,
            stats: Arc::clone(&stats),
            told: HashMap::new(),
            number: 0,
            warned: None,
        };
        let task = tokio::spawn(worker.run(receiver));
        (Self { sender, clock, stats }, EventTask(task))
    }

    /// Tells a remark. Never waits.
    pub fn tell(&self, remark: Remark) {
        if self.sender.try_send((remark, self.clock.now())).is_err() {
            self.stats.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counters.
    pub fn stats(&self) -> &Arc<EventStats> {
        &self.stats
    }
}

/// The task that sends Events.
pub struct EventTask(JoinHandle<()>);

impl EventTask {
    /// Waits until what was told is sent, but not longer than `limit`. Drop all handles first.
    pub async fn finish(mut self, limit: Duration) {
        if timeout(limit, &mut self.0).await.is_err() {
            self.0.abort();
        }
    }
}

struct Worker {
    client: Client,
    settings: EventSettings,
    stats: Arc<EventStats>,
    told: HashMap<(ObjectRef, &'static str, String), Instant>,
    number: u64,
    warned: Option<Instant>,
}

impl Worker {
    async fn run(mut self, mut remarks: mpsc::Receiver<(Remark, Timestamp)>) {
        let pause = Duration::from_secs(1) / self.settings.per_second.max(1);
        while let Some((remark, at)) = remarks.recv().await {
            if self.is_repeated(&remark) {
                self.stats.repeated.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.send(&remark, at).await;
            sleep(pause).await;
        }
    }

    fn is_repeated(&mut self, remark: &Remark) -> bool {
        let now = Instant::now();
        let key = (remark.object.clone(), remark.reason, remark.note.clone());
        if self
            .told
            .get(&key)
            .is_some_and(|at| now.duration_since(*at) < REPEAT_AFTER)
        {
            return true;
        }
        if self.told.len() >= REMEMBERED {
            self.told.retain(|_, at| now.duration_since(*at) < REPEAT_AFTER);
            if self.told.len() >= REMEMBERED {
                // To tell something twice is better than to remember without bound.
                self.told.clear();
            }
        }
        self.told.insert(key, now);
        false
    }

    async fn send(&mut self, remark: &Remark, at: Timestamp) {
        self.number += 1;
        let (path, body) = render(remark, at, self.number, &self.settings);
        let mut pause = Duration::from_millis(500);
        for attempt in 0..3 {
            let request = Request::post(&path)
                .header(CONTENT_TYPE, "application/json")
                .body(Body::from(body.clone()))
                .map_err(|error| CallError::Unreadable(error.to_string().into()));
            let answer = match request {
                Ok(request) => call(&self.client, request, self.settings.call_timeout).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(_) => {
                    self.stats.sent.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(error) if attempt < 2 && may_pass(&error) => {
                    sleep(pause).await;
                    pause *= 4;
                }
                Err(error) => {
                    self.stats.failed.fetch_add(1, Ordering::Relaxed);
                    self.complain(remark, &error);
                    return;
                }
            }
        }
    }

    fn complain(&mut self, remark: &Remark, error: &CallError) {
        debug!(object = %remark.object, reason = remark.reason, %error, "failed to tell an event");
        let now = Instant::now();
        // A namespace that is being deleted takes no Events; that is no trouble.
        let ending = error.code() == Some(404) || error.to_string().contains("being terminated");
        if ending || self.warned.is_some_and(|at| now.duration_since(at) < REPEAT_AFTER) {
            return;
        }
        self.warned = Some(now);
        let remedy = match error.code() {
            Some(403) => "grant create on events in API group events.k8s.io",
            _ => "nothing is lost but the event",
        };
        warn!(object = %remark.object, %error, remedy, "failed to tell an event");
    }
}

fn may_pass(error: &CallError) -> bool {
    match error.code() {
        None | Some(429) => true,
        Some(code) => code >= 500,
    }
}

/// Path and body of one Event.
fn render(remark: &Remark, at: Timestamp, number: u64, settings: &EventSettings) -> (String, Vec<u8>) {
    let object = &remark.object;
    // Events about what is cluster-scoped live in `default`.
    let namespace = if object.namespace.is_empty() {
        "default"
    } else {
        &*object.namespace
    };
    let api_version = if object.group.is_empty() {
        remark.version.to_string()
    } else {
        format!("{}/{}", object.group, remark.version)
    };
    let short: String = object.name.chars().take(200).collect();
    let name = format!(
        "{}.{:x}{:04x}",
        short.trim_end_matches(['.', '-']),
        at.as_microsecond(),
        number & 0xffff
    );
    let regarding: serde_json::Map<String, Value> = [
        ("apiVersion", api_version.as_str()),
        ("kind", &object.kind),
        ("namespace", &object.namespace),
        ("name", &object.name),
        ("uid", &remark.uid),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(field, text)| (field.to_owned(), Value::from(text)))
    .collect();
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": format!("{:.6}", Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)),
        "reportingController": settings.controller,
        "reportingInstance": settings.instance.chars().take(128).collect::<String>(),
        "action": remark.action,
        "reason": remark.reason,
        "regarding": regarding,
        "note": cut(&remark.note),
        "type": if remark.warning { "Warning" } else { "Normal" },
    });
    (
        format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
        body.to_string().into_bytes(),
    )
}

/// One line of at most [`NOTE_LIMIT`] bytes.
fn cut(note: &str) -> String {
    let mut line = String::with_capacity(note.len().min(NOTE_LIMIT));
    for letter in note
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
    {
        if line.len() + letter.len_utf8() > NOTE_LIMIT {
            break;
        }
        line.push(letter);
    }
    line
}
