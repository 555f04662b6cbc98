//! Windows as people write them: `Mon-Fri 08:00-20:00`, `Fri 20:00 - Mon 06:00 Europe/Berlin`,
//! `2026-12-24T12:00/2027-01-02T08:00`, `always`, `never`; several in one text are parted by commas.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;

use super::civil::{DAY, WEEK, WEEKDAYS, weekday_name};
use super::problem::quoted;
use super::zone::{Zone, closest_word, parse_zone};

/// One window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it is.
    pub(crate) span: WindowSpan,
    /// The zone it names. `None`: the schedule's.
    pub(crate) zone: Option<Zone>,
}

/// When a window is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WindowSpan {
    /// At every instant.
    Always,
    /// At no instant.
    Never,
    /// On each of some weekdays. Ranges of days (Monday = 0, both ends included, may wrap around), minutes of the day; an
    /// end that is not after the start is on the day after.
    Daily { days: Vec<(u8, u8)>, start: i32, end: i32 },
    /// From a minute of the week to the next occurrence of another one (days counted from Monday = 0).
    Spanning {
        from_day: u8,
        start: i32,
        to_day: u8,
        end: i32,
    },
    /// Once.
    Absolute { from: Endpoint, to: Endpoint },
}

/// An end of an absolute range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// An instant, written with its offset.
    Instant(Timestamp),
    /// A local date-time in the window's zone.
    Local(DateTime),
}

impl Endpoint {
    /// The instant meant, read in `zone` if it is local.
    pub(crate) fn instant(self, zone: &Zone) -> Timestamp {
        match self {
            Self::Instant(at) => at,
            Self::Local(wall) => zone.instant(wall),
        }
    }
}

impl Window {
    /// The stretches of the week, in minutes since Monday midnight (an end may lie in the week after). Empty if it is not weekly.
    pub(crate) fn weekly(&self) -> Vec<(i32, i32)> {
        match &self.span {
            WindowSpan::Always => vec![(0, WEEK)],
            WindowSpan::Never | WindowSpan::Absolute { .. } => Vec::new(),
            WindowSpan::Daily { days, start, end } => {
                let length = if end > start { end - start } else { end + DAY - start };
                days.iter()
                    .flat_map(|&(first, last)| {
                        let count = (i32::from(last) - i32::from(first)).rem_euclid(7);
                        (0..=count).map(move |day| (i32::from(first) + day) % 7 * DAY + start)
                    })
                    .map(|from| (from, from + length))
                    .collect()
            }
            WindowSpan::Spanning {
                from_day,
                start,
                to_day,
                end,
            } => {
                let from = i32::from(*from_day) * DAY + start;
                let to = i32::from(*to_day) * DAY + end;
                vec![(from, if to > from { to } else { to + WEEK })]
            }
        }
    }
}

/// Parses one or more windows, parted by commas.
///
/// # Errors
/// A message with the place of the mistake (counted in characters from 1) and the remedy.
pub fn parse_windows(text: &str) -> Result<Vec<Window>, String> {
    let mut reader = Reader { text, at: 0 };
    let mut windows = Vec::new();
    loop {
        reader.skip_space();
        if reader.is_done() {
            return Err(if windows.is_empty() {
                "the window is empty; write days and hours such as `Mon-Fri 08:00-20:00`, `always` or `never`"
                    .to_owned()
            } else {
                reader.error(reader.at, "a window is missing after the comma; remove the comma")
            });
        }
        windows.push(window(&mut reader)?);
        reader.skip_space();
        if reader.is_done() {
            return Ok(windows);
        }
        if !reader.eat(',') && !reader.eat(';') {
            let at = reader.at;
            let rest = reader.token(&[',', ';']);
            return Err(reader.error(
                at,
                &format!("{} is not expected here; put a comma between two windows", quoted(rest)),
            ));
        }
    }
}

/// Parses hours without days, `08:00-12:00`: start and end in minutes of the day.
pub(crate) fn parse_hours(text: &str) -> Result<(i32, i32), String> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_space();
    let (start_at, start) = time(&mut reader)?;
    reader.skip_space();
    dash(&mut reader, "hours")?;
    reader.skip_space();
    let (end_at, end) = time(&mut reader)?;
    reader.skip_space();
    if !reader.is_done() {
        let at = reader.at;
        return Err(reader.error(
            at,
            "nothing may follow the hours; write one range such as `08:00-12:00`",
        ));
    }
    check_start(&reader, start_at, start)?;
    check_different(&reader, end_at, start, end)?;
    Ok((start, end))
}

fn window(reader: &mut Reader<'_>) -> Result<Window, String> {
    let at = reader.at;
    match reader.peek() {
        Some(first) if first.is_ascii_digit() => {
            let token = reader.lookahead(&['/', ',', ';']);
            if token.contains('T') || token.contains('t') || token.bytes().filter(|&byte| byte == b'-').count() >= 2 {
                return absolute(reader);
            }
            Err(reader.error(
                at,
                &format!(
                    "{} has no days; write them first, such as `Mon-Sun 08:00-20:00`",
                    quoted(token)
                ),
            ))
        }
        Some(first) if first.is_alphabetic() => {
            let word = reader.lookahead(&[',', ';', '-']);
            for (name, span) in [("always", WindowSpan::Always), ("never", WindowSpan::Never)] {
                if word.eq_ignore_ascii_case(name) {
                    reader.at += word.len();
                    return Ok(Window { span, zone: None });
                }
            }
            recurring(reader)
        }
        _ => {
            let token = reader.token(&[',', ';']);
            Err(reader.error(
                at,
                &format!(
                    "{} is not a window; write days and hours such as `Mon-Fri 08:00-20:00`",
                    quoted(token)
                ),
            ))
        }
    }
}

fn recurring(reader: &mut Reader<'_>) -> Result<Window, String> {
    let mut days = Vec::new();
    loop {
        let first = day(reader)?;
        reader.skip_space();
        let last = if reader.eat('-') {
            reader.skip_space();
            let last = day(reader)?;
            reader.skip_space();
            last
        } else {
            first
        };
        days.push((first, last));
        if !reader.eat(',') {
            break;
        }
        reader.skip_space();
    }
    let (start_at, start) = time(reader)?;
    check_start(reader, start_at, start)?;
    reader.skip_space();
    dash(reader, "start")?;
    reader.skip_space();
    let span = if reader.peek().is_some_and(char::is_alphabetic) {
        let at = reader.at;
        let to_day = day(reader)?;
        reader.skip_space();
        let (end_at, end) = time(reader)?;
        let from_day = match days.as_slice() {
            [(first, last)] if first == last => *first,
            _ => {
                return Err(reader.error(
                    at,
                    "a window that ends on a named day starts on one day only, such as `Fri 20:00 - Mon 06:00`",
                ));
            }
        };
        let from = i32::from(from_day) * DAY + start;
        let to = i32::from(to_day) * DAY + end;
        if (from - to).rem_euclid(WEEK) == 0 {
            return Err(reader.error(
                end_at,
                "start and end are the same moment of the week; write `always` or `never`",
            ));
        }
        WindowSpan::Spanning {
            from_day,
            start,
            to_day,
            end,
        }
    } else {
        let (end_at, end) = time(reader)?;
        check_different(reader, end_at, start, end)?;
        WindowSpan::Daily { days, start, end }
    };
    Ok(Window {
        span,
        zone: zone(reader)?,
    })
}

fn absolute(reader: &mut Reader<'_>) -> Result<Window, String> {
    let from_at = reader.at;
    let from = endpoint(reader)?;
    reader.skip_space();
    if !reader.eat('/') && !reader.eat_word("to") && !reader.eat('-') {
        let at = reader.at;
        return Err(reader.error(at, "the end of the range is missing; write `<start>/<end>`"));
    }
    reader.skip_space();
    let to_at = reader.at;
    let to = endpoint(reader)?;
    let zone = zone(reader)?;
    let wrong_order = match (from, to) {
        (Endpoint::Instant(from), Endpoint::Instant(to)) => from >= to,
        (Endpoint::Local(from), Endpoint::Local(to)) => from >= to,
        _ => false,
    };
    if wrong_order {
        return Err(reader.error(to_at, "the range ends before it starts; swap the two ends"));
    }
    if zone.is_some() && matches!((from, to), (Endpoint::Instant(_), Endpoint::Instant(_))) {
        return Err(reader.error(
            from_at,
            "both ends have an offset, so a zone means nothing; remove the zone or the offsets",
        ));
    }
    Ok(Window {
        span: WindowSpan::Absolute { from, to },
        zone,
    })
}

fn endpoint(reader: &mut Reader<'_>) -> Result<Endpoint, String> {
    let at = reader.at;
    let token = reader.token(&['/', ',', ';']);
    if token.contains(['T', 't']) {
        if let Ok(instant) = token.parse::<Timestamp>() {
            return Ok(Endpoint::Instant(instant));
        }
        if let Some(local) = local_date_time(token) {
            return Ok(Endpoint::Local(local));
        }
    }
    Err(reader.error(
        at,
        &format!(
            "{} is not a date-time; write `2026-12-24T12:00` (local) or `2026-12-24T12:00:00+01:00`",
            quoted(token)
        ),
    ))
}

/// A date-time without offset or zone.
pub(crate) fn local_date_time(text: &str) -> Option<DateTime> {
    // A civil date-time that carries more than itself (`Z`, an offset, a zone) is not local.
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b':' | b'.' | b'T' | b't'));
    let (_, clock) = text.split_once(['T', 't'])?;
    if !plain || clock.contains('-') {
        return None;
    }
    text.parse().ok()
}

fn zone(reader: &mut Reader<'_>) -> Result<Option<Zone>, String> {
    reader.skip_space();
    if !reader.peek().is_some_and(char::is_alphabetic) {
        return Ok(None);
    }
    let at = reader.at;
    let name = reader.token(&[',', ';']);
    parse_zone(name).map(Some).map_err(|message| reader.error(at, &message))
}

fn day(reader: &mut Reader<'_>) -> Result<u8, String> {
    let at = reader.at;
    let word = reader.while_true(char::is_alphanumeric);
    for (index, (_, short, long)) in WEEKDAYS.iter().enumerate() {
        if word.eq_ignore_ascii_case(short) || word.eq_ignore_ascii_case(long) {
            return Ok(index as u8);
        }
    }
    let names = || WEEKDAYS.iter().flat_map(|&(_, short, long)| [short, long]);
    // `Mo` and `Thur` are clear, but another form of every day would be a form too many.
    let begun = names().find(|name| word.len() >= 2 && name.to_lowercase().starts_with(&word.to_lowercase()));
    let message = match begun.or_else(|| closest_word(word, names())) {
        _ if word.is_empty() => {
            "a weekday is missing; write `Mon`, `Tue`, `Wed`, `Thu`, `Fri`, `Sat` or `Sun`".to_owned()
        }
        Some(close) => format!("{} is not a weekday; did you mean `{close}`?", quoted(word)),
        None => {
            format!(
                "{} is not a weekday; write `Mon`, `Tue`, `Wed`, `Thu`, `Fri`, `Sat` or `Sun`",
                quoted(word)
            )
        }
    };
    Err(reader.error(at, &message))
}

/// A time of day in minutes, up to `24:00`, and where it stands.
fn time(reader: &mut Reader<'_>) -> Result<(usize, i32), String> {
    let at = reader.at;
    let token = reader.token(&['-', ',', ';', '/']);
    if token.is_empty() {
        return Err(reader.error(at, "a time is missing; write hours and minutes such as `08:00`"));
    }
    parse_time(token)
        .map(|minutes| (at, minutes))
        .map_err(|message| reader.error(at, &message))
}

/// `08:00` in minutes.
fn parse_time(token: &str) -> Result<i32, String> {
    let number = |digits: &str| match digits.len() {
        1..=3 if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<i32>().ok(),
        _ => None,
    };
    let split = token
        .split_once(':')
        .and_then(|(hour, minute)| Some((hour, minute, number(hour)?, number(minute)?)));
    let meant = match split {
        Some((hour, minute, hours, minutes)) => {
            if hour.len() == 2 && minute.len() == 2 && minutes < 60 && (hours < 24 || (hours == 24 && minutes == 0)) {
                return Ok(hours * 60 + minutes);
            }
            match (hours, minutes) {
                (0..=23, 0..=59) => Some((hours, minutes)),
                (0..=23, _) => Some((hours + 1, 0)),
                _ => Some((24, 0)),
            }
        }
        None if token.len() == 4 => number(token.get(..2).unwrap_or_default())
            .zip(number(token.get(2..).unwrap_or_default()))
            .filter(|&(hours, minutes)| hours < 24 && minutes < 60),
        None => number(token).filter(|&hours| hours <= 24).map(|hours| (hours, 0)),
    };
    Err(match meant {
        Some((hours, minutes)) => format!(
            "{} is not a time; did you mean `{hours:02}:{minutes:02}`?",
            quoted(token)
        ),
        None => format!(
            "{} is not a time; write hours and minutes such as `08:00`",
            quoted(token)
        ),
    })
}

fn dash(reader: &mut Reader<'_>, after: &str) -> Result<(), String> {
    if reader.eat('-') {
        return Ok(());
    }
    let at = reader.at;
    Err(reader.error(
        at,
        &format!("a `-` is missing after the {after}; write a range such as `08:00-20:00`"),
    ))
}

fn check_start(reader: &Reader<'_>, at: usize, start: i32) -> Result<(), String> {
    if start < DAY {
        return Ok(());
    }
    Err(reader.error(at, "`24:00` can only be an end; did you mean `00:00`?"))
}

fn check_different(reader: &Reader<'_>, at: usize, start: i32, end: i32) -> Result<(), String> {
    if start != end {
        return Ok(());
    }
    Err(reader.error(at, "start and end are the same; for the whole day write `00:00-24:00`"))
}

#[cfg(test)]
thread_local! {
    /// Characters looked at on this thread, for the tests that count them.
    pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A place in a text.
struct Reader<'t> {
    text: &'t str,
    /// In bytes; always at a character boundary.
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn is_done(&self) -> bool {
        self.at >= self.text.len()
    }

    fn skip_space(&mut self) {
        self.while_true(char::is_whitespace);
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Eats a word that is followed by a space.
    fn eat_word(&mut self, word: &str) -> bool {
        let found = self
            .rest()
            .strip_prefix(word)
            .is_some_and(|rest| rest.starts_with(char::is_whitespace));
        if found {
            self.at += word.len();
        }
        found
    }

    fn while_true(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|character: char| !wanted(character)).unwrap_or(rest.len());
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + end + 1));
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Everything up to a space or one of `ends`.
    fn token(&mut self, ends: &[char]) -> &'t str {
        self.while_true(|character| !character.is_whitespace() && !ends.contains(&character))
    }

    /// The same, without moving.
    fn lookahead(&self, ends: &[char]) -> &'t str {
        Reader {
            text: self.text,
            at: self.at,
        }
        .token(ends)
    }

    /// `message` with the place `at`, counted in characters from 1.
    fn error(&self, at: usize, message: &str) -> String {
        let character = self.text.get(..at).unwrap_or_default().chars().count() + 1;
        format!("at character {character} of {}: {message}", quoted(self.text))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minutes: i32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        match &self.span {
            WindowSpan::Always => formatter.write_str("always")?,
            WindowSpan::Never => formatter.write_str("never")?,
            WindowSpan::Daily { days, start, end } => {
                for (index, &(first, last)) in days.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(formatter, "{comma}{}", weekday_name(first))?;
                    if first != last {
                        write!(formatter, "-{}", weekday_name(last))?;
                    }
                }
                write!(formatter, " {}-{}", clock(*start), clock(*end))?;
            }
            WindowSpan::Spanning {
                from_day,
                start,
                to_day,
                end,
            } => {
                let (from, to) = (weekday_name(*from_day), weekday_name(*to_day));
                write!(formatter, "{from} {} - {to} {}", clock(*start), clock(*end))?;
            }
            WindowSpan::Absolute { from, to } => {
                let write = |end: &Endpoint| match end {
                    Endpoint::Instant(at) => at.to_string(),
                    Endpoint::Local(wall) => wall.to_string(),
                };
                write!(formatter, "{}/{}", write(from), write(to))?;
            }
        }
        match &self.zone {
            Some(zone) => write!(formatter, " {zone}"),
            None => Ok(()),
        }
    }
}
