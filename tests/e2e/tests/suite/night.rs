//! The four scenarios by one pass with K8s-OffHours' environment and by the servers, with equal results; then the commands
//! for people on the same cluster, and the end of it all.

use std::sync::LazyLock;

use anyhow::{Context as _, ensure};
use harness::{SOON, wait_for};
use serde_json::Value;

use crate::product::{Cluster, schedule};
use crate::schedules::wrong_examples_are_refused;

const NAMESPACES: [&str; 4] = ["shop-dev", "billing-dev", "search-dev", "media-dev"];

const BY_DAY: [&str; 8] = [
    "collector 1 null",
    "gallery 2 null",
    "handbook 1 null",
    "invoices 3 null",
    "ledger 1 null",
    "search-api 2 null",
    "storefront 2 null",
    "transcoder 1 null",
];

const BY_NIGHT: [&str; 8] = [
    "collector 1 null",
    "gallery 0 \"2\"",
    "handbook 1 null",
    "invoices 0 \"3\"",
    "ledger 1 null",
    "search-api 0 \"2\"",
    "storefront 0 \"2\"",
    "transcoder 1 null",
];

/// The environment of K8s-OffHours' two CronJobs.
fn environment<'e>(action: &'e str, scope: &'e str) -> Vec<(&'e str, &'e str)> {
    vec![
        ("SCHEDULE_NAME", "default"),
        ("SCHEDULE_SCOPE", scope),
        ("ACTION", action),
        ("ARGO_ENABLED", "false"),
        ("OFFHOURS_LOG_FORMAT", "k8s-offhours"),
    ]
}

#[tokio::test]
async fn the_four_scenarios_are_the_same_by_one_pass_and_by_the_servers() -> anyhow::Result<()> {
    let cluster = Cluster::start("night").await?;
    for scenario in ["1-namespace", "2-workload", "3-argo-manual", "4-mixed"] {
        let path = harness::repository().join(format!("manifests/examples/scenarios/{scenario}.yaml"));
        cluster.plane.apply(&std::fs::read_to_string(path)?).await?;
    }
    one_pass(&cluster).await?;
    cluster.install_crd().await?;
    let (product, port) = cluster.run().await?;
    cluster.plane.apply(&schedule("default", "Down")).await?;
    cluster.become_so(&NAMESPACES, &BY_NIGHT).await?;
    refused_beside_a_resource(&cluster).await?;
    wrong_examples_are_refused(&cluster.plane).await?;
    commands_by_night(&cluster).await?;
    metrics(&cluster, port).await?;
    cluster.plane.apply(&schedule("default", "Up")).await?;
    cluster.become_so(&NAMESPACES, &BY_DAY).await?;
    cluster.plane.apply(&schedule("default", "Down")).await?;
    cluster.become_so(&NAMESPACES, &BY_NIGHT).await?;
    uninstall(&cluster).await?;
    let status = product.terminate(SOON).await?;
    ensure!(status.success(), "{status}: {}", product.log());
    Ok(())
}

/// Without the CRD, as K8s-OffHours' users have it.
async fn one_pass(cluster: &Cluster) -> anyhow::Result<()> {
    let dry = [environment("shutdown", "namespace"), vec![("DRY_RUN", "true")]].concat();
    let ended = cluster.offhours(&[], &dry).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    ensure!(
        ended
            .stdout
            .contains("[DRYRUN] would down deployment/storefront in shop-dev")
            && ended.stdout.contains("/spec/replicas: 2 -> 0")
            && !ended.stdout.contains("ledger"),
        "{}",
        ended.text()
    );
    ensure!(
        cluster.deployments(&NAMESPACES).await? == BY_DAY,
        "a dry run changed something"
    );

    for scope in ["namespace", "deployment"] {
        let ended = cluster.offhours(&[], &environment("shutdown", scope)).await?;
        ensure!(ended.code == 0, "{}", ended.text());
        ensure!(
            ended.stdout.contains("[INFO] shutdown of schedule default is done"),
            "{}",
            ended.text()
        );
    }
    let seen = cluster.deployments(&NAMESPACES).await?;
    ensure!(seen == BY_NIGHT, "{seen:?}");
    // Again is nothing.
    let again = cluster.offhours(&[], &environment("shutdown", "namespace")).await?;
    ensure!(
        again.stdout.contains("0 written, 0 skipped, 0 failed"),
        "{}",
        again.text()
    );
    argo_cd_that_nobody_reaches(cluster).await?;
    // By its own name, too.
    let ended = cluster
        .offhours(
            &["startup", "--schedule-name", "default", "--log-format", "k8s-offhours"],
            &[],
        )
        .await?;
    ensure!(ended.code == 0, "{}", ended.text());
    let ended = cluster.offhours(&[], &environment("startup", "deployment")).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    let seen = cluster.deployments(&NAMESPACES).await?;
    ensure!(seen == BY_DAY, "{seen:?}");
    answers_of_one_pass(cluster).await
}

/// The same for programs, with the log out of the way.
async fn answers_of_one_pass(cluster: &Cluster) -> anyhow::Result<()> {
    for (action, dry, field, count) in [
        ("shutdown", "true", "writes", 3),
        ("shutdown", "false", "done", 3),
        ("startup", "false", "done", 3),
    ] {
        let mut variables = environment(action, "namespace");
        variables.retain(|(name, _)| *name != "OFFHOURS_LOG_FORMAT");
        variables.push(("DRY_RUN", dry));
        let ended = cluster.offhours(&[action, "-o", "json"], &variables).await?;
        ensure!(ended.code == 0, "{}", ended.text());
        let answer = ended.json()?;
        documented(&answer)?;
        let found = answer[field].as_array().map_or(0, Vec::len);
        ensure!(
            found == count && answer["action"] == action && answer["failed"] == serde_json::json!([]),
            "{answer}"
        );
    }
    let seen = cluster.deployments(&NAMESPACES).await?;
    ensure!(seen == BY_DAY, "{seen:?}");
    Ok(())
}

/// Workloads come back; that their Applications were not resumed shows in the exit code.
async fn argo_cd_that_nobody_reaches(cluster: &Cluster) -> anyhow::Result<()> {
    let argo = [
        ("ARGO_ENABLED", "true"),
        ("ARGO_SERVER", "http://127.0.0.1:1"),
        ("ARGO_TOKEN", "none"),
        ("ARGO_API_RETRIES", "0"),
    ];
    for (action, wanted) in [("startup", BY_DAY), ("shutdown", BY_DAY)] {
        let ended = cluster
            .offhours(&[], &[environment(action, "namespace"), argo.to_vec()].concat())
            .await?;
        ensure!(
            ended.code == 1 && ended.text().contains("no Application was paused or resumed"),
            "{action}: {} {}",
            ended.code,
            ended.text()
        );
        // In this scope `invoices`, which has a label of its own, is nobody's.
        let (seen, wanted) = (cluster.deployments(&NAMESPACES).await?, wanted.map(str::to_owned));
        let unlike: Vec<_> = seen.iter().filter(|line| !wanted.contains(line)).collect();
        ensure!(unlike == ["invoices 0 \"3\""], "{action}: {unlike:?}");
    }
    let ended = cluster.offhours(&[], &environment("shutdown", "namespace")).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    Ok(())
}

async fn refused_beside_a_resource(cluster: &Cluster) -> anyhow::Result<()> {
    let ended = cluster.offhours(&[], &environment("startup", "namespace")).await?;
    ensure!(ended.code == 1, "rule G2: {}", ended.text());
    ensure!(
        ended.text().contains("is an OffHoursSchedule of this cluster") && ended.text().contains("offhours wake"),
        "{}",
        ended.text()
    );
    Ok(())
}

async fn json(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<Value> {
    let ended = cluster.person(&[arguments, &["-o", "json"]].concat()).await?;
    ensure!(ended.code == 0, "{arguments:?}: {}", ended.text());
    let value = ended.json().with_context(|| format!("{arguments:?}"))?;
    documented(&value).with_context(|| format!("{arguments:?}"))?;
    Ok(value)
}

/// Sees that the reference of output names every field.
fn documented(value: &Value) -> anyhow::Result<()> {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        std::fs::read_to_string(harness::repository().join("docs/reference/output.md")).unwrap_or_default()
    });
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                ensure!(
                    PAGE.contains(&format!("`{name}`")),
                    "docs/reference/output.md does not name {name}"
                );
                // Its content is the API's own.
                if name != "body" {
                    documented(value)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(documented),
        _ => Ok(()),
    }
}

async fn commands_by_night(cluster: &Cluster) -> anyhow::Result<()> {
    let status = json(cluster, &["status"]).await?;
    ensure!(
        status["schedules"][0]["state"] == "Down" && status["schedules"][0]["down"] == 4,
        "{status}"
    );
    ensure!(
        status["asleep"].as_array().is_some_and(|all| all.len() == 4),
        "{status}"
    );
    let explained = json(cluster, &["explain", "deployment/invoices", "-n", "billing-dev"]).await?;
    ensure!(
        explained["state"] == "Down" && explained["asleep"] == true && explained["knobs"][0]["record"] == "3",
        "{explained}"
    );
    let protected = json(cluster, &["explain", "deploy/ledger", "-n", "shop-dev"]).await?;
    ensure!(protected["decidedBy"] == "protected on the workload", "{protected}");
    let plan = json(cluster, &["plan"]).await?;
    ensure!(plan["writes"] == serde_json::json!([]), "{plan}");

    // A person wakes one, and it is up while the others sleep.
    let ended = cluster
        .person(&["wake", "deployment/gallery", "-n", "media-dev", "--for", "2h", "--wait"])
        .await?;
    ensure!(ended.code == 0, "{}", ended.text());
    let seen = cluster.deployments(&["media-dev"]).await?;
    ensure!(seen == ["gallery 2 null", "transcoder 1 null"], "{seen:?}");
    let awake = json(cluster, &["explain", "deployment/gallery", "-n", "media-dev"]).await?;
    ensure!(
        awake["state"] == "Up" && awake["decidedBy"] == "awake-until on the workload",
        "{awake}"
    );
    // What is planned for the end of the wake is that it sleeps again.
    let until = awake["until"].as_str().context("a wake has an end")?;
    ensure!(
        awake["next"].as_str().is_some_and(|next| next.ends_with(": down")),
        "{until}: {awake}"
    );
    let ended = cluster
        .person(&["sleep", "deployment/gallery", "-n", "media-dev", "--wait"])
        .await?;
    ensure!(ended.code == 0, "{}", ended.text());
    cluster
        .plane
        .kubectl(&[
            "annotate",
            "deployment",
            "gallery",
            "-n",
            "media-dev",
            "offhours.platform.io/asleep-until-",
        ])?
        .ok()
        .await?;
    cluster.become_so(&NAMESPACES, &BY_NIGHT).await?;

    let simulated = json(cluster, &["simulate"]).await?;
    // Nine replicas, 168 hours, all of them down.
    ensure!(simulated["total"]["replicaHours"] == 9.0 * 168.0, "{simulated}");
    let checked = cluster.person(&["check"]).await?;
    ensure!(checked.code == 0, "{}", checked.text());
    let checked = json(cluster, &["check"]).await?;
    ensure!(checked[0]["severity"] == "ok", "{checked}");
    let timeline = json(cluster, &["timeline", "--schedule", "default"]).await?;
    ensure!(timeline["stateAtFrom"]["state"] == "Down", "{timeline}");
    let kept = json(cluster, &["protect", "deployment/gallery", "-n", "media-dev"]).await?;
    ensure!(kept["changed"][0]["name"] == "gallery", "{kept}");
    cluster
        .become_so(&["media-dev"], &["gallery 2 null", "transcoder 1 null"])
        .await?;
    json(cluster, &["unprotect", "deployment/gallery", "-n", "media-dev"]).await?;
    cluster.become_so(&NAMESPACES, &BY_NIGHT).await?;
    let missing = cluster.person(&["wake", "deployment/nobody", "-n", "shop-dev"]).await?;
    ensure!(
        missing.code == 1 && missing.text().contains("there is no deployment \"nobody\""),
        "{}",
        missing.text()
    );
    Ok(())
}

/// Every series of the reference is served by a process that leads and holds.
async fn metrics(cluster: &Cluster, port: u16) -> anyhow::Result<()> {
    let reference = std::fs::read_to_string(harness::repository().join("docs/reference/metrics.md"))?;
    let names: Vec<&str> = reference
        .split('`')
        .filter(|word| word.starts_with("offhours_"))
        .collect();
    ensure!(names.len() > 25, "{names:?}");
    // The other one is always down, and so has no next transition.
    let office = schedule("zz-office", "Up").replace("00:00-24:00", "08:00-20:00");
    cluster.plane.apply(&office).await?;
    wait_for("all metrics", SOON, || async {
        let (status, text) = cluster.probe(port, "/metrics").await?;
        ensure!(status == 200, "{text}");
        let served = |name: &str| {
            text.lines()
                .filter_map(|line| line.strip_prefix(name))
                .any(|rest| rest.starts_with([' ', '{']))
        };
        for name in &names {
            ensure!(served(name), "{name} is not served:\n{text}");
        }
        for series in [
            "offhours_leader 1",
            "offhours_writes_total{purpose=\"down\",result=\"done\"}",
            "offhours_watched_objects{resource=\"deployments.apps\"}",
            "offhours_schedule_state{schedule=\"default\",state=\"Down\"} 1",
            "offhours_schedule_state{schedule=\"default\",state=\"Up\"} 0",
            "offhours_workloads{schedule=\"default\",state=\"down\"} 4",
            "offhours_transitions_total{schedule=\"default\",to=\"Down\"} 3",
        ] {
            ensure!(text.contains(series), "{series}:\n{text}");
        }
        Ok(())
    })
    .await?;
    cluster
        .plane
        .kubectl(&["delete", "offhoursschedule", "zz-office"])?
        .ok()
        .await
        .map(drop)
}

async fn uninstall(cluster: &Cluster) -> anyhow::Result<()> {
    let environment = [
        ("OFFHOURS_LEASE_DURATION", "3s"),
        ("OFFHOURS_LEASE_RENEW_DEADLINE", "2500ms"),
        ("OFFHOURS_LEASE_RETRY_PERIOD", "200ms"),
        ("OFFHOURS_LEASE_CALL_TIMEOUT", "1s"),
        ("OFFHOURS_WRITE_TIMEOUT", "1s"),
    ];
    let who = Cluster::undertaker();
    let ended = cluster
        .offhours_as(&who, &["uninstall", "-o", "json"], &environment)
        .await?;
    ensure!(ended.code == 0, "{}", ended.text());
    let done = ended.json()?;
    documented(&done)?;
    ensure!(done["webhookConfigurations"] == 2 && done["restored"] == 4, "{done}");
    let seen = cluster.deployments(&NAMESPACES).await?;
    ensure!(seen == BY_DAY, "{seen:?}");
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let left = cluster.plane.kubectl(&["get", kind, "-o", "name"])?.ok().await?;
        ensure!(left.stdout.is_empty(), "{}", left.stdout);
    }
    // The server that still runs is a follower again by now, or leads again: deleting the schedule must work either way.
    cluster
        .plane
        .kubectl(&["delete", "offhoursschedule", "default", "--timeout=20s"])?
        .ok()
        .await?;
    wait_for("everything to stay up", SOON, || async {
        let seen = cluster.deployments(&NAMESPACES).await?;
        ensure!(seen == BY_DAY, "{seen:?}");
        Ok(())
    })
    .await
}
