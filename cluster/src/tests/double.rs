//! An API server in process that lists, pages and watches, and misbehaves when told to.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

/// What happens to requests for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Never answered.
    Hang,
    /// This status.
    Status(u16),
    /// This status with a `Retry-After` of so many seconds.
    RetryAfter(u16, u64),
    /// Answered after so long.
    Delay(Duration),
    /// Answered with this status as an error line of a watch.
    ErrorLine(u16),
    /// A watch that ends at once.
    End,
    /// A body that is no JSON.
    Garbage,
}

/// One request as it was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub resource: String,
    pub path: String,
    pub query: HashMap<String, String>,
    pub accept: String,
}

impl Seen {
    pub fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }
}

struct Watcher {
    resource: String,
    namespace: Option<String>,
    lines: mpsc::UnboundedSender<Bytes>,
}

struct Change {
    version: u64,
    resource: String,
    namespace: String,
    line: Bytes,
}

#[derive(Default)]
pub struct State {
    version: u64,
    /// resource -> (namespace, name) -> object
    objects: BTreeMap<String, BTreeMap<(String, String), Value>>,
    history: Vec<Change>,
    oldest: u64,
    watchers: Vec<Watcher>,
    pub list_faults: HashMap<String, Fault>,
    pub watch_faults: HashMap<String, Fault>,
    /// Resources whose changes are not told to watches.
    pub deaf: bool,
    /// No history is kept: each watch is too old.
    pub forgetful: bool,
    pub seen: Vec<Seen>,
    /// Resources that exist; others are 404. All, if empty.
    pub served: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Api {
    pub state: Arc<Mutex<State>>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Api {
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.serve(request).await) }
        });
        Client::new(service, "default")
    }

    /// Creates or changes an object and tells the watches.
    pub fn set(&self, resource: &str, mut object: Value) -> Value {
        self.with(|state| {
            state.version += 1;
            let version = state.version.to_string();
            object["metadata"]["resourceVersion"] = json!(version);
            let key = key_of(&object);
            if object["metadata"]["uid"].is_null() {
                object["metadata"]["uid"] = json!(format!("uid-{}-{}", key.1, state.version));
            }
            let objects = state.objects.entry(resource.to_owned()).or_default();
            let kind = if objects.insert(key.clone(), object.clone()).is_some() {
                "MODIFIED"
            } else {
                "ADDED"
            };
            state.tell(resource, &key.0, kind, &object);
            object
        })
    }

    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.with(|state| {
            let key = (namespace.to_owned(), name.to_owned());
            let mut object = state.objects.get_mut(resource).unwrap().remove(&key).unwrap();
            state.version += 1;
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            state.tell(resource, namespace, "DELETED", &object);
        });
    }

    /// Sends a bookmark to all watches of a resource.
    pub fn bookmark(&self, resource: &str) {
        self.with(|state| {
            let object = json!({"kind": "X", "metadata": {"resourceVersion": state.version.to_string()}});
            let line = line("BOOKMARK", &object);
            state
                .watchers
                .retain(|watcher| watcher.resource != resource || watcher.lines.send(line.clone()).is_ok());
        });
    }

    /// Cuts the watches of a resource, after an error line if one is given, and forgets the history before now.
    pub fn cut(&self, resource: &str, error: Option<u16>, forget: bool) {
        self.with(|state| {
            for watcher in state.watchers.iter().filter(|watcher| watcher.resource == resource) {
                if let Some(code) = error {
                    let _ = watcher.lines.send(line("ERROR", &status(code)));
                }
            }
            state.watchers.retain(|watcher| watcher.resource != resource);
            if forget {
                state.version += 1;
                state.oldest = state.version;
            }
        });
    }

    pub fn requests(&self, resource: &str, watch: bool) -> usize {
        self.with(|state| {
            state
                .seen
                .iter()
                .filter(|seen| seen.resource == resource && seen.is_watch() == watch)
                .count()
        })
    }

    async fn serve(&self, request: Request<Body>) -> Answer {
        let uri = request.uri().clone();
        let query: HashMap<String, String> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.replace("%3A", ":").replace("%2F", "/")))
            .collect();
        let mut parts: Vec<&str> = uri.path().split('/').skip(1).collect();
        let group = if parts.remove(0) == "api" { "" } else { parts.remove(0) }.to_owned();
        parts.remove(0);
        let namespace = (parts.len() == 3).then(|| parts[1].to_owned());
        let plural = *parts.last().unwrap();
        let resource = if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        };
        let accept = request
            .headers()
            .get("accept")
            .map(|text| text.to_str().unwrap().to_owned());
        let seen = Seen {
            at: Instant::now(),
            resource: resource.clone(),
            path: uri.path().to_owned(),
            query: query.clone(),
            accept: accept.unwrap_or_default(),
        };
        let watch = seen.is_watch();
        let fault = self.with(|state| {
            state.seen.push(seen);
            if !state.served.is_empty() && !state.served.contains(&resource) {
                return Some(Fault::Status(404));
            }
            let faults = if watch { &state.watch_faults } else { &state.list_faults };
            faults.get(&resource).copied()
        });
        match fault {
            Some(Fault::Hang) => std::future::pending::<()>().await,
            Some(Fault::Status(code)) => return whole(code, &status(code)),
            Some(Fault::RetryAfter(code, seconds)) => {
                let mut answer = whole(code, &status(code));
                answer
                    .headers_mut()
                    .insert("retry-after", seconds.to_string().parse().unwrap());
                return answer;
            }
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::ErrorLine(code)) => return text(200, line("ERROR", &status(code))),
            Some(Fault::End) => return text(200, Bytes::new()),
            Some(Fault::Garbage) => return text(200, Bytes::from_static(b"<html>gateway</html>\n")),
            None => {}
        }
        if watch {
            self.watch(&resource, namespace, &query)
        } else {
            self.list(&resource, namespace.as_deref(), &query)
        }
    }

    fn list(&self, resource: &str, namespace: Option<&str>, query: &HashMap<String, String>) -> Answer {
        self.with(|state| {
            let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
            let (version, from): (u64, usize) = match query.get("continue") {
                None => (state.version, 0),
                Some(token) => {
                    let (version, from) = token.split_once(':').unwrap();
                    (version.parse().unwrap(), from.parse().unwrap())
                }
            };
            if version < state.oldest {
                return whole(410, &status(410));
            }
            let empty = BTreeMap::new();
            let all: Vec<&Value> = state
                .objects
                .get(resource)
                .unwrap_or(&empty)
                .iter()
                .filter(|((place, _), _)| namespace.is_none_or(|namespace| namespace == place))
                .map(|(_, object)| object)
                .collect();
            let end = from.saturating_add(limit).min(all.len());
            let next = if end < all.len() {
                format!("{version}:{end}")
            } else {
                String::new()
            };
            let items = &all[from.min(end)..end];
            whole(
                200,
                &json!({"kind": "List", "apiVersion": "v1",
                "metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items}),
            )
        })
    }

    fn watch(&self, resource: &str, namespace: Option<String>, query: &HashMap<String, String>) -> Answer {
        let from: u64 = query["resourceVersion"].parse().unwrap();
        self.with(|state| {
            if state.forgetful || from < state.oldest {
                return text(200, line("ERROR", &status(410)));
            }
            let (sender, receiver) = mpsc::unbounded_channel();
            for change in &state.history {
                let here = namespace
                    .as_ref()
                    .is_none_or(|namespace| *namespace == change.namespace);
                if change.version > from && change.resource == resource && here {
                    sender.send(change.line.clone()).unwrap();
                }
            }
            state.watchers.push(Watcher {
                resource: resource.to_owned(),
                namespace,
                lines: sender,
            });
            let lines = stream::unfold(receiver, |mut receiver| async {
                let bytes = receiver.recv().await?;
                Some((Ok::<_, Infallible>(Frame::data(bytes)), receiver))
            });
            Response::new(StreamBody::new(lines).boxed_unsync())
        })
    }
}

impl State {
    /// Takes all watches away without closing them: nothing comes through any more.
    pub fn silenced(&mut self) -> Vec<mpsc::UnboundedSender<Bytes>> {
        self.watchers.drain(..).map(|watcher| watcher.lines).collect()
    }

    fn tell(&mut self, resource: &str, namespace: &str, kind: &str, object: &Value) {
        let line = line(kind, object);
        if self.deaf {
            return;
        }
        self.history.push(Change {
            version: self.version,
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            line: line.clone(),
        });
        self.watchers.retain(|watcher| {
            let here = watcher.namespace.as_ref().is_none_or(|place| place == namespace);
            watcher.resource != resource || !here || watcher.lines.send(line.clone()).is_ok()
        });
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn key_of(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

pub fn status(code: u16) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Expired",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "made by the test",
        "reason": reason, "code": code})
}

fn whole(code: u16, body: &Value) -> Answer {
    text(code, Bytes::from(body.to_string()))
}

fn text(code: u16, body: Bytes) -> Answer {
    Response::builder()
        .status(code)
        .body(Full::new(body).boxed_unsync())
        .unwrap()
}

/// A Deployment with everything that we do not want in memory.
pub fn deployment(namespace: &str, name: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name, "generation": 1,
            "labels": {"app": name, "team": "shop"},
            "annotations": {"offhours.platform.io/startup-order": "1", "big": "x".repeat(2000)},
            "managedFields": [{"manager": "kubectl", "operation": "Update",
                "fieldsV1": {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {}}}}}]},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": replicas},
    })
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn definition(name: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}})
}
