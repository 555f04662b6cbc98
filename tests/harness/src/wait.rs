//! Waiting for a condition: the only way in which a test waits.

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::sync::OnceCell;

/// Long enough for anything that a healthy control plane does on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

/// Asks `probe` again and again until it is content (`Ok`). Past `deadline`: an error that names `what` and the probe's
/// last error, so let that say what was seen instead.
///
/// ```no_run
/// # async fn example(deployments: kube::Api<k8s_openapi::api::apps::v1::Deployment>) -> anyhow::Result<()> {
/// let deployment = harness::wait_for("web to be scaled down", harness::SOON, || async {
///     let deployment = deployments.get("web").await?;
///     let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
///     anyhow::ensure!(replicas == Some(0), "replicas {replicas:?}");
///     Ok(deployment)
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub async fn wait_for<T, F>(what: &str, deadline: Duration, mut probe: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let started = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        // A probe that hangs is a condition that does not come true.
        let left = deadline.saturating_sub(started.elapsed()).max(Duration::from_secs(1));
        let seen = match tokio::time::timeout(left, probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => error,
            Err(_) => anyhow::anyhow!("the probe did not answer"),
        };
        if started.elapsed() >= deadline {
            bail!("waited {deadline:?} in vain for {what}; last seen: {seen:#}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// What the tests of one program share: made by whoever asks first, and a failure is everybody's.
///
/// ```no_run
/// # async fn start() -> anyhow::Result<u16> { Ok(1) }
/// # async fn example() -> anyhow::Result<()> {
/// static STAGE: harness::Shared<u16> = harness::Shared::new();
/// let stage: &u16 = STAGE.get(start).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Shared<T>(OnceCell<Result<T, String>>);

impl<T> Shared<T> {
    /// One that nobody has made yet.
    pub const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    /// The one that there is; `start` makes it.
    pub async fn get<F>(&'static self, start: impl FnOnce() -> F) -> anyhow::Result<&'static T>
    where
        F: Future<Output = anyhow::Result<T>>,
    {
        let made = self
            .0
            .get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) })
            .await;
        made.as_ref()
            .map_err(|error| anyhow::anyhow!("what these tests share could not be started: {error}"))
    }
}

/// Sees that a condition holds during the whole of `length`: for "nothing happens". Keep it short; better wait for
/// something that comes after.
pub async fn holds_for<F>(what: &str, length: Duration, mut probe: impl FnMut() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let started = Instant::now();
    while started.elapsed() < length {
        if let Err(seen) = probe().await {
            bail!(
                "{what} did not hold for {length:?}; after {:?}: {seen:#}",
                started.elapsed()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
