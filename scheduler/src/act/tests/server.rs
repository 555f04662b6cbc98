//! An API server in process that applies JSON patches, and answers otherwise when told to.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use cluster::{follow::Follower, follow::Scope, reflector::Pace, view::View};
use http::{Method, Request as HttpRequest, Response};
use json_patch::Patch;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use shared::{kinds::Kinds, workload::ObjectRef};
use tokio::time::Instant;

use crate::decide::action::{Action, Purpose, Request, Target};

/// An answer out of turn.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Nothing ever comes back.
    Hang,
    /// As usual, after so long.
    Late(Duration),
    /// This status and message.
    Status(u16, &'static str),
    /// This status with a `Retry-After` of so many seconds.
    RetryAfter(u16, u64),
}

#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub method: Method,
    pub uri: String,
    pub content_type: String,
    pub body: Value,
}

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Value>,
    version: u64,
    /// By the object's name; the last one stays for ever where `sticky`.
    pub replies: HashMap<String, VecDeque<Reply>>,
    pub always: HashMap<String, Reply>,
    pub seen: Vec<Seen>,
    under_way: usize,
    pub most_under_way: usize,
}

#[derive(Clone, Default)]
pub struct Server {
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub fn deployment(&self, name: &str, replicas: u64) {
        self.with(|state| {
            state.version += 1;
            let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
                    "resourceVersion": state.version.to_string(), "annotations": {}, "labels": {}},
                "spec": {"replicas": replicas}});
            state.objects.insert(name.to_owned(), object);
        });
    }

    pub fn replies(&self, name: &str, replies: impl IntoIterator<Item = Reply>) {
        self.with(|state| state.replies.insert(name.to_owned(), replies.into_iter().collect()));
    }

    pub fn writes_to(&self, name: &str) -> Vec<Seen> {
        let suffix = format!("/{name}");
        self.with(|state| {
            let here = |seen: &&Seen| seen.uri.split('?').next().unwrap().ends_with(&suffix);
            state.seen.iter().filter(here).cloned().collect()
        })
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        Client::new(service, "default")
    }

    async fn serve(self, request: HttpRequest<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let name = head.uri.path().rsplit('/').next().unwrap().to_owned();
        if head.method == Method::GET {
            // Nothing is followed here; views are filled by hand.
            return answer(404, &json!({}));
        }
        let _under_way = UnderWay::new(&self);
        let reply = self.with(|state| {
            state.seen.push(Seen {
                at: Instant::now(),
                method: head.method.clone(),
                uri: head.uri.to_string(),
                content_type: head
                    .headers
                    .get("content-type")
                    .map(|text| text.to_str().unwrap().to_owned())
                    .unwrap_or_default(),
                body: serde_json::from_slice(&body).unwrap(),
            });
            let next = state.replies.get_mut(&name).and_then(VecDeque::pop_front);
            next.or_else(|| state.always.get(&name).cloned())
        });
        // Every request takes a moment, so that several can be under way.
        tokio::time::sleep(Duration::from_millis(3)).await;
        match reply {
            Some(Reply::Hang) => std::future::pending::<()>().await,
            Some(Reply::Late(time)) => tokio::time::sleep(time).await,
            Some(Reply::Status(code, message)) => return refusal(code, message),
            Some(Reply::RetryAfter(code, seconds)) => {
                let mut answer = refusal(code, "slow down");
                answer
                    .headers_mut()
                    .insert("retry-after", seconds.to_string().parse().unwrap());
                return answer;
            }
            None => {}
        }
        if head.method != Method::PATCH {
            return answer(200, &json!({"kind": "Status", "status": "Success"}));
        }
        self.with(|state| {
            let Some(object) = state.objects.get(&name) else {
                return refusal(404, "not found");
            };
            let patch: Patch = serde_json::from_slice(&body).unwrap();
            let mut changed = object.clone();
            if json_patch::patch(&mut changed, &patch).is_err() {
                return refusal(422, "the server rejected our request due to an error in our request");
            }
            state.version += 1;
            changed["metadata"]["resourceVersion"] = json!(state.version.to_string());
            state.objects.insert(name, changed.clone());
            answer(200, &changed)
        })
    }
}

struct UnderWay(Server);

impl UnderWay {
    fn new(server: &Server) -> Self {
        server.with(|state| {
            state.under_way += 1;
            state.most_under_way = state.most_under_way.max(state.under_way);
        });
        Self(server.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.with(|state| state.under_way -= 1);
    }
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(code)
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap()
}

fn refusal(code: u16, message: &str) -> Response<Body> {
    answer(
        code,
        &json!({"kind": "Status", "status": "Failure", "message": message, "reason": "R", "code": code}),
    )
}

/// A View that follows Deployments and sees nothing of them but our own answers.
pub fn view(server: &Server) -> (Follower, Arc<View>) {
    let follower = Follower::start(server.client(), Kinds::default(), Scope::Cluster, Pace::default());
    let view = Arc::clone(follower.view());
    follower.follow_kind(&Arc::clone(view.kinds().by_kind("apps", "Deployment").unwrap()));
    (follower, view)
}

pub fn target(kind: &str, plural: &str, name: &str) -> Target {
    Target {
        object: ObjectRef {
            group: "apps".into(),
            kind: kind.into(),
            namespace: "shop".into(),
            name: name.into(),
        },
        version: "v1".into(),
        plural: plural.into(),
        uid: format!("uid-{name}").into(),
    }
}

/// Puts a Deployment to `to` replicas if it has `from`.
pub fn scale(name: &str, from: u64, to: u64) -> Action {
    let body = json!([
        {"op": "test", "path": "/metadata/uid", "value": format!("uid-{name}")},
        {"op": "test", "path": "/spec/replicas", "value": from},
        {"op": "replace", "path": "/spec/replicas", "value": to},
    ]);
    Action {
        target: target("Deployment", "deployments", name),
        request: Request::Patch {
            body: serde_json::from_value(body).unwrap(),
            subresource: None,
            dry_run: false,
        },
        purpose: Purpose::Down,
        schedule: Some("nights".into()),
        event: None,
        disown: false,
    }
}
