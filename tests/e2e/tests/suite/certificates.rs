//! Certificates against a real API server: replicas share one authority, and no call fails while it rotates.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use axum::{Json, Router, response::IntoResponse, routing::post};
use certs::{
    manager::Manager,
    settings::{Configurations, Lives, Names, Settings, Source},
    status::Certificates,
};
use harness::{AuditQuery, ControlPlane, Identity, SOON, wait_for};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use webhook::server::{Options, listen, serve, tls_config};

use crate::clock::RealClock;

const SECRET: &str = "offhours-webhook-ca";
const SERVICE: &str = "offhours-webhook";

/// Seconds instead of months: a rotation every eleven seconds.
fn seconds() -> Lives {
    Lives {
        authority: Duration::from_secs(16),
        leaf: Duration::from_secs(4),
        propagation: Duration::from_secs(1),
        recheck: Duration::from_millis(500),
        backdate: Duration::ZERO,
    }
}

/// The rights that a webhook replica needs for its certificates, and no others.
fn rights(user: &str, namespace: &str, configuration: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: certs, namespace: {namespace} }}
rules:
- {{ apiGroups: [""], resources: [secrets], verbs: [create] }}
- {{ apiGroups: [""], resources: [secrets], resourceNames: [{SECRET}], verbs: [get, list, watch, update] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: certs, namespace: {namespace} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: certs }}
subjects: [{{ apiGroup: rbac.authorization.k8s.io, kind: User, name: {user} }}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{ name: {configuration} }}
rules:
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  resourceNames: [{configuration}]
  verbs: [get, list, watch, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{ name: {configuration} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {configuration} }}
subjects: [{{ apiGroup: rbac.authorization.k8s.io, kind: User, name: {user} }}]
"#
    )
}

/// Both configurations, for the ConfigMaps of one namespace. No caBundle: replicas fill it. Each asks twice: under `Fail` a call
/// that is not trusted is a request that fails; under `Ignore`, as in production, nobody sees it but the API server's metrics.
fn configurations(name: &str, namespace: &str, port: u16) -> String {
    ["Mutating", "Validating"]
        .map(|kind| {
            format!(
                r#"
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}WebhookConfiguration
metadata: {{ name: {name} }}
webhooks:
- name: hold.{namespace}.offhours.platform.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 10
  clientConfig: {{ service: {{ name: {SERVICE}, namespace: {namespace}, port: {port}, path: / }} }}
  namespaceSelector: {{ matchLabels: {{ kubernetes.io/metadata.name: {namespace} }} }}
  rules: [{{ apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps] }}]
- name: ignore.{namespace}.offhours.platform.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 3
  clientConfig: {{ service: {{ name: {SERVICE}, namespace: {namespace}, port: {port}, path: / }} }}
  namespaceSelector: {{ matchLabels: {{ kubernetes.io/metadata.name: {namespace} }} }}
  rules: [{{ apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps] }}]
  matchConditions:
  - name: not-our-own
    expression: "!(request.userInfo.username in ['system:serviceaccount:{namespace}:offhours'])"
  - name: changes-something
    expression: "!object.?metadata.?labels.orValue({{}}).exists(k, k.startsWith('offhours.platform.io/')) || request.operation == 'CREATE'"
"#
            )
        })
        .join("---")
}

/// Allows everything, and has each connection closed, so that each call is a handshake.
fn allow(calls: Arc<AtomicUsize>) -> Router {
    Router::new().route(
        "/",
        post(move |Json(review): Json<Value>| {
            calls.fetch_add(1, Ordering::Relaxed);
            let uid = review["request"]["uid"].clone();
            let answer = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": { "uid": uid, "allowed": true },
            });
            async move { ([("connection", "close")], Json(answer)).into_response() }
        }),
    )
}

struct Replica {
    certificates: Certificates,
    calls: Arc<AtomicUsize>,
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Replica {
    async fn start(
        plane: &ControlPlane,
        who: &Identity,
        namespace: &str,
        configuration: &str,
        name: &str,
        lives: Lives,
    ) -> anyhow::Result<Self> {
        let settings = Settings {
            source: Source::SelfSigned {
                secret: SECRET.to_owned(),
            },
            namespace: namespace.to_owned(),
            names: Names::of_service(SERVICE, namespace),
            configurations: Configurations {
                mutating: Some(configuration.to_owned()),
                validating: Some(configuration.to_owned()),
            },
            lives,
            identity: name.to_owned(),
            call_timeout: Duration::from_secs(5),
        };
        let client = plane.client(who).await?;
        let (manager, certificates) = Manager::new(settings, Some(&client), Arc::new(RealClock), None)?;
        let listener = listen("127.0.0.1:0".parse()?)?;
        let address = listener.local_addr()?;
        let calls = Arc::new(AtomicUsize::new(0));
        let tls = Arc::new(tls_config(certificates.resolver(), None)?);
        let router = allow(Arc::clone(&calls));
        let server = tokio::spawn(async move {
            serve(listener, tls, router, std::future::pending(), Options::default())
                .await
                .unwrap();
        });
        let manager = tokio::spawn(manager.run(std::future::pending()));
        Ok(Self {
            certificates,
            calls,
            address,
            tasks: [manager, server],
        })
    }
}

/// Hands each connection to the next replica, as a Service does.
async fn balance(listener: TcpListener, replicas: Vec<SocketAddr>) {
    let mut next = replicas.into_iter().cycle();
    while let Ok((mut client, _)) = listener.accept().await {
        let address = next.next().unwrap();
        tokio::spawn(async move {
            let mut replica = TcpStream::connect(address).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut replica).await;
        });
    }
}

#[derive(Default)]
struct Load {
    done: AtomicU64,
    stop: AtomicBool,
    failures: Mutex<Vec<String>>,
}

async fn hammer(api: Api<ConfigMap>, load: Arc<Load>) {
    let object: ConfigMap = serde_json::from_value(json!({ "metadata": { "generateName": "load-" } })).unwrap();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    while !load.stop.load(Ordering::Relaxed) {
        match api.create(&dry, &object).await {
            Ok(_) => {
                load.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => load.failures.lock().unwrap().push(error.to_string()),
        }
    }
}

async fn stored(secrets: &Api<Secret>, key: &str) -> anyhow::Result<Vec<u8>> {
    let data = secrets.get(SECRET).await?.data.unwrap_or_default();
    data.get(key)
        .map(|value| value.0.clone())
        .filter(|value| !value.is_empty())
        .with_context(|| format!("no {key}"))
}

async fn rotation_of(secrets: &Api<Secret>) -> anyhow::Result<()> {
    let old = stored(secrets, "ca.crt").await?;
    wait_for("a rotation", SOON, || async {
        ensure!(stored(secrets, "ca.crt").await? != old, "still the old authority");
        Ok(())
    })
    .await
}

/// Calls of this namespace's webhooks that failed open, and expressions of theirs that could not be evaluated, as the API server
/// counts them.
async fn unseen_failures(plane: &ControlPlane, namespace: &str) -> anyhow::Result<u64> {
    let metrics = plane.kubectl(&["get", "--raw", "/metrics"])?.ok().await?.stdout;
    let counts = [
        "apiserver_admission_webhook_fail_open_count",
        "apiserver_admission_match_condition_evaluation_errors_total",
    ];
    // Both know no series until something failed, so that they are there at all has to be seen by something that is there.
    ensure!(
        metrics.contains(&format!("name=\"ignore.{namespace}.")),
        "the API server counts nothing of ours"
    );
    let failed = metrics
        .lines()
        .filter(|line| counts.iter().any(|name| line.starts_with(name)) && line.contains(&format!(".{namespace}.")));
    Ok(failed
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum())
}

/// Each is mended within five seconds.
async fn delete_and_damage(secrets: &Api<Secret>) -> anyhow::Result<()> {
    let limit = Duration::from_secs(5);
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    wait_for("the Secret to be back", limit, || async {
        stored(secrets, "ca.crt").await.map(drop)
    })
    .await?;
    let damage = json!({ "data": { "ca.key": "" } });
    secrets
        .patch(SECRET, &PatchParams::default(), &Patch::Merge(damage))
        .await?;
    wait_for("the key to be back", limit, || async {
        stored(secrets, "ca.key").await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_5_23_case_5_26_one_authority_for_all_and_no_call_fails_while_it_rotates_or_is_deleted()
-> anyhow::Result<()> {
    let rotations = if std::env::var_os("OFFHOURS_TEST_LONG").is_some() {
        10
    } else {
        2
    };
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("certs", &[]).await?;
    let configuration = plane.unique_name("offhours-certs");
    let who = Identity::user(&plane.unique_name("webhook"), &[]);
    let balancer = TcpListener::bind("127.0.0.1:0").await?;
    let port = balancer.local_addr()?.port();
    plane.service_to_localhost(&namespace, SERVICE, port).await?;
    plane.apply(&rights(&who.user, &namespace, &configuration)).await?;
    plane.apply(&configurations(&configuration, &namespace, port)).await?;
    let audit = plane.audit().await?;
    let before = audit.mark().await?;

    // Three at once, with nothing there.
    let start = |name| Replica::start(plane, &who, &namespace, &configuration, name, seconds());
    let (first, second, third) = tokio::try_join!(start("a"), start("b"), start("c"))?;
    let replicas = [first, second, third];
    let addresses = replicas.iter().map(|replica| replica.address).collect();
    let balancer = tokio::spawn(balance(balancer, addresses));
    let admin = plane.admin().await?;
    let objects: Api<ConfigMap> = Api::namespaced(admin.clone(), &namespace);
    let object: ConfigMap = serde_json::from_value(json!({ "metadata": { "generateName": "first-" } }))?;
    wait_for("every replica to be trusted by the API server", SOON, || async {
        ensure!(
            replicas.iter().all(|replica| replica.certificates.ready()),
            "{}",
            replicas[0].certificates.reason()
        );
        objects
            .create(
                &PostParams {
                    dry_run: true,
                    ..PostParams::default()
                },
                &object,
            )
            .await?;
        let called = replicas
            .iter()
            .filter(|replica| replica.calls.load(Ordering::Relaxed) > 0)
            .count();
        ensure!(called == 3, "{called} replicas have been called");
        Ok(())
    })
    .await?;
    let mine = AuditQuery::new().since(before).user(&who.user);
    let created = audit.requests(&mine.clone().verb("create").resource("secrets")).await?;
    let accepted = created
        .iter()
        .filter(|request| request.line().ends_with(" 201"))
        .count();
    ensure!(accepted == 1, "{created:?}");

    // Rotations under load.
    let failed_at_start = unseen_failures(plane, &namespace).await?;
    let secrets: Api<Secret> = Api::namespaced(admin, &namespace);
    let load = Arc::new(Load::default());
    let hammers: Vec<_> = (0..2)
        .map(|_| tokio::spawn(hammer(objects.clone(), Arc::clone(&load))))
        .collect();
    for rotation in 0..rotations {
        rotation_of(&secrets).await?;
        let failures = load.failures.lock().unwrap().clone();
        ensure!(failures.is_empty(), "rotation {rotation}: {failures:?}");
    }

    delete_and_damage(&secrets).await?;
    // One more rotation, so that every leaf of the time of the damage has been replaced under load.
    rotation_of(&secrets).await?;

    load.stop.store(true, Ordering::Relaxed);
    for hammer in hammers {
        hammer.await?;
    }
    balancer.abort();
    let failures = load.failures.lock().unwrap().clone();
    let done = load.done.load(Ordering::Relaxed);
    ensure!(
        failures.is_empty(),
        "{} of {done} failed: {:?}",
        failures.len(),
        failures.first()
    );
    ensure!(done > 100, "only {done} requests");
    let unseen = unseen_failures(plane, &namespace).await? - failed_at_start;
    ensure!(unseen == 0, "{unseen} calls or expressions failed under Ignore");
    let writes = audit.requests(&mine.writes()).await?;
    let secret_writes = writes.iter().filter(|write| write.line().contains("secrets")).count();
    // Start, each rotation, two damages, the last rotation: one write each; in rare races one more.
    ensure!(secret_writes <= 2 * (rotations + 4), "{secret_writes} Secret writes");
    println!(
        "{done} requests, {secret_writes} Secret writes, {} writes in all",
        writes.len()
    );
    Ok(())
}
