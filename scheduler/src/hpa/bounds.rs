//! `minReplicas` and `maxReplicas` of one HPA: capped or zeroed while its target sleeps, and given back. (Client not required.)

use jiff::Timestamp;
use serde_json::Value;
use shared::annotations::{
    DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS, ORIGINAL_SCALE_TARGET, format_instant, parse_instant, record_key,
    whole,
};
use shared::api::HpaMode;
use shared::hpa::Hpa;
use shared::kinds::value_text;
use shared::patch::Edits;
use shared::record::{self, Entry, Record};

const MIN: usize = 0;
const MAX: usize = 1;
const TARGET: usize = 2;

/// How an HPA is held while its target sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// `minReplicas` is 0.
    MinZero,
    /// Neither bound is above this number, which is not 0.
    Cap(u64),
}

impl Holding {
    /// What a sleep at so many replicas asks for. `None`: nothing.
    pub fn of(replicas: u64, mode: HpaMode) -> Option<Self> {
        match (replicas, mode) {
            (0, HpaMode::MinZero) => Some(Self::MinZero),
            (0, _) => None,
            (replicas, _) => Some(Self::Cap(replicas)),
        }
    }

    fn of_record(replicas: u64) -> Self {
        if replicas == 0 {
            Self::MinZero
        } else {
            Self::Cap(replicas)
        }
    }

    /// What a bound with this original becomes.
    fn held(self, index: usize, original: Option<&Value>) -> Option<Value> {
        let number = original.and_then(Value::as_u64);
        match (self, index) {
            (Self::MinZero, MIN) => Some(0.into()),
            // Kubernetes takes 1 for an absent minimum, which no cap is below.
            (Self::Cap(cap), _) if number.is_some_and(|number| number > cap) => Some(cap.into()),
            _ => original.cloned(),
        }
    }
}

fn present(hpa: &Hpa, index: usize) -> Option<&Value> {
    hpa.object.knobs.get(index)?.value.as_ref()
}

fn entry(hpa: &Hpa, index: usize) -> Entry {
    let knob = hpa.object.kind.knobs.get(index);
    knob.map_or(Entry::None, |knob| {
        hpa.object
            .annotation(&knob.record_key())
            .map_or(Entry::None, |text| record::parse(&hpa.object.kind, knob, text))
    })
}

/// How we hold it now; `None`: we do not. A record without it is what the webhook remembered, or K8s-OffHours'.
fn holding(hpa: &Hpa) -> Option<Holding> {
    hpa.object.annotation(DOWN_SINCE)?;
    let replicas = hpa.object.annotation(HELD_REPLICAS).and_then(whole).unwrap_or(0);
    Some(Holding::of_record(replicas))
}

/// What a bound is by day: the record, unless somebody has set the bound since.
fn original(hpa: &Hpa, index: usize) -> Option<Value> {
    let present = present(hpa, index);
    match (entry(hpa, index), holding(hpa)) {
        (Entry::Was(value), None) => value,
        (Entry::Was(value), Some(holding)) if holding.held(index, value.as_ref()).as_ref() == present => value,
        _ => present.cloned(),
    }
}

/// `[min, max]` by day.
pub(super) fn by_day(hpa: &Hpa) -> (u64, u64) {
    let number = |index: usize| original(hpa, index).and_then(|value| value.as_u64());
    let min = number(MIN).unwrap_or(1);
    (min, number(MAX).unwrap_or(u64::MAX).max(min))
}

/// How far its target has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The target has no record yet, and this count: the controller must find no reason to lower it before it has one. So only
    /// the minimum goes down, and the count is kept here, too, until the target's own record is there.
    Unrecorded(Option<u64>),
    /// What the target was is written down on it.
    Recorded,
}

/// The change that holds it.
pub(super) fn hold(hpa: &Hpa, holding: Holding, stage: Stage, now: Timestamp) -> Edits {
    let mut edits = Edits::default();
    let mut moved = false;
    for index in [MIN, MAX] {
        let Some(knob) = hpa.object.kind.knobs.get(index) else {
            continue;
        };
        let original = original(hpa, index);
        let held = match stage {
            // A cap that is there although nothing is recorded would pull the target down.
            Stage::Unrecorded(_) if index == MAX && is_held(hpa) => original.clone(),
            Stage::Unrecorded(_) if index == MAX => continue,
            Stage::Unrecorded(_) | Stage::Recorded => holding.held(index, original.as_ref()),
        };
        let key = knob.record_key();
        let record = (held != original).then(|| value_text(original.as_ref()));
        moved |= record.is_some();
        edits.annotations.insert(key, record);
        edits.knobs.insert(index, held);
    }
    let replicas = match holding {
        Holding::MinZero => None,
        Holding::Cap(replicas) => Some(replicas.to_string()),
    };
    edits
        .annotations
        .insert(HELD_REPLICAS.to_owned(), replicas.filter(|_| moved));
    let since = hpa
        .object
        .annotation(DOWN_SINCE)
        .map_or_else(|| format_instant(now), str::to_owned);
    edits
        .annotations
        .insert(DOWN_SINCE.to_owned(), Some(since).filter(|_| moved));
    let count = match (stage, holding) {
        (Stage::Unrecorded(Some(count)), Holding::Cap(cap)) if moved => hpa
            .object
            .annotation(ORIGINAL_REPLICAS)
            .map(str::to_owned)
            .or_else(|| (count > cap).then(|| count.to_string())),
        _ => None,
    };
    edits.annotations.insert(ORIGINAL_REPLICAS.to_owned(), count);
    edits.without_idle(&hpa.object)
}

/// Whether it is held by us.
pub(super) fn is_held(hpa: &Hpa) -> bool {
    holding(hpa).is_some()
}

/// Whether its controller may pull its target down to the number that is kept by night.
pub(super) fn is_capped(hpa: &Hpa) -> bool {
    matches!(holding(hpa), Some(Holding::Cap(_))) && entry(hpa, MAX) != Entry::None
}

/// What its target was when it was first held, where the target's own record was not seen yet: the copy of that record.
pub(super) fn saved(hpa: &Hpa) -> Option<Record> {
    let count = hpa.object.annotation(ORIGINAL_REPLICAS).and_then(whole)?;
    let Some(Holding::Cap(held_replicas)) = holding(hpa) else {
        return None;
    };
    let since = hpa.object.annotation(DOWN_SINCE)?;
    Some(Record {
        entries: vec![Entry::Was(Some(count.into()))],
        down_since: parse_instant(DOWN_SINCE, since).ok(),
        held_replicas,
        foreign: false,
        differs: false,
    })
}

/// How much is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    /// What would pull the target down again. A minimum above what it has would make its controller raise it, and that write
    /// may come after ours: a conflict does not stop it.
    Cap,
    All,
}

/// The change that gives it back, and the text of a record that could not be read.
pub(super) fn give_back(hpa: &Hpa, back: Back) -> (Edits, Option<String>) {
    let mut edits = Edits::default();
    let mut unreadable = None;
    let only_cap = back == Back::Cap && matches!(holding(hpa), Some(Holding::Cap(_))) && entry(hpa, MIN) != Entry::None;
    if only_cap && !is_capped(hpa) {
        return (edits, None);
    }
    for index in [MIN, MAX] {
        if only_cap && index == MIN {
            continue;
        }
        match entry(hpa, index) {
            Entry::None => {}
            Entry::Unreadable(text) => unreadable = Some(text.to_string()),
            Entry::Was(_) => {
                edits.knobs.insert(index, original(hpa, index));
            }
        }
    }
    if let (false, Some(text)) = (only_cap, hpa.object.annotation(ORIGINAL_SCALE_TARGET)) {
        match serde_json::from_str::<Value>(text) {
            Ok(target) if target.is_object() => {
                edits.knobs.insert(TARGET, Some(target));
            }
            _ => unreadable = Some(text.to_owned()),
        }
    }
    // Somebody may have changed one bound only: the API server refuses a minimum above the maximum.
    let after = |index: usize| {
        let wanted = edits.knobs.get(&index).cloned();
        wanted.unwrap_or_else(|| present(hpa, index).cloned())?.as_u64()
    };
    if let (Some(min), Some(max)) = (after(MIN), after(MAX))
        && min > max
    {
        edits.knobs.insert(MIN, Some(max.into()));
    }
    let keys = hpa.object.annotations.iter().flatten().map(|(key, _)| key.as_ref());
    let goes = |key: &&str| {
        if only_cap {
            **key == record_key("max-replicas")
        } else {
            is_ours(key)
        }
    };
    for key in keys.filter(goes) {
        edits.annotations.insert(key.to_owned(), None);
    }
    (edits.without_idle(&hpa.object), unreadable)
}

fn is_ours(key: &str) -> bool {
    [DOWN_SINCE, HELD_REPLICAS, ORIGINAL_REPLICAS, ORIGINAL_SCALE_TARGET].contains(&key)
        || key == record_key("min-replicas")
        || key == record_key("max-replicas")
}
