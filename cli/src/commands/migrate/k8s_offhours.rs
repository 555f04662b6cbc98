//! K8s-OffHours: CronJobs that run one container with `ACTION=shutdown` and `ACTION=startup`; its labels and annotations are ours.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::annotations::SCHEDULE;

use super::objects::{Object, Objects};
use super::result::Migration;

/// What the CronJobs of one schedule say.
#[derive(Debug, Default)]
struct Pair {
    /// Cron expressions with their zones.
    shutdown: Vec<(String, String)>,
    /// The same.
    startup: Vec<(String, String)>,
    environment: BTreeMap<String, String>,
    suspended: bool,
}

/// Variables that change how it runs, and mean nothing in a schedule.
const CONNECTION: &[&str] = &["ARGO_SERVER", "ARGO_TOKEN", "ARGO_SCHEME", "ARGO_INSECURE"];

/// Whether a container is one of its.
pub fn is_its(container: &Value) -> bool {
    let names: Vec<&str> = container
        .get("env")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|variable| variable.get("name")?.as_str())
        .collect();
    names.contains(&"ACTION") && (names.contains(&"SCHEDULE_NAME") || container.get("envFrom").is_some())
}

/// Reads everything of its.
pub fn migrate(objects: &Objects, out: &mut Migration) {
    let mut pairs: BTreeMap<(String, String), Pair> = BTreeMap::new();
    for object in objects.of("batch", "CronJob") {
        for container in object.containers().filter(|container| is_its(container)) {
            job(object, container, objects, &mut pairs, out);
        }
    }
    let mut scopes: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in pairs.keys() {
        *scopes.entry(name).or_default() += 1;
    }
    for (name, count) in scopes {
        if count > 1 {
            out.differs(format!(
                "schedule {name}: it is used for namespaces and for deployments by different CronJobs; one schedule covers both here, so \
                 the first of the two was taken for both"
            ));
        }
    }
    for ((name, scope), pair) in &pairs {
        pair_to_schedule(name, scope, pair, objects, out);
    }
}

fn job(
    object: Object<'_>,
    container: &Value,
    objects: &Objects,
    pairs: &mut BTreeMap<(String, String), Pair>,
    out: &mut Migration,
) {
    let (environment, unread) = objects.environment(container, object.namespace());
    for variable in unread.iter().filter(|variable| *variable != "ARGO_TOKEN") {
        out.differs(format!("{}: {variable} could not be read", object.told()));
    }
    out.found.push(format!("K8s-OffHours: {}", object.told()));
    out.stop.push(format!(
        "kubectl patch cronjob {} -n {} --type=merge -p '{{\"spec\":{{\"suspend\":true}}}}'",
        object.name(),
        object.namespace()
    ));
    let suspended = object.0.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
    if !suspended {
        out.running.push(object.told());
    }
    let Some(name) = environment.get("SCHEDULE_NAME") else {
        out.differs(format!("{}: it has no SCHEDULE_NAME, and was left out", object.told()));
        return;
    };
    let scope = environment.get("SCHEDULE_SCOPE").map_or("namespace", String::as_str);
    let pair = pairs.entry((name.clone(), scope.to_owned())).or_default();
    let cron = object
        .0
        .pointer("/spec/schedule")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let zone = object.0.pointer("/spec/timeZone").and_then(Value::as_str);
    let firing = (cron.to_owned(), zone.unwrap_or("UTC").to_owned());
    match environment.get("ACTION").map(String::as_str) {
        Some("shutdown") => pair.shutdown.push(firing),
        Some("startup") => pair.startup.push(firing),
        other => {
            out.differs(format!(
                "{}: ACTION is {other:?}, neither shutdown nor startup; it was left out",
                object.told()
            ));
            return;
        }
    }
    if zone.is_none() {
        out.differs(format!(
            "{}: it has no timeZone, so that it fires in the zone of the kube-controller-manager; UTC was taken, write yours into the \
             schedule",
            object.told()
        ));
    }
    pair.suspended |= suspended;
    for (key, value) in &environment {
        if key == "ACTION" || CONNECTION.contains(&key.as_str()) {
            continue;
        }
        match pair.environment.get(key) {
            Some(before) if before != value => out.differs(format!(
                "schedule {name}: {key} is {before:?} in one CronJob and {value:?} in the other; {before:?} was taken"
            )),
            _ => drop(pair.environment.insert(key.clone(), value.clone())),
        }
    }
}

fn pair_to_schedule(name: &str, scope: &str, pair: &Pair, objects: &Objects, out: &mut Migration) {
    let origin = format!("schedule {name}");
    let variable = |key: &str| pair.environment.get(key).map(String::as_str);
    let on = |key: &str, default: bool| variable(key).map_or(default, |text| text == "true");
    let zone = pair
        .shutdown
        .first()
        .or(pair.startup.first())
        .map_or("UTC", |(_, zone)| zone);
    let mut spec = serde_json::Map::new();
    spec.insert("timeZone".to_owned(), json!(zone));
    // A CronJob in another zone keeps it.
    let written = |firings: &[(String, String)]| -> Vec<String> {
        let texts = firings.iter().map(|(cron, own)| {
            if own == zone || cron.contains("TZ=") {
                cron.clone()
            } else {
                format!("CRON_TZ={own} {cron}")
            }
        });
        texts.collect()
    };
    let mut cron = serde_json::Map::new();
    for (key, firings) in [("shutdown", &pair.shutdown), ("startup", &pair.startup)] {
        if !firings.is_empty() {
            cron.insert(key.to_owned(), json!(written(firings)));
        }
    }
    for (part, missing) in [
        ("shutdown", pair.shutdown.is_empty()),
        ("startup", pair.startup.is_empty()),
    ] {
        if missing {
            out.differs(format!(
                "{origin}: there is no CronJob with ACTION={part}, so that nothing does it here either"
            ));
        }
    }
    spec.insert("cron".to_owned(), Value::Object(cron));
    spec.insert("kinds".to_owned(), json!([{"kind": "Deployment"}]));
    let hpa = hpa_mode(&origin, &on, out);
    spec.insert("hpa".to_owned(), json!({"mode": hpa}));
    if on("ARGO_ENABLED", false) {
        let strict = on("PROTECTED_APP_STRICT_MODE", true);
        spec.insert(
            "argo".to_owned(),
            json!({"pause": true, "sync": true, "strictProtected": strict}),
        );
        out.note(format!(
            "{origin}: Applications are paused and resumed through their custom resource; prune, selfHeal and retry come back as they \
             were. `sync: true` asks for a sync at startup as before; without it Argo CD's own sync is enough"
        ));
        for key in ["ARGO_DISCOVERY_USE_MANUAL", "ARGO_DISCOVERY_USE_AUTOMATIC"] {
            if variable(key).is_some() {
                out.note(format!(
                    "{origin}: set {key} for the scheduler as well, it is a setting and not part of a schedule"
                ));
            }
        }
    }
    if pair.suspended {
        spec.insert("suspend".to_owned(), json!(true));
        out.note(format!(
            "{origin}: its CronJobs are suspended, and so is the schedule; remove `suspend` to begin"
        ));
    } else if on("DRY_RUN", false) {
        spec.insert("suspend".to_owned(), json!(true));
        out.differs(format!(
            "{origin}: DRY_RUN changes nothing, so the schedule is suspended; `offhours plan` shows what it would do"
        ));
    }
    if let Some(replicas) = variable("DEFAULT_STARTUP_REPLICAS").filter(|text| *text != "1") {
        out.differs(format!(
            "{origin}: DEFAULT_STARTUP_REPLICAS={replicas}: a Deployment without a record is left alone here, whatever it is at; the \
             setting counts for records that cannot be read"
        ));
    }
    spec.insert("enforcement".to_owned(), json!({"mode": "Warn"}));
    out.note(
        "K8s-OffHours acts at two instants and holds nothing between them, and so do these schedules (enforcement Warn); with Rewrite \
         what sleeps also stays asleep when somebody deploys at night",
    );
    out.note(
        "a shutdown or startup that was missed is caught up here, and a Deployment that is made at night goes to sleep",
    );
    scoped(name, scope, &origin, objects, out);
    if let Some(taken) = out.schedule(name, &Value::Object(spec), &origin)
        && taken != name
    {
        out.differs(format!(
            "{origin}: {name:?} cannot be the name of a schedule (or is taken); the labels {SCHEDULE}={name} must become {taken:?}"
        ));
    }
}

/// `hpa.mode`, in the order in which its switches count.
fn hpa_mode(origin: &str, on: &dyn Fn(&str, bool) -> bool, out: &mut Migration) -> &'static str {
    if on("HPA_DELETE_RESTORE_ENABLED", false) {
        "DeleteRestore"
    } else if on("HPA_DELETE_ONLY_ENABLED", false) {
        out.note(format!(
            "{origin}: HPA_DELETE_ONLY_ENABLED deletes HPAs for good; DeleteRestore or Keep would not"
        ));
        "DeleteOnly"
    } else if on("HPA_MIN_ZERO_ENABLED", false) {
        "MinZero"
    } else {
        "Keep"
    }
}

/// Its scope is one of two; ours is both, so what carries the label without being meant is told.
fn scoped(name: &str, scope: &str, origin: &str, objects: &Objects, out: &mut Migration) {
    for object in objects.iter().filter(|object| object.label(SCHEDULE) == Some(name)) {
        let meant = match object.kind() {
            "Namespace" => scope == "namespace",
            "Deployment" => scope == "deployment",
            // Its own examples label HPAs, which it never looked at.
            _ => continue,
        };
        if !meant {
            out.differs(format!(
                "{origin}: {} {} carries the label, which counted for nothing with SCHEDULE_SCOPE={scope}; here it does: remove it if \
                 that is not meant",
                object.kind(),
                object.name()
            ));
        }
    }
}
