//! Exceptions: days that differ from the weekly rhythm.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};

use super::civil::{DAY, WEEKDAYS, add_days, at_minute, weekday_name};
use super::problem::quoted;
use super::timeline::State;
use super::window::parse_hours;
use super::zone::{Zone, closest_word};

/// A day: once, every year, or a weekday of a month in every year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatePattern {
    /// `2026-12-25`
    Once(Date),
    /// `--12-25`: month and day of every year (the 29th of February only in leap years).
    Yearly {
        /// 1 to 12.
        month: i8,
        /// 1 to 31.
        day: i8,
    },
    /// `last Mon of May`, `3rd Thu of Nov`.
    WeekdayOfMonth {
        /// 1 to 5, or -1 for the last.
        nth: i8,
        /// Monday = 0.
        weekday: u8,
        /// 1 to 12.
        month: i8,
    },
}

const MONTHS: [(&str, &str); 12] = [
    ("Jan", "January"),
    ("Feb", "February"),
    ("Mar", "March"),
    ("Apr", "April"),
    ("May", "May"),
    ("Jun", "June"),
    ("Jul", "July"),
    ("Aug", "August"),
    ("Sep", "September"),
    ("Oct", "October"),
    ("Nov", "November"),
    ("Dec", "December"),
];

const ORDINALS: [(&str, i8); 11] = [
    ("1st", 1),
    ("2nd", 2),
    ("3rd", 3),
    ("4th", 4),
    ("5th", 5),
    ("first", 1),
    ("second", 2),
    ("third", 3),
    ("fourth", 4),
    ("fifth", 5),
    ("last", -1),
];

/// Years within which every legal pattern comes back: a fifth weekday of February is the rarest (40 years around 2100).
const YEARS: i16 = 44;

impl FromStr for DatePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            [yearly] if yearly.starts_with("--") => {
                let day_and_month = yearly.get(2..).unwrap_or_default();
                // Any leap year will do to ask whether the day exists.
                match date(&format!("2024-{day_and_month}")) {
                    Some(date) => Ok(Self::Yearly {
                        month: date.month(),
                        day: date.day(),
                    }),
                    None => Err(format!(
                        "{} is not a day of the year; write it such as `--12-25`",
                        quoted(text)
                    )),
                }
            }
            [single] => date(single).map(Self::Once).ok_or_else(|| not_a_date(text)),
            [nth, weekday, "of", month] => {
                let nth = pick(nth, &ORDINALS.map(|(name, _)| (name, name)), "place in the month")?;
                let weekday = pick(weekday, &WEEKDAYS.map(|(_, short, long)| (short, long)), "weekday")?;
                let month = pick(month, &MONTHS, "month")?;
                let nth = ORDINALS.get(nth).map_or(1, |&(_, value)| value);
                Ok(Self::WeekdayOfMonth {
                    nth,
                    weekday: weekday as u8,
                    month: month as i8 + 1,
                })
            }
            _ => Err(not_a_date(text)),
        }
    }
}

fn not_a_date(text: &str) -> String {
    // The commonest slip is a day that the month has not.
    let mut parts = text.splitn(3, '-');
    let numbers = (parts.next(), parts.next(), parts.next());
    if let (Some(year), Some(month), Some(day)) = numbers
        && let (Ok(year), Ok(month), Ok(day)) = (year.parse::<i16>(), month.parse::<i8>(), day.parse::<i8>())
        && let Ok(first) = Date::new(year, month, 1)
        && day > first.days_in_month()
    {
        let last = first.days_in_month();
        return format!(
            "{} does not exist; did you mean `{year:04}-{month:02}-{last:02}`?",
            quoted(text)
        );
    }
    format!(
        "{} is not a date; write `2026-12-25`, `--12-25` (every year) or `last Mon of May`",
        quoted(text)
    )
}

fn pick(word: &str, names: &[(&str, &str)], what: &str) -> Result<usize, String> {
    let found = names
        .iter()
        .position(|(short, long)| word.eq_ignore_ascii_case(short) || word.eq_ignore_ascii_case(long));
    found.ok_or_else(
        || match closest_word(word, names.iter().flat_map(|&(short, long)| [short, long])) {
            Some(close) => format!("{} is not a {what}; did you mean `{close}`?", quoted(word)),
            None => format!(
                "{} is not a {what}; write it such as `{}`",
                quoted(word),
                names.first().map_or("", |name| name.0)
            ),
        },
    )
}

/// `2026-12-25`, strictly.
pub(crate) fn date(text: &str) -> Option<Date> {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(index, byte)| {
            if matches!(index, 4 | 7) {
                byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        });
    if !shape {
        return None;
    }
    text.parse().ok()
}

impl DatePattern {
    fn in_year(self, year: i16) -> Option<Date> {
        match self {
            Self::Once(date) => (date.year() == year).then_some(date),
            Self::Yearly { month, day } => Date::new(year, month, day).ok(),
            Self::WeekdayOfMonth { nth, weekday, month } => {
                let weekday = WEEKDAYS.get(usize::from(weekday)).map(|&(weekday, _, _)| weekday)?;
                Date::new(year, month, 1).ok()?.nth_weekday_of_month(nth, weekday).ok()
            }
        }
    }

    fn matches(self, date: Date) -> bool {
        self.in_year(date.year()) == Some(date)
    }

    fn first_from(self, date: Date) -> Option<Date> {
        if let Self::Once(once) = self {
            return (once >= date).then_some(once);
        }
        (date.year()..=date.year().saturating_add(YEARS))
            .find_map(|year| self.in_year(year).filter(|&found| found >= date))
    }

    fn last_until(self, date: Date) -> Option<Date> {
        if let Self::Once(once) = self {
            return (once <= date).then_some(once);
        }
        (date.year().saturating_sub(YEARS)..=date.year())
            .rev()
            .find_map(|year| self.in_year(year).filter(|&found| found <= date))
    }
}

impl fmt::Display for DatePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Once(date) => write!(formatter, "{date}"),
            Self::Yearly { month, day } => write!(formatter, "--{month:02}-{day:02}"),
            Self::WeekdayOfMonth { nth, weekday, month } => {
                let nth = ORDINALS
                    .iter()
                    .find(|&&(_, value)| value == nth)
                    .map_or("last", |&(name, _)| name);
                let month = MONTHS.get(month as usize - 1).map_or("", |&(short, _)| short);
                write!(formatter, "{nth} {} of {month}", weekday_name(weekday))
            }
        }
    }
}

/// Hours of a day, in minutes since its midnight. The end may lie on the day after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    start: i32,
    end: i32,
}

impl Hours {
    /// From midnight to midnight.
    pub const WHOLE_DAY: Self = Self { start: 0, end: DAY };
}

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (start, end) = parse_hours(text)?;
        Ok(Self {
            start,
            end: if end > start { end } else { end + DAY },
        })
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.end > DAY { self.end - DAY } else { self.end };
        write!(
            formatter,
            "{:02}:{:02}-{:02}:{:02}",
            self.start / 60,
            self.start % 60,
            end / 60,
            end % 60
        )
    }
}

/// Which days an exception is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Days {
    Pattern(DatePattern),
    /// Both ends included.
    Range(Date, Date),
}

impl Days {
    fn matches(self, date: Date) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.matches(date),
            Self::Range(first, last) => first <= date && date <= last,
        }
    }

    fn first_from(self, date: Date) -> Option<Date> {
        match self {
            Self::Pattern(pattern) => pattern.first_from(date),
            Self::Range(first, last) => (date <= last).then_some(date.max(first)),
        }
    }

    fn last_until(self, date: Date) -> Option<Date> {
        match self {
            Self::Pattern(pattern) => pattern.last_until(date),
            Self::Range(first, last) => (date >= first).then_some(date.min(last)),
        }
    }
}

/// An exception, ready to be asked.
#[derive(Clone, Debug)]
pub(crate) struct DatedState {
    pub(crate) state: State,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) when: When,
}

/// When an exception holds.
#[derive(Clone, Debug)]
pub(crate) enum When {
    /// Once: `[start, end)`.
    Interval(Timestamp, Timestamp),
    /// Some hours of some days.
    Hours(Days, Hours),
}

impl When {
    /// Whole days of a range are one interval; the rest is asked day by day.
    pub(crate) fn new(days: Days, hours: Option<Hours>, zone: &Zone) -> Self {
        let hours = hours.unwrap_or(Hours::WHOLE_DAY);
        let (first, last) = match days {
            Days::Pattern(DatePattern::Once(date)) => (date, date),
            Days::Range(first, last) if hours == Hours::WHOLE_DAY || first == last => (first, last),
            _ => return Self::Hours(days, hours),
        };
        let start = at_minute(first, hours.start);
        let end = at_minute(last, hours.end);
        Self::Interval(zone.instant(start), zone.instant(end))
    }

    /// Whether it holds at `at`, which is `wall` in the schedule's zone.
    pub(crate) fn contains(&self, at: Timestamp, wall: DateTime) -> bool {
        match self {
            Self::Interval(start, end) => *start <= at && at < *end,
            Self::Hours(days, hours) => [wall.date(), add_days(wall.date(), -1)].into_iter().any(|date| {
                days.matches(date) && at_minute(date, hours.start) <= wall && wall < at_minute(date, hours.end)
            }),
        }
    }

    /// The first change strictly after `at`.
    pub(crate) fn next_edge(&self, at: Timestamp, wall: DateTime, zone: &Zone) -> Option<Timestamp> {
        match self {
            Self::Interval(start, end) if start < end => [*start, *end].into_iter().find(|edge| *edge > at),
            Self::Interval(..) => None,
            Self::Hours(days, hours) => {
                let mut date = days.first_from(add_days(wall.date(), -1))?;
                // Yesterday's, today's, and the next one's: the fourth is certainly later than `wall`.
                for _ in 0..4 {
                    let edges = [at_minute(date, hours.start), at_minute(date, hours.end)];
                    if let Some(edge) = edges.into_iter().find(|edge| *edge > wall) {
                        return Some(zone.instant(edge));
                    }
                    date = days.first_from(add_days(date, 1))?;
                }
                None
            }
        }
    }

    /// The last change at or before `at`.
    pub(crate) fn previous_edge(&self, at: Timestamp, wall: DateTime, zone: &Zone) -> Option<Timestamp> {
        match self {
            Self::Interval(start, end) if start < end => [*end, *start].into_iter().find(|edge| *edge <= at),
            Self::Interval(..) => None,
            Self::Hours(days, hours) => {
                let mut date = days.last_until(wall.date())?;
                for _ in 0..4 {
                    let edges = [at_minute(date, hours.end), at_minute(date, hours.start)];
                    if let Some(edge) = edges.into_iter().find(|edge| *edge <= wall) {
                        return Some(zone.instant(edge));
                    }
                    date = days.last_until(add_days(date, -1))?;
                }
                None
            }
        }
    }
}
