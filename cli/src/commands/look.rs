//! One look at the cluster, with the same eyes and the same `decide` as the scheduler: what is shown is what would happen.

use std::sync::Arc;
use std::time::Duration;

use cluster::follow::{Follower, Scope};
use cluster::reflector::Pace;
use cluster::schedules::{ScheduleSource, calendar_source};
use cluster::store::SourceState;
use cluster::view::View;
use jiff::Timestamp;
use scheduler::decide::assess::Assessment;
use scheduler::decide::decider::Decider;
use scheduler::decide::memory::Memory;
use scheduler::decide::snapshot::{Dirty, Snapshot};
use scheduler::decide::{Decision, decide};
use scheduler::observe::Observer;
use shared::workload::{ObjectRef, Workload};

use super::beside;
use super::tool::{Refused, Tool};
use crate::sources;

/// The longest that the first listing may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was seen, and what follows from it.
pub struct Look {
    /// The cluster.
    pub view: Arc<View>,
    observer: Observer,
    decider: Decider,
    // Reflectors end with it.
    _follower: Follower,
}

impl Look {
    /// Looks at everything.
    ///
    /// # Errors
    /// If the cluster does not answer, or something must not be read.
    pub async fn at(tool: &Tool) -> Result<Self, Refused> {
        let own_namespace = sources::own_namespace(&tool.settings)?;
        let scope = if tool.settings.cluster.namespaces.is_empty() {
            Scope::Cluster
        } else {
            Scope::Namespaces(tool.settings.cluster.namespaces.clone())
        };
        let follower = Follower::start(
            tool.clients.watches.clone(),
            tool.settings.kinds.clone(),
            scope,
            Pace::default(),
        );
        let view = Arc::clone(follower.view());
        let calendars = follower.follow(calendar_source(&own_namespace));
        let source = Arc::new(ScheduleSource::new(
            Arc::clone(&view),
            tool.settings.schedules.clone(),
            Some(calendars),
        ));
        filled(&view).await?;
        // Which kinds matter is said by the schedules, so these come first.
        let schedules = Arc::clone(&source.current().schedules);
        for kind in tool.settings.kinds.rows() {
            let named = schedules.iter().any(|schedule| schedule.includes(kind).is_some());
            if named || kind.by_default == shared::kinds::ByDefault::Yes {
                follower.follow_kind(kind);
            }
        }
        let company = beside::follow(&follower, &tool.settings, &own_namespace);
        filled(&view).await?;
        let mut snapshot = Snapshot::new(Arc::new(tool.settings.kinds.clone()), own_namespace);
        snapshot.default_replicas = u64::from(tool.settings.default_startup_replicas);
        beside::configure(&tool.settings, &mut snapshot);
        let observer = Observer::new(Arc::clone(&view), source, snapshot).with(company);
        Ok(Self {
            view,
            observer,
            decider: Decider::new(Memory::default()),
            _follower: follower,
        })
    }

    /// Decides for an instant.
    pub fn decide(&mut self, now: Timestamp) {
        let _ = self.observer.refresh();
        self.decider.update(self.observer.snapshot(), &Dirty::everything(), now);
    }

    /// What the scheduler would do at that instant, if it started then.
    pub fn decision(&self, now: Timestamp) -> Decision {
        decide(self.observer.snapshot(), &Memory::default(), now)
    }

    /// What was seen.
    pub fn snapshot(&self) -> &Snapshot {
        self.observer.snapshot()
    }

    /// All workloads that concern us, with what was found about them.
    pub fn assessments(&self) -> impl Iterator<Item = (&ObjectRef, &Assessment)> {
        self.decider.assessments()
    }

    /// What was found about one.
    pub fn assessment(&self, object: &ObjectRef) -> Option<&Assessment> {
        self.decider.assessment(object)
    }

    /// One workload.
    pub fn workload(&self, object: &ObjectRef) -> Option<&Arc<Workload>> {
        self.observer.snapshot().workload(object)
    }

    /// For a pass.
    pub fn observer_mut(&mut self) -> &mut Observer {
        &mut self.observer
    }

    /// What could not be read, for people.
    pub fn blind_spots(&self) -> Vec<String> {
        blind_spots(&self.view)
    }
}

/// What cannot be read, for people.
pub fn blind_spots(view: &View) -> Vec<String> {
    view.sources()
        .iter()
        .filter_map(|source| match source.state() {
            SourceState::Forbidden { message } | SourceState::Failing { message, .. } => {
                Some(format!("{}: {message}", source.resource()))
            }
            _ => None,
        })
        .collect()
}

async fn filled(view: &Arc<View>) -> Result<(), Refused> {
    tokio::time::timeout(PATIENCE, view.filled()).await.map_err(|_| {
        let troubles: Vec<String> = view
            .sources()
            .iter()
            .filter_map(|source| match source.state() {
                SourceState::Unfilled { trouble } => Some(match trouble {
                    Some(trouble) => format!("{}: {trouble}", source.resource()),
                    None => source.resource().to_string(),
                }),
                _ => None,
            })
            .collect();
        Refused::Failed(anyhow::anyhow!(
            "after {PATIENCE:?} not everything is listed: {}",
            troubles.join("; ")
        ))
    })
}
