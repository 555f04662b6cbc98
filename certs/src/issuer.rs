//! Makes authorities and leaves (ECDSA P-256).

use std::{fmt, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;
use x509_parser::parse_x509_certificate;

use crate::{
    facts::{Certificate, FactsError, hex},
    settings::{Lives, Names},
};

/// The common name of every authority of ours starts like this.
pub const AUTHORITY_NAME: &str = "offhours-webhook-ca";

/// Why no certificate could be made or read back.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// Key generation failed (no randomness).
    #[error("failed to generate a key: {0}")]
    GenerateKey(#[source] rcgen::Error),
    /// A name is not legal in a certificate.
    #[error("failed to use {name:?} as a name in a certificate: {source}")]
    UseName {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: rcgen::Error,
    },
    /// An instant cannot be written into a certificate.
    #[error("failed to write the instant {instant} into a certificate")]
    UseInstant {
        /// The instant.
        instant: Timestamp,
    },
    /// Signing failed.
    #[error("failed to sign a certificate: {0}")]
    Sign(#[source] rcgen::Error),
    /// The stored key is no private key.
    #[error("failed to read the private key: {0}")]
    ReadKey(#[source] rcgen::Error),
    /// The stored certificate cannot be read.
    #[error("failed to read the certificate of the authority: {0}")]
    ReadCertificate(#[from] FactsError),
    /// The stored certificate is no authority.
    #[error("certificate {subject:?} is not an authority (CA)")]
    AcceptAuthority {
        /// Its subject.
        subject: String,
    },
    /// The stored key belongs to another certificate.
    #[error("the private key does not belong to certificate {subject:?}")]
    MatchKey {
        /// Subject of the certificate.
        subject: String,
    },
}

/// An authority that can sign: certificate and key, proved to belong together.
#[derive(Clone)]
pub struct Authority {
    certificate: Certificate,
    key_pem: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Authority")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate && self.key_pem == other.key_pem
    }
}

impl Eq for Authority {}

/// A leaf with its private key.
pub struct Leaf {
    /// The certificate.
    pub certificate: Certificate,
    /// The authority that signed it.
    pub signer: Certificate,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Leaf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Leaf")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority that lives from `now` (less the backdate) for `lives.authority`.
    pub fn generate(now: Timestamp, lives: &Lives) -> Result<Self, IssuerError> {
        let key = new_key()?;
        let mut parameters = CertificateParams::default();
        // Two authorities of ours are trusted together during a rotation; a name of its own for each spares every
        // verifier the search among issuers of one name.
        let identifier = parameters.key_identifier(&key);
        let mark = hex(identifier.get(..4).unwrap_or_default());
        parameters.distinguished_name = subject(&format!("{AUTHORITY_NAME}-{mark}"));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.not_before = written(earlier(now, lives.backdate))?;
        parameters.not_after = written(later(now, lives.authority))?;
        let certificate = parameters.self_signed(&key).map_err(IssuerError::Sign)?;
        Ok(Self {
            certificate: Certificate::from_der(certificate.der().clone())?,
            key_pem: key.serialize_pem(),
        })
    }

    /// Reads an authority back: it must be a CA and the key must be its own.
    pub fn from_pem(certificate_pem: &[u8], key_pem: &str) -> Result<Self, IssuerError> {
        let certificate = Certificate::from_pem(certificate_pem)?;
        let subject = || certificate.facts().subject.clone();
        if !certificate.facts().is_ca {
            return Err(IssuerError::AcceptAuthority { subject: subject() });
        }
        let key = KeyPair::from_pem(key_pem).map_err(IssuerError::ReadKey)?;
        let (_, parsed) = parse_x509_certificate(certificate.der()).map_err(|error| FactsError::ParseCertificate {
            reason: error.to_string(),
        })?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(IssuerError::MatchKey { subject: subject() });
        }
        Ok(Self {
            key_pem: key_pem.to_owned(),
            certificate,
        })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its private key as PEM: for the Secret only.
    pub(crate) fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Signs a leaf for `names` that lives from `now` (less the backdate) for `lives.leaf`, but never longer than
    /// `not_after` or this authority.
    pub fn issue(
        &self,
        names: &Names,
        now: Timestamp,
        lives: &Lives,
        not_after: Option<Timestamp>,
    ) -> Result<Leaf, IssuerError> {
        let key = new_key()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = subject("offhours-webhook");
        parameters.subject_alt_names = alternative_names(names)?;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        parameters.not_before = written(earlier(now, lives.backdate))?;
        parameters.not_after = written(leaf_end(now, lives.leaf, &self.certificate, not_after))?;
        let signer_key = KeyPair::from_pem(&self.key_pem).map_err(IssuerError::ReadKey)?;
        let issuer = Issuer::from_ca_cert_der(self.certificate.der(), signer_key).map_err(IssuerError::Sign)?;
        let certificate = parameters.signed_by(&key, &issuer).map_err(IssuerError::Sign)?;
        Ok(Leaf {
            certificate: Certificate::from_der(certificate.der().clone())?,
            signer: self.certificate.clone(),
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        })
    }
}

/// When a leaf signed now would end.
pub(crate) fn leaf_end(now: Timestamp, life: Duration, signer: &Certificate, limit: Option<Timestamp>) -> Timestamp {
    let end = later(now, life).min(signer.facts().not_after);
    limit.map_or(end, |limit| end.min(limit))
}

pub(crate) fn later(instant: Timestamp, by: Duration) -> Timestamp {
    instant.checked_add(by).unwrap_or(Timestamp::MAX)
}

pub(crate) fn earlier(instant: Timestamp, by: Duration) -> Timestamp {
    instant.checked_sub(by).unwrap_or(Timestamp::MIN)
}

fn new_key() -> Result<KeyPair, IssuerError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IssuerError::GenerateKey)
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn written(instant: Timestamp) -> Result<OffsetDateTime, IssuerError> {
    OffsetDateTime::from_unix_timestamp(instant.as_second()).map_err(|_| IssuerError::UseInstant { instant })
}

fn alternative_names(names: &Names) -> Result<Vec<SanType>, IssuerError> {
    names
        .dns
        .iter()
        .map(|name| {
            name.as_str()
                .try_into()
                .map(SanType::DnsName)
                .map_err(|source| IssuerError::UseName {
                    name: name.clone(),
                    source,
                })
        })
        .chain(names.addresses.iter().map(|address| Ok(SanType::IpAddress(*address))))
        .collect()
}
