use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    kinds::Kinds,
    workload::{ObjectRef, Workload},
};

use super::{double::deployment, replicas};
use crate::{
    changes::ChangeLog,
    intern::Interner,
    store::Store,
    view::{ApplyAnswer, View},
};

fn facts(uid: &str, version: &str, count: u64) -> Workload {
    let mut object = deployment("shop", "web", count);
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["resourceVersion"] = json!(version);
    Workload::read(Kinds::default().by_kind("apps", "Deployment").unwrap(), &object).unwrap()
}

fn store() -> Store<Workload> {
    Store::new("apps", "Deployment", "deployments", Arc::new(ChangeLog::default()))
}

#[test]
fn the_answer_of_a_write_stays_until_the_watch_has_caught_up() {
    let store = store();
    store.apply(facts("u", "10", 3), 1);
    store.end_list(1, None, "10");
    store.apply_answer(facts("u", "12", 0));
    store.apply(facts("u", "11", 3), 0);
    assert_eq!(
        replicas(&store, "shop", "web"),
        Some(0),
        "an event from before the write changes nothing"
    );
    store.apply(facts("u", "12", 0), 0);
    store.apply(facts("u", "13", 5), 0);
    assert_eq!(replicas(&store, "shop", "web"), Some(5));
    assert_eq!(
        replicas_of(&store.apply_answer(facts("u", "12", 0))),
        Some(5),
        "a late answer changes nothing"
    );
    assert_eq!(replicas(&store, "shop", "web"), Some(5));
}

fn replicas_of(workload: &Workload) -> Option<u64> {
    workload.knobs[0].value.as_ref()?.as_u64()
}

#[test]
fn a_list_taken_before_a_write_does_not_undo_its_answer() {
    let store = store();
    store.apply(facts("u", "10", 3), 1);
    store.end_list(1, None, "10");
    store.apply_answer(facts("u", "21", 0));
    store.apply(facts("u", "10", 3), 2);
    store.end_list(2, None, "20");
    assert_eq!(replicas(&store, "shop", "web"), Some(0));
    // What a list of later shows is the truth, also where numbers began anew: etcd may have been restored.
    store.apply(facts("u", "21", 0), 3);
    store.end_list(3, None, "22");
    store.apply(facts("u", "5", 4), 4);
    store.end_list(4, None, "6");
    assert_eq!(replicas(&store, "shop", "web"), Some(4));
}

#[test]
fn an_object_that_a_later_list_does_not_show_is_gone_even_if_we_wrote_it() {
    let store = store();
    store.apply_answer(facts("u", "21", 0));
    store.end_list(1, None, "20");
    assert_eq!(store.len(), 1, "written after the list");
    store.end_list(2, None, "30");
    assert_eq!(store.len(), 0);
}

#[test]
fn a_late_notice_of_deletion_does_not_remove_a_new_object_of_the_same_name() {
    let store = store();
    store.apply(facts("old", "10", 3), 0);
    store.apply_answer(facts("new", "15", 0));
    store.delete(&facts("old", "12", 3));
    assert_eq!(store.get("shop", "web").unwrap().uid.as_ref(), "new");
    store.delete(&facts("new", "17", 3));
    assert!(store.is_empty());
}

#[test]
fn an_answer_enters_the_view_and_is_told_as_a_change() {
    let view = View::new(Kinds::default(), false);
    let kind = Arc::clone(view.kinds().by_kind("apps", "Deployment").unwrap());
    let reference = |kind: &str| ObjectRef {
        group: "apps".into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: "web".into(),
    };
    let body = |version: &str| {
        let mut object = deployment("shop", "web", 0);
        object["metadata"]["resourceVersion"] = json!(version);
        object.to_string().into_bytes()
    };
    let error = view.apply_answer(&reference("Deployment"), &body("4")).unwrap_err();
    assert_eq!(error, ApplyAnswer::UnknownKind("Deployment".into()));
    view.place_for(&kind).unwrap();
    assert!(view.place_for(&kind).is_none());
    let workload = view.apply_answer(&reference("Deployment"), &body("4")).unwrap();
    assert_eq!(replicas_of(&workload), Some(0));
    assert!(view.changes().take().objects.contains(&reference("Deployment")));
    assert!(matches!(
        view.apply_answer(&reference("Deployment"), b"{"),
        Err(ApplyAnswer::Unreadable(_))
    ));
    assert!(matches!(
        view.apply_answer(&reference("Deployment"), b"{}"),
        Err(ApplyAnswer::Unreadable(_))
    ));
}

#[test]
fn more_changes_than_can_be_remembered_become_everything() {
    let log = ChangeLog::default();
    let reference = |number: usize| ObjectRef {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: format!("d{number}").into(),
    };
    for number in 0..10_000 {
        log.mark(reference(number));
        log.mark(reference(number));
    }
    log.mark(reference(3));
    let changes = log.take();
    assert_eq!((changes.objects.len(), changes.everything), (10_000, false));
    for number in 0..10_001 {
        log.mark(reference(number));
    }
    log.mark(reference(3));
    let changes = log.take();
    assert_eq!((changes.objects.len(), changes.everything), (0, true));
    assert!(log.take().is_empty());
}

#[test]
fn equal_texts_are_kept_once_and_unused_ones_are_let_go() {
    let mut interner = Interner::default();
    let (first, second) = (interner.text(&"shop".into()), interner.text(&"shop".into()));
    assert!(Arc::ptr_eq(&first, &second));
    for number in 0..100_000 {
        interner.text(&Arc::from(format!("hash-{number}")));
    }
    assert!(interner.len() <= 1024, "{}", interner.len());
    assert!(Arc::ptr_eq(&first, &interner.text(&"shop".into())));
}

#[test]
fn workloads_share_their_texts() {
    let store = store();
    let mut objects: Vec<Value> = (0..2).map(|n| deployment("shop", &format!("d{n}"), 1)).collect();
    for object in &mut objects {
        object["metadata"]["resourceVersion"] = json!("1");
        store.apply(
            Workload::read(Kinds::default().by_kind("apps", "Deployment").unwrap(), object).unwrap(),
            1,
        );
    }
    let (a, b) = (store.get("shop", "d0").unwrap(), store.get("shop", "d1").unwrap());
    assert!(Arc::ptr_eq(&a.namespace, &b.namespace));
    let value = |workload: &Workload| Arc::clone(workload.labels.as_ref().unwrap().get("team").unwrap());
    assert!(Arc::ptr_eq(&value(&a), &value(&b)));
}
