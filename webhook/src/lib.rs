//! The admission server of offhours: holds what is down.
