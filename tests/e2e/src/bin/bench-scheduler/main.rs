//! `make bench-scheduler`: the scheduler beside a raw loop that sends the same requests, on one real control plane with fsync.
//!
//! The raw loop has Deployments of its own, its bodies are made beforehand, and it uses the product's HTTP client at the
//! concurrency that served it best. The product does not run meanwhile. Times are the API server's own (its audit log).

mod raw;
mod report;
mod stage;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::sleep;

use report::{Pairs, Requests, say};
use stage::{Beside, Stage};

/// A number from the environment.
fn number(name: &str, default: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(default),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let pairs = number("BENCH_PAIRS", 7)?;
    let objects = number("BENCH_OBJECTS", 2_000)?;
    let watched = number("BENCH_WATCHED", 20_000)?;
    let idle = Duration::from_secs(number("BENCH_IDLE_SECONDS", 60)? as u64);

    let stage = Stage::set_up(objects).await?;
    let concurrency = stage.best_concurrency().await?;
    say(&format!(
        "raw loop: {objects} Deployments of 8 KB, {concurrency} requests at a time"
    ))?;

    let mut ours = [Pairs::new("ours, down"), Pairs::new("ours, up")];
    // What part of it every follower pays: the API server tells of each change.
    let mut followed = [
        Pairs::new("raw loop beside one watch, down"),
        Pairs::new("raw loop beside one watch, up"),
    ];
    for pair in 0..pairs {
        // Who goes first changes, so that what drifts favours nobody.
        let (mut raw, mut product, mut watched) = (None, None, None);
        for turn in 0..3 {
            match (pair + turn) % 3 {
                0 => raw = Some(stage.raw_both(concurrency, Beside::Nothing).await?),
                1 => product = Some(stage.product_both().await?),
                _ => watched = Some(stage.raw_both(concurrency, Beside::Watch).await?),
            }
        }
        let sides = raw.zip(product).zip(watched);
        let ((raw, product), watched) = sides.context("each side has its turn")?;
        for (pairs, (raw, one)) in ours.iter_mut().zip(raw.iter().zip(&product)) {
            pairs.add(raw, one)?;
        }
        for (pairs, (raw, one)) in followed.iter_mut().zip(raw.iter().zip(&watched)) {
            pairs.add(raw, one)?;
        }
    }
    for pairs in ours.iter().chain(&followed) {
        pairs.print()?;
    }

    let product = stage.start_product().await?;
    let firsts = stage.first_writes(2).await?;
    say(&format!("from the boundary to the first write, ms: {firsts:?}"))?;

    let mark = stage.audit.mark().await?;
    sleep(idle).await;
    let requests = Requests::of(&stage.requests_of_product(mark).await?);
    say(&format!("idle for {idle:?}: {requests}"))?;
    ensure!(requests.count("list") == 0, "idle, and it lists");
    let (steady, peak) = product.memory()?;
    say(&format!(
        "memory with {} Deployments: {steady} MB steady, {peak} MB peak",
        objects * 2
    ))?;
    product.stop().await?;

    if watched > objects * 2 {
        stage.add_bystanders(watched - objects * 2).await?;
        let product = stage.start_product().await?;
        sleep(Duration::from_secs(30)).await;
        let (steady, peak) = product.memory()?;
        say(&format!(
            "memory with {watched} Deployments: {steady} MB steady, {peak} MB peak"
        ))?;
        product.stop().await?;
    }
    Ok(())
}
