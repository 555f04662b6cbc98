//! The scheduler of offhours: observe, decide, act.
