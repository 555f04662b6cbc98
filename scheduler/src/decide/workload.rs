//! What is to be done with one workload: pure, from its facts and its verdict. (Client not required.)

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shared::annotations;
use shared::api::{CatchUp, EnforcementMode, UnfinishedRollouts};
use shared::patch::{self, Edits, Preconditions};
use shared::record::{self, Plan, Record};
use shared::schedule::State;
use shared::verdict::{On, Rule, Verdict};
use shared::workload::{Rollout, Workload};

use super::action::{Note, Purpose, Skip};

/// How long an unfinished rollout is waited for where its controller names no deadline.
const ROLLOUT_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// How often somebody may raise a held workload in [`RAISE_WINDOW`] before it is put down only once in that time.
const RAISE_LIMIT: usize = 2;
/// See [`RAISE_LIMIT`].
pub const RAISE_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// What is known of a workload beside its present facts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'k> {
    /// The last record that was seen on it, by its UID.
    pub record: Option<&'k Record>,
    /// When it was last put down again because somebody had raised it, oldest first.
    pub raised: &'k [Timestamp],
    /// `[minReplicas, maxReplicas]` of the HPA that scales it.
    pub autoscaler_range: Option<(u64, u64)>,
    /// Replicas for a record that nobody can read.
    pub default_replicas: u64,
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
    // A record that is gone from an object which still sleeps was taken by somebody else than us: we know it still.
    let lost = read
        .is_none()
        .then_some(known.record)
        .flatten()
        .filter(|record| record.asleep(workload));
    let step = match verdict.state {
        State::Unknown => return Step::Nothing,
        State::Up => up(workload, verdict, read.as_ref().or(lost), known, now),
        State::Down => match (read.as_ref(), lost) {
            (None, Some(record)) => put_back(workload, record),
            (None, None) => match not_yet(workload, verdict, now) {
                Ok(plan) => down(workload, &plan, now),
                Err(step) => step,
            },
            (Some(record), _) => stay_down(workload, verdict, record, known, now),
        },
    };
    with_instants(workload, verdict, step)
}

fn up(workload: &Workload, verdict: &Verdict, record: Option<&Record>, known: &Known<'_>, now: Timestamp) -> Step {
    let Some(record) = record else { return Step::Nothing };
    if record.foreign && !claims(verdict) {
        return Step::Nothing;
    }
    if !record.asleep(workload) {
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

/// Whether a schedule means this workload, so that other products' records are ours to read.
fn claims(verdict: &Verdict) -> bool {
    verdict.schedule.is_some()
}

fn down(workload: &Workload, plan: &Plan, now: Timestamp) -> Step {
    Step::write(Purpose::Down, patch::down(workload, plan, now), None)
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
        return match not_yet(workload, verdict, now) {
            Ok(plan) => down(workload, &plan, now),
            Err(step) => step,
        };
    }
    // Lowered below what we held: that is somebody's wish, too, and asks for nothing.
    if record::plan(
        workload,
        annotations::DownReplicas::Count(record.held_replicas as u32),
        None,
    )
    .is_none()
    {
        return Step::Nothing;
    }
    if matches!(verdict.mode(), EnforcementMode::Warn | EnforcementMode::Off) {
        return Step::Nothing;
    }
    let recent = known.raised.iter().filter(|at| now.duration_since(**at) < RAISE_WINDOW);
    if let (count, Some(last)) = (recent.clone().count(), recent.max())
        && count >= RAISE_LIMIT
    {
        let again = last.checked_add(RAISE_WINDOW).ok();
        return Step::Skip(Skip {
            reason: "RaisedRepeatedly",
            message: format!(
                "{} raised it {count} times in ten minutes; it is put down again once in ten minutes",
                who(workload)
            ),
            tell: true,
            again,
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
    let original = record.replicas()?;
    let wanted = verdict.down_replicas.of(original).min(original);
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
fn not_yet(workload: &Workload, verdict: &Verdict, now: Timestamp) -> Result<Plan, Step> {
    let plan = record::plan(workload, verdict.down_replicas, None).ok_or(Step::Nothing)?;
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
    let sleep_anyway = verdict
        .schedule
        .as_ref()
        .is_some_and(|schedule| schedule.unfinished_rollouts == UnfinishedRollouts::Sleep);
    let unfinished = |why: &str| {
        Step::Skip(Skip {
            reason: "RolloutUnfinished",
            message: format!("not put to sleep: {why}, and old pods would not come back"),
            tell: true,
            again: None,
        })
    };
    match &workload.rollout {
        _ if sleep_anyway => Ok(plan),
        Rollout::Settled => Ok(plan),
        Rollout::Unfinished(why) => Err(unfinished(why)),
        Rollout::Moving { deadline } => {
            let began = verdict.since.or(workload.created).unwrap_or(now);
            let end = deadline
                .or_else(|| began.checked_add(ROLLOUT_PATIENCE).ok())
                .unwrap_or(now);
            if now < end {
                Err(Step::Skip(Skip {
                    reason: "RolloutInProgress",
                    message: "a rollout is in progress; it is waited for".to_owned(),
                    tell: false,
                    again: Some(end),
                }))
            } else {
                Err(unfinished("its rollout did not finish"))
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

/// The JSON patch of a step's edits.
pub fn body(workload: &Workload, edits: &Edits) -> json_patch::Patch {
    edits.patch(workload, Preconditions::State)
}

/// Whether the verdict is one of leaving: it carries our record and no schedule claims it any more.
pub fn has_left(verdict: &Verdict) -> bool {
    matches!(verdict.decided_by, Rule::OutOfScope(_) | Rule::Protected(_))
}

/// A name for logs.
pub fn name(workload: &Workload) -> Arc<str> {
    Arc::from(workload.object_ref().to_string())
}
