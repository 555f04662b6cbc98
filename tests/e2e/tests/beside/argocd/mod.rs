//! Nights under the real Argo CD: `make test-argocd`.

mod api;
mod nights;
mod proxy;
mod reverts;
mod scenarios;
mod stage;
