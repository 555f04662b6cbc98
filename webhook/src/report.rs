//! Tells on a schedule what is fought over: a condition of its status, which the scheduler makes part of `Degraded` until the
//! window ends. Client required.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use shared::annotations::format_instant;
use shared::api::{FOUGHT_OVER, GROUP, VERSION};
use shared::clock::Clock;
use shared::workload::{FIELD_MANAGER, ObjectRef};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Fights that wait to be told; beyond, they are in log and metrics alone.
const WAITING: usize = 256;
/// Workloads that a condition names.
const NAMED: usize = 10;
/// The longest that one write may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Tries of one write.
const TRIES: u32 = 5;

/// A workload that is held again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fight {
    /// The workload.
    pub workload: ObjectRef,
    /// The schedule of the cluster that holds it.
    pub schedule: Arc<str>,
    /// What happened, and the remedies.
    pub message: String,
}

/// Where fights are told.
#[derive(Debug, Clone)]
pub struct Reports {
    sender: mpsc::Sender<Fight>,
}

impl Reports {
    /// Tells one. Never waits.
    pub fn tell(&self, fight: Fight) {
        if self.sender.try_send(fight).is_err() {
            tracing::debug!("too many fights at a time: one is not told on its schedule");
        }
    }
}

/// A place to tell, and the work of writing what is told there, which ends when nobody is left to tell.
pub fn reports(client: Client, clock: Arc<dyn Clock>) -> (Reports, impl Future<Output = ()> + Send) {
    let (sender, mut told) = mpsc::channel::<Fight>(WAITING);
    let work = async move {
        let mut known: BTreeMap<Arc<str>, BTreeMap<ObjectRef, (Timestamp, String)>> = BTreeMap::new();
        while let Some(fight) = told.recv().await {
            let now = clock.now();
            let of_schedule = known.entry(Arc::clone(&fight.schedule)).or_default();
            // What has been quiet for half a day is of another night.
            of_schedule.retain(|_, (at, _)| now.duration_since(*at).as_hours() < 12);
            of_schedule.insert(fight.workload, (now, fight.message));
            let messages: Vec<&str> = of_schedule
                .values()
                .rev()
                .take(NAMED)
                .map(|(_, message)| message.as_str())
                .collect();
            let mut message = messages.join("; ");
            if of_schedule.len() > NAMED {
                message = format!("{message}; and {} more", of_schedule.len() - NAMED);
            }
            write(&client, &fight.schedule, &message, now).await;
        }
    };
    (Reports { sender }, work)
}

async fn write(client: &Client, schedule: &str, message: &str, now: Timestamp) {
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "OffHoursSchedule", "metadata": {"name": schedule},
        "status": {"conditions": [{
            "type": FOUGHT_OVER, "status": "True", "reason": "HeldRepeatedly", "message": message,
            "lastTransitionTime": format_instant(now),
        }]},
    })
    .to_string();
    let uri = format!(
        "/apis/{GROUP}/{VERSION}/offhoursschedules/{schedule}/status?fieldManager={FIELD_MANAGER}-webhook&force=true"
    );
    for attempt in 1..=TRIES {
        let request = Request::patch(&uri)
            .header(CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(body.clone().into_bytes()));
        let error = match request {
            Ok(request) => match cluster::call::call(client, request, LIMIT).await {
                Ok(_) => return,
                // It is gone, and whoever has no right will have none in a moment.
                Err(error) if matches!(error.code(), Some(403 | 404)) => {
                    tracing::warn!(schedule, %error, "failed to tell on its schedule what is fought over");
                    return;
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        tracing::debug!(
            schedule,
            attempt,
            error,
            "failed to tell on its schedule what is fought over"
        );
        sleep(Duration::from_secs(1) * attempt).await;
    }
}
