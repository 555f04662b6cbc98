//! What sleeps while faults are made: objects of every kind, and what each must look like by night.

use serde_json::{Value, json};

/// One kind of object.
#[derive(Debug, Clone, Copy)]
pub struct Sort {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Sort {
    Sort {
        group,
        version,
        kind,
        plural,
    }
}

pub const DEPLOYMENT: Sort = kind("apps", "v1", "Deployment", "deployments");
const STATEFUL_SET: Sort = kind("apps", "v1", "StatefulSet", "statefulsets");
const REPLICA_SET: Sort = kind("apps", "v1", "ReplicaSet", "replicasets");
const DAEMON_SET: Sort = kind("apps", "v1", "DaemonSet", "daemonsets");
const CRON_JOB: Sort = kind("batch", "v1", "CronJob", "cronjobs");
const JOB: Sort = kind("batch", "v1", "Job", "jobs");
const ROLLOUT: Sort = kind("argoproj.io", "v1alpha1", "Rollout", "rollouts");
const SCALED_OBJECT: Sort = kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");
const SCALED_JOB: Sort = kind("keda.sh", "v1alpha1", "ScaledJob", "scaledjobs");
const RUNNER_SET: Sort = kind(
    "actions.github.com",
    "v1alpha1",
    "AutoscalingRunnerSet",
    "autoscalingrunnersets",
);
const STACK: Sort = kind("zalando.org", "v1", "Stack", "stacks");
const KAFKA: Sort = kind("kafka.strimzi.io", "v1beta2", "KafkaConnect", "kafkaconnects");
const PROMETHEUS: Sort = kind("monitoring.coreos.com", "v1", "Prometheus", "prometheuses");
const POSTGRES: Sort = kind("postgresql.cnpg.io", "v1", "Cluster", "clusters");
const HPA: Sort = kind(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
);
pub const APPLICATION: Sort = kind("argoproj.io", "v1alpha1", "Application", "applications");
const KUSTOMIZATION: Sort = kind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations");
const HELM_RELEASE: Sort = kind("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases");
/// A kind of the user's own, from the settings file.
pub const ENGINE: Sort = kind("example.com", "v1", "Engine", "engines");

/// What adds [`ENGINE`].
pub const SETTINGS: &str =
    "kinds: [{group: example.com, version: v1, kind: Engine, plural: engines, knobs: [{path: /spec/minWorkers}]}]";

/// One object: how it is made, and what it must be by night.
#[derive(Debug, Clone)]
pub struct Thing {
    pub kind: Sort,
    pub manifest: Value,
    pub night: Night,
}

/// What an object is by night.
#[derive(Debug, Clone)]
pub enum Night {
    /// These fields have these values; null: absent.
    Fields(Vec<(&'static str, Value)>),
    /// It is not there.
    Gone,
}

/// A namespace and the schedule that it follows.
#[derive(Debug, Clone)]
pub struct Part {
    pub name: &'static str,
    pub spec: Value,
    pub things: Vec<Thing>,
}

/// All that one product looks after.
#[derive(Debug, Clone)]
pub struct World {
    pub name: &'static str,
    pub controllers: bool,
    pub feature_gates: Vec<String>,
    pub definitions: Vec<Value>,
    pub parts: Vec<Part>,
}

fn thing(kind: Sort, name: &str, spec: &Value, night: Vec<(&'static str, Value)>) -> Thing {
    Thing {
        kind,
        manifest: json!({
            "apiVersion": format!("{}/{}", kind.group, kind.version), "kind": kind.kind,
            "metadata": {"name": name, "labels": {"team": "shop"}, "annotations": {"example.com/note": "kept"}},
            "spec": spec,
        }),
        night: Night::Fields(night),
    }
}

fn pods(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}, "annotations": {"harness/runs-on": "true"}}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "registry.example.com/app:1"}]}})
}

fn job_pods(name: &str) -> Value {
    let mut pods = pods(name);
    pods["spec"]["restartPolicy"] = json!("Never");
    pods
}

fn app(kind: Sort, name: &str, replicas: u32) -> Thing {
    let mut spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pods(name)});
    let mut night = vec![("/spec/replicas", json!(0))];
    if kind.kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
        spec["podManagementPolicy"] = json!("Parallel");
        spec["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
        night.push(("/spec/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Retain")));
    }
    thing(kind, name, &spec, night)
}

/// The definition of a custom kind that takes anything.
fn definition(kind: Sort, schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group, "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.kind.to_lowercase(), "kind": kind.kind},
            "versions": [{"name": kind.version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// `spec.syncPolicy.automated` as Argo CD 3.x has it, or as 2.14, which does not know `enabled`.
fn application_definition(old: bool) -> Value {
    let flag = json!({"type": "boolean"});
    let mut automated = json!({"prune": flag, "selfHeal": flag, "allowEmpty": flag});
    if !old {
        automated["enabled"] = flag;
    }
    let mut open = anything();
    open["properties"] = json!({"syncPolicy": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"automated": {"type": "object", "properties": automated}},
    }});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": anything(), "operation": anything()}});
    definition(APPLICATION, &schema)
}

/// An Application that deploys one Deployment of the namespace, whose name the lane writes for `NAMESPACE`.
fn application(old: bool) -> Thing {
    let spec = json!({
        "project": "default", "destination": {"server": "https://kubernetes.default.svc", "namespace": "NAMESPACE"},
        "syncPolicy": {
            "automated": {"prune": true, "selfHeal": true, "allowEmpty": false}, "syncOptions": ["CreateNamespace=true"],
            "retry": {"limit": 5, "backoff": {"duration": "5s"}},
        },
    });
    let paused = if old {
        ("/spec/syncPolicy/automated", Value::Null)
    } else {
        ("/spec/syncPolicy/automated/enabled", json!(false))
    };
    let mut shop = thing(APPLICATION, "shop", &spec, vec![paused]);
    shop.manifest["status"] = json!({"resources": [
        {"group": "apps", "kind": "Deployment", "namespace": "NAMESPACE", "name": "web"}]});
    shop
}

/// Every kind of workload.
pub fn kinds() -> World {
    let custom = [
        ROLLOUT,
        SCALED_OBJECT,
        SCALED_JOB,
        RUNNER_SET,
        STACK,
        KAFKA,
        PROMETHEUS,
        POSTGRES,
        ENGINE,
    ];
    let replicas = || vec![("/spec/replicas", json!(0))];
    let paused_replicas = "/metadata/annotations/autoscaling.keda.sh~1paused-replicas";
    let mut queue = thing(
        SCALED_OBJECT,
        "queue",
        &json!({"scaleTargetRef": {"name": "worker"}}),
        vec![(paused_replicas, json!("0"))],
    );
    queue.manifest["metadata"]["annotations"]["autoscaling.keda.sh/paused-replicas"] = json!("4");
    let suspended = || vec![("/spec/suspend", json!(true))];
    let job = json!({"template": job_pods("import")});
    let cron_job = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": job_pods("report")}}});
    let daemons = json!({"selector": {"matchLabels": {"app": "agent"}}, "template": pods("agent")});
    let nowhere = "/spec/template/spec/nodeSelector/offhours.platform.io~1asleep";
    let things = vec![
        app(DEPLOYMENT, "web", 3),
        app(STATEFUL_SET, "db", 2),
        app(REPLICA_SET, "bare", 2),
        thing(DAEMON_SET, "agent", &daemons, vec![(nowhere, json!("true"))]),
        thing(CRON_JOB, "report", &cron_job, suspended()),
        thing(JOB, "import", &job, suspended()),
        thing(ROLLOUT, "canary", &json!({"replicas": 4}), replicas()),
        queue,
        thing(
            SCALED_JOB,
            "batch",
            &json!({"jobTargetRef": {}}),
            vec![("/metadata/annotations/autoscaling.keda.sh~1paused", json!("true"))],
        ),
        thing(
            RUNNER_SET,
            "runners",
            &json!({"maxRunners": 5, "minRunners": 1}),
            vec![("/spec/maxRunners", json!(0)), ("/spec/minRunners", json!(0))],
        ),
        thing(STACK, "stack", &json!({"replicas": 2}), replicas()),
        thing(KAFKA, "connect", &json!({"replicas": 3}), replicas()),
        thing(PROMETHEUS, "metrics", &json!({"replicas": 2}), replicas()),
        thing(
            POSTGRES,
            "postgres",
            &json!({"instances": 3}),
            vec![("/metadata/annotations/cnpg.io~1hibernation", json!("on"))],
        ),
        thing(
            ENGINE,
            "engine",
            &json!({"minWorkers": 6}),
            vec![("/spec/minWorkers", json!(0))],
        ),
    ];
    let names: Vec<Value> = things
        .iter()
        .map(|thing| json!({"kind": thing.kind.kind, "group": thing.kind.group, "running": thing.kind.kind == "Job"}))
        .collect();
    World {
        name: "kinds",
        controllers: true,
        feature_gates: Vec::new(),
        definitions: custom.iter().map(|kind| definition(*kind, &anything())).collect(),
        parts: vec![Part {
            name: "kinds",
            spec: json!({"kinds": names}),
            things,
        }],
    }
}

fn autoscaler(night: Night) -> Thing {
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 9,
        // A minimum of 0 needs such a metric.
        "metrics": [{"type": "External", "external": {"metric": {"name": "queue"},
            "target": {"type": "AverageValue", "averageValue": "5"}}}],
        "behavior": {"scaleDown": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 15}]}},
    });
    Thing {
        night,
        ..thing(HPA, "web", &spec, Vec::new())
    }
}

/// HPAs in each mode that gives them back, and an Application of Argo CD before 3.1.
pub fn autoscalers() -> World {
    let part = |name, mode: &str, night| Part {
        name,
        spec: json!({"hpa": {"mode": mode}}),
        things: vec![app(DEPLOYMENT, "web", 4), autoscaler(night)],
    };
    // One replica stays, and the autoscaler may want no more.
    let mut kept = app(DEPLOYMENT, "web", 4);
    kept.night = Night::Fields(vec![("/spec/replicas", json!(1))]);
    let capped = Night::Fields(vec![("/spec/minReplicas", json!(1)), ("/spec/maxReplicas", json!(1))]);
    let partial = Part {
        name: "partial",
        spec: json!({"hpa": {"mode": "Keep"}, "downReplicas": 1}),
        things: vec![kept, autoscaler(capped)],
    };
    let zero = Night::Fields(vec![("/spec/minReplicas", json!(0)), ("/spec/maxReplicas", json!(9))]);
    World {
        name: "autoscalers",
        controllers: true,
        feature_gates: vec!["HPAScaleToZero=true".to_owned()],
        definitions: vec![application_definition(true)],
        parts: vec![
            partial,
            part("min-zero", "MinZero", zero),
            part("delete-restore", "DeleteRestore", Night::Gone),
            Part {
                name: "argo-old",
                spec: json!({"argo": {"pause": true}}),
                things: vec![app(DEPLOYMENT, "web", 3), application(true)],
            },
        ],
    }
}

/// Applications of Argo CD, and Flux.
pub fn gitops() -> World {
    let suspended = || vec![("/spec/suspend", json!(true))];
    let owned = |name: &str, prefix: &str| {
        let mut owned = app(DEPLOYMENT, name, 2);
        owned.manifest["metadata"]["labels"] =
            json!({format!("{prefix}/name"): "shop", format!("{prefix}/namespace"): "NAMESPACE"});
        owned
    };
    World {
        name: "gitops",
        controllers: false,
        feature_gates: Vec::new(),
        definitions: vec![
            application_definition(false),
            definition(KUSTOMIZATION, &anything()),
            definition(HELM_RELEASE, &anything()),
        ],
        parts: vec![
            Part {
                name: "argo",
                spec: json!({"argo": {"pause": true}}),
                things: vec![app(DEPLOYMENT, "web", 3), application(false)],
            },
            Part {
                name: "flux",
                spec: json!({"flux": {"pause": true}}),
                things: vec![
                    owned("web", "kustomize.toolkit.fluxcd.io"),
                    owned("chart", "helm.toolkit.fluxcd.io"),
                    thing(KUSTOMIZATION, "shop", &json!({"interval": "10m"}), suspended()),
                    thing(
                        HELM_RELEASE,
                        "shop",
                        &json!({"interval": "5m", "suspend": false}),
                        suspended(),
                    ),
                ],
            },
        ],
    }
}
