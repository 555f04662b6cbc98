//! Who sent what: questions to the API server's audit log.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::wait::wait_for;

/// How much the API server writes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLevel {
    /// Nothing: for measurements.
    Off,
    /// Who, what, when, with which answer.
    Metadata,
    /// And what was sent in writes (secrets and tokens excepted).
    Request,
}

impl AuditLevel {
    /// The policy file, unless nothing is written.
    pub(crate) fn policy(self) -> Option<String> {
        let writes = match self {
            Self::Off => return None,
            Self::Metadata => "Metadata",
            Self::Request => "Request",
        };
        // A watch is written down when it starts, everything else when it is answered.
        Some(format!(
            r#"apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/openapi*", "/metrics"]
- level: Metadata
  verbs: ["watch"]
  omitStages: ["RequestReceived", "ResponseComplete"]
- level: Metadata
  verbs: ["get", "list"]
  omitStages: ["RequestReceived"]
- level: Metadata
  omitStages: ["RequestReceived"]
  resources:
  - group: ""
    resources: ["secrets", "serviceaccounts/token", "events"]
  - group: "events.k8s.io"
  - group: "authentication.k8s.io"
- level: {writes}
  omitStages: ["RequestReceived"]
"#
        ))
    }
}

/// One request, as the API server saw it.
#[derive(Debug, Clone)]
pub struct AuditedRequest {
    /// The identity.
    pub user: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// Plural resource (`deployments`); empty for what is not a resource.
    pub resource: String,
    /// Subresource (`scale`); empty for none.
    pub subresource: String,
    /// Namespace; empty for none.
    pub namespace: String,
    /// Name; empty for lists.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// Roles forbade it. (A webhook that denies a request answers 403, too.)
    pub forbidden: bool,
    /// Path and query.
    pub uri: String,
    /// The client's own name.
    pub user_agent: String,
    /// The parameter `fieldManager`.
    pub field_manager: Option<String>,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// The body of a write, at level `Request`.
    pub body: Option<Value>,
    /// When it arrived.
    pub received: Timestamp,
    /// When it was answered (a watch: when it started).
    pub answered: Timestamp,
}

impl AuditedRequest {
    /// The doctor looks for registrations of dev mode, which are anybody's; without the right it says so and goes on.
    pub fn searches_for_dev_mode(&self) -> bool {
        self.verb == "list" && self.resource.ends_with("webhookconfigurations") && self.uri.contains("labelSelector=")
    }

    /// Whether it asks for a change.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    /// In one line, for messages: `patch deployments/scale shop/web 200`.
    pub fn line(&self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let Self {
            verb,
            resource,
            subresource,
            namespace,
            name,
            code,
            ..
        } = self;
        let what = if resource.is_empty() { &self.uri } else { resource };
        format!("{verb} {what}{slash}{subresource} {namespace}/{name} {code}")
    }
}

/// Its file in the control plane's folder.
pub(crate) const AUDIT_LOG: &str = "audit.log";

/// The group of identities that stand in for the product's account: what roles forbid them is a fault of the roles.
pub const PRODUCT_GROUP: &str = "offhours-product";

/// The product's own accounts.
const PRODUCT_ACCOUNTS: &str = "system:serviceaccount:offhours-system:offhours";

/// Requests of the product, from a place in an audit log on, that roles forbade.
pub(crate) fn forbidden(path: &std::path::Path, from: u64) -> Vec<String> {
    let (Ok(mut file), mut found) = (File::open(path), Vec::new()) else {
        return Vec::new();
    };
    if file.seek(SeekFrom::Start(from)).is_err() {
        return found;
    }
    // Where nothing is forbidden, nothing is parsed.
    for line in BufReader::with_capacity(1 << 20, file).lines().map_while(Result::ok) {
        if !line.contains(r#""authorization.k8s.io/decision":"forbid""#) {
            continue;
        }
        let Ok(event) = serde_json::from_str::<Event>(&line) else {
            continue;
        };
        let request = AuditedRequest::from(event);
        let is_product =
            request.user.starts_with(PRODUCT_ACCOUNTS) || request.groups.iter().any(|group| group == PRODUCT_GROUP);
        if is_product && !request.searches_for_dev_mode() {
            found.push(format!("{}: {}", request.user, request.line()));
        }
    }
    found
}

/// A place in the audit log: "from here on".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// The audit log of a control plane; see [`ControlPlane::audit`](crate::ControlPlane::audit).
#[derive(Debug, Clone)]
pub struct AuditLog {
    pub(crate) path: PathBuf,
    pub(crate) admin: kube::Config,
}

/// A question to the audit log. Without conditions: every request.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct AuditQuery {
    since: u64,
    user: Option<String>,
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    only_writes: bool,
    with_dry_runs: bool,
}

impl AuditQuery {
    /// Every request of the run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only what came after a mark.
    pub fn since(mut self, mark: Mark) -> Self {
        self.since = mark.0;
        self
    }

    /// Only of this user (`system:serviceaccount:offhours:scheduler`).
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Only with this verb.
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Only for this plural resource, subresources included.
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Only for this subresource; `""`: only for the resource itself.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Only in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only for this object.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only what asks for a change.
    pub fn writes(mut self) -> Self {
        self.only_writes = true;
        self
    }

    /// Dry runs too, which are left out otherwise.
    pub fn with_dry_runs(mut self) -> Self {
        self.with_dry_runs = true;
        self
    }

    fn accepts(&self, request: &AuditedRequest) -> bool {
        let fits = |wanted: &Option<String>, present: &str| wanted.as_deref().is_none_or(|wanted| wanted == present);
        fits(&self.user, &request.user)
            && fits(&self.verb, &request.verb)
            && fits(&self.resource, &request.resource)
            && fits(&self.subresource, &request.subresource)
            && fits(&self.namespace, &request.namespace)
            && fits(&self.name, &request.name)
            && (!self.only_writes || request.is_write())
            && (self.with_dry_runs || !request.dry_run)
    }
}

impl AuditLog {
    /// The file: one JSON event per line.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The present end of the log: a test takes it before what it wants to count.
    pub async fn mark(&self) -> anyhow::Result<Mark> {
        Ok(Mark(self.barrier(0).await?))
    }

    /// Requests that fit, in the order of their answers. What was answered before this call is in it.
    pub async fn requests(&self, query: &AuditQuery) -> anyhow::Result<Vec<AuditedRequest>> {
        let end = self.barrier(query.since).await?;
        let found = self.read(query.since, Some(end))?.0;
        Ok(found.into_iter().filter(|request| query.accepts(request)).collect())
    }

    /// Sends a request that can be told from all others and waits until it is in the log, so that all before it are.
    /// Returns the place behind it.
    async fn barrier(&self, from: u64) -> anyhow::Result<u64> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let uri = format!("/version?barrier={}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let client = kube::Client::try_from(self.admin.clone()).context("failed to make a client for the audit log")?;
        let request = http::Request::get(uri.clone()).body(Vec::new())?;
        client
            .request_text(request)
            .await
            .context("failed to send the audit log's barrier")?;
        let position = std::sync::atomic::AtomicU64::new(from);
        wait_for(
            "a request to appear in the audit log",
            Duration::from_secs(20),
            || async {
                let (requests, end) = self.read(position.load(Ordering::Relaxed), None)?;
                position.store(end, Ordering::Relaxed);
                if requests.iter().any(|request| request.uri == uri) {
                    return Ok(end);
                }
                bail!("{} has no {uri} yet", self.path.display())
            },
        )
        .await
    }

    /// The whole lines from a place on, and the place behind the last of them.
    fn read(&self, from: u64, to: Option<u64>) -> anyhow::Result<(Vec<AuditedRequest>, u64)> {
        let mut file = File::open(&self.path)
            .with_context(|| format!("failed to open the audit log {} (is auditing on?)", self.path.display()))?;
        file.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut found, mut place, mut line) = (Vec::new(), from, Vec::new());
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)? as u64;
            // A line without its end is still being written.
            if length == 0 || line.last() != Some(&b'\n') || to.is_some_and(|to| place >= to) {
                return Ok((found, place));
            }
            place += length;
            let event: Event = serde_json::from_slice(&line)
                .with_context(|| format!("failed to read a line of {} before byte {place}", self.path.display()))?;
            found.push(event.into());
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    user: User,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_object: Option<Value>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Event> for AuditedRequest {
    fn from(event: Event) -> Self {
        let query = event.request_uri.split_once('?').map_or("", |(_, query)| query);
        let parameter = |name: &str| {
            query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let field_manager = parameter("fieldManager").map(ToOwned::to_owned);
        let dry_run = parameter("dryRun").is_some();
        Self {
            user: event.user.username,
            groups: event.user.groups,
            verb: event.verb,
            group: event.object_ref.api_group,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            code: event.response_status.code,
            forbidden: event
                .annotations
                .get("authorization.k8s.io/decision")
                .is_some_and(|decision| decision == "forbid"),
            uri: event.request_uri,
            user_agent: event.user_agent,
            field_manager,
            dry_run,
            body: event.request_object,
            received: event.request_received_timestamp,
            answered: event.stage_timestamp,
        }
    }
}
