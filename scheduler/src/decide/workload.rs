//! What is to be done with one workload: pure, from its facts and its verdict. (Client not required.)

use jiff::{SignedDuration, Timestamp};
use shared::annotations::AWAKE_UNTIL;
use shared::api::{CatchUp, EnforcementMode, UnfinishedRollouts};
use shared::kinds::Form;
use shared::patch::{self, Edits};
use shared::record::{self, Plan, Record};
use shared::schedule::State;
use shared::verdict::{On, Verdict};
use shared::workload::{FIELD_MANAGER, Rollout, Workload};

use super::action::{Note, Purpose, Skip};
use super::memory::later;
use crate::keda;

/// How long an unfinished rollout is waited for where its controller names no deadline.
const ROLLOUT_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// How long a controller may take to notice a new rollout.
const ROLLOUT_NEWS: SignedDuration = SignedDuration::from_mins(1);

/// How often somebody may raise a held workload in [`RAISE_WINDOW`] before it is put down only once in that time.
const RAISE_LIMIT: usize = 2;
/// Reason of the wait after that.
pub const RAISED_REPEATEDLY: &str = "RaisedRepeatedly";
/// See [`RAISE_LIMIT`].
pub const RAISE_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// Who raises a workload within this time after it was put down with a delay still does so again and again.
const RAISE_SLACK: SignedDuration = SignedDuration::from_mins(1);

/// What is known of a workload beside its present facts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'k> {
    /// The last record that was seen on it, by its UID.
    pub record: Option<&'k Record>,
    /// When it was last put down again because somebody had raised it, oldest first.
    pub raised: &'k [Timestamp],
    /// `[minReplicas, maxReplicas]` by day of the HPA that scales it.
    pub autoscaler_range: Option<(u64, u64)>,
    /// The field manager of its controller, which sets the counts of what HPAs scale; nobody else of that name does.
    pub autoscaler: &'k str,
    /// That HPA is held by us.
    pub autoscaler_held: bool,
    /// What that HPA keeps of it until its own record is there.
    pub autoscaler_record: Option<&'k Record>,
    /// Replicas for a record that nobody can read.
    pub default_replicas: u64,
    /// Since when it is known to be rolled out while it should be down.
    pub rolling: Option<Timestamp>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It is as it should be, or not ours.
    Nothing,
    /// It should change, but not now.
    Skip(Skip),
    /// A write.
    Write {
        /// Why.
        purpose: Purpose,
        /// What changes.
        edits: Edits,
        /// What to tell on the object.
        note: Option<Note>,
    },
}

impl Step {
    fn write(purpose: Purpose, edits: Edits, note: Option<Note>) -> Self {
        if edits.is_empty() {
            Self::Nothing
        } else {
            Self::Write { purpose, edits, note }
        }
    }
}

/// Decides about one workload.
pub fn decide_workload(workload: &Workload, verdict: &Verdict, known: &Known<'_>, now: Timestamp) -> Step {
    let read = Record::read(workload);
    // A record that is gone from an object which still sleeps, or that nobody can read any more, was taken or spoilt by
    // somebody else than us: we know it still.
    let lost = known
        .record
        .filter(|_| read.as_ref().is_none_or(|read| read.unreadable().is_some()))
        .filter(|record| record.asleep(workload));
    // Lowered by the controller of an HPA that we hold, before we came to it.
    let outrun = known
        .autoscaler_record
        .filter(|record| read.is_none() && record.asleep(workload) && !is_by_hand(workload, known));
    let step = match verdict.state {
        State::Unknown => return Step::Nothing,
        State::Up => {
            // By day, who set the knob since is believed more than our memory: it may be a zero of its owner's.
            let lost = lost.filter(|_| {
                workload
                    .managers
                    .knob
                    .as_deref()
                    .is_none_or(|manager| manager == FIELD_MANAGER)
            });
            up(workload, verdict, lost.or(outrun).or(read.as_ref()), known, now)
        }
        State::Down => match (lost.or(outrun), read.as_ref()) {
            (Some(record), _) => put_back(workload, record),
            (None, None) => put_down(workload, verdict, known, now),
            (None, Some(record)) => stay_down(workload, verdict, record, known, now),
        },
    };
    with_instants(workload, verdict, step)
}

fn up(workload: &Workload, verdict: &Verdict, record: Option<&Record>, known: &Known<'_>, now: Timestamp) -> Step {
    let Some(record) = record else { return Step::Nothing };
    if record.foreign && !claims(verdict) {
        return Step::Nothing;
    }
    // What its HPA made of it is no less than it was, or is not what it was.
    let outgrown = present(workload) >= record.replicas() || !moved_by_autoscaler(workload, record, known);
    if !record.asleep(workload) && outgrown {
        return Step::write(Purpose::Forget, patch::forget(workload, now), None);
    }
    let note = record.unreadable().map(|text| Note {
        reason: "RecordUnreadable",
        message: format!(
            "the record {text:?} could not be read; restored to the default ({})",
            known.default_replicas
        ),
        warning: true,
    });
    let edits = patch::restore(workload, record, known.autoscaler_range, known.default_replicas, now);
    Step::write(Purpose::Restore, edits, note)
}

/// Whether a person, or a program of theirs, set the knob last.
fn is_by_hand(workload: &Workload, known: &Known<'_>) -> bool {
    workload
        .managers
        .knob
        .as_deref()
        .is_some_and(|manager| manager != FIELD_MANAGER && manager != known.autoscaler)
}

/// Whether its HPA moved what we hold: that is nobody's wish. At 0 an HPA stands still, but for one whose minimum is 0.
pub fn moved_by_autoscaler(workload: &Workload, record: &Record, known: &Known<'_>) -> bool {
    known.autoscaler_range.is_some()
        && (known.autoscaler_held || record.held_replicas > 0)
        && workload.managers.knob.as_deref() == Some(known.autoscaler)
        && present(workload) != Some(record.held_replicas)
}

fn present(workload: &Workload) -> Option<u64> {
    record::count(workload.knobs.first()?.value.as_ref()?)
}

/// Whether a schedule means this workload, so that other products' records are ours to read.
fn claims(verdict: &Verdict) -> bool {
    verdict.schedule.is_some()
}

fn put_down(workload: &Workload, verdict: &Verdict, known: &Known<'_>, now: Timestamp) -> Step {
    match not_yet(workload, verdict, known, now) {
        Ok(plan) => Step::write(
            Purpose::Down,
            patch::down(workload, &plan, now),
            wake_ended(workload, now),
        ),
        Err(step) => step,
    }
}

fn wake_ended(workload: &Workload, now: Timestamp) -> Option<Note> {
    let text = workload.annotation(AWAKE_UNTIL)?;
    patch::is_expired(AWAKE_UNTIL, text, now).then(|| Note {
        reason: "WakeEnded",
        message: format!("{AWAKE_UNTIL}={text} is over"),
        warning: false,
    })
}

fn stay_down(workload: &Workload, verdict: &Verdict, record: &Record, known: &Known<'_>, now: Timestamp) -> Step {
    if record.asleep(workload) {
        if let Some(step) = adjust(workload, verdict, record) {
            return step;
        }
        return if record.differs {
            put_back(workload, record)
        } else {
            Step::Nothing
        };
    }
    let in_this_window = record
        .down_since
        .is_some_and(|at| verdict.since.is_none_or(|since| since <= at));
    if !in_this_window {
        // From an earlier night, or nobody knows when: what the knob says now is what counts.
        return put_down(workload, verdict, known, now);
    }
    // Lowered below what we held: that is somebody's wish, too, and asks for nothing.
    if record::plan_at(workload, record.held_replicas).is_none() {
        return Step::Nothing;
    }
    let by_autoscaler = known.autoscaler_held && moved_by_autoscaler(workload, record, known);
    if matches!(verdict.mode(), EnforcementMode::Warn | EnforcementMode::Off) && !by_autoscaler {
        return Step::Nothing;
    }
    if let Some(again) = raised_too_often(known.raised, now) {
        return Step::Skip(Skip {
            reason: RAISED_REPEATEDLY,
            message: format!(
                "{} raises it again and again while it is off hours; it is put down once in ten minutes",
                who(workload)
            ),
            tell: true,
            again: Some(again),
        });
    }
    let value = workload.knobs.first().and_then(|reading| reading.value.as_ref());
    let note = Note {
        reason: "PutDownAgain",
        message: format!(
            "{} set {} to {} while it is off hours; put down again, the record stays {}",
            who(workload),
            workload.kind.knobs.first().map_or("it", |knob| knob.name.as_ref()),
            shared::kinds::value_text(value),
            record
                .replicas()
                .map_or_else(|| "as it was".to_owned(), |count| count.to_string()),
        ),
        warning: true,
    };
    Step::write(Purpose::DownAgain, patch::down_again(workload, record), Some(note))
}

/// When it may be put down again: the third time within ten minutes, and from then on, once in ten minutes.
fn raised_too_often(raised: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    let recent = raised
        .iter()
        .filter(|at| now.duration_since(**at) < RAISE_WINDOW)
        .count();
    let last = *raised.last()?;
    let before = raised.iter().rev().nth(1).copied();
    // The last time was itself one that had been waited for.
    let slowed = before.is_some_and(|before| last.duration_since(before) < RAISE_WINDOW + RAISE_SLACK);
    let again = last.checked_add(RAISE_WINDOW).ok()?;
    (now < again && (recent >= RAISE_LIMIT || slowed)).then_some(again)
}

fn who(workload: &Workload) -> &str {
    workload.managers.knob.as_deref().unwrap_or("somebody")
}

fn put_back(workload: &Workload, record: &Record) -> Step {
    let note = Note {
        reason: "RecordPutBack",
        message: format!(
            "the record of what to restore had been removed or changed; written back ({})",
            record
                .replicas()
                .map_or_else(|| "all of it".to_owned(), |count| format!("{count} replicas"))
        ),
        warning: true,
    };
    Step::write(Purpose::PutBack, patch::put_back(workload, record), Some(note))
}

/// The schedule keeps more or fewer replicas now than when the workload was put down.
fn adjust(workload: &Workload, verdict: &Verdict, record: &Record) -> Option<Step> {
    if record.foreign {
        return None;
    }
    let wanted = match (record.entries.first()?, &workload.kind.knobs.first()?.form) {
        (record::Entry::Was(was), Form::Count | Form::CountText) => record::kept(was.as_ref(), verdict.down_replicas)?,
        _ => return None,
    };
    // What was held at its own number is held no lower than that by the same rule: nothing to adjust.
    if wanted == record.held_replicas {
        return None;
    }
    let adjusted = Record {
        held_replicas: wanted,
        ..record.clone()
    };
    Some(Step::write(
        Purpose::Adjust,
        patch::down_again(workload, &adjusted),
        None,
    ))
}

/// The plan for putting it down, or why not yet.
fn not_yet(workload: &Workload, verdict: &Verdict, known: &Known<'_>, now: Timestamp) -> Result<Plan, Step> {
    let plan = record::plan(workload, verdict.down_replicas, None)
        .filter(|_| !workload.finished)
        .ok_or(Step::Nothing)?;
    if workload.running && !verdict.included.running {
        return Err(Step::Skip(Skip {
            reason: "JobRunning",
            message:
                "a running Job is not suspended, which would kill its pods; name the kind with `running: true` to do so"
                    .to_owned(),
            tell: false,
            again: None,
        }));
    }
    if let Some(key) = keda::frozen_by(workload) {
        return Err(Step::Skip(Skip {
            reason: "FrozenByOwner",
            message: format!(
                "not put to sleep: under {key} KEDA would not bring its target back; take that off, or set \
                 autoscaling.keda.sh/paused-replicas to the number that it is to have by day"
            ),
            tell: true,
            again: None,
        }));
    }
    let unfinished = |why: &str| {
        let schedule = verdict.schedule.as_ref();
        if schedule.is_some_and(|schedule| schedule.unfinished_rollouts == UnfinishedRollouts::Sleep) {
            return Ok(plan.clone());
        }
        Err(Step::Skip(Skip {
            reason: "RolloutUnfinished",
            message: format!("not put to sleep: {why}, and old pods would not come back"),
            tell: true,
            again: None,
        }))
    };
    match &workload.rollout {
        Rollout::Settled => Ok(plan),
        Rollout::Unfinished(why) => unfinished(why),
        Rollout::Moving { deadline } => {
            // A deadline of an earlier rollout is long over when a new one has only begun: its controller has a moment to say so.
            let began = known.rolling.unwrap_or(now);
            let end = match deadline {
                Some(deadline) => (*deadline).max(later(began, ROLLOUT_NEWS)),
                None => later(began, ROLLOUT_PATIENCE),
            };
            if now < end {
                Err(Step::Skip(Skip {
                    reason: "RolloutInProgress",
                    message: "a rollout is in progress; it is waited for".to_owned(),
                    tell: false,
                    again: Some(end),
                }))
            } else {
                unfinished("its rollout did not finish")
            }
        }
    }
}

/// Writes the instant of a wake or sleep that is still a duration, with whatever else is written, or alone.
fn with_instants(workload: &Workload, verdict: &Verdict, step: Step) -> Step {
    let mut fixed = Edits::default();
    for note in &verdict.notes {
        if let shared::verdict::Note::Duration {
            on: On::Workload,
            key,
            instant,
            ..
        } = note
        {
            fixed.annotations.extend(patch::fix_instant(key, *instant).annotations);
        }
    }
    if fixed.is_empty() {
        return step;
    }
    match step {
        Step::Write {
            purpose,
            mut edits,
            note,
        } => {
            edits.annotations.extend(fixed.annotations);
            Step::Write { purpose, edits, note }
        }
        Step::Nothing | Step::Skip(_) => Step::write(Purpose::FixInstant, fixed.without_idle(workload), None),
    }
}

/// Whether missed runs of this workload have to be skipped before it is un-suspended.
pub fn skips_missed_runs(workload: &Workload, verdict: &Verdict) -> bool {
    let once = verdict
        .schedule
        .as_ref()
        .is_some_and(|schedule| schedule.catch_up == CatchUp::Once);
    *workload.kind.kind == *"CronJob" && *workload.kind.group == *"batch" && !once
}
