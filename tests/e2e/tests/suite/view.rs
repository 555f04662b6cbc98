//! The View against a real API server: lists, watches, custom kinds, rights, tokens, a restart.

use std::sync::Arc;

use anyhow::ensure;
use cluster::{
    client::{ClientSettings, Clients},
    follow::{Follower, Scope},
    reflector::Pace,
    store::SourceState,
};
use harness::{ControlPlane, Identity, Options, SOON, wait_for};
use shared::{
    kinds::Kinds,
    workload::{ObjectRef, Workload},
};

/// A Deployment of this name.
pub fn deployment(name: &str, replicas: u32) -> String {
    format!(
        r"apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: c, image: registry.example/c:1}}]}}
"
    )
}

pub fn reference(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: "apps".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

pub async fn clients(plane: &ControlPlane, who: &Identity) -> anyhow::Result<Clients> {
    let settings = ClientSettings {
        kubeconfig: Some(plane.kubeconfig_for(who)?),
        ..ClientSettings::new("0.0.0")
    };
    Ok(Clients::connect(&settings).await?)
}

/// Follows these kinds of workload with somebody's rights.
pub async fn follow(plane: &ControlPlane, who: &Identity, kinds: &[(&str, &str)]) -> anyhow::Result<Follower> {
    let clients = clients(plane, who).await?;
    let follower = Follower::start(clients.watches, Kinds::default(), Scope::Cluster, Pace::default());
    for (group, kind) in kinds {
        follower.follow_kind(&Arc::clone(follower.view().kinds().by_kind(group, kind).unwrap()));
    }
    Ok(follower)
}

pub fn replicas(workload: &Workload) -> Option<u64> {
    workload.knobs.first()?.value.as_ref()?.as_u64()
}

/// Waits until the View shows this number.
pub async fn sees(follower: &Follower, object: &ObjectRef, wanted: Option<u64>) -> anyhow::Result<()> {
    wait_for(&format!("{object} at {wanted:?} in the view"), SOON, || async {
        let seen = follower.view().workload(object).as_deref().and_then(replicas);
        ensure!(seen == wanted, "{seen:?}, {:?}", follower.view().unfilled());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_view_follows_what_kubectl_does() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("view", &[]).await?;
    let apply = |yaml: String| {
        plane
            .kubectl(&["apply", "-n", &namespace, "-f", "-"])
            .map(|call| call.stdin(yaml))
    };
    apply(deployment("web", 2))?.ok().await?;
    let follower = follow(
        plane,
        &Identity::admin(),
        &[("apps", "Deployment"), ("apps", "StatefulSet")],
    )
    .await?;
    let web = reference("Deployment", &namespace, "web");
    tokio::time::timeout(SOON, follower.view().filled()).await?;
    ensure!(follower.view().namespaces().get("", &namespace).is_some());
    sees(&follower, &web, Some(2)).await?;
    plane
        .kubectl(&["scale", "-n", &namespace, "deployment/web", "--replicas=3"])?
        .ok()
        .await?;
    sees(&follower, &web, Some(3)).await?;
    apply(deployment("new", 1))?.ok().await?;
    sees(&follower, &reference("Deployment", &namespace, "new"), Some(1)).await?;
    plane
        .kubectl(&["delete", "-n", &namespace, "deployment/web"])?
        .ok()
        .await?;
    sees(&follower, &web, None).await?;
    wait_for("new to be ready in the view", SOON, || async {
        let new = follower.view().workload(&reference("Deployment", &namespace, "new"));
        ensure!(new.is_some_and(|new| new.ready));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_custom_kind_comes_and_goes_with_its_definition() -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::named("custom-kind")
    })
    .await?;
    let namespace = plane.namespace("view", &[]).await?;
    let follower = follow(&plane, &Identity::admin(), &[("argoproj.io", "Rollout")]).await?;
    let state = || follower.view().workload_state("argoproj.io", "Rollout").unwrap();
    let becomes = |wanted: SourceState| async move {
        wait_for("the kind's state", SOON, || async {
            ensure!(state() == wanted, "{:?}", state());
            Ok(())
        })
        .await
    };
    becomes(SourceState::Absent).await?;
    let definition = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rollouts.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {plural: rollouts, singular: rollout, kind: Rollout}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
    let rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: canary}\nspec: {replicas: 4}\n";
    let canary = ObjectRef {
        group: "argoproj.io".into(),
        ..reference("Rollout", &namespace, "canary")
    };
    for _ in 0..2 {
        plane.apply(definition).await?;
        becomes(SourceState::Filled).await?;
        let apply = plane.kubectl(&["apply", "-n", &namespace, "-f", "-"])?.stdin(rollout);
        wait_for("the rollout to be applied", SOON, || async {
            apply.ok().await.map(drop)
        })
        .await?;
        sees(&follower, &canary, Some(4)).await?;
        plane.kubectl(&["delete", "crd", "rollouts.argoproj.io"])?.ok().await?;
        becomes(SourceState::Absent).await?;
        sees(&follower, &canary, None).await?;
    }
    Ok(())
}

#[tokio::test]
async fn case_7_01_a_kind_without_rights_is_forbidden_and_the_others_are_followed() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("view", &[]).await?;
    plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(deployment("web", 2))
        .ok()
        .await?;
    let name = plane.unique_name("reader");
    let who = Identity::user(&name, &[]);
    plane
        .apply(&format!(
            r#"apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules:
- {{apiGroups: ["apps"], resources: ["deployments"], verbs: ["list", "watch"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {name}}}]
"#
        ))
        .await?;
    let kinds = [("apps", "Deployment"), ("batch", "Job"), ("argoproj.io", "Rollout")];
    let follower = follow(plane, &who, &kinds).await?;
    sees(&follower, &reference("Deployment", &namespace, "web"), Some(2)).await?;
    wait_for("the missing right to be told", SOON, || async {
        let state = follower.view().workload_state("batch", "Job");
        let Some(SourceState::Forbidden { message }) = &state else {
            anyhow::bail!("{state:?}")
        };
        ensure!(
            message.contains("list jobs.batch") && message.contains("403"),
            "{message}"
        );
        Ok(())
    })
    .await?;
    tokio::time::timeout(SOON, follower.view().filled()).await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_of_the_api_server_loses_nothing() -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::named("restart")
    })
    .await?;
    let namespace = plane.namespace("view", &[]).await?;
    plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(deployment("web", 2))
        .ok()
        .await?;
    let follower = follow(&plane, &Identity::admin(), &[("apps", "Deployment")]).await?;
    let web = reference("Deployment", &namespace, "web");
    sees(&follower, &web, Some(2)).await?;
    plane.restart("kube-apiserver").await?;
    ensure!(
        follower.view().workload(&web).is_some(),
        "a failed watch is not an empty one"
    );
    plane
        .kubectl(&["scale", "-n", &namespace, "deployment/web", "--replicas=5"])?
        .ok()
        .await?;
    sees(&follower, &web, Some(5)).await?;
    wait_for("the watch to be well", SOON, || async {
        let state = follower.view().workload_state("apps", "Deployment");
        ensure!(state == Some(SourceState::Filled), "{state:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn case_6_16_a_replaced_token_is_used_within_a_minute() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("view", &[]).await?;
    let token = plane.service_account_token(&namespace, "eyes").await?;
    plane
        .kubectl(&[
            "create",
            "clusterrolebinding",
            &plane.unique_name("eyes"),
            "--clusterrole=view",
            &format!("--serviceaccount={namespace}:eyes"),
        ])?
        .ok()
        .await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    std::fs::write(&file, "refused")?;
    let mut config = plane.config(&Identity::admin()).await?;
    config.auth_info = kube::config::AuthInfo {
        token_file: Some(file.display().to_string()),
        ..kube::config::AuthInfo::default()
    };
    let clients = Clients::with_config(config, &ClientSettings::new("0.0.0"))?;
    let follower = Follower::start_renewing(&clients, Kinds::default(), Scope::Cluster, Pace::default());
    let kind = Arc::clone(follower.view().kinds().by_kind("apps", "Deployment").unwrap());
    follower.follow_kind(&kind);
    wait_for("the refusal to be told", SOON, || async {
        let time = follower.view().unauthorized_for();
        ensure!(
            time.is_some(),
            "{:?}",
            follower.view().workload_state("apps", "Deployment")
        );
        Ok(())
    })
    .await?;
    std::fs::write(&file, token)?;
    wait_for("the new token to be used", SOON, || async {
        let state = follower.view().workload_state("apps", "Deployment");
        ensure!(state == Some(SourceState::Filled), "{state:?}");
        ensure!(follower.view().unauthorized_for().is_none());
        Ok(())
    })
    .await
}
