//! What the webhook costs a request, through a real API server: `make bench-webhook`.
//!
//! Three sides, asked in turn in one run: no webhook; a bare axum and rustls server that answers with a constant; the built
//! `offhours webhook`, with many workloads and schedules in view. Bare and ours are registered alike, each for namespaces of
//! its own. Figures of one round are compared with each other only, so that what else the machine does hits all sides alike.
//!
//! `ROUNDS`, `REQUESTS` (per side and round, one at a time), `WORKLOADS` and `SCHEDULES` may be chosen by variables.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a bench that breaks off says so"
)]

mod bare;
mod figures;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use figures::{Ratio, median};
use stage::{SIDES, Side, Stage, What};

/// Requests at a time.
const CONCURRENCY: [usize; 3] = [1, 16, 64];
/// Parts of a round in which each side is asked at a higher concurrency.
const SLICES: usize = 4;

/// What one round gave for one kind of request at one concurrency, by side.
#[derive(Default, Clone, Copy)]
struct Round {
    /// Median latency in seconds.
    p50: [f64; 3],
    /// Requests per second.
    rate: [f64; 3],
}

fn number(name: &str, default: usize) -> anyhow::Result<usize> {
    std::env::var(name).map_or(Ok(default), |text| {
        text.parse().with_context(|| format!("{name}={text} is no number"))
    })
}

fn main() -> anyhow::Result<()> {
    harness::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(server) = bare::asked_for()? {
        return runtime.block_on(server.serve());
    }
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let rounds = number("ROUNDS", 9)?.max(1);
    let requests = number("REQUESTS", 100)?.max(10);
    if rounds < 7 {
        println!("{rounds} rounds are a trial: nothing is to be judged by them");
    }
    let began = Instant::now();
    let stage = Arc::new(Stage::set(number("WORKLOADS", 20_000)?, number("SCHEDULES", 200)?).await?);
    println!(
        "{} workloads and {} schedules in view; set up in {:.0?}",
        stage.workloads,
        stage.schedules,
        began.elapsed()
    );
    let mut all: Vec<(What, usize, Vec<Round>)> = Vec::new();
    for what in [What::Held, What::Passed, What::Filtered] {
        for concurrency in CONCURRENCY {
            all.push((what, concurrency, Vec::new()));
        }
    }
    for (what, concurrency, _) in &all {
        // Connections and caches.
        round(&stage, *what, *concurrency, 10.max(*concurrency), 0).await?;
    }
    for number in 0..rounds {
        for (what, concurrency, found) in &mut all {
            let before = stage.calls().await?;
            found.push(round(&stage, *what, *concurrency, requests * (*concurrency).min(4), number).await?);
            if *what == What::Filtered {
                let after = stage.calls().await?;
                anyhow::ensure!(
                    before == after,
                    "{} calls for requests that change nothing",
                    after - before
                );
            }
        }
        println!("round {} of {rounds} after {:.0?}", number + 1, began.elapsed());
    }
    figures::tell(&all);
    scale(&stage, rounds, requests.div_ceil(4)).await?;
    println!(
        "\nmemory, resident: ours {}; bare {}",
        stage.ours_memory()?,
        stage.bare_memory()?
    );
    promises(&all);
    Ok(())
}

/// Each side once, in an order that moves on with the rounds.
fn in_turn(round: usize) -> impl Iterator<Item = Side> {
    (0..3).map(move |index| SIDES[(index + round) % 3])
}

async fn round(
    stage: &Arc<Stage>,
    what: What,
    concurrency: usize,
    requests: usize,
    number: usize,
) -> anyhow::Result<Round> {
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut spent = [0.0; 3];
    if concurrency == 1 {
        // Request by request: what disturbs the machine disturbs all sides alike.
        for request in 0..requests {
            for side in in_turn(number + request) {
                let took = stage.ask(side, what).await?.as_secs_f64();
                times[side as usize].push(took);
                spent[side as usize] += took;
            }
        }
    } else {
        for slice in 0..SLICES {
            for side in in_turn(number + slice) {
                let began = Instant::now();
                times[side as usize].extend(at_once(stage, side, what, concurrency, requests.div_ceil(SLICES)).await?);
                spent[side as usize] += began.elapsed().as_secs_f64();
            }
        }
    }
    let mut found = Round::default();
    for side in SIDES {
        let times = &mut times[side as usize];
        found.p50[side as usize] = median(times);
        found.rate[side as usize] = times.len() as f64 / spent[side as usize];
    }
    Ok(found)
}

/// So many requests, so many of them at a time; the seconds that each took.
async fn at_once(
    stage: &Arc<Stage>,
    side: Side,
    what: What,
    concurrency: usize,
    requests: usize,
) -> anyhow::Result<Vec<f64>> {
    let next = Arc::new(AtomicUsize::new(0));
    let askers: Vec<_> = (0..concurrency)
        .map(|_| {
            let (stage, next) = (Arc::clone(stage), Arc::clone(&next));
            tokio::spawn(async move {
                let mut times = Vec::new();
                while next.fetch_add(1, Ordering::Relaxed) < requests {
                    times.push(stage.ask(side, what).await?.as_secs_f64());
                }
                anyhow::Ok(times)
            })
        })
        .collect();
    let mut all = Vec::new();
    for asker in askers {
        all.extend(asker.await??);
    }
    Ok(all)
}

/// `/scale` for real, with another number each time: the record is written to the parent before the answer is given.
async fn scale(stage: &Stage, rounds: usize, requests: usize) -> anyhow::Result<()> {
    let mut by_side: [Vec<f64>; 3] = Default::default();
    for number in 0..rounds {
        let mut times: [Vec<f64>; 3] = Default::default();
        for request in 0..requests {
            for side in in_turn(number + request) {
                let asked = 5 + (request + number) % 2;
                let took: Duration = stage.scale(side, asked).await?;
                times[side as usize].push(took.as_secs_f64());
            }
        }
        for side in SIDES {
            by_side[side as usize].push(median(&mut times[side as usize]));
        }
    }
    println!(
        "\n/scale for real, one at a time, p50 (bare writes nothing; ours writes the record, and the API server asks again):"
    );
    for side in SIDES {
        println!(
            "  {:<6} {:>8.2} ms",
            side.name(),
            1e3 * median(&mut by_side[side as usize])
        );
    }
    Ok(())
}

fn promises(all: &[(What, usize, Vec<Round>)]) {
    let of = |wanted: What, at: usize| {
        all.iter()
            .find(|(what, concurrency, _)| *what == wanted && *concurrency == at)
            .map(|(_, _, rounds)| rounds.as_slice())
            .unwrap_or_default()
    };
    let kept = |is: bool| if is { "kept" } else { "BROKEN" };
    println!("\npromises:");
    for what in [What::Held, What::Passed] {
        let added = Ratio::added(of(what, 1));
        println!(
            "  added latency of a request that is {}, one at a time: {added} of bare, <= 1.15: {}",
            what.name(),
            kept(added.median <= 1.15)
        );
        let rate = Ratio::rate(of(what, 16));
        println!(
            "  rate of requests that are {}, 16 at a time: {rate} of bare, >= 0.9: {}",
            what.name(),
            kept(rate.median >= 0.9)
        );
    }
    println!("  calls for requests that change nothing of ours: 0: kept");
}
