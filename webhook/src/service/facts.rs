//! Reads the objects of a request, no more of them than is needed. Pure.

use std::ops::Bound;
use std::sync::Arc;

use serde::de::DeserializeSeed;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::annotations::PREFIX;
use shared::kinds::Kind;
use shared::prune::Keep;
use shared::workload::{Keys, Workload};

use super::Bench;
use crate::review::Request;

/// Reads what `keep` wants of an object.
pub(super) fn pruned(keep: &Keep, raw: &RawValue) -> Result<Value, String> {
    keep.deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
        .map_err(|error| error.to_string())
}

/// Reads a workload.
pub(super) fn workload(
    bench: &Bench<'_>,
    request: &Request<'_>,
    kind: &Arc<Kind>,
    raw: &RawValue,
) -> Result<Workload, String> {
    let object = pruned(bench.sight.kinds().keep_of_review(), raw)?;
    named(request, kind, &object)
}

/// Reads a workload from what was pruned. Namespace and name come from the request where the object has none.
pub(super) fn named(request: &Request<'_>, kind: &Arc<Kind>, object: &Value) -> Result<Workload, String> {
    let mut workload = Workload::read(kind, object).map_err(|error| error.to_string())?;
    if workload.namespace.is_empty() {
        workload.namespace = Arc::from(&*request.namespace);
    }
    if workload.name.is_empty() {
        workload.name = Arc::from(&*request.name);
    }
    Ok(workload)
}

/// Sets or removes one annotation in the facts.
pub(super) fn set_annotation(annotations: &mut Option<Keys>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => {
            annotations
                .get_or_insert_with(Keys::new)
                .insert(Arc::from(key), Arc::from(value));
        }
        None => {
            if let Some(annotations) = annotations {
                annotations.remove(key);
            }
        }
    }
}

/// A key of ours that a request sets, changes or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change<'k> {
    pub key: &'k str,
    pub value: Option<&'k str>,
    pub is_label: bool,
}

/// Our keys that differ between two maps.
pub(super) fn changes<'k>(
    new: Option<&'k Keys>,
    old: Option<&'k Keys>,
    is_label: bool,
) -> impl Iterator<Item = Change<'k>> {
    let ours = |keys: Option<&'k Keys>| {
        keys.into_iter().flat_map(|keys| {
            keys.range::<str, _>((Bound::Included(PREFIX), Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(PREFIX))
        })
    };
    let set = ours(new)
        .filter(move |(key, value)| old.and_then(|old| old.get(*key)) != Some(*value))
        .map(move |(key, value)| Change {
            key,
            value: Some(value),
            is_label,
        });
    let removed = ours(old)
        .filter(move |(key, _)| new.is_none_or(|new| !new.contains_key(*key)))
        .map(move |(key, _)| Change {
            key,
            value: None,
            is_label,
        });
    set.chain(removed)
}

/// Whether a map holds an entry for the key that differs from the other map's.
pub(super) fn differs(new: Option<&Keys>, old: Option<&Keys>, key: &str) -> bool {
    let value = |keys: Option<&Keys>| keys.and_then(|keys| keys.get(key).cloned());
    value(new) != value(old)
}
