//! observe, for what stands beside workloads: which resources are followed, and how they get into the snapshot.
//! Client required (through the follower).

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::follow::{Follower, SourceSpec};
use cluster::intern::Interner;
use cluster::reflector::Resource;
use cluster::store::{Facts, Identity, SourceState, Store};
use cluster::view::View;
use serde_json::Value;
use shared::annotations::{STATE_ARGO, STATE_HPA, STATE_TYPE};
use shared::kinds::Kind;
use shared::workload::{ObjectRef, Workload};

use crate::argo::{self, Application, State};
use crate::decide::neighbours::Sight;
use crate::decide::snapshot::{Dirty, Snapshot};
use crate::flux::{self, FluxObject};
use crate::hpa::{Backup, FOREIGN_NAMESPACE, backup_keep};

/// What a ConfigMap of ours keeps.
#[derive(Debug, Clone)]
pub struct Kept {
    object: ObjectRef,
    uid: Arc<str>,
    resource_version: Arc<str>,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Backup(Arc<Backup>),
    State(Arc<State>),
}

impl Kept {
    /// Reads it. `Err`: it keeps nothing of ours, or nobody can read what.
    pub fn read(object: &Value) -> Result<Self, String> {
        let kind = object
            .pointer("/metadata/labels/offhours.platform.io~1type")
            .and_then(Value::as_str);
        if kind == Some(STATE_ARGO) {
            let state = State::read(object)?;
            return Ok(Self {
                object: state.object.clone(),
                uid: Arc::clone(&state.uid),
                resource_version: Arc::clone(&state.resource_version),
                what: What::State(Arc::new(state)),
            });
        }
        let backup = Backup::read(object)?;
        Ok(Self {
            object: backup.object.clone(),
            uid: Arc::clone(&backup.uid),
            resource_version: Arc::clone(&backup.resource_version),
            what: What::Backup(Arc::new(backup)),
        })
    }
}

impl Facts for Kept {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.object.namespace,
            name: &self.object.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

impl Facts for Application {
    fn identity(&self) -> Identity<'_> {
        self.object.identity()
    }

    fn intern(&mut self, interner: &mut Interner) {
        Workload::intern(&mut self.object, interner);
    }
}

impl Facts for FluxObject {
    fn identity(&self) -> Identity<'_> {
        self.object.identity()
    }

    fn intern(&mut self, interner: &mut Interner) {
        Workload::intern(&mut self.object, interner);
    }
}

/// The stores of what stands beside workloads.
#[derive(Default)]
pub struct Beside {
    /// Our own ConfigMaps, and where K8s-OffHours kept its.
    states: Vec<Arc<Store<Kept>>>,
    applications: Option<Arc<Store<Application>>>,
    /// Applications come by Argo CD's HTTP API instead; whoever asks that says how far they can be relied on.
    by_api: bool,
    flux: Vec<Arc<Store<FluxObject>>>,
    /// All of this is out of sight, and nobody relies on it.
    left_out: bool,
}

/// What is followed beside workloads and HPAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Following {
    /// All of it; Applications as objects of the cluster.
    Everything,
    /// The same, but Applications come by the HTTP API.
    ArgoByApi,
    /// With rights in single namespaces only: nothing but our own ConfigMaps.
    OwnNamespace,
    /// Nothing: whoever only looks, and may see one namespace, does as if there were none of it, and says so.
    Nothing,
}

impl Beside {
    /// Starts to follow. Must be called within a tokio runtime.
    pub fn follow(follower: &Follower, own_namespace: &str, following: Following) -> Self {
        if following == Following::Nothing {
            return Self {
                left_out: true,
                ..Self::default()
            };
        }
        let mut places = vec![own_namespace];
        if own_namespace != FOREIGN_NAMESPACE && following != Following::OwnNamespace {
            places.push(FOREIGN_NAMESPACE);
        }
        let states = places
            .into_iter()
            .map(|namespace| follower.follow(states_of(namespace)))
            .collect();
        let applications = (following == Following::Everything).then(|| {
            let kind = argo::kind();
            let read = Arc::new(Application::read);
            follower.follow(spec(kind, argo::keep(), read))
        });
        let wanted = following != Following::OwnNamespace;
        let flux = flux::kinds().iter().filter(|_| wanted).map(|kind| {
            let row = Arc::clone(kind);
            let read = Arc::new(move |object: &Value| FluxObject::read(&row, object));
            follower.follow(spec(kind, flux::keep(), read))
        });
        let by_api = following == Following::ArgoByApi;
        let applications = applications.or_else(|| by_api.then(|| told_of(follower)));
        Self {
            states,
            applications,
            by_api,
            flux: flux.collect(),
            left_out: false,
        }
    }

    /// The Applications.
    pub fn applications(&self) -> Option<&Arc<Store<Application>>> {
        self.applications.as_ref()
    }

    /// Takes in one object. False if it is none of these.
    pub(crate) fn take(&self, view: &View, object: &ObjectRef, snapshot: &mut Snapshot, dirty: &mut Dirty) -> bool {
        let beside = &mut snapshot.beside;
        let kind = object.kind.as_ref();
        match (object.group.as_ref(), kind) {
            ("autoscaling", "HorizontalPodAutoscaler") => match view.hpas().get(&object.namespace, &object.name) {
                Some(hpa) => beside.set_hpa(&hpa, dirty),
                None => beside.remove_hpa(object, dirty),
            },
            ("", "ConfigMap") => {
                let kept = self
                    .states
                    .iter()
                    .find_map(|store| store.get(&object.namespace, &object.name));
                match kept.as_deref().map(|kept| &kept.what) {
                    Some(What::Backup(backup)) => beside.set_backup(backup, dirty),
                    Some(What::State(state)) => beside.set_state(state, dirty),
                    None => {
                        beside.remove_backup(object, dirty);
                        beside.remove_state(object, dirty);
                    }
                }
            }
            (argo::GROUP, "Application") => {
                let Some(store) = &self.applications else { return true };
                match store.get(&object.namespace, &object.name) {
                    Some(application) => beside.set_application(&application, dirty),
                    None => beside.remove_application(object, dirty),
                }
            }
            (group, _) if flux::kinds().iter().any(|row| row.group == group && row.kind == kind) => {
                let found = self.flux.iter().find_map(|store| {
                    let found = store.get(&object.namespace, &object.name)?;
                    (*found.object.kind.kind == *kind).then_some(found)
                });
                match found {
                    Some(found) => beside.set_flux(&found, dirty),
                    None => beside.remove_flux(object, dirty),
                }
            }
            _ => return false,
        }
        true
    }

    /// Takes in everything, and how far it can be relied on.
    pub(crate) fn take_everything(&self, view: &View, snapshot: &mut Snapshot, dirty: &mut Dirty) {
        let mut seen = BTreeSet::new();
        let beside = &mut snapshot.beside;
        for hpa in view.hpas().all() {
            seen.insert(hpa.object.object_ref());
            beside.set_hpa(&hpa, dirty);
        }
        for kept in self.states.iter().flat_map(|store| store.all()) {
            seen.insert(kept.object.clone());
            match &kept.what {
                What::Backup(backup) => beside.set_backup(backup, dirty),
                What::State(state) => beside.set_state(state, dirty),
            }
        }
        for application in self.applications.iter().flat_map(|store| store.all()) {
            seen.insert(application.reference());
            beside.set_application(&application, dirty);
        }
        for object in self.flux.iter().flat_map(|store| store.all()) {
            seen.insert(object.object.object_ref());
            beside.set_flux(&object, dirty);
        }
        // Applications that came by the HTTP API are no objects that could be gone.
        let applications = beside.applications.all().filter(|_| self.applications.is_some());
        let known = beside.hpas().chain(beside.config_maps()).chain(beside.flux());
        let gone: Vec<ObjectRef> = known
            .chain(applications)
            .filter(|object| !seen.contains(*object))
            .cloned()
            .collect();
        for object in gone {
            self.take(view, &object, snapshot, dirty);
        }
        if self.left_out {
            return;
        }
        let beside = &mut snapshot.beside;
        // Where K8s-OffHours kept its backups we may have no rights.
        beside.state_sight = self.states.first().map_or_else(
            || Err(Arc::from("ConfigMaps are not followed")),
            |store| sight(&store.state()),
        );
        match &self.applications {
            _ if self.by_api => {}
            Some(store) => beside.argo_sight = sight(&store.state()),
            None => beside.argo_sight = Err(Arc::from("Applications are not followed")),
        }
        let flux = self.flux.iter().map(|store| sight(&store.state()));
        beside.flux_sight = if self.flux.is_empty() {
            Err(Arc::from("Flux objects are not followed"))
        } else {
            flux.collect::<Result<Vec<()>, _>>().map(drop)
        };
    }
}

/// A store that no reflector fills: the HTTP API tells.
fn told_of(follower: &Follower) -> Arc<Store<Application>> {
    let (kind, view) = (argo::kind(), follower.view());
    let store = Arc::new(Store::new(
        &kind.group,
        &kind.kind,
        &kind.plural,
        Arc::clone(view.changes()),
    ));
    let told = Arc::clone(&store);
    view.add_taker(
        &kind.group,
        &kind.kind,
        None,
        Arc::new(move |json: &[u8]| {
            let object: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
            told.apply_answer(Application::read(&object)?);
            Ok(())
        }),
    );
    store
}

fn sight(state: &SourceState) -> Sight {
    match state {
        SourceState::Filled | SourceState::Failing { .. } | SourceState::Absent => Ok(()),
        SourceState::Forbidden { message } => Err(Arc::clone(message)),
        SourceState::Unfilled { trouble } => Err(trouble.clone().unwrap_or_else(|| Arc::from("not read yet"))),
    }
}

fn states_of(namespace: &str) -> SourceSpec<Kept> {
    SourceSpec {
        resource: Resource {
            group: String::new(),
            version: "v1".to_owned(),
            plural: "configmaps".to_owned(),
            namespace: Some(namespace.to_owned()),
            metadata_only: false,
            labels: Some(format!("{STATE_TYPE} in ({STATE_HPA},{STATE_ARGO})")),
        },
        kind: "ConfigMap".to_owned(),
        keep: backup_keep(),
        read: Arc::new(Kept::read),
        custom: false,
    }
}

fn spec<T: Facts>(
    kind: &Arc<Kind>,
    keep: shared::prune::Keep,
    read: cluster::reflector::ReadFacts<T>,
) -> SourceSpec<T> {
    SourceSpec {
        resource: Resource {
            group: kind.group.to_string(),
            version: kind.version.to_string(),
            plural: kind.plural.to_string(),
            namespace: None,
            metadata_only: false,
            labels: None,
        },
        kind: kind.kind.to_string(),
        keep,
        read,
        custom: true,
    }
}
