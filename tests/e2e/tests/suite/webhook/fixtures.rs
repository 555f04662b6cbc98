//! Records what clients really send: `make fixtures` writes one review per client into the webhook's unit tests, pruned of what
//! differs from run to run. And `kubectl edit`, which needs an editor.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use harness::{Identity, Kubectl, Program, SOON, wait_for};
use serde_json::{Map, Value, json};
use shared::annotations::DownReplicas;

use super::stage::{NAMESPACE, RECORD, SERVICE, Stage, deployment};

/// The HPA controller, where controllers have accounts of their own.
const HPA_CONTROLLER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

#[tokio::test(flavor = "multi_thread")]
async fn what_kubectl_edit_saves_at_night_is_held_and_remembered() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage.night(&json!({"mode": "Rewrite"}), &json!({})).await?;
    stage
        .asleep(&namespace, &deployment("web", 3), DownReplicas::Count(0))
        .await?;
    let output = edit(stage, &namespace, 6)?.ok().await?;
    ensure!(output.stderr.contains("6 remembered"), "{}", output.stderr);
    let object = stage.get(&namespace, "deploy", "web").await?;
    ensure!(object["spec"]["replicas"] == 0, "{object}");
    ensure!(
        object["metadata"]["annotations"]["offhours.platform.io/original-replicas"] == "6",
        "{object}"
    );
    Ok(())
}

/// `kubectl edit` with an editor that writes this number of replicas.
fn edit(stage: &Stage, namespace: &str, replicas: u32) -> anyhow::Result<Kubectl> {
    let editor = format!("sed -i s/^\\ \\ replicas:.*/\\ \\ replicas:\\ {replicas}/");
    Ok(stage
        .plane
        .kubectl(&["edit", "-n", namespace, "deploy/web"])?
        .env("KUBE_EDITOR", &editor))
}

struct Recorder {
    stage: &'static Stage,
    namespace: String,
    folder: PathBuf,
}

impl Recorder {
    /// A night whose requests are recorded, without conditions, before the webhook sees them.
    async fn at_night(keep: u64) -> anyhow::Result<Self> {
        let stage = Stage::shared().await?;
        let enforcement = json!({"mode": "Rewrite"});
        let namespace = stage.night(&enforcement, &json!({"downReplicas": keep})).await?;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            // Configurations are called in the order of their names.
            "metadata": {"name": format!("a-{namespace}")},
            "webhooks": [{
                "name": "record.offhours.test", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {
                    "caBundle": base64_of(stage.plane.authority_pem()),
                    "service": {"namespace": NAMESPACE, "name": SERVICE, "port": stage.port, "path": RECORD},
                },
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                        "resources": ["deployments", "deployments/scale"]},
                    {"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE", "UPDATE"],
                        "resources": ["horizontalpodautoscalers"]},
                ],
            }],
        });
        stage.plane.apply(&configuration.to_string()).await?;
        for (account, of) in [
            ("argocd-application-controller", "argocd"),
            ("kustomize-controller", "flux-system"),
            ("helm-controller", "flux-system"),
            ("keda-operator", "keda"),
        ] {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": account, "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
            });
            stage.plane.apply(&binding.to_string()).await?;
        }
        let folder = harness::repository().join("webhook/src/tests/reviews");
        std::fs::create_dir_all(&folder)?;
        let recorder = Self {
            stage,
            namespace,
            folder,
        };
        wait_for("the recorder to be called", SOON, || async {
            let mark = recorder.mark();
            let probe = deployment("probe", 0).to_string();
            let arguments = ["create", "-n", &recorder.namespace, "--dry-run=server", "-f", "-"];
            stage.plane.kubectl(&arguments)?.stdin(probe).ok().await?;
            recorder.found(mark, |_| true).map(drop)
        })
        .await?;
        Ok(recorder)
    }

    fn mark(&self) -> usize {
        self.stage.reviews.lock().unwrap().len()
    }

    /// The first review since the mark that is meant.
    fn found(&self, mark: usize, meant: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let reviews = self.stage.reviews.lock().unwrap();
        let found = reviews
            .iter()
            .skip(mark)
            .find(|review| review["request"]["namespace"] == *self.namespace && meant(review));
        found.cloned().context("no such review")
    }

    fn write(&self, name: &str, review: &Value) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&pruned(review))?.replace(&self.namespace, "shop");
        std::fs::write(self.folder.join(format!("{name}.json")), format!("{text}\n"))?;
        Ok(())
    }

    /// Runs a client, and writes what it sent first.
    async fn record(&self, name: &str, client: Kubectl) -> anyhow::Result<()> {
        let mark = self.mark();
        client.ok().await.with_context(|| name.to_owned())?;
        let review = self
            .found(mark, |review| !is_controller(review))
            .with_context(|| name.to_owned())?;
        self.write(name, &review)
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Kubectl> {
        Ok(self.stage.plane.kubectl(&["-n", &self.namespace])?.args(arguments))
    }

    fn by(&self, (of, account): (&str, &str), arguments: &[&str]) -> anyhow::Result<Kubectl> {
        let who = Identity::service_account(of, account);
        Ok(self
            .stage
            .plane
            .kubectl_as(&who, &["-n", &self.namespace])?
            .args(arguments))
    }

    /// Helm as somebody; its chart has a value `replicas`.
    async fn helm(&self, who: &Identity, name: Option<&str>, arguments: &[&str]) -> anyhow::Result<()> {
        let chart = tempfile::tempdir()?;
        std::fs::create_dir(chart.path().join("templates"))?;
        std::fs::write(
            chart.path().join("Chart.yaml"),
            "apiVersion: v2\nname: shop\nversion: 0.1.0\n",
        )?;
        std::fs::write(chart.path().join("values.yaml"), "replicas: 2\n")?;
        let mut manifest = deployment("charted", 0);
        manifest["spec"]["replicas"] = json!("REPLICAS");
        let template = manifest
            .to_string()
            .replace("\"REPLICAS\"", "{{ .Values.replicas | toJson }}");
        std::fs::write(chart.path().join("templates/deployment.yaml"), template)?;
        let mark = self.mark();
        let program = Program::new(harness::program("helm")?)
            .args(["upgrade", "--install", "shop"])
            .arg(chart.path().display().to_string())
            .args(["-n", &self.namespace])
            .args(arguments.iter().copied())
            .env(
                "KUBECONFIG",
                self.stage.plane.kubeconfig_for(who)?.display().to_string(),
            );
        let output = tokio::task::spawn_blocking(move || program.run("")).await??;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if let Some(name) = name {
            let review = self
                .found(mark, |review| !is_controller(review))
                .with_context(|| name.to_owned())?;
            self.write(name, &review)?;
        }
        Ok(())
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn is_controller(review: &Value) -> bool {
    let user = review["request"]["userInfo"]["username"].as_str().unwrap_or_default();
    user.starts_with("system:serviceaccount:kube-system:") || user.starts_with("system:kube-")
}

/// What the webhook reads, and enough around it to be recognised.
fn pruned(review: &Value) -> Value {
    let request = &review["request"];
    let pick = |value: &Value, keys: &[&str]| -> Value {
        let kept = keys
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), value.get(*key)?.clone())));
        Value::Object(kept.collect::<Map<_, _>>())
    };
    let object = |object: &Value| -> Value {
        if object.is_null() {
            return Value::Null;
        }
        let mut kept = pick(object, &["apiVersion", "kind"]);
        let mut metadata = pick(&object["metadata"], &["name", "namespace", "labels", "annotations"]);
        metadata["namespace"] = json!("shop");
        for key in ["uid", "resourceVersion", "creationTimestamp"] {
            if object["metadata"].get(key).is_some_and(|value| !value.is_null()) {
                metadata[key] = json!(match key {
                    "uid" => "d-1",
                    "resourceVersion" => "7",
                    _ => "2026-01-01T00:00:00Z",
                });
            }
        }
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            if let Some(since) = annotations.get_mut("offhours.platform.io/down-since") {
                *since = json!("2026-11-30T23:00:00Z");
            }
            annotations.retain(|_, value| !value.as_str().unwrap_or_default().contains("/tmp/"));
        }
        for key in ["annotations", "labels"] {
            if let Some(map) = metadata[key].as_object_mut() {
                map.retain(|_, value| !value.is_null());
            }
            if metadata[key].is_null() {
                metadata.as_object_mut().map(|metadata| metadata.remove(key));
            }
        }
        kept["metadata"] = metadata;
        let fields = [
            "replicas",
            "paused",
            "selector",
            "minReplicas",
            "maxReplicas",
            "scaleTargetRef",
        ];
        kept["spec"] = pick(&object["spec"], &fields);
        if let Some(containers) = object["spec"]["template"]["spec"]["containers"].as_array() {
            let containers: Vec<Value> = containers.iter().map(|one| pick(one, &["name", "image"])).collect();
            kept["spec"]["template"] = json!({"spec": {"containers": containers}});
        }
        kept
    };
    let mut kept = pick(
        request,
        &[
            "kind",
            "resource",
            "subResource",
            "requestKind",
            "requestResource",
            "requestSubResource",
            "name",
            "operation",
            "dryRun",
        ],
    );
    kept["uid"] = json!("705ab4f5-6393-11e8-b7cc-42010a800002");
    kept["namespace"] = json!("shop");
    kept["userInfo"] = pick(&request["userInfo"], &["username", "groups"]);
    kept["options"] = pick(&request["options"], &["apiVersion", "kind", "fieldManager", "force"]);
    kept["object"] = object(&request["object"]);
    kept["oldObject"] = object(&request["oldObject"]);
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "request": kept})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files of the repository: make fixtures"]
async fn record_what_clients_send() -> anyhow::Result<()> {
    let night = Recorder::at_night(0).await?;
    let stage = night.stage;
    stage
        .asleep(&night.namespace, &deployment("web", 3), DownReplicas::Count(0))
        .await?;
    people(&night).await?;
    pipelines(&night).await?;
    // Last: undo wants two revisions, with a record of its own in the first, and a Deployment that is paused makes none.
    night
        .record(
            "kubectl-rollout-restart",
            night.kubectl(&["rollout", "restart", "deploy/web"])?,
        )
        .await?;
    wait_for("a second revision", SOON, || async {
        let object = stage.get(&night.namespace, "deploy", "web").await?;
        let revision = &object["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        ensure!(revision.as_str().is_some_and(|revision| revision != "1"), "{revision}");
        ensure!(object["status"]["observedGeneration"] == object["metadata"]["generation"]);
        Ok(())
    })
    .await?;
    night.kubectl(&["scale", "deploy/web", "--replicas=2"])?.ok().await?;
    night
        .record(
            "kubectl-rollout-undo",
            night.kubectl(&["rollout", "undo", "deploy/web"])?,
        )
        .await?;
    night
        .record(
            "kubectl-rollout-pause",
            night.kubectl(&["rollout", "pause", "deploy/web"])?,
        )
        .await?;

    // An HPA controller only asks about what is not at zero.
    let partial = Recorder::at_night(1).await?;
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"minReplicas": 3, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    });
    partial
        .kubectl(&["apply", "-f", "-"])?
        .stdin(hpa.to_string())
        .ok()
        .await?;
    stage
        .asleep(&partial.namespace, &deployment("web", 5), DownReplicas::Count(1))
        .await?;
    let review = wait_for("the HPA controller to ask", SOON, || async {
        partial.found(0, |review| {
            review["request"]["userInfo"]["username"] == HPA_CONTROLLER && review["request"]["subResource"] == "scale"
        })
    })
    .await?;
    partial.write("hpa-controller", &review)
}

async fn people(night: &Recorder) -> anyhow::Result<()> {
    let mut manifest = deployment("web", 4);
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/c:2");
    let text = manifest.to_string();
    night
        .record(
            "kubectl-scale",
            night.kubectl(&["scale", "deploy/web", "--replicas=5"])?,
        )
        .await?;
    night
        .record("kubectl-apply", night.kubectl(&["apply", "-f", "-"])?.stdin(&*text))
        .await?;
    let server_side = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=ci",
        "-f",
        "-",
    ];
    night
        .record("kubectl-apply-server-side", night.kubectl(&server_side)?.stdin(&*text))
        .await?;
    night
        .record("kubectl-edit", edit(night.stage, &night.namespace, 6)?)
        .await?;
    night
        .record(
            "kubectl-autoscale",
            night.kubectl(&["autoscale", "deploy/web", "--min=2", "--max=9", "--cpu=80%"])?,
        )
        .await?;
    let merge = r#"{"spec":{"replicas":7}}"#;
    night
        .record(
            "patch-merge",
            night.kubectl(&["patch", "deploy/web", "--type=merge", "-p", merge])?,
        )
        .await?;
    let operations = r#"[{"op":"replace","path":"/spec/replicas","value":8}]"#;
    night
        .record(
            "patch-json",
            night.kubectl(&["patch", "deploy/web", "--type=json", "-p", operations])?,
        )
        .await?;
    let strategic = r#"{"spec":{"replicas":9}}"#;
    night
        .record(
            "patch-strategic",
            night.kubectl(&["patch", "deploy/web", "--type=strategic", "-p", strategic])?,
        )
        .await?;
    night
        .record("put", night.kubectl(&["replace", "-f", "-"])?.stdin(&*text))
        .await
}

async fn pipelines(night: &Recorder) -> anyhow::Result<()> {
    let text = deployment("web", 2).to_string();
    let argo = ("argocd", "argocd-application-controller");
    let by_argo = ["apply", "--field-manager=argocd-controller", "-f", "-"];
    wait_for("RBAC to let them", SOON, || async {
        night.by(argo, &["get", "deploy/web"])?.ok().await
    })
    .await?;
    night
        .record("argo-cd-apply", night.by(argo, &by_argo)?.stdin(&*text))
        .await?;
    let text = deployment("web", 3).to_string();
    let server_side = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=argocd-controller",
        "-f",
        "-",
    ];
    night
        .record("argo-cd-apply-server-side", night.by(argo, &server_side)?.stdin(&*text))
        .await?;
    let text = deployment("web", 4).to_string();
    let flux = ("flux-system", "kustomize-controller");
    let server_side = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=kustomize-controller",
        "-f",
        "-",
    ];
    night
        .record("flux-kustomize-controller", night.by(flux, &server_side)?.stdin(&*text))
        .await?;

    let admin = Identity::admin();
    night.helm(&admin, Some("helm-install"), &[]).await?;
    night
        .helm(&admin, Some("helm-upgrade-null-replicas"), &["--set", "replicas=null"])
        .await?;
    let helm = Identity::service_account("flux-system", "helm-controller");
    night
        .helm(&helm, Some("flux-helm-controller"), &["--set", "replicas=4"])
        .await?;

    // KEDA's operator updates the scale of its target as a whole.
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/web/scale", night.namespace);
    let shown = night.kubectl(&["get", "--raw", &path])?.ok().await?;
    let mut scale: Value = serde_json::from_str(&shown.stdout)?;
    scale["spec"]["replicas"] = json!(2);
    let keda = night.by(("keda", "keda-operator"), &["replace", "--raw", &path, "-f", "-"])?;
    night.record("keda-operator", keda.stdin(scale.to_string())).await
}
