//! A proxy between the product and the API server that makes what a real one cannot be made to: a death, a refusal, a cut or a
//! stall exactly at the n-th write; and an API server that is away.
//!
//! It forwards with an identity of its own, so the product is the one that the audit log shows, and speaks plain HTTP to it.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::{
        ConnectInfo, Request, State,
        connect_info::{Connected, IntoMakeServiceWithConnectInfo},
    },
    response::Response,
    serve::IncomingStream,
};
use http::{Method, StatusCode, header};
use kube::Client;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use crate::{control_plane::ControlPlane, identity::Identity};

/// The largest body that the product sends.
const LARGEST_BODY: usize = 16 << 20;
/// How many writes are remembered for messages.
const REMEMBERED: usize = 200;

/// What happens to the n-th write. Those that end with `After` have been carried out by the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// From now on nothing of this process is heard: the test kills it ([`Proxy::struck`]).
    DeathBefore,
    /// The same after the write.
    DeathAfter,
    /// 409.
    Conflict,
    /// 429 with `Retry-After: 1`.
    TooManyRequests,
    /// 500.
    ServerError,
    /// 500, as of an API server whose etcd was too slow to answer.
    ServerErrorAfter,
    /// The connection ends.
    CutBefore,
    /// The connection ends instead of an answer.
    CutAfter,
    /// No answer, for as long as the product waits.
    StallBefore,
    /// No answer, for as long as the product waits.
    StallAfter,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::DeathBefore,
        Self::DeathAfter,
        Self::Conflict,
        Self::TooManyRequests,
        Self::ServerError,
        Self::ServerErrorAfter,
        Self::CutBefore,
        Self::CutAfter,
        Self::StallBefore,
        Self::StallAfter,
    ];

    /// Whether the process must be killed and started anew.
    pub fn is_death(self) -> bool {
        matches!(self, Self::DeathBefore | Self::DeathAfter)
    }

    fn is_after(self) -> bool {
        matches!(
            self,
            Self::DeathAfter | Self::ServerErrorAfter | Self::CutAfter | Self::StallAfter
        )
    }
}

/// A write that came through.
#[derive(Debug, Clone)]
pub struct Write {
    /// When it came.
    pub at: Instant,
    /// `PATCH /apis/…`
    pub line: String,
    /// What was done to it.
    pub fault: Option<Fault>,
}

#[derive(Default)]
struct Inner {
    armed: Option<(Fault, usize)>,
    /// What was armed has come, though it may not have happened yet.
    met: bool,
    /// Writes since it was armed.
    writes: usize,
    dead: bool,
    log: VecDeque<Write>,
}

struct Shared {
    client: Client,
    inner: Mutex<Inner>,
    strikes: watch::Sender<u64>,
    away: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self, death: bool) {
        self.inner().dead |= death;
        self.strikes.send_modify(|strikes| *strikes += 1);
    }
}

/// The proxy. Dropping it ends it, with all connections. It lives in the runtime in which it was started.
pub struct Proxy {
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Serves on a free port of 127.0.0.1 and forwards as `who`.
    pub async fn start(plane: &ControlPlane, who: &Identity) -> anyhow::Result<Self> {
        let mut config = plane.config(who).await?;
        // What the product is told must be what the API server said.
        config.default_retry = false;
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("failed to find a port for the proxy")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            client: Client::try_from(config)?,
            inner: Mutex::default(),
            strikes: watch::Sender::new(0),
            away: Arc::default(),
            calls: Arc::default(),
        });
        let lines = Lines {
            listener,
            away: Arc::clone(&shared.away),
            calls: Arc::clone(&shared.calls),
        };
        let service: IntoMakeServiceWithConnectInfo<Router, Line> = Router::new()
            .fallback(pass)
            .with_state(Arc::clone(&shared))
            .into_make_service_with_connect_info();
        let task = tokio::spawn(async move {
            // It ends only by being aborted.
            let _ = axum::serve(lines, service).await;
        });
        Ok(Self {
            shared,
            kubeconfig: plane.kubeconfig_at(&format!("http://127.0.0.1:{port}"))?,
            task,
        })
    }

    /// The kubeconfig that leads here.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Lets this happen to the `nth` write from now on (1 is the next). Leases and Events do not count: they come by the clock
    /// and carry nothing that can be lost.
    pub fn arm(&self, fault: Fault, nth: usize) {
        let mut inner = self.shared.inner();
        inner.armed = Some((fault, nth));
        inner.met = false;
        inner.writes = 0;
    }

    /// Whether the write for which [`Self::arm`] waits has come. What happens to it is told by [`Self::strikes`].
    pub fn is_met(&self) -> bool {
        self.shared.inner().met
    }

    /// Lets nothing happen any more. How many writes came since [`Self::arm`], or since the last call.
    pub fn disarm(&self) -> usize {
        let mut inner = self.shared.inner();
        inner.armed = None;
        inner.met = false;
        std::mem::take(&mut inner.writes)
    }

    /// How often something happened so far; changes are told.
    pub fn strikes(&self) -> watch::Receiver<u64> {
        self.shared.strikes.subscribe()
    }

    /// Hears a new process, after a death.
    pub fn revive(&self) {
        self.shared.inner().dead = false;
    }

    /// Whether connections are refused and broken off, as by an API server that is away.
    pub fn set_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::SeqCst);
    }

    /// Requests, and connections that were refused, so far.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// The last writes.
    pub fn log(&self) -> Vec<Write> {
        self.shared.inner().log.iter().cloned().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.away.store(true, Ordering::SeqCst);
    }
}

/// Whether something can be lost by it.
fn is_write(request: &Request) -> bool {
    let path = request.uri().path();
    !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && !["/leases", "/events", "reviews"].iter().any(|part| path.contains(part))
}

enum Fate {
    Pass,
    Silence,
    Strike(Fault),
}

fn fate(shared: &Shared, request: &Request) -> Fate {
    shared.calls.fetch_add(1, Ordering::SeqCst);
    let mut inner = shared.inner();
    if inner.dead {
        return Fate::Silence;
    }
    if !is_write(request) {
        return Fate::Pass;
    }
    inner.writes += 1;
    let fault = inner
        .armed
        .filter(|(_, nth)| *nth == inner.writes)
        .map(|(fault, _)| fault);
    if inner.log.len() >= REMEMBERED {
        inner.log.pop_front();
    }
    inner.log.push_back(Write {
        at: Instant::now(),
        line: format!("{} {}", request.method(), request.uri().path()),
        fault,
    });
    match fault {
        Some(fault) => {
            inner.armed = None;
            inner.met = true;
            // Nothing that comes after it may pass.
            inner.dead = fault == Fault::DeathBefore;
            Fate::Strike(fault)
        }
        None => Fate::Pass,
    }
}

async fn pass(State(shared): State<Arc<Shared>>, ConnectInfo(line): ConnectInfo<Line>, request: Request) -> Response {
    let fault = match fate(&shared, &request) {
        Fate::Pass => {
            return forward(&shared.client, request).await.unwrap_or_else(|error| {
                line.cut();
                status(StatusCode::BAD_GATEWAY, "BadGateway", &format!("{error:#}"))
            });
        }
        Fate::Silence => return std::future::pending().await,
        Fate::Strike(fault) => fault,
    };
    // In a task of its own: a product that hangs up meanwhile must not undo it.
    let happening = Arc::clone(&shared);
    let happened = tokio::spawn(async move {
        if fault.is_after() {
            carry_out(&happening.client, request).await;
        }
        happening.strike(fault.is_death());
    });
    let _ = happened.await;
    match fault {
        Fault::DeathBefore | Fault::DeathAfter | Fault::StallBefore | Fault::StallAfter => std::future::pending().await,
        Fault::Conflict => status(StatusCode::CONFLICT, "Conflict", "the object has been modified"),
        Fault::TooManyRequests => status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many requests"),
        Fault::ServerError | Fault::ServerErrorAfter => status(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "etcdserver: request timed out",
        ),
        Fault::CutBefore | Fault::CutAfter => {
            line.cut();
            status(StatusCode::BAD_GATEWAY, "BadGateway", "never seen")
        }
    }
}

/// Forwards, and reads the answer that nobody gets.
async fn carry_out(client: &Client, request: Request) {
    if let Ok(answer) = forward(client, request).await {
        let _ = axum::body::to_bytes(answer.into_body(), LARGEST_BODY).await;
    }
}

async fn forward(client: &Client, request: Request) -> anyhow::Result<Response> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LARGEST_BODY).await?;
    let place = head.uri.path_and_query().map_or("/", |place| place.as_str()).to_owned();
    let mut onward = http::Request::builder().method(head.method).uri(place);
    for name in [
        header::CONTENT_TYPE,
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::USER_AGENT,
    ] {
        if let Some(value) = head.headers.get(&name) {
            onward = onward.header(name, value);
        }
    }
    let answer = client
        .send(onward.body(kube::client::Body::from(body.to_vec()))?)
        .await?;
    let (mut head, body) = answer.into_parts();
    // These are of the connection to the API server.
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Body::new(body)))
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(),
        "reason": reason, "message": message});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    if code == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

/// One connection, for whoever wants to cut it.
#[derive(Debug, Clone)]
struct Line(Arc<AtomicBool>);

impl Line {
    fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Connected<IncomingStream<'_, Lines>> for Line {
    fn connect_info(stream: IncomingStream<'_, Lines>) -> Self {
        stream.remote_addr().clone()
    }
}

struct Lines {
    listener: TcpListener,
    away: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

impl axum::serve::Listener for Lines {
    type Io = Wire;
    type Addr = Line;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, _) = axum::serve::Listener::accept(&mut self.listener).await;
            if self.away.load(Ordering::SeqCst) {
                // Closed at once, as by a port without a server.
                self.calls.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            // Small answers must not wait for more.
            let _ = stream.set_nodelay(true);
            let line = Line(Arc::default());
            let wire = Wire {
                stream,
                line: line.clone(),
                away: Arc::clone(&self.away),
            };
            return (wire, line);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Line(Arc::default()))
    }
}

/// A connection that can be cut.
struct Wire {
    stream: TcpStream,
    line: Line,
    away: Arc<AtomicBool>,
}

impl Wire {
    fn check(&self) -> io::Result<()> {
        if self.line.0.load(Ordering::SeqCst) || self.away.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
