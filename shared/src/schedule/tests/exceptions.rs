//! Exceptions.

use super::super::State::{Down, Up};
use super::super::{
    DatePattern, DecidedBy, Definition, ExceptionPart, ExceptionSpan, Hours, State, Timeline, Warning, compile,
};
use super::{assert_states, at, transitions};

fn with(exceptions: Vec<ExceptionPart>) -> (Timeline, Vec<Warning>) {
    compile(&Definition {
        time_zone: Some("Europe/Berlin".to_owned()),
        uptime: Some(vec!["Mon-Fri 08:00-20:00".to_owned()]),
        exceptions,
        ..Definition::default()
    })
    .unwrap()
}

fn date(text: &str, hours: Option<&str>, state: State) -> ExceptionPart {
    ExceptionPart {
        span: ExceptionSpan::Date(text.to_owned()),
        hours: hours.map(str::to_owned),
        state,
        reason: Some(format!("about {text}")),
    }
}

fn range(from: &str, to: &str, hours: Option<&str>, state: State) -> ExceptionPart {
    let span = ExceptionSpan::Range(from.to_owned(), to.to_owned());
    ExceptionPart {
        span,
        hours: hours.map(str::to_owned),
        state,
        reason: None,
    }
}

#[test]
fn rule_t3_exception_beats_windows_and_gives_its_reason() {
    let (timeline, _) = with(vec![date("2026-12-25", None, Down)]);
    let moment = timeline.state_at(at("2026-12-25T10:00:00Z"));
    assert_eq!((moment.state, moment.decided_by), (Down, DecidedBy::Exception));
    assert_eq!(moment.reason.as_deref(), Some("about 2026-12-25"));
    // The day is one of the zone: from 23:00Z to 23:00Z.
    assert_eq!(
        timeline.state_at(at("2026-12-24T22:59:59Z")).decided_by,
        DecidedBy::Uptime
    );
    assert_eq!(
        timeline.state_at(at("2026-12-24T23:00:00Z")).decided_by,
        DecidedBy::Exception
    );
    assert_eq!(
        timeline.state_at(at("2026-12-25T23:00:00Z")).decided_by,
        DecidedBy::Uptime
    );
    assert_eq!(
        transitions(&timeline, "2026-12-24T12:00:00Z", "2026-12-28T12:00:00Z"),
        ["2026-12-24T19:00:00Z Down", "2026-12-28T07:00:00Z Up"]
    );
}

#[test]
fn rule_t3_first_in_the_list_wins_and_overlap_is_warned_about() {
    let (timeline, warnings) = with(vec![
        date("2026-12-25", None, Up),
        range("2026-12-24", "2026-12-26", None, Down),
    ]);
    assert_states(
        &timeline,
        &[
            ("2026-12-24T10:00:00Z", Down),
            ("2026-12-25T02:00:00Z", Up),
            ("2026-12-26T10:00:00Z", Down),
        ],
    );
    assert!(
        warnings
            .iter()
            .any(|warning| warning.path == "exceptions[1]" && warning.message.contains("exceptions[0]"))
    );
}

#[test]
fn rule_t3_hours_limit_an_exception_to_part_of_each_day() {
    let (timeline, _) = with(vec![range("2026-12-21", "2026-12-23", Some("22:00-02:00"), Up)]);
    assert_eq!(
        transitions(&timeline, "2026-12-21T20:00:00Z", "2026-12-24T06:00:00Z"),
        [
            "2026-12-21T21:00:00Z Up",
            "2026-12-22T01:00:00Z Down",
            "2026-12-22T07:00:00Z Up",
            "2026-12-22T19:00:00Z Down",
            "2026-12-22T21:00:00Z Up",
            "2026-12-23T01:00:00Z Down",
            "2026-12-23T07:00:00Z Up",
            "2026-12-23T19:00:00Z Down",
            "2026-12-23T21:00:00Z Up",
            "2026-12-24T01:00:00Z Down",
        ]
    );
}

#[test]
fn range_of_local_date_times_ends_before_its_end() {
    let (timeline, _) = with(vec![range("2026-12-23T12:00", "2026-12-23T16:00", None, Down)]);
    assert_states(
        &timeline,
        &[
            ("2026-12-23T10:59:59Z", Up),
            ("2026-12-23T11:00:00Z", Down),
            ("2026-12-23T14:59:59Z", Down),
            ("2026-12-23T15:00:00Z", Up),
        ],
    );
}

#[test]
fn yearly_day_comes_back_every_year() {
    let (timeline, _) = with(vec![date("--05-01", None, Down)]);
    for year in [2024, 2026, 2036] {
        let moment = timeline.state_at(at(&format!("{year}-05-01T10:00:00Z")));
        assert_eq!(moment.decided_by, DecidedBy::Exception, "{year}");
        let moment = timeline.state_at(at(&format!("{year}-05-02T10:00:00Z")));
        assert_eq!(moment.decided_by, DecidedBy::Uptime, "{year}");
    }
}

#[test]
fn leap_day_is_found_years_ahead() {
    let (timeline, _) = compile(&Definition {
        time_zone: Some("UTC".to_owned()),
        exceptions: vec![date("--02-29", Some("10:00-11:00"), Down)],
        ..Definition::default()
    })
    .unwrap();
    let next = timeline.next_transition(at("2024-03-01T00:00:00Z")).unwrap().unwrap();
    assert_eq!(next.at, at("2028-02-29T10:00:00Z"));
    assert_eq!(
        timeline.since(at("2027-03-01T00:00:00Z")),
        Some(at("2024-02-29T11:00:00Z"))
    );
}

#[test]
fn weekday_of_month_is_found() {
    let (timeline, _) = with(vec![
        date("last Mon of May", None, Down),
        date("3rd thursday of November", None, Down),
    ]);
    assert_states(
        &timeline,
        &[
            ("2026-05-25T10:00:00Z", Down),
            ("2026-05-18T10:00:00Z", Up),
            ("2026-11-19T10:00:00Z", Down),
            ("2026-11-26T10:00:00Z", Up),
        ],
    );
}

#[test]
fn date_patterns_and_hours_survive_printing() {
    for text in ["2026-12-25", "--12-25", "--02-29", "last Mon of May", "3rd Thu of Nov"] {
        let pattern: DatePattern = text.parse().unwrap();
        assert_eq!(pattern.to_string(), text);
    }
    for text in ["08:00-12:00", "22:00-02:00", "00:00-24:00", "10:00-24:00"] {
        assert_eq!(text.parse::<Hours>().unwrap().to_string(), text);
    }
}
