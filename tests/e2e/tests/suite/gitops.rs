//! Whole nights beside Argo CD, Flux and KEDA objects on a real API server. The definitions are of the tests' own making, and
//! their controllers are played by stand-ins that say what they imitate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use harness::{ControlPlane, Options, SOON, wait_for};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use shared::schedule::State;

use crate::{hpa::Night, view::deployment};

fn definition(group: &str, version: &str, kind: &str, plural: &str, schema: &Value) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
    .to_string()
}

/// `spec.syncPolicy.automated` as in Argo CD 3.x, or as in 2.14, which does not know `enabled`: the API server prunes it.
fn application_schema(old: bool) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let flag = json!({"type": "boolean"});
    let mut automated = json!({"prune": flag, "selfHeal": flag, "allowEmpty": flag});
    if !old {
        automated["enabled"] = flag;
    }
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"syncPolicy": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"automated": {"type": "object", "properties": automated}},
        }}},
        "status": open, "operation": open,
    }})
}

async fn plane(name: &str, definitions: &[String]) -> anyhow::Result<&'static ControlPlane> {
    let options = Options {
        controllers: false,
        ..Options::named(name)
    };
    // It ends with this program.
    let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start(options).await?));
    for definition in definitions {
        plane.apply(definition).await?;
    }
    Ok(plane)
}

fn objects(client: &Client, night: &Night, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(
        client.clone(),
        &night.namespace,
        &ApiResource::from_gvk_with_plural(&kind, plural),
    )
}

/// Applies an object of a definition that may be served only in a moment.
async fn add(night: &Night, object: &Value) -> anyhow::Result<()> {
    let text = object.to_string();
    wait_for("the object to be taken", SOON, || night.apply(&text)).await
}

/// Self-heal: while an Application is automated, its controller puts the replicas of Git back half a second after they changed
/// (`argocd-application-controller`, `--self-heal-timeout-seconds`; a pause takes effect with its next look).
async fn self_heal(
    applications: Api<DynamicObject>,
    client: Client,
    namespace: String,
    replicas: u32,
    looks: Arc<AtomicU32>,
) {
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client, &namespace);
    let mut beat = tokio::time::interval(Duration::from_millis(500));
    loop {
        beat.tick().await;
        let Ok(shop) = applications.get("shop").await else {
            continue;
        };
        let automated = &shop.data["spec"]["syncPolicy"]["automated"];
        if automated.is_object() && automated["enabled"] != false {
            let git = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let _ = deployments.patch("web", &PatchParams::default(), &git).await;
        }
        looks.fetch_add(1, Ordering::Relaxed);
    }
}

async fn a_night_under_argo_cd(old: bool) -> anyhow::Result<()> {
    let schema = application_schema(old);
    let name = if old { "argo-old" } else { "argo" };
    let plane = plane(
        name,
        &[definition(
            "argoproj.io",
            "v1alpha1",
            "Application",
            "applications",
            &schema,
        )],
    )
    .await?;
    let night = Night::on(plane, json!({"argo": {"pause": true}})).await?;
    night.apply(&deployment("web", 3)).await?;
    let policy = json!({
        "automated": {"prune": true, "selfHeal": true}, "syncOptions": ["CreateNamespace=true"],
        "retry": {"limit": 5, "backoff": {"duration": "5s"}},
    });
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "shop"},
        "spec": {"project": "default", "syncPolicy": policy,
            "destination": {"server": "https://kubernetes.default.svc", "namespace": night.namespace}},
        "status": {"resources": [{"group": "apps", "kind": "Deployment", "namespace": night.namespace, "name": "web"}]},
    });
    add(&night, &application).await?;
    let client = plane.admin().await?;
    let applications = objects(
        &client,
        &night,
        "argoproj.io",
        "v1alpha1",
        "Application",
        "applications",
    );
    let looks = Arc::new(AtomicU32::new(0));
    let namespace = night.namespace.clone();
    let healer = tokio::spawn(self_heal(
        applications.clone(),
        client,
        namespace,
        3,
        Arc::clone(&looks),
    ));

    night.bring(State::Down).await?;
    let paused = applications.get("shop").await?.data["spec"]["syncPolicy"].clone();
    let block = paused.get("automated");
    ensure!(old == block.is_none(), "{paused}");
    ensure!(block.is_none_or(|block| *block == json!({"prune": true, "selfHeal": true, "enabled": false})));
    ensure!(night.backups().await? == 1);
    let seen = looks.load(Ordering::Relaxed);
    wait_for("the controller to look three times more", SOON, || async {
        ensure!(looks.load(Ordering::Relaxed) >= seen + 3);
        Ok(())
    })
    .await?;
    ensure!(night.replicas("web").await? == 0);

    night.bring(State::Up).await?;
    ensure!(night.replicas("web").await? == 3);
    let shop = applications.get("shop").await?;
    ensure!(shop.data["spec"]["syncPolicy"] == policy, "{}", shop.data);
    let left = shop.metadata.annotations.unwrap_or_default();
    ensure!(!left.keys().any(|key| key.starts_with("offhours.")), "{left:?}");
    ensure!(night.backups().await? == 0);
    healer.abort();
    Ok(())
}

#[tokio::test]
async fn case_4_01_an_application_is_paused_and_its_policy_comes_back_byte_for_byte() -> anyhow::Result<()> {
    a_night_under_argo_cd(false).await
}

#[tokio::test]
async fn case_4_05_where_the_definition_does_not_know_enabled_the_block_is_removed() -> anyhow::Result<()> {
    a_night_under_argo_cd(true).await
}

#[tokio::test]
async fn flux_and_keda_objects_sleep_and_wake_exactly_as_they_were() -> anyhow::Result<()> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let flux = ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations");
    let keda = ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");
    let definitions =
        [flux, keda].map(|(group, version, kind, plural)| definition(group, version, kind, plural, &open));
    let plane = plane("flux-keda", &definitions).await?;
    let night = Night::on(plane, json!({"flux": {"pause": true}})).await?;
    let client = plane.admin().await?;
    night.apply(&deployment("web", 3)).await?;
    night.apply(&deployment("queue", 2)).await?;
    // What kustomize-controller writes on all that it applies.
    let name = "kustomize.toolkit.fluxcd.io/name=shop";
    let owner_place = format!("kustomize.toolkit.fluxcd.io/namespace={}", night.namespace);
    let label = ["label", "deployment", "web", name, &owner_place, "-n", &night.namespace];
    plane.kubectl(&label)?.ok().await?;
    add(
        &night,
        &json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "shop"}, "spec": {"interval": "10m"}}),
    )
    .await?;
    add(
        &night,
        &json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "queue", "annotations": {"autoscaling.keda.sh/paused-replicas": "4"}},
        "spec": {"scaleTargetRef": {"name": "queue"}}}),
    )
    .await?;
    let kustomizations = objects(&client, &night, flux.0, flux.1, flux.2, flux.3);
    let scaled = objects(&client, &night, keda.0, keda.1, keda.2, keda.3);

    night.bring(State::Down).await?;
    ensure!(kustomizations.get("shop").await?.data["spec"] == json!({"interval": "10m", "suspend": true}));
    let pause = |object: DynamicObject| object.metadata.annotations.unwrap_or_default();
    let key = "autoscaling.keda.sh/paused-replicas";
    ensure!(pause(scaled.get("queue").await?)[key] == "0");
    ensure!(night.replicas("web").await? == 0);
    ensure!(night.replicas("queue").await? == 2, "what KEDA scales is KEDA's");

    night.bring(State::Up).await?;
    ensure!(kustomizations.get("shop").await?.data["spec"] == json!({"interval": "10m"}));
    ensure!(pause(scaled.get("queue").await?)[key] == "4");
    ensure!(night.replicas("web").await? == 3);
    for object in [kustomizations.get("shop").await?, scaled.get("queue").await?] {
        let left = pause(object);
        ensure!(!left.keys().any(|key| key.starts_with("offhours.")), "{left:?}");
    }
    Ok(())
}
