//! One look at the cluster, with the same eyes and the same `decide` as the scheduler: what is shown is what would happen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::follow::{Follower, Scope};
use cluster::reflector::Pace;
use cluster::schedules::{Compiled, ScheduleSource, calendar_source};
use cluster::store::SourceState;
use cluster::view::View;
use http::Method;
use jiff::Timestamp;
use scheduler::beside::{Beside, Following};
use scheduler::decide::assess::Assessment;
use scheduler::decide::decider::Decider;
use scheduler::decide::memory::Memory;
use scheduler::decide::snapshot::{Dirty, Snapshot};
use scheduler::decide::{Decision, decide};
use scheduler::observe::Observer;
use serde_json::{Value, json};
use shared::kinds::Kind;
use shared::workload::{Namespace, ObjectRef, Workload};

use super::beside;
use super::tool::{AllNamespaces, Refused, Tool};
use crate::sources;

/// The longest that the first listing may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was seen, and what follows from it.
pub struct Look {
    /// The cluster.
    pub view: Arc<View>,
    observer: Observer,
    decider: Decider,
    /// The one namespace that was looked at, since its person has no rights in others.
    narrow: Option<String>,
    /// The one namespace that is shown.
    only: Option<String>,
    /// What could not be read outside the view.
    unread: Vec<String>,
    // Reflectors end with it.
    _follower: Follower,
}

impl Look {
    /// Looks at everything that the product looks at.
    ///
    /// # Errors
    /// If the cluster does not answer, or something must not be read.
    pub async fn at(tool: &Tool) -> Result<Self, Refused> {
        let scope = if tool.settings.cluster.namespaces.is_empty() {
            Scope::Cluster
        } else {
            Scope::Namespaces(tool.settings.cluster.namespaces.clone())
        };
        Self::within(tool, scope).await
    }

    /// Looks at what this person may see: at everything, or, with rights in one namespace only, at the namespace that is meant.
    /// With `-n`, that namespace alone is shown; with `-A`, less than everything is an error.
    ///
    /// # Errors
    /// If the cluster does not answer, or something must not be read.
    pub async fn as_far_as_one_may(tool: &Tool, all: &AllNamespaces) -> Result<Self, Refused> {
        let whole = !tool.settings.cluster.namespaces.is_empty() || may_list_everywhere(tool).await;
        if all.all_namespaces && !whole {
            return Err(Refused::Failed(anyhow::anyhow!(
                "this account may not list Deployments, StatefulSets and namespaces in the whole cluster; leave --all-namespaces out to see \
                 namespace {:?} alone",
                tool.namespace
            )));
        }
        let mut look = if whole {
            Self::at(tool).await?
        } else {
            Self::within(tool, Scope::Namespace(tool.namespace.clone())).await?
        };
        look.only.clone_from(&tool.only);
        Ok(look)
    }

    async fn within(tool: &Tool, scope: Scope) -> Result<Self, Refused> {
        let own_namespace = sources::own_namespace(&tool.settings)?;
        let narrow = match &scope {
            Scope::Namespace(name) => Some(name.clone()),
            Scope::Cluster | Scope::Namespaces(_) => None,
        };
        let follower = Follower::start(
            tool.clients.watches.clone(),
            tool.settings.kinds.clone(),
            scope,
            Pace::default(),
        );
        let view = Arc::clone(follower.view());
        let mut unread = Vec::new();
        let mut served = None;
        if let Some(name) = &narrow {
            match namespace(tool, name).await? {
                Ok(found) => drop(view.namespaces().apply_answer(found)),
                Err(why) => unread.push(why),
            }
            // A kind that is not there may not be listed either: only this tells the two apart.
            served = group_versions(tool).await;
        }
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
            if served.as_ref().is_some_and(|served| !is_served(kind, served)) {
                continue;
            }
            if named || kind.by_default == shared::kinds::ByDefault::Yes {
                follower.follow_kind(kind);
            }
        }
        let company = if narrow.is_some() {
            Beside::follow(&follower, &own_namespace, Following::Nothing)
        } else {
            beside::follow(&follower, &tool.settings, &own_namespace)
        };
        filled(&view).await?;
        let mut snapshot = Snapshot::new(Arc::new(tool.settings.kinds.clone()), own_namespace);
        snapshot.default_replicas = u64::from(tool.settings.default_startup_replicas);
        beside::configure(&tool.settings, &mut snapshot);
        let observer = Observer::new(Arc::clone(&view), source, snapshot).with(company);
        Ok(Self {
            view,
            observer,
            decider: Decider::new(Memory::default()),
            narrow,
            only: None,
            unread,
            _follower: follower,
        })
    }

    /// The one namespace that is shown; `None`: all.
    pub fn only(&self) -> Option<&str> {
        self.only.as_deref().or(self.narrow.as_deref())
    }

    /// Whether this is shown: with one namespace, what is in it, and the namespace itself.
    pub fn shows(&self, object: &ObjectRef) -> bool {
        self.only().is_none_or(|only| {
            *object.namespace == *only
                || (object.namespace.is_empty() && *object.kind == *"Namespace" && *object.name == *only)
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

    /// All workloads that concern us and are shown, with what was found about them.
    pub fn assessments(&self) -> impl Iterator<Item = (&ObjectRef, &Assessment)> {
        self.decider.assessments().filter(|(object, _)| self.shows(object))
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

    /// The schedules as they were read, with what the product reports on them.
    pub fn compiled(&self) -> &Compiled {
        self.observer.compiled()
    }

    /// What could not be read, for people.
    pub fn blind_spots(&self) -> Vec<String> {
        let mut spots = self.unread.clone();
        let calendars = self.narrow.is_none() || self.names_calendars();
        spots.extend(
            blind_spots(&self.view)
                .into_iter()
                .filter(|spot| calendars || !spot.starts_with("configmaps:")),
        );
        spots
    }

    fn names_calendars(&self) -> bool {
        let resources = self.compiled().resources.values();
        resources
            .filter_map(|item| item.object.as_ref().ok())
            .any(|object| !object.spec.calendars.is_empty())
    }

    /// What was left out on purpose, for people.
    pub fn limits(&self) -> Option<String> {
        self.narrow.as_ref().map(|name| {
            format!(
                "you may not list workloads of the whole cluster: this is about namespace {name:?} alone (another one: -n), \
                 without Argo CD Applications and Flux objects"
            )
        })
    }
}

/// Whether this person may list what is looked at in all namespaces. Who cannot be asked about is taken at their word: what they
/// may not list is told when it is tried.
async fn may_list_everywhere(tool: &Tool) -> bool {
    for (group, resource) in [("apps", "deployments"), ("apps", "statefulsets"), ("", "namespaces")] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "list"}},
        });
        let url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let asked = tool.send(Method::POST, url, "application/json", review.to_string().into_bytes());
        if let Ok(answer) = asked.await
            && answer.pointer("/status/allowed") == Some(&Value::Bool(false))
        {
            return false;
        }
    }
    true
}

/// A namespace by its name. Inside: why it cannot be read.
async fn namespace(tool: &Tool, name: &str) -> Result<Result<Namespace, String>, Refused> {
    let url = format!("/api/v1/namespaces/{name}");
    match tool.send(Method::GET, &url, "application/json", Vec::new()).await {
        Ok(object) => Ok(Namespace::read(&object).ok_or_else(|| format!("namespace {name}: it has no metadata"))),
        Err(error) if error.code() == Some(404) => Err(Refused::Failed(anyhow::anyhow!(
            "there is no namespace {name:?}; name another one with -n"
        ))),
        Err(error) => Ok(Err(format!(
            "namespace {name}, whose labels and annotations count: {error}"
        ))),
    }
}

/// The API groups that are served, as `group/version`; `None` where that cannot be read.
async fn group_versions(tool: &Tool) -> Option<BTreeSet<String>> {
    let answer = tool
        .send(Method::GET, "/apis", "application/json", Vec::new())
        .await
        .ok()?;
    let groups = answer.pointer("/groups")?.as_array()?;
    let versions = groups.iter().filter_map(|group| group.get("versions")?.as_array());
    let names = versions
        .flatten()
        .filter_map(|version| version.get("groupVersion")?.as_str());
    Some(names.map(str::to_owned).collect())
}

fn is_served(kind: &Kind, served: &BTreeSet<String>) -> bool {
    kind.group.is_empty() || served.contains(&format!("{}/{}", kind.group, kind.version))
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
