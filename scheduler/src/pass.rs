//! One pass: everything that is wanted now is done, and then it ends. Client required (through act).
//!
//! The same decisions as in the servers, without their loop: `offhours shutdown`, `offhours startup`, and `ACTION` of K8s-OffHours.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::view::View;
use shared::clock::Clock;
use shared::policy::{Origin, Schedules};
use shared::workload::ObjectRef;
use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use crate::act::{Act, Answer};
use crate::decide::action::Purpose;
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::snapshot::Dirty;
use crate::engine::outcome;
use crate::observe::Observer;

/// How often a write is tried before its workload counts as failed.
const TRIES: u32 = 3;
/// The wall clock is looked at at least this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// What is under way when a pass is stopped gets so long to finish.
const DRAIN: Duration = Duration::from_secs(10);

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// What was written (in a dry run: would be), in this order.
    pub done: Vec<(ObjectRef, Purpose)>,
    /// What was left as it is although it should change: reason and one line.
    pub skipped: Vec<(ObjectRef, &'static str, String)>,
    /// What could not be written: reason and one line.
    pub failed: Vec<(ObjectRef, &'static str, String)>,
}

/// Why no pass was made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PassError {
    /// The servers would undo it.
    #[error(
        "schedule {name:?} is an OffHoursSchedule of this cluster, and the scheduler would undo what one pass does; use \
         `offhours sleep` or `offhours wake`, or delete the OffHoursSchedule"
    )]
    ScheduleIsResource {
        /// The schedule.
        name: String,
    },
}

/// Refuses a one-shot pass for a schedule that exists as a custom resource.
pub fn check_schedule(schedules: &Schedules, name: &str) -> Result<(), PassError> {
    match schedules.get(name) {
        Some(schedule) if schedule.origin == Origin::Resource => {
            Err(PassError::ScheduleIsResource { name: name.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Makes one pass. Waves are waited for, each no longer than its timeout, all together no longer than `limit`. From `stop` on
/// nothing more is begun, what is under way is finished, and the rest counts as failed.
///
/// The snapshot's `forced` tells which schedule is brought where; without it the clock decides.
pub async fn pass(
    view: &Arc<View>,
    observer: &mut Observer,
    act: &mut Act,
    clock: &dyn Clock,
    dry_run: bool,
    limit: Duration,
    stop: impl Future<Output = ()>,
) -> Summary {
    view.filled().await;
    let mut stop = pin!(stop);
    let mut stopped = false;
    let mut decider = Decider::default();
    let mut summary = Summary::default();
    let mut reasons: BTreeMap<ObjectRef, (&'static str, String)> = BTreeMap::new();
    let mut dirty = Dirty::everything();
    let mut ends_at = Instant::now() + limit;
    loop {
        let changed = observer.refresh();
        dirty.merge(changed);
        let now = clock.now();
        decider.update(observer.snapshot(), &std::mem::take(&mut dirty), now);
        while act.has_room() && !stopped {
            let Some(action) = decider.next_action(observer.snapshot(), now) else {
                break;
            };
            act.submit(action);
        }
        let open = decider.outstanding(TRIES);
        if act.in_flight() == 0 && open.is_empty() && decider.in_flight() == 0 && !decider.is_waiting_beside() {
            break;
        }
        if Instant::now() >= ends_at || stopped && act.in_flight() == 0 {
            break;
        }
        let next = decider.next_instant(now).map(|at| at.duration_since(clock.now()));
        let pause = next.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
        let wake = Instant::now() + pause.clamp(Duration::from_millis(10), LONGEST_SLEEP);
        tokio::select! {
            biased;
            () = &mut stop, if !stopped => {
                stopped = true;
                ends_at = ends_at.min(Instant::now() + DRAIN);
            }
            answer = act.next() => {
                let Answer { action, ended, .. } = answer;
                let object = action.target.object.clone();
                let outcome = outcome(ended, dry_run);
                observer.refresh_one(&object);
                decider.answered(observer.snapshot(), &object, &outcome, clock.now());
                match outcome {
                    Outcome::Done | Outcome::WouldWrite => {
                        reasons.remove(&object);
                        summary.done.push((object, action.purpose));
                    }
                    Outcome::Failed { reason, message, .. } => {
                        reasons.insert(object, (reason, message));
                    }
                    // One that lasts is a failure like others.
                    Outcome::Conflict { message } => {
                        if let Some(failure) = decider.memory().failure(&object) {
                            reasons.insert(object, (failure.reason, message));
                        }
                    }
                    Outcome::NotSent => {}
                }
            }
            () = view.changes().changed() => {}
            () = sleep_until(wake.min(ends_at)) => {}
        }
    }
    for (object, skip) in decider.skips() {
        reasons.remove(&object);
        summary.skipped.push((object, skip.reason, skip.message));
    }
    // What still waits when the time is up was not done either.
    let late = if stopped {
        ("Stopped", "this pass was stopped before its turn; run it again")
    } else {
        ("NotInTime", "its turn did not come within the time of this pass")
    };
    for object in decider.outstanding(u32::MAX) {
        let (reason, message) = reasons.remove(&object).unwrap_or((late.0, late.1.to_owned()));
        summary.failed.push((object, reason, message));
    }
    summary
}
