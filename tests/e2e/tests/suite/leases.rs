//! The election against a real API server.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use harness::{ControlPlane, Identity, SOON, wait_for};
use scheduler::lease::{Leadership, LeaseRunner, LeaseSettings, lease_client, new_identity};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::clock::RealClock;

struct Replica {
    leadership: Leadership,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

async fn replica(plane: &ControlPlane, namespace: &str, name: &str) -> anyhow::Result<Replica> {
    let settings = LeaseSettings {
        lease_duration: Duration::from_secs(6),
        renew_deadline: Duration::from_secs(5),
        retry_period: Duration::from_millis(500),
        call_timeout: Duration::from_secs(2),
        ..LeaseSettings::new(namespace, "election", new_identity(name))
    };
    settings.validate(Duration::from_secs(1))?;
    let client = lease_client(plane.config(&Identity::admin()).await?, settings.call_timeout)?;
    let (runner, leadership) = LeaseRunner::new(client, settings, Arc::new(RealClock));
    let (stop, told) = oneshot::channel::<()>();
    let task = tokio::spawn(runner.run(async move {
        let _ = told.await;
    }));
    Ok(Replica {
        leadership,
        stop: Some(stop),
        task,
    })
}

#[tokio::test]
async fn one_leads_and_the_next_follows_at_once_when_it_stops_and_later_when_it_dies() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("lease", &[]).await?;
    let mut first = replica(plane, &namespace, "first").await?;
    ensure!(tokio::time::timeout(SOON, first.leadership.leads()).await?);
    let second = replica(plane, &namespace, "second").await?;
    let third = replica(plane, &namespace, "third").await?;
    wait_for("the others to know the leader", SOON, || async {
        for other in [&second, &third] {
            let state = other.leadership.state();
            ensure!(!state.leading && state.holder.is_some_and(|holder| holder.starts_with("first_")));
        }
        Ok(())
    })
    .await?;
    first.stop.take().unwrap().send(()).unwrap();
    first.task.await?;
    ensure!(!first.leadership.is_leader_with(Duration::ZERO));
    let leads = |replica: &Replica| replica.leadership.is_leader_with(Duration::from_secs(1));
    wait_for("exactly one of the others to lead", SOON, || async {
        ensure!(leads(&second) != leads(&third));
        Ok(())
    })
    .await?;
    let (dies, follows) = if leads(&second) {
        (second, third)
    } else {
        (third, second)
    };
    dies.task.abort();
    let since = std::time::Instant::now();
    ensure!(tokio::time::timeout(SOON, follows.leadership.leads()).await?);
    ensure!(
        !dies.leadership.is_leader_with(Duration::ZERO),
        "the first ends before the next begins"
    );
    ensure!(since.elapsed() >= Duration::from_secs(3), "{:?}", since.elapsed());
    let shown = plane.kubectl(&[
        "get",
        "lease",
        "-n",
        &namespace,
        "election",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ])?;
    let holder = shown.ok().await?.stdout;
    ensure!(Some(holder) == follows.leadership.state().holder);
    Ok(())
}
