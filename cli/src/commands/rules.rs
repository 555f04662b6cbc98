//! `offhours rules`: what the chart is made of, so that roles, webhooks and the forms of values are written in one place.

use std::io::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use shared::api::definition;
use shared::kinds::Kinds;
use shared::rules::chart::chart;
use shared::rules::rights::kind_names;

use super::Outcome;

/// The schema of the chart's values, but for what the product's own types say.
const VALUES: &str = include_str!("values.schema.json");

/// Arguments of `offhours rules`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What
    #[arg(value_enum, default_value = "chart")]
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// Roles and webhooks
    Chart,
    /// The JSON schema of the chart's values
    Values,
}

/// Prints it.
///
/// # Errors
/// If it cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let text = match arguments.what {
        What::Chart => {
            let yaml = serde_saphyr::to_string(&chart(&Kinds::default())).context("failed to write YAML")?;
            format!("# Made by `offhours rules`; do not edit.\n{}\n", yaml.trim_end())
        }
        What::Values => format!("{}\n", serde_json::to_string_pretty(&values()?)?),
    };
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")?;
    Ok(Outcome::Done)
}

/// The schema, with the forms of a schedule and the names of kinds.
fn values() -> anyhow::Result<Value> {
    let mut schema: Value = serde_json::from_str(VALUES).context("failed to read the schema of values")?;
    let crd = serde_json::to_value(definition())?;
    let mut spec = crd
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .cloned()
        .context("the definition has no schema of spec")?;
    tidy(&mut spec);
    let definitions = schema
        .pointer_mut("/definitions")
        .and_then(Value::as_object_mut)
        .context("the schema of values has no definitions")?;
    definitions.insert("scheduleSpec".to_owned(), spec);
    let (_, kinds) = kind_names(&Kinds::default());
    definitions.insert("kind".to_owned(), json!({"type": "string", "enum": kinds}));
    Ok(schema)
}

/// Leaves out what only the API server understands, and refuses keys that nobody knows, as it does.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|key, _| !key.starts_with("x-kubernetes-") && key != "format");
            fields.values_mut().for_each(tidy);
            if fields.get("type") == Some(&json!("object"))
                && fields.get("properties").is_some_and(Value::is_object)
                && !fields.contains_key("additionalProperties")
            {
                fields.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn the_schema_of_values_knows_schedules_and_kinds() {
        let schema = values().unwrap();
        let spec = &schema["definitions"]["scheduleSpec"];
        assert_eq!(spec["additionalProperties"], false);
        assert!(spec["properties"]["timeZone"].is_object() && spec["properties"]["cron"]["properties"].is_object());
        assert!(!schema.to_string().contains("x-kubernetes-"));
        let kinds = schema["definitions"]["kind"]["enum"].as_array().unwrap();
        assert!(kinds.contains(&json!("CronJob")));
    }

    #[test]
    fn every_key_of_the_schema_has_a_default_in_the_chart() {
        let values: Map<String, Value> =
            serde_saphyr::from_str(include_str!("../../../manifests/chart/values.yaml")).unwrap();
        let schema = super::values().unwrap();
        let known = schema["properties"].as_object().unwrap();
        let missing: Vec<_> = known
            .keys()
            .filter(|key| !values.contains_key(*key) && *key != "global")
            .collect();
        assert!(missing.is_empty(), "no default in values.yaml: {missing:?}");
        let unknown: Vec<_> = values.keys().filter(|key| !known.contains_key(*key)).collect();
        assert!(unknown.is_empty(), "no schema of: {unknown:?}");
    }
}
