//! `offhours shutdown`, `offhours startup`, and `offhours` with K8s-OffHours' environment: one pass, and the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cluster::events::{EventSettings, Events};
use cluster::follow::{Follower, Scope};
use cluster::reflector::Pace;
use cluster::schedules::ScheduleSource;
use scheduler::act::{Act, ActSettings};
use scheduler::decide::action::Purpose as Why;
use scheduler::decide::decide;
use scheduler::decide::memory::Memory;
use scheduler::decide::snapshot::{Forced, Snapshot};
use scheduler::lease::{Leadership, new_identity};
use scheduler::observe::Observer;
use scheduler::pass::{Summary, check_schedule, pass};
use serde::Serialize;
use shared::clock::Clock;
use shared::schedule::State;
use shared::settings::{OneShot, OneShotAction, Purpose, Settings};
use shared::workload::ObjectRef;

use super::Outcome;
use super::beside;
use super::plan::{Planned, planned};
use super::tool::{self, Output, Refused};
use crate::clock::SystemClock;
use crate::flags::{OfOnePass, Options};
use crate::{logs, process, sources};

/// The longest that a pass may take, waves included.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// The longest that Events are waited for at the end.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// The longest that the first listing may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Arguments of `offhours shutdown` and `offhours startup`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Write an answer to standard output in this form, besides the log
    #[arg(short, long, value_enum)]
    output: Option<Output>,

    #[command(flatten)]
    options: Options<OfOnePass>,
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    action: &'static str,
    schedule: String,
    dry_run: bool,
    /// What was written.
    done: Vec<Written>,
    /// A dry run: what would be written.
    writes: Vec<Planned>,
    skipped: Vec<Left>,
    failed: Vec<Left>,
    /// Why Applications could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

#[derive(Debug, Serialize)]
struct Written {
    kind: String,
    namespace: String,
    name: String,
    purpose: &'static str,
}

#[derive(Debug, Serialize)]
struct Left {
    kind: String,
    namespace: String,
    name: String,
    reason: &'static str,
    message: String,
}

impl Left {
    fn of((object, reason, message): &(ObjectRef, &'static str, String)) -> Self {
        Self {
            kind: object.kind.to_string(),
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
            reason: *reason,
            message: message.clone(),
        }
    }
}

impl Answer {
    fn of(one_shot: &OneShot) -> Self {
        Self {
            action: one_shot.action.as_str(),
            schedule: one_shot.schedule.name.clone(),
            dry_run: false,
            done: Vec::new(),
            writes: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            unreadable: None,
        }
    }

    fn of_pass(one_shot: &OneShot, summary: &Summary, unseen: Option<&str>) -> Self {
        let written = |(object, why): &(ObjectRef, Why)| Written {
            kind: object.kind.to_string(),
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
            purpose: why.label(),
        };
        Self {
            done: summary.done.iter().map(written).collect(),
            skipped: summary.skipped.iter().map(Left::of).collect(),
            failed: summary.failed.iter().map(Left::of).collect(),
            unreadable: unseen.map(ToString::to_string),
            ..Self::of(one_shot)
        }
    }

    fn table(&self) -> String {
        let place = |kind: &str, namespace: &str, name: &str| {
            vec![namespace.to_owned(), format!("{}/{name}", kind.to_ascii_lowercase())]
        };
        let mut rows = Vec::new();
        let mut add = |mut row: Vec<String>, result: &str, why: &str| {
            row.extend([result.to_owned(), why.to_owned()]);
            rows.push(row);
        };
        for one in &self.done {
            add(place(&one.kind, &one.namespace, &one.name), "done", one.purpose);
        }
        for (all, result) in [(&self.skipped, "skipped"), (&self.failed, "failed")] {
            for one in all {
                let why = format!("{} ({})", one.message, one.reason);
                add(place(&one.kind, &one.namespace, &one.name), result, &why);
            }
        }
        let mut text = tool::table(&["NAMESPACE", "OBJECT", "RESULT", "WHY"], &rows);
        for write in &self.writes {
            text.extend(["would ", &write.line(), "\n"]);
        }
        text
    }
}

/// Runs one pass because a command says so.
///
/// # Errors
/// If the cluster cannot be reached or the pass must not be made.
pub fn asked(arguments: &Arguments, action: OneShotAction) -> anyhow::Result<Outcome> {
    run(&arguments.options, Some(action), arguments.output)
}

/// Runs one pass. `action`: what the command says; `None`: what `ACTION` says. `output`: how an answer is written, if one is.
///
/// # Errors
/// If the cluster cannot be reached or the pass must not be made.
pub fn run(
    options: &Options<OfOnePass>,
    action: Option<OneShotAction>,
    output: Option<Output>,
) -> anyhow::Result<Outcome> {
    // K8s-OffHours' users know 0 and 1.
    let unusable = if action.is_none() {
        Outcome::Failed
    } else {
        Outcome::Usage
    };
    let settings = match sources::settings(Purpose::OneShot(action), options) {
        Ok(settings) => settings,
        Err(wrong) => {
            wrong.tell();
            return Ok(unusable);
        }
    };
    if let Err(wrong) = logs::start(&settings, false) {
        sources::WrongSettings::one(wrong).tell();
        return Ok(unusable);
    }
    logs::tell_settings(&settings);
    let Some(one_shot) = settings.one_shot.clone() else {
        anyhow::bail!("there is no action");
    };
    let from_environment = one_shot.from_environment;
    let result = tool::block_on(one_pass(&settings, &one_shot, output), |outcome| outcome);
    match result {
        Ok(Outcome::Partly | Outcome::Usage) if from_environment => Ok(Outcome::Failed),
        // In the log, too: that is where a CronJob's user looks.
        Err(error) => {
            tracing::error!("{error:#}");
            Ok(Outcome::Failed)
        }
        other => other,
    }
}

async fn one_pass(settings: &Settings, one_shot: &OneShot, output: Option<Output>) -> Result<Outcome, Refused> {
    let own_namespace = sources::own_namespace(settings)?;
    let stop = process::stop_at_signals().map_err(Refused::Failed)?;
    let clients = tool::connect(settings).await?;
    let scope = if settings.cluster.namespaces.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespaces(settings.cluster.namespaces.clone())
    };
    let follower = Follower::start(clients.watches.clone(), settings.kinds.clone(), scope, Pace::default());
    let view = Arc::clone(follower.view());
    let source = Arc::new(ScheduleSource::new(
        Arc::clone(&view),
        vec![one_shot.schedule.clone()],
        None,
    ));
    let company = beside::follow(&follower, settings, &own_namespace);
    let compiled = one_shot.schedule.compile(&BTreeMap::new());
    for kind in settings.kinds.rows() {
        if compiled.includes(kind).is_some() {
            follower.follow_kind(kind);
        }
    }
    let listed = tokio::select! {
        listed = tokio::time::timeout(PATIENCE, view.filled()) => listed,
        () = stop.wanted() => return Err(Refused::Failed(anyhow::anyhow!("stopped before anything was done"))),
    };
    listed.map_err(|_| {
        Refused::Failed(anyhow::anyhow!(
            "after {PATIENCE:?} the cluster is not listed: {}",
            view.unfilled().join(", ")
        ))
    })?;
    for blind in super::look::blind_spots(&view) {
        // A kind that cannot be listed would look as if there were none.
        if blind.contains("deployments") {
            return Err(Refused::Failed(anyhow::anyhow!("cannot read {blind}")));
        }
        tracing::warn!("cannot read {blind}");
    }
    let name = &one_shot.schedule.name;
    check_schedule(&source.current().schedules, name).map_err(|error| Refused::Failed(error.into()))?;

    let mut snapshot = Snapshot::new(Arc::new(settings.kinds.clone()), own_namespace);
    snapshot.default_replicas = u64::from(settings.default_startup_replicas);
    snapshot.forced = Some(Forced {
        schedule: Arc::from(name.as_str()),
        state: match one_shot.action {
            OneShotAction::Shutdown => State::Down,
            OneShotAction::Startup => State::Up,
        },
        since: SystemClock.now(),
    });
    beside::configure(settings, &mut snapshot);
    let told = company.applications().cloned();
    let feed = beside::argo_by_api(settings, name, &view, told, &mut snapshot)
        .await
        .map_err(Refused::Failed)?;
    let mut observer = Observer::new(Arc::clone(&view), source, snapshot).with(company);
    if settings.dry_run {
        let _ = observer.refresh();
        return Ok(dry_run(&observer, one_shot, output)?);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (events, event_task) = Events::start(
        clients.calls.clone(),
        Arc::clone(&clock),
        EventSettings::new("offhours.platform.io/one-pass", new_identity("offhours")),
    );
    let mut act = Act::new(
        clients.calls.clone(),
        Leadership::alone(),
        Arc::clone(&view),
        Some(events),
        ActSettings {
            concurrency: settings.scheduler.write_concurrency,
            per_second: settings.scheduler.write_rate,
            write_timeout: settings.scheduler.write_timeout,
            dry_run: false,
        },
    );
    if let Some(feed) = &feed {
        act = act.with_argo(feed.api.clone());
    }
    let summary = pass(&view, &mut observer, &mut act, &*clock, false, LIMIT, stop.wanted()).await;
    // With the last handle: then the task ends when everything is told.
    drop(act);
    event_task.finish(LAST_WORDS).await;
    let unseen = feed
        .as_ref()
        .and_then(|_| observer.snapshot().beside.argo_sight.as_ref().err());
    let unseen = unseen.map(AsRef::as_ref);
    let outcome = tell(&summary, one_shot, unseen);
    if let Some(output) = output {
        let answer = Answer::of_pass(one_shot, &summary, unseen);
        tool::answer(output, &answer, || answer.table())?;
    }
    Ok(outcome)
}

/// The plan that a real run would carry out, from the same decision.
fn dry_run(observer: &Observer, one_shot: &OneShot, output: Option<Output>) -> anyhow::Result<Outcome> {
    let decision = decide(observer.snapshot(), &Memory::default(), SystemClock.now());
    let now = decision.actions.iter().map(|action| (action, false));
    let later = decision.waiting.iter().map(|action| (action, true));
    let mut writes = Vec::new();
    for (action, waits) in now.chain(later) {
        let write = planned(action, waits);
        tracing::info!(target: logs::PLAN, "would {}", write.line());
        for line in write.lines() {
            tracing::info!(target: logs::PLAN, "    {line}");
        }
        writes.push(write);
    }
    for (object, skip) in &decision.skips {
        tracing::info!(target: logs::PLAN, "would skip {object}: {} ({})", skip.message, skip.reason);
    }
    tracing::info!(
        target: logs::PLAN,
        "{} of schedule {}: {} to write, {} skipped; nothing was changed",
        one_shot.action.as_str(),
        one_shot.schedule.name,
        writes.len(),
        decision.skips.len()
    );
    if let Some(output) = output {
        let skips = decision.skips.into_iter();
        let skipped = skips.map(|(object, skip)| Left::of(&(object, skip.reason, skip.message)));
        let answer = Answer {
            dry_run: true,
            writes,
            skipped: skipped.collect(),
            ..Answer::of(one_shot)
        };
        tool::answer(output, &answer, || answer.table())?;
    }
    Ok(Outcome::Done)
}

/// `unseen`: why the Applications could not be read. Whatever else was done, none of them was paused or resumed.
fn tell(summary: &Summary, one_shot: &OneShot, unseen: Option<&str>) -> Outcome {
    for (object, why) in &summary.done {
        tracing::info!("{}: {}", place(object), told(*why));
    }
    for (object, reason, message) in &summary.skipped {
        tracing::warn!("{}: skipped: {message} ({reason})", place(object));
    }
    for (object, reason, message) in &summary.failed {
        tracing::error!("{}: failed: {message} ({reason})", place(object));
    }
    tracing::info!(
        "{} of schedule {} is done: {} written, {} skipped, {} failed",
        one_shot.action.as_str(),
        one_shot.schedule.name,
        summary.done.len(),
        summary.skipped.len(),
        summary.failed.len()
    );
    if let Some(why) = unseen {
        tracing::error!(
            "no Application was paused or resumed, since they cannot be read: {why}; mend that and run this again"
        );
    }
    if summary.failed.is_empty() && unseen.is_none() {
        Outcome::Done
    } else if summary.done.is_empty() {
        Outcome::Failed
    } else {
        Outcome::Partly
    }
}

fn place(object: &ObjectRef) -> String {
    format!(
        "{}/{} in {}",
        object.kind.to_ascii_lowercase(),
        object.name,
        object.namespace
    )
}

fn told(why: Why) -> &'static str {
    match why {
        Why::Down | Why::DownAgain => "put to sleep",
        Why::Restore => "restored",
        Why::Forget => "its record was removed; it is not where it was put",
        Why::PutBack => "its record was put back",
        Why::Adjust => "what is held was adjusted",
        Why::FixInstant => "a duration became an instant",
        Why::SkipMissedRuns => "its missed runs are skipped",
        Why::Autoscaler => "its autoscaler was changed",
        Why::Pause => "paused",
        Why::Resume => "resumed",
        Why::Backup => "a backup was written or removed",
        Why::Finalizer => "a finalizer was added or removed",
    }
}
