//! What the chart renders and what it refuses, without a release.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, ensure};
use harness::{
    ControlPlane,
    chart::{base, folder, objects, run, template, title},
    repository,
};
use serde_json::{Map, Value, json};
use shared::{kinds::Kinds, rules::Registration};

/// Combinations of values that people choose.
pub const MATRIX: &[(&str, &[&str])] = &[
    ("as it is", &[]),
    (
        "one replica, webhook closed",
        &[
            "--set",
            "replicas=1,webhook.failurePolicy=Fail,webhook.onUncertainty=deny",
        ],
    ),
    ("no webhook", &["--set", "webhook.enabled=false"]),
    (
        "cert-manager",
        &[
            "--set",
            "webhook.certificates.source=certManager,webhook.certificates.issuerRef.name=ca",
        ],
    ),
    (
        "all beside",
        &[
            "--set",
            "networkPolicy.enabled=true,flowSchema.enabled=true,serviceMonitor.enabled=true,podMonitor.enabled=true,\
             priorityClassName=system-cluster-critical,podLabels.team=platform,hpa.delete=true,k8sOffhours.backups=true",
        ],
    ),
    (
        "schedules, settings and kinds",
        &[
            "--set-json",
            r#"schedules=[{"name":"dev","spec":{"timeZone":"UTC","uptime":["Mon-Fri 08:00-20:00"]}}]"#,
            "--set-json",
            r#"addedKinds=[{"group":"example.com","version":"v1","kind":"Farm","plural":"farms","scale":true,"knobs":[{"path":"/spec/size"}]}]"#,
            "--set",
            "settings.logLevel=debug,kinds={Deployment,CronJob,Job,DaemonSet}",
        ],
    ),
    ("some namespaces", &["--set", "namespaces={shop,media}"]),
    (
        "release elsewhere",
        &["--set", "fullnameOverride=night-shift,crds.keep=false"],
    ),
    (
        "cronjob",
        &[
            "--set",
            "mode=cronjob",
            "--set-json",
            r#"cronjob.schedules=[{"name":"default","shutdown":"0 20 * * 1-5","startup":"0 8 * * 1-5","timeZone":"America/Sao_Paulo"},{"name":"late","shutdown":"0 23 * * *","startup":"0 10 * * *","scope":"deployment","env":{"HPA_MIN_ZERO_ENABLED":"true"}}]"#,
        ],
    ),
    (
        "cronjob beside the Argo CD API",
        &[
            "--set",
            "mode=cronjob,cronjob.argoServer=argocd-server.argocd,cronjob.argoTokenSecret.name=argocd",
            "--set-json",
            r#"cronjob.schedules=[{"name":"default","shutdown":"0 20 * * 1-5","startup":"0 8 * * 1-5"}]"#,
        ],
    ),
];

#[test]
fn the_chart_lints_and_its_unit_tests_pass() -> anyhow::Result<()> {
    let chart = folder().display().to_string();
    let lint = run("helm", &["lint", "--strict", &chart], &[], "")?;
    ensure!(lint.success, "{}", lint.text());
    let units = run("helm-unittest", &["--strict", &chart], &[], "")?;
    ensure!(units.success, "{}", units.text());
    ensure!(units.stdout.contains("Test Suites:"), "{}", units.text());
    Ok(())
}

/// One schema per kind, as kubeconform wants them, from the API server's own description; unknown fields are refused.
fn write_schemas(openapi: &Value, folder: &Path) -> anyhow::Result<usize> {
    fn strict(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get_mut("$ref") {
                    *reference = reference.replace("#/definitions/", "definitions.json#/");
                }
                fields.values_mut().for_each(strict);
                if fields.get("properties").is_some_and(Value::is_object)
                    && !fields.contains_key("additionalProperties")
                    && !fields.contains_key("x-kubernetes-preserve-unknown-fields")
                {
                    fields.insert("additionalProperties".to_owned(), Value::Bool(false));
                }
                if fields.get("format") == Some(&json!("int-or-string")) {
                    fields.insert("type".to_owned(), json!(["string", "integer"]));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(strict),
            _ => {}
        }
    }
    let mut definitions = openapi["definitions"].clone();
    strict(&mut definitions);
    // Free forms of the API, which the description shows as objects without fields.
    definitions["io.k8s.apimachinery.pkg.runtime.RawExtension"] = json!({"type": "object"});
    for loose in [
        "JSON",
        "JSONSchemaProps",
        "JSONSchemaPropsOrArray",
        "JSONSchemaPropsOrBool",
        "JSONSchemaPropsOrStringArray",
    ] {
        definitions[format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{loose}")] = json!({});
    }
    fs::write(folder.join("definitions.json"), definitions.to_string())?;
    let mut count = 0;
    for (name, definition) in definitions.as_object().context("no definitions")? {
        for kind in definition["x-kubernetes-group-version-kind"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let text = |field: &str| kind[field].as_str().unwrap_or_default().to_lowercase();
            let group = text("group");
            let group = group.split('.').next().unwrap_or_default();
            let dash = if group.is_empty() { "" } else { "-" };
            let file = format!("{}{dash}{group}-{}.json", text("kind"), text("version"));
            let schema = json!({"$ref": format!("definitions.json#/{name}")});
            fs::write(folder.join(file), schema.to_string())?;
            count += 1;
        }
    }
    Ok(count)
}

/// Kinds of other people's definitions.
const FOREIGN: &str = "ServiceMonitor,PodMonitor,Certificate";

fn conform(folder: &Path, text: &str) -> anyhow::Result<Value> {
    let location = format!("{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", folder.display());
    let arguments = [
        "-strict",
        "-summary",
        "-output",
        "json",
        "-skip",
        FOREIGN,
        "-schema-location",
        &location,
    ];
    let printed = run("kubeconform", &arguments, &[], text)?;
    serde_json::from_str(&printed.stdout).with_context(|| format!("kubeconform said: {}", printed.text()))
}

#[tokio::test]
async fn everything_that_it_renders_is_what_the_api_server_knows() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let answer = plane.kubectl(&["get", "--raw", "/openapi/v2"])?.ok().await?;
    let openapi: Value = serde_json::from_str(&answer.stdout)?;
    let folder = tempfile::tempdir()?;
    let schemas = write_schemas(&openapi, folder.path())?;
    ensure!(schemas > 100, "only {schemas} schemas");
    for (what, arguments) in MATRIX {
        let text = template("offhours-system", arguments)?;
        let rendered = objects(&text)?.len();
        let seen = conform(folder.path(), &text)?;
        let summary = &seen["summary"];
        ensure!(
            summary["invalid"] == 0 && summary["errors"] == 0,
            "{what}: {}",
            serde_json::to_string_pretty(&seen)?
        );
        let counted = summary["valid"].as_u64().unwrap_or(0) + summary["skipped"].as_u64().unwrap_or(0);
        ensure!(
            counted == rendered as u64 && rendered > 4,
            "{what}: {rendered} rendered, {summary}"
        );
    }
    // A test that cannot fail proves nothing.
    let wrong = template("offhours-system", &[])?.replace("terminationGracePeriodSeconds", "terminationGraceSeconds");
    ensure!(conform(folder.path(), &wrong)?["summary"]["invalid"] == 1);
    Ok(())
}

#[test]
fn no_role_has_a_wildcard_and_every_pod_is_restricted() -> anyhow::Result<()> {
    for (what, arguments) in MATRIX {
        let all = objects(&template("offhours-system", arguments)?)?;
        let mut pods = 0;
        for object in &all {
            let title = format!("{what}: {}", title(object));
            if object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")) {
                let rules = object["rules"].as_array().context("a role without rules")?;
                ensure!(!rules.is_empty(), "{title} grants nothing");
                ensure!(!object["rules"].to_string().contains('*'), "{title}");
            }
            let pod = match object["kind"].as_str() {
                Some("Deployment" | "Job") => &object["spec"]["template"]["spec"],
                Some("CronJob") => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
                Some("Pod") => &object["spec"],
                _ => continue,
            };
            pods += 1;
            let security = &pod["securityContext"];
            ensure!(
                security["runAsNonRoot"] == true && security["runAsUser"].as_u64() > Some(0),
                "{title}"
            );
            ensure!(security["seccompProfile"]["type"] == "RuntimeDefault", "{title}");
            for key in ["hostNetwork", "hostPID", "hostIPC"] {
                ensure!(pod.get(key).is_none(), "{title}: {key}");
            }
            for container in pod["containers"].as_array().context("no containers")? {
                let security = &container["securityContext"];
                ensure!(security["readOnlyRootFilesystem"] == true, "{title}");
                ensure!(security["allowPrivilegeEscalation"] == false, "{title}");
                ensure!(security["capabilities"]["drop"] == json!(["ALL"]), "{title}");
                ensure!(container["resources"]["limits"]["memory"].is_string(), "{title}");
            }
        }
        ensure!(pods > 0, "{what} has no pods");
        let cluster_wide = all.iter().any(|object| object["kind"] == "ClusterRole");
        ensure!(
            cluster_wide != what.contains("namespaces"),
            "{what}: cluster roles: {cluster_wide}"
        );
    }
    Ok(())
}

/// The webhooks of a configuration, with one rule per resource, in an order of their own.
fn normal(webhooks: &Value) -> Vec<Value> {
    let mut all = webhooks.as_array().cloned().unwrap_or_default();
    for webhook in &mut all {
        let mut rules = BTreeSet::new();
        for rule in webhook["rules"].as_array().into_iter().flatten() {
            for resource in rule["resources"].as_array().into_iter().flatten() {
                let mut one: Map<String, Value> = rule.as_object().cloned().unwrap_or_default();
                one.insert("resources".to_owned(), json!([resource]));
                rules.insert(Value::Object(one).to_string());
            }
        }
        webhook["rules"] = json!(rules);
    }
    all.sort_by_key(|webhook| webhook["name"].to_string());
    all
}

#[test]
fn case_5_16_it_registers_what_the_product_itself_would_register() -> anyhow::Result<()> {
    let kinds = Kinds::default();
    let every: Vec<&str> = kinds.rows().iter().map(|kind| kind.kind.as_ref()).collect();
    let text = template("offhours-system", &["--set", &format!("kinds={{{}}}", every.join(","))])?;
    let all = objects(&text)?;
    let mut registration = Registration::in_cluster("offhours-system", "offhours-webhook", "offhours");
    registration
        .own_users
        .push("system:serviceaccount:offhours-system:offhours-uninstall".to_owned());
    let wanted = [
        (
            "MutatingWebhookConfiguration",
            serde_json::to_value(registration.mutating(&kinds)?)?,
        ),
        (
            "ValidatingWebhookConfiguration",
            serde_json::to_value(registration.validating(&kinds)?)?,
        ),
    ];
    for (kind, wanted) in wanted {
        let rendered = all
            .iter()
            .find(|object| object["kind"] == kind)
            .context("it is not rendered")?;
        assert_eq!(normal(&rendered["webhooks"]), normal(&wanted["webhooks"]), "{kind}");
    }
    Ok(())
}

#[test]
fn the_single_file_and_the_kustomize_base_are_what_the_chart_renders() -> anyhow::Result<()> {
    let rendered = run_render()?;
    let committed = base()?;
    ensure!(
        rendered == committed,
        "manifests/kustomize/offhours.yaml is stale; run: make drift DRIFT=write"
    );
    ensure!(!committed.contains("helm.sh/"), "traces of Helm");
    Ok(())
}

fn run_render() -> anyhow::Result<String> {
    let script = repository().join("manifests/render.sh");
    let output = std::process::Command::new("bash").arg(script).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
