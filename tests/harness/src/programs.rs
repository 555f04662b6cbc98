//! Where the programs of the control plane are: `tests/controlplane/build.sh` knows.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The root of the repository.
pub fn repository() -> PathBuf {
    // tests/harness -> the root
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The Kubernetes version asked for by `KUBE_VERSION` (`1.37`), if any.
pub fn kube_version() -> Option<String> {
    std::env::var("KUBE_VERSION").ok().filter(|version| !version.is_empty())
}

/// The folder of cargo's output, where the harness keeps its own as well.
pub fn target_folder() -> PathBuf {
    // cargo marks it so; `CARGO_TARGET_DIR` is thereby obeyed without being read
    std::env::current_exe()
        .ok()
        .and_then(|program| {
            program
                .ancestors()
                .find(|folder| folder.join("CACHEDIR.TAG").exists())
                .map(Path::to_path_buf)
        })
        .unwrap_or_else(|| repository().join("target"))
}

/// Where a program is (`kubectl`, `kwok`, `helm`, `kubeconform` …), built beforehand by `make controlplane` or, for those
/// that only some targets need, by `tests/controlplane/build.sh NAME`. An error says what to run.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let found = programs(&[name])?;
    found
        .get(name)
        .cloned()
        .with_context(|| format!("build.sh --paths did not name {name}"))
}

/// The folder of a Go module's sources (manifests, definitions), downloaded already by whoever built it. `module`: which of
/// `tests/controlplane` builds it.
pub(crate) fn module_folder(module: &str, path: &str) -> anyhow::Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", path])
        .current_dir(repository().join("tests/controlplane").join(module))
        .output()
        .context("failed to run go")?;
    let told: Value = serde_json::from_slice(&output.stdout).context("`go mod download` says nothing readable")?;
    match told.get("Dir").and_then(Value::as_str) {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => bail!("the sources of {path} cannot be had: {told}"),
    }
}

/// As [`program`], for several. The names may be words of build.sh (`controlplane`).
pub(crate) fn programs(words: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    static KNOWN: Mutex<BTreeMap<String, BTreeMap<String, PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let key = words.join(" ");
    if let Some(found) = known.get(&key) {
        return Ok(found.clone());
    }
    let script = repository().join("tests/controlplane/build.sh");
    let output = Command::new("bash")
        .arg(&script)
        .arg("--paths")
        .args(words)
        .output()
        .with_context(|| format!("failed to run {}", script.display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let found: BTreeMap<String, PathBuf> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
        .collect();
    known.insert(key, found.clone());
    Ok(found)
}
