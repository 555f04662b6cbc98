use std::collections::BTreeSet;

use super::*;

fn registration() -> Registration {
    Registration::in_cluster("offhours-system", "offhours-webhook", "offhours")
}

#[test]
fn case_5_01_scale_and_everything_else_that_is_held_is_registered() {
    let validating = registration().validating(&Kinds::default()).unwrap();
    let resources: BTreeSet<String> = validating
        .webhooks
        .unwrap()
        .into_iter()
        .flat_map(|webhook| webhook.rules.unwrap())
        .flat_map(|rule| rule.resources.unwrap())
        .collect();
    for resource in [
        "deployments",
        "deployments/scale",
        "statefulsets",
        "statefulsets/scale",
        "cronjobs",
        "horizontalpodautoscalers",
        "scaledobjects",
        "namespaces",
        "offhoursschedules",
    ] {
        assert!(resources.contains(resource), "{resource}");
    }
    for never in [
        "pods",
        "leases",
        "nodes",
        "*",
        "*/*",
        "deployments/*",
        "deployments/status",
    ] {
        assert!(!resources.contains(never), "{never}");
    }
}

#[test]
fn case_5_15_timeouts_are_short_and_longer_ones_refused() {
    let mut registration = registration();
    let mutating = registration.mutating(&Kinds::default()).unwrap();
    assert!(
        mutating
            .webhooks
            .unwrap()
            .iter()
            .all(|webhook| webhook.timeout_seconds.unwrap() <= 3)
    );
    for seconds in [0, 11, 30] {
        registration.timeout_seconds = seconds;
        assert_eq!(
            registration.mutating(&Kinds::default()),
            Err(InvalidRegistration::Timeout(seconds))
        );
    }
}

#[test]
fn case_5_17_and_5_30_each_resource_is_in_one_entry_at_one_version() {
    let check = |rules: Vec<RuleWithOperations>| {
        let mut seen = BTreeSet::new();
        for rule in rules {
            assert_eq!(rule.api_versions.as_ref().unwrap().len(), 1);
            for resource in rule.resources.unwrap() {
                assert!(
                    seen.insert((rule.api_groups.clone(), resource.clone())),
                    "{resource} twice"
                );
            }
        }
    };
    let mutating = registration().mutating(&Kinds::default()).unwrap().webhooks.unwrap();
    check(
        mutating
            .iter()
            .flat_map(|webhook| webhook.rules.clone().unwrap())
            .collect(),
    );
    let validating = registration().validating(&Kinds::default()).unwrap().webhooks.unwrap();
    check(
        validating
            .iter()
            .flat_map(|webhook| webhook.rules.clone().unwrap())
            .collect(),
    );
    assert!(
        mutating
            .iter()
            .all(|webhook| webhook.match_policy.as_deref() == Some("Equivalent"))
    );
    assert!(
        validating
            .iter()
            .all(|webhook| webhook.match_policy.as_deref() == Some("Equivalent"))
    );
}

#[test]
fn case_5_12_and_5_13_paths_differ_and_side_effects_are_declared() {
    let mutating = registration().mutating(&Kinds::default()).unwrap().webhooks.unwrap();
    let validating = registration().validating(&Kinds::default()).unwrap().webhooks.unwrap();
    for webhook in &mutating {
        assert_eq!(
            webhook.client_config.service.as_ref().unwrap().path.as_deref(),
            Some("/mutate")
        );
        assert_eq!(webhook.side_effects, "NoneOnDryRun");
        assert_eq!(webhook.reinvocation_policy.as_deref(), Some("IfNeeded"));
    }
    for webhook in &validating {
        assert_eq!(
            webhook.client_config.service.as_ref().unwrap().path.as_deref(),
            Some("/validate")
        );
        assert_eq!(webhook.side_effects, "NoneOnDryRun");
    }
}

#[test]
fn case_5_16_the_clusters_own_namespaces_and_ours_are_excluded_everywhere() {
    let validating = registration().validating(&Kinds::default()).unwrap().webhooks.unwrap();
    for webhook in validating {
        let rules = webhook.rules.unwrap();
        if rules.iter().any(|rule| rule.scope.as_deref() == Some("Cluster")) {
            continue;
        }
        let selector = webhook.namespace_selector.unwrap().match_expressions.unwrap();
        let values = selector.last().unwrap().values.as_ref().unwrap();
        for name in ["kube-system", "kube-public", "kube-node-lease", "offhours-system"] {
            assert!(values.iter().any(|value| value == name), "{}: {name}", webhook.name);
        }
    }
}

#[test]
fn names_are_domain_names_and_expressions_are_stable() {
    let validating = registration().validating(&Kinds::default()).unwrap();
    let names: Vec<String> = validating
        .webhooks
        .iter()
        .flatten()
        .map(|webhook| webhook.name.clone())
        .collect();
    for name in &names {
        assert!(name.split('.').count() >= 3 && name.len() < 253, "{name}");
        assert!(
            name.split('.').all(|part| !part.is_empty() && part.len() <= 63),
            "{name}"
        );
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let again = registration().validating(&Kinds::default()).unwrap();
    assert_eq!(validating, again);
}
