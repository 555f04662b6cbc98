//! What the questions to a schedule cost, beside croner's search on the same expression. `make bench-schedule` runs it.
//!
//! Each figure is the median of interleaved runs (ours, croner, ours …), so that what else the machine does falls on both.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a program for people: it prints, and breaks off where something cannot be measured"
)]

use std::hint::black_box;
use std::str::FromStr;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use shared::policy::{Origin, Schedule};
use shared::schedule::{Definition, ExceptionPart, ExceptionSpan, State, Timeline, compile, parse_zone};

const ZONE: &str = "Europe/Berlin";
/// Runs of each side; odd, so that there is a median.
const PAIRS: usize = 15;
/// Questions of one run, each about another instant.
const QUESTIONS: i64 = 2_000;

fn instants() -> Vec<Timestamp> {
    let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    (0..QUESTIONS)
        .map(|index| from + SignedDuration::from_secs(index * 15_787))
        .collect()
}

/// Nanoseconds of one question.
fn time(instants: &[Timestamp], mut question: impl FnMut(Timestamp)) -> f64 {
    let start = Instant::now();
    for &at in instants {
        question(black_box(at));
    }
    start.elapsed().as_nanos() as f64 / instants.len() as f64
}

/// Lower quartile, median, upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values.get(values.len() * quarter / 4).copied().unwrap_or_default())
}

fn timeline(definition: Definition) -> Timeline {
    let definition = Definition {
        time_zone: Some(ZONE.to_owned()),
        ..definition
    };
    compile(&definition).unwrap_or_else(|problems| panic!("{problems:?}")).0
}

fn forms() -> Vec<(&'static str, Timeline)> {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let exceptions: Vec<ExceptionPart> = (1..=12)
        .map(|month| ExceptionPart {
            span: ExceptionSpan::Date(format!("--{month:02}-25")),
            hours: None,
            state: State::Down,
            reason: None,
        })
        .collect();
    vec![
        (
            "cron, one shutdown and one startup",
            timeline(Definition {
                shutdown: texts(&["0 20 * * 1-5"]),
                startup: texts(&["0 8 * * 1-5"]),
                ..Definition::default()
            }),
        ),
        (
            "cron, day of month or day of week",
            timeline(Definition {
                shutdown: texts(&["0 20 1-7 * 5"]),
                startup: texts(&["0 8 1-7 * 1"]),
                ..Definition::default()
            }),
        ),
        (
            "uptime, one window",
            timeline(Definition {
                uptime: Some(texts(&["Mon-Fri 08:00-20:00"])),
                ..Definition::default()
            }),
        ),
        (
            "uptime and downtime, two zones, a range",
            timeline(Definition {
                uptime: Some(texts(&["Mon-Fri 08:00-20:00", "Sat 10:00-14:00 America/Sao_Paulo"])),
                downtime: Some(texts(&["Wed 12:00-13:00", "2026-12-24T12:00/2027-01-02T08:00"])),
                ..Definition::default()
            }),
        ),
        (
            "uptime with 12 yearly exceptions",
            timeline(Definition {
                uptime: Some(texts(&["Mon-Fri 08:00-20:00"])),
                exceptions,
                ..Definition::default()
            }),
        ),
    ]
}

fn main() {
    let instants = instants();
    let zone = parse_zone(ZONE).unwrap();
    let oracle = croner::Cron::from_str("0 20 * * 1-5").unwrap();
    let croner = |at: Timestamp| {
        let zoned = at.to_zoned(zone.time_zone().clone());
        black_box(oracle.find_next_occurrence(&zoned, false).unwrap());
    };
    println!("{PAIRS} interleaved pairs of {QUESTIONS} questions each; medians, quartiles in brackets");
    println!("ratio: to croner's find_next_occurrence of `0 20 * * 1-5` in {ZONE}\n");
    println!("{:<42}{:>14}{:>26}", "question", "ns each", "ratio to croner");
    for (form, timeline) in forms() {
        let state = |at: Timestamp| {
            black_box(timeline.state_at(at));
        };
        let next = |at: Timestamp| {
            black_box(timeline.next_transition(at).unwrap());
        };
        println!("{form}");
        compare("  state_at", &instants, state, croner);
        compare("  next_transition", &instants, next, croner);
    }
    verdicts();
}

fn compare(name: &str, instants: &[Timestamp], mut ours: impl FnMut(Timestamp), mut theirs: impl FnMut(Timestamp)) {
    time(instants, &mut ours);
    time(instants, &mut theirs);
    let pairs: Vec<(f64, f64)> = (0..PAIRS)
        .map(|_| (time(instants, &mut ours), time(instants, &mut theirs)))
        .collect();
    let [_, median, _] = quartiles(pairs.iter().map(|pair| pair.0).collect());
    let [low, ratio, high] = quartiles(pairs.iter().map(|pair| pair.0 / pair.1).collect());
    println!(
        "{name:<42}{median:>14.0}{:>26}",
        format!("{ratio:.2} [{low:.2}, {high:.2}]")
    );
}

/// 20,000 workloads over 200 schedules: the state of each, and until when.
fn verdicts() {
    let forms = forms();
    let schedules: Vec<&Timeline> = forms.iter().map(|(_, timeline)| timeline).cycle().take(200).collect();
    let now: Timestamp = "2026-06-03T10:00:00Z".parse().unwrap();
    let run = || {
        let start = Instant::now();
        for workload in 0..20_000_usize {
            let Some(timeline) = schedules.get(workload % schedules.len()) else {
                continue;
            };
            black_box((
                timeline.state_at(black_box(now)),
                timeline.next_transition(now).unwrap(),
            ));
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    run();
    let [low, median, high] = quartiles((0..PAIRS).map(|_| run()).collect());
    println!("\n20,000 verdicts over 200 schedules, each asked anew: {median:.1} ms [{low:.1}, {high:.1}]");
    // As the product asks: a schedule keeps the interval that it found last.
    let kept: Vec<Schedule> = schedules
        .iter()
        .map(|timeline| Schedule::new("bench", Origin::Settings, Ok((*timeline).clone())))
        .collect();
    let run = || {
        let start = Instant::now();
        for workload in 0..20_000_usize {
            let Some(schedule) = kept.get(workload % kept.len()) else {
                continue;
            };
            let _ = black_box(schedule.present(black_box(now)));
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    run();
    let [low, median, high] = quartiles((0..PAIRS).map(|_| run()).collect());
    println!("the same with one interval kept for each schedule:   {median:.2} ms [{low:.2}, {high:.2}]");
}
