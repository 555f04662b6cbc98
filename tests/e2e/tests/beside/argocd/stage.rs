//! One control plane with one Argo CD and the product's servers for all tests of this program; a namespace, a schedule, a Git
//! repository and an Application for each.

use std::ops::{Deref, DerefMut};

use anyhow::ensure;
use harness::{ARGOCD_NAMESPACE, ArgoCd, GitRepository, Identity, Product, Shared, offhours_binary, wait_for};
use serde_json::{Value, json};

pub use crate::place::{LATER, deployment};
use crate::{
    place::{self, Place},
    product::{Cluster, Ended, OWN_NAMESPACE},
};

pub struct Stage {
    pub cluster: Cluster,
    pub argo: ArgoCd,
    _servers: Option<Product>,
}

impl Stage {
    /// Started by whoever asks first.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: Shared<Stage> = Shared::new();
        SHARED.get(|| Self::start(true)).await
    }

    /// The same without servers, which would give back what a pass puts to sleep on behalf of a schedule that they do not
    /// know.
    pub async fn without_servers() -> anyhow::Result<&'static Self> {
        static ALONE: Shared<Stage> = Shared::new();
        ALONE.get(|| Self::start(false)).await
    }

    async fn start(servers: bool) -> anyhow::Result<Self> {
        let cluster = Cluster::start(if servers { "argocd" } else { "argocd-alone" }).await?;
        let argo = ArgoCd::start(&cluster.plane, servers).await?;
        let mut running = None;
        if servers {
            cluster.install_crd().await?;
            running = Some(cluster.run().await?.0);
        }
        Ok(Self {
            cluster,
            argo,
            _servers: running,
        })
    }

    /// Runs kubectl as the administrator of the cluster; what it prints.
    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        place::kubectl(&self.cluster, arguments).await
    }

    /// An object as JSON.
    pub async fn get(&self, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Value> {
        place::get(&self.cluster, kind, namespace, name).await
    }
}

/// One Application, and what is around it.
pub struct Shop {
    pub stage: &'static Stage,
    /// Of the Application.
    pub name: String,
    /// Of its workloads.
    place: Place,
    pub repository: GitRepository,
}

impl Deref for Shop {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl DerefMut for Shop {
    fn deref_mut(&mut self) -> &mut Place {
        &mut self.place
    }
}

/// A policy with all that a pause could lose.
pub fn policy() -> Value {
    json!({
        "automated": {"prune": true, "selfHeal": true, "allowEmpty": false},
        "syncOptions": ["ApplyOutOfSyncOnly=true"],
        "retry": {"limit": 4, "backoff": {"duration": "3s", "factor": 2, "maxDuration": "1m"}},
    })
}

/// Equal in meaning: the HTTP API drops a `false` that means nothing.
pub fn without_false(policy: &Value) -> Value {
    let mut policy = policy.clone();
    if let Some(block) = policy["automated"].as_object_mut() {
        block.retain(|key, value| key == "enabled" || *value != false);
    }
    policy
}

impl Shop {
    /// A namespace under a schedule of its own with these files in Git, without an Application.
    pub async fn without_application(prefix: &str, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::on(Stage::shared().await?, prefix, files).await
    }

    /// The same on another stage.
    pub async fn on(stage: &'static Stage, prefix: &str, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let place = Place::new(&stage.cluster, prefix).await?;
        let repository = stage.argo.repository(&place.schedule).await?;
        if !files.is_empty() {
            repository.commit(files)?;
        }
        Ok(Self {
            stage,
            name: place.schedule.clone(),
            place,
            repository,
        })
    }

    /// The same with an Application, when it is synced and healthy.
    pub async fn start(prefix: &str, files: &[(&str, &str)], policy: &Value) -> anyhow::Result<Self> {
        Self::without_application(prefix, files).await?.synced(policy).await
    }

    /// One on the stage without servers.
    pub async fn start_alone(prefix: &str, files: &[(&str, &str)], policy: &Value) -> anyhow::Result<Self> {
        let stage = Stage::without_servers().await?;
        Self::on(stage, prefix, files).await?.synced(policy).await
    }

    async fn synced(self, policy: &Value) -> anyhow::Result<Self> {
        let manifest = Self::manifest(&self.name, &self.repository, &self.namespace, policy);
        self.stage.cluster.plane.apply(&manifest.to_string()).await?;
        self.until_synced().await?;
        Ok(self)
    }

    /// An Application.
    pub fn manifest(name: &str, repository: &GitRepository, namespace: &str, policy: &Value) -> Value {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": ARGOCD_NAMESPACE},
            "spec": {
                "project": "default",
                "source": {"repoURL": repository.url(), "targetRevision": "main", "path": "."},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
                "syncPolicy": policy,
            },
        })
    }

    /// The Application.
    pub async fn application(&self) -> anyhow::Result<Value> {
        self.stage.get("application", ARGOCD_NAMESPACE, &self.name).await
    }

    pub async fn until_synced(&self) -> anyhow::Result<()> {
        wait_for(&format!("{} to be synced and healthy", self.name), LATER, || async {
            let status = self.application().await?["status"].take();
            let (sync, health) = (&status["sync"]["status"], &status["health"]["status"]);
            ensure!(
                *sync == "Synced" && *health == "Healthy" && status["operationState"]["phase"] == "Succeeded",
                "{sync} {health} {} {}",
                status["conditions"],
                status["operationState"]["message"]
            );
            Ok(())
        })
        .await
    }

    /// Has Argo CD compare it with Git anew, and waits until it has.
    pub async fn refresh(&self) -> anyhow::Result<()> {
        let key = "argocd.argoproj.io/refresh";
        let asked = format!("{key}=normal");
        self.stage
            .kubectl(&[
                "annotate",
                "--overwrite",
                "application",
                &self.name,
                "-n",
                ARGOCD_NAMESPACE,
                &asked,
            ])
            .await?;
        wait_for("the comparison with Git", LATER, || async {
            let object = self.application().await?;
            let open = &object["metadata"]["annotations"][key];
            ensure!(open.is_null(), "{open}");
            Ok(())
        })
        .await
    }

    /// How many syncs there were, and when the last one began.
    pub async fn syncs(&self) -> anyhow::Result<(usize, Value)> {
        let status = self.application().await?["status"].take();
        let history = status["history"].as_array().map_or(0, Vec::len);
        Ok((history, status["operationState"]["startedAt"].clone()))
    }

    /// Applies the schedule, which the servers carry out: `Up` or `Down`, Applications paused.
    pub async fn turn(&self, state: &str, enforcement: &str) -> anyhow::Result<()> {
        self.turn_with(state, enforcement, &json!({"pause": true})).await
    }

    /// The same with all that it says of Argo CD.
    pub async fn turn_with(&self, state: &str, enforcement: &str, argo: &Value) -> anyhow::Result<()> {
        self.place
            .turn(state, &json!({"argo": argo, "enforcement": {"mode": enforcement}}))
            .await
    }

    /// Waits for an Event on the Application; they come a moment after what they tell of.
    pub async fn until_event(&self, reason: &str) -> anyhow::Result<()> {
        let selector = format!("involvedObject.name={}", self.name);
        let words = ["get", "events", "-n", ARGOCD_NAMESPACE, "--field-selector", &selector];
        wait_for(&format!("an Event {reason}"), LATER, || async {
            let events = self.stage.kubectl(&words).await?;
            ensure!(events.contains(reason), "{events}");
            Ok(())
        })
        .await
    }

    /// Waits until nothing of ours is on the Application any more.
    pub async fn until_resumed(&self) -> anyhow::Result<Value> {
        wait_for(&format!("{} to be resumed", self.name), LATER, || async {
            let object = self.application().await?;
            let left = place::our_keys(&object);
            ensure!(left.is_empty(), "{left:?}");
            Ok(object)
        })
        .await
    }

    /// Runs one pass with K8s-OffHours' environment and Argo CD's HTTP API at `server`, as an account of its own.
    pub async fn one_pass(&self, action: &str, server: &str, token: &str) -> anyhow::Result<Ended> {
        self.one_pass_in(action, "namespace", server, token).await
    }

    /// The same in another scope.
    pub async fn one_pass_in(&self, action: &str, scope: &str, server: &str, token: &str) -> anyhow::Result<Ended> {
        self.one_pass_with(&[("ACTION", action), ("SCHEDULE_SCOPE", scope)], server, token)
            .await
    }

    /// The same with more variables.
    pub async fn one_pass_with(&self, more: &[(&str, &str)], server: &str, token: &str) -> anyhow::Result<Ended> {
        let environment = [
            ("SCHEDULE_NAME", self.schedule.as_str()),
            ("ARGO_ENABLED", "true"),
            ("ARGO_SERVER", server),
            ("ARGO_SCHEME", "http"),
            ("ARGO_TOKEN", token),
            ("ARGO_DISCOVERY_USE_MANUAL", "true"),
            ("ARGO_API_RETRY_BASE_SECONDS", "0.05"),
        ];
        let plane = &self.stage.cluster.plane;
        let mut command = std::process::Command::new(offhours_binary()?);
        command
            .env_clear()
            .env("KUBECONFIG", plane.kubeconfig_for(&one_pass_identity())?)
            .env("POD_NAMESPACE", OWN_NAMESPACE)
            .envs(environment)
            .envs(more.iter().copied());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let ended = Ended::of(&output);
        ensure!(!ended.text().contains("panicked"), "{}", ended.text());
        ensure!(!ended.text().contains(token), "the token is in the log");
        Ok(ended)
    }
}

/// Who makes the passes by the HTTP API: another account than the servers, so that the audit log tells them apart.
pub fn one_pass_identity() -> Identity {
    Identity::user("one-pass", &["system:masters"])
}
