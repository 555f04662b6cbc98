//! Tests against an API server double in process.

mod double;
mod events;
mod following;
mod stores;
mod troubles;
mod wires;

use std::{sync::Arc, time::Duration};

use double::Api;
use shared::{kinds::Kinds, workload::Workload};

use crate::{
    follow::{Follower, Scope},
    reflector::Pace,
    store::Store,
};

pub const DEPLOYMENTS: &str = "deployments.apps";
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Follows Deployments of the whole cluster.
fn follow(api: &Api) -> (Follower, Arc<Store<Workload>>) {
    follow_with(api, Scope::Cluster, Pace::default())
}

fn follow_with(api: &Api, scope: Scope, pace: Pace) -> (Follower, Arc<Store<Workload>>) {
    let follower = Follower::start(api.client(), Kinds::default(), scope, pace);
    let kind = Arc::clone(follower.view().kinds().by_kind("apps", "Deployment").unwrap());
    follower.follow_kind(&kind);
    let store = follower.view().workloads("apps", "Deployment").unwrap();
    (follower, store)
}

/// Waits until something is true; time is paused, so this costs none. Ends the test after two simulated hours.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..72_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}");
}

fn replicas(store: &Store<Workload>, namespace: &str, name: &str) -> Option<u64> {
    store.get(namespace, name)?.knobs[0].value.as_ref()?.as_u64()
}
