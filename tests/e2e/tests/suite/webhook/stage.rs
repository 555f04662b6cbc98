//! A control plane of its own with the webhook beside it, in this process: registered as in production, behind a Service, with
//! `failurePolicy: Fail`, so that an expression that cannot be evaluated is a refused request and not a silent pass.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use cluster::follow::{Follower, Scope};
use cluster::reflector::Pace;
use cluster::schedules::ScheduleSource;
use harness::{
    ControlPlane, Identity, KubectlOutput, Options, SOON, Shared, free_port, install_crypto_provider, wait_for,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, CustomResourceExt as _};
use serde_json::{Value, json};
use shared::annotations::DownReplicas;
use shared::api::OffHoursSchedule;
use shared::clock::Clock;
use shared::kinds::Kinds;
use shared::patch::{Preconditions, down};
use shared::rules::{FailurePolicy, Registration};
use shared::workload::Workload;
use webhook::authorize::{self, Authorizer};
use webhook::eyes::Eyes;
use webhook::handlers::{App, Listener, Ruled, router};
use webhook::remember;
use webhook::service::{Outcome, Tell};
use webhook::state::{Policy, Sight};

use crate::clock::RealClock;

pub const NAMESPACE: &str = "offhours-system";
pub const SERVICE: &str = "offhours-webhook";

/// What the webhook said, by namespace.
#[derive(Default)]
pub struct Heard {
    calls: Mutex<BTreeMap<String, Vec<(String, Outcome)>>>,
    told: Mutex<Vec<Tell>>,
}

impl Listener for Heard {
    fn ruled(&self, ruled: &Ruled<'_>) {
        let what = if ruled.subresource.is_empty() {
            format!("{:?} {}", ruled.phase, ruled.resource)
        } else {
            format!("{:?} {}/{}", ruled.phase, ruled.resource, ruled.subresource)
        };
        let mut calls = self.calls.lock().unwrap();
        calls
            .entry(ruled.namespace.to_owned())
            .or_default()
            .push((what, ruled.outcome));
    }

    fn tell(&self, tell: Tell) {
        self.told.lock().unwrap().push(tell);
    }
}

impl Heard {
    /// What was asked about objects of a namespace so far.
    pub fn calls(&self, namespace: &str) -> Vec<(String, Outcome)> {
        self.calls.lock().unwrap().get(namespace).cloned().unwrap_or_default()
    }

    /// Events for objects of a namespace, as reason and message.
    pub fn told(&self, namespace: &str) -> Vec<(&'static str, String)> {
        let told = self.told.lock().unwrap();
        let of = told.iter().filter(|tell| *tell.object.namespace == *namespace);
        of.map(|tell| (tell.reason, tell.message.clone())).collect()
    }
}

/// Reviews as the API server sent them, to the path [`RECORD`], which lets everything pass.
pub type Reviews = Arc<Mutex<Vec<Value>>>;

/// See [`Reviews`].
pub const RECORD: &str = "/record";

fn recorder(reviews: Reviews) -> axum::Router {
    let record = move |axum::Json(review): axum::Json<Value>| {
        let uid = review["request"]["uid"].clone();
        reviews.lock().unwrap().push(review);
        std::future::ready(axum::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, "allowed": true},
        })))
    };
    axum::Router::new().route(RECORD, axum::routing::post(record))
}

pub struct Stage {
    pub plane: ControlPlane,
    pub port: u16,
    pub reviews: Reviews,
    pub heard: Arc<Heard>,
    pub sight: Arc<Eyes>,
}

impl Stage {
    /// The one of this process.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static STAGE: Shared<Stage> = Shared::new();
        STAGE.get(Self::start).await
    }

    async fn start() -> anyhow::Result<Self> {
        install_crypto_provider();
        let plane = ControlPlane::start(Options::named("webhook")).await?;
        let admin = plane.admin().await?;
        prepare(&plane).await?;
        let port = free_port()?;
        plane.service_to_localhost(NAMESPACE, SERVICE, port).await?;
        let certificate = plane.serving_certificate(&[&format!("{SERVICE}.{NAMESPACE}.svc")])?;
        let own = plane.config(&Identity::service_account(NAMESPACE, "offhours")).await?;
        let heard = Arc::new(Heard::default());
        let listener = Arc::clone(&heard);
        let reviews = Reviews::default();
        let recorder = recorder(Arc::clone(&reviews));
        let (ready, started) = tokio::sync::oneshot::channel();
        // Each test has a runtime of its own, which ends with it; the webhook outlives them.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let client = kube::Client::try_from(own).unwrap();
                let follower = Follower::start(client.clone(), Kinds::default(), Scope::Cluster, Pace::default());
                for kind in ["Deployment", "StatefulSet"] {
                    follower.follow_kind(&Arc::clone(follower.view().kinds().by_kind("apps", kind).unwrap()));
                }
                follower.follow_kind(&Arc::clone(
                    follower.view().kinds().by_kind("batch", "CronJob").unwrap(),
                ));
                follower.view().filled().await;
                let source = ScheduleSource::new(Arc::clone(follower.view()), Vec::new(), None);
                let sight = Arc::new(Eyes::new(Arc::clone(follower.view()), move || {
                    Arc::clone(&source.current().schedules)
                }));
                let policy = Policy {
                    own_users: vec![format!("system:serviceaccount:{NAMESPACE}:offhours")],
                    ..Policy::default()
                };
                let mut app = App::new(Arc::clone(&sight) as Arc<dyn Sight>, policy, Arc::new(RealClock));
                app.authorizer = Some(Authorizer::new(authorize::ApiServer(client.clone())));
                app.parents = Some(Arc::new(remember::ApiServer(client)));
                app.listener = listener;
                let tls = axum_server::tls_rustls::RustlsConfig::from_pem(
                    certificate.certificate.into_bytes(),
                    certificate.key.into_bytes(),
                )
                .await
                .unwrap();
                ready.send(sight).ok();
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                axum_server::bind_rustls(address, tls)
                    .serve(router(Arc::new(app)).merge(recorder).into_make_service())
                    .await
                    .unwrap();
            });
        });
        let sight = started.await.context("the webhook did not start")?;
        let registration = Registration {
            failure_policy: FailurePolicy::Fail,
            ca_bundle: plane.authority_pem().as_bytes().to_vec(),
            place: shared::rules::Place::Service {
                namespace: NAMESPACE.to_owned(),
                name: SERVICE.to_owned(),
                port,
            },
            ..Registration::in_cluster(NAMESPACE, SERVICE, "offhours")
        };
        webhook::install::install(&admin, &registration, &Kinds::default()).await?;
        let stage = Self {
            plane,
            port,
            reviews,
            heard,
            sight,
        };
        // The API server takes up configurations in its own time.
        wait_for("the API server to call the webhook", SOON, || async {
            let namespace = "default";
            let manifest = deployment("probe", 1);
            stage
                .plane
                .kubectl(&["create", "-n", namespace, "--dry-run=server", "-f", "-"])?
                .stdin(manifest.to_string())
                .ok()
                .await?;
            let calls = stage.heard.calls(namespace);
            ensure!(calls.len() >= 2, "{calls:?}");
            Ok(())
        })
        .await?;
        Ok(stage)
    }

    /// A namespace under a schedule of its own that is down now, with this enforcement and more of a spec.
    pub async fn night(&self, enforcement: &Value, more: &Value) -> anyhow::Result<String> {
        let name = self.plane.unique_name("night");
        let day = |days: i64| {
            let at = RealClock.now() + jiff::SignedDuration::from_hours(24 * days);
            at.strftime("%Y-%m-%d").to_string()
        };
        let mut spec = json!({
            "timeZone": "UTC", "uptime": ["Mon-Sun 00:00-24:00"],
            "exceptions": [{"from": day(-1), "to": day(1), "state": "Down"}],
            "enforcement": enforcement,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let schedule = json!({
            "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule", "metadata": {"name": name}, "spec": spec,
        });
        self.plane.apply(&schedule.to_string()).await?;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"offhours.platform.io/schedule": name}},
        });
        self.plane.apply(&namespace.to_string()).await?;
        wait_for("the webhook to know schedule and namespace", SOON, || async {
            ensure!(self.sight.schedules().get(&name).is_some(), "no schedule");
            let seen = self.sight.namespace(&name);
            ensure!(matches!(seen, webhook::state::Seen::Known(_)), "{seen:?}");
            Ok(())
        })
        .await?;
        Ok(name)
    }

    /// Creates an object by the product's own identity, as it would be by day, and puts it to sleep as the scheduler does.
    pub async fn asleep(&self, namespace: &str, object: &Value, keep: DownReplicas) -> anyhow::Result<()> {
        let client = self
            .plane
            .client(&Identity::service_account(NAMESPACE, "offhours"))
            .await?;
        let kinds = Kinds::default();
        let api_version = object["apiVersion"].as_str().context("apiVersion")?;
        let kind = kinds
            .by_kind(
                api_version.rsplit_once('/').map_or("", |(group, _)| group),
                object["kind"].as_str().context("kind")?,
            )
            .context("an unknown kind")?;
        let resource = kube::core::ApiResource {
            group: kind.group.to_string(),
            version: kind.version.to_string(),
            api_version: kind.api_version(),
            kind: kind.kind.to_string(),
            plural: kind.plural.to_string(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let dynamic: DynamicObject = serde_json::from_value(object.clone())?;
        let created = api.create(&PostParams::default(), &dynamic).await?;
        let facts = Workload::read(kind, &serde_json::to_value(&created)?)?;
        let plan = shared::record::plan(&facts, keep, None).context("it is down already")?;
        let patch: Patch<()> = Patch::Json(down(&facts, &plan, RealClock.now()).patch(&facts, Preconditions::None));
        api.patch(&facts.name, &PatchParams::default(), &patch).await?;
        wait_for("the webhook to see it asleep", SOON, || async {
            let seen = self.sight.workload(kind, namespace, &facts.name);
            let webhook::state::Seen::Known(seen) = seen else {
                anyhow::bail!("{seen:?}");
            };
            ensure!(
                shared::record::Record::read(&seen).is_some_and(|record| record.asleep(&seen)),
                "{seen:?}"
            );
            Ok(())
        })
        .await
    }

    /// kubectl in a namespace, as an administrator (who is nobody special to the webhook).
    pub async fn kubectl(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
        self.plane.kubectl(&["-n", namespace])?.args(arguments).output().await
    }

    /// The same, and it has to succeed.
    pub async fn ok(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
        self.plane.kubectl(&["-n", namespace])?.args(arguments).ok().await
    }

    /// The same with a manifest as standard input.
    pub async fn feed(&self, namespace: &str, arguments: &[&str], manifest: &Value) -> anyhow::Result<KubectlOutput> {
        let command = self.plane.kubectl(&["-n", namespace])?.args(arguments);
        command.stdin(manifest.to_string()).ok().await
    }

    /// An object as it is stored.
    pub async fn get(&self, namespace: &str, what: &str, name: &str) -> anyhow::Result<Value> {
        let output = self.ok(namespace, &["get", what, name, "-o", "json"]).await?;
        Ok(serde_json::from_str(&output.stdout)?)
    }
}

/// CRD, namespace and rights of the product.
async fn prepare(plane: &ControlPlane) -> anyhow::Result<()> {
    install_crd(plane).await?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}");
    plane.apply(&namespace).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "offhours-test"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "offhours", "namespace": NAMESPACE}],
    });
    plane.apply(&binding.to_string()).await
}

async fn install_crd(plane: &ControlPlane) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(plane.admin().await?);
    let definition = OffHoursSchedule::crd();
    definitions.create(&PostParams::default(), &definition).await?;
    wait_for("the CRD to be established", SOON, || async {
        let found = definitions.get("offhoursschedules.offhours.platform.io").await?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(
            conditions
                .iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True"),
            "{conditions:?}"
        );
        Ok(())
    })
    .await
}

/// A Deployment of this name, without annotations.
pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
            },
        },
    })
}
