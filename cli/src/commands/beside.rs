//! What stands beside workloads (HPAs, Applications, Flux objects), for every command that decides.

use std::sync::Arc;

use cluster::follow::Follower;
use scheduler::beside::{Beside, Following};
use scheduler::decide::snapshot::Snapshot;
use shared::settings::Settings;

/// Follows it.
pub fn follow(follower: &Follower, settings: &Settings, own_namespace: &str) -> Beside {
    let following = if settings.cluster.namespaces.is_empty() {
        Following::Everything
    } else {
        Following::OwnNamespace
    };
    Beside::follow(follower, own_namespace, following)
}

/// Takes what the settings say of it into the snapshot.
pub fn configure(settings: &Settings, snapshot: &mut Snapshot) {
    let applications = &mut snapshot.beside.applications;
    applications.discovery = settings.argo.discovery;
    applications.cluster_names = settings
        .argo
        .cluster_names
        .iter()
        .map(|name| Arc::from(name.as_str()))
        .collect();
}
