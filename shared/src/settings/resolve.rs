//! From texts to settings. Every mistake is found in one go, so that nobody has to start five times to mend five of them.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use super::{
    Argo, ArgoApi, ArgoDiscovery, ArgoSettings, ArgoToken, ClusterSettings, Cron, Effective, Enforcement,
    EnforcementMode, Form, Hpa, HpaMode, KindFilter, Kinds, LogFormat, OPTIONS, OffHoursScheduleSpec, OnUncertainty,
    OneShot, OneShotAction, Purpose, Row, ScheduleSetting, SchedulerSettings, Scope, Secret, Settings, SettingsError,
    Source, Sources, WebhookSettings, file, options,
};
use crate::annotations;
use crate::api;

/// Makes settings of what was given.
///
/// # Errors
/// Everything that is wrong.
pub fn resolve(purpose: Purpose, sources: &Sources) -> Result<Settings, Vec<SettingsError>> {
    let file = match &sources.file {
        None => file::File::default(),
        Some((path, text)) => file::parse(path, text)?,
    };
    let given = Given {
        values: OPTIONS.iter().filter_map(|row| value(row, sources, &file)).collect(),
        errors: RefCell::default(),
    };
    given.check();
    let settings = given.settings(purpose, file);
    let errors = given.errors.into_inner();
    if errors.is_empty() { Ok(settings) } else { Err(errors) }
}

struct Value {
    row: &'static Row,
    text: String,
    source: Source,
}

impl Value {
    /// The name under which it was given.
    fn name(&self) -> String {
        match self.source {
            Source::Flag => format!("--{}", self.row.flag),
            Source::Environment | Source::Default => self.row.variable.to_owned(),
            Source::File => self.row.file_key(),
        }
    }

    fn shown(&self) -> String {
        if self.row.is_secret() {
            "(secret)".to_owned()
        } else {
            format!("{:?}", self.text)
        }
    }
}

fn value(row: &'static Row, sources: &Sources, file: &file::File) -> Option<Value> {
    let found = |text: &String, source| Value {
        row,
        text: text.clone(),
        source,
    };
    if let Some(text) = sources.flags.get(row.flag) {
        return Some(found(text, Source::Flag));
    }
    // A chart that renders an empty value means "not set" where any text is allowed; an empty boolean or number is a mistake.
    let may_be_empty = !matches!(row.form, Form::Boolean | Form::Whole { .. } | Form::Seconds);
    if let Some(text) = sources.environment.get(row.variable)
        && !(text.trim().is_empty() && may_be_empty)
    {
        return Some(found(text, Source::Environment));
    }
    if let Some(text) = file.options.get(&row.file_key()) {
        return Some(found(text, Source::File));
    }
    row.default.map(|text| found(&text.to_owned(), Source::Default))
}

/// What was given. Getters answer with a stand-in where a value is wrong: the mistake has been noted, and nothing is made of
/// the stand-in.
struct Given {
    values: Vec<Value>,
    errors: RefCell<Vec<SettingsError>>,
}

impl Given {
    fn check(&self) {
        for value in &self.values {
            if !value.row.form.accepts(&value.text) {
                self.wrong(value, value.row.form.allowed());
            }
        }
    }

    fn wrong(&self, value: &Value, allowed: String) {
        self.note(SettingsError::ValueWrong {
            name: value.name(),
            value: value.shown(),
            allowed,
        });
    }

    fn note(&self, error: SettingsError) {
        self.errors.borrow_mut().push(error);
    }

    fn missing(&self, flag: &str, why: impl Into<String>) {
        let row = options::option(flag);
        self.note(SettingsError::Missing {
            name: row.map_or_else(
                || flag.to_owned(),
                |row| format!("{} (or --{})", row.variable, row.flag),
            ),
            why: why.into(),
        });
    }

    fn value(&self, flag: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.row.flag == flag)
    }

    fn text(&self, flag: &str) -> Option<String> {
        self.value(flag).map(|value| value.text.trim().to_owned())
    }

    /// The text of an option that has a default.
    fn set(&self, flag: &str) -> String {
        self.text(flag).unwrap_or_default()
    }

    fn boolean(&self, flag: &str) -> bool {
        self.value(flag).is_some_and(|value| value.text == "true")
    }

    fn whole(&self, flag: &str) -> u64 {
        self.value(flag)
            .and_then(|value| annotations::whole(&value.text))
            .unwrap_or_default()
    }

    fn seconds(&self, flag: &str) -> Duration {
        self.value(flag)
            .and_then(|value| options::seconds(&value.text))
            .unwrap_or_default()
    }

    fn duration(&self, flag: &str) -> Duration {
        self.value(flag)
            .and_then(|value| options::duration(&value.text))
            .unwrap_or_default()
    }

    fn list(&self, flag: &str) -> Vec<String> {
        self.value(flag)
            .map(|value| options::list(&value.text).map(str::to_owned).collect())
            .unwrap_or_default()
    }

    fn address(&self, flag: &str) -> Option<SocketAddr> {
        self.value(flag).and_then(|value| value.text.parse().ok())
    }

    fn crons(&self, flag: &str) -> Vec<String> {
        self.value(flag)
            .map(|value| {
                value
                    .text
                    .split(';')
                    .map(str::trim)
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect()
            })
            .unwrap_or_default()
    }

    fn settings(&self, purpose: Purpose, file: file::File) -> Settings {
        let mut warnings = Vec::new();
        let one_shot = match purpose {
            Purpose::OneShot(action) => self.one_shot(action, &mut warnings),
            Purpose::Server | Purpose::Tool => None,
        };
        let argo = self.argo(purpose);
        let mut schedules = file.schedules;
        if purpose == Purpose::Server
            && let Some(schedule) = self.server_schedule(&argo, &mut warnings)
        {
            if schedules.iter().any(|other| other.name == schedule.name) {
                self.note(SettingsError::Conflict(format!(
                    "SCHEDULE_NAME {:?} is also a schedule of the settings file; remove one of them",
                    schedule.name
                )));
            }
            schedules.push(schedule);
        }
        for schedule in &schedules {
            if let Ok(validated) = api::validate(&schedule.spec) {
                warnings.extend(
                    validated
                        .warnings
                        .iter()
                        .map(|warning| format!("schedule {:?}: {warning}", schedule.name)),
                );
            }
        }
        Settings {
            cluster: ClusterSettings {
                kubeconfig: self.text("kubeconfig"),
                context: self.text("context"),
                own_namespace: self.text("own-namespace"),
                namespaces: self.list("namespaces"),
            },
            log_format: self.text("log-format").map(|text| match text.as_str() {
                "json" => LogFormat::Json,
                "k8s-offhours" => LogFormat::K8sOffHours,
                _ => LogFormat::Text,
            }),
            log_level: if self.boolean("verbose") {
                "debug".to_owned()
            } else {
                self.set("log-level")
            },
            ops_address: self.address("ops-address"),
            drain_timeout: self.duration("drain-timeout"),
            own_identities: self.list("own-identities"),
            webhook: self.webhook(),
            scheduler: self.scheduler(),
            argo,
            default_startup_replicas: u32::try_from(self.whole("default-startup-replicas")).unwrap_or(1),
            dry_run: self.boolean("dry-run"),
            one_shot,
            schedules,
            kinds: Kinds::with(file.kinds.iter().cloned()),
            added_kinds: file.kinds,
            warnings,
            effective: self
                .values
                .iter()
                .map(|value| Effective {
                    flag: value.row.flag,
                    value: if value.row.is_secret() {
                        "(secret)".to_owned()
                    } else {
                        value.text.clone()
                    },
                    source: value.source,
                })
                .collect(),
        }
    }

    fn webhook(&self) -> WebhookSettings {
        WebhookSettings {
            address: self.address("webhook-address"),
            service: self.set("webhook-service"),
            configuration: self.set("webhook-name"),
            install: self.boolean("webhook-install"),
            install_service: self.boolean("webhook-install-service"),
            on_uncertainty: if self.set("on-uncertainty") == "deny" {
                OnUncertainty::Deny
            } else {
                OnUncertainty::Allow
            },
            certificate_secret: self.set("certificate-secret"),
            certificate_directory: self.text("certificate-directory"),
            client_authority: self.text("webhook-client-authority"),
            dev: self.boolean("dev"),
            dev_host: self.text("dev-host"),
        }
    }

    fn scheduler(&self) -> SchedulerSettings {
        SchedulerSettings {
            identity: self.text("identity"),
            lease_name: self.set("lease-name"),
            lease_duration: self.duration("lease-duration"),
            lease_renew_deadline: self.duration("lease-renew-deadline"),
            lease_retry_period: self.duration("lease-retry-period"),
            lease_call_timeout: self.duration("lease-call-timeout"),
            write_timeout: self.duration("write-timeout"),
            write_concurrency: usize::try_from(self.whole("write-concurrency")).unwrap_or(usize::MAX),
            write_rate: u32::try_from(self.whole("write-rate")).ok().filter(|rate| *rate > 0),
        }
    }

    fn argo(&self, purpose: Purpose) -> ArgoSettings {
        let enabled = self.boolean("argo-enabled");
        // K8s-OffHours knows Argo CD only by its HTTP API, and its users have always been asked for both. The commands write custom
        // resources where neither is given, as servers do; one without the other is a mistake.
        let asks_api = ["argo-server", "argo-token", "argo-token-file"]
            .iter()
            .any(|flag| self.value(flag).is_some());
        if enabled && (purpose == Purpose::OneShot(None) || matches!(purpose, Purpose::OneShot(_)) && asks_api) {
            if self.value("argo-server").is_none() {
                self.missing(
                    "argo-server",
                    "ARGO_ENABLED is true; write host:port of the Argo CD API, or a full URL",
                );
            }
            if self.value("argo-token").is_none() && self.value("argo-token-file").is_none() {
                self.missing(
                    "argo-token",
                    "ARGO_ENABLED is true; write a bearer token there, or the path of a file with it in ARGO_TOKEN_FILE",
                );
            }
        }
        let base = self.seconds("argo-api-retry-base-seconds");
        let most = self.seconds("argo-api-retry-max-seconds");
        ArgoSettings {
            enabled,
            api: self.argo_api(base, most),
            discovery: ArgoDiscovery {
                automatic: self.boolean("argo-discovery-use-automatic"),
                manual: self.boolean("argo-discovery-use-manual"),
            },
            strict: self.boolean("protected-app-strict-mode"),
            cluster_names: self.list("argo-cluster-names"),
        }
    }

    fn argo_api(&self, retry_base: Duration, retry_max: Duration) -> Option<ArgoApi> {
        let server = self.value("argo-server")?;
        let token = match (self.text("argo-token"), self.text("argo-token-file")) {
            (Some(token), _) => ArgoToken::Given(Secret::new(token)),
            (None, Some(path)) => ArgoToken::File(path),
            (None, None) => return None,
        };
        let text = server.text.trim();
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => (self.set("argo-scheme"), text),
        };
        let rest = rest.trim_end_matches('/');
        let has_host = !rest.is_empty() && !rest.starts_with([':', '/']) && !rest.contains(char::is_whitespace);
        let url = format!("{scheme}://{rest}");
        if !has_host || rest.contains("://") || !matches!(scheme.as_str(), "http" | "https") {
            self.wrong(
                server,
                "host:port such as `argocd-server.argocd:443`, or a full URL with https:// or http://".to_owned(),
            );
            return None;
        }
        Some(ArgoApi {
            url,
            token,
            insecure: self.boolean("argo-insecure"),
            authority_file: self.text("argo-ca-file"),
            retries: u32::try_from(self.whole("argo-api-retries")).unwrap_or(2),
            retry_base,
            retry_max: retry_max.max(retry_base),
        })
    }

    fn hpa(&self, warnings: &mut Vec<String>) -> HpaMode {
        let only = self.boolean("hpa-delete-only-enabled");
        if self.boolean("hpa-delete-restore-enabled") {
            if only {
                warnings.push(
                    "HPA_DELETE_RESTORE_ENABLED and HPA_DELETE_ONLY_ENABLED are both true: delete-restore is used"
                        .to_owned(),
                );
            }
            HpaMode::DeleteRestore
        } else if only {
            warnings.push(
                "HPA_DELETE_ONLY_ENABLED is true: autoscalers are deleted for good, nothing brings them back at startup \
                 unless Argo CD or you create them again"
                    .to_owned(),
            );
            HpaMode::DeleteOnly
        } else if self.boolean("hpa-min-zero-enabled") {
            HpaMode::MinZero
        } else {
            HpaMode::Keep
        }
    }

    fn scope(&self) -> Scope {
        if self.set("schedule-scope") == "deployment" {
            Scope::Workload
        } else {
            Scope::Namespace
        }
    }

    /// The spec that K8s-OffHours' variables describe, without its times.
    fn spec(&self, argo: Option<Argo>, warnings: &mut Vec<String>) -> OffHoursScheduleSpec {
        OffHoursScheduleSpec {
            // K8s-OffHours handles Deployments and nothing else: who moves over must not find more asleep than before.
            kinds: Some(vec![KindFilter {
                kind: "Deployment".to_owned(),
                group: Some("apps".to_owned()),
                running: false,
            }]),
            hpa: Some(Hpa {
                mode: self.hpa(warnings),
            }),
            argo,
            ..OffHoursScheduleSpec::default()
        }
    }

    fn name_is_legal(&self) -> Option<String> {
        let name = self.value("schedule-name")?;
        let legal = name.text.len() <= 63
            && name
                .text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && name
                .text
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && name
                .text
                .bytes()
                .last()
                .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !legal {
            self.wrong(
                name,
                "a label value: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
                    .to_owned(),
            );
        }
        Some(name.text.clone())
    }

    fn one_shot(&self, command: Option<OneShotAction>, warnings: &mut Vec<String>) -> Option<OneShot> {
        let said = self.text("action").and_then(|action| match action.as_str() {
            "shutdown" => Some(OneShotAction::Shutdown),
            "startup" => Some(OneShotAction::Startup),
            _ => None,
        });
        if let (Some(command), Some(said)) = (command, said)
            && command != said
        {
            self.note(SettingsError::Conflict(format!(
                "ACTION is {:?}, but the command is `{}`; remove one of them",
                said.as_str(),
                command.as_str()
            )));
        }
        if command.is_none() && self.value("action").is_none() {
            self.missing("action", "write shutdown or startup");
        }
        let name = self.name_is_legal();
        if name.is_none() {
            self.missing(
                "schedule-name",
                "write the value of the label offhours.platform.io/schedule that this is about",
            );
        }
        let from_environment = command.is_none();
        if from_environment && self.value("argo-enabled").is_none() {
            self.missing("argo-enabled", "write exactly `true` or `false`");
        }
        let action = command.or(said)?;
        let argo = self.boolean("argo-enabled").then(|| Argo {
            pause: true,
            sync: true,
            strict_protected: self.boolean("protected-app-strict-mode"),
            terminate: false,
        });
        let always = vec!["Mon-Sun 00:00-24:00".to_owned()];
        let (uptime, downtime) = match action {
            OneShotAction::Shutdown => (None, Some(always)),
            OneShotAction::Startup => (Some(always), None),
        };
        Some(OneShot {
            action,
            schedule: ScheduleSetting {
                name: name?,
                scope: self.scope(),
                spec: OffHoursScheduleSpec {
                    time_zone: Some("UTC".to_owned()),
                    uptime,
                    downtime,
                    ..self.spec(argo, warnings)
                },
            },
            from_environment,
        })
    }

    fn server_schedule(&self, argo: &ArgoSettings, warnings: &mut Vec<String>) -> Option<ScheduleSetting> {
        let cron = Cron {
            shutdown: self.crons("schedule-shutdown"),
            startup: self.crons("schedule-startup"),
        };
        if self
            .value("action")
            .is_some_and(|value| value.source != Source::Default)
        {
            warnings.push(
                "ACTION is set, but a server does not look at it; it is for `offhours` without a command".to_owned(),
            );
        }
        if cron.shutdown.is_empty() && cron.startup.is_empty() {
            if let Some(name) = self.value("schedule-name") {
                self.missing(
                    "schedule-shutdown",
                    format!(
                        "{} is {:?}, and a server must be told when; write cron expressions in SCHEDULE_SHUTDOWN and \
                         SCHEDULE_STARTUP, or remove the name and create an OffHoursSchedule",
                        name.name(),
                        name.text
                    ),
                );
            }
            return None;
        }
        let Some(name) = self.name_is_legal() else {
            self.missing(
                "schedule-name",
                "SCHEDULE_SHUTDOWN or SCHEDULE_STARTUP is set; write the value of the label \
                 offhours.platform.io/schedule that this is about",
            );
            return None;
        };
        let argo = argo.enabled.then_some(Argo {
            pause: true,
            sync: false,
            strict_protected: argo.strict,
            terminate: false,
        });
        let spec = OffHoursScheduleSpec {
            time_zone: self.text("schedule-timezone"),
            cron: Some(cron),
            enforcement: Some(Enforcement {
                mode: match self.set("enforcement-mode").as_str() {
                    "Off" => EnforcementMode::Off,
                    "Warn" => EnforcementMode::Warn,
                    "Deny" => EnforcementMode::Deny,
                    _ => EnforcementMode::Rewrite,
                },
                ..Enforcement::default()
            }),
            ..self.spec(argo, warnings)
        };
        if let Err(problems) = api::validate(&spec) {
            for problem in problems {
                self.note(self.in_variable(&problem));
            }
        }
        Some(ScheduleSetting {
            name,
            scope: self.scope(),
            spec,
        })
    }

    /// A problem of the spec, told with the name of the variable that it came from.
    fn in_variable(&self, problem: &crate::schedule::Problem) -> SettingsError {
        let flag = [
            ("spec.cron.shutdown", "schedule-shutdown"),
            ("spec.cron.startup", "schedule-startup"),
            ("spec.timeZone", "schedule-timezone"),
        ]
        .iter()
        .find(|(path, _)| problem.path.starts_with(path))
        .and_then(|(_, flag)| self.value(flag));
        match flag {
            Some(value) => SettingsError::ValueWrong {
                name: value.name(),
                value: value.shown(),
                allowed: format!("what can be read as such: {}", problem.message),
            },
            None => SettingsError::Conflict(problem.to_string()),
        }
    }
}
