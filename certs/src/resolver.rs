//! Hands the serving certificate to rustls. It is swapped while connections run: a new handshake sees the new one, what
//! is established stays as it is.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::PrivateKeyDer;
use shared::clock::Clock;

use crate::facts::Certificate;

/// Why a pair cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    /// rustls refuses the pair, mostly because the key belongs to another certificate.
    #[error("failed to accept certificate {subject:?} with its private key: {source}")]
    AcceptPair {
        /// Subject of the leaf.
        subject: String,
        /// What rustls said.
        source: rustls::Error,
    },
    /// There is no leaf in the chain.
    #[error("found no certificate in the chain")]
    FindLeaf,
}

/// A pair that can be served.
#[derive(Clone)]
pub struct Served {
    key: Arc<CertifiedKey>,
    chain: Vec<Certificate>,
    leaf: Certificate,
    authorities: Vec<Certificate>,
}

impl fmt::Debug for Served {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Served")
            .field("leaf", &self.leaf)
            .finish_non_exhaustive()
    }
}

impl Served {
    /// Checks that the key belongs to the first certificate of `chain`. `authorities` are those that verify it.
    pub fn new(
        chain: Vec<Certificate>,
        key: PrivateKeyDer<'static>,
        authorities: Vec<Certificate>,
    ) -> Result<Self, ResolverError> {
        let leaf = chain.first().cloned().ok_or(ResolverError::FindLeaf)?;
        let ders = chain.iter().map(|certificate| certificate.der().clone()).collect();
        let key = CertifiedKey::from_der(ders, key, &rustls::crypto::ring::default_provider()).map_err(|source| {
            ResolverError::AcceptPair {
                subject: leaf.facts().subject.clone(),
                source,
            }
        })?;
        Ok(Self {
            key: Arc::new(key),
            chain,
            leaf,
            authorities,
        })
    }

    /// The leaf.
    pub fn leaf(&self) -> &Certificate {
        &self.leaf
    }

    /// Leaf and intermediates, as they are sent.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// The authorities that verify it, as far as they are known.
    pub fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }
}

/// What rustls asks for a certificate.
pub struct Resolver {
    served: ArcSwapOption<Served>,
    clock: Arc<dyn Clock>,
    refused: AtomicU64,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Resolver")
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}

impl Resolver {
    /// A resolver that has nothing to serve yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            served: ArcSwapOption::empty(),
            clock,
            refused: AtomicU64::new(0),
        }
    }

    /// Serves `served` from the next handshake on.
    pub fn serve(&self, served: Served) {
        self.served.store(Some(Arc::new(served)));
    }

    /// What is served now, even if it is past its date.
    pub fn served(&self) -> Option<Arc<Served>> {
        self.served.load_full()
    }

    /// What a handshake now would get: nothing, rather than a certificate past its date.
    pub fn usable(&self) -> Option<Arc<Served>> {
        self.served()
            .filter(|served| self.clock.now() < served.leaf.facts().not_after)
    }

    /// Handshakes that ended for want of a usable certificate.
    pub fn refused_handshakes(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable = self.usable().map(|served| Arc::clone(&served.key));
        if usable.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        usable
    }
}
