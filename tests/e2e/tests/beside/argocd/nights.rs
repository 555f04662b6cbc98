//! Whole nights: the Application stays paused, its workloads stay asleep, and both come back as they were.

use anyhow::ensure;
use harness::{ARGOCD_NAMESPACE, AuditQuery, Identity, wait_for};
use scheduler::argo::application_ref;
use serde_json::json;

use super::{
    api::client,
    stage::{LATER, Shop, deployment, one_pass_identity, policy, without_false},
};

const IMAGE: &str = "nginx:1.27";

/// Argo CD looks several times and does nothing about what sleeps.
async fn stays_asleep(shop: &Shop) -> anyhow::Result<()> {
    let before = shop.syncs().await?;
    for _ in 0..3 {
        shop.refresh().await?;
        let replicas = shop.replicas("web").await?;
        ensure!(replicas == 0, "awake: {replicas}");
    }
    let after = shop.syncs().await?;
    ensure!(before == after, "synced by night: {before:?} {after:?}");
    Ok(())
}

async fn a_night_by_the_servers(prefix: &str, in_git: Option<u32>) -> anyhow::Result<()> {
    let shop = Shop::start(prefix, &[("web.yaml", &deployment("web", in_git, IMAGE))], &policy()).await?;
    if in_git.is_none() {
        let scale = ["scale", "deployment", "web", "--replicas=3", "-n", &shop.namespace];
        shop.stage.kubectl(&scale).await?;
    }
    shop.until_replicas("web", 3).await?;
    shop.until_synced().await?;
    let (before, by_day) = (shop.application().await?, shop.syncs().await?);

    // Nobody holds what is down: the pause alone must do.
    shop.turn("Down", "Off").await?;
    shop.until_replicas("web", 0).await?;
    stays_asleep(&shop).await?;

    shop.turn("Up", "Off").await?;
    shop.until_replicas("web", 3).await?;
    let after = shop.until_resumed().await?;
    ensure!(
        after["spec"] == before["spec"],
        "{} -> {}",
        before["spec"],
        after["spec"]
    );
    ensure!(after["metadata"]["annotations"] == before["metadata"]["annotations"]);
    shop.refresh().await?;
    shop.until_synced().await?;
    let next_day = shop.syncs().await?;
    ensure!(by_day == next_day, "a sync that nobody needs: {by_day:?} {next_day:?}");
    ensure!(shop.replicas("web").await? == 3);

    // It is automated again: what somebody changes is healed.
    let scale = ["scale", "deployment", "web", "--replicas=5", "-n", &shop.namespace];
    if in_git.is_some() {
        shop.stage.kubectl(&scale).await?;
        shop.until_replicas("web", 3).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a3_an_application_sleeps_through_the_night_and_comes_back_as_it_was() -> anyhow::Result<()> {
    a_night_by_the_servers("replicas", Some(3)).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a3_so_does_one_whose_manifests_say_no_replicas() -> anyhow::Result<()> {
    a_night_by_the_servers("bare", None).await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a4_by_the_http_api_a_whole_night_loses_nothing_of_the_policy() -> anyhow::Result<()> {
    let shop = Shop::start_alone("http", &[("web.yaml", &deployment("web", Some(3), IMAGE))], &policy()).await?;
    let before = shop.application().await?;
    let audit = shop.stage.cluster.plane.audit().await?;
    let mark = audit.mark().await?;
    let token = shop.stage.argo.token("offhours", LATER * 30).await?;
    let server = shop.stage.argo.address();

    let ended = shop.one_pass("shutdown", &server, &token).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    ensure!(shop.replicas("web").await? == 0, "{}", ended.text());
    stays_asleep(&shop).await?;
    let again = shop.one_pass("shutdown", &server, &token).await?;
    ensure!(
        again.code == 0 && again.text().contains("0 written, 0 skipped, 0 failed"),
        "{}",
        again.text()
    );

    let ended = shop.one_pass("startup", &server, &token).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    ensure!(shop.replicas("web").await? == 3, "{}", ended.text());
    let after = shop.until_resumed().await?;
    ensure!(
        without_false(&after["spec"]["syncPolicy"]) == without_false(&before["spec"]["syncPolicy"]),
        "{} -> {}",
        before["spec"],
        after["spec"]
    );
    shop.until_synced().await?;
    ensure!(shop.replicas("web").await? == 3);

    // All of it went through Argo CD: no right on its objects was used.
    let mine = AuditQuery::new().since(mark).user(&one_pass_identity().user);
    let requests = audit.requests(&mine).await?;
    let direct: Vec<_> = requests
        .iter()
        .map(harness::AuditedRequest::line)
        .filter(|line| line.contains(" applications"))
        .collect();
    ensure!(!requests.is_empty() && direct.is_empty(), "{direct:?}");
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a5_a_commit_while_paused_is_synced_once_after_the_resume() -> anyhow::Result<()> {
    let shop = Shop::start("commit", &[("web.yaml", &deployment("web", Some(3), IMAGE))], &policy()).await?;
    shop.turn("Down", "Off").await?;
    shop.until_replicas("web", 0).await?;
    let by_night = shop.syncs().await?;
    let newer = "nginx:1.28";
    let revision = shop
        .repository
        .commit(&[("web.yaml", &deployment("web", Some(3), newer))])?;
    stays_asleep(&shop).await?;
    ensure!(shop.syncs().await? == by_night);

    let audit = shop.stage.cluster.plane.audit().await?;
    let mark = audit.mark().await?;
    shop.turn("Up", "Off").await?;
    shop.until_resumed().await?;
    wait_for("the commit to be synced", LATER, || async {
        let status = shop.application().await?["status"].take();
        ensure!(
            status["sync"]["status"] == "Synced" && status["sync"]["revision"] == revision.as_str(),
            "{}",
            status["sync"]
        );
        Ok(())
    })
    .await?;
    shop.refresh().await?;
    shop.until_synced().await?;
    ensure!(
        shop.syncs().await?.0 == by_night.0 + 1,
        "{:?} {by_night:?}",
        shop.syncs().await?
    );
    let web = shop.stage.get("deployment", &shop.namespace, "web").await?;
    let image = &web["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(web["spec"]["replicas"] == 3 && image == newer, "{web}");

    // No flap: one write of the replicas by us, one of the image by Argo CD.
    let argo = Identity::user("argocd-application-controller", &[]);
    let query = AuditQuery::new().since(mark).namespace(&shop.namespace);
    let lines: Vec<_> = audit
        .requests(&query.clone().user(&argo.user).writes())
        .await?
        .iter()
        .map(harness::AuditedRequest::line)
        .filter(|line| line.contains("deployments"))
        .collect();
    ensure!(lines.len() == 1, "{lines:?}");
    Ok(())
}

/// A Job that Argo CD runs before each sync; `long`: its pod does not end.
fn hook(long: bool) -> String {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "migrate", "annotations": {
            "argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
        }},
        "spec": {"template": {
            "metadata": {"annotations": {"harness/runs-on": long.to_string()}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1.36"}]},
        }},
    })
    .to_string()
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a5_no_hook_is_run_by_a_night() -> anyhow::Result<()> {
    let files = [
        ("web.yaml", deployment("web", Some(3), IMAGE)),
        ("hook.yaml", hook(false)),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let shop = Shop::start("hook", &files, &policy()).await?;
    let job = shop.stage.get("job", &shop.namespace, "migrate").await?;
    shop.turn("Down", "Off").await?;
    shop.until_replicas("web", 0).await?;
    stays_asleep(&shop).await?;
    shop.turn("Up", "Off").await?;
    shop.until_replicas("web", 3).await?;
    shop.until_resumed().await?;
    shop.refresh().await?;
    shop.until_synced().await?;
    let after = shop.stage.get("job", &shop.namespace, "migrate").await?;
    ensure!(job["metadata"]["uid"] == after["metadata"]["uid"], "{job} {after}");
    Ok(())
}

/// A commit whose hook does not end: the sync that Argo CD begins runs on.
async fn begin_a_sync_that_runs_on(shop: &Shop) -> anyhow::Result<()> {
    let web = deployment("web", Some(4), IMAGE);
    shop.repository
        .commit(&[("web.yaml", &web), ("hook.yaml", &hook(true))])?;
    shop.refresh().await?;
    wait_for("the sync to run", LATER, || async {
        let state = shop.application().await?["status"]["operationState"].take();
        ensure!(state["phase"] == "Running", "{state}");
        Ok(())
    })
    .await
}

/// It is paused, and yet what runs would put the replicas back.
async fn is_paused_and_stays_up(shop: &Shop) -> anyhow::Result<()> {
    wait_for("the pause", LATER, || async {
        let object = shop.application().await?;
        let saved = &object["metadata"]["annotations"]["offhours.platform.io/original-automated"];
        ensure!(saved.is_string(), "{}", object["metadata"]);
        Ok(())
    })
    .await?;
    for _ in 0..2 {
        shop.refresh().await?;
        ensure!(shop.replicas("web").await? == 3, "asleep under a running operation");
    }
    Ok(())
}

/// Its operation was ended before its time; the night and the morning after that.
async fn sleeps_and_wakes_after_the_end_of_its_operation(shop: &Shop) -> anyhow::Result<()> {
    shop.until_replicas("web", 0).await?;
    stays_asleep(shop).await?;
    let state = shop.application().await?["status"]["operationState"].take();
    ensure!(state["phase"] == "Failed", "{state}");
    shop.turn("Up", "Off").await?;
    shop.until_replicas("web", 3).await?;
    shop.until_resumed().await?;
    Ok(())
}

fn with_a_hook() -> [(&'static str, String); 2] {
    [
        ("web.yaml", deployment("web", Some(3), IMAGE)),
        ("hook.yaml", hook(false)),
    ]
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a3_an_operation_in_flight_at_closing_time_is_waited_for() -> anyhow::Result<()> {
    let files = with_a_hook();
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let shop = Shop::start("flight", &files, &policy()).await?;
    begin_a_sync_that_runs_on(&shop).await?;
    shop.turn("Down", "Off").await?;
    is_paused_and_stays_up(&shop).await?;
    let path = format!("/api/v1/applications/{}/operation", shop.name);
    let (status, answer) = shop.stage.argo.call(&http::Method::DELETE, &path, None).await?;
    ensure!(status == 200, "{answer}");
    sleeps_and_wakes_after_the_end_of_its_operation(&shop).await
}

/// The servers give an operation five minutes, and so does this.
#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a3_one_that_runs_on_is_terminated_where_the_schedule_says_so() -> anyhow::Result<()> {
    let files = with_a_hook();
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let shop = Shop::start("terminate", &files, &policy()).await?;
    begin_a_sync_that_runs_on(&shop).await?;
    shop.turn_with("Down", "Off", &json!({"pause": true, "terminate": true}))
        .await?;
    is_paused_and_stays_up(&shop).await?;
    wait_for("the end of the operation", LATER * 2, || async {
        let state = shop.application().await?["status"]["operationState"].take();
        ensure!(state["phase"] != "Running", "{state}");
        Ok(())
    })
    .await?;
    sleeps_and_wakes_after_the_end_of_its_operation(&shop).await?;
    shop.until_event("OperationTerminated").await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a3_the_http_api_ends_an_operation_too_and_one_that_is_over_is_as_good() -> anyhow::Result<()> {
    let files = with_a_hook();
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let shop = Shop::start_alone("end", &files, &policy()).await?;
    begin_a_sync_that_runs_on(&shop).await?;
    let argo = &shop.stage.argo;
    let api = client(&argo.address(), &argo.token("offhours", LATER * 30).await?)?;
    let reference = application_ref(ARGOCD_NAMESPACE, shop.name.as_str());
    ensure!(api.list().await?.iter().any(|one| one.reference() == reference));
    let phase = "/status/operationState/phase";
    let end = serde_json::from_value(json!([
        {"op": "test", "path": phase, "value": "Running"},
        {"op": "replace", "path": phase, "value": "Terminating"},
    ]))?;
    api.patch(&reference, &end).await?;
    wait_for("the end of the operation", LATER, || async {
        let state = shop.application().await?["status"]["operationState"].take();
        ensure!(state["phase"] == "Failed", "{state}");
        Ok(())
    })
    .await?;
    let after: serde_json::Value = serde_json::from_slice(&api.patch(&reference, &end).await?)?;
    ensure!(after.pointer(phase) == Some(&json!("Failed")), "{after}");
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_e4_a_replacing_sync_by_night_wakes_nothing_that_the_webhook_holds() -> anyhow::Result<()> {
    let manual = json!({"syncOptions": ["Replace=true"]});
    let shop = Shop::without_application("replace", &[("web.yaml", &deployment("web", Some(3), IMAGE))]).await?;
    let manifest = Shop::manifest(&shop.name, &shop.repository, &shop.namespace, &manual);
    shop.stage.cluster.plane.apply(&manifest.to_string()).await?;
    let sync = || async {
        let path = format!("/api/v1/applications/{}/sync", shop.name);
        let (status, answer) = shop
            .stage
            .argo
            .call(&http::Method::POST, &path, Some(&json!({})))
            .await?;
        ensure!(status == 200, "{answer}");
        anyhow::Ok(())
    };
    wait_for("the Application to be compared", LATER, || async {
        let status = shop.application().await?["status"]["sync"]["status"].take();
        ensure!(status == "OutOfSync", "{status}");
        Ok(())
    })
    .await?;
    sync().await?;
    shop.until_synced().await?;
    shop.until_replicas("web", 3).await?;

    shop.turn("Down", "Rewrite").await?;
    shop.until_replicas("web", 0).await?;
    let before = shop.syncs().await?;
    let newer = deployment("web", Some(5), "nginx:1.28");
    shop.repository.commit(&[("web.yaml", &newer)])?;
    shop.refresh().await?;
    sync().await?;
    wait_for("the sync to end", LATER, || async {
        let after = shop.syncs().await?;
        ensure!(after != before, "{after:?}");
        let phase = shop.application().await?["status"]["operationState"]["phase"].take();
        ensure!(phase == "Succeeded", "{phase}");
        Ok(())
    })
    .await?;
    let web = shop.stage.get("deployment", &shop.namespace, "web").await?;
    let image = &web["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(web["spec"]["replicas"] == 0 && image == "nginx:1.28", "{web}");

    // What Git asked for by night is there by day.
    shop.turn("Up", "Rewrite").await?;
    shop.until_replicas("web", 5).await
}
