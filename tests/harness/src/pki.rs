//! The certificates of one control plane, all of one authority that lives in memory and in its folder.

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _, SigningKey as _,
};
use time::{Duration, OffsetDateTime};

const AUTHORITY_NAME: &str = "offhours test authority";

/// A certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key (PKCS 8).
    pub key: String,
    /// The authority that signed it: what a `caBundle` takes.
    pub authority: String,
}

/// Signs for one control plane.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
    pem: String,
    from: OffsetDateTime,
    to: OffsetDateTime,
}

impl Authority {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // The real time: the API server's clock is the one that judges these.
        #[expect(
            clippy::disallowed_methods,
            reason = "certificates are judged by the API server's real clock"
        )]
        let now: OffsetDateTime = std::time::SystemTime::now().into();
        // what a certificate can say
        let now = now.replace_nanosecond(0)?;
        let (from, to) = (now - Duration::HOUR, now + Duration::days(30));
        let key = KeyPair::generate().context("failed to make the authority's key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        (params.not_before, params.not_after) = (from, to);
        let pem = params.self_signed(&key).context("failed to sign the authority")?.pem();
        let signing = KeyPair::from_pem(&key.serialize_pem()).context("failed to read the authority's key back")?;
        Ok(Self {
            issuer: Issuer::new(params, signing),
            key,
            pem,
            from,
            to,
        })
    }

    /// The authority's own certificate, PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A server certificate for these names and addresses.
    pub(crate) fn server(&self, names: &[String]) -> anyhow::Result<Certificate> {
        let key = KeyPair::generate().context("failed to make a key")?;
        let mut params =
            CertificateParams::new(names).with_context(|| format!("failed to use {names:?} as certificate names"))?;
        params
            .distinguished_name
            .push(DnType::CommonName, names.first().map_or("server", String::as_str));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) = (self.from, self.to);
        let signed = params
            .signed_by(&key, &self.issuer)
            .context("failed to sign a server certificate")?;
        Ok(Certificate {
            certificate: signed.pem(),
            key: key.serialize_pem(),
            authority: self.pem.clone(),
        })
    }

    /// A client certificate: the API server takes the common name as the user and each organization as a group.
    ///
    /// Written by hand, because rcgen keeps one value per attribute and people are in several groups.
    pub(crate) fn client(&self, user: &str, groups: &[String], serial: u64) -> anyhow::Result<Certificate> {
        let key = KeyPair::generate().context("failed to make a key")?;
        let to_be_signed = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer
                    .next()
                    .write_tagged(yasna::Tag::context(0), |writer| writer.write_u8(2)); // version 3
                writer.next().write_u64(serial);
                write_signature_algorithm(writer.next());
                write_name(writer.next(), Some(AUTHORITY_NAME), &[]);
                writer.next().write_sequence(|writer| {
                    writer
                        .next()
                        .write_utctime(&yasna::models::UTCTime::from_datetime(self.from));
                    writer
                        .next()
                        .write_utctime(&yasna::models::UTCTime::from_datetime(self.to));
                });
                write_name(writer.next(), Some(user), groups);
                writer.next().write_der(&key.subject_public_key_info());
                writer.next().write_tagged(yasna::Tag::context(3), |writer| {
                    writer.write_sequence(|writer| {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_oid(&oid(&[2, 5, 29, 37])); // extended key usage
                            let client_authentication = yasna::construct_der(|writer| {
                                writer.write_sequence(|writer| {
                                    writer.next().write_oid(&oid(&[1, 3, 6, 1, 5, 5, 7, 3, 2]));
                                });
                            });
                            writer.next().write_bytes(&client_authentication);
                        });
                    });
                });
            });
        });
        let signature = self
            .key
            .sign(&to_be_signed)
            .context("failed to sign a client certificate")?;
        let der = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&to_be_signed);
                write_signature_algorithm(writer.next());
                writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
            });
        });
        Ok(Certificate {
            certificate: pem_of("CERTIFICATE", &der),
            key: key.serialize_pem(),
            authority: self.pem.clone(),
        })
    }
}

/// A fresh private key and its public half, PEM: what service account tokens are signed and judged with.
pub(crate) fn key_pair() -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate().context("failed to make a key")?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn oid(parts: &[u64]) -> yasna::models::ObjectIdentifier {
    yasna::models::ObjectIdentifier::from_slice(parts)
}

fn write_signature_algorithm(writer: yasna::DERWriter<'_>) {
    // ECDSA with SHA-256: rcgen's keys are P-256
    writer.write_sequence(|writer| writer.next().write_oid(&oid(&[1, 2, 840, 10045, 4, 3, 2])));
}

fn write_name(writer: yasna::DERWriter<'_>, common_name: Option<&str>, organizations: &[String]) {
    writer.write_sequence(|writer| {
        let attributes = organizations
            .iter()
            .map(|organization| ([2, 5, 4, 10], organization.as_str()))
            .chain(common_name.map(|name| ([2, 5, 4, 3], name)));
        for (kind, value) in attributes {
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    writer.next().write_oid(&oid(&kind));
                    writer.next().write_utf8_string(value);
                });
            });
        }
    });
}

fn pem_of(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem + "\n-----END " + label + "-----\n"
}
