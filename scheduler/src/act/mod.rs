//! act: carries actions out, and nothing else. Client required.
//!
//! It decides neither what to write nor when to try again: whoever hands actions in hears how each ended and decides anew,
//! so that a 409 or a failed test leads to a fresh decision and never to a blind repeat. Each write is sent only with a
//! permit of the lease, a bounded number at a time, and one that hangs delays no other.

mod outcome;
mod pool;
mod request;
mod stats;
#[cfg(test)]
mod tests;

pub use outcome::{Ended, NotSent};
pub use pool::{Act, ActSettings, Answer};
pub use stats::ActStats;
