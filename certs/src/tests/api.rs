//! An API server in process: objects in memory with resourceVersions, conflicts, JSON patches and watches; every request
//! is written down, and the n-th can be made to fail.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub watch: bool,
    pub status: u16,
}

#[derive(Clone)]
struct Change {
    version: u64,
    collection: String,
    kind: &'static str,
    object: Value,
}

struct Fault {
    method: Method,
    path_part: String,
    status: u16,
    times: usize,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<(String, String), Value>,
    changes: Vec<Change>,
    seen: Vec<Seen>,
    faults: Vec<Fault>,
}

/// The double. Clones share everything.
#[derive(Clone)]
pub struct ApiDouble {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
}

impl ApiDouble {
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            version: watch::Sender::new(0),
        }
    }

    /// A client that talks to this double without a socket.
    pub fn client(&self) -> kube::Client {
        let double = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let double = double.clone();
            async move { Ok::<_, Infallible>(double.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// Writes to objects under a path that contains `part`: (accepted, refused).
    pub fn writes(&self, part: &str) -> (usize, usize) {
        let writes: Vec<Seen> = self
            .seen()
            .into_iter()
            .filter(|seen| seen.method != Method::GET && seen.path.contains(part))
            .collect();
        let accepted = writes.iter().filter(|seen| seen.status < 300).count();
        (accepted, writes.len() - accepted)
    }

    /// The next `times` requests of this kind are answered with `status`.
    pub fn fail(&self, method: Method, path_part: &str, status: u16, times: usize) {
        self.lock().faults.push(Fault {
            method,
            path_part: path_part.to_owned(),
            status,
            times,
        });
    }

    /// The object at `path`.
    pub fn get(&self, path: &str) -> Option<Value> {
        let (collection, name) = split(path);
        self.lock().objects.get(&(collection, name?)).cloned()
    }

    /// Somebody else writes the object at `path`.
    pub fn put(&self, path: &str, object: Value) {
        let (collection, name) = split(path);
        let mut state = self.lock();
        store(&mut state, collection, &name.expect("an object path"), object);
        self.tell(&state);
    }

    /// Somebody else deletes the object at `path`.
    pub fn delete(&self, path: &str) {
        let (collection, name) = split(path);
        let mut state = self.lock();
        remove(&mut state, collection, name.expect("an object path"));
        self.tell(&state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds this")
    }

    fn tell(&self, state: &State) {
        self.version.send_replace(state.version);
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX)
            .await
            .expect("a body in memory");
        let path = parts.uri.path().to_owned();
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.replace("%3D", "=")))
            .collect();
        let is_watch = query.get("watch").is_some_and(|watch| watch == "true");
        let (status, content) = self.decide(&parts.method, &path, &query, is_watch, &body);
        self.lock().seen.push(Seen {
            method: parts.method,
            path,
            watch: is_watch,
            status: status.as_u16(),
        });
        Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(content)
            .expect("a legal answer")
    }

    fn decide(
        &self,
        method: &Method,
        path: &str,
        query: &BTreeMap<String, String>,
        is_watch: bool,
        body: &[u8],
    ) -> (StatusCode, Body) {
        let mut state = self.lock();
        let fault = state
            .faults
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.method == *method && path.contains(&fault.path_part));
        if let Some(fault) = fault {
            fault.times -= 1;
            return refused(fault.status, "injected");
        }
        let (collection, name) = split(path);
        let result = match (method.as_str(), name) {
            ("GET", None) if is_watch => return (StatusCode::OK, self.watch(collection, query)),
            ("GET", None) => {
                let wanted = selected(query);
                let items: Vec<&Value> = state
                    .objects
                    .iter()
                    .filter(|((of, name), _)| *of == collection && wanted.as_ref().is_none_or(|wanted| wanted == name))
                    .map(|(_, object)| object)
                    .collect();
                Ok(
                    json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": state.version.to_string() }, "items": items }),
                )
            }
            ("GET", Some(name)) => state
                .objects
                .get(&(collection, name))
                .cloned()
                .ok_or((404, "not found")),
            ("POST", None) => {
                let object: Value = serde_json::from_slice(body).expect("JSON");
                let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
                if state.objects.contains_key(&(collection.clone(), name.clone())) {
                    Err((409, "already exists"))
                } else {
                    Ok(store(&mut state, collection, &name, object))
                }
            }
            ("PUT", Some(name)) => {
                let object: Value = serde_json::from_slice(body).expect("JSON");
                match state.objects.get(&(collection.clone(), name.clone())) {
                    None => Err((404, "not found")),
                    Some(present)
                        if object["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"] =>
                    {
                        Err((409, "conflict"))
                    }
                    Some(_) => Ok(store(&mut state, collection, &name, object)),
                }
            }
            ("PATCH", Some(name)) => match state.objects.get(&(collection.clone(), name.clone())).cloned() {
                None => Err((404, "not found")),
                Some(mut object) => {
                    let operations: json_patch::Patch = serde_json::from_slice(body).expect("a JSON patch");
                    match json_patch::patch(&mut object, &operations) {
                        Ok(()) => Ok(store(&mut state, collection, &name, object)),
                        Err(_) => Err((422, "a test of the patch failed")),
                    }
                }
            },
            _ => Err((405, "no such call")),
        };
        self.tell(&state);
        match result {
            Ok(object) => (StatusCode::OK, Body::from(object.to_string())),
            Err((code, message)) => refused(code, message),
        }
    }

    fn watch(&self, collection: String, query: &BTreeMap<String, String>) -> Body {
        let since: u64 = query
            .get("resourceVersion")
            .and_then(|version| version.parse().ok())
            .unwrap_or_default();
        let wanted = selected(query);
        let double = self.clone();
        let version = self.version.subscribe();
        let batches = stream::unfold((since, version), move |(since, mut version)| {
            let (double, collection, wanted) = (double.clone(), collection.clone(), wanted.clone());
            async move {
                loop {
                    version.borrow_and_update();
                    let (news, latest) = double.news(&collection, wanted.as_deref(), since);
                    if !news.is_empty() {
                        return Some((news, (latest, version)));
                    }
                    version.changed().await.ok()?;
                }
            }
        });
        Body::from_stream(batches.map(|news| Ok::<_, Infallible>(Bytes::from(news))))
    }

    fn news(&self, collection: &str, wanted: Option<&str>, since: u64) -> (String, u64) {
        let state = self.lock();
        let news = state
            .changes
            .iter()
            .filter(|change| change.version > since && change.collection == collection)
            .filter(|change| wanted.is_none_or(|wanted| change.object["metadata"]["name"] == wanted))
            .fold(String::new(), |text, change| {
                let event = json!({ "type": change.kind, "object": change.object });
                text + &event.to_string() + "\n"
            });
        (news, state.version)
    }
}

fn refused(code: u16, message: &str) -> (StatusCode, Body) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (
        StatusCode::from_u16(code).expect("a status"),
        Body::from(status.to_string()),
    )
}

fn store(state: &mut State, collection: String, name: &str, mut object: Value) -> Value {
    let key = (collection.clone(), name.to_owned());
    let uid = state
        .objects
        .get(&key)
        .map(|present| present["metadata"]["uid"].clone());
    let kind = if uid.is_some() { "MODIFIED" } else { "ADDED" };
    state.version += 1;
    object["metadata"]["resourceVersion"] = json!(state.version.to_string());
    object["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("uid-{}", state.version)));
    state.objects.insert(key, object.clone());
    state.changes.push(Change {
        version: state.version,
        collection,
        kind,
        object: object.clone(),
    });
    object
}

fn remove(state: &mut State, collection: String, name: String) {
    if let Some(object) = state.objects.remove(&(collection.clone(), name)) {
        state.version += 1;
        state.changes.push(Change {
            version: state.version,
            collection,
            kind: "DELETED",
            object,
        });
    }
}

fn selected(query: &BTreeMap<String, String>) -> Option<String> {
    query
        .get("fieldSelector")
        .and_then(|selector| selector.strip_prefix("metadata.name="))
        .map(ToOwned::to_owned)
}

/// Collection and, for the path of an object, its name.
fn split(path: &str) -> (String, Option<String>) {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let group = if parts.first() == Some(&"api") { 2 } else { 3 };
    let collection = group + if parts.get(group) == Some(&"namespaces") { 3 } else { 1 };
    (
        parts[..collection].join("/"),
        parts.get(collection).map(|name| (*name).to_owned()),
    )
}
