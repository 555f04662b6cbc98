//! Nights beside the real controllers of others: `make test-argocd`, `make test-flux`, `make test-keda`. They need programs of
//! their own, so that `make test` leaves them out.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that breaks off is a test that fails; clippy sees tests only in functions marked so"
)]

mod argocd;
mod flux;
mod keda;
mod place;
#[path = "../suite/product.rs"]
#[allow(dead_code, reason = "shared with the other suites, which use all of it")]
mod product;
#[path = "../suite/roles.rs"]
#[allow(dead_code, reason = "the same")]
mod roles;
