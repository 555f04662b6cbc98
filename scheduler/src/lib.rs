//! The scheduler of offhours: observe, decide, act.

pub mod act;
pub mod decide;
pub mod lease;
