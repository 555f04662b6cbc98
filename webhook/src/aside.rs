//! Stands aside while a webhook of dev mode serves this cluster: a Lease says so. Client required.
//!
//! Whoever runs `offhours webhook --dev` holds the Lease. While it is renewed, every other webhook lets all requests pass, so
//! that none is judged twice. A Lease that is not renewed any more (its holder was killed) counts for its own duration only.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use shared::clock::Clock;
use tokio::time::{Instant, sleep};

pub use shared::rules::rights::DEV_LEASE;

/// A Lease is believed for this long at most, whatever it says.
const LONGEST: Duration = Duration::from_secs(60);
/// Pause after a watch that failed.
const PAUSE: Duration = Duration::from_secs(5);
/// Pause after one that we have no right to.
const LONG_PAUSE: Duration = Duration::from_secs(300);

/// Whether somebody else serves this cluster at the moment.
#[derive(Debug, Clone, Default)]
pub struct Aside {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Holder and last renewal, as they were read last.
    record: Option<(String, Option<Timestamp>)>,
    until: Option<Instant>,
}

impl Aside {
    /// Whether it is to stand aside now.
    pub fn stands(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes in the Lease as it is; `None`: there is none.
    fn see(&self, lease: Option<&Lease>, now: Timestamp) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        if holder.is_empty() {
            *seen = Seen::default();
            return;
        }
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(15);
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(LONGEST);
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let record = Some((holder, renewed));
        if seen.record == record {
            return;
        }
        // A Lease that is read for the first time may be left over from somebody who was killed long ago: then only its own
        // word can be asked. A renewal that is seen happening counts from now, by our own clock.
        let fresh = seen.record.is_some()
            || renewed.is_some_and(|at| {
                now.duration_since(at) < jiff::SignedDuration::try_from(duration).unwrap_or_default()
            });
        let stood = seen.until.is_some_and(|until| Instant::now() < until);
        if fresh && !stood {
            tracing::info!(
                holder = record.as_ref().map_or("", |(holder, _)| holder),
                "standing aside for a webhook in dev mode"
            );
        }
        seen.record = record;
        seen.until = fresh.then(|| Instant::now() + duration);
    }
}

/// Follows the Lease until dropped.
pub async fn follow(client: Client, namespace: &str, clock: Arc<dyn Clock>, aside: Aside) {
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    loop {
        let pause = match watch(&leases, &*clock, &aside).await {
            Ok(()) => Duration::ZERO,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::debug!(
                    "no right to watch the Lease {namespace}/{DEV_LEASE}: webhooks in dev mode are not made room for"
                );
                LONG_PAUSE
            }
            Err(error) => {
                tracing::debug!(%error, "the watch of the Lease of dev mode failed");
                PAUSE
            }
        };
        sleep(pause).await;
    }
}

/// One watch, to its end.
async fn watch(leases: &Api<Lease>, clock: &dyn Clock, aside: &Aside) -> Result<(), kube::Error> {
    let parameters = WatchParams::default()
        .fields(&format!("metadata.name={DEV_LEASE}"))
        .timeout(290);
    let stream = leases.watch(&parameters, "0").await?;
    let mut stream = pin!(stream);
    while let Some(event) = stream.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => aside.see(Some(&lease), clock.now()),
            WatchEvent::Deleted(_) => aside.see(None, clock.now()),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => return Err(kube::Error::Api(Box::new(*error))),
        }
    }
    // A server that ends watches at once would be asked without a pause.
    sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(holder: &str, renewed: &str) -> Lease {
        Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(15),
                renew_time: Some(MicroTime(renewed.parse().unwrap())),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_stands_aside_while_the_lease_is_renewed_and_no_longer() {
        let aside = Aside::default();
        let now: Timestamp = "2026-11-30T23:00:10Z".parse().unwrap();
        aside.see(None, now);
        assert!(!aside.stands());
        aside.see(Some(&lease("ana", "2026-11-30T23:00:09Z")), now);
        assert!(aside.stands());
        // The same record again, from a watch that began anew, prolongs nothing.
        tokio::time::advance(Duration::from_secs(10)).await;
        aside.see(Some(&lease("ana", "2026-11-30T23:00:09Z")), now);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!aside.stands(), "its holder was killed");
        // A renewal that is seen counts by our own clock, however wrong the holder's is.
        aside.see(Some(&lease("ana", "2020-01-01T00:00:00Z")), now);
        assert!(aside.stands());
        aside.see(Some(&lease("", "2026-11-30T23:00:10Z")), now);
        assert!(!aside.stands(), "given back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_left_over_from_long_ago_is_nobody() {
        let aside = Aside::default();
        aside.see(
            Some(&lease("ana", "2026-11-30T22:00:00Z")),
            "2026-11-30T23:00:10Z".parse().unwrap(),
        );
        assert!(!aside.stands());
    }
}
