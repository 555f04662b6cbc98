//! The scheduler of offhours: observe, decide, act.

pub mod act;
pub mod decide;
pub mod engine;
pub mod lease;
pub mod observe;
pub mod pass;
pub mod status;
