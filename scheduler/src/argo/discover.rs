//! Which Applications a workload belongs to. (Client not required.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shared::annotations::{ARGO_APPLICATIONS, ARGO_APPLICATIONS_ALIAS};
use shared::settings::ArgoDiscovery;
use shared::workload::{Namespace, ObjectRef, Workload};

use super::facts::{Application, application_ref};

const TRACKING: &str = "argocd.argoproj.io/tracking-id";
const INSTANCE: &str = "argocd.argoproj.io/instance";

/// What Argo CD calls the cluster that it runs in.
const IN_CLUSTER: [&str; 2] = ["https://kubernetes.default.svc", "in-cluster"];

/// How the Applications of a workload were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The list on the namespace.
    List,
    /// They list workloads of the namespace.
    Resources,
    /// The workload's tracking id.
    Tracking,
    /// The workload's instance label.
    Label,
    /// They merely deploy to its namespace: a guess.
    Destination,
}

/// All Applications that deploy to this cluster.
#[derive(Debug, Clone)]
pub struct Applications {
    all: BTreeMap<ObjectRef, Arc<Application>>,
    by_name: BTreeMap<Arc<str>, BTreeSet<ObjectRef>>,
    by_resource: BTreeMap<ObjectRef, BTreeSet<ObjectRef>>,
    by_destination: BTreeMap<Arc<str>, BTreeSet<ObjectRef>>,
    /// How they are looked for.
    pub discovery: ArgoDiscovery,
    /// More names of this cluster.
    pub cluster_names: BTreeSet<Arc<str>>,
}

impl Default for Applications {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_resource: BTreeMap::new(),
            by_destination: BTreeMap::new(),
            discovery: ArgoDiscovery {
                automatic: true,
                manual: true,
            },
            cluster_names: BTreeSet::new(),
        }
    }
}

impl Applications {
    /// One Application.
    pub fn get(&self, application: &ObjectRef) -> Option<&Arc<Application>> {
        self.all.get(application)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &ObjectRef> {
        self.all.keys()
    }

    /// Takes one in. True if it may belong to other workloads now than before.
    pub fn set(&mut self, application: &Arc<Application>) -> bool {
        let reference = application.reference();
        let here = self.is_here(application);
        if let Some(former) = self.all.get(&reference) {
            let same = here
                && former.resources == application.resources
                && former.destination_namespace == application.destination_namespace
                && former.destination == application.destination;
            if same {
                self.all.insert(reference, Arc::clone(application));
                return false;
            }
        }
        let known = self.remove(&reference).is_some();
        if !here {
            return known;
        }
        for resource in &application.resources {
            let owners = self.by_resource.entry(resource.clone()).or_default();
            owners.insert(reference.clone());
        }
        let named = self.by_name.entry(Arc::clone(&application.object.name)).or_default();
        named.insert(reference.clone());
        let destination = Arc::clone(&application.destination_namespace);
        self.by_destination
            .entry(destination)
            .or_default()
            .insert(reference.clone());
        self.all.insert(reference, Arc::clone(application));
        true
    }

    /// Takes in that one is gone.
    pub fn remove(&mut self, reference: &ObjectRef) -> Option<Arc<Application>> {
        let former = self.all.remove(reference)?;
        for resource in &former.resources {
            drop_from(&mut self.by_resource, resource, reference);
        }
        drop_from(&mut self.by_name, &former.object.name, reference);
        drop_from(&mut self.by_destination, &former.destination_namespace, reference);
        Some(former)
    }

    /// The namespace of another cluster may bear the same name and be production.
    fn is_here(&self, application: &Application) -> bool {
        IN_CLUSTER.contains(&application.destination.as_ref()) || self.cluster_names.contains(&application.destination)
    }

    /// The namespaces whose workloads may belong to it, beside those that name it in a list.
    pub fn namespaces(&self, reference: &ObjectRef) -> BTreeSet<Arc<str>> {
        let Some(application) = self.all.get(reference) else {
            return BTreeSet::new();
        };
        let listed = application
            .resources
            .iter()
            .map(|resource| Arc::clone(&resource.namespace));
        listed
            .chain([Arc::clone(&application.destination_namespace)])
            .filter(|namespace| !namespace.is_empty())
            .collect()
    }

    /// The Applications of a workload, and how they were found.
    pub fn of(&self, workload: &Workload, namespace: Option<&Namespace>) -> Option<(How, BTreeSet<ObjectRef>)> {
        if self.all.is_empty() {
            return None;
        }
        let object = workload.object_ref();
        if self.discovery.manual
            && let Some(listed) = namespace.map(|namespace| self.listed(namespace))
            && !listed.is_empty()
        {
            // Of several on the list, those that say they manage it.
            let managing: BTreeSet<_> = listed
                .iter()
                .filter(|application| self.all.get(*application).is_some_and(|known| known.lists(&object)))
                .cloned()
                .collect();
            return Some((How::List, if managing.is_empty() { listed } else { managing }));
        }
        if !self.discovery.automatic {
            return None;
        }
        if let Some(owners) = self.by_resource.get(&object) {
            return Some((How::Resources, owners.clone()));
        }
        if let Some(tracking) = workload.annotation(TRACKING)
            && let Some((id, _)) = tracking.split_once(':')
            && let Some(application) = self.by_id(id)
        {
            return Some((How::Tracking, BTreeSet::from([application])));
        }
        // `app.kubernetes.io/instance` is Helm's, too: there only an Application counts that lists the object, and those were
        // found above.
        if let Some(application) = workload.label(INSTANCE).and_then(|id| self.by_id(id)) {
            return Some((How::Label, BTreeSet::from([application])));
        }
        let guessed = self.by_destination.get(&workload.namespace)?;
        // One that lists its objects, of which this is none, is not meant.
        let guessed: BTreeSet<_> = guessed
            .iter()
            .filter(|application| {
                self.all
                    .get(*application)
                    .is_some_and(|known| known.resources.is_empty())
            })
            .cloned()
            .collect();
        (!guessed.is_empty()).then_some((How::Destination, guessed))
    }

    /// The Applications that the list on a namespace names and that exist. The label counts before the annotation.
    pub fn listed(&self, namespace: &Namespace) -> BTreeSet<ObjectRef> {
        let on = |keys: Option<&shared::workload::Keys>| {
            [ARGO_APPLICATIONS, ARGO_APPLICATIONS_ALIAS]
                .iter()
                .find_map(|key| keys?.get(*key).cloned())
        };
        let Some(list) = on(namespace.labels.as_ref()).or_else(|| on(namespace.annotations.as_ref())) else {
            return BTreeSet::new();
        };
        list.split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .filter_map(|entry| match entry.split_once('/') {
                Some((namespace, name)) => {
                    Some(application_ref(namespace, name)).filter(|it| self.all.contains_key(it))
                }
                None => self.by_id(entry),
            })
            .collect()
    }

    /// An Application by what Argo CD writes on objects: `name`, or `namespace_name` where it is not in Argo CD's own
    /// namespace.
    fn by_id(&self, id: &str) -> Option<ObjectRef> {
        if let Some((namespace, name)) = id.split_once('_') {
            let reference = application_ref(namespace, name);
            if self.all.contains_key(&reference) {
                return Some(reference);
            }
        }
        self.by_name.get(id)?.first().cloned()
    }
}

fn drop_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectRef>>, key: &K, reference: &ObjectRef) {
    if let Some(set) = index.get_mut(key) {
        set.remove(reference);
        if set.is_empty() {
            index.remove(key);
        }
    }
}
