//! `offhours crd`: the custom resource definition, made from the Rust types.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use shared::api::definition;

use super::Outcome;

/// Arguments of `offhours crd`.
#[derive(Debug, Args)]
pub struct Arguments {}

/// Prints the definition as YAML.
///
/// # Errors
/// If it cannot be written out.
pub fn run(_arguments: &Arguments) -> anyhow::Result<Outcome> {
    std::io::stdout()
        .lock()
        .write_all(yaml()?.as_bytes())
        .context("failed to write to standard output")?;
    Ok(Outcome::Done)
}

/// The definition as YAML.
fn yaml() -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(&definition()).context("failed to write the definition as YAML")?;
    Ok(format!(
        "# Made by `offhours crd` from shared/src/api; do not edit.\n{}\n",
        text.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_definition_is_what_the_types_say() {
        let committed = include_str!("../../../manifests/crd/offhoursschedules.yaml");
        let made = yaml().unwrap();
        assert!(
            committed == made,
            "manifests/crd is stale: run `cargo run -- crd > manifests/crd/offhoursschedules.yaml`"
        );
    }

    #[test]
    fn definition_survives_yaml() {
        let read: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
            serde_saphyr::from_str(&yaml().unwrap()).unwrap();
        assert_eq!(read, definition());
    }
}
