//! What a migration comes to: schedules, labels and annotations, and what cannot be carried over.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};
use shared::api::{GROUP, OffHoursScheduleSpec, VERSION, validate, validate_name};
use shared::kinds::Kinds;

/// A schedule to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: OffHoursScheduleSpec,
}

impl Planned {
    /// The whole object.
    pub fn document(&self) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "OffHoursSchedule",
            "metadata": {"name": self.name},
            "spec": self.spec,
        })
    }
}

/// Where labels and annotations go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A namespace.
    Namespace(String),
    /// A workload: group, kind, namespace, name.
    Workload(String, String, String, String),
}

/// Keys to set on one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Everything.
#[derive(Debug, Default)]
pub struct Migration {
    /// What was found, for people.
    pub found: Vec<String>,
    /// Schedules to create.
    pub schedules: Vec<Planned>,
    /// Keys to set.
    pub keys: BTreeMap<Place, Keys>,
    /// What is not the same afterwards.
    pub differences: Vec<String>,
    /// What is worth knowing and loses nothing.
    pub notes: Vec<String>,
    /// Commands that stop the product that is replaced.
    pub stop: Vec<String>,
    /// Controllers of that product that run.
    pub running: Vec<String>,
}

impl Migration {
    /// Notes a difference, once.
    pub fn differs(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.differences.contains(&text) {
            self.differences.push(text);
        }
    }

    /// Notes something, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// A label to set.
    pub fn label(&mut self, place: Place, key: &str, value: &str) {
        let keys = self.keys.entry(place).or_default();
        keys.labels.insert(key.to_owned(), value.to_owned());
    }

    /// An annotation to set.
    pub fn annotate(&mut self, place: Place, key: &str, value: &str) {
        let keys = self.keys.entry(place).or_default();
        keys.annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Adds a schedule under `wanted`, or under the name of one that is equal; the name that it has. `None`: it cannot be
    /// written, which is noted for `origin`.
    pub fn schedule(&mut self, wanted: &str, spec: &Value, origin: &str) -> Option<String> {
        let spec: OffHoursScheduleSpec = match serde_json::from_value(spec.clone()) {
            Ok(spec) => spec,
            Err(error) => {
                self.differs(format!("{origin}: no schedule can be made of it: {error}"));
                return None;
            }
        };
        if let Err(problems) = validate(&spec) {
            let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
            self.differs(format!("{origin}: no schedule can be made of it: {}", told.join("; ")));
            return None;
        }
        if let Some(equal) = self.schedules.iter().find(|planned| planned.spec == spec) {
            return Some(equal.name.clone());
        }
        let mut name = fitting(wanted);
        let mut number = 2;
        while self.schedules.iter().any(|planned| planned.name == name) {
            name = format!("{}-{number}", fitting(wanted).chars().take(58).collect::<String>());
            number += 1;
        }
        if let Err(problem) = validate_name(&name) {
            self.differs(format!("{origin}: {problem}"));
            return None;
        }
        self.schedules.push(Planned {
            name: name.clone(),
            spec,
        });
        Some(name)
    }
}

/// A name that the schedule may have: what is not allowed becomes `-`, at most 63 characters.
fn fitting(wanted: &str) -> String {
    let form: String = wanted
        .to_ascii_lowercase()
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || letter == '.' {
                letter
            } else {
                '-'
            }
        })
        .take(63)
        .collect();
    form.trim_matches(['-', '.']).to_owned()
}

/// The documented form of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer<'m> {
    found: &'m [String],
    schedules: Vec<Value>,
    keys: Vec<KeysAnswer<'m>>,
    differences: &'m [String],
    notes: &'m [String],
    stop: &'m [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<&'m Applied>,
}

#[derive(Debug, Serialize)]
struct KeysAnswer<'m> {
    kind: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'m str>,
    name: &'m str,
    labels: &'m BTreeMap<String, String>,
    annotations: &'m BTreeMap<String, String>,
    commands: Vec<String>,
}

/// What `--apply` did.
#[derive(Debug, Default, Serialize)]
pub struct Applied {
    /// Objects written.
    pub written: Vec<String>,
    /// Objects that were as they should be.
    pub unchanged: Vec<String>,
    /// Objects that could not be written, and why.
    pub failed: Vec<String>,
}

/// The answer for programs.
pub fn answer<'m>(migration: &'m Migration, kinds: &Kinds, applied: Option<&'m Applied>) -> Answer<'m> {
    let keys = migration.keys.iter().map(|(place, keys)| {
        let (kind, namespace, name) = match place {
            Place::Namespace(name) => ("Namespace", None, name.as_str()),
            Place::Workload(_, kind, namespace, name) => (kind.as_str(), Some(namespace.as_str()), name.as_str()),
        };
        KeysAnswer {
            kind,
            namespace,
            name,
            labels: &keys.labels,
            annotations: &keys.annotations,
            commands: commands(place, keys, kinds),
        }
    });
    Answer {
        found: &migration.found,
        schedules: migration.schedules.iter().map(Planned::document).collect(),
        keys: keys.collect(),
        differences: &migration.differences,
        notes: &migration.notes,
        stop: &migration.stop,
        applied,
    }
}

/// The `kubectl` commands that set keys.
fn commands(place: &Place, keys: &Keys, kinds: &Kinds) -> Vec<String> {
    let target = match place {
        Place::Namespace(name) => format!("namespace {name}"),
        Place::Workload(group, kind, namespace, name) => {
            let kind = kinds
                .by_kind(group, kind)
                .map_or_else(|| kind.to_ascii_lowercase(), |row| row.kubectl_name());
            format!("{kind} {name} -n {namespace}")
        }
    };
    [("label", &keys.labels), ("annotate", &keys.annotations)]
        .into_iter()
        .filter(|(_, map)| !map.is_empty())
        .map(|(verb, map)| {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}={}", quoted(value)))
                .collect();
            format!("kubectl {verb} --overwrite {target} {}", pairs.join(" "))
        })
        .collect()
}

/// As a shell takes it.
fn quoted(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/%@+".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// The answer for people, which is also YAML that `kubectl apply -f -` takes: all but the schedules is in comments.
///
/// # Errors
/// If a schedule cannot be written.
pub fn text(migration: &Migration, kinds: &Kinds, applied: Option<&Applied>) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut section = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(text, "# {title}");
            for line in lines {
                let _ = writeln!(text, "#   {line}");
            }
            text.push_str("#\n");
        }
    };
    section("Found:", &migration.found);
    section("Not carried over, or not quite the same:", &migration.differences);
    section("Good to know:", &migration.notes);
    section("First stop what is replaced:", &migration.stop);
    let keys: Vec<String> = migration
        .keys
        .iter()
        .flat_map(|(place, keys)| commands(place, keys, kinds))
        .collect();
    section("Then create the schedules below, and set:", &keys);
    for planned in &migration.schedules {
        let yaml = serde_saphyr::to_string(&planned.document()).context("failed to write YAML")?;
        let _ = write!(text, "---\n{}\n", yaml.trim_end());
    }
    if let Some(applied) = applied {
        for (title, lines) in [
            ("Written:", &applied.written),
            ("As it should be already:", &applied.unchanged),
            ("Failed:", &applied.failed),
        ] {
            if !lines.is_empty() {
                let _ = writeln!(text, "# {title}");
                for line in lines {
                    let _ = writeln!(text, "#   {line}");
                }
            }
        }
    } else if !migration.schedules.is_empty() || !migration.keys.is_empty() {
        text.push_str("# Nothing was changed; --apply does it.\n");
    }
    Ok(text)
}
