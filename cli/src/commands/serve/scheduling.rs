//! The scheduler: lease, engine, and what they need.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use cluster::events::{EventSettings, Events};
use prometheus_client::registry::Registry;
use scheduler::act::{Act, ActSettings};
use scheduler::beside::Beside;
use scheduler::decide::snapshot::Snapshot;
use scheduler::engine::{Engine, EngineSettings, Reporter};
use scheduler::lease::{Leadership, LeaseRunner, LeaseSettings, lease_client};
use scheduler::observe::Observer;
use shared::settings::Settings;

use super::Shared;
use crate::commands::beside;
use crate::ops::metrics::{self, Sample, Scrape, TransitionTimes};
use crate::ops::table;
use crate::process::{Stop, Tasks};

/// The times of the lease.
pub fn lease_settings(settings: &Settings, namespace: &str, identity: &str) -> LeaseSettings {
    let wanted = &settings.scheduler;
    LeaseSettings {
        lease_duration: wanted.lease_duration,
        renew_deadline: wanted.lease_renew_deadline,
        retry_period: wanted.lease_retry_period,
        call_timeout: wanted.lease_call_timeout,
        ..LeaseSettings::new(namespace, wanted.lease_name.clone(), identity)
    }
}

/// A snapshot of nothing yet, with what the settings say. `held`: the webhook runs here, so that what is down
/// is held; of one in another process nothing is known, and the careful answer is that there is none.
fn snapshot(shared: &Shared, held: bool) -> Snapshot {
    let settings = &shared.settings;
    let mut snapshot = Snapshot::new(Arc::new(settings.kinds.clone()), shared.own_namespace.clone());
    snapshot.default_replicas = u64::from(settings.default_startup_replicas);
    snapshot.finalizers = true;
    beside::configure(settings, &mut snapshot);
    // Somebody wrote the list on the namespace: that is reason enough to heed it.
    snapshot.beside.applications.discovery.manual = true;
    snapshot.beside.webhook = held;
    snapshot
}

/// The election, with its metrics.
fn elect(shared: &Shared, registry: &mut Registry) -> anyhow::Result<(LeaseRunner, Leadership)> {
    let lease = lease_settings(&shared.settings, &shared.own_namespace, &shared.identity);
    let client = lease_client(shared.clients.config().clone(), lease.call_timeout)
        .context("failed to make a client for the lease")?;
    let (runner, leadership) = LeaseRunner::new(client, lease, Arc::clone(&shared.clock));
    let stats = runner.stats();
    let leads = leadership.changes();
    registry.register_collector(Box::new(Scrape(move || {
        let count = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed) as f64;
        vec![
            Sample::one(&table::LEADER, f64::from(leads.borrow().leading)),
            Sample::one(&table::LEASE_RENEWALS, count(&stats.renewed)),
            Sample::one(&table::LEASE_LOSSES, count(&stats.lost)),
            Sample::one(&table::LEASE_FAILURES, count(&stats.failures)),
        ]
    })));
    Ok((runner, leadership))
}

/// Starts it.
///
/// # Errors
/// If no client for the lease can be made.
pub fn start(
    shared: &Shared,
    company: Beside,
    held: bool,
    tasks: &mut Tasks,
    registry: &mut Registry,
) -> anyhow::Result<()> {
    let settings = &shared.settings;
    let (runner, leadership) = elect(shared, registry)?;
    let (events, event_task) = Events::start(
        shared.clients.calls.clone(),
        Arc::clone(&shared.clock),
        EventSettings::new("offhours.platform.io/scheduler", shared.identity.clone()),
    );
    let act = Act::new(
        shared.clients.calls.clone(),
        leadership.clone(),
        Arc::clone(&shared.view),
        Some(events.clone()),
        ActSettings {
            concurrency: settings.scheduler.write_concurrency,
            per_second: settings.scheduler.write_rate,
            write_timeout: settings.scheduler.write_timeout,
            dry_run: settings.dry_run,
        },
    );
    let stats = Arc::clone(act.stats());
    registry.register_collector(Box::new(Scrape(move || {
        let values = stats
            .counts()
            .into_iter()
            .map(|(purpose, ended, count)| {
                let labels = vec![("purpose", purpose.to_owned()), ("result", ended.to_owned())];
                (labels, count as f64)
            })
            .collect();
        vec![Sample::of(&table::WRITES, values)]
    })));
    let snapshot = snapshot(shared, held);
    let observer = Observer::new(Arc::clone(&shared.view), Arc::clone(&shared.schedules), snapshot);
    let observer = observer.with(company);
    let reporter = Reporter::new(
        shared.clients.calls.clone(),
        leadership.clone(),
        settings.scheduler.write_timeout,
    );
    let engine = Engine::new(
        Arc::clone(&shared.view),
        observer,
        act,
        leadership,
        Arc::clone(&shared.clock),
        Some(events),
        Some(reporter),
        EngineSettings {
            write_timeout: settings.scheduler.write_timeout,
            // The lease is given back, and Events are sent, in what is left of the time.
            drain: settings.drain_timeout.mul_f32(0.7),
            dry_run: settings.dry_run,
        },
    );
    let ledger = engine.ledger().clone();
    registry.register_collector(Box::new(TransitionTimes::new(ledger.clone())));
    registry.register_collector(Box::new(Scrape(move || metrics::ledger(&ledger))));
    let stopped = shared.stop.wanted();
    tasks.spawn("scheduler", async move {
        // From the moment that the lease is given back another one may lead: writers end first.
        let written = Stop::default();
        let mut lease = tokio::spawn(runner.run(written.wanted()));
        tokio::select! {
            () = engine.run(stopped) => {}
            // Without an election this process would never lead again and look well.
            ended = &mut lease => anyhow::bail!("the election ended before its time: {ended:?}"),
        }
        written.say();
        lease.await.context("the lease broke off")?;
        drop(event_task);
        Ok(())
    });
    Ok(())
}
