//! HPAs through a night: each mode, in a cluster in memory.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotations;
use shared::api::HpaMode;
use shared::policy::Schedules;
use shared::workload::ObjectRef;

use crate::decide::action::{Action, Request};
use crate::decide::assess::Class;
use crate::decide::decide;
use crate::decide::decider::Decider;
use crate::decide::memory::{Memory, Outcome};
use crate::decide::tests::world::{DAY, MORNING, NIGHT, World, at, office, schedules};

pub(crate) fn hpa(namespace: &str, name: &str, target: &str, min: Option<u64>, max: u64) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "maxReplicas": max,
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
            {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}},
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    });
    if let Some(min) = min {
        spec["minReplicas"] = min.into();
    }
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "namespace": namespace, "name": name,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": namespace, "note": "keep me"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "helm"}], "generation": 4, "creationTimestamp": "2026-11-01T00:00:00Z",
        },
        "spec": spec,
        "status": {"currentReplicas": 7, "conditions": [{"type": "AbleToScale", "status": "True"}]},
    })
}

pub(crate) struct Night {
    pub world: World,
    pub decider: Decider,
    pub schedules: Arc<Schedules>,
    pub now: Timestamp,
    pub web: ObjectRef,
    /// How often the HPA controller looks, in writes of ours or seconds; `None`: it does not run.
    pub looks_every: Option<u32>,
}

pub(crate) fn night(mode: HpaMode, down: u32) -> Night {
    let mut world = World::default();
    world.namespace("shop", "office");
    let web = world.deployment("shop", "web", 7);
    let mut schedule = office();
    schedule.hpa = mode;
    schedule.down_replicas = annotations::DownReplicas::Count(down);
    Night {
        world,
        decider: Decider::default(),
        schedules: schedules([schedule]),
        now: at(DAY),
        web,
        looks_every: Some(3),
    }
}

impl Night {
    pub fn add(&mut self, object: &Value) -> ObjectRef {
        self.world.add("autoscaling", object)
    }

    pub fn at(&mut self, instant: &str) -> Vec<Action> {
        self.refusing(instant, &|_| None)
    }

    pub fn refusing(&mut self, instant: &str, refuse: &dyn Fn(&Action) -> Option<Outcome>) -> Vec<Action> {
        self.now = self.now.max(at(instant));
        let (every, mut beats) = (self.looks_every, 0);
        let mut controller = |world: &mut World| {
            beats += 1;
            if every.is_some_and(|every| beats % every == 0) {
                answer(world);
            }
        };
        self.world.settle_beside(
            &mut self.decider,
            &self.schedules,
            &mut self.now,
            refuse,
            &mut controller,
        )
    }

    /// A new leader knows nothing but what is in the objects.
    pub fn new_leader(&mut self) {
        self.decider = Decider::default();
    }

    pub fn spec(&self, hpa: &ObjectRef) -> &Value {
        &self.world.objects[hpa]["spec"]
    }
}

/// Whether the controller of an HPA is asked to look at it.
pub(super) fn is_asked(hpa: &Value) -> bool {
    hpa["status"]["conditions"][0]["reason"] == shared::hpa::ASKED
}

/// The controller looks at an HPA, and writes what it always writes.
pub(super) fn look_at(world: &mut World, autoscaler: &ObjectRef) {
    let able = json!({"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"});
    world.edit(autoscaler, |hpa| hpa["status"]["conditions"][0] = able);
}

/// It looks at all that it is asked to look at.
fn answer(world: &mut World) {
    let asked = world.objects.iter().filter(|(_, hpa)| is_asked(hpa));
    for autoscaler in asked.map(|(object, _)| object.clone()).collect::<Vec<_>>() {
        look_at(world, &autoscaler);
    }
}

pub(super) fn lasting(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!([
        metadata["labels"],
        metadata["annotations"],
        metadata["ownerReferences"],
        object["spec"]
    ])
}

pub(super) fn kinds(writes: &[Action]) -> Vec<String> {
    writes
        .iter()
        .map(|action| {
            let verb = match action.request {
                Request::Patch { dry_run: true, .. } => "ask",
                Request::Patch { .. } => "patch",
                Request::Create(_) => "create",
                Request::Delete => "delete",
            };
            let status = match action.request {
                Request::Patch {
                    subresource: Some("status"),
                    ..
                } => "/status",
                _ => "",
            };
            format!("{verb} {}{status}", action.target.object.kind)
        })
        .collect()
}

#[test]
fn keep_leaves_the_autoscaler_alone_and_restores_into_its_range() {
    let mut night = night(HpaMode::Keep, 0);
    let before = hpa("shop", "web", "web", Some(2), 5);
    let autoscaler = night.add(&before);
    assert_eq!(kinds(&night.at(NIGHT)), ["patch Deployment"]);
    assert_eq!(night.world.replicas(&night.web), Some(0));
    assert_eq!(kinds(&night.at(MORNING)), ["patch Deployment"]);
    // 7 were recorded; the HPA, whose maximum somebody lowered, allows 5.
    assert_eq!(night.world.replicas(&night.web), Some(5));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
}

#[test]
fn case_3_04_a_partial_sleep_caps_the_autoscaler_and_gives_both_bounds_back() {
    for (min, max) in [(Some(3), 10), (None, 10), (Some(1), 1)] {
        let mut night = night(HpaMode::Keep, 1);
        let before = hpa("shop", "web", "web", min, max);
        let autoscaler = night.add(&before);
        let writes = night.at(NIGHT);
        let lowered = (min > Some(1)).then_some("patch HorizontalPodAutoscaler");
        let capped = (max > 1).then_some("patch HorizontalPodAutoscaler");
        let expected: Vec<_> = lowered.into_iter().chain(["patch Deployment"]).chain(capped).collect();
        assert_eq!(kinds(&writes), expected, "{min:?} {max}");
        assert_eq!(night.world.replicas(&night.web), Some(1));
        assert_eq!(night.spec(&autoscaler)["maxReplicas"], 1);
        assert!(night.spec(&autoscaler)["minReplicas"].as_u64().unwrap_or(1) == 1);
        assert_eq!(night.at("2026-12-02T03:00:00Z"), []);
        night.new_leader();
        let writes = night.at(MORNING);
        let asked = capped.and(Some("patch HorizontalPodAutoscaler/status"));
        let before_it = asked.into_iter().chain(capped);
        let expected: Vec<_> = before_it.chain(["patch Deployment"]).chain(lowered).collect();
        assert_eq!(kinds(&writes), expected, "{min:?} {max}");
        assert_eq!(night.world.replicas(&night.web), Some(if max == 1 { 1 } else { 7 }));
        assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
        assert_eq!(night.at("2026-12-02T12:00:00Z"), []);
    }
}

#[test]
fn bounds_that_a_person_sets_at_night_are_what_comes_back() {
    let mut night = night(HpaMode::Keep, 1);
    let autoscaler = night.add(&hpa("shop", "web", "web", Some(3), 10));
    night.at(NIGHT);
    night
        .world
        .edit(&autoscaler, |hpa| hpa["spec"]["maxReplicas"] = 6.into());
    let writes = night.at("2026-12-01T23:00:00Z");
    assert_eq!(kinds(&writes), ["patch HorizontalPodAutoscaler"], "capped again");
    assert_eq!(night.spec(&autoscaler)["maxReplicas"], 1);
    night.at(MORNING);
    assert_eq!(night.spec(&autoscaler)["maxReplicas"], 6);
    assert_eq!(night.spec(&autoscaler)["minReplicas"], 3);
    assert!(night.world.own_keys(&autoscaler).is_empty());
}

#[test]
fn what_the_webhook_remembered_for_opening_time_is_set_then() {
    let mut night = night(HpaMode::Keep, 0);
    let autoscaler = night.add(&hpa("shop", "web", "web", Some(3), 10));
    night.at(NIGHT);
    let target = r#"{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}"#;
    for (key, text) in [
        (annotations::ORIGINAL_MIN_REPLICAS, "4"),
        (annotations::ORIGINAL_MAX_REPLICAS, "20"),
        (annotations::ORIGINAL_SCALE_TARGET, target),
    ] {
        night.world.annotate(&autoscaler, key, Some(text));
    }
    assert_eq!(night.at("2026-12-01T23:00:00Z"), []);
    night.at(MORNING);
    let spec = night.spec(&autoscaler);
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(4), &json!(20)));
    assert!(night.world.own_keys(&autoscaler).is_empty());
}

#[test]
fn case_3_03_min_zero_is_asked_for_then_set_and_the_count_comes_back_with_the_minimum() {
    let mut night = night(HpaMode::MinZero, 0);
    let autoscaler = night.add(&hpa("shop", "web", "web", Some(2), 10));
    let writes = night.at(NIGHT);
    assert_eq!(
        kinds(&writes),
        [
            "patch Deployment",
            "ask HorizontalPodAutoscaler",
            "patch HorizontalPodAutoscaler"
        ]
    );
    assert_eq!(night.spec(&autoscaler)["minReplicas"], 0);
    assert_eq!(
        night.world.annotation(&autoscaler, annotations::ORIGINAL_MIN_REPLICAS),
        Some("2")
    );
    night.at(MORNING);
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(night.spec(&autoscaler)["minReplicas"], 2);
    assert!(night.world.own_keys(&autoscaler).is_empty());
}

#[test]
fn case_3_01_where_zero_is_refused_the_autoscaler_stays_and_the_workload_sleeps_all_the_same() {
    let mut night = night(HpaMode::MinZero, 0);
    for number in 0..10 {
        night.world.deployment("shop", &format!("other-{number}"), 3);
    }
    let before = hpa("shop", "web", "web", Some(2), 10);
    let autoscaler = night.add(&before);
    let refuse = |action: &Action| {
        let asks = matches!(action.request, Request::Patch { dry_run: true, .. });
        asks.then(|| Outcome::Failed {
            reason: "Invalid",
            message: "spec.minReplicas: Invalid value: 0".to_owned(),
            retry_after: None,
        })
    };
    let writes = night.refusing(NIGHT, &refuse);
    assert_eq!(kinds(&writes), vec!["patch Deployment"; 11]);
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
    let assessment = night.decider.assessment(&night.web).unwrap();
    assert_eq!(assessment.trouble.as_ref().unwrap().reason, "HpaMinZeroRefused");
    assert!(assessment.asleep);
    assert_eq!(night.at("2026-12-02T03:00:00Z"), []);
}

#[test]
fn case_3_06_and_3_07_delete_restore_brings_everything_back_and_writes_the_backup_first() {
    let mut night = night(HpaMode::DeleteRestore, 0);
    let before = hpa("shop", "web", "web", Some(2), 10);
    let autoscaler = night.add(&before);
    let writes = night.at(NIGHT);
    assert_eq!(
        kinds(&writes),
        ["create ConfigMap", "delete HorizontalPodAutoscaler", "patch Deployment"]
    );
    let backup = night.world.one("ConfigMap").unwrap();
    // SHA-1 of "shop/web", as K8s-OffHours named it.
    assert_eq!(backup["metadata"]["name"], "offhours-hpa-state-ea9f30cc6ab2");
    assert_eq!(backup["metadata"]["namespace"], "offhours-system");
    assert_eq!(
        backup["metadata"]["labels"],
        json!({"app.kubernetes.io/name": "k8s-offhours", "offhours.platform.io/type": "hpa-state",
            "offhours.platform.io/target-namespace": "shop", "offhours.platform.io/target-deployment": "web",
            "offhours.platform.io/target-hpa": "web"})
    );
    for (key, value) in [
        ("targetNamespace", "shop"),
        ("targetDeployment", "web"),
        ("targetHpaName", "web"),
    ] {
        assert_eq!(backup["data"][key], value);
    }
    assert!(
        !backup["data"]["hpa.json"]
            .as_str()
            .unwrap()
            .contains("autoscaling.alpha")
    );
    night.new_leader();
    let writes = night.at(MORNING);
    assert_eq!(
        kinds(&writes),
        ["patch Deployment", "create HorizontalPodAutoscaler", "delete ConfigMap"]
    );
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
    assert_eq!(night.world.one("ConfigMap"), None);
    assert_eq!(night.at("2026-12-02T12:00:00Z"), []);
}

#[test]
fn case_3_07_an_autoscaler_that_somebody_created_again_is_kept_and_the_backup_dropped() {
    let mut night = night(HpaMode::DeleteRestore, 0);
    night.add(&hpa("shop", "web", "web", Some(2), 10));
    night.at(NIGHT);
    night.now = at(MORNING);
    let theirs = hpa("shop", "web", "web", Some(4), 40);
    let autoscaler = night.add(&theirs);
    let writes = night.at(MORNING);
    assert_eq!(kinds(&writes), ["patch Deployment", "delete ConfigMap"]);
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&theirs));
    assert_eq!(writes.last().unwrap().event.as_ref().unwrap().reason, "HpaKept");
}

#[test]
fn fault_9_several_autoscalers_of_one_target_are_kept_apart_and_one_created_at_night_is_saved_too() {
    let mut night = night(HpaMode::DeleteRestore, 0);
    let (first, second) = (
        hpa("shop", "a", "web", Some(2), 10),
        hpa("shop", "b", "web", Some(3), 20),
    );
    let a = night.add(&first);
    night.at(NIGHT);
    let b = night.add(&second);
    night.at("2026-12-01T23:00:00Z");
    assert!(!night.world.objects.contains_key(&b));
    let backups = night.world.objects.keys().filter(|object| *object.kind == *"ConfigMap");
    assert_eq!(backups.count(), 2);
    night.at(MORNING);
    assert_eq!(lasting(&night.world.objects[&a]), lasting(&first));
    assert_eq!(lasting(&night.world.objects[&b]), lasting(&second));
    assert_eq!(night.world.one("ConfigMap"), None);
}

#[test]
fn no_backup_no_delete() {
    let mut night = night(HpaMode::DeleteRestore, 0);
    let autoscaler = night.add(&hpa("shop", "web", "web", Some(2), 10));
    let refuse = |action: &Action| {
        (*action.target.object.kind == *"ConfigMap").then(|| Outcome::Failed {
            reason: "Forbidden",
            message: "exceeded quota".to_owned(),
            retry_after: None,
        })
    };
    assert_eq!(night.refusing(NIGHT, &refuse), []);
    assert!(night.world.objects.contains_key(&autoscaler));
    assert_eq!(night.world.replicas(&night.web), Some(7));
    let trouble = night.decider.assessment(&night.web).unwrap().trouble.clone().unwrap();
    assert_eq!(trouble.reason, "Forbidden");
    assert!(trouble.message.contains("exceeded quota"), "{}", trouble.message);
}

#[test]
fn delete_restore_survives_a_crash_between_any_two_writes() {
    let whole = |crash: Option<usize>| {
        let mut night = night(HpaMode::DeleteRestore, 0);
        let before = hpa("shop", "web", "web", Some(2), 10);
        let autoscaler = night.add(&before);
        let mut written = 0;
        for instant in [NIGHT, MORNING] {
            for _ in 0..2 {
                let count = std::cell::Cell::new(written);
                let writes = night.refusing(instant, &|_| {
                    let number = count.get();
                    count.set(number + 1);
                    // From here on the process is gone, and nothing it wants is written.
                    (crash.is_some_and(|crash| number >= crash && written < crash)).then_some(Outcome::NotSent)
                });
                written += writes
                    .len()
                    .max(usize::from(crash.is_some_and(|crash| count.get() > crash)));
                if crash.is_some() {
                    night.new_leader();
                }
            }
        }
        assert_eq!(night.world.replicas(&night.web), Some(7), "{crash:?}");
        assert_eq!(
            lasting(&night.world.objects[&autoscaler]),
            lasting(&before),
            "{crash:?}"
        );
        assert_eq!(night.world.one("ConfigMap"), None, "{crash:?}");
        written
    };
    let writes = whole(None);
    assert_eq!(writes, 6);
    for crash in 0..writes {
        whole(Some(crash));
    }
}

#[test]
fn fault_10_backups_go_to_the_namespace_that_we_are_installed_in() {
    let mut night = night(HpaMode::DeleteRestore, 0);
    night.add(&hpa("shop", "web", "web", Some(2), 10));
    let mut snapshot = night.world.snapshot(&night.schedules);
    snapshot.own_namespace = Arc::from("sleep");
    let first = decide(&snapshot, &Memory::default(), at(NIGHT)).actions.remove(0);
    let backup = &first.target.object;
    assert_eq!((&*backup.kind, &*backup.namespace), ("ConfigMap", "sleep"));
}

#[test]
fn fault_10_a_backup_of_k8s_offhours_is_read_where_that_kept_it() {
    let mut night = night(HpaMode::Keep, 0);
    night.world.edit(&night.web.clone(), |web| {
        web["spec"]["replicas"] = 0.into();
        web["metadata"]["annotations"] = json!({annotations::ORIGINAL_REPLICAS: "7"});
    });
    let mut kept = hpa("shop", "web", "web", Some(2), 10);
    kept.as_object_mut().unwrap().remove("status");
    let backup = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "offhours-system", "name": "offhours-hpa-state-ea9f30cc6ab2",
            "labels": {"app.kubernetes.io/name": "k8s-offhours", annotations::STATE_TYPE: "hpa-state"}},
        "data": {"hpa.json": kept.to_string(), "targetNamespace": "shop", "targetDeployment": "web", "targetHpaName": "web"},
    });
    night.world.add("", &backup);
    night.at(MORNING);
    assert_eq!(night.world.replicas(&night.web), Some(7));
    let restored = night.world.one("HorizontalPodAutoscaler").unwrap();
    assert_eq!(lasting(restored), lasting(&kept));
    assert_eq!(night.world.one("ConfigMap"), None);
}

#[test]
fn delete_only_deletes_loudly_and_brings_nothing_back() {
    let mut night = night(HpaMode::DeleteOnly, 0);
    night.add(&hpa("shop", "web", "web", Some(2), 10));
    let writes = night.at(NIGHT);
    assert_eq!(kinds(&writes), ["delete HorizontalPodAutoscaler", "patch Deployment"]);
    assert!(writes[0].event.as_ref().unwrap().warning);
    assert_eq!(kinds(&night.at(MORNING)), ["patch Deployment"]);
    assert_eq!(night.world.replicas(&night.web), Some(7));
    assert_eq!(night.world.one("HorizontalPodAutoscaler"), None);
}

#[test]
fn case_4_13_what_git_has_not_created_again_is_reported_until_it_has() {
    let mut night = night(HpaMode::DeleteOnly, 0);
    let object = hpa("shop", "web", "web", Some(2), 10);
    night.add(&object);
    night.at(NIGHT);
    night.at(MORNING);
    let class = |night: &Night| {
        let assessment = night.decider.assessment(&night.web).unwrap();
        let reason = assessment.trouble.as_ref().map(|skip| skip.reason);
        (assessment.class, reason)
    };
    assert_eq!(class(&night), (Class::Failing, Some("WaitingForGitOps")));
    // 09:00: the sync window opens.
    night.add(&object);
    assert_eq!(night.at("2026-12-02T09:00:00Z"), []);
    assert_eq!(class(&night), (Class::Up, None));
}

#[test]
fn what_git_created_again_or_left_is_waited_for_no_more() {
    let waits = |night: &Night| {
        let assessment = night.decider.assessment(&night.web).unwrap();
        assessment.trouble.as_ref().map(|skip| skip.reason)
    };
    let mut night = night(HpaMode::DeleteOnly, 0);
    let object = hpa("shop", "web", "web", Some(2), 10);
    night.add(&object);
    night.at(NIGHT);
    night.at(MORNING);
    // Created again: what its owner does with it later is the owner's business.
    let autoscaler = night.add(&object);
    night.at("2026-12-02T09:00:00Z");
    night.world.objects.remove(&autoscaler);
    night.at("2026-12-02T10:00:00Z");
    assert_eq!(waits(&night), None);
    // Deleted by us once more, then the target itself goes; the next one of that name is another one.
    night.add(&object);
    night.at("2026-12-02T22:00:00Z");
    night.at("2026-12-03T08:00:01Z");
    assert_eq!(waits(&night), Some("WaitingForGitOps"));
    night.web = night.world.deployment("shop", "web", 7);
    night.at("2026-12-03T09:00:00Z");
    assert_eq!(waits(&night), None);
}

#[test]
fn case_3_09_kedas_own_autoscaler_and_one_of_an_operator_are_never_touched() {
    for owner in [
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "s", "controller": true}),
        json!({"apiVersion": "shop.example/v1", "kind": "Shop", "name": "web", "uid": "s", "controller": true}),
    ] {
        let mut night = night(HpaMode::DeleteRestore, 0);
        let mut before = hpa("shop", "keda-hpa-web", "web", Some(1), 10);
        before["metadata"]["ownerReferences"] = json!([owner]);
        let autoscaler = night.add(&before);
        assert_eq!(kinds(&night.at(NIGHT)), ["patch Deployment"]);
        assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
    }
}

#[test]
fn a_target_that_its_autoscaler_brought_to_zero_is_zero_by_its_owner() {
    let mut night = night(HpaMode::MinZero, 0);
    let mut object = hpa("shop", "web", "web", Some(0), 10);
    object["status"]["conditions"] = json!([{"type": "ScaledToZero", "status": "True"}]);
    let autoscaler = night.add(&object);
    night
        .world
        .edit(&night.web.clone(), |web| web["spec"]["replicas"] = 0.into());
    assert_eq!(night.at(NIGHT), []);
    assert_eq!(night.at(MORNING), []);
    assert_eq!(night.world.replicas(&night.web), Some(0));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&object));
}

#[test]
fn case_3_14_while_the_autoscaler_cannot_be_changed_the_workload_stays_as_it_is() {
    let mut night = night(HpaMode::Keep, 1);
    night.add(&hpa("shop", "web", "web", Some(3), 10));
    let failures = std::cell::Cell::new(0);
    let refuse = |action: &Action| {
        if *action.target.object.kind == *"Deployment" || failures.get() == 3 {
            return None;
        }
        failures.set(failures.get() + 1);
        Some(Outcome::Failed {
            reason: "ServerError",
            message: "500".to_owned(),
            retry_after: None,
        })
    };
    let writes = night.refusing(NIGHT, &refuse);
    assert_eq!(failures.get(), 3);
    let expected = [
        "patch HorizontalPodAutoscaler",
        "patch Deployment",
        "patch HorizontalPodAutoscaler",
    ];
    assert_eq!(kinds(&writes), expected);
    // 1 s, 2 s and 4 s of pause: the write that succeeded was not sent before.
    assert!(night.now >= at("2026-12-01T22:00:07Z"), "{}", night.now);
    assert_eq!(night.world.replicas(&night.web), Some(1));
}

#[test]
fn an_autoscaler_of_another_kind_is_handled_alike() {
    let mut night = night(HpaMode::DeleteRestore, 0);
    let set = night.world.create("StatefulSet", "shop", "web", json!({"replicas": 3}));
    let mut before = hpa("shop", "set", "web", Some(2), 10);
    before["spec"]["scaleTargetRef"]["kind"] = "StatefulSet".into();
    let autoscaler = night.add(&before);
    night.at(NIGHT);
    assert!(!night.world.objects.contains_key(&autoscaler));
    assert_eq!(night.world.replicas(&set), Some(0));
    night.at(MORNING);
    assert_eq!(night.world.replicas(&set), Some(3));
    assert_eq!(lasting(&night.world.objects[&autoscaler]), lasting(&before));
}
