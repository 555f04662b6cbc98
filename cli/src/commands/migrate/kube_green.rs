//! kube-green: `SleepInfo` objects in namespaces, and the Secrets in which it keeps what it put to sleep.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::annotations::{ASLEEP, DOWN_SINCE, PROTECTED, SCHEDULE, format_instant, record_key};
use shared::kinds::{Form, Kind, Kinds};

use super::objects::{Object, Objects};
use super::result::{Migration, Place};

/// Its API group.
pub const GROUP: &str = "kube-green.com";

/// Name of the Secret that belongs to a `SleepInfo`.
pub fn secret_name(sleep_info: &str) -> String {
    format!("sleepinfo-{sleep_info}")
}

/// Reads everything of its.
pub fn migrate(objects: &Objects, kinds: &Kinds, out: &mut Migration) {
    let mut by_namespace: BTreeMap<&str, Vec<Object<'_>>> = BTreeMap::new();
    for object in objects.of(GROUP, "SleepInfo") {
        by_namespace.entry(object.namespace()).or_default().push(object);
    }
    for (namespace, infos) in by_namespace {
        of_namespace(namespace, &infos, objects, kinds, out);
    }
    for object in objects.of("apps", "Deployment") {
        let manages = object.containers().any(|container| {
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            let last = image.rsplit('/').next().unwrap_or_default();
            last.split([':', '@']).next() == Some("kube-green")
        });
        if manages {
            out.found.push(format!("kube-green: {}", object.told()));
            out.stop.push(format!(
                "kubectl scale deployment {} -n {} --replicas=0",
                object.name(),
                object.namespace()
            ));
            if object.0.pointer("/spec/replicas").and_then(Value::as_u64) != Some(0) {
                out.running.push(object.told());
            }
        }
    }
}

/// What one of them says, apart from the hours.
#[derive(Debug, Clone, PartialEq)]
struct Rest {
    zone: String,
    kinds: Vec<Value>,
}

fn of_namespace(namespace: &str, infos: &[Object<'_>], objects: &Objects, kinds: &Kinds, out: &mut Migration) {
    let place = Place::Namespace(namespace.to_owned());
    let (mut shutdown, mut startup) = (Vec::new(), Vec::new());
    let mut rest: Option<Rest> = None;
    let mut name = None;
    for info in infos {
        let origin = format!("SleepInfo {namespace}/{}", info.name());
        out.found.push(format!("kube-green: {origin}"));
        let Some((sleep, wake)) = hours(*info, &origin, out) else {
            continue;
        };
        let own = Rest {
            zone: text(*info, "timeZone").unwrap_or("UTC").to_owned(),
            kinds: included(*info, &origin, kinds, out),
        };
        if own.kinds.is_empty() {
            out.differs(format!(
                "{origin}: it puts no kind to sleep that is known here, and was left out"
            ));
            continue;
        }
        match &rest {
            Some(first) if *first != own => {
                out.differs(format!(
                    "{origin}: a namespace follows one schedule here, and this one differs from the first in its zone or its kinds; it \
                     was left out: label the workloads that it means with a schedule of their own"
                ));
                continue;
            }
            Some(_) => {}
            None => {
                rest = Some(own);
                name = Some(info.name());
            }
        }
        shutdown.push(sleep);
        match wake {
            Some(wake) => startup.push(wake),
            None => out.note(format!(
                "{origin}: it has no wakeUpAt: what sleeps stays down until somebody wakes it (`offhours wake`), or deploys it again"
            )),
        }
        excluded(*info, &origin, objects, kinds, out);
        saved(*info, objects, kinds, out);
    }
    let (Some(rest), Some(name)) = (rest, name) else { return };
    let mut cron = serde_json::Map::new();
    cron.insert("shutdown".to_owned(), json!(shutdown));
    if !startup.is_empty() {
        cron.insert("startup".to_owned(), json!(startup));
    }
    let spec = json!({
        "timeZone": rest.zone, "cron": cron, "kinds": rest.kinds,
        // It acts at two instants and holds nothing between them.
        "enforcement": {"mode": "Warn"},
    });
    let origin = format!("the SleepInfos of namespace {namespace}");
    if let Some(name) = out.schedule(name, &spec, &origin) {
        out.label(place, SCHEDULE, &name);
    }
    out.note(
        "kube-green holds nothing between its two instants, and so do these schedules (enforcement Warn); with Rewrite what sleeps \
         also stays asleep when somebody deploys at night",
    );
}

fn text<'o>(info: Object<'o>, field: &str) -> Option<&'o str> {
    let value = info.0.pointer("/spec")?.get(field)?.as_str()?.trim();
    (!value.is_empty()).then_some(value)
}

/// `sleepAt` and `wakeUpAt` as cron expressions.
fn hours(info: Object<'_>, origin: &str, out: &mut Migration) -> Option<(String, Option<String>)> {
    let Some(weekdays) = text(info, "weekdays") else {
        out.differs(format!("{origin}: it has no weekdays, and was left out"));
        return None;
    };
    let mut cron = |field: &str, value: &str| {
        let parts = value.split_once(':');
        if parts.is_none() {
            out.differs(format!(
                "{origin}: {field} is {value:?}, which is no `HH:mm`; it was left out"
            ));
        }
        parts.map(|(hour, minute)| format!("{} {} * * {weekdays}", bare(minute), bare(hour)))
    };
    let sleep = cron("sleepAt", text(info, "sleepAt").unwrap_or_default())?;
    let wake = match text(info, "wakeUpAt") {
        Some(value) => Some(cron("wakeUpAt", value)?),
        None => None,
    };
    Some((sleep, wake))
}

/// `08` as `8`: cron fields have no leading zeros for everybody.
fn bare(field: &str) -> String {
    field
        .parse::<u32>()
        .map_or_else(|_| field.to_owned(), |number| number.to_string())
}

/// `kinds`: those that it turns off by default, by switches, and by patches that do what our knob does.
fn included(info: Object<'_>, origin: &str, kinds: &Kinds, out: &mut Migration) -> Vec<Value> {
    let switch = |field: &str, default: bool| {
        let value = info.0.pointer("/spec").and_then(|spec| spec.get(field));
        value.and_then(Value::as_bool).unwrap_or(default)
    };
    let mut found: Vec<String> = [
        ("Deployment", switch("suspendDeployments", true)),
        ("StatefulSet", switch("suspendStatefulSets", true)),
        ("CronJob", switch("suspendCronJobs", false)),
    ]
    .into_iter()
    .filter(|(_, on)| *on)
    .map(|(kind, _)| kind.to_owned())
    .collect();
    let patches = info.0.pointer("/spec/patches").and_then(Value::as_array);
    for patch in patches.into_iter().flatten() {
        let of = |pointer: &str| patch.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, kind) = (of("/target/group"), of("/target/kind"));
        match kinds.by_kind(group, kind) {
            Some(row) if does_the_same(of("/patch"), row) => {
                if !found.iter().any(|present| present == kind) {
                    found.push(kind.to_owned());
                }
            }
            Some(row) => out.differs(format!(
                "{origin}: the patch of {kind} is not what {} does here ({}), and was left out",
                row.kind,
                row.knobs.first().map_or("", |knob| knob.pointer.as_ref())
            )),
            None => out.differs(format!(
                "{origin}: {kind}.{group} is no kind that is known here; add a row under `kinds` of the settings file"
            )),
        }
    }
    found.into_iter().map(|kind| json!({"kind": kind})).collect()
}

/// Whether a JSON patch puts the first knob where "down" is, and does nothing else.
fn does_the_same(patch: &str, row: &Kind) -> bool {
    let Ok(Value::Array(steps)) = serde_saphyr::from_str::<Value>(patch) else {
        return false;
    };
    let (Some(knob), [step]) = (row.knobs.first(), steps.as_slice()) else {
        return false;
    };
    let down = match &knob.form {
        Form::Count => json!(0),
        Form::Flag(down) => json!(down),
        Form::CountText => json!("0"),
        Form::Text(down) => json!(down),
        Form::Guard { .. } => return false,
    };
    step.get("path").and_then(Value::as_str) == Some(knob.pointer.as_ref()) && step.get("value") == Some(&down)
}

fn excluded(info: Object<'_>, origin: &str, objects: &Objects, kinds: &Kinds, out: &mut Migration) {
    let references = info.0.pointer("/spec/excludeRef").and_then(Value::as_array);
    for reference in references.into_iter().flatten() {
        let of = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (of("kind"), of("name"));
        let labels = reference.get("matchLabels");
        let matching = objects.iter().filter(|object| {
            object.namespace() == info.namespace()
                && kinds.by_kind(object.group(), object.kind()).is_some()
                && (kind.is_empty() || object.kind() == kind)
                && (name.is_empty() || object.name() == name)
                && labels.is_none_or(|labels| object.has_labels(labels))
        });
        let places: Vec<Place> = matching.map(place_of).collect();
        let group = of("apiVersion").split_once('/').map_or("", |(group, _)| group);
        if !places.is_empty() {
            for place in places {
                out.annotate(place, PROTECTED, "true");
            }
        } else if !name.is_empty() && kinds.by_kind(group, kind).is_some() {
            // Named, but not among what was read.
            let place = Place::Workload(
                group.to_owned(),
                kind.to_owned(),
                info.namespace().to_owned(),
                name.to_owned(),
            );
            out.annotate(place, PROTECTED, "true");
        } else {
            out.note(format!(
                "{origin}: nothing that was read fits {reference}; nothing is protected for it"
            ));
        }
        if labels.is_some() {
            out.differs(format!(
                "{origin}: labels of excludeRef: those that exist now are protected one by one; workloads to come with these labels need \
                 the annotation {PROTECTED}=true in their manifests"
            ));
        }
    }
}

fn place_of(object: Object<'_>) -> Place {
    Place::Workload(
        object.group().to_owned(),
        object.kind().to_owned(),
        object.namespace().to_owned(),
        object.name().to_owned(),
    )
}

/// What sleeps now: its Secret says what it was, and that becomes our record.
fn saved(info: Object<'_>, objects: &Objects, kinds: &Kinds, out: &mut Migration) {
    let Some(secret) = objects.secret(info.namespace(), &secret_name(info.name())) else {
        return;
    };
    if data(secret, "operation-type").as_deref() != Some("SLEEP") {
        return;
    }
    let since = data(secret, "scheduled-at").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let mut originals: Vec<(String, String, String, Value)> = Vec::new();
    let json_of = |key: &str| data(secret, key).and_then(|text| serde_json::from_str::<Value>(&text).ok());
    // {"Deployment.apps": {"name": "{\"spec\":{\"replicas\":3}}"}}: merge patches that give it back.
    let patches = json_of("original-resource-info");
    for (target, of_target) in patches.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let (kind, group) = target.split_once('.').unwrap_or((target, ""));
        let Some(row) = kinds.by_kind(group, kind) else {
            continue;
        };
        let Some(knob) = row.knobs.first() else { continue };
        for (name, patch) in of_target.as_object().into_iter().flatten() {
            let patch = patch.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            if let Some(value) = patch.as_ref().and_then(|patch| patch.pointer(&knob.pointer)) {
                originals.push((row.group.to_string(), row.kind.to_string(), name.clone(), value.clone()));
            }
        }
    }
    // Older versions: [{"name": "api", "replicas": 3}], [{"name": "report", "suspend": false}].
    for (key, group, kind, field) in [
        ("deployment-replicas", "apps", "Deployment", "replicas"),
        ("cronjobs-info", "batch", "CronJob", "suspend"),
    ] {
        let list = json_of(key);
        for entry in list.as_ref().and_then(Value::as_array).into_iter().flatten() {
            if let (Some(name), Some(value)) = (entry.get("name").and_then(Value::as_str), entry.get(field)) {
                originals.push((group.to_owned(), kind.to_owned(), name.to_owned(), value.clone()));
            }
        }
    }
    for (group, kind, name, value) in originals {
        let Some(knob) = kinds.by_kind(&group, &kind).and_then(|row| row.knobs.first()) else {
            continue;
        };
        let place = Place::Workload(group, kind, info.namespace().to_owned(), name);
        let text = shared::kinds::value_text(Some(&value).filter(|value| !value.is_null()));
        let copy = if knob.form == Form::Count {
            text.clone()
        } else {
            "true".to_owned()
        };
        out.annotate(place.clone(), &record_key(&knob.name), &text);
        if let Some(since) = since {
            out.annotate(place.clone(), DOWN_SINCE, &format_instant(since));
        }
        out.label(place, ASLEEP, &copy);
    }
    out.note(format!(
        "{}: what it saved becomes the record of the workloads that sleep now; they come back with the next startup",
        secret.told()
    ));
}

/// A key of a Secret, as text.
fn data(secret: Object<'_>, key: &str) -> Option<String> {
    if let Some(text) = secret.0.pointer("/stringData").and_then(|data| data.get(key)) {
        return text.as_str().map(str::to_owned);
    }
    let encoded = secret.0.pointer("/data")?.get(key)?.clone();
    let bytes: k8s_openapi::ByteString = serde_json::from_value(encoded).ok()?;
    String::from_utf8(bytes.0).ok()
}
