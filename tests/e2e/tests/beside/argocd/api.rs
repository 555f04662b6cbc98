//! The HTTP API as the real server speaks it, in good and in bad times.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use harness::{ARGOCD_NAMESPACE, wait_for};
use json_patch::Patch;
use scheduler::argo::{ArgoApi, ArgoError, application_ref};
use serde_json::json;
use shared::settings::{ArgoApi as Settings, ArgoToken, Secret};

use super::{
    proxy::{Mode, Proxy},
    stage::{LATER, Shop, deployment, policy},
};

const IMAGE: &str = "nginx:1.27";

pub fn client(address: &str, token: &str) -> anyhow::Result<ArgoApi> {
    let settings = Settings {
        url: format!("http://{address}"),
        token: ArgoToken::Given(Secret::new(token)),
        insecure: false,
        authority_file: None,
        retries: 0,
        retry_base: Duration::from_millis(50),
        retry_max: Duration::from_millis(50),
    };
    Ok(ArgoApi::new(&settings, None)?)
}

fn patch(operations: serde_json::Value) -> anyhow::Result<Patch> {
    Ok(serde_json::from_value(operations)?)
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a9_the_real_server_answers_as_we_read_it() -> anyhow::Result<()> {
    let shop = Shop::start_alone(
        "details",
        &[("web.yaml", &deployment("web", Some(1), IMAGE))],
        &policy(),
    )
    .await?;
    let argo = &shop.stage.argo;
    let token = argo.token("offhours", LATER * 30).await?;
    let api = client(&argo.address(), &token)?;
    let reference = application_ref(ARGOCD_NAMESPACE, shop.name.as_str());

    // A listing with chosen fields holds all that is looked at in it.
    let listed = api.list().await?;
    let one = listed
        .iter()
        .find(|one| one.reference() == reference)
        .context("not listed")?;
    ensure!(*one.destination_namespace == *shop.namespace && *one.destination == *"https://kubernetes.default.svc");
    ensure!(
        one.resources
            .iter()
            .any(|it| *it.kind == *"Deployment" && *it.name == *"web"),
        "{:?}",
        one.resources
    );
    ensure!(one.is_automated(), "{one:?}");
    let whole = api.get(&reference).await?.context("not there")?;
    ensure!(
        !whole.object.uid.is_empty() && !whole.object.resource_version.is_empty(),
        "{whole:?}"
    );

    // One that is not there is as one that we may not see.
    ensure!(api.get(&application_ref(ARGOCD_NAMESPACE, "nobody")).await?.is_none());
    // A patch that cannot be applied is told apart from a server in trouble.
    let bad = patch(json!([{"op": "test", "path": "/metadata/uid", "value": "another"}]))?;
    let refused = api.patch(&reference, &bad).await;
    ensure!(
        matches!(
            refused,
            Err(ArgoError::Refused {
                status: 500,
                code: 2,
                ..
            })
        ),
        "{refused:?}"
    );
    // A good one is applied, and a second sync beside one under way is as good as done.
    let good = patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"example.com/seen": "yes"}}]))?;
    api.patch(&reference, &good).await?;
    ensure!(shop.application().await?["metadata"]["labels"]["example.com/seen"] == "yes");
    api.sync(&reference).await?;
    api.sync(&reference).await?;
    shop.until_synced().await?;

    // Without rights the list is empty, and that is no answer.
    let powerless = client(&argo.address(), &argo.token("nobody", LATER).await?)?;
    let nothing = powerless.list().await;
    ensure!(matches!(nothing, Err(ArgoError::NothingListed)), "{nothing:?}");
    ensure!(powerless.get(&reference).await?.is_none());
    let wrong = client(&argo.address(), "no-such-token")?.list().await;
    ensure!(matches!(wrong, Err(ArgoError::TokenExpired(_))), "{wrong:?}");
    let short = client(&argo.address(), &argo.token("offhours", Duration::from_secs(1)).await?)?;
    wait_for("the token to expire", LATER, || async {
        match short.list().await {
            Err(ArgoError::TokenExpired(_)) => Ok(()),
            other => anyhow::bail!("{other:?}"),
        }
    })
    .await
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a9_a_server_in_trouble_is_asked_again_or_nothing_is_scaled() -> anyhow::Result<()> {
    let shop = Shop::start_alone(
        "trouble",
        &[("web.yaml", &deployment("web", Some(2), IMAGE))],
        &policy(),
    )
    .await?;
    let argo = &shop.stage.argo;
    let token = argo.token("offhours", LATER * 30).await?;
    let proxy = Proxy::start(argo.address()).await?;
    let before = shop.application().await?["spec"].take();

    // A token that has expired, a server that refuses, closes, or does not answer at all.
    let short = argo.token("offhours", Duration::from_secs(1)).await?;
    let expired = client(&argo.address(), &short)?;
    wait_for("the token to expire", LATER, || async {
        ensure!(expired.list().await.is_err(), "still valid");
        Ok(())
    })
    .await?;
    let ended = shop.one_pass("shutdown", &argo.address(), &short).await?;
    ensure!(
        ended.code == 1 && ended.text().contains("token is expired"),
        "{} {}",
        ended.code,
        ended.text()
    );
    for mode in [
        Mode::Refuse(500, usize::MAX),
        Mode::Refuse(429, usize::MAX),
        Mode::Close,
    ] {
        proxy.set(mode);
        let ended = shop.one_pass("shutdown", &proxy.address, &token).await?;
        ensure!(ended.code == 1, "{mode:?}: {} {}", ended.code, ended.text());
        ensure!(
            ended.text().contains("ApplicationsUnknown"),
            "{mode:?}: {}",
            ended.text()
        );
        ensure!(proxy.refused() == 3, "{mode:?}: two retries after the first try");
    }
    ensure!(shop.replicas("web").await? == 2 && shop.application().await?["spec"] == before);

    // Trouble that passes is not told.
    proxy.set(Mode::Refuse(429, 2));
    let ended = shop.one_pass("shutdown", &proxy.address, &token).await?;
    ensure!(
        ended.code == 0 && proxy.refused() == 2,
        "{} {}",
        ended.code,
        ended.text()
    );
    ensure!(shop.replicas("web").await? == 0, "{}", ended.text());

    // In the morning nobody answers: workloads come back, the Application cannot, and the exit code says so.
    proxy.set(Mode::Refuse(500, usize::MAX));
    let ended = shop.one_pass("startup", &proxy.address, &token).await?;
    ensure!(ended.code == 1, "{} {}", ended.code, ended.text());
    ensure!(shop.replicas("web").await? == 2, "{}", ended.text());
    ensure!(shop.application().await?["spec"] != before, "resumed by nobody");
    proxy.set(Mode::Pass);
    let ended = shop.one_pass("startup", &proxy.address, &token).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    shop.until_resumed().await?;
    shop.until_synced().await?;
    ensure!(shop.replicas("web").await? == 2);
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a9_a_server_that_never_answers_does_not_hold_a_pass_for_ever() -> anyhow::Result<()> {
    let shop = Shop::start_alone("mute", &[("web.yaml", &deployment("web", Some(2), IMAGE))], &policy()).await?;
    let token = shop.stage.argo.token("offhours", LATER * 30).await?;
    let proxy = Proxy::start(shop.stage.argo.address()).await?;
    proxy.set(Mode::Hang);
    let ended = shop.one_pass("shutdown", &proxy.address, &token).await?;
    ensure!(
        ended.code == 1 && ended.text().contains("ApplicationsUnknown"),
        "{} {}",
        ended.code,
        ended.text()
    );
    ensure!(shop.replicas("web").await? == 2);
    Ok(())
}

/// Argo CD's own server makes itself a certificate and signs it itself.
#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn rule_a9_over_tls_a_certificate_is_believed_only_where_it_was_given() -> anyhow::Result<()> {
    let shop = Shop::start_alone("tls", &[("web.yaml", &deployment("web", Some(2), IMAGE))], &policy()).await?;
    let plane = &shop.stage.cluster.plane;
    let server = shop.stage.argo.serve_tls(plane).await?;
    let token = shop.stage.argo.token("offhours", LATER * 30).await?;
    let before = shop.application().await?["spec"].take();
    let folder = tempfile::tempdir()?;
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        anyhow::Ok(path.display().to_string())
    };
    let theirs = file("argocd.crt", &server.certificate)?;
    let another = file("another.crt", plane.authority_pem())?;
    let pass = async |action: &str, more: Option<(&str, &str)>| {
        let mut variables = vec![("ACTION", action), ("SCHEDULE_SCOPE", "namespace")];
        variables.extend(more);
        shop.one_pass_with(&variables, &server.url, &token).await
    };

    for authority in [None, Some(("ARGO_CA_FILE", another.as_str()))] {
        let ended = pass("shutdown", authority).await?;
        ensure!(ended.code == 1, "{} {}", ended.code, ended.text());
        for told in ["ApplicationsUnknown", "UnknownIssuer", "ARGO_CA_FILE"] {
            ensure!(ended.text().contains(told), "{told}: {}", ended.text());
        }
        ensure!(shop.replicas("web").await? == 2 && shop.application().await?["spec"] == before);
    }
    let nobody = folder.path().join("nobody.crt").display().to_string();
    let ended = pass("shutdown", Some(("ARGO_CA_FILE", &nobody))).await?;
    ensure!(ended.code == 1 && ended.text().contains(&nobody), "{}", ended.text());
    ensure!(shop.replicas("web").await? == 2);

    let ended = pass("shutdown", Some(("ARGO_CA_FILE", &theirs))).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    ensure!(shop.replicas("web").await? == 0, "{}", ended.text());
    ensure!(shop.application().await?["spec"] != before);
    // Whoever does not want to know who answers may say so.
    let ended = pass("startup", Some(("ARGO_INSECURE", "true"))).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    ensure!(shop.replicas("web").await? == 2, "{}", ended.text());
    shop.until_resumed().await?;
    shop.until_synced().await
}
