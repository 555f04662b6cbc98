use super::*;

#[test]
fn until_takes_an_instant_or_a_positive_duration_with_a_unit() {
    let at: Timestamp = "2026-12-01T11:00:00Z".parse().unwrap();
    assert_eq!(
        parse_until(AWAKE_UNTIL, "2026-12-01T08:00:00-03:00"),
        Ok(Until::Instant(at))
    );
    assert_eq!(
        parse_until(AWAKE_UNTIL, "2h30m"),
        Ok(Until::For(SignedDuration::from_mins(150)))
    );
    assert_eq!(
        parse_until(AWAKE_UNTIL, "1d"),
        Ok(Until::For(SignedDuration::from_hours(24)))
    );
    for wrong in [
        "",
        "2",
        "-2h",
        "0s",
        "2 moons",
        "1mo",
        "tomorrow",
        "2026-12-01",
        "2026-13-01T00:00:00Z",
    ] {
        let problem = parse_until(AWAKE_UNTIL, wrong).unwrap_err();
        assert!(problem.message.contains("\"2h\""), "{wrong}: {problem}");
    }
}

#[test]
fn down_replicas_takes_a_count_or_a_percentage() {
    assert_eq!(parse_down_replicas(DOWN_REPLICAS, "2"), Ok(DownReplicas::Count(2)));
    assert_eq!(parse_down_replicas(DOWN_REPLICAS, "25%"), Ok(DownReplicas::Percent(25)));
    for wrong in ["", "-1", "+1", "1.5", "101%", "%", "2147483648", "1e3", " 1"] {
        assert!(parse_down_replicas(DOWN_REPLICAS, wrong).is_err(), "{wrong}");
    }
    assert_eq!(DownReplicas::Percent(25).of(3), 1);
    assert_eq!(DownReplicas::Percent(50).of(3), 2);
    assert_eq!(DownReplicas::Percent(0).of(3), 0);
}

#[test]
fn case_2_09_booleans_are_strict() {
    assert_eq!(parse_bool(PROTECTED, "true"), Ok(true));
    assert_eq!(parse_bool(PROTECTED, "false"), Ok(false));
    for wrong in ["yes", "", "True", "1"] {
        let problem = parse_bool(PROTECTED, wrong).unwrap_err();
        assert_eq!(problem.key, PROTECTED);
    }
}

#[test]
fn case_7_05_an_unknown_key_is_answered_by_the_nearest_known_one() {
    let problem = unknown_key("offhours.platform.io/shedule").unwrap();
    assert!(problem.message.contains("offhours.platform.io/schedule"), "{problem}");
    assert!(
        unknown_key("offhours.platform.io/zzzzzzzzzzzz")
            .unwrap()
            .message
            .contains("without effect")
    );
    assert_eq!(unknown_key("example.com/shedule"), None);
    for known in WRITTEN_BY_PEOPLE {
        assert_eq!(unknown_key(known), None);
    }
    assert_eq!(unknown_key("offhours.platform.io/original-when-scaled"), None);
}

#[test]
fn instants_are_written_in_whole_seconds_of_utc() {
    let at: Timestamp = "2026-12-01T08:00:00.123456789-03:00".parse().unwrap();
    assert_eq!(format_instant(at), "2026-12-01T11:00:00Z");
}

#[test]
fn the_reference_lists_every_key_that_people_write_and_no_key_that_nobody_knows() {
    for known in WRITTEN_BY_PEOPLE {
        assert!(KEYS.iter().any(|row| row.key == *known), "{known}");
    }
    for row in KEYS {
        assert!(unknown_key(row.key).is_none(), "{}", row.key);
    }
}
