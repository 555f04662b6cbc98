//! Writes a number that was asked for through `/scale` to the parent's record, before the request is answered. Client required.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use shared::kinds::{Kind, Kinds};
use shared::patch::Preconditions;
use shared::workload::{FIELD_MANAGER, Workload};
use thiserror::Error;

use crate::service::{Remember, is_down, remember_edits};
use crate::state::Sight;

/// How long all of it may take.
pub const LIMIT: Duration = Duration::from_secs(1);

/// Why a number could not be remembered.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RememberError {
    /// A call failed.
    #[error("failed to {verb} the parent: {why}")]
    CallParent {
        /// What was tried.
        verb: &'static str,
        /// What came back.
        why: String,
    },
    /// The parent changed with every try.
    #[error("the parent changed while its record was written")]
    LoseRace,
    /// It is another object by now.
    #[error("the parent was deleted and created again")]
    ReplacedParent,
    /// It is up by now: the number that was asked for is not held any more.
    #[error("the parent is up by now")]
    FindParentUp,
    /// It took too long.
    #[error("no answer within {LIMIT:?}")]
    TimedOut,
}

/// Calls on a parent: the API server, or a test.
pub trait Parents: Send + Sync + 'static {
    /// Sends a JSON patch. `Err(Some(_))`: a precondition failed.
    fn patch(&self, parent: &Workload, body: Vec<u8>) -> Pin<Box<dyn Future<Output = Answered> + Send + '_>>;
    /// Reads it.
    fn get(&self, parent: &Workload) -> Pin<Box<dyn Future<Output = Answered> + Send + '_>>;
}

/// The body of an answer, or why there is none.
pub type Answered = Result<Vec<u8>, Failed>;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The object is not as the patch expects.
    Precondition,
    /// Anything else.
    Call(String),
}

/// The API server.
pub struct ApiServer(pub Client);

fn url(kind: &Kind, namespace: &str, name: &str) -> String {
    let root = if kind.group.is_empty() { "/api" } else { "/apis" };
    format!(
        "{root}/{}/namespaces/{namespace}/{}/{name}",
        kind.api_version(),
        kind.plural
    )
}

impl ApiServer {
    async fn send(&self, request: Result<Request<Body>, http::Error>) -> Answered {
        let request = request.map_err(|error| Failed::Call(error.to_string()))?;
        match cluster::call::call(&self.0, request, LIMIT).await {
            Ok(bytes) => Ok(bytes.to_vec()),
            // A failed test of a JSON patch is a 422.
            Err(error) if matches!(error.code(), Some(409 | 422)) => Err(Failed::Precondition),
            Err(error) => Err(Failed::Call(error.to_string())),
        }
    }
}

impl Parents for ApiServer {
    fn patch(&self, parent: &Workload, body: Vec<u8>) -> Pin<Box<dyn Future<Output = Answered> + Send + '_>> {
        let url = url(&parent.kind, &parent.namespace, &parent.name);
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{url}?fieldManager={FIELD_MANAGER}"))
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(Body::from(body));
        Box::pin(self.send(request))
    }

    fn get(&self, parent: &Workload) -> Pin<Box<dyn Future<Output = Answered> + Send + '_>> {
        let request = Request::builder()
            .uri(url(&parent.kind, &parent.namespace, &parent.name))
            .body(Body::empty());
        Box::pin(self.send(request))
    }
}

/// Writes the record. `Ok(true)`: written; `Ok(false)`: it was there already.
pub async fn remember(parents: &dyn Parents, sight: &dyn Sight, what: &Remember) -> Result<bool, RememberError> {
    tokio::time::timeout(LIMIT, write(parents, sight, what))
        .await
        .unwrap_or(Err(RememberError::TimedOut))
}

async fn write(parents: &dyn Parents, sight: &dyn Sight, what: &Remember) -> Result<bool, RememberError> {
    let failed = |verb: &'static str| {
        move |failed: Failed| match failed {
            Failed::Precondition => RememberError::LoseRace,
            Failed::Call(why) => RememberError::CallParent { verb, why },
        }
    };
    let mut parent = Arc::clone(&what.parent);
    // The view may be older than the object: then it is read, once or twice.
    let mut look = !is_down(&parent, what.down);
    for _ in 0..3 {
        if look {
            let bytes = parents.get(&parent).await.map_err(failed("read"))?;
            let fresh = read(sight.kinds(), &parent.kind, &bytes)?;
            if fresh.uid != parent.uid {
                return Err(RememberError::ReplacedParent);
            }
            if !is_down(&fresh, what.down) {
                return Err(RememberError::FindParentUp);
            }
            sight.absorb(&parent.kind, &parent.namespace, &parent.name, &bytes);
            parent = Arc::new(fresh);
        }
        let edits = remember_edits(&parent, what.asked, what.down, what.now);
        if edits.is_empty() {
            return Ok(false);
        }
        let patch = edits.patch(&parent, Preconditions::State);
        let body = serde_json::to_vec(&patch).map_err(|error| RememberError::CallParent {
            verb: "write",
            why: error.to_string(),
        })?;
        match parents.patch(&parent, body).await {
            Ok(answer) => {
                sight.absorb(&parent.kind, &parent.namespace, &parent.name, &answer);
                return Ok(true);
            }
            Err(Failed::Precondition) => look = true,
            Err(other) => return Err(failed("patch")(other)),
        }
    }
    Err(RememberError::LoseRace)
}

fn read(kinds: &Kinds, kind: &Arc<Kind>, bytes: &[u8]) -> Result<Workload, RememberError> {
    shared::workload::parse(kinds, kind, bytes).map_err(|error| RememberError::CallParent {
        verb: "read",
        why: error.to_string(),
    })
}
