//! Any bytes through every parser of schedules. The same inputs run in `cargo test -p shared corpus`, on the stable compiler.

#![no_main]

#[path = "../../shared/src/schedule/tests/exercise.rs"]
mod exercise;

/// What the exercise sees of the crate.
mod subject {
    pub(super) use shared::schedule::{Calendar, CronExpression, DatePattern, Definition, Hours, Zone, compile, parse_windows};
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    exercise::run(input);
});
