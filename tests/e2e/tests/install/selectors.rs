//! Whom the selectors of the chart choose: the pods of hooks, tests and `CronJob`s bear the release's labels, too.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use harness::chart::{objects, template, title};
use serde_json::Value;

use crate::chart::MATRIX;

type Labels = BTreeMap<String, String>;

fn labels(value: &Value) -> Labels {
    let texts = value.as_object().into_iter().flatten();
    texts
        .filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
        .collect()
}

fn chooses(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, text)| labels.get(key) == Some(text))
}

/// Labels of the pods that an object makes.
fn pods(object: &Value) -> Option<Labels> {
    let pod = match object["kind"].as_str()? {
        "Deployment" | "Job" => &object["spec"]["template"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        "Pod" => object,
        _ => return None,
    };
    Some(labels(&pod["metadata"]["labels"]))
}

/// Every selector of pods that an object has, under the name of its place.
fn selectors(object: &Value) -> Vec<(&'static str, Labels)> {
    let spec = &object["spec"];
    let pod = &spec["template"]["spec"];
    let found: Vec<(&str, &Value)> = match object["kind"].as_str().unwrap_or_default() {
        "Service" => vec![("selector", &spec["selector"])],
        "PodDisruptionBudget" | "PodMonitor" => vec![("selector", &spec["selector"]["matchLabels"])],
        "NetworkPolicy" => vec![("podSelector", &spec["podSelector"]["matchLabels"])],
        "Deployment" => {
            let affinity = &pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
            vec![
                ("anti-affinity", &affinity["labelSelector"]["matchLabels"]),
                (
                    "spread",
                    &pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
                ),
            ]
        }
        _ => Vec::new(),
    };
    found.into_iter().map(|(place, value)| (place, labels(value))).collect()
}

#[test]
fn selectors_choose_the_servers_and_no_pod_of_a_job() -> anyhow::Result<()> {
    let mut seen = BTreeMap::new();
    for (what, arguments) in MATRIX {
        let all = objects(&template("offhours-system", arguments)?)?;
        let servers = all.iter().find(|object| object["kind"] == "Deployment").and_then(pods);
        let others: Vec<(String, Labels)> = all
            .iter()
            .filter(|object| object["kind"] != "Deployment")
            .filter_map(|object| Some((title(object), pods(object)?)))
            .collect();
        ensure!(!others.is_empty(), "{what} has no other pods");
        for object in &all {
            for (place, selector) in selectors(object) {
                let title = format!("{what}: {place} of {}", title(object));
                let servers = servers
                    .as_ref()
                    .with_context(|| format!("{title}: there are no servers"))?;
                ensure!(
                    !selector.is_empty() && chooses(&selector, servers),
                    "{title} misses the servers: {selector:?}"
                );
                for (other, labels) in &others {
                    ensure!(!chooses(&selector, labels), "{title} chooses the pods of {other}, too");
                }
                *seen.entry(format!("{} {place}", object["kind"])).or_insert(0) += 1;
            }
            if object["kind"] == "ServiceMonitor" {
                let selector = labels(&object["spec"]["selector"]["matchLabels"]);
                let services: Vec<String> = all
                    .iter()
                    .filter(|object| {
                        object["kind"] == "Service" && chooses(&selector, &labels(&object["metadata"]["labels"]))
                    })
                    .map(title)
                    .collect();
                ensure!(services == ["Service offhours-metrics"], "{what}: {services:?}");
            }
        }
    }
    ensure!(seen.len() == 6, "{seen:?}");
    Ok(())
}
