//! Schedules: cron, windows, exceptions and calendars, all compiled into one [`Timeline`].
//!
//! Everything recurring is computed in *wall-clock space*: local date-times, where no gap and no fold exists. Two monotone maps
//! join it to real time (see `zone`): a local time that occurs twice means its first occurrence, one that does not exist means
//! the first instant after the gap. An interval is half open: its start belongs to it, its end does not.
//!
//! [`compile`] is the one parser; whoever reads a schedule (scheduler, webhook, command line) goes through it.

mod calendar;
mod civil;
mod compile;
mod cron;
mod exception;
mod problem;
mod timeline;
mod weekly;
mod window;
mod zone;

pub use calendar::Calendar;
pub use compile::{CalendarPart, Definition, ExceptionPart, ExceptionSpan, compile, from_annotations};
pub use cron::CronExpression;
pub use exception::{DatePattern, Hours};
pub use problem::{Problem, Warning};
pub use timeline::{
    CANDIDATE_LIMIT, DecidedBy, EARLIEST, LATEST, Moment, SearchExhausted, State, Timeline, Transition,
};
pub use window::{Window, parse_windows};
pub use zone::{Zone, closest_word, parse_zone, zone_names};

#[cfg(test)]
mod tests;
