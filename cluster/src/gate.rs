//! Custom kinds are listed only while their `CustomResourceDefinition` exists. No client required.

use std::sync::Arc;

use serde_json::Value;
use shared::prune::Keep;

use crate::store::{Facts, Identity, SourceState, Store};

/// What we need of an object whose name is all that matters, such as a `CustomResourceDefinition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Resource version.
    pub resource_version: Arc<str>,
}

impl Named {
    /// Reads it from an object's metadata.
    pub fn read(object: &Value) -> Result<Self, String> {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
        Ok(Self {
            name: text("name").ok_or("metadata.name is missing")?.into(),
            uid: text("uid").unwrap_or_default().into(),
            resource_version: text("resourceVersion").unwrap_or_default().into(),
        })
    }

    /// The fields it needs.
    pub fn keep() -> Keep {
        let mut keep = Keep::nothing();
        for field in ["name", "uid", "resourceVersion"] {
            keep.add(["metadata", field], Keep::All);
        }
        keep
    }
}

impl Facts for Named {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: "",
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

/// Whether a kind may be listed now.
#[derive(Clone)]
pub(crate) enum Gate {
    /// Part of Kubernetes.
    Open,
    /// While this `CustomResourceDefinition` exists.
    Crd {
        definitions: Arc<Store<Named>>,
        name: Arc<str>,
    },
}

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// List it.
    Open,
    /// There is no such kind.
    Closed,
    /// Not known yet.
    Unknown,
    /// We may not see `CustomResourceDefinition`s: try, and take a 404 for absence.
    Blind,
}

impl Gate {
    pub fn look(&self) -> Passage {
        match self {
            Self::Open => Passage::Open,
            Self::Crd { definitions, name } => match definitions.state() {
                SourceState::Unfilled { trouble: None } => Passage::Unknown,
                // Where definitions cannot be read, whatever the reason, the kind itself may still be.
                SourceState::Unfilled { .. } | SourceState::Forbidden { .. } | SourceState::Absent => Passage::Blind,
                _ if definitions.get("", name).is_some() => Passage::Open,
                _ => Passage::Closed,
            },
        }
    }

    /// Waits until the gate says something of which `wanted` is true.
    pub async fn until(&self, wanted: impl Fn(Passage) -> bool) -> Passage {
        let Self::Crd { definitions, .. } = self else {
            if wanted(Passage::Open) {
                return Passage::Open;
            }
            return std::future::pending().await;
        };
        let mut stirred = definitions.stirred();
        loop {
            stirred.mark_unchanged();
            let passage = self.look();
            if wanted(passage) {
                return passage;
            }
            // The store outlives every gate that looks at it; without it nothing would change any more.
            if stirred.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
