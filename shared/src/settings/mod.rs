//! Settings: flags, environment and file, checked together and then never changed.
//!
//! A flag wins over the environment, the environment over the file, the file over the default. Reading the three is left to
//! the binary: here they are only text.

mod file;
mod options;
mod resolve;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

pub use options::{Form, Group, OPTIONS, Row, option};
pub use resolve::resolve;

use crate::api::{
    Argo, CalendarTexts, ConfigMapKey, Cron, Enforcement, EnforcementMode, Hpa, HpaMode, KindFilter,
    OffHoursScheduleSpec,
};
use crate::kinds::{Kind, Kinds};
use crate::policy::{Origin, Schedule, Scope};

/// Namespace of the product where nobody says another.
pub const DEFAULT_NAMESPACE: &str = "offhours-system";

/// What the settings are for: it decides which of them must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The long-running servers.
    Server,
    /// One pass and exit; the command names the action, or leaves it to `ACTION`.
    OneShot(Option<OneShotAction>),
    /// A tool that only reads, or writes what a person asks for.
    Tool,
}

/// What one pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneShotAction {
    /// Put to sleep.
    Shutdown,
    /// Restore.
    Startup,
}

impl OneShotAction {
    /// As in `ACTION`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Startup => "startup",
        }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A flag.
    Flag,
    /// The environment.
    Environment,
    /// The settings file.
    File,
    /// Nobody gave one.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}

/// The texts that settings are made of.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Flags that were given: name without dashes, and text.
    pub flags: BTreeMap<String, String>,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// Path and text of the settings file.
    pub file: Option<(String, String)>,
}

/// Text that must not be seen.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
    /// `[INFO]` lines, as K8s-OffHours wrote them.
    K8sOffHours,
}

/// Requests that cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUncertainty {
    /// They pass, with a warning.
    #[default]
    Allow,
    /// They are refused.
    Deny,
}

/// How to reach the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Path of the kubeconfig.
    pub kubeconfig: Option<String>,
    /// Its context.
    pub context: Option<String>,
    /// The product's own namespace, if it was given.
    pub own_namespace: Option<String>,
    /// Only these namespaces; empty: all.
    pub namespaces: Vec<String>,
}

/// The webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Where it listens; `None`: not at all.
    pub address: Option<SocketAddr>,
    /// The Service in front of it.
    pub service: String,
    /// Name of the two configurations.
    pub configuration: String,
    /// Create the configurations.
    pub install: bool,
    /// Create the Service too, pointing at this machine.
    pub install_service: bool,
    /// What happens to what cannot be judged.
    pub on_uncertainty: OnUncertainty,
    /// Secret of our own authority.
    pub certificate_secret: String,
    /// Somebody else's certificate.
    pub certificate_directory: Option<String>,
    /// Authority of the API server's client certificate.
    pub client_authority: Option<String>,
    /// Serve a cluster from this machine.
    pub dev: bool,
    /// Where the API server reaches this machine then.
    pub dev_host: Option<String>,
}

/// Leader election and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// What we are called in the lease, if it was given.
    pub identity: Option<String>,
    /// The Lease object.
    pub lease_name: String,
    /// See [`OPTIONS`].
    pub lease_duration: Duration,
    /// See [`OPTIONS`].
    pub lease_renew_deadline: Duration,
    /// See [`OPTIONS`].
    pub lease_retry_period: Duration,
    /// See [`OPTIONS`].
    pub lease_call_timeout: Duration,
    /// The longest that one write may take.
    pub write_timeout: Duration,
    /// Writes under way at a time.
    pub write_concurrency: usize,
    /// Writes started in a second; `None`: no limit.
    pub write_rate: Option<u32>,
}

/// Where the bearer token of the Argo CD API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgoToken {
    /// Here.
    Given(Secret),
    /// In this file.
    File(String),
}

/// The Argo CD API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgoApi {
    /// Base URL, without a slash at its end.
    pub url: String,
    /// Bearer token.
    pub token: ArgoToken,
    /// Do not check its certificate.
    pub insecure: bool,
    /// PEM file with authorities of its certificate. `None`: the public ones.
    pub authority_file: Option<String>,
    /// Retries after the first try.
    pub retries: u32,
    /// Wait before the first retry.
    pub retry_base: Duration,
    /// The longest wait.
    pub retry_max: Duration,
}

/// How Applications are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgoDiscovery {
    /// By what they list, tracking id, label and destination.
    pub automatic: bool,
    /// By the list on the namespace.
    pub manual: bool,
}

/// Argo CD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgoSettings {
    /// Whether the schedule of the environment pauses Applications.
    pub enabled: bool,
    /// The HTTP API, where it is to be used.
    pub api: Option<ArgoApi>,
    /// How Applications are found.
    pub discovery: ArgoDiscovery,
    /// An Application with a protected workload is left alone.
    pub strict: bool,
    /// Names of this cluster.
    pub cluster_names: Vec<String>,
}

/// One schedule of the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSetting {
    /// Its name.
    pub name: String,
    /// Which labels bind to it.
    pub scope: Scope,
    /// The same as in a custom resource.
    pub spec: OffHoursScheduleSpec,
}

impl ScheduleSetting {
    /// Ready for decisions. `calendars`: the texts of the calendars that it names.
    pub fn compile(&self, calendars: &CalendarTexts) -> Arc<Schedule> {
        let mut schedule = Schedule::from_spec(&self.name, Origin::Settings, &self.spec, calendars);
        schedule.scope = self.scope;
        Arc::new(schedule)
    }
}

/// One pass.
#[derive(Debug, Clone, PartialEq)]
pub struct OneShot {
    /// What it does.
    pub action: OneShotAction,
    /// For what, as a schedule that is down (shutdown) or up (startup) all the time.
    pub schedule: ScheduleSetting,
    /// Whether `ACTION` said so, as for K8s-OffHours.
    pub from_environment: bool,
}

/// All settings, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How to reach the cluster.
    pub cluster: ClusterSettings,
    /// Form of log lines, if it was given.
    pub log_format: Option<LogFormat>,
    /// Filter of log lines.
    pub log_level: String,
    /// Where probes and metrics are served; `None`: nowhere.
    pub ops_address: Option<SocketAddr>,
    /// How long work in flight may take after SIGTERM.
    pub drain_timeout: Duration,
    /// Our own accounts, if they were given.
    pub own_identities: Vec<String>,
    /// The webhook.
    pub webhook: WebhookSettings,
    /// Leader election and writes.
    pub scheduler: SchedulerSettings,
    /// Argo CD.
    pub argo: ArgoSettings,
    /// Replicas where the record cannot be read.
    pub default_startup_replicas: u32,
    /// Print the plan, change nothing.
    pub dry_run: bool,
    /// The one pass, if it was asked for.
    pub one_shot: Option<OneShot>,
    /// Schedules of file and environment.
    pub schedules: Vec<ScheduleSetting>,
    /// The kinds in use.
    pub kinds: Kinds,
    /// The rows that the user added to the kinds.
    pub added_kinds: Vec<Kind>,
    /// What is legal but probably not meant.
    pub warnings: Vec<String>,
    effective: Vec<Effective>,
}

/// One option and the value in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The flag's name.
    pub flag: &'static str,
    /// Its text; a secret's is hidden.
    pub value: String,
    /// Where it came from.
    pub source: Source,
}

impl Settings {
    /// Every option that has a value, secrets hidden: for the one log line at start.
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// The schedules of the settings, ready for decisions.
    pub fn compile_schedules(&self, calendars: &CalendarTexts) -> Vec<Arc<Schedule>> {
        self.schedules
            .iter()
            .map(|schedule| schedule.compile(calendars))
            .collect()
    }

    /// The calendars that schedules of the settings name.
    pub fn calendars(&self) -> impl Iterator<Item = &ConfigMapKey> {
        self.schedules
            .iter()
            .flat_map(|schedule| &schedule.spec.calendars)
            .map(|source| &source.config_map)
    }
}

/// A setting that is wrong. The message names the setting, its value and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// A value has not the form that it must have.
    #[error("{name} is {value}: allowed is {allowed}")]
    ValueWrong {
        /// The variable, flag or key of the file.
        name: String,
        /// What it is, quoted; hidden if it is secret.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// Something must be said.
    #[error("{name} is missing: {why}")]
    Missing {
        /// Variable and flag.
        name: String,
        /// Why it is needed and what is allowed.
        why: String,
    },
    /// Two settings exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// The file cannot be read as settings.
    #[error("settings file {path}: {place}: {problem}")]
    FileWrong {
        /// Path of the file.
        path: String,
        /// Where in it.
        place: String,
        /// What is wrong and what is allowed.
        problem: String,
    },
}

#[cfg(test)]
#[path = "../tests/settings.rs"]
mod tests;
