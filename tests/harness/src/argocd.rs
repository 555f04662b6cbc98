//! The real Argo CD beside a control plane: application-controller, repo-server, server and, when asked for,
//! applicationset-controller, with a redis of their own. `make test-argocd` builds them (`ARGOCD_VERSION` chooses which).

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use http::{
    Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Config, client::Body};
use serde_json::{Value, json};

use crate::{
    control_plane::{ControlPlane, free_port},
    identity::Identity,
    process::{Process, Program},
    programs::{module_folder, program},
    wait::wait_for,
};

/// The namespace of Argo CD and of its Applications.
pub const ARGOCD_NAMESPACE: &str = "argocd";

/// How long a start may take on a machine that is busy compiling.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// The accounts that have tokens: one with an administrator's rights, for the product, and one without any.
const ACCOUNTS: [&str; 2] = ["offhours", "nobody"];

/// The column of Argo CD that is used: `ARGOCD_VERSION`, or the first.
pub fn argocd_version() -> String {
    std::env::var("ARGOCD_VERSION")
        .ok()
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| "3.2".to_owned())
}

/// A running Argo CD. Dropping it ends it.
#[derive(Debug)]
pub struct ArgoCd {
    // Before the folder goes with its control plane, these end.
    _processes: Vec<Process>,
    starter: Starter,
    /// What an API server is told of where the others are.
    others: Vec<String>,
    port: u16,
    session: String,
}

/// One more API server of an Argo CD, which speaks TLS. Dropping it ends it.
#[derive(Debug)]
pub struct ArgoCdOverTls {
    _process: Process,
    /// `https://localhost:…`
    pub url: String,
    /// The certificate that Argo CD made for itself and signed itself, PEM.
    pub certificate: String,
}

/// What starts each of the programs.
#[derive(Debug)]
struct Starter {
    program: PathBuf,
    folder: PathBuf,
    path: String,
}

impl Starter {
    /// `argocd-<name>`, as which it also asks the API server.
    fn start(&self, plane: &ControlPlane, name: &str, arguments: &[String]) -> anyhow::Result<Process> {
        let name = format!("argocd-{name}");
        let log = plane.folder().join(format!("{name}.log"));
        self.start_as(plane, &name, arguments, log)
    }

    fn start_as(
        &self,
        plane: &ControlPlane,
        name: &str,
        arguments: &[String],
        log: PathBuf,
    ) -> anyhow::Result<Process> {
        let who = Identity::user(name, &["system:masters"]);
        let kubeconfig = plane.kubeconfig_for(&who)?.display().to_string();
        let folder = |name: &str| self.folder.join(name).display().to_string();
        let mut program = Program::new(&self.program)
            .args(arguments.iter().cloned())
            // One program that plays many parts, by the name in this variable.
            .env("ARGOCD_BINARY_NAME", name)
            .env("PATH", &self.path)
            .env("HOME", folder("home"))
            .env("TMPDIR", folder("tmp"))
            .env("GIT_CONFIG_NOSYSTEM", "true")
            .env("ARGOCD_FAKE_IN_CLUSTER", "true")
            .env("ARGOCD_GPG_ENABLED", "false")
            .env("ARGOCD_TLS_DATA_PATH", folder("tls"))
            .env("ARGOCD_SSH_DATA_PATH", folder("ssh"))
            .env("HOSTNAME", "argocd-0")
            .env("KUBECONFIG", &kubeconfig);
        if name != "argocd-repo-server" {
            program = program
                .arg(format!("--kubeconfig={kubeconfig}"))
                .arg(format!("--namespace={ARGOCD_NAMESPACE}"));
        }
        Process::start(name, &program, log)
    }
}

impl ArgoCd {
    /// Starts one and waits until its API answers.
    pub async fn start(plane: &ControlPlane, with_application_sets: bool) -> anyhow::Result<Self> {
        let program = tokio::task::spawn_blocking(|| program("argocd")).await??;
        let manifests = tokio::task::spawn_blocking(sources).await??.join("manifests");
        let folder = plane.folder().join("argocd");
        for name in ["home", "tmp", "tls", "ssh", "bin", "redis"] {
            let path = folder.join(name);
            std::fs::create_dir_all(&path).with_context(|| format!("failed to make {}", path.display()))?;
        }
        std::fs::write(folder.join("ssh/ssh_known_hosts"), "")?;
        symlink(&program, folder.join("bin/argocd-git-ask-pass")).context("failed to link argocd-git-ask-pass")?;
        install(plane, &manifests).await?;

        let (redis, repo, api) = (free_port()?, free_port()?, free_port()?);
        let redis_server = Program::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(redis.to_string())
            .arg("--dir")
            .arg(folder.join("redis").display().to_string());
        let mut processes = vec![
            Process::start("redis-server", &redis_server, plane.folder().join("redis-server.log"))
                .context("is redis-server installed? (Debian, Ubuntu: apt-get install redis-server)")?,
        ];
        let path = std::env::var("PATH").unwrap_or_default();
        let starter = Starter {
            program,
            path: format!("{}:{path}", folder.join("bin").display()),
            folder,
        };
        let to_repo = format!("--repo-server=127.0.0.1:{repo}");
        let to_redis = format!("--redis=127.0.0.1:{redis}");
        let metrics = || Ok::<_, anyhow::Error>(format!("--metrics-port={}", free_port()?));
        let plain = "--repo-server-plaintext".to_owned();
        let others = vec![
            "--dex-server=http://127.0.0.1:1".to_owned(),
            plain.clone(),
            to_repo.clone(),
            to_redis.clone(),
        ];
        processes.push(starter.start(
            plane,
            "repo-server",
            &[
                format!("--port={repo}"),
                "--address=127.0.0.1".to_owned(),
                "--metrics-address=127.0.0.1".to_owned(),
                metrics()?,
                "--disable-tls".to_owned(),
                "--revision-cache-expiration=1s".to_owned(),
                to_redis.clone(),
            ],
        )?);
        processes.push(
            starter.start(
                plane,
                "server",
                &[
                    format!("--port={api}"),
                    "--address=127.0.0.1".to_owned(),
                    "--metrics-address=127.0.0.1".to_owned(),
                    metrics()?,
                    "--insecure".to_owned(),
                ]
                .into_iter()
                .chain(others.iter().cloned())
                .collect::<Vec<_>>(),
            )?,
        );
        processes.push(starter.start(
            plane,
            "application-controller",
            &[
                metrics()?,
                "--app-resync=10".to_owned(),
                "--app-resync-jitter=0".to_owned(),
                plain.clone(),
                to_repo,
                to_redis,
            ],
        )?);
        if with_application_sets {
            processes.push(starter.start(
                plane,
                "applicationset-controller",
                &[
                    format!("--metrics-addr=127.0.0.1:{}", free_port()?),
                    format!("--probe-addr=127.0.0.1:{}", free_port()?),
                    format!("--webhook-addr=127.0.0.1:{}", free_port()?),
                    format!("--argocd-repo-server=127.0.0.1:{repo}"),
                    plain,
                ],
            )?);
        }
        let session = session(plane, &processes, api).await?;
        Ok(Self {
            _processes: processes,
            starter,
            others,
            port: api,
            session,
        })
    }

    /// `127.0.0.1:…` of the API, which speaks plain HTTP.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts one more API server, as it is without `--insecure`, and waits until it serves.
    pub async fn serve_tls(&self, plane: &ControlPlane) -> anyhow::Result<ArgoCdOverTls> {
        let port = free_port()?;
        let mut arguments = vec![
            format!("--port={port}"),
            "--address=127.0.0.1".to_owned(),
            "--metrics-address=127.0.0.1".to_owned(),
            format!("--metrics-port={}", free_port()?),
        ];
        arguments.extend(self.others.iter().cloned());
        let log = plane.folder().join("argocd-server-over-tls.log");
        let process = self.starter.start_as(plane, "argocd-server", &arguments, log)?;
        process
            .wait_for_log(&format!("serving on port {port}"), START_DEADLINE)
            .await?;
        let secrets: Api<Secret> = Api::namespaced(plane.admin().await?, ARGOCD_NAMESPACE);
        // The server that was there before writes the same Secret at its start, and either may be the first.
        let certificate = wait_for("Argo CD to have made its certificate", START_DEADLINE, || async {
            let mut data = secrets.get("argocd-secret").await?.data.unwrap_or_default();
            data.remove("tls.crt").context("there is none")
        })
        .await?;
        Ok(ArgoCdOverTls {
            _process: process,
            // The name is in its certificate, the address is not.
            url: format!("https://localhost:{port}"),
            certificate: String::from_utf8_lossy(&certificate.0).into_owned(),
        })
    }

    /// A new token of an account: `offhours` has an administrator's rights, `nobody` has none.
    pub async fn token(&self, account: &str, valid_for: Duration) -> anyhow::Result<String> {
        let asked = json!({"name": account, "expiresIn": valid_for.as_secs()});
        let path = format!("/api/v1/account/{account}/token");
        let (status, answer) = self.call(&Method::POST, &path, Some(&asked)).await?;
        ensure!(status == 200, "{path} answers {status}: {answer}");
        token_of(&answer)
    }

    /// One call of the API as its administrator: status and body.
    pub async fn call(&self, method: &Method, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, Value)> {
        call(self.port, method, path, Some(&self.session), body).await
    }

    /// A new Git repository, which Argo CD can read.
    pub async fn repository(&self, name: &str) -> anyhow::Result<GitRepository> {
        let path = self.starter.folder.join("git").join(name);
        tokio::task::spawn_blocking(move || GitRepository::new(path)).await?
    }
}

/// The source of Argo CD's manifests.
fn sources() -> anyhow::Result<PathBuf> {
    let version = argocd_version();
    let major = version.split('.').next().unwrap_or_default();
    module_folder(
        &format!("argocd-{version}"),
        &format!("github.com/argoproj/argo-cd/v{major}"),
    )
}

/// Its definitions and settings, from its own manifests.
async fn install(plane: &ControlPlane, manifests: &Path) -> anyhow::Result<()> {
    plane.kubectl(&["create", "namespace", ARGOCD_NAMESPACE])?.ok().await?;
    let apply = ["apply", "--server-side", "-n", ARGOCD_NAMESPACE, "-f"];
    for name in ["application", "appproject", "applicationset"] {
        let path = manifests.join(format!("crds/{name}-crd.yaml")).display().to_string();
        plane.kubectl(&[&apply[..], &[&path]].concat())?.ok().await?;
    }
    for name in ["cm", "secret", "rbac-cm", "cmd-params-cm"] {
        let path = manifests.join(format!("base/config/argocd-{name}.yaml"));
        plane
            .kubectl(&[&apply[..], &[&path.display().to_string()]].concat())?
            .ok()
            .await?;
    }
    let accounts: serde_json::Map<String, Value> = ACCOUNTS
        .iter()
        .map(|account| (format!("accounts.{account}"), json!("apiKey")))
        .collect();
    for (map, data) in [
        ("argocd-cm", json!(accounts)),
        (
            "argocd-rbac-cm",
            json!({"policy.csv": format!("g, {}, role:admin\n", ACCOUNTS[0])}),
        ),
    ] {
        let patch = json!({"data": data}).to_string();
        plane
            .kubectl(&[
                "patch",
                "configmap",
                map,
                "-n",
                ARGOCD_NAMESPACE,
                "--type=merge",
                "-p",
                &patch,
            ])?
            .ok()
            .await?;
    }
    Ok(())
}

/// Logs in as its administrator, with the password that the server made at its first start.
async fn session(plane: &ControlPlane, processes: &[Process], port: u16) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(plane.admin().await?, ARGOCD_NAMESPACE);
    wait_for("Argo CD to let its administrator in", START_DEADLINE, || async {
        // An end is final: no use in waiting on.
        if let Err(ended) = processes.iter().try_for_each(Process::check_running) {
            return Ok(Err(ended));
        }
        let secret = secrets.get("argocd-initial-admin-secret").await?;
        let data = secret.data.unwrap_or_default();
        let password = data.get("password").context("a Secret without a password")?;
        let login = json!({"username": "admin", "password": String::from_utf8_lossy(&password.0)});
        let (status, answer) = call(port, &Method::POST, "/api/v1/session", None, Some(&login)).await?;
        ensure!(status == 200, "{status}: {answer}");
        Ok(Ok(token_of(&answer)?))
    })
    .await?
}

fn token_of(answer: &Value) -> anyhow::Result<String> {
    let token = answer.get("token").and_then(Value::as_str);
    Ok(token.context("an answer without a token")?.to_owned())
}

async fn call(
    port: u16,
    method: &Method,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> anyhow::Result<(u16, Value)> {
    let client = Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse()?))?;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let response = client.send(request.body(Body::from(body))?).await?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    let answer =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Ok((status, answer))
}

/// A Git repository on this machine, with one branch.
#[derive(Debug, Clone)]
pub struct GitRepository {
    path: PathBuf,
}

impl GitRepository {
    fn new(path: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&path).with_context(|| format!("failed to make {}", path.display()))?;
        let made = Self { path };
        made.git(&["init", "--quiet", "--initial-branch=main"])?;
        Ok(made)
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("git")
            .current_dir(&self.path)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "true")
            .args(["-c", "user.name=dev", "-c", "user.email=dev@example.com"])
            .args(arguments)
            .output()
            .context("failed to run git")?;
        if !output.status.success() {
            bail!(
                "git {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Where Argo CD finds it.
    pub fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// Writes files and commits them; the revision.
    pub fn commit(&self, files: &[(&str, &str)]) -> anyhow::Result<String> {
        for (name, text) in files {
            let path = self.path.join(name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        }
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message=change"])?;
        self.git(&["rev-parse", "HEAD"])
    }
}
