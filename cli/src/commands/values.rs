//! What the chart's values may be: the JSON schema of their forms, and the options that they may hold.
//!
//! What a pod would refuse at its start, `helm install` refuses before there is a pod. The parser of the settings stays the
//! judge: what is said here about texts is as narrow as a regular expression that takes all that the parser takes.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};
use shared::api::definition;
use shared::kinds::Kinds;
use shared::rules::rights::kind_names;
use shared::schedule::zone_names;
use shared::settings::{Form, OPTIONS, Row};

/// The schema of the chart's values, but for what the product's own types say.
const VALUES: &str = include_str!("values.schema.json");

/// A time of day that may be a start.
const START: &str = "([01][0-9]|2[0-3]):[0-5][0-9]";
/// One that may be an end.
const END: &str = "(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)";
const WEEKDAY: &str = "(mon|tue|wed|thu|fri|sat|sun|monday|tuesday|wednesday|thursday|friday|saturday|sunday)";
const MONTH: &str = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|january|february|march|april|june|july|august|september|october|november|december)";
/// A local date-time, or one with an offset.
const INSTANT: &str = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9][^\s/,;]*";
const DAY: &str = "[0-9]{4}-[0-9]{2}-[0-9]{2}";
const ZONE: &str = r"[a-z][^\s,;]*";

/// `Mon-Fri 08:00-20:00`, several with commas between them.
fn windows() -> String {
    let days = format!(r"{WEEKDAY}(\s*-\s*{WEEKDAY})?");
    let daily = format!(r"{days}(\s*,\s*{days})*\s+{START}\s*-\s*{END}");
    let spanning = format!(r"{WEEKDAY}\s+{START}\s*-\s*{WEEKDAY}\s+{END}");
    let once = format!(r"{INSTANT}\s*(/|\s-|\sto\s)\s*{INSTANT}");
    let window = format!(r"(always|never|({daily}|{spanning}|{once})(\s+{ZONE})?)");
    format!(r"(?i)^\s*{window}(\s*[,;]\s*{window})*\s*$")
}

/// `0 20 * * 1-5`; `before`: what may stand before it.
fn cron(before: &str) -> String {
    let field = |one: &str| {
        let range = format!(r"(\*|\?|{one}(-{one})?)(/[0-9]+)?");
        format!("{range}(,{range})*")
    };
    let fields = [
        field("0*[1-5]?[0-9]"),
        field("0*(1?[0-9]|2[0-3])"),
        field("0*([1-9]|[12][0-9]|3[01])"),
        field(&format!("(0*([1-9]|1[0-2])|{MONTH})")),
        field(&format!("(0*[0-7]|{WEEKDAY})")),
    ];
    let fields = fields.join(r"\s+");
    format!(r"(?i)^\s*{before}(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{fields})\s*$")
}

/// A form of texts in schedules.
#[derive(Debug, Serialize)]
struct TextForm {
    pattern: String,
    allowed: &'static str,
}

/// What the texts of a schedule look like. Templates look at them, since a schema that refuses shows the pattern and no words.
fn forms() -> BTreeMap<&'static str, TextForm> {
    let nth = "(1st|2nd|3rd|4th|5th|first|second|third|fourth|fifth|last)";
    let date = format!(r"({DAY}|--[0-9]{{2}}-[0-9]{{2}}|{nth}\s+{WEEKDAY}\s+of\s+{MONTH})");
    let crons = "minute, hour, day of month, month and day of week, such as `0 20 * * 1-5`";
    [
        (
            "window",
            windows(),
            "days and hours such as `Mon-Fri 08:00-20:00`, `Fri 20:00 - Mon 06:00`, `always` or `never`",
        ),
        ("cron", cron(r"((CRON_)?TZ=\S+\s+)?"), crons),
        ("cronJob", cron(""), crons),
        (
            "date",
            format!(r"(?i)^\s*{date}\s*$"),
            "a day such as `2026-12-25`, `--12-25` or `last Mon of May`",
        ),
        (
            "end",
            format!(r"(?i)^\s*{DAY}(T[0-9:.]+)?\s*$"),
            "a day such as `2026-12-24`, or a local date-time such as `2026-12-24T12:00`",
        ),
        (
            "hours",
            format!(r"^\s*{START}\s*-\s*{END}\s*$"),
            "hours such as `08:00-12:00`",
        ),
        (
            "duration",
            "^([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$".to_owned(),
            "a duration such as `90s`, `15m` or `2h30m`",
        ),
    ]
    .into_iter()
    .map(|(name, pattern, allowed)| (name, TextForm { pattern, allowed }))
    .collect()
}

/// The schema, with the forms of a schedule and the names of kinds.
///
/// # Errors
/// If the schema that is written by hand has not the places that the rest goes to.
pub fn schema() -> anyhow::Result<Value> {
    let mut schema: Value = serde_json::from_str(VALUES).context("failed to read the schema of values")?;
    let crd = serde_json::to_value(definition())?;
    let mut spec = crd
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .cloned()
        .context("the definition has no schema of spec")?;
    tidy(&mut spec);
    let down = spec
        .pointer_mut("/properties/downReplicas")
        .and_then(Value::as_object_mut)
        .context("a schedule has no downReplicas")?;
    let share = json!({"type": "string", "pattern": "^(100|[0-9]{1,2})%$"});
    down.insert(
        "anyOf".to_owned(),
        json!([{"type": "integer", "minimum": 0, "maximum": i32::MAX}, share]),
    );
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

/// What the chart's templates have to know of options.
#[derive(Debug, Serialize)]
pub struct OptionsFile {
    options: Vec<OptionRow>,
    /// Of texts in schedules.
    forms: BTreeMap<&'static str, TextForm>,
    /// Names of time zones, in small letters.
    zones: Vec<String>,
}

/// One option.
#[derive(Debug, Serialize)]
struct OptionRow {
    key: String,
    variable: &'static str,
    /// Its text matches this.
    pattern: String,
    /// What is allowed, in words.
    allowed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<u64>,
    /// An empty variable means that it is not set.
    #[serde(rename = "mayBeEmpty")]
    may_be_empty: bool,
    /// It is for the chart to say in these modes, and this is what to do instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<&'static str>,
}

const BOTH: &[&str] = &["controller", "cronjob"];
const SERVERS: &[&str] = &["controller"];
const ONE_PASS: &[&str] = &["cronjob"];

/// What settings and variables of a release must not say: its pods would not obey, or not start.
const NOT_IN_VALUES: &[(&str, &[&str], &str)] = &[
    ("kubeconfig", BOTH, "leave it out: pods use their service account"),
    ("context", BOTH, "leave it out: pods use their service account"),
    ("own-namespace", BOTH, "leave it out: it is the release's namespace"),
    ("ops-address", BOTH, "leave it out: probes and metrics are on port 8080"),
    ("namespaces", BOTH, "write the value namespaces"),
    (
        "own-identities",
        BOTH,
        "leave it out: they are the accounts of the release",
    ),
    ("argo-cluster-names", BOTH, "write the value argo.clusterNames"),
    (
        "webhook-address",
        BOTH,
        "write the values webhook.port or webhook.enabled",
    ),
    ("webhook-service", BOTH, "write the value fullnameOverride"),
    ("webhook-name", BOTH, "write the value fullnameOverride"),
    ("webhook-install", BOTH, "leave it out: the chart registers the webhook"),
    (
        "webhook-install-service",
        BOTH,
        "leave it out: the chart makes the Service",
    ),
    ("on-uncertainty", BOTH, "write the value webhook.onUncertainty"),
    ("certificate-secret", BOTH, "write the values webhook.certificates"),
    ("certificate-directory", BOTH, "write the values webhook.certificates"),
    (
        "webhook-client-authority",
        BOTH,
        "leave it out: the chart mounts no such file",
    ),
    (
        "dev",
        BOTH,
        "leave it out: it is for a product that runs beside the cluster",
    ),
    (
        "dev-host",
        BOTH,
        "leave it out: it is for a product that runs beside the cluster",
    ),
    ("identity", BOTH, "leave it out: it is the pod's name"),
    ("lease-name", BOTH, "write the value fullnameOverride"),
    ("argo-server", BOTH, "write the value cronjob.argoServer"),
    (
        "argo-token",
        BOTH,
        "write the value cronjob.argoTokenSecret, the name of a Secret",
    ),
    (
        "argo-token-file",
        BOTH,
        "write the value cronjob.argoTokenSecret, the name of a Secret",
    ),
    ("argo-ca-file", BOTH, "leave it out: the chart mounts no such file"),
    (
        "action",
        BOTH,
        "leave it out: servers have none, and each CronJob its own",
    ),
    ("dry-run", SERVERS, "run `offhours plan`: servers have no dry run"),
    ("argo-enabled", ONE_PASS, "write the value argo.enabled"),
    ("schedule-name", ONE_PASS, "write the value cronjob.schedules"),
    ("schedule-scope", ONE_PASS, "write the value cronjob.schedules"),
    ("schedule-shutdown", ONE_PASS, "write the value cronjob.schedules"),
    ("schedule-startup", ONE_PASS, "write the value cronjob.schedules"),
    ("schedule-timezone", ONE_PASS, "write the value cronjob.schedules"),
    (
        "enforcement-mode",
        ONE_PASS,
        "leave it out: nothing is held in mode cronjob",
    ),
];

fn option(row: &Row) -> OptionRow {
    let level = "(error|warn|info|debug|trace|off)";
    let (least, most) = match row.form {
        Form::Whole { least, most } => (Some(least), Some(most)),
        _ => (None, None),
    };
    let not = NOT_IN_VALUES.iter().find(|(flag, _, _)| *flag == row.flag);
    OptionRow {
        key: row.file_key(),
        variable: row.variable,
        pattern: match (row.flag, row.form) {
            ("log-level", _) => format!(r"(?i)^\s*([\w:]+=)?{level}(,([\w:]+=)?{level})*\s*$"),
            ("schedule-name", _) => "^[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$".to_owned(),
            (_, Form::Text | Form::Secret) => r"\S".to_owned(),
            (_, Form::Boolean) => "^(true|false)$".to_owned(),
            (_, Form::OneOf(words)) => format!("^({})$", words.join("|")),
            (_, Form::Whole { .. }) => "^[0-9]{1,18}$".to_owned(),
            (_, Form::Seconds) => r"^([0-9]+\.?[0-9]*|\.[0-9]+)$".to_owned(),
            // Longer than nothing, from the largest unit to the smallest.
            (_, Form::Duration) => {
                let part = |unit: &str| format!("([0-9]{{1,6}}{unit})?");
                format!("^{}$", ["w", "d", "h", "m", "s", "ms"].map(part).concat())
            }
            (_, Form::Address) => r"^(off|\S+:[0-9]{1,5})$".to_owned(),
            (_, Form::List | Form::CronList) => "[^,;[:space:]]".to_owned(),
            (_, Form::Name) => "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$".to_owned(),
        },
        allowed: match row.flag {
            "log-level" => {
                "`error`, `warn`, `info`, `debug` or `trace`, or a list such as `info,scheduler=debug`".to_owned()
            }
            _ => row.form.allowed(),
        },
        least,
        most,
        may_be_empty: !matches!(row.form, Form::Boolean | Form::Whole { .. } | Form::Seconds),
        not: not.map(|(_, modes, _)| modes.to_vec()).unwrap_or_default(),
        instead: not.map(|(_, _, instead)| *instead),
    }
}

/// All options, and all time zones.
pub fn options() -> OptionsFile {
    OptionsFile {
        options: OPTIONS.iter().map(option).collect(),
        forms: forms(),
        zones: zone_names().into_iter().map(|name| name.to_lowercase()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use shared::schedule::parse_zone;

    use super::*;

    #[test]
    fn the_schema_of_values_knows_schedules_and_kinds() {
        let schema = schema().unwrap();
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
        let schema = super::schema().unwrap();
        let known = schema["properties"].as_object().unwrap();
        let missing: Vec<_> = known
            .keys()
            .filter(|key| !values.contains_key(*key) && *key != "global")
            .collect();
        assert!(missing.is_empty(), "no default in values.yaml: {missing:?}");
        let unknown: Vec<_> = values.keys().filter(|key| !known.contains_key(*key)).collect();
        assert!(unknown.is_empty(), "no schema of: {unknown:?}");
    }

    #[test]
    fn whatever_is_not_for_values_is_an_option_and_says_what_to_do() {
        for (flag, _, instead) in NOT_IN_VALUES {
            assert!(OPTIONS.iter().any(|row| row.flag == *flag), "{flag}");
            assert!(
                instead.starts_with("write the value") || instead.contains(": "),
                "{flag}: {instead}"
            );
        }
    }

    #[test]
    fn the_zones_of_values_are_those_of_the_parser() {
        let zones = options().zones;
        assert!(zones.len() > 400 && zones.iter().any(|zone| zone == "america/sao_paulo"));
        for zone in &zones {
            assert!(parse_zone(zone).is_ok(), "{zone}");
        }
    }
}
