//! Small civil-calendar arithmetic that cannot fail: dates at the ends of the calendar are clamped.

use jiff::Span;
use jiff::civil::{Date, DateTime, Time, Weekday};

/// Minutes of a day.
pub(crate) const DAY: i32 = 24 * 60;
/// Minutes of a week.
pub(crate) const WEEK: i32 = 7 * DAY;

/// `date` moved by `days`.
pub(crate) fn add_days(date: Date, days: i32) -> Date {
    date.checked_add(Span::new().days(days))
        .unwrap_or(if days > 0 { Date::MAX } else { Date::MIN })
}

/// `minutes` after the midnight with which `date` begins; may be days.
pub(crate) fn at_minute(date: Date, minutes: i32) -> DateTime {
    let date = match minutes.div_euclid(DAY) {
        0 => date,
        days => add_days(date, days),
    };
    let minute = minutes.rem_euclid(DAY);
    let time = Time::new((minute / 60) as i8, (minute % 60) as i8, 0, 0).unwrap_or(Time::MIN);
    date.to_datetime(time)
}

/// The Monday of `date`'s week.
pub(crate) fn monday(date: Date) -> Date {
    add_days(date, -i32::from(date.weekday().to_monday_zero_offset()))
}

/// Minutes from Monday midnight to `wall`, rounded down.
pub(crate) fn minute_of_week(wall: DateTime) -> i32 {
    i32::from(wall.date().weekday().to_monday_zero_offset()) * DAY + minute_of_day(wall)
}

/// Minutes from midnight to `wall`, rounded down.
pub(crate) fn minute_of_day(wall: DateTime) -> i32 {
    i32::from(wall.hour()) * 60 + i32::from(wall.minute())
}

/// Weekdays from Monday, with the names that messages show.
pub(crate) const WEEKDAYS: [(Weekday, &str, &str); 7] = [
    (Weekday::Monday, "Mon", "Monday"),
    (Weekday::Tuesday, "Tue", "Tuesday"),
    (Weekday::Wednesday, "Wed", "Wednesday"),
    (Weekday::Thursday, "Thu", "Thursday"),
    (Weekday::Friday, "Fri", "Friday"),
    (Weekday::Saturday, "Sat", "Saturday"),
    (Weekday::Sunday, "Sun", "Sunday"),
];

/// The name of a weekday, counted from Monday = 0.
pub(crate) fn weekday_name(from_monday: u8) -> &'static str {
    WEEKDAYS
        .get(usize::from(from_monday % 7))
        .map_or("Mon", |&(_, short, _)| short)
}
