//! The facts of one kind of object, and how far they can be relied on. No client required.
//!
//! Three writers meet here: lists, watch events, and the answers of our own writes. An answer may be newer than what the
//! list or the watch tells next; then it stays until the watch has caught up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use shared::workload::{Namespace, ObjectRef, Workload};
use tokio::{sync::watch, time::Instant};

use crate::{changes::ChangeLog, intern::Interner};

/// What names an object, and which version of it this is.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'f> {
    /// Namespace; empty for what is cluster-scoped.
    pub namespace: &'f str,
    /// Name.
    pub name: &'f Arc<str>,
    /// UID.
    pub uid: &'f str,
    /// Resource version.
    pub resource_version: &'f str,
}

/// What a store needs to know of the facts in it.
pub trait Facts: Send + Sync + 'static {
    /// Which object these are facts of.
    fn identity(&self) -> Identity<'_>;

    /// Namespace; empty for what is cluster-scoped.
    fn namespace(&self) -> &str {
        self.identity().namespace
    }

    /// Name.
    fn name(&self) -> &Arc<str> {
        self.identity().name
    }

    /// UID.
    fn uid(&self) -> &str {
        self.identity().uid
    }

    /// Resource version.
    fn resource_version(&self) -> &str {
        self.identity().resource_version
    }

    /// Replaces texts that many objects share by their one copy.
    fn intern(&mut self, _interner: &mut Interner) {}
}

impl Facts for Workload {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }

    fn intern(&mut self, interner: &mut Interner) {
        self.namespace = interner.text(&self.namespace);
        interner.keys(&mut self.labels);
        interner.keys(&mut self.annotations);
        for owner in &mut self.owners {
            owner.group = interner.text(&owner.group);
            owner.kind = interner.text(&owner.kind);
            owner.name = interner.text(&owner.name);
        }
        if let Some(manager) = &mut self.managers.knob {
            *manager = interner.text(manager);
        }
        self.owners.shrink_to_fit();
        self.knobs.shrink_to_fit();
    }
}

impl Facts for Namespace {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: "",
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }

    fn intern(&mut self, interner: &mut Interner) {
        interner.keys(&mut self.labels);
        interner.keys(&mut self.annotations);
    }
}

struct Entry<T> {
    object: Arc<T>,
    /// The list in which it was last seen.
    seen_in: u64,
    /// It came as the answer of a write and no list or watch has shown it yet.
    answer: bool,
}

type ByNamespace<T> = HashMap<Arc<str>, HashMap<Arc<str>, Entry<T>>>;

/// What a reflector last met. One per reflector: a store has several where it reads namespace by namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    /// Listed to the end at least once.
    pub filled: bool,
    /// The kind does not exist (no CRD).
    pub absent: bool,
    /// The present trouble.
    pub trouble: Option<Trouble>,
    /// When the API server last said anything about it, be it a bookmark.
    pub heard: Option<Instant>,
}

/// A trouble of a reflector.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub since: Instant,
    pub code: Option<u16>,
    pub message: Arc<str>,
}

/// How far the facts of one kind can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// Never listed to the end: nothing is known.
    Unfilled {
        /// Why it takes so long, if there is a reason.
        trouble: Option<Arc<str>>,
    },
    /// Up to date, as far as a watch can be.
    Filled,
    /// We may not list or watch it: nothing is known, and waiting would not help.
    Forbidden {
        /// Verb and resource, and what the API server said.
        message: Arc<str>,
    },
    /// There is no such kind in this cluster.
    Absent,
    /// Was filled and is growing old.
    Failing {
        /// For how long.
        time: Duration,
        /// Why.
        message: Arc<str>,
    },
}

impl SourceState {
    /// A stable word for metrics. Changes of it are told to readers.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unfilled { trouble: None } => "unfilled",
            Self::Unfilled { trouble: Some(_) } => "unreachable",
            Self::Filled => "filled",
            Self::Forbidden { .. } => "forbidden",
            Self::Absent => "absent",
            Self::Failing { .. } => "failing",
        }
    }

    /// Whether absence from the store means absence from the cluster, as of not long ago.
    pub fn is_filled(&self) -> bool {
        matches!(self, Self::Filled | Self::Failing { .. })
    }
}

/// The facts of one kind.
pub struct Store<T> {
    group: Arc<str>,
    kind: Arc<str>,
    /// `plural.group`, as `kubectl` and RBAC speak of it.
    resource: Arc<str>,
    entries: RwLock<ByNamespace<T>>,
    interner: Mutex<Interner>,
    health: Mutex<Vec<Health>>,
    changes: Arc<ChangeLog>,
    /// Counts changes of the entries and of the state, for those who wait for one.
    stirred: watch::Sender<u64>,
    /// How long start-up waits while the API server refuses to list it; for ever where the others cannot do without it.
    patience: Option<Duration>,
}

impl<T: Facts> Store<T> {
    /// An empty store.
    pub fn new(group: &str, kind: &str, plural: &str, changes: Arc<ChangeLog>) -> Self {
        let resource = if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        };
        Self {
            group: Arc::from(group),
            kind: Arc::from(kind),
            resource: Arc::from(resource),
            entries: RwLock::default(),
            interner: Mutex::default(),
            health: Mutex::default(),
            changes,
            stirred: watch::Sender::new(0),
            patience: None,
        }
    }

    /// One that start-up does without when the API server has answered for so long that it cannot list it (as it does while
    /// a conversion webhook of that kind is down).
    #[must_use]
    pub fn dispensable_after(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Whether start-up need not wait for it any more.
    pub fn is_settled(&self) -> bool {
        let given_up = |patience| {
            self.health().iter().filter(|part| !part.filled).all(|part| {
                // Without an answer it is the API server that is away, and with a 401 it is us.
                let refused = part
                    .trouble
                    .as_ref()
                    .filter(|it| it.code.is_some_and(|code| code != 401));
                refused.is_some_and(|trouble| trouble.since.elapsed() >= patience)
            })
        };
        !matches!(self.state(), SourceState::Unfilled { .. })
            || self
                .patience
                .is_some_and(|patience| !self.health().is_empty() && given_up(patience))
    }

    /// `plural.group`.
    pub fn resource(&self) -> &Arc<str> {
        &self.resource
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        Some(Arc::clone(&self.entries().get(namespace)?.get(name)?.object))
    }

    /// All objects of a namespace, in no order.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let entries = self.entries();
        let Some(objects) = entries.get(namespace) else {
            return Vec::new();
        };
        objects.values().map(|entry| Arc::clone(&entry.object)).collect()
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<T>> {
        let entries = self.entries();
        entries
            .values()
            .flat_map(HashMap::values)
            .map(|entry| Arc::clone(&entry.object))
            .collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.entries().values().map(HashMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far the facts can be relied on.
    pub fn state(&self) -> SourceState {
        let health = self.health();
        if health.is_empty() {
            return SourceState::Unfilled { trouble: None };
        }
        if let Some(trouble) = health
            .iter()
            .filter_map(|part| part.trouble.as_ref())
            .find(|trouble| trouble.code == Some(403))
        {
            return SourceState::Forbidden {
                message: Arc::clone(&trouble.message),
            };
        }
        if health.iter().any(|part| part.absent) {
            return SourceState::Absent;
        }
        let oldest = health
            .iter()
            .filter_map(|part| part.trouble.as_ref())
            .min_by_key(|trouble| trouble.since);
        match oldest {
            _ if health.iter().any(|part| !part.filled) => SourceState::Unfilled {
                trouble: oldest.map(|trouble| Arc::clone(&trouble.message)),
            },
            None => SourceState::Filled,
            Some(trouble) => SourceState::Failing {
                time: trouble.since.elapsed(),
                message: Arc::clone(&trouble.message),
            },
        }
    }

    /// Time since the API server last said anything about this kind; none before the first time.
    pub fn heard_ago(&self) -> Option<Duration> {
        self.health()
            .iter()
            .map(|part| part.heard)
            .min()?
            .map(|heard| heard.elapsed())
    }

    /// For how long all that the API server says about this kind has been 401.
    pub fn unauthorized_for(&self) -> Option<Duration> {
        let health = self.health();
        let trouble = health
            .iter()
            .filter_map(|part| part.trouble.as_ref())
            .filter(|trouble| trouble.code == Some(401));
        trouble.map(|trouble| trouble.since.elapsed()).max()
    }

    /// Notified at each change of the entries or of the state.
    pub fn stirred(&self) -> watch::Receiver<u64> {
        self.stirred.subscribe()
    }

    /// Takes in the answer of a write of ours, unless something newer is there already. Returns what is there now.
    pub fn apply_answer(&self, object: T) -> Arc<T> {
        let object = self.interned(object);
        let mut entries = self.entries_mut();
        if let Some(entry) = entries
            .get(object.namespace())
            .and_then(|objects| objects.get(object.name().as_ref()))
            && !is_newer(object.resource_version(), entry.object.resource_version())
        {
            return Arc::clone(&entry.object);
        }
        let reference = self.reference(&object);
        let seen_in = 0;
        insert(
            &mut entries,
            &reference,
            Entry {
                object: Arc::clone(&object),
                seen_in,
                answer: true,
            },
        );
        drop(entries);
        self.changed(reference);
        object
    }

    /// Takes in an object of list `list`, or with 0 one of a watch.
    pub(crate) fn apply(&self, object: T, list: u64) {
        let object = self.interned(object);
        let mut entries = self.entries_mut();
        let present = entries
            .get_mut(object.namespace())
            .and_then(|objects| objects.get_mut(object.name().as_ref()));
        if let Some(entry) = present {
            let same = entry.object.resource_version() == object.resource_version();
            // Where the list or the watch is behind our own write, the answer stays.
            let behind = entry.answer && is_newer(entry.object.resource_version(), object.resource_version());
            entry.seen_in = list;
            if same {
                entry.answer = false;
            }
            if same || behind {
                return;
            }
        }
        let reference = self.reference(&object);
        insert(
            &mut entries,
            &reference,
            Entry {
                object,
                seen_in: list,
                answer: false,
            },
        );
        drop(entries);
        self.changed(reference);
    }

    /// Takes in a deletion.
    pub(crate) fn delete(&self, object: &T) {
        let mut entries = self.entries_mut();
        let Some(objects) = entries.get_mut(object.namespace()) else {
            return;
        };
        let Some(entry) = objects.get(object.name().as_ref()) else {
            return;
        };
        // A late notice about a former object of this name.
        if entry.answer && entry.object.uid() != object.uid() {
            return;
        }
        objects.remove(object.name().as_ref());
        if objects.is_empty() {
            entries.remove(object.namespace());
        }
        drop(entries);
        self.changed(self.reference(object));
    }

    /// Removes what list `list` of `namespace` (all, if none), which was true at `list_version`, did not show.
    pub(crate) fn end_list(&self, list: u64, namespace: Option<&str>, list_version: &str) {
        let mut gone = Vec::new();
        let mut entries = self.entries_mut();
        for (place, objects) in entries.iter_mut() {
            if namespace.is_some_and(|namespace| namespace != place.as_ref()) {
                continue;
            }
            objects.retain(|_, entry| {
                // Written after the list was taken: the watch tells what becomes of it.
                let later = entry.answer && is_newer(entry.object.resource_version(), list_version);
                let stays = entry.seen_in == list || later;
                if !stays {
                    gone.push(self.reference(&entry.object));
                }
                stays
            });
            objects.shrink_to_fit();
        }
        entries.retain(|_, objects| !objects.is_empty());
        drop(entries);
        for reference in gone {
            self.changed(reference);
        }
    }

    /// Forgets all of `namespace` (all, if none): the kind is gone.
    pub(crate) fn clear(&self, namespace: Option<&str>) {
        let mut entries = self.entries_mut();
        match namespace {
            Some(namespace) => drop(entries.remove(namespace)),
            None => *entries = HashMap::new(),
        }
        drop(entries);
        self.changes.mark_everything();
        self.stir();
    }

    /// A place for the health of one more reflector.
    pub(crate) fn register(&self) -> usize {
        let mut health = self.health();
        health.push(Health::default());
        health.len() - 1
    }

    /// Notes that the API server said something.
    pub(crate) fn heard(&self, part: usize) {
        if let Some(health) = self.health().get_mut(part) {
            health.heard = Some(Instant::now());
        }
    }

    /// Changes the health of one reflector; readers hear of it where the state changes.
    pub(crate) fn report(&self, part: usize, change: impl FnOnce(&mut Health)) {
        let before = self.state().word();
        if let Some(health) = self.health().get_mut(part) {
            change(health);
        }
        if before != self.state().word() {
            self.changes.mark_everything();
            self.stir();
        }
    }

    fn changed(&self, reference: ObjectRef) {
        self.changes.mark(reference);
        self.stir();
    }

    fn stir(&self) {
        self.stirred.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn interned(&self, mut object: T) -> Arc<T> {
        object.intern(&mut self.interner.lock().unwrap_or_else(PoisonError::into_inner));
        Arc::new(object)
    }

    fn reference(&self, object: &T) -> ObjectRef {
        let mut interner = self.interner.lock().unwrap_or_else(PoisonError::into_inner);
        ObjectRef {
            group: Arc::clone(&self.group),
            kind: Arc::clone(&self.kind),
            namespace: interner.text(&Arc::from(object.namespace())),
            name: Arc::clone(object.name()),
        }
    }

    fn entries(&self) -> RwLockReadGuard<'_, ByNamespace<T>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries_mut(&self) -> RwLockWriteGuard<'_, ByNamespace<T>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Vec<Health>> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert<T>(entries: &mut ByNamespace<T>, reference: &ObjectRef, entry: Entry<T>) {
    let objects = entries.entry(Arc::clone(&reference.namespace)).or_default();
    // The key that is there already stays: the new one is dropped with the reference.
    match objects.get_mut(&reference.name) {
        Some(present) => *present = entry,
        None => drop(objects.insert(Arc::clone(&reference.name), entry)),
    }
}

/// Whether resourceVersion `left` is newer than `right`. Kubernetes writes numbers that grow; of what is none, we trust
/// whatever came last.
fn is_newer(left: &str, right: &str) -> bool {
    match (left.parse::<u128>(), right.parse::<u128>()) {
        (Ok(left), Ok(right)) => left > right,
        _ => left != right,
    }
}
