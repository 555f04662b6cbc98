//! Nights under the real KEDA: `make test-keda`. Its trigger is active all the time, so that it would wake what sleeps.

use std::collections::BTreeSet;

use anyhow::ensure;
use harness::{AuditQuery, AuditedRequest, Keda, Product, Shared, wait_for};
use serde_json::{Value, json};

use crate::{
    place::{LATER, Place, deployment, our_keys},
    product::Cluster,
};

const IMAGE: &str = "nginx:1.27";
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
const PAUSED: &str = "autoscaling.keda.sh/paused";
/// The trigger of a ScaledObject in a namespace without a schedule: how often KEDA asks for it is a clock.
const CLOCK: &str = "clock";

struct Stage {
    cluster: Cluster,
    keda: Keda,
    _servers: Product,
}

impl Stage {
    /// Started by whoever asks first.
    async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: Shared<Stage> = Shared::new();
        SHARED.get(Self::start).await
    }

    async fn start() -> anyhow::Result<Self> {
        let cluster = Cluster::start("keda").await?;
        let keda = Keda::start(&cluster.plane).await?;
        cluster.install_crd().await?;
        let servers = cluster.run().await?.0;
        let namespace = cluster.plane.namespace(CLOCK, &[]).await?;
        let trigger = triggers(&keda, CLOCK);
        for object in [
            deployment("web", Some(1), IMAGE),
            scaled_object(&trigger, &json!({})).to_string(),
        ] {
            let apply = cluster.plane.kubectl(&["apply", "-n", &namespace, "-f", "-"])?;
            apply.stdin(object).ok().await?;
        }
        Ok(Self {
            cluster,
            keda,
            _servers: servers,
        })
    }

    /// Returns when KEDA has asked the triggers of everybody once more.
    async fn tick(&self) -> anyhow::Result<()> {
        let before = self.keda.asked(CLOCK);
        wait_for("KEDA to ask again", LATER, || async {
            let asked = self.keda.asked(CLOCK);
            ensure!(asked >= before + 2, "{asked}");
            Ok(())
        })
        .await
    }
}

/// Active.
fn triggers(keda: &Keda, name: &str) -> Value {
    let url = keda.set_trigger(name, 10);
    json!([{"type": "metrics-api", "metadata": {"targetValue": "5", "url": url, "valueLocation": "value"}}])
}

fn scaled_object(triggers: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {
            "scaleTargetRef": {"name": "web"}, "pollingInterval": 1, "cooldownPeriod": 1,
            "minReplicaCount": 0, "maxReplicaCount": 5, "triggers": triggers,
        },
    })
}

/// A Deployment `web` with a ScaledObject of the same name.
struct Shop {
    stage: &'static Stage,
    place: Place,
}

impl std::ops::Deref for Shop {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Shop {
    async fn empty(prefix: &str) -> anyhow::Result<Self> {
        let stage = Stage::shared().await?;
        let place = Place::new(&stage.cluster, prefix).await?;
        Ok(Self { stage, place })
    }

    /// `change`: what is another in the ScaledObject.
    async fn start(prefix: &str, replicas: u32, change: impl FnOnce(&mut Value)) -> anyhow::Result<Self> {
        let shop = Self::empty(prefix).await?;
        let web: Value = serde_json::from_str(&deployment("web", Some(replicas), IMAGE))?;
        shop.apply(&web).await?;
        let mut scaler = scaled_object(&shop.triggers(), &json!({}));
        change(&mut scaler);
        shop.apply(&scaler).await?;
        Ok(shop)
    }

    fn triggers(&self) -> Value {
        triggers(&self.stage.keda, &self.namespace)
    }

    async fn to(&self, state: &str) -> anyhow::Result<()> {
        // Nobody holds what is down: the pause alone must do.
        self.turn(state, &json!({"enforcement": {"mode": "Off"}})).await
    }

    async fn scaler(&self) -> anyhow::Result<Value> {
        self.get("scaledobject", "web").await
    }

    /// What is said of pauses on it.
    async fn pauses(&self) -> anyhow::Result<Value> {
        let annotations = self.scaler().await?["metadata"]["annotations"].take();
        let pauses = annotations
            .as_object()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .filter(|(key, _)| key.starts_with(PAUSED));
        Ok(Value::Object(pauses.collect()))
    }

    /// Waits until KEDA says that it is paused, or that it is not.
    async fn until_paused(&self, kind: &str, paused: &str) -> anyhow::Result<()> {
        wait_for(&format!("Paused={paused}"), LATER, || async {
            let conditions = self.get(kind, "web").await?["status"]["conditions"].take();
            let all = conditions.as_array().cloned().unwrap_or_default();
            let said = all.iter().find(|one| one["type"] == "Paused");
            ensure!(said.is_some_and(|one| one["status"] == paused), "{conditions}");
            Ok(())
        })
        .await
    }

    async fn hpas(&self) -> anyhow::Result<String> {
        self.kubectl(&["get", "hpa", "-n", &self.namespace, "-o", "name"]).await
    }

    async fn until_hpas(&self, wanted: &str) -> anyhow::Result<()> {
        wait_for("KEDA's HPA", LATER, || async {
            let hpas = self.hpas().await?;
            ensure!(hpas.trim() == wanted, "{hpas}");
            Ok(())
        })
        .await
    }

    /// KEDA asks many triggers, and what sleeps goes on sleeping.
    async fn stays_asleep(&self) -> anyhow::Result<()> {
        for _ in 0..4 {
            self.stage.tick().await?;
            let replicas = self.replicas("web").await?;
            ensure!(replicas == 0, "awake: {replicas}");
        }
        Ok(())
    }

    async fn until_ours_is_gone(&self) -> anyhow::Result<()> {
        wait_for("our keys to go", LATER, || async {
            let left = our_keys(&self.scaler().await?);
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    }
}

const HPA: &str = "horizontalpodautoscaler.autoscaling/keda-hpa-web";

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn case_3_09_it_sleeps_though_its_trigger_is_active_and_only_the_scaled_object_is_written() -> anyhow::Result<()>
{
    let shop = Shop::start("active", 0, |_| {}).await?;
    shop.until_replicas("web", 1).await?;
    shop.until_hpas(HPA).await?;
    let audit = shop.cluster.plane.audit().await?;
    let mark = audit.mark().await?;

    shop.to("Down").await?;
    shop.until_replicas("web", 0).await?;
    ensure!(shop.pauses().await? == json!({PAUSED_REPLICAS: "0"}));
    shop.until_paused("scaledobject", "True").await?;
    // KEDA deletes it while it is paused; nobody else does anything to it.
    shop.until_hpas("").await?;
    shop.stays_asleep().await?;
    let asked = shop.stage.keda.asked(&shop.namespace);
    shop.stays_asleep().await?;
    ensure!(asked == shop.stage.keda.asked(&shop.namespace), "it goes on asking");

    shop.to("Up").await?;
    shop.until_ours_is_gone().await?;
    ensure!(shop.pauses().await? == json!({}));
    shop.until_paused("scaledobject", "False").await?;
    shop.until_replicas("web", 1).await?;
    shop.until_hpas(HPA).await?;

    let mine = AuditQuery::new().since(mark).namespace(&shop.namespace);
    let mine = mine.user(&shop.cluster.identity.user).writes();
    let lines: Vec<String> = audit.requests(&mine).await?.iter().map(AuditedRequest::line).collect();
    let others: Vec<_> = lines
        .iter()
        .filter(|line| !line.contains(" scaledobjects") && !line.contains(" events"))
        .collect();
    ensure!(!lines.is_empty() && others.is_empty(), "{lines:?}");
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn one_with_a_minimum_is_at_its_minimum_by_day() -> anyhow::Result<()> {
    let shop = Shop::start("minimum", 4, |scaler| scaler["spec"]["minReplicaCount"] = 2.into()).await?;
    shop.until_hpas(HPA).await?;
    shop.to("Down").await?;
    shop.until_replicas("web", 0).await?;
    shop.stays_asleep().await?;
    shop.to("Up").await?;
    shop.until_ours_is_gone().await?;
    shop.until_replicas("web", 2).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn case_3_13_what_keda_brought_to_zero_is_not_ours_to_wake() -> anyhow::Result<()> {
    let shop = Shop::start("idle", 1, |_| {}).await?;
    shop.stage.keda.set_trigger(&shop.namespace, 0);
    shop.until_replicas("web", 0).await?;
    shop.to("Down").await?;
    shop.until_paused("scaledobject", "True").await?;
    shop.to("Up").await?;
    shop.until_ours_is_gone().await?;
    shop.until_paused("scaledobject", "False").await?;
    shop.stays_asleep().await?;
    // And its trigger wakes it.
    shop.stage.keda.set_trigger(&shop.namespace, 10);
    shop.until_replicas("web", 1).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn a_pause_of_its_owner_at_a_number_comes_back_with_that_number() -> anyhow::Result<()> {
    let pauses = json!({PAUSED_REPLICAS: "2", PAUSED: "true"});
    let shop = Shop::start("number", 0, |scaler| scaler["metadata"]["annotations"] = pauses.clone()).await?;
    shop.until_replicas("web", 2).await?;
    shop.to("Down").await?;
    shop.until_replicas("web", 0).await?;
    ensure!(shop.pauses().await? == json!({PAUSED_REPLICAS: "0", PAUSED: "true"}));
    shop.stays_asleep().await?;
    shop.to("Up").await?;
    shop.until_replicas("web", 2).await?;
    shop.until_ours_is_gone().await?;
    ensure!(shop.pauses().await? == pauses, "{}", shop.pauses().await?);
    shop.until_paused("scaledobject", "True").await
}

/// KEDA gives back no number to what it does not scale: put down by us, it would stay at 0.
async fn is_left_alone_while(annotation: &str, prefix: &str) -> anyhow::Result<()> {
    let shop = Shop::start(prefix, 3, |scaler| {
        scaler["metadata"]["annotations"] = json!({annotation: "true"});
    })
    .await?;
    shop.until_paused("scaledobject", "True").await?;
    let before = shop.pauses().await?;
    shop.to("Down").await?;
    shop.until_told("FrozenByOwner").await?;
    for _ in 0..2 {
        shop.stage.tick().await?;
        ensure!(shop.replicas("web").await? == 3);
    }
    ensure!(shop.pauses().await? == before);
    // When its owner lets it go, it sleeps, and is KEDA's by day.
    let gone = format!("{annotation}-");
    shop.kubectl(&["annotate", "scaledobject", "web", &gone, "-n", &shop.namespace])
        .await?;
    shop.until_replicas("web", 0).await?;
    shop.stays_asleep().await?;
    shop.to("Up").await?;
    shop.until_ours_is_gone().await?;
    shop.until_replicas("web", 1).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn one_that_its_owner_froze_keeps_its_number() -> anyhow::Result<()> {
    is_left_alone_while(PAUSED, "frozen").await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn so_does_one_that_may_not_be_scaled_out() -> anyhow::Result<()> {
    is_left_alone_while("autoscaling.keda.sh/paused-scale-out", "out").await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real KEDA (make test-keda)"]
async fn a_scaled_job_starts_no_jobs_by_night() -> anyhow::Result<()> {
    let shop = Shop::empty("jobs").await?;
    let template = json!({"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1.36"}],
    }});
    let annotations = json!({PAUSED: "false"});
    shop.apply(&json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {
            "jobTargetRef": {"template": template}, "pollingInterval": 1, "maxReplicaCount": 1,
            "triggers": shop.triggers(),
        },
    }))
    .await?;
    let jobs = async || {
        let list = shop
            .kubectl(&["get", "jobs", "-n", &shop.namespace, "-o", "name"])
            .await?;
        anyhow::Ok(list.lines().map(str::to_owned).collect::<BTreeSet<_>>())
    };
    let until_new = async |known: &BTreeSet<String>| {
        wait_for("a new Job", LATER, || async {
            let now = jobs().await?;
            ensure!(now.difference(known).next().is_some(), "{now:?}");
            Ok(())
        })
        .await
    };
    until_new(&BTreeSet::new()).await?;
    let kinds = json!({"kinds": [{"kind": "Deployment"}, {"kind": "ScaledJob"}], "enforcement": {"mode": "Off"}});
    shop.turn("Down", &kinds).await?;
    shop.until_paused("scaledjob", "True").await?;
    shop.stage.tick().await?;
    let by_night = jobs().await?;
    for _ in 0..4 {
        shop.stage.tick().await?;
    }
    ensure!(jobs().await? == by_night, "KEDA starts Jobs by night");
    shop.turn("Up", &kinds).await?;
    shop.until_paused("scaledjob", "False").await?;
    until_new(&by_night).await?;
    let after = shop.get("scaledjob", "web").await?;
    ensure!(
        our_keys(&after).is_empty() && after["metadata"]["annotations"][PAUSED] == "false",
        "{}",
        after["metadata"]
    );
    Ok(())
}
