//! The spec of an `OffHoursSchedule`, with the rules that the API server itself can check (structure and CEL).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::OffHoursScheduleStatus;
use super::validate::message;

/// When workloads sleep, which ones, and how firmly they are held meanwhile.
///
/// Bind a namespace or a workload to it with the label `offhours.platform.io/schedule: <name>`, or let `selector` choose.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "offhours.platform.io",
    version = "v1alpha1",
    kind = "OffHoursSchedule",
    plural = "offhoursschedules",
    singular = "offhoursschedule",
    shortname = "ohs",
    category = "offhours",
    status = "OffHoursScheduleStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "When workloads sleep, which ones, and how firmly they are held meanwhile.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.next[0].local"),
    printcolumn(name = "To", type_ = "string", json_path = ".status.next[0].to", priority = 1),
    printcolumn(name = "Down", type_ = "integer", json_path = ".status.workloads.down"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.workloads.total"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 63").message(message::NAME_TOO_LONG)
)]
#[x_kube(
    validation = Rule::new("!(has(self.cron) && (has(self.uptime) || has(self.downtime)))").message(message::CRON_AND_WINDOWS)
)]
#[serde(rename_all = "camelCase")]
pub struct OffHoursScheduleSpec {
    /// IANA name of the zone in which the times below are read, such as `America/Sao_Paulo`. Default: UTC, with a warning.
    /// A window may name a zone of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,

    /// Shutdown and startup as cron expressions. Not together with `uptime` or `downtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cron>,

    /// Windows in which workloads are up, such as `Mon-Fri 08:00-20:00`; outside them they are down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    pub uptime: Option<Vec<String>>,

    /// Windows in which workloads are down, such as `Fri 20:00 - Mon 06:00`. Where both lists speak, downtime wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    pub downtime: Option<Vec<String>>,

    /// Days that differ. They come before calendars and windows; of several that cover an instant, the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub exceptions: Vec<Exception>,

    /// iCalendar files in ConfigMaps of the product's own namespace; each event is an exception.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub calendars: Vec<CalendarSource>,

    /// Only these kinds. Absent: the default kinds (Deployment, StatefulSet and, where installed, Rollout and ScaledObject).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub kinds: Option<Vec<KindFilter>>,

    /// Chooses workloads without a label on them. Absent: by label only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<ScheduleSelector>,

    /// Replicas to keep while down: a number, or a percentage of the saved count (rounded up). Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')").message(message::DOWN_REPLICAS)
    )]
    pub down_replicas: Option<IntOrString>,

    /// What happens to HorizontalPodAutoscalers of workloads that sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa: Option<Hpa>,

    /// What happens to Argo CD Applications of workloads that sleep. Absent: they are not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argo: Option<Argo>,

    /// What happens to Flux objects that own workloads that sleep. Absent: they are not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flux: Option<Flux>,

    /// How firmly the webhook holds what is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,

    /// How workloads are woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,

    /// How long a new workload is left alone, counted from its creation, such as `15m`. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new(message::DURATION_RULE).message(message::DURATION))]
    pub grace_period: Option<String>,

    /// What happens to a workload whose rollout is stuck, partitioned or of mixed revisions at closing time. Default `Skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_rollouts: Option<UnfinishedRollouts>,

    /// What happens at opening time to CronJob runs missed while down. Default `Skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,

    /// `true`: everything is up, nothing is held; what sleeps is restored once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// Shutdown and startup times as cron expressions: five fields, read as Kubernetes CronJobs read them.
///
/// The state is that of the last firing; where a shutdown and a startup fire at one instant, startup wins.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.shutdown) && self.shutdown.size() > 0) || (has(self.startup) && self.startup.size() > 0)")
        .message(message::CRON_EMPTY)
)]
#[serde(rename_all = "camelCase")]
pub struct Cron {
    /// When workloads go down, such as `0 20 * * 1-5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub shutdown: Vec<String>,

    /// When workloads come up, such as `0 8 * * 1-5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub startup: Vec<String>,
}

/// The state that an exception or a calendar asks for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScheduledState {
    /// Workloads are up.
    Up,
    /// Workloads are down.
    Down,
}

/// A day, a range of days or a range of local date-times that differs from the weekly rhythm.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.date) != (has(self.from) || has(self.to))").message(message::EXCEPTION_DATE_OR_RANGE),
    validation = Rule::new("has(self.from) == has(self.to)").message(message::EXCEPTION_HALF_RANGE)
)]
#[serde(rename_all = "camelCase")]
pub struct Exception {
    /// One day: `2026-12-25`, every year `--12-25`, or a weekday of a month: `last Mon of May`, `3rd Thu of Nov`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub date: Option<String>,

    /// First day (`2026-12-24`), or first instant as a local date-time (`2026-12-24T12:00`), of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub from: Option<String>,

    /// Last day (included) of a range of days, or its end (excluded) if it is a local date-time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub to: Option<String>,

    /// Only these hours of each of the days, such as `08:00-12:00`. An end that is not after the start is on the next day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub hours: Option<String>,

    /// What holds then.
    pub state: ScheduledState,

    /// Free text shown in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// An iCalendar file in a ConfigMap of the product's own namespace.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CalendarSource {
    /// Where the text is.
    pub config_map: ConfigMapKey,
    /// What holds during each event.
    pub state: ScheduledState,
}

/// A key of a ConfigMap.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its `data`.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A kind of workload.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KindFilter {
    /// The kind, such as `CronJob`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its API group, where the kind alone could mean several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// For Jobs: `true` also suspends running ones, which kills their pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
}

/// Chooses workloads by labels. At least one of the two is present and not empty.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = Rule::new(
    "(has(self.namespaceSelector) && ((has(self.namespaceSelector.matchLabels) && self.namespaceSelector.matchLabels.size() > 0) || (has(self.namespaceSelector.matchExpressions) && self.namespaceSelector.matchExpressions.size() > 0))) || (has(self.labelSelector) && ((has(self.labelSelector.matchLabels) && self.labelSelector.matchLabels.size() > 0) || (has(self.labelSelector.matchExpressions) && self.labelSelector.matchExpressions.size() > 0)))"
).message(message::SELECTOR_EMPTY))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSelector {
    /// Namespaces, by their labels. Absent: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Workloads, by their labels. Absent: every workload of those namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// What happens to HorizontalPodAutoscalers.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Hpa {
    /// Default `Keep`.
    #[serde(default)]
    pub mode: HpaMode,
}

/// How a HorizontalPodAutoscaler is treated while its target is down.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HpaMode {
    /// It stays as it is: an autoscaler stands still while its target is at 0.
    #[default]
    Keep,
    /// `minReplicas` becomes 0 where the cluster allows that, and comes back.
    MinZero,
    /// It is saved in a ConfigMap, deleted, and created again at opening time.
    DeleteRestore,
    /// It is deleted for good.
    DeleteOnly,
}

/// What happens to Argo CD Applications.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a field that people write by its name"
)]
pub struct Argo {
    /// Pause automated sync while a workload of the Application is down. Default `true`.
    #[serde(default = "yes")]
    pub pause: bool,
    /// Ask for a sync at opening time. Default `false`.
    #[serde(default)]
    pub sync: bool,
    /// An Application with a protected workload is left alone, with all its workloads. Default `true`.
    #[serde(default = "yes")]
    pub strict_protected: bool,
    /// Terminate an operation that runs on for 5 minutes. Default `false`.
    #[serde(default)]
    pub terminate: bool,
}

impl Default for Argo {
    fn default() -> Self {
        Self {
            pause: true,
            sync: false,
            strict_protected: true,
            terminate: false,
        }
    }
}

/// What happens to Flux Kustomizations and HelmReleases.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Flux {
    /// Suspend the object that owns a workload while that is down. Default `true`.
    #[serde(default = "yes")]
    pub pause: bool,
}

impl Default for Flux {
    fn default() -> Self {
        Self { pause: true }
    }
}

fn yes() -> bool {
    true
}

/// How firmly the webhook holds what is down.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Enforcement {
    /// Default `Rewrite`.
    #[serde(default)]
    pub mode: EnforcementMode,
    /// Who passes without being held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt: Option<Subjects>,
    /// Who gets `Rewrite` under `Deny`. Default: the accounts of Argo CD's and Flux's controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite_for: Option<Subjects>,
    /// `true`: wake, protection and label changes need the verb `override` on this schedule. Default `false`.
    #[serde(default)]
    pub guard_overrides: bool,
    /// The longest wake that one may ask for, such as `4h`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new(message::DURATION_RULE).message(message::DURATION))]
    pub max_wake: Option<String>,
}

/// What the webhook does with a request that would wake a workload that is down.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EnforcementMode {
    /// It is not looked at.
    Off,
    /// It passes, with a warning.
    Warn,
    /// The held value stays, the number asked for is remembered for opening time.
    #[default]
    Rewrite,
    /// It is refused.
    Deny,
}

/// Users and groups as the API server knows them. An entry may end in `*`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Subjects {
    /// User names, such as `system:serviceaccount:ci:deployer`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 512)))]
    pub users: Vec<String>,
    /// Group names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 512)))]
    pub groups: Vec<String>,
}

/// How workloads are woken.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Startup {
    /// At most this many workloads restored and not yet ready at a time. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    #[schemars(extend("format" = "int64"))]
    pub max_concurrent: Option<u32>,
    /// At most this many workloads restored in a minute. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("format" = "int64"))]
    pub per_minute: Option<u32>,
    /// A wave waits until the one before it is ready. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ready: Option<bool>,
    /// How long a wave is waited for before the next one starts anyway, such as `5m`. Default 5 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new(message::DURATION_RULE).message(message::DURATION))]
    pub timeout: Option<String>,
}

/// What happens to a workload whose rollout is not finished at closing time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnfinishedRollouts {
    /// It stays up, and is reported.
    #[default]
    Skip,
    /// It sleeps all the same; old pods do not come back.
    Sleep,
}

/// What happens at opening time to CronJob runs that were missed while down.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatchUp {
    /// They are lost.
    #[default]
    Skip,
    /// Kubernetes starts one of them.
    Once,
}
