//! A control plane with the product beside it, for suites about the whole product.

use std::process::Output;

use anyhow::{Context as _, ensure};
use harness::{ControlPlane, Identity, Options, Product, SOON, free_port, http_get, offhours_binary, wait_for};
use serde_json::Value;

use crate::roles::{documents, grant};

/// The product's namespace.
pub const OWN_NAMESPACE: &str = "offhours-system";

/// A control plane of one's own.
pub struct Cluster {
    pub plane: ControlPlane,
    /// The product's account, with the chart's roles.
    pub identity: Identity,
    webhook_port: u16,
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
        grant(&plane).await?;
        Ok(Self {
            plane,
            identity,
            webhook_port: free_port()?,
        })
    }

    /// Installs the CRD that the binary prints.
    pub async fn install_crd(&self) -> anyhow::Result<()> {
        let crd = self.person(&["crd"]).await?;
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
        self.serve_with(arguments, &[])
    }

    /// The same with more variables.
    pub fn serve_with(&self, arguments: &[&str], more: &[(&str, &str)]) -> anyhow::Result<(Product, u16)> {
        let port = free_port()?;
        let (ops, webhook) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", self.webhook_port));
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
        let environment = [&environment, more].concat();
        Ok((
            Product::start(&self.plane, &self.identity, arguments, &environment)?,
            port,
        ))
    }

    /// Starts both servers, with the webhook registered as the chart registers it, and waits until they are ready.
    pub async fn run(&self) -> anyhow::Result<(Product, u16)> {
        let configurations = documents(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])?;
        let here = configurations.replace("port: 443\n", &format!("port: {}\n", self.webhook_port));
        ensure!(here != configurations, "no port in {here}");
        self.plane.apply(&here).await?;
        self.plane
            .service_to_localhost(OWN_NAMESPACE, "offhours-webhook", self.webhook_port)
            .await?;
        let (product, port) = self.serve(&["run"])?;
        product.wait_until_ready(port, "/readyz", SOON).await?;
        // Who is ready is trusted a moment later.
        wait_for("the caBundle", SOON, || async {
            for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
                let shown = self
                    .plane
                    .kubectl(&["get", kind, "offhours", "-o", "json"])?
                    .ok()
                    .await?;
                let seen: Value = serde_json::from_str(&shown.stdout)?;
                let all = seen["webhooks"].as_array().context("no webhooks")?;
                ensure!(
                    all.iter().all(|one| one["clientConfig"]["caBundle"].is_string()),
                    "{kind} has none"
                );
            }
            Ok(())
        })
        .await?;
        Ok((product, port))
    }

    /// The account under which the product is taken away.
    pub fn undertaker() -> Identity {
        Identity::service_account(OWN_NAMESPACE, "offhours-uninstall")
    }

    /// Runs a command of the binary to its end, as the product's account. No variable is inherited.
    pub async fn offhours(&self, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<Ended> {
        self.offhours_as(&self.identity, arguments, environment).await
    }

    /// The same, as a person of the platform team.
    pub async fn person(&self, arguments: &[&str]) -> anyhow::Result<Ended> {
        self.offhours_as(&Identity::admin(), arguments, &[]).await
    }

    /// The same, as somebody else.
    pub async fn offhours_as(
        &self,
        who: &Identity,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Ended> {
        let mut command = std::process::Command::new(offhours_binary()?);
        command
            .env_clear()
            .env("KUBECONFIG", self.plane.kubeconfig_for(who)?)
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
