//! One object of every kind that can sleep, and what stands beside them: for a night that needs every right there is.

use harness::{ControlPlane, SOON, wait_for};
use serde_json::{Value, json};
use shared::kinds::{Form, Kind, table};

/// The definitions of other people's kinds, of the test's own making: any form.
fn definition(group: &str, version: &str, kind: &str, plural: &str, scale: bool) -> Value {
    let mut served = json!({"name": version, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    if scale {
        served["subresources"] = json!({"scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [served],
        },
    })
}

/// Defines Argo CD's Applications alone.
pub async fn define_applications(plane: &ControlPlane) -> anyhow::Result<()> {
    let applications = definition("argoproj.io", "v1alpha1", "Application", "applications", false);
    apply(plane, &[applications]).await
}

/// Defines every kind of others.
pub async fn define(plane: &ControlPlane) -> anyhow::Result<()> {
    let mut all: Vec<Value> = table()
        .iter()
        .filter(|kind| !kind.built_in)
        .map(|kind| definition(&kind.group, &kind.version, &kind.kind, &kind.plural, kind.scale))
        .collect();
    for (group, version, kind, plural) in [
        ("argoproj.io", "v1alpha1", "Application", "applications"),
        ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
        ("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
    ] {
        all.push(definition(group, version, kind, plural, false));
    }
    apply(plane, &all).await
}

/// Applies objects, of kinds that may be served only in a moment.
pub async fn apply(plane: &ControlPlane, objects: &[Value]) -> anyhow::Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    wait_for("the objects to be taken", SOON, || plane.apply(&list)).await
}

fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}, "annotations": {"harness/runs-on": "true"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

fn job_template() -> Value {
    json!({"metadata": {"annotations": {"harness/runs-on": "true"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}})
}

/// An object of a kind, awake.
fn object(kind: &Kind, namespace: &str, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": {},
    });
    let pods = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name)});
    match kind.kind.as_ref() {
        "Deployment" | "ReplicaSet" => {
            object["spec"] = pods;
            object["spec"]["replicas"] = json!(2);
        }
        "StatefulSet" => {
            object["spec"] = pods;
            object["spec"]["replicas"] = json!(2);
            object["spec"]["serviceName"] = json!(name);
        }
        "DaemonSet" => object["spec"] = pods,
        "CronJob" => {
            object["spec"] = json!({"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": job_template()}}});
        }
        "Job" => object["spec"] = json!({"template": job_template()}),
        _ => {
            for knob in kind.knobs.iter().filter(|knob| knob.form == Form::Count) {
                if let Some(field) = knob.pointer.strip_prefix("/spec/") {
                    object["spec"][field] = json!(2);
                }
            }
        }
    }
    object
}

/// The name of a kind's object.
pub fn name_of(kind: &Kind) -> String {
    format!("a-{}", kind.kind.to_lowercase())
}

/// One object of each kind, and what stands beside them.
pub fn objects(namespace: &str) -> Vec<Value> {
    let mut all: Vec<Value> = table()
        .iter()
        .map(|kind| object(kind, namespace, &name_of(kind)))
        .collect();
    let deployment = table().into_iter().next();
    let cron_job = table().into_iter().find(|kind| kind.kind == "CronJob");
    for (kind, name) in [
        (&deployment, "scaled"),
        (&deployment, "guarded"),
        (&cron_job, "nightly"),
    ] {
        all.extend(kind.as_ref().map(|kind| object(kind, namespace, name)));
    }
    for owned in &mut all {
        let label = match owned["metadata"]["name"].as_str() {
            Some("guarded") => "kustomize",
            Some("scaled") => "helm",
            _ => continue,
        };
        owned["metadata"]["labels"] = json!({
            format!("{label}.toolkit.fluxcd.io/name"): "shop", format!("{label}.toolkit.fluxcd.io/namespace"): namespace,
        });
    }
    all.push(autoscaler(namespace, "scaled"));
    all.push(application(namespace, "guarded"));
    for (api, kind) in [
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ] {
        all.push(
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": "shop", "namespace": namespace},
            "spec": {"interval": "10m"}}),
        );
    }
    all
}

/// An Application that keeps a Deployment in sync.
pub fn application(namespace: &str, deployment: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "shop", "namespace": namespace},
        "spec": {"project": "default", "syncPolicy": {"automated": {"selfHeal": true}},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace}},
        "status": {"resources": [{"group": "apps", "kind": "Deployment", "namespace": namespace, "name": deployment}]},
    })
}

/// An HPA of a Deployment.
pub fn autoscaler(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name, "namespace": namespace},
        "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]},
    })
}

/// A schedule that is down all the time, for every kind, with all that it can do beside them.
pub fn schedule(name: &str) -> Value {
    let kinds: Vec<Value> = table()
        .iter()
        .map(|kind| {
            let mut filter = json!({"kind": kind.kind, "group": kind.group});
            if kind.kind == "Job" {
                filter["running"] = json!(true);
            }
            filter
        })
        .collect();
    json!({
        "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule", "metadata": {"name": name},
        "spec": {
            "timeZone": "UTC", "downtime": ["Mon-Sun 00:00-24:00"], "kinds": kinds,
            "hpa": {"mode": "DeleteRestore"}, "argo": {"pause": true}, "flux": {"pause": true},
            "unfinishedRollouts": "Sleep", "enforcement": {"mode": "Rewrite", "guardOverrides": true},
        },
    })
}
