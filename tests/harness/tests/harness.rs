//! The harness keeps what it promises to the suites that stand on it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use axum::{Json, Router, extract::State, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use harness::{AuditQuery, ControlPlane, Identity, Options, Product, Program, SOON, Signal, wait_for};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

fn deployment(name: &str, replicas: u32) -> String {
    deployment_with(name, replicas, "{}")
}

fn deployment_with(name: &str, replicas: u32, pod_annotations: &str) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}, annotations: {pod_annotations}}}
    spec:
      containers:
      - {{name: main, image: example.com/app, resources: {{requests: {{cpu: 100m}}}}}}
"
    )
}

async fn ready_replicas(deployments: &Api<Deployment>, name: &str) -> anyhow::Result<i32> {
    Ok(deployments
        .get(name)
        .await?
        .status
        .and_then(|status| status.ready_replicas)
        .unwrap_or(0))
}

async fn await_ready(deployments: &Api<Deployment>, name: &str, wanted: i32) -> anyhow::Result<()> {
    wait_for(&format!("{name} to have {wanted} ready replicas"), SOON, || async {
        let ready = ready_replicas(deployments, name).await?;
        ensure!(ready == wanted, "{ready} are ready");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_deployment_becomes_ready_and_its_pods_end_at_zero() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("ready", &[]).await?;
    plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(deployment("web", 3))
        .ok()
        .await?;
    let deployments = Api::namespaced(plane.admin().await?, &namespace);
    await_ready(&deployments, "web", 3).await?;

    let shown = plane.kubectl(&["get", "deploy", "web", "-n", &namespace])?.ok().await?;
    ensure!(shown.stdout.contains("3/3"), "kubectl shows {}", shown.stdout);

    plane
        .kubectl(&["scale", "deploy", "web", "--replicas=0", "-n", &namespace])?
        .ok()
        .await?;
    wait_for("the pods to end", SOON, || async {
        let shown = plane.kubectl(&["get", "pods", "-n", &namespace])?.ok().await?;
        ensure!(shown.stdout.is_empty(), "{}", shown.stdout);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_is_never_ready_or_late_where_its_annotation_says_so() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("unready", &[]).await?;
    let never = deployment_with("never", 2, r#"{harness/never-ready: "true"}"#);
    let late = deployment_with("late", 1, "{harness/ready-after: 2s}");
    let kubectl = plane.kubectl(&["apply", "-n", &namespace, "-f", "-"])?;
    kubectl.clone().stdin(never).ok().await?;
    kubectl.stdin(late).ok().await?;
    let deployments = Api::namespaced(plane.admin().await?, &namespace);
    wait_for("the pods of never to run", SOON, || async {
        let shown = plane
            .kubectl(&["get", "pods", "-l", "app=never", "-n", &namespace])?
            .ok()
            .await?;
        ensure!(shown.stdout.matches("Running").count() == 2, "{}", shown.stdout);
        Ok(())
    })
    .await?;
    await_ready(&deployments, "late", 1).await?;
    ensure!(ready_replicas(&deployments, "never").await? == 0, "never became ready");
    Ok(())
}

#[tokio::test]
async fn a_stateful_set_with_claims_becomes_ready() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("claims", &[]).await?;
    plane.volumes(2).await?;
    let stateful_set = r"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: example.com/db, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(stateful_set)
        .ok()
        .await?;
    wait_for("both pods to be ready", SOON, || async {
        let shown = plane
            .kubectl(&["get", "statefulset,pvc", "-n", &namespace])?
            .ok()
            .await?;
        ensure!(
            shown.stdout.contains("2/2") && shown.stdout.matches("Bound").count() == 2,
            "{}",
            shown.stdout
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn people_are_known_by_name_and_groups_and_rbac_is_enforced() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("people", &[]).await?;
    let dev = Identity::user("dev@example.com", &["blue", "green", "red"]);
    let refused = plane
        .kubectl_as(&dev, &["get", "configmaps", "-n", &namespace])?
        .fails()
        .await?;
    ensure!(
        refused.stderr.contains("Forbidden") && refused.stderr.contains("dev@example.com"),
        "{}",
        refused.stderr
    );

    // the last of several groups counts like the first
    let binding = [
        "create",
        "rolebinding",
        "readers",
        "--clusterrole=view",
        "--group=red",
        "-n",
        &namespace,
    ];
    plane.kubectl(&binding)?.ok().await?;
    wait_for("the binding to take effect", SOON, || async {
        plane
            .kubectl_as(&dev, &["get", "configmaps", "-n", &namespace])?
            .ok()
            .await
    })
    .await?;
    let whoami = plane.kubectl_as(&dev, &["auth", "whoami", "-o", "json"])?.ok().await?;
    let whoami: Value = serde_json::from_str(&whoami.stdout)?;
    let groups = whoami.pointer("/status/userInfo/groups").context("it names groups")?;
    ensure!(
        *groups == json!(["blue", "green", "red", "system:authenticated"]),
        "{whoami}"
    );
    Ok(())
}

#[tokio::test]
async fn a_service_account_has_a_token() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("account", &[]).await?;
    let token = plane.service_account_token(&namespace, "robot").await?;
    let kubeconfig = plane.kubeconfig_with_token(&token)?;
    let whoami = plane.kubectl(&["auth", "whoami"])?.kubeconfig(kubeconfig).ok().await?;
    ensure!(
        whoami
            .stdout
            .contains(&format!("system:serviceaccount:{namespace}:robot")),
        "{}",
        whoami.stdout
    );
    // and by certificate it is the same person
    let robot = Identity::service_account(&namespace, "robot");
    let whoami = plane.kubectl_as(&robot, &["auth", "whoami"])?.ok().await?;
    ensure!(whoami.stdout.contains(&robot.user), "{}", whoami.stdout);
    Ok(())
}

#[tokio::test]
async fn the_audit_log_tells_who_sent_what() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("audit", &[]).await?;
    plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(deployment("web", 1))
        .ok()
        .await?;
    let audit = plane.audit().await?;
    let before = audit.mark().await?;

    let pen = Identity::user("pen", &["system:masters"]);
    let deployments: Api<Deployment> = Api::namespaced(plane.client(&pen).await?, &namespace);
    let params = PatchParams {
        field_manager: Some("the-writer".to_owned()),
        ..PatchParams::default()
    };
    let to_two = json!({"spec": {"replicas": 2}});
    deployments.patch("web", &params, &Patch::Merge(&to_two)).await?;
    deployments
        .patch(
            "web",
            &PatchParams {
                dry_run: true,
                ..params.clone()
            },
            &Patch::Merge(&to_two),
        )
        .await?;
    deployments
        .patch_scale("web", &params, &Patch::Merge(&json!({"spec": {"replicas": 3}})))
        .await?;
    deployments.list(&ListParams::default()).await?;

    let mine = AuditQuery::new().since(before).user("pen");
    let writes = audit.requests(&mine.clone().writes()).await?;
    let lines: Vec<String> = writes.iter().map(harness::AuditedRequest::line).collect();
    let wanted = [
        format!("patch deployments {namespace}/web 200"),
        format!("patch deployments/scale {namespace}/web 200"),
    ];
    ensure!(lines == wanted, "{lines:?}");
    let first = writes.first().context("there is one")?;
    ensure!(first.body.as_ref() == Some(&to_two), "{first:?}");
    ensure!(
        first.field_manager.as_deref() == Some("the-writer") && first.group == "apps",
        "{first:?}"
    );
    ensure!(
        audit
            .requests(&mine.clone().verb("list").resource("deployments"))
            .await?
            .len()
            == 1
    );
    ensure!(audit.requests(&mine.clone().writes().with_dry_runs()).await?.len() == 3);
    ensure!(
        audit
            .requests(&mine.verb("get").resource("deployments"))
            .await?
            .is_empty()
    );
    Ok(())
}

/// A mutating webhook that writes how often it was called into each `ConfigMap`.
async fn admit(State(calls): State<Arc<AtomicU32>>, Json(review): Json<Value>) -> Json<Value> {
    let calls = calls.fetch_add(1, Ordering::Relaxed) + 1;
    let patch = json!([{"op": "add", "path": "/data", "value": {"calls": calls.to_string()}}]).to_string();
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review.pointer("/request/uid"), "allowed": true, "warnings": ["seen by the webhook"],
            "patchType": "JSONPatch", "patch": k8s_openapi::ByteString(patch.into_bytes()),
        },
    }))
}

#[tokio::test]
async fn a_webhook_is_reached_by_its_service() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("webhook", &[]).await?;
    let certificate = plane.serving_certificate(&[&format!("hook.{namespace}.svc")])?;
    let tls = RustlsConfig::from_pem(certificate.certificate.into_bytes(), certificate.key.into_bytes()).await?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let calls = Arc::new(AtomicU32::new(0));
    let router = Router::new()
        .route("/admit", post(admit))
        .with_state(Arc::clone(&calls));
    tokio::spawn(axum_server::from_tcp_rustls(listener, tls)?.serve(router.into_make_service()));

    plane.service_to_localhost(&namespace, "hook", port).await?;
    let authority = serde_json::to_string(&k8s_openapi::ByteString(certificate.authority.into_bytes()))?;
    plane
        .apply(&format!(
            r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{name: {namespace}}}
webhooks:
- name: hook.harness.test
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
  rules: [{{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}}]
  clientConfig:
    service: {{namespace: {namespace}, name: hook, port: {port}, path: /admit}}
    caBundle: {authority}
"#
        ))
        .await?;

    let config_maps: Api<ConfigMap> = Api::namespaced(plane.admin().await?, &namespace);
    wait_for("the webhook to be called", SOON, || async {
        let name = plane.unique_name("probe");
        let config_map = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let made = config_maps.create(&PostParams::default(), &config_map).await?;
        ensure!(
            made.data.is_some_and(|data| data.contains_key("calls")),
            "not called yet"
        );
        Ok(())
    })
    .await?;
    let shown = plane
        .kubectl(&["create", "configmap", "by-kubectl", "-n", &namespace])?
        .ok()
        .await?;
    ensure!(shown.warnings() == ["seen by the webhook"], "{}", shown.stderr);
    ensure!(calls.load(Ordering::Relaxed) >= 2);
    Ok(())
}

#[tokio::test]
async fn the_hpa_controller_follows_numbers_that_a_test_chooses() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("hpa", &[]).await?;
    let metrics = plane.metrics().await?;
    metrics.set_cpu(&namespace, 100);
    plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(deployment("web", 2))
        .ok()
        .await?;
    let autoscale = [
        "autoscale",
        "deploy",
        "web",
        "--min=2",
        "--max=6",
        "--cpu=100%",
        "-n",
        &namespace,
    ];
    plane.kubectl(&autoscale)?.ok().await?;
    let deployments = Api::namespaced(plane.admin().await?, &namespace);
    await_ready(&deployments, "web", 2).await?;
    metrics.set_cpu(&namespace, 250);
    let minute = Duration::from_secs(60);
    wait_for("the HPA to scale up", minute, || async {
        let ready = ready_replicas(&deployments, "web").await?;
        ensure!(ready == 6, "{ready} are ready");
        Ok(())
    })
    .await?;
    metrics.set_cpu(&namespace, 10);
    wait_for("the HPA to scale down", minute, || async {
        let ready = ready_replicas(&deployments, "web").await?;
        ensure!(ready == 2, "{ready} are ready");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_process_beside_it_is_watched_stopped_and_killed() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let script = "trap 'echo bye; exit 3' TERM; echo hello; while :; do sleep 0.05; done";
    let shell = Program::new("sh").args(["-c", script]);
    let process = Product::start_program(plane, "shell", &shell)?;
    ensure!(process.wait_for_log("hel", SOON).await? == "hello");
    process.signal(Signal::STOP)?;
    wait_for("the process to be stopped", SOON, || async {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()))?;
        ensure!(state.contains(" T "), "{state}");
        Ok(())
    })
    .await?;
    process.signal(Signal::CONT)?;
    ensure!(process.terminate(SOON).await?.code() == Some(3), "its trap did not run");
    let missing = process
        .wait_for_log("never", SOON)
        .await
        .err()
        .context("it never logs that")?;
    ensure!(
        missing.to_string().contains("bye"),
        "an end is told at once, with the log: {missing:#}"
    );

    let process = Product::start_program(plane, "sleeper", &Program::new("sleep").arg("1000"))?;
    let pid = process.pid();
    process.kill()?;
    ensure!(!alive(pid), "{pid} survived kill -9");
    Ok(())
}

#[tokio::test]
async fn the_product_is_the_binary_that_cargo_built_from_these_sources() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let product = Product::start(plane, &Identity::admin(), &["--version"], &[])?;
    let status = product.wait_for_exit(SOON).await?;
    ensure!(status.success(), "{status}: {}", product.log());
    Ok(())
}

#[tokio::test]
async fn a_control_plane_of_its_own_can_lose_and_regain_its_api_server() -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::named("restarted")
    })
    .await?;
    let namespace = plane.namespace("kept", &[]).await?;
    plane.restart("kube-apiserver").await?;
    plane.kubectl(&["get", "namespace", &namespace])?.ok().await?;
    let pids = plane.pids();
    ensure!(pids.len() == 2 && pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    let folder = plane.folder().to_path_buf();
    drop(plane);
    ensure!(
        pids.iter().all(|pid| !alive(*pid)),
        "dropped, and still there: {pids:?}"
    );
    ensure!(
        !folder.join("etcd").exists() && folder.join("etcd.log").exists(),
        "data goes, logs stay"
    );
    Ok(())
}

/// Whether a process runs. One that has ended and that nobody has waited for yet does not.
fn alive(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return false;
    };
    !status
        .lines()
        .any(|line| line.starts_with("State:") && (line.contains('Z') || line.contains('X')))
}

#[tokio::test]
async fn nothing_survives_the_sigkill_of_its_owner() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let program = Program::new(env!("CARGO_BIN_EXE_controlplane"));
    let owner = Product::start_program(plane, "controlplane", &program)?;
    owner.wait_for_log("ready;", 2 * SOON).await?;
    let log = owner.log();
    let line = |start: &str| {
        log.lines()
            .find_map(|line| line.strip_prefix(start))
            .context("it says so")
    };
    let pids: Vec<u32> = line("pids: ")?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    ensure!(
        pids.len() == 5,
        "etcd, API server, controller manager, scheduler, kwok: {pids:?}"
    );
    ensure!(pids.iter().all(|pid| alive(*pid)), "not all of {pids:?} run");
    let logs = Path::new(line("logs: ")?);
    ensure!(
        logs.join("kube-apiserver.log").exists(),
        "no logs in {}",
        logs.display()
    );

    owner.kill()?;
    wait_for("all children to be gone", SOON, || async {
        let left: Vec<_> = pids.iter().filter(|pid| alive(**pid)).collect();
        ensure!(left.is_empty(), "{left:?} live on");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_in_vain_says_what_was_last_seen() -> anyhow::Result<()> {
    let clouds = || async { anyhow::Result::<()>::Err(anyhow::anyhow!("a cloud")) };
    let error = wait_for("the moon", Duration::from_millis(30), clouds)
        .await
        .err()
        .context("it is not there")?
        .to_string();
    ensure!(error.contains("the moon") && error.contains("a cloud"), "{error}");
    Ok(())
}
