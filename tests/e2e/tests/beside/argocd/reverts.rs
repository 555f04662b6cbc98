//! Somebody switches automated sync on again by night: a person, an `ApplicationSet`, a parent Application. It is tried twice
//! and then told, and what they wished is kept.

use anyhow::ensure;
use harness::{ARGOCD_NAMESPACE, argocd_version, wait_for};
use serde_json::{Value, json};

use super::stage::{LATER, Shop, deployment, policy, without_false};

const IMAGE: &str = "nginx:1.27";

/// A whole night under what would revert the pause, were it not told otherwise.
async fn a_night_without_a_revert(shop: &Shop) -> anyhow::Result<()> {
    let before = shop.application().await?["spec"].take();
    shop.turn("Down", "Off").await?;
    shop.until_replicas("web", 0).await?;
    for _ in 0..2 {
        shop.refresh().await?;
        ensure!(shop.replicas("web").await? == 0);
    }
    ensure!(!is_automated(&shop.application().await?));
    shop.turn("Up", "Off").await?;
    shop.until_replicas("web", 3).await?;
    let after = shop.until_resumed().await?;
    ensure!(after["spec"] == before, "{before} {}", after["spec"]);
    Ok(())
}

/// A night in which the pause is reverted and told of, while the webhook holds what is down.
async fn a_night_with_a_revert(shop: &Shop, told_of: [&str; 2]) -> anyhow::Result<()> {
    shop.turn("Down", "Rewrite").await?;
    shop.until_told("PauseReverted").await?;
    let told = shop.conditions().await?.to_string();
    ensure!(told_of.iter().all(|text| told.contains(text)), "{told}");
    shop.until_replicas("web", 0).await?;
    shop.turn("Up", "Rewrite").await?;
    shop.until_replicas("web", 3).await
}

fn is_automated(application: &Value) -> bool {
    let block = &application["spec"]["syncPolicy"]["automated"];
    block.is_object() && block["enabled"] != false
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a7_a_person_who_resumes_by_night_is_told_of_and_keeps_what_they_wished() -> anyhow::Result<()> {
    let shop = Shop::start("person", &[("web.yaml", &deployment("web", Some(3), IMAGE))], &policy()).await?;
    shop.turn("Down", "Rewrite").await?;
    shop.until_replicas("web", 0).await?;
    let wish = json!({"prune": false, "selfHeal": true, "enabled": true});
    let patch = json!({"spec": {"syncPolicy": {"automated": wish}}}).to_string();
    wait_for("the servers to give way", LATER, || async {
        let conditions = shop.conditions().await?.to_string();
        if conditions.contains("PauseReverted") {
            ensure!(conditions.contains("kubectl"), "who? {conditions}");
            return Ok(());
        }
        if !is_automated(&shop.application().await?) {
            let words = [
                "patch",
                "application",
                &shop.name,
                "-n",
                ARGOCD_NAMESPACE,
                "--type=merge",
                "-p",
                &patch,
            ];
            shop.stage.kubectl(&words).await?;
        }
        anyhow::bail!("{conditions}")
    })
    .await?;
    shop.until_event("PauseReverted").await?;
    // The webhook holds the workload, whatever Argo CD now tries.
    shop.until_replicas("web", 0).await?;
    shop.turn("Up", "Rewrite").await?;
    let after = shop.until_resumed().await?;
    ensure!(is_automated(&after), "{}", after["spec"]);
    ensure!(
        after["spec"]["syncPolicy"]["retry"] == policy()["retry"],
        "{}",
        after["spec"]
    );
    let block = &after["spec"]["syncPolicy"]["automated"];
    ensure!(block["prune"] != true && block["selfHeal"] == true, "{block}");
    shop.until_synced().await
}

/// The `ApplicationSet` of a shop, with more in its spec.
fn application_set(shop: &Shop, more: &Value) -> String {
    let manifest = Shop::manifest(&shop.name, &shop.repository, &shop.namespace, &policy());
    let mut spec = json!({
        "goTemplate": true,
        "generators": [{"list": {"elements": [{"name": shop.name}]}}],
        "template": {"metadata": {"name": "{{.name}}"}, "spec": manifest["spec"]},
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": shop.name, "namespace": ARGOCD_NAMESPACE}, "spec": spec,
    })
    .to_string()
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a7_an_application_set_that_reverts_is_named_with_its_remedy() -> anyhow::Result<()> {
    let shop = Shop::without_application("set", &[("web.yaml", &deployment("web", Some(3), IMAGE))]).await?;
    let set = application_set(&shop, &json!({}));
    shop.stage.cluster.plane.apply(&set).await?;
    shop.until_synced().await?;
    a_night_with_a_revert(&shop, ["ApplicationSet", "ignoreApplicationDifferences"]).await?;
    ensure!(is_automated(&shop.application().await?));
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a7_with_the_remedy_an_application_set_lets_its_application_sleep() -> anyhow::Result<()> {
    let shop = Shop::without_application("remedy", &[("web.yaml", &deployment("web", Some(3), IMAGE))]).await?;
    let remedy = json!({
        "ignoreApplicationDifferences": [{"jsonPointers": ["/spec/syncPolicy/automated"]}],
        "preservedFields": {"annotations": ["offhours.platform.io/original-automated", "offhours.platform.io/down-since"]},
    });
    let set = application_set(&shop, &remedy);
    shop.stage.cluster.plane.apply(&set).await?;
    shop.until_synced().await?;
    a_night_without_a_revert(&shop).await
}

/// A shop whose Application is what a parent Application has in Git.
async fn with_parent(prefix: &str, policy: &Value, more: &Value) -> anyhow::Result<(Shop, String)> {
    let shop = Shop::without_application(prefix, &[("web.yaml", &deployment("web", Some(3), IMAGE))]).await?;
    let child = Shop::manifest(&shop.name, &shop.repository, &shop.namespace, policy);
    let parent = format!("{}-parent", shop.name);
    let repository = shop.stage.argo.repository(&parent).await?;
    repository.commit(&[("child.yaml", &child.to_string())])?;
    let automated = json!({"automated": {"prune": true, "selfHeal": true}});
    let mut manifest = Shop::manifest(&parent, &repository, ARGOCD_NAMESPACE, &automated);
    for (key, value) in more.as_object().unwrap() {
        manifest["spec"][key] = value.clone();
    }
    shop.stage.cluster.plane.apply(&manifest.to_string()).await?;
    shop.until_synced().await?;
    Ok((shop, parent))
}

/// What Git does not speak of is no difference to Argo CD: where `enabled` is known, only a manifest that names it reverts.
fn policy_that_reverts() -> Value {
    let mut policy = without_false(&policy());
    if argocd_version() != "2.14" {
        policy["automated"]["enabled"] = true.into();
    }
    policy
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a7_a_parent_that_reverts_is_named_with_its_remedy() -> anyhow::Result<()> {
    let (shop, parent) = with_parent("child", &policy_that_reverts(), &json!({})).await?;
    a_night_with_a_revert(&shop, [&parent, "RespectIgnoreDifferences"]).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a7_with_the_remedy_a_parent_lets_its_child_sleep() -> anyhow::Result<()> {
    let remedy = json!({
        "syncPolicy": {"automated": {"prune": true, "selfHeal": true}, "syncOptions": ["RespectIgnoreDifferences=true"]},
        "ignoreDifferences": [{
            "group": "argoproj.io", "kind": "Application", "jsonPointers": ["/spec/syncPolicy/automated"],
        }],
    });
    let (shop, _) = with_parent("heir", &policy_that_reverts(), &remedy).await?;
    a_night_without_a_revert(&shop).await
}
