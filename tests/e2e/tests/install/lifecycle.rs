//! A whole life of a release on a real control plane: installed, used, upgraded, taken away, under the roles that the chart makes.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use harness::{
    AuditQuery, AuditedRequest, ControlPlane, Identity, Options, SOON,
    chart::{self, objects, run, template},
    wait_for,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use shared::kinds::{Kind, table};

use crate::{excuses, fleet, pods::Release, rights};

const OWN: &str = "offhours-system";
const DAY: &str = "2";

/// Starts a control plane for one test, whose nodes and pods only pretend to run.
async fn plane(name: &str) -> anyhow::Result<&'static ControlPlane> {
    // It ends with this program.
    Ok(Box::leak(Box::new(ControlPlane::start(Options::named(name)).await?)))
}

async fn namespace(plane: &ControlPlane, name: &str, labels: &Value) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    plane.apply(&object.to_string()).await
}

fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}},
    })
}

/// Every object of the cluster as `resource namespace/name`, but for what comes and goes by itself.
async fn everything(plane: &ControlPlane) -> anyhow::Result<BTreeSet<String>> {
    let listed = plane
        .kubectl(&["api-resources", "--verbs=list", "-o", "name"])?
        .ok()
        .await?;
    let passing = [
        "events",
        "events.events.k8s.io",
        "pods",
        "endpoints",
        "endpointslices.discovery.k8s.io",
        "replicasets.apps",
        "controllerrevisions.apps",
    ];
    let resources: Vec<&str> = listed
        .stdout
        .lines()
        .filter(|resource| !passing.contains(resource))
        .collect();
    ensure!(resources.len() > 40, "{resources:?}");
    let shown = plane
        .kubectl(&[
            "get",
            &resources.join(","),
            "-A",
            "--ignore-not-found",
            "-o",
            r#"jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}"#,
        ])?
        .ok()
        .await?;
    Ok(shown.stdout.lines().map(str::to_owned).collect())
}

async fn replicas(release: &Release, namespace: &str, name: &str) -> anyhow::Result<Value> {
    Ok(release.json(&["get", "deployment", name, "-n", namespace]).await?["spec"]["replicas"].clone())
}

async fn until_replicas(release: &Release, namespace: &str, name: &str, wanted: u64) -> anyhow::Result<()> {
    wait_for(&format!("{namespace}/{name} at {wanted}"), SOON, || async {
        let seen = replicas(release, namespace, name).await?;
        ensure!(seen == wanted, "{seen}");
        Ok(())
    })
    .await
}

/// Names of the objects in `namespace` that carry our label or any key of ours.
async fn touched(plane: &ControlPlane, namespace: &str) -> anyhow::Result<Vec<String>> {
    let mut kinds: Vec<String> = table().iter().map(Kind::kubectl_name).collect();
    for beside in [
        "hpa",
        "applications.argoproj.io",
        "kustomizations.kustomize.toolkit.fluxcd.io",
        "helmreleases.helm.toolkit.fluxcd.io",
    ] {
        kinds.push(beside.to_owned());
    }
    let shown = plane
        .kubectl(&[
            "get",
            &kinds.join(","),
            "-n",
            namespace,
            "--ignore-not-found",
            "-o",
            "json",
        ])?
        .ok()
        .await?;
    let list: Value = serde_json::from_str(&shown.stdout)?;
    let ours = |object: &&Value| {
        let metadata = &object["metadata"];
        // The Deployment controller copies annotations to its ReplicaSets, and leaves them there.
        metadata["ownerReferences"].is_null()
            && ["labels", "annotations"].iter().any(|keys| {
                let keys = metadata[*keys].as_object();
                keys.is_some_and(|keys| keys.keys().any(|key| key.starts_with("offhours.platform.io/")))
            })
    };
    let items = list["items"].as_array().context("no items")?;
    Ok(items.iter().filter(ours).map(chart::title).collect())
}

fn schedule(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"timeZone": "UTC", "downtime": ["Mon-Sun 00:00-24:00"]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    json!({"apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule", "metadata": {"name": name}, "spec": whole})
}

/// Short times, so that a test does not wait for a lease of 15 seconds.
fn quick() -> Value {
    json!({"leaseDuration": "4s", "leaseRenewDeadline": "3s", "leaseRetryPeriod": "300ms", "leaseCallTimeout": "1s",
        "writeTimeout": "1500ms", "logFormat": "text"})
}

fn every_kind() -> Value {
    json!(table().iter().map(|kind| kind.kind.to_string()).collect::<Vec<_>>())
}

#[tokio::test]
#[ignore = "run by make test-install"]
async fn a_release_is_installed_used_upgraded_and_leaves_no_trace() -> anyhow::Result<()> {
    let plane = plane("install").await?;
    fleet::define(plane).await?;
    namespace(plane, OWN, &json!({"pod-security.kubernetes.io/enforce": "restricted"})).await?;
    for name in ["shop", "part", "fleet"] {
        namespace(plane, name, &json!({"offhours.platform.io/schedule": name})).await?;
    }
    let mut staged = fleet::objects("fleet");
    staged.push(deployment("shop", "web"));
    staged.push(deployment("part", "half"));
    staged.push(fleet::autoscaler("part", "half"));
    fleet::apply(plane, &staged).await?;
    let developer = Identity::user("dev@example.com", &["developers"]);
    plane
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "developers",
            "--clusterrole=edit",
            "--group=developers",
        ])?
        .ok()
        .await?;
    plane.kubectl(&["get", "deployments", "-n", "shop"])?.ok().await?;
    let before = everything(plane).await?;
    let audit = plane.audit().await?;
    let start = audit.mark().await?;

    let release = Release::new(
        plane,
        OWN,
        "offhours",
        &json!({
            "kinds": every_kind(), "hpa": {"delete": true}, "settings": quick(),
            "networkPolicy": {"enabled": true}, "flowSchema": {"enabled": true},
            "webhook": {"failurePolicy": "Fail"}, "uninstall": {"patience": "30s"},
        }),
    )?;
    let installed = release.install().await?;
    ensure!(
        installed.stdout.contains("kubectl apply -f - <<END"),
        "{}",
        installed.text()
    );
    release.connect_webhook().await?;
    first_night(&release, &developer).await?;
    let tested = release.helm(&["test", "offhours", "--logs=false"]).await?;
    ensure!(tested.stdout.contains("Succeeded"), "{}", tested.text());
    upgrade(&release).await?;
    fleet_night(&release).await?;
    healing(&release).await?;

    let granted = objects(&template(OWN, &["-f", &release.values()])?)?;
    release.uninstall().await?;
    for name in ["shop", "part", "fleet"] {
        let left = touched(plane, name).await?;
        ensure!(left.is_empty(), "{name}: {left:?}");
    }
    ensure!(replicas(&release, "shop", "web").await? == 2);
    ensure!(replicas(&release, "fleet", "scaled").await? == 2);
    let kept = everything(plane).await?;
    let definition = "offhoursschedules.offhours.platform.io";
    ensure!(
        kept.iter().any(|object| object.contains(definition)),
        "the definition is not kept"
    );
    // as docs/install.md says
    plane.kubectl(&["delete", "crd", definition])?.ok().await?;
    let after = everything(plane).await?;
    let left: Vec<_> = after.difference(&before).collect();
    let lost: Vec<_> = before.difference(&after).collect();
    ensure!(
        left.is_empty() && lost.is_empty(),
        "left behind: {left:?}; lost: {lost:?}"
    );
    rights::check(
        &audit,
        AuditQuery::new().since(start),
        &granted,
        excuses::IN_A_QUIET_NIGHT,
        AuditedRequest::searches_for_dev_mode,
    )
    .await
}

/// The first schedule, the first sleep, a held change, a wake.
async fn first_night(release: &Release, developer: &Identity) -> anyhow::Result<()> {
    let plane = release.plane;
    fleet::apply(plane, &[schedule("shop", &json!({}))]).await?;
    until_replicas(release, "shop", "web", 0).await?;
    let scale = ["scale", "deployment", "web", "-n", "shop", "--replicas=3"];
    let held = plane.kubectl_as(developer, &scale)?.ok().await?;
    ensure!(held.stderr.contains("is off hours (schedule shop)"), "{}", held.stderr);
    let back = plane.kubectl_as(
        developer,
        &["scale", "deployment", "web", "-n", "shop", "--replicas", DAY],
    )?;
    back.ok().await?;
    let wake = [
        "wake",
        "deployment/web",
        "-n",
        "shop",
        "--for",
        "1h",
        "--wait",
        "--timeout",
        "30s",
    ];
    let woken = release.plugin(developer, &wake).await?;
    ensure!(woken.success, "{}", woken.text());
    until_replicas(release, "shop", "web", 2).await?;
    let asleep = [
        "annotate",
        "deployment",
        "web",
        "-n",
        "shop",
        "offhours.platform.io/awake-until-",
    ];
    plane.kubectl_as(developer, &asleep)?.ok().await?;
    until_replicas(release, "shop", "web", 0).await
}

/// New pods, the same authority, and nothing wakes.
async fn upgrade(release: &Release) -> anyhow::Result<()> {
    let secret = ["get", "secret", "offhours-webhook-ca", "-n", OWN];
    let authority = release.json(&secret).await?["data"]["ca.crt"].clone();
    ensure!(authority.is_string(), "no authority");
    release.set(|values| values["settings"]["logLevel"] = json!("debug"))?;
    release.upgrade().await?;
    let service = release.json(&["get", "service", "offhours-webhook", "-n", OWN]).await?;
    ensure!(service["spec"]["type"] == "ExternalName", "{service}");
    ensure!(
        release.json(&secret).await?["data"]["ca.crt"] == authority,
        "another authority"
    );
    ensure!(replicas(release, "shop", "web").await? == 0);
    let shown = release.json(&["get", "ohs", "shop"]).await?;
    ensure!(shown["status"]["state"] == "Down", "{shown}");
    Ok(())
}

/// A night of everything that can sleep, with a number that is remembered for each that has a scale.
async fn fleet_night(release: &Release) -> anyhow::Result<()> {
    let plane = release.plane;
    let partial = schedule("part", &json!({"downReplicas": 1}));
    fleet::apply(plane, &[fleet::schedule("fleet"), partial]).await?;
    wait_for("everything to sleep", SOON * 2, || async {
        let asleep = touched(plane, "fleet").await?;
        let missing: Vec<String> = table()
            .iter()
            .map(|kind| format!("{} {}", kind.kind, fleet::name_of(kind)))
            .chain(["Application shop", "Kustomization shop", "HelmRelease shop"].map(str::to_owned))
            .filter(|wanted| !asleep.contains(wanted))
            .collect();
        ensure!(missing.is_empty(), "awake: {missing:?}");
        Ok(())
    })
    .await?;
    hpas_of_the_fleet(release, 0).await?;
    // a wake brings the HPA back, and its end takes it away again
    let scaled = ["annotate", "deployment", "scaled", "-n", "fleet"];
    plane
        .kubectl(&scaled)?
        .args(&["offhours.platform.io/awake-until=1h"])
        .ok()
        .await?;
    hpas_of_the_fleet(release, 1).await?;
    until_replicas(release, "fleet", "scaled", 2).await?;
    plane
        .kubectl(&scaled)?
        .args(&["offhours.platform.io/awake-until-"])
        .ok()
        .await?;
    hpas_of_the_fleet(release, 0).await?;
    until_replicas(release, "fleet", "scaled", 0).await?;
    for kind in table().iter().filter(|kind| kind.scale) {
        let object = format!("{}/{}", kind.kubectl_name(), fleet::name_of(kind));
        plane
            .kubectl(&["scale", &object, "-n", "fleet", "--replicas=3"])?
            .ok()
            .await?;
        plane
            .kubectl(&["scale", &object, "-n", "fleet", "--replicas=2"])?
            .ok()
            .await?;
    }
    // a wake under guardOverrides, by somebody who has the verb; the runs that were missed are skipped
    let wake = [
        "annotate",
        "cronjob",
        "nightly",
        "-n",
        "fleet",
        "offhours.platform.io/awake-until=1h",
    ];
    plane.kubectl(&wake)?.ok().await?;
    wait_for("nightly to wake", SOON, || async {
        let job = release.json(&["get", "cronjob", "nightly", "-n", "fleet"]).await?;
        ensure!(
            job["spec"]["suspend"] != true && job["status"]["lastScheduleTime"].is_string(),
            "{job}"
        );
        Ok(())
    })
    .await?;
    let over = [
        "annotate",
        "cronjob",
        "nightly",
        "-n",
        "fleet",
        "offhours.platform.io/awake-until-",
    ];
    plane.kubectl(&over)?.ok().await?;
    half_sleeps(release).await?;
    // its HPA is given back before it wakes
    let half = ["annotate", "deployment", "half", "-n", "part"];
    plane
        .kubectl(&half)?
        .args(&["offhours.platform.io/awake-until=1h"])
        .ok()
        .await?;
    until_replicas(release, "part", "half", 2).await?;
    plane
        .kubectl(&half)?
        .args(&["offhours.platform.io/awake-until-"])
        .ok()
        .await?;
    half_sleeps(release).await?;
    late_wake(release).await
}

async fn half_sleeps(release: &Release) -> anyhow::Result<()> {
    until_replicas(release, "part", "half", 1).await?;
    wait_for("the HPA to be capped", SOON, || async {
        let hpa = release.json(&["get", "hpa", "half", "-n", "part"]).await?;
        ensure!(hpa["spec"]["maxReplicas"] == 1, "{hpa}");
        Ok(())
    })
    .await
}

async fn hpas_of_the_fleet(release: &Release, wanted: usize) -> anyhow::Result<()> {
    wait_for(&format!("{wanted} HPAs"), SOON, || async {
        let hpas = release.json(&["get", "hpa", "-n", "fleet"]).await?;
        let count = hpas["items"].as_array().map_or(0, Vec::len);
        ensure!(count == wanted, "{count}");
        Ok(())
    })
    .await
}

/// A duration that the webhook did not see becomes an instant all the same.
async fn late_wake(release: &Release) -> anyhow::Result<()> {
    let mut config = release.plane.config(&Identity::admin()).await?;
    // Our own accounts are not sent to the webhook.
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{OWN}:offhours"));
    let namespaces: Api<Namespace> = Api::all(Client::try_from(config)?);
    let key = "offhours.platform.io/awake-until";
    let wake = Patch::Merge(json!({"metadata": {"annotations": {key: "1h"}}}));
    namespaces.patch("shop", &PatchParams::default(), &wake).await?;
    wait_for("the duration to become an instant", SOON, || async {
        let seen = release.json(&["get", "namespace", "shop"]).await?;
        let until = seen["metadata"]["annotations"][key].as_str().unwrap_or_default();
        ensure!(until.contains('T'), "{until}");
        Ok(())
    })
    .await?;
    until_replicas(release, "shop", "web", 2).await?;
    let over = ["annotate", "namespace", "shop", "offhours.platform.io/awake-until-"];
    release.plane.kubectl(&over)?.ok().await?;
    until_replicas(release, "shop", "web", 0).await
}

/// What somebody deletes by mistake comes back.
async fn healing(release: &Release) -> anyhow::Result<()> {
    for object in ["lease/offhours-scheduler", "secret/offhours-webhook-ca"] {
        let uid = release.json(&["get", object, "-n", OWN]).await?["metadata"]["uid"].clone();
        release.plane.kubectl(&["delete", object, "-n", OWN])?.ok().await?;
        wait_for(&format!("{object} to come back"), SOON, || async {
            let seen = release.json(&["get", object, "-n", OWN]).await?;
            ensure!(seen["metadata"]["uid"] != uid);
            Ok(())
        })
        .await?;
    }
    // and the webhook still holds
    wait_for("the new authority to be trusted", SOON, || async {
        let scale = ["scale", "deployment", "web", "-n", "shop", "--replicas=2"];
        let held = release.plane.kubectl(&scale)?.ok().await?;
        ensure!(held.stderr.contains("is off hours"), "{}", held.stderr);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "run by make test-install"]
async fn cron_jobs_and_single_namespaces_do_with_less_and_leave_no_trace() -> anyhow::Result<()> {
    let plane = plane("modes").await?;
    namespace(
        plane,
        "night",
        &json!({"pod-security.kubernetes.io/enforce": "restricted"}),
    )
    .await?;
    namespace(plane, "shop", &json!({"offhours.platform.io/schedule": "default"})).await?;
    namespace(plane, "media", &json!({})).await?;
    let mut labelled = deployment("media", "web");
    labelled["metadata"]["labels"] = json!({"offhours.platform.io/schedule": "default"});
    fleet::define_applications(plane).await?;
    fleet::apply(
        plane,
        &[deployment("shop", "web"), labelled, fleet::application("shop", "web")],
    )
    .await?;
    let before = everything(plane).await?;

    let cron = json!({"name": "default", "shutdown": "0 20 * * 1-5", "startup": "0 8 * * 1-5", "timeZone": "UTC", "suspend": true});
    let values = json!({"mode": "cronjob", "kinds": ["Deployment"], "flux": {"enabled": false},
        "cronjob": {"schedules": [cron]}});
    let release = Release::new(plane, "night", "offhours", &values)?;
    let audit = plane.audit().await?;
    let start = audit.mark().await?;
    release.install().await?;
    let granted = objects(&template("night", &["-f", &release.values()])?)?;
    for (action, wanted) in [("shutdown", 0), ("startup", 2), ("shutdown", 0)] {
        let name = plane.unique_name(action);
        let from = format!("--from=cronjob/offhours-default-{action}");
        plane
            .kubectl(&["create", "job", "-n", "night", &name, &from])?
            .ok()
            .await?;
        release.run_job(&name).await?;
        ensure!(replicas(&release, "shop", "web").await? == wanted, "{action}");
        // without the API of Argo CD, by its custom resource
        let application = release.json(&["get", "application", "shop", "-n", "shop"]).await?;
        let automated = &application["spec"]["syncPolicy"]["automated"];
        ensure!(
            (automated["enabled"] == false) == (wanted == 0),
            "{action}: {application}"
        );
        // what Argo CD does with a sync that it was asked for
        if application["operation"].is_object() {
            let done = json!([{"op": "remove", "path": "/operation"}]).to_string();
            let patch = ["patch", "application", "shop", "-n", "shop", "--type=json", "-p", &done];
            plane.kubectl(&patch)?.ok().await?;
        }
        plane.kubectl(&["delete", "job", "-n", "night", &name])?.ok().await?;
    }
    ensure!(
        replicas(&release, "media", "web").await? == 2,
        "the scope is the namespace"
    );
    release.uninstall().await?;
    ensure!(replicas(&release, "shop", "web").await? == 2);
    no_trace(plane, &before).await?;
    // Backups of K8s-OffHours are looked for in its namespace, and done without where that is another one.
    let refused = |request: &AuditedRequest| request.resource == "configmaps" && request.namespace != "night";
    let since = AuditQuery::new().since(start);
    rights::check(&audit, since, &granted, excuses::IN_ONE_PASS, refused).await?;

    let spec = json!({"timeZone": "UTC", "downtime": ["Mon-Sun 00:00-24:00"]});
    let values = json!({"namespaces": ["media"], "settings": quick(),
        "uninstall": {"patience": "30s"}, "schedules": [{"name": "default", "scope": "Workload", "spec": spec}]});
    let release = Release::new(plane, "night", "offhours", &values)?;
    let start = audit.mark().await?;
    release.install().await?;
    until_replicas(&release, "media", "web", 0).await?;
    ensure!(replicas(&release, "shop", "web").await? == 2, "it has no rights there");
    let granted = objects(&template("night", &["-f", &release.values()])?)?;
    ensure!(!granted.iter().any(|object| object["kind"] == "ClusterRole"));
    release.uninstall().await?;
    ensure!(replicas(&release, "media", "web").await? == 2);
    no_trace(plane, &before).await?;
    // Namespaces and definitions are tried, and done without.
    let refused =
        |request: &AuditedRequest| matches!(request.resource.as_str(), "namespaces" | "customresourcedefinitions");
    rights::check(
        &audit,
        AuditQuery::new().since(start),
        &granted,
        excuses::IN_SINGLE_NAMESPACES,
        refused,
    )
    .await
}

async fn no_trace(plane: &ControlPlane, before: &BTreeSet<String>) -> anyhow::Result<()> {
    let after = everything(plane).await?;
    let left: Vec<_> = after.difference(before).collect();
    let lost: Vec<_> = before.difference(&after).collect();
    ensure!(
        left.is_empty() && lost.is_empty(),
        "left behind: {left:?}; lost: {lost:?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_kustomize_base_is_taken_by_the_api_server() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let base = harness::repository().join("manifests/kustomize").display().to_string();
    let shown = plane.kubectl(&["kustomize", &base])?.ok().await?;
    // Namespaced objects of a dry run need their namespace to be there.
    namespace(plane, OWN, &json!({})).await?;
    let applied = plane
        .kubectl(&["apply", "--dry-run=server", "-f", "-"])?
        .stdin(shown.stdout)
        .ok()
        .await?;
    ensure!(
        applied.stdout.contains("deployment.apps/offhours created"),
        "{}",
        applied.stdout
    );
    ensure!(
        run(
            "helm",
            &["show", "chart", &chart::folder().display().to_string()],
            &[],
            ""
        )?
        .success
    );
    Ok(())
}
