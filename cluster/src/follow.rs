//! Starts the reflectors that fill a View. Client required.

use std::sync::{Arc, Mutex, PoisonError};

use kube::Client;
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::Value;
use shared::{
    hpa::Hpa,
    kinds::{Kind, Kinds},
    prune::Keep,
    workload::{Namespace, Workload},
};
use tokio::task::AbortHandle;

use crate::{
    client::Clients,
    gate::{Gate, Named},
    item::Item,
    reflector::{Pace, ReadFacts, Reflector, RenewClient, Resource},
    store::{Facts, Store},
    view::{PATIENCE, View},
};

/// How much of the cluster is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    Cluster,
    /// These only: Roles suffice. Namespaces and `CustomResourceDefinition`s are tried and may be forbidden.
    Namespaces(Vec<String>),
    /// One namespace of a cluster whose schedules are followed: what somebody sees who has rights in it alone. The namespace
    /// itself is not followed, since it cannot be listed: whoever may read it puts it into [`View::namespaces`].
    Namespace(String),
}

/// The reflectors of one View; they end when it is dropped.
pub struct Follower {
    view: Arc<View>,
    client: Client,
    renew: Option<RenewClient>,
    scope: Scope,
    pace: Pace,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// One more resource to follow.
pub struct SourceSpec<T> {
    /// What is listed and watched.
    pub resource: Resource,
    /// Its kind, as in manifests.
    pub kind: String,
    /// The fields that `read` needs.
    pub keep: Keep,
    /// Reads the facts.
    pub read: ReadFacts<T>,
    /// It is a custom kind, listed only while its definition exists.
    pub custom: bool,
}

impl<K: DeserializeOwned + Send + Sync + 'static> SourceSpec<Item<K>> {
    /// Whole objects of type `K`.
    pub fn whole(resource: Resource, kind: impl Into<String>, custom: bool) -> Self {
        Self {
            resource,
            kind: kind.into(),
            keep: Keep::All,
            read: Arc::new(Item::read),
            custom,
        }
    }
}

impl Follower {
    /// As [`Self::start`], with credentials that are read anew as soon as they are refused.
    pub fn start_renewing(clients: &Clients, kinds: Kinds, scope: Scope, pace: Pace) -> Self {
        let again = clients.clone();
        let renew: RenewClient = Arc::new(move || again.renewed_watches().ok());
        Self::start_with(clients.watches.clone(), Some(renew), kinds, scope, pace)
    }

    /// Starts to follow namespaces, `CustomResourceDefinition`s, schedules and HPAs. `client` should be [`crate::client::Clients::watches`].
    ///
    /// Must be called within a tokio runtime, like all methods that start to follow something.
    pub fn start(client: Client, kinds: Kinds, scope: Scope, pace: Pace) -> Self {
        Self::start_with(client, None, kinds, scope, pace)
    }

    fn start_with(client: Client, renew: Option<RenewClient>, kinds: Kinds, scope: Scope, pace: Pace) -> Self {
        let follower = Self {
            view: Arc::new(View::new(kinds, !matches!(scope, Scope::Namespaces(_)))),
            client,
            renew,
            scope,
            pace,
            tasks: Mutex::default(),
        };
        let view = Arc::clone(&follower.view);
        let definitions = Resource {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
            namespace: None,
            metadata_only: true,
            labels: None,
        };
        // A missing right on definitions must not keep anybody from being ready, so they are no source of the view's.
        follower.reflect(
            definitions,
            Arc::new(Named::keep()),
            Arc::new(Named::read),
            Arc::clone(view.definitions()),
            Gate::Open,
        );
        let namespaces = Resource {
            group: String::new(),
            version: "v1".to_owned(),
            plural: "namespaces".to_owned(),
            namespace: None,
            metadata_only: true,
            labels: None,
        };
        if !matches!(follower.scope, Scope::Namespace(_)) {
            view.add_source(Arc::clone(view.namespaces()) as _);
            follower.reflect(
                namespaces,
                Arc::clone(view.kinds().keep()),
                Arc::new(|object: &Value| Namespace::read(object).ok_or_else(|| "metadata is missing".to_owned())),
                Arc::clone(view.namespaces()),
                Gate::Open,
            );
        }
        if let Some(schedules) = view.schedules() {
            let resource = Resource {
                group: shared::api::GROUP.to_owned(),
                version: shared::api::VERSION.to_owned(),
                plural: "offhoursschedules".to_owned(),
                namespace: None,
                metadata_only: false,
                labels: None,
            };
            view.add_source(Arc::clone(schedules) as _);
            let gate = follower.gate(true, &resource.plural, &resource.group);
            follower.reflect(
                resource,
                Arc::new(Keep::All),
                Arc::new(Item::read),
                Arc::clone(schedules),
                gate,
            );
        }
        let hpa = shared::hpa::kind();
        view.add_source(Arc::clone(view.hpas()) as _);
        follower.reflect_scoped(
            &resource_of(hpa),
            &Arc::new(shared::hpa::keep()),
            &(Arc::new(|object: &Value| Hpa::read(object).map_err(|error| error.to_string())) as _),
            view.hpas(),
            &Gate::Open,
        );
        follower
    }

    /// What is known.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Follows a kind of workload from now on; again is nothing.
    pub fn follow_kind(&self, kind: &Arc<Kind>) {
        let Some(store) = self.view.place_for(kind) else { return };
        self.view.add_source(Arc::clone(&store) as _);
        let row = Arc::clone(kind);
        let read: ReadFacts<Workload> =
            Arc::new(move |object: &Value| Workload::read(&row, object).map_err(|error| error.to_string()));
        let gate = self.gate(!kind.built_in, &kind.plural, &kind.group);
        self.reflect_scoped(&resource_of(kind), self.view.kinds().keep(), &read, &store, &gate);
    }

    /// Follows one more resource; its changes are told like all others.
    pub fn follow<T: Facts>(&self, spec: SourceSpec<T>) -> Arc<Store<T>> {
        let SourceSpec {
            resource,
            kind,
            keep,
            read,
            custom,
        } = spec;
        let changes = Arc::clone(self.view.changes());
        let store = Store::new(&resource.group, &kind, &resource.plural, changes).dispensable_after(PATIENCE);
        let store = Arc::new(store);
        self.view.add_source(Arc::clone(&store) as _);
        let gate = self.gate(custom, &resource.plural, &resource.group);
        let keep = Arc::new(keep);
        self.view
            .add_taker(&resource.group, &kind, resource.namespace.as_deref(), {
                let (keep, read, store) = (Arc::clone(&keep), Arc::clone(&read), Arc::clone(&store));
                Arc::new(move |json: &[u8]| {
                    let pruned = keep
                        .deserialize(&mut serde_json::Deserializer::from_slice(json))
                        .map_err(|error| error.to_string())?;
                    store.apply_answer(read(&pruned)?);
                    Ok(())
                })
            });
        self.reflect(resource, keep, read, Arc::clone(&store), gate);
        store
    }

    fn gate(&self, custom: bool, plural: &str, group: &str) -> Gate {
        if custom {
            let name = format!("{plural}.{group}").into();
            Gate::Crd {
                definitions: Arc::clone(self.view.definitions()),
                name,
            }
        } else {
            Gate::Open
        }
    }

    fn reflect_scoped<T: Facts>(
        &self,
        resource: &Resource,
        keep: &Arc<Keep>,
        read: &ReadFacts<T>,
        store: &Arc<Store<T>>,
        gate: &Gate,
    ) {
        let places = match &self.scope {
            Scope::Cluster => vec![None],
            Scope::Namespaces(names) => names.iter().cloned().map(Some).collect(),
            Scope::Namespace(name) => vec![Some(name.clone())],
        };
        for namespace in places {
            let resource = Resource {
                namespace,
                ..resource.clone()
            };
            self.reflect(
                resource,
                Arc::clone(keep),
                Arc::clone(read),
                Arc::clone(store),
                gate.clone(),
            );
        }
    }

    fn reflect<T: Facts>(
        &self,
        resource: Resource,
        keep: Arc<Keep>,
        read: ReadFacts<T>,
        store: Arc<Store<T>>,
        gate: Gate,
    ) {
        let part = store.register();
        let reflector = Reflector {
            client: self.client.clone(),
            renew: self.renew.clone(),
            resource,
            keep,
            read,
            store,
            gate,
            pace: self.pace.clone(),
            part,
            list: 0,
            complained: None,
            unreadable: None,
        };
        let task = tokio::spawn(reflector.run());
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(task.abort_handle());
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .for_each(AbortHandle::abort);
    }
}

fn resource_of(kind: &Kind) -> Resource {
    Resource {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        plural: kind.plural.to_string(),
        namespace: None,
        metadata_only: false,
        labels: None,
    }
}
