//! CREATE and UPDATE of a namespace: what it configures. Pure.

use shared::messages::{self, Subject};
use shared::patch::Preconditions;
use shared::verdict::NEVER_TOUCHED;
use shared::workload::Namespace;

use super::asker::Asker;
use super::configuration::{self, Place};
use super::{Bench, Outcome, Phase, Ruling, facts};
use crate::review::Request;

pub(super) fn rule(request: &Request<'_>, who: &Asker<'_>, bench: &Bench<'_>) -> Ruling {
    let creates = match &*request.operation {
        "CREATE" => true,
        "UPDATE" => false,
        _ => return Ruling::pass(),
    };
    let read = |raw: &serde_json::value::RawValue| {
        let object = facts::pruned(bench.sight.kinds().keep_of_review(), raw)?;
        Namespace::read(&object).ok_or_else(|| "the namespace has no metadata".to_owned())
    };
    let Some(raw) = request.object else {
        return bench.unreadable("it has no object");
    };
    let namespace = match read(raw) {
        Ok(namespace) => namespace,
        Err(why) => return bench.unreadable(&why),
    };
    let name: &str = &namespace.name;
    if NEVER_TOUCHED.contains(&name) || name == bench.policy.own_namespace {
        return Ruling::pass();
    }
    let old = match request.old_object.filter(|_| !creates).map(read).transpose() {
        Ok(old) => old,
        Err(why) => return bench.unreadable(&why),
    };
    if old.is_none() && !creates {
        return bench.uncertain(&Subject::namespace(name), "the request does not say what it was");
    }
    let place = Place::Namespace {
        namespace: &namespace,
        old: old.as_ref(),
    };
    let mut ruling = Ruling::pass();
    match bench.phase {
        Phase::Mutate => {
            let schedules = configuration::of_namespace(&namespace, bench.schedules);
            // Of several, the one that allows least.
            let strictest = schedules
                .iter()
                .min_by_key(|schedule| (schedule.enforcement.max_wake.is_none(), schedule.enforcement.max_wake));
            let edits = configuration::instants(&place, who, strictest, bench, &mut ruling.answer.warnings);
            if !edits.is_empty() {
                ruling.outcome = Outcome::Configured;
                ruling.answer.patch = edits.namespace_patch(&namespace, Preconditions::None);
            }
        }
        Phase::Validate => {
            let (mut warnings, mut tell) = (Vec::new(), Vec::new());
            match configuration::check(&place, None, who, bench, &mut warnings, &mut tell) {
                Ok(()) => {
                    ruling.answer.warnings = warnings;
                    ruling.tell = tell;
                    ruling.count_override();
                }
                Err(refused) => return *refused,
            }
        }
    }
    messages::within_budget(&mut ruling.answer.warnings);
    ruling
}
