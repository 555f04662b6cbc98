//! Argo CD's HTTP API: Applications without rights on their objects. Client required.
//!
//! What is decided is the same as for Applications that are read from the cluster; only reading and writing differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cluster::call::with_causes;
use cluster::store::Store;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request as HttpRequest};
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use shared::settings::{ArgoApi as Settings, ArgoToken};
use shared::workload::ObjectRef;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::facts::Application;
use super::pause::PHASE;

/// The longest that one try may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// How rustls begins what it says of a server's certificate.
const BAD_CERTIFICATE: &str = "invalid peer certificate";

/// What is asked for in a listing; there is no paging.
const FIELDS: &str = "items.metadata.name,items.metadata.namespace,items.metadata.labels,items.metadata.annotations,\
                      items.spec,items.status.resources";

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArgoError {
    /// The server refused it.
    #[error("Argo CD answers {status} (code {code}): {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Argo CD's own code.
        code: i64,
        /// What it says.
        message: String,
    },
    /// The token is not valid any more.
    #[error("Argo CD answers 401: the token is expired or wrong ({0}); make a new one and set ARGO_TOKEN")]
    TokenExpired(String),
    /// The list of Applications is empty.
    #[error("Argo CD lists no Applications: the token has no rights, or there are none; nothing is scaled on this")]
    NothingListed,
    /// No answer.
    #[error("Argo CD at {url} does not answer: {why}")]
    Unreachable {
        /// Base URL.
        url: String,
        /// Why.
        why: String,
    },
    /// Its certificate is not to be trusted, whatever it may answer.
    #[error(
        "Argo CD at {url} shows a certificate that is not trusted here ({why}); give the certificate of its authority, \
         or its own, in ARGO_CA_FILE, and call it by a name that it is for"
    )]
    Untrusted {
        /// Base URL.
        url: String,
        /// Why.
        why: String,
    },
    /// The token cannot be read.
    #[error("failed to read the token of Argo CD from {path}: {why}")]
    ReadToken {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// Something that no Argo CD says.
    #[error("unable to read the answer of Argo CD: {0}")]
    Unreadable(String),
    /// The settings make no client.
    #[error("unable to make a client for Argo CD at {url}: {why}")]
    MakeClient {
        /// Base URL.
        url: String,
        /// Why.
        why: String,
    },
}

impl ArgoError {
    /// Whether the same call may go better in a moment.
    fn is_passing(&self) -> bool {
        match self {
            // 500 with code 2 is a patch that Argo CD cannot apply.
            Self::Refused { status, code, .. } => *status == 429 || (*status >= 500 && *code != 2),
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }
}

/// The API of one Argo CD.
#[derive(Clone)]
pub struct ArgoApi {
    client: Client,
    settings: Settings,
    /// The project of each Application that was read: every call names it.
    projects: Arc<Mutex<BTreeMap<ObjectRef, String>>>,
}

impl std::fmt::Debug for ArgoApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArgoApi")
            .field("url", &self.settings.url)
            .finish_non_exhaustive()
    }
}

impl ArgoApi {
    /// A client for these settings. `authority`: certificates (DER) to be trusted beside the public ones.
    pub fn new(settings: &Settings, authority: Option<Vec<Vec<u8>>>) -> Result<Self, ArgoError> {
        let failed = |why: String| ArgoError::MakeClient {
            url: settings.url.clone(),
            why,
        };
        let url: http::Uri = settings
            .url
            .parse()
            .map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
        let mut config = Config::new(url);
        config.default_retry = false;
        config.accept_invalid_certs = settings.insecure;
        config.root_cert = authority.map(cluster::roots::beside_public);
        cluster::roots::trust(&mut config);
        config.connect_timeout = Some(CALL_TIMEOUT);
        config.read_timeout = Some(CALL_TIMEOUT);
        config.write_timeout = Some(CALL_TIMEOUT);
        let client = Client::try_from(config).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            client,
            settings: settings.clone(),
            projects: Arc::default(),
        })
    }

    fn read(&self, object: &Value) -> Result<Application, ArgoError> {
        let application = Application::read(object).map_err(ArgoError::Unreadable)?;
        let project = object
            .pointer("/spec/project")
            .and_then(Value::as_str)
            .unwrap_or("default");
        let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        projects.insert(application.reference(), project.to_owned());
        Ok(application)
    }

    fn project(&self, application: &ObjectRef) -> String {
        let projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        projects
            .get(application)
            .cloned()
            .unwrap_or_else(|| "default".to_owned())
    }

    fn path(&self, application: &ObjectRef, below: &str) -> String {
        format!(
            "/api/v1/applications/{}{below}?appNamespace={}&project={}",
            application.name,
            application.namespace,
            self.project(application)
        )
    }

    fn token(&self) -> Result<HeaderValue, ArgoError> {
        let text = match &self.settings.token {
            ArgoToken::Given(secret) => secret.reveal().to_owned(),
            // Read each time: such a file is replaced when the token is.
            ArgoToken::File(path) => std::fs::read_to_string(path)
                .map_err(|error| ArgoError::ReadToken {
                    path: path.clone(),
                    why: error.to_string(),
                })?
                .trim()
                .to_owned(),
        };
        let mut header = HeaderValue::from_str(&format!("Bearer {text}"))
            .map_err(|_| ArgoError::TokenExpired("it holds characters that no token has".to_owned()))?;
        header.set_sensitive(true);
        Ok(header)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, ArgoError> {
        let mut pause = self.settings.retry_base;
        let mut tries = 0;
        loop {
            let outcome = self.once(method.clone(), path, body).await;
            match outcome {
                Err((error, wait)) if error.is_passing() && tries < self.settings.retries => {
                    tries += 1;
                    sleep(wait.unwrap_or(pause).min(self.settings.retry_max)).await;
                    pause = (pause * 2).min(self.settings.retry_max);
                }
                other => return other.map_err(|(error, _)| error),
            }
        }
    }

    async fn once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, (ArgoError, Option<Duration>)> {
        let unreachable = |why: String| {
            let url = self.settings.url.clone();
            if why.contains(BAD_CERTIFICATE) {
                (ArgoError::Untrusted { url, why }, None)
            } else {
                (ArgoError::Unreachable { url, why }, None)
            }
        };
        let token = self.token().map_err(|error| (error, None))?;
        // Without the content type Argo CD answers 415 to every write.
        let request = HttpRequest::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, token)
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(
                body.map_or_else(Vec::new, |body| body.to_string().into_bytes()),
            ))
            .map_err(|error| (ArgoError::Unreadable(error.to_string()), None))?;
        let exchange = async {
            let response = self
                .client
                .send(request)
                .await
                .map_err(|error| unreachable(with_causes(&error)))?;
            let status = response.status();
            let wait = response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.trim().parse().ok())
                .map(Duration::from_secs);
            let body = response
                .into_body()
                .collect_bytes()
                .await
                .map_err(|error| unreachable(with_causes(&error)))?;
            if status.is_success() {
                Ok(body)
            } else {
                Err((refusal(status.as_u16(), &body), wait))
            }
        };
        timeout(CALL_TIMEOUT, exchange)
            .await
            .map_err(|_| unreachable(format!("no answer within {CALL_TIMEOUT:?}")))?
    }

    /// All Applications that the token may see. Their facts are not complete: see [`Self::get`].
    pub async fn list(&self) -> Result<Vec<Application>, ArgoError> {
        let body = self
            .call(Method::GET, &format!("/api/v1/applications?fields={FIELDS}"), None)
            .await?;
        let listed: Value = parse(&body)?;
        let Some(items) = listed
            .get("items")
            .and_then(Value::as_array)
            .filter(|items| !items.is_empty())
        else {
            return Err(ArgoError::NothingListed);
        };
        items.iter().map(|item| self.read(item)).collect()
    }

    /// One Application, whole. `None`: it is not there, or the token may not see it (Argo CD answers 403 to both).
    pub async fn get(&self, application: &ObjectRef) -> Result<Option<Application>, ArgoError> {
        match self.call(Method::GET, &self.path(application, ""), None).await {
            Ok(body) => Ok(Some(self.read(&parse(&body)?)?)),
            Err(ArgoError::Refused { status: 403 | 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the Applications that may concern workloads of these namespaces, or bear one of these names, into the store.
    ///
    /// How many there are; 0 is no error where others are listed.
    pub async fn fill(
        &self,
        store: &Store<Application>,
        places: &BTreeSet<Arc<str>>,
        names: &BTreeSet<String>,
    ) -> Result<usize, ArgoError> {
        let mut count = 0;
        for listed in self.list().await? {
            let concerns = places.contains(&listed.destination_namespace)
                || names.contains(&*listed.object.name)
                || listed
                    .resources
                    .iter()
                    .any(|resource| places.contains(&resource.namespace));
            if !concerns {
                continue;
            }
            if let Some(whole) = self.get(&listed.reference()).await? {
                store.apply_answer(whole);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Reads those anew that we paused, or that an operation runs on. Nobody else tells of their changes.
    pub async fn refresh(&self, store: &Store<Application>) -> Result<(), ArgoError> {
        let moving = |known: &Application| known.saved().is_some() || known.operation.is_some();
        for known in store.all().into_iter().filter(|known| moving(known)) {
            if let Some(whole) = self.get(&known.reference()).await? {
                store.apply_answer(whole);
            }
        }
        Ok(())
    }

    /// Changes one, and asks for a sync or for the end of its operation if the patch does. The Application as it is then.
    ///
    /// The API does not take operations as part of a patch: what is asked of them is posted when the rest is written.
    pub async fn patch(&self, application: &ObjectRef, patch: &Patch) -> Result<Bytes, ArgoError> {
        let is_sync = |operation: &PatchOperation| operation.path().as_str() == "/operation";
        let is_end = |operation: &PatchOperation| operation.path().to_buf() == PointerBuf::from_tokens(PHASE);
        if patch.0.iter().any(is_end) {
            return self.terminate(application).await;
        }
        let rest = Patch(
            patch
                .0
                .iter()
                .filter(|operation| !is_sync(operation))
                .cloned()
                .collect(),
        );
        let text = serde_json::to_string(&rest).map_err(|error| ArgoError::Unreadable(error.to_string()))?;
        let body = json!({
            "name": &*application.name, "appNamespace": &*application.namespace, "project": self.project(application),
            "patchType": "json", "patch": text,
        });
        let answer = self
            .call(Method::PATCH, &self.path(application, ""), Some(&body))
            .await?;
        if patch.0.iter().any(is_sync) {
            self.sync(application).await?;
        }
        Ok(answer)
    }

    /// Ends its operation. One that has ended by itself (code 3) is as good. The Application as it is then.
    async fn terminate(&self, application: &ObjectRef) -> Result<Bytes, ArgoError> {
        match self
            .call(Method::DELETE, &self.path(application, "/operation"), None)
            .await
        {
            Ok(_)
            | Err(ArgoError::Refused {
                status: 400, code: 3, ..
            }) => {}
            Err(error) => return Err(error),
        }
        self.call(Method::GET, &self.path(application, ""), None).await
    }

    /// Asks for a sync. Another operation under way is as good: it began after our resume.
    pub async fn sync(&self, application: &ObjectRef) -> Result<(), ArgoError> {
        let body = json!({
            "name": &*application.name, "appNamespace": &*application.namespace, "project": self.project(application),
            "prune": false, "dryRun": false,
        });
        match self
            .call(Method::POST, &self.path(application, "/sync"), Some(&body))
            .await
        {
            Ok(_)
            | Err(ArgoError::Refused {
                status: 400, code: 9, ..
            }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn parse(body: &[u8]) -> Result<Value, ArgoError> {
    serde_json::from_slice(body).map_err(|error| ArgoError::Unreadable(error.to_string()))
}

fn refusal(status: u16, body: &[u8]) -> ArgoError {
    let said: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let message = said.get("message").and_then(Value::as_str).map_or_else(
        || String::from_utf8_lossy(body).chars().take(300).collect(),
        str::to_owned,
    );
    if status == 401 {
        return ArgoError::TokenExpired(message);
    }
    ArgoError::Refused {
        status,
        code: said.get("code").and_then(Value::as_i64).unwrap_or(0),
        message,
    }
}
