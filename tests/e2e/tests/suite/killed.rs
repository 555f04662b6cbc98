//! The built scheduler, killed at random moments of shutdowns and startups of a hundred Deployments.
//!
//! Two lanes run at once, each with a control plane of its own. Its Deployment controller works (and writes statuses meanwhile);
//! pods are not made: nothing here depends on them, and two hundred in each round would be most of the time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use harness::{AuditLevel, ControlPlane, Options, Product, SOON, wait_for};
use k8s_openapi::{
    api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use shared::api::definition;

use crate::roles::{grant, product};
use crate::sleeping::{OWN_NAMESPACE, PREFIX, by_day, check, deployment};

const COUNT: usize = 100;
const LANES: usize = 2;
/// On a busy machine.
const LATER: Duration = Duration::from_secs(120);

/// A random number below `limit`, from the seed of the system.
fn random(limit: usize) -> usize {
    use std::hash::{BuildHasher as _, Hasher as _};
    let number = std::collections::hash_map::RandomState::new().build_hasher().finish();
    usize::try_from(number % limit as u64).unwrap_or(0)
}

/// One control plane with one schedule, the Deployments under it, and who puts them to sleep.
pub struct Fleet {
    pub plane: ControlPlane,
    pub namespace: String,
    count: usize,
    deployments: Api<Deployment>,
    schedules: Api<DynamicObject>,
}

impl Fleet {
    /// A fleet of `count` Deployments `w0` … under the schedule `fleet`, whose spec has `spec` in it.
    pub async fn start(options: Options, count: usize, spec: &Value) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(options).await?;
        let client = plane.admin().await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions.create(&PostParams::default(), &definition()).await?;
        plane.kubectl(&["create", "namespace", OWN_NAMESPACE])?.ok().await?;
        grant(&plane).await?;
        let mut schedule = json!({"apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
            "metadata": {"name": "fleet"}, "spec": {"timeZone": "UTC"}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            schedule["spec"][key] = value.clone();
        }
        let schedules = schedules(&client);
        // Its definition may be served only in a moment.
        wait_for("the schedule to be taken", SOON, || async {
            schedules
                .create(&PostParams::default(), &serde_json::from_value(schedule.clone())?)
                .await
                .context("not taken")
        })
        .await?;
        let namespace = plane
            .namespace("fleet", &[("offhours.platform.io/schedule", "fleet")])
            .await?;
        let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
        for name in (0..count).map(|index| format!("w{index}")) {
            let object = serde_json::from_value(deployment(&name, by_day(&name)))?;
            deployments.create(&PostParams::default(), &object).await?;
        }
        Ok(Self {
            plane,
            namespace,
            count,
            deployments,
            schedules,
        })
    }

    /// Changes the schedule's spec.
    pub async fn set(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.schedules.patch("fleet", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Moves the schedule so that it is night, or day, from now on.
    pub async fn set_night(&self, night: bool) -> anyhow::Result<()> {
        let window = if night {
            json!(["Mon-Sun 00:00-24:00"])
        } else {
            Value::Null
        };
        self.set(json!({"downtime": window})).await
    }

    /// How many sleep.
    pub async fn asleep(&self) -> anyhow::Result<usize> {
        let asleep = ListParams::default().labels(&format!("{PREFIX}asleep"));
        Ok(self.deployments.list_metadata(&asleep).await?.items.len())
    }

    /// How many have been put down, or brought back.
    pub async fn changed(&self, night: bool) -> anyhow::Result<usize> {
        let asleep = self.asleep().await?;
        Ok(if night { asleep } else { self.count - asleep })
    }

    /// Waits until at least so many have been put down, or brought back.
    pub async fn is_under_way(&self, night: bool, least: usize, patience: Duration) -> anyhow::Result<()> {
        wait_for("some writes", patience, || async {
            let changed = self.changed(night).await?;
            ensure!(changed >= least, "{changed} of {least}");
            Ok(())
        })
        .await
    }

    /// Waits until every Deployment sleeps with its record, or is as it was and carries nothing of ours.
    pub async fn becomes(&self, night: bool) -> anyhow::Result<()> {
        let count = if night { self.count } else { 0 };
        wait_for(if night { "all to sleep" } else { "all to be back" }, LATER, || async {
            // Cheap to ask again and again.
            let asleep = self.asleep().await?;
            ensure!(asleep == count, "{asleep} sleep, not {count}");
            for object in self.deployments.list(&ListParams::default()).await? {
                check(&serde_json::to_value(object)?, night)?;
            }
            Ok(())
        })
        .await
    }
}

fn schedules(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("offhours.platform.io", "v1alpha1", "OffHoursSchedule");
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, "offhoursschedules"),
    )
}

fn launch(fleet: &Fleet) -> anyhow::Result<Product> {
    Product::start(
        &fleet.plane,
        &product("product"),
        &[
            "scheduler",
            "--own-namespace",
            OWN_NAMESPACE,
            "--ops-address=off",
            // So few writes in a second that a kill can fall between them, and a lease that is soon over.
            "--write-rate=50",
            "--lease-duration=1500ms",
            "--lease-renew-deadline=1200ms",
            "--lease-retry-period=100ms",
            "--lease-call-timeout=600ms",
            "--write-timeout=800ms",
        ],
        &[],
    )
}

/// Kills in one lane. How many of them fell between the first and the last write.
async fn lane(number: usize, kills: usize) -> anyhow::Result<usize> {
    let options = Options {
        audit: AuditLevel::Off,
        controller_manager_arguments: vec!["--controllers=-replicaset-controller".to_owned()],
        ..Options::named(&format!("killed-{number}"))
    };
    // Without pods no rollout is ever finished.
    let fleet = Fleet::start(options, COUNT, &json!({"unfinishedRollouts": "Sleep"})).await?;
    let mut within = 0;
    let mut product = launch(&fleet)?;
    for kill in 0..kills {
        let night = kill % 2 == 0;
        fleet.set_night(night).await?;
        let target = 1 + random(COUNT - 20);
        fleet.is_under_way(night, target, LATER).await?;
        product.kill()?;
        drop(product);
        // Nobody writes now.
        let before = fleet.changed(night).await?;
        product = launch(&fleet)?;
        fleet
            .becomes(night)
            .await
            .with_context(|| format!("lane {number}, after kill {kill}, which came after {before} writes"))?;
        within += usize::from(before < COUNT);
    }
    let status = product.terminate(SOON).await?;
    ensure!(status.success(), "the scheduler ended with {status}");
    Ok(within)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_fifty_times_at_a_random_moment_no_number_is_lost() -> anyhow::Result<()> {
    let kills: usize = std::env::var("OFFHOURS_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(50);
    let each = kills.div_ceil(LANES);
    let lanes: Vec<_> = (0..LANES).map(|number| tokio::spawn(lane(number, each))).collect();
    let mut within = 0;
    for lane in lanes {
        within += lane.await??;
    }
    let (all, needed) = (each * LANES, each * LANES * 4 / 5);
    assert!(
        within >= needed,
        "only {within} of {all} kills fell between the first and the last write"
    );
    Ok(())
}
