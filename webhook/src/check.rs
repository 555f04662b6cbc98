//! The good-practice list for admission webhooks, against a live configuration. Pure.

use std::fmt;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shared::verdict::NEVER_TOUCHED;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It can stop a cluster, or the product does not work.
    Error,
    /// It costs, or surprises.
    Warning,
}

/// Something that a configuration does not do well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which webhook of which configuration.
    pub place: String,
    /// What it is, why it matters, and the remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}: {}", self.place, self.message)
    }
}

const REINVOKED: &str = "IfNeeded";

/// One webhook of either kind.
struct Webhook<'w> {
    name: &'w str,
    client: &'w WebhookClientConfig,
    rules: &'w [RuleWithOperations],
    failure_policy: Option<&'w str>,
    match_policy: Option<&'w str>,
    selector: Option<&'w LabelSelector>,
    side_effects: &'w str,
    timeout: i32,
    versions: &'w [String],
    conditions: usize,
    /// What it says of being called again; a validating one is always as it should be.
    reinvocation: Option<&'w str>,
}

/// What a mutating configuration does not do well.
pub fn check_mutating(configuration: &MutatingWebhookConfiguration) -> Vec<Finding> {
    let webhooks = configuration.webhooks.iter().flatten().map(|webhook| Webhook {
        name: &webhook.name,
        client: &webhook.client_config,
        rules: webhook.rules.as_deref().unwrap_or_default(),
        failure_policy: webhook.failure_policy.as_deref(),
        match_policy: webhook.match_policy.as_deref(),
        selector: webhook.namespace_selector.as_ref(),
        side_effects: &webhook.side_effects,
        timeout: webhook.timeout_seconds.unwrap_or(10),
        versions: &webhook.admission_review_versions,
        conditions: webhook.match_conditions.as_ref().map_or(0, Vec::len),
        reinvocation: webhook.reinvocation_policy.as_deref(),
    });
    check("mutating", &webhooks.collect::<Vec<_>>())
}

/// What a validating configuration does not do well.
pub fn check_validating(configuration: &ValidatingWebhookConfiguration) -> Vec<Finding> {
    let webhooks = configuration.webhooks.iter().flatten().map(|webhook| Webhook {
        name: &webhook.name,
        client: &webhook.client_config,
        rules: webhook.rules.as_deref().unwrap_or_default(),
        failure_policy: webhook.failure_policy.as_deref(),
        match_policy: webhook.match_policy.as_deref(),
        selector: webhook.namespace_selector.as_ref(),
        side_effects: &webhook.side_effects,
        timeout: webhook.timeout_seconds.unwrap_or(10),
        versions: &webhook.admission_review_versions,
        conditions: webhook.match_conditions.as_ref().map_or(0, Vec::len),
        reinvocation: Some(REINVOKED),
    });
    check("validating", &webhooks.collect::<Vec<_>>())
}

/// Resources whose writes must never wait for a webhook: the cluster could not start or heal.
const NEVER: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "nodes"),
    ("", "endpoints"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
];

fn check(which: &str, webhooks: &[Webhook<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if webhooks.is_empty() {
        findings.push(Finding {
            severity: Severity::Error,
            place: which.to_owned(),
            message: "the configuration has no webhooks, so nothing is held; install the chart again".to_owned(),
        });
    }
    let mut seen: Vec<(&str, &str, &str)> = Vec::new();
    for webhook in webhooks {
        let mut find = |severity, message: String| {
            findings.push(Finding {
                severity,
                place: format!("{which} webhook {}", webhook.name),
                message,
            });
        };
        check_one(webhook, &mut find);
        for (group, resource) in resources(webhook) {
            if let Some((_, _, other)) = seen.iter().find(|(g, r, _)| (*g, *r) == (group, resource)) {
                find(
                    Severity::Warning,
                    format!(
                        "{resource} is also sent by {other}: one request is judged twice; keep each resource in one webhook"
                    ),
                );
            } else {
                seen.push((group, resource, webhook.name));
            }
        }
    }
    findings
}

fn resources<'w>(webhook: &Webhook<'w>) -> impl Iterator<Item = (&'w str, &'w str)> {
    webhook.rules.iter().flat_map(|rule| {
        let groups = rule.api_groups.iter().flatten();
        groups.flat_map(|group| {
            rule.resources
                .iter()
                .flatten()
                .map(|resource| (group.as_str(), resource.as_str()))
        })
    })
}

fn check_one(webhook: &Webhook<'_>, find: &mut impl FnMut(Severity, String)) {
    if webhook
        .client
        .ca_bundle
        .as_ref()
        .is_none_or(|bundle| bundle.0.is_empty())
    {
        find(
            Severity::Error,
            "caBundle is empty, so the API server cannot call us; see the log of the webhook, which writes it"
                .to_owned(),
        );
    }
    if webhook.timeout > 10 {
        find(
            Severity::Error,
            format!(
                "timeoutSeconds is {}: a slow webhook uses up the deadline of requests; 3 or less",
                webhook.timeout
            ),
        );
    } else if webhook.timeout > 3 {
        find(
            Severity::Warning,
            format!(
                "timeoutSeconds is {}: people wait that long when we cannot be reached; 3 or less",
                webhook.timeout
            ),
        );
    }
    if webhook.match_policy != Some("Equivalent") {
        find(
            Severity::Warning,
            "matchPolicy is not Equivalent: requests for other API versions of a kind pass unseen".to_owned(),
        );
    }
    if !matches!(webhook.side_effects, "None" | "NoneOnDryRun") {
        find(
            Severity::Error,
            format!(
                "sideEffects is {:?}: dry runs (kubectl diff) are refused; NoneOnDryRun",
                webhook.side_effects
            ),
        );
    }
    if !webhook.versions.iter().any(|version| version == "v1") {
        find(
            Severity::Error,
            "admissionReviewVersions lacks v1, the only one that we speak".to_owned(),
        );
    }
    if webhook.reinvocation != Some(REINVOKED) {
        find(
            Severity::Warning,
            "reinvocationPolicy is not IfNeeded: what another webhook raises after us is only seen when it is too late"
                .to_owned(),
        );
    }
    if webhook.conditions == 0 {
        find(
            Severity::Warning,
            "no matchConditions: every write of these resources is sent to us; install the configuration of this version"
                .to_owned(),
        );
    }
    check_reach(webhook, find);
}

/// What is sent to us, and what a failure of ours would stop.
fn check_reach(webhook: &Webhook<'_>, find: &mut impl FnMut(Severity, String)) {
    let fails = webhook.failure_policy != Some("Ignore");
    for (group, resource) in resources(webhook) {
        if resource.contains('*') || group == "*" {
            find(
                Severity::Error,
                format!("a rule matches {resource:?} of group {group:?}: name resources one by one"),
            );
        }
        if NEVER.contains(&(group, resource)) {
            find(
                Severity::Error,
                format!(
                    "a rule matches {resource}: a cluster cannot start or heal while writes of it wait for a webhook"
                ),
            );
        }
    }
    let cluster = webhook
        .rules
        .iter()
        .all(|rule| rule.scope.as_deref() == Some("Cluster"));
    let missing: Vec<&str> = NEVER_TOUCHED
        .iter()
        .copied()
        .filter(|name| !excludes(webhook.selector, name))
        .collect();
    if !cluster && !missing.is_empty() {
        let severity = if fails { Severity::Error } else { Severity::Warning };
        find(
            severity,
            format!("namespaceSelector does not exclude {}", missing.join(", ")),
        );
    }
    if fails {
        find(
            Severity::Warning,
            "failurePolicy is Fail: while no replica answers, changes of these resources are refused; run two replicas or more"
                .to_owned(),
        );
    }
}

fn excludes(selector: Option<&LabelSelector>, namespace: &str) -> bool {
    selector
        .and_then(|selector| selector.match_expressions.as_ref())
        .into_iter()
        .flatten()
        .any(|expression| {
            let named = expression.values.iter().flatten().any(|value| value == namespace);
            match expression.operator.as_str() {
                "NotIn" => expression.key == "kubernetes.io/metadata.name" && named,
                "In" => expression.key == "kubernetes.io/metadata.name" && !named,
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use shared::kinds::Kinds;
    use shared::rules::{FailurePolicy, Registration};

    use super::*;

    fn registration() -> Registration {
        Registration {
            ca_bundle: b"PEM".to_vec(),
            ..Registration::in_cluster("offhours-system", "offhours-webhook", "offhours")
        }
    }

    #[test]
    fn our_own_configurations_pass_the_list() {
        let kinds = Kinds::default();
        assert_eq!(check_mutating(&registration().mutating(&kinds).unwrap()), []);
        assert_eq!(check_validating(&registration().validating(&kinds).unwrap()), []);
        let failing = Registration {
            failure_policy: FailurePolicy::Fail,
            ..registration()
        };
        let findings = check_validating(&failing.validating(&kinds).unwrap());
        assert!(findings.iter().all(|finding| finding.severity == Severity::Warning));
        assert!(!findings.is_empty());
    }

    #[test]
    fn each_bad_practice_is_found() {
        let good = registration().mutating(&Kinds::default()).unwrap();
        let found = |change: &dyn Fn(&mut k8s_openapi::api::admissionregistration::v1::MutatingWebhook)| {
            let mut bad = good.clone();
            change(bad.webhooks.as_mut().unwrap().first_mut().unwrap());
            check_mutating(&bad).len()
        };
        assert_eq!(found(&|_| {}), 0);
        assert_eq!(found(&|webhook| webhook.client_config.ca_bundle = None), 1);
        assert_eq!(found(&|webhook| webhook.timeout_seconds = Some(30)), 1);
        assert_eq!(found(&|webhook| webhook.match_policy = Some("Exact".to_owned())), 1);
        assert_eq!(found(&|webhook| webhook.side_effects = "Some".to_owned()), 1);
        assert_eq!(
            found(&|webhook| webhook.admission_review_versions = vec!["v1beta1".to_owned()]),
            1
        );
        assert_eq!(found(&|webhook| webhook.reinvocation_policy = None), 1);
        assert_eq!(found(&|webhook| webhook.match_conditions = None), 1);
        assert_eq!(found(&|webhook| webhook.namespace_selector = None), 1);
        let rule = |resources: &[&str], group: &str| RuleWithOperations {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(resources.iter().map(|resource| (*resource).to_owned()).collect()),
            ..RuleWithOperations::default()
        };
        assert_eq!(found(&|webhook| webhook.rules = Some(vec![rule(&["*"], "batch")])), 1);
        assert_eq!(
            found(&|webhook| webhook.rules = Some(vec![rule(&["leases"], "coordination.k8s.io")])),
            1
        );
        let mut empty = good.clone();
        empty.webhooks = None;
        assert_eq!(check_mutating(&empty).len(), 1);
        let twice = found(&|webhook| webhook.rules = Some(vec![rule(&["namespaces"], "")]));
        assert_eq!(twice, 1);
    }
}
