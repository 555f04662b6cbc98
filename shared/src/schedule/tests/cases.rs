//! Group 1 of the collected cases: time windows.

use jiff::{SignedDuration, Timestamp};

use super::super::State::{Down, Unknown, Up};
use super::super::{CronExpression, DecidedBy, Definition, compile, from_annotations, parse_windows, parse_zone};
use super::{assert_states, at, cron, downtime, transitions, uptime, windows};

#[test]
fn case_1_01_weekday_and_hour_come_from_the_schedules_zone() {
    assert_states(
        &uptime("Mon-Fri 06:30-19:30 Pacific/Auckland"),
        &[
            ("2018-11-04T17:30:00Z", Up),
            ("2018-11-04T17:29:59Z", Down),
            ("2018-11-09T06:30:00Z", Down),
            ("2018-11-09T18:00:00Z", Down),
        ],
    );
}

#[test]
fn case_1_03_end_of_day_leaves_no_unnoticed_minute() {
    let (holed, warnings) = windows(
        None,
        Some("Mon-Sun 23:31-23:59 Asia/Kolkata, Mon-Sun 00:00-09:30 Asia/Kolkata"),
    );
    assert_states(&holed, &[("2024-08-06T18:29:30Z", Up), ("2024-08-06T18:28:59Z", Down)]);
    assert!(
        warnings
            .iter()
            .any(|warning| warning.message.contains("hole of one minute")),
        "{warnings:?}"
    );

    let (whole, warnings) = windows(
        None,
        Some("Mon-Sun 23:31-24:00 Asia/Kolkata, Mon-Sun 00:00-09:30 Asia/Kolkata"),
    );
    assert_states(
        &whole,
        &[("2024-08-06T18:29:30Z", Down), ("2024-08-06T18:30:00Z", Down)],
    );
    assert_eq!(
        transitions(&whole, "2024-08-06T18:10:00Z", "2024-08-06T20:00:00Z"),
        Vec::<String>::new()
    );
    assert!(
        !warnings.iter().any(|warning| warning.message.contains("hole")),
        "{warnings:?}"
    );

    for text in ["Mon-Sun 11:36-00:00 Asia/Kolkata", "Mon-Sun 11:36-24:00 Asia/Kolkata"] {
        assert_states(
            &uptime(text),
            &[
                ("2024-07-30T06:06:30Z", Up),
                ("2024-07-30T18:29:59Z", Up),
                ("2024-07-30T18:30:00Z", Down),
            ],
        );
    }
}

#[test]
fn case_1_04_window_over_midnight_belongs_to_the_day_it_starts_on() {
    let timeline = downtime("Mon-Fri 20:00-06:00 Europe/Berlin");
    assert_states(
        &timeline,
        &[
            ("2026-01-05T19:00:00Z", Down),
            ("2026-01-05T18:59:59Z", Up),
            ("2026-01-06T02:00:00Z", Down),
            ("2026-01-10T05:00:00Z", Up),
            ("2026-01-11T02:00:00Z", Up),
            ("2026-01-10T02:00:00Z", Down),
            ("2026-01-05T04:59:59Z", Up),
        ],
    );
    let next = timeline.next_transition(at("2026-01-05T12:00:00Z")).unwrap().unwrap();
    assert_eq!(next.at, at("2026-01-05T19:00:00Z"));
    // The tool shows the next real instants, so that the reading is visible.
    assert_eq!(
        transitions(&timeline, "2026-01-05T12:00:00Z", "2026-01-07T12:00:00Z"),
        [
            "2026-01-05T19:00:00Z Down",
            "2026-01-06T05:00:00Z Up",
            "2026-01-06T19:00:00Z Down",
            "2026-01-07T05:00:00Z Up"
        ]
    );
}

#[test]
fn case_1_06_repeated_hour_starts_a_window_once() {
    let timeline = downtime("Mon-Sun 02:00-07:00 Europe/Berlin");
    assert_eq!(
        transitions(&timeline, "2026-10-24T23:00:00Z", "2026-10-25T08:00:00Z"),
        ["2026-10-25T00:00:00Z Down", "2026-10-25T06:00:00Z Up"]
    );
}

#[test]
fn case_1_08_every_second_of_a_clock_change_is_answered() {
    let timeline = downtime("Mon-Sun 01:03-07:00 Europe/London");
    let from = at("2019-10-27T00:00:00Z");
    let mut starts = Vec::new();
    let mut before = timeline.state_at(from).state;
    for second in 0..=8 * 3_600 {
        let now = from + SignedDuration::from_secs(second);
        let state = timeline.state_at(now).state;
        if second % 7 == 0 {
            timeline.next_transition(now).unwrap();
        }
        if state != before {
            starts.push(format!("{now} {state}"));
            before = state;
        }
    }
    assert_eq!(starts, ["2019-10-27T00:03:00Z Down", "2019-10-27T07:00:00Z Up"]);
}

#[test]
fn case_1_10_every_day_gets_its_window_shortened_by_the_gap() {
    let timeline = downtime("Mon-Sun 02:30-06:00 America/New_York");
    let starts: Vec<String> = transitions(&timeline, "2025-03-08T00:00:00Z", "2025-03-11T00:00:00Z")
        .into_iter()
        .filter(|transition| transition.ends_with("Down"))
        .collect();
    assert_eq!(
        starts,
        [
            "2025-03-08T07:30:00Z Down",
            "2025-03-09T07:00:00Z Down",
            "2025-03-10T06:30:00Z Down"
        ]
    );

    let swallowed = downtime("Sun-Sun 02:10-02:50 Europe/Berlin");
    assert_eq!(
        transitions(&swallowed, "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        Vec::<String>::new()
    );
}

#[test]
fn case_1_11_start_in_the_repeated_hour_is_no_accident() {
    let timeline = uptime("Mon-Fri 08:00-18:00 Australia/Sydney");
    let mut starts = 0;
    for minute in 0..120 {
        let now = at("2024-04-06T15:00:00Z") + SignedDuration::from_mins(minute);
        // A process that starts here asks both questions.
        assert_eq!(timeline.state_at(now).state, Down);
        assert_eq!(
            timeline.next_transition(now).unwrap().unwrap().at,
            at("2024-04-07T22:00:00Z")
        );
        starts += 1;
    }
    assert_eq!(starts, 120);
}

#[test]
fn case_1_13_schedule_without_a_zone_is_utc_with_a_warning() {
    let (timeline, warnings) = windows(None, Some("Mon-Sun 18:00-19:00"));
    assert_states(&timeline, &[("2020-06-23T18:13:00Z", Down)]);
    assert_eq!(timeline.zone().name(), "UTC");
    assert!(
        warnings
            .iter()
            .any(|warning| warning.path == "timeZone" && warning.message.contains("UTC"))
    );
}

#[test]
fn case_1_14_offset_is_looked_up_for_the_instant() {
    assert_states(
        &downtime("Mon-Sun 15:45-16:00 America/Los_Angeles"),
        &[
            ("2021-01-26T23:44:55Z", Up),
            ("2021-01-26T23:45:00Z", Down),
            ("2021-07-26T22:45:00Z", Down),
            ("2021-07-26T23:45:00Z", Up),
        ],
    );
}

#[test]
fn case_1_15_zones_are_built_in_and_misspelt_ones_are_refused() {
    // Only the bundled database is compiled in: nothing here reads /usr/share/zoneinfo.
    assert!(
        format!("{:?}", jiff::tz::db()).contains("Bundled"),
        "{:?}",
        jiff::tz::db()
    );
    assert_states(
        &downtime("Mon-Fri 17:50-18:00 Asia/Shanghai"),
        &[("2019-11-20T09:50:00Z", Down)],
    );
    let message = parse_windows("Mon-Fri 17:50-18:00 Asia/Shangai").unwrap_err();
    assert!(
        message.contains("unknown zone `Asia/Shangai`, closest `Asia/Shanghai`"),
        "{message}"
    );
    let problems = compile(&Definition {
        time_zone: Some("Asia/Shangai".to_owned()),
        ..Definition::default()
    })
    .unwrap_err();
    assert_eq!(problems[0].path, "timeZone");
}

#[test]
fn case_1_17_wrong_hours_are_refused_with_the_token() {
    for (text, token) in [
        ("Mon-Sun 07:00-25:00 UTC", "`25:00`"),
        ("Mon-Fri 24:00-08:00 UTC", "`24:00`"),
    ] {
        let message = parse_windows(text).unwrap_err();
        assert!(message.contains(token), "{message}");
    }
    let message = CronExpression::parse("* 7-24 * * 0-6").unwrap_err();
    assert!(message.contains("`24`") && message.contains("hour"), "{message}");
    assert!(parse_windows("").is_err());
    assert!(CronExpression::parse("").is_err());
    let noise: String = (0..300u32).map(|index| char::from((index * 73 % 251) as u8)).collect();
    assert!(parse_windows(&noise).is_err());
    assert!(CronExpression::parse(&noise).is_err());
    assert!(parse_windows("Mon-Fri 07:00-24:00 UTC").is_ok());
}

#[test]
fn case_1_18_start_equal_to_end_is_refused() {
    for text in ["Sat-Sun 03:00-03:00 UTC", "Mon-Sun 00:00-00:00 UTC"] {
        let message = parse_windows(text).unwrap_err();
        assert!(message.contains("24:00"), "{message}");
    }
    assert_states(&downtime("Sat-Sun 00:00-24:00 UTC"), &[("2019-11-09T19:38:11Z", Down)]);
}

#[test]
fn case_1_20_weekend_is_one_unbroken_window() {
    assert_eq!(
        transitions(
            &downtime("Sat-Sun 00:00-24:00 Asia/Kolkata"),
            "2023-12-15T12:00:00Z",
            "2023-12-19T00:00:00Z"
        ),
        ["2023-12-15T18:30:00Z Down", "2023-12-17T18:30:00Z Up"]
    );
}

#[test]
fn case_1_21_downtime_wins_over_uptime_and_says_so() {
    let (timeline, warnings) = windows(Some("Mon-Fri 08:00-20:00 UTC"), Some("Mon-Fri 12:00-13:00 UTC"));
    let noon = timeline.state_at(at("2026-01-07T12:30:00Z"));
    assert_eq!((noon.state, noon.decided_by), (Down, DecidedBy::Downtime));
    let one = timeline.state_at(at("2026-01-07T13:00:00Z"));
    assert_eq!((one.state, one.decided_by), (Up, DecidedBy::Uptime));
    assert!(
        warnings.iter().any(|warning| warning.message.contains("overlap")),
        "{warnings:?}"
    );
    let nothing = compile(&Definition::default())
        .unwrap()
        .0
        .state_at(at("2026-01-07T12:30:00Z"));
    assert_eq!((nothing.state, nothing.decided_by), (Up, DecidedBy::Default));
}

#[test]
fn case_1_22_absolute_range_joins_the_weekly_rhythm() {
    let (timeline, _) = windows(
        Some("Mon-Fri 07:30-20:00 Europe/Berlin"),
        Some("2020-04-10T20:00:00+02:00/2020-04-14T07:00:00+02:00"),
    );
    assert_states(
        &timeline,
        &[
            ("2020-04-13T10:00:00Z", Down),
            ("2020-04-14T05:00:00Z", Down),
            ("2020-04-14T05:29:59Z", Down),
            ("2020-04-14T05:30:00Z", Up),
        ],
    );
}

#[test]
fn case_1_24_schedule_made_within_its_window_holds_at_once() {
    let timeline = downtime("Mon-Fri 21:32-08:00 Europe/Rome");
    let created = at("2024-01-29T20:36:43Z");
    assert_eq!(timeline.state_at(created).state, Down);
    assert_eq!(timeline.since(created), Some(at("2024-01-29T20:32:00Z")));
    assert_eq!(
        timeline.next_transition(created).unwrap().unwrap().at,
        at("2024-01-30T07:00:00Z")
    );
}

#[test]
fn case_1_25_state_does_not_depend_on_having_seen_the_boundary() {
    let timeline = downtime("Mon-Fri 18:30-07:00 UTC");
    assert_states(
        &timeline,
        &[
            ("2026-01-07T18:29:50Z", Up),
            ("2026-01-07T18:45:00Z", Down),
            ("2026-01-07T18:31:30Z", Down),
        ],
    );
    assert_eq!(
        timeline.since(at("2026-01-07T18:45:00Z")),
        Some(at("2026-01-07T18:30:00Z"))
    );
}

#[test]
fn rule_t1_cron_reads_as_kubernetes_does() {
    // 1-5 is Monday to Friday, 0 and 7 are Sunday.
    let (timeline, _) = cron("UTC", &["0 20 * * 1-5"], &["0 8 * * 1-5"]);
    assert_states(
        &timeline,
        &[
            ("2026-01-05T07:59:59Z", Down), // Monday
            ("2026-01-05T08:00:00Z", Up),
            ("2026-01-05T19:59:59Z", Up),
            ("2026-01-05T20:00:00Z", Down),
            ("2026-01-10T12:00:00Z", Down), // Saturday
            ("2026-01-11T12:00:00Z", Down), // Sunday
        ],
    );
    for sunday in ["0", "7", "sun", "SUN"] {
        let (timeline, _) = cron("UTC", &[&format!("0 20 * * {sunday}")], &["0 8 * * 1"]);
        assert_states(
            &timeline,
            &[("2026-01-11T19:59:59Z", Up), ("2026-01-11T20:00:00Z", Down)],
        );
    }
}

#[test]
fn rule_t1_two_firings_at_one_instant_mean_up() {
    let (timeline, _) = cron("UTC", &["0 8 * * *", "0 20 * * *"], &["0 8 * * *"]);
    assert_states(
        &timeline,
        &[
            ("2026-01-05T08:00:00Z", Up),
            ("2026-01-05T12:00:00Z", Up),
            ("2026-01-05T20:00:00Z", Down),
        ],
    );
    // Both swallowed by the same gap.
    let (timeline, _) = cron("Europe/Berlin", &["10 2 29 3 *"], &["50 2 29 3 *"]);
    assert_eq!(
        transitions(&timeline, "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        Vec::<String>::new()
    );
}

#[test]
fn rule_t1_nothing_fired_yet_means_up() {
    let (timeline, _) = cron("UTC", &["0 0 1 7 *"], &["0 0 1 8 *"]);
    let moment = timeline.state_at(at("1970-03-01T00:00:00Z"));
    assert_eq!((moment.state, moment.decided_by), (Up, DecidedBy::Default));
    assert_states(&timeline, &[("1970-07-01T00:00:00Z", Down)]);
}

#[test]
fn rule_t2_windows_own_zone_wins() {
    let (timeline, warnings) = compile(&Definition {
        time_zone: Some("America/Sao_Paulo".to_owned()),
        downtime: Some(vec![
            "Mon 20:00-22:00".to_owned(),
            "Tue 20:00-22:00 Asia/Tokyo".to_owned(),
        ]),
        ..Definition::default()
    })
    .unwrap();
    assert_eq!(warnings, []);
    assert_states(
        &timeline,
        &[
            ("2026-01-05T23:00:00Z", Down),
            ("2026-01-06T01:00:00Z", Up),
            ("2026-01-06T11:00:00Z", Down),
        ],
    );
}

#[test]
fn windows_span_days_and_wrap_around_the_week() {
    let weekend = downtime("Fri 20:00 - Mon 06:00");
    assert_eq!(
        transitions(&weekend, "2026-01-05T00:00:00Z", "2026-01-13T00:00:00Z"),
        [
            "2026-01-05T06:00:00Z Up",
            "2026-01-09T20:00:00Z Down",
            "2026-01-12T06:00:00Z Up"
        ]
    );
    let wrapped = downtime("Sat-Mon 22:00-23:00");
    assert_eq!(
        transitions(&wrapped, "2026-01-09T00:00:00Z", "2026-01-16T00:00:00Z").len(),
        6
    );
    assert_states(
        &downtime("Sat,Sun 10:00-14:00"),
        &[("2026-01-10T11:00:00Z", Down), ("2026-01-12T11:00:00Z", Up)],
    );
}

#[test]
fn always_and_never_have_no_transitions() {
    for (timeline, state) in [
        (downtime("always"), Down),
        (uptime("always"), Up),
        (downtime("never"), Up),
        (uptime("never"), Down),
        (downtime("Mon-Sun 00:00-24:00"), Down),
    ] {
        assert_states(
            &timeline,
            &[("2026-01-05T00:00:00Z", state), ("2040-07-05T13:00:00Z", state)],
        );
        assert_eq!(timeline.next_transition(at("2026-01-05T00:00:00Z")), Ok(None));
        assert_eq!(timeline.since(at("2026-01-05T00:00:00Z")), None);
    }
}

#[test]
fn schedule_in_place_is_read_from_annotations() {
    let (timeline, warnings) = from_annotations(Some("Mon-Fri 08:00-20:00"), None, Some("America/Sao_Paulo")).unwrap();
    assert_eq!(warnings, []);
    assert_states(
        &timeline,
        &[("2026-01-05T11:00:00Z", Up), ("2026-01-05T10:59:59Z", Down)],
    );
    let problems = from_annotations(None, Some("Mon-Fri 08:00-25:00"), Some("Sao_Paolo")).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(
        paths,
        ["offhours.platform.io/time-zone", "offhours.platform.io/downtime"]
    );
}

#[test]
fn instants_out_of_reach_are_unknown() {
    let timeline = downtime("Mon-Fri 20:00-06:00 Europe/Berlin");
    for far in [
        Timestamp::MIN,
        Timestamp::MAX,
        at("1969-12-31T23:59:59Z"),
        at("2100-01-01T00:00:00Z"),
    ] {
        let moment = timeline.state_at(far);
        assert_eq!((moment.state, moment.decided_by), (Unknown, DecidedBy::Horizon));
    }
    assert_eq!(timeline.next_transition(at("2100-01-01T00:00:00Z")), Ok(None));
    assert!(parse_zone("UTC").is_ok());
}
