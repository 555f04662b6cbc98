//! The election under paused time, against an API server double in process.

mod decision;
mod double;
mod election;
mod faults;
mod random;
