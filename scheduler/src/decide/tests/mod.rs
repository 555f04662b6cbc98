//! Tests of decisions: rules, cases, pace, and a model.

mod cases;
mod decide_workload;
mod equality;
mod keda;
mod kept;
mod lasting;
mod model;
mod pace;
pub(crate) mod world;
