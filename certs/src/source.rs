//! Pairs that somebody else makes: files of a mounted Secret, or a Secret that cert-manager fills.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use rustls::{RootCertStore, client::WebPkiServerVerifier, client::danger::ServerCertVerifier};
use rustls_pki_types::{PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

use crate::{
    facts::{Certificate, FactsError},
    resolver::{ResolverError, Served},
};

/// Why the source gives no pair.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("failed to read {}: {source}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A key of the Secret is missing or empty.
    #[error("key {key:?} of the secret is missing or empty")]
    FindKey {
        /// The key of the Secret's data.
        key: &'static str,
    },
    /// The certificates cannot be read.
    #[error("failed to read {what}: {source}")]
    ReadCertificates {
        /// Chain or authorities.
        what: &'static str,
        /// What is wrong.
        source: FactsError,
    },
    /// The private key cannot be read.
    #[error("failed to read the private key: {reason}")]
    ReadKey {
        /// What the decoder said.
        reason: String,
    },
    /// The key belongs to another certificate (mostly: read while they were being replaced).
    #[error(transparent)]
    AcceptPair(#[from] ResolverError),
}

/// The PEM texts of a pair, as they were read: two reads are compared by them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PairText {
    /// Chain, leaf first.
    pub chain: Vec<u8>,
    /// Private key.
    pub key: Vec<u8>,
    /// Authorities to publish.
    pub authorities: Vec<u8>,
}

impl PairText {
    /// Reads files. Blocking.
    pub fn read(certificate: &Path, key: &Path, authority: Option<&Path>) -> Result<Self, SourceError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| SourceError::ReadFile {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Self {
            chain: read(certificate)?,
            key: read(key)?,
            authorities: authority.map(read).transpose()?.unwrap_or_default(),
        })
    }

    /// Reads a Secret of type `kubernetes.io/tls`.
    pub fn from_secret(secret: &Secret) -> Result<Self, SourceError> {
        let value = |key: &'static str| {
            secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|value| value.0.clone())
                .filter(|value| !value.is_empty())
        };
        Ok(Self {
            chain: value("tls.crt").ok_or(SourceError::FindKey { key: "tls.crt" })?,
            key: value("tls.key").ok_or(SourceError::FindKey { key: "tls.key" })?,
            authorities: value("ca.crt").unwrap_or_default(),
        })
    }

    /// The pair, proved to belong together.
    pub fn pair(&self) -> Result<Served, SourceError> {
        let chain = Certificate::all_from_pem(&self.chain)
            .and_then(|chain| {
                if chain.is_empty() {
                    Err(FactsError::FindCertificate)
                } else {
                    Ok(chain)
                }
            })
            .map_err(|source| SourceError::ReadCertificates {
                what: "the certificate chain",
                source,
            })?;
        let authorities =
            Certificate::all_from_pem(&self.authorities).map_err(|source| SourceError::ReadCertificates {
                what: "the authorities",
                source,
            })?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| SourceError::ReadKey {
            reason: error.to_string(),
        })?;
        Ok(Served::new(chain, key, authorities)?)
    }
}

/// Whether a client that trusts `bundle` would accept `chain` at `now`, for the first name that its leaf bears.
pub fn verifies(bundle: &[Certificate], chain: &[Certificate], now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().map(|certificate| certificate.der().clone()));
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(std::sync::Arc::new(roots), provider).build() else {
        return false;
    };
    let Some((leaf, intermediates)) = chain.split_first() else {
        return false;
    };
    let intermediates: Vec<_> = intermediates
        .iter()
        .map(|certificate| certificate.der().clone())
        .collect();
    let name = leaf
        .facts()
        .names
        .iter()
        .find_map(|name| ServerName::try_from(name.as_str()).ok());
    let Some(name) = name else {
        return false;
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    verifier
        .verify_server_cert(leaf.der(), &intermediates, &name, &[], now)
        .is_ok()
}
