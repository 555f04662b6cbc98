//! Reads and writes `caBundle` of our webhook configurations: that one field, by name, nothing else.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use json_patch::{AddOperation, Patch as Operations, PatchOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use crate::{
    decision::Bundle,
    facts::{Certificate, pem_of},
};

/// Why a configuration could not be read or patched.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The API server refused or did not answer.
    #[error("failed to {verb} {kind} {name:?}: {source}")]
    CallConfiguration {
        /// What was tried.
        verb: &'static str,
        /// Kind of the configuration.
        kind: String,
        /// Its name.
        name: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("failed to {verb} {kind} {name:?}: no answer within {timeout:?}")]
    AwaitConfiguration {
        /// What was tried.
        verb: &'static str,
        /// Kind of the configuration.
        kind: String,
        /// Its name.
        name: String,
        /// How long we waited.
        timeout: Duration,
    },
}

/// The two kinds of configuration, as far as we need them.
pub trait Configuration:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + serde::de::DeserializeOwned + 'static
{
    /// How its webhooks are called, in order.
    fn client_configs(&self) -> Vec<&WebhookClientConfig>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn client_configs(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks
            .iter()
            .flatten()
            .map(|webhook| &webhook.client_config)
            .collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn client_configs(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks
            .iter()
            .flatten()
            .map(|webhook| &webhook.client_config)
            .collect()
    }
}

/// The bundles of a configuration, one for each webhook.
pub fn bundles<K: Configuration>(configuration: &K) -> Vec<Bundle> {
    configuration
        .client_configs()
        .into_iter()
        .map(|client| {
            let pem = client
                .ca_bundle
                .as_ref()
                .map(|bundle| bundle.0.as_slice())
                .unwrap_or_default();
            match Certificate::all_from_pem(pem) {
                Ok(certificates) if !certificates.is_empty() => Bundle::Certificates(certificates),
                _ => Bundle::Blank,
            }
        })
        .collect()
}

/// The operations that make every webhook of `configuration` carry `desired`; they hold only for the version that was read.
pub fn operations<K: Configuration>(configuration: &K, desired: &[Certificate]) -> Operations {
    let pem = pem_of(desired);
    let encoded = Value::String(STANDARD.encode(&pem));
    let mut operations = vec![PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: Value::String(configuration.resource_version().unwrap_or_default()),
    })];
    for (index, client) in configuration.client_configs().into_iter().enumerate() {
        if client
            .ca_bundle
            .as_ref()
            .is_some_and(|present| present.0 == pem.as_bytes())
        {
            continue;
        }
        operations.push(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["webhooks", &index.to_string(), "clientConfig", "caBundle"]),
            value: encoded.clone(),
        }));
    }
    Operations(operations)
}

/// What became of a patch.
#[derive(Debug)]
pub enum Patched<K> {
    /// This is the configuration now.
    Stored(Box<K>),
    /// It has changed since it was read: decide again.
    Lost,
    /// It is gone, which is fine.
    Absent,
}

/// One configuration, by name.
#[derive(Clone)]
pub struct Patcher<K> {
    api: Api<K>,
    name: String,
    timeout: Duration,
}

impl<K: Configuration> Patcher<K> {
    /// The configuration `name`; each call may take `timeout`.
    pub fn new(client: Client, name: &str, timeout: Duration) -> Self {
        Self {
            api: Api::all(client),
            name: name.to_owned(),
            timeout,
        }
    }

    /// The watchable interface of it.
    pub fn api(&self) -> &Api<K> {
        &self.api
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads it.
    pub async fn read(&self) -> Result<Option<K>, BundleError> {
        self.call("get", self.api.get_opt(&self.name)).await
    }

    /// Makes every webhook of it carry `desired`.
    pub async fn publish(&self, read: &K, desired: &[Certificate]) -> Result<Patched<K>, BundleError> {
        let patch: Patch<()> = Patch::Json(operations(read, desired));
        match self
            .call("patch", self.api.patch(&self.name, &PatchParams::default(), &patch))
            .await
        {
            Ok(configuration) => Ok(Patched::Stored(Box::new(configuration))),
            Err(BundleError::CallConfiguration {
                verb,
                kind,
                name,
                source,
            }) => match *source {
                kube::Error::Api(ref status) if status.code == 409 || status.code == 422 => {
                    // A failed test is a 422, and so is a patch that the API server will never take: a second look tells.
                    match self.read().await? {
                        Some(present) if present.resource_version() == read.resource_version() => {
                            Err(BundleError::CallConfiguration {
                                verb,
                                kind,
                                name,
                                source,
                            })
                        }
                        Some(_) => Ok(Patched::Lost),
                        None => Ok(Patched::Absent),
                    }
                }
                kube::Error::Api(ref status) if status.code == 404 => Ok(Patched::Absent),
                _ => Err(BundleError::CallConfiguration {
                    verb,
                    kind,
                    name,
                    source,
                }),
            },
            Err(error) => Err(error),
        }
    }

    async fn call<T>(&self, verb: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, BundleError> {
        let kind = || K::kind(&()).into_owned();
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map_err(|source| BundleError::CallConfiguration {
                verb,
                kind: kind(),
                name: self.name.clone(),
                source: Box::new(source),
            }),
            Err(_) => Err(BundleError::AwaitConfiguration {
                verb,
                kind: kind(),
                name: self.name.clone(),
                timeout: self.timeout,
            }),
        }
    }
}
