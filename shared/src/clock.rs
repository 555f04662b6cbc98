//! The clock as a trait. `shared` never reads one: the only real clock is made in the `offhours` binary.

use jiff::Timestamp;

/// Something that tells the present instant.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;
}
