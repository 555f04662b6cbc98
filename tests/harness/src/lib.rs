//! A real Kubernetes control plane on one machine, for tests, demo and benches: etcd, kube-apiserver,
//! kube-controller-manager, kube-scheduler and kwok (nodes and pods that only seem to run), as processes on loopback.
//!
//! `make controlplane` builds the programs once; without them a test fails and says so. `KUBE_VERSION=1.37` takes the other
//! column of `tests/controlplane/versions.env`.
//!
//! # How to write an end-to-end test
//!
//! ```no_run
//! use harness::{AuditQuery, ControlPlane, Identity, Product, SOON, free_port, wait_for};
//! use k8s_openapi::api::apps::v1::Deployment;
//! use kube::Api;
//!
//! # const DEPLOYMENT: &str = "";
//! #[tokio::test]
//! async fn a_workload_sleeps_when_its_schedule_says_so() -> anyhow::Result<()> {
//!     // One control plane for all tests of this program, started by the first. Tests run in parallel, so everything of
//!     // this test lives in a namespace of its own, and cluster-scoped objects have unique names.
//!     let plane = ControlPlane::shared().await?;
//!     let schedule = plane.unique_name("night");
//!     let namespace = plane.namespace("sleep", &[("offhours.platform.io/schedule", &schedule)]).await?;
//!
//!     // kubectl, as a person uses it: `ok` and `fails` say what is expected, `output` takes both.
//!     plane.kubectl(&["apply", "-n", &namespace, "-f", "-"])?.stdin(DEPLOYMENT).ok().await?;
//!     let dev = Identity::user("dev@example.com", &["developers"]);
//!     let refused = plane.kubectl_as(&dev, &["get", "pods", "-n", &namespace])?.fails().await?;
//!     assert!(refused.stderr.contains("Forbidden"));
//!
//!     // Clients: make them in the test that uses them (a client lives in the runtime that made it).
//!     let deployments: Api<Deployment> = Api::namespaced(plane.admin().await?, &namespace);
//!
//!     // The built product as a process, under an identity of its own, so that the audit log can tell its requests.
//!     let product = Identity::service_account("offhours-system", "scheduler"); // give it RBAC, or `system:masters`
//!     let audit = plane.audit().await?;
//!     let before = audit.mark().await?;
//!     let port = free_port()?.to_string();
//!     let running = Product::start(plane, &product, &["scheduler"], &[("PROBE_PORT", &port)])?;
//!     running.wait_until_ready(port.parse()?, "/readyz", SOON).await?;
//!
//!     // Never sleep: wait for a condition, and let the probe's error say what was seen instead.
//!     wait_for("web to be at 0", SOON, || async {
//!         let replicas = deployments.get("web").await?.spec.and_then(|spec| spec.replicas);
//!         anyhow::ensure!(replicas == Some(0), "replicas {replicas:?}");
//!         Ok(())
//!     })
//!     .await?;
//!
//!     // Who sent what: every request of that identity since the mark.
//!     let mine = AuditQuery::new().since(before).user(&product.user).namespace(&namespace);
//!     let writes = audit.requests(&mine.clone().writes()).await?;
//!     assert_eq!(writes.iter().map(|write| write.line()).collect::<Vec<_>>(), [format!("patch deployments {namespace}/web 200")]);
//!     assert!(audit.requests(&mine.verb("get")).await?.is_empty());
//!
//!     running.kill()?; // `kill -9`; also `terminate` (SIGTERM) and `signal(Signal::STOP)`
//!     Ok(())
//! }
//! ```
//!
//! More of it:
//! - The product under the chart's own roles: an identity in [`PRODUCT_GROUP`]. A [`Product`] that is dropped fails the test if
//!   the API server's audit log shows a call of such an identity that RBAC forbade.
//! - The chart, rendered by helm: [`chart::template`], and parts of what came out.
//! - A webhook or an aggregated API as in production: [`ControlPlane::service_to_localhost`] and
//!   [`ControlPlane::serving_certificate`] for `<service>.<namespace>.svc`; the server listens on 127.0.0.1.
//! - Numbers for the HPA controller: [`ControlPlane::metrics`], per namespace.
//! - Other feature gates, no controllers, fsync, no audit: a control plane of one's own, [`ControlPlane::start`] with
//!   [`Options`]; it ends when it is dropped. `Options::bench` is an API server and etcd with fsync alone.
//! - A StatefulSet with claims: [`ControlPlane::volumes`] first.
//! - Faults: [`ControlPlane::restart`], [`ControlPlane::without`] and [`ControlPlane::signal`] for each program; a
//!   [`Proxy`] between product and API server makes a death, a refusal, a cut or a stall at the n-th write.
//! - The real Argo CD: [`ArgoCd::start`], and a Git repository for it with [`ArgoCd::repository`]. The real Flux, with what it
//!   fetches: [`Flux::start`], [`Flux::publish`].
//! - Pods are steered by annotations in the pod template: `harness/never-ready: "true"`, `harness/ready-after: 3s`,
//!   `harness/runs-on: "true"` (a Job's pod that does not complete).
//! - Logs stay in `target/harness/<pid>-<n>-<name>/` (those of the last eight programs), and a test that fails names the
//!   folder. `controlplane` (`cargo run -p harness --bin controlplane`) is the same for people.
//!
//! Everything that is started here dies with the process that started it, also when that is killed by SIGKILL.

mod argocd;
mod audit;
pub mod chart;
mod content_server;
mod control_plane;
mod flags;
mod flux;
mod folder;
mod identity;
mod keda;
mod kubectl;
mod metrics_server;
mod options;
mod pki;
mod process;
mod product;
mod programs;
mod proxy;
mod wait;

pub use argocd::{ARGOCD_NAMESPACE, ArgoCd, ArgoCdOverTls, GitRepository, argocd_version};
pub use audit::{AuditLevel, AuditLog, AuditQuery, AuditedRequest, Mark, PRODUCT_GROUP};
pub use content_server::ContentServer;
pub use control_plane::{ControlPlane, free_port, install_crypto_provider};
pub use flux::Flux;
pub use identity::Identity;
pub use keda::Keda;
pub use kubectl::{Kubectl, KubectlOutput};
pub use metrics_server::MetricsServer;
pub use options::Options;
pub use pki::Certificate;
pub use process::{Process, Program, Signal};
pub use product::{Product, http_get, offhours_binary};
pub use programs::{kube_version, program, repository, target_folder};
pub use proxy::{Fault, Proxy, Write};
pub use wait::{SOON, Shared, holds_for, wait_for};
