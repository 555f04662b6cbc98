//! The control plane of the demo, with the product as a process beside it.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use harness::{AuditQuery, ControlPlane, Identity, Kubectl, Options, Product, chart, free_port, wait_for};
use serde_json::Value;

use crate::transcript::Transcript;

const OWN_NAMESPACE: &str = "offhours-system";
const SOON: Duration = Duration::from_secs(30);

/// What is installed: accounts, roles, definition, webhooks. Pods and their Service stay out: here nothing could run them, and
/// the API server reaches the webhook at `port` of this machine.
fn manifests(port: u16) -> anyhow::Result<String> {
    let text = chart::without(&chart::base()?, &["Deployment", "Service", "PodDisruptionBudget"]);
    Ok(text.replace("port: 443\n", &format!("port: {port}\n")))
}

/// What a Deployment should be.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// At so many replicas, without a record.
    Awake(i64),
    /// At 0, with a record of so many.
    Asleep(i64),
}

/// Control plane and product.
pub struct Cluster {
    plane: ControlPlane,
    product: Product,
    product_identity: Identity,
}

impl Cluster {
    /// Starts both, with the CRD and rights for the product.
    pub async fn start(out: &mut Transcript) -> anyhow::Result<Self> {
        out.say("Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok nodes ...");
        let plane = ControlPlane::start(Options::named("demo")).await?;
        // kubectl runs where this process runs, and the paths shown are those of the repository.
        std::env::set_current_dir(harness::repository()).context("failed to go to the repository")?;
        let product_identity = Identity::service_account(OWN_NAMESPACE, "offhours");
        plane
            .kubectl(&[
                "create",
                "clusterrolebinding",
                "developers",
                "--clusterrole=edit",
                "--group=developers",
            ])?
            .ok()
            .await?;
        plane
            .kubectl(&[
                "create",
                "clusterrole",
                "namespaces",
                "--verb=get,list,patch",
                "--resource=namespaces",
            ])?
            .ok()
            .await?;
        plane
            .kubectl(&[
                "create",
                "clusterrolebinding",
                "developers-namespaces",
                "--clusterrole=namespaces",
                "--group=developers",
            ])?
            .ok()
            .await?;
        let (ops, webhook) = (free_port()?, free_port()?);
        out.say("Installing manifests/kustomize, with the product as a process in place of its Deployment ...");
        plane.apply(&manifests(webhook)?).await?;
        plane
            .service_to_localhost(OWN_NAMESPACE, "offhours-webhook", webhook)
            .await?;
        out.run(plane.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd/offhoursschedules.offhours.platform.io",
        ])?)
        .await?;

        let (ops_address, webhook_address) = (format!("127.0.0.1:{ops}"), format!("127.0.0.1:{webhook}"));
        let arguments = [
            "run",
            "--own-namespace",
            OWN_NAMESPACE,
            "--ops-address",
            &ops_address,
            "--webhook-address",
            &webhook_address,
            "--log-format",
            "text",
        ];
        out.say(&format!("$ offhours {}", arguments.join(" ")));
        let product = Product::start(&plane, &product_identity, &arguments, &[])?;
        product.wait_until_ready(ops, "/readyz", SOON).await?;
        out.say("offhours is ready: it has seen the cluster, its webhook is installed and answers.");
        let cluster = Self {
            plane,
            product,
            product_identity,
        };
        // Webhook configurations take a moment to reach the API server's admission chain.
        wait_for("the webhook configurations", SOON, || async {
            for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
                let seen = cluster.kubectl(&["get", kind, "offhours", "-o", "json"])?.ok().await?;
                let configuration: Value = serde_json::from_str(&seen.stdout)?;
                let filled = configuration["webhooks"].as_array().is_some_and(|all| {
                    !all.is_empty() && all.iter().all(|one| one["clientConfig"]["caBundle"].is_string())
                });
                anyhow::ensure!(filled, "{kind} has no caBundle yet");
            }
            Ok(())
        })
        .await?;
        Ok(cluster)
    }

    /// A call of kubectl by the platform team.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Kubectl> {
        self.plane.kubectl(arguments)
    }

    /// A call of kubectl by a developer, who may edit but is no admin.
    pub fn developer(&self, arguments: &[&str]) -> anyhow::Result<Kubectl> {
        self.plane
            .kubectl_as(&Identity::user("dev@example.com", &["developers"]), arguments)
    }

    /// One Deployment, as the API server has it.
    pub async fn deployment(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let shown = self
            .kubectl(&["get", "deployment", name, "-n", namespace, "-o", "json"])?
            .ok()
            .await?;
        serde_json::from_str(&shown.stdout).context("failed to read what kubectl printed")
    }

    /// Ends the demo unless each of these is what it should be.
    pub async fn expect(&self, all: &[(&str, &str, Wanted)]) -> anyhow::Result<()> {
        for (namespace, name, wanted) in all {
            let deployment = self.deployment(namespace, name).await?;
            let replicas = deployment["spec"]["replicas"].as_i64();
            let metadata = &deployment["metadata"];
            let record = metadata["annotations"]["offhours.platform.io/original-replicas"].as_str();
            let label = metadata["labels"]["offhours.platform.io/asleep"].as_str();
            let right = match wanted {
                Wanted::Awake(count) => replicas == Some(*count) && record.is_none() && label.is_none(),
                Wanted::Asleep(count) => {
                    let text = count.to_string();
                    replicas == Some(0) && record == Some(text.as_str()) && label == Some(text.as_str())
                }
            };
            if !right {
                bail!(
                    "expected {namespace}/{name} to be {wanted:?}, and saw replicas {replicas:?}, record {record:?}, label {label:?}"
                );
            }
        }
        Ok(())
    }

    /// Ends the demo if the product ever wrote to one of these: the audit log knows.
    pub async fn expect_untouched(&self, all: &[(&str, &str)]) -> anyhow::Result<()> {
        let audit = self.plane.audit().await?;
        let writes = audit
            .requests(&AuditQuery::new().user(&self.product_identity.user).writes())
            .await?;
        let lines: Vec<String> = writes.iter().map(harness::AuditedRequest::line).collect();
        for (namespace, name) in all {
            let object = format!(" {namespace}/{name} ");
            if let Some(line) = lines.iter().find(|line| line.contains(&object)) {
                bail!("expected no write of offhours to {namespace}/{name}, and saw: {line}");
            }
        }
        // Without this, an audit log that tells nothing would prove everything.
        if !lines.iter().any(|line| line.contains(" shop-dev/storefront ")) {
            bail!(
                "expected a write of offhours to shop-dev/storefront in the audit log, and saw:\n{}",
                lines.join("\n")
            );
        }
        Ok(())
    }

    /// What the product logged.
    pub fn product_log(&self) -> String {
        self.product.log()
    }

    /// Says how to use what is left running.
    pub fn keep(&self, out: &Transcript) -> anyhow::Result<()> {
        let kubeconfig = self.plane.kubeconfig_for(&Identity::admin())?;
        let programs = self.plane.folder().join("bin");
        std::fs::create_dir_all(&programs)?;
        for (name, target) in [
            ("kubectl", harness::program("kubectl")?),
            ("offhours", harness::offhours_binary()?),
            ("kubectl-offhours", harness::offhours_binary()?),
        ] {
            std::os::unix::fs::symlink(target, programs.join(name))
                .with_context(|| format!("failed to link {name} into {}", programs.display()))?;
        }
        out.say("KEEP: it stays until Ctrl-C. In another terminal (docs/quick-start.md goes on from step 2 with it):");
        let mut stdout = std::io::stdout();
        writeln!(stdout, "  export KUBECONFIG={}", kubeconfig.display())?;
        writeln!(stdout, "  export PATH={}:$PATH", programs.display())?;
        writeln!(stdout, "  kubectl get deployments -A")?;
        writeln!(stdout, "  kubectl offhours status")?;
        writeln!(stdout, "  tail -f {}", self.product.log_path().display())?;
        Ok(())
    }

    /// Ends the product as a kubelet would.
    pub async fn stop(&self) -> anyhow::Result<()> {
        let status = self.product.terminate(SOON).await?;
        if !status.success() {
            bail!("expected offhours to end with 0 on SIGTERM, and saw {status}");
        }
        Ok(())
    }
}
