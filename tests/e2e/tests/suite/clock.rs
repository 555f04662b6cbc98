//! The clock of tests against real programs, which have the machine's.

use shared::clock::Clock;

pub struct RealClock;

impl Clock for RealClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test against real programs, whose clock is the machine's"
    )]
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}
