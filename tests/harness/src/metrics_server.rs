//! A metrics API whose numbers a test chooses, registered as the real ones are: the HPA controller reads it through the
//! API server's aggregation.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use axum::{
    Json, Router,
    extract::{Path, Query, State},
    routing::get,
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use k8s_openapi::{api::core::v1::Pod, kube_aggregator::pkg::apis::apiregistration::v1::APIService};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    control_plane::ControlPlane,
    wait::{SOON, wait_for},
};

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "scripted-metrics";

/// `metrics.k8s.io` and `external.metrics.k8s.io` with numbers from tests, one per control plane: see
/// [`ControlPlane::metrics`].
#[derive(Debug)]
pub struct MetricsServer {
    numbers: Arc<Numbers>,
    handle: Handle<SocketAddr>,
}

#[derive(Debug, Default)]
struct Numbers {
    /// Millicores of each pod of a namespace.
    cpu: Mutex<BTreeMap<String, u64>>,
    /// (namespace, metric) -> value
    external: Mutex<BTreeMap<(String, String), u64>>,
}

#[derive(Clone)]
struct Served {
    numbers: Arc<Numbers>,
    client: Client,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selection {
    label_selector: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MetricsServer {
    /// Serves and registers both APIs, and waits until the API server calls them available. They live in a thread of
    /// their own, whatever runtime started them.
    pub(crate) async fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        let certificate = plane.serving_certificate(&[&format!("{SERVICE}.{NAMESPACE}.svc")])?;
        let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a port for the metrics API")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let numbers = Arc::<Numbers>::default();
        let handle = Handle::new();
        let config = plane
            .config(&crate::Identity::user("scripted-metrics", &["system:masters"]))
            .await?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("metrics-api")
            .enable_all()
            .build()
            .context("failed to make a runtime for the metrics API")?;
        let (served, ended) = (Arc::clone(&numbers), handle.clone());
        std::thread::spawn(move || {
            let outcome = runtime.block_on(serve(listener, certificate, config, served, ended));
            if let Err(error) = outcome {
                tracing::error!("the metrics API ended: {error:#}");
            }
        });

        plane.service_to_localhost(NAMESPACE, SERVICE, port).await?;
        let services: Api<APIService> = Api::all(plane.admin().await?);
        for group in ["metrics.k8s.io", "external.metrics.k8s.io"] {
            let name = format!("v1beta1.{group}");
            let service = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {
                    "group": group, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                    "caBundle": k8s_openapi::ByteString(plane.authority_pem().as_bytes().to_vec()),
                    "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
                },
            }))?;
            services
                .create(&PostParams::default(), &service)
                .await
                .with_context(|| format!("failed to register {name}"))?;
            wait_for(&format!("{name} to be available"), SOON, || async {
                let status = services.get(&name).await?.status.unwrap_or_default();
                let conditions = status.conditions.unwrap_or_default();
                let available = conditions
                    .iter()
                    .any(|one| one.type_ == "Available" && one.status == "True");
                anyhow::ensure!(available, "conditions {conditions:?}");
                Ok(())
            })
            .await?;
        }
        Ok(Self { numbers, handle })
    }

    /// From now on every pod of the namespace uses this much CPU. Without it a pod has no metrics.
    pub fn set_cpu(&self, namespace: &str, millicores: u64) {
        locked(&self.numbers.cpu).insert(namespace.to_owned(), millicores);
    }

    /// The pods of the namespace have no metrics any more.
    pub fn forget_cpu(&self, namespace: &str) {
        locked(&self.numbers.cpu).remove(namespace);
    }

    /// From now on this external metric has this value.
    pub fn set_external(&self, namespace: &str, metric: &str, value: u64) {
        locked(&self.numbers.external).insert((namespace.to_owned(), metric.to_owned()), value);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn serve(
    listener: TcpListener,
    certificate: crate::Certificate,
    config: kube::Config,
    numbers: Arc<Numbers>,
    handle: Handle<SocketAddr>,
) -> anyhow::Result<()> {
    let served = Served {
        numbers,
        client: Client::try_from(config)?,
    };
    let resources = "/apis/metrics.k8s.io/v1beta1";
    let external = "/apis/external.metrics.k8s.io/v1beta1";
    let router = Router::new()
        .route(
            resources,
            get(async || Json(resource_list("metrics.k8s.io/v1beta1", &["pods"], "PodMetrics"))),
        )
        .route(
            external,
            get(async || {
                Json(resource_list(
                    "external.metrics.k8s.io/v1beta1",
                    &["*"],
                    "ExternalMetricValueList",
                ))
            }),
        )
        .route(&format!("{resources}/namespaces/{{namespace}}/pods"), get(pod_metrics))
        .route(
            &format!("{external}/namespaces/{{namespace}}/{{metric}}"),
            get(external_metric),
        )
        .with_state(served);
    let tls = RustlsConfig::from_pem(certificate.certificate.into_bytes(), certificate.key.into_bytes()).await?;
    axum_server::from_tcp_rustls(listener, tls)?
        .handle(handle)
        .serve(router.into_make_service())
        .await?;
    Ok(())
}

fn resource_list(group_version: &str, names: &[&str], kind: &str) -> Value {
    let resources: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list"]}))
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

#[expect(
    clippy::disallowed_methods,
    reason = "the HPA controller compares it with its own real clock"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

async fn pod_metrics(
    State(served): State<Served>,
    Path(namespace): Path<String>,
    Query(selection): Query<Selection>,
) -> Json<Value> {
    let millicores = locked(&served.numbers.cpu).get(&namespace).copied();
    let params = ListParams {
        label_selector: selection.label_selector,
        ..ListParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(served.client, &namespace);
    let listed = match pods.list(&params).await {
        Ok(listed) => listed.items,
        Err(error) => {
            tracing::warn!("the metrics API cannot list pods of {namespace}: {error}");
            Vec::new()
        }
    };
    let items: Vec<Value> = listed
        .iter()
        .filter_map(|pod| {
            let millicores = millicores?;
            let containers: Vec<Value> = pod
                .spec
                .iter()
                .flat_map(|spec| &spec.containers)
                .map(|container| json!({"name": container.name, "usage": {"cpu": format!("{millicores}m"), "memory": "64Mi"}}))
                .collect();
            Some(json!({
                "metadata": {"name": pod.metadata.name, "namespace": namespace, "labels": pod.metadata.labels},
                "timestamp": now(), "window": "10s", "containers": containers,
            }))
        })
        .collect();
    Json(json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}))
}

async fn external_metric(
    State(served): State<Served>,
    Path((namespace, metric)): Path<(String, String)>,
) -> Json<Value> {
    let value = locked(&served.numbers.external)
        .get(&(namespace, metric.clone()))
        .copied();
    let items: Vec<Value> = value
        .map(|value| json!({"metricName": metric, "metricLabels": {}, "timestamp": now(), "value": value.to_string()}))
        .into_iter()
        .collect();
    Json(json!({
        "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": items,
    }))
}
