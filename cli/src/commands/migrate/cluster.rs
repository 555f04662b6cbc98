//! Reads another product's installation from the cluster, and writes what it comes to.

use http::Method;
use serde_json::{Value, json};
use shared::annotations::is_own_state;
use shared::api::{GROUP, OffHoursScheduleSpec, VERSION};

use super::kube_green::secret_name;
use super::objects::{Object, Objects};
use super::result::{Applied, Keys, Migration, Place, Planned};
use super::{k8s_offhours, kube_green};
use crate::commands::tool::{Refused, Target, Tool, collection};

/// Merge patches set keys of maps without knowing the others.
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Reads everything that a migration looks at.
///
/// # Errors
/// If the cluster does not answer.
pub async fn read(tool: &Tool, namespace: Option<&str>, out: &mut Migration) -> Result<Objects, Refused> {
    let mut objects = Objects::default();
    let root = |api: &str, plural: &str| match namespace {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
        None => format!("{api}/{plural}"),
    };
    match namespace {
        Some(name) => {
            let found = get(tool, &format!("/api/v1/namespaces/{name}")).await;
            match found {
                Ok(Some(mut object)) => {
                    named(&mut object, "v1", "Namespace");
                    objects.0.push(object);
                }
                Ok(None) => return Err(Refused::Usage(format!("there is no namespace {name:?}"))),
                Err(error) => out.differs(format!("namespace {name} could not be read: {error}")),
            }
        }
        None => list(tool, "/api/v1/namespaces", "v1", "Namespace", &mut objects, out).await?,
    }
    for kind in tool.settings.kinds.rows() {
        // These belong to others, nearly always.
        if matches!(kind.kind.as_ref(), "ReplicaSet" | "Job") {
            continue;
        }
        let url = root(&format!("/apis/{}/{}", kind.group, kind.version), &kind.plural);
        list(tool, &url, &kind.api_version(), &kind.kind, &mut objects, out).await?;
    }
    for (api, plural, kind) in [
        ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
        ("kube-green.com/v1alpha1", "sleepinfos", "SleepInfo"),
    ] {
        let url = root(&format!("/apis/{api}"), plural);
        list(tool, &url, api, kind, &mut objects, out).await?;
    }
    let mut more = Vec::new();
    for (kind, namespace, name) in referred(&objects) {
        let plural = if kind == "Secret" { "secrets" } else { "configmaps" };
        match get(tool, &format!("/api/v1/namespaces/{namespace}/{plural}/{name}")).await {
            Ok(Some(mut object)) => {
                named(&mut object, "v1", kind);
                more.push(object);
            }
            Err(error) if kind == "Secret" => out.differs(format!(
                "Secret {namespace}/{name} could not be read ({error}): what kube-green put to sleep has to be woken by it before the move"
            )),
            // The variable that a ConfigMap would have given is told as unread.
            Ok(None) | Err(_) => {}
        }
    }
    objects.0.extend(more);
    Ok(objects)
}

/// Secrets of kube-green, and ConfigMaps from which a container of the others has its variables.
fn referred(objects: &Objects) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    for info in objects.of(kube_green::GROUP, "SleepInfo") {
        found.push(("Secret", info.namespace().to_owned(), secret_name(info.name())));
    }
    for object in objects.iter() {
        for container in object.containers() {
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            if !(image.to_ascii_lowercase().contains("downscaler") || k8s_offhours::is_its(container)) {
                continue;
            }
            let of = |key: &str| container.get(key).and_then(Value::as_array).into_iter().flatten();
            let by_all = of("envFrom").filter_map(|source| source.pointer("/configMapRef/name"));
            let by_one = of("env").filter_map(|variable| variable.pointer("/valueFrom/configMapKeyRef/name"));
            for name in by_all.chain(by_one).filter_map(Value::as_str) {
                let entry = ("ConfigMap", object.namespace().to_owned(), name.to_owned());
                if !found.contains(&entry) {
                    found.push(entry);
                }
            }
        }
    }
    found
}

/// Lists leave out what their items are.
fn named(object: &mut Value, api_version: &str, kind: &str) {
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".to_owned(), json!(api_version));
        object.insert("kind".to_owned(), json!(kind));
        object.remove("status");
    }
}

/// `None`: there is none.
async fn get(tool: &Tool, url: &str) -> Result<Option<Value>, cluster::call::CallError> {
    match tool.send(Method::GET, url, JSON, Vec::new()).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn list(
    tool: &Tool,
    url: &str,
    api_version: &str,
    kind: &str,
    objects: &mut Objects,
    out: &mut Migration,
) -> Result<(), Refused> {
    let mut next = String::new();
    loop {
        let page = format!("{url}?limit=500{next}");
        let mut page = match tool.send(Method::GET, &page, JSON, Vec::new()).await {
            Ok(page) => page,
            Err(error) if error.code() == Some(404) => return Ok(()),
            Err(error) if error.code() == Some(403) => {
                out.differs(format!("{kind}s could not be read, and are not carried over: {error}"));
                return Ok(());
            }
            Err(error) => return Err(Refused::Failed(anyhow::anyhow!("failed to list {kind}s: {error}"))),
        };
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            for mut item in items {
                named(&mut item, api_version, kind);
                if let Some(metadata) = item.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
                objects.0.push(item);
            }
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => next = format!("&continue={token}"),
            _ => return Ok(()),
        }
    }
}

/// Writes it. The order matters while the scheduler already runs: what protects and what chooses a schedule comes before the
/// schedules, and a record comes last, since a record outside a schedule is restored at once.
pub async fn apply(tool: &Tool, migration: &Migration, objects: &Objects) -> Applied {
    let mut applied = Applied::default();
    for (place, keys) in &migration.keys {
        write_keys(tool, place, &part(keys, false), objects, &mut applied).await;
    }
    for planned in &migration.schedules {
        write_schedule(tool, planned, &mut applied).await;
    }
    for (place, keys) in &migration.keys {
        write_keys(tool, place, &part(keys, true), objects, &mut applied).await;
    }
    applied
}

/// Only records, or all else.
fn part(keys: &Keys, own_state: bool) -> Keys {
    let chosen = |map: &std::collections::BTreeMap<String, String>| {
        map.iter()
            .filter(|(key, _)| is_own_state(key) == own_state)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    Keys {
        labels: chosen(&keys.labels),
        annotations: chosen(&keys.annotations),
    }
}

async fn write_keys(tool: &Tool, place: &Place, keys: &Keys, objects: &Objects, applied: &mut Applied) {
    if *keys == Keys::default() {
        return;
    }
    let (url, told) = match place {
        Place::Namespace(name) => (Target::Namespace(name.clone()).url(), format!("namespace {name}")),
        Place::Workload(group, kind, namespace, name) => {
            let told = format!("{kind} {namespace}/{name}");
            let Some(row) = tool.settings.kinds.by_kind(group, kind) else {
                applied.failed.push(format!("{told}: the kind is not known"));
                return;
            };
            (format!("{}/{name}", collection(row, namespace)), told)
        }
    };
    let present = objects.iter().find(|object| is_at(*object, place));
    if present.is_some_and(|object| has(object, keys)) {
        applied.unchanged.push(told);
        return;
    }
    let body = json!({"metadata": {"labels": keys.labels, "annotations": keys.annotations}});
    match tool
        .send(Method::PATCH, &url, MERGE, body.to_string().into_bytes())
        .await
    {
        Ok(_) => applied.written.push(told),
        Err(error) => applied.failed.push(format!("{told}: {error}")),
    }
}

fn is_at(object: Object<'_>, place: &Place) -> bool {
    match place {
        Place::Namespace(name) => object.kind() == "Namespace" && object.name() == name,
        Place::Workload(group, kind, namespace, name) => {
            object.group() == group && object.kind() == kind && object.namespace() == namespace && object.name() == name
        }
    }
}

fn has(object: Object<'_>, keys: &Keys) -> bool {
    keys.labels.iter().all(|(key, value)| object.label(key) == Some(value))
        && keys
            .annotations
            .iter()
            .all(|(key, value)| object.annotation(key) == Some(value))
}

async fn write_schedule(tool: &Tool, planned: &Planned, applied: &mut Applied) {
    let told = format!("OffHoursSchedule {}", planned.name);
    let url = format!("/apis/{GROUP}/{VERSION}/offhoursschedules");
    let body = planned.document().to_string().into_bytes();
    match tool.send(Method::POST, &url, JSON, body).await {
        Ok(_) => applied.written.push(told),
        Err(error) if error.code() == Some(409) => {
            let present = get(tool, &format!("{url}/{}", planned.name)).await.ok().flatten();
            let spec = present.and_then(|mut object| {
                let spec = object.get_mut("spec")?.take();
                serde_json::from_value::<OffHoursScheduleSpec>(spec).ok()
            });
            if spec.as_ref() == Some(&planned.spec) {
                applied.unchanged.push(told);
            } else {
                applied.failed.push(format!(
                    "{told}: there is one of that name that says something else; change it by hand, or remove it"
                ));
            }
        }
        Err(error) if error.code() == Some(404) => applied.failed.push(format!(
            "{told}: the CustomResourceDefinition is not installed; install it with the chart, or by `offhours crd | kubectl apply -f -`"
        )),
        Err(error) => applied.failed.push(format!("{told}: {error}")),
    }
}
