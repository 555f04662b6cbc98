//! Whole nights beside the real HPA controller, driven by numbers that the test chooses.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use cluster::schedules::ScheduleSource;
use harness::{ControlPlane, Identity, SOON, wait_for};
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::ConfigMap};
use kube::{Api, api::ListParams};
use scheduler::{
    act::{Act, ActSettings},
    beside::{Beside, Following},
    decide::snapshot::{Forced, Snapshot},
    lease::Leadership,
    observe::Observer,
    pass::{Summary, pass},
};
use serde_json::{Value, json};
use shared::{
    api::{HpaMode, OffHoursScheduleSpec},
    clock::Clock,
    policy::Scope,
    schedule::State,
    settings::ScheduleSetting,
};

use crate::clock::RealClock;
use crate::view::{clients, follow};

/// A namespace under a schedule of its own, and our own namespace for backups.
pub struct Night {
    plane: &'static ControlPlane,
    schedule: String,
    pub namespace: String,
    own: String,
    spec: OffHoursScheduleSpec,
}

impl Night {
    async fn new(spec: Value) -> anyhow::Result<Self> {
        Self::on(ControlPlane::shared().await?, spec).await
    }

    /// On a control plane of one's own.
    pub async fn on(plane: &'static ControlPlane, spec: Value) -> anyhow::Result<Self> {
        let schedule = plane.unique_name("night");
        let labels = [("offhours.platform.io/schedule", schedule.as_str())];
        let mut whole = json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-20:00"]});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        Ok(Self {
            plane,
            namespace: plane.namespace("beside", &labels).await?,
            own: plane.namespace("own", &[]).await?,
            schedule,
            spec: serde_json::from_value(whole)?,
        })
    }

    /// One pass, as of the one-shot commands: by a process that knows nothing of the one before.
    pub async fn bring(&self, state: State) -> anyhow::Result<Summary> {
        let follower = follow(
            self.plane,
            &Identity::admin(),
            &[("apps", "Deployment"), ("keda.sh", "ScaledObject")],
        )
        .await?;
        let beside = Beside::follow(&follower, &self.own, Following::Everything);
        let view = Arc::clone(follower.view());
        let setting = ScheduleSetting {
            name: self.schedule.clone(),
            scope: Scope::Any,
            spec: self.spec.clone(),
        };
        let source = Arc::new(ScheduleSource::new(Arc::clone(&view), vec![setting], None));
        let mut snapshot = Snapshot::new(Arc::new(view.kinds().clone()), self.own.as_str());
        snapshot.forced = Some(Forced {
            schedule: Arc::from(self.schedule.as_str()),
            state,
            since: RealClock.now(),
        });
        let mut observer = Observer::new(Arc::clone(&view), source, snapshot).with(beside);
        let settings = ActSettings {
            concurrency: 4,
            per_second: None,
            write_timeout: Duration::from_secs(10),
            dry_run: false,
        };
        let calls = clients(self.plane, &Identity::admin()).await?.calls;
        let mut act = Act::new(calls, Leadership::alone(), Arc::clone(&view), None, settings);
        let summary = pass(
            &view,
            &mut observer,
            &mut act,
            &RealClock,
            false,
            SOON * 2,
            std::future::pending(),
        )
        .await;
        ensure!(summary.failed.is_empty(), "{summary:?}");
        Ok(summary)
    }

    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        let apply = self.plane.kubectl(&["apply", "-n", &self.namespace, "-f", "-"])?;
        apply.stdin(yaml.to_owned()).ok().await?;
        Ok(())
    }

    pub async fn replicas(&self, name: &str) -> anyhow::Result<i32> {
        let deployments: Api<Deployment> = Api::namespaced(self.plane.admin().await?, &self.namespace);
        let spec = deployments.get(name).await?.spec;
        spec.and_then(|spec| spec.replicas).context("no replicas")
    }

    async fn until_replicas(&self, name: &str, wanted: i32) -> anyhow::Result<()> {
        wait_for(&format!("{name} at {wanted}"), SOON * 2, || async {
            let replicas = self.replicas(name).await?;
            ensure!(replicas == wanted, "{replicas}");
            Ok(())
        })
        .await
    }

    async fn hpas(&self) -> anyhow::Result<Vec<Value>> {
        let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(self.plane.admin().await?, &self.namespace);
        let all = hpas.list(&ListParams::default()).await?;
        all.items.iter().map(|hpa| Ok(serde_json::to_value(hpa)?)).collect()
    }

    /// Waits until the HPA controller has said this of the only HPA.
    async fn until_hpa_says(&self, condition: &str, status: &str) -> anyhow::Result<()> {
        wait_for(&format!("{condition}={status}"), SOON * 2, || async {
            let hpas = self.hpas().await?;
            let conditions = hpas[0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let said = conditions
                .iter()
                .any(|it| it["type"] == condition && it["status"] == status);
            ensure!(said, "{conditions:?}");
            Ok(())
        })
        .await
    }

    pub async fn backups(&self) -> anyhow::Result<usize> {
        let maps: Api<ConfigMap> = Api::namespaced(self.plane.admin().await?, &self.own);
        let ours = ListParams::default().labels("offhours.platform.io/type");
        Ok(maps.list(&ours).await?.items.len())
    }
}

/// A Deployment of 7 replicas that an HPA holds between 2 and 10.
const WEB: &str = r"apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 7
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: registry.example/c:1, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  labels: {app.kubernetes.io/managed-by: Helm}
  annotations: {meta.helm.sh/release-name: shop, meta.helm.sh/release-namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 100}}}]
  behavior: {scaleDown: {policies: [{type: Percent, value: 50, periodSeconds: 15}]}}
";

/// What of an HPA its owner wrote.
fn written(hpa: &Value) -> Value {
    let mut annotations = hpa["metadata"]["annotations"].clone();
    annotations
        .as_object_mut()
        .unwrap()
        .remove("kubectl.kubernetes.io/last-applied-configuration");
    json!([hpa["metadata"]["labels"], annotations, hpa["spec"]])
}

async fn a_night_beside_the_real_controller(mode: HpaMode, down: u32) -> anyhow::Result<()> {
    let night = Night::new(json!({"hpa": {"mode": mode}, "downReplicas": down})).await?;
    let metrics = night.plane.metrics().await?;
    // At its target: the controller has no reason to change anything.
    metrics.set_cpu(&night.namespace, 100);
    night.apply(WEB).await?;
    night.until_hpa_says("ScalingActive", "True").await?;
    night.until_replicas("web", 7).await?;
    let before = written(&night.hpas().await?[0]);

    night.bring(State::Down).await?;
    let held = i32::try_from(down)?;
    // The controller may act once more on the range that it knew before.
    night.until_replicas("web", held).await?;
    // Load while asleep.
    metrics.set_cpu(&night.namespace, 900);
    match mode {
        HpaMode::DeleteRestore | HpaMode::DeleteOnly => ensure!(night.hpas().await?.is_empty()),
        HpaMode::Keep | HpaMode::MinZero if down == 0 => night.until_hpa_says("ScalingActive", "False").await?,
        HpaMode::Keep | HpaMode::MinZero => night.until_hpa_says("ScalingLimited", "True").await?,
    }
    ensure!(night.replicas("web").await? == held, "the HPA leaves it where it is");

    metrics.set_cpu(&night.namespace, 100);
    night.bring(State::Up).await?;
    ensure!(night.replicas("web").await? == 7);
    ensure!(night.backups().await? == 0);
    if mode == HpaMode::DeleteOnly {
        ensure!(night.hpas().await?.is_empty());
        return Ok(());
    }
    let after = written(&night.hpas().await?[0]);
    ensure!(after == before, "{before} became {after}");
    // It takes over again.
    night.until_hpa_says("ScalingActive", "True").await?;
    metrics.set_cpu(&night.namespace, 300);
    night.until_replicas("web", 10).await
}

#[tokio::test]
async fn keep_lets_the_autoscaler_stand_still_and_take_over_again() -> anyhow::Result<()> {
    a_night_beside_the_real_controller(HpaMode::Keep, 0).await
}

#[tokio::test]
async fn a_partial_sleep_is_not_fought_by_the_autoscaler() -> anyhow::Result<()> {
    a_night_beside_the_real_controller(HpaMode::Keep, 1).await
}

#[tokio::test]
async fn min_zero_asks_the_api_server_and_heeds_a_refusal() -> anyhow::Result<()> {
    // A minimum of 0 needs an Object or External metric, whatever the version: this HPA has none.
    a_night_beside_the_real_controller(HpaMode::MinZero, 0).await
}

#[tokio::test]
async fn delete_restore_brings_back_the_same_autoscaler() -> anyhow::Result<()> {
    a_night_beside_the_real_controller(HpaMode::DeleteRestore, 0).await
}

#[tokio::test]
async fn delete_only_brings_the_count_back_and_nothing_else() -> anyhow::Result<()> {
    a_night_beside_the_real_controller(HpaMode::DeleteOnly, 0).await
}
