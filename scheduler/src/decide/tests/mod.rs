//! Tests of decisions: rules, cases, pace, and a model.

mod cases;
mod decide_workload;
mod equality;
mod keda;
mod kept;
mod model;
mod pace;
mod troubles;
pub(crate) mod world;
