//! The scheduler of offhours: observe, decide, act.

pub mod act;
pub mod argo;
pub mod beside;
pub mod decide;
pub mod engine;
pub mod flux;
pub mod hpa;
pub mod keda;
pub mod lease;
pub mod observe;
pub mod pass;
pub mod states;
pub mod status;
