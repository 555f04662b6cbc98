//! Certificates of the offhours webhook: rotation decision, issuer, store, resolver.
//!
//! [`decision`] says what to do and why (pure); [`issuer`], [`store`] and [`bundle`] do it; [`resolver`] serves the result to
//! rustls; [`manager`] ties them together. Every replica runs a manager: serving needs no leader.

pub mod bundle;
pub mod decision;
mod external;
pub mod facts;
pub mod issuer;
pub mod manager;
mod own;
pub mod reason;
pub mod resolver;
pub mod settings;
mod slot;
pub mod source;
pub mod status;
pub mod store;
mod turn;

#[cfg(test)]
mod tests;
