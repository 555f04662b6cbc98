//! Argo CD: which Applications a workload belongs to, and how they are paused and resumed. Client required by `api` alone.

mod api;
mod discover;
mod facts;
mod pause;

pub use api::{ArgoApi, ArgoError};
pub use discover::{Applications, How};
pub use facts::{Application, GROUP, Operation, Saved, State, Way, application_ref, keep, kind};
pub use pause::{Known, MEMORY, Pauses, SETTLE, dropped, look};

#[cfg(test)]
mod api_tests;
#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod operation_tests;
#[cfg(test)]
mod tests;
