//! helm, as people use it.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use harness::{Program, program, repository};
use serde_json::Value;

/// The version of Kubernetes that is rendered for without a cluster.
pub const KUBE_VERSION: &str = "1.36.0";

/// Where the chart is.
pub fn chart() -> PathBuf {
    repository().join("manifests/chart")
}

/// What a program printed.
pub struct Printed {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Printed {
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs one of the programs that `tests/controlplane/build.sh` builds.
pub fn run(name: &str, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> anyhow::Result<Printed> {
    let mut command = Program::new(program(name)?).args(arguments.iter().copied());
    for (name, value) in environment {
        command = command.env(*name, *value);
    }
    let output = command.run(input)?;
    Ok(Printed {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Renders the chart with these arguments.
pub fn try_template(namespace: &str, arguments: &[&str]) -> anyhow::Result<Printed> {
    let chart = chart().display().to_string();
    let mut all = vec![
        "template",
        "offhours",
        &chart,
        "-n",
        namespace,
        "--kube-version",
        KUBE_VERSION,
    ];
    all.extend(arguments);
    run("helm", &all, &[], "")
}

/// The text of the chart rendered with these arguments.
pub fn template(namespace: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let printed = try_template(namespace, arguments)?;
    ensure!(printed.success, "helm template {arguments:?}: {}", printed.text());
    Ok(printed.stdout)
}

/// The objects of a text of YAML documents.
pub fn objects(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in text.split("\n---") {
        let content = document
            .lines()
            .any(|line| !line.trim().is_empty() && !line.starts_with('#') && line != "---");
        if !content {
            continue;
        }
        let object: Value = serde_saphyr::from_str(document).with_context(|| format!("no YAML: {document}"))?;
        if object["kind"].is_string() {
            all.push(object);
        } else if !object.is_null() {
            bail!("no object: {document}");
        }
    }
    Ok(all)
}

/// `Kind name`.
pub fn title(object: &Value) -> String {
    format!(
        "{} {}",
        object["kind"].as_str().unwrap_or_default(),
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}
