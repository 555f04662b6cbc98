//! The times of py-kube-downscaler and GoKubeDownscaler, turned into windows and cron expressions.

use super::downscaler::Peer;

/// One of their time spans.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Span {
    /// At every instant.
    Always,
    /// At no instant.
    Never,
    /// On weekdays (Monday = 0, both ends included, may wrap around), from a minute of the day to another one.
    Weekly {
        days: (usize, usize),
        start: u32,
        end: u32,
        zone: String,
    },
    /// Once.
    Absolute { from: String, to: String },
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// Minutes of a day.
const DAY: u32 = 24 * 60;

/// What came of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Windows or cron expressions, each with its zone.
    pub parts: Vec<(String, Option<String>)>,
    /// What could not be said, or is probably not meant.
    pub differences: Vec<String>,
}

/// Windows that match at the same instants. `Err`: what cannot be read.
pub fn windows(peer: Peer, text: &str) -> Result<Converted, String> {
    let mut converted = Converted::default();
    for span in read(text)? {
        match span {
            Span::Always => converted.parts.push(("always".to_owned(), None)),
            Span::Never => converted.parts.push(("never".to_owned(), None)),
            Span::Absolute { from, to } => converted.parts.push((format!("{from}/{to}"), None)),
            Span::Weekly { days, start, end, zone } => {
                let pieces = pieces(peer, start, end);
                if pieces.is_empty() {
                    converted.differences.push(never_matches(peer, days, start, end));
                    converted.parts.push(("never".to_owned(), None));
                }
                for (start, end) in pieces {
                    let window = format!("{} {}-{}", shown_days(days), clock(start), clock(end));
                    converted.parts.push((window, Some(zone.clone())));
                }
            }
        }
    }
    Ok(converted)
}

/// Cron expressions that fire where a period begins. `Err`: what cannot be read.
pub fn starts(peer: Peer, text: &str) -> Result<Converted, String> {
    let mut converted = Converted::default();
    for span in read(text)? {
        match span {
            Span::Never => {}
            Span::Always => converted
                .differences
                .push("a period that is always has no beginning at which something could happen".to_owned()),
            Span::Absolute { from, to } => converted.differences.push(format!(
                "the period {from} - {to} happens once, which no cron expression says; use an exception of the schedule"
            )),
            Span::Weekly { days, start, end, zone } => {
                let pieces = pieces(peer, start, end);
                if pieces.is_empty() {
                    converted.differences.push(never_matches(peer, days, start, end));
                }
                for (start, _) in pieces {
                    let cron = format!("{} {} * * {}", start % 60, start / 60, cron_days(days));
                    converted.parts.push((cron, Some(zone.clone())));
                }
            }
        }
    }
    Ok(converted)
}

/// The stretches of a day that a weekly span matches, on each of its days.
fn pieces(peer: Peer, start: u32, end: u32) -> Vec<(u32, u32)> {
    if start < end {
        return vec![(start, end)];
    }
    match peer {
        // Both times are compared on one day, so that nothing lies between them.
        Peer::Py => Vec::new(),
        Peer::Go if start == end => Vec::new(),
        // From the start of the day to the end, and from the start to midnight, on each of the days.
        Peer::Go => [(0, end), (start, DAY)]
            .into_iter()
            .filter(|(start, end)| start < end)
            .collect(),
    }
}

fn never_matches(peer: Peer, days: (usize, usize), start: u32, end: u32) -> String {
    let written = format!("{} {}-{}", shown_days(days), clock(start), clock(end));
    match peer {
        Peer::Py if start > end => format!(
            "`{written}` never matches in py-kube-downscaler (the end is before the start), and so is `never` here; write \
             `{written}` into the schedule if the hours over midnight are meant"
        ),
        _ => format!("`{written}` never matches (start and end are the same), and so is `never` here"),
    }
}

fn read(text: &str) -> Result<Vec<Span>, String> {
    text.split(',').map(|part| one(part.trim())).collect()
}

fn one(text: &str) -> Result<Span, String> {
    let wrong = || {
        format!(
            "{text:?} is no time of theirs, such as `Mon-Fri 08:00-20:00 Europe/Berlin` or \
             `2026-12-24T00:00:00+01:00-2026-12-27T00:00:00+01:00`"
        )
    };
    match text.to_ascii_lowercase().as_str() {
        "always" | "true" => return Ok(Span::Always),
        "never" | "false" => return Ok(Span::Never),
        _ => {}
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [days, hours, zone] = words.as_slice()
        && let Some((first, last)) = days.split_once('-')
        && let (Some(first), Some(last)) = (day(first), day(last))
    {
        let (start, end) = hours.split_once('-').ok_or_else(wrong)?;
        return Ok(Span::Weekly {
            days: (first, last),
            start: minutes(start).ok_or_else(wrong)?,
            end: minutes(end).ok_or_else(wrong)?,
            zone: (*zone).to_owned(),
        });
    }
    // Dashes are also in the dates: the one that parts two instants leaves two on both sides.
    let joined: String = words.concat();
    joined
        .match_indices('-')
        .filter_map(|(at, _)| Some((joined.get(..at)?, joined.get(at + 1..)?)))
        .find(|(from, to)| from.parse::<jiff::Timestamp>().is_ok() && to.parse::<jiff::Timestamp>().is_ok())
        .map(|(from, to)| Span::Absolute {
            from: from.to_owned(),
            to: to.to_owned(),
        })
        .ok_or_else(wrong)
}

fn day(text: &str) -> Option<usize> {
    DAYS.iter().position(|name| name.eq_ignore_ascii_case(text))
}

fn minutes(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    (minute < 60 && hour * 60 + minute <= DAY).then_some(hour * 60 + minute)
}

fn clock(minutes: u32) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn name(day: usize) -> &'static str {
    DAYS.get(day).copied().unwrap_or_default()
}

fn shown_days((first, last): (usize, usize)) -> String {
    if first == last {
        name(first).to_owned()
    } else {
        format!("{}-{}", name(first), name(last))
    }
}

/// Cron counts from Monday = 1 to Sunday = 7.
fn cron_days((first, last): (usize, usize)) -> String {
    match (first, last) {
        (0, 6) => "*".to_owned(),
        _ if first == last => (first + 1).to_string(),
        _ if first < last => format!("{}-{}", first + 1, last + 1),
        _ => (first..first + 7)
            .take((last + 7 - first) % 7 + 1)
            .map(|day| (day % 7 + 1).to_string())
            .collect::<Vec<_>>()
            .join(","),
    }
}
