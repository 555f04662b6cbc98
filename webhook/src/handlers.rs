//! HTTP: bodies in, bodies out; what waits (a question, a write) and what must not fail (panics, deadlines) is handled here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{self, DefaultBodyLimit, FromRequest as _, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode, header};
use shared::clock::Clock;
use shared::messages::{self, Deed, Subject};
use shared::rules::{MUTATE_PATH, VALIDATE_PATH};
use shared::workload::ObjectRef;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::aside::Aside;
use crate::authorize::{Authorizer, Question};
use crate::counter::HeldCounter;
use crate::remember::{self, Parents};
use crate::review::{self, DecodeReview, Request};
use crate::service::{self, Authority, Bench, Outcome, Phase, Ruling, Tell};
use crate::state::{Policy, Sight};

/// Longest body: two objects of 3 MiB and what is around them.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// Bodies that may be in memory at a time, together: more than sixteen of the longest wait for room. A pod of the chart's size
/// has some left.
const BODIES: usize = 16 * BODY_LIMIT;

/// The unit in which room for bodies is counted.
const KIBI: usize = 1024;

/// One ruling, for metrics and logs.
#[derive(Debug, Clone, Copy)]
pub struct Ruled<'r> {
    /// Which endpoint.
    pub phase: Phase,
    /// What it came to.
    pub outcome: Outcome,
    /// Resource and subresource.
    pub resource: &'r str,
    /// See `resource`.
    pub subresource: &'r str,
    /// Namespace of the object; not for labels of metrics, which are bounded.
    pub namespace: &'r str,
    /// Nothing was to be written.
    pub dry_run: bool,
    /// How long the answer took.
    pub took: Duration,
}

/// Where the webhook tells what happened. Must not wait.
pub trait Listener: Send + Sync + 'static {
    /// A request was ruled on.
    fn ruled(&self, _ruled: &Ruled<'_>) {}
    /// An Event on an object. Never for dry runs.
    fn tell(&self, _tell: Tell) {}
    /// A workload is held again and again; `schedule` is the schedule of the cluster that holds it, where there is one.
    fn fought_over(&self, _workload: &ObjectRef, _schedule: Option<Arc<str>>, _message: &str) {}
    /// A request was turned away because too many were being served.
    fn shed(&self) {}
    /// The service panicked, which is a fault of ours; the request was treated as one that cannot be judged.
    fn panicked(&self) {}
}

/// A listener that hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deaf;

impl Listener for Deaf {}

/// What all requests share.
pub struct App {
    /// The view.
    pub sight: Arc<dyn Sight>,
    /// What the installation says.
    pub policy: Policy,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Who answers for the verb `override`; `None`: nobody has it.
    pub authorizer: Option<Authorizer>,
    /// Who writes to parents; `None`: nothing is remembered.
    pub parents: Option<Arc<dyn Parents>>,
    /// Who hears what happened.
    pub listener: Arc<dyn Listener>,
    /// How often each workload was held.
    pub counter: HeldCounter,
    /// Whether somebody else serves this cluster at the moment.
    pub aside: Aside,
    /// The deadline of one request; below the timeout that the API server has for us.
    pub deadline: Duration,
    /// Requests that may be served at a time.
    pub slots: Semaphore,
    /// Room for their bodies, in KiB.
    pub room: Semaphore,
}

impl App {
    /// One with the usual limits, that asks and writes nothing.
    pub fn new(sight: Arc<dyn Sight>, policy: Policy, clock: Arc<dyn Clock>) -> Self {
        Self {
            sight,
            policy,
            clock,
            authorizer: None,
            parents: None,
            listener: Arc::new(Deaf),
            counter: HeldCounter::default(),
            aside: Aside::default(),
            deadline: Duration::from_millis(2500),
            slots: Semaphore::new(1024),
            room: Semaphore::new(BODIES / KIBI),
        }
    }
}

/// The two endpoints.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(MUTATE_PATH, post(mutate))
        .route(VALIDATE_PATH, post(validate))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(app)
}

async fn mutate(State(app): State<Arc<App>>, request: extract::Request) -> Response {
    serve(&app, Phase::Mutate, request).await
}

async fn validate(State(app): State<Arc<App>>, request: extract::Request) -> Response {
    serve(&app, Phase::Validate, request).await
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(';').next().map(str::trim) == Some("application/json"))
}

/// Reads a body once there is room for all of it, so that no number of requests takes more memory than that. What does not say how
/// long it is, is as long as it may be.
async fn read(
    app: &App,
    request: extract::Request,
) -> Result<(SemaphorePermit<'_>, Bytes), (StatusCode, &'static str)> {
    let told = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let length = told.unwrap_or(BODY_LIMIT);
    if length > BODY_LIMIT {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"));
    }
    let kibi = u32::try_from(length.div_ceil(KIBI)).unwrap_or(u32::MAX);
    let Ok(room) = app.room.acquire_many(kibi).await else {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the server is closing"));
    };
    match Bytes::from_request(request, &()).await {
        Ok(body) => Ok((room, body)),
        Err(refused) => Err((refused.status(), "the body is too long, or was cut off")),
    }
}

async fn serve(app: &App, phase: Phase, request: extract::Request) -> Response {
    if !is_json(request.headers()) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json").into_response();
    }
    let too_many = || {
        app.listener.shed();
        (StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time").into_response()
    };
    // Before the body is read: what is turned away takes no memory.
    let Ok(_slot) = app.slots.try_acquire() else {
        return too_many();
    };
    let began = Instant::now();
    let deadline = began + app.deadline;
    let (_room, body) = match tokio::time::timeout_at(deadline, read(app, request)).await {
        Ok(Ok(read)) => read,
        Ok(Err(refused)) => return refused.into_response(),
        Err(_) => return too_many(),
    };
    let request = match review::decode(&body) {
        Ok(request) => request,
        Err(error @ DecodeReview::NoReview(_)) => {
            return (StatusCode::BAD_REQUEST, messages::line(&error.to_string())).into_response();
        }
        Err(DecodeReview::Unreadable { uid, why }) => {
            let ruling = service::unreadable(&app.policy, &why);
            report(app, phase, &Request::default(), &ruling, began);
            return reply(&uid, &ruling);
        }
    };
    let ruling = match tokio::time::timeout_at(deadline, judge(app, phase, &request)).await {
        Ok(ruling) => ruling,
        Err(_) => service::unreadable(&app.policy, "it took too long"),
    };
    report(app, phase, &request, &ruling, began);
    reply(&request.uid, &ruling)
}

fn report(app: &App, phase: Phase, request: &Request<'_>, ruling: &Ruling, began: Instant) {
    app.listener.ruled(&Ruled {
        phase,
        outcome: ruling.outcome,
        resource: &request.resource.resource,
        subresource: &request.sub_resource,
        namespace: &request.namespace,
        dry_run: request.is_dry_run(),
        took: began.elapsed(),
    });
    if !matches!(ruling.outcome, Outcome::Passed | Outcome::StoodAside | Outcome::Probed) {
        tracing::info!(
            uid = &*request.uid,
            resource = &*request.resource.resource,
            subresource = &*request.sub_resource,
            namespace = &*request.namespace,
            name = &*request.name,
            operation = &*request.operation,
            user = &*request.user_info.username,
            phase = ?phase,
            outcome = ruling.outcome.label(),
            "request ruled on"
        );
    }
}

fn reply(uid: &str, ruling: &Ruling) -> Response {
    let body = review::encode(uid, &ruling.answer);
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn judge(app: &App, phase: Phase, request: &Request<'_>) -> Ruling {
    if app.aside.stands() && !service::is_probe(request, phase) {
        return Ruling::stood_aside();
    }
    let mut ruling = rule(app, phase, request, &Authority::NotAsked);
    if let Some(ask) = &ruling.ask {
        let authority = match &app.authorizer {
            Some(authorizer) => authorizer.ask(Question::new(&request.user_info, &ask.schedule)).await,
            None => Authority::Refused("the webhook cannot ask".to_owned()),
        };
        ruling = rule(app, phase, request, &authority);
    }
    if request.is_dry_run() {
        return ruling;
    }
    remember(app, request, &mut ruling).await;
    for tell in ruling.tell.drain(..) {
        app.listener.tell(tell);
    }
    if let Some(held) = &ruling.held
        && let Some(times) = app.counter.held(&held.workload, app.clock.now())
    {
        let workload = &held.workload;
        let subject = Subject {
            word: workload.kind.to_ascii_lowercase().into(),
            kubectl: workload.kind.to_ascii_lowercase().into(),
            namespace: (&*workload.namespace).into(),
            name: (&*workload.name).into(),
        };
        let message = messages::held_repeatedly(&subject, times);
        app.listener.fought_over(workload, held.schedule.clone(), &message);
    }
    ruling
}

/// A ruling; a panic in it is one that cannot be judged.
fn rule(app: &App, phase: Phase, request: &Request<'_>, authority: &Authority) -> Ruling {
    let schedules = app.sight.schedules();
    let bench = Bench {
        sight: &*app.sight,
        schedules: &schedules,
        policy: &app.policy,
        phase,
        authority,
        now: app.clock.now(),
    };
    catch_unwind(AssertUnwindSafe(|| service::rule(request, &bench))).unwrap_or_else(|_| {
        app.listener.panicked();
        service::unreadable(&app.policy, "an error inside offhours")
    })
}

async fn remember(app: &App, request: &Request<'_>, ruling: &mut Ruling) {
    let Some(what) = &ruling.remember else { return };
    let result = match &app.parents {
        Some(parents) => remember::remember(&**parents, &*app.sight, what).await,
        None => Err(remember::RememberError::CallParent {
            verb: "patch",
            why: "there is no client".to_owned(),
        }),
    };
    match result {
        Ok(true) => {
            let message = messages::told(&request.user_info.username, Deed::Asked(what.asked));
            ruling.tell.push(Tell {
                object: what.parent.object_ref(),
                uid: Arc::clone(&what.parent.uid),
                reason: "Remembered",
                message,
            });
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(workload = %what.parent.object_ref(), asked = what.asked, %error, "number not remembered");
            for warning in &mut ruling.answer.warnings {
                if *warning == what.warning {
                    warning.clone_from(&what.failed);
                }
            }
        }
    }
}
