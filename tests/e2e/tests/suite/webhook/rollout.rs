//! Replicas of the built binary behind a Service are replaced one by one, and their Secret is deleted, under load.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use harness::{ControlPlane, Identity, Product, SOON, free_port, http_get, wait_for};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared::kinds::Kinds;
use shared::rules::{FailurePolicy, Place, Registration};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::stage::deployment;
use crate::product::schedule;

const SERVICE: &str = "offhours-webhook";
const SECRET: &str = "offhours-webhook-ca";

struct Replica {
    product: Product,
    webhook: u16,
    ops: u16,
}

/// A namespace for the product and one with a sleeper, on the control plane of everybody.
struct Scene {
    plane: &'static ControlPlane,
    who: Identity,
    own: String,
    shop: String,
    configuration: String,
}

impl Scene {
    async fn replica(&self) -> anyhow::Result<Replica> {
        let (webhook, ops) = (free_port()?, free_port()?);
        let (webhook_address, ops_address) = (format!("127.0.0.1:{webhook}"), format!("127.0.0.1:{ops}"));
        let environment = [
            ("OFFHOURS_WEBHOOK_ADDRESS", webhook_address.as_str()),
            ("OFFHOURS_OPS_ADDRESS", ops_address.as_str()),
            ("OFFHOURS_WEBHOOK_NAME", self.configuration.as_str()),
            ("POD_NAMESPACE", self.own.as_str()),
            ("OFFHOURS_DRAIN_TIMEOUT", "8s"),
        ];
        let product = Product::start(self.plane, &self.who, &["webhook"], &environment)?;
        product.wait_until_ready(ops, "/readyz", SOON).await?;
        Ok(Replica { product, webhook, ops })
    }

    /// Both configurations, for the namespace of the sleeper alone, under names of their own for the API server's metrics.
    async fn register(&self, port: u16, failure_policy: FailurePolicy) -> anyhow::Result<()> {
        let registration = Registration {
            name: self.configuration.clone(),
            place: Place::Service {
                namespace: self.own.clone(),
                name: SERVICE.to_owned(),
                port,
            },
            namespaces: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
                match_labels: Some([("kubernetes.io/metadata.name".to_owned(), self.shop.clone())].into()),
                ..Default::default()
            }),
            failure_policy,
            ..Registration::in_cluster(&self.own, SERVICE, "offhours")
        };
        let kinds = Kinds::default();
        for mut configuration in [
            serde_json::to_value(registration.mutating(&kinds)?)?,
            serde_json::to_value(registration.validating(&kinds)?)?,
        ] {
            let webhooks = configuration["webhooks"].as_array_mut().context("webhooks")?;
            webhooks.retain(|webhook| webhook["rules"][0]["scope"] == "Namespaced");
            for webhook in webhooks {
                let name = format!(
                    "{}.{}",
                    self.configuration,
                    webhook["name"].as_str().unwrap_or_default()
                );
                webhook["name"] = json!(name);
            }
            // Server-side, so that the bundles that the replicas wrote stay.
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
            self.plane
                .kubectl(&apply)?
                .stdin(configuration.to_string())
                .ok()
                .await?;
        }
        Ok(())
    }

    /// Calls of ours that were failed open, and expressions of ours that could not be evaluated.
    async fn failed_open(&self) -> anyhow::Result<u64> {
        let metrics = self.plane.kubectl(&["get", "--raw", "/metrics"])?.ok().await?.stdout;
        let of = metrics.lines().filter(|line| {
            let counts = ["webhook_fail_open_count", "match_condition_evaluation_errors_total"];
            counts.iter().any(|name| line.contains(name)) && line.contains(&self.configuration)
        });
        Ok(of.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum())
    }
}

/// What is behind the Service: new connections go to its endpoints in turn.
#[derive(Default)]
struct Endpoints {
    ready: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
}

impl Endpoints {
    fn add(&self, port: u16) {
        self.ready
            .lock()
            .unwrap()
            .push(SocketAddr::from(([127, 0, 0, 1], port)));
    }

    fn remove(&self, port: u16) {
        self.ready.lock().unwrap().retain(|address| address.port() != port);
    }

    fn choose(&self) -> Option<SocketAddr> {
        let ready = self.ready.lock().unwrap();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        ready.get(turn % ready.len().max(1)).copied()
    }
}

async fn balance(listener: TcpListener, endpoints: Arc<Endpoints>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let Some(address) = endpoints.choose() else { continue };
        tokio::spawn(async move {
            if let Ok(mut replica) = TcpStream::connect(address).await {
                let _ = copy_bidirectional(&mut client, &mut replica).await;
            }
        });
    }
}

#[derive(Default)]
struct Load {
    done: AtomicU64,
    stop: AtomicBool,
    failures: Mutex<Vec<String>>,
}

impl Load {
    fn check(&self, when: &str) -> anyhow::Result<()> {
        let failures = self.failures.lock().unwrap();
        ensure!(
            failures.is_empty(),
            "{when}: {} failed beside {} that did not: {:?}",
            failures.len(),
            self.done.load(Ordering::Relaxed),
            failures.first()
        );
        Ok(())
    }
}

/// Raises what sleeps, again and again; that it passes is a failure, too.
async fn hammer(api: Api<Deployment>, load: Arc<Load>) {
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let raise: Patch<Value> = Patch::Merge(json!({"spec": {"replicas": 5}}));
    while !load.stop.load(Ordering::Relaxed) {
        match api.patch("web", &dry, &raise).await {
            Ok(answer) => {
                let replicas = answer.spec.and_then(|spec| spec.replicas);
                if replicas == Some(0) {
                    load.done.fetch_add(1, Ordering::Relaxed);
                } else {
                    load.failures
                        .lock()
                        .unwrap()
                        .push(format!("it passed with {replicas:?}"));
                }
            }
            Err(error) => load.failures.lock().unwrap().push(error.to_string()),
        }
    }
}

async fn stage() -> anyhow::Result<Scene> {
    let plane = ControlPlane::shared().await?;
    crate::schedules::with_definition(plane).await?;
    let night = plane.unique_name("night");
    let own = plane.namespace("rollout", &[]).await?;
    let who = Identity::service_account(&own, "offhours");
    plane
        .apply(
            &json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": own},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "offhours", "namespace": own}],
            })
            .to_string(),
        )
        .await?;
    plane.apply(&schedule(&night, "Down")).await?;
    let shop = plane
        .namespace("shop", &[("offhours.platform.io/schedule", &night)])
        .await?;
    let mut web = deployment("web", 0);
    web["metadata"] = json!({
        "name": "web", "labels": {"offhours.platform.io/asleep": "3"},
        "annotations": {
            "offhours.platform.io/original-replicas": "3", "offhours.platform.io/down-since": "2026-01-01T00:00:00Z",
        },
    });
    plane
        .kubectl(&["create", "-n", &shop, "-f", "-"])?
        .stdin(web.to_string())
        .ok()
        .await?;
    Ok(Scene {
        configuration: own.clone(),
        plane,
        who,
        own,
        shop,
    })
}

/// As a Deployment's rollout does it: a new one is ready first, then an old one is told to go, and leaves the Service when it
/// says that it is not ready any more.
async fn replace(place: &Scene, endpoints: &Endpoints, old: Replica) -> anyhow::Result<Replica> {
    let new = place.replica().await?;
    endpoints.add(new.webhook);
    old.product.signal(harness::Signal::TERM)?;
    wait_for("the old replica to leave", SOON, || async {
        let (status, _) = http_get(old.ops, "/readyz").await.unwrap_or((0, String::new()));
        ensure!(status != 200, "it is ready still");
        Ok(())
    })
    .await?;
    endpoints.remove(old.webhook);
    let ended = old.product.wait_for_exit(SOON).await?;
    ensure!(ended.success(), "{ended}: {}", old.product.log());
    Ok(new)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_replicas_are_replaced_or_their_secret_is_deleted_under_load() -> anyhow::Result<()> {
    let place = stage().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    place.plane.service_to_localhost(&place.own, SERVICE, port).await?;
    let endpoints = Arc::new(Endpoints::default());
    let balancer = tokio::spawn(balance(listener, Arc::clone(&endpoints)));
    place.register(port, FailurePolicy::Fail).await?;
    let mut replicas = Vec::new();
    for replica in [place.replica().await?, place.replica().await?] {
        endpoints.add(replica.webhook);
        replicas.push(replica);
    }
    let admin = place.plane.admin().await?;
    let api: Api<Deployment> = Api::namespaced(admin.clone(), &place.shop);
    wait_for("the API server to trust the replicas", SOON, || async {
        let trial = Arc::new(Load::default());
        trial.stop.store(true, Ordering::Relaxed);
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let raise: Patch<Value> = Patch::Merge(json!({"spec": {"replicas": 5}}));
        let answer = api.patch("web", &dry, &raise).await?;
        ensure!(answer.spec.and_then(|spec| spec.replicas) == Some(0), "it passes");
        Ok(())
    })
    .await?;

    let load = Arc::new(Load::default());
    let hammers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(hammer(api.clone(), Arc::clone(&load))))
        .collect();
    for round in 0..2 {
        let new = replace(&place, &endpoints, replicas.remove(0)).await?;
        replicas.push(new);
        load.check(&format!("replica {round} replaced"))?;
    }
    delete_and_damage(&admin, &place).await?;
    load.check("the Secret deleted and damaged")?;

    // Under Ignore nothing fails: what is not called is counted by the API server.
    place.register(port, FailurePolicy::Ignore).await?;
    let before = place.failed_open().await?;
    let new = replace(&place, &endpoints, replicas.remove(0)).await?;
    replicas.push(new);
    load.stop.store(true, Ordering::Relaxed);
    for hammer in hammers {
        hammer.await?;
    }
    load.check("a replica replaced under Ignore")?;
    let after = place.failed_open().await?;
    ensure!(before == 0 && after == 0, "{before} and {after} calls failed open");
    let done = load.done.load(Ordering::Relaxed);
    ensure!(done > 100, "only {done} requests");
    println!("{done} requests held, 3 replicas replaced, the Secret deleted and damaged: 0 failed");
    balancer.abort();
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        place
            .plane
            .kubectl(&["delete", kind, &place.configuration])?
            .ok()
            .await?;
    }
    Ok(())
}

/// Each is mended within five seconds.
async fn delete_and_damage(admin: &kube::Client, place: &Scene) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), &place.own);
    let limit = Duration::from_secs(5);
    let whole = |key: &'static str| {
        let secrets = secrets.clone();
        async move {
            let data = secrets.get(SECRET).await?.data.unwrap_or_default();
            let value = data.get(key).filter(|value| !value.0.is_empty());
            value.map(drop).with_context(|| format!("no {key}"))
        }
    };
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    wait_for("the Secret to be back", limit, || whole("ca.crt")).await?;
    let damage: Patch<Value> = Patch::Merge(json!({"data": {"ca.key": ""}}));
    secrets.patch(SECRET, &PatchParams::default(), &damage).await?;
    wait_for("the key to be back", limit, || whole("ca.key")).await
}
