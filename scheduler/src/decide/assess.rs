//! One workload: its verdict, what follows from it, and until when both hold. (Client not required.)

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::annotations::{STARTUP_ORDER, parse_order};
use shared::kinds::Readiness;
use shared::patch::{self, Edits, Preconditions};
use shared::policy::Schedule;
use shared::record::{self, Record};
use shared::schedule::State;
use shared::verdict::{self, On, Rule, Verdict, verdict};
use shared::workload::{ObjectRef, Workload};

use super::action::{Action, Note, Purpose, Request, Skip, Target};
use super::beside::{Unit, Want};
use super::memory::{Memory, later};
use super::snapshot::Snapshot;
use super::workload::{Known, RAISED_REPEATEDLY, Step, decide_workload, moved_by_autoscaler, skips_missed_runs};
use crate::hpa::{Autoscalers, HPA_CONTROLLER};

/// How old a CronJob's last run may be so that un-suspending it starts none that was missed before.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// Where a workload is in the order of waking: its namespace's `startup-order`, then its own. Lower wakes first.
pub type Order = (i32, i32);

/// How a workload counts in the status of its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It is up.
    Up,
    /// It is asleep, or was down already.
    Down,
    /// It is never touched.
    Protected,
    /// It could not be brought where it should be.
    Failing,
}

/// What follows for one workload.
// Independent facts, not states of one machine.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone)]
pub struct Assessment {
    /// Its UID.
    pub uid: Arc<str>,
    /// The version that was looked at.
    pub version: Arc<str>,
    /// What should be.
    pub state: State,
    /// The rule that says so.
    pub decided_by: Rule,
    /// The schedule that claims it.
    pub schedule: Option<Arc<Schedule>>,
    /// It carries our record and is where we put it.
    pub asleep: bool,
    /// What is to be done.
    pub step: Step,
    /// Its wave.
    pub order: Order,
    /// Whether its restore keeps to its schedule's pace.
    pub paced: bool,
    /// Restored and not yet ready.
    pub waking: bool,
    /// A CronJob whose missed runs must be skipped before it is restored.
    pub skip_missed_runs: bool,
    /// What keeps it from where it should be.
    pub trouble: Option<Skip>,
    /// How it counts.
    pub class: Class,
    /// Replicas kept where it is asleep or is to be put down.
    pub held: Option<u64>,
    /// What it was is written down on it for as long as it is kept so.
    pub recorded: bool,
    /// Why its restore may not go yet.
    pub opening: Option<Skip>,
    /// What stands beside it.
    pub units: Vec<Unit>,
    /// What is worth telling on the object.
    pub notes: Vec<Note>,
    /// When all this may change by the clock alone.
    pub again: Option<Timestamp>,
}

impl Assessment {
    /// Why it wants a write, if it does.
    pub fn purpose(&self) -> Option<Purpose> {
        match &self.step {
            Step::Write { purpose, .. } => Some(*purpose),
            Step::Nothing | Step::Skip(_) => None,
        }
    }
}

/// Looks at one workload. The memory takes in what is seen.
pub fn assess(snapshot: &Snapshot, memory: &mut Memory, workload: &Workload, now: Timestamp) -> Assessment {
    let object = workload.object_ref();
    let first_sight = memory.observe(workload);
    let mut said = verdict(workload, &snapshot.surroundings(workload), now);
    force(snapshot, &mut said);
    let uid = &workload.uid;
    let timeout = said.schedule.as_ref().map(|schedule| schedule.startup.timeout);
    if first_sight {
        may_be_waking(memory, workload, &said, now);
    }
    let mut again = said.until.filter(|end| !is_moving(&said, *end));
    let mut sooner = |at: Option<Timestamp>| again = [again, at].into_iter().flatten().min();
    if said.state != State::Up {
        memory.rests(uid);
    }
    if let Some(since) = memory.waking(uid) {
        match timeout.map(|timeout| later(since, timeout)) {
            Some(end) if now < end => sooner(Some(end)),
            _ => memory.give_up(uid),
        }
    }
    let autoscalers = snapshot.autoscalers(&object);
    let saved = autoscalers.as_ref().and_then(Autoscalers::saved);
    let known = Known {
        record: memory.record(uid),
        raised: memory.raised(uid),
        autoscaler_range: autoscalers.as_ref().and_then(Autoscalers::range),
        autoscaler: autoscalers.as_ref().map_or(HPA_CONTROLLER, Autoscalers::controller),
        autoscaler_held: autoscalers.as_ref().is_some_and(Autoscalers::is_held),
        autoscaler_record: saved.as_ref(),
        default_replicas: snapshot.default_replicas,
        rolling: memory.rolling(uid),
    };
    let mut step = decide_workload(workload, &said, &known, now);
    let company = ask_beside(snapshot, memory, workload, &said, &known, &mut step, now);
    let asleep = company.asleep;
    may_be_whole(memory, &object, &said, &company.units);
    let rolls = matches!(&step, Step::Skip(skip) if skip.reason == "RolloutInProgress");
    memory.rolls(uid, rolls, now);
    let mut trouble = None;
    if let Step::Skip(skip) = &step {
        sooner(skip.again);
        trouble = Some(skip.clone()).filter(|skip| skip.tell);
    }
    if matches!(step, Step::Nothing) {
        memory.settled(&object);
    }
    if let Some(failure) = memory.failure(&object).filter(|failure| failure.is_worth_telling()) {
        trouble = Some(Skip {
            reason: failure.reason,
            message: failure.message.to_string(),
            tell: true,
            again: Some(failure.again),
        });
    } else if memory.is_late(uid) && said.state == State::Up {
        trouble = Some(late(workload));
    }
    if matches!(step, Step::Write { .. }) {
        sooner(pause_matters_until(memory, &object, timeout, now));
    }
    let class = match &said.decided_by {
        Rule::Protected(_) => Class::Protected,
        _ if trouble.is_some() || company.is_incomplete() => Class::Failing,
        _ if asleep || (said.state == State::Down && record::plan(workload, said.down_replicas, None).is_none()) => {
            Class::Down
        }
        _ => Class::Up,
    };
    // What is wrong beside it does not make it fail: it sleeps, or is up.
    let silent = || autoscalers.as_ref()?.silent(now).filter(|_| said.state == State::Up);
    let trouble = trouble.or(company.trouble).or_else(silent);
    sooner(company.opening.as_ref().and_then(|skip| skip.again));
    Assessment {
        uid: Arc::clone(uid),
        version: Arc::clone(&workload.resource_version),
        state: said.state,
        order: order(snapshot, workload),
        paced: !matches!(
            said.decided_by,
            Rule::Awake(On::Workload) | Rule::Protected(On::Workload) | Rule::Grace | Rule::OutOfScope(_)
        ),
        waking: memory.waking(uid).is_some(),
        held: company.held,
        recorded: company.recorded,
        opening: company.opening,
        units: company.units,
        skip_missed_runs: skips_missed_runs(workload, &said),
        asleep,
        trouble,
        class,
        notes: notes(&said),
        again: again.map(|at| {
            if at <= now {
                later(now, SignedDuration::from_secs(1))
            } else {
                at
            }
        }),
        decided_by: said.decided_by,
        schedule: said.schedule,
        step,
    }
}

/// Its HPA was created again by day, or it is none of our business any more: what we deleted is no loss now.
fn may_be_whole(memory: &mut Memory, object: &ObjectRef, said: &Verdict, units: &[Unit]) {
    let scaled = units.iter().any(|unit| matches!(unit, Unit::Autoscalers(_)));
    if (said.state == State::Up && scaled) || (said.state != State::Unknown && said.schedule.is_none()) {
        memory.bereft.remove(object);
    }
}

/// When a write that pauses may go, or when later waves go on without it, whichever comes first.
fn pause_matters_until(
    memory: &Memory,
    object: &ObjectRef,
    timeout: Option<SignedDuration>,
    now: Timestamp,
) -> Option<Timestamp> {
    let failing = memory.failure(object).zip(timeout);
    let stuck = failing.map(|(failure, timeout)| later(failure.since, timeout));
    let stuck = stuck.filter(|at| now < *at);
    [memory.paused(object, now), stuck].into_iter().flatten().min()
}

/// Whether an end moves with the clock, since it is that of a duration which nobody has written as an instant yet. It never comes:
/// the write of the instant is what makes us look again.
fn is_moving(said: &Verdict, end: Timestamp) -> bool {
    said.notes
        .iter()
        .any(|note| matches!(note, verdict::Note::Duration { instant, .. } if *instant == end))
}

/// Restored by a former leader a moment ago, for all we know: the waves after it wait for it, too.
fn may_be_waking(memory: &mut Memory, workload: &Workload, said: &Verdict, now: Timestamp) {
    let timeout = said.schedule.as_ref().map(|schedule| schedule.startup.timeout);
    if said.state == State::Up
        && !workload.ready
        && let (Some(timeout), Some(since), Rule::Schedule(_)) = (timeout, said.since, &said.decided_by)
        && now < later(since, timeout)
        && workload.created.is_some_and(|created| created < since)
    {
        memory.wakes(&workload.uid, since);
    }
}

/// What stands beside a workload, and what it says.
struct Beside {
    units: Vec<Unit>,
    asleep: bool,
    held: Option<u64>,
    recorded: bool,
    opening: Option<Skip>,
    trouble: Option<Skip>,
}

impl Beside {
    /// It is up, and not all that it was.
    fn is_incomplete(&self) -> bool {
        self.trouble.is_some() && self.held.is_none()
    }
}

/// Asks what stands beside a workload before it is put down; where that is not ready, the step becomes a wait.
fn ask_beside(
    snapshot: &Snapshot,
    memory: &Memory,
    workload: &Workload,
    said: &Verdict,
    known: &Known<'_>,
    step: &mut Step,
    now: Timestamp,
) -> Beside {
    let units = snapshot.units_of(workload);
    let record = Record::read(workload).filter(|record| !record.foreign);
    let asleep = record.as_ref().is_some_and(|record| record.asleep(workload));
    // What was raised too often is put down again later: what stands beside it stays as it is.
    let down_later = said.state == State::Down && matches!(step, Step::Skip(skip) if skip.reason == RAISED_REPEATEDLY);
    // Its HPA went below what we hold, as it may.
    let lowered = said.state == State::Down
        && *step == Step::Nothing
        && record
            .as_ref()
            .is_some_and(|record| moved_by_autoscaler(workload, record, known));
    let mut recorded = asleep || down_later || lowered;
    let lost = record.is_none();
    let mut held = record.filter(|_| recorded).map(|record| record.held_replicas);
    let present = workload.knobs.first().and_then(|reading| reading.value.as_ref());
    let present = Some(present.and_then(record::count).unwrap_or(0));
    let mut trouble = None;
    let mut opening = None;
    let want = |replicas: u64, recorded: bool| Want::Down {
        replicas,
        recorded,
        now,
        schedule: said.schedule.clone(),
    };
    match &*step {
        Step::Write {
            purpose: purpose @ (Purpose::Down | Purpose::DownAgain | Purpose::Adjust),
            edits,
            ..
        } => {
            let wanted = edits.knobs.get(&0).and_then(|value| record::count(value.as_ref()?));
            // A record that is there already, but of an earlier window, is replaced by this write.
            recorded = *purpose != Purpose::Down;
            held = Some(wanted.unwrap_or(0));
            let (closed, wrong) = snapshot.gate(&units, &want(wanted.unwrap_or(0), recorded), memory, now);
            trouble = wrong;
            if let Some(skip) = closed {
                *step = Step::Skip(skip);
            }
        }
        // It sleeps, and its record is on its way to it.
        Step::Write {
            purpose: Purpose::PutBack,
            ..
        } if lost => {
            held = present;
            // A lost record is known from memory, or from what its HPA keeps: that stays until it is written.
            recorded = known.autoscaler_record.is_none();
        }
        Step::Write {
            purpose: Purpose::Restore,
            ..
        } => {
            held = held.or(present);
            let want = Want::Opening(said.schedule.clone());
            let look = |unit| snapshot.look(unit, &want, memory, now).closed;
            opening = units.iter().find_map(look);
            trouble = opening.clone().filter(|skip| skip.tell);
        }
        _ => {
            if let (State::Down, Some(replicas)) = (said.state, held) {
                let look = |unit| snapshot.look(unit, &want(replicas, recorded), memory, now);
                trouble = units.iter().find_map(|unit| look(unit).trouble);
            }
        }
    }
    let object = workload.object_ref();
    let scaled = units.iter().any(|unit| matches!(unit, Unit::Autoscalers(_)));
    if said.state == State::Up && !asleep && !scaled && memory.bereft.contains(&object) {
        trouble = Some(Skip {
            reason: "WaitingForGitOps",
            message: "restored, but its HPA was deleted (hpa mode DeleteOnly) and nobody has created it again"
                .to_owned(),
            tell: true,
            again: None,
        });
    }
    Beside {
        units,
        asleep,
        held,
        recorded,
        opening,
        trouble,
    }
}

/// In one-shot mode the schedule's workloads are brought to one state, and nothing else is touched.
fn force(snapshot: &Snapshot, said: &mut Verdict) {
    if snapshot.leaving {
        if !matches!(said.decided_by, Rule::NeverTouched(_) | Rule::Terminating) {
            said.state = State::Up;
            said.since = None;
            said.until = None;
        }
        return;
    }
    let Some(forced) = &snapshot.forced else { return };
    if said
        .schedule
        .as_ref()
        .is_none_or(|schedule| schedule.name != forced.schedule)
    {
        said.state = State::Unknown;
        said.until = None;
        return;
    }
    if matches!(said.decided_by, Rule::Schedule(_)) {
        said.state = forced.state;
        // Each pass is a window of its own: what somebody set since the last one is what counts. Records tell seconds.
        said.since = Timestamp::from_second(forced.since.as_second()).ok();
        said.until = None;
    }
}

fn late(workload: &Workload) -> Skip {
    if workload.kind.readiness == Readiness::NotPaused {
        return Skip {
            reason: "RestoreIncomplete",
            message: format!(
                "{} was given back, but its operator still says Paused: see that operator's log",
                workload.object_ref()
            ),
            tell: true,
            again: None,
        };
    }
    let message = match &workload.replica_failure {
        Some(why) => format!("restored, but its pods cannot be created: {why}"),
        None => "restored, but not ready within the startup timeout; the waves after it went on".to_owned(),
    };
    Skip {
        reason: if workload.replica_failure.is_some() {
            "ReplicaFailure"
        } else {
            "NotReadyInTime"
        },
        message,
        tell: true,
        again: None,
    }
}

fn order(snapshot: &Snapshot, workload: &Workload) -> Order {
    let parsed = |text: Option<&str>| text.and_then(|text| parse_order(STARTUP_ORDER, text).ok()).unwrap_or(0);
    let namespace = snapshot.namespace(&workload.namespace);
    (
        parsed(namespace.and_then(|namespace| namespace.annotation(STARTUP_ORDER))),
        parsed(workload.annotation(STARTUP_ORDER)),
    )
}

/// What the verdict has to tell on the object itself. What is wrong on a namespace is told there, once.
fn notes(said: &Verdict) -> Vec<Note> {
    said.notes
        .iter()
        .filter_map(|note| match note {
            verdict::Note::Ignored(On::Workload, problem) => Some(Note {
                reason: "ValueIgnored",
                message: problem.to_string(),
                warning: true,
            }),
            verdict::Note::Ambiguous(names) => Some(Note {
                reason: "Ambiguous",
                message: format!(
                    "several schedules claim it with equal rank ({}); it is down only while all of them say so",
                    names.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")
                ),
                warning: true,
            }),
            verdict::Note::Duration {
                on: On::Workload,
                key,
                instant,
                cut: true,
            } => Some(Note {
                reason: "WakeCut",
                message: format!("{key} was longer than the schedule's maxWake allows; it ends at {instant}"),
                warning: true,
            }),
            verdict::Note::Ignored(On::Namespace, _) | verdict::Note::Duration { .. } => None,
        })
        .collect()
}

/// The write that a step asks for, as of `now`. `None` if it asks for none.
pub fn action(workload: &Workload, assessment: &Assessment, now: Timestamp) -> Option<Action> {
    let Step::Write { purpose, edits, note } = &assessment.step else {
        return None;
    };
    let missed = *purpose == Purpose::Restore
        && assessment.skip_missed_runs
        && wakes(workload, edits)
        && workload.last_schedule.is_none_or(|at| later(at, FRESH) < now);
    let (purpose, body, subresource, event) = if missed {
        let body = patch::skip_missed_runs(workload, now);
        (Purpose::SkipMissedRuns, body, Some("status"), None)
    } else {
        (
            *purpose,
            edits.patch(workload, Preconditions::State),
            None,
            note.clone(),
        )
    };
    Some(Action {
        target: target(workload),
        request: Request::Patch {
            body,
            subresource,
            dry_run: false,
        },
        purpose,
        schedule: assessment.schedule.as_ref().map(|schedule| Arc::clone(&schedule.name)),
        event,
        disown: matches!(
            purpose,
            Purpose::Down | Purpose::DownAgain | Purpose::Restore | Purpose::Adjust
        ),
    })
}

/// Whether these edits take a flag off.
fn wakes(workload: &Workload, edits: &Edits) -> bool {
    edits.knobs.iter().any(|(index, value)| {
        let present = workload.knobs.get(*index).and_then(|reading| reading.value.as_ref());
        present.and_then(serde_json::Value::as_bool) == Some(true)
            && value.as_ref().and_then(serde_json::Value::as_bool) != Some(true)
    })
}

/// A workload as the target of a write.
pub fn target(workload: &Workload) -> Target {
    Target {
        object: workload.object_ref(),
        version: Arc::from(workload.kind.version.as_ref()),
        plural: Arc::from(workload.kind.plural.as_ref()),
        uid: Arc::clone(&workload.uid),
    }
}

/// The key of a namespace among objects.
pub fn namespace_ref(name: &Arc<str>) -> ObjectRef {
    ObjectRef {
        group: Arc::from(""),
        kind: Arc::from("Namespace"),
        namespace: Arc::from(""),
        name: Arc::clone(name),
    }
}
