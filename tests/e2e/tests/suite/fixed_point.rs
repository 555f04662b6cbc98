//! The webhook never disagrees with the scheduler: on an object that the one admitted, the other has nothing to do. Pure; here
//! because no crate of the product knows both.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use scheduler::decide::workload::{Known, Step, decide_workload};
use serde_json::{Value, json};
use shared::annotations::{ASLEEP, DOWN_REPLICAS, DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS, SCHEDULE};
use shared::kinds::{Kind, Kinds};
use shared::policy::{Origin, Schedule, Schedules};
use shared::record::Record;
use shared::verdict::{Surroundings, verdict};
use shared::workload::{Namespace, Workload};
use webhook::review::decode;
use webhook::service::{Authority, Bench, Outcome, Phase, rule};
use webhook::state::{Policy, Seen, Sight};

struct Cluster {
    kinds: Kinds,
    schedules: Arc<Schedules>,
    namespace: Arc<Namespace>,
    parent: Option<Arc<Workload>>,
}

impl Sight for Cluster {
    fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    fn schedules(&self) -> Arc<Schedules> {
        Arc::clone(&self.schedules)
    }

    fn namespace(&self, _: &str) -> Seen<Arc<Namespace>> {
        Seen::Known(Arc::clone(&self.namespace))
    }

    fn workload(&self, _: &Kind, _: &str, _: &str) -> Seen<Arc<Workload>> {
        self.parent.clone().map_or(Seen::Absent, Seen::Known)
    }

    fn scaled_objects(&self, _: &str) -> Vec<Arc<Workload>> {
        Vec::new()
    }

    fn absorb(&self, _: &Kind, _: &str, _: &str, _: &[u8]) {}
}

fn cluster(mode: &str, down: &Value) -> Cluster {
    let spec = serde_json::from_value(json!({
        "timeZone": "America/Sao_Paulo", "cron": {"shutdown": ["0 20 * * 1-5"], "startup": ["0 8 * * 1-5"]},
        "enforcement": {"mode": mode}, "downReplicas": down,
    }))
    .unwrap();
    let schedule = Schedule::from_spec("dev", Origin::Resource, &spec, &BTreeMap::default());
    let namespace = Namespace::read(&json!({"metadata": {"name": "shop", "labels": {SCHEDULE: "dev"}}})).unwrap();
    Cluster {
        kinds: Kinds::default(),
        schedules: Arc::new(Schedules::new([Arc::new(schedule)])),
        namespace: Arc::new(namespace),
        parent: None,
    }
}

fn object(kind: &str, replicas: u64, annotations: &[(&str, Option<String>)], label: Option<String>) -> Value {
    let of = |pairs: &[(&str, Option<String>)]| -> Value {
        let map = pairs
            .iter()
            .filter_map(|(key, value)| Some(((*key).to_owned(), json!(value.clone()?))));
        Value::Object(map.collect())
    };
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": of(annotations), "labels": of(&[(ASLEEP, label)]),
        },
        "spec": {"replicas": replicas, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
        "status": {"observedGeneration": 1},
    })
}

fn review(old: Option<&Value>, new: &Value, user: &str) -> Vec<u8> {
    let kind = new["kind"].as_str().unwrap();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "kind": {"group": "apps", "version": "v1", "kind": kind},
            "resource": {"group": "apps", "version": "v1", "resource": format!("{}s", kind.to_lowercase())},
            "name": "web", "namespace": "shop", "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "userInfo": {"username": user, "groups": []}, "object": new, "oldObject": old,
        },
    })
    .to_string()
    .into_bytes()
}

fn down_replicas() -> impl Strategy<Value = Value> {
    proptest::sample::select(vec![json!(0), json!(1), json!(2), json!("50%"), json!("25%")])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rule_e11_decide_has_nothing_to_do_on_what_the_webhook_admitted(
        down in down_replicas(),
        mode in proptest::sample::select(vec!["Rewrite", "Deny"]),
        kind in proptest::sample::select(vec!["Deployment", "StatefulSet"]),
        user in proptest::sample::select(vec!["ana", "system:serviceaccount:argocd:argocd-application-controller",
            "system:serviceaccount:kube-system:horizontal-pod-autoscaler"]),
        original in 0_u64..9, asked in 0_u64..9, creates in any::<bool>(), strips in any::<bool>(),
    ) {
        let now: Timestamp = "2026-12-01T02:00:00Z".parse().unwrap();
        let cluster = cluster(mode, &down);
        let row = Arc::clone(cluster.kinds.by_kind("apps", kind).unwrap());
        let around = Surroundings {
            kinds: &cluster.kinds,
            schedules: &cluster.schedules,
            namespace: Some(&cluster.namespace),
            own_namespace: "offhours-system",
            scaled_by: None,
        };
        // As the scheduler leaves it at closing time.
        let awake = object(kind, original, &[], None);
        let facts = Workload::read(&row, &awake).unwrap();
        let told = verdict(&facts, &around, now);
        let mut old = awake;
        if let Step::Write { edits, .. } = decide_workload(&facts, &told, &Known::default(), now) {
            let patch = edits.patch(&facts, shared::patch::Preconditions::None);
            json_patch::patch(&mut old, &patch).unwrap();
        }
        let mut new = old.clone();
        new["spec"]["replicas"] = json!(asked);
        if strips || creates {
            new["metadata"]["annotations"] = json!({});
            new["metadata"]["labels"] = json!({});
        }
        if creates {
            new["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Delete");
        }
        let body = review((!creates).then_some(&old), &new, user);
        let request = decode(&body).unwrap();
        let bench = Bench {
            sight: &cluster,
            schedules: &cluster.schedules,
            policy: &Policy::default(),
            phase: Phase::Mutate,
            authority: &Authority::NotAsked,
            now,
        };
        let ruling = rule(&request, &bench);
        if ruling.answer.denial.is_some() {
            prop_assert_eq!(mode, "Deny");
            return Ok(());
        }
        let mut admitted = new.clone();
        json_patch::patch(&mut admitted, &ruling.answer.patch).unwrap();
        let facts = Workload::read(&row, &admitted).unwrap();
        let before = Workload::read(&row, &old).unwrap();
        let record = Record::read(&before).filter(|_| !creates);
        let known = Known { record: record.as_ref(), ..Known::default() };
        let told = verdict(&facts, &around, now);
        let step = decide_workload(&facts, &told, &known, now);
        let touched = matches!(ruling.outcome, Outcome::Held | Outcome::CreatedAsleep | Outcome::PutBack);
        // What passed untouched is the scheduler's business: a number lowered below what is held, say.
        if touched {
            prop_assert_eq!(step, Step::Nothing, "{}", admitted);
        }
    }
}

/// Keys that the properties above do not name are of no use to them.
#[test]
fn the_keys_of_a_sleep_are_those_that_the_scheduler_writes() {
    let cluster = cluster("Rewrite", &json!(1));
    let row = Arc::clone(cluster.kinds.by_kind("apps", "Deployment").unwrap());
    let mut asleep = object("Deployment", 4, &[(DOWN_REPLICAS, Some("1".to_owned()))], None);
    let facts = Workload::read(&row, &asleep).unwrap();
    let plan = shared::record::plan(&facts, shared::annotations::DownReplicas::Count(1), None).unwrap();
    let now = "2026-12-01T02:00:00Z".parse().unwrap();
    let patch = shared::patch::down(&facts, &plan, now).patch(&facts, shared::patch::Preconditions::None);
    json_patch::patch(&mut asleep, &patch).unwrap();
    let annotations = asleep["metadata"]["annotations"].as_object().unwrap();
    let keys: Vec<&str> = annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, [DOWN_REPLICAS, DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS]);
    assert_eq!(asleep["metadata"]["labels"][ASLEEP], "4");
}
