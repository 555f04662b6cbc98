//! A cluster with replicas of the manager in it, on tokio's paused clock: months pass in a moment.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shared::clock::Clock;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use super::api::ApiDouble;
use crate::{
    facts::Certificate,
    manager::Manager,
    settings::{Configurations, Lives, Names, Settings, Source},
    source::verifies,
    status::Certificates,
};

pub const SECRET: &str = "/api/v1/namespaces/offhours/secrets/offhours-webhook-ca";
pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/offhours";
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/offhours";

/// A day of these tests. Only proportions matter, and watches are renewed every five real minutes however far the clock is
/// moved: real days would be spent on that.
pub const DAY: Duration = Duration::from_secs(60);

/// A year and thirty days, in days of these tests.
pub fn usual() -> Lives {
    Lives {
        authority: 365 * DAY,
        leaf: 30 * DAY,
        propagation: DAY / 6,
        recheck: 2 * DAY,
        backdate: DAY / 20,
    }
}

/// Runs with tokio's clock (paused in tests), plus what a test adds: a wall clock that can be wrong and can jump.
pub struct TestClock {
    base: Timestamp,
    start: Instant,
    offset_seconds: AtomicI64,
}

impl TestClock {
    pub fn new() -> Arc<Self> {
        Self::ahead(0)
    }

    pub fn ahead(seconds: i64) -> Arc<Self> {
        let base = "2026-11-30T08:00:00Z".parse().expect("an instant");
        Arc::new(Self {
            base,
            start: Instant::now(),
            offset_seconds: AtomicI64::new(seconds),
        })
    }

    pub fn jump(&self, seconds: i64) {
        self.offset_seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).expect("a test does not last for ages");
        self.base + passed + SignedDuration::from_secs(self.offset_seconds.load(Ordering::SeqCst))
    }
}

pub struct Replica {
    pub certificates: Certificates,
    pub leads: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub struct World {
    pub api: ApiDouble,
    pub clock: Arc<TestClock>,
    pub lives: Lives,
    /// Leaves and bundles that were found to fit: signatures are checked once for each pair.
    verified: RefCell<Vec<(Certificate, Vec<Certificate>)>>,
}

impl World {
    /// A cluster that has both configurations, without any caBundle.
    pub fn new(lives: Lives) -> Self {
        let world = Self::bare(lives);
        world
            .api
            .put(MUTATING, configuration("MutatingWebhookConfiguration", 2));
        world
            .api
            .put(VALIDATING, configuration("ValidatingWebhookConfiguration", 1));
        world
    }

    /// A cluster without configurations.
    pub fn bare(lives: Lives) -> Self {
        Self {
            api: ApiDouble::new(),
            clock: TestClock::new(),
            lives,
            verified: RefCell::default(),
        }
    }

    pub fn settings(&self, identity: &str) -> Settings {
        Settings {
            source: Source::SelfSigned {
                secret: "offhours-webhook-ca".to_owned(),
            },
            namespace: "offhours".to_owned(),
            names: Names::of_service("offhours-webhook", "offhours"),
            configurations: Configurations {
                mutating: Some("offhours".to_owned()),
                validating: Some("offhours".to_owned()),
            },
            lives: self.lives.clone(),
            identity: identity.to_owned(),
            call_timeout: Duration::from_secs(5),
        }
    }

    /// Starts a replica in an install that elects nobody.
    pub fn start(&self, identity: &str) -> Replica {
        self.start_with(self.settings(identity), self.clock.clone(), false)
    }

    pub fn start_with(&self, settings: Settings, clock: Arc<dyn Clock>, elects: bool) -> Replica {
        let (leads, leadership) = watch::channel(false);
        let (manager, certificates) =
            Manager::new(settings, Some(&self.api.client()), clock, elects.then_some(leadership))
                .expect("good settings");
        let task = tokio::spawn(manager.run(std::future::pending()));
        Replica {
            certificates,
            leads,
            task,
        }
    }

    /// caBundles of every webhook of every configuration.
    pub fn bundles(&self) -> Vec<Vec<Certificate>> {
        [MUTATING, VALIDATING]
            .into_iter()
            .filter_map(|path| self.api.get(path))
            .flat_map(|configuration| bundles_of(&configuration))
            .collect()
    }

    /// Whether every webhook trusts what `replica` serves.
    pub fn trusts(&self, replica: &Replica) -> bool {
        let now = self.clock.now();
        let Some(served) = replica.certificates.resolver().usable() else {
            return false;
        };
        self.bundles().into_iter().all(|bundle| {
            let pair = (served.leaf().clone(), bundle);
            if self.verified.borrow().contains(&pair) {
                return served.leaf().facts().is_valid_at(now);
            }
            let fits = verifies(&pair.1, served.chain(), now);
            if fits {
                self.verified.borrow_mut().push(pair);
            }
            fits
        })
    }

    pub fn all_trusted(&self, replicas: &[Replica]) -> bool {
        !self.bundles().is_empty() && replicas.iter().all(|replica| self.trusts(replica))
    }

    /// Common name of the authority in the Secret.
    pub fn authority(&self) -> Option<Certificate> {
        let secret = self.api.get(SECRET)?;
        let pem = STANDARD.decode(secret["data"]["ca.crt"].as_str()?).ok()?;
        Certificate::from_pem(&pem).ok()
    }

    /// Blanks or sets all caBundles, as somebody who re-applies a manifest does.
    pub fn apply_manifest(&self, bundle: Option<&str>) {
        for path in [MUTATING, VALIDATING] {
            let mut configuration = self.api.get(path).expect("the configuration exists");
            for webhook in configuration["webhooks"].as_array_mut().expect("webhooks") {
                let client = webhook["clientConfig"].as_object_mut().expect("clientConfig");
                client.remove("caBundle");
                if let Some(bundle) = bundle {
                    client.insert("caBundle".to_owned(), json!(STANDARD.encode(bundle)));
                }
            }
            self.api.put(path, configuration);
        }
    }
}

pub fn trusted(bundles: &[Vec<Certificate>], certificates: &Certificates, now: Timestamp) -> bool {
    let Some(served) = certificates.resolver().usable() else {
        return false;
    };
    bundles.iter().all(|bundle| verifies(bundle, served.chain(), now))
}

thread_local! {
    /// Bundles are looked at ten times a second of the paused clock, and hardly ever change.
    static PARSED: RefCell<HashMap<String, Vec<Certificate>>> = RefCell::default();
}

pub fn bundles_of(configuration: &Value) -> Vec<Vec<Certificate>> {
    let webhooks = configuration["webhooks"].as_array().cloned().unwrap_or_default();
    webhooks
        .iter()
        .map(|webhook| {
            let encoded = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
            PARSED.with_borrow_mut(|parsed| {
                let parse =
                    || Certificate::all_from_pem(&STANDARD.decode(encoded).expect("base64")).unwrap_or_default();
                parsed.entry(encoded.to_owned()).or_insert_with(parse).clone()
            })
        })
        .collect()
}

pub fn configuration(kind: &str, webhooks: usize) -> Value {
    let webhooks: Vec<Value> = (0..webhooks)
        .map(|index| {
            json!({
                "name": format!("hold-{index}.offhours.platform.io"),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",
                "clientConfig": { "service": { "name": "offhours-webhook", "namespace": "offhours", "path": "/mutate" } },
            })
        })
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": { "name": "offhours" }, "webhooks": webhooks,
    })
}

/// Waits (on the paused clock) until `condition` holds; how long that took.
pub async fn within(limit: Duration, what: &str, condition: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100).min(limit / 50)).await;
    }
    start.elapsed()
}

/// Lets `time` pass on the paused clock.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
