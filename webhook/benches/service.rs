//! Service time of one review: decode, verdict, ruling, encode, without HTTP. `cargo bench -p webhook --bench service`.
//!
//! Promise: p50 <= 100 us on one core for a Deployment of 10 KB, with 200 schedules and 20,000 workloads in view.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::kinds::{Kind, Kinds};
use shared::policy::{Origin, Schedule, Schedules};
use shared::workload::{Namespace, Workload};
use webhook::review::{decode, encode};
use webhook::service::{Authority, Bench, Outcome, Phase, rule};
use webhook::state::{Policy, Seen, Sight};

const ROUNDS: usize = 20_000;

struct View {
    kinds: Kinds,
    schedules: Arc<Schedules>,
    namespaces: HashMap<String, Arc<Namespace>>,
    workloads: HashMap<(String, String), Arc<Workload>>,
}

impl Sight for View {
    fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    fn schedules(&self) -> Arc<Schedules> {
        Arc::clone(&self.schedules)
    }

    fn namespace(&self, name: &str) -> Seen<Arc<Namespace>> {
        self.namespaces.get(name).cloned().map_or(Seen::Absent, Seen::Known)
    }

    fn workload(&self, _: &Kind, namespace: &str, name: &str) -> Seen<Arc<Workload>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.workloads.get(&key).cloned().map_or(Seen::Absent, Seen::Known)
    }

    fn scaled_objects(&self, _: &str) -> Vec<Arc<Workload>> {
        Vec::new()
    }

    fn absorb(&self, _: &Kind, _: &str, _: &str, _: &[u8]) {}
}

fn deployment(namespace: &str, name: &str, bytes: usize, replicas: u64) -> Value {
    let variables: Vec<Value> = (0..bytes / 100)
        .map(|index| json!({"name": format!("VARIABLE_{index:06}"), "value": "v".repeat(58)}))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": namespace, "uid": "d-1", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": name},
            "annotations": {
                "offhours.platform.io/original-replicas": "3", "offhours.platform.io/down-since": "2026-11-30T23:00:00Z",
            },
        },
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": "i", "env": variables}]}}},
        "status": {"observedGeneration": 3},
    })
}

fn asleep(mut object: Value) -> Value {
    object["metadata"]["labels"]["offhours.platform.io/asleep"] = json!("3");
    object
}

fn view() -> View {
    let kinds = Kinds::default();
    let spec = serde_json::from_value(json!({
        "timeZone": "America/Sao_Paulo", "cron": {"shutdown": ["0 20 * * 1-5"], "startup": ["0 8 * * 1-5"]},
    }))
    .unwrap();
    let schedules = (0..200).map(|index| {
        Arc::new(Schedule::from_spec(
            &format!("schedule-{index}"),
            Origin::Resource,
            &spec,
            &BTreeMap::default(),
        ))
    });
    let schedules = Arc::new(Schedules::new(schedules));
    let mut namespaces = HashMap::new();
    let mut workloads = HashMap::new();
    let kind = Arc::clone(kinds.by_kind("apps", "Deployment").unwrap());
    for number in 0..200 {
        let name = format!("ns-{number}");
        let labels = json!({"offhours.platform.io/schedule": format!("schedule-{number}")});
        let object = json!({"metadata": {"name": name, "labels": labels}});
        namespaces.insert(name.clone(), Arc::new(Namespace::read(&object).unwrap()));
        for index in 0..100 {
            let workload = format!("w-{index}");
            let object = asleep(deployment(&name, &workload, 100, 0));
            workloads.insert(
                (name.clone(), workload),
                Arc::new(Workload::read(&kind, &object).unwrap()),
            );
        }
    }
    View {
        kinds,
        schedules,
        namespaces,
        workloads,
    }
}

fn review(old: &Value, new: &Value, scale: bool) -> Vec<u8> {
    let (kind, sub) = if scale { ("Scale", "scale") } else { ("Deployment", "") };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "apps", "version": "v1", "kind": kind},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": sub,
            "name": "w-7", "namespace": "ns-7", "operation": "UPDATE",
            "userInfo": {"username": "ana", "groups": ["system:authenticated"]},
            "object": new, "oldObject": old, "dryRun": false, "options": {"fieldManager": "kubectl-edit"},
        },
    })
    .to_string()
    .into_bytes()
}

fn measure(name: &str, view: &View, body: &[u8], outcome: Outcome, rounds: usize) -> Duration {
    let now: Timestamp = "2026-12-01T02:00:00Z".parse().unwrap();
    let policy = Policy::default();
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            let request = decode(body).unwrap();
            let schedules = view.schedules();
            let bench = Bench {
                sight: view,
                schedules: &schedules,
                policy: &policy,
                phase: Phase::Mutate,
                authority: &Authority::NotAsked,
                now,
            };
            let ruling = rule(&request, &bench);
            let answer = encode(&request.uid, &ruling.answer);
            let took = began.elapsed();
            assert_eq!(ruling.outcome, outcome);
            assert!(!answer.is_empty());
            took
        })
        .collect();
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "{name:<44} {:>8} bytes  p50 {:>9.1?}  p90 {:>9.1?}  p99 {:>9.1?}",
        body.len(),
        at(0.5),
        at(0.9),
        at(0.99)
    );
    at(0.5)
}

fn main() {
    let view = view();
    let of = |bytes: usize, replicas: u64| asleep(deployment("ns-7", "w-7", bytes, replicas));
    let held = review(&of(10_000, 0), &of(10_000, 5), false);
    let p50 = measure("UPDATE held, Deployment of 10 KB", &view, &held, Outcome::Held, ROUNDS);
    let passed = review(&of(10_000, 0), &of(10_000, 0), false);
    measure(
        "UPDATE passed, Deployment of 10 KB",
        &view,
        &passed,
        Outcome::Passed,
        ROUNDS,
    );
    let large = review(&of(500_000, 0), &of(500_000, 5), false);
    measure(
        "UPDATE held, Deployment of 500 KB",
        &view,
        &large,
        Outcome::Held,
        ROUNDS / 20,
    );
    let scale = |replicas: u64| json!({"kind": "Scale", "metadata": {"name": "w-7", "uid": "d-1"}, "spec": {"replicas": replicas}});
    let scaled = review(&scale(0), &scale(5), true);
    measure("UPDATE held, /scale", &view, &scaled, Outcome::Held, ROUNDS);
    let limit = Duration::from_micros(100);
    let verdict = if p50 <= limit { "kept" } else { "BROKEN" };
    println!("promise: p50 <= {limit:?} for a held UPDATE of 10 KB on one core: {verdict} ({p50:.1?})");
}
