//! iCalendar files.

use std::sync::Arc;

use super::super::State::{Down, Unknown, Up};
use super::super::{Calendar, CalendarPart, DecidedBy, Definition, State, Timeline, Zone, compile, parse_zone};
use super::{assert_states, at, transitions};

fn ics(events: &str) -> String {
    format!(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{}END:VCALENDAR\r\n",
        events.replace('\n', "\r\n")
    )
}

fn with(state: State, events: &str) -> Timeline {
    compile(&Definition {
        time_zone: Some("Europe/Berlin".to_owned()),
        uptime: Some(vec!["Mon-Fri 08:00-20:00".to_owned()]),
        calendars: vec![CalendarPart {
            state,
            text: Ok(Arc::from(ics(events))),
        }],
        ..Definition::default()
    })
    .unwrap_or_else(|problems| panic!("{problems:?}"))
    .0
}

fn wrong(events: &str) -> String {
    Calendar::parse(&ics(events), &Zone::UTC).unwrap_err().join("\n")
}

#[test]
fn whole_day_event_covers_the_day_of_the_schedules_zone() {
    let timeline = with(
        Down,
        "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\nSUMMARY:Christmas\\, the\n  first day\nEND:VEVENT\n",
    );
    let moment = timeline.state_at(at("2026-12-25T10:00:00Z"));
    assert_eq!((moment.state, moment.decided_by), (Down, DecidedBy::Calendar));
    assert_eq!(moment.reason.as_deref(), Some("Christmas, the first day"));
    assert_eq!(
        transitions(&timeline, "2026-12-24T12:00:00Z", "2026-12-28T12:00:00Z"),
        ["2026-12-24T19:00:00Z Down", "2026-12-28T07:00:00Z Up"]
    );
}

#[test]
fn timed_events_are_read_in_their_zones() {
    let timeline = with(
        Up,
        "BEGIN:VEVENT\nDTSTART:20260110T100000Z\nDTEND:20260110T120000Z\nEND:VEVENT\n\
         BEGIN:VEVENT\nDTSTART;TZID=America/New_York:20260111T100000\nDURATION:PT90M\nEND:VEVENT\n\
         BEGIN:VEVENT\nDTSTART:20260117T100000\nDTEND:20260117T110000\nEND:VEVENT\n",
    );
    assert_eq!(
        transitions(&timeline, "2026-01-10T00:00:00Z", "2026-01-12T00:00:00Z"),
        [
            "2026-01-10T10:00:00Z Up",
            "2026-01-10T12:00:00Z Down",
            "2026-01-11T15:00:00Z Up",
            "2026-01-11T16:30:00Z Down",
        ]
    );
    // Without a zone it is the schedule's.
    assert_states(
        &timeline,
        &[("2026-01-17T09:00:00Z", Up), ("2026-01-17T10:00:00Z", Down)],
    );
}

#[test]
fn recurrence_keeps_local_time_over_clock_changes() {
    let timeline = with(
        Up,
        "BEGIN:VEVENT\nUID:a\nDTSTART;TZID=Europe/Berlin:20260321T220000\nDTEND;TZID=Europe/Berlin:20260321T230000\n\
         RRULE:FREQ=WEEKLY;BYDAY=SA;UNTIL=20260404T200000Z\nEND:VEVENT\n",
    );
    assert_eq!(
        transitions(&timeline, "2026-03-21T12:00:00Z", "2026-03-22T12:00:00Z"),
        ["2026-03-21T21:00:00Z Up", "2026-03-21T22:00:00Z Down"]
    );
    // UNTIL is the last start, 22:00 in summer time.
    assert_states(
        &timeline,
        &[
            ("2026-04-04T20:00:00Z", Up),
            ("2026-04-04T21:00:00Z", Down),
            ("2026-04-11T20:00:00Z", Down),
        ],
    );
}

#[test]
fn yearly_recurrence_is_known_until_the_end_of_time() {
    let timeline = with(
        Down,
        "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20200501\nDTEND;VALUE=DATE:20200502\nRRULE:FREQ=YEARLY\nSUMMARY:Labour Day\nEND:VEVENT\n",
    );
    for year in [2020, 2026, 2099] {
        assert_eq!(
            timeline.state_at(at(&format!("{year}-05-01T10:00:00Z"))).decided_by,
            DecidedBy::Calendar,
            "{year}"
        );
    }
}

#[test]
fn exdate_rdate_and_replacement_are_honoured() {
    let timeline = with(
        Up,
        "BEGIN:VEVENT\nUID:x\nDTSTART:20260103T100000Z\nDTEND:20260103T110000Z\nRRULE:FREQ=WEEKLY;COUNT=4\n\
         EXDATE:20260110T100000Z\nRDATE:20260111T100000Z\nEND:VEVENT\n\
         BEGIN:VEVENT\nUID:x\nRECURRENCE-ID:20260117T100000Z\nDTSTART:20260117T150000Z\nDTEND:20260117T160000Z\nEND:VEVENT\n\
         BEGIN:VEVENT\nUID:x\nRECURRENCE-ID:20260124T100000Z\nDTSTART:20260124T100000Z\nDTEND:20260124T110000Z\nSTATUS:CANCELLED\nEND:VEVENT\n",
    );
    assert_states(
        &timeline,
        &[
            ("2026-01-03T10:00:00Z", Up),
            ("2026-01-10T10:00:00Z", Down),
            ("2026-01-11T10:00:00Z", Up),
            ("2026-01-17T10:00:00Z", Down),
            ("2026-01-17T15:30:00Z", Up),
            ("2026-01-24T10:00:00Z", Down),
        ],
    );
}

#[test]
fn rule_t2_what_repeats_too_often_becomes_unknown_not_wrong() {
    let daily = "BEGIN:VEVENT\nDTSTART:18000101T100000Z\nDTEND:18000101T110000Z\nRRULE:FREQ=DAILY\nEND:VEVENT\n";
    let timeline = with(Up, daily);
    let moment = timeline.state_at(at("2026-01-03T10:00:00Z"));
    assert_eq!((moment.state, moment.decided_by), (Unknown, DecidedBy::Calendar));
}

#[test]
fn missing_calendar_is_unknown_where_no_exception_speaks() {
    let (timeline, _) = compile(&Definition {
        time_zone: Some("UTC".to_owned()),
        calendars: vec![CalendarPart {
            state: Down,
            text: Err("ConfigMap \"holidays\" is missing".to_owned()),
        }],
        ..Definition::default()
    })
    .unwrap();
    let moment = timeline.state_at(at("2026-01-03T10:00:00Z"));
    assert_eq!((moment.state, moment.decided_by), (Unknown, DecidedBy::Calendar));
    assert_eq!(moment.reason.as_deref(), Some("ConfigMap \"holidays\" is missing"));
}

#[test]
fn wrong_calendars_are_refused_with_the_line() {
    assert!(
        Calendar::parse("hello", &Zone::UTC)
            .unwrap_err()
            .join("")
            .contains("line 1")
    );
    assert!(
        Calendar::parse("X:1", &Zone::UTC)
            .unwrap_err()
            .join("")
            .contains("BEGIN:VCALENDAR")
    );
    let cut = "BEGIN:VCALENDAR\nBEGIN:VEVENT\n";
    assert!(
        Calendar::parse(cut, &Zone::UTC)
            .unwrap_err()
            .join("")
            .contains("END:VEVENT is missing")
    );
    assert!(wrong("BEGIN:VEVENT\nSUMMARY:x\nEND:VEVENT\n").contains("event at line 3: DTSTART is missing"));
    let zone = wrong("BEGIN:VEVENT\nDTSTART;TZID=Europe/Berlim:20260101T000000\nEND:VEVENT\n");
    assert!(zone.contains("closest `Europe/Berlin`"), "{zone}");
    let rule = wrong("BEGIN:VEVENT\nDTSTART:20260101T000000Z\nRRULE:FREQ=SECONDLY\nEND:VEVENT\n");
    assert!(rule.contains("FREQ"), "{rule}");
    let rule = wrong("BEGIN:VEVENT\nDTSTART:20260101T000000Z\nRRULE:FREQ=DAILY;BYDAY=XX\nEND:VEVENT\n");
    assert!(rule.contains("RRULE"), "{rule}");
    let rule = wrong("BEGIN:VEVENT\nDTSTART:20260101T000000Z\nRRULE:FREQ=MONTHLY;BYDAY=-1S\u{fffd}A\nEND:VEVENT\n");
    assert!(rule.contains("not ASCII"), "{rule}");
    assert!(wrong("BEGIN:VEVENT\nDTSTART:20260230T000000Z\nEND:VEVENT\n").contains("DTSTART `20260230T000000Z`"));
    assert!(
        wrong("BEGIN:VEVENT\nDTSTART:20260102T000000Z\nDTEND:20260101T000000Z\nEND:VEVENT\n").contains("ends before")
    );
}

#[test]
fn globally_unique_zone_names_are_understood() {
    let text = ics(
        "BEGIN:VEVENT\nDTSTART;TZID=/example.org/20260101/Europe/Berlin:20260101T000000\nDTEND:20260101T120000Z\nEND:VEVENT\n",
    );
    let calendar = Calendar::parse(&text, &parse_zone("UTC").unwrap()).unwrap();
    assert_eq!(calendar.len(), 1);
}
