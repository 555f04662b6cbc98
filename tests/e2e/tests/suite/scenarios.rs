//! The four scenarios by each way in which they can be carried out: one pass with K8s-OffHours' environment, a server with the
//! same environment, and a server with a schedule of its own. Every object is the same by night, and in the morning as before.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use harness::{SOON, wait_for};
use serde_json::{Value, json};

use crate::product::{Cluster, OWN_NAMESPACE};

/// Scenario 2 is of single workloads, the others are of namespaces.
const OF_WORKLOADS: &str = "billing-dev";
const NAMESPACES: [&str; 4] = ["shop-dev", OF_WORKLOADS, "search-dev", "media-dev"];
const FILES: [&str; 5] = [
    "1-namespace",
    "2-workload",
    "2-workload-hpa",
    "3-argo-manual",
    "4-mixed",
];

/// How the schedule says it, and K8s-OffHours' variables.
const HPA_MODES: [(&str, Option<&str>); 3] = [
    ("Keep", None),
    ("MinZero", Some("HPA_MIN_ZERO_ENABLED")),
    ("DeleteRestore", Some("HPA_DELETE_RESTORE_ENABLED")),
];

/// What people have, by namespace: each with its backups of ours. Without what any write changes.
type World = BTreeMap<String, Vec<Value>>;

fn comparable(object: &Value) -> anyhow::Result<Value> {
    let mut metadata = serde_json::Map::new();
    for field in [
        "name",
        "namespace",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(since) = metadata
        .get_mut("annotations")
        .and_then(|all| all.get_mut("offhours.platform.io/down-since"))
    {
        let text = since.as_str().unwrap_or_default();
        text.parse::<jiff::Timestamp>()
            .with_context(|| format!("down-since {text:?}"))?;
        *since = "an instant".into();
    }
    let mut data = object["data"].clone();
    if let Some(text) = data["hpa.json"].as_str() {
        data["hpa.json"] = serde_json::from_str(text)?;
    }
    Ok(json!({"kind": object["kind"], "metadata": metadata, "spec": object["spec"], "data": data}))
}

async fn world(cluster: &Cluster) -> anyhow::Result<World> {
    let list = |words: &'static str, namespace: &'static str| async move {
        let words: Vec<_> = words.split(' ').chain(["-n", namespace, "-o", "json"]).collect();
        let shown = cluster.plane.kubectl(&words)?.ok().await?;
        let list: Value = serde_json::from_str(&shown.stdout)?;
        let items = list["items"].as_array().context("no list")?;
        items.iter().map(comparable).collect::<anyhow::Result<Vec<_>>>()
    };
    let mut world = World::new();
    for namespace in NAMESPACES {
        let mut objects = list("get deployments,horizontalpodautoscalers", namespace).await?;
        let shown = cluster
            .plane
            .kubectl(&["get", "namespace", namespace, "-o", "json"])?
            .ok()
            .await?;
        objects.push(comparable(&serde_json::from_str(&shown.stdout)?)?);
        world.insert(namespace.to_owned(), objects);
    }
    for backup in list("get configmaps -l offhours.platform.io/type=hpa-state", OWN_NAMESPACE).await? {
        let of = backup["data"]["targetNamespace"]
            .as_str()
            .context("a backup of nothing")?;
        world.entry(of.to_owned()).or_default().push(backup);
    }
    Ok(world)
}

/// Where two differ, for people.
fn differences(seen: &World, wanted: &World) -> String {
    let mut lines = Vec::new();
    for (namespace, wanted) in wanted {
        let seen = seen.get(namespace).map_or(&[][..], Vec::as_slice);
        lines.extend(
            wanted
                .iter()
                .filter(|one| !seen.contains(one))
                .map(|one| format!("wanted {one}")),
        );
        lines.extend(
            seen.iter()
                .filter(|one| !wanted.contains(one))
                .map(|one| format!("seen {one}")),
        );
    }
    lines.join("\n")
}

async fn becomes(cluster: &Cluster, what: &str, wanted: &World) -> anyhow::Result<()> {
    wait_for(what, SOON, || async {
        let seen = world(cluster).await?;
        ensure!(seen == *wanted, "{}", differences(&seen, wanted));
        Ok(())
    })
    .await
}

/// K8s-OffHours' variables, but for when.
fn environment(scope: &'static str, hpa: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let all = [
        ("SCHEDULE_NAME", "default"),
        ("SCHEDULE_SCOPE", scope),
        ("ARGO_ENABLED", "false"),
    ];
    all.into_iter().chain(hpa.map(|variable| (variable, "true"))).collect()
}

/// The world by night, when `before` is what it is by day.
async fn one_pass(
    cluster: &Cluster,
    environment: &[(&'static str, &'static str)],
    before: &World,
) -> anyhow::Result<World> {
    for dry_run in ["true", "false"] {
        let action = [environment, &[("ACTION", "shutdown"), ("DRY_RUN", dry_run)]].concat();
        let seen = world(cluster).await?;
        ensure!(seen == *before, "before {action:?}:\n{}", differences(&seen, before));
        let ended = cluster.offhours(&[], &action).await?;
        ensure!(ended.code == 0, "{action:?}: {}", ended.text());
    }
    let night = world(cluster).await?;
    let ended = cluster
        .offhours(&[], &[environment, &[("ACTION", "startup")]].concat())
        .await?;
    ensure!(ended.code == 0, "{}", ended.text());
    let morning = world(cluster).await?;
    ensure!(
        morning == *before,
        "the morning of {environment:?}:\n{}",
        differences(&morning, before)
    );
    Ok(night)
}

/// The same by a server with the same environment, which is told when instead of what.
async fn by_environment(
    cluster: &Cluster,
    environment: &[(&'static str, &'static str)],
    (night, day): (&World, &World),
) -> anyhow::Result<()> {
    // The last firing counts: one fires every minute, the other last at the turn of the year.
    const ALWAYS: &str = "* * * * *";
    const ONCE: &str = "0 0 1 1 *";
    for (what, shutdown, startup, wanted) in [("the night", ALWAYS, ONCE, night), ("the morning", ONCE, ALWAYS, day)] {
        let when = [
            ("SCHEDULE_SHUTDOWN", shutdown),
            ("SCHEDULE_STARTUP", startup),
            ("SCHEDULE_TIMEZONE", "America/Sao_Paulo"),
        ];
        let (server, port) = cluster.serve_with(&["scheduler"], &[environment, &when].concat())?;
        server.wait_until_ready(port, "/readyz", SOON).await?;
        becomes(cluster, &format!("{what} of {environment:?} by a server"), wanted).await?;
        let status = server.terminate(SOON).await?;
        ensure!(status.success(), "{status}: {}", server.log());
    }
    Ok(())
}

#[tokio::test]
async fn the_four_scenarios_leave_equal_objects_by_one_pass_by_environment_and_by_resource() -> anyhow::Result<()> {
    let cluster = Cluster::start("scenarios").await?;
    for file in FILES {
        let path = harness::repository().join(format!("manifests/examples/scenarios/{file}.yaml"));
        cluster.plane.apply(&std::fs::read_to_string(path)?).await?;
    }
    // Controllers write a revision on what is new.
    wait_for("the Deployments to be looked at", SOON, || async {
        let all = world(&cluster).await?;
        let mut deployments = all.values().flatten().filter(|one| one["kind"] == "Deployment");
        ensure!(deployments.all(|one| one["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"));
        Ok(())
    })
    .await?;
    let day = world(&cluster).await?;

    let of_namespaces = environment("namespace", None);
    let quiet = one_pass(&cluster, &of_namespaces, &day).await?;
    ensure!(quiet[OF_WORKLOADS] == day[OF_WORKLOADS], "another scope");
    for namespace in NAMESPACES.into_iter().filter(|name| *name != OF_WORKLOADS) {
        ensure!(quiet[namespace] != day[namespace], "nothing sleeps in {namespace}");
    }
    by_environment(&cluster, &of_namespaces, (&quiet, &day)).await?;

    let mut nights = Vec::new();
    for (mode, variable) in HPA_MODES {
        let of_workloads = environment("deployment", variable);
        let night = one_pass(&cluster, &of_workloads, &day).await?;
        ensure!(night[OF_WORKLOADS] != day[OF_WORKLOADS], "{mode}: nothing sleeps");
        by_environment(&cluster, &of_workloads, (&night, &day)).await?;
        // A schedule of its own binds both.
        let mut both = quiet.clone();
        both.insert(OF_WORKLOADS.to_owned(), night[OF_WORKLOADS].clone());
        nights.push((mode, both));
    }
    let taken = |night: &World| {
        !night[OF_WORKLOADS]
            .iter()
            .any(|one| one["kind"] == "HorizontalPodAutoscaler")
    };
    ensure!(
        nights
            .iter()
            .all(|(mode, night)| taken(night) == (*mode == "DeleteRestore")),
        "{nights:?}"
    );

    cluster.install_crd().await?;
    let (server, _) = cluster.run().await?;
    for (mode, night) in &nights {
        for (window, what, wanted) in [("downtime", "night", night), ("uptime", "morning", &day)] {
            let schedule = json!({
                "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule", "metadata": {"name": "default"},
                "spec": {"timeZone": "UTC", window: ["Mon-Sun 00:00-24:00"], "hpa": {"mode": mode}},
            });
            cluster.plane.apply(&schedule.to_string()).await?;
            becomes(&cluster, &format!("the {what} of {mode} by a resource"), wanted).await?;
        }
    }
    let status = server.terminate(SOON).await?;
    ensure!(status.success(), "{status}: {}", server.log());
    let seen = world(&cluster).await?;
    ensure!(seen == day, "at the end:\n{}", differences(&seen, &day));
    Ok(())
}
