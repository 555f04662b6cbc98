//! ConfigMaps of ours that keep what an object cannot keep itself: names, labels, writes. (Client not required.)

use std::fmt::Write as _;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Map, Value, json};
use shared::workload::ObjectRef;

use crate::decide::action::Target;

/// A ConfigMap holds a little less than 1 MiB.
pub const SIZE_LIMIT: usize = 1_000_000;

/// Longest value of a label.
const LABEL_LIMIT: usize = 63;

/// The first 12 hex digits of the SHA-1 of `text`: how K8s-OffHours named its ConfigMaps. Nothing secret depends on it.
pub fn short_hash(text: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    hash.as_ref().iter().take(6).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The reference of a ConfigMap.
pub fn config_map_ref(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ObjectRef {
    ObjectRef {
        group: Arc::from(""),
        kind: Arc::from("ConfigMap"),
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// A ConfigMap as the target of a write; `uid` is empty for one that is to be created.
pub fn config_map(object: ObjectRef, uid: &Arc<str>) -> Target {
    Target {
        object,
        version: Arc::from("v1"),
        plural: Arc::from("configmaps"),
        uid: Arc::clone(uid),
    }
}

/// The manifest of a ConfigMap. Labels that would be too long are left out: the data say the same.
pub fn manifest(object: &ObjectRef, labels: &[(&str, &str)], data: &[(&str, &str)]) -> Value {
    let labels: Map<String, Value> = labels
        .iter()
        .filter(|(_, value)| value.len() <= LABEL_LIMIT)
        .map(|(key, value)| ((*key).to_owned(), Value::from(*value)))
        .collect();
    let data: Map<String, Value> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), Value::from(*value)))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": &*object.namespace, "name": &*object.name, "labels": labels},
        "data": data,
    })
}

/// The patch that replaces values of a ConfigMap, as long as nobody else has changed it.
pub fn replaced(uid: &str, resource_version: &str, data: &[(&str, &str)]) -> Patch {
    let test = |field: &str, value: &str| {
        PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["metadata", field]),
            value: Value::from(value),
        })
    };
    let mut operations = vec![test("uid", uid), test("resourceVersion", resource_version)];
    operations.extend(data.iter().map(|(key, value)| {
        PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["data", *key]),
            value: Value::from(*value),
        })
    }));
    Patch(operations)
}
