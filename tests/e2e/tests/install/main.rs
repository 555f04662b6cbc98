//! The chart: what it renders, what it refuses, and a whole life of it on a real control plane, under its own roles.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that breaks off is a test that fails; clippy sees tests only in functions marked so"
)]

mod alerts;
mod chart;
mod excuses;
mod fleet;
mod image;
mod lifecycle;
mod pods;
mod rights;
mod selectors;
mod values;
