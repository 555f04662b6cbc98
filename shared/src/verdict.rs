//! What the clock and the rules say about one workload now, and why.
//!
//! Scheduler, webhook and command line ask this one function.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::annotations::{
    self, ASLEEP_UNTIL, AWAKE_UNTIL, DOWN_REPLICAS, DOWNTIME, DownReplicas, PROTECTED, Problem, REASON, SCHEDULE,
    STARTUP_ORDER, TIME_ZONE, UPTIME, Until,
};
use crate::api::EnforcementMode;
use crate::kinds::{ByDefault, Kinds};
use crate::policy::{Included, Present, Schedule, Schedules, Scope};
use crate::schedule::{DecidedBy, State};
use crate::workload::{Namespace, ScaleTarget, Workload};

/// Namespaces that are never touched, whatever their labels. Our own comes on top.
pub const NEVER_TOUCHED: &[&str] = &["kube-system", "kube-public", "kube-node-lease"];

/// Where something was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum On {
    /// On the namespace.
    Namespace,
    /// On the workload itself.
    Workload,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespace => "its namespace",
            Self::Workload => "the workload",
        })
    }
}

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// We never touch such a thing; the text says why.
    NeverTouched(Arc<str>),
    /// It, or its namespace, is being deleted.
    Terminating,
    /// No schedule claims it; the text says why, where somebody meant one to.
    OutOfScope(Option<Arc<str>>),
    /// `protected: "true"`.
    Protected(On),
    /// The schedule says `suspend: true`, or is being deleted.
    Suspended,
    /// A wake by hand.
    Awake(On),
    /// A sleep by hand.
    Asleep(On),
    /// It is younger than the schedule's grace period.
    Grace,
    /// Nobody can tell; the text says why.
    Unavailable(Arc<str>),
    /// The schedule's own rule.
    Schedule(DecidedBy),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverTouched(why) => write!(f, "never touched: {why}"),
            Self::Terminating => f.write_str("being deleted"),
            Self::OutOfScope(None) => f.write_str("no schedule"),
            Self::OutOfScope(Some(why)) => write!(f, "no schedule: {why}"),
            Self::Protected(on) => write!(f, "protected on {on}"),
            Self::Suspended => f.write_str("suspended"),
            Self::Awake(on) => write!(f, "awake-until on {on}"),
            Self::Asleep(on) => write!(f, "asleep-until on {on}"),
            Self::Grace => f.write_str("grace period"),
            Self::Unavailable(why) => write!(f, "unknown: {why}"),
            Self::Schedule(rule) => rule.fmt(f),
        }
    }
}

/// Something worth telling beside the verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A value that could not be parsed; it was ignored.
    Ignored(On, Problem),
    /// Several schedules claim the workload with equal rank.
    Ambiguous(Vec<Arc<str>>),
    /// A wake or sleep is still a duration: somebody has to write the instant.
    Duration {
        /// Where.
        on: On,
        /// [`AWAKE_UNTIL`] or [`ASLEEP_UNTIL`].
        key: &'static str,
        /// The instant to write, `maxWake` observed.
        instant: Timestamp,
        /// It was longer than `maxWake` allows.
        cut: bool,
    },
}

/// What the clock and the rules say about one workload.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Up, Down, or Unknown: no write, no hold.
    pub state: State,
    /// The rule that decided.
    pub decided_by: Rule,
    /// Free text given with the rule.
    pub reason: Option<Arc<str>>,
    /// When the state began, if that is known. For Down: the beginning of the window.
    pub since: Option<Timestamp>,
    /// When the verdict may change by the clock alone. `None`: not before somebody changes something.
    pub until: Option<Timestamp>,
    /// The schedule that claims the workload.
    pub schedule: Option<Arc<Schedule>>,
    /// Replicas to keep while down.
    pub down_replicas: DownReplicas,
    /// How its kind is included.
    pub included: Included,
    /// What else is worth telling.
    pub notes: Vec<Note>,
}

impl Verdict {
    /// How firmly it is held. Without a schedule (a sleep by hand): the default.
    pub fn mode(&self) -> EnforcementMode {
        self.schedule
            .as_ref()
            .map_or_else(EnforcementMode::default, |schedule| schedule.enforcement.mode)
    }

    /// Whether we may write to the workload at all.
    pub fn may_write(&self) -> bool {
        self.state != State::Unknown
    }
}

/// What is known beside the workload itself.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'s> {
    /// All kinds.
    pub kinds: &'s Kinds,
    /// All schedules.
    pub schedules: &'s Schedules,
    /// The workload's namespace; `None`: not known.
    pub namespace: Option<&'s Namespace>,
    /// The namespace that we run in.
    pub own_namespace: &'s str,
    /// The ScaledObject that scales the workload, if there is one.
    pub scaled_by: Option<&'s str>,
}

/// Says what is to be with a workload at `now`.
pub fn verdict(workload: &Workload, around: &Surroundings<'_>, now: Timestamp) -> Verdict {
    let mut verdict = Verdict {
        state: State::Unknown,
        decided_by: Rule::Terminating,
        reason: None,
        since: None,
        until: None,
        schedule: None,
        down_replicas: DownReplicas::default(),
        included: Included { running: false },
        notes: Vec::new(),
    };
    if let Some(why) = never_touched(workload, around) {
        verdict.decided_by = Rule::NeverTouched(why);
        return verdict;
    }
    let Some(namespace) = around.namespace else {
        verdict.decided_by = Rule::Unavailable(Arc::from(format!("namespace {} is not known", workload.namespace)));
        return verdict;
    };
    if workload.terminating || namespace.terminating {
        return verdict;
    }
    let keys = Keys { workload, namespace };
    keys.note_problems(&mut verdict.notes);
    let claim = claim(&keys, around);
    if let Some(schedule) = claim.schedules.first() {
        verdict.schedule = Some(Arc::clone(schedule));
        verdict.down_replicas = schedule.down_replicas;
    }
    if let Some(included) = claim.included {
        verdict.included = included;
    }
    if let Some(down) = keys.parsed(DOWN_REPLICAS, annotations::parse_down_replicas) {
        verdict.down_replicas = down.1;
    }
    if claim.schedules.len() > 1 {
        verdict.notes.push(Note::Ambiguous(
            claim
                .schedules
                .iter()
                .map(|schedule| Arc::clone(&schedule.name))
                .collect(),
        ));
    }
    decide(&mut verdict, &keys, &claim, now);
    verdict
}

fn decide(verdict: &mut Verdict, keys: &Keys<'_>, claim: &Claim, now: Timestamp) {
    if let Some((on, true)) = keys.protected() {
        verdict.state = State::Up;
        verdict.decided_by = Rule::Protected(on);
        verdict.reason = keys.reason(on);
        return;
    }
    if !claim.schedules.is_empty()
        && claim
            .schedules
            .iter()
            .all(|schedule| schedule.suspend || schedule.deleting)
    {
        verdict.state = State::Up;
        verdict.decided_by = Rule::Suspended;
        return;
    }
    if let Some((on, key, until)) = by_hand(verdict, keys, claim, now) {
        let awake = key == AWAKE_UNTIL;
        verdict.state = if awake { State::Up } else { State::Down };
        verdict.decided_by = if awake { Rule::Awake(on) } else { Rule::Asleep(on) };
        verdict.reason = keys.reason(on);
        verdict.until = Some(until);
        return;
    }
    if let (Some(created), Some(grace)) = (
        keys.workload.created,
        claim.schedules.iter().map(|schedule| schedule.grace).max(),
    ) && let Ok(end) = created.checked_add(grace)
        && now < end
    {
        verdict.state = State::Up;
        verdict.decided_by = Rule::Grace;
        verdict.until = Some(end);
        return;
    }
    if let Some(why) = &claim.unavailable {
        verdict.state = State::Unknown;
        verdict.decided_by = Rule::Unavailable(Arc::clone(why));
        return;
    }
    if claim.schedules.is_empty() {
        verdict.state = State::Up;
        verdict.decided_by = Rule::OutOfScope(claim.why_none.clone());
        return;
    }
    ask_schedules(verdict, &claim.schedules, now);
}

/// Down only if every schedule says so.
fn ask_schedules(verdict: &mut Verdict, schedules: &[Arc<Schedule>], now: Timestamp) {
    let mut decisive: Option<(Present, &Arc<Schedule>)> = None;
    let mut until: Option<Timestamp> = None;
    let mut since: Option<Timestamp> = None;
    for schedule in schedules {
        let present = match schedule.present(now) {
            Ok(present) => present,
            Err(why) => {
                verdict.state = State::Unknown;
                verdict.decided_by = Rule::Unavailable(Arc::from(format!("schedule {}: {why}", schedule.name)));
                verdict.schedule = Some(Arc::clone(schedule));
                return;
            }
        };
        until = [until, present.until].into_iter().flatten().min();
        since = since.max(present.since);
        let weight = |state: State| match state {
            State::Unknown => 2,
            State::Up => 1,
            State::Down => 0,
        };
        let suspended = schedule.suspend || schedule.deleting;
        let state = if suspended { State::Up } else { present.moment.state };
        let present = Present {
            moment: crate::schedule::Moment {
                state,
                ..present.moment
            },
            ..present
        };
        if decisive
            .as_ref()
            .is_none_or(|(known, _)| weight(state) > weight(known.moment.state))
        {
            decisive = Some((present, schedule));
        }
    }
    let Some((present, schedule)) = decisive else { return };
    verdict.state = present.moment.state;
    verdict.decided_by = Rule::Schedule(present.moment.decided_by);
    verdict.reason = present.moment.reason;
    verdict.since = if schedules.len() == 1 { present.since } else { since };
    verdict.until = until;
    verdict.schedule = Some(Arc::clone(schedule));
    if verdict.state == State::Unknown {
        let why = verdict
            .reason
            .clone()
            .unwrap_or_else(|| Arc::from("the schedule does not speak of this instant"));
        verdict.decided_by = Rule::Unavailable(why);
    }
}

/// The wake or sleep by hand that holds. A workload's own counts before its namespace's; of two on one object, the wake.
fn by_hand(
    verdict: &mut Verdict,
    keys: &Keys<'_>,
    claim: &Claim,
    now: Timestamp,
) -> Option<(On, &'static str, Timestamp)> {
    let max_wake = verdict
        .schedule
        .as_ref()
        .and_then(|schedule| schedule.enforcement.max_wake);
    let sleeps = claim.included.is_some() || keys.workload.kind.by_default == ByDefault::Yes;
    for on in [On::Workload, On::Namespace] {
        for key in [AWAKE_UNTIL, ASLEEP_UNTIL] {
            // A namespace that is sent to sleep by hand takes along what sleeps anyway, no more.
            if key == ASLEEP_UNTIL && on == On::Namespace && !sleeps {
                continue;
            }
            let Some(until) = keys
                .on(on, key)
                .and_then(|text| annotations::parse_until(key, text).ok())
            else {
                continue;
            };
            let mut end = until.instant(now)?;
            if let Until::For(_) = until {
                let limit = max_wake
                    .filter(|_| key == AWAKE_UNTIL)
                    .and_then(|limit| now.checked_add(limit).ok());
                let cut = limit.is_some_and(|limit| end > limit);
                if let Some(limit) = limit.filter(|_| cut) {
                    end = limit;
                }
                verdict.notes.push(Note::Duration {
                    on,
                    key,
                    instant: end,
                    cut,
                });
            }
            if now < end {
                return Some((on, key, end));
            }
        }
    }
    None
}

/// Labels and annotations of a workload and its namespace.
struct Keys<'k> {
    workload: &'k Workload,
    namespace: &'k Namespace,
}

impl<'k> Keys<'k> {
    fn on(&self, on: On, key: &str) -> Option<&'k str> {
        match on {
            On::Workload => self.workload.annotation(key),
            On::Namespace => self.namespace.annotation(key),
        }
    }

    fn label(&self, on: On, key: &str) -> Option<&'k str> {
        match on {
            On::Workload => self.workload.label(key),
            On::Namespace => self.namespace.label(key),
        }
    }

    /// The value that counts and parses: the workload's own, else its namespace's.
    fn parsed<T>(&self, key: &str, parse: fn(&str, &str) -> Result<T, Problem>) -> Option<(On, T)> {
        [On::Workload, On::Namespace]
            .into_iter()
            .find_map(|on| Some((on, parse(key, self.on(on, key)?).ok()?)))
    }

    fn protected(&self) -> Option<(On, bool)> {
        [On::Workload, On::Namespace].into_iter().find_map(|on| {
            let text = self.on(on, PROTECTED).or_else(|| self.label(on, PROTECTED))?;
            Some((on, annotations::parse_bool(PROTECTED, text).ok()?))
        })
    }

    fn reason(&self, on: On) -> Option<Arc<str>> {
        self.on(on, REASON).map(Arc::from)
    }

    fn note_problems(&self, notes: &mut Vec<Note>) {
        for on in [On::Workload, On::Namespace] {
            for key in [PROTECTED, AWAKE_UNTIL, ASLEEP_UNTIL, DOWN_REPLICAS, STARTUP_ORDER] {
                if let Some(Err(problem)) = self.on(on, key).map(|text| annotations::check(key, text)) {
                    notes.push(Note::Ignored(on, problem));
                }
            }
        }
    }
}

/// The schedules of the highest rank that claim a workload.
#[derive(Default)]
struct Claim {
    schedules: Vec<Arc<Schedule>>,
    included: Option<Included>,
    /// A schedule that somebody meant cannot be known.
    unavailable: Option<Arc<str>>,
    /// Why none claims it although one was named.
    why_none: Option<Arc<str>>,
}

fn claim(keys: &Keys<'_>, around: &Surroundings<'_>) -> Claim {
    let mut claim = Claim::default();
    for on in [On::Workload, On::Namespace] {
        label_claims(&mut claim, keys, on, around.schedules);
        in_place_claims(&mut claim, keys, on, around.schedules);
        if !claim.schedules.is_empty() || claim.unavailable.is_some() {
            return claim;
        }
    }
    if let Some(why) = around.schedules.unavailability() {
        // A selector of a schedule that cannot be read may mean it.
        claim.unavailable = Some(Arc::clone(why));
        return claim;
    }
    for with_labels in [true, false] {
        for schedule in around.schedules.selecting() {
            let Some(selector) = &schedule.selector else { continue };
            let chosen = selector.workloads.is_some() == with_labels
                && selector
                    .workloads
                    .as_ref()
                    .is_none_or(|wanted| wanted.matches(keys.workload.labels.as_ref()))
                && selector
                    .namespaces
                    .as_ref()
                    .is_none_or(|wanted| wanted.matches(keys.namespace.labels.as_ref()));
            if chosen {
                add(&mut claim, schedule, keys.workload);
            }
        }
        if !claim.schedules.is_empty() {
            return claim;
        }
    }
    claim
}

fn label_claims(claim: &mut Claim, keys: &Keys<'_>, on: On, schedules: &Schedules) {
    let Some(name) = keys.label(on, SCHEDULE).filter(|name| !name.is_empty()) else {
        return;
    };
    match schedules.get(name) {
        Some(schedule) => {
            let in_scope = match schedule.scope {
                Scope::Any => true,
                Scope::Namespace => on == On::Namespace,
                Scope::Workload => on == On::Workload,
            };
            if in_scope {
                add(claim, schedule, keys.workload);
            }
        }
        None => match schedules.unavailability() {
            Some(why) => claim.unavailable = Some(Arc::clone(why)),
            None => {
                claim.why_none = Some(Arc::from(format!(
                    "the label on {on} names schedule {name}, which does not exist"
                )));
            }
        },
    }
}

fn in_place_claims(claim: &mut Claim, keys: &Keys<'_>, on: On, schedules: &Schedules) {
    let (uptime, downtime) = (keys.on(on, UPTIME), keys.on(on, DOWNTIME));
    if uptime.is_none() && downtime.is_none() {
        return;
    }
    let place = match on {
        On::Workload => format!("{} {}", keys.workload.kind.kubectl_name(), keys.workload.name),
        On::Namespace => format!("namespace {}", keys.namespace.name),
    };
    let zone = keys.on(on, TIME_ZONE).or_else(|| keys.on(On::Namespace, TIME_ZONE));
    let schedule = schedules.in_place(&place, uptime, downtime, zone);
    add(claim, &schedule, keys.workload);
}

fn add(claim: &mut Claim, schedule: &Arc<Schedule>, workload: &Workload) {
    if let Some(included) = schedule.includes(&workload.kind) {
        claim.included = Some(included);
        claim.schedules.push(Arc::clone(schedule));
    } else {
        let kind = &workload.kind.kind;
        claim.why_none = Some(Arc::from(format!(
            "schedule {} does not include the kind {kind}",
            schedule.name
        )));
    }
}

/// Why a workload is never touched.
fn never_touched(workload: &Workload, around: &Surroundings<'_>) -> Option<Arc<str>> {
    let namespace = workload.namespace.as_ref();
    if NEVER_TOUCHED.contains(&namespace) {
        return Some(Arc::from(format!("namespace {namespace} belongs to the cluster")));
    }
    if namespace == around.own_namespace {
        return Some(Arc::from(format!("namespace {namespace} is our own")));
    }
    if let Some(owner) = workload
        .owners
        .iter()
        .find(|owner| owner.controller && around.kinds.by_kind(&owner.group, &owner.kind).is_some())
    {
        return Some(Arc::from(format!("it belongs to {} {}", owner.kind, owner.name)));
    }
    for hook in ["helm.sh/hook", "argocd.argoproj.io/hook"] {
        if workload.annotation(hook).is_some() {
            return Some(Arc::from(format!("it is a hook ({hook})")));
        }
    }
    around
        .scaled_by
        .map(|scaler| Arc::from(format!("its ScaledObject {scaler} is put to sleep instead")))
}

/// The name of the ScaledObject among `scalers` that scales the workload.
pub fn scaled_by<'s>(
    workload: &Workload,
    scalers: impl IntoIterator<Item = (&'s str, &'s ScaleTarget)>,
) -> Option<&'s str> {
    scalers
        .into_iter()
        .find(|(_, target)| target.names(workload))
        .map(|(name, _)| name)
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
