//! The real KEDA beside a control plane: its operator, without its metrics adapter. `make test-keda` builds it.
//!
//! Without the adapter the HPAs that it makes get no numbers: between one and many nothing moves, while the operator itself
//! scales from zero and to zero by what its triggers say.

use std::time::Duration;

use anyhow::Context as _;

use crate::{
    content_server::ContentServer,
    control_plane::{ControlPlane, free_port},
    identity::Identity,
    process::{Process, Program},
    programs::{module_folder, program},
};

const NAMESPACE: &str = "keda";

/// How long a start may take on a machine that is busy compiling.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// A running KEDA. Dropping it ends it.
#[derive(Debug)]
pub struct Keda {
    _operator: Process,
    triggers: ContentServer,
}

impl Keda {
    /// Starts one and waits until it is ready.
    pub async fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        let path = tokio::task::spawn_blocking(|| program("keda")).await??;
        let module = tokio::task::spawn_blocking(|| module_folder("keda", "github.com/kedacore/keda/v2")).await??;
        let definitions = module.join("config/crd/bases").display().to_string();
        let apply = ["apply", "--server-side", "-f", &definitions];
        plane.kubectl(&apply)?.ok().await?;
        plane.kubectl(&["create", "namespace", NAMESPACE])?.ok().await?;

        // What its parts show to each other.
        let certificates = plane.folder().join("keda");
        std::fs::create_dir_all(&certificates).with_context(|| format!("failed to make {}", certificates.display()))?;
        let own = plane.serving_certificate(&["keda-operator.keda.svc"])?;
        for (name, text) in [
            ("ca.crt", &own.authority),
            ("tls.crt", &own.certificate),
            ("tls.key", &own.key),
        ] {
            std::fs::write(certificates.join(name), text).with_context(|| format!("failed to write {name}"))?;
        }
        let who = Identity::service_account(NAMESPACE, "keda-operator").in_group("system:masters");
        let probe = free_port()?;
        let operator = Program::new(path)
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", free_port()?))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe}"))
            .arg(format!("--metrics-service-bind-address=127.0.0.1:{}", free_port()?))
            .arg(format!("--cert-dir={}", certificates.display()))
            .arg(format!("--ca-dir={}", certificates.display()))
            .arg("--zap-log-level=debug")
            .env("KUBECONFIG", plane.kubeconfig_for(&who)?.display().to_string())
            .env("WATCH_NAMESPACE", "")
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", "keda-operator-0")
            .env("KEDA_CLUSTER_OBJECT_NAMESPACE", NAMESPACE);
        let operator = Process::start("keda-operator", &operator, plane.folder().join("keda-operator.log"))?;
        operator.wait_until_ready(probe, "/readyz", START_DEADLINE).await?;
        Ok(Self {
            _operator: operator,
            triggers: ContentServer::start()?,
        })
    }

    /// A trigger's number from now on. A ScaledObject asks for it at the URL that this returns, as `{"value": …}`.
    pub fn set_trigger(&self, name: &str, value: u64) -> String {
        self.triggers
            .set(&format!("/{name}"), format!("{{\"value\": {value}}}"))
    }

    /// How often KEDA asked for it.
    pub fn asked(&self, name: &str) -> usize {
        self.triggers.fetched(&format!("/{name}"))
    }
}
