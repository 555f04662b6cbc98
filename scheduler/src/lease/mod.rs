//! Leader election by a `coordination.k8s.io/v1` Lease: one scheduler writes, the others are warm.
//!
//! A lease does not fence (RULES L1): the holder can be frozen between the check and the write. So two things hold
//! together: every write carries a precondition, and every write asks [`Leadership::permit`] right before it is sent and
//! ends inside the permit's time.
//!
//! How time is counted:
//! - A candidate takes a lease over when its record has not changed for the lease's duration *on the candidate's own
//!   monotonic clock*. The times written in the record are for people, no decision reads them, so replicas whose clocks
//!   differ by minutes elect correctly.
//! - The holder counts from the moment *before* it sent the renewal that succeeded. A candidate cannot have seen that
//!   change earlier, so the holder's time always ends first.
//! - The API server arbitrates: each write is a `replace` with the resourceVersion that was read, or a `create`.
//!
//! `evaluate` is pure, `runner` needs a client, `leadership` is what writers hold.

mod evaluate;
mod leadership;
mod runner;
mod settings;
#[cfg(test)]
pub(crate) mod tests;

pub use evaluate::{AcquireBecause, Decision, Held, LostBecause, Observed, Record, evaluate};
pub use leadership::{LeaderState, Leadership, Permit, PermitError};
pub use runner::{LeaseRunner, LeaseStats, lease_client, new_identity};
pub use settings::{LeaseSettings, LeaseSettingsError};
