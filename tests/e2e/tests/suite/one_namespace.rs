//! A developer who has rights in one namespace, and none in the cluster, asks what happens there.

use std::collections::BTreeSet;

use anyhow::ensure;
use harness::{AuditQuery, Identity};
use serde_json::{Value, json};

use crate::bad_input::{World, world};
use crate::product::Ended;

/// A developer of `namespace`, by the role `edit` in it.
async fn developer(world: &World, namespace: &str) -> anyhow::Result<Identity> {
    let who = Identity::user(&format!("dev-of-{namespace}"), &["developers"]);
    let user = format!("--user={}", who.user);
    let plane = &world.cluster.plane;
    plane
        .kubectl(&[
            "create",
            "rolebinding",
            "dev",
            "--clusterrole=edit",
            &user,
            "-n",
            namespace,
        ])?
        .ok()
        .await?;
    Ok(who)
}

impl World {
    /// Two namespaces that sleep.
    async fn two_that_sleep(&self) -> anyhow::Result<[String; 2]> {
        let (mine, other) = (
            self.namespace("mine", "night").await?,
            self.namespace("other", "night").await?,
        );
        let sleeping = ["web 0 \"2\"", "web 0 \"2\""];
        self.cluster.become_so(&[&mine, &other], &sleeping).await?;
        Ok([mine, other])
    }

    async fn asks(&self, who: &Identity, arguments: &[&str]) -> anyhow::Result<Ended> {
        self.cluster.offhours_as(who, arguments, &[]).await
    }

    async fn json(&self, who: &Identity, arguments: &[&str]) -> anyhow::Result<Value> {
        let ended = self.asks(who, &[arguments, &["-o", "json"]].concat()).await?;
        ensure!(ended.code == 0, "{arguments:?}: {}", ended.text());
        ended.json()
    }
}

#[tokio::test]
async fn a_developer_of_one_namespace_is_told_what_can_be_seen_from_there() -> anyhow::Result<()> {
    let world = world().await?;
    let [mine, other] = world.two_that_sleep().await?;
    let who = developer(world, &mine).await?;
    let audit = world.cluster.plane.audit().await?;
    let start = audit.mark().await?;
    without_schedules(world, &who, &mine).await?;
    with_schedules(world, &who, &mine).await?;

    // Nothing was tried that could not be: a refusal in an audit log is somebody's alarm.
    let refused: BTreeSet<String> = audit
        .requests(&AuditQuery::new().since(start).user(&who.user))
        .await?
        .into_iter()
        .filter(|request| request.code == 403)
        .map(|request| format!("{} {}", request.resource, request.namespace))
        .collect();
    let expected = [
        "configmaps offhours-system",
        "customresourcedefinitions ",
        "offhoursschedules ",
    ];
    ensure!(
        refused.iter().all(|one| expected.contains(&one.as_str())),
        "{refused:?}"
    );

    // The namespace of somebody else.
    let elsewhere = world.asks(&who, &["explain", "deployment/web", "-n", &other]).await?;
    ensure!(
        elsewhere.code == 1 && elsewhere.stderr.contains("is forbidden"),
        "{}",
        elsewhere.text()
    );
    Ok(())
}

async fn without_schedules(world: &World, who: &Identity, mine: &str) -> anyhow::Result<()> {
    let explain = ["explain", "deployment/web", "-n", mine];
    // What is on the workload and on its namespace is told; the schedule is not known, and that is said.
    let explained = world.asks(who, &explain).await?;
    ensure!(explained.code == 0, "{}", explained.text());
    for said in ["Should be    Unknown", "Asleep       yes", "replicas = 0, saved: 2"] {
        ensure!(explained.stdout.contains(said), "{said}: {}", explained.text());
    }
    for said in [
        format!("this is about namespace \"{mine}\" alone"),
        "cannot read offhoursschedules.offhours.platform.io".to_owned(),
    ] {
        ensure!(explained.stderr.contains(&said), "{said}: {}", explained.stderr);
    }
    // What is not installed, or concerns nobody here, is not complained about.
    for noise in ["rollouts", "scaledobjects", "applications", "configmaps", "namespaces:"] {
        ensure!(!explained.stderr.contains(noise), "{noise}: {}", explained.stderr);
    }
    let status = world.json(who, &["status", "-n", mine]).await?;
    ensure!(
        status["schedulesUnknown"].is_string() && status["schedules"] == json!([]),
        "{status}"
    );
    ensure!(
        status["asleep"][0]["namespace"] == mine && status["asleep"][1].is_null(),
        "{status}"
    );
    let planned = world.asks(who, &["plan", "--schedule", "night", "-n", mine]).await?;
    ensure!(
        planned.code == 1 && planned.stderr.contains("nobody can say whether there is a schedule"),
        "{}",
        planned.text()
    );

    Ok(())
}

/// Who may read schedules, too, is told everything about this namespace.
async fn with_schedules(world: &World, who: &Identity, mine: &str) -> anyhow::Result<()> {
    let explain = ["explain", "deployment/web", "-n", mine];
    let reader = format!("schedules-for-{mine}");
    let plane = &world.cluster.plane;
    for create in [
        vec![
            "clusterrole",
            &reader,
            "--verb=get,list,watch",
            "--resource=offhoursschedules.offhours.platform.io",
        ],
        vec![
            "clusterrolebinding",
            &reader,
            &format!("--clusterrole={reader}"),
            &format!("--user={}", who.user),
        ],
    ] {
        plane.kubectl(&["create"])?.args(&create).ok().await?;
    }
    let explained = world.json(who, &explain).await?;
    ensure!(
        explained["state"] == "Down" && explained["schedule"] == "night" && explained["asleep"] == true,
        "{explained}"
    );
    ensure!(explained["unreadable"].is_null(), "{explained}");
    let status = world.json(who, &["status", "-n", mine]).await?;
    let night = status["schedules"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["name"] == "night");
    ensure!(
        night.is_some_and(|night| night["down"] == 1 && night["up"] == 0),
        "{status}"
    );
    let plan = world.json(who, &["plan", "-n", mine]).await?;
    ensure!(plan["writes"] == json!([]) && plan["skipped"] == json!([]), "{plan}");
    let unknown = world.asks(who, &["plan", "--schedule", "nigth", "-n", mine]).await?;
    ensure!(
        unknown.code == 2 && unknown.stderr.contains("there is no schedule \"nigth\"; there are"),
        "{}",
        unknown.text()
    );
    let simulated = world.json(who, &["simulate", "-n", mine]).await?;
    ensure!(simulated["total"]["replicaHours"] == 2.0 * 168.0, "{simulated}");
    // Whoever asks for all namespaces gets no part of them.
    for command in ["status", "plan", "simulate"] {
        let asked = world.asks(who, &[command, "-A"]).await?;
        ensure!(
            asked.code == 1 && asked.stdout.is_empty() && asked.stderr.contains("leave --all-namespaces out"),
            "{}",
            asked.text()
        );
    }
    Ok(())
}

#[tokio::test]
async fn with_rights_everywhere_a_namespace_can_be_asked_about_alone() -> anyhow::Result<()> {
    let world = world().await?;
    let [mine, other] = world.two_that_sleep().await?;
    let admin = Identity::admin();
    let places = |status: &Value| -> BTreeSet<String> {
        let all = status["asleep"].as_array().into_iter().flatten();
        all.filter_map(|one| one["namespace"].as_str().map(str::to_owned))
            .collect()
    };
    let whole = places(&world.json(&admin, &["status", "-A"]).await?);
    ensure!(whole.contains(&mine) && whole.contains(&other), "{whole:?}");
    let alone = world.json(&admin, &["status", "-n", &mine]).await?;
    ensure!(places(&alone) == BTreeSet::from([mine.clone()]), "{alone}");
    let simulated = world.json(&admin, &["simulate", "-n", &mine]).await?;
    ensure!(simulated["total"]["replicaHours"] == 2.0 * 168.0, "{simulated}");
    Ok(())
}
