//! Tests of schedules.

mod calendars;
mod cases;
mod differential;
mod exceptions;
mod fuzz;
mod messages;
mod properties;

use jiff::Timestamp;

use super::{Definition, State, Timeline, Warning, compile};

/// An instant, from RFC 3339.
pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn downtime(text: &str) -> Timeline {
    windows(None, Some(text)).0
}

pub(crate) fn uptime(text: &str) -> Timeline {
    windows(Some(text), None).0
}

pub(crate) fn windows(uptime: Option<&str>, downtime: Option<&str>) -> (Timeline, Vec<Warning>) {
    compile(&Definition {
        uptime: uptime.map(|text| vec![text.to_owned()]),
        downtime: downtime.map(|text| vec![text.to_owned()]),
        ..Definition::default()
    })
    .unwrap_or_else(|problems| panic!("{uptime:?} {downtime:?}: {problems:?}"))
}

pub(crate) fn cron(zone: &str, shutdown: &[&str], startup: &[&str]) -> (Timeline, Vec<Warning>) {
    let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    compile(&Definition {
        time_zone: Some(zone.to_owned()),
        shutdown: list(shutdown),
        startup: list(startup),
        ..Definition::default()
    })
    .unwrap_or_else(|problems| panic!("{shutdown:?} {startup:?}: {problems:?}"))
}

pub(crate) fn assert_states(timeline: &Timeline, expected: &[(&str, State)]) {
    for (text, state) in expected {
        assert_eq!(timeline.state_at(at(text)).state, *state, "at {text}");
    }
}

/// Transitions in `[from, to)` as (instant, state) texts.
pub(crate) fn transitions(timeline: &Timeline, from: &str, to: &str) -> Vec<String> {
    timeline
        .transitions(at(from), at(to), 1000)
        .unwrap()
        .iter()
        .map(|transition| format!("{} {}", transition.at, transition.to))
        .collect()
}
