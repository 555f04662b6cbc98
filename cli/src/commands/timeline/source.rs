//! Where a schedule is read from.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::Value;
use shared::api::{
    CalendarTexts, ConfigMapKey, GROUP, OffHoursSchedule, Validated, read_document, validate_name, validate_with,
};
use shared::schedule::{Problem, Warning};
use shared::settings::{Purpose, Settings};

use crate::commands::tool;
use crate::flags::{OfTools, Options};
use crate::sources::{self, WrongSettings};

/// A schedule that can be shown.
pub struct Loaded {
    pub name: String,
    pub validated: Validated,
}

/// Why there is nothing to show.
pub enum Refused {
    /// What was given is wrong.
    Input(Vec<Problem>),
    /// The settings cannot be used.
    Settings(WrongSettings),
    /// It could not be had.
    Failed(anyhow::Error),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Input(vec![problem])
    }
}

/// Reads a schedule from a file, together with the ConfigMaps of its calendars, should they be in the same file.
pub fn from_file(path: &Path, wanted: Option<&str>) -> Result<Loaded, Refused> {
    let shown = path.display().to_string();
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Problem::new(shown.clone(), format!("failed to read the file: {error}")))?;
    from_text(&text, &shown, wanted)
}

/// The same from its text; `shown` names it in messages.
pub fn from_text(text: &str, shown: &str, wanted: Option<&str>) -> Result<Loaded, Refused> {
    let documents = tool::documents(text).map_err(|error| Problem::new(shown, format!("this is not YAML: {error}")))?;
    let mut texts = CalendarTexts::new();
    let mut schedules = Vec::new();
    for document in documents {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
        let group = document
            .get("apiVersion")
            .and_then(Value::as_str)
            .and_then(|version| version.split_once('/'));
        match (kind, group) {
            ("OffHoursSchedule", Some((GROUP, _))) => schedules.push(document),
            ("OffHoursSchedule", _) => {
                let message = format!("an OffHoursSchedule has `apiVersion: {GROUP}/{}`", shared::api::VERSION);
                return Err(Problem::new("apiVersion", message).into());
            }
            ("ConfigMap", None) => {
                if let Ok(map) = serde_json::from_value::<ConfigMap>(document) {
                    add_texts(&mut texts, map);
                }
            }
            _ => {}
        }
    }
    let name_of = |document: &Value| {
        document
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let document = choose(schedules, wanted, shown, name_of)?;
    load(document, &texts)
}

fn add_texts(texts: &mut CalendarTexts, map: ConfigMap) {
    let name = map.name_any();
    for (key, text) in map.data.unwrap_or_default() {
        texts.insert(
            ConfigMapKey {
                name: name.clone(),
                key,
            },
            Arc::from(text),
        );
    }
}

/// The schedule that is meant.
fn choose<T>(
    schedules: Vec<T>,
    wanted: Option<&str>,
    shown: &str,
    name_of: impl Fn(&T) -> String,
) -> Result<T, Refused> {
    let names = || schedules.iter().map(&name_of).collect::<Vec<_>>().join(", ");
    let count = schedules.len();
    match wanted {
        _ if count == 0 => Err(Problem::new(shown, "there is no OffHoursSchedule here").into()),
        None if count > 1 => {
            let message = format!("there are {count} schedules ({}); choose one", names());
            Err(Problem::new("--schedule", message).into())
        }
        Some(name) if !schedules.iter().any(|schedule| name_of(schedule) == name) => {
            let message = format!("there is no schedule {name:?} here; there is {}", names());
            Err(Problem::new("--schedule", message).into())
        }
        _ => {
            let chosen = schedules
                .into_iter()
                .find(|schedule| wanted.is_none_or(|name| name_of(schedule) == name));
            chosen.ok_or_else(|| Problem::new(shown, "there is no OffHoursSchedule here").into())
        }
    }
}

/// Checks a document as the API server and the webhook would, and reads it.
fn load(document: Value, texts: &CalendarTexts) -> Result<Loaded, Refused> {
    let schedule = read_document(document).map_err(Refused::Input)?;
    let name = schedule.name_any();
    let mut problems: Vec<Problem> = validate_name(&name).err().into_iter().collect();
    match validate_with(&schedule.spec, texts) {
        Ok(mut validated) if problems.is_empty() => {
            for missing in &validated.missing_calendars {
                let message = format!(
                    "ConfigMap {:?} with key {:?} is not in the same place as the schedule, so the state is Unknown where no exception holds",
                    missing.name, missing.key
                );
                validated.warnings.push(Warning {
                    path: "spec.calendars".to_owned(),
                    message,
                });
            }
            Ok(Loaded { name, validated })
        }
        Ok(_) => Err(Refused::Input(problems)),
        Err(more) => {
            problems.extend(more);
            Err(Refused::Input(problems))
        }
    }
}

/// Reads a schedule from the cluster, with its calendars from the namespace of the product.
pub fn from_cluster(wanted: Option<&str>, options: &Options<OfTools>) -> Result<Loaded, Refused> {
    let settings = sources::settings(Purpose::Tool, options).map_err(Refused::Settings)?;
    let fetched = tool::runtime().and_then(|runtime| runtime.block_on(fetch(&settings)));
    let (schedules, maps) = fetched.map_err(Refused::Failed)?;
    let mut texts = CalendarTexts::new();
    for map in maps {
        add_texts(&mut texts, map);
    }
    let schedule = choose(schedules, wanted, "the cluster", ResourceExt::name_any)?;
    let mut document = serde_json::to_value(schedule).map_err(|error| Refused::Failed(anyhow::Error::new(error)))?;
    if let Some(object) = document.as_object_mut() {
        object.remove("status");
    }
    load(document, &texts)
}

async fn fetch(settings: &Settings) -> anyhow::Result<(Vec<OffHoursSchedule>, Vec<ConfigMap>)> {
    let namespace = &sources::own_namespace(settings)?;
    let clients = tool::connect(settings)
        .await
        .context("there is no file (-f), so the cluster is asked")?;
    tool::reach(&clients).await?;
    let client = clients.calls;
    let schedules = Api::<OffHoursSchedule>::all(client.clone())
        .list(&ListParams::default())
        .await
        .context("failed to list OffHoursSchedules; is the custom resource definition installed (`offhours crd`)?")?
        .items;
    if schedules.iter().all(|schedule| schedule.spec.calendars.is_empty()) {
        return Ok((schedules, Vec::new()));
    }
    let mut maps = Vec::new();
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    for source in schedules.iter().flat_map(|schedule| &schedule.spec.calendars) {
        let name = &source.config_map.name;
        let map = api
            .get_opt(name)
            .await
            .with_context(|| format!("failed to read ConfigMap {namespace}/{name}"))?;
        maps.extend(map);
    }
    Ok((schedules, maps))
}
