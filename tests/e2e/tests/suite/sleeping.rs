//! The built scheduler against the real controllers: a night and a morning, counted; what only real controllers show.
//!
//! The scheduler acts on the whole cluster, so this suite has a control plane of its own and its tests take turns. The schedule is
//! moved, not the time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use harness::{AuditQuery, ControlPlane, Identity, Mark, Options, Product, SOON, Shared, free_port, wait_for};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use shared::api::definition;
use tokio::sync::{Mutex, MutexGuard};

use crate::roles::{grant, product};

pub const OWN_NAMESPACE: &str = "offhours-system";
pub const PREFIX: &str = "offhours.platform.io/";
/// A hundred Deployments take their controllers a while on a busy machine.
const LATER: Duration = Duration::from_secs(300);

struct Stage {
    plane: ControlPlane,
    turn: Mutex<()>,
}

impl Stage {
    async fn enter() -> anyhow::Result<(&'static Self, MutexGuard<'static, ()>)> {
        static STAGE: Shared<Stage> = Shared::new();
        let stage = STAGE.get(Self::start).await?;
        Ok((stage, stage.turn.lock().await))
    }

    async fn start() -> anyhow::Result<Self> {
        let plane = ControlPlane::start(Options::named("sleeping")).await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(plane.admin().await?);
        let name = "offhoursschedules.offhours.platform.io";
        definitions
            .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(definition()))
            .await
            .context("failed to install the definition")?;
        plane
            .kubectl(&["wait", "--for=condition=Established", &format!("crd/{name}")])?
            .ok()
            .await?;
        plane.kubectl(&["create", "namespace", OWN_NAMESPACE])?.ok().await?;
        grant(&plane).await?;
        Ok(Self {
            plane,
            turn: Mutex::new(()),
        })
    }
}

/// One namespace with a schedule of its own, and one scheduler.
struct Night {
    plane: &'static ControlPlane,
    namespace: String,
    schedule: String,
    who: Identity,
}

impl Night {
    async fn new(stage: &'static Stage, name: &str, spec: Value) -> anyhow::Result<Self> {
        let plane = &stage.plane;
        let schedule = plane.unique_name(name);
        let namespace = plane
            .namespace(name, &[("offhours.platform.io/schedule", &schedule)])
            .await?;
        let night = Self {
            plane,
            who: product(&schedule),
            namespace,
            schedule,
        };
        let mut object = json!({"apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
            "metadata": {"name": night.schedule}, "spec": {"timeZone": "UTC"}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        plane.apply(&object.to_string()).await?;
        Ok(night)
    }

    /// Moves the schedule so that it is night, or day, from now on.
    async fn set(&self, night: bool) -> anyhow::Result<()> {
        let window = if night {
            json!(["Mon-Sun 00:00-24:00"])
        } else {
            Value::Null
        };
        let patch = json!({"spec": {"downtime": window}}).to_string();
        self.plane
            .kubectl(&["patch", "ohs", &self.schedule, "--type=merge", "-p", &patch])?
            .ok()
            .await
            .map(drop)
    }

    async fn product(&self) -> anyhow::Result<Product> {
        self.start(&[
            "--lease-duration=3s",
            "--lease-renew-deadline=2500ms",
            "--lease-retry-period=200ms",
            "--lease-call-timeout=1s",
            "--write-timeout=1500ms",
        ])
        .await
    }

    async fn start(&self, more: &[&str]) -> anyhow::Result<Product> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let mut arguments = vec!["scheduler", "--own-namespace", OWN_NAMESPACE, "--ops-address", &address];
        arguments.extend(more);
        let product = Product::start(self.plane, &self.who, &arguments, &[])?;
        product.wait_until_ready(port, "/readyz", SOON).await?;
        Ok(product)
    }

    async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let call = self.plane.kubectl(arguments)?.args(&["-n", &self.namespace]);
        Ok(call.ok().await?.stdout)
    }

    async fn objects(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let text = self.kubectl(&["get", kind, "-o", "json"]).await?;
        let mut list: Value = serde_json::from_str(&text)?;
        Ok(std::mem::take(list["items"].as_array_mut().context("no items")?))
    }

    async fn object(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(
            &self.kubectl(&["get", kind, name, "-o", "json"]).await?,
        )?)
    }

    /// Waits until every Deployment is available and its rollout is over.
    async fn settled(&self) -> anyhow::Result<()> {
        wait_for("all Deployments to be available", LATER, || async {
            for object in self.objects("deployments").await? {
                let wanted = object["spec"]["replicas"].as_u64();
                let status = &object["status"];
                ensure!(
                    status["availableReplicas"].as_u64().or(Some(0)) == wanted
                        && status["observedGeneration"] == object["metadata"]["generation"],
                    "{} is not: {status}",
                    object["metadata"]["name"]
                );
            }
            Ok(())
        })
        .await
    }

    /// Waits until every Deployment sleeps with its record, or is as it was and carries nothing of ours.
    async fn becomes(&self, night: bool) -> anyhow::Result<()> {
        wait_for(if night { "all to sleep" } else { "all to be back" }, LATER, || async {
            for object in self.objects("deployments").await? {
                check(&object, night)?;
            }
            Ok(())
        })
        .await
    }

    /// The writes of our scheduler on Deployments of this namespace.
    async fn writes(&self, since: Mark) -> anyhow::Result<Vec<String>> {
        let audit = self.plane.audit().await?;
        let query = AuditQuery::new()
            .since(since)
            .user(&self.who.user)
            .namespace(&self.namespace)
            .resource("deployments");
        let requests = audit.requests(&query).await?;
        Ok(requests.iter().map(harness::AuditedRequest::line).collect())
    }
}

/// SIGTERM, and a good end.
async fn stop(product: &Product) -> anyhow::Result<()> {
    let status = product.terminate(SOON).await?;
    ensure!(status.success(), "the scheduler ended with {status}");
    Ok(())
}

/// How many replicas the Deployment of this name has by day: no two neighbours have the same.
pub fn by_day(name: &str) -> u64 {
    let number: u64 = name
        .trim_start_matches(|letter: char| !letter.is_ascii_digit())
        .parse()
        .unwrap_or(0);
    1 + number % 3
}

pub fn check(object: &Value, night: bool) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let replicas = object["spec"]["replicas"].as_u64();
    let record = &object["metadata"]["annotations"][format!("{PREFIX}original-replicas")];
    let label = &object["metadata"]["labels"][format!("{PREFIX}asleep")];
    let wanted = by_day(name);
    if night {
        ensure!(replicas == Some(0), "{name} has {replicas:?} replicas");
        ensure!(
            record.as_str() == Some(wanted.to_string().as_str()) && label == record,
            "{name}: record {record}, label {label}"
        );
    } else {
        ensure!(
            replicas == Some(wanted),
            "{name} has {replicas:?} replicas instead of {wanted}"
        );
        ensure!(
            record.is_null() && label.is_null(),
            "{name}: left over {record} {label}"
        );
    }
    Ok(())
}

pub fn deployment(name: &str, replicas: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "registry.example.com/app:1"}]}}}})
}

fn deployments(count: usize) -> String {
    let items: Vec<Value> = (0..count)
        .map(|index| format!("w{index}"))
        .map(|name| deployment(&name, by_day(&name)))
        .collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

async fn apply(night: &Night, manifests: &str, more: &[&str]) -> anyhow::Result<()> {
    let call = night
        .plane
        .kubectl(&["apply", "-n", &night.namespace, "-f", "-"])?
        .args(more);
    call.stdin(manifests).ok().await.map(drop)
}

#[tokio::test]
async fn a_night_and_a_morning_cost_one_patch_each_and_two_where_somebody_applies_server_side() -> anyhow::Result<()> {
    let (stage, _turn) = Stage::enter().await?;
    for (name, count, flags, expected) in [
        ("counted", 100, &[][..], 200),
        ("applied", 10, &["--server-side"][..], 40),
    ] {
        let night = Night::new(stage, name, json!({})).await?;
        apply(&night, &deployments(count), flags).await?;
        night.settled().await?;
        let mark = night.plane.audit().await?.mark().await?;
        let product = night.product().await?;
        night.set(true).await?;
        night.becomes(true).await?;
        night.set(false).await?;
        night.becomes(false).await?;
        // The second PATCH of the last object may still be on its way.
        wait_for("all writes", SOON, || async {
            let writes = night.writes(mark).await?;
            ensure!(writes.len() >= expected, "{} of {expected}", writes.len());
            Ok(())
        })
        .await?;
        let writes = night.writes(mark).await?;
        let patches = writes
            .iter()
            .filter(|line| line.starts_with("patch deployments ") && line.ends_with(" 200"))
            .count();
        let others: Vec<_> = writes
            .iter()
            .filter(|line| {
                !line.starts_with("patch deployments ") && !line.starts_with("list ") && !line.starts_with("watch ")
            })
            .collect();
        assert_eq!(
            (patches, others),
            (expected, vec![]),
            "{name}: {:?}",
            writes.iter().take(5).collect::<Vec<_>>()
        );
        if name == "applied" {
            // By night, the next server-side apply with a number of its own is no conflict.
            night.set(true).await?;
            night.becomes(true).await?;
            wait_for("the ownership to be given up", SOON, || async {
                apply(&night, &deployments(count), flags).await
            })
            .await?;
            night.becomes(true).await?;
        }
        stop(&product).await?;
    }
    Ok(())
}

#[tokio::test]
async fn rule_v6_claims_of_a_stateful_set_survive_the_night() -> anyhow::Result<()> {
    let (stage, _turn) = Stage::enter().await?;
    let night = Night::new(stage, "claims", json!({})).await?;
    night.plane.volumes(2).await?;
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": "db"}},
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example.com/db:1"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    apply(&night, &set.to_string(), &[]).await?;
    let ready = |count: u64| {
        let night = &night;
        async move {
            wait_for("the StatefulSet", LATER, || async {
                let object = night.object("statefulset", "db").await?;
                let ready = object["status"]["readyReplicas"].as_u64().unwrap_or(0);
                let replicas = object["status"]["replicas"].as_u64().unwrap_or(0);
                ensure!(ready == count && replicas == count, "{ready} of {replicas} ready");
                Ok(())
            })
            .await
        }
    };
    ready(2).await?;
    let claims =
        |objects: Vec<Value>| -> Vec<Value> { objects.iter().map(|claim| claim["metadata"]["uid"].clone()).collect() };
    let before = claims(night.objects("pvc").await?);
    assert_eq!(before.len(), 2);
    let product = night.product().await?;
    night.set(true).await?;
    ready(0).await?;
    assert_eq!(claims(night.objects("pvc").await?), before);
    night.set(false).await?;
    ready(2).await?;
    let object = night.object("statefulset", "db").await?;
    assert_eq!(
        object["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"],
        "Delete"
    );
    assert_eq!(claims(night.objects("pvc").await?), before);
    stop(&product).await
}

#[tokio::test]
async fn rule_v7_a_stuck_rollout_is_left_alone_and_told() -> anyhow::Result<()> {
    let (stage, _turn) = Stage::enter().await?;
    let night = Night::new(stage, "stuck", json!({})).await?;
    let mut stuck = deployment("w2", by_day("w2"));
    stuck["spec"]["progressDeadlineSeconds"] = json!(2);
    stuck["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    apply(&night, &stuck.to_string(), &[]).await?;
    night.settled().await?;
    stuck["spec"]["template"]["metadata"]["annotations"] = json!({"harness/never-ready": "true"});
    apply(&night, &stuck.to_string(), &[]).await?;
    wait_for("the rollout to be stuck", LATER, || async {
        let object = night.object("deployment", "w2").await?;
        let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
        ensure!(
            conditions
                .iter()
                .any(|condition| condition["reason"] == "ProgressDeadlineExceeded"),
            "{conditions:?}"
        );
        Ok(())
    })
    .await?;
    let product = night.product().await?;
    night.set(true).await?;
    wait_for("the schedule to say so", LATER, || async {
        let schedule = night
            .plane
            .kubectl(&["get", "ohs", &night.schedule, "-o", "json"])?
            .ok()
            .await?;
        let schedule: Value = serde_json::from_str(&schedule.stdout)?;
        let conditions = schedule["status"]["conditions"]
            .as_array()
            .context("no conditions yet")?;
        ensure!(
            conditions
                .iter()
                .any(|condition| condition["reason"] == "RolloutUnfinished"),
            "{conditions:?}"
        );
        ensure!(
            schedule["status"]["workloads"]["failing"] == 1,
            "{}",
            schedule["status"]["workloads"]
        );
        Ok(())
    })
    .await?;
    let object = night.object("deployment", "w2").await?;
    assert_eq!(object["spec"]["replicas"], by_day("w2"));
    stop(&product).await
}

#[tokio::test]
async fn rule_v5_a_cronjob_starts_no_missed_run_at_opening_time() -> anyhow::Result<()> {
    let (stage, _turn) = Stage::enter().await?;
    let spec = json!({"kinds": [{"kind": "CronJob"}]});
    let night = Night::new(stage, "catchup", spec).await?;
    let cronjob = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report"}, "spec": {
        // Once a year: a run in the time of this test would be one that was missed.
        "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "registry.example.com/job:1"}]}}}}}});
    apply(&night, &cronjob.to_string(), &[]).await?;
    // As if the last run had been long ago: the one of the new year was missed.
    let long_ago = json!({"status": {"lastScheduleTime": "2020-06-01T00:00:00Z"}}).to_string();
    let suspend = |wanted: bool| {
        let night = &night;
        async move {
            wait_for("the CronJob's suspend", LATER, || async {
                let object = night.object("cronjob", "report").await?;
                let suspended = object["spec"]["suspend"].as_bool().unwrap_or(false);
                ensure!(suspended == wanted, "suspend is {suspended}");
                Ok(())
            })
            .await
        }
    };
    let product = night.product().await?;
    night.set(true).await?;
    suspend(true).await?;
    night
        .kubectl(&[
            "patch",
            "cronjob",
            "report",
            "--subresource=status",
            "--type=merge",
            "-p",
            &long_ago,
        ])
        .await?;
    night.set(false).await?;
    suspend(false).await?;
    // A second CronJob shows that the controller has had its time: it was never told that nothing was missed.
    let mut other = cronjob.clone();
    other["metadata"]["name"] = json!("missed");
    other["spec"]["suspend"] = json!(true);
    apply(&night, &other.to_string(), &[]).await?;
    night
        .kubectl(&[
            "patch",
            "cronjob",
            "missed",
            "--subresource=status",
            "--type=merge",
            "-p",
            &long_ago,
        ])
        .await?;
    night
        .kubectl(&[
            "patch",
            "cronjob",
            "missed",
            "--type=merge",
            "-p",
            r#"{"spec":{"suspend":false}}"#,
        ])
        .await?;
    wait_for("the missed run of the other", LATER, || async {
        let jobs = night.objects("jobs").await?;
        ensure!(!jobs.is_empty(), "no Job yet");
        Ok(())
    })
    .await?;
    for job in night.objects("jobs").await? {
        assert_eq!(job["metadata"]["ownerReferences"][0]["name"], "missed");
    }
    stop(&product).await
}

#[tokio::test]
async fn rule_s5_a_rollout_undo_by_night_and_by_day_loses_nothing() -> anyhow::Result<()> {
    let (stage, _turn) = Stage::enter().await?;
    let night = Night::new(stage, "undo", json!({})).await?;
    let mut web = deployment("w1", by_day("w1"));
    apply(&night, &web.to_string(), &[]).await?;
    night.settled().await?;
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example.com/app:2");
    apply(&night, &web.to_string(), &[]).await?;
    night.settled().await?;
    let product = night.product().await?;
    night.set(true).await?;
    night.becomes(true).await?;
    // By night: all annotations become those of the old ReplicaSet.
    night.kubectl(&["rollout", "undo", "deployment/w1"]).await?;
    night.becomes(true).await?;
    night.set(false).await?;
    night.becomes(false).await?;
    night.settled().await?;
    // By day: the ReplicaSet of the night carries our record; it comes back and must not put anything to sleep.
    night.kubectl(&["rollout", "undo", "deployment/w1"]).await?;
    night.becomes(false).await?;
    night.settled().await?;
    stop(&product).await
}
