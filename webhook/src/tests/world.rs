//! A cluster in a few lines, and reviews of what people do in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotations::{ASLEEP, DOWN_SINCE, ORIGINAL_REPLICAS, SCHEDULE};
use shared::api::OffHoursScheduleSpec;
use shared::kinds::{Kind, Kinds};
use shared::policy::{Origin, Schedule, Schedules};
use shared::workload::{Namespace, Workload};

use crate::review;
use crate::service::{Authority, Bench, Outcome, Phase, Ruling, rule};
use crate::state::{Policy, Seen, Sight};

/// A Monday evening, in the window of [`nightly`].
pub(super) const NIGHT: &str = "2026-11-30T23:00:00Z";
/// The Tuesday after it, outside the window.
pub(super) const DAY: &str = "2026-12-01T15:00:00Z";

/// What is in the cluster.
pub(super) struct World {
    pub kinds: Kinds,
    pub schedules: Arc<Schedules>,
    pub namespaces: BTreeMap<String, Seen<Arc<Namespace>>>,
    pub objects: BTreeMap<(String, String, String), Seen<Arc<Workload>>>,
    pub policy: Policy,
    pub now: Timestamp,
    pub authority: Authority,
}

impl Sight for World {
    fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    fn schedules(&self) -> Arc<Schedules> {
        Arc::clone(&self.schedules)
    }

    fn namespace(&self, name: &str) -> Seen<Arc<Namespace>> {
        self.namespaces.get(name).cloned().unwrap_or(Seen::Absent)
    }

    fn workload(&self, kind: &Kind, namespace: &str, name: &str) -> Seen<Arc<Workload>> {
        let key = (kind.kind.to_string(), namespace.to_owned(), name.to_owned());
        self.objects.get(&key).cloned().unwrap_or(Seen::Absent)
    }

    fn scaled_objects(&self, namespace: &str) -> Vec<Arc<Workload>> {
        let found = self.objects.iter().filter_map(|((kind, place, _), seen)| match seen {
            Seen::Known(object) if kind == "ScaledObject" && place == namespace => Some(Arc::clone(object)),
            _ => None,
        });
        found.collect()
    }

    fn absorb(&self, _: &Kind, _: &str, _: &str, _: &[u8]) {}
}

/// A schedule that is down from 20:00 to 08:00 in Sao Paulo on weekdays, with this enforcement.
pub(super) fn spec(enforcement: &Value) -> OffHoursScheduleSpec {
    serde_json::from_value(json!({
        "timeZone": "America/Sao_Paulo",
        "cron": {"shutdown": ["0 20 * * 1-5"], "startup": ["0 8 * * 1-5"]},
        "enforcement": enforcement,
    }))
    .unwrap()
}

impl World {
    /// Namespace `shop` under schedule `dev-weekday` with this enforcement, at night.
    pub fn with(enforcement: &Value) -> Self {
        Self::of_spec(&spec(enforcement))
    }

    pub fn of_spec(spec: &OffHoursScheduleSpec) -> Self {
        let schedule = Schedule::from_spec("dev-weekday", Origin::Resource, spec, &BTreeMap::default());
        let mut world = Self {
            kinds: Kinds::default(),
            schedules: Arc::new(Schedules::new([Arc::new(schedule)])),
            namespaces: BTreeMap::new(),
            objects: BTreeMap::new(),
            policy: Policy {
                own_users: vec!["system:serviceaccount:offhours-system:offhours".to_owned()],
                ..Policy::default()
            },
            now: NIGHT.parse().unwrap(),
            authority: Authority::NotAsked,
        };
        world.add_namespace(&json!({"metadata": {"name": "shop", "uid": "ns", "labels": {SCHEDULE: "dev-weekday"}}}));
        world
    }

    pub fn rewriting() -> Self {
        Self::with(&json!({"mode": "Rewrite"}))
    }

    pub fn denying() -> Self {
        Self::with(&json!({"mode": "Deny"}))
    }

    pub fn by_day(mut self) -> Self {
        self.now = DAY.parse().unwrap();
        self
    }

    pub fn add_namespace(&mut self, object: &Value) {
        let namespace = Namespace::read(object).unwrap();
        self.namespaces
            .insert(namespace.name.to_string(), Seen::Known(Arc::new(namespace)));
    }

    pub fn add(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let group = object["apiVersion"]
            .as_str()
            .unwrap()
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        let kind = Arc::clone(self.kinds.by_kind(group, kind).unwrap());
        let workload = Workload::read(&kind, object).unwrap();
        let key = (
            kind.kind.to_string(),
            workload.namespace.to_string(),
            workload.name.to_string(),
        );
        self.objects.insert(key, Seen::Known(Arc::new(workload)));
    }

    pub fn rule_on(&self, review: &Value, phase: Phase) -> Ruling {
        let body = serde_json::to_vec(review).unwrap();
        let request = review::decode(&body).unwrap();
        let schedules = self.schedules();
        let bench = Bench {
            sight: self,
            schedules: &schedules,
            policy: &self.policy,
            phase,
            authority: &self.authority,
            now: self.now,
        };
        rule(&request, &bench)
    }

    pub fn mutate(&self, review: &Value) -> Ruling {
        let ruling = self.rule_on(review, Phase::Mutate);
        self.is_fixed_point(review, &ruling);
        ruling
    }

    pub fn validate(&self, review: &Value) -> Ruling {
        let ruling = self.rule_on(review, Phase::Validate);
        assert!(ruling.answer.patch.0.is_empty(), "a validating answer has no patch");
        ruling
    }

    /// Called again on what it made of the object, the webhook changes nothing (other webhooks may make the API server do so),
    /// and refuses nothing when it sees the final object.
    fn is_fixed_point(&self, review: &Value, ruling: &Ruling) {
        if ruling.answer.denial.is_some() {
            return;
        }
        let mut again = review.clone();
        again["request"]["object"] = patched(review, ruling);
        let second = self.rule_on(&again, Phase::Mutate);
        assert!(
            second.answer.patch.0.is_empty(),
            "second pass changes {}",
            serde_json::to_string(&second.answer.patch).unwrap()
        );
        if !ruling.answer.patch.0.is_empty() {
            assert_eq!(second.answer.denial, None);
            // What the request configures may still be wrong, but what we wrote is not.
            let last = self.rule_on(&again, Phase::Validate);
            assert!(
                last.answer.denial.is_none() || last.outcome == Outcome::Misconfigured,
                "{last:?}"
            );
        }
        for warning in &ruling.answer.warnings {
            assert!(warning.len() <= 250, "{} bytes: {warning}", warning.len());
            assert!(!warning.contains(char::is_control), "{warning:?}");
        }
    }
}

/// The object of the review with the ruling's patch applied by RFC 6902, as the API server does from the wire.
pub(super) fn patched(review: &Value, ruling: &Ruling) -> Value {
    let mut object = review["request"]["object"].clone();
    let wire: Value = serde_json::from_slice(&review::encode("u", &ruling.answer)).unwrap();
    if let Some(patch) = wire["response"]["patch"].as_str() {
        let text = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&text).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

/// A Deployment as the API server would send it.
pub(super) fn deployment(replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "checkout", "namespace": "shop", "uid": "d-1", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "checkout"}, "annotations": {"a": "1"},
        },
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"containers": [{"name": "c", "image": "shop/checkout:1"}]}},
        },
    })
}

/// The same, asleep since the beginning of the window with this record.
pub(super) fn sleeping(record: &str) -> Value {
    let mut object = deployment(0);
    object["metadata"]["annotations"][ORIGINAL_REPLICAS] = json!(record);
    object["metadata"]["annotations"][DOWN_SINCE] = json!("2026-11-30T23:00:00Z");
    object["metadata"]["labels"][ASLEEP] = json!(record);
    object
}

/// A review of an UPDATE by a person.
pub(super) fn update(old: &Value, new: &Value) -> Value {
    review("UPDATE", Some(old), Some(new))
}

/// A review of a CREATE by a person.
pub(super) fn create(new: &Value) -> Value {
    let mut new = new.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        new["metadata"].as_object_mut().unwrap().remove(field);
    }
    review("CREATE", None, Some(&new))
}

/// A review by a person.
pub(super) fn review(operation: &str, old: Option<&Value>, new: Option<&Value>) -> Value {
    let object = new.or(old).unwrap();
    let api = object["apiVersion"].as_str().unwrap_or("v1");
    let (group, version) = api.rsplit_once('/').unwrap_or(("", api));
    let kind = object["kind"].as_str().unwrap();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())},
            "requestKind": {"group": group, "version": version, "kind": kind},
            "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
            "operation": operation,
            "userInfo": {"username": "ana", "groups": ["system:authenticated"]},
            "object": new, "oldObject": old, "dryRun": false,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-edit"},
        },
    })
}

/// A review of `/scale` by a person. At zero, `spec.replicas` is left out, as the API server does.
pub(super) fn scale(was: u64, asked: u64) -> Value {
    let object = |replicas: u64| {
        let spec = if replicas == 0 {
            json!({})
        } else {
            json!({"replicas": replicas})
        };
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "checkout", "namespace": "shop", "uid": "d-1", "resourceVersion": "7"},
            "spec": spec, "status": {"replicas": 0, "selector": "app=checkout"},
        })
    };
    let mut review = review("UPDATE", Some(&object(was)), Some(&object(asked)));
    review["request"]["resource"] = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    review["request"]["subResource"] = json!("scale");
    review
}

/// The same review by somebody else.
pub(super) fn by(mut review: Value, user: &str) -> Value {
    review["request"]["userInfo"] = json!({"username": user, "groups": []});
    review
}

/// What `update` does to a copy of the old object.
pub(super) fn changed(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = object.clone();
    change(&mut object);
    object
}

pub(super) fn replicas(object: &Value) -> Option<u64> {
    object["spec"]["replicas"].as_u64()
}

pub(super) fn record(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ORIGINAL_REPLICAS].as_str()
}
