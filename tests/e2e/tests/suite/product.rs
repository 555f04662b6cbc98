//! A control plane with the product beside it, for suites about the whole product.

use std::process::Output;

use anyhow::{Context as _, ensure};
use harness::{ControlPlane, Identity, Options, Product, SOON, free_port, http_get, offhours_binary, wait_for};
use serde_json::Value;

/// The product's namespace.
pub const OWN_NAMESPACE: &str = "offhours-system";

/// A control plane of one's own.
pub struct Cluster {
    pub plane: ControlPlane,
    pub identity: Identity,
}

/// Exit code and texts of a command that has ended.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Of what a program gave.
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Both texts.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// What it printed with `-o json`.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("no JSON: {}", self.text()))
    }
}

impl Cluster {
    /// Starts one, with the product's namespace and rights, without its CRD.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(Options::named(name)).await?;
        let identity = Identity::service_account(OWN_NAMESPACE, "offhours");
        plane.kubectl(&["create", "namespace", OWN_NAMESPACE])?.ok().await?;
        let user = format!("--user={}", identity.user);
        plane
            .kubectl(&[
                "create",
                "clusterrolebinding",
                "offhours",
                "--clusterrole=cluster-admin",
                &user,
            ])?
            .ok()
            .await?;
        Ok(Self { plane, identity })
    }

    /// Installs the CRD that the binary prints.
    pub async fn install_crd(&self) -> anyhow::Result<()> {
        let crd = self.offhours(&["crd"], &[]).await?;
        self.plane.apply(&crd.stdout).await?;
        let name = "crd/offhoursschedules.offhours.platform.io";
        self.plane
            .kubectl(&["wait", "--for=condition=Established", name])?
            .ok()
            .await
            .map(drop)
    }

    /// Starts a server; the port is that of its probes.
    pub fn serve(&self, arguments: &[&str]) -> anyhow::Result<(Product, u16)> {
        let port = free_port()?;
        let (ops, webhook) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", free_port()?));
        let environment = [
            ("OFFHOURS_OPS_ADDRESS", ops.as_str()),
            ("OFFHOURS_WEBHOOK_ADDRESS", webhook.as_str()),
            ("POD_NAMESPACE", OWN_NAMESPACE),
            ("OFFHOURS_LOG_FORMAT", "text"),
            ("OFFHOURS_LEASE_DURATION", "3s"),
            ("OFFHOURS_LEASE_RENEW_DEADLINE", "2500ms"),
            ("OFFHOURS_LEASE_RETRY_PERIOD", "200ms"),
            ("OFFHOURS_LEASE_CALL_TIMEOUT", "1s"),
            ("OFFHOURS_WRITE_TIMEOUT", "1s"),
        ];
        Ok((
            Product::start(&self.plane, &self.identity, arguments, &environment)?,
            port,
        ))
    }

    /// Starts both servers with a registered webhook, and waits until they are ready.
    pub async fn run(&self) -> anyhow::Result<(Product, u16)> {
        let (product, port) = self.serve(&["run", "--webhook-install", "--webhook-install-service"])?;
        product.wait_until_ready(port, "/readyz", SOON).await?;
        Ok((product, port))
    }

    /// Runs a command of the binary to its end, as the product's account. No variable is inherited.
    pub async fn offhours(&self, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<Ended> {
        let mut command = std::process::Command::new(offhours_binary()?);
        command
            .env_clear()
            .env("KUBECONFIG", self.plane.kubeconfig_for(&self.identity)?)
            .env("POD_NAMESPACE", OWN_NAMESPACE)
            .envs(environment.iter().copied())
            .args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let ended = Ended::of(&output);
        ensure!(!ended.text().contains("panicked"), "{}", ended.text());
        Ok(ended)
    }

    /// `name replicas record` of every Deployment of these namespaces.
    pub async fn deployments(&self, namespaces: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for namespace in namespaces {
            let shown = self
                .plane
                .kubectl(&["get", "deployments", "-n", namespace, "-o", "json"])?
                .ok()
                .await?;
            let list: Value = serde_json::from_str(&shown.stdout)?;
            for object in list["items"].as_array().into_iter().flatten() {
                let metadata = &object["metadata"];
                lines.push(format!(
                    "{} {} {}",
                    metadata["name"].as_str().unwrap_or_default(),
                    object["spec"]["replicas"],
                    metadata["annotations"]["offhours.platform.io/original-replicas"]
                ));
            }
        }
        lines.sort();
        Ok(lines)
    }

    /// Waits until the Deployments are as they should be.
    pub async fn become_so(&self, namespaces: &[&str], wanted: &[&str]) -> anyhow::Result<()> {
        wait_for("the Deployments", SOON, || async {
            let seen = self.deployments(namespaces).await?;
            ensure!(seen == wanted, "{seen:?}");
            Ok(())
        })
        .await
    }

    /// What the product answers to a probe.
    pub async fn probe(&self, port: u16, path: &str) -> anyhow::Result<(u16, String)> {
        http_get(port, path).await
    }
}

/// A schedule that is down or up all the time.
pub fn schedule(name: &str, state: &str) -> String {
    let window = if state == "Down" { "downtime" } else { "uptime" };
    format!(
        "apiVersion: offhours.platform.io/v1alpha1\nkind: OffHoursSchedule\nmetadata: {{name: {name}}}\n\
         spec: {{timeZone: UTC, {window}: [\"Mon-Sun 00:00-24:00\"]}}\n"
    )
}

/// A Deployment.
pub fn deployment(name: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
         spec: {{containers: [{{name: c, image: nginx:1.27}}]}}\n"
    )
}
