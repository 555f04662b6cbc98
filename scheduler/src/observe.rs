//! observe: from the View to the snapshot that `decide` looks at. (Client not required.)

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::changes::Changes;
use cluster::schedules::{Compiled, ScheduleSource};
use cluster::store::SourceState;
use cluster::view::View;
use shared::workload::{Namespace, ObjectRef};

use crate::beside::Beside;
use crate::decide::snapshot::{Dirty, Resource, Snapshot};

/// Keeps a snapshot like the View.
pub struct Observer {
    view: Arc<View>,
    schedules: Arc<ScheduleSource>,
    snapshot: Snapshot,
    compiled: Arc<Compiled>,
    beside: Beside,
}

impl Observer {
    /// Observes `view`, beginning with nothing.
    pub fn new(view: Arc<View>, schedules: Arc<ScheduleSource>, snapshot: Snapshot) -> Self {
        Self {
            view,
            schedules,
            snapshot,
            compiled: Arc::default(),
            beside: Beside::default(),
        }
    }

    /// Observes what stands beside workloads, too.
    #[must_use]
    pub fn with(mut self, beside: Beside) -> Self {
        self.beside = beside;
        self
    }

    /// The snapshot as of the last [`Self::refresh`].
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// For what the settings say.
    pub fn snapshot_mut(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }

    /// The schedules as of the last [`Self::refresh`].
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Takes in everything that changed, and says what is to be decided about anew.
    pub fn refresh(&mut self) -> Dirty {
        let mut dirty = Dirty::default();
        let changes = self.view.changes().take();
        self.take_schedules(&mut dirty);
        if changes.everything {
            self.take_everything(&mut dirty);
        } else {
            self.take_changes(&changes, &mut dirty);
        }
        dirty
    }

    /// Takes in one object, such as one that was just written.
    pub fn refresh_one(&mut self, object: &ObjectRef) -> Dirty {
        let mut dirty = Dirty::default();
        self.take_one(object, &mut dirty);
        dirty
    }

    fn take_schedules(&mut self, dirty: &mut Dirty) {
        let compiled = self.schedules.current();
        if Arc::ptr_eq(&compiled, &self.compiled) {
            return;
        }
        let resources = compiled.resources.iter().map(|(name, item)| {
            let metadata = item.object.as_ref().ok().map(|object| &object.metadata);
            let resource = Resource {
                uid: Arc::clone(&item.uid),
                resource_version: Arc::clone(&item.resource_version),
                finalizers: metadata
                    .and_then(|metadata| metadata.finalizers.as_ref())
                    .map(|all| all.iter().map(|name| Arc::from(name.as_str())).collect())
                    .unwrap_or_default(),
                deleted: metadata
                    .and_then(|metadata| metadata.deletion_timestamp.as_ref())
                    .map(|time| time.0),
            };
            (Arc::clone(name), resource)
        });
        self.snapshot
            .set_schedules(Arc::clone(&compiled.schedules), resources.collect(), dirty);
        self.compiled = compiled;
    }

    fn take_everything(&mut self, dirty: &mut Dirty) {
        dirty.everything = true;
        let mut seen: BTreeSet<ObjectRef> = BTreeSet::new();
        for (_, store) in self.view.workload_stores() {
            for workload in store.all() {
                seen.insert(workload.object_ref());
                self.snapshot.set_workload(&workload, dirty);
            }
        }
        let gone: Vec<ObjectRef> = self
            .snapshot
            .workloads()
            .map(|(object, _)| object.clone())
            .filter(|object| !seen.contains(object))
            .collect();
        for object in &gone {
            self.snapshot.remove_workload(object, dirty);
        }
        let mut places = BTreeSet::new();
        for namespace in self.view.namespaces().all() {
            places.insert(Arc::clone(&namespace.name));
            self.snapshot.set_namespace(&namespace, dirty);
        }
        if self.namespaces_are_hidden() {
            for object in &seen {
                places.insert(Arc::clone(&object.namespace));
                self.take_namespace(&object.namespace, dirty);
            }
        }
        for name in self.snapshot.namespace_names() {
            if !places.contains(&name) {
                self.snapshot.remove_namespace(&name, dirty);
            }
        }
        self.beside.take_everything(&self.view, &mut self.snapshot, dirty);
    }

    fn take_changes(&mut self, changes: &Changes, dirty: &mut Dirty) {
        for object in &changes.objects {
            self.take_one(object, dirty);
        }
    }

    fn take_one(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        match object.kind.as_ref() {
            "Namespace" if object.group.is_empty() => self.take_namespace(&object.name, dirty),
            _ if self.beside.take(&self.view, object, &mut self.snapshot, dirty) => {}
            _ => match self.view.workload(object) {
                Some(workload) => {
                    let namespace = Arc::clone(&object.namespace);
                    if self.snapshot.namespace(&namespace).is_none() && self.namespaces_are_hidden() {
                        self.take_namespace(&namespace, dirty);
                    }
                    self.snapshot.set_workload(&workload, dirty);
                }
                None => self.snapshot.remove_workload(object, dirty),
            },
        }
    }

    /// With rights in single namespaces only, what is written on namespaces is out of reach; what is written on workloads counts.
    fn namespaces_are_hidden(&self) -> bool {
        self.view.schedules().is_none() && matches!(self.view.namespaces().state(), SourceState::Forbidden { .. })
    }

    fn take_namespace(&mut self, name: &Arc<str>, dirty: &mut Dirty) {
        match self.view.namespaces().get("", name) {
            Some(namespace) => self.snapshot.set_namespace(&namespace, dirty),
            None if self.namespaces_are_hidden() => {
                let nameless = Namespace {
                    name: Arc::clone(name),
                    ..Namespace::default()
                };
                self.snapshot.set_namespace(&Arc::new(nameless), dirty);
            }
            None => self.snapshot.remove_namespace(name, dirty),
        }
    }
}
