//! An API server in memory for the engine: lists, watches, JSON patches, server-side apply of a status, Events.
//!
//! It knows no controllers and no admission: what only the real one can show is in the end-to-end tests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What happens to the next write of an object instead of, or beside, being carried out.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Refused with this code; not carried out.
    Refused(u16),
    /// Carried out, but the answer is lost.
    Unanswered,
    /// Neither carried out nor answered.
    Swallowed,
}

/// A request that came in.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    pub watch: bool,
    pub body: Value,
}

struct Watcher {
    resource: String,
    lines: mpsc::UnboundedSender<Bytes>,
}

#[derive(Default)]
pub struct State {
    version: u64,
    objects: BTreeMap<(String, String, String), Value>,
    watchers: Vec<Watcher>,
    /// Watches tell nothing while this is set; the lines come when it is taken away.
    pub deaf: bool,
    held_back: Vec<(String, Bytes)>,
    pub faults: HashMap<String, VecDeque<Fault>>,
    pub seen: Vec<Seen>,
}

#[derive(Clone, Default)]
pub struct Server {
    state: Arc<Mutex<State>>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Server {
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        Client::new(service, "default")
    }

    /// Creates or replaces an object.
    pub fn set(&self, resource: &str, object: Value) {
        self.with(|state| state.put(resource, object));
    }

    /// Changes an object.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(resource, namespace, name);
        change(&mut object);
        self.set(resource, object);
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Value {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.with(|state| state.objects[&key].clone())
    }

    pub fn deployment(&self, namespace: &str, name: &str, replicas: u64) {
        self.set(
            "deployments.apps",
            json!({"metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2025-01-01T00:00:00Z"},
                "spec": {"replicas": replicas}, "status": {}}),
        );
    }

    pub fn replicas(&self, namespace: &str, name: &str) -> u64 {
        self.get("deployments.apps", namespace, name)["spec"]["replicas"]
            .as_u64()
            .unwrap()
    }

    /// The writes of workloads that came in.
    pub fn writes(&self) -> Vec<Seen> {
        self.with(|state| {
            let writes = state
                .seen
                .iter()
                .filter(|seen| seen.method == Method::PATCH && seen.path.contains("/deployments/"));
            writes.cloned().collect()
        })
    }

    pub fn count(&self, wanted: impl Fn(&Seen) -> bool) -> usize {
        self.with(|state| state.seen.iter().filter(|seen| wanted(seen)).count())
    }

    /// Watches tell nothing, or everything that they did not tell.
    pub fn deaf(&self, deaf: bool) {
        self.with(|state| {
            state.deaf = deaf;
            for (resource, line) in std::mem::take(&mut state.held_back) {
                state.tell(&resource, &line);
            }
        });
    }

    async fn serve(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let path = parts.uri.path().to_owned();
        let mut tokens: Vec<&str> = path.split('/').skip(1).collect();
        let group = if tokens.remove(0) == "api" {
            ""
        } else {
            tokens.remove(0)
        };
        tokens.remove(0);
        let namespace = if tokens.len() > 2 && tokens[0] == "namespaces" {
            let namespace = tokens[1].to_owned();
            tokens.drain(..2);
            namespace
        } else {
            String::new()
        };
        let dot = if group.is_empty() { "" } else { "." };
        let resource = format!("{}{dot}{group}", tokens[0]);
        let seen = Seen {
            at: Instant::now(),
            method: parts.method.clone(),
            path: path.clone(),
            watch: query.contains("watch=true") || query.contains("watch=1"),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let watch = seen.watch;
        self.with(|state| state.seen.push(seen));
        match (parts.method, tokens.get(1)) {
            (Method::GET, None) if watch => self.watch(&resource),
            (Method::GET, None) => self.with(|state| state.list(&resource)),
            (Method::PATCH, Some(name)) => {
                // Every write takes a while.
                tokio::time::sleep(Duration::from_millis(3)).await;
                let key = (resource.clone(), namespace, (*name).to_owned());
                let apply = parts.headers["content-type"].to_str().unwrap().contains("apply");
                let fault = self.with(|state| state.faults.get_mut(*name).and_then(VecDeque::pop_front));
                match fault {
                    Some(Fault::Swallowed) => std::future::pending().await,
                    Some(Fault::Refused(code)) => return refused(code, "no"),
                    _ => {}
                }
                let answer = self.with(|state| state.patch(&key, &bytes, apply));
                if matches!(fault, Some(Fault::Unanswered)) {
                    std::future::pending::<()>().await;
                }
                answer
            }
            (Method::POST, None) => whole(201, &serde_json::from_slice(&bytes).unwrap()),
            other => panic!("{other:?} {path}"),
        }
    }

    fn watch(&self, resource: &str) -> Answer {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(|state| {
            state.watchers.push(Watcher {
                resource: resource.to_owned(),
                lines: sender,
            });
        });
        let lines = stream::unfold(receiver, |mut receiver| async {
            let bytes = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), receiver))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

impl State {
    fn put(&mut self, resource: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (resource.to_owned(), text("namespace"), text("name"));
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        let known = self.objects.insert(key, object.clone()).is_some();
        let kind = if known { "MODIFIED" } else { "ADDED" };
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        self.tell(resource, &line);
        object
    }

    fn tell(&mut self, resource: &str, line: &Bytes) {
        if self.deaf {
            self.held_back.push((resource.to_owned(), line.clone()));
            return;
        }
        self.watchers
            .retain(|watcher| watcher.resource != resource || watcher.lines.send(line.clone()).is_ok());
    }

    fn list(&mut self, resource: &str) -> Answer {
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|((kind, ..), _)| kind == resource)
            .map(|(_, object)| object)
            .collect();
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()},
            "items": items});
        whole(200, &list)
    }

    fn patch(&mut self, key: &(String, String, String), bytes: &[u8], apply: bool) -> Answer {
        let Some(present) = self.objects.get(key) else {
            return refused(404, "not found");
        };
        let mut object = present.clone();
        if apply {
            let body: Value = serde_json::from_slice(bytes).unwrap();
            object["status"] = body["status"].clone();
        } else {
            let patch: json_patch::Patch = serde_json::from_slice(bytes).unwrap();
            if json_patch::patch(&mut object, &patch).is_err() {
                return refused(422, "the server rejected our request due to an error in our request");
            }
        }
        let object = self.put(&key.0, object);
        whole(200, &object)
    }
}

fn whole(code: u16, body: &Value) -> Answer {
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())).boxed_unsync())
        .unwrap()
}

fn refused(code: u16, message: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "X", "message": message});
    whole(code, &status)
}
