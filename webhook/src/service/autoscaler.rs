//! The HPA of a workload that sleeps is held with it. Pure.

use std::sync::{Arc, LazyLock};

use serde_json::Value;
use serde_json::value::RawValue;
use shared::annotations::is_own_state;
use shared::hpa;
use shared::kinds::{Kinds, value_text};
use shared::messages::{self, Deed, Night, Subject};
use shared::patch::{Edits, Preconditions};
use shared::schedule::State;
use shared::verdict::{Verdict, scaled_by};
use shared::workload::{ScaleTarget, Workload};

use super::asker::{Asker, Stance};
use super::{Bench, Held, Outcome, Phase, Ruling, Tell, facts, record, scaled};
use crate::review::{Denial, Request};
use crate::state::Seen;

/// What is read of an HPA: less than whoever makes backups of them needs.
static FIELDS: LazyLock<Kinds> = LazyLock::new(|| Kinds::with([(**hpa::kind()).clone()]));

pub(super) fn rule(request: &Request<'_>, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let read = |raw: &RawValue| {
        let object = facts::pruned(FIELDS.keep(), raw)?;
        facts::named(request, hpa::kind(), &object)
    };
    let read = |raw: Option<&RawValue>| raw.map(read).transpose();
    let (new, old) = match (read(request.object), read(request.old_object)) {
        (Ok(new), Ok(old)) => (new, old),
        (Err(why), _) | (_, Err(why)) => return bench.unreadable(&why),
    };
    match (&*request.operation, new, old) {
        ("CREATE", Some(new), _) => created_or_deleted(&new, "created", who, bench),
        ("DELETE", _, Some(old)) if !who.is_cleaner() => created_or_deleted(&old, "deleted", who, bench),
        ("UPDATE", Some(new), Some(old)) => changed(&new, &old, who, bench),
        // Without an object there is nothing to judge by.
        _ => Ruling::pass(),
    }
}

/// The workload that an HPA scales, where that sleeps under a schedule.
struct Sleeper {
    workload: Arc<Workload>,
    verdict: Verdict,
}

fn sleeper(autoscaler: &Workload, bench: &Bench<'_>) -> Option<Sleeper> {
    let target: &ScaleTarget = autoscaler.scale_target.as_ref()?;
    let kind = bench.sight.kinds().by_kind(&target.group, &target.kind)?;
    let Seen::Known(workload) = bench.sight.workload(kind, &autoscaler.namespace, &target.name) else {
        return None;
    };
    let scalers = bench.sight.scaled_objects(&autoscaler.namespace);
    let targets = scalers
        .iter()
        .filter_map(|scaler| Some((&*scaler.name, scaler.scale_target.as_ref()?)));
    if scaled_by(&workload, targets).is_some() {
        return None;
    }
    let own = record::own(&workload)?;
    if !record::is_at_or_below(&workload, &own) {
        return None;
    }
    let namespace = bench.namespace(&autoscaler.namespace);
    // Being deleted, or its namespace being deleted, it is in no state that could be Down.
    let verdict = bench.verdict(&workload, namespace.as_deref(), None);
    (verdict.state == State::Down).then_some(Sleeper { workload, verdict })
}

fn created_or_deleted(autoscaler: &Workload, verb: &str, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let Some(sleeper) = sleeper(autoscaler, bench) else {
        return Ruling::pass();
    };
    match scaled::stance(&sleeper.verdict, who) {
        Stance::Deny => {
            let subject = Subject::workload(&sleeper.workload);
            let night = Night::of(&sleeper.verdict);
            let message = messages::autoscaler_denied(&autoscaler.name, verb, &subject, &night);
            Ruling::deny(Outcome::Denied, message)
        }
        Stance::Override if bench.phase == Phase::Validate => {
            let mut ruling = Ruling::of(Outcome::Overridden);
            ruling.tell.push(overridden(autoscaler, verb, who));
            ruling
        }
        Stance::Pass | Stance::Override | Stance::Warn | Stance::Rewrite { .. } => Ruling::pass(),
    }
}

fn overridden(autoscaler: &Workload, verb: &str, who: &Asker<'_>) -> Tell {
    Tell {
        object: autoscaler.object_ref(),
        uid: Arc::clone(&autoscaler.uid),
        reason: super::OVERRIDDEN,
        message: messages::told(who.user(), Deed::Autoscaler(verb)),
    }
}

/// A request that names another target changes what is held by the old one, and gives the new one an autoscaler.
fn changed(new: &Workload, old: &Workload, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let ruling = match sleeper(old, bench) {
        Some(sleeper) => of_sleeper(&sleeper, new, old, who, bench),
        None => Ruling::pass(),
    };
    let stays = new.scale_target == old.scale_target || ruling.outcome == Outcome::Held;
    if stays || ruling.answer.denial.is_some() {
        return ruling;
    }
    // As if it had been created there. Under Rewrite that passes: the scheduler holds it from then on, and what would be put
    // back here would wait for the opening time of a target that is up.
    let there = created_or_deleted(new, "changed", who, bench);
    if there.answer.denial.is_some() || ruling.outcome == Outcome::Passed {
        there
    } else {
        ruling
    }
}

fn of_sleeper(sleeper: &Sleeper, new: &Workload, old: &Workload, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let changed: Vec<usize> = (0..hpa::kind().knobs.len())
        .filter(|index| value(new, *index) != value(old, *index))
        .collect();
    let stance = scaled::stance(&sleeper.verdict, who);
    let subject = Subject::workload(&sleeper.workload);
    let night = Night::of(&sleeper.verdict);
    let mut edits = match stance {
        Stance::Pass | Stance::Override => Edits::default(),
        _ => lost_records(new, old),
    };
    if changed.is_empty() {
        return patched(Ruling::pass(), &edits, new, bench);
    }
    match (stance, bench.phase) {
        (Stance::Pass | Stance::Rewrite { silent: true }, _) => patched(Ruling::pass(), &edits, new, bench),
        (Stance::Override, Phase::Mutate) => {
            let mut ruling = Ruling::of(Outcome::Overridden);
            ruling.tell.push(overridden(new, "changed", who));
            ruling
        }
        (Stance::Override | Stance::Warn, Phase::Validate) => Ruling::pass(),
        (Stance::Warn, Phase::Mutate) => {
            let ruling = Ruling::of(Outcome::Warned).warn(messages::autoscaler_passes(&new.name, &subject, &night));
            patched(ruling, &edits, new, bench)
        }
        (Stance::Deny, _) => {
            let mut ruling = Ruling::of(Outcome::Denied);
            ruling.answer.denial = Some(Denial {
                message: messages::autoscaler_denied(&new.name, "changed", &subject, &night),
            });
            ruling.held = Some(Held::of(&sleeper.workload, &sleeper.verdict));
            ruling
        }
        (Stance::Rewrite { silent: false }, Phase::Validate) => {
            Ruling::of(Outcome::Warned).warn(messages::autoscaler_passes(&new.name, &subject, &night))
        }
        (Stance::Rewrite { silent: false }, Phase::Mutate) => {
            for index in changed {
                let Some(knob) = hpa::kind().knobs.get(index) else {
                    continue;
                };
                let asked = value_text(value(new, index));
                edits.annotations.insert(knob.record_key(), Some(asked));
                edits.knobs.insert(index, value(old, index).cloned());
            }
            let mut ruling = Ruling::of(Outcome::Held).warn(messages::autoscaler_held(&new.name, &subject, &night));
            ruling.held = Some(Held::of(&sleeper.workload, &sleeper.verdict));
            patched(ruling, &edits, new, bench)
        }
    }
}

fn value(autoscaler: &Workload, index: usize) -> Option<&Value> {
    autoscaler.knobs.get(index)?.value.as_ref()
}

/// Records on the HPA that the request would strip.
fn lost_records(new: &Workload, old: &Workload) -> Edits {
    let mut edits = Edits::default();
    let keys = old.annotations.iter().flatten().map(|(key, _)| key.as_ref());
    for key in keys.filter(|key| is_own_state(key)) {
        if let (None, Some(record)) = (new.annotation(key), old.annotation(key)) {
            edits.annotations.insert(key.to_owned(), Some(record.to_owned()));
        }
    }
    edits
}

fn patched(mut ruling: Ruling, edits: &Edits, new: &Workload, bench: &Bench<'_>) -> Ruling {
    if bench.phase == Phase::Mutate && !edits.is_empty() {
        if ruling.outcome == Outcome::Passed {
            ruling.outcome = Outcome::PutBack;
        }
        ruling.answer.patch = edits.patch(new, Preconditions::None);
    }
    ruling
}
