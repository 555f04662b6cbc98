//! Requests as real clients sent them, recorded by `make fixtures`: what becomes of each at night.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use shared::annotations::HELD_REPLICAS;

use super::world::*;
use crate::service::{Outcome, Phase};

/// A client; what becomes of its request under Rewrite, with the record afterwards; and what under Deny.
type Row = (&'static str, Outcome, Option<&'static str>, Outcome);

const TABLE: &[Row] = &[
    ("argo-cd-apply", Outcome::Held, Some("2"), Outcome::Held),
    ("argo-cd-apply-server-side", Outcome::Held, Some("3"), Outcome::Held),
    ("flux-helm-controller", Outcome::Held, Some("4"), Outcome::Held),
    ("flux-kustomize-controller", Outcome::Held, Some("4"), Outcome::Held),
    (
        "helm-install",
        Outcome::CreatedAsleep,
        Some("2"),
        Outcome::CreatedAsleep,
    ),
    ("helm-upgrade-null-replicas", Outcome::Held, Some("1"), Outcome::Denied),
    ("hpa-controller", Outcome::Held, None, Outcome::Held),
    ("keda-operator", Outcome::Held, None, Outcome::Held),
    ("kubectl-apply", Outcome::Held, Some("4"), Outcome::Denied),
    ("kubectl-apply-server-side", Outcome::Held, Some("4"), Outcome::Denied),
    ("kubectl-autoscale", Outcome::Passed, None, Outcome::Denied),
    ("kubectl-edit", Outcome::Held, Some("6"), Outcome::Denied),
    ("kubectl-rollout-pause", Outcome::Passed, None, Outcome::Passed),
    ("kubectl-rollout-restart", Outcome::Passed, None, Outcome::Passed),
    ("kubectl-rollout-undo", Outcome::PutBack, Some("2"), Outcome::PutBack),
    ("kubectl-scale", Outcome::Held, None, Outcome::Denied),
    ("patch-json", Outcome::Held, Some("8"), Outcome::Denied),
    ("patch-merge", Outcome::Held, Some("7"), Outcome::Denied),
    ("patch-strategic", Outcome::Held, Some("9"), Outcome::Denied),
    ("put", Outcome::Held, Some("4"), Outcome::Denied),
];

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/reviews"))
}

fn recorded(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The sleeper that the requests are about, held at this count.
fn world_of(mode: &str, held: u64) -> World {
    let mut spec = spec(&json!({"mode": mode}));
    if held > 0 {
        spec.down_replicas = Some(serde_json::from_value(json!(held)).unwrap());
    }
    let mut world = World::of_spec(&spec);
    let mut parent = sleeping("5");
    parent["metadata"]["name"] = json!("web");
    parent["spec"]["replicas"] = json!(held);
    if held > 0 {
        parent["metadata"]["annotations"][HELD_REPLICAS] = json!(held.to_string());
    }
    world.add(&parent);
    world
}

#[test]
fn every_recorded_client_gets_its_answer() {
    for (name, under_rewrite, kept, under_deny) in TABLE {
        let review = recorded(name);
        // The HPA controller asks only about what is not at zero.
        let held = u64::from(*name == "hpa-controller");
        let world = world_of("Rewrite", held);
        let ruling = world.mutate(&review);
        assert_eq!(ruling.outcome, *under_rewrite, "{name} under Rewrite: {ruling:?}");
        let object = patched(&review, &ruling);
        if let Some(kept) = kept {
            assert_eq!(record(&object), Some(*kept), "{name}: {object}");
        }
        if object["kind"] != "HorizontalPodAutoscaler" {
            assert_eq!(replicas(&object).unwrap_or(0), held, "{name}: {object}");
        }
        let autoscaler = matches!(*name, "hpa-controller" | "keda-operator");
        if *under_rewrite == Outcome::Held {
            assert_eq!(ruling.answer.warnings.len(), usize::from(!autoscaler), "{name}");
            let scales = review["request"]["subResource"] == "scale";
            assert_eq!(ruling.remember.is_some(), scales && !autoscaler, "{name}");
        }
        let ruling = world_of("Deny", held).rule_on(&review, Phase::Mutate);
        assert_eq!(ruling.outcome, *under_deny, "{name} under Deny: {ruling:?}");
        assert_eq!(ruling.answer.denial.is_some(), *under_deny == Outcome::Denied, "{name}");
        // By day all of it passes.
        let ruling = world_of("Deny", held).by_day().rule_on(&review, Phase::Mutate);
        assert!(ruling.answer.denial.is_none(), "{name} by day: {ruling:?}");
    }
}

#[test]
fn every_recording_is_in_the_table_and_names_no_machine() {
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let named: BTreeSet<String> = TABLE.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(found, named);
    for name in &found {
        let text = recorded(name).to_string();
        assert!(text.len() < 6_000, "{name} has {} bytes", text.len());
        assert!(!text.contains("/tmp") && !text.contains("managedFields"), "{name}");
    }
}
