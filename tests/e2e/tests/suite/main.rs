//! The end-to-end suites: one module per subject, one control plane for all of them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that breaks off is a test that fails; clippy sees tests only in functions marked so"
)]

mod bad_input;
mod certificates;
mod clock;
mod farewell;
mod faults;
mod fixed_point;
mod gitops;
mod guides;
mod hpa;
mod killed;
mod leaders;
mod leases;
mod moves;
mod night;
mod one_namespace;
mod product;
mod roles;
mod scenarios;
mod schedules;
mod sleeping;
mod view;
mod webhook;
mod writes;
