//! The pods of a release: kwok only pretends to run them, so each has a process of this machine in its place, with the
//! arguments and the environment of its container, its files, and its `ServiceAccount`'s token.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use harness::{
    ControlPlane, Product, Program, SOON,
    chart::{self, Printed, run},
    free_port, offhours_binary, program, wait_for,
};
use serde_json::{Value, json};

/// How long helm may take, hooks included.
const HELM: Duration = Duration::from_secs(240);

/// A pod that a process stands in for.
struct Standing {
    process: Product,
    ops: u16,
}

/// A release of the chart.
pub struct Release {
    pub plane: &'static ControlPlane,
    pub namespace: String,
    pub name: &'static str,
    /// Where the API server calls the webhook.
    pub webhook_port: u16,
    standing: Mutex<BTreeMap<String, Standing>>,
    values: PathBuf,
    files: tempfile::TempDir,
}

impl Release {
    /// Not installed yet.
    pub fn new(
        plane: &'static ControlPlane,
        namespace: &str,
        name: &'static str,
        values: &Value,
    ) -> anyhow::Result<Self> {
        let files = tempfile::tempdir()?;
        let webhook_port = free_port()?;
        let mut values = values.clone();
        // A Job's pod would complete at once on kwok: here it runs as long as its process.
        values["podAnnotations"] = json!({"harness/runs-on": "true"});
        if values["mode"] != "cronjob" {
            values["webhook"]["service"] = json!({"port": webhook_port});
        }
        let path = files.path().join("values.json");
        fs::write(&path, values.to_string())?;
        Ok(Self {
            plane,
            namespace: namespace.to_owned(),
            name,
            webhook_port,
            standing: Mutex::default(),
            values: path,
            files,
        })
    }

    /// Changes the values of the next upgrade.
    pub fn set(&self, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
        let mut values: Value = serde_json::from_str(&fs::read_to_string(&self.values)?)?;
        change(&mut values);
        fs::write(&self.values, values.to_string())?;
        Ok(())
    }

    /// Its values file.
    pub fn values(&self) -> String {
        self.values.display().to_string()
    }

    fn helm_command(&self, arguments: &[&str]) -> anyhow::Result<tokio::task::JoinHandle<anyhow::Result<Printed>>> {
        let kubeconfig = self
            .plane
            .kubeconfig_for(&harness::Identity::admin())?
            .display()
            .to_string();
        let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        all.extend(["-n".to_owned(), self.namespace.clone()]);
        let home = self.files.path().display().to_string();
        Ok(tokio::task::spawn_blocking(move || {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let environment = [
                ("KUBECONFIG", kubeconfig.as_str()),
                ("HELM_CACHE_HOME", &home),
                ("HELM_CONFIG_HOME", &home),
                ("HELM_DATA_HOME", &home),
            ];
            run("helm", &all, &environment, "")
        }))
    }

    /// Runs helm, with the pods of its hooks.
    pub async fn helm(&self, arguments: &[&str]) -> anyhow::Result<Printed> {
        let helm = self.helm_command(arguments)?;
        let work = async {
            loop {
                self.run_jobs().await?;
                self.stop_gone().await?;
                if helm.is_finished() {
                    return helm.await?;
                }
                tokio::task::yield_now().await;
            }
        };
        let printed = tokio::time::timeout(HELM, work).await.context("helm did not end")??;
        ensure!(printed.success, "helm {arguments:?}: {}", printed.text());
        Ok(printed)
    }

    /// `helm install`, and the processes of its pods.
    pub async fn install(&self) -> anyhow::Result<Printed> {
        self.roll_out("install").await
    }

    /// `helm upgrade`, the same way.
    pub async fn upgrade(&self) -> anyhow::Result<Printed> {
        self.roll_out("upgrade").await
    }

    async fn roll_out(&self, verb: &str) -> anyhow::Result<Printed> {
        let chart = chart::folder().display().to_string();
        let printed = self.helm(&[verb, self.name, &chart, "-f", &self.values()]).await?;
        self.settle().await?;
        Ok(printed)
    }

    /// `helm uninstall`, with its hook.
    pub async fn uninstall(&self) -> anyhow::Result<Printed> {
        let printed = self.helm(&["uninstall", self.name]).await?;
        wait_for("the pods to go", SOON, || async {
            self.stop_gone().await?;
            let left = self.locked().len();
            ensure!(left == 0, "{left} left");
            Ok(())
        })
        .await?;
        Ok(printed)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Standing>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let selector = format!("app.kubernetes.io/instance={}", self.name);
        let listed = self
            .json(&["get", "pods", "-n", &self.namespace, "-l", &selector])
            .await?;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        Ok(items
            .into_iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .collect())
    }

    /// What kubectl shows as JSON.
    pub async fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let shown = self.plane.kubectl(arguments)?.args(&["-o", "json"]).ok().await?;
        Ok(serde_json::from_str(&shown.stdout)?)
    }

    /// Ends the processes of pods that are gone, as the kubelet would.
    async fn stop_gone(&self) -> anyhow::Result<()> {
        let names: Vec<String> = self
            .pods()
            .await?
            .iter()
            .map(|pod| text(pod, "/metadata/name"))
            .collect();
        let gone: Vec<Standing> = {
            let mut standing = self.locked();
            let gone: Vec<String> = standing.keys().filter(|name| !names.contains(name)).cloned().collect();
            gone.iter().filter_map(|name| standing.remove(name)).collect()
        };
        for pod in gone {
            let status = pod.process.terminate(SOON).await?;
            ensure!(
                status.success(),
                "{:?} ended with {status}: {}",
                pod.process,
                pod.process.log()
            );
        }
        Ok(())
    }

    /// Waits for the rollout, then lets the processes follow the pods, and waits until they are ready.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let place = ["-n", self.namespace.as_str()];
        let found = self
            .json(&[
                "get",
                "deployments",
                "-l",
                &format!("app.kubernetes.io/instance={}", self.name),
                place[0],
                place[1],
            ])
            .await?;
        for deployment in found["items"].as_array().into_iter().flatten() {
            let name = text(deployment, "/metadata/name");
            self.plane
                .kubectl(&[
                    "rollout",
                    "status",
                    "--timeout=60s",
                    &format!("deployment/{name}"),
                    place[0],
                    place[1],
                ])?
                .ok()
                .await?;
        }
        self.stop_gone().await?;
        let mut ready = Vec::new();
        for pod in self.pods().await? {
            let name = text(&pod, "/metadata/name");
            let of_replica_set = pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
            if !of_replica_set || self.locked().contains_key(&name) {
                continue;
            }
            let taken = self.locked().values().any(|_| true);
            let webhook = if taken { free_port()? } else { self.webhook_port };
            let ops = free_port()?;
            let addresses = [
                ("OFFHOURS_OPS_ADDRESS", format!("127.0.0.1:{ops}")),
                ("OFFHOURS_WEBHOOK_ADDRESS", format!("127.0.0.1:{webhook}")),
            ];
            let process = self.start(&pod, &addresses).await?;
            self.locked().insert(name, Standing { process, ops });
            ready.push(ops);
        }
        for ops in ready {
            wait_for("a pod to be ready", SOON, || async {
                if let Some(pod) = self.locked().values().find(|pod| pod.ops == ops) {
                    pod.process.check_running()?;
                }
                let (status, body) = harness::http_get(ops, "/readyz").await?;
                ensure!(status == 200, "{status}: {body}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// The API server reaches the webhook at this machine: what a cluster's network does.
    pub async fn connect_webhook(&self) -> anyhow::Result<()> {
        let patch = json!({"spec": {
            "type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null,
            "ipFamilies": null, "ipFamilyPolicy": null, "internalTrafficPolicy": null,
        }});
        let service = format!("service/{}-webhook", self.name);
        self.plane
            .kubectl(&[
                "patch",
                &service,
                "-n",
                &self.namespace,
                "--type=merge",
                "-p",
                &patch.to_string(),
            ])?
            .ok()
            .await?;
        wait_for("the caBundle", SOON, || async {
            for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
                let seen = self.json(&["get", kind, self.name]).await?;
                let all = seen["webhooks"].as_array().context("no webhooks")?;
                ensure!(
                    all.iter().all(|one| one["clientConfig"]["caBundle"].is_string()),
                    "{kind} has none"
                );
            }
            Ok(())
        })
        .await
    }

    /// Runs what pods of Jobs and tests would run, to the end.
    async fn run_jobs(&self) -> anyhow::Result<()> {
        for pod in self.pods().await? {
            let owner = pod["metadata"]["ownerReferences"][0]["kind"].as_str();
            let running = pod["status"]["phase"] == "Running";
            if owner == Some("ReplicaSet") || !running {
                continue;
            }
            let process = self.start(&pod, &[]).await?;
            let status = process.wait_for_exit(HELM).await?;
            let phase = if status.success() { "Succeeded" } else { "Failed" };
            let name = text(&pod, "/metadata/name");
            let patch = json!({"status": {"phase": phase}}).to_string();
            self.plane
                .kubectl(&[
                    "patch",
                    "pod",
                    &name,
                    "-n",
                    &self.namespace,
                    "--subresource=status",
                    "--type=merge",
                    "-p",
                    &patch,
                ])?
                .ok()
                .await?;
            ensure!(status.success(), "pod {name} ended with {status}: {}", process.log());
        }
        Ok(())
    }

    /// Runs the pod of a Job, to its end.
    pub async fn run_job(&self, name: &str) -> anyhow::Result<()> {
        wait_for(&format!("Job {name} to complete"), HELM, || async {
            self.run_jobs().await?;
            let job = self.json(&["get", "job", name, "-n", &self.namespace]).await?;
            ensure!(job["status"]["succeeded"] == 1, "{}", job["status"]);
            Ok(())
        })
        .await
    }

    /// The process of a pod's container.
    async fn start(&self, pod: &Value, addresses: &[(&str, String)]) -> anyhow::Result<Product> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let account = text(pod, "/spec/serviceAccountName");
        let token = self.plane.service_account_token(&self.namespace, &account).await?;
        let kubeconfig = self.plane.kubeconfig_with_token(&token)?;
        let container = &pod["spec"]["containers"][0];
        let mut files = BTreeMap::new();
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let volumes = pod["spec"]["volumes"].as_array();
            let volume = volumes
                .into_iter()
                .flatten()
                .find(|volume| volume["name"] == mount["name"]);
            let Some(map) = volume.and_then(|volume| volume["configMap"]["name"].as_str()) else {
                bail!("no stand-in for volume {mount}");
            };
            let folder = self
                .files
                .path()
                .join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
            fs::create_dir(&folder)?;
            let held = self.json(&["get", "configmap", map, "-n", &self.namespace]).await?;
            for (file, content) in held["data"].as_object().into_iter().flatten() {
                fs::write(folder.join(file), content.as_str().unwrap_or_default())?;
            }
            files.insert(text(mount, "/mountPath"), folder);
        }
        let arguments = container["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let mut process = Program::new(offhours_binary()?)
            .args(arguments)
            .env("KUBECONFIG", kubeconfig.display().to_string());
        for stray in ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "RUST_LOG"] {
            process.environment.push((stray.to_owned(), None));
        }
        for variable in container["env"].as_array().into_iter().flatten() {
            let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
            let mut value = match field {
                Some(field) => text(pod, &format!("/{}", field.replace('.', "/"))),
                None => text(variable, "/value"),
            };
            for (path, folder) in &files {
                if let Some(rest) = value.strip_prefix(path.as_str()) {
                    value = format!("{}{rest}", folder.display());
                }
            }
            process = process.env(text(variable, "/name"), value);
        }
        for (name, value) in addresses {
            process = process.env(*name, value.as_str());
        }
        Product::start_program(self.plane, &text(pod, "/metadata/name"), &process).map(Product::with_roles_that_end)
    }

    /// `kubectl offhours …` of a person, with the plugin on the PATH.
    pub async fn plugin(&self, who: &harness::Identity, arguments: &[&str]) -> anyhow::Result<Printed> {
        let folder = self.files.path().join("bin");
        if !folder.exists() {
            fs::create_dir(&folder)?;
            std::os::unix::fs::symlink(offhours_binary()?, folder.join("kubectl-offhours"))?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let command = Program::new(program("kubectl")?)
            .arg("offhours")
            .args(arguments.iter().copied())
            .env("KUBECONFIG", self.plane.kubeconfig_for(who)?.display().to_string())
            .env("PATH", format!("{}:{path}", folder.display()));
        let output = tokio::task::spawn_blocking(move || command.run("")).await??;
        Ok(Printed {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
