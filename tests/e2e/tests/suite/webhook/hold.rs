//! What kubectl, pipelines and the HPA controller ask for at night, and what becomes of it.

use anyhow::{Context as _, ensure};
use harness::{AuditQuery, Identity, SOON, holds_for, wait_for};
use serde_json::{Value, json};
use shared::annotations::{DownReplicas, ORIGINAL_REPLICAS};
use webhook::service::Outcome;

use super::stage::{Stage, deployment};

const NONE: DownReplicas = DownReplicas::Count(0);

/// Replicas and record.
fn state(object: &Value) -> (Option<u64>, Option<&str>) {
    (
        object["spec"]["replicas"].as_u64(),
        object["metadata"]["annotations"][ORIGINAL_REPLICAS].as_str(),
    )
}

async fn sleeper(stage: &Stage, mode: &str, name: &str, replicas: u32) -> anyhow::Result<String> {
    let namespace = stage.night(&json!({"mode": mode}), &json!({})).await?;
    stage.asleep(&namespace, &deployment(name, replicas), NONE).await?;
    Ok(namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e2_kubectl_scale_is_held_and_remembered_with_one_warning() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = sleeper(stage, "Rewrite", "web", 3).await?;
    let output = stage.ok(&namespace, &["scale", "deploy/web", "--replicas=5"]).await?;
    let warnings = output.warnings();
    ensure!(warnings.len() == 1, "{}", output.stderr);
    ensure!(
        warnings[0].starts_with("deployment \"web\" is off hours")
            && warnings[0].contains("kept at 0 replicas, 5 remembered")
            && warnings[0].ends_with(&format!(
                "Wake it: kubectl annotate --overwrite deployment web -n {namespace} offhours.platform.io/awake-until=2h"
            )),
        "{}",
        output.stderr
    );
    let object = stage.get(&namespace, "deploy", "web").await?;
    ensure!(state(&object) == (Some(0), Some("5")), "{object}");
    let told = stage.heard.told(&namespace);
    ensure!(
        told.iter().filter(|(reason, _)| *reason == "Remembered").count() == 1,
        "{told:?}"
    );
    // A repeat writes nothing.
    let before = object["metadata"]["resourceVersion"].clone();
    stage.ok(&namespace, &["scale", "deploy/web", "--replicas=5"]).await?;
    let after = stage.get(&namespace, "deploy", "web").await?;
    ensure!(
        after["metadata"]["resourceVersion"] == before,
        "a repeat wrote something"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e2_under_deny_a_person_reads_who_when_and_how() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = sleeper(stage, "Deny", "web", 3).await?;
    for arguments in [
        &["scale", "deploy/web", "--replicas=5"][..],
        &[
            "patch",
            "deploy/web",
            "--type=merge",
            "-p",
            r#"{"spec":{"replicas":5}}"#,
        ],
        &[
            "patch",
            "deploy/web",
            "--type=json",
            "-p",
            r#"[{"op":"replace","path":"/spec/replicas","value":5}]"#,
        ],
    ] {
        let output = stage.kubectl(&namespace, arguments).await?;
        ensure!(!output.success, "{arguments:?} passed");
        ensure!(
            output.stderr.contains("(Forbidden): admission webhook \"")
                && output
                    .stderr
                    .contains("offhours.platform.io\" denied the request: deployment \"web\" is off hours")
                && output.stderr.contains("awake-until=2h"),
            "{}",
            output.stderr
        );
    }
    // An unchanged knob passes, whatever else changes.
    stage
        .ok(&namespace, &["set", "image", "deploy/web", "c=registry.example/c:2"])
        .await?;
    stage.ok(&namespace, &["rollout", "restart", "deploy/web"]).await?;
    stage.ok(&namespace, &["rollout", "pause", "deploy/web"]).await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("3")));
    // And the advice in the message works.
    stage
        .ok(
            &namespace,
            &[
                "annotate",
                "--overwrite",
                "deployment",
                "web",
                "offhours.platform.io/awake-until=2h",
            ],
        )
        .await?;
    let woken = stage.get(&namespace, "deploy", "web").await?;
    let until = woken["metadata"]["annotations"]["offhours.platform.io/awake-until"].as_str();
    let until: jiff::Timestamp = until.context("no wake")?.parse().context("not an instant")?;
    let created: jiff::Timestamp = woken["metadata"]["creationTimestamp"]
        .as_str()
        .context("created")?
        .parse()?;
    ensure!(until.duration_since(created).as_mins() >= 119, "{until}");
    wait_for("the wake to open the hold", SOON, || async {
        stage.ok(&namespace, &["scale", "deploy/web", "--replicas=5"]).await
    })
    .await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?).0 == Some(5));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e2_every_way_to_write_a_deployment_is_held_under_rewrite() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage.night(&json!({"mode": "Rewrite"}), &json!({})).await?;
    // A night deploy comes down at once.
    let output = stage
        .feed(&namespace, &["apply", "-f", "-"], &deployment("web", 2))
        .await?;
    ensure!(
        output.warnings().len() == 1 && output.stderr.contains("created at 0 replicas, 2 remembered"),
        "{}",
        output.stderr
    );
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("2")));

    // The same manifest with a new image: the number in it is its wish again.
    let mut manifest = deployment("web", 4);
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/c:2");
    let output = stage.feed(&namespace, &["apply", "-f", "-"], &manifest).await?;
    ensure!(output.warnings().len() == 1, "{}", output.stderr);
    let object = stage.get(&namespace, "deploy", "web").await?;
    ensure!(state(&object) == (Some(0), Some("4")), "{object}");
    ensure!(object["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/c:2");

    // Helm sends null where a value is gone from the chart; the API server makes 1 of it.
    let null = r#"{"spec":{"replicas":null}}"#;
    stage
        .ok(&namespace, &["patch", "deploy/web", "--type=merge", "-p", null])
        .await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("1")));
    stage
        .ok(
            &namespace,
            &[
                "patch",
                "deploy/web",
                "--type=strategic",
                "-p",
                r#"{"spec":{"replicas":6}}"#,
            ],
        )
        .await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("6")));

    // A replacement takes annotations and labels along; what it asks for is remembered, and the start of the sleep kept.
    let since = |object: &Value| object["metadata"]["annotations"]["offhours.platform.io/down-since"].clone();
    let before = since(&stage.get(&namespace, "deploy", "web").await?);
    stage
        .feed(&namespace, &["replace", "-f", "-"], &deployment("web", 7))
        .await?;
    let object = stage.get(&namespace, "deploy", "web").await?;
    ensure!(state(&object) == (Some(0), Some("7")), "{object}");
    ensure!(object["metadata"]["labels"]["offhours.platform.io/asleep"] == "7");
    ensure!(since(&object) == before && !before.is_null());
    // One with zero replicas strips the record and asks for nothing.
    let output = stage
        .feed(&namespace, &["replace", "-f", "-"], &deployment("web", 0))
        .await?;
    ensure!(output.stderr.contains("(7) was kept"), "{}", output.stderr);
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("7")));

    // Server-side apply.
    let mut manifest = deployment("web", 8);
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/c:3");
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=ci",
        "-f",
        "-",
    ];
    stage.feed(&namespace, &arguments, &manifest).await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("8")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_s5_a_rollout_undo_at_night_does_not_lose_the_record() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage.night(&json!({"mode": "Deny"}), &json!({})).await?;
    // Two revisions by day (the product's own identity is not held), then the night.
    stage.asleep(&namespace, &deployment("web", 3), NONE).await?;
    stage
        .ok(&namespace, &["set", "image", "deploy/web", "c=registry.example/c:2"])
        .await?;
    wait_for("the second revision", SOON, || async {
        let object = stage.get(&namespace, "deploy", "web").await?;
        let revision = &object["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        ensure!(*revision == "2", "{revision}");
        Ok(())
    })
    .await?;
    // The old ReplicaSet's annotations may hold an old record: another one, to tell them apart.
    let old: Value = serde_json::from_str(&stage.ok(&namespace, &["get", "rs", "-o", "json"]).await?.stdout)?;
    let first = old["items"]
        .as_array()
        .context("items")?
        .iter()
        .find(|set| set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1")
        .context("no first revision")?;
    let name = first["metadata"]["name"].as_str().context("name")?.to_owned();
    stage
        .ok(
            &namespace,
            &[
                "annotate",
                "--overwrite",
                "rs",
                &name,
                &format!("{ORIGINAL_REPLICAS}=9"),
            ],
        )
        .await?;
    let output = stage.ok(&namespace, &["rollout", "undo", "deploy/web"]).await?;
    let object = stage.get(&namespace, "deploy", "web").await?;
    ensure!(state(&object) == (Some(0), Some("3")), "{object} {}", output.stderr);
    ensure!(object["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/c:1");
    let told = stage.heard.told(&namespace);
    ensure!(told.iter().any(|(reason, _)| *reason == "RecordPutBack"), "{told:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e9_requests_that_change_nothing_of_ours_are_never_sent() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = sleeper(stage, "Deny", "web", 3).await?;
    stage.asleep(&namespace, &deployment("other", 2), NONE).await?;
    stage.ok(&namespace, &["create", "configmap", "cm"]).await?;
    let before = stage.heard.calls(&namespace);
    let unrelated: &[&[&str]] = &[
        &["set", "image", "deploy/web", "c=registry.example/c:2"],
        &["label", "deploy/web", "team=a"],
        &["annotate", "deploy/web", "team/owner=a"],
        &["annotate", "deploy/web", "team/owner-"],
        &["rollout", "restart", "deploy/web"],
        &["rollout", "pause", "deploy/web"],
        &["scale", "deploy/web", "--replicas=0"],
        &[
            "patch",
            "deploy/web",
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"observedGeneration":1}}"#,
        ],
        &["label", "configmap/cm", "team=a"],
        &["delete", "deploy/other"],
    ];
    for arguments in unrelated {
        stage.ok(&namespace, arguments).await?;
    }
    wait_for("the controller to have seen all of it", SOON, || async {
        let object = stage.get(&namespace, "deploy", "web").await?;
        ensure!(object["status"]["observedGeneration"] == object["metadata"]["generation"]);
        Ok(())
    })
    .await?;
    let after = stage.heard.calls(&namespace);
    ensure!(after == before, "{:?}", after.get(before.len()..));
    // And one that does, to know that we would have heard.
    stage
        .kubectl(&namespace, &["scale", "deploy/web", "--replicas=1"])
        .await?;
    let calls = stage.heard.calls(&namespace);
    ensure!(
        calls.last() == Some(&("Mutate deployments/scale".to_owned(), Outcome::Denied)),
        "{calls:?}"
    );
    Ok(())
}

/// Kubernetes' own controllers run under accounts of kube-system, the nodes' and pods' stand-in under its own name.
fn is_controller(user: &str) -> bool {
    user.starts_with("system:serviceaccount:kube-system:") || user.contains("kwok")
}

#[tokio::test(flavor = "multi_thread")]
async fn case_5_13_a_server_dry_run_answers_alike_and_writes_nothing() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = sleeper(stage, "Rewrite", "web", 3).await?;
    let audit = stage.plane.audit().await?;
    let mark = audit.mark().await?;
    let output = stage
        .ok(&namespace, &["scale", "deploy/web", "--replicas=5", "--dry-run=server"])
        .await?;
    ensure!(output.stderr.contains("5 remembered"), "{}", output.stderr);
    stage
        .ok(
            &namespace,
            &[
                "patch",
                "deploy/web",
                "--dry-run=server",
                "--type=merge",
                "-p",
                r#"{"spec":{"replicas":5}}"#,
            ],
        )
        .await?;
    stage
        .feed(&namespace, &["diff", "-f", "-"], &deployment("web", 0))
        .await
        .ok();
    let mut writes = audit
        .requests(&AuditQuery::new().since(mark).namespace(&namespace).writes())
        .await?;
    // The controllers may still be at work on what fell asleep.
    writes.retain(|request| !request.user.starts_with("system:kube-") && !is_controller(&request.user));
    ensure!(
        writes.is_empty(),
        "{:?}",
        writes.iter().map(harness::AuditedRequest::line).collect::<Vec<_>>()
    );
    ensure!(stage.heard.told(&namespace).is_empty());
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("3")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e4_an_hpa_is_held_with_its_target() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = sleeper(stage, "Rewrite", "web", 3).await?;
    stage
        .ok(
            &namespace,
            &["autoscale", "deploy/web", "--min=2", "--max=9", "--cpu=80%"],
        )
        .await?;
    let output = stage
        .ok(
            &namespace,
            &[
                "patch",
                "hpa/web",
                "--type=merge",
                "-p",
                r#"{"spec":{"minReplicas":4}}"#,
            ],
        )
        .await?;
    ensure!(
        output.warnings().len() == 1 && output.stderr.contains("HPA \"web\" kept"),
        "{}",
        output.stderr
    );
    let hpa = stage.get(&namespace, "hpa", "web").await?;
    ensure!(hpa["spec"]["minReplicas"] == 2, "{hpa}");
    ensure!(
        hpa["metadata"]["annotations"]["offhours.platform.io/original-min-replicas"] == "4",
        "{hpa}"
    );
    stage.ok(&namespace, &["label", "hpa/web", "team=a"]).await?;

    let namespace = sleeper(stage, "Deny", "web", 3).await?;
    let output = stage
        .kubectl(
            &namespace,
            &["autoscale", "deploy/web", "--min=2", "--max=9", "--cpu=80%"],
        )
        .await?;
    ensure!(
        !output.success && output.stderr.contains("cannot be created"),
        "{}",
        output.stderr
    );
    // What the namespace controller deletes is not refused.
    stage
        .ok(&namespace, &["delete", "namespace", &namespace, "--timeout=60s"])
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e2_the_hpa_controller_is_held_without_a_word_and_never_recorded() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage
        .night(&json!({"mode": "Deny"}), &json!({"downReplicas": 1}))
        .await?;
    // Its HPA wants at least 3, and asks for them at every sync.
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"minReplicas": 3, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    });
    stage.feed(&namespace, &["apply", "-f", "-"], &hpa).await?;
    stage
        .asleep(&namespace, &deployment("web", 5), DownReplicas::Count(1))
        .await?;
    let asked = || {
        let calls = stage.heard.calls(&namespace);
        calls
            .iter()
            .filter(|call| **call == ("Mutate deployments/scale".to_owned(), Outcome::Held))
            .count()
    };
    wait_for("the HPA controller to ask twice", SOON, || async {
        ensure!(asked() >= 2, "{:?}", stage.heard.calls(&namespace));
        Ok(())
    })
    .await?;
    holds_for("the hold", std::time::Duration::from_secs(2), || async {
        let object = stage.get(&namespace, "deploy", "web").await?;
        ensure!(state(&object) == (Some(1), Some("5")), "{object}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e2_argo_and_the_exempt_and_a_new_cron_job() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let enforcement = json!({"mode": "Deny", "exempt": {"groups": ["sre"]}});
    let namespace = stage
        .night(
            &enforcement,
            &json!({"kinds": [{"kind": "Deployment"}, {"kind": "CronJob"}]}),
        )
        .await?;
    stage.asleep(&namespace, &deployment("web", 3), NONE).await?;
    stage
        .plane
        .apply(
            &json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "all", "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [
                    {"kind": "ServiceAccount", "name": "argocd-application-controller", "namespace": "argocd"},
                    {"kind": "Group", "name": "sre", "apiGroup": "rbac.authorization.k8s.io"},
                ],
            })
            .to_string(),
        )
        .await?;
    let scale = |who: Identity, replicas: u32| {
        let namespace = namespace.clone();
        async move {
            let argument = format!("--replicas={replicas}");
            let command = stage
                .plane
                .kubectl_as(&who, &["-n", &namespace, "scale", "deploy/web", &argument])?;
            wait_for("RBAC to let it through", SOON, || async { command.ok().await }).await
        }
    };
    let argo = Identity::service_account("argocd", "argocd-application-controller");
    let output = scale(argo, 4).await?;
    ensure!(output.warnings().len() == 1, "{}", output.stderr);
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("4")));
    // Sync impersonation shows in the field manager alone.
    let patch = r#"{"spec":{"replicas":6}}"#;
    stage
        .ok(
            &namespace,
            &[
                "patch",
                "deploy/web",
                "--field-manager=argocd-controller",
                "--type=merge",
                "-p",
                patch,
            ],
        )
        .await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?) == (Some(0), Some("6")));

    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/c:1"}]}}}}},
    });
    let output = stage.feed(&namespace, &["create", "-f", "-"], &cron).await?;
    ensure!(output.stderr.contains("created suspended"), "{}", output.stderr);
    let object = stage.get(&namespace, "cronjob", "report").await?;
    ensure!(object["spec"]["suspend"] == true, "{object}");

    scale(Identity::user("olga", &["sre"]), 2).await?;
    ensure!(state(&stage.get(&namespace, "deploy", "web").await?).0 == Some(2));
    let told = stage.heard.told(&namespace);
    ensure!(
        told.iter()
            .any(|(reason, message)| *reason == "Overridden" && message.contains("\"olga\"")),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e9_no_expression_failed_and_no_call_was_failed_open() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage.night(&json!({"mode": "Rewrite"}), &json!({})).await?;
    // Fields absent, in every kind that is registered and exists here.
    let template = deployment("x", 0)["spec"]["template"].clone();
    let selector = json!({"matchLabels": {"app": "x"}});
    let bare: &[(&str, &str, Value)] = &[
        (
            "apps/v1",
            "Deployment",
            json!({"selector": selector, "template": template}),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"selector": selector, "template": template, "serviceName": "x"}),
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"selector": selector, "template": template}),
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"selector": selector, "template": template}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}}),
        ),
    ];
    for (version, kind, spec) in bare {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        stage.feed(&namespace, &["create", "-f", "-"], &object).await?;
        let resource = format!("{}/x", kind.to_lowercase());
        stage.ok(&namespace, &["label", &resource, "team=a"]).await?;
        stage.ok(&namespace, &["annotate", &resource, "team/a=b"]).await?;
        stage
            .ok(&namespace, &["annotate", &resource, "offhours.platform.io/reason=b"])
            .await?;
        stage
            .ok(&namespace, &["annotate", &resource, "offhours.platform.io/reason-"])
            .await?;
    }
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/c:1"}]}}},
    });
    stage.feed(&namespace, &["create", "-f", "-"], &job).await?;
    stage.ok(&namespace, &["label", "job/x", "team=a"]).await?;
    stage
        .ok(&namespace, &["label", "namespace", &namespace, "team=a"])
        .await?;
    stage
        .ok(
            &namespace,
            &["annotate", "namespace", &namespace, "offhours.platform.io/reason=b"],
        )
        .await?;
    let metrics = stage.ok(&namespace, &["get", "--raw", "/metrics"]).await?.stdout;
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let wrong = ["match_condition_evaluation_errors_total", "webhook_fail_open_count"];
        ensure!(
            !wrong.iter().any(|name| line.contains(name)) || line.ends_with(" 0"),
            "{line}"
        );
    }
    Ok(())
}
