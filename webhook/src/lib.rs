//! The admission server of offhours: holds what is down.
//!
//! handlers (HTTP) / service (pure: review + view + now -> ruling) / state / server (TLS).

pub mod aside;
pub mod authorize;
pub mod check;
pub mod counter;
pub mod eyes;
pub mod handlers;
pub mod install;
pub mod reach;
pub mod remember;
pub mod report;
pub mod review;
pub mod server;
pub mod service;
pub mod state;

#[cfg(test)]
mod tests;
