//! A workload that a ScaledObject scales: it has no record of its own, and is held while the ScaledObject sleeps. Pure.

use std::sync::Arc;

use serde_json::Value;
use shared::kinds::value_text;
use shared::messages::{self, Deed, Memory, Night, Subject};
use shared::patch::{Edits, Preconditions};
use shared::policy::Enforcement;
use shared::record::{UNSET, count, standing};
use shared::schedule::State;
use shared::verdict::Verdict;
use shared::workload::{Namespace, Workload};

use super::asker::{Asker, Stance};
use super::{Bench, Held, Outcome, Phase, Ruling, Tell, record};

/// A ScaledObject that sleeps.
pub(super) struct Sleeping {
    pub verdict: Verdict,
    /// What it holds its target at.
    pub replicas: u64,
}

/// The sleep of this ScaledObject, if it sleeps.
pub(super) fn sleeping(scaler: &Workload, namespace: Option<&Namespace>, bench: &Bench<'_>) -> Option<Sleeping> {
    let own = record::own(scaler).filter(|own| record::is_at_or_below(scaler, own))?;
    let verdict = bench.verdict(scaler, namespace, None);
    let replicas = scaler
        .knobs
        .first()
        .and_then(|reading| reading.value.as_ref())
        .and_then(count)
        .unwrap_or(own.held_replicas);
    (verdict.state == State::Down).then_some(Sleeping { verdict, replicas })
}

/// The stance towards a request under this verdict.
pub(super) fn stance(verdict: &Verdict, who: &Asker<'_>) -> Stance {
    verdict.schedule.as_ref().map_or_else(
        || who.stance(&Enforcement::default()),
        |schedule| who.stance(&schedule.enforcement),
    )
}

pub(super) fn rule(
    new: &Workload,
    old: Option<&Workload>,
    scaler: &Workload,
    namespace: Option<&Namespace>,
    who: &Asker<'_>,
    bench: &Bench<'_>,
) -> Ruling {
    let (Some(old), Some(sleep)) = (old, sleeping(scaler, namespace, bench)) else {
        return Ruling::pass();
    };
    let present = |workload: &Workload| workload.knobs.first().and_then(|reading| reading.value.clone());
    let (was, asked) = (present(old), present(new));
    let above = |value: Option<&Value>| standing(value).unwrap_or(UNSET) > sleep.replicas;
    if above(was.as_ref()) || !above(asked.as_ref()) {
        return Ruling::pass();
    }
    let subject = Subject::workload(scaler);
    let night = Night::of(&sleep.verdict);
    let kept = new
        .kind
        .knobs
        .first()
        .map_or_else(String::new, |knob| messages::kept(knob, &sleep.replicas.into()));
    let mut ruling = match (stance(&sleep.verdict, who), bench.phase) {
        (Stance::Pass, _) | (Stance::Override | Stance::Warn | Stance::Rewrite { silent: true }, Phase::Validate) => {
            return Ruling::pass();
        }
        (Stance::Rewrite { silent: false }, Phase::Validate) => {
            return Ruling::of(Outcome::Warned).warn(messages::raised_after_us(&subject, &night));
        }
        (Stance::Override, Phase::Mutate) => {
            let mut ruling = Ruling::of(Outcome::Overridden);
            ruling.tell.push(Tell {
                object: new.object_ref(),
                uid: Arc::clone(&new.uid),
                reason: super::OVERRIDDEN,
                message: messages::told(who.user(), Deed::Woke),
            });
            return ruling;
        }
        (Stance::Warn, Phase::Mutate) => {
            return Ruling::of(Outcome::Warned).warn(messages::passes(&subject, &night));
        }
        (Stance::Deny, _) => Ruling::deny(Outcome::Denied, messages::denied(&subject, &night, &kept)),
        (Stance::Rewrite { silent }, Phase::Mutate) => {
            let mut edits = Edits::default();
            edits.knobs.insert(0, Some(sleep.replicas.into()));
            let ruling = Ruling::of(Outcome::Held).patched(edits.patch(new, Preconditions::None));
            if silent {
                ruling
            } else {
                let memory = value_text(asked.as_ref());
                ruling.warn(messages::held(&subject, &night, &kept, Memory::NoPlace(&memory)))
            }
        }
    };
    ruling.held = Some(Held::of(new, &sleep.verdict));
    ruling
}
