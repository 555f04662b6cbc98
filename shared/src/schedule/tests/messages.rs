//! Problems and warnings name the place and the remedy.

use super::super::{CronExpression, DatePattern, Definition, Hours, compile, parse_windows, parse_zone};
use super::{cron, windows};

fn window_error(text: &str) -> String {
    parse_windows(text).unwrap_err()
}

#[test]
fn window_errors_have_the_place_and_the_remedy() {
    for (text, place, remedy) in [
        (
            "Mon-Fri 08:00-25:00",
            "at character 15",
            "`25:00` is not a time; did you mean `24:00`?",
        ),
        ("Mon-Fri 8:00-20:00", "at character 9", "did you mean `08:00`?"),
        ("Mon-Fri 0800-20:00", "at character 9", "did you mean `08:00`?"),
        ("Mon-Fri 08:60-20:00", "at character 9", "did you mean `09:00`?"),
        ("Mon-Fir 08:00-20:00", "at character 5", "did you mean `Fri`?"),
        ("Mo-Fr 08:00-20:00", "at character 1", "did you mean `Mon`?"),
        ("alwais", "at character 1", "is not a weekday"),
        ("08:00-20:00", "at character 1", "has no days"),
        ("Mon-Fri 08:00", "at character 14", "a `-` is missing"),
        ("Mon-Fri", "at character 8", "a time is missing"),
        (
            "Mon-Fri 08:00-20:00 Europe/Berlim",
            "at character 21",
            "closest `Europe/Berlin`",
        ),
        (
            "Mon-Fri 08:00-20:00 Europe/Berlin Tue 08:00-09:00",
            "at character 35",
            "put a comma",
        ),
        ("Mon-Fri 08:00-20:00,", "at character 21", "remove the comma"),
        ("Mon,Tue 08:00 - Fri 06:00", "at character 17", "starts on one day only"),
        ("Mon 08:00 - Mon 08:00", "at character 17", "the same moment"),
        ("2026-12-24T12:00", "at character 17", "the end of the range is missing"),
        (
            "2026-12-24T12:00/2026-12-23T12:00",
            "at character 18",
            "swap the two ends",
        ),
        (
            "2026-12-24T12:00/2026-12-32T12:00",
            "at character 18",
            "is not a date-time",
        ),
        (
            "2026-12-24T12:00Z/2026-12-25T12:00Z Europe/Berlin",
            "at character 1",
            "remove the zone or the offsets",
        ),
        ("%", "at character 1", "is not a window"),
    ] {
        let message = window_error(text);
        assert!(message.contains(place) && message.contains(remedy), "{text}: {message}");
    }
}

#[test]
fn cron_errors_name_the_field_and_the_remedy() {
    for (text, part) in [
        ("0 24 * * *", "field 2 (hour)"),
        ("0 24 * * *", "did you mean `0`?"),
        ("60 8 * * *", "`60` is not a minute (0 to 59)"),
        ("0 8 * * Mom", "did you mean `MON`?"),
        ("0 8 * Jam *", "did you mean `JAN`?"),
        ("0 8 * * 8", "field 5 (day of week)"),
        ("0 8 * * Fri-Mon", "write two ranges"),
        ("0 8 * * */0", "is not a step"),
        ("0 8 * *", "4 fields, not 5"),
        ("0 0 8 * * *", "seconds and years are not supported"),
        ("@dialy", "did you mean `@daily`?"),
        ("@every 1h", "names no time of day"),
        ("CRON_TZ=Europe/Berlim 0 8 * * *", "closest `Europe/Berlin`"),
        ("0,,5 8 * * *", "a value is missing"),
        ("", "empty"),
    ] {
        let message = CronExpression::parse(text).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn zones_and_dates_suggest_the_closest() {
    assert_eq!(
        parse_zone("America/Sao_Paolo").unwrap_err(),
        "unknown zone `America/Sao_Paolo`, closest `America/Sao_Paulo`"
    );
    for wrong in ["", "Etc/Unknown", "Mars/Phobos", "UTC+3", "../etc/passwd", "Local"] {
        assert!(parse_zone(wrong).is_err(), "{wrong}");
    }
    assert_eq!(parse_zone("europe/berlin").unwrap().name(), "Europe/Berlin");
    assert!(
        "2026-02-30"
            .parse::<DatePattern>()
            .unwrap_err()
            .contains("did you mean `2026-02-28`?")
    );
    assert!(
        "last Mom of May"
            .parse::<DatePattern>()
            .unwrap_err()
            .contains("did you mean `Mon`?")
    );
    assert!("--02-30".parse::<DatePattern>().is_err());
    assert!("08:00-08:00".parse::<Hours>().is_err());
}

#[test]
fn odd_schedules_are_warned_about() {
    let has = |warnings: Vec<super::Warning>, part: &str| {
        assert!(
            warnings.iter().any(|warning| warning.message.contains(part)),
            "{part}: {warnings:?}"
        );
    };
    has(cron("UTC", &["0 20 31 2 *"], &["0 8 * * *"]).1, "never fires");
    has(cron("UTC", &["0 20 * * *"], &[]).1, "there is no startup");
    has(cron("UTC", &[], &["0 8 * * *"]).1, "never changes");
    has(
        cron("UTC", &["*/10 * * * *"], &["5-59/10 * * * *"]).1,
        "more than 48 transitions a day",
    );
    has(
        windows(None, Some("Mon-Sun 00:00-24:00")).1,
        "never changes: it is always Down",
    );
    has(
        windows(None, Some("Mon-Fri 08:00-12:00, Mon 11:00-13:00")).1,
        "overlaps with an earlier window",
    );
    has(
        windows(None, Some("2026-03-29T02:10/2026-03-29T02:50 Europe/Berlin")).1,
        "never happens",
    );
    has(
        windows(
            None,
            Some("2026-03-29T02:10/2026-03-30T02:50, 2026-03-30T01:00/2026-03-31T02:50"),
        )
        .1,
        "overlaps with the range",
    );
    has(
        compile(&Definition::default()).unwrap().1,
        "never changes: it is always Up",
    );
    let (_, warnings) = cron("America/Sao_Paulo", &["0 20 * * 1-5"], &["0 8 * * 1-5"]);
    assert_eq!(warnings, []);
    let (_, warnings) = cron("UTC", &["30 7-18 * * *"], &["0 8-19 * * *"]);
    assert_eq!(warnings, [], "24 transitions a day are no slip");
}
