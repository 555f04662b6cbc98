//! The loop that reads and writes the Lease. Client required.

use std::{
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
};
use shared::clock::Clock;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::{
    evaluate::{AcquireBecause, Decision, Held, LostBecause, Observed, Record, evaluate},
    leadership::Leadership,
    settings::LeaseSettings,
};

/// A repeated complaint about the lease is logged this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// How long an unused connection for the lease is kept: longer than between two renewals.
const KEEP_CONNECTION: Duration = Duration::from_secs(600);

/// A client for the lease alone: no retries of its own, so that a hanging API server costs one call.
pub fn lease_client(config: Config, call_timeout: Duration) -> Result<Client, kube::Error> {
    Client::try_from(lease_config(config, call_timeout))
}

/// The runner gives each call its time. The read timeout must not be that time: it also runs while a connection waits for the
/// next renewal, and would break that one off in the middle.
pub(super) fn lease_config(mut config: Config, call_timeout: Duration) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(call_timeout);
    config.write_timeout = Some(call_timeout);
    config.read_timeout = Some(KEEP_CONNECTION);
    config.reset_reader_on_write = true;
    config
}

/// An identity that no other process has, also after a restart under the same Pod name.
///
/// Two processes of one identity would both believe that they hold the lease.
pub fn new_identity(host: &str) -> String {
    // Seeded by the operating system, once per process.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{host}_{:016x}", hasher.finish())
}

/// Counters of the election.
#[derive(Debug, Default)]
pub struct LeaseStats {
    /// Renewals that succeeded.
    pub renewed: AtomicU64,
    /// Times that this process began to lead.
    pub acquired: AtomicU64,
    /// Times that it stopped leading without being told to end.
    pub lost: AtomicU64,
    /// Calls that found the lease changed by somebody (409).
    pub conflicts: AtomicU64,
    /// Calls that failed in another way.
    pub failures: AtomicU64,
}

#[derive(Debug, Error)]
enum CallError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl CallError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }
}

/// Runs the election for one process.
pub struct LeaseRunner {
    api: Api<Lease>,
    settings: LeaseSettings,
    wall: Arc<dyn Clock>,
    leadership: Leadership,
    stats: Arc<LeaseStats>,
    start: Instant,
    observed: Observed,
    lease: Option<Lease>,
    held: Option<Held>,
    complained_at: Option<Instant>,
    /// A claim was sent whose answer is not known: it may be in force.
    claiming: bool,
}

impl LeaseRunner {
    /// A runner and the handle for writers. `wall` only dates the record and makes the holder more careful.
    pub fn new(client: Client, settings: LeaseSettings, wall: Arc<dyn Clock>) -> (Self, Leadership) {
        let leadership = Leadership::new(&settings, Arc::clone(&wall));
        let runner = Self {
            api: Api::namespaced(client, &settings.namespace),
            settings,
            wall,
            leadership: leadership.clone(),
            stats: Arc::default(),
            start: Instant::now(),
            observed: Observed::default(),
            lease: None,
            held: None,
            complained_at: None,
            claiming: false,
        };
        (runner, leadership)
    }

    /// The counters.
    pub fn stats(&self) -> Arc<LeaseStats> {
        Arc::clone(&self.stats)
    }

    /// Takes part in the election until `shutdown` ends, then gives the lease back.
    ///
    /// End the writers first: from the moment that `shutdown` ends no permit is given, and the next leader may start.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        let mut shutdown = pin!(shutdown);
        loop {
            let pause_until = tokio::select! {
                biased;
                () = &mut shutdown => break,
                until = self.step() => until,
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = sleep_until(pause_until) => {}
            }
        }
        self.release().await;
    }

    /// One decision and at most two calls; returns when to look again.
    ///
    /// May be dropped at any call: what is known changes only after an answer.
    async fn step(&mut self) -> Instant {
        if self.held.is_none() && !self.look().await {
            return Instant::now() + self.settings.retry_period;
        }
        let now = self.now();
        match evaluate(&self.observed, self.held.as_ref(), &self.settings, now) {
            Decision::Acquire(because) => self.claim(Some(because)).await,
            Decision::Renew => self.claim(None).await,
            Decision::Lost(because) => {
                self.lose(&because);
                Instant::now()
            }
            Decision::Wait(until) if self.held.is_some() => {
                self.begin_when_due();
                match self.held {
                    Some(held) if held.leads_from > now => self.instant(until.min(held.leads_from)),
                    _ => self.instant(until),
                }
            }
            Decision::Wait(until) => self.instant(until).min(Instant::now() + self.settings.retry_period),
        }
    }

    /// Reads the lease; false when that failed.
    async fn look(&mut self) -> bool {
        let limit = self.call_limit();
        let read = timeout(limit, self.api.get_opt(&self.settings.name)).await;
        match read {
            Ok(Ok(lease)) => {
                self.take_in(lease);
                self.leadership.steady(true);
                true
            }
            Ok(Err(error)) => {
                self.complain("get", &error.into());
                false
            }
            Err(_) => {
                self.complain("get", &CallError::Timeout(limit));
                false
            }
        }
    }

    /// Writes our claim; what is known of the lease decides whether by `create` or by `replace`.
    async fn claim(&mut self, because: Option<AcquireBecause>) -> Instant {
        let record = self.observed.record.clone().unwrap_or_default();
        let wall = self.wall.now();
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        lease.metadata.managed_fields = None;
        lease.spec = Some(record.claimed(&self.settings, wall));
        let sent_at = self.now();
        let limit = self.call_limit();
        self.claiming = true;
        let answer = {
            let parameters = PostParams::default();
            let call = async {
                if self.lease.is_some() {
                    self.api.replace(&self.settings.name, &parameters, &lease).await
                } else {
                    self.api.create(&parameters, &lease).await
                }
            };
            match timeout(limit, call).await {
                Ok(answer) => answer.map_err(CallError::from),
                Err(_) => Err(CallError::Timeout(limit)),
            }
        };
        match answer {
            Ok(lease) => {
                self.claiming = false;
                self.take_in(Some(lease));
                self.hold(because, &record, sent_at, wall);
                Instant::now()
            }
            Err(error) => {
                let verb = if self.lease.is_some() { "update" } else { "create" };
                // A `create` that finds nothing has no namespace: that is no conflict and must be said.
                if error.code() == Some(409) || (error.code() == Some(404) && self.lease.is_some()) {
                    self.stats.conflicts.fetch_add(1, Ordering::Relaxed);
                    debug!(verb, %error, "lease changed meanwhile, reading it again");
                    if self.look().await && self.held.is_some() {
                        // Ours with a new resourceVersion: again at once. Another's: `evaluate` says so.
                        return self.after_failed_renewal(Duration::ZERO);
                    }
                } else {
                    self.complain(verb, &error);
                }
                self.after_failed_renewal(self.settings.retry_period)
            }
        }
    }

    /// How long one call may take: a holder gives up at its deadline, so that the loss is told in time.
    fn call_limit(&self) -> Duration {
        match self.held {
            Some(held) => self
                .settings
                .call_timeout
                .min((held.renewed_at + self.settings.renew_deadline).saturating_sub(self.now())),
            None => self.settings.call_timeout,
        }
    }

    /// When to try again: a holder never sleeps past its deadline.
    fn after_failed_renewal(&self, pause: Duration) -> Instant {
        // A quick pause even after a conflict: somebody who edits the lease in a loop must not make us one.
        let pause = pause.max(Duration::from_millis(20)).min(self.settings.retry_period);
        let again = Instant::now() + pause;
        match self.held {
            Some(held) => again.min(self.instant(held.renewed_at + self.settings.renew_deadline)),
            None => again,
        }
    }

    fn hold(&mut self, because: Option<AcquireBecause>, former: &Record, sent_at: Duration, wall: Timestamp) {
        let leads_from = match (self.held, because) {
            (Some(held), _) => held.leads_from,
            (None, Some(AcquireBecause::TakeOver)) => sent_at + former.keeps_others_away(&self.settings),
            (None, _) => sent_at,
        };
        self.held = Some(Held {
            renewed_at: sent_at,
            leads_from,
        });
        self.leadership
            .renewed(self.instant(sent_at), wall, self.instant(leads_from));
        self.complained_at = None;
        if let Some(because) = because {
            info!(lease = %self.lease_name(), identity = %self.settings.identity, ?because, "holding the lease");
        } else {
            self.stats.renewed.fetch_add(1, Ordering::Relaxed);
            self.leadership.steady(true);
        }
        self.begin_when_due();
    }

    fn begin_when_due(&self) {
        let due = self.held.is_some_and(|held| held.leads_from <= self.now());
        // A call that came back late may have used the lead up already; then the next decision is Lost.
        if due && self.leadership.time_left().is_some() && !self.leadership.state().leading {
            self.stats.acquired.fetch_add(1, Ordering::Relaxed);
            self.leadership.begin(&self.settings.identity);
            info!(lease = %self.lease_name(), identity = %self.settings.identity, "leading");
        }
    }

    fn lose(&mut self, because: &LostBecause) {
        self.held = None;
        let holder = self.observed.record.as_ref().and_then(|record| record.holder.clone());
        self.leadership.resign(holder, false);
        self.stats.lost.fetch_add(1, Ordering::Relaxed);
        warn!(lease = %self.lease_name(), identity = %self.settings.identity, ?because, "leading no longer");
    }

    fn take_in(&mut self, lease: Option<Lease>) {
        let now = self.now();
        self.observed.see(lease.as_ref().map(Record::of), &self.settings, now);
        self.lease = lease;
        let holder = self.observed.record.as_ref().and_then(|record| record.holder.clone());
        self.leadership.holder(holder);
    }

    async fn release(mut self) {
        let holds = self.held.take().is_some();
        self.leadership.resign(None, true);
        let unknown = std::mem::take(&mut self.claiming);
        if !holds && !unknown {
            return;
        }
        if unknown && !self.look().await {
            return;
        }
        // A second try for the case that the last renewal's answer was lost or somebody edited the object.
        for _ in 0..2 {
            let Some(mut lease) = self.lease.clone() else { return };
            if Record::of(&lease).holder.as_deref() != Some(self.settings.identity.as_str()) {
                return;
            }
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = None;
            }
            lease.metadata.managed_fields = None;
            let parameters = PostParams::default();
            let call = self.api.replace(&self.settings.name, &parameters, &lease);
            match timeout(self.settings.call_timeout, call).await {
                Ok(Ok(_)) => {
                    info!(lease = %self.lease_name(), identity = %self.settings.identity, "gave the lease back");
                    return;
                }
                Ok(Err(error)) => {
                    debug!(%error, "lease not given back at the first try");
                    if !self.look().await {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        warn!(lease = %self.lease_name(), "failed to give the lease back: the next leader waits until it expires");
    }

    fn complain(&mut self, verb: &str, error: &CallError) {
        self.stats.failures.fetch_add(1, Ordering::Relaxed);
        self.leadership.steady(false);
        let now = Instant::now();
        if self
            .complained_at
            .is_some_and(|at| now.saturating_duration_since(at) < COMPLAIN_EVERY)
        {
            return;
        }
        self.complained_at = Some(now);
        let remedy = match error.code() {
            Some(401) => "the credentials were refused: check the token or the kubeconfig",
            Some(403) => "grant get, create and update on leases in API group coordination.k8s.io in this namespace",
            Some(404) => "create the namespace, or set the lease namespace to one that exists",
            _ => "it is tried again",
        };
        warn!(verb, lease = %self.lease_name(), %error, remedy, "failed to reach the lease");
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.start)
    }

    fn instant(&self, since_start: Duration) -> Instant {
        self.start + since_start
    }
}
