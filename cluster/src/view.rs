//! What is known of the cluster: one View for scheduler and webhook. No client required.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use serde::de::DeserializeSeed;
use shared::{
    api::OffHoursSchedule,
    hpa::Hpa,
    kinds::{Kind, Kinds},
    workload::{Namespace, ObjectRef, Workload},
};
use thiserror::Error;
use tokio::{sync::watch, time::timeout};

use crate::{
    changes::ChangeLog,
    gate::Named,
    item::Item,
    store::{Facts, SourceState, Store},
};

/// How long start-up waits for a kind that others can do without while the API server cannot list it.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often those who wait look at the clock.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A store of whatever kind, as probes and metrics see it.
pub trait Source: Send + Sync {
    /// `plural.group`.
    fn resource(&self) -> Arc<str>;
    /// How far it can be relied on.
    fn state(&self) -> SourceState;
    /// Whether start-up need not wait for it any more.
    fn is_settled(&self) -> bool;
    /// How many objects it holds.
    fn objects(&self) -> usize;
    /// Time since the API server last said anything about it.
    fn heard_ago(&self) -> Option<Duration>;
    /// For how long it has been answered 401 only.
    fn unauthorized_for(&self) -> Option<Duration>;
    /// Notified at each change.
    fn stirred(&self) -> watch::Receiver<u64>;
}

impl<T: Facts> Source for Store<T> {
    fn resource(&self) -> Arc<str> {
        Arc::clone(Self::resource(self))
    }

    fn state(&self) -> SourceState {
        Self::state(self)
    }

    fn is_settled(&self) -> bool {
        Self::is_settled(self)
    }

    fn objects(&self) -> usize {
        self.len()
    }

    fn heard_ago(&self) -> Option<Duration> {
        Self::heard_ago(self)
    }

    fn unauthorized_for(&self) -> Option<Duration> {
        Self::unauthorized_for(self)
    }

    fn stirred(&self) -> watch::Receiver<u64> {
        Self::stirred(self)
    }
}

type WorkloadStores = HashMap<(Arc<str>, Arc<str>), (Arc<Kind>, Arc<Store<Workload>>)>;

/// Takes in an object as the API server answered it.
pub type TakeAnswer = Arc<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

struct Taker {
    group: Arc<str>,
    kind: Arc<str>,
    namespace: Option<Arc<str>>,
    take: TakeAnswer,
}

/// The facts of the cluster. Readers share it; reflectors fill it.
pub struct View {
    kinds: Kinds,
    changes: Arc<ChangeLog>,
    namespaces: Arc<Store<Namespace>>,
    hpas: Arc<Store<Hpa>>,
    schedules: Option<Arc<Store<Item<OffHoursSchedule>>>>,
    definitions: Arc<Store<Named>>,
    workloads: RwLock<WorkloadStores>,
    sources: RwLock<Vec<Arc<dyn Source>>>,
    takers: RwLock<Vec<Taker>>,
}

/// An answer of the API server that could not be taken in.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ApplyAnswer {
    /// The kind is not followed.
    #[error("no objects of kind {0} are followed")]
    UnknownKind(Arc<str>),
    /// No object of Kubernetes.
    #[error("unable to read the answer: {0}")]
    Unreadable(String),
}

impl View {
    /// A view of nothing yet; `schedules`: whether schedules are read from the cluster.
    pub fn new(kinds: Kinds, schedules: bool) -> Self {
        let changes = Arc::new(ChangeLog::default());
        let namespaces = Arc::new(Store::new("", "Namespace", "namespaces", Arc::clone(&changes)));
        let hpa = shared::hpa::kind();
        let hpas = Arc::new(Store::new(&hpa.group, &hpa.kind, &hpa.plural, Arc::clone(&changes)));
        let schedules = schedules.then(|| {
            let (kind, plural) = ("OffHoursSchedule", "offhoursschedules");
            Arc::new(Store::new(shared::api::GROUP, kind, plural, Arc::clone(&changes)))
        });
        let definitions = Arc::new(Store::new(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            // Kinds that come and go tell of themselves; definitions of others concern nobody.
            Arc::default(),
        ));
        Self {
            kinds,
            changes,
            namespaces,
            hpas,
            schedules,
            definitions,
            workloads: RwLock::default(),
            sources: RwLock::default(),
            takers: RwLock::default(),
        }
    }

    /// The table of kinds.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// What has changed since it was last taken; for one reader, the scheduler.
    pub fn changes(&self) -> &Arc<ChangeLog> {
        &self.changes
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &Arc<Store<Namespace>> {
        &self.namespaces
    }

    /// The HPAs.
    pub fn hpas(&self) -> &Arc<Store<Hpa>> {
        &self.hpas
    }

    /// The schedules of the cluster; `None` where they come from the settings alone (a namespaced install).
    pub fn schedules(&self) -> Option<&Arc<Store<Item<OffHoursSchedule>>>> {
        self.schedules.as_ref()
    }

    /// The HPA that scales an object, the first by name if several do.
    pub fn hpa_of(&self, object: &ObjectRef) -> Option<Arc<Hpa>> {
        self.hpas
            .in_namespace(&object.namespace)
            .into_iter()
            .filter(|hpa| hpa.scales(&object.group, &object.kind, &object.name))
            .min_by(|left, right| left.object.name.cmp(&right.object.name))
    }

    /// The `CustomResourceDefinition`s, by name.
    pub fn definitions(&self) -> &Arc<Store<Named>> {
        &self.definitions
    }

    /// The workloads of one kind; `None` where the kind is not followed.
    pub fn workloads(&self, group: &str, kind: &str) -> Option<Arc<Store<Workload>>> {
        let stores = self.workloads.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&stores.get(&(Arc::from(group), Arc::from(kind)))?.1))
    }

    /// All kinds that are followed, with their workloads.
    pub fn workload_stores(&self) -> Vec<(Arc<Kind>, Arc<Store<Workload>>)> {
        let stores = self.workloads.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = stores
            .values()
            .map(|(kind, store)| (Arc::clone(kind), Arc::clone(store)))
            .collect();
        all.sort_by(|left, right| (&left.0.group, &left.0.kind).cmp(&(&right.0.group, &right.0.kind)));
        all
    }

    /// One workload.
    pub fn workload(&self, object: &ObjectRef) -> Option<Arc<Workload>> {
        let stores = self.workloads.read().unwrap_or_else(PoisonError::into_inner);
        let (_, store) = stores.get(&(Arc::clone(&object.group), Arc::clone(&object.kind)))?;
        store.get(&object.namespace, &object.name)
    }

    /// All workloads of a namespace.
    pub fn workloads_in(&self, namespace: &str) -> Vec<Arc<Workload>> {
        self.workload_stores()
            .iter()
            .flat_map(|(_, store)| store.in_namespace(namespace))
            .collect()
    }

    /// How far the facts of a kind can be relied on; `None` where it is not followed.
    pub fn workload_state(&self, group: &str, kind: &str) -> Option<SourceState> {
        Some(self.workloads(group, kind)?.state())
    }

    /// Takes in the answer of a write of ours, unless something newer is there already. Returns what is there now.
    pub fn apply_answer(&self, object: &ObjectRef, json: &[u8]) -> Result<Arc<Workload>, ApplyAnswer> {
        let (kind, store) = {
            let stores = self.workloads.read().unwrap_or_else(PoisonError::into_inner);
            let found = stores.get(&(Arc::clone(&object.group), Arc::clone(&object.kind)));
            found
                .cloned()
                .ok_or_else(|| ApplyAnswer::UnknownKind(Arc::clone(&object.kind)))?
        };
        let workload = shared::workload::parse(&self.kinds, &kind, json)
            .map_err(|error| ApplyAnswer::Unreadable(error.to_string()))?;
        Ok(store.apply_answer(workload))
    }

    /// The same for an HPA.
    pub fn apply_hpa_answer(&self, json: &[u8]) -> Result<Arc<Hpa>, ApplyAnswer> {
        let unreadable = |error: &dyn std::fmt::Display| ApplyAnswer::Unreadable(error.to_string());
        let pruned = shared::hpa::keep()
            .deserialize(&mut serde_json::Deserializer::from_slice(json))
            .map_err(|error| unreadable(&error))?;
        let hpa = Hpa::read(&pruned).map_err(|error| unreadable(&error))?;
        Ok(self.hpas.apply_answer(hpa))
    }

    /// The same, for whatever else is followed.
    pub fn apply_other_answer(&self, object: &ObjectRef, json: &[u8]) -> Result<(), ApplyAnswer> {
        let takers = self.takers.read().unwrap_or_else(PoisonError::into_inner);
        let fits = |taker: &&Taker| {
            (&taker.group, &taker.kind) == (&object.group, &object.kind)
                && taker
                    .namespace
                    .as_ref()
                    .is_none_or(|namespace| *namespace == object.namespace)
        };
        let mut answer = Err(ApplyAnswer::UnknownKind(Arc::clone(&object.kind)));
        for taker in takers.iter().filter(fits) {
            let taken = (taker.take)(json).map_err(ApplyAnswer::Unreadable);
            if answer.is_err() {
                answer = taken;
            }
        }
        answer
    }

    /// All sources that are followed.
    pub fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The resources that have not been listed yet, for readiness.
    pub fn unfilled(&self) -> Vec<Arc<str>> {
        self.sources()
            .iter()
            .filter(|source| !source.is_settled())
            .map(|source| source.resource())
            .collect()
    }

    /// Whether everything that can be known is known.
    pub fn is_filled(&self) -> bool {
        let sources = self.sources();
        !sources.is_empty() && sources.iter().all(|source| source.is_settled())
    }

    /// Waits until everything that can be known is known.
    pub async fn filled(&self) {
        for source in self.sources() {
            let mut stirred = source.stirred();
            while !source.is_settled() {
                // What is given up is so by the clock alone.
                if let Ok(Err(_)) = timeout(LOOK_AGAIN, stirred.changed()).await {
                    break;
                }
            }
        }
    }

    /// For how long the API server has answered everything with 401; `None` while it takes our credentials anywhere.
    pub fn unauthorized_for(&self) -> Option<Duration> {
        let sources = self.sources();
        let times: Option<Vec<Duration>> = sources
            .iter()
            .filter(|source| source.state() != SourceState::Absent)
            .map(|source| source.unauthorized_for())
            .collect();
        times?.into_iter().min()
    }

    /// Makes a place for a kind's workloads; `None` if there is one already.
    pub(crate) fn place_for(&self, kind: &Arc<Kind>) -> Option<Arc<Store<Workload>>> {
        let mut stores = self.workloads.write().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::from(kind.group.as_ref()), Arc::from(kind.kind.as_ref()));
        if stores.contains_key(&key) {
            return None;
        }
        let store = Store::new(&kind.group, &kind.kind, &kind.plural, Arc::clone(&self.changes));
        // What stands under a ScaledObject is left to it, so that one has to know them.
        let needed = kind.built_in || kind.group == "keda.sh";
        let store = Arc::new(if needed {
            store
        } else {
            store.dispensable_after(PATIENCE)
        });
        stores.insert(key, (Arc::clone(kind), Arc::clone(&store)));
        Some(store)
    }

    /// Makes answers about objects of a kind known to those who follow it.
    pub fn add_taker(&self, group: &str, kind: &str, namespace: Option<&str>, take: TakeAnswer) {
        let taker = Taker {
            group: Arc::from(group),
            kind: Arc::from(kind),
            namespace: namespace.map(Arc::from),
            take,
        };
        self.takers.write().unwrap_or_else(PoisonError::into_inner).push(taker);
    }

    /// Counts a store among the sources.
    pub(crate) fn add_source(&self, source: Arc<dyn Source>) {
        self.sources
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(source);
    }
}
