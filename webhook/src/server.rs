//! The TLS server: accepts, serves, and goes away without a failed call.
//!
//! Going away takes three steps. `shutdown` resolves (readiness is already off by then); for `settle` everything is served
//! as before while endpoints move, but each answer asks its connection to close, so that clients come back elsewhere; then
//! nothing more is accepted, what is idle is closed, what runs may finish until `deadline`.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    middleware::{self, Next},
    response::Response,
};
use axum_server::{ConnectionShutdown, Handle, tls_rustls::RustlsConfig};
use certs::resolver::Resolver;
use http::{HeaderValue, Version, header};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tracing::{debug, info, warn};

/// Largest body that is read: two objects of the API server's 3 MiB limit, and room for the rest of a review.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// Why the server could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use.
    #[error(
        "unable to listen on {address}: the address is in use; stop the other process or choose another port \
         (`ss -ltnp` shows who has it)"
    )]
    UseAddress {
        /// The address.
        address: SocketAddr,
    },
    /// The port needs rights that the process lacks.
    #[error(
        "unable to listen on {address}: not permitted; ports below 1024 need CAP_NET_BIND_SERVICE, choose a higher one"
    )]
    PermitAddress {
        /// The address.
        address: SocketAddr,
    },
    /// Listening failed otherwise.
    #[error("failed to listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Serving failed.
    #[error("failed to serve: {0}")]
    Serve(#[source] io::Error),
    /// The authorities of clients cannot be read.
    #[error("failed to read client authorities from {}: {reason}", path.display())]
    ReadClientAuthorities {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// rustls refuses the configuration.
    #[error("failed to set up TLS: {0}")]
    SetUpTls(#[source] rustls::Error),
}

/// How the server behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Largest body in bytes.
    pub body_limit: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a new connection may stay silent before its first request.
    pub first_request_timeout: Duration,
    /// After the shutdown signal, how long to go on serving while endpoints move.
    pub settle: Duration,
    /// After that, how long running requests may take to finish.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_limit: BODY_LIMIT,
            handshake_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(30),
            settle: Duration::from_secs(5),
            deadline: Duration::from_secs(20),
        }
    }
}

/// Binds `address`; the error names what to do.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServerError::UseAddress { address },
        io::ErrorKind::PermissionDenied => ServerError::PermitAddress { address },
        _ => ServerError::Listen { address, source },
    })
}

/// TLS with the certificates of `resolver`, HTTP/2 and HTTP/1.1. With `client_authorities` (a PEM file) only clients that
/// show a certificate signed by one of them are served.
pub fn tls_config(resolver: Arc<Resolver>, client_authorities: Option<&Path>) -> Result<ServerConfig, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(ServerError::SetUpTls)?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let refuse = |reason: String| ServerError::ReadClientAuthorities {
                path: path.to_owned(),
                reason,
            };
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(read_authorities(path)?), provider)
                .build()
                .map_err(|error| refuse(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read_authorities(path: &Path) -> Result<RootCertStore, ServerError> {
    let refuse = |reason: String| ServerError::ReadClientAuthorities {
        path: path.to_owned(),
        reason,
    };
    let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refuse("the file holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// Serves `router` on `listener` until `shutdown`, then drains as the module says. Returns when everything is closed.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    shutdown: impl Future<Output = ()> + Send,
    options: Options,
) -> Result<(), ServerError> {
    let handle = Handle::<SocketAddr>::new();
    let leaving = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&leaving);
    let router = router
        .layer(DefaultBodyLimit::max(options.body_limit))
        .layer(middleware::from_fn(move |request, next| {
            ask_to_close(Arc::clone(&seen), request, next)
        }));
    let server = axum_server::from_tcp(listener)
        .map_err(ServerError::Serve)?
        .map(|_| {
            axum_server::tls_rustls::RustlsAcceptor::new(RustlsConfig::from_config(tls))
                .handshake_timeout(options.handshake_timeout)
        })
        .first_request_timeout(options.first_request_timeout)
        .accept_error_handler(|remote, error| debug!(?remote, %error, "connection not accepted"))
        .handle(handle.clone());
    let serving = server.serve(router.into_make_service());
    let draining = async {
        shutdown.await;
        info!(connections = handle.connection_count(), settle = ?options.settle, "leaving: serving on while endpoints move");
        leaving.store(true, Ordering::Release);
        tokio::time::sleep(options.settle).await;
        info!(connections = handle.connection_count(), deadline = ?options.deadline, "closing");
        handle.graceful_shutdown(Some(options.deadline));
        // The server ends when its connections have; this branch only keeps watch over the deadline.
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        result = serving => result.map_err(ServerError::Serve),
        () = draining => Ok(()),
    };
    let left = handle.connection_count();
    if left > 0 {
        warn!(connections = left, "closed with requests still running");
    }
    result
}

/// While the server is leaving, each answer closes its connection: by header on HTTP/1.1, by GOAWAY on HTTP/2.
async fn ask_to_close(leaving: Arc<AtomicBool>, request: Request, next: Next) -> Response {
    let is_http_1 = request.version() <= Version::HTTP_11;
    let connection = request.extensions().get::<ConnectionShutdown>().cloned();
    let mut response = next.run(request).await;
    if leaving.load(Ordering::Acquire) {
        if is_http_1 {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        } else if let Some(connection) = connection {
            connection.graceful_shutdown();
        }
    }
    response
}

#[cfg(test)]
mod tests;
