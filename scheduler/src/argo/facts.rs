//! What is read of an Argo CD Application, and what our pause saved of it. (Client not required.)

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotations::{DOWN_SINCE, ORIGINAL_AUTOMATED, STATE_ARGO, STATE_TYPE, parse_instant};
use shared::kinds::{ByDefault, Form, Kind, Knob, Readiness};
use shared::prune::Keep;
use shared::workload::{ObjectRef, Workload};

/// Group of Argo CD's own kinds.
pub const GROUP: &str = "argoproj.io";

const KNOBS: &[Knob] = &[Knob {
    name: Cow::Borrowed("automated"),
    pointer: Cow::Borrowed("/spec/syncPolicy/automated"),
    form: Form::Text(Cow::Borrowed("")),
}];

static KIND: LazyLock<Arc<Kind>> = LazyLock::new(|| {
    Arc::new(Kind {
        group: Cow::Borrowed(GROUP),
        version: Cow::Borrowed("v1alpha1"),
        kind: Cow::Borrowed("Application"),
        plural: Cow::Borrowed("applications"),
        knobs: Cow::Borrowed(KNOBS),
        by_default: ByDefault::No,
        readiness: Readiness::None,
        scale: false,
        built_in: false,
    })
});

/// The row of Applications: no workload, but read and patched like one.
pub fn kind() -> &'static Arc<Kind> {
    &KIND
}

/// How automated sync was switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// `automated.enabled: false`; Argo CD before 3.1 does not know the field.
    Disabled,
    /// The block `automated` was removed.
    Removed,
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Removed => "removed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "disabled" => Some(Self::Disabled),
            "removed" => Some(Self::Removed),
            _ => None,
        }
    }
}

/// What a pause saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// The whole block `automated`.
    pub automated: Value,
    /// How it was switched off last; `None`: not told.
    pub way: Option<Way>,
    /// When.
    pub since: Option<Timestamp>,
}

impl Saved {
    /// The text of the annotation.
    pub fn text(automated: &Value, way: Way) -> String {
        json!({"automated": automated, "way": way.text()}).to_string()
    }

    fn parse(text: &str, since: Option<Timestamp>) -> Option<Self> {
        let saved: Value = serde_json::from_str(text).ok()?;
        Some(Self {
            automated: saved.get("automated").filter(|block| block.is_object())?.clone(),
            way: saved.get("way").and_then(Value::as_str).and_then(Way::parse),
            since,
        })
    }
}

/// An operation (a sync, mostly) that runs or is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Since when; `None`: not begun, or not told.
    pub since: Option<Timestamp>,
    /// It runs, so that it can be terminated: it is neither merely asked for, nor being terminated already.
    pub runs: bool,
}

/// The facts of one Application.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// Metadata, and the knob `automated`.
    pub object: Workload,
    /// Namespace that it deploys to by default.
    pub destination_namespace: Arc<str>,
    /// The cluster that it deploys to: server URL or name.
    pub destination: Arc<str>,
    /// The operation under way.
    pub operation: Option<Operation>,
    /// What it says it manages.
    pub resources: BTreeSet<ObjectRef>,
}

impl Application {
    /// Reads the facts from a pruned (or whole) object.
    pub fn read(object: &Value) -> Result<Self, String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let facts = Workload::read(kind(), object).map_err(|error| error.to_string())?;
        let phase = text("/status/operationState/phase");
        let asked = object.get("operation").is_some_and(Value::is_object);
        let operation = (asked || phase == "Running" || phase == "Terminating").then(|| Operation {
            since: text("/status/operationState/startedAt").parse().ok().filter(|_| !asked),
            runs: phase == "Running",
        });
        let namespace = text("/spec/destination/namespace");
        let listed = object.pointer("/status/resources").and_then(Value::as_array);
        let resources = listed
            .into_iter()
            .flatten()
            .map(|resource| {
                let text = |field: &str| Arc::from(resource.get(field).and_then(Value::as_str).unwrap_or_default());
                ObjectRef {
                    group: text("group"),
                    kind: text("kind"),
                    namespace: text("namespace"),
                    name: text("name"),
                }
            })
            .collect();
        let server = text("/spec/destination/server");
        let destination = if server.is_empty() {
            text("/spec/destination/name")
        } else {
            server
        };
        Ok(Self {
            object: facts,
            destination_namespace: Arc::from(namespace),
            destination: Arc::from(destination),
            operation,
            resources,
        })
    }

    /// Its reference.
    pub fn reference(&self) -> ObjectRef {
        self.object.object_ref()
    }

    /// The block `automated`.
    pub fn automated(&self) -> Option<&Value> {
        self.object.knobs.first()?.value.as_ref()
    }

    /// Whether Argo CD syncs it by itself.
    pub fn is_automated(&self) -> bool {
        self.automated()
            .is_some_and(|block| block.get("enabled").and_then(Value::as_bool) != Some(false))
    }

    /// What its annotations say of our pause. `Err`: the text that cannot be read.
    pub fn saved(&self) -> Option<Result<Saved, String>> {
        let text = self.object.annotation(ORIGINAL_AUTOMATED)?;
        let since = self
            .object
            .annotation(DOWN_SINCE)
            .and_then(|text| parse_instant(DOWN_SINCE, text).ok());
        Some(Saved::parse(text, since).ok_or_else(|| text.to_owned()))
    }

    /// Whether it lists an object.
    pub fn lists(&self, object: &ObjectRef) -> bool {
        self.resources.contains(object)
    }
}

/// The fields that have to be read of an Application.
pub fn keep() -> Keep {
    let mut keep = Keep::nothing();
    for field in [
        "namespace",
        "name",
        "uid",
        "resourceVersion",
        "deletionTimestamp",
        "labels",
        "ownerReferences",
    ] {
        keep.add(["metadata", field], Keep::All);
    }
    keep.add(
        ["metadata", "annotations"],
        Keep::Keys {
            wanted: shared::workload::concerns_us,
            also: Vec::new(),
        },
    );
    let mut manager = Keep::nothing();
    for field in ["manager", "operation", "subresource"] {
        manager.add([field], Keep::All);
    }
    manager.add(["fieldsV1", "f:spec", "f:syncPolicy", "f:automated"], Keep::All);
    keep.add(["metadata", "managedFields"], Keep::Each(Box::new(manager)));
    keep.add(["spec", "syncPolicy", "automated"], Keep::All);
    keep.add(["spec", "destination"], Keep::All);
    keep.add(["operation"], Keep::nothing());
    for field in ["phase", "startedAt"] {
        keep.add(["status", "operationState", field], Keep::All);
    }
    let mut resource = Keep::nothing();
    for field in ["group", "kind", "namespace", "name"] {
        resource.add([field], Keep::All);
    }
    keep.add(["status", "resources"], Keep::Each(Box::new(resource)));
    keep
}

/// What a ConfigMap of ours keeps of an Application: an `ApplicationSet` removes annotations that it does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The ConfigMap.
    pub object: ObjectRef,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its resource version.
    pub resource_version: Arc<str>,
    /// The Application.
    pub application: ObjectRef,
    /// UID of the Application; empty for one that the HTTP API told of without.
    pub application_uid: Arc<str>,
    /// What was saved.
    pub saved: Saved,
}

impl State {
    /// Reads it. `Err`: it is none, and why.
    pub fn read(object: &Value) -> Result<Self, String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let needed = |pointer: &str| text(pointer).ok_or_else(|| format!("{pointer} is missing"));
        if text("/metadata/labels/offhours.platform.io~1type") != Some(STATE_ARGO) {
            return Err(format!("the label {STATE_TYPE}={STATE_ARGO} is missing"));
        }
        let since = text("/data/since").and_then(|text| text.parse().ok());
        let saved = needed("/data/application.json")?;
        Ok(Self {
            object: crate::states::config_map_ref(needed("/metadata/namespace")?, needed("/metadata/name")?),
            uid: Arc::from(text("/metadata/uid").unwrap_or_default()),
            resource_version: Arc::from(text("/metadata/resourceVersion").unwrap_or_default()),
            application: application_ref(needed("/data/targetNamespace")?, needed("/data/targetApplication")?),
            application_uid: Arc::from(text("/data/targetUid").unwrap_or_default()),
            saved: Saved::parse(saved, since).ok_or_else(|| format!("{saved:?} is no record of a pause"))?,
        })
    }
}

/// The reference of an Application.
pub fn application_ref(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ObjectRef {
    ObjectRef {
        group: Arc::from(GROUP),
        kind: Arc::from("Application"),
        namespace: namespace.into(),
        name: name.into(),
    }
}
