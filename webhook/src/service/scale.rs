//! `/scale` of a workload: the number is held here, and remembered on the parent. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde::Deserialize;
use serde_json::value::RawValue;
use shared::annotations::DownReplicas;
use shared::kinds::Kind;
use shared::messages::{self, Deed, Memory, Night, Subject};
use shared::patch::{self, Edits};
use shared::record::{self as records, Entry, UNSET, standing};
use shared::schedule::State;
use shared::verdict::{Rule, Verdict, scaled_by};
use shared::workload::Workload;

use super::asker::{Asker, Stance};
use super::{Bench, Held, Outcome, Phase, Ruling, Tell, record, scaled};
use crate::review::{Request, Text};
use crate::state::Seen;

/// A number that has to be written to the parent's record before the answer is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Remember {
    /// The parent, as it was seen.
    pub parent: Arc<Workload>,
    /// What was asked for.
    pub asked: u64,
    /// What is kept while down.
    pub down: DownReplicas,
    /// The instant of the request.
    pub now: Timestamp,
    /// The warning of the answer that speaks of remembering, and what to say instead where that failed.
    pub warning: String,
    /// See `warning`.
    pub failed: String,
}

/// A Scale, as far as we read it. At zero, `spec.replicas` is left out.
#[derive(Debug, Default, Deserialize)]
struct Scale<'a> {
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    replicas: Option<u64>,
}

impl Scale<'_> {
    fn replicas(&self) -> u64 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
    }
}

pub(super) fn rule(request: &Request<'_>, kind: &Arc<Kind>, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    if &*request.operation != "UPDATE" {
        return Ruling::pass();
    }
    let read = |raw: &'_ RawValue| serde_json::from_str::<Scale<'_>>(raw.get()).map(|scale| scale.replicas());
    let Some(raw) = request.object else {
        return bench.unreadable("it has no object");
    };
    let scale = match serde_json::from_str::<Scale<'_>>(raw.get()) {
        Ok(scale) => scale,
        Err(error) => return bench.unreadable(&error.to_string()),
    };
    let asked = scale.replicas();
    if asked == 0 {
        return Ruling::pass();
    }
    let subject = Subject::named(kind, &request.namespace, &request.name);
    let parent = match bench.sight.workload(kind, &request.namespace, &request.name) {
        Seen::Known(parent) if scale.metadata.uid.is_empty() || *scale.metadata.uid == *parent.uid => parent,
        Seen::Known(_) | Seen::Absent => return bench.uncertain(&subject, "it is not known yet"),
        Seen::Unknown(why) => return bench.uncertain(&subject, &why),
    };
    // Some servers send nothing, or the parent, as the old object. The view may be older than a Scale that is there.
    let was = request
        .old_object
        .filter(|raw| serde_json::from_str::<Scale<'_>>(raw.get()).is_ok_and(|old| &*old.kind == "Scale"))
        .and_then(|raw| read(raw).ok());
    let mut facts = (*parent).clone();
    if let (Some(was), Some(reading)) = (was, facts.knobs.first_mut()) {
        reading.value = Some(was.into());
    }
    judge(&facts, &parent, asked, who, bench)
}

/// Which replicas are held, and why.
struct Hold {
    verdict: Verdict,
    held: u64,
    /// The parent has a record, or gets one.
    recorded: bool,
}

fn judge(facts: &Workload, parent: &Arc<Workload>, asked: u64, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let namespace = bench.namespace(&facts.namespace);
    let scalers = bench.sight.scaled_objects(&facts.namespace);
    let targets = scalers
        .iter()
        .filter_map(|scaler| Some((&*scaler.name, scaler.scale_target.as_ref()?)));
    let scaler = scaled_by(facts, targets).and_then(|name| scalers.iter().find(|scaler| &*scaler.name == name));
    let subject = Subject::workload(scaler.map_or(facts, |scaler| scaler));
    let was = facts.knobs.first().and_then(|reading| reading.value.as_ref());
    let was = standing(was).unwrap_or(UNSET);
    let hold = if let Some(scaler) = scaler {
        let Some(sleep) = scaled::sleeping(scaler, namespace.as_deref(), bench) else {
            return Ruling::pass();
        };
        Hold {
            verdict: sleep.verdict,
            held: sleep.replicas,
            recorded: false,
        }
    } else {
        let verdict = bench.verdict(facts, namespace.as_deref(), None);
        let own = record::own(facts);
        let held = match &own {
            Some(own) if record::is_at_or_below(facts, own) => own.held_replicas,
            _ => verdict.down_replicas.of(was),
        };
        if was > held || asked <= held {
            return Ruling::pass();
        }
        match verdict.state {
            State::Up => return Ruling::pass(),
            State::Unknown => {
                return match &verdict.decided_by {
                    Rule::Unavailable(why) => bench.uncertain(&subject, why),
                    _ => Ruling::pass(),
                };
            }
            State::Down => {}
        }
        // Percentages are of the number asked for: it is the record now.
        let held = if verdict.down_replicas.of(asked) > held {
            verdict.down_replicas.of(asked).min(asked)
        } else {
            held
        };
        if asked <= held {
            return Ruling::pass();
        }
        Hold {
            verdict,
            held,
            recorded: true,
        }
    };
    if was > hold.held || asked <= hold.held {
        return Ruling::pass();
    }
    answer(facts, parent, asked, &subject, &hold, who, bench)
}

fn answer(
    facts: &Workload,
    parent: &Arc<Workload>,
    asked: u64,
    subject: &Subject<'_>,
    hold: &Hold,
    who: &Asker<'_>,
    bench: &Bench<'_>,
) -> Ruling {
    let kept = facts
        .kind
        .knobs
        .first()
        .map_or_else(String::new, |knob| messages::kept(knob, &hold.held.into()));
    let night = &Night::of(&hold.verdict);
    match (scaled::stance(&hold.verdict, who), bench.phase) {
        (Stance::Pass, _) | (Stance::Override | Stance::Warn | Stance::Rewrite { silent: true }, Phase::Validate) => {
            Ruling::pass()
        }
        (Stance::Override, Phase::Mutate) => {
            let mut ruling = Ruling::of(Outcome::Overridden);
            ruling.tell.push(Tell {
                object: facts.object_ref(),
                uid: Arc::clone(&facts.uid),
                reason: super::OVERRIDDEN,
                message: messages::told(who.user(), Deed::Woke),
            });
            ruling
        }
        (Stance::Warn, Phase::Mutate) => Ruling::of(Outcome::Warned).warn(messages::passes(subject, night)),
        (Stance::Rewrite { silent: false }, Phase::Validate) => {
            Ruling::of(Outcome::Warned).warn(messages::raised_after_us(subject, night))
        }
        (Stance::Deny, _) => {
            let mut ruling = Ruling::deny(Outcome::Denied, messages::denied(subject, night, &kept));
            ruling.held = Some(Held::of(facts, &hold.verdict));
            ruling
        }
        (Stance::Rewrite { silent }, Phase::Mutate) => {
            let path = PointerBuf::from_tokens(["spec", "replicas"]);
            let operation = PatchOperation::Replace(ReplaceOperation {
                path,
                value: hold.held.into(),
            });
            let mut ruling = Ruling::of(Outcome::Held).patched(Patch(vec![operation]));
            ruling.held = Some(Held::of(facts, &hold.verdict));
            if silent {
                return ruling;
            }
            let text = asked.to_string();
            let said = |memory| messages::held(subject, night, &kept, memory);
            if !hold.recorded {
                return ruling.warn(said(Memory::NoPlace(&text)));
            }
            let warning = said(Memory::Remembered(&text));
            ruling.remember = Some(Remember {
                parent: Arc::clone(parent),
                asked,
                down: hold.verdict.down_replicas,
                now: bench.now,
                warning: warning.clone(),
                failed: said(Memory::Failed(&text)),
            });
            ruling.warn(warning)
        }
    }
}

/// Whether a parent is down, as far as these facts tell.
pub fn is_down(parent: &Workload, down: DownReplicas) -> bool {
    match record::own(parent) {
        Some(own) => record::is_at_or_below(parent, &own),
        None => records::plan(parent, down, None).is_none(),
    }
}

/// The change that makes `asked` the record of a parent. Empty where it is that already. The knob itself is never written here.
pub fn remember_edits(parent: &Workload, asked: u64, down: DownReplicas, now: Timestamp) -> Edits {
    let mut edits = if let Some(mut own) = record::own(parent) {
        if let Some(entry) = own.entries.first_mut() {
            *entry = Entry::Was(Some(asked.into()));
        }
        own.held_replicas = record::wanted(&own, down);
        own.down_since = own.down_since.or(Some(now));
        patch::put_back(parent, &own)
    } else {
        // Its owner's own zero: what was asked for is what it wakes to.
        let mut raised = parent.clone();
        if let Some(reading) = raised.knobs.first_mut() {
            reading.value = Some(asked.into());
        }
        records::plan(&raised, down, None).map_or_else(Edits::default, |plan| patch::down(&raised, &plan, now))
    };
    edits.knobs.clear();
    edits.without_idle(parent)
}
