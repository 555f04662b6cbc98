//! CREATE and UPDATE of an `OffHoursSchedule`: understood by the same parser that will act on it, or refused. Pure.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::api::{self, OffHoursScheduleSpec};
use shared::messages;

use super::{Bench, Outcome, Phase, Ruling};
use crate::review::Request;

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

pub(super) fn rule(request: &Request<'_>, bench: &Bench<'_>) -> Ruling {
    if bench.phase == Phase::Mutate || !matches!(&*request.operation, "CREATE" | "UPDATE") {
        return Ruling::pass();
    }
    let Some(raw) = request.object else {
        return bench.unreadable("it has no object");
    };
    let name: &str = &request.name;
    let spec = |raw: &RawValue| -> Result<serde_json::Value, serde_json::Error> {
        let object: Object<'_> = serde_json::from_str(raw.get())?;
        object
            .spec
            .map_or(Ok(serde_json::Value::Null), |spec| serde_json::from_str(spec.get()))
    };
    let new = match spec(raw) {
        Ok(new) => new,
        Err(error) => return bench.unreadable(&error.to_string()),
    };
    // A finalizer has to go from a schedule whose spec was never right.
    if request
        .old_object
        .map(spec)
        .and_then(Result::ok)
        .is_some_and(|old| old == new)
    {
        return Ruling::pass();
    }
    let invalid =
        |problems: &[String]| Ruling::deny(Outcome::Misconfigured, messages::schedule_invalid(name, problems));
    let spec = match OffHoursScheduleSpec::deserialize(&new) {
        Ok(spec) => spec,
        Err(error) => return invalid(&[format!("spec: {error}")]),
    };
    let mut problems: Vec<String> = Vec::new();
    if !name.is_empty()
        && let Err(problem) = api::validate_name(name)
    {
        problems.push(problem.to_string());
    }
    match api::validate(&spec) {
        Ok(validated) if problems.is_empty() => {
            let mut ruling = Ruling::pass();
            ruling.answer.warnings = validated.warnings.iter().map(messages::problem).collect();
            ruling
        }
        Ok(_) => invalid(&problems),
        Err(more) => {
            problems.extend(more.iter().map(ToString::to_string));
            invalid(&problems)
        }
    }
}
