//! Tests: [`api`] is an API server in process, [`world`] a cluster with replicas in it.

mod api;
mod cases;
mod decision;
mod faults;
mod issuer;
mod outside;
mod rotation;
mod world;
