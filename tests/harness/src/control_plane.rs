//! The control plane itself.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, Node, PersistentVolume, Service, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    audit::{AUDIT_LOG, AuditLevel, AuditLog},
    flags::Ports,
    folder::RunFolder,
    identity::Identity,
    kubectl::Kubectl,
    metrics_server::MetricsServer,
    options::Options,
    pki::{Authority, Certificate, key_pair},
    process::{Process, Program, Signal},
    programs::programs,
    wait::wait_for,
};

/// How often a start is tried: somebody else may take a port between our choosing it and its use.
const START_ATTEMPTS: u32 = 3;

/// How long a start may take on a machine that is busy compiling.
const START_DEADLINE: Duration = Duration::from_secs(90);

/// A real control plane of this process's own, on loopback. Dropping it ends it.
pub struct ControlPlane {
    // Before `folder`: processes end before their files go.
    processes: Mutex<BTreeMap<String, (Program, Process)>>,
    pub(crate) folder: RunFolder,
    authority: Authority,
    pub(crate) programs: BTreeMap<String, PathBuf>,
    pub(crate) options: Options,
    port: u16,
    serial: AtomicU64,
    number: AtomicU32,
    kubeconfigs: Mutex<BTreeMap<Identity, PathBuf>>,
    metrics: OnceCell<MetricsServer>,
}

/// A port of 127.0.0.1 that nobody uses at the moment.
pub fn free_port() -> anyhow::Result<u16> {
    let [port] = free_ports()?;
    Ok(port)
}

/// Several at once, so that none comes twice.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let listeners: Vec<TcpListener> = (0..N)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()
        .context("failed to find a free port on 127.0.0.1")?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// rustls's provider, for programs and tests that did not install one. Harmless when done already.
pub fn install_crypto_provider() {
    // An error means that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// JSON, which is YAML.
fn kubeconfig_text(cluster: &serde_json::Value, user: &serde_json::Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "harness",
        "clusters": [{"name": "harness", "cluster": cluster}],
        "users": [{"name": "harness", "user": user}],
        "contexts": [{"name": "harness", "context": {"cluster": "harness", "user": "harness"}}],
    }))?)
}

impl ControlPlane {
    /// The one control plane of this test program, started by whoever asks first. It ends with the program.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        let started = SHARED
            .get_or_init(|| async {
                Self::start(Options::named("shared"))
                    .await
                    .map_err(|error| format!("{error:#}"))
            })
            .await;
        started
            .as_ref()
            .map_err(|error| anyhow::anyhow!("the shared control plane did not start: {error}"))
    }

    /// Starts one and waits until it serves and its nodes are Ready.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        install_crypto_provider();
        let mut words = vec!["etcd", "kube-apiserver", "kubectl"];
        if options.controllers {
            words = vec!["controlplane"];
        }
        let found = tokio::task::spawn_blocking(move || programs(&words)).await??;
        let mut attempt = 1;
        loop {
            match Self::try_start(options.clone(), found.clone()).await {
                Ok(started) => {
                    started.name_logs();
                    return Ok(started);
                }
                Err(error) if attempt < START_ATTEMPTS && format!("{error:#}").contains("address already in use") => {
                    tracing::warn!("start {attempt} met a port in use, trying with others: {error:#}");
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Shown by the test program with each test that fails.
    fn name_logs(&self) {
        eprintln!(
            "logs of the control plane and of what runs beside it: {}",
            self.folder.path().display()
        );
    }

    async fn try_start(options: Options, programs: BTreeMap<String, PathBuf>) -> anyhow::Result<Self> {
        let started = Instant::now();
        let folder = RunFolder::new(&options.name)?;
        let [etcd_client, etcd_peer, api, controller_manager, scheduler, kwok] = free_ports()?;
        let ports = Ports {
            etcd_client,
            etcd_peer,
            api,
            controller_manager,
            scheduler,
            kwok,
        };
        let plane = Self {
            processes: Mutex::default(),
            authority: Authority::new()?,
            folder,
            programs,
            port: api,
            serial: AtomicU64::new(1),
            number: AtomicU32::new(0),
            kubeconfigs: Mutex::default(),
            metrics: OnceCell::new(),
            options,
        };
        let folder = plane.folder().display();
        plane
            .bring_up(&ports)
            .await
            .with_context(|| format!("failed to start a control plane (logs: {folder})"))?;
        tracing::info!(
            "control plane ready after {:?}: {}",
            started.elapsed(),
            plane.folder.path().display()
        );
        Ok(plane)
    }

    async fn bring_up(&self, ports: &Ports) -> anyhow::Result<()> {
        self.folder.write("ca.crt", self.authority.pem())?;
        let (private, public) = key_pair()?;
        self.folder.write("service-account.key", &private)?;
        self.folder.write("service-account.pub", &public)?;
        let names = [
            "localhost",
            "127.0.0.1",
            "kubernetes",
            "kubernetes.default.svc",
            "10.0.0.1",
        ];
        let server = self.serving_certificate(&names)?;
        self.folder.write("server.crt", &server.certificate)?;
        self.folder.write("server.key", &server.key)?;
        let proxy = self.certificate_for(&Identity::user("front-proxy", &[]))?;
        self.folder.write("front-proxy.crt", &proxy.certificate)?;
        self.folder.write("front-proxy.key", &proxy.key)?;

        self.launch("etcd", self.etcd(ports))?;
        self.launch("kube-apiserver", self.api_server(ports)?)?;
        let admin = self.admin().await?;
        self.await_api(&admin).await?;
        if self.options.controllers {
            self.launch("kube-controller-manager", self.controller_manager(ports)?)?;
            self.launch("kube-scheduler", self.scheduler(ports)?)?;
            self.launch("kwok", self.kwok(ports)?)?;
            self.make_nodes(&admin).await?;
            self.await_controllers(&admin).await?;
        }
        self.check_running()
    }

    /// The controller manager works once it has made the first service account.
    async fn await_controllers(&self, admin: &Client) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
        wait_for("the controllers to work", START_DEADLINE, || async {
            if let Err(ended) = self.check_running() {
                return Ok(Err(ended));
            }
            let account = accounts.get_opt("default").await?;
            Ok(Ok(account.map(drop).context("no default service account")?))
        })
        .await?
    }

    async fn await_api(&self, admin: &Client) -> anyhow::Result<()> {
        wait_for("the API server to be ready", START_DEADLINE, || async {
            // An end is final: no use in waiting on.
            if let Err(ended) = self.check_running() {
                return Ok(Err(ended));
            }
            // The client would log each refused connection as an error.
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
            let request = http::Request::get("/readyz?verbose").body(Vec::new())?;
            Ok(Ok(admin.request_text(request).await.map(drop)?))
        })
        .await?
    }

    async fn make_nodes(&self, admin: &Client) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(admin.clone());
        for number in 0..self.options.nodes {
            let node = serde_json::from_value(json!({
                "metadata": {
                    "name": format!("node-{number}"),
                    "labels": {"kubernetes.io/hostname": format!("node-{number}"), "kubernetes.io/os": "linux"},
                },
            }))?;
            nodes
                .create(&PostParams::default(), &node)
                .await
                .context("failed to create a node")?;
        }
        wait_for("the nodes to be Ready", START_DEADLINE, || async {
            if let Err(ended) = self.check_running() {
                return Ok(Err(ended));
            }
            let list = nodes.list(&kube::api::ListParams::default()).await?;
            let ready = |node: &Node| {
                let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
            };
            anyhow::ensure!(
                list.items.iter().all(ready),
                "{} nodes, not all Ready",
                list.items.len()
            );
            Ok(Ok(()))
        })
        .await?
    }

    fn launch(&self, name: &str, program: Program) -> anyhow::Result<()> {
        let process = Process::start(name, &program, self.folder.file(&format!("{name}.log")))?;
        self.processes().insert(name.to_owned(), (program, process));
        Ok(())
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, (Program, Process)>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error with the end of its log if one of the programs has ended.
    pub fn check_running(&self) -> anyhow::Result<()> {
        self.processes()
            .values()
            .try_for_each(|(_, process)| process.check_running())
    }

    /// Process ids of all programs.
    pub fn pids(&self) -> Vec<u32> {
        self.processes().values().map(|(_, process)| process.pid()).collect()
    }

    /// Sends a signal to one of the programs (`kube-apiserver`): `Signal::STOP` makes it hang, `Signal::CONT` goes on.
    pub fn signal(&self, program: &str, signal: Signal) -> anyhow::Result<()> {
        let processes = self.processes();
        processes
            .get(program)
            .with_context(|| format!("{program} does not run here"))?
            .1
            .signal(signal)
    }

    /// Kills one of the programs and starts it again with the same arguments; for `kube-apiserver` also waits until it
    /// serves.
    pub async fn restart(&self, program: &str) -> anyhow::Result<()> {
        self.without(program, async || Ok(())).await
    }

    /// Kills one of the programs and starts it again, as [`Self::restart`] does, when `meanwhile` is over.
    pub async fn without(
        &self,
        program: &str,
        meanwhile: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (what, process) = self
            .processes()
            .remove(program)
            .with_context(|| format!("{program} does not run here"))?;
        process.kill()?;
        let outcome = meanwhile().await;
        self.launch(program, what)?;
        if program == "kube-apiserver" {
            self.await_api(&self.admin().await?).await?;
        }
        outcome
    }

    /// The folder of configuration and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `https://127.0.0.1:…`
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// What signed the API server's certificate, PEM.
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// A client certificate for somebody.
    pub fn certificate_for(&self, who: &Identity) -> anyhow::Result<Certificate> {
        self.authority
            .client(&who.user, &who.groups, self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// A server certificate of the control plane's authority, for webhooks and aggregated APIs of tests:
    /// `webhook.offhours.svc`.
    pub fn serving_certificate(&self, names: &[&str]) -> anyhow::Result<Certificate> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.authority.server(&names)
    }

    /// A kubeconfig for kubectl or the product; the same path for the same identity.
    pub fn kubeconfig_for(&self, who: &Identity) -> anyhow::Result<PathBuf> {
        let mut known = self.kubeconfigs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = known.get(who) {
            return Ok(path.clone());
        }
        let certificate = self.certificate_for(who)?;
        let user = json!({
            "client-certificate-data": BASE64.encode(&certificate.certificate),
            "client-key-data": BASE64.encode(&certificate.key),
        });
        let name = format!("{}-{}.kubeconfig", known.len(), who.file_stem());
        let path = self.folder.write(&name, &self.kubeconfig_text(&user)?)?;
        known.insert(who.clone(), path.clone());
        Ok(path)
    }

    /// A kubeconfig that shows a token (of [`Self::service_account_token`], or a wrong one).
    pub fn kubeconfig_with_token(&self, token: &str) -> anyhow::Result<PathBuf> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let text = self.kubeconfig_text(&json!({"token": token}))?;
        self.folder.write(&format!("token-{number}.kubeconfig"), &text)
    }

    /// A kubeconfig for somebody else's address of the API server, such as a proxy's, without credentials.
    pub fn kubeconfig_at(&self, url: &str) -> anyhow::Result<PathBuf> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let text = kubeconfig_text(&json!({"server": url}), &json!({}))?;
        self.folder.write(&format!("at-{number}.kubeconfig"), &text)
    }

    fn kubeconfig_text(&self, user: &serde_json::Value) -> anyhow::Result<String> {
        let authority = BASE64.encode(self.authority.pem());
        kubeconfig_text(
            &json!({"server": self.url(), "certificate-authority-data": authority}),
            user,
        )
    }

    /// What a kube client for somebody is made of.
    pub async fn config(&self, who: &Identity) -> anyhow::Result<Config> {
        self.config_of(&self.kubeconfig_for(who)?).await
    }

    async fn config_of(&self, path: &Path) -> anyhow::Result<Config> {
        let kubeconfig = Kubeconfig::read_from(path)?;
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("failed to read {}", path.display()))
    }

    /// A client for somebody. Make one per test: a client lives in the runtime in which it was made.
    pub async fn client(&self, who: &Identity) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config(who).await?)?)
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> anyhow::Result<Client> {
        self.client(&Identity::admin()).await
    }

    /// A client for a person.
    pub async fn user(&self, name: &str, groups: &[&str]) -> anyhow::Result<Client> {
        self.client(&Identity::user(name, groups)).await
    }

    /// A token of a service account, which is made if it is not there. Valid for an hour.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        if accounts.get_opt(name).await?.is_none() {
            let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            match accounts.create(&PostParams::default(), &account).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("failed to create account {namespace}/{name}"));
                }
            }
        }
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await?;
        answer
            .status
            .map(|status| status.token)
            .context("the API server gave no token")
    }

    /// A client that shows a service account's token.
    pub async fn service_account(&self, namespace: &str, name: &str) -> anyhow::Result<Client> {
        let token = self.service_account_token(namespace, name).await?;
        let config = self.config_of(&self.kubeconfig_with_token(&token)?).await?;
        Ok(Client::try_from(config)?)
    }

    /// A call of kubectl as admin.
    pub fn kubectl<S: AsRef<str>>(&self, arguments: &[S]) -> anyhow::Result<Kubectl> {
        self.kubectl_as(&Identity::admin(), arguments)
    }

    /// A call of kubectl as somebody.
    pub fn kubectl_as<S: AsRef<str>>(&self, who: &Identity, arguments: &[S]) -> anyhow::Result<Kubectl> {
        Ok(Kubectl {
            program: self
                .programs
                .get("kubectl")
                .cloned()
                .context("kubectl is not among the programs")?,
            kubeconfig: self.kubeconfig_for(who)?,
            cache: self.folder.file("kubectl-cache"),
            arguments: arguments.iter().map(|argument| argument.as_ref().to_owned()).collect(),
            environment: Vec::new(),
            input: String::new(),
        })
    }

    /// `kubectl apply -f -` as admin, for YAML of one or more objects.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        self.kubectl(&["apply", "-f", "-"])?.stdin(yaml).ok().await.map(drop)
    }

    /// A new namespace with a name that nobody else has (`hold-1a2b-3`) and these labels.
    pub async fn namespace(&self, prefix: &str, labels: &[(&str, &str)]) -> anyhow::Result<String> {
        let name = self.unique_name(prefix);
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        let namespaces: Api<Namespace> = Api::all(self.admin().await?);
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .context("failed to create a namespace")?;
        Ok(name)
    }

    /// Volumes of 1 Gi that claims without a storage class find: as many as a test's `StatefulSets` will claim. Without
    /// them pods with claims stay pending.
    pub async fn volumes(&self, count: u32) -> anyhow::Result<()> {
        let volumes: Api<PersistentVolume> = Api::all(self.admin().await?);
        for _ in 0..count {
            let volume = serde_json::from_value(json!({
                "metadata": {"name": self.unique_name("volume")},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
                },
            }))?;
            volumes
                .create(&PostParams::default(), &volume)
                .await
                .context("failed to create a volume")?;
        }
        Ok(())
    }

    /// A name that nobody else on this control plane has: for schedules and other cluster-scoped objects.
    pub fn unique_name(&self, prefix: &str) -> String {
        format!(
            "{prefix}-{:x}-{}",
            std::process::id(),
            self.number.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// A Service that leads the API server to `port` of this machine, so that a `clientConfig.service` or an `APIService`
    /// works as in production: the server there must listen on 127.0.0.1 and show a certificate for
    /// `<name>.<namespace>.svc`. Refer to it with the same port.
    pub async fn service_to_localhost(&self, namespace: &str, name: &str, port: u16) -> anyhow::Result<()> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "name": "https"}]},
        }))?;
        let services: Api<Service> = Api::namespaced(self.admin().await?, namespace);
        services
            .create(&PostParams::default(), &service)
            .await
            .context("failed to create the Service")?;
        Ok(())
    }

    /// The metrics API whose numbers a test chooses, per namespace; registered by whoever asks first.
    pub async fn metrics(&self) -> anyhow::Result<&MetricsServer> {
        self.metrics.get_or_try_init(|| MetricsServer::start(self)).await
    }

    /// The audit log: who sent what.
    pub async fn audit(&self) -> anyhow::Result<AuditLog> {
        if self.options.audit == AuditLevel::Off {
            bail!("this control plane was started without auditing");
        }
        Ok(AuditLog {
            path: self.folder.file(AUDIT_LOG),
            admin: self.config(&Identity::admin()).await?,
        })
    }
}
