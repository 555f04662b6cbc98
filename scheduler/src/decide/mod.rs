//! decide: from a snapshot to the actions that it asks for. Pure, total, ordered. (Client not required.)

pub mod action;
pub mod workload;
