//! Nights under the real Flux: `make test-flux`. A Kustomization, or a `HelmRelease` that corrects drift, has its workload's
//! replicas in its source and puts them back at every interval, until it is suspended.

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

/// Which of Flux' objects owns the workload.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Owner {
    Kustomization,
    HelmRelease,
}

use Owner::{HelmRelease, Kustomization};

/// A workload `web` that Flux keeps at three replicas, and beside it `clock`, which is never suspended: what is missing of it is
/// back when Flux has looked.
struct Shop {
    flux: &'static Flux,
    place: Place,
    owner: Owner,
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

impl Owner {
    /// One that keeps what its source holds under `name`.
    fn object(self, name: &str, namespace: &str) -> Value {
        let (api, spec) = match self {
            Kustomization => (
                "kustomize.toolkit.fluxcd.io/v1",
                json!({
                    "interval": INTERVAL, "prune": true, "path": "./", "targetNamespace": namespace,
                    "sourceRef": {"kind": "GitRepository", "name": name},
                }),
            ),
            // Without waiting for pods: nothing here depends on them.
            HelmRelease => (
                "helm.toolkit.fluxcd.io/v2",
                json!({
                    "interval": INTERVAL, "chartRef": {"kind": "OCIRepository", "name": name},
                    "driftDetection": {"mode": "enabled"},
                    "install": {"disableWait": true}, "upgrade": {"disableWait": true},
                }),
            ),
        };
        json!({"apiVersion": api, "kind": format!("{self:?}"), "metadata": {"name": name}, "spec": spec})
    }
}

impl Shop {
    /// `suspend`: what its owner's spec says of it by day.
    async fn start(owner: Owner, prefix: &str, suspend: Option<bool>) -> anyhow::Result<Self> {
        let stage = Stage::shared().await?;
        let shop = Self {
            flux: &stage.flux,
            place: Place::new(&stage.cluster, prefix).await?,
            owner,
        };
        shop.publish(1, IMAGE).await?;
        shop.publish_one(1, "clock", &clock()).await?;
        for name in ["shop", "clock"] {
            let mut object = owner.object(name, &shop.namespace);
            if let Some(suspend) = suspend.filter(|_| name == "shop") {
                object["spec"]["suspend"] = suspend.into();
            }
            shop.apply(&object).await?;
        }
        wait_for("the first reconciliation", LATER, || async {
            for name in ["shop", "clock"] {
                let object = shop.owner_named(name).await?;
                let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let ready = conditions.iter().find(|one| one["type"] == "Ready");
                ensure!(ready.is_some_and(|one| one["status"] == "True"), "{name}: {ready:?}");
            }
            Ok(())
        })
        .await?;
        shop.until_replicas("web", 3).await?;
        Ok(shop)
    }

    /// What is in its source from now on.
    async fn publish(&self, revision: u32, image: &str) -> anyhow::Result<()> {
        self.publish_one(revision, "shop", &deployment("web", Some(3), image))
            .await
    }

    async fn publish_one(&self, revision: u32, name: &str, object: &str) -> anyhow::Result<()> {
        let place = (&self.cluster.plane, self.namespace.as_str());
        match self.owner {
            Kustomization => {
                let revision = format!("main@sha1:{revision:040}");
                let source = ("GitRepository", name);
                self.flux
                    .publish(place, source, &revision, &[("object.yaml", object)])
                    .await
            }
            HelmRelease => {
                let chart = json!({"apiVersion": "v2", "name": name, "version": format!("0.1.{revision}")}).to_string();
                let files = [("Chart.yaml", chart.as_str()), ("templates/object.yaml", object)];
                let revision = format!("sha256:{revision:064}");
                self.flux
                    .publish(place, ("OCIRepository", name), &revision, &files)
                    .await
            }
        }
    }

    async fn owner_named(&self, name: &str) -> anyhow::Result<Value> {
        self.get(&format!("{:?}", self.owner), name).await
    }

    async fn suspend(&self, suspend: bool) -> anyhow::Result<()> {
        let patch = json!({"spec": {"suspend": suspend}}).to_string();
        let owner = format!("{:?}/shop", self.owner);
        let words = ["patch", &owner, "-n", &self.namespace, "--type=merge", "-p", &patch];
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

async fn a_night(owner: Owner, prefix: &str, suspend: Option<bool>) -> anyhow::Result<()> {
    let shop = Shop::start(owner, prefix, suspend).await?;
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

async fn suspended_by_its_owner(owner: Owner, prefix: &str) -> anyhow::Result<()> {
    let shop = Shop::start(owner, prefix, None).await?;
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

async fn resumed_by_a_person(owner: Owner, prefix: &str) -> anyhow::Result<()> {
    let shop = Shop::start(owner, prefix, None).await?;
    // What Flux raises before it is suspended again would be left under `Off`.
    shop.under("Rewrite", "Down").await?;
    shop.until_replicas("web", 0).await?;
    // As `flux resume` does.
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

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn a_kustomization_sleeps_through_the_night_and_comes_back_as_it_was() -> anyhow::Result<()> {
    a_night(Kustomization, "plain", None).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn a_helm_release_sleeps_through_the_night_and_comes_back_as_it_was() -> anyhow::Result<()> {
    a_night(HelmRelease, "helm", None).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn so_does_a_kustomization_that_says_that_it_is_not_suspended() -> anyhow::Result<()> {
    a_night(Kustomization, "said", Some(false)).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn so_does_a_helm_release_that_says_that_it_is_not_suspended() -> anyhow::Result<()> {
    a_night(HelmRelease, "helm-said", Some(false)).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn case_4_11_a_kustomization_that_its_owner_suspended_stays_suspended_by_day() -> anyhow::Result<()> {
    suspended_by_its_owner(Kustomization, "owner").await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn case_4_11_a_helm_release_that_its_owner_suspended_stays_suspended_by_day() -> anyhow::Result<()> {
    suspended_by_its_owner(HelmRelease, "helm-owner").await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn a_kustomization_that_a_person_resumes_by_night_is_suspended_again_and_their_word_stands_by_day()
-> anyhow::Result<()> {
    resumed_by_a_person(Kustomization, "person").await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Flux (make test-flux)"]
async fn a_helm_release_that_a_person_resumes_by_night_is_suspended_again_and_their_word_stands_by_day()
-> anyhow::Result<()> {
    resumed_by_a_person(HelmRelease, "helm-person").await
}
