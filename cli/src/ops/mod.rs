//! Probes and metrics, on a port of their own without TLS.

pub mod gates;
pub mod metrics;
pub mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use gates::Gates;

/// What the ops server shows.
#[derive(Clone)]
pub struct Ops {
    /// What must be there before the process is ready.
    pub gates: Gates,
    /// What only a restart may mend.
    pub alive: Gates,
    /// The metrics.
    pub registry: Arc<Registry>,
}

/// Listens, or says who should give way.
///
/// # Errors
/// If the address cannot be had, with its setting and the remedy.
pub async fn listen(address: SocketAddr, what: &str, flag: &str, variable: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "failed to listen on {address} for {what}; stop the process that has it, or choose another address with \
             --{flag} or {variable}"
        )
    })
}

/// Serves until `stop` resolves.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    ops: Ops,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    axum::serve(listener, router(ops))
        .with_graceful_shutdown(stop)
        .await
        .context("the ops server failed")
}

/// The routes, without a socket.
pub fn router(ops: Ops) -> Router {
    Router::new()
        // Alive means that the process answers and that a restart would help nothing: it must not be killed because the
        // API server is away.
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(ops)
}

async fn alive(State(ops): State<Ops>) -> (StatusCode, String) {
    match ops.alive.report() {
        (true, _) => (StatusCode::OK, "ok\n".to_owned()),
        (false, text) => (StatusCode::SERVICE_UNAVAILABLE, text),
    }
}

async fn ready(State(ops): State<Ops>) -> (StatusCode, String) {
    let (ready, text) = ops.gates.report();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, text)
}

async fn metrics(State(ops): State<Ops>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &ops.registry) {
        Ok(()) => (
            [(
                header::CONTENT_TYPE,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            text,
        )
            .into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("failed to write metrics: {error}\n"),
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests;
