//! What people get wrong: each mistake is named with its place and its remedy, nothing panics, and other namespaces go on.

use anyhow::ensure;
use harness::{Product, SOON, Shared, holds_for, wait_for};
use std::time::Duration;

use crate::product::{Cluster, deployment, schedule};

/// A scheduler without a webhook, so that mistakes get into the cluster; it was started before its CRD was there.
pub struct World {
    pub cluster: Cluster,
    product: Product,
    /// What `/readyz` and the log said while the CRD was missing.
    without_crd: (u16, String, String),
}

pub async fn world() -> anyhow::Result<&'static World> {
    static WORLD: Shared<World> = Shared::new();
    WORLD.get(make).await
}

async fn make() -> anyhow::Result<World> {
    let cluster = Cluster::start("bad-input").await?;
    cluster.plane.kubectl(&["create", "namespace", "early"])?.ok().await?;
    let label = "offhours.platform.io/schedule=night";
    cluster
        .plane
        .kubectl(&["label", "namespace", "early", label])?
        .ok()
        .await?;
    let apply = cluster.plane.kubectl(&["apply", "-n", "early", "-f", "-"])?;
    apply.stdin(deployment("web", 3)).ok().await?;
    let (product, port) = cluster.serve(&["scheduler"])?;
    product.wait_for_log("is not installed", SOON).await?;
    let (status, body) = cluster.probe(port, "/readyz").await?;
    let log = product.log();
    // Nothing is written meanwhile.
    let seen = cluster.deployments(&["early"]).await?;
    ensure!(seen == ["web 3 null"], "{seen:?}");
    cluster.install_crd().await?;
    cluster.plane.apply(&schedule("night", "Down")).await?;
    product.wait_until_ready(port, "/readyz", SOON).await?;
    cluster.become_so(&["early"], &["web 0 \"3\""]).await?;
    Ok(World {
        cluster,
        product,
        without_crd: (status, body, log),
    })
}

#[tokio::test]
async fn case_6_13_each_server_alone_speaks_tls_from_its_start() -> anyhow::Result<()> {
    let world = world().await?;
    for servers in ["scheduler", "webhook", "run"] {
        let (product, port) = world.cluster.serve(&[servers])?;
        product.wait_until_ready(port, "/readyz", SOON).await?;
        let status = product.terminate(SOON).await?;
        let log = product.log();
        ensure!(
            status.success() && !log.contains("panicked"),
            "offhours {servers}: {status}\n{log}"
        );
    }
    Ok(())
}

impl World {
    /// A namespace with a Deployment of 2 that follows this schedule.
    pub async fn namespace(&self, prefix: &str, follows: &str) -> anyhow::Result<String> {
        let labels = [("offhours.platform.io/schedule", follows)];
        let namespace = self.cluster.plane.namespace(prefix, &labels).await?;
        let apply = self.cluster.plane.kubectl(&["apply", "-n", &namespace, "-f", "-"])?;
        apply.stdin(deployment("web", 2)).ok().await?;
        Ok(namespace)
    }

    /// Another namespace sleeps as it should, and the one with the mistake is left alone.
    async fn left_alone_while_others_go_on(&self, namespace: &str) -> anyhow::Result<()> {
        let other = self.namespace("other", "night").await?;
        self.cluster.become_so(&[&other], &["web 0 \"2\""]).await?;
        holds_for("the Deployment to be left alone", Duration::from_secs(1), || async {
            let seen = self.cluster.deployments(&[namespace]).await?;
            ensure!(seen == ["web 2 null"], "{seen:?}");
            Ok(())
        })
        .await?;
        self.product.check_running()?;
        ensure!(!self.product.log().contains("panicked"), "{}", self.product.log());
        Ok(())
    }

    /// What `explain` says about the Deployment there.
    async fn explain(&self, namespace: &str) -> anyhow::Result<String> {
        let ended = self
            .cluster
            .person(&["explain", "deployment/web", "-n", namespace])
            .await?;
        ensure!(ended.code == 0, "{}", ended.text());
        Ok(ended.stdout)
    }
}

#[tokio::test]
async fn rule_v3_a_missing_crd_is_waited_for_and_said_loudly() -> anyhow::Result<()> {
    let (status, body, log) = &world().await?.without_crd;
    assert_eq!(*status, 503, "{body}");
    for said in [
        "[-] schedules",
        "offhoursschedules.offhours.platform.io",
        "offhours crd | kubectl apply -f -",
    ] {
        assert!(body.contains(said), "{said}: {body}");
    }
    assert!(log.contains("WARN") && log.contains("nothing is written"), "{log}");
    Ok(())
}

#[tokio::test]
async fn rule_v3_a_label_that_names_no_schedule_is_out_of_scope_and_told() -> anyhow::Result<()> {
    let world = world().await?;
    let namespace = world.namespace("ghost", "nobody-bears-this-name").await?;
    world.left_alone_while_others_go_on(&namespace).await?;
    let explained = world.explain(&namespace).await?;
    assert!(
        explained.contains("no schedule") && explained.contains("nobody-bears-this-name"),
        "{explained}"
    );
    let checked = world.cluster.person(&["check"]).await?;
    assert!(
        checked
            .stdout
            .contains("\"nobody-bears-this-name\", which does not exist"),
        "{}",
        checked.text()
    );
    Ok(())
}

#[tokio::test]
async fn a_broken_cron_expression_holds_and_writes_nothing_and_is_named_in_the_status() -> anyhow::Result<()> {
    broken(
        "broken-cron",
        "cron: {shutdown: [\"61 20 * * *\"]}",
        "spec.cron.shutdown[0]",
    )
    .await
}

#[tokio::test]
async fn an_unknown_zone_holds_and_writes_nothing_and_is_named_in_the_status() -> anyhow::Result<()> {
    broken(
        "broken-zone",
        "timeZone: Europe/Berln, downtime: [\"Mon-Sun 00:00-24:00\"]",
        "spec.timeZone",
    )
    .await
}

async fn broken(name: &str, spec: &str, place: &str) -> anyhow::Result<()> {
    let world = world().await?;
    let manifest = format!(
        "apiVersion: offhours.platform.io/v1alpha1\nkind: OffHoursSchedule\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    );
    world.cluster.plane.apply(&manifest).await?;
    let namespace = world.namespace(name, name).await?;
    world.left_alone_while_others_go_on(&namespace).await?;
    wait_for("the status to name the mistake", SOON, || async {
        let get = ["get", "offhoursschedule", name, "-o", "jsonpath={.status}"];
        let status = world.cluster.plane.kubectl(&get)?.ok().await?.stdout;
        ensure!(status.contains(place), "{status}");
        Ok(())
    })
    .await?;
    let explained = world.explain(&namespace).await?;
    assert!(
        explained.contains("unknown") && explained.contains(place),
        "{explained}"
    );
    Ok(())
}

#[tokio::test]
async fn rule_s6_a_record_that_is_no_number_is_told_and_the_default_is_used() -> anyhow::Result<()> {
    let world = world().await?;
    let cluster = &world.cluster;
    let name = cluster.plane.unique_name("unreadable");
    cluster.plane.apply(&schedule(&name, "Down")).await?;
    let namespace = world.namespace("unreadable", &name).await?;
    cluster.become_so(&[&namespace], &["web 0 \"2\""]).await?;
    // Both copies are gone: as after a careless edit.
    let annotate = [
        "annotate",
        "--overwrite",
        "deployment",
        "web",
        "-n",
        &namespace,
        "offhours.platform.io/original-replicas=two",
    ];
    let label = [
        "label",
        "--overwrite",
        "deployment",
        "web",
        "-n",
        &namespace,
        "offhours.platform.io/asleep=two",
    ];
    cluster.plane.kubectl(&label)?.ok().await?;
    cluster.plane.kubectl(&annotate)?.ok().await?;
    cluster.plane.apply(&schedule(&name, "Up")).await?;
    wait_for("the Deployment to be up", SOON, || async {
        let seen = cluster.deployments(&[&namespace]).await?;
        // Either the text was mended from what the scheduler remembers, or the default is used; never a guess, never left down.
        ensure!(seen == ["web 2 null"] || seen == ["web 1 null"], "{seen:?}");
        Ok(())
    })
    .await?;
    world.product.check_running()
}
