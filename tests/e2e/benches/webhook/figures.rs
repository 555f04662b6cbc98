//! Medians, quartiles, tables.

use std::fmt;

use crate::Round;
use crate::stage::{SIDES, Side, What};

/// A quantile of what is sorted.
fn at(sorted: &[f64], part: f64) -> f64 {
    let index = ((sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// The median; sorts what it is given.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    at(values, 0.5)
}

/// A ratio over rounds.
#[derive(Clone, Copy)]
pub struct Ratio {
    pub median: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            median: at(&values, 0.5),
            low: at(&values, 0.25),
            high: at(&values, 0.75),
        }
    }

    /// What ours adds to the latency, in parts of what bare adds.
    pub fn added(rounds: &[Round]) -> Self {
        let p50 = |round: &Round, side: Side| round.p50[side as usize];
        Self::of(
            rounds
                .iter()
                .map(|round| {
                    let none = p50(round, Side::None);
                    (p50(round, Side::Ours) - none) / (p50(round, Side::Bare) - none)
                })
                .collect(),
        )
    }

    /// Our rate, in parts of bare's.
    pub fn rate(rounds: &[Round]) -> Self {
        let rate = |round: &Round, side: Side| round.rate[side as usize];
        Self::of(
            rounds
                .iter()
                .map(|round| rate(round, Side::Ours) / rate(round, Side::Bare))
                .collect(),
        )
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}, {:.2}]", self.median, self.low, self.high)
    }
}

/// The table of everything.
pub fn tell(all: &[(What, usize, Vec<Round>)]) {
    println!("\nPATCH of a Deployment of 10 KB, dry run; medians of rounds, quartiles of ratios in brackets");
    println!(
        "{:<9} {:>3} | {:>25} | {:>23} | {:<20} | rate / bare",
        "request", "at", "p50 ms: none, bare, ours", "per s: none, bare, ours", "added / bare's added"
    );
    for (what, concurrency, rounds) in all {
        let of = |pick: fn(&Round) -> [f64; 3]| {
            SIDES.map(|side| {
                median(
                    &mut rounds
                        .iter()
                        .map(|round| pick(round)[side as usize])
                        .collect::<Vec<_>>(),
                )
            })
        };
        let (p50, rate) = (of(|round| round.p50), of(|round| round.rate));
        // Where nothing is sent, nothing is added, and a ratio of two nothings means nothing.
        let added = if *what == What::Filtered {
            String::from("-")
        } else {
            Ratio::added(rounds).to_string()
        };
        println!(
            "{:<9} {concurrency:>3} | {:>7.2} {:>8.2} {:>8.2} | {:>7.0} {:>7.0} {:>7.0} | {added:<20} | {}",
            what.name(),
            1e3 * p50[0],
            1e3 * p50[1],
            1e3 * p50[2],
            rate[0],
            rate[1],
            rate[2],
            Ratio::rate(rounds)
        );
    }
}
