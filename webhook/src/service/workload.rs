//! CREATE and UPDATE of a workload. Pure.

use std::sync::Arc;

use serde_json::Value;
use shared::annotations::ASLEEP;
use shared::kinds::{Form, Kind, value_text};
use shared::messages::{self, Deed, Memory, Night, Subject};
use shared::patch::{self, Edits, Preconditions};
use shared::record::{self as records, Entry, Plan, Record, count};
use shared::schedule::State;
use shared::verdict::{Rule, Verdict, scaled_by};
use shared::workload::Workload;

use super::asker::{Asker, Stance};
use super::configuration::{self, Place};
use super::{Bench, Held, Outcome, Phase, Ruling, Tell, facts, record, scaled};
use crate::review::Request;
use crate::state::Seen;

/// One request on one workload.
pub(super) struct Case<'c> {
    pub bench: &'c Bench<'c>,
    pub who: &'c Asker<'c>,
    pub old: Option<&'c Workload>,
    /// The object as the request has it.
    pub original: &'c Workload,
    /// The object as it will be: instants in place of durations.
    pub object: Workload,
    /// What turned one into the other.
    pub edits: Edits,
    pub verdict: Verdict,
    pub warnings: Vec<String>,
    pub tell: Vec<Tell>,
}

pub(super) fn rule(request: &Request<'_>, kind: &Arc<Kind>, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let creates = match &*request.operation {
        "CREATE" => true,
        "UPDATE" => false,
        _ => return Ruling::pass(),
    };
    let Some(raw) = request.object else {
        return bench.unreadable("it has no object");
    };
    let mut new = match facts::workload(bench, request, kind, raw) {
        Ok(workload) => workload,
        Err(why) => return bench.unreadable(&why),
    };
    if creates {
        // Grace counts from now on.
        new.created = new.created.or(Some(bench.now));
    }
    let old = match (creates, request.old_object) {
        (true, _) => None,
        (false, Some(raw)) => match facts::workload(bench, request, kind, raw) {
            Ok(workload) => Some(workload),
            Err(why) => return bench.unreadable(&why),
        },
        (false, None) => match bench.sight.workload(kind, &new.namespace, &new.name) {
            Seen::Known(workload) => Some((*workload).clone()),
            Seen::Absent | Seen::Unknown(_) => {
                return bench.uncertain(&Subject::workload(&new), "the request does not say what it was");
            }
        },
    };
    judge(&new, old.as_ref(), who, bench)
}

fn judge(new: &Workload, old: Option<&Workload>, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let namespace = bench.namespace(&new.namespace);
    let scalers = bench.sight.scaled_objects(&new.namespace);
    let targets = scalers
        .iter()
        .filter_map(|scaler| Some((&*scaler.name, scaler.scale_target.as_ref()?)));
    if let Some(scaler) = scaled_by(new, targets).and_then(|name| scalers.iter().find(|scaler| &*scaler.name == name)) {
        return scaled::rule(new, old, scaler, namespace.as_deref(), who, bench);
    }
    let verdict = bench.verdict(new, namespace.as_deref(), None);
    if matches!(verdict.decided_by, Rule::NeverTouched(_) | Rule::Terminating) {
        return Ruling::pass();
    }
    let mut case = Case {
        bench,
        who,
        old,
        original: new,
        object: new.clone(),
        edits: Edits::default(),
        verdict,
        warnings: Vec::new(),
        tell: Vec::new(),
    };
    let place = Place::Workload {
        workload: new,
        old,
        namespace: namespace.as_deref(),
    };
    match bench.phase {
        Phase::Mutate => {
            let turned =
                configuration::instants(&place, who, case.verdict.schedule.as_ref(), bench, &mut case.warnings);
            if !turned.is_empty() {
                for (key, value) in &turned.annotations {
                    facts::set_annotation(&mut case.object.annotations, key, value.as_deref());
                }
                case.edits = turned;
                case.verdict = bench.verdict(&case.object, namespace.as_deref(), None);
            }
        }
        Phase::Validate => {
            let before = old.map(|old| bench.verdict(old, namespace.as_deref(), None));
            if let Err(ruling) =
                configuration::check(&place, before.as_ref(), who, bench, &mut case.warnings, &mut case.tell)
            {
                return *ruling;
            }
            if let Some(warning) = left_out(&case) {
                case.warnings.push(warning);
            }
        }
    }
    if let Some(ruling) = outside_window(&case) {
        return ruling;
    }
    match old {
        None => case.create(),
        Some(old) => case.update(old),
    }
}

/// The label names a schedule whose kinds leave this one out: said once, where the label is set.
fn left_out(case: &Case<'_>) -> Option<String> {
    let name = case.object.label(shared::annotations::SCHEDULE)?;
    if case
        .old
        .is_some_and(|old| old.label(shared::annotations::SCHEDULE) == Some(name))
    {
        return None;
    }
    let schedule = case.bench.schedules.get(name)?;
    schedule
        .includes(&case.object.kind)
        .is_none()
        .then(|| messages::kind_left_out(&Subject::workload(&case.object), name))
}

/// A sleep that sits in a pod template comes back with an old revision: refused outside a window.
fn outside_window(case: &Case<'_>) -> Option<Ruling> {
    if case.verdict.state != State::Up {
        return None;
    }
    let index = case
        .object
        .kind
        .knobs
        .iter()
        .position(|knob| matches!(knob.form, Form::Text(_)) && knob.pointer.starts_with("/spec/template/"))?;
    let knob = case.object.kind.knobs.get(index)?;
    let down = |workload: &Workload| {
        let value = workload.knobs.get(index).and_then(|reading| reading.value.as_ref());
        records::is_down(&knob.form, value, 0)
    };
    if !down(&case.object) || case.old.is_some_and(down) {
        return None;
    }
    let key = knob.path().last()?.into_owned();
    Some(Ruling::deny(
        Outcome::Denied,
        messages::sleep_outside_window(&Subject::workload(&case.object), &key),
    ))
}

impl Case<'_> {
    fn stance(&self) -> Stance {
        match &self.verdict.schedule {
            Some(schedule) => self.who.stance(&schedule.enforcement),
            None => self.who.stance(&shared::policy::Enforcement::default()),
        }
    }

    fn subject(&self) -> Subject<'_> {
        Subject::workload(&self.object)
    }

    fn night(&self) -> Night {
        Night::of(&self.verdict)
    }

    /// The ruling, with what was found on the way.
    fn done(self, mut ruling: Ruling, edits: Option<Edits>) -> Ruling {
        let mut all = self.edits;
        if let Some(edits) = edits {
            all.annotations.extend(edits.annotations);
            all.labels.extend(edits.labels);
            all.knobs.extend(edits.knobs);
        }
        if ruling.answer.denial.is_none() && self.bench.phase == Phase::Mutate {
            let all = all.without_idle(self.original);
            if !all.is_empty() {
                if ruling.outcome == Outcome::Passed {
                    ruling.outcome = Outcome::Configured;
                }
                ruling.answer.patch = all.patch(self.original, Preconditions::None);
            }
        }
        let mut warnings = self.warnings;
        warnings.append(&mut ruling.answer.warnings);
        ruling.answer.warnings = warnings;
        ruling.tell.extend(self.tell);
        ruling.count_override();
        ruling
    }

    fn held(&self, outcome: Outcome) -> Ruling {
        let mut ruling = Ruling::of(outcome);
        ruling.held = Some(Held::of(&self.object, &self.verdict));
        ruling
    }

    /// What the request asks for, of the first knob among these.
    fn asked(&self, moves: &[usize]) -> Option<String> {
        let index = *moves.first()?;
        let knob = self.object.kind.knobs.get(index)?;
        matches!(knob.form, Form::Count | Form::CountText)
            .then(|| value_text(self.object.knobs.get(index).and_then(|reading| reading.value.as_ref())))
    }

    fn kept(&self, index: usize, held: &Value) -> String {
        self.object
            .kind
            .knobs
            .get(index)
            .map_or_else(|| "kept asleep".to_owned(), |knob| messages::kept(knob, held))
    }

    fn create(self) -> Ruling {
        if let (State::Unknown, Rule::Unavailable(why)) = (self.verdict.state, &self.verdict.decided_by) {
            let ruling = self.bench.uncertain(&self.subject(), why);
            // One warning is enough.
            let told = self.bench.phase == Phase::Mutate || ruling.answer.denial.is_some();
            return if told {
                self.done(ruling, None)
            } else {
                self.done(Ruling::pass(), None)
            };
        }
        if self.verdict.state != State::Down || self.bench.phase == Phase::Validate {
            return self.done(Ruling::pass(), None);
        }
        let down = self.verdict.down_replicas;
        let plan = records::plan(&self.object, down, None).filter(|_| !record::is_settled(&self.object, down));
        let Some(plan) = plan else {
            return self.done(Ruling::pass(), None);
        };
        match self.stance() {
            Stance::Pass => self.done(Ruling::pass(), None),
            Stance::Override => {
                let ruling = self.overridden(Deed::CreatedAwake);
                self.done(ruling, None)
            }
            Stance::Warn => {
                let ruling = Ruling::of(Outcome::Warned).warn(messages::will_sleep(&self.subject(), &self.night()));
                self.done(ruling, None)
            }
            Stance::Rewrite { .. } | Stance::Deny => {
                let simple = |form: &Form| matches!(form, Form::Count | Form::Flag(_) | Form::Guard { .. });
                let knobs = &self.object.kind.knobs;
                if !plan
                    .moves
                    .iter()
                    .all(|(index, _)| knobs.get(*index).is_some_and(|knob| simple(&knob.form)))
                {
                    let ruling = Ruling::of(Outcome::Warned).warn(messages::will_sleep(&self.subject(), &self.night()));
                    return self.done(ruling, None);
                }
                let edits = patch::down(&self.object, &plan, self.bench.now);
                let asked = self.asked(&plan.moves.iter().map(|(index, _)| *index).collect::<Vec<_>>());
                let memory = asked.as_deref().map_or(Memory::Nothing, Memory::Remembered);
                let kept = plan
                    .moves
                    .first()
                    .map_or_else(String::new, |(index, held)| self.kept(*index, held));
                let warning = messages::created_asleep(&self.subject(), &self.night(), &kept, memory);
                let ruling = self.held(Outcome::CreatedAsleep).warn(warning);
                self.done(ruling, Some(edits))
            }
        }
    }

    fn overridden(&self, deed: Deed<'_>) -> Ruling {
        let mut ruling = Ruling::of(Outcome::Overridden);
        if self.bench.phase == Phase::Mutate {
            ruling.tell.push(Tell {
                object: self.object.object_ref(),
                uid: Arc::clone(&self.object.uid),
                reason: super::OVERRIDDEN,
                message: messages::told(self.who.user(), deed),
            });
        }
        ruling
    }

    fn update(self, old: &Workload) -> Ruling {
        let old_record = record::own(old).filter(|record| record::is_at_or_below(old, record));
        let stance = self.stance();
        let defended = old_record
            .as_ref()
            .filter(|_| !matches!(stance, Stance::Override))
            .map(|old_record| record::effective(&self.object, old_record, self.verdict.down_replicas));
        let raise = self.raise(old, old_record.as_ref(), defended.as_ref());
        let Some(raise) = raise else {
            return self.keep_record(old, defended, stance);
        };
        match self.verdict.state {
            // The number in the request counts.
            State::Up => return self.done(Ruling::pass(), None),
            State::Unknown => {
                if let Rule::Unavailable(why) = &self.verdict.decided_by {
                    let ruling = self.bench.uncertain(&self.subject(), why);
                    return self.done(ruling, None);
                }
                return self.done(Ruling::pass(), None);
            }
            State::Down => {}
        }
        let kept = raise
            .moves
            .first()
            .map_or_else(String::new, |(index, held)| self.kept(*index, held));
        if self.bench.phase == Phase::Validate {
            let ruling = match stance {
                Stance::Pass | Stance::Warn | Stance::Override | Stance::Rewrite { silent: true } => Ruling::pass(),
                Stance::Rewrite { silent: false } => {
                    Ruling::of(Outcome::Warned).warn(messages::raised_after_us(&self.subject(), &self.night()))
                }
                Stance::Deny => Ruling::deny(Outcome::Denied, messages::denied(&self.subject(), &self.night(), &kept)),
            };
            return self.done(ruling, None);
        }
        match stance {
            Stance::Pass => self.done(Ruling::pass(), None),
            Stance::Override => {
                let ruling = self.overridden(Deed::Woke);
                self.done(ruling, None)
            }
            Stance::Warn => {
                let ruling = Ruling::of(Outcome::Warned).warn(messages::passes(&self.subject(), &self.night()));
                let edits = defended
                    .filter(|_| record::is_touched(&self.object, old))
                    .map(|record| patch::put_back(&self.object, &record));
                self.done(ruling, edits)
            }
            Stance::Deny if !raise.only_guards(&self.object) => {
                let mut ruling = self.held(Outcome::Denied);
                ruling.answer.denial = Some(crate::review::Denial {
                    message: messages::denied(&self.subject(), &self.night(), &kept),
                });
                self.done(ruling, None)
            }
            Stance::Deny => self.rewrite(old, &raise, defended, false, &kept),
            Stance::Rewrite { silent } => self.rewrite(old, &raise, defended, silent, &kept),
        }
    }

    /// What the request wakes, if it wakes anything that is down.
    fn raise(&self, old: &Workload, old_record: Option<&Record>, record: Option<&Record>) -> Option<Plan> {
        let (Some(old_record), Some(record)) = (old_record, record.or(old_record)) else {
            // Its owner's own sleep, or that of another product.
            let down = self.verdict.down_replicas;
            if record::is_settled(&self.object, down) || records::plan(old, down, None).is_some() {
                return None;
            }
            return records::plan(&self.object, down, None);
        };
        let mut moves = Vec::new();
        for (index, knob) in self.object.kind.knobs.iter().enumerate() {
            let value = |workload: &Workload| workload.knobs.get(index).and_then(|reading| reading.value.clone());
            let (was, is) = (value(old), value(&self.object));
            let woken = match &knob.form {
                Form::Guard { from, .. } => was != is && is.as_ref().and_then(Value::as_str) == Some(from.as_ref()),
                // An absent count says nothing of what it stands for; putting back more would raise it.
                Form::Count if index == 0 && is.is_none() => {
                    records::standing(None) > Some(record.held_replicas)
                        && records::is_down(&knob.form, was.as_ref(), old_record.held_replicas)
                }
                // A further one is a minimum: nothing is asked for any more.
                Form::Count if is.is_none() => false,
                form => {
                    records::is_down(form, was.as_ref(), old_record.held_replicas)
                        && !records::is_down(form, is.as_ref(), record.held_replicas)
                }
            };
            if woken {
                moves.push((index, record.held(knob)));
            }
        }
        (!moves.is_empty()).then_some(Plan {
            moves,
            replicas: record.held_replicas,
        })
    }

    fn rewrite(self, old: &Workload, raise: &Plan, record: Option<Record>, silent: bool, kept: &str) -> Ruling {
        let indexes: Vec<usize> = raise.moves.iter().map(|(index, _)| *index).collect();
        let edits = match (record, silent) {
            (Some(mut record), _) => {
                if !silent {
                    self.take_down(&mut record, &indexes);
                }
                let mut edits = patch::down_again(&self.object, &record);
                // Only what was raised goes back: a count that was lowered is its owner's wish.
                edits.knobs.retain(|index, _| indexes.contains(index));
                edits
            }
            // An autoscaler's numbers are never recorded: the knobs go back to what they were.
            (None, true) => {
                let mut edits = Edits::default();
                for (index, held) in &raise.moves {
                    let was = old.knobs.get(*index).and_then(|reading| reading.value.clone());
                    // A count that is absent now stands for less than what it was, maybe: that would raise it.
                    let more = match (was.as_ref().and_then(count), count(held)) {
                        (Some(was), Some(held)) => was > held,
                        _ => false,
                    };
                    edits.knobs.insert(*index, if more { Some(held.clone()) } else { was });
                }
                edits
            }
            (None, false) => patch::down(&self.object, raise, self.bench.now),
        };
        let mut ruling = self.held(Outcome::Held);
        if !silent {
            let asked = self.asked(&indexes);
            let memory = asked.as_deref().map_or(Memory::Nothing, Memory::Remembered);
            let kept = edits
                .knobs
                .first_key_value()
                .and_then(|(index, value)| Some(self.kept(*index, value.as_ref()?)))
                .unwrap_or_else(|| kept.to_owned());
            ruling = ruling.warn(messages::held(&self.subject(), &self.night(), &kept, memory));
        }
        self.done(ruling, Some(edits))
    }

    /// Writes into the record what the request asks for.
    fn take_down(&self, record: &mut Record, indexes: &[usize]) {
        for index in indexes {
            let (Some(knob), Some(entry)) = (self.object.kind.knobs.get(*index), record.entries.get_mut(*index)) else {
                continue;
            };
            let asked = self.object.knobs.get(*index).and_then(|reading| reading.value.clone());
            let counts = matches!(knob.form, Form::Count | Form::CountText | Form::Guard { .. });
            // A flag or text that we moved has only one other meaning: awake.
            if counts || *entry == Entry::None {
                *entry = Entry::Was(asked);
            }
        }
        record.held_replicas = record::wanted(record, self.verdict.down_replicas);
    }

    /// The request wakes nothing: only the record has to be looked after.
    fn keep_record(self, old: &Workload, record: Option<Record>, stance: Stance) -> Ruling {
        let never = matches!(stance, Stance::Pass | Stance::Override);
        let Some(record) = record.filter(|_| !never && record::is_touched(&self.object, old)) else {
            return self.done(Ruling::pass(), None);
        };
        let edits = patch::put_back(&self.object, &record).without_idle(&self.object);
        if edits.is_empty() || self.bench.phase == Phase::Validate {
            return self.done(Ruling::pass(), None);
        }
        let saved = edits
            .labels
            .get(ASLEEP)
            .cloned()
            .flatten()
            .or_else(|| record.replicas().map(|count| count.to_string()))
            .unwrap_or_else(|| "awake".to_owned());
        let mut ruling = Ruling::of(Outcome::PutBack).warn(messages::record_put_back(&self.subject(), &saved));
        ruling.tell.push(Tell {
            object: self.object.object_ref(),
            uid: Arc::clone(&self.object.uid),
            reason: "RecordPutBack",
            message: messages::told(self.who.user(), Deed::Record),
        });
        self.done(ruling, Some(edits))
    }
}

/// Whether only guards are concerned: those are put back under every mode that holds.
trait OnlyGuards {
    fn only_guards(&self, workload: &Workload) -> bool;
}

impl OnlyGuards for Plan {
    fn only_guards(&self, workload: &Workload) -> bool {
        self.moves.iter().all(|(index, _)| {
            workload
                .kind
                .knobs
                .get(*index)
                .is_some_and(|knob| matches!(knob.form, Form::Guard { .. }))
        })
    }
}
