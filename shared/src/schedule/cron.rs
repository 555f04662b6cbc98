//! Cron expressions: five fields, read as Kubernetes CronJobs read them, evaluated by the `cron` crate in wall-clock space.
//!
//! That crate counts weekdays from Sunday = 1, wants a seconds field, joins day-of-month and day-of-week by "and", and stumbles
//! over clock changes. So we read the fields ourselves, give it names and lists that it cannot misread, use two of its schedules
//! where both day fields are restricted, and feed it local times as if they were UTC, where no clock ever changes.

use std::fmt;

use ::cron::Schedule;
use chrono::{DateTime as ChronoDateTime, Datelike, NaiveDate, Timelike, Utc};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};

use super::problem::quoted;
use super::zone::{Zone, closest_word, parse_zone};

/// One cron expression, possibly with a zone of its own.
#[derive(Clone)]
pub struct CronExpression {
    text: String,
    zone: Option<Zone>,
    /// Their union: two where a day of the month or a day of the week may match, else one.
    schedules: Vec<Schedule>,
}

struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        first: 0,
        last: 59,
        names: &[],
    },
    Field {
        name: "hour",
        first: 0,
        last: 23,
        names: &[],
    },
    Field {
        name: "day of month",
        first: 1,
        last: 31,
        names: &[],
    },
    Field {
        name: "month",
        first: 1,
        last: 12,
        names: &MONTHS,
    },
    Field {
        name: "day of week",
        first: 0,
        last: 7,
        names: &DAYS,
    },
];

const SHORTHANDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A field's values as bits, and whether it says "any" (`*`, `?`, `*/1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    bits: u64,
    any: bool,
}

impl CronExpression {
    /// Parses an expression such as `0 8 * * 1-5`, `@daily`, or `CRON_TZ=Europe/Berlin 30 7 * * Mon`.
    ///
    /// # Errors
    /// A message with the field and the token that are wrong, and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.trim();
        let mut zone = None;
        if let Some((key, after)) = rest.split_once('=')
            && matches!(key, "TZ" | "CRON_TZ")
        {
            let (name, expression) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
            zone = Some(parse_zone(name)?);
            rest = expression.trim();
        }
        let expanded = if rest.starts_with('@') { shorthand(rest)? } else { rest };
        let tokens: Vec<&str> = expanded.split_whitespace().collect();
        if tokens.len() != FIELDS.len() {
            let hint = match tokens.len() {
                0 => "the expression is empty",
                6 | 7 => "seconds and years are not supported",
                _ => "minute, hour, day of month, month and day of week are needed",
            };
            return Err(format!(
                "{} has {} fields, not 5: {hint}; write it such as `0 8 * * 1-5`",
                quoted(text),
                tokens.len()
            ));
        }
        let mut values = [Values { bits: 0, any: false }; 5];
        for (index, ((token, field), slot)) in tokens.iter().zip(&FIELDS).zip(&mut values).enumerate() {
            *slot = field
                .parse(token)
                .map_err(|message| format!("field {} ({}) of {}: {message}", index + 1, field.name, quoted(text)))?;
        }
        let [minutes, hours, days, months, weekdays] = values;
        let weekdays = Values {
            bits: (weekdays.bits | (weekdays.bits >> 7)) & 0x7f,
            ..weekdays
        };
        let build = |days: Values, weekdays: Values| {
            let expression = format!(
                "0 {} {} {} {} {}",
                minutes.numbers(&FIELDS[0]),
                hours.numbers(&FIELDS[1]),
                if days.any {
                    "*".to_owned()
                } else {
                    days.numbers(&FIELDS[2])
                },
                months.numbers(&FIELDS[3]),
                if weekdays.any {
                    "*".to_owned()
                } else {
                    weekdays.day_names()
                },
            );
            expression
                .parse::<Schedule>()
                .map_err(|error| format!("{} cannot be read: {error}", quoted(text)))
        };
        let any = Values {
            bits: u64::MAX,
            any: true,
        };
        let schedules = if days.any || weekdays.any {
            vec![build(days, weekdays)?]
        } else {
            vec![build(days, any)?, build(any, weekdays)?]
        };
        Ok(Self {
            text: text.trim().to_owned(),
            zone,
            schedules,
        })
    }

    /// The zone that the expression names itself.
    pub fn zone(&self) -> Option<&Zone> {
        self.zone.as_ref()
    }

    /// The first wall-clock time after `wall` at which it fires. `None`: not before the year 2100.
    fn next_wall(&self, wall: DateTime) -> Option<DateTime> {
        let from = to_chrono(wall)?;
        self.schedules
            .iter()
            .filter_map(|schedule| schedule.after(&from).next())
            .min()
            .and_then(to_jiff)
    }

    /// The last wall-clock time at or before `wall` at which it fires. `None`: not since 1970.
    fn previous_wall(&self, wall: DateTime) -> Option<DateTime> {
        // The crate looks strictly before.
        let before = to_chrono(wall)?.checked_add_signed(chrono::TimeDelta::seconds(1))?;
        self.schedules
            .iter()
            .filter_map(|schedule| schedule.after(&before).next_back())
            .max()
            .and_then(to_jiff)
    }

    /// The first firing strictly after `at`.
    pub(crate) fn next(&self, at: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(zone);
        self.next_wall(zone.wall(at)).map(|wall| zone.instant(wall))
    }

    /// The last firing at or before `at`.
    pub(crate) fn previous(&self, at: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(zone);
        self.previous_wall(zone.wall(at)).map(|wall| zone.instant(wall))
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for CronExpression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CronExpression({})", self.text)
    }
}

impl Values {
    fn numbers(self, field: &Field) -> String {
        let list: Vec<String> = (field.first..=field.last.min(63))
            .filter(|&value| self.bits & (1 << value) != 0)
            .map(|value| value.to_string())
            .collect();
        list.join(",")
    }

    fn day_names(self) -> String {
        let list: Vec<&str> = DAYS
            .iter()
            .enumerate()
            .filter(|&(day, _)| self.bits & (1 << day) != 0)
            .map(|(_, name)| *name)
            .collect();
        list.join(",")
    }
}

impl Field {
    fn parse(&self, token: &str) -> Result<Values, String> {
        let mut values = Values { bits: 0, any: false };
        for part in token.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (part, None),
            };
            let step = match step {
                None => None,
                Some(text) => Some(whole(text).filter(|&step| (1..=999).contains(&step)).ok_or_else(|| {
                    format!(
                        "{} is not a step; write a whole number from 1, such as `*/15`",
                        quoted(text)
                    )
                })?),
            };
            let (from, to) = if matches!(range, "*" | "?") {
                values.any |= step.unwrap_or(1) == 1;
                // Sunday is counted once.
                (self.first, if self.last == 7 { 6 } else { self.last })
            } else if let Some((from, to)) = range.split_once('-') {
                let (from, to) = (self.value(from)?, self.value(to)?);
                // `Fri-Sun`: the name says 0 where the range means 7.
                let to = if self.last == 7 && to == 0 && from > 0 { 7 } else { to };
                if from > to {
                    return Err(format!(
                        "the range {} ends before it starts; write two ranges such as `{from}-{},{}-{to}`",
                        quoted(range),
                        if self.last == 7 { 6 } else { self.last },
                        self.first
                    ));
                }
                (from, to)
            } else {
                let value = self.value(range)?;
                // `5/15` means from 5 on, every 15.
                (
                    value,
                    if step.is_some() {
                        if self.last == 7 { 6.max(value) } else { self.last }
                    } else {
                        value
                    },
                )
            };
            let mut value = from;
            while value <= to {
                values.bits |= 1 << value;
                value += step.unwrap_or(1);
            }
        }
        Ok(values)
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        // Months count from 1, weekdays from 0.
        if let Some(index) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(index as u32 + self.first);
        }
        if let Some(value) = whole(text).filter(|value| (self.first..=self.last).contains(value)) {
            return Ok(value);
        }
        let allowed = format!("{} to {}", self.first, self.last);
        Err(match closest_word(text, self.names.iter().copied()) {
            _ if text.is_empty() => format!("a value is missing; write {allowed} or `*`"),
            Some(close) => format!("{} is not a {}; did you mean `{close}`?", quoted(text), self.name),
            None if self.name == "hour" && text == "24" => {
                format!("`24` is not an hour ({allowed}); did you mean `0`?")
            }
            None => format!("{} is not a {} ({allowed})", quoted(text), self.name),
        })
    }
}

fn whole(text: &str) -> Option<u32> {
    if text.is_empty() || text.len() > 6 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn shorthand(text: &str) -> Result<&'static str, String> {
    if let Some((_, expression)) = SHORTHANDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(expression);
    }
    if text.starts_with("@every") || text.starts_with("@reboot") {
        return Err(format!(
            "{} names no time of day; write five fields such as `0 8 * * 1-5`",
            quoted(text)
        ));
    }
    Err(match closest_word(text, SHORTHANDS.iter().map(|&(name, _)| name)) {
        Some(close) => format!("{} is unknown; did you mean `{close}`?", quoted(text)),
        None => format!(
            "{} is unknown; write five fields such as `0 8 * * 1-5`, or `@daily`",
            quoted(text)
        ),
    })
}

/// A wall-clock time as the crate's type, its fraction of a second cut off: firings are at whole minutes.
fn to_chrono(wall: DateTime) -> Option<ChronoDateTime<Utc>> {
    let number = |value: i8| u32::try_from(value).ok();
    let date = NaiveDate::from_ymd_opt(i32::from(wall.year()), number(wall.month())?, number(wall.day())?)?;
    Some(
        date.and_hms_opt(number(wall.hour())?, number(wall.minute())?, number(wall.second())?)?
            .and_utc(),
    )
}

fn to_jiff(at: ChronoDateTime<Utc>) -> Option<DateTime> {
    let date = Date::new(i16::try_from(at.year()).ok()?, at.month() as i8, at.day() as i8).ok()?;
    let time = Time::new(at.hour() as i8, at.minute() as i8, at.second() as i8, 0).ok()?;
    Some(date.to_datetime(time))
}
