//! Ties decision, issuer, store, bundle and resolver together: a task on every replica.
//!
//! It looks again whenever the Secret or a configuration changes (watched by name), when leadership changes, at the next
//! instant that matters, and every `recheck` by the wall clock.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Secret,
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use shared::clock::Clock;
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};

use crate::{
    bundle::{Configuration, Patched, Patcher, bundles},
    decision::{self, Bundle, BundleAction, Leadership, Trust, rank},
    external::Outside,
    facts::Certificate,
    issuer::Authority,
    reason::Reason,
    resolver::Served,
    settings::{Settings, SettingsError, Source},
    slot::Slot,
    status::{Certificates, Counters, Status},
    store::{SecretStore, StoredAuthority, StoredFault},
    turn::{Need, Turns},
};

/// A replica whose authority cannot be published (no rights, no API server) becomes ready after this long all the same.
const PUBLISH_PATIENCE: Duration = Duration::from_secs(30);
/// Two looks are never closer together than this.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
/// More looks than this in a row, each finding something to do, are a fault of ours: a pause keeps it cheap.
const MOST_LOOKS_IN_A_ROW: u32 = 16;

/// Why no manager could be made.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The settings contradict each other.
    #[error(transparent)]
    UseSettings(#[from] SettingsError),
    /// The source lives in the cluster, but there is no client for one.
    #[error(
        "unable to keep certificates from source {source_label:?} without a cluster: choose files, or give a kubeconfig"
    )]
    ReachCluster {
        /// The source.
        source_label: &'static str,
    },
}

/// One watched configuration.
pub(crate) struct Watched<K> {
    patcher: Option<Patcher<K>>,
    slot: Slot<K>,
    /// The bundles of the version that was parsed last: most looks find the same.
    parsed: (Option<String>, Vec<Bundle>),
}

impl<K: Configuration> Watched<K> {
    fn new(client: Option<&Client>, name: Option<&str>, timeout: Duration) -> Self {
        let patcher = client
            .zip(name)
            .map(|(client, name)| Patcher::new(client.clone(), name, timeout));
        let slot = if patcher.is_some() {
            Slot::default()
        } else {
            Slot::absent()
        };
        Self {
            patcher,
            slot,
            parsed: (None, Vec::new()),
        }
    }

    fn bundles(&mut self) -> &[Bundle] {
        let Some(configuration) = self.slot.object() else {
            return &[];
        };
        let version = configuration.meta().resource_version.as_ref();
        if version.is_none() || self.parsed.0.as_ref() != version {
            self.parsed = (version.cloned(), bundles(configuration));
        }
        &self.parsed.1
    }
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something was done: look again at once.
    Again,
    /// Nothing to do for so long.
    Wait(Duration),
}

/// Keeps the certificates of one replica. Make it with [`Manager::new`], then spawn [`Manager::run`].
pub struct Manager {
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    leadership: Option<watch::Receiver<bool>>,
    pub(crate) certificates: Certificates,
    pub(crate) store: Option<SecretStore>,
    pub(crate) secret: Slot<Secret>,
    pub(crate) memory: Option<StoredAuthority>,
    mutating: Watched<MutatingWebhookConfiguration>,
    validating: Watched<ValidatingWebhookConfiguration>,
    /// Since when each authority (own) or leaf (outside) is trusted everywhere.
    trusted_since: HashMap<Vec<u8>, Instant>,
    /// Whether there was any webhook whose trust matters, at the last look.
    any_webhook: bool,
    pub(crate) parsed: Option<(Option<String>, Result<StoredAuthority, StoredFault>)>,
    pub(crate) turns: Turns,
    /// The authority that signed our leaf, with its key.
    pub(crate) signing: Option<Authority>,
    pub(crate) replaced_at: Option<Instant>,
    /// We wrote the present authority: publishing it is ours too.
    pub(crate) publishing: bool,
    pub(crate) outside: Outside,
    pub(crate) status: Status,
    started: Instant,
}

impl Manager {
    /// Makes a manager and the handle for everybody else. Nothing happens before [`run`](Self::run). `leadership` tells
    /// whether this replica leads; `None` where nobody is elected.
    pub fn new(
        settings: Settings,
        client: Option<&Client>,
        clock: Arc<dyn Clock>,
        leadership: Option<watch::Receiver<bool>>,
    ) -> Result<(Self, Certificates), ManagerError> {
        settings.lives.validate()?;
        let secret = match &settings.source {
            Source::SelfSigned { secret } | Source::CertManager { secret, .. } => Some(secret.clone()),
            Source::InMemory | Source::Files { .. } => None,
        };
        if secret.is_some() && client.is_none() {
            return Err(ManagerError::ReachCluster {
                source_label: settings.source.label(),
            });
        }
        let timeout = settings.call_timeout;
        let store = client
            .zip(secret)
            .map(|(client, name)| SecretStore::new(client.clone(), &settings.namespace, &name, timeout));
        let certificates = Certificates::new(Arc::clone(&clock), settings.source.label());
        let manager = Self {
            certificates: certificates.clone(),
            leadership,
            secret: if store.is_some() {
                Slot::default()
            } else {
                Slot::absent()
            },
            store,
            memory: None,
            mutating: Watched::new(client, settings.configurations.mutating.as_deref(), timeout),
            validating: Watched::new(client, settings.configurations.validating.as_deref(), timeout),
            trusted_since: HashMap::new(),
            any_webhook: false,
            parsed: None,
            turns: Turns::new(rank(&settings.identity), settings.lives.clone()),
            signing: None,
            replaced_at: None,
            publishing: false,
            outside: Outside::default(),
            status: Status::default(),
            started: Instant::now(),
            settings,
            clock,
        };
        Ok((manager, certificates))
    }

    /// Keeps the certificates until `shutdown`. What is served stays served afterwards.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut secrets = self
            .store
            .as_ref()
            .map_or_else(idle, |store| watched(store.api(), store.name()));
        let mut mutating = self
            .mutating
            .patcher
            .as_ref()
            .map_or_else(idle, |patcher| watched(patcher.api(), patcher.name()));
        let mut validating = self
            .validating
            .patcher
            .as_ref()
            .map_or_else(idle, |patcher| watched(patcher.api(), patcher.name()));
        let mut leadership = self.leadership.clone();
        let mut wait = self.settle().await;
        let mut wake_at = Instant::now() + wait;
        loop {
            let changed = tokio::select! {
                () = &mut shutdown => break,
                Some(event) = secrets.next() => self.secret.take(event),
                Some(event) = mutating.next() => self.mutating.slot.take(event),
                Some(event) = validating.next() => self.validating.slot.take(event),
                () = leadership_change(&mut leadership) => true,
                () = tokio::time::sleep_until(wake_at) => true,
            };
            if changed {
                wait = self.settle().await;
                wake_at = Instant::now() + wait;
            }
        }
    }

    /// Looks until there is nothing to do; how long to rest then.
    pub(crate) async fn settle(&mut self) -> Duration {
        for _ in 0..MOST_LOOKS_IN_A_ROW {
            let look = match self.settings.source {
                Source::SelfSigned { .. } | Source::InMemory => self.look_at_own().await,
                Source::CertManager { .. } | Source::Files { .. } => self.look_at_outside().await,
            };
            self.publish_status();
            if let Look::Wait(wait) = look {
                return wait.clamp(SHORTEST_WAIT, self.settings.lives.recheck.max(SHORTEST_WAIT));
            }
        }
        warn!(reason = self.certificates.reason(), "certificates do not come to rest");
        Duration::from_secs(1)
    }

    fn publish_status(&mut self) {
        if !self.certificates.introduced.load(Ordering::Acquire)
            && let Some(served) = self.certificates.resolver.served()
        {
            let trusted = self
                .trust_key(&served)
                .is_none_or(|key| self.trust(&key) != Trust::Unseen);
            if trusted || self.started.elapsed() >= PUBLISH_PATIENCE {
                self.certificates.introduced.store(true, Ordering::Release);
            }
        }
        let before = self.certificates.status();
        if *before != self.status {
            if let Some(fault) = self
                .status
                .fault
                .as_ref()
                .filter(|fault| Some(*fault) != before.fault.as_ref())
            {
                warn!(%fault, label = fault.label(), "certificates: a call failed");
            }
            self.certificates.status.store(Arc::new(self.status.clone()));
        }
    }

    /// The certificate whose trust decides about `served`: its authority (own) or itself (outside).
    fn trust_key(&self, served: &Served) -> Option<Certificate> {
        match self.settings.source {
            Source::SelfSigned { .. } | Source::InMemory => served.authorities().first().cloned(),
            Source::CertManager { .. } | Source::Files { .. } => Some(served.leaf().clone()),
        }
    }

    pub(crate) fn leadership(&self) -> Leadership {
        match &self.leadership {
            None => Leadership::Nobody,
            Some(leads) if *leads.borrow() => Leadership::Leader,
            Some(_) => Leadership::Follower,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Notes a failed call.
    pub(crate) fn note_fault(&mut self, fault: &dyn std::fmt::Display) {
        Counters::count(&self.certificates.counters.failed_calls);
        self.status.fault = Some(Reason::CallFailed {
            fault: fault.to_string(),
        });
    }

    /// Reads what no watch has told (yet, or any more).
    pub(crate) async fn refresh(&mut self) {
        if let Some(store) = self.store.clone().filter(|_| needs_read(&self.secret)) {
            match store.read().await {
                Ok(secret) => self.secret.set(secret),
                Err(error) => {
                    self.secret.fail(&error.to_string());
                    self.note_fault(&error);
                }
            }
        }
        for error in [refresh(&mut self.mutating).await, refresh(&mut self.validating).await]
            .into_iter()
            .flatten()
        {
            self.note_fault(&error);
        }
    }

    /// Every caBundle of every configuration that exists.
    pub(crate) fn all_bundles(&mut self) -> Vec<Bundle> {
        let mut all = self.mutating.bundles().to_vec();
        all.extend_from_slice(self.validating.bundles());
        all
    }

    /// Keeps the time since when each of `certificates` is trusted by every webhook, as `is_trusted` tells.
    pub(crate) fn track_trust<'a>(
        &mut self,
        certificates: impl IntoIterator<Item = &'a Certificate>,
        is_trusted: impl Fn(&Certificate, &Bundle) -> bool,
    ) {
        let all = self.all_bundles();
        self.any_webhook = !all.is_empty();
        let now = Instant::now();
        let before = std::mem::take(&mut self.trusted_since);
        for certificate in certificates {
            if !all.is_empty() && all.iter().all(|bundle| is_trusted(certificate, bundle)) {
                let key = certificate.der().to_vec();
                let since = before.get(&key).copied().unwrap_or(now);
                self.trusted_since.insert(key, since);
            }
        }
    }

    /// How `certificate` is trusted, by the last [`track_trust`](Self::track_trust).
    pub(crate) fn trust(&self, certificate: &Certificate) -> Trust {
        if !self.any_webhook {
            return Trust::NotChecked;
        }
        let key: &[u8] = certificate.der();
        self.trusted_since
            .get(key)
            .map_or(Trust::Unseen, |since| Trust::Seen(since.elapsed()))
    }

    /// Makes both configurations trust `current` and, until `until`, `previous`.
    pub(crate) async fn keep_bundles(
        &mut self,
        current: &Certificate,
        previous: &[Certificate],
        until: Option<Timestamp>,
    ) -> Look {
        let now = self.now();
        let leadership = if self.publishing {
            Leadership::Leader
        } else {
            self.leadership()
        };
        let order = Order {
            current,
            previous,
            until,
            now,
            leadership,
        };
        let counters = Arc::clone(&self.certificates.counters);
        let kept = [
            keep_bundle(
                &mut self.mutating,
                &mut self.turns,
                Need::MutatingBundle,
                &order,
                &counters,
            )
            .await,
            keep_bundle(
                &mut self.validating,
                &mut self.turns,
                Need::ValidatingBundle,
                &order,
                &counters,
            )
            .await,
        ];
        let mut look = Look::Wait(self.settings.lives.recheck);
        self.status.bundle = None;
        for kept in kept.into_iter().flatten() {
            if let Some(fault) = &kept.fault {
                self.note_fault(fault);
            }
            // Of two configurations the one that is not as it should be is worth telling about.
            if self
                .status
                .bundle
                .as_ref()
                .is_none_or(|reason| *reason == Reason::BundleCurrent)
            {
                self.status.bundle = Some(kept.reason);
            }
            look = sooner(look, kept.look);
        }
        if matches!(self.status.bundle, None | Some(Reason::BundleCurrent)) {
            self.publishing = false;
        }
        look
    }

    /// Serves `served` from now on.
    pub(crate) fn take_into_service(&self, served: Served, reason: &Reason) {
        let facts = served.leaf().facts();
        info!(
            serial = facts.serial,
            not_after = %facts.not_after,
            label = reason.label(),
            "new certificate in service: {reason}"
        );
        self.certificates.resolver.serve(served);
        Counters::count(&self.certificates.counters.leaves);
    }

    /// How long until `instant`.
    pub(crate) fn until(&self, instant: Timestamp) -> Duration {
        Duration::try_from(instant.duration_since(self.now())).unwrap_or(Duration::ZERO)
    }
}

/// The earlier of two looks.
pub(crate) fn sooner(left: Look, right: Look) -> Look {
    match (left, right) {
        (Look::Wait(left), Look::Wait(right)) => Look::Wait(left.min(right)),
        _ => Look::Again,
    }
}

struct Order<'a> {
    current: &'a Certificate,
    previous: &'a [Certificate],
    until: Option<Timestamp>,
    now: Timestamp,
    leadership: Leadership,
}

struct Kept {
    reason: Reason,
    look: Look,
    fault: Option<String>,
}

async fn keep_bundle<K: Configuration>(
    watched: &mut Watched<K>,
    turns: &mut Turns,
    need: Need,
    order: &Order<'_>,
    counters: &Counters,
) -> Option<Kept> {
    let webhooks = watched.bundles().to_vec();
    let (patcher, configuration) = (watched.patcher.as_ref()?, watched.slot.object()?);
    if webhooks.is_empty() {
        return None;
    }
    let decided = decision::bundle(&webhooks, order.current, order.previous, order.until, order.now);
    let rest = decided.next.map_or(Duration::MAX, |next| {
        Duration::try_from(next.duration_since(order.now)).unwrap_or(Duration::ZERO)
    });
    let kept = |look, fault| {
        Some(Kept {
            reason: decided.reason.clone(),
            look,
            fault,
        })
    };
    if decided.action == BundleAction::Keep {
        turns.met(need);
        return kept(Look::Wait(rest), None);
    }
    if let Some(wait) = turns.wait(need, decided.urgency, order.leadership) {
        return kept(Look::Wait(wait.min(rest)), None);
    }
    match patcher.publish(configuration, &decided.desired).await {
        Ok(Patched::Stored(configuration)) => {
            info!(
                configuration = patcher.name(),
                kind = %K::kind(&()),
                label = decided.reason.label(),
                "caBundle written: {}",
                decided.reason
            );
            Counters::count(&counters.bundle_patches);
            turns.met(need);
            watched.slot.set(Some(*configuration));
            kept(Look::Again, None)
        }
        // The watch brings what the other writer made of it; until then one short pause.
        Ok(Patched::Lost) => {
            Counters::count(&counters.bundle_races_lost);
            let fresh = patcher.read().await;
            turns.failed(need);
            match fresh {
                Ok(fresh) => {
                    watched.slot.set(fresh);
                    kept(Look::Wait(SHORTEST_WAIT), None)
                }
                Err(error) => kept(Look::Wait(SHORTEST_WAIT), Some(error.to_string())),
            }
        }
        Ok(Patched::Absent) => {
            watched.slot.set(None);
            turns.met(need);
            None
        }
        Err(error) => {
            turns.failed(need);
            let wait = turns
                .wait(need, decided.urgency, order.leadership)
                .unwrap_or(SHORTEST_WAIT);
            kept(Look::Wait(wait), Some(error.to_string()))
        }
    }
}

fn needs_read<K>(slot: &Slot<K>) -> bool {
    !slot.is_synced() || slot.fault().is_some()
}

async fn refresh<K: Configuration>(watched: &mut Watched<K>) -> Option<String> {
    let patcher = watched.patcher.as_ref().filter(|_| needs_read(&watched.slot))?;
    match patcher.read().await {
        Ok(configuration) => {
            watched.slot.set(configuration);
            None
        }
        Err(error) => {
            watched.slot.fail(&error.to_string());
            Some(error.to_string())
        }
    }
}

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<K>>> + Send>>;

fn idle<K: Send + 'static>() -> Events<K> {
    Box::pin(stream::pending())
}

fn watched<K>(api: &Api<K>, name: &str) -> Events<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    Box::pin(watcher(api.clone(), config).default_backoff())
}

async fn leadership_change(leadership: &mut Option<watch::Receiver<bool>>) {
    let ended = match leadership {
        Some(leads) => leads.changed().await.is_err(),
        None => std::future::pending().await,
    };
    if ended {
        // The elector is gone; what it said last stands, and nothing more will come.
        *leadership = None;
        std::future::pending::<()>().await;
    }
}
