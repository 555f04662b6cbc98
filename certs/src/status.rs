//! What the rest of the program asks about the certificates: probes, metrics, the TLS server.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use shared::clock::Clock;

use crate::{facts::pem_of, reason::Reason, resolver::Resolver};

/// Why things are as they are, at the end of the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// About the authority; `None` where somebody else keeps it.
    pub authority: Option<Reason>,
    /// About the caBundles; `None` where there are none to keep.
    pub bundle: Option<Reason>,
    /// About the served certificate.
    pub leaf: Reason,
    /// The last call that failed, while it has not succeeded again.
    pub fault: Option<Reason>,
    /// End of the authority's life, where we keep it.
    pub authority_not_after: Option<Timestamp>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            authority: None,
            bundle: None,
            leaf: Reason::Starting,
            fault: None,
            authority_not_after: None,
        }
    }
}

/// Counts since start.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) leaves: AtomicU64,
    pub(crate) secret_writes: AtomicU64,
    pub(crate) secret_races_lost: AtomicU64,
    pub(crate) bundle_patches: AtomicU64,
    pub(crate) bundle_races_lost: AtomicU64,
    pub(crate) failed_calls: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The certificates as others see them. Cheap to clone.
#[derive(Clone)]
pub struct Certificates {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) status: Arc<ArcSwap<Status>>,
    pub(crate) introduced: Arc<AtomicBool>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) source: &'static str,
}

impl Certificates {
    pub(crate) fn new(clock: Arc<dyn Clock>, source: &'static str) -> Self {
        Self {
            resolver: Arc::new(Resolver::new(Arc::clone(&clock))),
            status: Arc::new(ArcSwap::from_pointee(Status::default())),
            introduced: Arc::new(AtomicBool::new(false)),
            counters: Arc::new(Counters::default()),
            clock,
            source,
        }
    }

    /// What the TLS server asks at each handshake.
    pub fn resolver(&self) -> Arc<Resolver> {
        Arc::clone(&self.resolver)
    }

    /// Whether a certificate is served that is valid now, and has once been trusted by the webhook configurations (or
    /// could not be published for half a minute: then calls fail either way, and being unready would hide why).
    pub fn ready(&self) -> bool {
        self.introduced.load(Ordering::Acquire) && self.resolver.usable().is_some()
    }

    /// Why things are as they are.
    pub fn status(&self) -> Arc<Status> {
        self.status.load_full()
    }

    /// The same as one line for `/readyz` and the log.
    pub fn reason(&self) -> String {
        let status = self.status();
        let mut text = format!("certificate: {}", status.leaf);
        // Writing into a String cannot fail.
        if let Some(authority) = &status.authority {
            let _ = write!(text, "; authority: {authority}");
        }
        if let Some(bundle) = &status.bundle {
            let _ = write!(text, "; bundle: {bundle}");
        }
        if let Some(fault) = &status.fault {
            let _ = write!(text, "; last failure: {fault}");
        }
        text
    }

    /// Where the certificate comes from (label).
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Seconds until the served certificate ends; negative afterwards, `None` without one.
    pub fn seconds_to_expiry(&self) -> Option<i64> {
        self.not_after()
            .map(|end| end.duration_since(self.clock.now()).as_secs())
    }

    /// Seconds until the authority ends; `None` where somebody else keeps it.
    pub fn authority_seconds_to_expiry(&self) -> Option<i64> {
        self.status()
            .authority_not_after
            .map(|end| end.duration_since(self.clock.now()).as_secs())
    }

    /// When the served certificate ends.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.resolver.served().map(|served| served.leaf().facts().not_after)
    }

    /// Serial number of the served certificate, lower-case hex.
    pub fn serial(&self) -> Option<String> {
        self.resolver
            .served()
            .map(|served| served.leaf().facts().serial.clone())
    }

    /// Names that the served certificate is valid for.
    pub fn subject_alternative_names(&self) -> BTreeSet<String> {
        self.resolver
            .served()
            .map(|served| served.leaf().facts().names.clone())
            .unwrap_or_default()
    }

    /// The authorities that verify the served certificate, as PEM: what development mode registers. Empty without one.
    pub fn authorities_pem(&self) -> String {
        self.resolver
            .served()
            .map(|served| pem_of(served.authorities()))
            .unwrap_or_default()
    }

    /// Certificates taken into service since start.
    pub fn certificates_taken(&self) -> u64 {
        self.counters.leaves.load(Ordering::Relaxed)
    }

    /// Secret writes that were stored.
    pub fn secret_writes(&self) -> u64 {
        self.counters.secret_writes.load(Ordering::Relaxed)
    }

    /// Secret writes that another replica forestalled.
    pub fn secret_races_lost(&self) -> u64 {
        self.counters.secret_races_lost.load(Ordering::Relaxed)
    }

    /// caBundle patches that were stored.
    pub fn bundle_patches(&self) -> u64 {
        self.counters.bundle_patches.load(Ordering::Relaxed)
    }

    /// caBundle patches that another writer forestalled.
    pub fn bundle_races_lost(&self) -> u64 {
        self.counters.bundle_races_lost.load(Ordering::Relaxed)
    }

    /// Calls to the API server that failed.
    pub fn failed_calls(&self) -> u64 {
        self.counters.failed_calls.load(Ordering::Relaxed)
    }

    /// Handshakes that ended for want of a usable certificate.
    pub fn refused_handshakes(&self) -> u64 {
        self.resolver.refused_handshakes()
    }
}
