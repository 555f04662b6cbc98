//! A small HTTP server whose answers a test chooses: what controllers of others fetch (an artifact, a number).

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri},
};
use axum_server::Handle;

#[derive(Debug, Default)]
struct Page {
    bytes: Vec<u8>,
    fetched: usize,
}

type Pages = Arc<Mutex<BTreeMap<String, Page>>>;

/// Plain HTTP on 127.0.0.1. Dropping it ends it.
#[derive(Debug)]
pub struct ContentServer {
    pages: Pages,
    address: SocketAddr,
    handle: Handle<SocketAddr>,
}

impl ContentServer {
    /// Serves nothing yet. It lives in a thread of its own, whatever runtime started it.
    pub fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a port for content")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("content")
            .enable_all()
            .build()
            .context("failed to make a runtime for content")?;
        let pages = Pages::default();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&pages));
        let handle = Handle::new();
        let ended = handle.clone();
        std::thread::spawn(move || {
            let outcome = runtime.block_on(async {
                axum_server::from_tcp(listener)?
                    .handle(ended)
                    .serve(router.into_make_service())
                    .await
            });
            if let Err(error) = outcome {
                tracing::error!("the server of content ended: {error:#}");
            }
        });
        Ok(Self { pages, address, handle })
    }

    /// From now on this is at `path` (`/…`); its URL.
    pub fn set(&self, path: &str, bytes: impl Into<Vec<u8>>) -> String {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.entry(path.to_owned()).or_default().bytes = bytes.into();
        format!("http://{}{path}", self.address)
    }

    /// How often it was fetched.
    pub fn fetched(&self, path: &str) -> usize {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(path).map_or(0, |page| page.fetched)
    }
}

impl Drop for ContentServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn answer(State(pages): State<Pages>, uri: Uri) -> Result<Vec<u8>, StatusCode> {
    let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
    let page = pages.get_mut(uri.path()).ok_or(StatusCode::NOT_FOUND)?;
    page.fetched += 1;
    Ok(page.bytes.clone())
}
