//! What the webhook is registered for, and what the product may do: pure data, made from `kinds`, printed into chart files.
//!
//! Only requests that change something of ours are to reach the webhook: the rules list exact resources, and matchConditions
//! let the API server drop the rest. In them `namespaceObject` is null, fields may be absent, and lists of keys come in random
//! order: every expression has a default for every field and compares keys both ways.

pub mod chart;
pub mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use thiserror::Error;

use crate::annotations::PREFIX;
use crate::kinds::{Form, Kind, Kinds, Knob};
use crate::verdict::NEVER_TOUCHED;

/// Name of both configurations of an installation.
pub const CONFIGURATION: &str = "offhours";

/// Path of the endpoint that changes objects.
pub const MUTATE_PATH: &str = "/mutate";

/// Path of the endpoint that sees final objects.
pub const VALIDATE_PATH: &str = "/validate";

/// Where the API server finds the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Behind a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// At an address outside the cluster (dev mode), such as `https://192.0.2.7:9443`.
    Url(String),
}

/// What happens to a request where the webhook cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// It passes.
    #[default]
    Ignore,
    /// It is refused.
    Fail,
}

impl FailurePolicy {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Fail => "Fail",
        }
    }
}

/// What an installation chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Name of both configurations.
    pub name: String,
    /// Where the API server finds us.
    pub place: Place,
    /// User names that are our own: their requests are never sent.
    pub own_users: Vec<String>,
    /// Our own namespace, which is never looked at.
    pub own_namespace: String,
    /// Namespaces that are looked at: label requirements on top of the exclusions. `None`: all.
    pub namespaces: Option<LabelSelector>,
    /// What happens where we cannot be reached.
    pub failure_policy: FailurePolicy,
    /// How long the API server waits for us, in seconds.
    pub timeout_seconds: u8,
    /// PEM bundle of our CA. Empty: written at run time.
    pub ca_bundle: Vec<u8>,
}

/// A registration that would harm.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidRegistration {
    /// Kubernetes allows 1 to 30; more than 10 would let a slow webhook pass the deadline of requests.
    #[error("the webhook's timeout of {0} s is not within 1 to 10 s; choose 3 or less")]
    Timeout(u8),
}

impl Registration {
    /// The usual one, behind a Service of ours in `namespace`.
    pub fn in_cluster(namespace: &str, service: &str, service_account: &str) -> Self {
        Self {
            name: CONFIGURATION.to_owned(),
            place: Place::Service {
                namespace: namespace.to_owned(),
                name: service.to_owned(),
                port: 443,
            },
            own_users: vec![format!("system:serviceaccount:{namespace}:{service_account}")],
            own_namespace: namespace.to_owned(),
            namespaces: None,
            failure_policy: FailurePolicy::Ignore,
            timeout_seconds: 3,
            ca_bundle: Vec::new(),
        }
    }

    /// The mutating configuration.
    pub fn mutating(&self, kinds: &Kinds) -> Result<MutatingWebhookConfiguration, InvalidRegistration> {
        self.check()?;
        let webhooks = entries(kinds)
            .into_iter()
            .filter(|entry| entry.mutates)
            .map(|entry| MutatingWebhook {
                admission_review_versions: vec!["v1".to_owned()],
                client_config: self.client_config(MUTATE_PATH),
                failure_policy: Some(self.failure_policy.as_str().to_owned()),
                match_conditions: Some(self.conditions(&entry)),
                match_policy: Some("Equivalent".to_owned()),
                namespace_selector: Some(self.selector(&entry)),
                object_selector: Some(LabelSelector::default()),
                reinvocation_policy: Some("IfNeeded".to_owned()),
                rules: Some(entry.rules(&["CREATE", "UPDATE"])),
                side_effects: "NoneOnDryRun".to_owned(),
                timeout_seconds: Some(self.timeout_seconds.into()),
                name: entry.name,
            });
        Ok(MutatingWebhookConfiguration {
            metadata: self.metadata(),
            webhooks: Some(webhooks.collect()),
        })
    }

    /// The validating configuration.
    pub fn validating(&self, kinds: &Kinds) -> Result<ValidatingWebhookConfiguration, InvalidRegistration> {
        self.check()?;
        let webhooks = entries(kinds).into_iter().map(|entry| ValidatingWebhook {
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(VALIDATE_PATH),
            failure_policy: Some(self.failure_policy.as_str().to_owned()),
            match_conditions: Some(self.conditions(&entry)),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(self.selector(&entry)),
            object_selector: Some(LabelSelector::default()),
            rules: Some(entry.rules(entry.validates)),
            side_effects: "NoneOnDryRun".to_owned(),
            timeout_seconds: Some(self.timeout_seconds.into()),
            name: entry.name,
        });
        Ok(ValidatingWebhookConfiguration {
            metadata: self.metadata(),
            webhooks: Some(webhooks.collect()),
        })
    }

    fn check(&self) -> Result<(), InvalidRegistration> {
        if (1..=10).contains(&self.timeout_seconds) {
            Ok(())
        } else {
            Err(InvalidRegistration::Timeout(self.timeout_seconds))
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            labels: Some(BTreeMap::from([(
                "app.kubernetes.io/name".to_owned(),
                "offhours".to_owned(),
            )])),
            ..ObjectMeta::default()
        }
    }

    fn client_config(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = (!self.ca_bundle.is_empty()).then(|| k8s_openapi::ByteString(self.ca_bundle.clone()));
        match &self.place {
            Place::Service { namespace, name, port } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.to_owned()),
                    port: Some((*port).into()),
                }),
                url: None,
            },
            Place::Url(url) => WebhookClientConfig {
                ca_bundle,
                service: None,
                url: Some(format!("{}{path}", url.trim_end_matches('/'))),
            },
        }
    }

    /// What is in the cluster's own namespaces, and in ours, never waits for us.
    fn selector(&self, entry: &Entry) -> LabelSelector {
        if entry.cluster_scoped {
            return LabelSelector::default();
        }
        let mut selector = self.namespaces.clone().unwrap_or_default();
        let mut excluded: Vec<String> = NEVER_TOUCHED.iter().map(|name| (*name).to_owned()).collect();
        if !self.own_namespace.is_empty() {
            excluded.push(self.own_namespace.clone());
        }
        selector
            .match_expressions
            .get_or_insert_default()
            .push(LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(excluded),
            });
        selector
    }

    fn conditions(&self, entry: &Entry) -> Vec<MatchCondition> {
        let condition = |name: &str, expression: String| MatchCondition {
            name: name.to_owned(),
            expression,
        };
        let mut conditions = Vec::new();
        // Our own accounts change no spec of a schedule; but they ask for one in a dry run, to see whether they are heard.
        if !self.own_users.is_empty() && !entry.probed {
            let users: Vec<String> = self.own_users.iter().map(|user| quoted(user)).collect();
            conditions.push(condition(
                "not-our-own",
                format!("!(request.userInfo.username in [{}])", users.join(", ")),
            ));
        }
        conditions.extend(
            entry
                .conditions
                .iter()
                .map(|(name, expression)| condition(name, expression.clone())),
        );
        conditions
    }
}

/// A text as a CEL literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// One webhook of a configuration.
struct Entry {
    name: String,
    /// API group and version -> resources.
    resources: BTreeMap<(String, String), BTreeSet<String>>,
    scope: &'static str,
    cluster_scoped: bool,
    mutates: bool,
    validates: &'static [&'static str],
    /// The self-test goes through it.
    probed: bool,
    conditions: Vec<(&'static str, String)>,
}

impl Entry {
    fn rules(&self, operations: &[&str]) -> Vec<RuleWithOperations> {
        self.resources
            .iter()
            .map(|((group, version), resources)| RuleWithOperations {
                api_groups: Some(vec![group.clone()]),
                api_versions: Some(vec![version.clone()]),
                operations: Some(operations.iter().map(|operation| (*operation).to_owned()).collect()),
                resources: Some(resources.iter().cloned().collect()),
                scope: Some(self.scope.to_owned()),
            })
            .collect()
    }
}

const CREATE_UPDATE: &[&str] = &["CREATE", "UPDATE"];

/// The webhooks of both configurations; a resource is in one of them only.
fn entries(kinds: &Kinds) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let owners = owners(kinds);
    for kind in kinds.rows() {
        let place = (kind.group.to_string(), kind.version.to_string());
        let name = entry_name(kind);
        let entry = if let Some(index) = entries.iter().position(|entry| entry.name == name) {
            entries.get_mut(index)
        } else {
            entries.push(Entry {
                name,
                resources: BTreeMap::new(),
                scope: "Namespaced",
                cluster_scoped: false,
                mutates: true,
                validates: CREATE_UPDATE,
                probed: false,
                conditions: vec![
                    ("not-owned-by-a-workload", owners.clone()),
                    ("changes-something", workload_changes(kind)),
                ],
            });
            entries.last_mut()
        };
        if let Some(entry) = entry {
            entry
                .resources
                .entry(place)
                .or_default()
                .insert(kind.plural.to_string());
        }
    }
    let mut scales: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for kind in kinds.rows().iter().filter(|kind| kind.scale) {
        scales
            .entry((kind.group.to_string(), kind.version.to_string()))
            .or_default()
            .insert(format!("{}/scale", kind.plural));
    }
    entries.push(Entry {
        name: "scale.offhours.platform.io".to_owned(),
        resources: scales,
        scope: "Namespaced",
        cluster_scoped: false,
        mutates: true,
        validates: &["UPDATE"],
        probed: false,
        // At zero, a Scale has no spec.replicas; its old object may be missing, or the parent.
        conditions: vec![("raises", "object.?spec.?replicas.orValue(0) != 0".to_owned())],
    });
    entries.push(single(
        "autoscalers",
        ("autoscaling", "v2", "horizontalpodautoscalers"),
        false,
        &["CREATE", "UPDATE", "DELETE"],
        format!(
            "request.operation != 'UPDATE' || {} || {}",
            ["minReplicas", "maxReplicas", "scaleTargetRef"]
                .map(|field| format!("object.?spec.?{field} != oldObject.?spec.?{field}"))
                .join(" || "),
            keys_changed(),
        ),
    ));
    entries.push(single(
        "namespaces",
        ("", "v1", "namespaces"),
        true,
        CREATE_UPDATE,
        format!(
            "request.operation == 'CREATE' ? ({}) : ({})",
            keys_present(),
            keys_changed()
        ),
    ));
    entries.push(Entry {
        mutates: false,
        probed: true,
        ..single(
            "schedules",
            (crate::api::GROUP, crate::api::VERSION, "offhoursschedules"),
            true,
            CREATE_UPDATE,
            "request.operation == 'CREATE' || object.?spec != oldObject.?spec".to_owned(),
        )
    });
    entries
}

fn single(
    name: &str,
    (group, version, resource): (&str, &str, &str),
    cluster_scoped: bool,
    validates: &'static [&'static str],
    condition: String,
) -> Entry {
    Entry {
        name: format!("{name}.offhours.platform.io"),
        resources: BTreeMap::from([(
            (group.to_owned(), version.to_owned()),
            BTreeSet::from([resource.to_owned()]),
        )]),
        scope: if cluster_scoped { "Cluster" } else { "Namespaced" },
        cluster_scoped,
        mutates: true,
        validates,
        probed: false,
        conditions: vec![("changes-something", condition)],
    }
}

/// Kinds with the same knobs share a webhook, which bears the knobs' names.
fn entry_name(kind: &Kind) -> String {
    let knobs: Vec<&str> = kind.knobs.iter().map(|knob| knob.name.as_ref()).collect();
    let mut name = knobs.join("-").to_ascii_lowercase();
    name.truncate(63);
    format!("{}.offhours.platform.io", name.trim_end_matches('-'))
}

/// What belongs to another workload is that one's matter.
fn owners(kinds: &Kinds) -> String {
    let owners: BTreeSet<String> = kinds
        .rows()
        .iter()
        .map(|kind| quoted(&format!("{}/{}", kind.group, kind.kind)))
        .collect();
    let owners: Vec<String> = owners.into_iter().collect();
    format!(
        "!object.?metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && \
         (o.?apiVersion.orValue('').split('/')[0] + '/' + o.?kind.orValue('')) in [{}])",
        owners.join(", ")
    )
}

fn workload_changes(kind: &Kind) -> String {
    let mut changes = String::new();
    let mut awake = Vec::new();
    for knob in kind.knobs.iter() {
        let _ = write!(
            changes,
            "{} != {} || ",
            optional("object", knob),
            optional("oldObject", knob)
        );
        let value = optional("object", knob);
        match &knob.form {
            Form::Count => awake.push(format!("{value}.orValue(1) != 0")),
            Form::CountText => awake.push(format!("{value}.orValue('') != '0'")),
            Form::Flag(down) => awake.push(format!("{value}.orValue({}) != {down}", !down)),
            Form::Text(_) if knob.pointer.starts_with("/spec/template/") => awake.push("true".to_owned()),
            Form::Text(down) => awake.push(format!("{value}.orValue('') != {}", quoted(down))),
            Form::Guard { .. } => {}
        }
    }
    format!(
        "request.operation == 'CREATE' ? ({} || {}) : ({changes}{})",
        awake.join(" || "),
        keys_present(),
        keys_changed()
    )
}

/// A knob as an optional value.
fn optional(object: &str, knob: &Knob) -> String {
    let mut expression = object.to_owned();
    for token in knob.path() {
        let plain = token.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !token.starts_with(|c: char| c.is_ascii_digit());
        if plain {
            let _ = write!(expression, ".?{token}");
        } else {
            let _ = write!(expression, "[?{}]", quoted(&token));
        }
    }
    expression
}

fn keys_present() -> String {
    ["annotations", "labels"]
        .map(|map| format!("object.?metadata.?{map}.orValue({{}}).exists(k, k.startsWith('{PREFIX}'))"))
        .join(" || ")
}

/// Keys of ours that are set, changed or removed.
fn keys_changed() -> String {
    ["annotations", "labels"]
        .map(|map| {
            let (new, old) = (
                format!("object.?metadata.?{map}.orValue({{}})"),
                format!("oldObject.?metadata.?{map}.orValue({{}})"),
            );
            format!(
                "!{new}.all(k, !k.startsWith('{PREFIX}') || {old}[?k].orValue('\\n') == {new}[?k].orValue('')) || \
                 !{old}.all(k, !k.startsWith('{PREFIX}') || k in {new})"
            )
        })
        .join(" || ")
}

#[cfg(test)]
#[path = "tests/rules.rs"]
mod tests;
