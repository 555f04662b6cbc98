//! One input through every parser of schedules, and through the questions to what they make of it. Used by the corpus runner in
//! the tests and by the fuzz target.

use super::subject::{Calendar, CronExpression, DatePattern, Definition, Hours, Zone, compile, parse_windows};

/// The first byte chooses the parser, the rest is its text.
pub(super) fn run(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest).into_owned();
    let definition = match kind % 6 {
        0 => {
            if let Ok(windows) = parse_windows(&text) {
                let printed: Vec<String> = windows.iter().map(ToString::to_string).collect();
                assert_eq!(parse_windows(&printed.join(", ")), Ok(windows), "{text:?}");
            }
            Definition {
                downtime: Some(vec![text]),
                ..Definition::default()
            }
        }
        1 => Definition {
            uptime: Some(vec![text]),
            time_zone: Some("Europe/Berlin".to_owned()),
            ..Definition::default()
        },
        2 => Definition {
            shutdown: vec![text],
            startup: vec!["0 8 * * 1-5".to_owned()],
            ..Definition::default()
        },
        3 => {
            let _ = CronExpression::parse(&text);
            Definition {
                time_zone: Some(text),
                ..Definition::default()
            }
        }
        4 => {
            if let Ok(pattern) = text.parse::<DatePattern>() {
                assert_eq!(pattern.to_string().parse(), Ok(pattern), "{text:?}");
            }
            if let Ok(hours) = text.parse::<Hours>() {
                assert_eq!(hours.to_string().parse(), Ok(hours), "{text:?}");
            }
            return;
        }
        _ => {
            let _ = Calendar::parse(&text, &Zone::UTC);
            return;
        }
    };
    let Ok((timeline, _)) = compile(&definition) else {
        return;
    };
    for second in [1_000_000_000, 1_774_746_000, 1_792_890_000] {
        let Ok(now) = jiff::Timestamp::from_second(second) else {
            return;
        };
        let state = timeline.state_at(now).state;
        if let Ok(Some(next)) = timeline.next_transition(now) {
            assert!(next.at > now && next.to != state, "{definition:?} at {now}");
        }
        let _ = timeline.since(now);
    }
}
