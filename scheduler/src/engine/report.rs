//! Writes the status of schedules: only where it changes, at most once a second. Client required.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::call::call;
use cluster::store::SourceState;
use cluster::view::View;
use http::{Request, header::CONTENT_TYPE};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use shared::api::{FOUGHT_OVER, GROUP, OffHoursScheduleStatus, VERSION};
use shared::policy::{Origin, Schedule};
use shared::workload::FIELD_MANAGER;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use crate::decide::decider::Decider;
use crate::lease::Leadership;
use crate::observe::Observer;
use crate::status::{Trouble, status};

/// Shortest time between two looks, and so between two writes of one status.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause after a write of a status that failed.
const PAUSE: Duration = Duration::from_secs(10);
/// A status that was sent and that the watch has not shown within this time is sent again.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was last sent for one schedule.
struct Sent {
    uid: Arc<str>,
    status: OffHoursScheduleStatus,
    at: Instant,
    under_way: bool,
    failed: bool,
}

/// Reports on schedules.
pub struct Reporter {
    client: Client,
    leadership: Leadership,
    write_timeout: Duration,
    sent: BTreeMap<Arc<str>, Sent>,
    tasks: JoinSet<(Arc<str>, Result<(), String>)>,
    looked: Option<Instant>,
    /// When the first of the transitions that are listed comes.
    next_transition: Option<Timestamp>,
}

impl Reporter {
    /// Writes by `client`, with permits of the lease.
    pub fn new(client: Client, leadership: Leadership, write_timeout: Duration) -> Self {
        Self {
            client,
            leadership,
            write_timeout,
            sent: BTreeMap::new(),
            tasks: JoinSet::new(),
            looked: None,
            next_transition: None,
        }
    }

    /// Waits until a write has ended. May be dropped and called again.
    pub async fn answered(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok((name, outcome))) => {
                if let Some(sent) = self.sent.get_mut(&name) {
                    sent.under_way = false;
                    sent.failed = outcome.is_err();
                }
                if let Err(error) = outcome {
                    debug!(
                        schedule = &*name,
                        error, "failed to write the status, it is tried again later"
                    );
                }
            }
            // A task that broke: what it meant to write is looked at again after a while.
            Some(Err(_)) => self.sent.values_mut().for_each(|sent| sent.under_way = false),
            None => std::future::pending().await,
        }
    }

    /// Writes what has changed. When to look again at the latest.
    pub fn report(&mut self, view: &View, observer: &Observer, decider: &Decider, now: Timestamp) -> Instant {
        let moment = Instant::now();
        if let Some(looked) = self.looked
            && moment < looked + PERIOD
        {
            return looked + PERIOD;
        }
        self.looked = Some(moment);
        self.next_transition = None;
        let compiled = Arc::clone(observer.compiled());
        let mut open = false;
        for (name, item) in &compiled.resources {
            let Some(schedule) = compiled
                .schedules
                .get(name)
                .filter(|schedule| schedule.origin == Origin::Resource)
            else {
                continue;
            };
            let shown = item.object.as_ref().ok().and_then(|object| object.status.as_ref());
            let sent = self.sent.get(name).filter(|sent| sent.uid == item.uid);
            if sent.is_some_and(|sent| sent.under_way || (sent.failed && moment < sent.at + PAUSE)) {
                open = true;
                continue;
            }
            // What was sent a moment ago may not be shown yet.
            let fresh = sent
                .filter(|sent| !sent.failed && moment < sent.at + PATIENCE)
                .map(|sent| &sent.status);
            let former = fresh.or(shown);
            let troubles = troubles(view, schedule);
            // Webhooks write it, so what the watch shows counts, not what was sent.
            let fight = shown.and_then(|shown| {
                let mut conditions = shown.conditions.iter();
                conditions.find(|condition| condition.type_ == FOUGHT_OVER)
            });
            let wanted = status(schedule, decider.group(name), &troubles, former, fight, now);
            let same = former == Some(&wanted);
            self.note_transition(&wanted, now);
            if same {
                continue;
            }
            self.send(name, &item.uid, &wanted);
            open = true;
        }
        self.sent.retain(|name, _| compiled.resources.contains_key(name));
        if open {
            return moment + PERIOD;
        }
        let left = self
            .next_transition
            .map(|at| at.duration_since(now).max(SignedDuration::ZERO));
        let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(PATIENCE);
        moment + left.clamp(PERIOD, PATIENCE)
    }

    fn note_transition(&mut self, wanted: &OffHoursScheduleStatus, now: Timestamp) {
        let next = wanted.next.first().and_then(|next| next.at.parse::<Timestamp>().ok());
        self.next_transition = [self.next_transition, next.filter(|at| *at > now)]
            .into_iter()
            .flatten()
            .min();
    }

    fn send(&mut self, name: &Arc<str>, uid: &Arc<str>, status: &OffHoursScheduleStatus) {
        let sent = Sent {
            uid: Arc::clone(uid),
            status: status.clone(),
            at: Instant::now(),
            under_way: true,
            failed: false,
        };
        self.sent.insert(Arc::clone(name), sent);
        let body = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "OffHoursSchedule",
            // A schedule of the same name that came later gets a status of its own.
            "metadata": {"name": &**name, "uid": &**uid},
            "status": status,
        });
        let uri = format!(
            "/apis/{GROUP}/{VERSION}/offhoursschedules/{name}/status?fieldManager={FIELD_MANAGER}-status&force=true"
        );
        let (client, limit, name) = (self.client.clone(), self.write_timeout, Arc::clone(name));
        let permit = self.leadership.permit(limit);
        self.tasks.spawn(async move {
            let outcome = async {
                let permit = permit.map_err(|error| error.to_string())?;
                let request = Request::patch(uri)
                    .header(CONTENT_TYPE, "application/apply-patch+yaml")
                    .body(Body::from(body.to_string().into_bytes()))
                    .map_err(|error| error.to_string())?;
                let answer = permit
                    .run(call(&client, request, limit))
                    .await
                    .map_err(|error| error.to_string())?;
                answer.map(drop).map_err(|error| error.to_string())
            };
            (name, outcome.await)
        });
    }
}

/// Kinds of a schedule that cannot be read.
fn troubles(view: &View, schedule: &Schedule) -> Vec<Trouble> {
    let kinds = view.workload_stores();
    kinds
        .iter()
        .filter(|(kind, _)| schedule.includes(kind).is_some())
        .filter_map(|(kind, store)| match store.state() {
            SourceState::Forbidden { message } => Some(Trouble {
                reason: "Forbidden",
                message: format!("{}: {message}", kind.plural),
            }),
            SourceState::Unfilled { trouble: Some(why) } => Some(Trouble {
                reason: "NotRead",
                message: format!("{}: {why}", kind.plural),
            }),
            _ => None,
        })
        .collect()
}
