//! Rights and webhooks as data that a chart's templates choose from.

use serde::Serialize;

use super::rights::{Right, rights};
use super::{MUTATE_PATH, VALIDATE_PATH, entries, keys_changed};
use crate::kinds::Kinds;
use crate::verdict::NEVER_TOUCHED;

/// All that a chart has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chart {
    /// What roles are made of.
    pub rights: Vec<Right>,
    /// What the webhook configurations are made of.
    pub webhooks: Vec<Webhook>,
    /// matchCondition for kinds that the user adds: what their knobs are is known at run time only.
    pub added_kinds_condition: String,
    /// Path of the mutating endpoint.
    pub mutate_path: &'static str,
    /// Path of the validating endpoint.
    pub validate_path: &'static str,
    /// Namespaces that are never looked at, besides our own.
    pub never_touched: Vec<&'static str>,
}

/// One webhook of both configurations, or of the validating one only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Its name.
    pub name: String,
    /// It is in the mutating configuration, too.
    pub mutates: bool,
    /// Its resources have no namespace.
    pub cluster_scoped: bool,
    /// Its operations in the mutating configuration.
    pub mutating: Vec<&'static str>,
    /// Its operations in the validating configuration.
    pub validating: Vec<&'static str>,
    /// The resources.
    pub resources: Vec<Resource>,
    /// The self-test goes through it, so our own accounts ask like everybody.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub probed: bool,
    /// Conditions, besides that it is none of our own accounts that asks.
    pub conditions: Vec<Condition>,
}

/// One resource of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// It is registered where this kind may sleep; `None`: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural, with `/scale` where it is that.
    pub resource: String,
}

/// A matchCondition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Its name.
    pub name: &'static str,
    /// CEL.
    pub expression: String,
}

/// The data for these kinds.
pub fn chart(kinds: &Kinds) -> Chart {
    let webhooks = entries(kinds).into_iter().map(|entry| {
        let resources = entry.resources.into_iter().flat_map(|((group, version), resources)| {
            resources.into_iter().map(move |resource| {
                let plural = resource.split('/').next().unwrap_or_default();
                Resource {
                    kind: kinds.by_resource(&group, plural).map(|kind| kind.kind.to_string()),
                    group: group.clone(),
                    version: version.clone(),
                    resource,
                }
            })
        });
        Webhook {
            mutates: entry.mutates,
            cluster_scoped: entry.cluster_scoped,
            probed: entry.probed,
            mutating: vec!["CREATE", "UPDATE"],
            validating: entry.validates.to_vec(),
            resources: resources.collect(),
            conditions: entry
                .conditions
                .into_iter()
                .map(|(name, expression)| Condition { name, expression })
                .collect(),
            name: entry.name,
        }
    });
    Chart {
        rights: rights(kinds),
        webhooks: webhooks.collect(),
        added_kinds_condition: format!(
            "request.operation == 'CREATE' || object.?spec != oldObject.?spec || \
             object.?metadata.?annotations != oldObject.?metadata.?annotations || {}",
            keys_changed()
        ),
        mutate_path: MUTATE_PATH,
        validate_path: VALIDATE_PATH,
        never_touched: NEVER_TOUCHED.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Registration;

    #[test]
    fn a_chart_registers_what_the_product_registers() {
        let kinds = Kinds::default();
        let registration = Registration::in_cluster("offhours-system", "offhours-webhook", "offhours");
        let data = chart(&kinds);
        let mutating = registration.mutating(&kinds).unwrap().webhooks.unwrap();
        let validating = registration.validating(&kinds).unwrap().webhooks.unwrap();
        let names = |mutates: bool| -> Vec<String> {
            let chosen = data.webhooks.iter().filter(|one| one.mutates || !mutates);
            chosen.map(|one| one.name.clone()).collect()
        };
        assert_eq!(
            names(true),
            mutating.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
        );
        assert_eq!(
            names(false),
            validating.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
        );
        for (ours, theirs) in data.webhooks.iter().zip(&validating) {
            let conditions = theirs.match_conditions.as_ref().unwrap();
            let expressions: Vec<_> = conditions
                .iter()
                .skip(usize::from(!ours.probed))
                .map(|one| &one.expression)
                .collect();
            assert_eq!(
                ours.conditions.iter().map(|one| &one.expression).collect::<Vec<_>>(),
                expressions
            );
            let resources: usize = theirs
                .rules
                .as_ref()
                .unwrap()
                .iter()
                .map(|rule| rule.resources.as_ref().unwrap().len())
                .sum();
            assert_eq!(ours.resources.len(), resources, "{}", ours.name);
        }
    }

    #[test]
    fn whatever_belongs_to_a_kind_says_to_which() {
        for webhook in chart(&Kinds::default()).webhooks {
            for resource in webhook.resources {
                let of_all = ["horizontalpodautoscalers", "namespaces", "offhoursschedules"];
                assert_eq!(
                    resource.kind.is_none(),
                    of_all.contains(&resource.resource.as_str()),
                    "{resource:?}"
                );
            }
        }
    }
}
