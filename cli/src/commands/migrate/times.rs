//! What one place of theirs says about time, as a spec.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::downscaler::Peer;
use super::result::Migration;
use super::spans;

/// What one place says about time: of these four, the narrowest place that sets one speaks alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times {
    /// `uptime`.
    pub uptime: Option<String>,
    /// `downtime`.
    pub downtime: Option<String>,
    /// `upscale-period`.
    pub upscale: Option<String>,
    /// `downscale-period`.
    pub downscale: Option<String>,
}

impl Times {
    /// Read by keys, in the order of the fields.
    pub fn of(read: impl Fn(&str) -> Option<String>, keys: [&str; 4]) -> Self {
        let [uptime, downtime, upscale, downscale] = keys.map(|key| read(key).filter(|text| !text.trim().is_empty()));
        Self {
            uptime,
            downtime,
            upscale,
            downscale,
        }
    }

    /// Whether any is there.
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }
}

/// Sets a key of an object.
pub fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

/// Spec of what one place says about time.
pub fn spec(peer: Peer, times: &Times, origin: &str, out: &mut Migration) -> Option<Value> {
    let mut failed = false;
    let mut read = |what: &str, text: &Option<String>, periods: bool, out: &mut Migration| {
        let text = text.as_deref()?;
        let converted = if periods {
            spans::starts(peer, text)
        } else {
            spans::windows(peer, text)
        };
        match converted {
            Ok(converted) => {
                for difference in converted.differences {
                    out.differs(format!("{origin}, {what}: {difference}"));
                }
                Some(converted.parts).filter(|parts| !parts.is_empty())
            }
            Err(error) => {
                out.differs(format!("{origin}, {what}: {error}"));
                failed = true;
                None
            }
        }
    };
    let periods = times.upscale.is_some() || times.downscale.is_some();
    let (shutdown, startup, uptime, downtime) = if periods {
        if times.uptime.is_some() || times.downtime.is_some() {
            out.note(format!(
                "{origin}: beside a period, uptime and downtime count for nothing, as with theirs"
            ));
        }
        (
            read("downscale-period", &times.downscale, true, out),
            read("upscale-period", &times.upscale, true, out),
            None,
            None,
        )
    } else {
        (
            None,
            None,
            read("uptime", &times.uptime, false, out),
            read("downtime", &times.downtime, false, out),
        )
    };
    if failed {
        return None;
    }
    let all: Vec<&(String, Option<String>)> = [&shutdown, &startup, &uptime, &downtime]
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    if all.is_empty() {
        return None;
    }
    let zones: BTreeSet<&str> = all.iter().filter_map(|(_, zone)| zone.as_deref()).collect();
    let common = (zones.len() == 1).then(|| zones.first().copied()).flatten();
    let mut spec = json!({"timeZone": common.unwrap_or("UTC")});
    let written = |parts: &[(String, Option<String>)], cron: bool| -> Value {
        let texts = parts
            .iter()
            .map(|(text, zone)| match zone.as_deref().filter(|_| common.is_none()) {
                None => text.clone(),
                Some(zone) if cron => format!("CRON_TZ={zone} {text}"),
                Some(zone) => format!("{text} {zone}"),
            });
        texts.collect()
    };
    if periods {
        let mut cron = json!({});
        for (key, parts) in [("shutdown", &shutdown), ("startup", &startup)] {
            if let Some(parts) = parts {
                set(&mut cron, key, written(parts, true));
            }
        }
        set(&mut spec, "cron", cron);
        // Outside its periods theirs leaves alone what a person changes.
        set(&mut spec, "enforcement", json!({"mode": "Warn"}));
        out.note(format!(
            "{origin}: a period became the instant at which it begins; what a person wakes afterwards stays awake until the next one \
             (enforcement Warn), within the period as well"
        ));
    } else {
        for (key, parts) in [("uptime", &uptime), ("downtime", &downtime)] {
            if let Some(parts) = parts {
                set(&mut spec, key, written(parts, false));
            }
        }
    }
    Some(spec)
}
