//! What each part of the product may do: exact verbs on exact resources, from `kinds`. Pure data; a chart makes roles of it.
//!
//! A right is listed because a call needs it. The end-to-end suite runs under the roles that the chart makes of this table,
//! and fails where a call is forbidden, and where a verb is granted that no call used.

use serde::Serialize;

use crate::api::{GROUP, PROBE};
use crate::kinds::{ByDefault, Kinds};

/// A part of the product with an account of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// `offhours scheduler`, and in it `offhours run`.
    Scheduler,
    /// `offhours webhook`, and in it `offhours run`.
    Webhook,
    /// `offhours shutdown` and `startup`, and what K8s-OffHours' environment starts.
    OnePass,
    /// `offhours uninstall`.
    Uninstall,
}

/// Where a right holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// In the cluster as a whole. Where rights are given in single namespaces only, it is done without.
    Cluster,
    /// Wherever workloads are: in all namespaces, or in those that are named.
    Workloads,
    /// In the product's own namespace.
    Own,
    /// In the namespace where K8s-OffHours kept its backups, if that is another one.
    Foreign,
}

/// What an installation may do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Feature {
    /// HPA modes that delete (`DeleteRestore`, `DeleteOnly`).
    HpaDelete,
    /// Argo CD, through its custom resources.
    Argo,
    /// Flux.
    Flux,
    /// A certificate authority of our own.
    OwnCertificates,
}

/// Stands for the name of the Lease.
pub const LEASE: &str = "$(LEASE)";
/// The Lease by which a webhook in dev mode makes that in the cluster stand aside.
pub const DEV_LEASE: &str = "offhours-webhook-dev";
/// Stands for the name of the certificates' Secret.
pub const CERTIFICATE: &str = "$(CERTIFICATE)";
/// Stands for the name of both webhook configurations.
pub const CONFIGURATION: &str = "$(CONFIGURATION)";

/// Verbs on one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Right {
    /// Where.
    pub place: Place,
    /// Who needs it.
    pub parts: Vec<Part>,
    /// It is needed with any of these features; none: always.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Feature>,
    /// It is needed where this kind may sleep; `None`: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API group.
    pub group: String,
    /// Plural resource, with its subresource (`cronjobs/status`).
    pub resource: String,
    /// Only objects of these names; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The verbs.
    pub verbs: Vec<&'static str>,
}

impl Right {
    fn new(place: Place, parts: &[Part], (group, resource): (&str, &str), verbs: &[&'static str]) -> Self {
        Self {
            place,
            parts: parts.to_vec(),
            needs: Vec::new(),
            kind: None,
            group: group.to_owned(),
            resource: resource.to_owned(),
            names: Vec::new(),
            verbs: verbs.to_vec(),
        }
    }

    fn needing(mut self, needs: &[Feature]) -> Self {
        self.needs = needs.to_vec();
        self
    }

    fn named(mut self, name: &str) -> Self {
        self.names = vec![name.to_owned()];
        self
    }

    fn of_kind(mut self, kind: &str) -> Self {
        self.kind = Some(kind.to_owned());
        self
    }
}

const READ: &[&str] = &["list", "watch"];
const ALL: &[Part] = &[Part::Scheduler, Part::Webhook, Part::OnePass, Part::Uninstall];
/// Those that write to workloads and to what stands beside them.
const ACTING: &[Part] = &[Part::Scheduler, Part::OnePass, Part::Uninstall];
/// Those that put to sleep.
const SLEEPING: &[Part] = &[Part::Scheduler, Part::OnePass];
const LEADING: &[Part] = &[Part::Scheduler, Part::Uninstall];

/// All rights that an installation with these kinds may need.
pub fn rights(kinds: &Kinds) -> Vec<Right> {
    let mut all = of_the_cluster();
    all.extend(of_workloads(kinds));
    all.extend(of_our_own());
    all
}

fn of_the_cluster() -> Vec<Right> {
    let definitions = ("apiextensions.k8s.io", "customresourcedefinitions");
    let schedules = (GROUP, "offhoursschedules");
    let right = |parts: &[Part], what, verbs: &[&'static str]| Right::new(Place::Cluster, parts, what, verbs);
    let mut all = vec![
        right(ALL, definitions, READ),
        // `offhours check`, as the chart's test runs it
        right(&[Part::Scheduler], definitions, &["get"]).named("offhoursschedules.offhours.platform.io"),
        right(ALL, ("", "namespaces"), READ),
        // durations of wakes become instants
        right(LEADING, ("", "namespaces"), &["patch"]),
        right(ALL, schedules, READ),
        // the finalizer
        right(LEADING, schedules, &["patch"]),
        // the webhook tells there what is fought over
        right(
            &[Part::Scheduler, Part::Webhook],
            (GROUP, "offhoursschedules/status"),
            &["patch"],
        ),
        // a dry run that only the webhook refuses: by itself, and by `offhours check` as the chart's test runs it
        right(&[Part::Scheduler, Part::Webhook], schedules, &["create"]).named(PROBE),
        right(&[Part::Webhook], schedules, &["patch"]).named(PROBE),
        right(
            &[Part::Webhook],
            ("authorization.k8s.io", "subjectaccessreviews"),
            &["create"],
        ),
    ];
    for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let what = ("admissionregistration.k8s.io", resource);
        // `caBundle`
        all.push(right(&[Part::Webhook], what, &["get", "list", "watch", "patch"]).named(CONFIGURATION));
        all.push(right(&[Part::Uninstall], what, &["delete"]).named(CONFIGURATION));
    }
    for (feature, what) in [
        (Feature::Argo, ("argoproj.io", "applications")),
        (Feature::Flux, ("kustomize.toolkit.fluxcd.io", "kustomizations")),
        (Feature::Flux, ("helm.toolkit.fluxcd.io", "helmreleases")),
    ] {
        all.push(right(ACTING, what, &["list", "watch", "patch"]).needing(&[feature]));
    }
    all
}

fn of_workloads(kinds: &Kinds) -> Vec<Right> {
    let right = |parts: &[Part], what, verbs: &[&'static str]| Right::new(Place::Workloads, parts, what, verbs);
    let mut all = Vec::new();
    for kind in kinds.rows() {
        let what = (kind.group.as_ref(), kind.plural.as_ref());
        all.push(right(ALL, what, READ).of_kind(&kind.kind));
        all.push(right(ACTING, what, &["patch"]).of_kind(&kind.kind));
        if kind.scale {
            // a number that is asked for through /scale is remembered on the parent
            all.push(right(&[Part::Webhook], what, &["get", "patch"]).of_kind(&kind.kind));
        }
        if (what, kind.kind.as_ref()) == (("batch", "cronjobs"), "CronJob") {
            // runs that were missed at night are skipped
            all.push(right(ACTING, ("batch", "cronjobs/status"), &["patch"]).of_kind(&kind.kind));
        }
    }
    let hpa = crate::hpa::kind();
    let hpa = (hpa.group.as_ref(), hpa.plural.as_ref());
    all.push(right(ALL, hpa, READ));
    all.push(right(ACTING, hpa, &["patch"]));
    // its controller is asked to look before a target that slept in part is restored
    let status = format!("{}/status", hpa.1);
    all.push(right(ACTING, (hpa.0, &status), &["patch"]));
    // what was deleted at night is created again by day, also at the end
    all.push(right(ACTING, hpa, &["create"]).needing(&[Feature::HpaDelete]));
    all.push(right(SLEEPING, hpa, &["delete"]).needing(&[Feature::HpaDelete]));
    all.push(right(
        &[Part::Scheduler, Part::Webhook, Part::OnePass],
        ("events.k8s.io", "events"),
        &["create"],
    ));
    all
}

fn of_our_own() -> Vec<Right> {
    let right = |parts: &[Part], what, verbs: &[&'static str]| Right::new(Place::Own, parts, what, verbs);
    let (config_maps, leases, secrets) = (("", "configmaps"), ("coordination.k8s.io", "leases"), ("", "secrets"));
    let backups = &[Feature::HpaDelete, Feature::Argo];
    let own_certificates = &[Feature::OwnCertificates];
    vec![
        // calendars, and backups of HPAs and of what Applications were
        right(ALL, config_maps, READ),
        right(SLEEPING, config_maps, &["create", "patch"]).needing(backups),
        right(ACTING, config_maps, &["delete"]).needing(backups),
        Right::new(Place::Foreign, ACTING, config_maps, READ),
        Right::new(Place::Foreign, ACTING, config_maps, &["delete"]).needing(backups),
        right(LEADING, leases, &["create"]),
        right(LEADING, leases, &["get", "update"]).named(LEASE),
        // kept after the end
        right(&[Part::Uninstall], leases, &["patch"]).named(LEASE),
        // that of dev mode, for which the webhook makes room
        right(&[Part::Webhook], leases, &["watch"]).named(DEV_LEASE),
        right(&[Part::Webhook], secrets, &["create"]).needing(own_certificates),
        right(&[Part::Webhook], secrets, &["get", "list", "watch", "update"])
            .named(CERTIFICATE)
            .needing(own_certificates),
    ]
}

/// The kinds that sleep without being asked for, and all that can.
pub fn kind_names(kinds: &Kinds) -> (Vec<String>, Vec<String>) {
    let name = |kind: &std::sync::Arc<crate::kinds::Kind>| kind.kind.to_string();
    let by_default = kinds.rows().iter().filter(|kind| kind.by_default == ByDefault::Yes);
    (by_default.map(name).collect(), kinds.rows().iter().map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Right> {
        rights(&Kinds::default())
    }

    #[test]
    fn case_7_02_nothing_is_granted_by_wildcard_and_nothing_twice_to_one_part() {
        let mut seen = std::collections::BTreeSet::new();
        for right in all() {
            assert!(!right.verbs.is_empty() && !right.parts.is_empty(), "{right:?}");
            let words = right
                .verbs
                .iter()
                .copied()
                .chain([right.group.as_str(), &right.resource]);
            for word in words {
                assert!(!word.contains('*'), "{right:?}");
            }
            for part in &right.parts {
                for verb in &right.verbs {
                    let key = (*part, right.place, right.group.clone(), right.resource.clone(), *verb);
                    let remembers = *part == Part::Webhook && *verb == "patch";
                    assert!(seen.insert(key) || remembers, "{verb} {right:?} for {part:?}");
                }
            }
        }
    }

    #[test]
    fn what_could_harm_a_cluster_is_granted_by_name_or_not_at_all() {
        for right in all() {
            let named = !right.names.is_empty();
            match (right.group.as_str(), right.resource.as_str()) {
                ("", "secrets") => {
                    assert_eq!(right.place, Place::Own);
                    assert!(named || right.verbs == ["create"], "{right:?}");
                }
                ("admissionregistration.k8s.io", _) => assert!(named, "{right:?}"),
                ("", resource) => assert!(
                    matches!(resource, "namespaces" | "configmaps"),
                    "{right:?} reaches into the core"
                ),
                ("rbac.authorization.k8s.io", _) => panic!("{right:?}"),
                _ => {}
            }
            // Only what keeps a backup is ever deleted, and what the product registered.
            if right.verbs.contains(&"delete") {
                assert!(
                    right.needs.contains(&Feature::HpaDelete) || right.parts == [Part::Uninstall],
                    "{right:?}"
                );
            }
        }
    }

    #[test]
    fn the_webhook_changes_nothing_but_records_and_its_own_certificates() {
        let webhook = all().into_iter().filter(|right| right.parts.contains(&Part::Webhook));
        for right in webhook {
            let harmless = ["get", "list", "watch"];
            let writes: Vec<_> = right.verbs.iter().filter(|verb| !harmless.contains(verb)).collect();
            match right.resource.as_str() {
                "events" | "subjectaccessreviews" => assert_eq!(writes, [&"create"]),
                "secrets" => {}
                "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" | "offhoursschedules/status" => {
                    assert_eq!(writes, [&"patch"]);
                }
                // The self-test, a dry run.
                "offhoursschedules" if right.names == [PROBE] => {
                    assert!(
                        writes.iter().all(|verb| ["create", "patch"].contains(verb)),
                        "{right:?}"
                    );
                }
                _ if right.kind.is_some() && right.verbs.contains(&"get") => assert_eq!(writes, [&"patch"]),
                _ => assert!(writes.is_empty(), "{right:?}"),
            }
        }
    }

    #[test]
    fn every_kind_can_be_read_and_written_and_says_whose_right_it_is() {
        let kinds = Kinds::default();
        for kind in kinds.rows() {
            for verb in ["list", "watch", "patch"] {
                assert!(
                    all().iter().any(|right| right.kind.as_deref() == Some(&kind.kind)
                        && right.resource == kind.plural
                        && right.group == kind.group
                        && right.verbs.contains(&verb)
                        && right.parts.contains(&Part::Scheduler)),
                    "{verb} {}",
                    kind.plural
                );
            }
        }
        let (by_default, every) = kind_names(&kinds);
        assert_eq!(by_default, ["Deployment", "StatefulSet", "Rollout", "ScaledObject"]);
        assert_eq!(every.len(), kinds.rows().len());
    }
}
