//! The election under paused time, against an API server double in process.

mod decision;
pub(crate) mod double;
mod election;
mod faults;
mod random;
