//! The writes that are under way. Client required.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::{
    call::call,
    events::{Events, Remark},
    view::View,
};
use kube::Client;
use shared::{
    patch::disown,
    workload::{ObjectRef, Workload},
};
use tokio::{
    task::{Id, JoinSet},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{debug, info, warn};

use crate::{
    argo::{self, ArgoApi},
    decide::action::{Action, Request, Target},
    lease::{Leadership, PermitError},
};

use super::{
    outcome::{Ended, NotSent, of, of_argo},
    request::{build, resource, verb},
    stats::ActStats,
};

/// How long to wait for the watch, or for a better moment, before an ownership that could not be given up is tried again; twice
/// as long each time.
const DISOWN_PAUSE: Duration = Duration::from_millis(200);
/// How often that is tried.
const DISOWN_TRIES: u32 = 6;
/// A complaint about the same resource and reason is a warning once in this time.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// How many writes, and how long each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActSettings {
    /// Writes under way at a time, at most.
    pub concurrency: usize,
    /// Writes begun in a second, at most; no bound if none.
    pub per_second: Option<u32>,
    /// The longest that one write may take; must fit into the lease ([`crate::lease::LeaseSettings::validate`]).
    pub write_timeout: Duration,
    /// Send nothing, only say what would be sent.
    pub dry_run: bool,
}

/// An action and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The action.
    pub action: Action,
    /// How it ended.
    pub ended: Ended,
    /// The object as the API server answered, where it is a workload that is followed. The View has it already.
    pub workload: Option<Arc<Workload>>,
}

struct Inner {
    client: Client,
    leadership: Leadership,
    view: Arc<View>,
    events: Option<Events>,
    settings: ActSettings,
    /// Applications are reached by this instead of the cluster.
    argo: Option<ArgoApi>,
    stats: Arc<ActStats>,
    /// When the next write may begin, where their rate is bounded.
    next: Mutex<Instant>,
    complained: Mutex<HashMap<(String, &'static str), Instant>>,
}

/// Carries actions out.
pub struct Act {
    inner: Arc<Inner>,
    tasks: JoinSet<(Ended, Option<Arc<Workload>>)>,
    actions: HashMap<Id, Action>,
    /// What did not even start.
    refused: Vec<Answer>,
    /// How many writes may be under way now: fewer while the API server says that they are too many.
    limit: usize,
    halved_at: Option<Instant>,
    since_halved: usize,
    stopping: bool,
}

impl Act {
    /// Ready to carry actions out. `client` should be [`cluster::client::Clients::calls`].
    pub fn new(
        client: Client,
        leadership: Leadership,
        view: Arc<View>,
        events: Option<Events>,
        settings: ActSettings,
    ) -> Self {
        let limit = settings.concurrency.max(1);
        let inner = Inner {
            client,
            leadership,
            view,
            events,
            settings,
            argo: None,
            stats: Arc::default(),
            next: Mutex::new(Instant::now()),
            complained: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
            tasks: JoinSet::new(),
            actions: HashMap::new(),
            refused: Vec::new(),
            limit,
            halved_at: None,
            since_halved: 0,
            stopping: false,
        }
    }

    /// Writes Applications by Argo CD's HTTP API. To be called before anything is carried out.
    #[must_use]
    pub fn with_argo(mut self, argo: ArgoApi) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.argo = Some(argo);
        }
        self
    }

    /// The counters.
    pub fn stats(&self) -> &Arc<ActStats> {
        &self.inner.stats
    }

    /// Whether one more write may start now.
    pub fn has_room(&self) -> bool {
        !self.stopping && self.tasks.len() < self.limit
    }

    /// How many writes are under way.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Starts to carry an action out; [`Self::next`] tells how it ended. Must be called within a tokio runtime.
    ///
    /// It is for the caller to hand in what [`Self::has_room`] allows, and one action per object at a time.
    pub fn submit(&mut self, action: Action) {
        if self.stopping {
            let ended = Ended::NotSent(NotSent::Stopping);
            self.inner.stats.count(action.purpose, &ended);
            self.refused.push(Answer {
                action,
                ended,
                workload: None,
            });
            return;
        }
        let inner = Arc::clone(&self.inner);
        let task = action.clone();
        let handle = self.tasks.spawn(async move { inner.carry_out(&task).await });
        self.actions.insert(handle.id(), action);
    }

    /// The next action that ended. Waits for ever while nothing is under way; may be dropped and called again.
    pub async fn next(&mut self) -> Answer {
        if let Some(answer) = self.refused.pop() {
            return answer;
        }
        loop {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                return std::future::pending().await;
            };
            let (id, ended, workload) = match joined {
                Ok((id, (ended, workload))) => (id, ended, workload),
                // A task that broke is told as a failure of its object, not of the whole product.
                Err(error) => {
                    let message = format!("unable to carry the action out: {error}");
                    (
                        error.id(),
                        Ended::Failed {
                            reason: "Internal",
                            message,
                            retry_after: None,
                        },
                        None,
                    )
                }
            };
            let Some(action) = self.actions.remove(&id) else {
                continue;
            };
            self.adapt(&ended);
            self.inner.stats.count(action.purpose, &ended);
            self.inner.log(&action, &ended);
            return Answer {
                action,
                ended,
                workload,
            };
        }
    }

    /// Takes no more actions and waits for those under way, but not longer than `limit`; what is not answered then is
    /// given up with unknown outcome. The preconditions make that harmless.
    pub async fn drain(&mut self, limit: Duration) -> Vec<Answer> {
        self.stopping = true;
        let until = Instant::now() + limit;
        let mut answers = std::mem::take(&mut self.refused);
        while !self.tasks.is_empty() {
            if let Ok(answer) = timeout_at(until, self.next()).await {
                answers.push(answer);
            } else {
                warn!(
                    unanswered = self.tasks.len(),
                    "stopping without the answers of some writes"
                );
                self.tasks.abort_all();
                while self.tasks.join_next().await.is_some() {}
                self.actions.clear();
            }
        }
        answers
    }

    /// Halves what may be under way when the API server says that it is too much, and grows again slowly.
    fn adapt(&mut self, ended: &Ended) {
        match ended {
            Ended::Failed {
                reason: "TooManyRequests",
                ..
            } => {
                self.since_halved = 0;
                // The others of the same batch say the same; they are not a new complaint.
                if self.halved_at.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
                    self.halved_at = Some(Instant::now());
                    self.limit = (self.limit / 2).max(1);
                }
            }
            Ended::Done if self.limit < self.inner.settings.concurrency => {
                self.since_halved += 1;
                if self.since_halved >= self.limit {
                    self.since_halved = 0;
                    self.limit += 1;
                }
            }
            _ => {}
        }
    }
}

impl Inner {
    async fn carry_out(&self, action: &Action) -> (Ended, Option<Arc<Workload>>) {
        if self.settings.dry_run {
            return (Ended::Done, None);
        }
        self.wait_for_turn().await;
        let body = match self.send(&action.target, &action.request).await {
            Ok(body) => body,
            Err(ended) => return (ended, None),
        };
        let workload = self.take_in(action, &body);
        if action.disown
            && let Some(workload) = &workload
        {
            self.disown(&action.target, workload).await;
        }
        if let (Some(note), Some(events)) = (&action.event, &self.events) {
            events.tell(Remark {
                object: action.target.object.clone(),
                version: Arc::clone(&action.target.version),
                uid: Arc::clone(&action.target.uid),
                action: event_action(action),
                reason: note.reason,
                note: note.message.clone(),
                warning: note.warning,
            });
        }
        (Ended::Done, workload)
    }

    /// Sends one request with a permit of the lease.
    async fn send(&self, target: &Target, request: &Request) -> Result<bytes::Bytes, Ended> {
        let what = format!("{} {} {}", verb(request), resource(target), place(&target.object));
        if let (Some(argo), Request::Patch { body, .. }, argo::GROUP) = (&self.argo, request, &*target.object.group) {
            return argo
                .patch(&target.object, body)
                .await
                .map_err(|error| of_argo(&what, &error));
        }
        let built = build(target, request).map_err(|error| Ended::Failed {
            reason: "Invalid",
            message: format!("failed to {what}: {error}"),
            retry_after: None,
        })?;
        let limit = self.settings.write_timeout;
        let permit = self.leadership.permit(limit).map_err(not_sent)?;
        match permit.run(call(&self.client, built, limit)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) => Err(of(&what, &error)),
            Err(PermitError::Unanswered) => Err(Ended::Failed {
                reason: "Timeout",
                message: format!("failed to {what}: not answered within {limit:?}, or the lease was lost meanwhile"),
                retry_after: None,
            }),
            Err(error) => Err(not_sent(error)),
        }
    }

    /// Takes the answer into the View at once, so that the next decision knows it before the watch tells.
    fn take_in(&self, action: &Action, body: &[u8]) -> Option<Arc<Workload>> {
        let (Request::Patch { dry_run: false, .. } | Request::Create(_)) = action.request else {
            return None;
        };
        let object = &action.target.object;
        let hpa = shared::hpa::kind();
        if *object.group == *hpa.group && *object.kind == *hpa.kind {
            if let Err(error) = self.view.apply_hpa_answer(body) {
                debug!(%object, %error, "answer not taken in, the watch will tell");
            }
            return None;
        }
        if self.view.workloads(&object.group, &object.kind).is_none() {
            if let Err(error) = self.view.apply_other_answer(object, body) {
                debug!(%object, %error, "answer not taken in, the watch will tell");
            }
            return None;
        }
        match self.view.apply_answer(object, body) {
            Ok(workload) => Some(workload),
            Err(error) => {
                debug!(%object, %error, "answer not taken in, the watch will tell");
                None
            }
        }
    }

    /// Gives up the ownership that our write took, where somebody uses server-side apply on the object: without this their
    /// next apply would be a conflict.
    async fn disown(&self, target: &Target, answered: &Arc<Workload>) {
        let mut facts = Arc::clone(answered);
        for attempt in 0..DISOWN_TRIES {
            let Some(body) = disown(&facts.managers) else { return };
            let request = Request::Patch {
                body,
                subresource: None,
                dry_run: false,
            };
            let why = match self.send(target, &request).await {
                Ok(body) => {
                    if let Err(error) = self.view.apply_answer(&target.object, &body) {
                        debug!(object = %target.object, %error, "answer not taken in, the watch will tell");
                    }
                    self.stats.disowned(true);
                    return;
                }
                // Nobody decides about it again: what passes is waited for here.
                Err(ended) if ended.may_pass() => ended.label(),
                Err(ended) => {
                    debug!(object = %target.object, why = ended.label(), "ownership of the knob not given up");
                    break;
                }
            };
            debug!(object = %target.object, why, "ownership of the knob not given up, trying again");
            sleep(DISOWN_PAUSE * 2_u32.pow(attempt)).await;
            // Entries moved meanwhile, or the write came through without an answer: the watch brings it.
            match self.view.workload(&target.object) {
                Some(newer) if newer.uid == facts.uid => facts = newer,
                _ => return,
            }
        }
        self.stats.disowned(false);
        warn!(
            object = %target.object,
            "failed to give up the ownership of the knob: the next `kubectl apply --server-side` may end in a conflict"
        );
    }

    /// Waits for the write's turn where their rate is bounded.
    async fn wait_for_turn(&self) {
        let Some(per_second) = self.settings.per_second else {
            return;
        };
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = (*next).max(Instant::now());
            *next = turn + Duration::from_secs(1) / per_second.max(1);
            turn
        };
        sleep_until(turn).await;
    }

    fn log(&self, action: &Action, ended: &Ended) {
        let object = &action.target.object;
        let (purpose, schedule) = (action.purpose.label(), action.schedule.as_deref().unwrap_or("none"));
        match ended {
            Ended::Done if self.settings.dry_run => {
                info!(%object, purpose, schedule, "would write (dry run)");
            }
            Ended::Done => debug!(%object, purpose, schedule, "written"),
            Ended::Conflict { message } => debug!(%object, purpose, schedule, message, "deciding again"),
            Ended::NotSent(_) => debug!(%object, purpose, schedule, why = ended.label(), "not sent"),
            Ended::Failed { reason, message, .. } => {
                let key = (resource(&action.target), *reason);
                let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
                let again = complained.get(&key).is_some_and(|at| at.elapsed() < COMPLAIN_EVERY);
                if again {
                    debug!(%object, purpose, schedule, reason, message, "not written");
                } else {
                    complained.insert(key, Instant::now());
                    drop(complained);
                    warn!(%object, purpose, schedule, reason, message, "not written, it is tried again later");
                }
            }
        }
    }
}

fn not_sent(error: PermitError) -> Ended {
    Ended::NotSent(match error {
        PermitError::TooLittleTime { .. } => NotSent::TooLittleTime,
        PermitError::NotLeader | PermitError::Unanswered => NotSent::NotLeader,
    })
}

fn place(object: &ObjectRef) -> String {
    if object.namespace.is_empty() {
        object.name.to_string()
    } else {
        format!("{}/{}", object.namespace, object.name)
    }
}

/// The `action` of an Event.
fn event_action(action: &Action) -> &'static str {
    match verb(&action.request) {
        "patch" => "Patch",
        "create" => "Create",
        _ => "Delete",
    }
}
