//! The product's chart, rendered by the real helm as people render it: for every suite, and for the demo.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    process::Program,
    programs::{program, repository},
};

/// The version of Kubernetes that is rendered for without a cluster.
pub const KUBE_VERSION: &str = "1.36.0";

/// Where the chart is.
pub fn folder() -> PathBuf {
    repository().join("manifests/chart")
}

/// What a program printed.
#[derive(Debug)]
pub struct Printed {
    /// It ended with exit code 0.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Printed {
    /// All that it said.
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
    let chart = folder().display().to_string();
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

/// What is committed of the chart as it is: the one file that `kubectl apply` and kustomize take.
pub fn base() -> anyhow::Result<String> {
    let path = repository().join("manifests/kustomize/offhours.yaml");
    fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

/// The documents of a rendered text that are objects.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n---").filter(|document| kind(document).is_some())
}

/// The kind of a document.
fn kind(document: &str) -> Option<&str> {
    document.lines().find_map(|line| line.strip_prefix("kind: "))
}

/// The objects of a rendered text.
pub fn objects(text: &str) -> anyhow::Result<Vec<Value>> {
    documents(text)
        .map(|document| serde_saphyr::from_str(document).with_context(|| format!("no YAML: {document}")))
        .collect()
}

/// The documents of these kinds, each of which has to be there.
pub fn only(text: &str, kinds: &[&str]) -> anyhow::Result<String> {
    let missing = kinds
        .iter()
        .find(|wanted| !documents(text).any(|one| kind(one) == Some(**wanted)));
    ensure!(missing.is_none(), "no {missing:?} in {text}");
    let wanted = documents(text).filter(|one| kind(one).is_some_and(|kind| kinds.contains(&kind)));
    Ok(wanted.collect::<Vec<_>>().join("\n---"))
}

/// All documents but those of these kinds.
pub fn without(text: &str, kinds: &[&str]) -> String {
    let wanted = documents(text).filter(|one| kind(one).is_some_and(|kind| !kinds.contains(&kind)));
    wanted.collect::<Vec<_>>().join("\n---")
}

/// `Kind name`.
pub fn title(object: &Value) -> String {
    let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", text("/kind"), text("/metadata/name"))
}
