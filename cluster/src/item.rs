//! Objects that are kept whole, typed, and with the reason where they cannot be read. No client required.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::{hpa::Hpa, workload::Workload};

use crate::{
    intern::Interner,
    store::{Facts, Identity},
};

/// An object of which every field is wanted, such as an `OffHoursSchedule`.
///
/// One that does not fit its type is kept with the reason: an invalid schedule is not an absent one.
#[derive(Debug, Clone)]
pub struct Item<K> {
    /// Namespace; empty for what is cluster-scoped.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Resource version.
    pub resource_version: Arc<str>,
    /// The object, or why it cannot be read.
    pub object: Result<K, Arc<str>>,
}

impl<K: DeserializeOwned> Item<K> {
    /// Reads an object.
    pub fn read(object: &Value) -> Result<Self, String> {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
        Ok(Self {
            namespace: text("namespace").unwrap_or_default().into(),
            name: text("name").ok_or("metadata.name is missing")?.into(),
            uid: text("uid").unwrap_or_default().into(),
            resource_version: text("resourceVersion").unwrap_or_default().into(),
            object: K::deserialize(object).map_err(|error| error.to_string().into()),
        })
    }
}

impl<K: Send + Sync + 'static> Facts for Item<K> {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

impl Facts for Hpa {
    fn identity(&self) -> Identity<'_> {
        self.object.identity()
    }

    fn intern(&mut self, interner: &mut Interner) {
        Workload::intern(&mut self.object, interner);
        if let Some(controller) = &mut self.controller {
            *controller = interner.text(controller);
        }
        if let Some(target) = &mut self.target {
            target.group = interner.text(&target.group);
            target.kind = interner.text(&target.kind);
        }
    }
}
