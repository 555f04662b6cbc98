//! An API server that knows one Lease and counts writes to workloads, with faults per replica.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use shared::clock::Clock;
use tokio::{task::JoinHandle, time::Instant};

use crate::lease::{Leadership, LeaseRunner, LeaseSettings, LeaseStats};

/// What the server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing ever comes back, nothing is done.
    Hang,
    /// This status, nothing is done.
    Status(u16),
    /// Done, but the answer is lost.
    AnswerLost,
    /// Done after this time.
    Slow(Duration),
}

/// One write to a workload that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub by: String,
    pub at: Instant,
    pub object: String,
    /// Who held the lease on the server at that moment.
    pub holder: Option<String>,
}

/// One change of the lease's holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub holder: Option<String>,
    pub at: Instant,
}

#[derive(Default)]
pub struct State {
    pub lease: Option<Value>,
    version: u64,
    pub writes: Vec<Write>,
    pub changes: Vec<Change>,
    /// Requests about the lease: who, method.
    pub requests: Vec<(String, Method)>,
    pub faults: HashMap<String, Fault>,
}

#[derive(Clone, Default)]
pub struct Server {
    pub state: Arc<Mutex<State>>,
}

impl Server {
    pub fn new() -> Self {
        Self::default()
    }

    /// All requests of this replica meet this fault from now on.
    pub fn fault(&self, replica: &str, fault: Option<Fault>) {
        let mut state = self.state.lock().unwrap();
        match fault {
            Some(fault) => state.faults.insert(replica.to_owned(), fault),
            None => state.faults.remove(replica),
        };
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    pub fn holder(&self) -> Option<String> {
        self.with(|state| state.holder())
    }

    pub fn client(&self, replica: &str) -> Client {
        let server = self.clone();
        let replica = replica.to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            let replica = replica.clone();
            async move { Ok::<_, Infallible>(server.serve(replica, request).await) }
        });
        Client::new(service, "default")
    }

    async fn serve(self, replica: String, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let about_lease = head.uri.path().contains("/leases");
        let fault = self.with(|state| {
            if about_lease {
                state.requests.push((replica.clone(), head.method.clone()));
            }
            state.faults.get(&replica).copied()
        });
        match fault {
            Some(Fault::Hang) => std::future::pending::<()>().await,
            Some(Fault::Status(code)) => return refusal(code, "made by the test"),
            Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
            _ => {}
        }
        let answer = self.with(|state| {
            if about_lease {
                state.lease_request(&head.method, &body)
            } else {
                let object = head.uri.path().to_owned();
                let holder = state.holder();
                state.writes.push(Write {
                    by: replica.clone(),
                    at: Instant::now(),
                    object,
                    holder,
                });
                json_answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
        });
        if fault == Some(Fault::AnswerLost) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

impl State {
    pub fn holder(&self) -> Option<String> {
        let text = self.lease.as_ref()?.pointer("/spec/holderIdentity")?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Changes the stored lease as another client would.
    pub fn store(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let before = self.holder();
        self.lease = Some(lease.clone());
        let after = self.holder();
        if before != after {
            self.changes.push(Change {
                holder: after,
                at: Instant::now(),
            });
        }
        lease
    }

    pub fn delete(&mut self) {
        self.lease = None;
        self.changes.push(Change {
            holder: None,
            at: Instant::now(),
        });
    }

    fn lease_request(&mut self, method: &Method, body: &[u8]) -> Response<Body> {
        let stored = self.lease.clone();
        match (method, stored) {
            (&Method::GET, Some(lease)) => json_answer(200, &lease),
            (&Method::GET | &Method::PUT, None) => refusal(404, "not found"),
            (&Method::POST, Some(_)) => refusal(409, "already exists"),
            (&Method::POST, None) => json_answer(201, &self.store(serde_json::from_slice(body).unwrap())),
            (&Method::PUT, Some(lease)) => {
                let wanted: Value = serde_json::from_slice(body).unwrap();
                let version = wanted.pointer("/metadata/resourceVersion");
                assert!(version.is_some(), "a replace without resourceVersion is not arbitrated");
                if version == lease.pointer("/metadata/resourceVersion") {
                    json_answer(200, &self.store(wanted))
                } else {
                    refusal(409, "the object has been modified")
                }
            }
            (method, _) => panic!("unexpected request: {method}"),
        }
    }
}

fn json_answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .body(Body::from(serde_json::to_vec(body).unwrap()))
        .unwrap()
}

fn refusal(code: u16, message: &str) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    json_answer(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason,
            "code": code}),
    )
}

/// Stops futures as SIGSTOP stops a process: time goes on, nothing is polled.
#[derive(Clone, Default)]
pub struct Freezer {
    state: Arc<Mutex<(bool, Vec<Waker>)>>,
}

impl Freezer {
    pub fn freeze(&self) {
        self.state.lock().unwrap().0 = true;
    }

    pub fn thaw(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = false;
        state.1.drain(..).for_each(Waker::wake);
    }

    pub fn wrap<F: Future>(&self, inner: F) -> Freezable<F> {
        Freezable {
            freezer: self.clone(),
            inner: Box::pin(inner),
        }
    }
}

pub struct Freezable<F> {
    freezer: Freezer,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for Freezable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut state = self.freezer.state.lock().unwrap();
            if state.0 {
                state.1.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.inner.as_mut().poll(context)
    }
}

/// A replica of the product as far as the election goes: its runner and a writer that never stops wanting to write.
pub struct Replica {
    pub name: String,
    pub leadership: Leadership,
    pub stats: Arc<LeaseStats>,
    pub freezer: Freezer,
    shutdown: Option<tokio::sync::oneshot::Sender<()>>,
    runner: JoinHandle<()>,
    writer: JoinHandle<()>,
}

pub const WRITE_TIMEOUT: Duration = Duration::from_millis(300);

pub fn settings(name: &str) -> LeaseSettings {
    LeaseSettings {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1200),
        retry_period: Duration::from_millis(200),
        call_timeout: Duration::from_millis(300),
        ..LeaseSettings::new("offhours-system", "offhours-scheduler", name)
    }
}

/// A wall clock that follows tokio's time, `offset` seconds off.
pub struct SkewedClock {
    start: Instant,
    pub offset: AtomicI64,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + self.offset.load(Ordering::Relaxed)).unwrap()
            + jiff::SignedDuration::try_from(self.start.elapsed()).unwrap()
    }
}

pub fn wall(skew_seconds: i64) -> Arc<SkewedClock> {
    Arc::new(SkewedClock {
        start: Instant::now(),
        offset: AtomicI64::new(skew_seconds),
    })
}

impl Replica {
    pub fn start(server: &Server, name: &str, skew_seconds: i64) -> Self {
        Self::start_with(server, settings(name), wall(skew_seconds))
    }

    pub fn start_with(server: &Server, settings: LeaseSettings, wall: Arc<dyn Clock>) -> Self {
        settings.validate(WRITE_TIMEOUT).unwrap();
        let name = settings.identity.clone();
        let freezer = Freezer::default();
        let client = server.client(&name);
        let (runner, leadership) = LeaseRunner::new(client.clone(), settings, wall);
        let stats = runner.stats();
        let (shutdown, told) = tokio::sync::oneshot::channel::<()>();
        let runner = tokio::spawn(freezer.wrap(runner.run(async move {
            let _ = told.await;
        })));
        let writer = tokio::spawn(freezer.wrap(write_for_ever(client, leadership.clone(), name.clone())));
        Self {
            name,
            leadership,
            stats,
            freezer,
            shutdown: Some(shutdown),
            runner,
            writer,
        }
    }

    /// Only the election runs.
    pub fn without_writer(&self) {
        self.writer.abort();
    }

    pub async fn leads(&self) {
        tokio::time::timeout(Duration::from_mins(2), self.leadership.leads())
            .await
            .unwrap_or_else(|_| panic!("{} does not lead within two minutes", self.name));
    }

    pub async fn stop(mut self) {
        self.writer.abort();
        self.shutdown.take().unwrap().send(()).unwrap();
        (&mut self.runner).await.unwrap();
    }

    /// Dies without a word.
    pub fn kill(self) {
        self.writer.abort();
        self.runner.abort();
    }
}

async fn write_for_ever(client: Client, leadership: Leadership, name: String) {
    let mut number = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Ok(permit) = leadership.permit(WRITE_TIMEOUT) else {
            continue;
        };
        number += 1;
        let request = Request::patch(format!("/workloads/{name}/{number}"))
            .body(Vec::new())
            .unwrap();
        let _ = permit.run(client.request::<Value>(request)).await;
    }
}

/// Nobody's write took effect while somebody else held the lease on the server.
pub fn assert_only_the_holder_wrote(server: &Server) {
    server.with(|state| {
        for write in &state.writes {
            assert!(write.holder.as_deref() == Some(write.by.as_str()), "{write:?}");
        }
    });
}
