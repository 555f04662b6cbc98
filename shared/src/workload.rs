//! The few facts that we need of a workload and of its namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::annotations::PREFIX;
use crate::kinds::{Kind, Kinds};
use crate::prune::Keep;

mod progress;

use progress::{condition, finished, ready, rollout};

/// The field manager under which all our writes are made.
pub const FIELD_MANAGER: &str = "offhours";

/// Labels or annotations.
pub type Keys = BTreeMap<Arc<str>, Arc<str>>;

/// What names an object in the cluster for as long as it has its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// API group.
    pub group: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Namespace, empty for what is cluster-scoped.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.to_ascii_lowercase(), self.namespace, self.name)
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// API group of the owner.
    pub group: Arc<str>,
    /// Kind of the owner.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// Whether it is the managing controller.
    pub controller: bool,
}

/// One knob as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The value; `None` if the field is absent.
    pub value: Option<Value>,
    /// How many tokens of the pointer exist, so that a patch can add what is missing.
    pub depth: usize,
}

/// Whether all pods are of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollout {
    /// Nothing is being rolled out.
    Settled,
    /// On its way; to be waited for until `deadline`, or where that is not known, for ten minutes.
    Moving {
        /// The controller's own progress deadline.
        deadline: Option<Timestamp>,
    },
    /// Stuck, paused or partitioned; the text says which.
    Unfinished(&'static str),
}

/// What `metadata.managedFields` says that concerns us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Managers {
    /// Who owns the first knob, if anybody does.
    pub knob: Option<Arc<str>>,
    /// Another manager uses server-side apply on the object.
    pub applied_by_other: bool,
    /// Index of our own Update entry.
    pub own_entry: Option<usize>,
}

/// The facts of one workload.
// Independent facts, not states of one machine.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its row in the table.
    pub kind: Arc<Kind>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name. Empty in the review of a CREATE with `generateName`.
    pub name: Arc<str>,
    /// UID. Empty in the review of a CREATE.
    pub uid: Arc<str>,
    /// Resource version, opaque. Empty in the review of a CREATE.
    pub resource_version: Arc<str>,
    /// When it was created. `None` in the review of a CREATE.
    pub created: Option<Timestamp>,
    /// It is being deleted.
    pub terminating: bool,
    /// All labels; `None` if there is no such map.
    pub labels: Option<Keys>,
    /// The annotations that concern us; `None` if there is no such map.
    pub annotations: Option<Keys>,
    /// Owners.
    pub owners: Vec<Owner>,
    /// The knobs, in the order of the row.
    pub knobs: Vec<Reading>,
    /// Whether all pods are of one revision.
    pub rollout: Rollout,
    /// Whether it is ready at the count that it has now.
    pub ready: bool,
    /// A Job that has started and not finished.
    pub running: bool,
    /// A Job that is over: nothing of it is left to be put to sleep.
    pub finished: bool,
    /// When a CronJob's controller last started a Job, or was told that it need not start an older one.
    pub last_schedule: Option<Timestamp>,
    /// Message of a `ReplicaFailure` condition that is True.
    pub replica_failure: Option<Arc<str>>,
    /// Who manages it.
    pub managers: Managers,
    /// What `spec.scaleTargetRef` names: the target of a ScaledObject.
    pub scale_target: Option<ScaleTarget>,
    /// What one replica asks for; nothing where it was read for a review.
    pub requests: Requests,
}

/// CPU and memory that the containers of one pod ask for, added up; 0 where nothing is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// Thousandths of a core.
    pub milli_cpu: u32,
    /// Bytes.
    pub memory: u64,
}

impl Requests {
    /// Reads the pod template of a workload.
    fn read(spec: &Value) -> Self {
        let containers = spec.pointer("/template/spec/containers").and_then(Value::as_array);
        let mut sum = (0.0, 0.0);
        for requests in containers
            .into_iter()
            .flatten()
            .filter_map(|one| one.pointer("/resources/requests"))
        {
            sum.0 += requests.get("cpu").and_then(quantity).unwrap_or(0.0) * 1000.0;
            sum.1 += requests.get("memory").and_then(quantity).unwrap_or(0.0);
        }
        // Out of bounds, a conversion stops at the bound.
        Self {
            milli_cpu: sum.0.round() as u32,
            memory: sum.1.round() as u64,
        }
    }

    /// Cores.
    pub fn cores(self) -> f64 {
        f64::from(self.milli_cpu) / 1000.0
    }

    /// GiB.
    pub fn gib(self) -> f64 {
        self.memory as f64 / 1_073_741_824.0
    }
}

/// What the suffixes of quantities mean.
const SUFFIXES: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("m", 0.001),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
];

/// A Kubernetes quantity, such as `100m`, `1.5` or `128Mi`. `None`: it is none, or below 0.
fn quantity(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok().or_else(|| {
            SUFFIXES
                .iter()
                .find_map(|(suffix, factor)| Some(text.strip_suffix(suffix)?.parse::<f64>().ok()? * factor))
        }),
        _ => None,
    };
    number.filter(|number| *number >= 0.0)
}

/// What an autoscaler scales, in its own namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScaleTarget {
    /// API group.
    pub group: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ScaleTarget {
    /// Reads a `scaleTargetRef`. KEDA's may leave `apiVersion` and `kind` out: a Deployment is meant.
    pub fn read(target: &Value) -> Option<Self> {
        let text = |field: &str, default: &str| Arc::from(target.get(field).and_then(Value::as_str).unwrap_or(default));
        let version: Arc<str> = text("apiVersion", "apps/v1");
        Some(Self {
            group: Arc::from(version.rsplit_once('/').map_or("", |(group, _)| group)),
            kind: text("kind", "Deployment"),
            name: Arc::from(target.get("name")?.as_str()?),
        })
    }

    /// Whether it names this workload (the namespace is the same by nature).
    pub fn names(&self, workload: &Workload) -> bool {
        self.name == workload.name && *self.kind == *workload.kind.kind && *self.group == *workload.kind.group
    }
}

/// An object that lacks what every object has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unable to read {kind}: {what}")]
pub struct ReadWorkload {
    /// The kind that was expected.
    pub kind: String,
    /// What is missing or of the wrong form.
    pub what: &'static str,
}

impl Workload {
    /// Reads the facts from a pruned (or whole) object.
    pub fn read(kind: &Arc<Kind>, object: &Value) -> Result<Self, ReadWorkload> {
        let Some(metadata) = object.get("metadata").filter(|metadata| metadata.is_object()) else {
            return Err(ReadWorkload {
                kind: kind.kind.to_string(),
                what: "metadata is missing",
            });
        };
        let text = |field: &str| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .map_or_else(|| Arc::from(""), Arc::from)
        };
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let status = object.get("status").unwrap_or(&Value::Null);
        let first = kind.knobs.first().map_or("", |knob| knob.pointer.as_ref());
        Ok(Self {
            kind: Arc::clone(kind),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            created: metadata
                .get("creationTimestamp")
                .and_then(Value::as_str)
                .and_then(|at| at.parse().ok()),
            terminating: metadata.get("deletionTimestamp").is_some_and(Value::is_string),
            labels: keys(metadata.get("labels")),
            annotations: keys(metadata.get("annotations")),
            owners: owners(metadata),
            knobs: kind.knobs.iter().map(|knob| read(object, knob.path())).collect(),
            rollout: rollout(&kind.kind, metadata, spec, status),
            ready: ready(kind.readiness, metadata, spec, status),
            running: status.get("startTime").is_some() && status.get("completionTime").is_none() && !finished(status),
            finished: status.get("completionTime").is_some() || finished(status),
            last_schedule: status
                .get("lastScheduleTime")
                .and_then(Value::as_str)
                .and_then(|at| at.parse().ok()),
            replica_failure: condition(status, "ReplicaFailure")
                .filter(|failure| failure.get("status").and_then(Value::as_str) == Some("True"))
                .and_then(|failure| failure.get("message")?.as_str())
                .map(Arc::from),
            managers: managers(metadata, first),
            scale_target: spec.get("scaleTargetRef").and_then(ScaleTarget::read),
            requests: Requests::read(spec),
        })
    }

    /// What names it.
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef {
            group: Arc::from(self.kind.group.as_ref()),
            kind: Arc::from(self.kind.kind.as_ref()),
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
        }
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        Some(self.annotations.as_ref()?.get(key)?.as_ref())
    }

    /// A label.
    pub fn label(&self, key: &str) -> Option<&str> {
        Some(self.labels.as_ref()?.get(key)?.as_ref())
    }
}

/// The facts of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespace {
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// Resource version.
    pub resource_version: Arc<str>,
    /// It is being deleted.
    pub terminating: bool,
    /// All labels; `None` if there is no such map.
    pub labels: Option<Keys>,
    /// The annotations that concern us; `None` if there is no such map.
    pub annotations: Option<Keys>,
}

impl Namespace {
    /// Reads the facts from a pruned (or whole) object. `None` if it has no metadata.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata").filter(|metadata| metadata.is_object())?;
        let text = |field: &str| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .map_or_else(|| Arc::from(""), Arc::from)
        };
        Some(Self {
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            terminating: metadata.get("deletionTimestamp").is_some_and(Value::is_string),
            labels: keys(metadata.get("labels")),
            annotations: keys(metadata.get("annotations")),
        })
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        Some(self.annotations.as_ref()?.get(key)?.as_ref())
    }

    /// A label.
    pub fn label(&self, key: &str) -> Option<&str> {
        Some(self.labels.as_ref()?.get(key)?.as_ref())
    }
}

/// The fields that have to be read of objects of these kinds (and of namespaces).
pub fn keep<'k>(kinds: impl IntoIterator<Item = &'k Kind>) -> Keep {
    let mut keep = keep_of_review(kinds);
    let mut container = Keep::nothing();
    for what in ["cpu", "memory"] {
        container.add(["resources", "requests", what], Keep::All);
    }
    keep.add(
        ["spec", "template", "spec", "containers"],
        Keep::Each(Box::new(container)),
    );
    keep
}

/// Those that a request is judged by: what pods ask for is of no concern then, and may be long.
pub fn keep_of_review<'k>(kinds: impl IntoIterator<Item = &'k Kind>) -> Keep {
    let mut keep = Keep::nothing();
    for field in [
        "namespace",
        "name",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
    ] {
        keep.add(["metadata", field], Keep::All);
    }
    keep.add(
        ["metadata", "labels"],
        Keep::Keys {
            wanted: |_| true,
            also: Vec::new(),
        },
    );
    keep.add(
        ["metadata", "ownerReferences"],
        each(["apiVersion", "kind", "name", "controller"]),
    );
    let mut manager = Keep::nothing();
    for field in ["manager", "operation", "subresource"] {
        manager.add([field], Keep::All);
    }
    let mut also = Vec::new();
    for kind in kinds {
        for (index, knob) in kind.knobs.iter().enumerate() {
            let path: Vec<_> = knob.path().collect();
            if let [metadata, annotations, key] = path.as_slice()
                && metadata == "metadata"
                && annotations == "annotations"
            {
                also.push(key.to_string());
                continue;
            }
            keep.add(path.iter().map(AsRef::as_ref), Keep::All);
            if index == 0 {
                let fields: Vec<String> = path.iter().map(|token| format!("f:{token}")).collect();
                manager.add(
                    ["fieldsV1"].into_iter().chain(fields.iter().map(String::as_str)),
                    Keep::All,
                );
            }
        }
    }
    keep.add(
        ["metadata", "annotations"],
        Keep::Keys {
            wanted: concerns_us,
            also,
        },
    );
    keep.add(["metadata", "managedFields"], Keep::Each(Box::new(manager)));
    for field in ["progressDeadlineSeconds", "paused", "scaleTargetRef"] {
        keep.add(["spec", field], Keep::All);
    }
    keep.add(["spec", "updateStrategy", "type"], Keep::All);
    keep.add(["spec", "updateStrategy", "rollingUpdate", "partition"], Keep::All);
    for field in [
        "observedGeneration",
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "currentRevision",
        "updateRevision",
        "desiredNumberScheduled",
        "updatedNumberScheduled",
        "currentPodHash",
        "stableRS",
        "startTime",
        "completionTime",
        "lastScheduleTime",
    ] {
        keep.add(["status", field], Keep::All);
    }
    keep.add(
        ["status", "conditions"],
        each([
            "type",
            "status",
            "reason",
            "message",
            "lastUpdateTime",
            "lastTransitionTime",
        ]),
    );
    keep
}

fn each<const N: usize>(fields: [&str; N]) -> Keep {
    let mut keep = Keep::nothing();
    for field in fields {
        keep.add([field], Keep::All);
    }
    Keep::Each(Box::new(keep))
}

/// Annotations that some part of the product reads.
pub fn concerns_us(key: &str) -> bool {
    const PREFIXES: &[&str] = &[
        PREFIX,
        "downscaler/",
        "argocd.argoproj.io/",
        "helm.sh/hook",
        "autoscaling.keda.sh/paused",
        "kustomize.toolkit.fluxcd.io/",
        "helm.toolkit.fluxcd.io/",
        "meta.helm.sh/",
    ];
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

fn keys(map: Option<&Value>) -> Option<Keys> {
    let map = map?.as_object()?;
    Some(
        map.iter()
            .filter_map(|(key, value)| Some((Arc::from(key.as_str()), Arc::from(value.as_str()?))))
            .collect(),
    )
}

fn owners(metadata: &Value) -> Vec<Owner> {
    let Some(list) = metadata.get("ownerReferences").and_then(Value::as_array) else {
        return Vec::new();
    };
    list.iter()
        .map(|owner| {
            let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
            Owner {
                group: Arc::from(text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group)),
                kind: Arc::from(text("kind")),
                name: Arc::from(text("name")),
                controller: owner.get("controller").and_then(Value::as_bool).unwrap_or(false),
            }
        })
        .collect()
}

/// Reads the value at a path of map keys, and how much of the path exists. A null counts as absent.
fn read<'t>(object: &Value, path: impl Iterator<Item = std::borrow::Cow<'t, str>>) -> Reading {
    let mut place = object;
    let mut depth = 0;
    for token in path {
        match place.get(token.as_ref()) {
            Some(Value::Null) | None => return Reading { value: None, depth },
            Some(next) => place = next,
        }
        depth += 1;
    }
    Reading {
        value: Some(place.clone()),
        depth,
    }
}

fn managers(metadata: &Value, pointer: &str) -> Managers {
    let mut managers = Managers::default();
    let Some(entries) = metadata.get("managedFields").and_then(Value::as_array) else {
        return managers;
    };
    let path: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|token| format!("f:{}", token.replace("~1", "/").replace("~0", "~")))
        .collect();
    for (index, entry) in entries.iter().enumerate() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, operation, subresource) = (text("manager"), text("operation"), text("subresource"));
        let ours = name == FIELD_MANAGER;
        if ours && operation == "Update" && subresource.is_empty() {
            managers.own_entry = Some(index);
        }
        if !ours && operation == "Apply" && subresource.is_empty() {
            managers.applied_by_other = true;
        }
        let mut place = entry.get("fieldsV1");
        for token in &path {
            place = place.and_then(|fields| fields.get(token.as_str()));
        }
        if place.is_some() && !path.is_empty() {
            managers.knob = Some(Arc::from(name));
        }
    }
    managers
}

/// Reads one object of these kinds from JSON text, keeping only the facts.
pub fn parse(kinds: &Kinds, kind: &Arc<Kind>, json: &[u8]) -> Result<Workload, ParseWorkload> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let pruned = serde::de::DeserializeSeed::deserialize(kinds.keep().as_ref(), &mut deserializer)?;
    Ok(Workload::read(kind, &pruned)?)
}

/// Why an object could not be read.
#[derive(Debug, Error)]
pub enum ParseWorkload {
    /// Not JSON.
    #[error("failed to parse the object")]
    Json(#[from] serde_json::Error),
    /// JSON, but no object of Kubernetes.
    #[error(transparent)]
    Read(#[from] ReadWorkload),
}

#[cfg(test)]
#[path = "tests/workload.rs"]
mod tests;
