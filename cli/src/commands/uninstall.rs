//! `offhours uninstall`: everything is restored, and what the product wrote is taken away.
//!
//! The lease is taken and kept, so that no scheduler puts anything to sleep again meanwhile; the webhook goes first, so that
//! nothing holds what is woken.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use http::Method;
use jiff::Timestamp;
use scheduler::act::{Act, ActSettings};
use scheduler::lease::{Leadership, LeaseRunner, LeaseSettings, lease_client, new_identity};
use scheduler::pass::{Summary, pass};
use serde::Serialize;
use serde_json::{Value, json};
use shared::api::FINALIZER;
use shared::clock::Clock;
use tokio::task::JoinHandle;

use super::Outcome;
use super::look::Look;
use super::tool::{self, Refused, Tool, ToolArguments};
use crate::clock::SystemClock;
use crate::sources;

/// The longest that failing restores may be tried again before they are left, with their records.
const MOST_PATIENCE: Duration = Duration::from_secs(3600);

/// After this long without the lease it is asked why.
const ASK_WHY: Duration = Duration::from_secs(5);

/// How long the lease stays ours after the end: time enough for whoever removes the scheduler's pods.
const KEPT: Duration = Duration::from_secs(120);

/// Arguments of `offhours uninstall`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How long to wait for restores that fail
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    patience: String,

    #[command(flatten)]
    tool: ToolArguments,
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Uninstalled {
    webhook_configurations: usize,
    restored: usize,
    failed: Vec<String>,
    finalizers: usize,
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    tool::block_on(uninstall(arguments), |outcome| outcome)
}

fn progress(text: &str) {
    // Nothing is left to do if standard error is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}

async fn uninstall(arguments: &Arguments) -> Result<Outcome, Refused> {
    let patience = shared::annotations::parse_duration(&arguments.patience)
        .and_then(|patience| Duration::try_from(patience).ok())
        .filter(|patience| *patience <= MOST_PATIENCE)
        .ok_or_else(|| {
            Refused::Usage(format!(
                "--patience is {:?}: allowed is a duration of at most an hour, such as 10m",
                arguments.patience
            ))
        })?;
    let tool = Tool::start(&arguments.tool).await?;
    let own_namespace = sources::own_namespace(&tool.settings)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let wanted = &tool.settings.scheduler;
    let (leadership, running) = lead(&tool, &own_namespace, &clock).await?;
    // With rights in single namespaces only, there is neither a webhook nor a custom resource of ours.
    let whole_cluster = tool.settings.cluster.namespaces.is_empty();
    let mut configurations = 0;
    if whole_cluster {
        progress("Removing the webhook configurations ...");
        configurations = webhook::install::uninstall(&tool.clients.calls, &tool.settings.webhook.configuration)
            .await
            .map_err(|error| Refused::Failed(error.into()))?;
    }

    progress("Restoring what sleeps ...");
    let mut look = Look::at(&tool).await?;
    let mut act = Act::new(
        tool.clients.calls.clone(),
        leadership,
        Arc::clone(&look.view),
        None,
        ActSettings {
            concurrency: wanted.write_concurrency,
            per_second: wanted.write_rate,
            write_timeout: wanted.write_timeout,
            dry_run: false,
        },
    );
    let view = Arc::clone(&look.view);
    let observer = look.observer_mut();
    observer.snapshot_mut().leaving = true;
    let end = tokio::time::Instant::now() + patience;
    let mut restored = 0;
    let summary: Summary = loop {
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        let summary = pass(
            &view,
            observer,
            &mut act,
            &*clock,
            false,
            left.max(Duration::from_secs(30)),
            std::future::pending(),
        )
        .await;
        restored += summary.done.len();
        if summary.failed.is_empty() || tokio::time::Instant::now() >= end {
            break summary;
        }
        progress(&format!("{} restores failed; trying again ...", summary.failed.len()));
        tokio::time::sleep(Duration::from_secs(5)).await;
    };

    let mut finalizers = 0;
    if whole_cluster {
        progress("Taking our finalizer off schedules ...");
        finalizers = strip_finalizers(&tool).await?;
    }
    // The lease is kept, not given back: a scheduler that still runs would put everything to sleep again.
    running.abort();
    keep_lease(&tool, &own_namespace, clock.now()).await?;
    let done = Uninstalled {
        webhook_configurations: configurations,
        restored,
        failed: summary
            .failed
            .iter()
            .map(|(object, reason, message)| format!("{object}: {message} ({reason})"))
            .collect(),
        finalizers,
    };
    tool::answer(tool.output, &done, || table(&done))?;
    Ok(if done.failed.is_empty() {
        Outcome::Done
    } else {
        Outcome::Partly
    })
}

/// Takes the lease, and keeps it until the stop is said.
async fn lead(
    tool: &Tool,
    own_namespace: &str,
    clock: &Arc<dyn Clock>,
) -> Result<(Leadership, JoinHandle<()>), Refused> {
    let wanted = &tool.settings.scheduler;
    let lease = LeaseSettings {
        take_over: true,
        lease_duration: wanted.lease_duration,
        renew_deadline: wanted.lease_renew_deadline,
        retry_period: wanted.lease_retry_period,
        call_timeout: wanted.lease_call_timeout,
        ..LeaseSettings::new(own_namespace, wanted.lease_name.clone(), new_identity("uninstall"))
    };
    let client = lease_client(tool.clients.config().clone(), lease.call_timeout)
        .context("failed to make a client for the lease")?;
    let (runner, leadership) = LeaseRunner::new(client, lease, Arc::clone(clock));
    let running = tokio::spawn(runner.run(std::future::pending()));
    progress("Taking the lease, so that no scheduler acts any more ...");
    if tokio::time::timeout(ASK_WHY, leadership.leads()).await.is_ok() {
        return Ok((leadership, running));
    }
    if let Some(why) = why_no_lease(tool, own_namespace).await {
        return Err(Refused::Failed(anyhow::anyhow!(
            "the lease {own_namespace}/{} cannot be taken, and without it a scheduler would undo this: {why}",
            wanted.lease_name
        )));
    }
    tokio::time::timeout(wanted.lease_duration * 4, leadership.leads())
        .await
        .map_err(|_| {
            Refused::Failed(anyhow::anyhow!(
                "the lease {own_namespace}/{} could not be taken for {:?}; see who holds it: kubectl get lease {} -n {own_namespace}",
                wanted.lease_name,
                wanted.lease_duration * 4,
                wanted.lease_name
            ))
        })?;
    Ok((leadership, running))
}

/// What keeps us from the lease for good, and what helps. `None`: its holder's time has to end.
async fn why_no_lease(tool: &Tool, own_namespace: &str) -> Option<String> {
    if tool.settings.cluster.namespaces.is_empty() {
        let url = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{own_namespace}");
        if let Ok(list) = tool.send(Method::GET, &url, "application/json", Vec::new()).await {
            let found = list.pointer("/items/0");
            if found.is_none() {
                return Some(format!(
                    "there is no namespace {own_namespace:?}; name another one with --own-namespace, or make it for as long as this takes: \
                     kubectl create namespace {own_namespace}"
                ));
            }
            if found
                .and_then(|found| found.pointer("/metadata/deletionTimestamp"))
                .is_some()
            {
                return Some(format!(
                    "namespace {own_namespace:?} is being deleted; wait until it is gone, make it again for as long as this takes (kubectl \
                     create namespace {own_namespace}), and run this again"
                ));
            }
        }
    }
    for verb in ["get", "create", "update"] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": "coordination.k8s.io", "resource": "leases", "verb": verb, "namespace": own_namespace,
                "name": tool.settings.scheduler.lease_name,
            }},
        });
        let url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let asked = tool.send(Method::POST, url, "application/json", review.to_string().into_bytes());
        if let Ok(answer) = asked.await
            && answer.pointer("/status/allowed") == Some(&Value::Bool(false))
        {
            return Some(format!(
                "this account may not {verb} leases in namespace {own_namespace:?}; run this as somebody who may do all that it restores"
            ));
        }
    }
    None
}

/// Leaves the lease ours for a while after the end.
async fn keep_lease(tool: &Tool, own_namespace: &str, now: Timestamp) -> Result<(), Refused> {
    let name = &tool.settings.scheduler.lease_name;
    let url = format!("/apis/coordination.k8s.io/v1/namespaces/{own_namespace}/leases/{name}");
    let body = json!({"spec": {"leaseDurationSeconds": KEPT.as_secs(), "renewTime": format!("{now:.6}")}});
    tool.send(
        Method::PATCH,
        &url,
        "application/merge-patch+json",
        body.to_string().into_bytes(),
    )
    .await
    .map(drop)
    .map_err(|error| {
        Refused::Failed(anyhow::anyhow!(
            "failed to keep the lease {own_namespace}/{name}: {error}"
        ))
    })
}

/// Without it a schedule can be deleted although nobody is there to restore any more.
async fn strip_finalizers(tool: &Tool) -> Result<usize, Refused> {
    let url = format!(
        "/apis/{}/{}/offhoursschedules",
        shared::api::GROUP,
        shared::api::VERSION
    );
    let list = match tool.send(Method::GET, &url, "application/json", Vec::new()).await {
        Ok(list) => list,
        Err(error) if error.code() == Some(404) => return Ok(0),
        Err(error) => return Err(Refused::Failed(anyhow::anyhow!("failed to list schedules: {error}"))),
    };
    let mut count = 0;
    for item in list.pointer("/items").and_then(Value::as_array).into_iter().flatten() {
        let name = item
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let finalizers = item.pointer("/metadata/finalizers").and_then(Value::as_array);
        let Some(index) = finalizers.and_then(|all| all.iter().position(|one| one == FINALIZER)) else {
            continue;
        };
        let path = format!("/metadata/finalizers/{index}");
        let body = json!([
            {"op": "test", "path": path, "value": FINALIZER},
            {"op": "remove", "path": path},
        ]);
        let sent = tool
            .send(
                Method::PATCH,
                &format!("{url}/{name}"),
                "application/json-patch+json",
                body.to_string().into_bytes(),
            )
            .await;
        match sent {
            Ok(_) => count += 1,
            Err(error) if error.code() == Some(404) => {}
            Err(error) => {
                return Err(Refused::Failed(anyhow::anyhow!(
                    "failed to take the finalizer off schedule {name:?}: {error}"
                )));
            }
        }
    }
    Ok(count)
}

fn table(done: &Uninstalled) -> String {
    let mut text = format!(
        "{} webhook configurations removed, {} workloads restored, {} finalizers taken off\n",
        done.webhook_configurations, done.restored, done.finalizers
    );
    for failure in &done.failed {
        text.push_str("failed: ");
        text.push_str(failure);
        text.push('\n');
    }
    if done.failed.is_empty() {
        text.push_str(
            "Now remove the rest: helm uninstall, or the Deployment; then `kubectl delete crd \
             offhoursschedules.offhours.platform.io`, if you will not come back.\n",
        );
    } else {
        text.push_str("Their records stay on them: original-replicas says what they were.\n");
    }
    text
}
