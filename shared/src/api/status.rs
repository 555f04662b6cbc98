//! What we report back on a schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The condition by which webhooks tell that something fights a sleep; the scheduler makes it part of `Degraded` while the window
/// lasts.
pub const FOUGHT_OVER: &str = "FoughtOver";

/// The observed side of a schedule. Written only when it changes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct OffHoursScheduleStatus {
    /// The `metadata.generation` that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Up`, `Down`, or `Unknown`: nothing is written or held then, and a condition says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// When that state began: an RFC 3339 instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The rule that decided: `suspended`, `exception`, `calendar`, `downtime`, `uptime`, `cron` or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The next three transitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<PlannedTransition>,
    /// How many workloads are in which state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadCounts>,
    /// `Ready`, `Valid`, `Suspended`, `Degraded`; `FoughtOver` once something has fought a sleep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A transition to come.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlannedTransition {
    /// The instant, RFC 3339 in UTC.
    pub at: String,
    /// The same in the schedule's zone, RFC 3339 with offset and the zone's name in brackets.
    pub local: String,
    /// `Up` or `Down`.
    pub to: String,
    /// The rule that decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The reason given in the exception or calendar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Numbers of workloads by state. `total` = `up` + `down` + `protected` + `failing`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadCounts {
    /// All that belong to the schedule.
    #[serde(default)]
    #[schemars(extend("format" = "int64"))]
    pub total: u32,
    /// Those that are up.
    #[serde(default)]
    #[schemars(extend("format" = "int64"))]
    pub up: u32,
    /// Those that are asleep.
    #[serde(default)]
    #[schemars(extend("format" = "int64"))]
    pub down: u32,
    /// Those that are never touched.
    #[serde(default)]
    #[schemars(extend("format" = "int64"))]
    pub protected: u32,
    /// Those that could not be brought where they should be.
    #[serde(default)]
    #[schemars(extend("format" = "int64"))]
    pub failing: u32,
}

/// A condition in the usual form of Kubernetes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which condition: `Ready`, `Valid`, `Suspended`, `Degraded` or `FoughtOver`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The cause in one word, for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// The cause and the remedy, for people.
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// When `status` last changed: an RFC 3339 instant.
    pub last_transition_time: String,
    /// The `metadata.generation` that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
