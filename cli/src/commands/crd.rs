//! `offhours crd`: the custom resource definition, made from the Rust types.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context;
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray};
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

/// The page of the reference: every field of the spec and of the status.
///
/// # Errors
/// If the definition has no schema, or a default cannot be written.
pub fn page() -> anyhow::Result<String> {
    let definition = definition();
    let schema = definition
        .spec
        .versions
        .first()
        .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref())
        .context("the definition has no schema")?;
    let mut text = "<!-- Made by `offhours reference crd`; do not edit. -->\n# OffHoursSchedule\n\n".to_owned();
    text.push_str(
        "`offhours.platform.io/v1alpha1`, cluster-scoped, short name `ohs`. Its name is used as a label value: at most 63 characters. \
         `offhours crd` prints the definition; `offhours timeline -f FILE` checks a schedule as the API server and the webhook do.\n",
    );
    for (part, title) in [("spec", "Spec"), ("status", "Status")] {
        let Some(schema) = schema.properties.as_ref().and_then(|fields| fields.get(part)) else {
            continue;
        };
        let _ = write!(
            text,
            "\n## {title}\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
        );
        rows(&mut text, schema, "")?;
    }
    Ok(text)
}

fn rows(text: &mut String, schema: &JSONSchemaProps, path: &str) -> anyhow::Result<()> {
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let inner = match &field.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => Some(item.as_ref()),
            _ => None,
        };
        let kind = |field: &JSONSchemaProps| match (&field.enum_, field.x_kubernetes_int_or_string) {
            (Some(words), _) => {
                let words: Vec<String> = words
                    .iter()
                    .filter_map(|word| Some(format!("`{}`", word.0.as_str()?)))
                    .collect();
                words.join(", ")
            }
            (None, Some(true)) => "integer or string".to_owned(),
            (None, _) => field.type_.clone().unwrap_or_default(),
        };
        let shown = inner.map_or_else(|| kind(field), |item| format!("list of {}", kind(item)));
        let default = match &field.default {
            Some(value) => format!(
                "`{}`",
                serde_json::to_string(&value.0).context("failed to write a default")?
            ),
            None => String::new(),
        };
        let required = schema.required.iter().flatten().any(|required| required == name);
        let meaning = field
            .description
            .clone()
            .unwrap_or_default()
            .replace('\n', " ")
            .replace('|', "\\|");
        let required = if required { " (required)" } else { "" };
        let _ = writeln!(text, "| `{path}` | {shown} | {default} | {meaning}{required} |");
        let path = if inner.is_some() { format!("{path}[]") } else { path };
        rows(text, inner.unwrap_or(field), &path)?;
    }
    Ok(())
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
