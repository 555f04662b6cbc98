//! `make bench-scheduler`: the scheduler beside a raw loop that sends the same requests, on one real control plane with fsync.
//!
//! The raw loop has Deployments of its own, its bodies are made beforehand, and it uses the product's HTTP client at the
//! concurrency that served it best. The product does not run meanwhile. Times are the API server's own (its audit log).

mod raw;
mod report;
mod stage;

use std::time::Duration;

use anyhow::ensure;
use tokio::time::sleep;

use report::{Pairs, Requests, say};
use stage::{Stage, Turn};

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

    let (mut down, mut up) = (Pairs::new("down"), Pairs::new("up"));
    for pair in 0..pairs {
        // Who goes first changes, so that what drifts favours nobody.
        let mut raw = None;
        if pair % 2 == 0 {
            raw = Some((
                stage.raw(Turn::Down, concurrency).await?,
                stage.raw(Turn::Up, concurrency).await?,
            ));
        }
        let product = stage.start_product().await?;
        let ours_down = stage.ours(&product, Turn::Down).await?;
        let ours_up = stage.ours(&product, Turn::Up).await?;
        product.stop().await?;
        let raw = match raw {
            Some(raw) => raw,
            None => (
                stage.raw(Turn::Down, concurrency).await?,
                stage.raw(Turn::Up, concurrency).await?,
            ),
        };
        down.add(&raw.0, &ours_down)?;
        up.add(&raw.1, &ours_up)?;
    }
    down.print()?;
    up.print()?;

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
