//! The Secret that all replicas share. It is created if absent and replaced with its resourceVersion, so that of any
//! number of replicas one wins and the others read what the winner wrote.
//!
//! Keys: `ca.crt` and `ca.key`, the authority that signs; `previous.crt` (one or more) and, where known, `previous.key`
//! (of the first of them), trusted until `previous-until` (RFC 3339).

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};

use crate::{facts::Certificate, facts::pem_of, issuer::Authority};

const CURRENT_CERTIFICATE: &str = "ca.crt";
const CURRENT_KEY: &str = "ca.key";
const PREVIOUS_CERTIFICATES: &str = "previous.crt";
const PREVIOUS_KEY: &str = "previous.key";
const PREVIOUS_UNTIL: &str = "previous-until";

/// Why the Secret could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server refused or did not answer.
    #[error("failed to {verb} secret {namespace}/{name}: {source}")]
    CallSecret {
        /// What was tried.
        verb: &'static str,
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("failed to {verb} secret {namespace}/{name}: no answer within {timeout:?}")]
    AwaitSecret {
        /// What was tried.
        verb: &'static str,
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// How long we waited.
        timeout: Duration,
    },
}

/// What is wrong with what the Secret holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredFault {
    /// A key is missing or empty.
    #[error("key {key:?} is missing or empty")]
    FindKey {
        /// The key of the Secret's data.
        key: &'static str,
    },
    /// Certificate and key are no authority together.
    #[error("{reason}")]
    AcceptAuthority {
        /// What is wrong.
        reason: String,
    },
}

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAuthority {
    /// The authority that signs.
    pub current: Authority,
    /// Authorities that stay trusted for a while.
    pub previous: Vec<Certificate>,
    /// The first of them with its key, where that is known.
    pub previous_signer: Option<Authority>,
    /// Until when.
    pub previous_until: Option<Timestamp>,
}

impl StoredAuthority {
    /// An authority with nothing before it.
    pub fn first(current: Authority) -> Self {
        Self {
            current,
            previous: Vec::new(),
            previous_signer: None,
            previous_until: None,
        }
    }

    /// `current` in place of `old`, whose leaves and those of `carried` serve until `until`.
    pub fn successor(current: Authority, old: Option<Authority>, carried: Vec<Certificate>, until: Timestamp) -> Self {
        let old = old.filter(|old| carried.contains(old.certificate()));
        let mut previous: Vec<Certificate> = old.iter().map(|old| old.certificate().clone()).collect();
        for certificate in carried {
            if !previous.contains(&certificate) {
                previous.push(certificate);
            }
        }
        let previous_until = (!previous.is_empty()).then_some(until);
        Self {
            current,
            previous,
            previous_signer: old,
            previous_until,
        }
    }

    /// Reads it from a Secret.
    pub fn from_secret(secret: &Secret) -> Result<Self, StoredFault> {
        let text = |key: &'static str| {
            secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|value| value.0.as_slice())
                .filter(|value| !value.is_empty())
        };
        let required = |key: &'static str| text(key).ok_or(StoredFault::FindKey { key });
        let certificate = required(CURRENT_CERTIFICATE)?;
        let key = String::from_utf8_lossy(required(CURRENT_KEY)?);
        let current = Authority::from_pem(certificate, &key).map_err(|error| StoredFault::AcceptAuthority {
            reason: error.to_string(),
        })?;
        // What is said about the past is a help, not a condition: unreadable, it counts as absent.
        let previous = text(PREVIOUS_CERTIFICATES)
            .and_then(|pem| Certificate::all_from_pem(pem).ok())
            .unwrap_or_default();
        let previous_until = text(PREVIOUS_UNTIL)
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.trim().parse().ok());
        let previous_signer = previous.first().zip(text(PREVIOUS_KEY)).and_then(|(certificate, key)| {
            Authority::from_pem(certificate.pem().as_bytes(), &String::from_utf8_lossy(key)).ok()
        });
        Ok(Self {
            current,
            previous,
            previous_signer,
            previous_until,
        })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut put = |key: &str, value: String| data.insert(key.to_owned(), ByteString(value.into_bytes()));
        put(CURRENT_CERTIFICATE, self.current.certificate().pem());
        put(CURRENT_KEY, self.current.key_pem().to_owned());
        if let Some(until) = self.previous_until {
            put(PREVIOUS_CERTIFICATES, pem_of(&self.previous));
            put(PREVIOUS_UNTIL, until.to_string());
            if let Some(signer) = &self.previous_signer {
                put(PREVIOUS_KEY, signer.key_pem().to_owned());
            }
        }
        data
    }

    /// Writes it over the data of `secret`; what others keep there stays.
    pub fn write_into(&self, secret: &mut Secret) {
        let data = secret.data.get_or_insert_default();
        data.retain(|key, _| ![PREVIOUS_CERTIFICATES, PREVIOUS_KEY, PREVIOUS_UNTIL].contains(&key.as_str()));
        data.extend(self.data());
    }
}

/// What became of a write.
#[derive(Debug)]
pub enum Written {
    /// It is stored; this is the Secret now.
    Stored(Box<Secret>),
    /// Another replica was first: read what it wrote.
    Lost,
}

/// The Secret, by name.
#[derive(Clone)]
pub struct SecretStore {
    api: Api<Secret>,
    namespace: String,
    name: String,
    timeout: Duration,
}

impl SecretStore {
    /// The Secret `name` in `namespace`; each call may take `timeout`.
    pub fn new(client: Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            timeout,
        }
    }

    /// The watchable interface of it.
    pub fn api(&self) -> &Api<Secret> {
        &self.api
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads it.
    pub async fn read(&self) -> Result<Option<Secret>, StoreError> {
        self.call("get", self.api.get_opt(&self.name)).await
    }

    /// Creates it unless it exists.
    pub async fn create(&self, stored: &StoredAuthority) -> Result<Written, StoreError> {
        let mut secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        stored.write_into(&mut secret);
        self.write("create", self.api.create(&PostParams::default(), &secret))
            .await
    }

    /// Replaces what `read` showed, unless somebody has changed it since.
    pub async fn replace(&self, read: &Secret, stored: &StoredAuthority) -> Result<Written, StoreError> {
        let mut secret = read.clone();
        secret.metadata.managed_fields = None;
        stored.write_into(&mut secret);
        debug_assert!(
            secret.resource_version().is_some(),
            "a Secret that was read has a resourceVersion"
        );
        self.write("update", self.api.replace(&self.name, &PostParams::default(), &secret))
            .await
    }

    async fn write(
        &self,
        verb: &'static str,
        call: impl Future<Output = kube::Result<Secret>>,
    ) -> Result<Written, StoreError> {
        match self.call(verb, call).await {
            Ok(secret) => Ok(Written::Stored(Box::new(secret))),
            // 409 on create: it exists; on update: it changed. 404 on update: it is gone.
            Err(StoreError::CallSecret { source, .. }) if matches!(*source, kube::Error::Api(ref status) if status.code == 409 || (verb == "update" && status.code == 404)) => {
                Ok(Written::Lost)
            }
            Err(error) => Err(error),
        }
    }

    async fn call<T>(&self, verb: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, StoreError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map_err(|source| StoreError::CallSecret {
                verb,
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                source: Box::new(source),
            }),
            Err(_) => Err(StoreError::AwaitSecret {
                verb,
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                timeout: self.timeout,
            }),
        }
    }
}
