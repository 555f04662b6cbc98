//! How a timeline is written: for people, for programs, for calendars.

use std::fmt::Write;

use jiff::tz::TimeZoneTransition;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use shared::schedule::{Problem, State, Transition, Warning, Zone};

use super::Format;
use super::source::Loaded;
use crate::commands::tool;

/// A stretch of time with its transitions.
pub struct Range {
    pub from: Timestamp,
    pub to: Timestamp,
    pub zone: Zone,
    pub transitions: Vec<Transition>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RangeJson<'r> {
    schedule: &'r str,
    time_zone: &'r str,
    from: Timestamp,
    to: Timestamp,
    state_at_from: StateJson<'r>,
    transitions: Vec<TransitionJson<'r>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StateJson<'r> {
    state: &'static str,
    decided_by: &'static str,
    reason: Option<&'r str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TransitionJson<'r> {
    at: Timestamp,
    local: String,
    to: &'static str,
    decided_by: &'static str,
    reason: Option<&'r str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstantJson {
    at: Timestamp,
    local: String,
    state: &'static str,
    decided_by: &'static str,
    until: Option<Timestamp>,
}

#[derive(Serialize)]
struct ProblemsJson<'r> {
    errors: Vec<ProblemJson<'r>>,
    warnings: Vec<ProblemJson<'r>>,
}

#[derive(Serialize)]
struct ProblemJson<'r> {
    path: &'r str,
    message: &'r str,
}

/// What is wrong, for programs.
pub fn problems(problems: &[Problem], warnings: &[Warning], format: Format) -> anyhow::Result<String> {
    let all = ProblemsJson {
        errors: problems
            .iter()
            .map(|problem| ProblemJson {
                path: &problem.path,
                message: &problem.message,
            })
            .collect(),
        warnings: warnings
            .iter()
            .map(|warning| ProblemJson {
                path: &warning.path,
                message: &warning.message,
            })
            .collect(),
    };
    written(&all, format)
}

/// For programs: YAML where that was asked for, else JSON.
fn written(value: &impl Serialize, format: Format) -> anyhow::Result<String> {
    if format == Format::Yaml {
        tool::yaml(value)
    } else {
        tool::json(value)
    }
}

/// One instant.
pub fn instant(loaded: &Loaded, at: Timestamp, zone: &Zone, format: Format) -> anyhow::Result<String> {
    let timeline = &loaded.validated.timeline;
    let moment = timeline.state_at(at);
    let next = timeline.next_transition(at)?;
    let until = next.as_ref().map(|next| next.at);
    if matches!(format, Format::Json | Format::Yaml) {
        let found = InstantJson {
            at,
            local: zone.display(at),
            state: moment.state.as_str(),
            decided_by: moment.decided_by.as_str(),
            until,
        };
        return written(&found, format);
    }
    let mut text = String::new();
    let reason = moment
        .reason
        .as_deref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    writeln!(text, "Schedule {}, time zone {}", loaded.name, timeline.zone())?;
    writeln!(
        text,
        "{}  {}, decided by {}{reason}",
        zone.display(at),
        moment.state,
        moment.decided_by
    )?;
    match until {
        Some(until) => writeln!(text, "until {} ({until})", zone.display(until))?,
        None => writeln!(text, "without end")?,
    }
    Ok(text)
}

/// A stretch of time.
pub fn range(loaded: &Loaded, range: &Range, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Json | Format::Yaml => range_written(loaded, range, format),
        Format::Table => table(loaded, range),
        Format::Ics => Ok(ics(loaded, range)),
    }
}

fn range_written(loaded: &Loaded, range: &Range, format: Format) -> anyhow::Result<String> {
    let moment = loaded.validated.timeline.state_at(range.from);
    let found = RangeJson {
        schedule: &loaded.name,
        time_zone: loaded.validated.timeline.zone().name(),
        from: range.from,
        to: range.to,
        state_at_from: StateJson {
            state: moment.state.as_str(),
            decided_by: moment.decided_by.as_str(),
            reason: moment.reason.as_deref(),
        },
        transitions: range
            .transitions
            .iter()
            .map(|transition| TransitionJson {
                at: transition.at,
                local: range.zone.display(transition.at),
                to: transition.to.as_str(),
                decided_by: transition.decided_by.as_str(),
                reason: transition.reason.as_deref(),
            })
            .collect(),
    };
    written(&found, format)
}

/// A line of the table.
struct Line {
    at: Timestamp,
    state: String,
    decided_by: String,
    lasts: String,
    note: String,
}

fn table(loaded: &Loaded, range: &Range) -> anyhow::Result<String> {
    let timeline = &loaded.validated.timeline;
    let moment = timeline.state_at(range.from);
    let changes = clock_changes(&range.zone, range.from, range.to);
    let mut lines = Vec::new();
    let starts_here = range.transitions.first().is_some_and(|first| first.at == range.from);
    if !starts_here {
        let note = moment.reason.as_deref().unwrap_or_default().to_owned();
        lines.push((range.from, moment.state, moment.decided_by, note));
    }
    lines.extend(range.transitions.iter().map(|transition| {
        let note = transition.reason.as_deref().unwrap_or_default().to_owned();
        (transition.at, transition.to, transition.decided_by, note)
    }));
    let ends = lines
        .iter()
        .skip(1)
        .map(|line| line.0)
        .chain([range.to])
        .collect::<Vec<_>>();
    let mut lines: Vec<Line> = lines
        .into_iter()
        .zip(ends)
        .map(|((at, state, decided_by, mut note), end)| {
            let date = range.zone.time_zone().to_datetime(at).date();
            if changes
                .iter()
                .any(|(change, _)| range.zone.time_zone().to_datetime(*change).date() == date)
            {
                let mark = "DST day";
                note = if note.is_empty() {
                    mark.to_owned()
                } else {
                    format!("{note} ({mark})")
                };
            }
            let lasts = lasts(end.duration_since(at));
            Line {
                at,
                state: state.to_string(),
                decided_by: decided_by.to_string(),
                lasts,
                note,
            }
        })
        .collect();
    lines.extend(changes.into_iter().map(|(at, note)| Line {
        at,
        state: "-".to_owned(),
        decided_by: "-".to_owned(),
        lasts: String::new(),
        note,
    }));
    lines.sort_by_key(|line| line.at);

    let mut text = String::new();
    writeln!(text, "Schedule {}, time zone {}", loaded.name, timeline.zone())?;
    if range.zone != *timeline.zone() {
        writeln!(text, "Local times are shown in {}", range.zone)?;
    }
    writeln!(
        text,
        "{:<LOCAL_WIDTH$}  {:<20}  {:<7}  {:<10}  {:<8}  NOTE",
        "LOCAL", "UTC", "STATE", "DECIDED BY", "FOR"
    )?;
    for line in lines {
        let local = line
            .at
            .to_zoned(range.zone.time_zone().clone())
            .strftime("%a %Y-%m-%d %H:%M:%S %:z")
            .to_string();
        let row = format!(
            "{local:<LOCAL_WIDTH$}  {:<20}  {:<7}  {:<10}  {:<8}  {}",
            line.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            line.state,
            line.decided_by,
            line.lasts,
            line.note
        );
        writeln!(text, "{}", row.trim_end())?;
    }
    Ok(text)
}

/// Width of `Mon 2026-11-30 20:00:00 +01:00`.
const LOCAL_WIDTH: usize = 30;

/// The changes of the clock in `[from, to)` that move it, with what they do.
fn clock_changes(zone: &Zone, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, String)> {
    let just_before = from.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(from);
    let zone = zone.time_zone();
    zone.following(just_before)
        .map(|change: TimeZoneTransition<'_>| change.timestamp())
        .take_while(|at| *at < to)
        .filter_map(|at| {
            let before = zone.to_offset(at.checked_sub(SignedDuration::from_nanos(1)).ok()?);
            let after = zone.to_offset(at);
            let (way, moved) = match after.seconds() - before.seconds() {
                0 => return None,
                forward @ 1.. => ("forward", forward),
                back => ("back", -back),
            };
            let moved = lasts(SignedDuration::from_secs(i64::from(moved)));
            Some((
                at,
                format!(
                    "DST: clocks go {way} {moved} ({} to {})",
                    before.to_datetime(at).time(),
                    after.to_datetime(at).time()
                ),
            ))
        })
        .collect()
}

/// `3d4h`, `12h30m`, `45m`, `30s`: the two largest units.
fn lasts(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let shown: Vec<String> = units
        .into_iter()
        .skip_while(|(number, _)| *number == 0)
        .take(2)
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if shown.is_empty() {
        "0s".to_owned()
    } else {
        shown.concat()
    }
}

/// An event for each time down; what is down at the ends of the range is cut there.
fn ics(loaded: &Loaded, range: &Range) -> String {
    let stamp = |at: Timestamp| at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let first = loaded.validated.timeline.state_at(range.from);
    let mut spans: Vec<(Timestamp, State, Option<&str>)> = vec![(range.from, first.state, first.reason.as_deref())];
    spans.extend(
        range
            .transitions
            .iter()
            .map(|transition| (transition.at, transition.to, transition.reason.as_deref())),
    );
    let ends: Vec<Timestamp> = spans.iter().skip(1).map(|span| span.0).chain([range.to]).collect();
    let mut text = String::new();
    let mut line = |content: &str| fold(&mut text, content);
    line("BEGIN:VCALENDAR");
    line("VERSION:2.0");
    line("PRODID:-//offhours//timeline//EN");
    for ((start, state, reason), end) in spans.into_iter().zip(ends) {
        if state != State::Down || start >= end {
            continue;
        }
        line("BEGIN:VEVENT");
        line(&format!("UID:{}-{}@offhours", loaded.name, stamp(start)));
        line(&format!("DTSTAMP:{}", stamp(range.from)));
        line(&format!("DTSTART:{}", stamp(start)));
        line(&format!("DTEND:{}", stamp(end)));
        line(&format!("SUMMARY:{}", escape(&format!("{} is down", loaded.name))));
        if let Some(reason) = reason {
            line(&format!("DESCRIPTION:{}", escape(reason)));
        }
        line("TRANSP:TRANSPARENT");
        line("END:VEVENT");
    }
    line("END:VCALENDAR");
    text
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace(';', "\\;")
        .replace(',', "\\,")
        .replace(['\n', '\r'], " ")
}

/// Writes a content line, folded at 75 bytes as RFC 5545 asks, ended by CRLF.
fn fold(text: &mut String, content: &str) {
    let mut width = 0;
    for character in content.chars() {
        if width + character.len_utf8() > 75 {
            text.push_str("\r\n ");
            width = 1;
        }
        text.push(character);
        width += character.len_utf8();
    }
    text.push_str("\r\n");
}
