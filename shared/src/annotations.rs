//! Every label and annotation key of the product, with its typed parse and format.
//!
//! Nothing else in the workspace spells a key.

use std::fmt;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Unit};

use crate::short::escaped;

/// The prefix of all our keys, kept from K8s-OffHours so that its users can move over.
pub const PREFIX: &str = "offhours.platform.io/";

/// Label on a namespace or workload: the schedule it follows.
pub const SCHEDULE: &str = "offhours.platform.io/schedule";
/// Annotation: weekly windows in which the workload is up.
pub const UPTIME: &str = "offhours.platform.io/uptime";
/// Annotation: weekly windows in which the workload is down.
pub const DOWNTIME: &str = "offhours.platform.io/downtime";
/// Annotation: IANA zone of `uptime` and `downtime`.
pub const TIME_ZONE: &str = "offhours.platform.io/time-zone";
/// Annotation or label `"true"`: never touched, never held.
pub const PROTECTED: &str = "offhours.platform.io/protected";
/// Label: the second copy of the record (a count, else `true`).
pub const ASLEEP: &str = "offhours.platform.io/asleep";
/// Annotation: RFC 3339 instant of the write that scaled down.
pub const DOWN_SINCE: &str = "offhours.platform.io/down-since";
/// Annotation: the count that we wrote, only where it is not 0.
pub const HELD_REPLICAS: &str = "offhours.platform.io/held-replicas";
/// Annotation: the record of a workload's replicas.
pub const ORIGINAL_REPLICAS: &str = "offhours.platform.io/original-replicas";
/// Annotation on an HPA: the record of `minReplicas`.
pub const ORIGINAL_MIN_REPLICAS: &str = "offhours.platform.io/original-min-replicas";
/// Annotation on an HPA: the record of `maxReplicas`.
pub const ORIGINAL_MAX_REPLICAS: &str = "offhours.platform.io/original-max-replicas";
/// Annotation on an HPA: what it is to scale from opening time on, as JSON.
pub const ORIGINAL_SCALE_TARGET: &str = "offhours.platform.io/original-scale-target";
/// Label on a ConfigMap of ours: what it keeps.
pub const STATE_TYPE: &str = "offhours.platform.io/type";
/// Value of [`STATE_TYPE`]: an HPA that is deleted while its target sleeps.
pub const STATE_HPA: &str = "hpa-state";
/// Value of [`STATE_TYPE`]: what the pause of an Argo CD Application saved.
pub const STATE_ARGO: &str = "argo-state";
/// Label on a backup: namespace of what it belongs to.
pub const TARGET_NAMESPACE: &str = "offhours.platform.io/target-namespace";
/// Label on a backup: name of the workload.
pub const TARGET_DEPLOYMENT: &str = "offhours.platform.io/target-deployment";
/// Label on a backup: name of the HPA.
pub const TARGET_HPA: &str = "offhours.platform.io/target-hpa";
/// Label on a backup: name of the Application.
pub const TARGET_APPLICATION: &str = "offhours.platform.io/target-application";
/// Annotation on a Flux object: the record of `spec.suspend`.
pub const ORIGINAL_SUSPEND: &str = "offhours.platform.io/original-suspend";
/// Namespace: manual list of Argo CD Applications.
pub const ARGO_APPLICATIONS: &str = "offhours.platform.io/argopp";
/// The other spelling of [`ARGO_APPLICATIONS`] that K8s-OffHours' own examples use; read, never written.
pub const ARGO_APPLICATIONS_ALIAS: &str = "offhours.platform.io/argoapp";
/// Annotation: a wake by hand.
pub const AWAKE_UNTIL: &str = "offhours.platform.io/awake-until";
/// Annotation: a sleep by hand.
pub const ASLEEP_UNTIL: &str = "offhours.platform.io/asleep-until";
/// Annotation: replicas to keep while down.
pub const DOWN_REPLICAS: &str = "offhours.platform.io/down-replicas";
/// Annotation: wave of the wake-up.
pub const STARTUP_ORDER: &str = "offhours.platform.io/startup-order";
/// Annotation: free text shown beside a wake or a protection.
pub const REASON: &str = "offhours.platform.io/reason";
/// Annotation on an Argo CD Application: what its pause saved.
pub const ORIGINAL_AUTOMATED: &str = "offhours.platform.io/original-automated";

/// The keys that a person may write.
pub const WRITTEN_BY_PEOPLE: &[&str] = &[
    SCHEDULE,
    UPTIME,
    DOWNTIME,
    TIME_ZONE,
    PROTECTED,
    ARGO_APPLICATIONS,
    ARGO_APPLICATIONS_ALIAS,
    AWAKE_UNTIL,
    ASLEEP_UNTIL,
    DOWN_REPLICAS,
    STARTUP_ORDER,
    REASON,
];

/// One key, for the reference.
#[derive(Debug, Clone, Copy)]
pub struct KeyRow {
    /// The key; the last part may be a placeholder in `<>`.
    pub key: &'static str,
    /// `label`, `annotation`, or both.
    pub form: &'static str,
    /// On what.
    pub on: &'static str,
    /// What it means, and which values it may have.
    pub meaning: &'static str,
}

const fn key(key: &'static str, form: &'static str, on: &'static str, meaning: &'static str) -> KeyRow {
    KeyRow { key, form, on, meaning }
}

/// All keys: first those that people write, then those that only the product writes.
#[rustfmt::skip]
pub const KEYS: &[KeyRow] = &[
    key(SCHEDULE, "label", "namespace or workload", "the schedule that it follows; the workload's own wins over its namespace's"),
    key(UPTIME, "annotation", "namespace or workload", "a schedule in place: windows in which it is up, such as `Mon-Fri 08:00-20:00`"),
    key(DOWNTIME, "annotation", "namespace or workload", "a schedule in place: windows in which it is down"),
    key(TIME_ZONE, "annotation", "namespace or workload", "IANA name of the zone of `uptime` and `downtime`; UTC where it is absent, with a warning"),
    key(PROTECTED, "annotation or label", "namespace or workload", "`true`: never touched, never held"),
    key(AWAKE_UNTIL, "annotation", "namespace or workload", "a wake by hand: an instant (`2026-12-01T20:00:00-03:00`), or a duration (`2h`) that becomes one; replaces `asleep-until`"),
    key(ASLEEP_UNTIL, "annotation", "namespace or workload", "a sleep by hand, in the same form; replaces `awake-until`"),
    key(DOWN_REPLICAS, "annotation", "namespace or workload", "replicas to keep while down: a number, or a percentage of the saved count, rounded up (`25%`)"),
    key(STARTUP_ORDER, "annotation", "namespace or workload", "a whole number; lower wakes first and must be ready before the next"),
    key(REASON, "annotation", "namespace or workload", "free text, shown beside a wake or a protection"),
    key(ARGO_APPLICATIONS, "label or annotation", "namespace", "manual list of Argo CD Applications: `app` or `namespace/app`, with commas between them"),
    key(ARGO_APPLICATIONS_ALIAS, "label or annotation", "namespace", "the same in another spelling; read, never written"),
    key("offhours.platform.io/original-<knob>", "annotation", "workload, Application, Flux object", "the record: what `replicas`, `suspend` … were; written in the request that puts down, removed by the one that restores"),
    key(ASLEEP, "label", "workload", "the record's second copy: the saved count, else `true`; `kubectl get deployments -A -l offhours.platform.io/asleep`"),
    key(DOWN_SINCE, "annotation", "workload, HPA", "instant of the write that put it down"),
    key(HELD_REPLICAS, "annotation", "workload, HPA", "the count that we wrote, only where it is not 0"),
    key(ORIGINAL_MIN_REPLICAS, "annotation", "HPA", "the record of `minReplicas`"),
    key(ORIGINAL_MAX_REPLICAS, "annotation", "HPA", "the record of `maxReplicas`"),
    key(ORIGINAL_SCALE_TARGET, "annotation", "HPA", "what it is to scale from opening time on, as JSON"),
    key(STATE_TYPE, "label", "ConfigMap of the product", "what it keeps: `hpa-state` (a deleted HPA) or `argo-state` (the pause of an Application)"),
    key("offhours.platform.io/target-<what>", "label", "ConfigMap of the product", "whom it belongs to"),
];

/// What every record key starts with.
pub(crate) const ORIGINAL: &str = "offhours.platform.io/original-";

/// How an absent knob is written in a record.
pub const ABSENT: &str = "absent";

/// The key of the record of one knob, such as `offhours.platform.io/original-replicas`.
pub fn record_key(knob: &str) -> String {
    format!("{ORIGINAL}{knob}")
}

/// Whether `key` is one that only the product itself writes: records, `asleep`, `down-since`, `held-replicas`.
pub fn is_own_state(key: &str) -> bool {
    key.starts_with(ORIGINAL)
        || key == ASLEEP
        || key == DOWN_SINCE
        || key == HELD_REPLICAS
        // K8s-OffHours labels its backups with these
        || key.strip_prefix(PREFIX).is_some_and(|rest| rest == "type" || rest.starts_with("target-"))
}

/// A value that could not be parsed, or a key that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The full key.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl Problem {
    fn new(key: &str, wrong: &Wrong<'_>) -> Self {
        Self {
            key: key.to_owned(),
            message: wrong.to_string(),
        }
    }
}

/// All that can be wrong with a key of ours or its value. The reference of messages shows each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong<'v> {
    /// No instant and no duration.
    Until(&'v str),
    /// A duration of nothing, or less.
    NoTime(&'v str),
    /// No instant.
    Instant(&'v str),
    /// No number of replicas and no percentage.
    DownReplicas(&'v str),
    /// No boolean.
    Bool(&'v str),
    /// No whole number.
    Order(&'v str),
    /// The name of a schedule is empty.
    NoSchedule,
    /// A key that nobody knows, and the one that was meant, maybe.
    UnknownKey(Option<&'v str>),
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |value: &str| format!("\"{}\"", escaped(value));
        match self {
            Self::Until(value) => write!(
                f,
                "{} is neither an instant such as \"2026-12-01T08:00:00-03:00\" nor a duration such as \"2h\"",
                quoted(value)
            ),
            Self::NoTime(value) => write!(f, "{} must be longer than nothing, for example \"2h\"", quoted(value)),
            Self::Instant(value) => write!(f, "{} is not an RFC 3339 instant", quoted(value)),
            Self::DownReplicas(value) => write!(
                f,
                "{} is neither a number of replicas such as \"1\" nor a percentage such as \"25%\"",
                quoted(value)
            ),
            Self::Bool(value) => write!(f, "{} is not a boolean; write \"true\" or \"false\"", quoted(value)),
            Self::Order(value) => write!(f, "{} is not a whole number such as \"10\"", quoted(value)),
            Self::NoSchedule => f.write_str("the name of a schedule is missing"),
            Self::UnknownKey(Some(known)) => write!(f, "unknown key; did you mean {PREFIX}{known}?"),
            Self::UnknownKey(None) => f.write_str("unknown key, without effect"),
        }
    }
}

/// An instant, or a duration that somebody must still turn into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Up to this instant, not included.
    Instant(Timestamp),
    /// For this long, counted from whenever it is first seen.
    For(SignedDuration),
}

impl Until {
    /// The instant meant, for a duration counted from `now`. `None` if it is past the end of time.
    pub fn instant(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Instant(at) => Some(at),
            Self::For(duration) => now.checked_add(duration).ok(),
        }
    }
}

/// Parses the value of [`AWAKE_UNTIL`] or [`ASLEEP_UNTIL`]: an RFC 3339 instant or a duration such as `2h`.
pub fn parse_until(key: &str, text: &str) -> Result<Until, Problem> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Until::Instant(at));
    }
    let duration = parse_duration(text).ok_or_else(|| Problem::new(key, &Wrong::Until(text)))?;
    if duration <= SignedDuration::ZERO {
        return Err(Problem::new(key, &Wrong::NoTime(text)));
    }
    Ok(Until::For(duration))
}

/// Parses a duration such as `90s`, `15m`, `2h30m` or `1d` (a day is 24 hours). `None` if it is none.
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    // A bare number has no unit: refused by the parser, so that nobody has to guess it.
    let span: Span = text.parse().ok()?;
    if span.get_months() != 0 || span.get_years() != 0 {
        return None;
    }
    let seconds = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours())).ok()?;
    let duration = SignedDuration::try_from_secs_f64(seconds).ok()?;
    Some(duration)
}

/// Formats an instant as the product writes it into annotations: RFC 3339, UTC, whole seconds.
pub fn format_instant(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Parses an instant that the product wrote ([`DOWN_SINCE`]).
pub fn parse_instant(key: &str, text: &str) -> Result<Timestamp, Problem> {
    text.parse().map_err(|_| Problem::new(key, &Wrong::Instant(text)))
}

/// Replicas to keep while down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownReplicas {
    /// So many replicas.
    Count(u32),
    /// This part of the record, rounded up. 0 to 100.
    Percent(u8),
}

impl Default for DownReplicas {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl DownReplicas {
    /// The count for a workload that normally has `of` replicas.
    pub fn of(self, of: u64) -> u64 {
        match self {
            Self::Count(count) => u64::from(count),
            // In between, a count that fills 64 bits needs a few more.
            Self::Percent(percent) => {
                let part = (u128::from(of) * u128::from(percent)).div_ceil(100);
                u64::try_from(part).unwrap_or(of)
            }
        }
    }
}

impl fmt::Display for DownReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Parses [`DOWN_REPLICAS`]: `2` or `25%`.
pub fn parse_down_replicas(key: &str, text: &str) -> Result<DownReplicas, Problem> {
    let wrong = || Problem::new(key, &Wrong::DownReplicas(text));
    match text.strip_suffix('%') {
        Some(percent) => match whole(percent).and_then(|number| u8::try_from(number).ok()) {
            Some(percent) if percent <= 100 => Ok(DownReplicas::Percent(percent)),
            _ => Err(wrong()),
        },
        // Replica counts are signed 32-bit in the Kubernetes API.
        None => whole(text)
            .and_then(|count| i32::try_from(count).ok())
            .and_then(|count| u32::try_from(count).ok())
            .map(DownReplicas::Count)
            .ok_or_else(wrong),
    }
}

/// Parses a boolean: exactly `true` or `false`.
pub fn parse_bool(key: &str, text: &str) -> Result<bool, Problem> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(Problem::new(key, &Wrong::Bool(other))),
    }
}

/// Parses [`STARTUP_ORDER`].
pub fn parse_order(key: &str, text: &str) -> Result<i32, Problem> {
    text.parse().map_err(|_| Problem::new(key, &Wrong::Order(text)))
}

/// Digits only: no sign, no space, no exponent.
pub fn whole(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Checks one key and value that a person wrote. Keys of other prefixes are fine.
///
/// `uptime`, `downtime` and `time-zone` belong together and are checked by `schedule`.
pub fn check(key: &str, value: &str) -> Result<(), Problem> {
    match key {
        AWAKE_UNTIL | ASLEEP_UNTIL => parse_until(key, value).map(drop),
        PROTECTED => parse_bool(key, value).map(drop),
        DOWN_REPLICAS => parse_down_replicas(key, value).map(drop),
        STARTUP_ORDER => parse_order(key, value).map(drop),
        SCHEDULE => check_schedule_name(key, value),
        _ => Ok(()),
    }
}

fn check_schedule_name(key: &str, value: &str) -> Result<(), Problem> {
    // An empty label value is legal for Kubernetes and means nothing here.
    if value.is_empty() {
        Err(Problem::new(key, &Wrong::NoSchedule))
    } else {
        Ok(())
    }
}

/// A warning about a key under our prefix that nobody knows, with the nearest known one.
pub fn unknown_key(key: &str) -> Option<Problem> {
    let rest = key.strip_prefix(PREFIX)?;
    if WRITTEN_BY_PEOPLE.contains(&key) || is_own_state(key) {
        return None;
    }
    let nearest = WRITTEN_BY_PEOPLE
        .iter()
        .filter_map(|known| known.strip_prefix(PREFIX))
        .map(|known| (strsim::damerau_levenshtein(rest, known), known))
        .min()
        .filter(|(distance, known)| *distance <= 1 + known.len() / 3);
    Some(Problem::new(key, &Wrong::UnknownKey(nearest.map(|(_, known)| known))))
}

#[cfg(test)]
#[path = "tests/annotations.rs"]
mod tests;
