//! Starts a control plane and keeps it until Ctrl-C, for people and for `make demo KEEP=1`.

use std::io::Write as _;

use anyhow::Context as _;
use harness::{ControlPlane, Identity, Options};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // kube's client logs each answer of an API server that is still starting as an error.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter("info,kube_client=off")
        .init();
    // Before the start, so that a Ctrl-C during it is not lost.
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let plane = tokio::select! {
        started = ControlPlane::start(Options::named("by-hand")) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let kubeconfig = plane.kubeconfig_for(&Identity::admin())?;
    let mut out = std::io::stdout();
    writeln!(out, "KUBECONFIG={}", kubeconfig.display())?;
    writeln!(out, "kubectl: {}", harness::program("kubectl")?.display())?;
    writeln!(out, "logs: {}", plane.folder().display())?;
    writeln!(
        out,
        "pids: {}",
        plane
            .pids()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    )?;
    writeln!(out, "ready; Ctrl-C ends it")?;
    out.flush()?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
