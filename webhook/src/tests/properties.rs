//! What holds for any request: applying our output again changes nothing, only fields of ours change, and whatever bytes come,
//! a review with its uid goes back, or a 4xx for what is no review.

use std::sync::Arc;

use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use shared::annotations::{
    ASLEEP, AWAKE_UNTIL, DOWN_REPLICAS, DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS, PROTECTED, SCHEDULE,
};

use super::serving::answer_to;
use super::world::*;
use crate::service::Phase;

fn maybe(values: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![Just(None), proptest::sample::select(values).prop_map(Some)]
}

prop_compose! {
    /// A Deployment in any state that people, pipelines and we leave it in.
    fn any_object()(
        replicas in prop_oneof![Just(None), (0_u64..6).prop_map(Some)],
        record in maybe(&["0", "2", "4", "absent", "many", ""]),
        label in maybe(&["0", "2", "4", "absent", "true"]),
        since in maybe(&["2026-11-30T23:00:00Z", "2026-11-01T00:00:00Z", "yesterday"]),
        held in maybe(&["0", "1", "2", "x"]),
        down in maybe(&["0", "1", "2", "50%", "25%", "a lot"]),
        awake in maybe(&["2h", "2026-12-01T01:00:00Z", "2020-01-01T00:00:00Z", "soon"]),
        protected in maybe(&["true", "false", "yes"]),
        schedule in maybe(&["dev-weekday", "nobody"]),
        foreign in maybe(&["3"]),
        maps in any::<bool>(),
    ) -> Value {
        let mut object = deployment(0);
        match replicas {
            Some(replicas) => object["spec"]["replicas"] = json!(replicas),
            None => { object["spec"].as_object_mut().unwrap().remove("replicas"); }
        }
        let mut annotations = serde_json::Map::new();
        for (key, value) in [
            (ORIGINAL_REPLICAS, record), (DOWN_SINCE, since), (HELD_REPLICAS, held), (DOWN_REPLICAS, down),
            (AWAKE_UNTIL, awake), (PROTECTED, protected), ("downscaler/original-replicas", foreign),
        ] {
            if let Some(value) = value {
                annotations.insert(key.to_owned(), json!(value));
            }
        }
        let mut labels = serde_json::Map::new();
        for (key, value) in [(ASLEEP, label), (SCHEDULE, schedule)] {
            if let Some(value) = value {
                labels.insert(key.to_owned(), json!(value));
            }
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        for (name, map) in [("annotations", annotations), ("labels", labels)] {
            if map.is_empty() && maps {
                metadata.remove(name);
            } else {
                metadata.insert(name.to_owned(), Value::Object(map));
            }
        }
        object
    }
}

fn any_world() -> impl Strategy<Value = Value> {
    (
        proptest::sample::select(vec!["Off", "Warn", "Rewrite", "Deny"]),
        any::<bool>(),
        maybe(&["1h", "4h"]),
    )
        .prop_map(|(mode, exempt, max)| {
            let mut enforcement = json!({"mode": mode});
            if exempt {
                enforcement["exempt"] = json!({"users": ["root"]});
            }
            if let Some(max) = max {
                enforcement["maxWake"] = json!(max);
            }
            enforcement
        })
}

const USERS: &[&str] = &[
    "ana",
    "root",
    "system:serviceaccount:argocd:argocd-application-controller",
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
];

/// The object without what is ours.
fn of_others(object: &Value) -> Value {
    let mut object = object.clone();
    object["spec"].as_object_mut().unwrap().remove("replicas");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in ["annotations", "labels"] {
        let Some(map) = metadata.get_mut(name).and_then(Value::as_object_mut) else {
            continue;
        };
        map.retain(|key, _| !key.starts_with("offhours.platform.io/") && !key.starts_with("downscaler/"));
        if map.is_empty() {
            metadata.remove(name);
        }
    }
    object
}

/// So many cases: the same at every run, so that nothing fails by chance on the day of something else. The long suites draw
/// new ones, ten times as many; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` choose.
fn cases(number: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let set = |name: &str| std::env::var_os(name).is_some();
    let long = set("OFFHOURS_TEST_LONG");
    ProptestConfig {
        cases: match (set("PROPTEST_CASES"), long) {
            (true, _) => default.cases,
            (false, true) => 10 * number,
            (false, false) => number,
        },
        rng_seed: if long || set("PROPTEST_RNG_SEED") || set("PROPTEST_CASES") {
            default.rng_seed
        } else {
            RngSeed::Fixed(20_261_130)
        },
        ..default
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// `World::mutate` calls again on the output, and asks the validating endpoint about it.
    #[test]
    fn rule_e11_the_output_is_a_fixed_point_and_only_ours_changes(
        old in any_object(), new in any_object(), creates in any::<bool>(),
        enforcement in any_world(), user in proptest::sample::select(USERS), night in any::<bool>(),
    ) {
        let mut world = World::with(&enforcement);
        if !night {
            world = world.by_day();
        }
        let review = by(if creates { create(&new) } else { update(&old, &new) }, user);
        let ruling = world.mutate(&review);
        let object = patched(&review, &ruling);
        prop_assert_eq!(of_others(&object), of_others(&review["request"]["object"]));
        // It never wakes: the knob only goes down.
        let count = |object: &Value| replicas(object).unwrap_or(1);
        prop_assert!(count(&object) <= count(&review["request"]["object"]));
        if user == "root" && enforcement.get("exempt").is_some() {
            prop_assert_eq!(replicas(&object), replicas(&review["request"]["object"]));
        }
        let _ = world.validate(&review);
    }

    #[test]
    fn scale_is_held_or_passes_but_never_changes_anything_else(
        parent in any_object(), was in 0_u64..4, asked in 0_u64..6,
        enforcement in any_world(), user in proptest::sample::select(USERS),
    ) {
        let mut world = World::with(&enforcement);
        world.add(&parent);
        let review = by(scale(was, asked), user);
        let ruling = world.rule_on(&review, Phase::Mutate);
        let object = patched(&review, &ruling);
        prop_assert!(object["spec"]["replicas"].as_u64().unwrap_or(0) <= asked);
        prop_assert_eq!(&object["metadata"], &review["request"]["object"]["metadata"]);
        if let Some(what) = ruling.remember {
            let edits = crate::service::remember_edits(&what.parent, what.asked, what.down, what.now);
            prop_assert!(edits.knobs.is_empty());
            // Applied, it is there: the second time there is nothing to write.
            let mut stored = parent.clone();
            let patch = edits.patch(&what.parent, shared::patch::Preconditions::State);
            json_patch::patch(&mut stored, &patch).unwrap();
            world.add(&stored);
            if let Some(again) = world.rule_on(&review, Phase::Mutate).remember {
                let edits = crate::service::remember_edits(&again.parent, again.asked, again.down, again.now);
                prop_assert!(edits.is_empty(), "{edits:?}");
            }
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!("offhours.platform.io/schedule")),
        Just(json!({"offhours.platform.io/awake-until": 7})),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z/.]{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Places in a review, outermost first.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(
                    value,
                    &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn is_answer(status: StatusCode, body: &[u8], uid: Option<&str>) -> bool {
    if status.is_client_error() {
        return true;
    }
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    status == StatusCode::OK
        && answer["apiVersion"] == "admission.k8s.io/v1"
        && answer["kind"] == "AdmissionReview"
        && answer["response"]["allowed"].is_boolean()
        && answer["response"]["uid"]
            .as_str()
            .is_some_and(|found| uid.is_none_or(|uid| uid == found))
        && answer["response"].get("patch").is_some() == answer["response"].get("patchType").is_some()
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200), path in any::<bool>()) {
        let (status, body) = answer_to(Arc::new(World::rewriting()), path, bytes);
        prop_assert!(is_answer(status, &body, None), "{status} {}", String::from_utf8_lossy(&body));
    }

    #[test]
    fn a_review_cut_short_or_with_a_wrong_byte_gets_an_answer(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(), path in any::<bool>(),
    ) {
        let mut bytes = update(&sleeping("3"), &deployment(5)).to_string().into_bytes();
        let index = at.index(bytes.len());
        if cut { bytes.truncate(index) } else { bytes[index] = byte }
        let (status, body) = answer_to(Arc::new(World::denying()), path, bytes);
        prop_assert!(is_answer(status, &body, None), "{status}");
    }

    #[test]
    fn a_review_with_anything_anywhere_gets_an_answer_with_its_uid(
        at in any::<prop::sample::Index>(), what in any_json(), which in 0_usize..5, path in any::<bool>(),
    ) {
        let hpa = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "checkout", "namespace": "shop", "uid": "h"},
            "spec": {"minReplicas": 1, "maxReplicas": 9,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}},
        });
        let schedule = json!({
            "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule", "metadata": {"name": "nights"},
            "spec": {"uptime": ["Mon-Fri 08:00-20:00"], "downReplicas": "10%", "enforcement": {"maxWake": "2h"}},
        });
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "labels": {SCHEDULE: "dev-weekday"}, "annotations": {AWAKE_UNTIL: "2h"}},
        });
        let mut review = match which {
            0 => update(&sleeping("3"), &deployment(5)),
            1 => scale(0, 5),
            2 => update(&hpa, &changed(&hpa, |hpa| hpa["spec"]["minReplicas"] = json!(3))),
            3 => create(&schedule),
            _ => create(&namespace),
        };
        let mut found = Vec::new();
        places(&review, "", &mut found);
        let place = found[at.index(found.len())].clone();
        *review.pointer_mut(&place).unwrap() = what;
        let uid = review.pointer("/request/uid").and_then(Value::as_str).map(str::to_owned);
        let mut world = World::rewriting();
        world.add(&sleeping("3"));
        let (status, body) = answer_to(Arc::new(world), path, review.to_string().into_bytes());
        prop_assert!(is_answer(status, &body, uid.as_deref()), "{status} {place} {}", String::from_utf8_lossy(&body));
    }
}
