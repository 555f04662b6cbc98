//! observe: from the View to the snapshot that `decide` looks at. (Client not required.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::changes::Changes;
use cluster::schedules::{Compiled, ScheduleSource};
use cluster::store::SourceState;
use cluster::view::View;
use shared::workload::{Namespace, ObjectRef};

use crate::decide::snapshot::{Dirty, Resource, Snapshot};

/// Keeps a snapshot like the View.
pub struct Observer {
    view: Arc<View>,
    schedules: Arc<ScheduleSource>,
    snapshot: Snapshot,
    compiled: Arc<Compiled>,
    /// Objects that have an HPA, by the HPA's name.
    scaled: BTreeMap<ObjectRef, ObjectRef>,
}

impl Observer {
    /// Observes `view`, beginning with nothing.
    pub fn new(view: Arc<View>, schedules: Arc<ScheduleSource>, snapshot: Snapshot) -> Self {
        Self {
            view,
            schedules,
            snapshot,
            compiled: Arc::default(),
            scaled: BTreeMap::new(),
        }
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
        self.take_all_hpas(dirty);
    }

    fn take_changes(&mut self, changes: &Changes, dirty: &mut Dirty) {
        for object in &changes.objects {
            self.take_one(object, dirty);
        }
    }

    fn take_one(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        match object.kind.as_ref() {
            "Namespace" if object.group.is_empty() => self.take_namespace(&object.name, dirty),
            "HorizontalPodAutoscaler" if *object.group == *"autoscaling" => self.take_hpa(object, dirty),
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

    fn take_hpa(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        let former: Vec<ObjectRef> = self
            .scaled
            .iter()
            .filter(|(_, hpa)| *hpa == object)
            .map(|(target, _)| target.clone())
            .collect();
        let present = self.view.hpas().get(&object.namespace, &object.name);
        let target = present
            .as_ref()
            .and_then(|hpa| hpa.target.as_ref())
            .map(|target| ObjectRef {
                group: Arc::clone(&target.group),
                kind: Arc::clone(&target.kind),
                namespace: Arc::clone(&object.namespace),
                name: Arc::clone(&target.name),
            });
        for target in former.into_iter().chain(target) {
            self.take_range(&target, dirty);
        }
    }

    fn take_all_hpas(&mut self, dirty: &mut Dirty) {
        let mut targets: BTreeSet<ObjectRef> = self.snapshot.ranged().collect();
        for hpa in self.view.hpas().all() {
            let Some(target) = &hpa.target else { continue };
            targets.insert(ObjectRef {
                group: Arc::clone(&target.group),
                kind: Arc::clone(&target.kind),
                namespace: Arc::clone(&hpa.object.namespace),
                name: Arc::clone(&target.name),
            });
        }
        for target in targets {
            self.take_range(&target, dirty);
        }
    }

    fn take_range(&mut self, target: &ObjectRef, dirty: &mut Dirty) {
        let hpa = self.view.hpa_of(target);
        // An HPA that may go to zero does not keep anybody from a smaller number.
        let range = hpa
            .as_ref()
            .and_then(|hpa| Some((hpa.min_replicas().unwrap_or(1), hpa.max_replicas()?)));
        match &hpa {
            Some(hpa) => {
                let mut object = hpa.object.object_ref();
                object.group = Arc::from("autoscaling");
                self.scaled.insert(target.clone(), object);
            }
            None => {
                self.scaled.remove(target);
            }
        }
        self.snapshot.set_range(target, range, dirty);
    }
}
