//! The alert rules, run by promtool over made-up series: each fires when it should, and not when it should not.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use harness::repository;
use serde_json::Value;

use harness::chart::run;

fn read(name: &str) -> anyhow::Result<(String, Value)> {
    let path = repository().join("manifests/monitoring").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let value = serde_saphyr::from_str(&text).with_context(|| format!("no YAML: {}", path.display()))?;
    Ok((path.display().to_string(), value))
}

fn items<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

#[test]
fn every_alert_fires_when_it_should_and_not_otherwise() -> anyhow::Result<()> {
    let (rules_path, rules) = read("alerts.yaml")?;
    let (tests_path, tests) = read("alerts.test.yaml")?;
    let alerts: BTreeSet<&str> = items(&rules, "groups")
        .flat_map(|group| items(group, "rules"))
        .filter_map(|rule| rule["alert"].as_str())
        .collect();
    ensure!(alerts.len() >= 7, "{alerts:?}");
    let mut fires: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for case in items(&tests, "tests").flat_map(|test| items(test, "alert_rule_test")) {
        let name = case["alertname"].as_str().context("a case without alert")?;
        let quiet = case["exp_alerts"]
            .as_array()
            .context("a case without outcome")?
            .is_empty();
        fires.entry(name).or_default()[usize::from(quiet)] += 1;
    }
    for alert in &alerts {
        let [firing, quiet] = fires.get(alert).copied().unwrap_or_default();
        ensure!(
            firing > 0 && quiet > 0,
            "{alert}: {firing} cases in which it fires, {quiet} in which it does not"
        );
    }
    for call in [
        ["check", "rules", "--lint=all", "--lint-fatal", &rules_path].as_slice(),
        &["test", "rules", &tests_path],
    ] {
        let printed = run("promtool", call, &[], "")?;
        ensure!(printed.success, "promtool {}: {}", call.join(" "), printed.text());
    }
    Ok(())
}
