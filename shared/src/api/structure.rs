//! The structural rules of the custom resource, applied to a document that no API server has seen yet: a file.
//!
//! Messages are those of the API server, so that a person sees the same whichever way they try.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::OffHoursSchedule;
use crate::schedule::{Problem, closest_word};

/// The custom resource definition, as it is to be installed.
///
/// It is what the types say, but without `nullable`: then the API server treats a null as an absent field, as our parser does,
/// and its CEL rules never see one.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = OffHoursSchedule::crd();
    for version in &mut definition.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            forbid_nulls(schema);
        }
    }
    definition
}

fn forbid_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        forbid_nulls(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
        forbid_nulls(item);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        forbid_nulls(value);
    }
}

/// Reads a whole document as the API server would: structure first, nulls as absent fields.
///
/// # Errors
/// Everything that is wrong with its structure. What it means is left to [`super::validate`].
pub fn read_document(mut document: Value) -> Result<OffHoursSchedule, Vec<Problem>> {
    let problems = check_structure(&document);
    if !problems.is_empty() {
        return Err(problems);
    }
    drop_nulls(&mut document);
    serde_json::from_value(document).map_err(|error| vec![Problem::new("spec", error.to_string())])
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Checks a whole document: unknown fields, missing ones, wrong types, words that are not in a list, numbers
/// and texts out of bounds. What a pattern or a CEL rule says is left to [`super::validate`].
fn check_structure(document: &Value) -> Vec<Problem> {
    let definition = definition();
    let schema = definition
        .spec
        .versions
        .iter()
        .find(|version| version.name == super::VERSION)
        .and_then(|version| version.schema.as_ref())
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let mut problems = Vec::new();
    let Some(object) = document.as_object() else {
        problems.push(Problem::new("", "the document is not an object"));
        return problems;
    };
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != format!("{}/{}", super::GROUP, super::VERSION) {
        let message = format!("{version:?} is unknown; write `{}/{}`", super::GROUP, super::VERSION);
        problems.push(Problem::new("apiVersion", message));
    }
    for key in object.keys() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status") {
            problems.push(unknown(key, "", ["metadata", "spec"].into_iter()));
        }
    }
    match (
        object.get("spec"),
        schema.and_then(|schema| schema.properties.as_ref()?.get("spec")),
    ) {
        (Some(spec), Some(schema)) => check(spec, schema, "spec", &mut problems),
        (None, _) => problems.push(Problem::new("spec", "Required value")),
        _ => {}
    }
    problems
}

fn unknown<'w>(key: &str, parent: &str, known: impl Iterator<Item = &'w str>) -> Problem {
    let path = if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    };
    let message = match closest_word(key, known) {
        Some(close) => format!("unknown field \"{path}\"; did you mean `{close}`?"),
        None => format!("unknown field \"{path}\""),
    };
    Problem::new(path, message)
}

fn check(value: &Value, schema: &JSONSchemaProps, path: &str, problems: &mut Vec<Problem>) {
    let wrong_type = if schema.x_kubernetes_int_or_string == Some(true) {
        (!value.is_string() && value.as_i64().is_none()).then_some("integer or string")
    } else {
        schema.type_.as_deref().filter(|wanted| !is_of(value, wanted))
    };
    if let Some(wanted) = wrong_type {
        let found = type_name(value);
        problems.push(Problem::new(
            path,
            format!("Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\""),
        ));
        return;
    }
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|allowed| allowed.0 == *value)
    {
        let list: Vec<String> = allowed.iter().map(|allowed| allowed.0.to_string()).collect();
        problems.push(Problem::new(
            path,
            format!("Unsupported value: {value}: supported values: {}", list.join(", ")),
        ));
    }
    match value {
        Value::String(text) => check_text(text, schema, path, problems),
        Value::Number(number) => check_number(number.as_f64().unwrap_or(f64::NAN), schema, path, problems),
        Value::Array(items) => check_items(items, schema, path, problems),
        Value::Object(object) => check_object(object, schema, path, problems),
        _ => {}
    }
}

fn is_of(value: &Value, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_text(text: &str, schema: &JSONSchemaProps, path: &str, problems: &mut Vec<Problem>) {
    let length = text.chars().count() as i64;
    if let Some(least) = schema.min_length.filter(|least| length < *least) {
        problems.push(Problem::new(
            path,
            format!("Invalid value: \"\": {path} in body should be at least {least} chars long"),
        ));
    }
    if let Some(most) = schema.max_length.filter(|most| length > *most) {
        problems.push(Problem::new(
            path,
            format!("Too long: may not be more than {most} bytes"),
        ));
    }
}

fn check_number(number: f64, schema: &JSONSchemaProps, path: &str, problems: &mut Vec<Problem>) {
    if let Some(least) = schema.minimum.filter(|least| number < *least) {
        let message = format!("Invalid value: {number}: {path} in body should be greater than or equal to {least}");
        problems.push(Problem::new(path, message));
    }
    if let Some(most) = schema.maximum.filter(|most| number > *most) {
        let message = format!("Invalid value: {number}: {path} in body should be less than or equal to {most}");
        problems.push(Problem::new(path, message));
    }
}

fn check_items(items: &[Value], schema: &JSONSchemaProps, path: &str, problems: &mut Vec<Problem>) {
    let count = items.len() as i64;
    if let Some(least) = schema.min_items.filter(|least| count < *least) {
        let message = format!("Invalid value: {count}: {path} in body should have at least {least} items");
        problems.push(Problem::new(path, message));
    }
    if let Some(most) = schema.max_items.filter(|most| count > *most) {
        problems.push(Problem::new(
            path,
            format!("Too many: {count}: must have at most {most} items"),
        ));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        for (index, value) in items.iter().enumerate() {
            check(value, item, &format!("{path}[{index}]"), problems);
        }
    }
}

fn check_object(
    object: &serde_json::Map<String, Value>,
    schema: &JSONSchemaProps,
    path: &str,
    problems: &mut Vec<Problem>,
) {
    let is_absent = |name: &&String| object.get(*name).is_none_or(Value::is_null);
    for name in schema.required.iter().flatten().filter(is_absent) {
        problems.push(Problem::new(format!("{path}.{name}"), "Required value"));
    }
    for (key, value) in object {
        let known = schema.properties.as_ref().and_then(|properties| properties.get(key));
        match (known, &schema.additional_properties) {
            (Some(_), _) if value.is_null() => {}
            (Some(schema), _) => check(value, schema, &format!("{path}.{key}"), problems),
            (None, Some(JSONSchemaPropsOrBool::Schema(schema))) => {
                check(value, schema, &format!("{path}.{key}"), problems);
            }
            (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
            (None, _) if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
            (None, _) => {
                let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
                problems.push(unknown(key, path, names));
            }
        }
    }
}
