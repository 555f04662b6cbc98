//! Applications through a night. What Argo CD does by itself is played by stand-ins that say what they imitate.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotations;
use shared::api::Argo;
use shared::policy::{Schedule, Schedules};
use shared::workload::ObjectRef;

use super::{How, application_ref};
use crate::decide::action::{Action, Purpose, Request};
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::tests::world::{MORNING, NIGHT, World, at, office, schedules};

pub(super) fn application(name: &str, sync_policy: &Value, deployments: &[&str]) -> Value {
    let resources: Vec<Value> = deployments
        .iter()
        .map(|name| json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": name}))
        .collect();
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"namespace": "argocd", "name": name},
        "spec": {
            "project": "default", "syncPolicy": sync_policy,
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
        },
        "status": {"resources": resources},
    })
}

pub(super) fn usual_policy() -> Value {
    json!({
        "automated": {"prune": true, "selfHeal": true},
        "syncOptions": ["CreateNamespace=true"],
        "retry": {"limit": 5, "backoff": {"duration": "5s"}},
    })
}

pub(super) fn argo_schedule() -> Schedule {
    let mut schedule = office();
    schedule.argo = Some(Argo::default());
    schedule
}

pub(super) struct Night {
    pub(super) world: World,
    decider: Decider,
    schedules: Arc<Schedules>,
    pub(super) now: Timestamp,
    pub(super) web: ObjectRef,
    api: ObjectRef,
}

pub(super) fn night_of(schedule: Schedule) -> Night {
    let mut world = World::default();
    world.namespace("shop", "office");
    let web = world.deployment("shop", "web", 3);
    let api = world.deployment("shop", "api", 2);
    Night {
        world,
        decider: Decider::default(),
        schedules: schedules([schedule]),
        now: at("2026-12-01T10:00:00Z"),
        web,
        api,
    }
}

pub(super) fn night() -> Night {
    night_of(argo_schedule())
}

impl Night {
    pub(super) fn add(&mut self, application: &Value) -> ObjectRef {
        self.world.add("argoproj.io", application)
    }

    pub(super) fn at(&mut self, instant: &str) -> Vec<Action> {
        self.beside(instant, &mut |_| {})
    }

    pub(super) fn beside(&mut self, instant: &str, other: &mut dyn FnMut(&mut World)) -> Vec<Action> {
        self.now = self.now.max(at(instant));
        self.world
            .settle_beside(&mut self.decider, &self.schedules, &mut self.now, &|_| None, other)
    }

    pub(super) fn policy(&self, application: &ObjectRef) -> &Value {
        &self.world.objects[application]["spec"]["syncPolicy"]
    }

    pub(super) fn replicas(&self) -> [Option<u64>; 2] {
        [self.world.replicas(&self.web), self.world.replicas(&self.api)]
    }

    pub(super) fn reason(&self, object: &ObjectRef) -> Option<&'static str> {
        self.decider
            .assessment(object)?
            .trouble
            .as_ref()
            .map(|skip| skip.reason)
    }
}

fn purposes(writes: &[Action]) -> Vec<Purpose> {
    writes.iter().map(|action| action.purpose).collect()
}

/// Argo CD before 3.1 prunes `enabled` from what is written: 200, without effect.
fn old_argo(world: &mut World) {
    let automated = world.objects.iter().find_map(|(object, value)| {
        let enabled = value.pointer("/spec/syncPolicy/automated/enabled").is_some();
        enabled.then(|| object.clone())
    });
    if let Some(object) = automated {
        world.edit(&object, |value| {
            value["spec"]["syncPolicy"]["automated"]
                .as_object_mut()
                .unwrap()
                .remove("enabled");
        });
    }
}

/// An `ApplicationSet` writes its template over spec and annotations of what it generated.
fn application_set(object: ObjectRef, policy: Value) -> impl FnMut(&mut World) {
    move |world: &mut World| {
        if world.objects[&object]["spec"]["syncPolicy"] != policy {
            world.edit(&object, |value| {
                value["spec"]["syncPolicy"] = policy.clone();
                value["metadata"].as_object_mut().unwrap().remove("annotations");
            });
        }
    }
}

#[test]
fn case_4_01_the_pause_comes_before_every_sleep_and_every_restore_before_the_resume() {
    let mut night = night();
    let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
    let writes = night.at(NIGHT);
    assert_eq!(
        purposes(&writes),
        [Purpose::Backup, Purpose::Pause, Purpose::Down, Purpose::Down]
    );
    for action in writes.iter().filter(|action| action.purpose == Purpose::Pause) {
        for operation in action.request_body().iter() {
            let path = operation.path().to_string();
            let ours = path.starts_with("/spec/syncPolicy/automated") || path.starts_with("/metadata/annotations");
            assert!(
                ours || path == "/metadata/uid" || path == "/metadata/resourceVersion",
                "{path}"
            );
        }
    }
    // It had held for a few seconds before anything was scaled.
    assert!(night.now >= at("2026-12-01T22:00:03Z"), "{}", night.now);
    assert_eq!(night.replicas(), [Some(0), Some(0)]);
    assert_eq!(night.at("2026-12-02T03:00:00Z"), []);
    let writes = night.at(MORNING);
    assert_eq!(
        purposes(&writes),
        [Purpose::Restore, Purpose::Restore, Purpose::Resume, Purpose::Backup]
    );
    assert_eq!(night.replicas(), [Some(3), Some(2)]);
    assert_eq!(*night.policy(&shop), usual_policy());
    assert!(night.world.own_keys(&shop).is_empty());
    assert_eq!(night.world.one("ConfigMap"), None);
    assert_eq!(night.at("2026-12-02T12:00:00Z"), []);
}

#[test]
fn case_4_05_both_ways_of_pausing_keep_what_they_can_and_never_write_null() {
    for old in [false, true] {
        let mut night = night();
        let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
        let writes = if old {
            night.beside(NIGHT, &mut old_argo)
        } else {
            night.at(NIGHT)
        };
        for action in &writes {
            if let Request::Patch { body, .. } = &action.request {
                assert!(!serde_json::to_string(body).unwrap().contains(":null"), "{body:?}");
            }
        }
        let paused = &night.policy(&shop)["automated"];
        if old {
            assert_eq!(*paused, Value::Null, "the block is gone");
            assert_eq!(night.policy(&shop).get("automated"), None);
        } else {
            assert_eq!(*paused, json!({"prune": true, "selfHeal": true, "enabled": false}));
        }
        assert_eq!(night.replicas(), [Some(0), Some(0)]);
        night.at(MORNING);
        assert_eq!(*night.policy(&shop), usual_policy(), "old: {old}");
        assert_eq!(night.world.one("ConfigMap"), None);
    }
}

#[test]
fn fault_1_and_case_4_14_a_policy_comes_back_byte_for_byte_and_paused_means_not_automated() {
    for automated in [
        json!({}),
        json!({"prune": false, "selfHeal": false}),
        json!({"enabled": true}),
        json!({"enabled": true, "prune": true, "allowEmpty": true}),
        json!({"selfHeal": false}),
    ] {
        for old in [false, true] {
            if old && automated.get("enabled").is_some() {
                continue;
            }
            let mut night = night();
            let policy = json!({"automated": automated});
            let shop = night.add(&application("shop", &policy, &["web", "api"]));
            night.beside(NIGHT, &mut |world| {
                if old {
                    old_argo(world);
                }
            });
            let paused = night.policy(&shop).get("automated");
            assert!(paused.is_none_or(|block| block["enabled"] == false), "{paused:?}");
            night.decider = Decider::default();
            night.at(MORNING);
            assert_eq!(night.policy(&shop).to_string(), policy.to_string(), "old: {old}");
        }
    }
}

#[test]
fn fault_1_one_that_is_not_automated_is_not_touched_and_never_resumed() {
    for policy in [
        json!({"syncOptions": ["Prune=false"]}),
        json!({"automated": {"enabled": false, "prune": true}}),
        Value::Null,
    ] {
        let mut night = night();
        let before = application("shop", &policy, &["web", "api"]);
        let shop = night.add(&before);
        assert_eq!(purposes(&night.at(NIGHT)), [Purpose::Down, Purpose::Down]);
        night.at(MORNING);
        assert_eq!(night.world.objects[&shop]["spec"], before["spec"]);
        assert_eq!(night.world.one("ConfigMap"), None);
    }
}

#[test]
fn case_4_03_a_pause_that_an_application_set_reverts_is_tried_twice_and_then_reported() {
    for webhook in [false, true] {
        let mut night = night();
        night.world.webhook = webhook;
        let mut generated = application("shop", &usual_policy(), &["web"]);
        generated["metadata"]["ownerReferences"] = json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "teams", "controller": true}]);
        let shop = night.add(&generated);
        let other = night.add(&application("other", &usual_policy(), &["api"]));
        let mut pauses = 0;
        for minute in 0..10 {
            let mut set = application_set(shop.clone(), usual_policy());
            let writes = night.beside(&format!("2026-12-01T22:0{minute}:00Z"), &mut set);
            let ours = |action: &&Action| action.purpose == Purpose::Pause && action.target.object == shop;
            pauses += writes.iter().filter(ours).count();
        }
        assert_eq!(pauses, 2, "webhook: {webhook}");
        let trouble = night.decider.assessment(&night.web).unwrap().trouble.clone().unwrap();
        assert_eq!(trouble.reason, "PauseReverted");
        for word in [
            "ApplicationSet teams",
            "ignoreApplicationDifferences",
            "preservedFields.annotations",
        ] {
            assert!(trouble.message.contains(word), "{}", trouble.message);
        }
        let told = night.decider.take_remarks();
        assert!(
            told.iter().any(|remark| remark.object == shop),
            "an Event on the Application: {told:?}"
        );
        // Where the webhook holds what is down, it sleeps all the same.
        let web = if webhook { Some(0) } else { Some(3) };
        assert_eq!(night.replicas(), [web, Some(0)]);
        assert_eq!(night.policy(&other)["automated"]["enabled"], false);
        night.at(MORNING);
        assert_eq!(night.replicas(), [Some(3), Some(2)]);
        assert_eq!(*night.policy(&shop), usual_policy());
        assert_eq!(*night.policy(&other), usual_policy());
        assert_eq!(night.world.one("ConfigMap"), None);
    }
}

#[test]
fn a_parent_application_and_a_person_are_named_with_their_remedies() {
    let tracked = json!({"argocd.argoproj.io/tracking-id": "root:argoproj.io/Application:argocd/shop"});
    let wrote = |who: &str| json!([{"manager": who, "operation": "Update", "fieldsV1": {"f:spec": {"f:syncPolicy": {"f:automated": {}}}}}]);
    let parent = ["parent Application root", "RespectIgnoreDifferences=true"];
    let person = ["ann@example.com", "switch it off there"];
    // Argo CD 2.x tracks by a label, which others use, too.
    let labelled = json!({"app.kubernetes.io/instance": "root"});
    for (annotations, labels, managed, words) in [
        (tracked, json!({}), json!([]), parent),
        (json!({}), labelled.clone(), wrote("argocd-controller"), parent),
        (json!({}), labelled, wrote("ann@example.com"), person),
        (json!({}), json!({}), wrote("ann@example.com"), person),
    ] {
        let mut night = night();
        let mut object = application("shop", &usual_policy(), &["web", "api"]);
        object["metadata"]["annotations"] = annotations.clone();
        object["metadata"]["labels"] = labels;
        let shop = night.add(&object);
        let reference = shop.clone();
        night.beside(NIGHT, &mut |world| {
            if world.objects[&reference]["spec"]["syncPolicy"] != usual_policy() {
                world.edit(&reference, |value| {
                    value["spec"]["syncPolicy"] = usual_policy();
                    value["metadata"]["managedFields"] = managed.clone();
                });
            }
        });
        let trouble = night.decider.assessment(&night.web).unwrap().trouble.clone().unwrap();
        for word in words {
            assert!(trouble.message.contains(word), "{}", trouble.message);
        }
        assert_eq!(night.replicas(), [Some(3), Some(2)]);
    }
}

#[test]
fn a_change_that_a_person_makes_while_it_is_paused_is_kept() {
    let mut night = night();
    let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
    night.at(NIGHT);
    night.world.edit(&shop, |value| {
        value["spec"]["syncPolicy"]["automated"]["prune"] = false.into();
        value["spec"]["syncPolicy"]["retry"]["limit"] = 9.into();
    });
    night.at(MORNING);
    let mut expected = usual_policy();
    expected["automated"]["prune"] = false.into();
    expected["retry"]["limit"] = 9.into();
    assert_eq!(*night.policy(&shop), expected);
}

#[test]
fn strict_mode_leaves_an_application_with_a_protected_workload_alone() {
    for strict in [true, false] {
        let mut schedule = argo_schedule();
        schedule.argo = Some(Argo {
            strict_protected: strict,
            ..Argo::default()
        });
        let mut night = night_of(schedule);
        let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
        let web = night.web.clone();
        night.world.annotate(&web, annotations::PROTECTED, Some("true"));
        night.at(NIGHT);
        if strict {
            assert_eq!(night.replicas(), [Some(3), Some(2)]);
            assert_eq!(*night.policy(&shop), usual_policy());
            assert_eq!(night.reason(&night.api), Some("ApplicationProtected"));
        } else {
            assert_eq!(night.replicas(), [Some(3), Some(0)]);
            assert_eq!(night.policy(&shop)["automated"]["enabled"], false);
        }
        night.at(MORNING);
        assert_eq!(night.replicas(), [Some(3), Some(2)]);
        assert_eq!(*night.policy(&shop), usual_policy());
    }
}

#[test]
fn a_sync_is_asked_for_only_where_the_schedule_says_so() {
    for sync in [false, true] {
        let mut schedule = argo_schedule();
        schedule.argo = Some(Argo {
            sync,
            ..Argo::default()
        });
        let mut night = night_of(schedule);
        let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
        night.at(NIGHT);
        assert_eq!(night.world.objects[&shop].get("operation"), None);
        night.at(MORNING);
        assert_eq!(night.world.objects[&shop].get("operation").is_some(), sync);
        assert_eq!(*night.policy(&shop), usual_policy());
    }
}

#[test]
fn case_4_07_what_is_zero_by_its_owner_pauses_nothing() {
    let mut night = night();
    let before = application("shop", &usual_policy(), &["web", "api"]);
    let shop = night.add(&before);
    for object in [night.web.clone(), night.api.clone()] {
        night.world.edit(&object, |value| value["spec"]["replicas"] = 0.into());
    }
    assert_eq!(night.at(NIGHT), []);
    assert_eq!(night.at(MORNING), []);
    assert_eq!(night.world.objects[&shop]["spec"], before["spec"]);
}

#[test]
fn case_4_08_after_a_night_nothing_of_ours_is_left_on_anything() {
    let mut night = night();
    let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
    let before: Vec<Value> = [&night.web, &night.api]
        .map(|object| night.world.objects[object]["spec"].clone())
        .to_vec();
    night.at(NIGHT);
    night.at(MORNING);
    let after: Vec<Value> = [&night.web, &night.api]
        .map(|object| night.world.objects[object]["spec"].clone())
        .to_vec();
    assert_eq!(before, after);
    for object in [&night.web, &night.api, &shop] {
        assert_eq!(night.world.own_keys(object), Vec::<String>::new());
    }
}

#[test]
fn case_4_09_our_state_is_in_keys_that_nobody_declares() {
    let mut night = night();
    let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
    let web = night.web.clone();
    night.world.annotate(&web, annotations::STARTUP_ORDER, Some("3"));
    let declared = night.world.objects[&web]["metadata"]["annotations"].clone();
    night.at(NIGHT);
    for object in [&web, &shop] {
        let keys = night.world.objects[object]["metadata"]["annotations"]
            .as_object()
            .unwrap()
            .clone();
        for key in keys.keys().filter(|key| declared.get(key.as_str()).is_none()) {
            assert!(annotations::is_own_state(key), "{key}");
            assert!(!annotations::WRITTEN_BY_PEOPLE.contains(&key.as_str()), "{key}");
        }
    }
    assert_eq!(night.world.annotation(&web, annotations::STARTUP_ORDER), Some("3"));
}

#[test]
fn a_pause_that_fails_leaves_the_workloads_as_they_are_with_the_reason() {
    let mut night = night();
    night.add(&application("shop", &usual_policy(), &["web", "api"]));
    night.now = at(NIGHT);
    let refuse = |action: &Action| {
        (action.purpose == Purpose::Pause).then(|| Outcome::Failed {
            reason: "Forbidden",
            message: "applications.argoproj.io is forbidden".to_owned(),
            retry_after: None,
        })
    };
    night
        .world
        .settle(&mut night.decider, &night.schedules, &mut night.now, &refuse);
    assert_eq!(night.replicas(), [Some(3), Some(2)]);
    assert_eq!(night.reason(&night.web), Some("Forbidden"));
    // The next pass tries again.
    night.at("2026-12-01T23:00:00Z");
    assert_eq!(night.replicas(), [Some(0), Some(0)]);
}

#[test]
fn a_crash_between_any_two_writes_loses_no_policy() {
    let writes = {
        let mut night = night();
        night.add(&application("shop", &usual_policy(), &["web", "api"]));
        night.at(NIGHT).len() + night.at(MORNING).len()
    };
    assert_eq!(writes, 8);
    for crash in 0..writes {
        let mut night = night();
        let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
        let sent = std::cell::Cell::new(0);
        let crashed = |_: &Action| {
            sent.set(sent.get() + 1);
            (sent.get() > crash).then_some(Outcome::NotSent)
        };
        for instant in [NIGHT, MORNING] {
            night.now = at(instant);
            night
                .world
                .settle(&mut night.decider, &night.schedules, &mut night.now, &crashed);
            if sent.get() > crash {
                night.decider = Decider::default();
                night.at(instant);
                sent.set(usize::MAX / 2);
            }
        }
        night.decider = Decider::default();
        night.at("2026-12-02T09:00:00Z");
        assert_eq!(night.replicas(), [Some(3), Some(2)], "{crash}");
        assert_eq!(*night.policy(&shop), usual_policy(), "{crash}");
        assert!(night.world.own_keys(&shop).is_empty(), "{crash}");
        assert_eq!(night.world.one("ConfigMap"), None, "{crash}");
    }
}

/// The Applications of `web` in this world.
fn owners(world: &World, web: &ObjectRef) -> Option<(How, Vec<String>)> {
    let snapshot = world.snapshot(&schedules([argo_schedule()]));
    let namespace = snapshot.namespace("shop").map(AsRef::as_ref);
    let (how, found) = snapshot.beside.applications.of(snapshot.workload(web)?, namespace)?;
    Some((
        how,
        found.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect(),
    ))
}

#[test]
fn fault_11_and_rule_a6_applications_are_looked_for_in_order_under_either_spelling() {
    let Night { mut world, web, .. } = night();
    let found = |how, name: &str| Some((how, vec![name.to_owned()]));
    assert_eq!(owners(&world, &web), None);
    // An empty one that merely deploys there is a guess.
    world.add("argoproj.io", &application("guess", &usual_policy(), &[]));
    assert_eq!(owners(&world, &web), found(How::Destination, "argocd/guess"));
    // Helm's label names a release, not an Application that lists nothing of the kind.
    world.add("argoproj.io", &application("release", &usual_policy(), &["other"]));
    world.label(&web, "app.kubernetes.io/instance", Some("release"));
    assert_eq!(owners(&world, &web), found(How::Destination, "argocd/guess"));
    world.add("argoproj.io", &application("labelled", &usual_policy(), &["other"]));
    world.label(&web, "argocd.argoproj.io/instance", Some("labelled"));
    assert_eq!(owners(&world, &web), found(How::Label, "argocd/labelled"));
    let mut elsewhere = application("tracked", &usual_policy(), &["other"]);
    elsewhere["metadata"]["namespace"] = "teams".into();
    world.add("argoproj.io", &elsewhere);
    let tracking = "teams_tracked:apps/Deployment:shop/web";
    world.annotate(&web, "argocd.argoproj.io/tracking-id", Some(tracking));
    assert_eq!(owners(&world, &web), found(How::Tracking, "teams/tracked"));
    world.add("argoproj.io", &application("lists", &usual_policy(), &["web"]));
    assert_eq!(owners(&world, &web), found(How::Resources, "argocd/lists"));
    world.annotate_namespace("shop", annotations::ARGO_APPLICATIONS, Some("nowhere, teams/tracked"));
    assert_eq!(owners(&world, &web), found(How::List, "teams/tracked"));
    world.annotate_namespace("shop", annotations::ARGO_APPLICATIONS, None);
    world.annotate_namespace("shop", annotations::ARGO_APPLICATIONS_ALIAS, Some("guess"));
    assert_eq!(owners(&world, &web), found(How::List, "argocd/guess"));
}

#[test]
fn rule_a6_an_application_of_another_cluster_is_never_meant() {
    let Night { mut world, web, .. } = night();
    let mut foreign = application("prod", &usual_policy(), &["web"]);
    foreign["spec"]["destination"] = json!({"server": "https://prod.example.com", "namespace": "shop"});
    world.add("argoproj.io", &foreign);
    assert_eq!(owners(&world, &web), None);
    let mut named = application("here", &usual_policy(), &["web"]);
    named["spec"]["destination"] = json!({"name": "in-cluster", "namespace": "shop"});
    world.add("argoproj.io", &named);
    assert_eq!(
        owners(&world, &web),
        Some((How::Resources, vec!["argocd/here".to_owned()]))
    );
}

#[test]
fn an_application_that_came_again_is_not_given_an_old_record() {
    let mut night = night();
    let shop = night.add(&application("shop", &usual_policy(), &["web", "api"]));
    night.at(NIGHT);
    // Deleted and created anew, without automated sync this time.
    night.world.objects.remove(&shop);
    let again = night.add(&application("shop", &json!({}), &["web", "api"]));
    night.at(MORNING);
    assert_eq!(*night.policy(&again), json!({}));
    assert_eq!(again, application_ref("argocd", "shop"));
}
