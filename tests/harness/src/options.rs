//! What kind of control plane.

use std::time::Duration;

use crate::audit::AuditLevel;

/// What kind of control plane to start. `Options::default()` is what most tests want.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the folder of logs.
    pub name: String,
    /// kube-controller-manager, kube-scheduler and kwok. Without them nothing happens to what is applied: for benches.
    pub controllers: bool,
    /// Whether etcd waits for the disk. Only for measurements.
    pub fsync: bool,
    /// `HPAScaleToZero=true` and the like, for all programs of Kubernetes.
    pub feature_gates: Vec<String>,
    /// What the API server writes down.
    pub audit: AuditLevel,
    /// How often the HPA controller looks.
    pub hpa_sync_period: Duration,
    /// How long the HPA controller remembers a higher recommendation before it scales down.
    pub hpa_downscale_stabilization: Duration,
    /// Fake nodes, `node-0` …
    pub nodes: u32,
    /// More flags for kube-apiserver (`--…`).
    pub api_server_arguments: Vec<String>,
    /// More flags for kube-controller-manager.
    pub controller_manager_arguments: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "control-plane".to_owned(),
            controllers: true,
            fsync: false,
            feature_gates: Vec::new(),
            audit: AuditLevel::Request,
            hpa_sync_period: Duration::from_secs(1),
            hpa_downscale_stabilization: Duration::from_secs(5),
            nodes: 2,
            api_server_arguments: Vec::new(),
            controller_manager_arguments: Vec::new(),
        }
    }
}

impl Options {
    /// As default, under another name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// An API server and etcd alone, with fsync, and an audit log that counts requests without their bodies: what is
    /// measured is the product.
    pub fn bench(name: &str) -> Self {
        Self {
            controllers: false,
            fsync: true,
            audit: AuditLevel::Metadata,
            ..Self::named(name)
        }
    }
}
