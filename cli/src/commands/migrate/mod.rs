//! `offhours migrate`: reads the installation of another product, and says what it is in schedules, labels and annotations.

mod cluster;
mod downscaler;
mod k8s_offhours;
mod kube_green;
mod objects;
mod result;
mod spans;
mod times;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use shared::clock::Clock;
use shared::kinds::Kinds;
use shared::settings::Purpose;

use super::Outcome;
use super::tool::{self, AllNamespaces, Output, Refused, Tool, ToolArguments};
use crate::sources;
use downscaler::Peer;
use objects::Objects;
use result::{Applied, Migration};

/// Arguments of `offhours migrate`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A file or directory with the manifests of the installation, or - for standard input (may be repeated) [default: the cluster]
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Only this product [default: every one that is found]
    #[arg(long, value_enum)]
    from: Option<Product>,

    /// Create the schedules and set labels and annotations; without it nothing is changed
    #[arg(long)]
    apply: bool,

    #[command(flatten)]
    all: AllNamespaces,

    #[command(flatten)]
    tool: ToolArguments,
}

/// A product that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Product {
    /// py-kube-downscaler
    PyKubeDownscaler,
    /// GoKubeDownscaler
    #[value(name = "gokubedownscaler")]
    GoKubeDownscaler,
    /// kube-green
    KubeGreen,
    /// K8s-OffHours
    #[value(name = "k8s-offhours")]
    K8sOffHours,
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    tool::block_on(migrate(arguments, clock.now()), |outcome| outcome)
}

async fn migrate(arguments: &Arguments, now: Timestamp) -> Result<Outcome, Refused> {
    let tool = if arguments.files.is_empty() || arguments.apply {
        Some(Tool::start(&arguments.tool).await?)
    } else {
        None
    };
    let kinds = match &tool {
        Some(tool) => tool.settings.kinds.clone(),
        None => sources::settings(Purpose::Tool, &arguments.tool.options)?.kinds,
    };
    let mut migration = Migration::default();
    let objects = match &tool {
        Some(tool) if arguments.files.is_empty() => {
            cluster::read(tool, arguments.tool.namespace.as_deref(), &mut migration).await?
        }
        _ => from_files(&arguments.files)?,
    };
    translate(&objects, &kinds, arguments.from, now, &mut migration);
    if migration.found.is_empty() {
        return Err(Refused::Failed(anyhow::anyhow!(
            "nothing of py-kube-downscaler, GoKubeDownscaler, kube-green or K8s-OffHours was found; give the manifests with -f, or \
             look whether this account may read all namespaces"
        )));
    }
    let applied = match tool.as_ref().filter(|_| arguments.apply) {
        None => None,
        Some(_) if arguments.files.is_empty() && !migration.running.is_empty() => {
            return Err(Refused::Failed(anyhow::anyhow!(
                "{} runs, and two products would fight over the same workloads; stop it first: {}",
                migration.running.join(", "),
                migration.stop.join("; ")
            )));
        }
        Some(tool) => Some(cluster::apply(tool, &migration, &objects).await),
    };
    tell(arguments.tool.output, &migration, &kinds, applied.as_ref())?;
    let whole = migration.differences.is_empty() && applied.is_none_or(|applied| applied.failed.is_empty());
    Ok(if whole { Outcome::Done } else { Outcome::Partly })
}

fn tell(output: Output, migration: &Migration, kinds: &Kinds, applied: Option<&Applied>) -> anyhow::Result<()> {
    let text = if output == Output::Table {
        result::text(migration, kinds, applied)?
    } else {
        String::new()
    };
    tool::answer(output, &result::answer(migration, kinds, applied), || text)
}

/// What objects come to.
fn translate(objects: &Objects, kinds: &Kinds, from: Option<Product>, now: Timestamp, out: &mut Migration) {
    let wanted = |product: Product| from.is_none_or(|from| from == product);
    if wanted(Product::PyKubeDownscaler) || wanted(Product::GoKubeDownscaler) {
        let assumed = if from == Some(Product::PyKubeDownscaler) {
            Peer::Py
        } else {
            Peer::Go
        };
        downscaler::migrate(objects, kinds, assumed, now, out);
    }
    if wanted(Product::KubeGreen) {
        kube_green::migrate(objects, kinds, out);
    }
    if wanted(Product::K8sOffHours) {
        k8s_offhours::migrate(objects, out);
    }
}

fn from_files(paths: &[PathBuf]) -> Result<Objects, Refused> {
    let mut objects = Objects::default();
    for path in paths {
        if path.is_dir() {
            let mut inner = listed(path)?;
            inner.sort();
            for path in inner {
                objects.0.extend(one_file(&path)?);
            }
        } else {
            objects.0.extend(one_file(path)?);
        }
    }
    Ok(objects)
}

fn listed(directory: &Path) -> Result<Vec<PathBuf>, Refused> {
    let unreadable = |error: std::io::Error| Refused::Usage(format!("failed to read {}: {error}", directory.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) {
            found.push(path);
        }
    }
    Ok(found)
}

fn one_file(path: &Path) -> Result<Vec<serde_json::Value>, Refused> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Refused::Usage(format!("failed to read {}: {error}", path.display())))?;
    tool::documents(&text).map_err(|error| Refused::Usage(format!("{} is not YAML: {error}", path.display())))
}

#[cfg(test)]
mod tests;
