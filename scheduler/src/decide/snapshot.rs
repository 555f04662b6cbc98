//! What `decide` looks at: the facts of the cluster as they were observed, plain data. (Client not required.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use shared::annotations::{ASLEEP_UNTIL, AWAKE_UNTIL, Until, parse_until};
use shared::kinds::Kinds;
use shared::policy::Schedules;
use shared::schedule::State;
use shared::verdict::Surroundings;
use shared::workload::{Namespace, ObjectRef, ScaleTarget, Workload};

use super::beside::Unit;
use super::neighbours::Neighbours;
use crate::keda;

/// One schedule's workloads are brought to one state, whatever the clock says, and nothing else is touched: the one-shot mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    /// The schedule.
    pub schedule: Arc<str>,
    /// `Up` or `Down`.
    pub state: State,
    /// When this began.
    pub since: Timestamp,
}

/// What is needed of an `OffHoursSchedule` beside what it asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// UID.
    pub uid: Arc<str>,
    /// Resource version.
    pub resource_version: Arc<str>,
    /// Finalizers.
    pub finalizers: Vec<Arc<str>>,
    /// Since when it is being deleted.
    pub deleted: Option<Timestamp>,
}

/// What has changed since the last decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dirty {
    /// Workloads.
    pub objects: BTreeSet<ObjectRef>,
    /// What stands beside workloads.
    pub units: BTreeSet<Unit>,
    /// Anything may have changed.
    pub everything: bool,
}

impl Dirty {
    /// Anything may have changed.
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.objects.is_empty() && self.units.is_empty()
    }

    /// Adds what has changed elsewhere.
    pub fn merge(&mut self, other: Self) {
        self.everything |= other.everything;
        self.objects.extend(other.objects);
        self.units.extend(other.units);
    }
}

/// The observed cluster. Its setters tell which workloads are to be decided about anew.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// All kinds.
    pub kinds: Arc<Kinds>,
    /// The namespace that we run in.
    pub own_namespace: Arc<str>,
    /// Replicas for a record that nobody can read.
    pub default_replicas: u64,
    /// The one-shot mode; `None`: the clock decides.
    pub forced: Option<Forced>,
    /// The product goes away: everything is up, whatever schedules, people and clocks say.
    pub leaving: bool,
    /// Whether schedules get our finalizer: only what runs on can be trusted to take it off again.
    pub finalizers: bool,
    /// What stands beside workloads.
    pub beside: Neighbours,
    schedules: Arc<Schedules>,
    resources: BTreeMap<Arc<str>, Resource>,
    namespaces: BTreeMap<Arc<str>, Arc<Namespace>>,
    /// Namespaces on which a wake or sleep is still a duration.
    durations: BTreeSet<Arc<str>>,
    workloads: BTreeMap<Arc<str>, BTreeMap<ObjectRef, Arc<Workload>>>,
    scaled_by: BTreeMap<(Arc<str>, Target), Arc<str>>,
}

/// [`ScaleTarget`], ordered.
type Target = (Arc<str>, Arc<str>, Arc<str>);

fn target(of: &ScaleTarget) -> Target {
    (Arc::clone(&of.group), Arc::clone(&of.kind), Arc::clone(&of.name))
}

fn target_of(object: &ObjectRef) -> (Arc<str>, Target) {
    let ObjectRef {
        group,
        kind,
        namespace,
        name,
    } = object;
    (
        Arc::clone(namespace),
        (Arc::clone(group), Arc::clone(kind), Arc::clone(name)),
    )
}

impl Snapshot {
    /// An empty cluster.
    pub fn new(kinds: Arc<Kinds>, own_namespace: impl Into<Arc<str>>) -> Self {
        Self {
            kinds,
            own_namespace: own_namespace.into(),
            default_replicas: 1,
            forced: None,
            leaving: false,
            finalizers: false,
            beside: Neighbours::default(),
            schedules: Arc::default(),
            resources: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            durations: BTreeSet::new(),
            workloads: BTreeMap::new(),
            scaled_by: BTreeMap::new(),
        }
    }

    /// What surrounds a workload, for its verdict.
    pub fn surroundings(&self, workload: &Workload) -> Surroundings<'_> {
        let key = target_of(&workload.object_ref());
        Surroundings {
            kinds: &self.kinds,
            schedules: &self.schedules,
            namespace: self.namespaces.get(&workload.namespace).map(Arc::as_ref),
            own_namespace: &self.own_namespace,
            scaled_by: self.scaled_by.get(&key).map(AsRef::as_ref),
        }
    }

    /// A workload.
    pub fn workload(&self, object: &ObjectRef) -> Option<&Arc<Workload>> {
        self.workloads.get(&object.namespace)?.get(object)
    }

    /// All workloads.
    pub fn workloads(&self) -> impl Iterator<Item = (&ObjectRef, &Arc<Workload>)> {
        self.workloads.values().flatten()
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.namespaces.get(name)
    }

    /// The names of all namespaces.
    pub fn namespace_names(&self) -> Vec<Arc<str>> {
        self.namespaces.keys().cloned().collect()
    }

    /// Namespaces on which a wake or sleep by hand is still a duration.
    pub fn durations(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.durations.iter().filter_map(|name| self.namespaces.get(name))
    }

    /// The workloads of a namespace.
    pub fn in_namespace(&self, name: &str) -> impl Iterator<Item = (&ObjectRef, &Arc<Workload>)> {
        self.workloads.get(name).into_iter().flatten()
    }

    /// All namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.values()
    }

    /// All schedules.
    pub fn schedules(&self) -> &Arc<Schedules> {
        &self.schedules
    }

    /// The custom resources of schedules, by name.
    pub fn resources(&self) -> impl Iterator<Item = (&Arc<str>, &Resource)> {
        self.resources.iter()
    }

    /// Takes in all schedules and their resources.
    pub fn set_schedules(
        &mut self,
        schedules: Arc<Schedules>,
        resources: BTreeMap<Arc<str>, Resource>,
        dirty: &mut Dirty,
    ) {
        self.resources = resources;
        if !Arc::ptr_eq(&self.schedules, &schedules) {
            self.schedules = schedules;
            dirty.everything = true;
        }
    }

    /// Takes in a workload.
    pub fn set_workload(&mut self, workload: &Arc<Workload>, dirty: &mut Dirty) {
        let object = workload.object_ref();
        let namespace = Arc::clone(&workload.namespace);
        let objects = self.workloads.entry(Arc::clone(&namespace)).or_default();
        let former = objects.insert(object.clone(), Arc::clone(workload));
        self.beside.follow(&object, former.as_deref(), Some(workload));
        let former_target = former.and_then(|former| former.scale_target.clone());
        if former_target != workload.scale_target {
            self.unscale(&namespace, former_target, &object.name, dirty);
            if let Some(target) = workload
                .scale_target
                .as_ref()
                .filter(|_| keda::is_scaled_object(&object.group, &object.kind))
            {
                self.mark_target(&namespace, target, dirty);
                let key = (namespace, self::target(target));
                self.scaled_by.insert(key, Arc::clone(&object.name));
            }
        }
        dirty.objects.insert(object);
    }

    /// Takes in that a workload is gone.
    pub fn remove_workload(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        let Some(objects) = self.workloads.get_mut(&object.namespace) else {
            return;
        };
        let former = objects.remove(object);
        if objects.is_empty() {
            self.workloads.remove(&object.namespace);
        }
        self.beside.follow(object, former.as_deref(), None);
        let target = former.and_then(|former| former.scale_target.clone());
        self.unscale(&object.namespace, target, &object.name, dirty);
        dirty.objects.insert(object.clone());
    }

    fn unscale(&mut self, namespace: &Arc<str>, former: Option<ScaleTarget>, by: &str, dirty: &mut Dirty) {
        let Some(former) = former else { return };
        let key = (Arc::clone(namespace), target(&former));
        if self.scaled_by.get(&key).is_some_and(|name| **name == *by) {
            self.scaled_by.remove(&key);
            self.mark_target(namespace, &former, dirty);
        }
    }

    fn mark_target(&self, namespace: &Arc<str>, target: &ScaleTarget, dirty: &mut Dirty) {
        let object = ObjectRef {
            group: Arc::clone(&target.group),
            kind: Arc::clone(&target.kind),
            namespace: Arc::clone(namespace),
            name: Arc::clone(&target.name),
        };
        if self.workload(&object).is_some() {
            dirty.objects.insert(object);
        }
    }

    /// Takes in a namespace.
    pub fn set_namespace(&mut self, namespace: &Arc<Namespace>, dirty: &mut Dirty) {
        let name = Arc::clone(&namespace.name);
        let lasting = |key: &str| {
            namespace
                .annotation(key)
                .is_some_and(|text| matches!(parse_until(key, text), Ok(Until::For(_))))
        };
        if lasting(AWAKE_UNTIL) || lasting(ASLEEP_UNTIL) {
            self.durations.insert(Arc::clone(&name));
        } else {
            self.durations.remove(&name);
        }
        let former = self.namespaces.insert(Arc::clone(&name), Arc::clone(namespace));
        // Its resource version moves with every annotation of somebody else's.
        let same = former.is_some_and(|former| {
            former.labels == namespace.labels
                && former.annotations == namespace.annotations
                && former.terminating == namespace.terminating
        });
        if !same {
            self.mark_namespace(&name, dirty);
        }
    }

    /// Takes in that a namespace is gone.
    pub fn remove_namespace(&mut self, name: &Arc<str>, dirty: &mut Dirty) {
        self.durations.remove(name);
        if self.namespaces.remove(name).is_some() {
            self.mark_namespace(name, dirty);
        }
    }

    fn mark_namespace(&self, name: &Arc<str>, dirty: &mut Dirty) {
        if let Some(objects) = self.workloads.get(name) {
            dirty.objects.extend(objects.keys().cloned());
        }
    }
}
