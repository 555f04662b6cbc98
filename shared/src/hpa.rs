//! The few facts that we need of an HPA (`HorizontalPodAutoscaler`).

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    kinds::{ByDefault, Form, Kind, Knob, Readiness},
    prune::Keep,
    workload::{FIELD_MANAGER, ReadWorkload, Workload},
};

const fn count(name: &'static str, pointer: &'static str) -> Knob {
    Knob {
        name: Cow::Borrowed(name),
        pointer: Cow::Borrowed(pointer),
        form: Form::Count,
    }
}

const KNOBS: &[Knob] = &[
    count("min-replicas", "/spec/minReplicas"),
    count("max-replicas", "/spec/maxReplicas"),
    Knob {
        name: Cow::Borrowed("scale-target"),
        pointer: Cow::Borrowed("/spec/scaleTargetRef"),
        form: Form::Text(Cow::Borrowed("")),
    },
];

static KIND: LazyLock<Arc<Kind>> = LazyLock::new(|| {
    Arc::new(Kind {
        group: Cow::Borrowed("autoscaling"),
        version: Cow::Borrowed("v2"),
        kind: Cow::Borrowed("HorizontalPodAutoscaler"),
        plural: Cow::Borrowed("horizontalpodautoscalers"),
        knobs: Cow::Borrowed(KNOBS),
        by_default: ByDefault::No,
        readiness: Readiness::None,
        scale: false,
        built_in: true,
    })
});

/// The row of HPAs. It is not part of the table: an HPA is no workload, but it is read and patched like one.
pub fn kind() -> &'static Arc<Kind> {
    &KIND
}

/// What an HPA scales.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleTarget {
    /// API group.
    pub group: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name, in the HPA's own namespace.
    pub name: Arc<str>,
}

/// The condition that the HPA controller writes anew whenever it has looked at an HPA, whatever it found.
pub const ABLE_TO_SCALE: &str = "AbleToScale";
/// The reason of that condition while we wait for the HPA controller to look. It overwrites it, and since its status writes name
/// the version that it looked at, it has then seen all that was written before.
pub const ASKED: &str = "OffHoursAsks";

/// What is said of [`ABLE_TO_SCALE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Able {
    /// Whether there are conditions at all.
    pub any: bool,
    /// Its place among them.
    pub index: Option<usize>,
    /// Since when the controller is asked to look, and has not.
    pub asked: Option<Timestamp>,
}

impl Able {
    fn read(conditions: Option<&Vec<Value>>) -> Self {
        let text = |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).map(str::to_owned);
        let all = conditions.map_or(&[][..], Vec::as_slice);
        let index = all
            .iter()
            .position(|condition| text(condition, "type").as_deref() == Some(ABLE_TO_SCALE));
        let asked = index
            .and_then(|index| all.get(index))
            .filter(|condition| text(condition, "reason").as_deref() == Some(ASKED))
            // An instant that nobody can read is long ago: nobody waits for ever.
            .map(|condition| {
                let since = text(condition, "lastTransitionTime");
                since
                    .and_then(|since| since.parse().ok())
                    .unwrap_or(Timestamp::UNIX_EPOCH)
            });
        Self {
            any: conditions.is_some(),
            index,
            asked,
        }
    }
}

/// The facts of one HPA.
#[derive(Debug, Clone, PartialEq)]
pub struct Hpa {
    /// Metadata, and the knobs `min-replicas`, `max-replicas` and `scale-target` in this order.
    pub object: Workload,
    /// What it scales; `None` if it names nothing.
    pub target: Option<ScaleTarget>,
    /// Condition `ScaledToZero` is True: the HPA itself brought its target to zero.
    pub scaled_to_zero: bool,
    /// Whether its controller is asked to look at it.
    pub able: Able,
    /// The field manager of its controller: whoever else than us wrote its status. The HPA controller bears the name of its
    /// program, which is not the same in all distributions.
    pub controller: Option<Arc<str>>,
    /// All that is needed to create it again, as JSON: the whole object without status and what the API server fills in.
    pub manifest: Arc<str>,
}

/// What of an object's metadata makes it what it is; the rest is the API server's.
const LASTING: &[&str] = &[
    "name",
    "namespace",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

fn manifest(object: &Value) -> Arc<str> {
    let metadata: serde_json::Map<String, Value> = LASTING
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object.get("metadata")?.get(*field)?.clone())))
        .collect();
    let manifest = serde_json::json!({
        "apiVersion": kind().api_version(),
        "kind": kind().kind,
        "metadata": metadata,
        "spec": object.get("spec"),
    });
    Arc::from(manifest.to_string())
}

fn controller(object: &Value) -> Option<Arc<str>> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
    let names = entries
        .iter()
        .filter(|entry| text(entry, "subresource").as_deref() == Some("status"))
        .filter_map(|entry| text(entry, "manager"));
    names.rev().find(|name| name != FIELD_MANAGER).map(Arc::from)
}

impl Hpa {
    /// Reads the facts from a pruned (or whole) object.
    pub fn read(object: &Value) -> Result<Self, ReadWorkload> {
        let reference = object.pointer("/spec/scaleTargetRef");
        let text = |field: &str| reference?.get(field)?.as_str().filter(|text| !text.is_empty());
        let target = text("kind").zip(text("name")).map(|(kind, name)| ScaleTarget {
            group: Arc::from(
                text("apiVersion")
                    .and_then(|version| version.rsplit_once('/'))
                    .map_or("", |(group, _)| group),
            ),
            kind: Arc::from(kind),
            name: Arc::from(name),
        });
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let able = Able::read(conditions);
        let scaled_to_zero = conditions.into_iter().flatten().any(|condition| {
            condition.get("type").and_then(Value::as_str) == Some("ScaledToZero")
                && condition.get("status").and_then(Value::as_str) == Some("True")
        });
        let mut facts = Workload::read(kind(), object)?;
        if let Some(annotations) = &mut facts.annotations {
            annotations.retain(|key, _| crate::workload::concerns_us(key));
        }
        Ok(Self {
            object: facts,
            target,
            scaled_to_zero,
            able,
            controller: controller(object),
            manifest: manifest(object),
        })
    }

    /// `spec.minReplicas`; Kubernetes takes 1 where it is absent.
    pub fn min_replicas(&self) -> Option<u64> {
        self.knob(0)
    }

    /// `spec.maxReplicas`.
    pub fn max_replicas(&self) -> Option<u64> {
        self.knob(1)
    }

    /// Whether it scales this object.
    pub fn scales(&self, group: &str, kind: &str, name: &str) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| (&*target.group, &*target.kind, &*target.name) == (group, kind, name))
    }

    fn knob(&self, index: usize) -> Option<u64> {
        self.object.knobs.get(index)?.value.as_ref()?.as_u64()
    }
}

/// The fields that have to be read of an HPA.
pub fn keep() -> Keep {
    let mut keep = crate::workload::keep([kind().as_ref()]);
    // A backup has to be complete.
    keep.add(["spec"], Keep::All);
    for field in LASTING {
        keep.add(["metadata", field], Keep::All);
    }
    keep
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeSeed;
    use serde_json::json;

    use super::*;

    fn read(object: &Value) -> Hpa {
        let text = object.to_string();
        let pruned = keep()
            .deserialize(&mut serde_json::Deserializer::from_str(&text))
            .unwrap();
        Hpa::read(&pruned).unwrap()
    }

    #[test]
    fn bounds_target_and_our_annotations_are_read_and_the_manifest_is_whole() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "annotations": {"offhours.platform.io/original-min-replicas": "2", "other": "x"},
                "managedFields": [
                    {"manager": "helm", "operation": "Update", "fieldsV1": {"f:spec": {}}},
                    {"manager": "k3s", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
                    {"manager": FIELD_MANAGER, "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
                ]},
            "spec": {"minReplicas": 2, "maxReplicas": 9, "metrics": [{"type": "Resource"}],
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
            "status": {"conditions": [{"type": "ScaledToZero", "status": "True"}]},
        });
        let hpa = read(&object);
        assert_eq!((hpa.min_replicas(), hpa.max_replicas()), (Some(2), Some(9)));
        assert!(hpa.scales("apps", "Deployment", "web"));
        assert!(!hpa.scales("apps", "Deployment", "other"));
        assert!(hpa.scaled_to_zero);
        assert_eq!(hpa.controller.as_deref(), Some("k3s"));
        assert_eq!(hpa.object.annotations.as_ref().unwrap().len(), 1);
        let manifest: Value = serde_json::from_str(&hpa.manifest).unwrap();
        assert_eq!(manifest["spec"], object["spec"]);
        assert_eq!(manifest["metadata"]["annotations"]["other"], "x");
        assert_eq!(manifest["metadata"].get("uid"), None);
        assert_eq!(hpa.target, Hpa::read(&object).unwrap().target);
    }

    #[test]
    fn an_hpa_without_a_minimum_or_a_target_is_read_as_such() {
        let hpa = read(&json!({"metadata": {"name": "x"}, "spec": {"maxReplicas": 3}}));
        assert_eq!((hpa.min_replicas(), hpa.max_replicas()), (None, Some(3)));
        assert_eq!(hpa.target, None);
        assert!(!hpa.scaled_to_zero);
        assert_eq!((hpa.able, hpa.controller), (Able::default(), None));
    }

    #[test]
    fn whether_the_controller_is_asked_to_look_is_read_from_its_own_condition() {
        let able = |conditions: Value| {
            let object =
                json!({"metadata": {"name": "x"}, "spec": {"maxReplicas": 3}, "status": {"conditions": conditions}});
            read(&object).able
        };
        let none = Able {
            any: true,
            ..Able::default()
        };
        assert_eq!(able(json!([])), none);
        // The same reason on another condition says nothing.
        assert_eq!(able(json!([{"type": "ScalingActive", "reason": ASKED}])), none);
        let ready =
            json!([{"type": "ScalingActive"}, {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}]);
        assert_eq!(able(ready), Able { index: Some(1), ..none });
        let asked = |since: &str| {
            let condition =
                json!({"type": "AbleToScale", "status": "Unknown", "reason": ASKED, "lastTransitionTime": since});
            able(json!([condition])).asked
        };
        assert_eq!(asked("2026-12-02T08:00:01Z"), "2026-12-02T08:00:01Z".parse().ok());
        assert_eq!(asked("yesterday"), Some(Timestamp::UNIX_EPOCH));
    }
}
