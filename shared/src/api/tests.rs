//! Tests of the custom resource and its parser.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    CalendarTexts, ConfigMapKey, EnforcementMode, HpaMode, OffHoursScheduleSpec, definition, read_document, validate,
    validate_name, validate_with,
};
use crate::schedule::State;

fn document(spec: &Value) -> Value {
    json!({
        "apiVersion": "offhours.platform.io/v1alpha1",
        "kind": "OffHoursSchedule",
        "metadata": {"name": "dev"},
        "spec": spec,
    })
}

// A `json!` at each call reads better without a borrow.
#[allow(clippy::needless_pass_by_value)]
fn spec(spec: Value) -> OffHoursScheduleSpec {
    read_document(document(&spec))
        .unwrap_or_else(|problems| panic!("{problems:?}"))
        .spec
}

// A `json!` at each call reads better without a borrow.
#[allow(clippy::needless_pass_by_value)]
fn problems(value: Value) -> Vec<String> {
    let problems = match read_document(document(&value)) {
        Ok(read) => validate(&read.spec).err().unwrap_or_default(),
        Err(problems) => problems,
    };
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn everything_has_its_documented_default() {
    let spec = spec(
        json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-20:00"], "argo": {}, "flux": {}, "hpa": {}, "enforcement": {}}),
    );
    let argo = spec.argo.clone().unwrap();
    assert!(argo.pause && !argo.sync && argo.strict_protected);
    assert!(spec.flux.as_ref().unwrap().pause);
    assert_eq!(spec.hpa.as_ref().unwrap().mode, HpaMode::Keep);
    assert_eq!(spec.enforcement.as_ref().unwrap().mode, EnforcementMode::Rewrite);
    assert!(!spec.enforcement.as_ref().unwrap().guard_overrides && !spec.suspend);
    let validated = validate(&spec).unwrap();
    assert_eq!(validated.warnings, []);
    assert_eq!((validated.grace_period, validated.max_wake), (Duration::ZERO, None));
    assert_eq!(validated.startup_timeout, Duration::from_secs(300));
}

#[test]
fn durations_are_read_in_days_hours_minutes_and_seconds() {
    for (text, seconds) in [
        ("90s", 90),
        ("15m", 900),
        ("2h30m", 9_000),
        ("1d", 86_400),
        ("1d2h3m4s", 93_784),
    ] {
        let validated = validate(&spec(json!({"timeZone": "UTC", "gracePeriod": text}))).unwrap();
        assert_eq!(validated.grace_period, Duration::from_secs(seconds), "{text}");
    }
    for text in ["15", "m", "1m1h", "1h1h", "1.5h", "-1h", "1 h", "1000000000s"] {
        let found = problems(json!({"timeZone": "UTC", "gracePeriod": text}));
        assert!(
            found
                .iter()
                .any(|problem| problem.starts_with("spec.gracePeriod: a duration is written")),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn every_mistake_of_a_spec_is_told_at_once() {
    let found = problems(json!({
        "timeZone": "Nowhere",
        "cron": {"shutdown": ["0 25 * * *"]},
        "exceptions": [{"from": "2026-12-24", "state": "Up"}, {"date": "2026-12-32", "state": "Up"}],
        "selector": {},
        "downReplicas": "120%",
    }));
    let paths: Vec<&str> = found.iter().filter_map(|problem| problem.split(": ").next()).collect();
    for path in [
        "spec.timeZone",
        "spec.cron.shutdown[0]",
        "spec.exceptions[0]",
        "spec.selector",
        "spec.downReplicas",
    ] {
        assert!(paths.contains(&path), "{path}: {found:#?}");
    }
}

#[test]
fn nulls_are_absent_fields() {
    let spec =
        spec(json!({"timeZone": "UTC", "cron": null, "uptime": ["always"], "suspend": null, "argo": {"pause": null}}));
    assert!(spec.cron.is_none() && !spec.suspend && spec.argo.unwrap().pause);
    let definition = serde_json::to_string(&definition()).unwrap();
    assert!(!definition.contains("nullable"));
}

#[test]
fn calendar_without_its_text_is_named_and_unknown() {
    let spec = spec(json!({
        "timeZone": "UTC",
        "calendars": [{"configMap": {"name": "holidays", "key": "br.ics"}, "state": "Down"}],
    }));
    let at = "2026-04-21T10:00:00Z".parse().unwrap();
    let key = ConfigMapKey {
        name: "holidays".to_owned(),
        key: "br.ics".to_owned(),
    };
    let without = validate(&spec).unwrap();
    assert_eq!(without.missing_calendars, std::slice::from_ref(&key));
    assert_eq!(without.timeline.state_at(at).state, State::Unknown);

    let text = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20260421\nEND:VEVENT\nEND:VCALENDAR\n";
    let with = validate_with(&spec, &CalendarTexts::from([(key.clone(), Arc::from(text))])).unwrap();
    assert_eq!(with.missing_calendars, []);
    assert_eq!(with.timeline.state_at(at).state, State::Down);

    let broken = validate_with(&spec, &CalendarTexts::from([(key, Arc::from("BEGIN:VCALENDAR\n"))])).unwrap_err();
    assert_eq!(broken[0].path, "spec.calendars[0]");
}

#[test]
fn names_are_names_of_objects_and_label_values() {
    for name in ["dev", "dev-weekday", "a.b", "0", &"a".repeat(63)] {
        assert_eq!(validate_name(name), Ok(()), "{name}");
    }
    for name in ["", "Dev", "a_b", "-a", "a-", "a b", &"a".repeat(64)] {
        assert!(validate_name(name).is_err(), "{name}");
    }
}

#[test]
fn structure_is_checked_with_the_api_servers_words() {
    for (value, expected) in [
        (
            json!({"uptimes": []}),
            "spec.uptimes: unknown field \"spec.uptimes\"; did you mean `uptime`?",
        ),
        (
            json!({"suspend": "true"}),
            "spec.suspend: Invalid value: \"string\": spec.suspend in body must be of type boolean: \"string\"",
        ),
        (
            json!({"uptime": []}),
            "spec.uptime: Invalid value: 0: spec.uptime in body should have at least 1 items",
        ),
        (
            json!({"startup": {"maxConcurrent": 0}}),
            "spec.startup.maxConcurrent: Invalid value: 0: spec.startup.maxConcurrent in body should be greater than or equal to 1",
        ),
        (
            json!({"hpa": {"mode": "None"}}),
            "spec.hpa.mode: Unsupported value: \"None\": supported values: \"Keep\", \"MinZero\", \"DeleteRestore\", \"DeleteOnly\"",
        ),
        (
            json!({"calendars": [{"state": "Up"}]}),
            "spec.calendars[0].configMap: Required value",
        ),
    ] {
        assert_eq!(problems(value.clone()), [expected], "{value}");
    }
}

/// Each field as `spec.uptime[] string`: what it is called and what it holds.
fn fields(path: &str, schema: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        fields(&path, inner, found);
    }
    if schema["items"].is_object() {
        fields(&format!("{path}[]"), &schema["items"], found);
    } else if schema["properties"].is_null() {
        let kind = schema["type"].as_str().unwrap_or("integer or string");
        found.insert(format!("{path} {kind}"));
    }
}

/// What clusters hold was written with one of these: a field is added at the end of the file, and none ever goes.
#[test]
fn rule_s13_fields_of_the_resource_and_keys_of_the_record_are_only_added() {
    const RELEASED: &str = include_str!("fields.txt");
    let definition = serde_json::to_value(definition()).unwrap();
    let mut found = std::collections::BTreeSet::new();
    for part in ["spec", "status"] {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part];
        fields(part, schema, &mut found);
    }
    for key in crate::annotations::KEYS {
        found.insert(format!("metadata {}", key.key));
    }
    let released: std::collections::BTreeSet<String> = RELEASED.lines().map(str::to_owned).collect();
    let gone: Vec<_> = released.difference(&found).collect();
    assert!(
        gone.is_empty(),
        "an older version writes or reads what this one does not know: {gone:?}"
    );
    let new: Vec<_> = found.difference(&released).cloned().collect();
    assert!(new.is_empty(), "add to shared/src/api/fields.txt:\n{}", new.join("\n"));
}
