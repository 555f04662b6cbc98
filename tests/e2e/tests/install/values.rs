//! Values that pods would refuse, or would not obey, are refused where the chart is installed.

use std::fs;

use anyhow::ensure;
use harness::{
    chart::{objects, template, try_template},
    repository,
};
use serde_json::{Value, json};
use shared::{api, schedule::parse_windows};

/// Forms of single values: what is set, and what has to be said.
const REFUSED: &[(&str, &str)] = &[
    ("mode=daemon", "mode"),
    ("replicas=0", "replicas"),
    ("replica=2", "replica"),
    ("nameOverride=Night", "nameOverride"),
    ("fullnameOverride=7-nights", "fullnameOverride"),
    (
        "fullnameOverride=a-name-that-would-be-cut-in-the-middle-of-it",
        "fullnameOverride",
    ),
    ("image.repository=registry.example.com/offhours:1.0", "repository"),
    ("image.repository=Registry/OffHours", "repository"),
    ("image.tag=1 0", "tag"),
    ("image.digest=latest", "digest"),
    ("image.pullPolicy=Sometimes", "pullPolicy"),
    ("imagePullSecrets[0].name=My Secret", "imagePullSecrets"),
    (
        "imagePullSecrets[0].secret=mine,imagePullSecrets[0].name=mine",
        "secret",
    ),
    ("namespaces={\"\"}", "namespaces"),
    ("namespaces={shop.dev}", "namespaces"),
    ("namespaces={kube-system}", "never put to sleep"),
    ("kinds={Pod}", "kinds"),
    ("kinds={}", "kinds"),
    ("enforcementMode=deny", "enforcementMode"),
    ("argo.clusterNames={a b}", "clusterNames"),
    ("webhook.failurePolicy=ignore", "failurePolicy"),
    ("webhook.timeoutSeconds=4", "timeoutSeconds"),
    ("webhook.onUncertainty=refuse", "onUncertainty"),
    ("webhook.port=443", "port"),
    ("webhook.port=8080", "webhook.port 8080 is that of probes and metrics"),
    ("webhook.service.port=0", "port"),
    (
        "webhook.namespaceSelector.matchExpressions[0].key=a,webhook.namespaceSelector.matchExpressions[0].operator=in",
        "operator",
    ),
    ("webhook.certificates.source=certManager", "issuerRef.name"),
    ("webhook.certificates.source=file", "source"),
    (
        "uninstall.patience=soon",
        "uninstall.patience is \"soon\": allowed is a duration",
    ),
    ("uninstall.patience=2h", "at most an hour"),
    ("podDisruptionBudget.maxUnavailable=half", "maxUnavailable"),
    ("resources.limit.memory=1Gi", "limit"),
    ("resources.limits.memory=1GB", "limits"),
    ("priorityClassName=Very High", "priorityClassName"),
    ("podLabels.team=the platform", "podLabels"),
    (
        "podLabels.app\\.kubernetes\\.io/component=mine",
        "its selectors rely on it",
    ),
    ("podAnnotations.helm\\.sh/hook=test", "is written by the chart"),
    ("terminationGracePeriodSeconds=5", "terminationGracePeriodSeconds"),
    ("serviceMonitor.interval=often", "interval"),
    ("networkPolicy.metricsFrom[0].pods=a", "metricsFrom"),
    ("flowSchema.priorityLevel=Work Load", "priorityLevel"),
    ("flowSchema.matchingPrecedence=0", "matchingPrecedence"),
    // options: unknown ones, wrong ones, and those that the chart decides
    (
        "settings.logLevels=debug",
        "settings.logLevels: there is no such option",
    ),
    (
        "settings.logLevel=loud",
        "settings.logLevel is \"loud\": allowed is `error`, `warn`",
    ),
    (
        "settings.logFormat=xml",
        "settings.logFormat is \"xml\": allowed is `text`, `json` or `k8s-offhours`",
    ),
    ("settings.verbose=yes", "exactly `true` or `false`"),
    ("settings.writeConcurrency=0", "a whole number from 1 to 1000"),
    ("settings.writeConcurrency=1001", "a whole number from 1 to 1000"),
    ("settings.writeConcurrency=1.5", "a whole number"),
    ("settings.writeTimeout=5", "a duration such as"),
    ("settings.writeTimeout=0s", "a duration such as"),
    ("settings.argoApiRetryBaseSeconds=1e3x", "a number of seconds"),
    ("settings.argoApiRetryBaseSeconds=4000", "a number of seconds"),
    ("settings.schedules[0].name=a", "write the value schedules"),
    ("settings.kinds[0].kind=A", "write the value addedKinds"),
    ("settings.webhookAddress=0.0.0.0:1", "write the values webhook.port"),
    ("settings.leaseName=mine", "write the value fullnameOverride"),
    ("settings.argoToken=hush", "cronjob.argoTokenSecret"),
    ("settings.dryRun=true", "servers have no dry run"),
    ("settings.scheduleTimezone=Mars/Olympus", "is no time zone"),
    ("settings.leaseDuration=11m", "allowed are 1s to 10m"),
    ("settings.leaseRenewDeadline=14s", "below 13.5s"),
    ("settings.leaseRenewDeadline=6s", "at least a third"),
    ("settings.writeTimeout=9s", "below 8.5s"),
    (
        "settings.drainTimeout=30s",
        "terminationGracePeriodSeconds 30 has to be more",
    ),
    (
        "extraEnv[0].name=OFFHOURS_LOG_FORMAT,extraEnv[0].value=xml",
        "extraEnv: OFFHOURS_LOG_FORMAT is \"xml\"",
    ),
    (
        "extraEnv[0].name=OFFHOURS_LOGFORMAT,extraEnv[0].value=json",
        "no variable OFFHOURS_LOGFORMAT",
    ),
    (
        "extraEnv[0].name=OFFHOURS_OPS_ADDRESS,extraEnv[0].value=off",
        "is not for a release to say",
    ),
    (
        "extraEnv[0].name=OFFHOURS_SETTINGS,extraEnv[0].value=/a",
        "write the value settings",
    ),
    ("extraEnv[0].name=A,extraEnv[1].name=A", "A is there twice"),
    ("extraEnv[0].name=A,extraEnv[0].values=b", "values"),
    ("mode=cronjob", "needs cronjob.schedules"),
    ("cronjob.argoServer=argo.example", "need mode cronjob"),
];

/// Forms of lists: the value, its JSON, and what has to be said.
const REFUSED_JSON: &[(&str, &str, &str)] = &[
    (
        "schedules",
        r#"[{"name":"dev","spec":{"upTime":["Mon-Fri 08:00-20:00"]}}]"#,
        "upTime",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":"Mon-Fri 08:00-20:00"}}]"#,
        "uptime",
    ),
    ("schedules", r#"[{"spec":{}}]"#, "name"),
    (
        "schedules",
        r#"[{"name":"Dev_1","spec":{"uptime":["always"]}}]"#,
        "name",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["always"]}},{"name":"dev","spec":{"uptime":["never"]}}]"#,
        "two are named \"dev\"",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["Mon 08:00-20:00 Europe/Berln"]}}]"#,
        "is no time zone",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["Fri 20:00 - Fri 20:00"]}}]"#,
        "at the same time",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"cron":{"shutdown":["CRON_TZ=Nowhere 0 20 * * *"]}}}]"#,
        "is no time zone",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["always"],"hpa":{"mode":"DeleteRestore"}}}]"#,
        "set hpa.delete=true",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["always"],"gracePeriod":"an hour"}}]"#,
        "gracePeriod",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["always"],"exceptions":[{"date":"2026-12-24","hours":"8-12","state":"Up"}]}}]"#,
        "hours",
    ),
    (
        "schedules",
        r#"[{"name":"dev","spec":{"uptime":["always"],"exceptions":[{"state":"Up"}]}}]"#,
        "either date, or from and to",
    ),
    (
        "addedKinds",
        r#"[{"version":"1","kind":"Farm","plural":"farms","knobs":[{"path":"/spec/size"}]}]"#,
        "version",
    ),
    (
        "addedKinds",
        r#"[{"version":"v1","kind":"Pod","plural":"pods","knobs":[{"path":"/spec/size"}]}]"#,
        "could break the cluster",
    ),
    (
        "addedKinds",
        r#"[{"version":"v1","kind":"Farm","plural":"farms","knobs":[{"path":"size"}]}]"#,
        "path",
    ),
    (
        "addedKinds",
        r#"[{"version":"v1","kind":"Farm","plural":"farms","knobs":[{"path":"/a/size"},{"path":"/b/size"}]}]"#,
        "two knobs have the name \"size\"",
    ),
    (
        "addedKinds",
        r#"[{"version":"v1","kind":"Farm","plural":"farms","knobs":[{"path":"/spec/min_size"}]}]"#,
        "cannot be part of an annotation's key",
    ),
    (
        "addedKinds",
        r#"[{"version":"v1","kind":"Farm","plural":"farms","knobs":[{"path":"/spec/on","down":true,"text":true}]}]"#,
        "leave one of them out",
    ),
    (
        "extraEnv",
        r#"[{"name":"HPA_DELETE_ONLY_ENABLED","value":"true"}]"#,
        "no rights",
    ),
    (
        "cronjob.schedules",
        r#"[{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *"}]"#,
        "need mode cronjob",
    ),
];

/// In mode `cronjob`, beside one schedule that is right: the fields of another, and what is set besides.
const REFUSED_CRONJOBS: &[(&str, &str, &str)] = &[
    (
        r#"{"name":"a","shutdown":"20:00","startup":"0 8 * * *"}"#,
        "replicas=2",
        "shutdown",
    ),
    (
        r#"{"name":"a","shutdown":"0 24 * * *","startup":"0 8 * * *"}"#,
        "replicas=2",
        "shutdown",
    ),
    (
        r#"{"name":"right","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "replicas=2",
        "two are named",
    ),
    (
        r#"{"name":"a-name-of-thirty-characters-xx","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "fullnameOverride=another-long-release",
        "too long for the name of a CronJob",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "namespaces={shop}",
        "write scope: deployment",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *","env":{"HPA_MIN_ZERO_ENABLED":"yes"}}"#,
        "replicas=2",
        "env of a: HPA_MIN_ZERO_ENABLED is \"yes\": allowed is exactly `true` or `false`",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *","env":{"HPA_MINZERO_ENABLED":"true"}}"#,
        "replicas=2",
        "no variable HPA_MINZERO_ENABLED",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *","env":{"HPA_DELETE_RESTORE_ENABLED":"true"}}"#,
        "replicas=2",
        "set hpa.delete=true",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *","env":{"ARGO_ENABLED":"false"}}"#,
        "replicas=2",
        "write the value argo.enabled",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *","env":{"A":"b"}}"#,
        "extraEnv[0].name=A",
        "is in extraEnv, too",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "cronjob.argoServer=a b",
        "argoServer",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "cronjob.argoServer=argo.example",
        "argoTokenSecret.name",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "cronjob.argoTokenSecret.name=argo",
        "of no use",
    ),
    (
        r#"{"name":"a","shutdown":"0 20 * * *","startup":"0 8 * * *"}"#,
        "settings.scheduleShutdown=0 20 * * *",
        "write the value cronjob.schedules",
    ),
];

fn refused(arguments: &[&str], said: &str) -> anyhow::Result<()> {
    let printed = try_template("offhours-system", arguments)?;
    ensure!(!printed.success, "{arguments:?} was taken");
    ensure!(
        printed.stderr.contains(said),
        "{arguments:?} without {said:?}: {}",
        printed.text()
    );
    Ok(())
}

#[test]
fn values_that_cannot_be_meant_are_refused_by_name() -> anyhow::Result<()> {
    for (set, said) in REFUSED {
        refused(&["--set", set], said)?;
    }
    for (value, json, said) in REFUSED_JSON {
        refused(&["--set-json", &format!("{value}={json}")], said)?;
    }
    for (schedule, set, said) in REFUSED_CRONJOBS {
        let right = r#"{"name":"right","shutdown":"0 20 * * 1-5","startup":"0 8 * * 1-5","scope":"deployment"}"#;
        let schedules = format!("cronjob.schedules=[{right},{schedule}]");
        let arguments = ["--set", "mode=cronjob", "--set-json", &schedules, "--set", set];
        refused(&arguments, said)?;
    }
    let printed = try_template("kube-system", &[])?;
    ensure!(
        !printed.success && printed.stderr.contains("a namespace of its own"),
        "{}",
        printed.text()
    );
    Ok(())
}

fn schedules(name: &str, spec: &Value) -> String {
    format!("schedules={}", json!([{"name": name, "spec": spec}]))
}

/// What the definition and the webhook refuse as a resource, the chart refuses as a value.
#[test]
fn a_schedule_that_is_wrong_as_a_resource_is_wrong_as_a_value() -> anyhow::Result<()> {
    let mut count = 0;
    for entry in fs::read_dir(repository().join("manifests/examples/wrong"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        for object in objects(&fs::read_to_string(&path)?)? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let printed = try_template("offhours-system", &["--set-json", &schedules(name, &object["spec"])])?;
            ensure!(!printed.success, "{} was taken", path.display());
            ensure!(
                printed.stderr.contains("schedules"),
                "{}: {}",
                path.display(),
                printed.text()
            );
            count += 1;
        }
    }
    ensure!(count >= 17, "only {count}");
    Ok(())
}

/// No form that the parser takes is refused.
#[test]
fn a_schedule_that_is_right_as_a_resource_is_right_as_a_value() -> anyhow::Result<()> {
    let windows = [
        "Mon-Fri 08:00-20:00",
        "mon-fri 08:00-20:00, Sat 10:00-14:00",
        "Mon,Wed , Fri 08:00 - 24:00",
        "Fri-Mon 22:00-06:00 America/Sao_Paulo",
        "Fri 20:00 - Mon 06:00 europe/berlin; Wednesday 00:00-24:00",
        "2026-12-24T12:00/2027-01-02T08:00",
        "2026-12-24T12:00 to 2027-01-02T08:00 Asia/Kolkata",
        "2026-12-24T12:00:00+01:00 - 2027-01-02T08:00:00Z",
        "always",
        "NEVER",
    ];
    for window in windows {
        ensure!(parse_windows(window).is_ok(), "{window}");
    }
    let spec = json!({
        "timeZone": "America/Argentina/Buenos_Aires", "uptime": windows, "downReplicas": "25%", "gracePeriod": "1d2h30m",
        "selector": {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
        "argo": {"pause": false}, "startup": {"timeout": "90s", "maxConcurrent": 5}, "enforcement": {"maxWake": "4h"},
        "exceptions": [
            {"date": "2028-02-29", "state": "Up"}, {"date": "--02-29", "state": "Down"},
            {"date": "last Mon of May", "hours": "22:00-06:00", "state": "Up"},
            {"from": "2026-12-24", "to": "2026-12-26", "state": "Down"},
            {"from": "2026-12-24T12:00", "to": "2026-12-26T08:00:30", "state": "Down"},
        ],
    });
    let cron = json!({
        "downReplicas": 1,
        "cron": {"shutdown": ["0 20 * * 1-5", "@daily", "CRON_TZ=Europe/Berlin 30 7 * jan-MAR Mon,7"], "startup": ["*/15 8-10/2 1,15 ? *"]},
    });
    for spec in [&spec, &cron] {
        let read = serde_json::from_value(spec.clone())?;
        ensure!(api::validate(&read).is_ok(), "{:?}", api::validate(&read));
        template("offhours-system", &["--set-json", &schedules("dev.weekday", spec)])?;
    }
    let named = template("shop", &["--set", "fullnameOverride=night"])?;
    ensure!(named.contains("name: night-webhook"));
    Ok(())
}

#[test]
fn options_that_pods_take_are_taken() -> anyhow::Result<()> {
    let settings = json!({
        "logLevel": "info,scheduler=debug,webhook::serve=trace", "logFormat": "k8s-offhours", "verbose": false, "drainTimeout": "20s",
        "leaseDuration": "1m30s", "leaseRenewDeadline": "40s", "writeTimeout": "500ms", "writeConcurrency": 32, "writeRate": 1_000_000,
        "argoApiRetryBaseSeconds": 0.5, "scheduleName": "Dev_1", "scheduleShutdown": ["0 20 * * 1-5"], "scheduleStartup": "0 8 * * 1-5",
        "scheduleTimezone": "America/Sao_Paulo", "defaultStartupReplicas": 0,
    });
    let variables = json!([
        {"name": "OFFHOURS_LOG_LEVEL", "value": ""}, {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "OFFHOURS_WRITE_RATE", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
    ]);
    let rendered = template(
        "offhours-system",
        &[
            "--set-json",
            &format!("settings={settings}"),
            "--set-json",
            &format!("extraEnv={variables}"),
            "--set",
            "image.repository=registry.example.com:5000/team/off-hours_x,image.tag=v1.2.3-rc.1,podDisruptionBudget.maxUnavailable=25%",
        ],
    )?;
    // What is rendered is what the pods read.
    ensure!(rendered.contains("writeRate: 1000000\n"), "{rendered}");
    Ok(())
}
