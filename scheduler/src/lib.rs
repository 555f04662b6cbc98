//! The scheduler of offhours: observe, decide, act.

pub mod decide;
pub mod lease;
