//! What a certificate says, read once into plain values: nothing below this module parses X.509.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    net::IpAddr,
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

/// Why bytes are no usable certificate.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
pub enum FactsError {
    /// The text is not PEM, or was cut off.
    #[error("failed to decode PEM: {reason}")]
    DecodePem {
        /// What the decoder said.
        reason: String,
    },
    /// The text holds no certificate at all.
    #[error("found no certificate in the PEM text")]
    FindCertificate,
    /// The DER inside is no X.509 certificate.
    #[error("failed to parse the certificate: {reason}")]
    ParseCertificate {
        /// What the parser said.
        reason: String,
    },
    /// A validity instant lies outside what this program can count with.
    #[error("failed to read the validity of the certificate: {reason}")]
    ReadValidity {
        /// What is wrong with it.
        reason: String,
    },
}

/// One certificate with its facts. Two are equal when their bytes are.
#[derive(Clone)]
pub struct Certificate(Arc<Parsed>);

struct Parsed {
    der: CertificateDer<'static>,
    facts: CertificateFacts,
}

/// The facts that decisions rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// First instant of validity.
    pub not_before: Timestamp,
    /// Last instant of validity.
    pub not_after: Timestamp,
    /// Whether it may sign others (basic constraints).
    pub is_ca: bool,
    /// Serial number, lower-case hex.
    pub serial: String,
    /// Common name of its subject, or the whole subject where it has none.
    pub subject: String,
    /// DNS names and IP addresses it is valid for.
    pub names: BTreeSet<String>,
}

impl CertificateFacts {
    /// The instant after which it is to be renewed: two thirds of its life.
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before);
        let part = SignedDuration::from_millis(i64::try_from(life.as_millis() * 2 / 3).unwrap_or(i64::MAX));
        self.not_before.checked_add(part).unwrap_or(self.not_after)
    }

    /// Whether `now` lies inside its validity.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

impl Certificate {
    /// Reads one certificate from DER.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, FactsError> {
        let facts = read_facts(&der)?;
        Ok(Self(Arc::new(Parsed { der, facts })))
    }

    /// Reads the first certificate of a PEM text.
    pub fn from_pem(pem: &[u8]) -> Result<Self, FactsError> {
        Self::all_from_pem(pem)?
            .into_iter()
            .next()
            .ok_or(FactsError::FindCertificate)
    }

    /// Reads every certificate of a PEM text; an empty text is an empty list, a broken block an error.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, FactsError> {
        CertificateDer::pem_slice_iter(pem)
            .map(|der| {
                let der = der.map_err(|error| FactsError::DecodePem {
                    reason: error.to_string(),
                })?;
                Self::from_der(der)
            })
            .collect()
    }

    /// Its bytes.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.0.der
    }

    /// Its facts.
    pub fn facts(&self) -> &CertificateFacts {
        &self.0.facts
    }

    /// The PEM block of it.
    pub fn pem(&self) -> String {
        use base64::{Engine as _, engine::general_purpose::STANDARD};

        let body = STANDARD.encode(&self.0.der);
        let mut text = String::with_capacity(body.len() + body.len() / 64 + 64);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, tail) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = tail;
        }
        text.push_str("-----END CERTIFICATE-----\n");
        text
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.0.der == other.0.der
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Certificate")
            .field("subject", &self.0.facts.subject)
            .field("serial", &self.0.facts.serial)
            .finish_non_exhaustive()
    }
}

/// Several certificates as one PEM text, in the order given.
pub fn pem_of(certificates: &[Certificate]) -> String {
    certificates.iter().map(Certificate::pem).collect()
}

fn read_facts(der: &[u8]) -> Result<CertificateFacts, FactsError> {
    let (_, parsed) = parse_x509_certificate(der).map_err(|error| FactsError::ParseCertificate {
        reason: error.to_string(),
    })?;
    let instant = |seconds: i64| {
        Timestamp::from_second(seconds).map_err(|error| FactsError::ReadValidity {
            reason: error.to_string(),
        })
    };
    let names = parsed
        .subject_alternative_name()
        .map_err(|error| FactsError::ParseCertificate {
            reason: error.to_string(),
        })?
        .map(|extension| extension.value.general_names.iter().filter_map(name_text).collect())
        .unwrap_or_default();
    let subject = parsed
        .subject()
        .iter_common_name()
        .find_map(|name| name.as_str().ok())
        .map_or_else(|| parsed.subject().to_string(), ToOwned::to_owned);
    Ok(CertificateFacts {
        not_before: instant(parsed.validity().not_before.timestamp())?,
        not_after: instant(parsed.validity().not_after.timestamp())?,
        is_ca: parsed.is_ca(),
        serial: hex(parsed.raw_serial()),
        subject,
        names,
    })
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) => Some((*text).to_owned()),
        GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
            .ok()
            .map(|address| address.to_string()),
        _ => None,
    }
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
