//! Any bytes are answered without a panic and within a bounded number of steps.

#[path = "exercise.rs"]
mod exercise;

/// What the fuzz target sees of this crate.
mod subject {
    pub(super) use crate::schedule::{
        Calendar, CronExpression, DatePattern, Definition, Hours, Zone, compile, parse_windows,
    };
}

use super::super::timeline::SPENT;
use super::super::{CANDIDATE_LIMIT, Definition, SearchExhausted, compile};
use super::at;
use super::differential::{Dice, is_long};

/// Runs the corpus, and slips of it, through every parser.
#[test]
fn corpus_and_its_mutants_are_answered() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/schedule");
    let mut seeds: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 20, "the corpus has only {} inputs", seeds.len());
    let mut dice = Dice(17);
    let mut runs = 0;
    for seed in &seeds {
        exercise::run(seed);
        for _ in 0..if is_long() { 20_000 } else { 60 } {
            let mut bytes = seed.clone();
            for _ in 0..=dice.roll(4) {
                let place = dice.roll(bytes.len() + 1);
                match dice.roll(5) {
                    0 => bytes.insert(place, dice.roll(256) as u8),
                    1 if place < bytes.len() => {
                        bytes.remove(place);
                    }
                    2 if place < bytes.len() => bytes[place] = b"0123456789-:/,;* TZ@=LW\xc3\xff"[dice.roll(24)],
                    3 => {
                        let other = dice.pick(&seeds);
                        let (from, length) = (dice.roll(other.len()), dice.roll(40));
                        let piece = &other[from..(from + length).min(other.len())];
                        bytes.splice(place..place, piece.iter().copied());
                    }
                    _ => bytes.truncate(place.max(1)),
                }
            }
            bytes.truncate(4_096);
            exercise::run(&bytes);
            runs += 1;
        }
    }
    assert!(runs >= 1_200, "{runs}");
}

/// 4 KB of the worst that the grammar allows are read in steps that grow with the length, not with its square.
#[test]
fn reading_4_kb_takes_a_bounded_number_of_steps() {
    for unit in [
        "Mon,",
        "Mon-Sun 00:00-00:01,",
        "Mon 00:00 - Tue 00:00;",
        " ",
        "2026-01-01T00:00/2026-01-02T00:00,",
        "é",
    ] {
        let text: String = unit.chars().cycle().take(4_096).collect();
        super::super::window::STEPS.set(0);
        let _ = super::super::parse_windows(&text);
        let steps = super::super::window::STEPS.get();
        assert!(steps <= 8 * 4_096, "{unit:?}: {steps} steps");
    }
}

#[test]
fn search_gives_up_after_ten_thousand_candidates() {
    // A shutdown every minute, and a startup at the very same instants: nothing ever changes, and nothing proves it.
    let endless = compile(&Definition {
        time_zone: Some("UTC".to_owned()),
        shutdown: vec!["* * * * *".to_owned()],
        startup: vec!["* * * * *".to_owned()],
        ..Definition::default()
    })
    .unwrap();
    let now = at("2026-01-01T00:00:00Z");
    SPENT.set(0);
    assert_eq!(endless.0.next_transition(now), Err(SearchExhausted { after: now }));
    assert_eq!(SPENT.get(), u64::from(CANDIDATE_LIMIT));
    SPENT.set(0);
    assert_eq!(endless.0.since(now), None);
    assert!(SPENT.get() <= u64::from(CANDIDATE_LIMIT));
    assert!(
        endless.1.iter().any(|warning| warning.message.contains("candidates")),
        "{:?}",
        endless.1
    );

    // Two zones that together cover the week, each by a daily window.
    let covered = compile(&Definition {
        time_zone: Some("UTC".to_owned()),
        downtime: Some(vec![
            "Mon-Sun 00:00-12:01 UTC, Mon-Sun 12:00-00:01 Africa/Abidjan".to_owned(),
        ]),
        ..Definition::default()
    })
    .unwrap();
    SPENT.set(0);
    assert_eq!(covered.0.next_transition(now), Err(SearchExhausted { after: now }));
    assert_eq!(SPENT.get(), u64::from(CANDIDATE_LIMIT));
}
