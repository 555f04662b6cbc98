//! The settings file: options by their camel case names, schedules, and kinds of the user's own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::options::OPTIONS;
use super::{ScheduleSetting, SettingsError};
use crate::api::{self, OffHoursScheduleSpec};
use crate::kinds::{ByDefault, Form, Kind, Knob, Readiness};
use crate::policy::Scope;
use crate::schedule::closest_word;

/// What a settings file says.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Options: file key to text.
    pub options: BTreeMap<String, String>,
    pub schedules: Vec<ScheduleSetting>,
    pub kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleForm {
    name: String,
    #[serde(default)]
    scope: ScopeForm,
    spec: OffHoursScheduleSpec,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
enum ScopeForm {
    #[default]
    Any,
    Namespace,
    Workload,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct KindForm {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
    plural: String,
    knobs: Vec<KnobForm>,
    #[serde(default)]
    by_default: bool,
    /// `status.<this>` has reached the number of replicas.
    #[serde(default)]
    ready_replicas: Option<String>,
    #[serde(default)]
    scale: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct KnobForm {
    #[serde(default)]
    name: Option<String>,
    path: String,
    #[serde(default)]
    down: Option<Value>,
    #[serde(default)]
    text: bool,
}

/// Reads the text of a settings file. `path` is for messages.
pub(super) fn parse(path: &str, text: &str) -> Result<File, Vec<SettingsError>> {
    let wrong = |place: String, problem: String| SettingsError::FileWrong {
        path: path.to_owned(),
        place,
        problem,
    };
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| vec![wrong("YAML".to_owned(), error.to_string())])?;
    let Value::Object(fields) = value else {
        // A file of comments only is as good as an empty one.
        return if value.is_null() {
            Ok(File::default())
        } else {
            Err(vec![wrong(
                "top level".to_owned(),
                "expected keys such as `schedules:`".to_owned(),
            )])
        };
    };
    let mut file = File::default();
    let mut errors = Vec::new();
    for (key, value) in fields {
        match key.as_str() {
            "schedules" => each(&value, "schedules", &mut errors, path, |place, value| {
                file.schedules.push(schedule(place, value)?);
                Ok(())
            }),
            "kinds" => each(&value, "kinds", &mut errors, path, |place, value| {
                file.kinds.push(kind(place, value)?);
                Ok(())
            }),
            _ => match option_text(&key, &value) {
                Ok(Some(text)) => {
                    file.options.insert(key, text);
                }
                Ok(None) => {}
                Err(problem) => errors.push(wrong(key, problem)),
            },
        }
    }
    let mut names: Vec<&str> = file.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        if let [first, second] = pair
            && first == second
        {
            errors.push(wrong(
                "schedules".to_owned(),
                format!("two schedules are named {first:?}; rename one"),
            ));
        }
    }
    if errors.is_empty() { Ok(file) } else { Err(errors) }
}

fn each(
    value: &Value,
    name: &str,
    errors: &mut Vec<SettingsError>,
    path: &str,
    mut read: impl FnMut(&str, &Value) -> Result<(), Vec<(String, String)>>,
) {
    let Some(items) = value.as_array() else {
        if !value.is_null() {
            errors.push(SettingsError::FileWrong {
                path: path.to_owned(),
                place: name.to_owned(),
                problem: "expected a list".to_owned(),
            });
        }
        return;
    };
    for (index, item) in items.iter().enumerate() {
        let place = format!("{name}[{index}]");
        if let Err(problems) = read(&place, item) {
            errors.extend(problems.into_iter().map(|(place, problem)| SettingsError::FileWrong {
                path: path.to_owned(),
                place,
                problem,
            }));
        }
    }
}

/// The text of an option's value. `None`: nothing is written there.
fn option_text(key: &str, value: &Value) -> Result<Option<String>, String> {
    if !OPTIONS.iter().any(|row| row.file_key() == key) {
        let known: Vec<String> = OPTIONS
            .iter()
            .map(super::Row::file_key)
            .chain(["schedules".to_owned(), "kinds".to_owned()])
            .collect();
        return Err(match closest_word(key, known.iter().map(String::as_str)) {
            Some(nearest) => format!("unknown key; did you mean `{nearest}`?"),
            None => "unknown key".to_owned(),
        });
    }
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => items
            .iter()
            .map(scalar)
            .collect::<Option<Vec<_>>>()
            .map(|items| Some(items.join(if key.starts_with("schedule") { ";" } else { "," })))
            .ok_or_else(|| "expected a list of words".to_owned()),
        other => scalar(other)
            .map(Some)
            .ok_or_else(|| "expected a single value".to_owned()),
    }
}

/// Reads `T`, and tells keys that it does not know.
fn read<T: for<'de> Deserialize<'de>>(place: &str, value: &Value) -> Result<T, Vec<(String, String)>> {
    let mut unknown = Vec::new();
    let read: Result<T, _> = serde_ignored::deserialize(value, |path| unknown.push(path.to_string()));
    let read = read.map_err(|error| vec![(place.to_owned(), error.to_string())])?;
    if unknown.is_empty() {
        Ok(read)
    } else {
        Err(unknown
            .into_iter()
            .map(|path| (format!("{place}.{}", path.replace(".?", "")), "unknown key".to_owned()))
            .collect())
    }
}

fn schedule(place: &str, value: &Value) -> Result<ScheduleSetting, Vec<(String, String)>> {
    let form: ScheduleForm = read(place, value)?;
    let mut problems = Vec::new();
    if let Err(problem) = api::validate_name(&form.name) {
        problems.push((format!("{place}.name"), problem.message));
    }
    if let Err(found) = api::validate(&form.spec) {
        problems.extend(
            found
                .into_iter()
                .map(|problem| (format!("{place}.{}", problem.path), problem.message)),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(ScheduleSetting {
        name: form.name,
        scope: match form.scope {
            ScopeForm::Any => Scope::Any,
            ScopeForm::Namespace => Scope::Namespace,
            ScopeForm::Workload => Scope::Workload,
        },
        spec: form.spec,
    })
}

fn kind(place: &str, value: &Value) -> Result<Kind, Vec<(String, String)>> {
    let form: KindForm = read(place, value)?;
    let mut problems = Vec::new();
    let mut problem = |place: String, problem: &str| problems.push((place, problem.to_owned()));
    for (key, text) in [
        ("version", &form.version),
        ("kind", &form.kind),
        ("plural", &form.plural),
    ] {
        if text.is_empty() {
            problem(format!("{place}.{key}"), "must not be empty");
        }
    }
    if form.knobs.is_empty() {
        problem(
            format!("{place}.knobs"),
            "a kind needs at least one knob, such as `{path: /spec/replicas}`",
        );
    }
    let mut knobs: Vec<Knob> = Vec::new();
    for (index, form) in form.knobs.into_iter().enumerate() {
        let place = format!("{place}.knobs[{index}]");
        match knob(form) {
            Err((key, said)) => problem(format!("{place}.{key}"), &said),
            Ok(knob) if knobs.iter().any(|other| other.name == knob.name) => problem(
                format!("{place}.name"),
                "two knobs of one kind have this name; give each a `name` of its own",
            ),
            Ok(knob) => knobs.push(knob),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let built_in = matches!(form.group.as_str(), "" | "apps" | "batch");
    Ok(Kind {
        group: Cow::Owned(form.group),
        version: Cow::Owned(form.version),
        kind: Cow::Owned(form.kind),
        plural: Cow::Owned(form.plural),
        knobs: Cow::Owned(knobs),
        by_default: if form.by_default { ByDefault::Yes } else { ByDefault::No },
        readiness: match form.ready_replicas {
            // One text per row, read once at start: it lives as long as the process anyway.
            Some(field) => Readiness::Replicas(String::leak(field)),
            None => Readiness::None,
        },
        scale: form.scale,
        built_in,
    })
}

fn knob(form: KnobForm) -> Result<Knob, (&'static str, String)> {
    if !form.path.starts_with('/') || form.path.len() < 2 {
        return Err((
            "path",
            format!("{:?} is no JSON pointer such as `/spec/replicas`", form.path),
        ));
    }
    let last = form.path.rsplit('/').next().unwrap_or_default();
    let name = form.name.unwrap_or_else(|| dashed(last));
    let legal = !name.is_empty()
        && name.len() <= 40
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if !legal {
        return Err((
            "name",
            format!("{name:?} cannot be part of an annotation's key; write a `name` of `a-z`, `0-9` and `-`"),
        ));
    }
    let shape = match (form.down, form.text) {
        (None, false) => Form::Count,
        (None, true) => Form::CountText,
        (Some(Value::Bool(down)), false) => Form::Flag(down),
        (Some(Value::String(down)), _) => Form::Text(Cow::Owned(down)),
        (Some(other), _) => {
            return Err((
                "down",
                format!("{other} is neither a boolean nor text; leave `down` out for a number of replicas"),
            ));
        }
    };
    Ok(Knob {
        name: Cow::Owned(name),
        pointer: Cow::Owned(form.path),
        form: shape,
    })
}

/// `maxRunners` -> `max-runners`, `autoscaling.keda.sh~1paused` -> `paused`.
fn dashed(token: &str) -> String {
    let token = token.rsplit("~1").next().unwrap_or(token);
    let mut name = String::with_capacity(token.len() + 4);
    for character in token.chars() {
        if character.is_ascii_uppercase() {
            name.push('-');
            name.push(character.to_ascii_lowercase());
        } else {
            name.push(character);
        }
    }
    name.trim_start_matches('-').to_owned()
}
