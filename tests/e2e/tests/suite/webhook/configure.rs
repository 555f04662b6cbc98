//! What people write into labels, annotations and schedules, and who may open a hold.

use anyhow::ensure;
use harness::{Identity, SOON, wait_for};
use serde_json::json;
use shared::annotations::DownReplicas;

use super::stage::{Stage, deployment};

#[tokio::test(flavor = "multi_thread")]
async fn rule_e7_mistakes_are_refused_or_warned_about_where_they_are_made() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage.night(&json!({"mode": "Rewrite"}), &json!({})).await?;
    stage
        .asleep(&namespace, &deployment("web", 3), DownReplicas::Count(0))
        .await?;
    let annotate = |text: &'static str| {
        let namespace = namespace.clone();
        async move {
            stage
                .kubectl(&namespace, &["annotate", "--overwrite", "deploy/web", text])
                .await
        }
    };
    let output = annotate("offhours.platform.io/awake-until=tomorrow").await?;
    ensure!(
        !output.success && output.stderr.contains("nor a duration such as"),
        "{}",
        output.stderr
    );
    let output = annotate("offhours.platform.io/protected=yes").await?;
    ensure!(
        !output.success && output.stderr.contains("not a boolean"),
        "{}",
        output.stderr
    );
    let output = annotate("offhours.platform.io/awake-untill=2h").await?;
    ensure!(
        output.success && output.stderr.contains("did you mean"),
        "{}",
        output.stderr
    );
    let output = stage
        .kubectl(
            &namespace,
            &["label", "deploy/web", "offhours.platform.io/schedule=nobody"],
        )
        .await?;
    ensure!(
        output.success && output.stderr.contains("no schedule \"nobody\""),
        "{}",
        output.stderr
    );
    let output = stage
        .kubectl(
            &namespace,
            &[
                "annotate",
                "namespace",
                &namespace,
                "offhours.platform.io/awake-until=soon",
            ],
        )
        .await?;
    ensure!(!output.success, "{}", output.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e7_a_schedule_that_cannot_be_understood_is_refused() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let schedule = |spec: serde_json::Value| {
        json!({
            "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
            "metadata": {"name": stage.plane.unique_name("nights")}, "spec": spec,
        })
    };
    let broken = schedule(json!({"timeZone": "Europe/Berlin", "cron": {"shutdown": ["0 25 * * *"]}}));
    let command = stage.plane.kubectl(&["apply", "-f", "-"])?.stdin(broken.to_string());
    let output = command.fails().await?;
    ensure!(output.stderr.contains("spec.cron.shutdown[0]"), "{}", output.stderr);
    let zone = schedule(json!({"timeZone": "Europe/Berlim", "uptime": ["Mon-Fri 08:00-20:00"]}));
    let command = stage.plane.kubectl(&["apply", "-f", "-"])?.stdin(zone.to_string());
    let output = command.fails().await?;
    ensure!(output.stderr.contains("Europe/Berlin"), "{}", output.stderr);
    let no_zone = schedule(json!({"uptime": ["Mon-Fri 08:00-20:00"]}));
    let command = stage.plane.kubectl(&["apply", "-f", "-"])?.stdin(no_zone.to_string());
    let output = command.ok().await?;
    ensure!(output.warnings().len() == 1, "{}", output.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_e5_under_guard_overrides_a_wake_needs_the_verb() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let namespace = stage
        .night(&json!({"mode": "Deny", "guardOverrides": true}), &json!({}))
        .await?;
    stage
        .asleep(&namespace, &deployment("web", 3), DownReplicas::Count(0))
        .await?;
    let rule = |name: &str, rules: serde_json::Value, user: &str| {
        json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
             "metadata": {"name": format!("{namespace}-{name}")}, "rules": rules},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
             "metadata": {"name": format!("{namespace}-{name}-{user}")},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{namespace}-{name}")},
             "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]},
        ]})
    };
    let edit = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]}]);
    let verb = json!([{"apiGroups": ["offhours.platform.io"], "resources": ["offhoursschedules"],
        "resourceNames": [namespace], "verbs": ["override"]}]);
    for (name, rules, user) in [("edit", &edit, "dev"), ("edit", &edit, "lead"), ("wake", &verb, "lead")] {
        stage.plane.apply(&rule(name, rules.clone(), user).to_string()).await?;
    }
    let wake = |user: &str| {
        stage.plane.kubectl_as(
            &Identity::user(user, &[]),
            &[
                "-n",
                &namespace,
                "annotate",
                "--overwrite",
                "deploy/web",
                "offhours.platform.io/awake-until=2h",
            ],
        )
    };
    wait_for("the refusal of who lacks the verb", SOON, || async {
        let output = wake("dev")?.fails().await?;
        ensure!(output.stderr.contains("(guardOverrides)"), "{}", output.stderr);
        Ok(())
    })
    .await?;
    wait_for("the wake of who has it", SOON, || async { wake("lead")?.ok().await }).await?;
    let told = stage.heard.told(&namespace);
    ensure!(
        told.iter()
            .any(|(_, message)| message.contains("\"lead\" set awake-until")),
        "{told:?}"
    );
    Ok(())
}
