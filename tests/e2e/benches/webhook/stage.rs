//! The control plane, what is in it, and both servers beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use harness::{ControlPlane, Identity, Options, Product, SOON, free_port, wait_for};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};
use shared::kinds::Kinds;
use shared::rules::{FailurePolicy, Place, Registration};

use crate::bare;

const OWN_NAMESPACE: &str = "offhours-system";
const SERVICE: &str = "offhours-webhook";
const BARE_SERVICE: &str = "bare";
/// Workloads that are created at a time.
const AT_A_TIME: usize = 32;

/// Who answers for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    None = 0,
    Bare = 1,
    Ours = 2,
}

pub const SIDES: [Side; 3] = [Side::None, Side::Bare, Side::Ours];

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bare => "bare",
            Self::Ours => "ours",
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A raise of what sleeps.
    Held,
    /// A change of ours that passes.
    Passed,
    /// A change that is nobody's business.
    Filtered,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Passed => "passed",
            Self::Filtered => "filtered",
        }
    }

    fn body(self) -> &'static str {
        match self {
            Self::Held => r#"{"spec":{"replicas":5}}"#,
            Self::Passed => r#"{"metadata":{"annotations":{"offhours.platform.io/reason":"a bench"}}}"#,
            Self::Filtered => r#"{"metadata":{"annotations":{"team/owner":"a bench"}}}"#,
        }
    }
}

/// The bare server knows what to answer by the namespace.
fn namespace(side: Side, what: What) -> &'static str {
    match (side, what) {
        (Side::None, _) => "none",
        (Side::Bare, What::Passed) => "bare-pass",
        (Side::Bare, _) => "bare-held",
        (Side::Ours, _) => "ours",
    }
}

pub struct Stage {
    plane: ControlPlane,
    client: Client,
    ours: Product,
    bare: Product,
    pub workloads: usize,
    pub schedules: usize,
}

impl Stage {
    pub async fn set(workloads: usize, schedules: usize) -> anyhow::Result<Self> {
        // What is measured are dry runs, which never reach the disk; without fsync, setting up takes minutes less.
        let plane = ControlPlane::start(Options {
            fsync: false,
            ..Options::bench("bench-webhook")
        })
        .await?;
        let client = plane.admin().await?;
        let me = Identity::service_account(OWN_NAMESPACE, "offhours");
        for name in [OWN_NAMESPACE, "none", "bare-pass", "bare-held", "bare-scale", "ours"] {
            namespace_of(&client, name, "night-0").await?;
        }
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "offhours"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": me.user}],
        });
        post(
            &client,
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            &binding,
        )
        .await?;
        install_crd(&plane).await?;
        for index in 0..schedules {
            let schedule = json!({
                "apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
                "metadata": {"name": format!("night-{index}")},
                "spec": {"timeZone": "UTC", "downtime": ["Mon-Sun 00:00-24:00"]},
            });
            post(
                &client,
                "/apis/offhours.platform.io/v1alpha1/offhoursschedules",
                &schedule,
            )
            .await?;
        }
        for name in ["none", "bare-pass", "bare-held", "bare-scale", "ours"] {
            create(&client, name, "web", 10_000).await?;
        }
        fill(&client, workloads, schedules).await?;

        let (ours_port, ops_port, bare_port) = (free_port()?, free_port()?, free_port()?);
        plane.service_to_localhost(OWN_NAMESPACE, SERVICE, ours_port).await?;
        plane
            .service_to_localhost(OWN_NAMESPACE, BARE_SERVICE, bare_port)
            .await?;
        let certificate = plane.serving_certificate(&[&format!("{BARE_SERVICE}.{OWN_NAMESPACE}.svc")])?;
        std::fs::write(plane.folder().join("bare.crt"), certificate.certificate)?;
        std::fs::write(plane.folder().join("bare.key"), certificate.key)?;
        let bare = Product::start_program(&plane, "bare", &bare::program(bare_port, plane.folder())?)?;
        let environment = [
            ("OFFHOURS_WEBHOOK_ADDRESS", format!("127.0.0.1:{ours_port}")),
            ("OFFHOURS_OPS_ADDRESS", format!("127.0.0.1:{ops_port}")),
            ("OFFHOURS_WEBHOOK_NAME", "bench-ours".to_owned()),
            ("POD_NAMESPACE", OWN_NAMESPACE.to_owned()),
        ];
        let environment: Vec<(&str, &str)> = environment
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        register(&client, "bench-ours", "ours", (SERVICE, ours_port), None, &[]).await?;
        let authority = plane.authority_pem().as_bytes();
        for (name, path) in [
            ("bare-held", bare::HELD),
            ("bare-pass", bare::PASS),
            ("bare-scale", bare::SCALE),
        ] {
            register(
                &client,
                &format!("bench-{name}"),
                name,
                (BARE_SERVICE, bare_port),
                Some(path),
                authority,
            )
            .await?;
        }
        let ours = Product::start(&plane, &me, &["webhook"], &environment)?;
        ours.wait_until_ready(ops_port, "/readyz", SOON * 2).await?;
        let stage = Self {
            plane,
            client,
            ours,
            bare,
            workloads,
            schedules,
        };
        for side in [Side::Bare, Side::Ours] {
            wait_for("the API server to call both", SOON, || async {
                stage.ask(side, What::Held).await.map(drop)
            })
            .await?;
        }
        Ok(stage)
    }

    /// Asks once, as a dry run. An answer that is not as it should be is an error.
    pub async fn ask(&self, side: Side, what: What) -> anyhow::Result<Duration> {
        let url = format!(
            "/apis/apps/v1/namespaces/{}/deployments/web?dryRun=All&fieldManager=kubectl-patch",
            namespace(side, what)
        );
        let began = Instant::now();
        let text = patch(&self.client, &url, what.body().to_owned()).await?;
        let took = began.elapsed();
        if what == What::Held {
            let held =
                text.contains(r#""replicas":0"#) && text.contains(r#""offhours.platform.io/original-replicas":"5""#);
            ensure!(held == (side != Side::None), "{}: {text}", side.name());
        }
        Ok(took)
    }

    /// Scales for real.
    pub async fn scale(&self, side: Side, replicas: usize) -> anyhow::Result<Duration> {
        let namespace = match side {
            Side::Bare => "bare-scale",
            other => other.name(),
        };
        let url = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web/scale?fieldManager=kubectl");
        let body = json!({"spec": {"replicas": replicas}}).to_string();
        let began = Instant::now();
        let text = patch(&self.client, &url, body).await?;
        let took = began.elapsed();
        let passed = text.contains(&format!(r#""replicas":{replicas}"#));
        ensure!(passed == (side == Side::None), "{}: {text}", side.name());
        Ok(took)
    }

    /// Calls of webhooks so far, as the API server counts them.
    pub async fn calls(&self) -> anyhow::Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.client.request_text(request).await?;
        let mut calls = 0;
        for line in text
            .lines()
            .filter(|line| line.starts_with("apiserver_admission_webhook_request_total"))
        {
            let count: f64 = line.rsplit_once(' ').context("no value")?.1.parse()?;
            calls += count as u64;
        }
        ensure!(calls > 0, "the API server counts no calls");
        Ok(calls)
    }

    pub fn ours_memory(&self) -> anyhow::Result<String> {
        memory(self.ours.pid())
    }

    pub fn bare_memory(&self) -> anyhow::Result<String> {
        self.plane.check_running()?;
        memory(self.bare.pid())
    }
}

/// Resident now and at most.
fn memory(pid: u32) -> anyhow::Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .with_context(|| format!("no {name}"))
    };
    Ok(format!(
        "{} MB, at most {} MB",
        field("VmRSS:")? / 1024,
        field("VmHWM:")? / 1024
    ))
}

async fn post(client: &Client, url: &str, object: &Value) -> anyhow::Result<()> {
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    client
        .request_text(request)
        .await
        .with_context(|| url.to_owned())
        .map(drop)
}

async fn patch(client: &Client, url: &str, body: String) -> anyhow::Result<String> {
    let request = http::Request::patch(url)
        .header("content-type", "application/merge-patch+json")
        .body(body.into_bytes())?;
    Ok(client.request_text(request).await?)
}

async fn namespace_of(client: &Client, name: &str, schedule: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"offhours.platform.io/schedule": schedule, "bench": name}},
    });
    post(client, "/api/v1/namespaces", &object).await
}

/// A Deployment that sleeps, of about so many bytes.
async fn create(client: &Client, namespace: &str, name: &str, bytes: usize) -> anyhow::Result<()> {
    let variables: Vec<Value> = (0..bytes / 100)
        .map(|index| json!({"name": format!("VARIABLE_{index:06}"), "value": "v".repeat(58)}))
        .collect();
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "labels": {"app": name, "offhours.platform.io/asleep": "3"},
            "annotations": {
                "offhours.platform.io/original-replicas": "3", "offhours.platform.io/down-since": "2026-01-01T00:00:00Z",
            },
        },
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/c:1", "env": variables}]}},
        },
    });
    post(
        client,
        &format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        &object,
    )
    .await
}

async fn fill(client: &Client, workloads: usize, schedules: usize) -> anyhow::Result<()> {
    for index in 0..schedules {
        namespace_of(client, &format!("ns-{index}"), &format!("night-{index}")).await?;
    }
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let creators: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (client, next) = (client.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if index >= workloads {
                        return anyhow::Ok(());
                    }
                    create(
                        &client,
                        &format!("ns-{}", index % schedules),
                        &format!("w-{index}"),
                        100,
                    )
                    .await?;
                }
            })
        })
        .collect();
    for creator in creators {
        creator.await??;
    }
    Ok(())
}

async fn install_crd(plane: &ControlPlane) -> anyhow::Result<()> {
    use kube::CustomResourceExt as _;
    let definition = shared::api::OffHoursSchedule::crd();
    let definitions: kube::Api<_> = kube::Api::all(plane.admin().await?);
    definitions.create(&PostParams::default(), &definition).await?;
    let arguments = [
        "wait",
        "--for=condition=Established",
        "crd/offhoursschedules.offhours.platform.io",
    ];
    plane.kubectl(&arguments)?.ok().await.map(drop)
}

/// Both configurations for one namespace: the product's own, and where `path` is given, with everything sent there.
async fn register(
    client: &Client,
    name: &str,
    namespace: &str,
    (service, port): (&str, u16),
    path: Option<&str>,
    authority: &[u8],
) -> anyhow::Result<()> {
    let registration = Registration {
        name: name.to_owned(),
        place: Place::Service {
            namespace: OWN_NAMESPACE.to_owned(),
            name: service.to_owned(),
            port,
        },
        namespaces: Some(LabelSelector {
            match_labels: Some([("bench".to_owned(), namespace.to_owned())].into()),
            ..LabelSelector::default()
        }),
        failure_policy: FailurePolicy::Fail,
        // A machine that is busy with other things is no reason to break off.
        timeout_seconds: 10,
        ca_bundle: authority.to_vec(),
        ..Registration::in_cluster(OWN_NAMESPACE, service, "offhours")
    };
    let kinds = Kinds::default();
    let mutating = serde_json::to_value(registration.mutating(&kinds)?)?;
    let validating = serde_json::to_value(registration.validating(&kinds)?)?;
    for (mut configuration, resource) in [
        (mutating, "mutatingwebhookconfigurations"),
        (validating, "validatingwebhookconfigurations"),
    ] {
        for webhook in configuration["webhooks"].as_array_mut().context("webhooks")? {
            // Namespaces and schedules have no namespace to select by: only what is measured is registered.
            if let Some(path) = path {
                let path = if resource.starts_with('v') { bare::PASS } else { path };
                webhook["clientConfig"]["service"]["path"] = json!(path);
            }
        }
        configuration["webhooks"]
            .as_array_mut()
            .context("webhooks")?
            .retain(|webhook| webhook["rules"][0]["scope"] == "Namespaced");
        post(
            client,
            &format!("/apis/admissionregistration.k8s.io/v1/{resource}"),
            &configuration,
        )
        .await?;
    }
    Ok(())
}
