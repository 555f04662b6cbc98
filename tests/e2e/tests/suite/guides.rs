//! What the guides promise: the quick start as it is written, and the move from another product inside a cluster.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use harness::{offhours_binary, repository};
use serde_json::{Value, json};

use crate::product::{Cluster, deployment};

/// The blocks of a page that follow the line `<!-- run -->`.
fn blocks(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("<!-- run -->\n```sh\n") {
        let Some((block, after)) = after.split_once("\n```") else {
            break;
        };
        found.push(block.to_owned());
        rest = after;
    }
    found
}

/// A folder with `kubectl`, `offhours` and `kubectl-offhours`.
fn programs() -> anyhow::Result<tempfile::TempDir> {
    let paths = Command::new(repository().join("tests/controlplane/build.sh"))
        .args(["--paths", "kubectl"])
        .output()?;
    let paths = String::from_utf8(paths.stdout)?;
    let kubectl = paths.trim().strip_prefix("kubectl=").context("where is kubectl?")?;
    let folder = tempfile::tempdir()?;
    for (name, target) in [
        ("kubectl", PathBuf::from(kubectl)),
        ("offhours", offhours_binary()?),
        ("kubectl-offhours", offhours_binary()?),
    ] {
        std::os::unix::fs::symlink(target, folder.path().join(name))?;
    }
    Ok(folder)
}

/// Runs one block as a person's shell would; what it printed.
async fn run(block: String, programs: &Path, kubeconfig: PathBuf) -> anyhow::Result<String> {
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", &block])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .env("HOME", programs)
        .env("KUBECONFIG", kubeconfig);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "{block}\n{text}");
    Ok(text)
}

#[tokio::test]
async fn kubectl_completes_the_plugin_after_what_the_guide_says() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/guides/command-line.md"))?;
    let programs = programs()?;
    let blocks = blocks(&page);
    ensure!(blocks.len() == 1, "{} blocks", blocks.len());
    let before = "mkdir -p ~/.local/bin; export PATH=$HOME/.local/bin:$PATH";
    let nowhere = programs.path().join("config");
    let asked = async |words: &str| {
        let block = format!("{before}\n{}\nkubectl __complete offhours {words}", blocks.concat());
        run(block, programs.path(), nowhere.clone()).await
    };
    let commands = asked("wa").await?;
    ensure!(
        commands.contains("wake\tWake something") && !commands.contains("status"),
        "{commands}"
    );
    let flags = asked("status -A --out").await?;
    ensure!(flags.contains("--output\t") && flags.contains(":4\n"), "{flags}");
    let kinds = asked("wake depl").await?;
    ensure!(kinds.contains("deployment/") && kinds.contains(":6\n"), "{kinds}");
    Ok(())
}

#[tokio::test]
async fn the_quick_start_works_as_written_and_a_namespace_moves_from_kube_green() -> anyhow::Result<()> {
    let cluster = Cluster::start("guides").await?;
    cluster.install_crd().await?;
    let (_product, _) = cluster.run().await?;
    quick_start(&cluster).await?;
    from_kube_green(&cluster).await
}

async fn quick_start(cluster: &Cluster) -> anyhow::Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/quick-start.md"))?;
    let programs = programs()?;
    let kubeconfig = cluster.plane.kubeconfig_for(&harness::Identity::admin())?;
    let mut transcript = String::new();
    let blocks = blocks(&page);
    ensure!(blocks.len() == 7, "{} blocks", blocks.len());
    for block in blocks {
        let shown = run(block, programs.path(), kubeconfig.clone()).await?;
        writeln!(transcript, "{shown}")?;
    }
    // What the page says that one sees, in its order.
    let mut rest = transcript.as_str();
    for said in [
        "Schedule office-hours, time zone Europe/Berlin",
        "office-hours",
        "namespace/offhours-demo asleep until",
        "web    0/0",
        "Asleep       yes",
        "replicas = 0, saved: 2",
        "deployment.apps/web scaled",
        "kept at 0 replicas, 3 remembered",
        "namespace/offhours-demo awake until",
        "web    3/3",
        "\"office-hours\" deleted",
    ] {
        let (_, after) = rest
            .split_once(said)
            .with_context(|| format!("{said:?} is missing:\n{transcript}"))?;
        rest = after;
    }
    Ok(())
}

/// A definition of kube-green's resource, of the test's own making.
const SLEEP_INFOS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sleepinfos.kube-green.com}
spec:
  group: kube-green.com
  names: {kind: SleepInfo, listKind: SleepInfoList, plural: sleepinfos, singular: sleepinfo}
  scope: Namespaced
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

async fn get(cluster: &Cluster, what: &[&str]) -> anyhow::Result<Value> {
    let shown = cluster
        .plane
        .kubectl(&[&["get", "-o", "json"], what].concat())?
        .ok()
        .await?;
    Ok(serde_json::from_str(&shown.stdout)?)
}

async fn from_kube_green(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.plane.apply(SLEEP_INFOS).await?;
    let crd = "crd/sleepinfos.kube-green.com";
    cluster
        .plane
        .kubectl(&["wait", "--for=condition=Established", crd])?
        .ok()
        .await?;
    let namespace = cluster.plane.namespace("green", &[]).await?;
    let info = json!({
        "apiVersion": "kube-green.com/v1alpha1", "kind": "SleepInfo",
        "metadata": {"name": "nights", "namespace": namespace},
        "spec": {"weekdays": "*", "sleepAt": "*:*", "timeZone": "Europe/Rome"},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sleepinfo-nights", "namespace": namespace},
        "stringData": {
            "operation-type": "SLEEP", "scheduled-at": "2026-11-30T19:05:00Z",
            "original-resource-info": json!({"Deployment.apps": {"web": "{\"spec\":{\"replicas\":3}}"}}).to_string(),
        },
    });
    cluster.plane.apply(&info.to_string()).await?;
    cluster.plane.apply(&secret.to_string()).await?;
    let web = deployment("web", 0);
    cluster
        .plane
        .kubectl(&["apply", "-n", &namespace, "-f", "-"])?
        .stdin(web)
        .ok()
        .await?;

    let arguments = ["migrate", "--from", "kube-green", "-o", "json"];
    let before = get(cluster, &["deployments", "-n", &namespace]).await?;
    let shown = cluster.person(&arguments).await?;
    ensure!(shown.code == 0, "{}", shown.text());
    let shown = shown.json()?;
    ensure!(shown["schedules"][0]["metadata"]["name"] == "nights", "{shown}");
    // Nothing was changed.
    ensure!(get(cluster, &["deployments", "-n", &namespace]).await? == before);
    let schedules = get(cluster, &["offhoursschedules"]).await?;
    ensure!(schedules["items"] == json!([]), "{schedules}");

    let apply = [&arguments[..], &["--apply"]].concat();
    let applied = cluster.person(&apply).await?;
    ensure!(applied.code == 0, "{}", applied.text());
    let schedule = get(cluster, &["offhoursschedule", "nights"]).await?;
    ensure!(
        schedule["spec"]["cron"] == json!({"shutdown": ["* * * * *"]}) && schedule["spec"]["timeZone"] == "Europe/Rome",
        "{schedule}"
    );
    cluster.become_so(&[&namespace], &["web 0 \"3\""]).await?;
    let again = cluster.person(&apply).await?.json()?;
    ensure!(
        again["applied"]["written"] == json!([]) && again["applied"]["failed"] == json!([]),
        "{again}"
    );
    // What kube-green had put to sleep is woken by us.
    let woken = cluster
        .person(&["wake", "deployment/web", "-n", &namespace, "--wait"])
        .await?;
    ensure!(woken.code == 0, "{}", woken.text());
    cluster.become_so(&[&namespace], &["web 3 null"]).await
}
