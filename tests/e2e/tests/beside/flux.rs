//! Nights under the real Flux: `make test-flux`. A Kustomization has its workload's replicas in its source and puts them
//! back at every interval, until it is suspended.

use anyhow::ensure;
use harness::{Flux, Product, Shared, wait_for};
use serde_json::{Value, json};

use crate::{
    place::{LATER, Place, deployment, our_keys},
    product::Cluster,
};

const IMAGE: &str = "nginx:1.27";
const NEWER: &str = "nginx:1.28";
/// How often Flux looks by itself.
const INTERVAL: &str = "2s";

struct Stage {
    cluster: Cluster,
    flux: Flux,
    _servers: Product,
}

impl Stage {
    /// Started by whoever asks first.
    async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: Shared<Stage> = Shared::new();
        SHARED.get(Self::start).await
    }

    async fn start() -> anyhow::Result<Self> {
        let cluster = Cluster::start("flux").await?;
        let flux = Flux::start(&cluster.plane).await?;
        cluster.install_crd().await?;
        let servers = cluster.run().await?.0;
        Ok(Self {
            cluster,
            flux,
            _servers: servers,
        })
    }
}

/// A workload `web` that Flux keeps at three replicas, and beside it `clock`, which is never suspended: what is missing of it is
/// back when Flux has looked.
struct Shop {
    flux: &'static Flux,
    place: Place,
}

impl std::ops::Deref for Shop {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

fn clock() -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "clock"}}).to_string()
}

impl Shop {
    /// `suspend`: what its spec says of it by day.
    async fn start(prefix: &str, suspend: Option<bool>) -> anyhow::Result<Self> {
        let stage = Stage::shared().await?;
        let shop = Self {
            flux: &stage.flux,
            place: Place::new(&stage.cluster, prefix).await?,
        };
        shop.publish(1, IMAGE).await?;
        for name in ["shop", "clock"] {
            let mut spec = json!({
                "interval": INTERVAL, "prune": true, "path": format!("./{name}"), "targetNamespace": shop.namespace,
                "sourceRef": {"kind": "GitRepository", "name": "git"},
            });
            if let Some(suspend) = suspend.filter(|_| name == "shop") {
                spec["suspend"] = suspend.into();
            }
            let api = "kustomize.toolkit.fluxcd.io/v1";
            shop.apply(&json!({"apiVersion": api, "kind": "Kustomization", "metadata": {"name": name}, "spec": spec}))
                .await?;
        }
        wait_for("the first reconciliation", LATER, || async {
            let ready = |object: &Value| {
                let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let ready = conditions.iter().find(|one| one["type"] == "Ready").cloned();
                (ready.clone().is_some_and(|one| one["status"] == "True"), ready)
            };
            for name in ["shop", "clock"] {
                let (ready, told) = ready(&shop.owner_named(name).await?);
                ensure!(ready, "{name}: {told:?}");
            }
            Ok(())
        })
        .await?;
        shop.until_replicas("web", 3).await?;
        Ok(shop)
    }

    /// What is in its source from now on.
    async fn publish(&self, revision: u32, image: &str) -> anyhow::Result<()> {
        let (web, clock) = (deployment("web", Some(3), image), clock());
        let files = [("shop/web.yaml", web.as_str()), ("clock/clock.yaml", clock.as_str())];
        let source = (self.namespace.as_str(), "git");
        let revision = format!("main@sha1:{revision:040}");
        self.flux.publish(&self.cluster.plane, source, &revision, &files).await
    }

    async fn owner_named(&self, name: &str) -> anyhow::Result<Value> {
        self.get("kustomization", name).await
    }

    async fn suspend(&self, suspend: bool) -> anyhow::Result<()> {
        let patch = json!({"spec": {"suspend": suspend}}).to_string();
        let words = [
            "patch",
            "kustomization",
            "shop",
            "-n",
            &self.namespace,
            "--type=merge",
            "-p",
            &patch,
        ];
        self.kubectl(&words).await.map(drop)
    }

    async fn scale(&self, replicas: u32) -> anyhow::Result<()> {
        let replicas = format!("--replicas={replicas}");
        let words = ["scale", "deployment", "web", &replicas, "-n", &self.namespace];
        self.kubectl(&words).await.map(drop)
    }

    /// Returns when Flux has looked once more.
    async fn tick(&self) -> anyhow::Result<()> {
        let words = ["delete", "configmap", "clock", "-n", &self.namespace];
        self.kubectl(&words).await?;
        wait_for("Flux to look again", LATER, || self.get("configmap", "clock"))
            .await
            .map(drop)
    }

    /// Flux looks several times, and what sleeps goes on sleeping.
    async fn stays_asleep(&self) -> anyhow::Result<()> {
        for _ in 0..3 {
            self.tick().await?;
            let replicas = self.replicas("web").await?;
            ensure!(replicas == 0, "awake: {replicas}");
        }
        Ok(())
    }

    /// The schedule; nobody holds what is down, so that the suspension alone must do.
    async fn to(&self, state: &str) -> anyhow::Result<()> {
        self.under("Off", state).await
    }

    async fn under(&self, enforcement: &str, state: &str) -> anyhow::Result<()> {
        let more = json!({"flux": {"pause": true}, "enforcement": {"mode": enforcement}});
        self.turn(state, &more).await
    }

    async fn until_resumed(&self) -> anyhow::Result<Value> {
        wait_for("the owner to be resumed", LATER, || async {
            let object = self.owner_named("shop").await?;
            let left = our_keys(&object);
            ensure!(left.is_empty(), "{left:?}");
            Ok(object)
        })
        .await
    }

    async fn image(&self) -> anyhow::Result<Value> {
        Ok(self.get("deployment", "web").await?["spec"]["template"]["spec"]["containers"][0]["image"].take())
    }
}

async fn a_night(prefix: &str, suspend: Option<bool>) -> anyhow::Result<()> {
    let shop = Shop::start(prefix, suspend).await?;
    // By day it is what Flux wants it to be.
    shop.scale(5).await?;
    shop.until_replicas("web", 3).await?;
    let before = shop.owner_named("shop").await?["spec"].take();

    shop.to("Down").await?;
    shop.until_replicas("web", 0).await?;
    ensure!(shop.owner_named("shop").await?["spec"]["suspend"] == true);
    shop.stays_asleep().await?;
    // Also when there is something new.
    shop.publish(2, NEWER).await?;
    shop.stays_asleep().await?;
    ensure!(shop.image().await? == IMAGE);

    shop.to("Up").await?;
    shop.until_replicas("web", 3).await?;
    let after = shop.until_resumed().await?["spec"].take();
    ensure!(after == before, "{before} -> {after}");
    wait_for("what came by night", LATER, || async {
        let image = shop.image().await?;
        ensure!(image == NEWER, "{image}");
        Ok(())
    })
    .await?;
    ensure!(shop.replicas("web").await? == 3);
    shop.scale(5).await?;
    shop.until_replicas("web", 3).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn a_kustomization_sleeps_through_the_night_and_comes_back_as_it_was() -> anyhow::Result<()> {
    a_night("plain", None).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn so_does_one_that_says_that_it_is_not_suspended() -> anyhow::Result<()> {
    a_night("said", Some(false)).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn case_4_11_one_that_its_owner_suspended_stays_suspended_by_day() -> anyhow::Result<()> {
    let shop = Shop::start("owner", None).await?;
    shop.suspend(true).await?;
    shop.tick().await?;
    let before = shop.owner_named("shop").await?;
    shop.to("Down").await?;
    shop.until_replicas("web", 0).await?;
    shop.stays_asleep().await?;
    ensure!(our_keys(&shop.owner_named("shop").await?).is_empty());

    shop.to("Up").await?;
    shop.until_replicas("web", 3).await?;
    shop.scale(5).await?;
    for _ in 0..2 {
        shop.tick().await?;
        ensure!(shop.replicas("web").await? == 5, "reconciled all the same");
    }
    let after = shop.owner_named("shop").await?;
    ensure!(after["spec"] == before["spec"], "{}", after["spec"]);
    ensure!(our_keys(&after).is_empty(), "{}", after["metadata"]);
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn what_a_person_resumes_by_night_is_suspended_again_and_their_word_stands_by_day() -> anyhow::Result<()> {
    let shop = Shop::start("person", None).await?;
    // What Flux raises before it is suspended again would be left under `Off`.
    shop.under("Rewrite", "Down").await?;
    shop.until_replicas("web", 0).await?;
    // As `flux resume kustomization shop` does.
    shop.suspend(false).await?;
    wait_for("it to be suspended again", LATER, || async {
        let suspend = shop.owner_named("shop").await?["spec"]["suspend"].take();
        ensure!(suspend == true, "{suspend}");
        Ok(())
    })
    .await?;
    // Flux may have acted in between.
    for _ in 0..2 {
        shop.tick().await?;
        shop.until_replicas("web", 0).await?;
    }
    shop.stays_asleep().await?;
    shop.under("Rewrite", "Up").await?;
    shop.until_replicas("web", 3).await?;
    let after = shop.until_resumed().await?;
    ensure!(after["spec"]["suspend"] == false, "{}", after["spec"]);
    shop.scale(5).await?;
    shop.until_replicas("web", 3).await
}
