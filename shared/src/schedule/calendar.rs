//! iCalendar (RFC 5545) events as intervals.
//!
//! Events are expanded once, when the text is read: starts in wall-clock space (recurrence by the `rrule` crate, fed local times
//! as if they were UTC), then mapped to instants with the event's zone. What repeats without end is known for a bounded number of
//! instances; beyond them the calendar says that it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime as ChronoDateTime, Datelike, NaiveDate, TimeZone, Timelike};
use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Span, Timestamp};
use rrule::{RRule, RRuleSet, Tz, Unvalidated};

use super::problem::quoted;
use super::timeline::LATEST;
use super::zone::{Zone, parse_zone};

/// Bytes of text that are read; a ConfigMap holds no more.
const TEXT_LIMIT: usize = 1 << 20;
/// Events of one calendar.
const EVENT_LIMIT: usize = 5_000;
/// Instances of one event.
const INSTANCE_LIMIT: u16 = 50_000;
/// Instances of one calendar.
const CALENDAR_LIMIT: usize = 100_000;

/// The events of a calendar.
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    /// Sorted by start.
    events: Vec<Event>,
    /// For each event the latest end among it and those before it.
    latest_ends: Vec<Timestamp>,
    /// What the events cover: sorted, disjoint, not adjacent.
    covered: Vec<(Timestamp, Timestamp)>,
    /// From here on instances are missing.
    known_until: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Event {
    start: Timestamp,
    end: Timestamp,
    summary: Arc<str>,
}

impl Calendar {
    /// Reads iCalendar text. Times without a zone ("floating") and whole days are in `zone`.
    ///
    /// # Errors
    /// One message for each event that cannot be read, with its line.
    pub fn parse(text: &str, zone: &Zone) -> Result<Self, Vec<String>> {
        if text.len() > TEXT_LIMIT {
            return Err(vec![format!("the calendar has more than {TEXT_LIMIT} bytes; split it")]);
        }
        let components = components(text).map_err(|message| vec![message])?;
        let mut reader = CalendarReader::new(zone);
        let mut problems = Vec::new();
        for component in &components {
            if let Err(message) = reader.event(component) {
                problems.push(format!("event at line {}: {message}", component.line));
            }
            if problems.len() >= 20 {
                problems.push("further mistakes are not listed".to_owned());
                break;
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(reader.finish())
    }

    /// How many instances of events it has.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it has no event.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether instances at `at` may be missing.
    pub(crate) fn ends_before(&self, at: Timestamp) -> bool {
        self.known_until.is_some_and(|until| at >= until)
    }

    /// The summary of an event that covers `at`: of several, the one that began last.
    pub(crate) fn event_at(&self, at: Timestamp) -> Option<Arc<str>> {
        let begun = self.events.partition_point(|event| event.start <= at);
        let begun = self.events.iter().zip(&self.latest_ends).take(begun).rev();
        // Once the latest end so far is past, nothing earlier reaches `at`.
        let mut possible = begun.take_while(|&(_, &latest_end)| latest_end > at);
        possible
            .find(|(event, _)| event.end > at)
            .map(|(event, _)| event.summary.clone())
    }

    /// The first change strictly after `at`.
    pub(crate) fn next_edge(&self, at: Timestamp) -> Option<Timestamp> {
        let index = self.covered.partition_point(|&(_, end)| end <= at);
        let edge = self
            .covered
            .get(index)
            .map(|&(start, end)| if start > at { start } else { end });
        edge.into_iter()
            .chain(self.known_until.filter(|until| *until > at))
            .min()
    }

    /// The last change at or before `at`.
    pub(crate) fn previous_edge(&self, at: Timestamp) -> Option<Timestamp> {
        let index = self.covered.partition_point(|&(start, _)| start <= at);
        let edge = index
            .checked_sub(1)
            .and_then(|index| self.covered.get(index))
            .map(|&(start, end)| if end <= at { end } else { start });
        edge.max(self.known_until.filter(|until| *until <= at))
    }
}

/// Sorts and joins intervals that overlap or touch; empty ones go.
pub(crate) fn join(mut intervals: Vec<(Timestamp, Timestamp)>) -> Vec<(Timestamp, Timestamp)> {
    intervals.retain(|(start, end)| start < end);
    intervals.sort_unstable();
    let mut joined: Vec<(Timestamp, Timestamp)> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// One property of an event.
struct Property {
    name: String,
    parameters: Vec<(String, String)>,
    value: String,
}

/// A VEVENT, unread.
struct Component {
    /// Of its `BEGIN`, counted from 1.
    line: usize,
    properties: Vec<Property>,
}

impl Component {
    fn get(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    fn all<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c Property> {
        self.properties.iter().filter(move |property| property.name == name)
    }
}

/// Finds the VEVENTs. Components inside them (alarms) and beside them (zones, to-dos) are passed over.
fn components(text: &str) -> Result<Vec<Component>, String> {
    let mut found: Vec<Component> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut calendars = 0;
    for (number, line) in unfold(text) {
        if line.is_empty() {
            continue;
        }
        let Some(property) = property(&line) else {
            return Err(format!("line {number}: {} is not `NAME:value`", quoted(&line)));
        };
        match property.name.as_str() {
            "BEGIN" => {
                let name = property.value.trim().to_ascii_uppercase();
                calendars += usize::from(open.is_empty() && name == "VCALENDAR");
                if name == "VEVENT" {
                    if found.len() >= EVENT_LIMIT {
                        return Err(format!(
                            "line {number}: the calendar has more than {EVENT_LIMIT} events; split it"
                        ));
                    }
                    found.push(Component {
                        line: number,
                        properties: Vec::new(),
                    });
                }
                if open.len() >= 8 {
                    return Err(format!("line {number}: components are nested too deeply"));
                }
                open.push(name);
            }
            "END" => {
                let name = property.value.trim().to_ascii_uppercase();
                if open.pop().as_ref() != Some(&name) {
                    return Err(format!("line {number}: END:{name} has no BEGIN; the file is damaged"));
                }
            }
            _ if open.last().is_some_and(|name| name == "VEVENT") => {
                if let Some(event) = found.last_mut() {
                    event.properties.push(property);
                }
            }
            _ => {}
        }
    }
    if let Some(name) = open.last() {
        return Err(format!("END:{name} is missing; the file is cut off"));
    }
    if calendars == 0 {
        return Err("there is no BEGIN:VCALENDAR; this is not an iCalendar file".to_owned());
    }
    Ok(found)
}

/// Lines with their numbers; a line that begins with a space or tab goes on the one before.
fn unfold(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = if index == 0 {
            line.strip_prefix('\u{feff}').unwrap_or(line)
        } else {
            line
        };
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(more), Some((_, last))) => last.push_str(more),
            _ => lines.push((index + 1, line.to_owned())),
        }
    }
    lines
}

/// `NAME;PARAMETER=value;OTHER="quoted":value`.
fn property(line: &str) -> Option<Property> {
    let mut in_quotes = false;
    let colon = line.char_indices().find(|&(_, character)| {
        in_quotes ^= character == '"';
        character == ':' && !in_quotes
    })?;
    let (head, value) = (line.get(..colon.0)?, line.get(colon.0 + 1..)?);
    let mut in_quotes = false;
    let mut parts = head.split(|character| {
        in_quotes ^= character == '"';
        character == ';' && !in_quotes
    });
    let name = parts.next()?.to_ascii_uppercase();
    if name.is_empty() {
        return None;
    }
    let parameters = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.to_ascii_uppercase(), value.trim_matches('"').to_owned()))
        .collect();
    Some(Property {
        name,
        parameters,
        value: value.to_owned(),
    })
}

impl Property {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A DATE or DATE-TIME value.
#[derive(Clone)]
struct When {
    wall: DateTime,
    zone: Zone,
    whole_day: bool,
}

struct CalendarReader<'z> {
    zone: &'z Zone,
    /// (uid, start) of instances that another event of the same uid replaces.
    replaced: BTreeSet<(String, Timestamp)>,
    /// Events by (uid, start as the recurrence gives it).
    events: Vec<(String, Event)>,
    singles: Vec<Event>,
    zones: BTreeMap<String, Zone>,
    known_until: Option<Timestamp>,
}

impl<'z> CalendarReader<'z> {
    fn new(zone: &'z Zone) -> Self {
        Self {
            zone,
            replaced: BTreeSet::new(),
            events: Vec::new(),
            singles: Vec::new(),
            zones: BTreeMap::new(),
            known_until: None,
        }
    }

    fn event(&mut self, component: &Component) -> Result<(), String> {
        let start_property = component.get("DTSTART").ok_or("DTSTART is missing")?;
        let start = self.when(start_property, &start_property.value)?;
        let summary: Arc<str> = component
            .get("SUMMARY")
            .map_or_else(|| Arc::from("calendar event"), |property| summary(&property.value));
        let cancelled = component
            .get("STATUS")
            .is_some_and(|status| status.value.trim().eq_ignore_ascii_case("CANCELLED"));
        let uid = component
            .get("UID")
            .map(|property| property.value.clone())
            .unwrap_or_default();
        let length = self.length(component, &start)?;
        let event = |wall: DateTime| {
            let end = wall.checked_add(length).unwrap_or(DateTime::MAX);
            Event {
                start: start.zone.instant(wall),
                end: start.zone.instant(end),
                summary: summary.clone(),
            }
        };

        if let Some(instance) = component.get("RECURRENCE-ID") {
            let original = self.when(instance, &instance.value)?;
            self.replaced.insert((uid, original.zone.instant(original.wall)));
            if !cancelled {
                self.singles.push(event(start.wall));
            }
            return Ok(());
        }
        if cancelled {
            return Ok(());
        }

        let mut walls = BTreeSet::from([start.wall]);
        for rule in component.all("RRULE") {
            self.recur(&rule.value, &start, &mut walls)?;
        }
        for dates in component.all("RDATE") {
            for value in dates.value.split(',') {
                // A period's end is not looked at: every instance is as long as the event.
                let value = value.split('/').next().unwrap_or_default();
                walls.insert(self.when(dates, value)?.wall);
            }
        }
        let mut excluded = BTreeSet::new();
        for dates in component.all("EXDATE") {
            for value in dates.value.split(',') {
                let when = self.when(dates, value)?;
                excluded.insert(when.zone.instant(when.wall));
            }
        }
        for wall in walls {
            let event = event(wall);
            if !excluded.contains(&event.start) {
                if self.events.len() >= CALENDAR_LIMIT {
                    return Err(format!(
                        "the calendar has more than {CALENDAR_LIMIT} instances; split it, or end its rules"
                    ));
                }
                self.events.push((uid.clone(), event));
            }
        }
        Ok(())
    }

    /// Adds the starts that an RRULE gives.
    fn recur(&mut self, rule: &str, start: &When, walls: &mut BTreeSet<DateTime>) -> Result<(), String> {
        let wrong = |error: &dyn std::fmt::Display| format!("RRULE {} cannot be read: {error}", quoted(rule));
        // No rule has others, and the crate panics at some.
        if !rule.is_ascii() {
            return Err(wrong(&"it has a character that is not ASCII"));
        }
        let mut parts = Vec::new();
        for part in rule.trim().split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(&"a part has no `=`"))?;
            match name.to_ascii_uppercase().as_str() {
                "FREQ"
                    if !matches!(
                        value.to_ascii_uppercase().as_str(),
                        "DAILY" | "WEEKLY" | "MONTHLY" | "YEARLY"
                    ) =>
                {
                    return Err(wrong(&"FREQ is DAILY, WEEKLY, MONTHLY or YEARLY here"));
                }
                "BYSECOND" | "BYMINUTE" | "BYHOUR" => {
                    return Err(wrong(
                        &"BYHOUR, BYMINUTE and BYSECOND are not supported; write several events",
                    ));
                }
                // The crate thinks in UTC where we think in local times.
                "UNTIL" => {
                    let until = self.until(value, start).map_err(|message| wrong(&message))?;
                    parts.push(format!("UNTIL={}", until.strftime("%Y%m%dT%H%M%SZ")));
                }
                name => parts.push(format!("{name}={}", value.to_ascii_uppercase())),
            }
        }
        let first = to_chrono(start.wall).ok_or_else(|| wrong(&"the start is outside of the calendar"))?;
        let rule: RRule<Unvalidated> = parts
            .join(";")
            .parse()
            .map_err(|error: rrule::RRuleError| wrong(&error))?;
        let end = Tz::UTC
            .with_ymd_and_hms(2100, 1, 2, 0, 0, 0)
            .single()
            .ok_or_else(|| wrong(&"no end"))?;
        let set = RRuleSet::new(first)
            .rrule(rule.validate(first).map_err(|error| wrong(&error))?)
            .before(end);
        let result = set.all(INSTANCE_LIMIT);
        let last = result.dates.last().copied().and_then(to_jiff);
        walls.extend(result.dates.into_iter().filter_map(to_jiff));
        if result.limited {
            let until = start.zone.instant(last.unwrap_or(start.wall));
            self.known_until = Some(self.known_until.map_or(until, |known| known.min(until)));
        }
        Ok(())
    }

    fn until(&mut self, value: &str, start: &When) -> Result<DateTime, String> {
        let plain = Property {
            name: "UNTIL".to_owned(),
            parameters: Vec::new(),
            value: String::new(),
        };
        let until = self.when(&plain, value)?;
        Ok(if until.whole_day {
            until.wall.date().to_datetime(Time::constant(23, 59, 59, 0))
        } else if value.ends_with(['Z', 'z']) {
            start.zone.wall(until.zone.instant(until.wall))
        } else {
            until.wall
        })
    }

    /// How long each instance is, in wall-clock time.
    fn length(&mut self, component: &Component, start: &When) -> Result<SignedDuration, String> {
        let length = if let Some(property) = component.get("DTEND") {
            let end = self.when(property, &property.value)?;
            let end = if end.zone == start.zone {
                end.wall
            } else {
                start.zone.wall(end.zone.instant(end.wall))
            };
            start.wall.duration_until(end)
        } else if let Some(property) = component.get("DURATION") {
            let span: Span = property
                .value
                .trim()
                .parse()
                .map_err(|_| format!("DURATION {} cannot be read", quoted(&property.value)))?;
            let end = start
                .wall
                .checked_add(span)
                .map_err(|_| format!("DURATION {} is too long", quoted(&property.value)))?;
            start.wall.duration_until(end)
        } else if start.whole_day {
            SignedDuration::from_hours(24)
        } else {
            SignedDuration::ZERO
        };
        if length.is_negative() {
            return Err("it ends before it starts".to_owned());
        }
        Ok(length)
    }

    fn when(&mut self, property: &Property, value: &str) -> Result<When, String> {
        let value = value.trim();
        let wrong = || format!("{} {} is not a date or a date-time", property.name, quoted(value));
        let (date, time) = match value.split_once(['T', 't']) {
            Some((date, time)) => (date, Some(time)),
            None => (value, None),
        };
        let date = digits(date, &[4, 2, 2]).ok_or_else(wrong)?;
        let date = match *date.as_slice() {
            [year, month, day] => Date::new(year, month as i8, day as i8).map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        let Some(time) = time else {
            return Ok(When {
                wall: date.to_datetime(Time::midnight()),
                zone: self.zone.clone(),
                whole_day: true,
            });
        };
        let (time, is_utc) = time.strip_suffix(['Z', 'z']).map_or((time, false), |time| (time, true));
        let time = match digits(time, &[2, 2, 2]).ok_or_else(wrong)?.as_slice() {
            // A leap second is the last one of its minute.
            &[hour, minute, second] => {
                Time::new(hour as i8, minute as i8, second.min(59) as i8, 0).map_err(|_| wrong())?
            }
            _ => return Err(wrong()),
        };
        let zone = match property.parameter("TZID") {
            _ if is_utc => Zone::UTC,
            None => self.zone.clone(),
            Some(name) => self.named_zone(name)?,
        };
        Ok(When {
            wall: date.to_datetime(time),
            zone,
            whole_day: false,
        })
    }

    fn named_zone(&mut self, name: &str) -> Result<Zone, String> {
        if let Some(zone) = self.zones.get(name) {
            return Ok(zone.clone());
        }
        // Some programs write a globally unique name: `/example.org/20260101/Europe/Berlin`.
        let zone = parse_zone(name).or_else(|message| {
            let tail: Vec<&str> = name.rsplitn(3, '/').collect();
            match tail.as_slice() {
                [city, region, _] if name.starts_with('/') => {
                    parse_zone(&format!("{region}/{city}")).map_err(|_| message)
                }
                _ => Err(message),
            }
        });
        let zone = zone.map_err(|message| format!("TZID: {message}"))?;
        self.zones.insert(name.to_owned(), zone.clone());
        Ok(zone)
    }

    fn finish(self) -> Calendar {
        let replaced = self.replaced;
        let repeated = self
            .events
            .into_iter()
            .filter(|(uid, event)| !replaced.contains(&(uid.clone(), event.start)));
        let mut events: Vec<Event> = repeated.map(|(_, event)| event).chain(self.singles).collect();
        events.retain(|event| event.start < event.end);
        events.sort_by_key(|event| (event.start, event.end));
        let mut latest = Timestamp::MIN;
        let latest_ends = events
            .iter()
            .map(|event| {
                latest = latest.max(event.end);
                latest
            })
            .collect();
        let covered = join(events.iter().map(|event| (event.start, event.end)).collect());
        Calendar {
            events,
            latest_ends,
            covered,
            known_until: self.known_until.filter(|until| *until < LATEST),
        }
    }
}

/// Numbers of exactly these widths, and nothing else.
fn digits(text: &str, widths: &[usize]) -> Option<Vec<i16>> {
    if text.len() != widths.iter().sum::<usize>() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut at = 0;
    widths
        .iter()
        .map(|width| {
            let number = text.get(at..at + width)?.parse().ok();
            at += width;
            number
        })
        .collect()
}

/// A summary in one line, its escapes undone.
fn summary(value: &str) -> Arc<str> {
    let mut text = String::with_capacity(value.len());
    let mut escaped = false;
    for character in value.chars() {
        match character {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            'n' | 'N' if escaped => text.push(' '),
            character if character.is_control() => text.push(' '),
            character => text.push(character),
        }
        escaped = false;
    }
    let short: String = text.trim().chars().take(256).collect();
    Arc::from(if short.is_empty() { "calendar event" } else { &short })
}

fn to_chrono(wall: DateTime) -> Option<ChronoDateTime<Tz>> {
    let number = |value: i8| u32::try_from(value).ok();
    let date = NaiveDate::from_ymd_opt(i32::from(wall.year()), number(wall.month())?, number(wall.day())?)?;
    let naive = date.and_hms_opt(number(wall.hour())?, number(wall.minute())?, number(wall.second())?)?;
    Some(Tz::UTC.from_utc_datetime(&naive))
}

fn to_jiff(at: ChronoDateTime<Tz>) -> Option<DateTime> {
    let date = Date::new(i16::try_from(at.year()).ok()?, at.month() as i8, at.day() as i8).ok()?;
    let time = Time::new(at.hour() as i8, at.minute() as i8, at.second() as i8, 0).ok()?;
    Some(date.to_datetime(time))
}
