//! The real kustomize-controller and helm-controller of Flux beside a control plane. `make test-flux` builds them.
//!
//! What source-controller would fetch is given by the test: an artifact, which a small HTTP server has, and a source whose
//! status names it. Its definitions are of our own making, since those controllers' modules do not bring them.

use std::{
    fmt::Write as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    content_server::ContentServer,
    control_plane::{ControlPlane, free_port},
    identity::Identity,
    process::{Process, Program},
    programs::{module_folder, program},
    wait::{SOON, wait_for},
};

const NAMESPACE: &str = "flux-system";
const GROUP: &str = "source.toolkit.fluxcd.io";

/// The kinds that the controllers watch as sources.
const SOURCES: [(&str, &str); 5] = [
    ("GitRepository", "gitrepositories"),
    ("OCIRepository", "ocirepositories"),
    ("Bucket", "buckets"),
    ("ExternalArtifact", "externalartifacts"),
    ("HelmChart", "helmcharts"),
];

/// How long a start may take on a machine that is busy compiling.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// A running Flux. Dropping it ends it.
#[derive(Debug)]
pub struct Flux {
    _processes: [Process; 2],
    content: ContentServer,
    folder: std::path::PathBuf,
}

impl Flux {
    /// Starts one and waits until it is ready.
    pub async fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        for (kind, plural) in SOURCES {
            plane.apply(&definition(kind, plural)).await?;
        }
        plane.kubectl(&["create", "namespace", NAMESPACE])?.ok().await?;
        let folder = plane.folder().join("flux");
        std::fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
        Ok(Self {
            _processes: [
                controller(plane, "kustomize-controller", &folder).await?,
                controller(plane, "helm-controller", &folder).await?,
            ],
            content: ContentServer::start()?,
            folder,
        })
    }

    /// Gives a source of some kind (`GitRepository`, or `OCIRepository` for a chart) these files, as source-controller would;
    /// `revision` is what it calls them. It is created where it is not there.
    pub async fn publish(
        &self,
        (plane, namespace): (&ControlPlane, &str),
        (kind, name): (&str, &str),
        revision: &str,
        files: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let (_, plural) = SOURCES
            .iter()
            .find(|(known, _)| *known == kind)
            .with_context(|| format!("{kind} is no kind of source"))?;
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural);
        let sources: Api<DynamicObject> = Api::namespaced_with(plane.admin().await?, namespace, &resource);
        let packed = self.pack(files)?;
        let url = self
            .content
            .set(&format!("/{kind}/{namespace}/{name}/{revision}.tar.gz"), packed.clone());
        let digest = ring::digest::digest(&ring::digest::SHA256, &packed);
        let digest = digest.as_ref().iter().fold(String::new(), |mut text, byte| {
            // A String takes everything.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let source = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"interval": "1h", "url": "https://source.example.com/shop"},
        });
        let params = PatchParams::apply("source-controller").force();
        // A definition is served only a moment after it was created.
        wait_for("the source to be taken", SOON, || async {
            Ok(sources.patch(name, &params, &Patch::Apply(&source)).await?)
        })
        .await?;
        let status = json!({"status": {
            "observedGeneration": 1,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact",
                "lastTransitionTime": now(), "observedGeneration": 1,
            }],
            "artifact": {
                "path": format!("{name}.tar.gz"), "url": url, "revision": revision, "digest": format!("sha256:{digest}"),
                "lastUpdateTime": now(), "size": packed.len(),
            },
        }});
        sources
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .with_context(|| format!("failed to write the status of {kind} {name}"))?;
        Ok(())
    }

    fn pack(&self, files: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = self
            .folder
            .join(format!("artifact-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        for (name, text) in files {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        }
        let output = Command::new("tar")
            .arg("-czf")
            .arg("-")
            .arg("-C")
            .arg(&folder)
            .arg(".")
            .output()
            .context("failed to run tar")?;
        if !output.status.success() {
            bail!("tar: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.stdout)
    }
}

/// Starts one under the name that it has in a cluster, which is how the webhook knows it.
async fn controller(plane: &ControlPlane, name: &'static str, folder: &Path) -> anyhow::Result<Process> {
    let path = tokio::task::spawn_blocking(move || program(name)).await??;
    let package = format!("github.com/fluxcd/{name}");
    let module = tokio::task::spawn_blocking(move || module_folder(name, &package)).await??;
    let definitions = module.join("config/crd/bases").display().to_string();
    let apply = ["apply", "--server-side", "-f", &definitions];
    plane.kubectl(&apply)?.ok().await?;
    let who = Identity::service_account(NAMESPACE, name).in_group("system:masters");
    let health = free_port()?;
    let controller = Program::new(path)
        .arg("--watch-all-namespaces")
        .arg(format!("--metrics-addr=127.0.0.1:{}", free_port()?))
        .arg(format!("--health-addr=127.0.0.1:{health}"))
        .args([
            "--interval-jitter-percentage=0",
            "--requeue-dependency=1s",
            "--log-level=debug",
        ])
        .env("KUBECONFIG", plane.kubeconfig_for(&who)?.display().to_string())
        .env("RUNTIME_NAMESPACE", NAMESPACE)
        .env("HOME", folder.display().to_string())
        .env("TMPDIR", folder.display().to_string());
    let process = Process::start(name, &controller, plane.folder().join(format!("{name}.log")))?;
    process.wait_until_ready(health, "/readyz", START_DEADLINE).await?;
    Ok(process)
}

#[expect(
    clippy::disallowed_methods,
    reason = "real controllers compare it with their own real clock"
)]
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn definition(kind: &str, plural: &str) -> String {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema: Value = json!({"type": "object", "properties": {"spec": open, "status": open}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
    .to_string()
}
