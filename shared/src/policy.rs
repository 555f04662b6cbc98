//! What a schedule asks for, ready for decisions: the parsed form of an `OffHoursSchedule`, of the settings and of the
//! annotations in place, all alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::annotations::DownReplicas;
use crate::api::{
    self, Argo, CalendarTexts, CatchUp, EnforcementMode, Flux, HpaMode, KindFilter, OffHoursSchedule,
    OffHoursScheduleSpec, ScheduleSelector, Subjects, UnfinishedRollouts,
};
use crate::kinds::{ByDefault, Kind};
use crate::schedule::{Moment, State, Timeline};
use crate::workload::Keys;

/// Where a schedule was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// An `OffHoursSchedule` in the cluster.
    Resource,
    /// The settings: file, flags or environment.
    Settings,
    /// Annotations on a workload or namespace.
    InPlace,
}

/// Which labels bind workloads to a schedule of the settings (K8s-OffHours' `SCHEDULE_SCOPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// The label on namespaces and on workloads.
    #[default]
    Any,
    /// The label on namespaces only.
    Namespace,
    /// The label on workloads only.
    Workload,
}

/// How firmly what is down is held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Enforcement {
    /// What happens to a request that would wake.
    pub mode: EnforcementMode,
    /// Who passes.
    pub exempt: Subjects,
    /// Who gets `Rewrite` under `Deny`; `None`: the product's list.
    pub rewrite_for: Option<Subjects>,
    /// Whether wake, protection and label changes need the verb `override`.
    pub guard_overrides: bool,
    /// The longest wake by hand.
    pub max_wake: Option<SignedDuration>,
}

/// How workloads are woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Startup {
    /// Restored and not yet ready at a time, at most.
    pub max_concurrent: Option<u32>,
    /// Restored in a minute, at most.
    pub per_minute: Option<u32>,
    /// Whether a wave waits for the one before it.
    pub wait_ready: bool,
    /// How long it waits.
    pub timeout: SignedDuration,
}

impl Default for Startup {
    fn default() -> Self {
        Self {
            max_concurrent: None,
            per_minute: None,
            wait_ready: true,
            timeout: SignedDuration::from_mins(5),
        }
    }
}

/// One schedule.
#[derive(Debug)]
pub struct Schedule {
    /// Its name; for one in place, words that say where it is.
    pub name: Arc<str>,
    /// Where it was written.
    pub origin: Origin,
    /// UID and resource version of the resource, for conditions and references; empty for other origins.
    pub uid: Arc<str>,
    /// `metadata.generation` of the resource.
    pub generation: i64,
    /// When things are up and down; `Err`: why nobody knows (an invalid spec). Nothing is written and nothing held then.
    pub timeline: Result<Timeline, Arc<str>>,
    /// Everything up, nothing held.
    pub suspend: bool,
    /// It is being deleted: what sleeps is restored first.
    pub deleting: bool,
    /// What the webhook does.
    pub enforcement: Enforcement,
    /// Replicas kept while down.
    pub down_replicas: DownReplicas,
    /// How long new workloads are left alone.
    pub grace: SignedDuration,
    /// Only these kinds; `None`: those that sleep by default.
    pub kinds: Option<Vec<KindFilter>>,
    /// Chooses workloads without a label.
    pub selector: Option<Selector>,
    /// Which labels bind to it.
    pub scope: Scope,
    /// What happens to HPAs.
    pub hpa: HpaMode,
    /// What happens to Argo CD Applications.
    pub argo: Option<Argo>,
    /// What happens to Flux objects.
    pub flux: Option<Flux>,
    /// How workloads are woken.
    pub startup: Startup,
    /// What happens to unfinished rollouts.
    pub unfinished_rollouts: UnfinishedRollouts,
    /// What happens to missed runs of CronJobs.
    pub catch_up: CatchUp,
    /// The interval found last. A search costs more than everything else of a verdict, and most verdicts ask for the same one.
    interval: Mutex<Option<Interval>>,
}

/// How long one state holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    state: State,
    asked: Timestamp,
    /// When it began, if that is known.
    pub since: Option<Timestamp>,
    /// When it ends; `None`: not before the end of time.
    pub until: Option<Timestamp>,
}

/// What a schedule says at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// State, rule and reason.
    pub moment: Moment,
    /// When the state began.
    pub since: Option<Timestamp>,
    /// When it ends.
    pub until: Option<Timestamp>,
}

impl Schedule {
    /// A schedule with this timeline and defaults for everything else.
    pub fn new(name: impl Into<Arc<str>>, origin: Origin, timeline: Result<Timeline, Arc<str>>) -> Self {
        Self {
            name: name.into(),
            origin,
            uid: Arc::from(""),
            generation: 0,
            timeline,
            suspend: false,
            deleting: false,
            enforcement: Enforcement::default(),
            down_replicas: DownReplicas::default(),
            grace: SignedDuration::ZERO,
            kinds: None,
            selector: None,
            scope: Scope::Any,
            hpa: HpaMode::default(),
            argo: None,
            flux: None,
            startup: Startup::default(),
            unfinished_rollouts: UnfinishedRollouts::default(),
            catch_up: CatchUp::default(),
            interval: Mutex::new(None),
        }
    }

    /// Reads a custom resource. A spec that is wrong makes a schedule that nobody knows the state of, which is told, and holds
    /// nothing.
    pub fn from_resource(resource: &OffHoursSchedule, calendars: &CalendarTexts) -> Self {
        let name = resource.metadata.name.as_deref().unwrap_or_default();
        let mut schedule = Self::from_spec(name, Origin::Resource, &resource.spec, calendars);
        schedule.uid = Arc::from(resource.metadata.uid.as_deref().unwrap_or_default());
        schedule.generation = resource.metadata.generation.unwrap_or_default();
        schedule.deleting = resource.metadata.deletion_timestamp.is_some();
        schedule
    }

    /// Reads a spec, of a custom resource or of the settings.
    pub fn from_spec(name: &str, origin: Origin, spec: &OffHoursScheduleSpec, calendars: &CalendarTexts) -> Self {
        let told = |problems: &[String]| Arc::from(problems.join("; ").as_str());
        let validated = match api::validate_with(spec, calendars) {
            Ok(validated) => validated,
            Err(problems) => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                let mut invalid = Self::new(name, origin, Err(told(&problems)));
                // Which workloads it means can still be told, so that they are left alone instead of counted as out of scope.
                invalid.kinds.clone_from(&spec.kinds);
                invalid.selector = spec
                    .selector
                    .as_ref()
                    .and_then(|selector| Selector::compile(selector).ok());
                return invalid;
            }
        };
        let mut schedule = Self::new(name, origin, Ok(validated.timeline));
        match spec.selector.as_ref().map(Selector::compile).transpose() {
            Ok(selector) => schedule.selector = selector,
            Err(problem) => schedule.timeline = Err(told(&[format!("spec.selector: {problem}")])),
        }
        schedule.suspend = spec.suspend;
        if let Some(enforcement) = &spec.enforcement {
            schedule.enforcement = Enforcement {
                mode: enforcement.mode,
                exempt: enforcement.exempt.clone().unwrap_or_default(),
                rewrite_for: enforcement.rewrite_for.clone(),
                guard_overrides: enforcement.guard_overrides,
                max_wake: validated.max_wake.and_then(|limit| limit.try_into().ok()),
            };
        }
        schedule.down_replicas = match &spec.down_replicas {
            None => DownReplicas::default(),
            Some(IntOrString::Int(count)) => DownReplicas::Count(u32::try_from(*count).unwrap_or(0)),
            Some(IntOrString::String(text)) => {
                crate::annotations::parse_down_replicas("spec.downReplicas", text).unwrap_or_default()
            }
        };
        schedule.grace = validated.grace_period.try_into().unwrap_or(SignedDuration::ZERO);
        schedule.kinds.clone_from(&spec.kinds);
        schedule.hpa = spec.hpa.as_ref().map(|hpa| hpa.mode).unwrap_or_default();
        schedule.argo.clone_from(&spec.argo);
        schedule.flux.clone_from(&spec.flux);
        let startup = spec.startup.as_ref();
        schedule.startup = Startup {
            max_concurrent: startup.and_then(|startup| startup.max_concurrent),
            per_minute: startup.and_then(|startup| startup.per_minute),
            wait_ready: startup.and_then(|startup| startup.wait_ready).unwrap_or(true),
            timeout: validated
                .startup_timeout
                .try_into()
                .unwrap_or_else(|_| Startup::default().timeout),
        };
        schedule.unfinished_rollouts = spec.unfinished_rollouts.unwrap_or_default();
        schedule.catch_up = spec.catch_up.unwrap_or_default();
        schedule
    }

    /// What it says at `now`. `Err`: why nobody knows.
    pub fn present(&self, now: Timestamp) -> Result<Present, Arc<str>> {
        let timeline = self.timeline.as_ref().map_err(Arc::clone)?;
        let moment = timeline.state_at(now);
        let known = *self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |interval: &Interval| {
            interval.state == moment.state
                && interval.since.unwrap_or(interval.asked) <= now
                && interval.until.is_none_or(|until| now < until)
        };
        let interval = if let Some(interval) = known.filter(holds) {
            interval
        } else {
            let until = timeline
                .next_transition(now)
                .map_err(|exhausted| Arc::from(exhausted.to_string()))?;
            let interval = Interval {
                state: moment.state,
                asked: now,
                since: timeline.since(now),
                until: until.map(|transition| transition.at),
            };
            *self.interval.lock().unwrap_or_else(PoisonError::into_inner) = Some(interval);
            interval
        };
        Ok(Present {
            moment,
            since: interval.since,
            until: interval.until,
        })
    }

    /// The filter that lets workloads of this kind in. `None`: it does not concern them.
    pub fn includes(&self, kind: &Kind) -> Option<Included> {
        match &self.kinds {
            None => (kind.by_default == ByDefault::Yes).then_some(Included { running: false }),
            Some(filters) => filters
                .iter()
                .find(|filter| {
                    kind.is_named(&filter.kind) && filter.group.as_ref().is_none_or(|group| *group == kind.group)
                })
                .map(|filter| Included {
                    running: filter.running,
                }),
        }
    }

    /// `America/Sao_Paulo`, or `UTC` where it has no timeline.
    pub fn zone_name(&self) -> String {
        self.timeline
            .as_ref()
            .map_or_else(|_| "UTC".to_owned(), |timeline| timeline.zone().name().to_owned())
    }
}

/// How a kind is included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Included {
    /// Also Jobs that run.
    pub running: bool,
}

/// Label selectors, compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// Namespaces; `None`: every one.
    pub namespaces: Option<Requirements>,
    /// Workloads; `None`: every one.
    pub workloads: Option<Requirements>,
}

impl Selector {
    /// Compiles both. `Err`: what is wrong. A selector that is empty counts as absent.
    pub fn compile(selector: &ScheduleSelector) -> Result<Self, String> {
        let part = |part: &Option<LabelSelector>| {
            part.as_ref()
                .map(Requirements::compile)
                .transpose()
                .map(|compiled| compiled.filter(|requirements| !requirements.0.is_empty()))
        };
        Ok(Self {
            namespaces: part(&selector.namespace_selector)?,
            workloads: part(&selector.label_selector)?,
        })
    }
}

/// A label selector, compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl Requirements {
    /// Compiles a selector. `Err`: the operator that Kubernetes does not know.
    pub fn compile(selector: &LabelSelector) -> Result<Self, String> {
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In(BTreeSet::from([value.clone()])),
        });
        let mut requirements: Vec<_> = equal.collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values = || expression.values.iter().flatten().cloned().collect();
            let operator = match expression.operator.as_str() {
                "In" => Operator::In(values()),
                "NotIn" => Operator::NotIn(values()),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                unknown => {
                    return Err(format!(
                        "{unknown:?} is no operator; use In, NotIn, Exists or DoesNotExist"
                    ));
                }
            };
            requirements.push(Requirement {
                key: expression.key.clone(),
                operator,
            });
        }
        Ok(Self(requirements))
    }

    /// Whether labels satisfy all requirements.
    pub fn matches(&self, labels: Option<&Keys>) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = labels.and_then(|labels| labels.get(key.as_str())).map(AsRef::as_ref);
            match operator {
                Operator::In(values) => value.is_some_and(|value: &str| values.contains(value)),
                Operator::NotIn(values) => !value.is_some_and(|value: &str| values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// All schedules that are known, or why they are not.
#[derive(Debug, Default)]
pub struct Schedules {
    by_name: BTreeMap<Arc<str>, Arc<Schedule>>,
    selecting: Vec<Arc<Schedule>>,
    unavailable: Option<Arc<str>>,
    in_place: Mutex<BTreeMap<InPlaceText, Arc<Schedule>>>,
}

/// The annotations that make a schedule in place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct InPlaceText {
    place: String,
    uptime: Option<String>,
    downtime: Option<String>,
    zone: Option<String>,
}

/// Compiled schedules in place that are remembered; more are compiled each time they are asked for.
const IN_PLACE_MEMORY: usize = 10_000;

impl Schedules {
    /// These schedules. Of two with one name, the first counts: custom resources come before settings.
    pub fn new(schedules: impl IntoIterator<Item = Arc<Schedule>>) -> Self {
        let mut all = Self::default();
        for schedule in schedules {
            if all.by_name.contains_key(&schedule.name) {
                continue;
            }
            if schedule.selector.is_some() {
                all.selecting.push(Arc::clone(&schedule));
            }
            all.by_name.insert(Arc::clone(&schedule.name), schedule);
        }
        all
    }

    /// Custom resources cannot be read, for this reason (their CRD is absent, the watch fails or is forbidden): what follows a
    /// schedule by name or selector is Unknown, unless the name is one of `schedules` (of the settings).
    #[must_use]
    pub fn unavailable(mut self, why: impl Into<Arc<str>>) -> Self {
        self.unavailable = Some(why.into());
        self
    }

    /// Why custom resources cannot be read.
    pub fn unavailability(&self) -> Option<&Arc<str>> {
        self.unavailable.as_ref()
    }

    /// A schedule by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Schedule>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Schedule>> {
        self.by_name.values()
    }

    /// Those with a selector.
    pub fn selecting(&self) -> &[Arc<Schedule>] {
        &self.selecting
    }

    /// The schedule that annotations in place make. `place` says whose they are.
    pub fn in_place(
        &self,
        place: &str,
        uptime: Option<&str>,
        downtime: Option<&str>,
        zone: Option<&str>,
    ) -> Arc<Schedule> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let text = InPlaceText {
            place: place.to_owned(),
            uptime: own(uptime),
            downtime: own(downtime),
            zone: own(zone),
        };
        let mut memory = self.in_place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schedule) = memory.get(&text) {
            return Arc::clone(schedule);
        }
        let timeline = crate::schedule::from_annotations(uptime, downtime, zone)
            .map(|(timeline, _warnings)| timeline)
            .map_err(|problems| {
                Arc::from(
                    problems
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("; ")
                        .as_str(),
                )
            });
        let schedule = Arc::new(Schedule::new(format!("in place on {place}"), Origin::InPlace, timeline));
        if memory.len() < IN_PLACE_MEMORY {
            memory.insert(text, Arc::clone(&schedule));
        }
        schedule
    }
}
