//! What holds for every schedule and every instant.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::super::{
    CronExpression, Definition, ExceptionPart, ExceptionSpan, State, Timeline, compile, parse_windows, parse_zone,
};
use super::at;
use super::differential::{is_long, zone_names};

fn config(cases: u32) -> Config {
    Config {
        cases: if is_long() { cases * 100 } else { cases },
        rng_seed: RngSeed::Fixed(2_026),
        failure_persistence: None,
        ..Config::default()
    }
}

fn instant() -> impl Strategy<Value = Timestamp> {
    (
        at("1970-02-01T00:00:00Z").as_second()..at("2037-12-31T00:00:00Z").as_second(),
        0..1_000_000_000i32,
    )
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap())
}

fn zone() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(zone_names()),
        proptest::sample::select(vec![
            "Europe/Berlin".to_owned(),
            "America/Sao_Paulo".to_owned(),
            "Australia/Lord_Howe".to_owned(),
            "Africa/Casablanca".to_owned(),
            "Pacific/Apia".to_owned(),
        ]),
    ]
}

fn clock(least: u32, most: u32) -> impl Strategy<Value = String> {
    (least..=most).prop_map(|minute| format!("{:02}:{:02}", minute / 60, minute % 60))
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

fn window() -> impl Strategy<Value = String> {
    let day = || proptest::sample::select(&DAYS[..]);
    let days = proptest::collection::vec((day(), proptest::option::of(day())), 1..4).prop_map(|days| {
        let days: Vec<String> = days
            .into_iter()
            .map(|(first, last)| last.map_or(first.to_owned(), |last| format!("{first}-{last}")))
            .collect();
        days.join(",")
    });
    let weekly =
        (days, clock(0, 1_439), clock(0, 1_440)).prop_map(|(days, start, end)| format!("{days} {start}-{end}"));
    let spanning = (day(), clock(0, 1_439), day(), clock(0, 1_440))
        .prop_map(|(first, start, last, end)| format!("{first} {start} - {last} {end}"));
    let absolute = (0i64..20_000, 1i64..5_000).prop_map(|(hours, length)| {
        let from = at("2024-01-01T00:00:00Z") + SignedDuration::from_hours(hours);
        format!("{from}/{}", from + SignedDuration::from_mins(length))
    });
    let local = (1i8..=12, 1i8..=28, clock(0, 1_439))
        .prop_map(|(month, day, time)| format!("2026-{month:02}-{day:02}T{time}:00/2027-01-02T08:00:00"));
    let plain = prop_oneof![4 => weekly, 2 => spanning, 1 => absolute, 1 => local, 1 => Just("never".to_owned())]
        .prop_filter("start and end differ", |text| parse_windows(text).is_ok());
    (plain, proptest::option::weighted(0.3, zone())).prop_map(|(window, zone)| match zone {
        Some(zone) if !window.ends_with('Z') && window != "never" => format!("{window} {zone}"),
        _ => window,
    })
}

fn cron_expression() -> impl Strategy<Value = String> {
    let field = |least: u32, most: u32| {
        prop_oneof![
            3 => Just("*".to_owned()),
            4 => (least..=most).prop_map(|value| value.to_string()),
            1 => (least..=most, least..=most).prop_map(|(from, to)| format!("{}-{}", from.min(to), from.max(to))),
            1 => (2u32..=20).prop_map(|step| format!("*/{step}")),
            1 => (least..=most, least..=most).prop_map(|(left, right)| format!("{left},{right}")),
        ]
    };
    let minute = (0u32..60).prop_map(|minute| minute.to_string());
    (
        minute,
        field(0, 23),
        field(1, 28),
        field(1, 12),
        field(0, 7),
        proptest::option::weighted(0.2, zone()),
    )
        .prop_map(|(minute, hour, day, month, weekday, zone)| {
            let prefix = zone.map(|zone| format!("CRON_TZ={zone} ")).unwrap_or_default();
            format!("{prefix}{minute} {hour} {day} {month} {weekday}")
        })
}

fn exception() -> impl Strategy<Value = ExceptionPart> {
    let date = (2024i16..2030, 1i8..=12, 1i8..=28).prop_map(|(year, month, day)| format!("{year}-{month:02}-{day:02}"));
    let span = prop_oneof![
        date.clone().prop_map(ExceptionSpan::Date),
        (1i8..=12, 1i8..=28).prop_map(|(month, day)| ExceptionSpan::Date(format!("--{month:02}-{day:02}"))),
        (0usize..7).prop_map(|day| ExceptionSpan::Date(format!("last {} of Mar", DAYS[day]))),
        (date.clone(), date).prop_map(|(from, to)| {
            if from <= to {
                ExceptionSpan::Range(from, to)
            } else {
                ExceptionSpan::Range(to, from)
            }
        }),
    ];
    let hours = (clock(0, 1_439), clock(0, 1_440))
        .prop_map(|(start, end)| format!("{start}-{end}"))
        .prop_filter("start and end differ", |text| {
            text.parse::<super::super::Hours>().is_ok()
        });
    (span, proptest::option::of(hours), any::<bool>()).prop_map(|(span, hours, up)| ExceptionPart {
        span,
        hours,
        state: if up { State::Up } else { State::Down },
        reason: None,
    })
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let list = || proptest::option::of(proptest::collection::vec(window(), 1..4));
    let cron = || proptest::collection::vec(cron_expression(), 0..3);
    let windows = (list(), list()).prop_map(|(uptime, downtime)| Definition {
        uptime,
        downtime,
        ..Definition::default()
    });
    let crons = (cron(), cron()).prop_map(|(shutdown, startup)| Definition {
        shutdown,
        startup,
        ..Definition::default()
    });
    (
        prop_oneof![windows, crons],
        zone(),
        proptest::collection::vec(exception(), 0..3),
    )
        .prop_map(|(definition, zone, exceptions)| {
            let definition = Definition {
                time_zone: Some(zone),
                exceptions,
                ..definition
            };
            compile(&definition)
                .unwrap_or_else(|problems| panic!("{definition:?}: {problems:?}"))
                .0
        })
}

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn next_transition_is_the_next_change_of_state(timeline in timeline(), now in instant()) {
        let state = timeline.state_at(now).state;
        if let Ok(Some(next)) = timeline.next_transition(now) {
            prop_assert!(next.at > now);
            prop_assert_ne!(next.to, state);
            prop_assert_eq!(timeline.state_at(next.at).state, next.to);
            prop_assert_eq!(timeline.state_at(next.at - NANOSECOND).state, state);
            // Nothing happens on the way there.
            for part in 1..8 {
                let between = now + SignedDuration::from_nanos_i128(next.at.duration_since(now).as_nanos() * part / 8);
                prop_assert_eq!(timeline.state_at(between).state, state);
            }
            prop_assert_eq!(timeline.since(next.at), Some(next.at));
        }
        if let Some(since) = timeline.since(now) {
            prop_assert!(since <= now);
            prop_assert_eq!(timeline.state_at(since).state, state);
            prop_assert_ne!(timeline.state_at(since - NANOSECOND).state, state);
            let begun = timeline.next_transition(since - NANOSECOND).unwrap().unwrap();
            prop_assert_eq!(begun.at, since);
        }
    }

    #[test]
    fn transitions_are_ordered_and_equal_under_any_split(timeline in timeline(), now in instant(), part in 0..1_000i64) {
        let to = now + SignedDuration::from_hours(24 * 30);
        if let Ok(all) = timeline.transitions(now, to, 400) && all.len() < 400 {
            for pair in all.windows(2) {
                prop_assert!(pair[0].at < pair[1].at);
                prop_assert_ne!(pair[0].to, pair[1].to);
            }
            let middle = now + SignedDuration::from_secs(24 * 30 * 36 * part / 10);
            let mut split = timeline.transitions(now, middle, 400).unwrap();
            split.extend(timeline.transitions(middle, to, 400).unwrap());
            prop_assert_eq!(&split, &all);
            if let Some(first) = all.first() {
                let mut split = timeline.transitions(now, first.at, 400).unwrap();
                split.extend(timeline.transitions(first.at, to, 400).unwrap());
                prop_assert_eq!(&split, &all);
            }
        }
    }

    #[test]
    fn windows_survive_printing(texts in proptest::collection::vec(window(), 1..4)) {
        let windows = parse_windows(&texts.join(", ")).unwrap();
        let printed: Vec<String> = windows.iter().map(ToString::to_string).collect();
        prop_assert_eq!(parse_windows(&printed.join(", ")).unwrap(), windows);
    }

    #[test]
    fn cron_expressions_survive_printing(text in cron_expression()) {
        let expression = CronExpression::parse(&text).unwrap();
        prop_assert_eq!(expression.to_string(), text);
    }

    #[test]
    fn local_time_is_moved_by_no_more_than_the_gap(name in zone(), now in instant()) {
        let zone = parse_zone(&name).unwrap();
        let wall = zone.time_zone().to_datetime(now);
        let instant = zone.instant(wall);
        let shown = zone.time_zone().to_datetime(instant);
        let moved = wall.duration_until(shown);
        let before = zone.time_zone().to_offset(instant - NANOSECOND).seconds();
        let gap = i64::from(zone.time_zone().to_offset(instant).seconds() - before).max(0);
        prop_assert!(moved >= SignedDuration::ZERO && moved <= SignedDuration::from_secs(gap));
        // The two maps belong together.
        prop_assert!(instant <= now);
        prop_assert!(zone.wall(now) >= wall);
        prop_assert!(zone.instant(zone.wall(now)) <= now);
    }
}

/// The maps around every clock change there is: a wall time's instant is not after `t` exactly if it is at most `wall(t)`.
#[test]
fn wall_and_instant_are_adjoint_around_clock_changes() {
    for (index, name) in zone_names().into_iter().enumerate() {
        if !is_long() && index % 3 != 0 {
            continue;
        }
        let zone = parse_zone(&name).unwrap();
        let changes = zone
            .time_zone()
            .following(at("1970-01-03T00:00:00Z"))
            .map(|change| change.timestamp());
        let changes = changes.take_while(|change| *change < at("2038-01-01T00:00:00Z"));
        for change in changes.step_by(if is_long() { 1 } else { 11 }) {
            for minutes in [-90, -61, -60, -30, -1, 0, 1, 29, 30, 59, 60, 61, 119, 120] {
                let now = change + SignedDuration::from_mins(minutes);
                let reached = zone.wall(now);
                assert!(zone.instant(reached) <= now, "{name} {now}");
                let further = reached + NANOSECOND;
                assert!(
                    zone.instant(further) > now,
                    "{name} {now}: {further} is {}",
                    zone.instant(further)
                );
            }
        }
    }
}
