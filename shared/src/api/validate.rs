//! The one parser of a schedule's spec. What it accepts, webhook, scheduler and command line understand alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::spec::{ConfigMapKey, Exception, OffHoursScheduleSpec, ScheduledState};
use crate::annotations;
use crate::schedule::{
    CalendarPart, Definition, ExceptionPart, ExceptionSpan, Problem, State, Timeline, Warning, compile,
};

/// Messages that the API server (by CEL) and this parser share word by word.
pub(crate) mod message {
    pub(crate) const CRON_AND_WINDOWS: &str =
        "`cron` and `uptime`/`downtime` exclude each other; keep one of the two forms";
    pub(crate) const CRON_EMPTY: &str = "`cron` needs at least one expression in `shutdown` or `startup`";
    pub(crate) const EXCEPTION_DATE_OR_RANGE: &str = "an exception needs either `date`, or `from` and `to`";
    pub(crate) const EXCEPTION_HALF_RANGE: &str = "`from` and `to` go together; write both";
    pub(crate) const SELECTOR_EMPTY: &str =
        "an empty selector would match everything; write a namespaceSelector or a labelSelector that is not empty";
    pub(crate) const DOWN_REPLICAS: &str = "`downReplicas` is a number from 0, or a percentage from `0%` to `100%`";
    pub(crate) const NAME_TOO_LONG: &str = "the name of a schedule is used as a label value: at most 63 characters";
    pub(crate) const NAME_FORM: &str = "the name of a schedule has lower case letters, digits, `-` and `.` only, and begins and ends with a letter or digit";
    pub(crate) const DURATION: &str = "a duration is written such as `90s`, `15m`, `2h30m` or `1d`";
    pub(crate) const DURATION_RULE: &str =
        r"self.matches('^([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$')";
}

/// A spec that can be acted upon.
#[derive(Clone, Debug)]
pub struct Validated {
    /// When it is up and down.
    pub timeline: Timeline,
    /// What is legal but probably not meant.
    pub warnings: Vec<Warning>,
    /// How long new workloads are left alone. Zero: not at all.
    pub grace_period: Duration,
    /// The longest wake. `None`: no limit.
    pub max_wake: Option<Duration>,
    /// How long a startup wave is waited for.
    pub startup_timeout: Duration,
    /// Calendars whose text was not at hand. While there are any, the timeline is `Unknown` where no exception speaks.
    pub missing_calendars: Vec<ConfigMapKey>,
}

/// How long a startup wave is waited for where the schedule does not say.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(300);

/// The texts of calendars, by where they are.
pub type CalendarTexts = BTreeMap<ConfigMapKey, Arc<str>>;

/// Reads a spec without its calendars' texts: for a place that has none at hand. See [`Validated::missing_calendars`].
///
/// # Errors
/// Everything that is wrong with it, with paths under `spec.`.
pub fn validate(spec: &OffHoursScheduleSpec) -> Result<Validated, Vec<Problem>> {
    validate_with(spec, &CalendarTexts::new())
}

/// Reads a spec, with the texts of the calendars that it names.
///
/// # Errors
/// Everything that is wrong with it, with paths under `spec.`.
pub fn validate_with(spec: &OffHoursScheduleSpec, texts: &CalendarTexts) -> Result<Validated, Vec<Problem>> {
    let mut problems = Vec::new();
    if spec
        .cron
        .as_ref()
        .is_some_and(|cron| cron.shutdown.is_empty() && cron.startup.is_empty())
    {
        problems.push(Problem::new("cron", message::CRON_EMPTY));
        // An empty `cron` beside windows is refused by the API server too.
        if spec.uptime.is_some() || spec.downtime.is_some() {
            problems.push(Problem::new("cron", message::CRON_AND_WINDOWS));
        }
    }
    let exceptions = exceptions(spec, &mut problems);
    let (calendars, missing_calendars) = calendars(spec, texts);
    if let Some(selector) = &spec.selector
        && is_empty(selector.namespace_selector.as_ref())
        && is_empty(selector.label_selector.as_ref())
    {
        problems.push(Problem::new("selector", message::SELECTOR_EMPTY));
    }
    if !spec.down_replicas.as_ref().is_none_or(is_down_replicas) {
        problems.push(Problem::new("downReplicas", message::DOWN_REPLICAS));
    }
    let durations = durations(spec, &mut problems);

    let cron = spec.cron.clone().unwrap_or_default();
    let definition = Definition {
        time_zone: spec.time_zone.clone(),
        shutdown: cron.shutdown,
        startup: cron.startup,
        uptime: spec.uptime.clone(),
        downtime: spec.downtime.clone(),
        exceptions,
        calendars,
    };
    let compiled = compile(&definition);
    let under_spec = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.under("spec.")).collect();
    match compiled {
        Ok((timeline, warnings)) if problems.is_empty() => Ok(Validated {
            timeline,
            warnings: warnings
                .into_iter()
                .map(|warning| {
                    if warning.path.is_empty() {
                        warning.under("spec")
                    } else {
                        warning.under("spec.")
                    }
                })
                .collect(),
            grace_period: durations.grace_period,
            max_wake: durations.max_wake,
            startup_timeout: durations.startup_timeout,
            missing_calendars,
        }),
        Ok(_) => Err(under_spec(problems)),
        Err(more) => {
            problems.extend(more);
            Err(under_spec(problems))
        }
    }
}

fn exceptions(spec: &OffHoursScheduleSpec, problems: &mut Vec<Problem>) -> Vec<ExceptionPart> {
    let mut exceptions = Vec::with_capacity(spec.exceptions.len());
    for (index, exception) in spec.exceptions.iter().enumerate() {
        match exception_span(exception) {
            Ok(span) => exceptions.push(ExceptionPart {
                span,
                hours: exception.hours.clone(),
                state: exception.state.into(),
                reason: exception.reason.clone(),
            }),
            Err(message) => problems.push(Problem::new(format!("exceptions[{index}]"), message)),
        }
    }
    exceptions
}

fn calendars(spec: &OffHoursScheduleSpec, texts: &CalendarTexts) -> (Vec<CalendarPart>, Vec<ConfigMapKey>) {
    let mut missing = Vec::new();
    let parts = spec
        .calendars
        .iter()
        .map(|source| {
            let text = texts.get(&source.config_map).cloned().ok_or_else(|| {
                missing.push(source.config_map.clone());
                let ConfigMapKey { name, key } = &source.config_map;
                format!("the calendar in ConfigMap {name:?}, key {key:?}, is not known")
            });
            CalendarPart {
                state: source.state.into(),
                text,
            }
        })
        .collect();
    (parts, missing)
}

struct Durations {
    grace_period: Duration,
    max_wake: Option<Duration>,
    startup_timeout: Duration,
}

fn durations(spec: &OffHoursScheduleSpec, problems: &mut Vec<Problem>) -> Durations {
    let mut duration = |path: &str, text: Option<&String>| {
        let text = text?;
        let parsed = parse_duration(text);
        if parsed.is_none() {
            problems.push(Problem::new(path, message::DURATION));
        }
        parsed
    };
    let grace_period = duration("gracePeriod", spec.grace_period.as_ref()).unwrap_or_default();
    let enforcement = spec.enforcement.as_ref();
    let max_wake = duration(
        "enforcement.maxWake",
        enforcement.and_then(|enforcement| enforcement.max_wake.as_ref()),
    );
    let startup = spec.startup.as_ref();
    let startup_timeout =
        duration("startup.timeout", startup.and_then(|startup| startup.timeout.as_ref())).unwrap_or(STARTUP_TIMEOUT);
    if let Some(startup) = startup {
        for (path, value) in [
            ("startup.maxConcurrent", startup.max_concurrent),
            ("startup.perMinute", startup.per_minute),
        ] {
            if value == Some(0) {
                problems.push(Problem::new(
                    path,
                    "0 would wake nothing; write a number from 1, or remove it",
                ));
            }
        }
    }
    Durations {
        grace_period,
        max_wake,
        startup_timeout,
    }
}

/// Checks the name of a schedule: it is the name of an object and used as a label value.
///
/// # Errors
/// The problem, at `metadata.name`.
pub fn validate_name(name: &str) -> Result<(), Problem> {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    let has_form = name
        .bytes()
        .all(|byte| is_alphanumeric(byte) || matches!(byte, b'-' | b'.'))
        && ends.into_iter().all(|end| end.is_some_and(is_alphanumeric));
    let message = match has_form {
        true if name.len() <= 63 => return Ok(()),
        true => message::NAME_TOO_LONG,
        false => message::NAME_FORM,
    };
    Err(Problem::new("metadata.name", message))
}

impl From<ScheduledState> for State {
    fn from(state: ScheduledState) -> Self {
        match state {
            ScheduledState::Up => Self::Up,
            ScheduledState::Down => Self::Down,
        }
    }
}

fn exception_span(exception: &Exception) -> Result<ExceptionSpan, &'static str> {
    match (&exception.date, &exception.from, &exception.to) {
        (Some(date), None, None) => Ok(ExceptionSpan::Date(date.clone())),
        (None, Some(from), Some(to)) => Ok(ExceptionSpan::Range(from.clone(), to.clone())),
        (None, Some(_), None) | (None, None, Some(_)) => Err(message::EXCEPTION_HALF_RANGE),
        _ => Err(message::EXCEPTION_DATE_OR_RANGE),
    }
}

fn is_empty(selector: Option<&LabelSelector>) -> bool {
    selector.is_none_or(|selector| {
        selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    })
}

fn is_down_replicas(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(number) => *number >= 0,
        IntOrString::String(text) => text.strip_suffix('%').is_some_and(|digits| {
            matches!(digits.len(), 1..=3)
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && (digits.len() < 3 || digits == "100")
        }),
    }
}

/// `1d2h30m15s`: each unit at most once, in this order, the form that the custom resource's pattern asks for.
fn parse_duration(text: &str) -> Option<Duration> {
    // Annotations may say more ("2 hours"); the pattern of the custom resource may not be looser than this.
    let plain = text
        .split_inclusive(['d', 'h', 'm', 's'])
        .all(|part| matches!(part.len(), 2..=7) && part.bytes().rev().skip(1).all(|byte| byte.is_ascii_digit()));
    let ends = text.ends_with(['d', 'h', 'm', 's']);
    annotations::parse_duration(text)
        .filter(|_| plain && ends)?
        .try_into()
        .ok()
}
