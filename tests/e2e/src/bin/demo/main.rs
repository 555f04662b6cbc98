//! `make demo`: a night of a development cluster in two minutes, on a real Kubernetes API, as a person with kubectl sees it.
//!
//! Each step shows what it does and checks what it shows. Time is moved by moving the schedule: nothing here fakes a clock.

#![allow(clippy::indexing_slicing, reason = "a JSON value answers null where a key is absent")]

mod cluster;
mod transcript;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use harness::wait_for;
use jiff::{SignedDuration, Timestamp};
use tokio::signal::unix::{SignalKind, signal};

use cluster::{Cluster, Wanted};
use transcript::{Transcript, check};

/// Every Deployment of the scenarios, and what it has by day.
const BY_DAY: [(&str, &str, i64); 8] = [
    ("shop-dev", "storefront", 2),
    ("shop-dev", "ledger", 1),
    ("billing-dev", "invoices", 3),
    ("billing-dev", "collector", 1),
    ("billing-dev", "handbook", 1),
    ("search-dev", "search-api", 2),
    ("media-dev", "gallery", 2),
    ("media-dev", "transcoder", 1),
];
/// Those that sleep.
const SLEEPERS: [(&str, &str); 4] = [
    ("shop-dev", "storefront"),
    ("billing-dev", "invoices"),
    ("search-dev", "search-api"),
    ("media-dev", "gallery"),
];
/// How long a person looks at the day before the schedule falls due.
const DAY: SignedDuration = SignedDuration::from_secs(12);
const SOON: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let mut out = Transcript::new();
    let mut interrupt = match signal(SignalKind::interrupt()) {
        Ok(interrupt) => interrupt,
        Err(error) => {
            out.failed(&anyhow::anyhow!("failed to listen for Ctrl-C: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // Whatever is started dies with this process, so an interrupted demo leaves nothing behind.
    let result = tokio::select! {
        result = demo(&mut out) => Some(result),
        _ = interrupt.recv() => None,
    };
    match result {
        Some(Ok(())) => ExitCode::SUCCESS,
        // With KEEP, that is how it ends.
        None if out.is_done() => ExitCode::SUCCESS,
        None => {
            out.failed(&anyhow::anyhow!("interrupted"));
            ExitCode::FAILURE
        }
        Some(Err(error)) => {
            out.failed(&error);
            ExitCode::FAILURE
        }
    }
}

async fn demo(out: &mut Transcript) -> anyhow::Result<()> {
    out.step("A Kubernetes control plane, with offhours beside it");
    let cluster = Cluster::start(out).await?;
    let result = night(out, &cluster).await;
    if result.is_err() {
        out.tail(&cluster.product_log());
    }
    result?;
    out.done();
    if std::env::var("KEEP").is_ok_and(|keep| !keep.is_empty() && keep != "0") {
        cluster.keep(out)?;
        std::future::pending::<()>().await;
    }
    cluster.stop().await
}

async fn night(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    by_day(out, cluster).await?;
    closing_time(out, cluster).await?;
    held_under_rewrite(out, cluster).await?;
    refused_under_deny(out, cluster).await?;
    created_at_night(out, cluster).await?;
    opening_time(out, cluster).await
}

async fn by_day(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    out.step("By day: four teams, and one schedule that they follow");
    for scenario in ["1-namespace", "2-workload", "3-argo-manual", "4-mixed"] {
        let path = format!("manifests/examples/scenarios/{scenario}.yaml");
        out.run(cluster.kubectl(&["apply", "-f", &path])?).await?;
    }
    // Pods of the day, so that the picture below is whole.
    for (namespace, name, replicas) in BY_DAY {
        wait_for(&format!("{namespace}/{name} to be ready"), SOON, || async {
            let ready = cluster.deployment(namespace, name).await?["status"]["readyReplicas"]
                .as_i64()
                .unwrap_or(0);
            anyhow::ensure!(ready == replicas, "{ready} of {replicas} replicas are ready");
            Ok(())
        })
        .await?;
    }
    let shown = out.run(cluster.kubectl(&["get", "deployments", "-A"])?).await?;
    for (_, name, _) in BY_DAY {
        check(
            shown.stdout.contains(name),
            &format!("{name} in the list"),
            &shown.stdout,
        )?;
    }
    cluster
        .expect(&BY_DAY.map(|(namespace, name, replicas)| (namespace, name, Wanted::Awake(replicas))))
        .await
}

async fn closing_time(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    out.step("Closing time");
    let due = now().checked_add(DAY).context("the end of time")?;
    out.say(&format!(
        "The schedule closes {} from now, at {due}. Nothing is done by hand from here on.",
        seconds(DAY)
    ));
    out.run(cluster.kubectl(&["apply", "-f", "-"])?.stdin(schedule(&[
        Exception::new("Up", before(due, DAY.checked_mul(10).unwrap_or(DAY))?, due),
        Exception::new("Down", due, after_a_day(due)?),
    ])))
    .await?;
    for (namespace, name) in SLEEPERS {
        wait_for(&format!("{namespace}/{name} to sleep"), SOON, || async {
            let deployment = cluster.deployment(namespace, name).await?;
            let replicas = deployment["spec"]["replicas"].as_i64();
            anyhow::ensure!(replicas == Some(0), "spec.replicas is {replicas:?}");
            anyhow::ensure!(now() >= due, "it slept before {due}");
            Ok(())
        })
        .await?;
    }
    out.say(&format!("It is {} now.", now()));
    out.run(cluster.kubectl(&["get", "offhoursschedules"])?).await?;
    out.run(cluster.kubectl(&["get", "deployments", "-A"])?).await?;
    cluster.expect(&BY_DAY.map(asleep_at_night)).await?;

    out.say("What it was is saved on each Deployment, in the very request that scaled it down:");
    let shown = out
        .run(cluster.kubectl(&[
            "get",
            "deployments",
            "-A",
            "-l",
            "offhours.platform.io/asleep",
            "-o",
            r"custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,REPLICAS:.spec.replicas,ORIGINAL:.metadata.annotations.offhours\.platform\.io/original-replicas,DOWN SINCE:.metadata.annotations.offhours\.platform\.io/down-since",
        ])?)
        .await?;
    check(
        shown.stdout.lines().count() == SLEEPERS.len() + 1,
        "four Deployments that sleep",
        &shown.stdout,
    )
}

async fn held_under_rewrite(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    out.step("Somebody wants it back: enforcement mode Rewrite (the default)");
    out.say("A scale is put back to what sleeps, and the number is remembered for opening time:");
    let held = out
        .run(cluster.developer(&["scale", "deployment", "invoices", "-n", "billing-dev", "--replicas=4"])?)
        .await?;
    check(
        held.warnings().iter().any(|warning| {
            warning.contains("deployment \"invoices\" is off hours (schedule default)")
                && warning.contains("awake-until=2h")
        }),
        "a warning that names the workload, the schedule and how to wake it",
        &held.stderr,
    )?;
    cluster
        .expect(&[("billing-dev", "invoices", Wanted::Asleep(4))])
        .await?;

    out.say("A pipeline rolls out a new image, with the replicas of its manifest. It must not fail at night:");
    let manifest = std::fs::read_to_string(harness::repository().join("manifests/examples/scenarios/1-namespace.yaml"))
        .context("failed to read the first scenario")?
        .replace("nginx:1.27", "nginx:1.28");
    let applied = out
        .run(cluster.developer(&["apply", "-f", "-"])?.stdin(manifest))
        .await?;
    check(
        applied.stdout.contains("deployment.apps/storefront configured"),
        "the new image to be applied",
        &applied.stdout,
    )?;
    let storefront = cluster.deployment("shop-dev", "storefront").await?;
    let image = &storefront["spec"]["template"]["spec"]["containers"][0]["image"];
    check(image == "nginx:1.28", "image nginx:1.28", &image.to_string())?;
    out.run(cluster.kubectl(&["get", "deployments", "-n", "shop-dev", "-o", "wide"])?)
        .await?;
    cluster
        .expect(&[
            ("shop-dev", "storefront", Wanted::Asleep(2)),
            ("shop-dev", "ledger", Wanted::Awake(1)),
        ])
        .await
}

async fn refused_under_deny(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    out.step("Enforcement mode Deny");
    out.run(cluster.kubectl(&[
        "patch",
        "offhoursschedule",
        "default",
        "--type=merge",
        "-p",
        r#"{"spec":{"enforcement":{"mode":"Deny"}}}"#,
    ])?)
    .await?;
    let scale = cluster.developer(&["scale", "deployment", "gallery", "-n", "media-dev", "--replicas=2"])?;
    // The webhook has to see the new mode first; until then the request is only held.
    wait_for("the new mode to be in force", SOON, || async {
        let tried = scale.clone().args(&["--dry-run=server"]).output().await?;
        anyhow::ensure!(!tried.success, "the scale passes: {}{}", tried.stdout, tried.stderr);
        Ok(())
    })
    .await?;
    let refused = out.run_refused(scale).await?;
    check(
        refused.stderr.contains("Forbidden")
            && refused
                .stderr
                .contains("deployment \"gallery\" is off hours (schedule default)")
            && refused.stderr.contains("awake-until=2h"),
        "a refusal that says why and how to wake it",
        &refused.stderr,
    )?;
    cluster.expect(&[("media-dev", "gallery", Wanted::Asleep(2))]).await?;
    out.run(cluster.kubectl(&[
        "patch",
        "offhoursschedule",
        "default",
        "--type=merge",
        "-p",
        r#"{"spec":{"enforcement":{"mode":"Rewrite"}}}"#,
    ])?)
    .await?;
    Ok(())
}

async fn created_at_night(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    out.step("A new Deployment at night");
    out.run(cluster.developer(&[
        "create",
        "deployment",
        "newcomer",
        "-n",
        "shop-dev",
        "--image=nginx:1.27",
        "--replicas=3",
    ])?)
    .await?;
    wait_for("the newcomer to sleep", SOON, || async {
        cluster.expect(&[("shop-dev", "newcomer", Wanted::Asleep(3))]).await
    })
    .await?;
    out.run(cluster.kubectl(&["get", "deployment", "newcomer", "-n", "shop-dev"])?)
        .await?;
    Ok(())
}

async fn opening_time(out: &mut Transcript, cluster: &Cluster) -> anyhow::Result<()> {
    out.step("Opening time");
    let due = now()
        .checked_add(SignedDuration::from_secs(5))
        .context("the end of time")?;
    out.say(&format!("The schedule opens at {due}."));
    out.run(cluster.kubectl(&["apply", "-f", "-"])?.stdin(schedule(&[
        Exception::new("Down", before(due, SignedDuration::from_mins(10))?, due),
        Exception::new("Up", due, after_a_day(due)?),
    ])))
    .await?;
    // As by day, but for the number that was asked for at night, and the newcomer.
    let mut morning: Vec<(&str, &str, Wanted)> = BY_DAY
        .iter()
        .map(|(namespace, name, replicas)| {
            let asked = if *name == "invoices" { 4 } else { *replicas };
            (*namespace, *name, Wanted::Awake(asked))
        })
        .collect();
    morning.push(("shop-dev", "newcomer", Wanted::Awake(3)));
    wait_for("everything to be awake", SOON, || cluster.expect(&morning)).await?;
    for (namespace, name, wanted) in &morning {
        let Wanted::Awake(replicas) = wanted else { continue };
        wait_for(&format!("{namespace}/{name} to be ready"), SOON, || async {
            let deployment = cluster.deployment(namespace, name).await?;
            let ready = deployment["status"]["readyReplicas"].as_i64().unwrap_or(0);
            anyhow::ensure!(ready == *replicas, "{ready} of {replicas} replicas are ready");
            Ok(())
        })
        .await?;
    }
    out.say(&format!(
        "It is {} now. `invoices` has the 4 replicas that were asked for at night.",
        now()
    ));
    out.run(cluster.kubectl(&["get", "deployments", "-A"])?).await?;
    let left = out
        .run(cluster.kubectl(&["get", "deployments", "-A", "-l", "offhours.platform.io/asleep"])?)
        .await?;
    check(left.stdout.is_empty(), "no Deployment that sleeps", &left.stdout)?;
    cluster.expect(&morning).await?;
    cluster
        .expect_untouched(&[
            ("shop-dev", "ledger"),
            ("billing-dev", "collector"),
            ("media-dev", "transcoder"),
        ])
        .await?;
    out.say("`ledger`, `collector` and `transcoder` are protected: no request of offhours ever touched them.");
    Ok(())
}

fn asleep_at_night(
    (namespace, name, replicas): (&'static str, &'static str, i64),
) -> (&'static str, &'static str, Wanted) {
    let wanted = if SLEEPERS.contains(&(namespace, name)) {
        Wanted::Asleep(replicas)
    } else {
        Wanted::Awake(replicas)
    };
    (namespace, name, wanted)
}

/// The machine's clock, in whole seconds: only to choose where the schedule is moved, and to show.
#[allow(clippy::disallowed_methods, reason = "a demo lives in real time")]
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn before(at: Timestamp, by: SignedDuration) -> anyhow::Result<Timestamp> {
    at.checked_sub(by).context("the beginning of time")
}

fn after_a_day(at: Timestamp) -> anyhow::Result<Timestamp> {
    at.checked_add(SignedDuration::from_hours(24))
        .context("the end of time")
}

fn seconds(duration: SignedDuration) -> String {
    format!("{} seconds", duration.as_secs())
}

/// A time that differs from the weekly rhythm.
struct Exception {
    state: &'static str,
    from: Timestamp,
    to: Timestamp,
}

impl Exception {
    fn new(state: &'static str, from: Timestamp, to: Timestamp) -> Self {
        Self { state, from, to }
    }
}

/// The demo's schedule, with exceptions that move it to where the clock is.
fn schedule(exceptions: &[Exception]) -> String {
    let mut yaml = "apiVersion: offhours.platform.io/v1alpha1
kind: OffHoursSchedule
metadata:
  name: default
spec:
  timeZone: UTC
  cron:
    shutdown: [\"0 20 * * 1-5\"]
    startup: [\"0 8 * * 1-5\"]
  enforcement:
    mode: Rewrite
  exceptions:
"
    .to_owned();
    for Exception { state, from, to } in exceptions {
        let local = |at: &Timestamp| at.to_string().trim_end_matches('Z').to_owned();
        // Writing to a text does not fail.
        let _ = writeln!(
            yaml,
            "  - {{state: {state}, from: \"{}\", to: \"{}\", reason: demo}}",
            local(from),
            local(to)
        );
    }
    yaml
}
