//! A death, a refusal, a cut and a stall at every write of a night and a morning, of every kind of workload and of what stands
//! beside them: after it, everything is exactly as it was, and nothing of ours is left.
//!
//! The product is the built one; between it and a real API server is the harness's proxy, which makes the faults. In `make test`
//! places are chosen by a fixed seed; `OFFHOURS_TEST_LONG=1` takes every one.

mod lane;
mod worlds;

use anyhow::ensure;
use harness::Fault;

use lane::Lane;
use worlds::World;

/// Nights of one lane in `make test`.
const SAMPLED: usize = 5;

/// The same places in every run.
struct Seed(u64);

impl Seed {
    /// A number from 1 to `most`.
    fn next(&mut self, most: usize) -> usize {
        // The constants of Knuth's MMIX generator; its high bits are good enough to choose places.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        1 + usize::try_from(self.0 >> 33).unwrap_or(0) % most.max(1)
    }
}

/// Some faults at some places.
async fn sampled(world: World, number: usize) -> anyhow::Result<()> {
    let mut lane = Lane::start(world).await?;
    // By these the places are known.
    let (closing, opening) = (lane.phase(true, None).await?, lane.phase(false, None).await?);
    let mut seed = Seed(20_261_130 + number as u64);
    let mut reached = 0;
    for night in 0..SAMPLED {
        for (is_night, writes) in [(true, closing.writes), (false, opening.writes)] {
            let turn = (number * SAMPLED + night) * 2 + usize::from(!is_night);
            let fault = Fault::ALL[turn % Fault::ALL.len()];
            let ended = lane.phase(is_night, Some((fault, seed.next(writes)))).await?;
            reached += usize::from(ended.struck);
        }
    }
    lane.report(&format!("{reached} faults in {SAMPLED} nights"));
    lane.end().await?;
    ensure!(reached >= SAMPLED, "only {reached} faults were met");
    Ok(())
}

/// Every fault at every place.
async fn whole(world: World) -> anyhow::Result<()> {
    let mut lane = Lane::start(world).await?;
    let (mut faults, mut nights) = (0_u32, 0_u32);
    for fault in Fault::ALL {
        let (mut closing, mut opening) = (true, true);
        let mut nth = 1;
        while closing || opening {
            let armed = |wanted: bool| wanted.then_some((fault, nth));
            closing = lane.phase(true, armed(closing)).await?.struck;
            opening = lane.phase(false, armed(opening)).await?.struck;
            faults += u32::from(closing) + u32::from(opening);
            nights += 1;
            nth += 1;
        }
        lane.report(&format!("{fault:?} at {} places", nth - 2));
        ensure!(nth > 3, "{fault:?} was met at {} places only", nth - 2);
    }
    lane.report(&format!("{faults} faults in {nights} nights"));
    lane.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fault_at_any_write_of_a_night_everything_is_as_it_was() -> anyhow::Result<()> {
    let worlds = [worlds::kinds(), worlds::autoscalers(), worlds::gitops()];
    let long = std::env::var_os("OFFHOURS_TEST_LONG").is_some();
    let lanes = worlds.into_iter().enumerate().map(|(number, world)| {
        tokio::spawn(async move {
            let name = world.name;
            let outcome = if long {
                whole(world).await
            } else {
                sampled(world, number).await
            };
            outcome.map_err(|error| error.context(format!("world {name}")))
        })
    });
    let mut failed = Vec::new();
    // One that fails must not end the others.
    for lane in lanes.collect::<Vec<_>>() {
        failed.extend(lane.await?.err().map(|error| format!("{error:#}")));
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}
