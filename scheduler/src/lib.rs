//! The scheduler of offhours: observe, decide, act.

pub mod lease;
