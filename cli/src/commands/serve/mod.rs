//! `offhours run`, `offhours scheduler` and `offhours webhook`: the long-running servers.

mod dev;
mod ears;
mod scheduling;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cluster::client::Clients;
use cluster::follow::{Follower, Scope};
use cluster::reflector::Pace;
use cluster::schedules::{Compiled, ScheduleSource, calendar_source};
use cluster::store::SourceState;
use cluster::view::View;
use prometheus_client::registry::Registry;
use scheduler::lease::new_identity;
use shared::clock::Clock;
use shared::kinds::{ByDefault, Kind, Kinds};
use shared::settings::{Purpose, Settings};

use super::{Outcome, tool};
use crate::clock::SystemClock;
use crate::commands::beside;
use crate::flags::{OfServers, Options};
use crate::ops::gates::Gates;
use crate::ops::metrics::{self, Scrape};
use crate::ops::table::PREFIX;
use crate::ops::{self, Ops};
use crate::process::{Stop, Tasks};
use crate::{logs, sources};

/// Which servers.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    scheduler: bool,
    webhook: bool,
}

impl Parts {
    /// Both, on one view.
    pub const BOTH: Self = Self {
        scheduler: true,
        webhook: true,
    };
    /// The scheduler alone.
    pub const SCHEDULER: Self = Self {
        scheduler: true,
        webhook: false,
    };
    /// The webhook alone.
    pub const WEBHOOK: Self = Self {
        scheduler: false,
        webhook: true,
    };
}

/// Runs the servers until a signal.
///
/// # Errors
/// If one of them cannot start or fails.
pub fn run(options: &Options<OfServers>, parts: Parts) -> anyhow::Result<Outcome> {
    let settings = match sources::settings(Purpose::Server, options) {
        Ok(settings) => settings,
        Err(wrong) => {
            wrong.tell();
            return Ok(Outcome::Usage);
        }
    };
    if let Err(wrong) = logs::start(&settings, true) {
        sources::WrongSettings::one(wrong).tell();
        return Ok(Outcome::Usage);
    }
    logs::tell_settings(&settings);
    if parts.scheduler
        && let Err(wrong) = scheduling::lease_settings(&settings, "x", "x").validate(settings.scheduler.write_timeout)
    {
        sources::WrongSettings::one(format!("the times of the lease do not fit each other: {wrong}")).tell();
        return Ok(Outcome::Usage);
    }
    if settings.webhook.dev && (parts.scheduler || !parts.webhook) {
        sources::WrongSettings::one(
            "--dev (OFFHOURS_DEV) serves the webhook alone from this machine; use `offhours webhook --dev`".to_owned(),
        )
        .tell();
        return Ok(Outcome::Usage);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(serve(settings, parts))?;
    Ok(Outcome::Done)
}

/// What all servers share.
struct Shared {
    settings: Settings,
    clients: Clients,
    own_namespace: String,
    /// Unique per process.
    identity: String,
    clock: Arc<dyn Clock>,
    view: Arc<View>,
    schedules: Arc<ScheduleSource>,
    gates: Gates,
    stop: Stop,
}

async fn serve(settings: Settings, parts: Parts) -> anyhow::Result<()> {
    let own_namespace = sources::own_namespace(&settings)?;
    // What can be refused at once is refused before anything is asked of the cluster.
    let ops_listener = match settings.ops_address {
        Some(address) => Some(ops::listen(address, "probes and metrics", "ops-address", "OFFHOURS_OPS_ADDRESS").await?),
        None => None,
    };
    let webhook_listener = if parts.webhook {
        Some(webhook::listen(&settings)?)
    } else {
        None
    };
    let clients = tool::connect(&settings).await?;
    let drain = settings.drain_timeout;
    let stop = Stop::default();
    let mut tasks = Tasks::new(stop.clone());
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Scrape(|| vec![metrics::build()])));

    let scope = if settings.cluster.namespaces.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespaces(settings.cluster.namespaces.clone())
    };
    let follower = Follower::start_renewing(&clients, settings.kinds.clone(), scope, Pace::default());
    let view = Arc::clone(follower.view());
    let seen = Arc::clone(&view);
    registry.register_collector(Box::new(Scrape(move || metrics::view(&seen))));
    let calendars = follower.follow(calendar_source(&own_namespace));
    let schedules = Arc::new(ScheduleSource::new(
        Arc::clone(&view),
        settings.schedules.clone(),
        Some(calendars),
    ));
    let host = settings
        .scheduler
        .identity
        .clone()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "offhours".to_owned());
    let shared = Shared {
        identity: new_identity(&host),
        clock: Arc::new(SystemClock),
        gates: Gates::default(),
        settings,
        clients,
        own_namespace,
        view,
        schedules,
        stop,
    };
    let (source, clock) = (Arc::clone(&shared.schedules), Arc::clone(&shared.clock));
    registry.register_collector(Box::new(Scrape(move || metrics::schedules(&source, &*clock))));
    gates(&shared);
    follow_kinds(&follower, &shared);
    let company = parts
        .scheduler
        .then(|| beside::follow(&follower, &shared.settings, &shared.own_namespace));
    let (source, view, stop) = (
        Arc::clone(&shared.schedules),
        Arc::clone(&shared.view),
        shared.stop.clone(),
    );
    let rows = shared.settings.kinds.clone();
    tasks.spawn("kinds", async move {
        // Reflectors end with their follower, so it lives here until the end.
        follow_named_kinds(&follower, &view, &source, &rows, stop).await;
        Ok(())
    });
    tasks.spawn(
        "crd watch",
        tell_missing_crd(Arc::clone(&shared.view), shared.stop.clone()),
    );

    if let Some(company) = company {
        scheduling::start(&shared, company, parts.webhook, &mut tasks, &mut registry)?;
    }
    if let Some(listener) = webhook_listener {
        webhook::start(&shared, listener, &mut tasks, &mut registry).await?;
    }
    if let Some(listener) = ops_listener {
        let ops = Ops {
            gates: shared.gates.clone(),
            alive: alive(&shared.view),
            registry: Arc::new(registry),
        };
        tasks.spawn("ops server", ops::serve(listener, ops, shared.stop.wanted()));
    }
    tasks.run(drain).await
}

/// Kinds that are watched from the start: those that sleep by default, and those that schedules of the settings name.
fn follow_kinds(follower: &Follower, shared: &Shared) {
    let compiled = shared.schedules.current();
    for kind in shared.settings.kinds.rows() {
        if kind.by_default == ByDefault::Yes || is_named(&compiled, kind) {
            follower.follow_kind(kind);
        }
    }
}

fn is_named(compiled: &Compiled, kind: &Kind) -> bool {
    compiled
        .schedules
        .iter()
        .any(|schedule| schedule.includes(kind).is_some())
}

/// Follows kinds that a schedule of the cluster begins to name. A kind that is followed stays so: what sleeps of it must be
/// woken even when nobody names it any more.
async fn follow_named_kinds(follower: &Follower, view: &Arc<View>, source: &ScheduleSource, kinds: &Kinds, stop: Stop) {
    let stopped = stop.wanted();
    tokio::pin!(stopped);
    let Some(schedules) = view.schedules() else {
        stopped.await;
        return;
    };
    let mut stirred = schedules.stirred();
    loop {
        let compiled = source.current();
        for kind in kinds.rows() {
            if is_named(&compiled, kind) {
                follower.follow_kind(kind);
            }
        }
        tokio::select! {
            () = &mut stopped => return,
            changed = stirred.changed() => if changed.is_err() {
                stopped.await;
                return;
            },
        }
    }
}

/// What only a restart, with credentials read anew from wherever they come, may mend.
fn alive(view: &Arc<View>) -> Gates {
    /// How long a cluster may refuse our credentials: they are read anew meanwhile.
    const PATIENCE: Duration = Duration::from_secs(300);
    let alive = Gates::default();
    let seen = Arc::clone(view);
    alive.add("credentials", move || match seen.unauthorized_for() {
        Some(time) if time >= PATIENCE => Err(format!(
            "the API server has answered everything with 401 for {} s: check the service account token or the kubeconfig",
            time.as_secs()
        )),
        _ => Ok(()),
    });
    alive
}

/// What must be known of the cluster before anybody relies on us.
fn gates(shared: &Shared) {
    let (gates, view) = (&shared.gates, &shared.view);
    let own_schedules = !shared.settings.schedules.is_empty();
    // Whoever leaves must get no new requests while it still answers those that come.
    let leaving = shared.stop.clone();
    gates.add("running", move || {
        if leaving.is_said() {
            Err("stopping".to_owned())
        } else {
            Ok(())
        }
    });
    let seen = Arc::clone(view);
    gates.add("view", move || {
        let unfilled = seen.unfilled();
        if unfilled.is_empty() {
            Ok(())
        } else {
            Err(format!("not listed yet: {}", unfilled.join(", ")))
        }
    });
    let seen = Arc::clone(view);
    gates.add("schedules", move || {
        match seen.schedules().map(|schedules| schedules.state()) {
            Some(SourceState::Absent) if !own_schedules => Err(MISSING_CRD.to_owned()),
            Some(SourceState::Forbidden { message }) => Err(message.to_string()),
            _ => Ok(()),
        }
    });
}

const MISSING_CRD: &str = "the CustomResourceDefinition offhoursschedules.offhours.platform.io is not installed; install it \
                           with the chart, or by `offhours crd | kubectl apply -f -`. Until then nothing is written and \
                           nothing held on behalf of custom resources";

/// Says loudly, again and again, that the CRD is missing. It is waited for, and found without a restart.
async fn tell_missing_crd(view: Arc<View>, stop: Stop) -> anyhow::Result<()> {
    const AGAIN: Duration = Duration::from_secs(60);
    let stopped = stop.wanted();
    tokio::pin!(stopped);
    let Some(schedules) = view.schedules() else {
        stopped.await;
        return Ok(());
    };
    let mut stirred = schedules.stirred();
    let mut missing = false;
    loop {
        match schedules.state() {
            SourceState::Absent => {
                missing = true;
                tracing::warn!("{MISSING_CRD}");
            }
            SourceState::Filled if missing => {
                missing = false;
                tracing::info!("the CustomResourceDefinition of OffHoursSchedule is there now");
            }
            _ => {}
        }
        let before = schedules.state();
        let news = async {
            while schedules.state() == before {
                if stirred.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = &mut stopped => return Ok(()),
            () = news => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}
