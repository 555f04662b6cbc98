//! A namespace under a schedule of its own, which the product's servers carry out, and what a test looks at there.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use harness::wait_for;
use serde_json::{Value, json};

use crate::product::Cluster;

/// Long enough for anything that another controller does on a busy machine.
pub const LATER: Duration = Duration::from_secs(300);

pub struct Place {
    pub cluster: &'static Cluster,
    pub namespace: String,
    /// Name of its schedule.
    pub schedule: String,
}

impl Place {
    /// A new one; the schedule comes with [`Self::turn`].
    pub async fn new(cluster: &'static Cluster, prefix: &str) -> anyhow::Result<Self> {
        let schedule = cluster.plane.unique_name(prefix);
        let labels = [("offhours.platform.io/schedule", schedule.as_str())];
        Ok(Self {
            cluster,
            namespace: cluster.plane.namespace(prefix, &labels).await?,
            schedule,
        })
    }

    /// Runs kubectl as the administrator of the cluster; what it prints.
    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        kubectl(self.cluster, arguments).await
    }

    /// Creates or changes an object of the namespace.
    pub async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let apply = self
            .cluster
            .plane
            .kubectl(&["apply", "-n", &self.namespace, "-f", "-"])?;
        apply.stdin(object.to_string()).ok().await.map(drop)
    }

    /// An object of the namespace as JSON.
    pub async fn get(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        get(self.cluster, kind, &self.namespace, name).await
    }

    pub async fn replicas(&self, name: &str) -> anyhow::Result<Value> {
        Ok(self.get("deployment", name).await?["spec"]["replicas"].take())
    }

    pub async fn until_replicas(&self, name: &str, wanted: u32) -> anyhow::Result<()> {
        wait_for(&format!("{name} at {wanted}"), LATER, || async {
            let replicas = self.replicas(name).await?;
            ensure!(
                replicas == wanted,
                "{replicas}; the schedule: {}",
                self.conditions().await.unwrap_or_default()
            );
            Ok(())
        })
        .await
    }

    /// Applies the schedule: `Up` or `Down` all the time, with more in its spec.
    pub async fn turn(&self, state: &str, more: &Value) -> anyhow::Result<()> {
        let window = if state == "Down" { "downtime" } else { "uptime" };
        let mut spec = json!({"timeZone": "UTC", window: ["Mon-Sun 00:00-24:00"]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let schedule = json!({
            "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
            "metadata": {"name": self.schedule}, "spec": spec,
        });
        self.cluster.plane.apply(&schedule.to_string()).await
    }

    /// What the schedule says of itself.
    pub async fn conditions(&self) -> anyhow::Result<Value> {
        let object = get(self.cluster, "offhoursschedule", "default", &self.schedule).await?;
        Ok(object["status"]["conditions"].clone())
    }

    /// Waits until the servers have told of this on the schedule.
    pub async fn until_told(&self, text: &str) -> anyhow::Result<()> {
        wait_for(&format!("the schedule to tell of {text}"), LATER, || async {
            let conditions = self.conditions().await?.to_string();
            ensure!(conditions.contains(text), "{conditions}");
            Ok(())
        })
        .await
    }
}

/// Runs kubectl as the administrator of a cluster; what it prints.
pub async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<String> {
    Ok(cluster.plane.kubectl(arguments)?.ok().await?.stdout)
}

/// An object as JSON.
pub async fn get(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let text = kubectl(cluster, &["get", kind, name, "-n", namespace, "-o", "json"]).await?;
    serde_json::from_str(&text).with_context(|| text)
}

/// A Deployment with or without a number of replicas.
pub fn deployment(name: &str, replicas: Option<u32>, image: &str) -> String {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        },
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// The keys of ours that an object bears.
pub fn our_keys(object: &Value) -> Vec<String> {
    let metadata = &object["metadata"];
    [&metadata["annotations"], &metadata["labels"]]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|keys| keys.keys())
        .filter(|key| key.starts_with("offhours."))
        .cloned()
        .collect()
}
