//! A process that lives until it is told to stop: signals, tasks that must not end, and the time they get to drain.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Tells everybody to stop. Clones listen to the same word.
#[derive(Clone)]
pub struct Stop {
    said: watch::Sender<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            said: watch::Sender::new(false),
        }
    }
}

impl Stop {
    /// Says it.
    pub fn say(&self) {
        self.said.send_replace(true);
    }

    /// Whether it has been said.
    pub fn is_said(&self) -> bool {
        *self.said.borrow()
    }

    /// Resolves when it has been said.
    pub fn wanted(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut heard = self.said.subscribe();
        async move {
            // Without a sender nobody can say it any more: as good as said.
            let _ = heard.wait_for(|said| *said).await;
        }
    }
}

/// Says it at the first SIGTERM or SIGINT. A second one ends the process at once.
///
/// # Errors
/// If signals cannot be listened for.
#[expect(
    clippy::disallowed_methods,
    reason = "who asks twice does not want to wait for what is in flight"
)]
pub fn stop_at_signals() -> anyhow::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let stop = Stop::default();
    let said = stop.clone();
    tokio::spawn(async move {
        for second in [false, true] {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if second {
                tracing::error!("stopped at once by a second {name}");
                std::process::exit(1);
            }
            tracing::warn!("{name}: nothing more is begun, what is under way is finished");
            said.say();
        }
    });
    Ok(stop)
}

/// Tasks of which none may end before it is told to.
pub struct Tasks {
    stop: Stop,
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
}

impl Tasks {
    /// No tasks yet; `stop` is what they listen to.
    pub fn new(stop: Stop) -> Self {
        Self {
            stop,
            running: JoinSet::new(),
        }
    }

    /// Starts one.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.running.spawn(async move { (name, task.await) });
    }

    /// Waits for a signal, or for a task that ends by itself; then stops all of them and gives them `drain` to finish.
    ///
    /// # Errors
    /// If a task failed, ended by itself, or did not finish in time.
    pub async fn run(mut self, drain: Duration) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
        let mut first = Ok(());
        let draining = tokio::select! {
                biased;
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                () = self.stop.wanted() => "asked to",
                Some(ended) = self.running.join_next() => {
                    first = match ended {
                        Ok((name, Ok(()))) => Err(anyhow::anyhow!("{name} ended by itself")),
                        Ok((name, Err(error))) => Err(error.context(format!("{name} failed"))),
                        Err(error) => Err(anyhow::anyhow!("a task broke off: {error}")),
                    };
                    "a task ended"
                }
        };
        tracing::info!(because = draining, drain = ?drain, "stopping");
        self.stop.say();
        let drained = timeout(drain, async {
            while let Some(ended) = self.running.join_next().await {
                let result = match ended {
                    Ok((_, Ok(()))) => continue,
                    Ok((name, Err(error))) => error.context(format!("{name} failed while stopping")),
                    Err(error) => anyhow::anyhow!("a task broke off while stopping: {error}"),
                };
                tracing::error!("{result:#}");
                if first.is_ok() {
                    first = Err(result);
                }
            }
        });
        tokio::select! {
            biased;
            done = drained => {
                if done.is_err() {
                    self.running.abort_all();
                    anyhow::bail!("not everything finished within {drain:?} (--drain-timeout); what was in flight may be done or not");
                }
            }
            // Who asks twice does not want to wait.
            _ = terminate.recv() => anyhow::bail!("stopped at once by a second SIGTERM"),
            _ = interrupt.recv() => anyhow::bail!("stopped at once by a second SIGINT"),
        }
        if first.is_ok() {
            tracing::info!("stopped");
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_stops_the_others_and_is_told() {
        let stop = Stop::default();
        let drained = Arc::new(AtomicBool::new(false));
        let mut tasks = Tasks::new(stop.clone());
        let (wanted, seen) = (stop.wanted(), Arc::clone(&drained));
        tasks.spawn("server", async move {
            wanted.await;
            seen.store(true, Ordering::Relaxed);
            Ok(())
        });
        tasks.spawn("scheduler", async { anyhow::bail!("no cluster") });
        let error = tasks.run(LONG).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "scheduler failed: no cluster");
        assert!(drained.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_drain_is_left_after_its_time() {
        let stop = Stop::default();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("stubborn", async {
            std::future::pending::<()>().await;
            Ok(())
        });
        stop.say();
        let error = tasks.run(Duration::from_secs(10)).await.unwrap_err();
        assert!(error.to_string().contains("within 10s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clean_stop_is_no_error() {
        let stop = Stop::default();
        let mut tasks = Tasks::new(stop.clone());
        let wanted = stop.wanted();
        tasks.spawn("server", async move {
            wanted.await;
            Ok(())
        });
        stop.say();
        tasks.run(LONG).await.unwrap();
    }
}
