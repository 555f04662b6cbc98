//! Reads what settings are made of: environment and file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use shared::settings::{DEFAULT_NAMESPACE, OPTIONS, Purpose, Settings, SettingsError, Sources, resolve};

use crate::flags::{FILE_VARIABLE, Options};

/// Where the kubelet writes the namespace of a pod's service account.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Settings that could not be made; each mistake has a line.
#[derive(Debug)]
pub struct WrongSettings(Vec<String>);

impl WrongSettings {
    /// One mistake.
    pub fn one(message: String) -> Self {
        Self(vec![message])
    }

    /// Tells every mistake on standard error.
    pub fn tell(&self) {
        let mut out = std::io::stderr().lock();
        for line in &self.0 {
            // Nothing is left to do if standard error is gone.
            let _ = writeln!(out, "error: {line}");
        }
    }
}

impl From<Vec<SettingsError>> for WrongSettings {
    fn from(errors: Vec<SettingsError>) -> Self {
        Self(errors.iter().map(ToString::to_string).collect())
    }
}

/// Flags, environment and file, checked.
///
/// # Errors
/// Everything that is wrong.
pub fn settings<S>(purpose: Purpose, options: &Options<S>) -> Result<Settings, WrongSettings> {
    settings_of(purpose, options.given.clone(), options.file.clone())
}

/// The same for flags that were read otherwise.
///
/// # Errors
/// Everything that is wrong.
pub fn settings_of(
    purpose: Purpose,
    flags: BTreeMap<String, String>,
    file: Option<String>,
) -> Result<Settings, WrongSettings> {
    let environment: BTreeMap<String, String> = OPTIONS
        .iter()
        .filter_map(|row| {
            // Bytes that are no text cannot be a legal value of anything: they are told as such below.
            let value = std::env::var_os(row.variable)?;
            Some((row.variable.to_owned(), value.to_string_lossy().into_owned()))
        })
        .collect();
    let path = file
        .map(|path| (path, format!("--{}", "settings")))
        .or_else(|| {
            std::env::var(FILE_VARIABLE)
                .ok()
                .map(|path| (path, FILE_VARIABLE.to_owned()))
        })
        .filter(|(path, _)| !path.trim().is_empty());
    let file = match path {
        None => None,
        Some((path, origin)) => match std::fs::read_to_string(&path) {
            Ok(text) => Some((path, text)),
            Err(error) => {
                return Err(WrongSettings(vec![format!(
                    "failed to read the settings file {path} (from {origin}): {error}; write another path, or remove the setting"
                )]));
            }
        },
    };
    Ok(resolve(
        purpose,
        &Sources {
            flags,
            environment,
            file,
        },
    )?)
}

/// Whether K8s-OffHours' environment asks for one pass.
pub fn environment_asks_for_one_pass() -> bool {
    ["ACTION", "SCHEDULE_NAME"]
        .iter()
        .any(|variable| std::env::var_os(variable).is_some())
}

/// The namespace of the product itself.
///
/// # Errors
/// If the file of the pod's namespace is there and cannot be read.
pub fn own_namespace(settings: &Settings) -> anyhow::Result<String> {
    if let Some(namespace) = &settings.cluster.own_namespace {
        return Ok(namespace.clone());
    }
    let path = Path::new(POD_NAMESPACE_FILE);
    if !path.exists() {
        return Ok(DEFAULT_NAMESPACE.to_owned());
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("failed to read {POD_NAMESPACE_FILE}; or set POD_NAMESPACE"))?;
    Ok(text.trim().to_owned())
}
