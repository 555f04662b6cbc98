//! A cluster in memory for the tests: JSON objects, versions, patches with their tests. No controllers, no clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotations;
use shared::kinds::Kinds;
use shared::policy::{Origin, Schedule, Schedules};
use shared::schedule::{Definition, compile};
use shared::workload::{FIELD_MANAGER, Namespace, ObjectRef, Workload};

use crate::decide::action::{Action, Request};
use crate::decide::decide;
use crate::decide::decider::Decider;
use crate::decide::memory::{Memory, Outcome};
use crate::decide::snapshot::{Dirty, Snapshot};

/// An instant from its text.
pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A schedule in UTC, up in these windows.
pub fn up_in(name: &str, windows: &str) -> Schedule {
    let definition = Definition {
        time_zone: Some("UTC".to_owned()),
        uptime: Some(vec![windows.to_owned()]),
        ..Definition::default()
    };
    let timeline = compile(&definition).map(|(timeline, _)| timeline).unwrap();
    Schedule::new(name, Origin::Resource, Ok(timeline))
}

/// `office`: up on weekdays from 8 to 20 o'clock.
pub fn office() -> Schedule {
    up_in("office", "Mon-Fri 08:00-20:00")
}

/// A Tuesday morning within `office`.
pub const DAY: &str = "2026-12-01T10:00:00Z";
/// The evening of that day.
pub const NIGHT: &str = "2026-12-01T22:00:00Z";
/// The next morning.
pub const MORNING: &str = "2026-12-02T08:00:01Z";
/// The next evening.
pub const NEXT_NIGHT: &str = "2026-12-02T22:00:00Z";

/// Why the API server refused a patch.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// No such object.
    Gone,
    /// A test failed.
    Conflict,
}

/// The cluster.
#[derive(Debug, Clone)]
pub struct World {
    pub kinds: Arc<Kinds>,
    pub objects: BTreeMap<ObjectRef, Value>,
    pub namespaces: BTreeMap<String, Value>,
    pub writes: u32,
    pub webhook: bool,
    version: u64,
    uids: u64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            kinds: Arc::new(Kinds::default()),
            objects: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            writes: 0,
            webhook: false,
            version: 0,
            uids: 0,
        }
    }
}

impl World {
    pub fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// A namespace that follows a schedule.
    pub fn namespace(&mut self, name: &str, schedule: &str) {
        let version = self.next_version();
        let object = json!({"metadata": {"name": name, "uid": format!("ns-{name}"), "resourceVersion": version,
            "labels": {annotations::SCHEDULE: schedule}}});
        self.namespaces.insert(name.to_owned(), object);
    }

    // The tests write the spec in place.
    #[allow(clippy::needless_pass_by_value)]
    /// Creates an object with this spec, new UID and version.
    pub fn create(&mut self, kind: &str, namespace: &str, name: &str, spec: Value) -> ObjectRef {
        let row = self.kinds.named(kind).next().unwrap().clone();
        self.uids += 1;
        let version = self.next_version();
        let object = json!({
            "apiVersion": row.api_version(), "kind": row.kind,
            "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{}", self.uids), "resourceVersion": version,
                "creationTimestamp": "2025-11-01T00:00:00Z", "generation": 1},
            "spec": spec, "status": {"observedGeneration": 1},
        });
        let reference = ObjectRef {
            group: Arc::from(row.group.as_ref()),
            kind: Arc::from(row.kind.as_ref()),
            namespace: Arc::from(namespace),
            name: Arc::from(name),
        };
        self.objects.insert(reference.clone(), object);
        reference
    }

    /// A Deployment.
    pub fn deployment(&mut self, namespace: &str, name: &str, replicas: u64) -> ObjectRef {
        let object = self.create("Deployment", namespace, name, json!({"replicas": replicas}));
        self.edit(&object, |object| object["status"] = settled(replicas));
        object
    }

    /// Changes an object as somebody else than us.
    pub fn edit(&mut self, object: &ObjectRef, change: impl FnOnce(&mut Value)) {
        let version = self.next_version();
        let value = self.objects.get_mut(object).unwrap();
        change(value);
        value["metadata"]["resourceVersion"] = Value::from(version);
    }

    /// Sets or removes annotations of an object.
    pub fn annotate(&mut self, object: &ObjectRef, key: &str, value: Option<&str>) {
        self.edit(object, |object| {
            keep(&mut object["metadata"], "annotations", key, value);
        });
    }

    /// Sets or removes annotations of a namespace.
    pub fn annotate_namespace(&mut self, name: &str, key: &str, value: Option<&str>) {
        let version = self.next_version();
        let object = self.namespaces.get_mut(name).unwrap();
        keep(&mut object["metadata"], "annotations", key, value);
        object["metadata"]["resourceVersion"] = Value::from(version);
    }

    /// Sets or removes a label of an object.
    pub fn label(&mut self, object: &ObjectRef, key: &str, value: Option<&str>) {
        self.edit(object, |object| keep(&mut object["metadata"], "labels", key, value));
    }

    /// `spec.replicas`; absent: none.
    pub fn replicas(&self, object: &ObjectRef) -> Option<u64> {
        self.objects[object].pointer("/spec/replicas")?.as_u64()
    }

    /// An annotation of ours.
    pub fn annotation(&self, object: &ObjectRef, key: &str) -> Option<&str> {
        self.objects[object]
            .get("metadata")?
            .get("annotations")?
            .get(key)?
            .as_str()
    }

    /// All labels and annotations under our prefix that the product itself writes.
    pub fn own_keys(&self, object: &ObjectRef) -> Vec<String> {
        ["annotations", "labels"]
            .iter()
            .filter_map(|map| self.objects[object]["metadata"].get(*map)?.as_object())
            .flat_map(serde_json::Map::keys)
            .filter(|key| annotations::is_own_state(key))
            .cloned()
            .collect()
    }

    /// The facts of an object.
    pub fn workload(&self, object: &ObjectRef) -> Workload {
        let kind = self.kinds.by_kind(&object.group, &object.kind).unwrap();
        let text = serde_json::to_vec(&self.objects[object]).unwrap();
        shared::workload::parse(&self.kinds, kind, &text).unwrap()
    }

    /// The facts of a namespace.
    pub fn namespace_facts(&self, name: &str) -> Namespace {
        Namespace::read(&self.namespaces[name]).unwrap()
    }

    /// All of it as a snapshot.
    pub fn snapshot(&self, schedules: &Arc<Schedules>) -> Snapshot {
        let mut snapshot = Snapshot::new(Arc::clone(&self.kinds), "offhours-system");
        let dirty = &mut Dirty::default();
        snapshot.set_schedules(Arc::clone(schedules), BTreeMap::new(), dirty);
        for name in self.namespaces.keys() {
            snapshot.set_namespace(&Arc::new(self.namespace_facts(name)), dirty);
        }
        for (object, value) in &self.objects {
            match object.kind.as_ref() {
                "HorizontalPodAutoscaler" => {
                    let hpa = read(&shared::hpa::keep(), value, |value| {
                        shared::hpa::Hpa::read(value).unwrap()
                    });
                    snapshot.beside.set_hpa(&Arc::new(hpa), dirty);
                }
                "ConfigMap" => {
                    if let Ok(backup) = crate::hpa::Backup::read(value) {
                        snapshot.beside.set_backup(&Arc::new(backup), dirty);
                    } else if let Ok(state) = crate::argo::State::read(value) {
                        snapshot.beside.set_state(&Arc::new(state), dirty);
                    }
                }
                "Application" => {
                    let application = read(&crate::argo::keep(), value, |value| {
                        crate::argo::Application::read(value).unwrap()
                    });
                    snapshot.beside.set_application(&Arc::new(application), dirty);
                }
                "Kustomization" | "HelmRelease" => {
                    let kind = crate::flux::kinds()
                        .iter()
                        .find(|kind| kind.kind == *object.kind)
                        .unwrap();
                    let flux = read(&crate::flux::keep(), value, |value| {
                        crate::flux::FluxObject::read(kind, value).unwrap()
                    });
                    snapshot.beside.set_flux(&Arc::new(flux), dirty);
                }
                _ => snapshot.set_workload(&Arc::new(self.workload(object)), dirty),
            }
        }
        snapshot.beside.webhook = self.webhook;
        snapshot
    }

    /// Adds an object of any kind as it is, with a new UID and version.
    pub fn add(&mut self, group: &str, object: &Value) -> ObjectRef {
        let mut object = object.clone();
        self.uids += 1;
        let version = self.next_version();
        object["metadata"]["uid"] = Value::from(format!("uid-{}", self.uids));
        object["metadata"]["resourceVersion"] = Value::from(version);
        let text = |field: &str| Arc::from(object["metadata"][field].as_str().unwrap_or_default());
        let reference = ObjectRef {
            group: Arc::from(group),
            kind: Arc::from(object["kind"].as_str().unwrap()),
            namespace: text("namespace"),
            name: text("name"),
        };
        self.objects.insert(reference.clone(), object);
        reference
    }

    /// The only object of a kind, if there is one.
    pub fn one(&self, kind: &str) -> Option<&Value> {
        let mut all = self.objects.iter().filter(|(object, _)| *object.kind == *kind);
        let (_, found) = all.next()?;
        assert!(all.next().is_none(), "there is more than one {kind}");
        Some(found)
    }

    /// The facts and the objects of a decider's own writes, until nothing is wanted any more; the clock goes on by a
    /// second at a time for as long as something is waited for. All writes, in their order.
    pub fn settle(
        &mut self,
        decider: &mut Decider,
        schedules: &Arc<Schedules>,
        now: &mut Timestamp,
        refuse: &dyn Fn(&Action) -> Option<Outcome>,
    ) -> Vec<Action> {
        self.settle_beside(decider, schedules, now, refuse, &mut |_| {})
    }

    /// The same beside somebody who acts after each of our writes, and each second.
    pub fn settle_beside(
        &mut self,
        decider: &mut Decider,
        schedules: &Arc<Schedules>,
        now: &mut Timestamp,
        refuse: &dyn Fn(&Action) -> Option<Outcome>,
        other: &mut dyn FnMut(&mut Self),
    ) -> Vec<Action> {
        let mut writes = Vec::new();
        for _ in 0..200 {
            other(self);
            let snapshot = self.snapshot(schedules);
            decider.update(&snapshot, &Dirty::everything(), *now);
            let Some(action) = decider.next_action(&snapshot, *now) else {
                if !decider.is_waiting_beside() {
                    return writes;
                }
                *now = now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
                continue;
            };
            let outcome = refuse(&action).unwrap_or_else(|| match self.apply(&action) {
                Ok(()) => Outcome::Done,
                Err(_) => Outcome::Conflict { message: String::new() },
            });
            if outcome == Outcome::Done {
                writes.push(action.clone());
            }
            let snapshot = self.snapshot(schedules);
            decider.answered(&snapshot, &action.target.object, &outcome, *now);
        }
        writes
    }

    /// Carries out a write as the API server would.
    pub fn apply(&mut self, action: &Action) -> Result<(), Refused> {
        let object = &action.target.object;
        let body = match &action.request {
            Request::Patch { dry_run: true, .. } => return Ok(()),
            Request::Patch { body, .. } => body,
            Request::Create(manifest) => {
                if self.objects.contains_key(object) {
                    return Err(Refused::Conflict);
                }
                let created = self.add(&object.group, manifest);
                assert_eq!(created, *object);
                self.writes += 1;
                return Ok(());
            }
            Request::Delete => {
                let present = self.objects.get(object).ok_or(Refused::Gone)?;
                if present["metadata"]["uid"].as_str() != Some(&*action.target.uid) {
                    return Err(Refused::Conflict);
                }
                self.objects.remove(object);
                self.writes += 1;
                return Ok(());
            }
        };
        let version = self.next_version();
        let place = if *object.kind == *"Namespace" {
            self.namespaces.get_mut(object.name.as_ref())
        } else {
            self.objects.get_mut(object)
        };
        let place = place.ok_or(Refused::Gone)?;
        let before = place.clone();
        if json_patch::patch(place, body).is_err() {
            *place = before;
            return Err(Refused::Conflict);
        }
        place["metadata"]["resourceVersion"] = Value::from(version);
        if place["spec"].get("replicas") != before["spec"].get("replicas") {
            owned_by(place, FIELD_MANAGER);
        }
        self.writes += 1;
        Ok(())
    }

    /// One pass: decides, and carries everything out. How many writes it took.
    pub fn pass(&mut self, schedules: &Arc<Schedules>, memory: &Memory, now: Timestamp) -> u32 {
        let before = self.writes;
        let decision = decide(&self.snapshot(schedules), memory, now);
        for action in decision.actions.iter().chain(&decision.waiting) {
            self.apply(action).unwrap();
        }
        self.writes - before
    }
}

/// Reads facts as a reflector does: pruned first.
fn read<T>(keep: &shared::prune::Keep, value: &Value, read: impl Fn(&Value) -> T) -> T {
    let text = value.to_string();
    let pruned = serde::de::DeserializeSeed::deserialize(keep, &mut serde_json::Deserializer::from_str(&text));
    read(&pruned.unwrap())
}

/// The status of a Deployment all of whose pods are up to date and available.
pub fn settled(replicas: u64) -> Value {
    json!({"observedGeneration": 1_000_000, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
        "availableReplicas": replicas})
}

/// Who set the replicas last, where field managers are kept.
pub fn owned_by(object: &mut Value, manager: &str) {
    let Some(entries) = object["metadata"]
        .get_mut("managedFields")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    entries.retain(|entry| entry.pointer("/fieldsV1/f:spec/f:replicas").is_none());
    entries.push(json!({"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}));
}

/// Sets or removes one key of a map in `metadata`.
pub fn keep(metadata: &mut Value, map: &str, key: &str, value: Option<&str>) {
    match value {
        Some(value) => metadata[map][key] = Value::from(value),
        None => {
            if let Some(map) = metadata.get_mut(map).and_then(Value::as_object_mut) {
                map.remove(key);
            }
        }
    }
}

/// These schedules.
pub fn schedules(all: impl IntoIterator<Item = Schedule>) -> Arc<Schedules> {
    Arc::new(Schedules::new(all.into_iter().map(Arc::new)))
}
