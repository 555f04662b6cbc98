use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::json;
use shared::workload::ObjectRef;
use tokio::time::{Instant, sleep, timeout};

use super::{
    DEFINITIONS, DEPLOYMENTS,
    double::{Api, Fault, definition, deployment, namespace},
    eventually, follow, follow_with, replicas,
};
use crate::{
    follow::{Scope, SourceSpec},
    item::Item,
    reflector::{Pace, Resource},
    store::SourceState,
    view::PATIENCE,
};

fn names(objects: &HashSet<ObjectRef>) -> Vec<String> {
    let mut names: Vec<String> = objects.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_view_fills_page_by_page_and_follows_every_change() {
    let api = Api::default();
    api.set("namespaces", namespace("shop"));
    for number in 0..1203 {
        api.set(DEPLOYMENTS, deployment("shop", &format!("d{number}"), 3));
    }
    let (follower, store) = follow(&api);
    let view = follower.view();
    view.filled().await;
    assert_eq!(store.len(), 1203);
    assert_eq!(api.requests(DEPLOYMENTS, false), 3, "three pages of at most 500");
    assert!(view.is_filled() && view.unfilled().is_empty());
    assert!(view.namespaces().get("", "shop").is_some());
    assert!(view.changes().take().everything);

    eventually("the watch runs", || api.requests(DEPLOYMENTS, true) == 1).await;
    api.set(DEPLOYMENTS, deployment("shop", "d7", 5));
    api.set(DEPLOYMENTS, deployment("shop", "new", 1));
    api.delete(DEPLOYMENTS, "shop", "d8");
    eventually("all three are seen", || store.get("shop", "d8").is_none()).await;
    assert_eq!(replicas(&store, "shop", "d7"), Some(5));
    assert_eq!(replicas(&store, "shop", "new"), Some(1));
    let changes = view.changes().take();
    assert!(!changes.everything);
    assert_eq!(
        names(&changes.objects),
        ["deployment shop/d7", "deployment shop/d8", "deployment shop/new"]
    );
    assert!(view.changes().take().is_empty());
    assert_eq!(view.workloads_in("shop").len(), 1203);
    assert_eq!(
        view.workload(&store.get("shop", "new").unwrap().object_ref())
            .unwrap()
            .name
            .as_ref(),
        "new"
    );
}

#[tokio::test(start_paused = true)]
async fn while_idle_there_are_watches_and_nothing_else() {
    let api = Api::default();
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    let (follower, store) = follow(&api);
    follower.view().filled().await;
    sleep(Duration::from_secs(1)).await;
    api.with(|state| state.seen.clear());
    for minute in 0..60 {
        sleep(Duration::from_secs(60)).await;
        for resource in [
            DEPLOYMENTS,
            "namespaces",
            DEFINITIONS,
            "horizontalpodautoscalers.autoscaling",
        ] {
            api.bookmark(resource);
            if minute % 5 == 4 {
                api.cut(resource, None, false);
            }
        }
    }
    sleep(Duration::from_secs(1)).await;
    let seen = api.with(|state| state.seen.clone());
    assert!(seen.iter().all(super::double::Seen::is_watch), "{seen:?}");
    assert_eq!(seen.len(), 4 * 12);
    assert_eq!(replicas(&store, "shop", "web"), Some(3));
    let forbidden: Vec<_> = seen.iter().filter(|seen| seen.resource.starts_with("pods")).collect();
    assert!(forbidden.is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_6_04_nothing_is_filled_before_every_list_has_come_to_its_end() {
    let api = Api::default();
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    api.with(|state| {
        state
            .list_faults
            .insert("namespaces".to_owned(), Fault::Delay(Duration::from_secs(10)))
    });
    let (follower, store) = follow(&api);
    let began = Instant::now();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(store.state(), SourceState::Filled);
    assert!(!follower.view().is_filled());
    assert_eq!(follower.view().unfilled(), ["namespaces".into()]);
    assert_eq!(
        follower.view().namespaces().state(),
        SourceState::Unfilled { trouble: None }
    );
    follower.view().filled().await;
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_custom_kind_is_followed_while_its_definition_exists() {
    let api = Api::default();
    let (follower, _) = follow(&api);
    let view = follower.view();
    let rollout = Arc::clone(view.kinds().by_kind("argoproj.io", "Rollout").unwrap());
    follower.follow_kind(&rollout);
    follower.follow_kind(&rollout);
    view.filled().await;
    let state = || view.workload_state("argoproj.io", "Rollout").unwrap();
    assert_eq!(state(), SourceState::Absent);
    sleep(Duration::from_secs(600)).await;
    let asked = || {
        api.with(|state| {
            state
                .seen
                .iter()
                .filter(|seen| seen.resource == "rollouts.argoproj.io")
                .count()
        })
    };
    assert_eq!(asked(), 0, "what does not exist is not asked for");

    for round in 0..2 {
        let mut object = deployment("shop", "canary", 4);
        object["kind"] = json!("Rollout");
        api.set("rollouts.argoproj.io", object);
        api.set(DEFINITIONS, definition("rollouts.argoproj.io"));
        eventually("the rollout is seen", || view.workloads_in("shop").len() == 1).await;
        assert_eq!(state(), SourceState::Filled, "{round}");
        view.changes().take();
        api.delete(DEFINITIONS, "", "rollouts.argoproj.io");
        eventually("the kind is gone", || state() == SourceState::Absent).await;
        assert!(view.workloads_in("shop").is_empty());
        assert!(view.changes().take().everything);
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_are_asked_for_as_metadata_only() {
    let api = Api::default();
    let (follower, _) = follow(&api);
    follower.view().filled().await;
    eventually("watches run", || api.requests(DEFINITIONS, true) == 1).await;
    let accepts: Vec<String> = api.with(|state| {
        state
            .seen
            .iter()
            .filter(|seen| seen.resource == DEFINITIONS)
            .map(|seen| seen.accept.clone())
            .collect()
    });
    assert_eq!(
        accepts,
        [
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_right_on_definitions_custom_kinds_are_tried() {
    let api = Api::default();
    api.with(|state| {
        state.list_faults.insert(DEFINITIONS.to_owned(), Fault::Status(403));
        state
            .list_faults
            .insert("scaledobjects.keda.sh".to_owned(), Fault::Status(404));
    });
    let mut object = deployment("shop", "canary", 4);
    object["kind"] = json!("Rollout");
    api.set("rollouts.argoproj.io", object);
    let (follower, _) = follow(&api);
    let view = follower.view();
    for (group, kind) in [("argoproj.io", "Rollout"), ("keda.sh", "ScaledObject")] {
        follower.follow_kind(&Arc::clone(view.kinds().by_kind(group, kind).unwrap()));
    }
    view.filled().await;
    assert_eq!(view.workload_state("argoproj.io", "Rollout"), Some(SourceState::Filled));
    assert_eq!(
        view.workload_state("keda.sh", "ScaledObject"),
        Some(SourceState::Absent)
    );
    assert_eq!(view.workloads_in("shop").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn definitions_that_cannot_be_read_for_any_reason_hold_no_custom_kind_back() {
    for fault in [Fault::Status(401), Fault::Status(500), Fault::Hang, Fault::Garbage] {
        let api = Api::default();
        api.with(|state| state.list_faults.insert(DEFINITIONS.to_owned(), fault));
        let mut object = deployment("shop", "canary", 4);
        object["kind"] = json!("Rollout");
        api.set("rollouts.argoproj.io", object);
        let (follower, _) = follow(&api);
        let view = follower.view();
        follower.follow_kind(&Arc::clone(view.kinds().by_kind("argoproj.io", "Rollout").unwrap()));
        timeout(Duration::from_secs(60), view.filled()).await.unwrap();
        assert_eq!(
            view.workload_state("argoproj.io", "Rollout"),
            Some(SourceState::Filled),
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rule_v3_a_custom_kind_that_cannot_be_listed_holds_nobody_up_for_long() {
    let api = Api::default();
    let rollouts = "rollouts.argoproj.io";
    api.set(DEFINITIONS, definition(rollouts));
    // As where its conversion webhook is down.
    api.with(|state| state.list_faults.insert(rollouts.to_owned(), Fault::Status(500)));
    let (follower, store) = follow(&api);
    let view = follower.view();
    follower.follow_kind(&Arc::clone(view.kinds().by_kind("argoproj.io", "Rollout").unwrap()));
    let began = Instant::now();
    sleep(PATIENCE / 2).await;
    assert_eq!(view.unfilled(), [rollouts.into()]);
    timeout(PATIENCE * 2, view.filled()).await.unwrap();
    assert!(began.elapsed() >= PATIENCE);
    assert!(view.is_filled() && store.state() == SourceState::Filled);
    let state = || view.workload_state("argoproj.io", "Rollout").unwrap();
    assert!(
        matches!(state(), SourceState::Unfilled { trouble: Some(_) }),
        "{:?}",
        state()
    );

    // It is tried again all the time, and everybody hears of it when it works.
    let mut object = deployment("shop", "canary", 4);
    object["kind"] = json!("Rollout");
    api.set(rollouts, object);
    view.changes().take();
    api.with(|state| state.list_faults.remove(rollouts));
    eventually("it is listed", || state() == SourceState::Filled).await;
    assert_eq!(view.workloads_in("shop").len(), 1);
    assert!(view.changes().take().everything);
}

#[tokio::test(start_paused = true)]
async fn what_others_depend_on_is_waited_for() {
    for (resource, fault) in [
        ("namespaces", Fault::Status(500)),
        ("horizontalpodautoscalers.autoscaling", Fault::Status(500)),
        ("scaledobjects.keda.sh", Fault::Status(500)),
        // Without an answer it may be any of them.
        ("rollouts.argoproj.io", Fault::Hang),
        ("rollouts.argoproj.io", Fault::Status(401)),
    ] {
        let api = Api::default();
        for name in ["scaledobjects.keda.sh", "rollouts.argoproj.io"] {
            api.set(DEFINITIONS, definition(name));
        }
        api.with(|state| state.list_faults.insert(resource.to_owned(), fault));
        let (follower, _) = follow(&api);
        let view = follower.view();
        for (group, kind) in [("keda.sh", "ScaledObject"), ("argoproj.io", "Rollout")] {
            follower.follow_kind(&Arc::clone(view.kinds().by_kind(group, kind).unwrap()));
        }
        let waited = timeout(PATIENCE * 20, view.filled()).await;
        assert!(
            waited.is_err() && view.unfilled() == [resource.into()],
            "{resource} {fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespaced_scope_asks_for_nothing_outside_it() {
    let api = Api::default();
    api.with(|state| {
        for resource in ["namespaces", DEFINITIONS] {
            state.list_faults.insert(resource.to_owned(), Fault::Status(403));
        }
    });
    for place in ["a", "b", "c"] {
        api.set(DEPLOYMENTS, deployment(place, "web", 3));
    }
    let scope = Scope::Namespaces(vec!["a".to_owned(), "b".to_owned()]);
    let (follower, store) = follow_with(&api, scope, Pace::default());
    follower.view().filled().await;
    assert_eq!(store.len(), 2);
    assert!(matches!(
        follower.view().namespaces().state(),
        SourceState::Forbidden { .. }
    ));
    eventually("watches run", || api.requests(DEPLOYMENTS, true) == 2).await;
    api.set(DEPLOYMENTS, deployment("c", "other", 3));
    api.set(DEPLOYMENTS, deployment("b", "other", 3));
    api.delete(DEPLOYMENTS, "a", "web");
    eventually("the change is seen", || {
        store.in_namespace("b").len() == 2 && store.in_namespace("a").is_empty()
    })
    .await;
    // A relist of one namespace leaves the others alone.
    api.cut(DEPLOYMENTS, Some(410), true);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(store.len(), 2);
    let paths: HashSet<String> = api.with(|state| {
        state
            .seen
            .iter()
            .filter(|seen| seen.resource == DEPLOYMENTS)
            .map(|seen| seen.path.clone())
            .collect()
    });
    assert_eq!(
        paths,
        HashSet::from([
            "/apis/apps/v1/namespaces/a/deployments".to_owned(),
            "/apis/apps/v1/namespaces/b/deployments".to_owned()
        ])
    );
}

#[derive(Debug, serde::Deserialize)]
struct Plan {
    spec: PlanSpec,
}

#[derive(Debug, serde::Deserialize)]
struct PlanSpec {
    hours: u32,
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_its_type_is_kept_with_the_reason() {
    let api = Api::default();
    api.set(DEFINITIONS, definition("plans.example.org"));
    api.set(
        "plans.example.org",
        json!({"metadata": {"name": "good"}, "spec": {"hours": 8}}),
    );
    api.set(
        "plans.example.org",
        json!({"metadata": {"name": "bad"}, "spec": {"hours": "eight"}}),
    );
    let (follower, _) = follow(&api);
    let resource = Resource {
        group: "example.org".to_owned(),
        version: "v1".to_owned(),
        plural: "plans".to_owned(),
        namespace: None,
        metadata_only: false,
        labels: None,
    };
    let plans = follower.follow(SourceSpec::<Item<Plan>>::whole(resource, "Plan", true));
    follower.view().filled().await;
    assert_eq!(plans.get("", "good").unwrap().object.as_ref().unwrap().spec.hours, 8);
    let bad = plans.get("", "bad").unwrap();
    assert!(bad.object.as_ref().unwrap_err().contains("eight"), "{bad:?}");
    follower.view().changes().take();
    eventually("the watch runs", || api.requests("plans.example.org", true) == 1).await;
    api.set(
        "plans.example.org",
        json!({"metadata": {"name": "bad"}, "spec": {"hours": 9}}),
    );
    follower.view().changes().changed().await;
    assert_eq!(plans.get("", "bad").unwrap().object.as_ref().unwrap().spec.hours, 9);
}

#[tokio::test(start_paused = true)]
async fn an_hpa_is_found_by_what_it_scales() {
    let api = Api::default();
    let hpas = "horizontalpodautoscalers.autoscaling";
    let hpa = |name: &str, target: &str| {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"minReplicas": 2, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}})
    };
    api.set(hpas, hpa("b", "web"));
    api.set(hpas, hpa("a", "web"));
    api.set(hpas, hpa("c", "other"));
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    let (follower, store) = follow(&api);
    follower.view().filled().await;
    let web = store.get("shop", "web").unwrap().object_ref();
    assert_eq!(follower.view().hpa_of(&web).unwrap().object.name.as_ref(), "a");
    let changed = json!({"metadata": {"namespace": "shop", "name": "a", "uid": "x", "resourceVersion": "99"},
        "spec": {"minReplicas": 0, "maxReplicas": 9}});
    follower
        .view()
        .apply_hpa_answer(changed.to_string().as_bytes())
        .unwrap();
    assert_eq!(follower.view().hpa_of(&web).unwrap().object.name.as_ref(), "b");
}

#[tokio::test(start_paused = true)]
async fn reflectors_end_with_their_follower() {
    let api = Api::default();
    let (follower, _) = follow(&api);
    follower.view().filled().await;
    drop(follower);
    sleep(Duration::from_secs(1)).await;
    api.with(|state| state.seen.clear());
    for resource in [DEPLOYMENTS, "namespaces", DEFINITIONS] {
        api.cut(resource, None, false);
    }
    sleep(Duration::from_secs(600)).await;
    assert_eq!(api.with(|state| state.seen.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_between_taking_and_waiting_is_not_lost() {
    let api = Api::default();
    let (follower, _) = follow(&api);
    let view = Arc::clone(follower.view());
    view.filled().await;
    eventually("the watch runs", || api.requests(DEPLOYMENTS, true) == 1).await;
    view.changes().take();
    // A reader that stops waiting again and again, as a select does.
    let mut seen = HashSet::new();
    for number in 0..200_u64 {
        api.set(DEPLOYMENTS, deployment("shop", &format!("d{number}"), 1));
        let _ = timeout(Duration::from_millis(number % 3), view.changes().changed()).await;
        if number % 7 == 0 {
            seen.extend(names(&view.changes().take().objects));
        }
    }
    while timeout(Duration::from_secs(5), view.changes().changed()).await.is_ok() {
        seen.extend(names(&view.changes().take().objects));
    }
    assert_eq!(seen.len(), 200);
}
