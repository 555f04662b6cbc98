//! Keeps one store like the cluster: list, watch, and whatever may go wrong with them. Client required.
//!
//! Written here and not taken from kube-runtime, whose watcher parses every object whole into a type that is known when
//! it is compiled; ours skips all but the fields of the knob table while it reads.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use http::{Request, header::ACCEPT};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::Value;
use shared::prune::Keep;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::{
    call::{CallError, call, connection, open, refusal},
    gate::{Gate, Passage},
    store::{Facts, Store, Trouble},
    wire::{WatchLine, parse_line, parse_list, resource_version},
};

/// A watch on an expired version starts with 200 and an error line: one that is quiet for so long is none of those.
const PROOF: Duration = Duration::from_secs(2);

/// Longest pause while our credentials are refused.
const UNAUTHORIZED_PAUSE: Duration = Duration::from_secs(5);

/// How fast reflectors go and how long they wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// Objects per page of a list.
    pub page_size: u32,
    /// Longest time for one page, and for the head of a watch's answer.
    pub call_timeout: Duration,
    /// How long we let the API server keep one watch open.
    pub watch_time: Duration,
    /// A watch without any byte for so long (bookmarks come about every minute) is taken for dead.
    pub silence: Duration,
    /// First pause after a failure; doubled at each further one.
    pub first_pause: Duration,
    /// Longest pause after failures.
    pub longest_pause: Duration,
    /// Pause after a refusal that lasts: 403, or 404 where the kind should exist.
    pub refused_pause: Duration,
    /// The same complaint is logged once in this time.
    pub complain_every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            page_size: 500,
            call_timeout: Duration::from_secs(30),
            watch_time: Duration::from_secs(270),
            silence: Duration::from_secs(150),
            first_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(30),
            refused_pause: Duration::from_secs(30),
            complain_every: Duration::from_secs(120),
        }
    }
}

/// What to list and watch.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group, `""` for the core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource name in URLs.
    pub plural: String,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only names, labels and annotations are asked for (`PartialObjectMetadata`).
    pub metadata_only: bool,
    /// Only objects with these labels: a selector such as `app=web`.
    pub labels: Option<String>,
}

impl Resource {
    fn path(&self) -> String {
        let root = if self.group.is_empty() {
            "/api".to_owned()
        } else {
            format!("/apis/{}", self.group)
        };
        let place = self
            .namespace
            .as_ref()
            .map(|namespace| format!("/namespaces/{namespace}"))
            .unwrap_or_default();
        format!("{root}/{}{place}/{}", self.version, self.plural)
    }

    /// For people: `deployments.apps`, and where.
    fn description(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let place = self
            .namespace
            .as_ref()
            .map(|namespace| format!(" in namespace {namespace}"))
            .unwrap_or_default();
        format!("{}{dot}{}{place}", self.plural, self.group)
    }
}

/// Reads facts from a pruned object.
pub type ReadFacts<T> = Arc<dyn Fn(&Value) -> Result<T, String> + Send + Sync>;

/// Makes a client that has read its credentials anew; `None` where that fails.
pub(crate) type RenewClient = Arc<dyn Fn() -> Option<Client> + Send + Sync>;

/// Lists and watches one resource for one store.
pub(crate) struct Reflector<T> {
    pub client: Client,
    /// Makes a client that has read its credentials anew.
    pub renew: Option<RenewClient>,
    pub resource: Resource,
    pub keep: Arc<Keep>,
    pub read: ReadFacts<T>,
    pub store: Arc<Store<T>>,
    pub gate: Gate,
    pub pace: Pace,
    pub part: usize,
    /// Number of the present list.
    pub list: u64,
    pub complained: Option<(Option<u16>, Instant)>,
    pub unreadable: Option<Instant>,
}

/// Why a list or a watch ended.
#[derive(Debug)]
enum Stop {
    /// The history that we need is gone: list again.
    Expired,
    Failed(&'static str, CallError),
}

impl<T: Facts> Reflector<T> {
    /// Runs until it is dropped.
    pub async fn run(mut self) {
        loop {
            let passage = self.gate.until(|passage| passage != Passage::Unknown).await;
            if passage == Passage::Closed {
                self.set_absent();
                self.gate.until(|passage| passage != Passage::Closed).await;
                continue;
            }
            let gate = self.gate.clone();
            tokio::select! {
                () = self.follow() => {}
                _ = gate.until(|passage| passage == Passage::Closed) => {
                    info!(resource = %self.resource.description(), "the kind is gone from the cluster");
                }
            }
        }
    }

    async fn follow(&mut self) {
        let mut from: Option<String> = None;
        let mut failures: u32 = 0;
        let mut expired: u32 = 0;
        loop {
            let began = Instant::now();
            let mut progress = false;
            let outcome = match &from {
                // A list whose history is always gone before its last page is read: ask for all at once.
                None => self.list_all(expired < 2).await.map(|version| from = Some(version)),
                Some(version) => {
                    let mut version = version.clone();
                    let outcome = self.watch(&mut version, &mut progress).await;
                    from = Some(version);
                    outcome
                }
            };
            let watched = progress || (from.is_some() && began.elapsed() >= Duration::from_secs(5));
            if watched {
                failures = 0;
                expired = 0;
            }
            match outcome {
                // A watch that ends at once and says nothing must not become a hot loop.
                Ok(()) if watched || began.elapsed() >= self.pace.first_pause => {}
                Ok(()) => {
                    failures = failures.saturating_add(1);
                    if failures > 1 {
                        sleep(self.pause(failures)).await;
                    }
                }
                Err(Stop::Expired) => {
                    debug!(resource = %self.resource.description(), "history is gone, listing again");
                    from = None;
                    expired = expired.saturating_add(1);
                    if expired > 1 {
                        sleep(self.pause(expired)).await;
                    }
                }
                Err(Stop::Failed(verb, error)) => {
                    failures = failures.saturating_add(1);
                    self.fail(verb, &error);
                    // A client reads a token file once a minute; a token that was replaced need not wait for that.
                    if error.code() == Some(401)
                        && let Some(client) = self.renew.as_ref().and_then(|renew| renew())
                    {
                        self.client = client;
                    }
                    let pause = match &error {
                        CallError::Refused { code: 403 | 404, .. } if failures > 1 => jittered(self.pace.refused_pause),
                        CallError::Refused { code: 401, .. } => self.pause(failures).min(UNAUTHORIZED_PAUSE),
                        CallError::Refused {
                            retry_after: Some(wait),
                            ..
                        } => self.pause(failures).max((*wait).min(self.pace.longest_pause)),
                        _ => self.pause(failures),
                    };
                    // A token that may have been replaced, a right that may have been given: both are seen by trying.
                    sleep(pause).await;
                }
            }
        }
    }

    /// Lists to the end and returns from where to watch.
    async fn list_all(&mut self, paged: bool) -> Result<String, Stop> {
        self.list += 1;
        let list = self.list;
        let mut next: Option<String> = None;
        let version = loop {
            let mut uri = self.resource.path();
            if paged {
                uri = format!("{uri}?limit={}", self.pace.page_size);
                if let Some(next) = &next {
                    uri.push_str("&continue=");
                    uri.push_str(&query_escaped(next));
                }
            }
            if let Some(labels) = &self.resource.labels {
                uri.push_str(if paged { "&labelSelector=" } else { "?labelSelector=" });
                uri.push_str(&query_escaped(labels));
            }
            let request = self
                .request(&uri, "PartialObjectMetadataList")
                .map_err(|error| Stop::Failed("list", error))?;
            let body = match call(&self.client, request, self.pace.call_timeout).await {
                Ok(body) => body,
                Err(error) if error.code() == Some(410) => return Err(Stop::Expired),
                Err(error) => return Err(Stop::Failed("list", error)),
            };
            self.store.heard(self.part);
            let (store, read) = (Arc::clone(&self.store), Arc::clone(&self.read));
            let mut unreadable = None;
            let page = parse_list(&body, &self.keep, &mut |object| match read(&object) {
                Ok(facts) => store.apply(facts, list),
                Err(error) => unreadable = Some((name_of(&object), error)),
            });
            if let Some((name, error)) = unreadable {
                self.complain_unreadable(&name, &error);
            }
            let meta = page.map_err(|error| Stop::Failed("list", CallError::Unreadable(error.to_string().into())))?;
            match meta.next {
                Some(more) => next = Some(more),
                None => break meta.resource_version,
            }
            // Parsing a page takes milliseconds; let others run between pages.
            tokio::task::yield_now().await;
        };
        self.store.end_list(list, self.resource.namespace.as_deref(), &version);
        self.well();
        Ok(version)
    }

    /// Watches until the API server ends it; `version` moves on with each event.
    async fn watch(&mut self, version: &mut String, progress: &mut bool) -> Result<(), Stop> {
        let mut uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.resource.path(),
            query_escaped(version),
            jittered(self.pace.watch_time).as_secs().max(1),
        );
        if let Some(labels) = &self.resource.labels {
            uri.push_str("&labelSelector=");
            uri.push_str(&query_escaped(labels));
        }
        let failed = |error| Stop::Failed("watch", error);
        let request = self.request(&uri, "PartialObjectMetadata").map_err(failed)?;
        let limit = self.pace.call_timeout;
        let response = match timeout(limit, open(&self.client, request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.code() == Some(410) => return Err(Stop::Expired),
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => return Err(failed(CallError::TimedOut(limit))),
        };
        let mut body = response.into_body();
        let mut buffer: Vec<u8> = Vec::new();
        let mut first = true;
        loop {
            let limit = if first {
                self.pace.silence.min(PROOF)
            } else {
                self.pace.silence
            };
            let frame = match timeout(limit, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(failed(connection(&error))),
                Ok(None) => return Ok(()),
                Err(_) if first => {
                    self.well();
                    first = false;
                    continue;
                }
                Err(_) => return Err(failed(CallError::TimedOut(self.pace.silence))),
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut rest = data.as_ref();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let (line, after) = rest.split_at(end);
                rest = after.get(1..).unwrap_or_default();
                // Most lines come whole in one frame and need no copy.
                if buffer.is_empty() {
                    self.take_line(line, version)?;
                } else {
                    buffer.extend_from_slice(line);
                    let line = std::mem::take(&mut buffer);
                    self.take_line(&line, version)?;
                }
                *progress = true;
            }
            buffer.extend_from_slice(rest);
            self.store.heard(self.part);
            if first {
                self.well();
                first = false;
            }
        }
    }

    fn take_line(&mut self, line: &[u8], version: &mut String) -> Result<(), Stop> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let parsed = parse_line(line, &self.keep)
            .map_err(|error| Stop::Failed("watch", CallError::Unreadable(error.to_string().into())))?;
        let object = match &parsed {
            Some(WatchLine::Error(status)) => {
                let error = refusal(None, None, status.as_bytes());
                return Err(match error.code() {
                    Some(410) => Stop::Expired,
                    _ => Stop::Failed("watch", error),
                });
            }
            Some(WatchLine::Set(object) | WatchLine::Gone(object) | WatchLine::Bookmark(object)) => object,
            None => return Ok(()),
        };
        match &parsed {
            Some(WatchLine::Set(_)) => match (self.read)(object) {
                Ok(facts) => self.store.apply(facts, 0),
                Err(error) => self.complain_unreadable(&name_of(object), &error),
            },
            Some(WatchLine::Gone(_)) => match (self.read)(object) {
                Ok(facts) => self.store.delete(&facts),
                Err(error) => self.complain_unreadable(&name_of(object), &error),
            },
            _ => {}
        }
        if let Some(seen) = resource_version(object) {
            seen.clone_into(version);
        }
        Ok(())
    }

    fn request(&self, uri: &str, partial: &str) -> Result<Request<Body>, CallError> {
        let mut request = Request::get(uri);
        if self.resource.metadata_only {
            request = request.header(ACCEPT, format!("application/json;as={partial};g=meta.k8s.io;v=v1"));
        }
        request
            .body(Body::empty())
            .map_err(|error| CallError::Unreadable(error.to_string().into()))
    }

    fn well(&mut self) {
        let mut was = None;
        self.store.report(self.part, |health| {
            was = health.trouble.take();
            health.filled = true;
            health.absent = false;
            health.heard = Some(Instant::now());
        });
        if let Some(trouble) = was
            && self.complained.take().is_some()
        {
            info!(resource = %self.resource.description(), after = ?trouble.since.elapsed(), "reading it again");
        }
    }

    fn set_absent(&mut self) {
        self.store.report(self.part, |health| {
            health.absent = true;
            health.filled = false;
            health.trouble = None;
        });
        if !self.store.is_empty() {
            self.store.clear(self.resource.namespace.as_deref());
        }
    }

    fn fail(&mut self, verb: &'static str, error: &CallError) {
        let code = error.code();
        if code == Some(404) {
            // No CRD, or it does not serve our version.
            self.set_absent();
            debug!(resource = %self.resource.description(), "no such kind in this cluster");
            return;
        }
        let message: Arc<str> = format!("failed to {verb} {}: {error}", self.resource.description()).into();
        self.store.report(self.part, |health| {
            // Trouble of the same sort goes on; another sort begins anew.
            let since = match &health.trouble {
                Some(trouble) if trouble.code == code => trouble.since,
                _ => Instant::now(),
            };
            health.trouble = Some(Trouble {
                since,
                code,
                message: Arc::clone(&message),
            });
        });
        let again = self
            .complained
            .is_some_and(|(last, at)| last == code && at.elapsed() < self.pace.complain_every);
        if again {
            return;
        }
        self.complained = Some((code, Instant::now()));
        let remedy = match code {
            Some(401) => "the credentials were refused: check the service account token or the kubeconfig",
            Some(403) => "grant list and watch on this resource, or leave the kind out of the settings",
            _ => "it is tried again",
        };
        warn!(verb, resource = %self.resource.description(), %error, remedy, "unable to follow the cluster");
    }

    fn complain_unreadable(&mut self, name: &str, error: &str) {
        if self
            .unreadable
            .is_some_and(|at| at.elapsed() < self.pace.complain_every)
        {
            return;
        }
        self.unreadable = Some(Instant::now());
        warn!(resource = %self.resource.description(), name, error, "left out an object that cannot be read");
    }

    fn pause(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(20));
        jittered(
            self.pace
                .first_pause
                .saturating_mul(factor)
                .min(self.pace.longest_pause),
        )
    }
}

fn name_of(object: &Value) -> String {
    let text = |field: &str| {
        object
            .get("metadata")
            .and_then(|metadata| metadata.get(field)?.as_str())
            .unwrap_or("")
    };
    format!("{}/{}", text("namespace"), text("name"))
}

/// Between 80 and 120 % of a time, so that many do not come back at once.
pub(crate) fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 41;
    time * (80 + random as u32) / 100
}

/// A value of a query, escaped.
fn query_escaped(text: &str) -> String {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.extend(
                [byte >> 4, byte & 15]
                    .iter()
                    .filter_map(|half| HEX.get(usize::from(*half))),
            );
        }
    }
    escaped
}
