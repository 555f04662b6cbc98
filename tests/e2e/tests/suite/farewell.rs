//! Taking the product away where not everything is as it should be: each end says what helps, and nothing is left asleep.

use anyhow::ensure;
use harness::{Identity, SOON, wait_for};

use crate::product::{Cluster, OWN_NAMESPACE, deployment, schedule};

const DEFINITION: &str = "offhoursschedules.offhours.platform.io";

#[tokio::test]
async fn rule_g1_an_uninstall_that_cannot_begin_says_what_helps_and_one_without_the_definition_restores()
-> anyhow::Result<()> {
    let cluster = Cluster::start("farewell").await?;
    cluster.install_crd().await?;
    cluster.plane.apply(&schedule("night", "Down")).await?;
    let label = [("offhours.platform.io/schedule", "night")];
    let namespace = cluster.plane.namespace("shop", &label).await?;
    let apply = cluster.plane.kubectl(&["apply", "-n", &namespace, "-f", "-"])?;
    apply.stdin(deployment("web", 3)).ok().await?;
    let (product, _) = cluster.serve(&["scheduler"])?;
    cluster.become_so(&[&namespace], &["web 0 \"3\""]).await?;
    product.kill()?;

    // somebody who has no rights
    let developer = Identity::user("developer", &[]);
    let ended = cluster.offhours_as(&developer, &["uninstall"], &[]).await?;
    ensure!(ended.code == 1, "{}", ended.text());
    for said in ["may not get leases", OWN_NAMESPACE, "run this as somebody who may"] {
        ensure!(ended.text().contains(said), "{said}: {}", ended.text());
    }

    // the definition went first, by force
    let finalizers = r#"{"metadata": {"finalizers": null}}"#;
    let strip = ["patch", "offhoursschedule", "night", "--type=merge", "-p", finalizers];
    cluster.plane.kubectl(&strip)?.ok().await?;
    cluster.plane.kubectl(&["delete", "crd", DEFINITION])?.ok().await?;
    // and the product's namespace with it
    cluster
        .plane
        .kubectl(&["delete", "namespace", OWN_NAMESPACE])?
        .ok()
        .await?;
    let quick = [("OFFHOURS_LEASE_DURATION", "15s")];
    let ended = cluster.offhours_as(&Identity::admin(), &["uninstall"], &quick).await?;
    ensure!(ended.code == 1, "{}", ended.text());
    ensure!(
        ended
            .text()
            .contains(&format!("kubectl create namespace {OWN_NAMESPACE}")),
        "{}",
        ended.text()
    );
    // what it says helps
    cluster
        .plane
        .kubectl(&["create", "namespace", OWN_NAMESPACE])?
        .ok()
        .await?;
    let ended = cluster.offhours_as(&Identity::admin(), &["uninstall"], &quick).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    wait_for("the Deployment to be up", SOON, || async {
        let seen = cluster.deployments(&[&namespace]).await?;
        ensure!(seen == ["web 3 null"], "{seen:?}");
        Ok(())
    })
    .await
}
