//! The one real clock.

use jiff::Timestamp;
use shared::clock::Clock;

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the real clock is read")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
