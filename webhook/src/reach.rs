//! Whether the API server reaches the webhook: by a dry run that nobody but the webhook refuses. Client required.
//!
//! A port that a firewall keeps from the API server is not seen from inside the webhook: nothing arrives, and nothing is amiss.
//! Under `failurePolicy: Ignore` a person sees nothing either. So it is asked for; whichever replica is asked, the answer counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::call::{CallError, call};
use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use shared::api::{GROUP, PROBE, VERSION};
use shared::messages::REACHED;
use tokio::time::{Instant, sleep};

/// The longest that one self-test may take; longer than the API server waits for a webhook.
const LIMIT: Duration = Duration::from_secs(35);
/// So long after the start, not to be reached is not yet worth telling: certificates and endpoints are on their way.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause at the start, until it is reached.
const SOON: Duration = Duration::from_secs(5);
/// Pause later, while it is not known, or not reached.
const AGAIN: Duration = Duration::from_secs(60);
/// Pause while all is well.
const LATER: Duration = Duration::from_secs(300);

/// What a self-test came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// The webhook answered.
    Reached,
    /// The API server could not call it, or does not know of it: what it said, and what to look at.
    Unreached(String),
    /// It cannot be told: why.
    Unknown(String),
}

/// Asks once.
pub async fn probe(client: Client) -> Reach {
    let uri = format!("/apis/{GROUP}/{VERSION}/offhoursschedules/{PROBE}?dryRun=All&fieldManager={PROBE}&force=true");
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "OffHoursSchedule", "metadata": {"name": PROBE},
        "spec": {"uptime": ["Mon-Sun 00:00-24:00"], "timeZone": "UTC"},
    });
    let request = Request::patch(uri)
        .header(CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Body::from(body.to_string().into_bytes()));
    match request {
        Ok(request) => read(call(&client, request, LIMIT).await.map(drop)),
        Err(error) => Reach::Unknown(error.to_string()),
    }
}

/// What an answer means.
fn read(answer: Result<(), CallError>) -> Reach {
    match answer {
        Ok(()) => Reach::Unreached(
            "the API server let a self-test pass without an answer of the webhook: it cannot connect to it, or its \
             configuration is gone; look at firewalls between the API server and the port of the webhook, at its Service and \
             at `offhours webhook check`"
                .to_owned(),
        ),
        Err(CallError::Refused { message, .. }) if message.contains(REACHED) => Reach::Reached,
        // Under `failurePolicy: Fail`
        Err(CallError::Refused { message, .. }) if message.contains("failed calling webhook") => Reach::Unreached(format!(
            "the API server cannot call the webhook: {message}; look at firewalls between the API server and the port of the \
             webhook, and at its Service"
        )),
        Err(error) => Reach::Unknown(format!("the self-test failed: {error}")),
    }
}

/// What the last self-test came to.
#[derive(Debug, Clone, Default)]
pub struct Reaching {
    last: Arc<Mutex<Option<Reach>>>,
}

impl Reaching {
    /// `None`: not known.
    pub fn reached(&self) -> Option<bool> {
        match *self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Reach::Reached) => Some(true),
            Some(Reach::Unreached(_)) => Some(false),
            Some(Reach::Unknown(_)) | None => None,
        }
    }

    /// Takes in what was found. Whether it is news.
    fn take(&self, found: Reach) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let news = match (&*last, &found) {
            // The wording of a trouble may change from one try to the next.
            (Some(Reach::Unreached(_)), Reach::Unreached(_)) | (Some(Reach::Unknown(_)), Reach::Unknown(_)) => false,
            (before, _) => before.as_ref() != Some(&found),
        };
        *last = Some(found);
        news
    }
}

/// Asks again and again, and logs what changes. Never ends.
pub async fn follow<F: Future<Output = Reach>>(probe: impl Fn() -> F, seen: Reaching) {
    let began = Instant::now();
    loop {
        let found = probe().await;
        let reached = found == Reach::Reached;
        if (reached || began.elapsed() >= PATIENCE) && seen.take(found.clone()) {
            match found {
                Reach::Reached => tracing::info!("the API server reaches the webhook"),
                Reach::Unreached(why) => {
                    tracing::error!(condition = "ApiServerCannotReachWebhook", "nothing is held: {why}");
                }
                Reach::Unknown(why) => {
                    tracing::warn!("it is not known whether the API server reaches the webhook: {why}");
                }
            }
        }
        sleep(match reached {
            true => LATER,
            false if began.elapsed() < PATIENCE => SOON,
            false => AGAIN,
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn refused(code: u16, message: &str) -> Result<(), CallError> {
        Err(CallError::Refused {
            code,
            reason: Arc::from(""),
            message: Arc::from(message),
            retry_after: None,
        })
    }

    #[test]
    fn only_the_webhooks_own_refusal_counts_as_reached() {
        let denied = format!("admission webhook \"schedules.offhours.platform.io\" denied the request: {REACHED}");
        assert_eq!(read(refused(403, &denied)), Reach::Reached);
        assert!(matches!(read(Ok(())), Reach::Unreached(why) if why.contains("firewalls")));
        let failed = "Internal error occurred: failed calling webhook \"schedules.offhours.platform.io\": context deadline exceeded";
        assert!(matches!(read(refused(500, failed)), Reach::Unreached(why) if why.contains("deadline exceeded")));
        for unknown in [
            refused(403, "offhoursschedules.offhours.platform.io \"x\" is forbidden"),
            refused(404, "the server could not find the requested resource"),
            Err(CallError::TimedOut(LIMIT)),
        ] {
            assert!(matches!(read(unknown), Reach::Unknown(_)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn case_5_19_a_webhook_that_is_not_reached_says_so_after_a_minute_and_again_when_it_is() {
        let (seen, answer) = (
            Reaching::default(),
            RefCell::new(Reach::Unreached("no route".to_owned())),
        );
        let asked = Cell::new(0);
        let mut work = std::pin::pin!(follow(
            || {
                asked.set(asked.get() + 1);
                std::future::ready(answer.borrow().clone())
            },
            seen.clone(),
        ));
        let mut wait = async |seconds| {
            tokio::select! {
                () = &mut work => {}
                () = sleep(Duration::from_secs(seconds)) => {}
            }
        };
        wait(58).await;
        assert_eq!(seen.reached(), None, "it may still be on its way");
        wait(4).await;
        assert_eq!(seen.reached(), Some(false));
        answer.replace(Reach::Reached);
        wait(60).await;
        assert_eq!(seen.reached(), Some(true));
        let before = asked.get();
        wait(299).await;
        assert!(asked.get() <= before + 1, "all is well, and it is asked rarely");
    }
}
