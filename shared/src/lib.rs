//! The brain of offhours: what the clock and the rules say about a workload, what is saved, and how it is written.
//!
//! No I/O, no client, no runtime, no clock: `now` is always an argument. Scheduler, webhook and command line ask the same
//! functions, so that none of them can disagree with another.

pub mod annotations;
pub mod api;
pub mod clock;
pub mod hpa;
pub mod kinds;
pub mod messages;
pub mod patch;
pub mod policy;
pub mod prune;
pub mod record;
pub mod rules;
pub mod schedule;
pub mod settings;
pub mod short;
pub mod verdict;
pub mod workload;
