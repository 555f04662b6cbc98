//! From the texts of a schedule to a [`Timeline`], with every problem and warning that can be told without a clock.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::calendar::{Calendar, join};
use super::civil::{DAY, WEEK};
use super::cron::CronExpression;
use super::exception::{DatePattern, DatedState, Days, Hours, When, date};
use super::problem::{Problem, Warning, quoted};
use super::timeline::{CalendarRule, Inner, LATEST, Rhythm, State, Timeline, Transition, WindowSet};
use super::weekly::{WeekSet, week_minute_text};
use super::window::{Window, WindowSpan, local_date_time, parse_windows};
use super::zone::{Zone, parse_zone};

/// Where checks that need some instant begin. Any would do; a fixed one keeps the answer a function of the schedule alone.
const SAMPLE_FROM: Timestamp = Timestamp::constant(1_735_689_600, 0);
/// Transitions of a day above which a schedule is probably a slip.
const TRANSITIONS_A_DAY: usize = 48;

/// A schedule as text. Paths in problems are those of its fields: `timeZone`, `cron.shutdown[0]`, `uptime[1]`,
/// `exceptions[2].hours` …
#[derive(Clone, Debug, Default)]
pub struct Definition {
    /// IANA name. `None`: UTC, with a warning.
    pub time_zone: Option<String>,
    /// Cron expressions that put down. Together with `startup` instead of windows.
    pub shutdown: Vec<String>,
    /// Cron expressions that bring up.
    pub startup: Vec<String>,
    /// Windows in which it is up. `None`: no such list.
    pub uptime: Option<Vec<String>>,
    /// Windows in which it is down. `None`: no such list.
    pub downtime: Option<Vec<String>>,
    /// Exceptions, the first of them first.
    pub exceptions: Vec<ExceptionPart>,
    /// Calendars, the first of them first.
    pub calendars: Vec<CalendarPart>,
}

/// One exception as text.
#[derive(Clone, Debug)]
pub struct ExceptionPart {
    /// Which days.
    pub span: ExceptionSpan,
    /// Which hours of them. `None`: all.
    pub hours: Option<String>,
    /// What holds then.
    pub state: State,
    /// Why.
    pub reason: Option<String>,
}

/// The days of an exception.
#[derive(Clone, Debug)]
pub enum ExceptionSpan {
    /// `2026-12-25`, `--12-25`, `last Mon of May`.
    Date(String),
    /// Two dates (both included) or two local date-times (the second excluded).
    Range(String, String),
}

/// One calendar.
#[derive(Clone, Debug)]
pub struct CalendarPart {
    /// What its events mean.
    pub state: State,
    /// Its iCalendar text, or why it could not be had (the timeline is `Unknown` then where no exception speaks).
    pub text: Result<Arc<str>, String>,
}

/// Compiles a schedule.
///
/// # Errors
/// Everything that is wrong with it, in the order of the fields.
pub fn compile(definition: &Definition) -> Result<(Timeline, Vec<Warning>), Vec<Problem>> {
    let mut compiler = Compiler::default();
    let zone = compiler.zone(definition.time_zone.as_deref(), "timeZone");
    let rhythm = compiler.rhythm(definition, &zone);
    let exceptions = compiler.exceptions(&definition.exceptions, &zone);
    let calendars = compiler.calendars(&definition.calendars, &zone);
    if !compiler.problems.is_empty() {
        return Err(compiler.problems);
    }
    let timeline = Timeline::new(Inner {
        zone,
        exceptions,
        calendars,
        rhythm,
    });
    compiler.look_at(&timeline, definition);
    Ok((timeline, compiler.warnings))
}

/// Compiles a schedule written in place, in the annotations `uptime`, `downtime` and `time-zone`. The paths in problems and
/// warnings are the annotations' keys.
///
/// # Errors
/// Everything that is wrong with it.
pub fn from_annotations(
    uptime: Option<&str>,
    downtime: Option<&str>,
    time_zone: Option<&str>,
) -> Result<(Timeline, Vec<Warning>), Vec<Problem>> {
    let list = |text: Option<&str>| text.map(|text| vec![text.to_owned()]);
    let definition = Definition {
        time_zone: time_zone.map(str::to_owned),
        uptime: list(uptime),
        downtime: list(downtime),
        ..Definition::default()
    };
    let key = |path: &str| {
        let name = match path.split('[').next().unwrap_or(path) {
            "timeZone" => "time-zone",
            "downtime" => "downtime",
            "uptime" => "uptime",
            _ if downtime.is_some() => "downtime",
            _ => "uptime",
        };
        format!("{}{name}", crate::annotations::PREFIX)
    };
    match compile(&definition) {
        Ok((timeline, warnings)) => {
            let warnings = warnings.into_iter().map(|warning| Warning {
                path: key(&warning.path),
                ..warning
            });
            Ok((timeline, warnings.collect()))
        }
        Err(problems) => Err(problems
            .into_iter()
            .map(|problem| Problem {
                path: key(&problem.path),
                ..problem
            })
            .collect()),
    }
}

#[derive(Default)]
struct Compiler {
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Compiler {
    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    fn warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Warning::new(path, message));
    }

    fn zone(&mut self, name: Option<&str>, path: &str) -> Zone {
        match name.map(parse_zone) {
            Some(Ok(zone)) => return zone,
            Some(Err(message)) => self.problem(path, message),
            None => self.warning(
                path,
                "no zone is named, so times are read in UTC; write one such as `Europe/Berlin`",
            ),
        }
        Zone::UTC
    }

    fn rhythm(&mut self, definition: &Definition, zone: &Zone) -> Rhythm {
        let has_cron = !definition.shutdown.is_empty() || !definition.startup.is_empty();
        let has_windows = definition.uptime.is_some() || definition.downtime.is_some();
        if has_cron && has_windows {
            self.problem("cron", crate::api::message::CRON_AND_WINDOWS);
        }
        let shutdown = self.cron(&definition.shutdown, "cron.shutdown", zone);
        let startup = self.cron(&definition.startup, "cron.startup", zone);
        let uptime = definition
            .uptime
            .as_ref()
            .map(|list| self.windows(list, "uptime", zone));
        let downtime = definition
            .downtime
            .as_ref()
            .map(|list| self.windows(list, "downtime", zone));
        if let (Some(uptime), Some(downtime)) = (&uptime, &downtime) {
            self.opposites(uptime, downtime);
        }
        if has_cron {
            Rhythm::Cron { shutdown, startup }
        } else if has_windows {
            Rhythm::Windows { downtime, uptime }
        } else {
            Rhythm::Nothing
        }
    }

    fn cron(&mut self, list: &[String], path: &str, zone: &Zone) -> Vec<CronExpression> {
        let mut expressions = Vec::with_capacity(list.len());
        for (index, text) in list.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match CronExpression::parse(text) {
                Ok(expression) => {
                    if expression.next(SAMPLE_FROM, zone).is_none() {
                        self.warning(path, format!("{} never fires: no month has such a day", quoted(text)));
                    }
                    expressions.push(expression);
                }
                Err(message) => self.problem(path, message),
            }
        }
        expressions
    }

    fn windows(&mut self, list: &[String], path: &str, zone: &Zone) -> WindowSet {
        if list.is_empty() {
            self.problem(path, "the list is empty; remove it, or write `never`");
        }
        let mut windows: Vec<(String, Window)> = Vec::new();
        for (index, text) in list.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match parse_windows(text) {
                Ok(parsed) => windows.extend(parsed.into_iter().map(|window| (path.clone(), window))),
                Err(message) => self.problem(path, message),
            }
        }
        let mut set = WindowSet::default();
        for (path, window) in &windows {
            self.add_window(&mut set, path, window, zone);
        }
        if set.weekly.iter().any(|(_, weekly)| weekly.is_whole()) {
            set.always = true;
        }
        set.absolute = join(std::mem::take(&mut set.absolute));
        for (_, weekly) in &set.weekly {
            for (from, to) in weekly.holes_up_to(1) {
                let (from_text, to_text) = (week_minute_text(from), week_minute_text(to));
                let hint = if from % DAY == DAY - 1 {
                    "; did you mean an end of `24:00`?"
                } else {
                    ""
                };
                self.warning(
                    path,
                    format!("a hole of one minute between two windows, {from_text} to {to_text}{hint}"),
                );
            }
        }
        set
    }

    fn add_window(&mut self, set: &mut WindowSet, path: &str, window: &Window, zone: &Zone) {
        let zone = window.zone.as_ref().unwrap_or(zone);
        if let WindowSpan::Absolute { from, to } = window.span {
            let (from, to) = (from.instant(zone), to.instant(zone));
            if from >= to {
                // Both local ends may lie in one gap; an end with an offset may lie before a local start.
                self.warning(path, format!("`{window}` never happens: it ends before it starts"));
            }
            if let Some((start, _)) = set.absolute.iter().find(|&&(start, end)| from < end && start < to) {
                self.warning(
                    path,
                    format!("`{window}` overlaps with the range that starts at {start}"),
                );
            }
            set.absolute.push((from, to));
            return;
        }
        let mut own = WeekSet::default();
        for (start, end) in window.weekly() {
            own.add(start, end);
        }
        let position = set
            .weekly
            .iter()
            .position(|(known, _)| known == zone)
            .unwrap_or_else(|| {
                set.weekly.push((zone.clone(), WeekSet::default()));
                set.weekly.len() - 1
            });
        let Some((_, weekly)) = set.weekly.get_mut(position) else {
            return;
        };
        if let Some((start, end)) = weekly.overlap(&own) {
            let (from, to) = (week_minute_text(start), week_minute_text(end));
            self.warnings.push(Warning::new(
                path,
                format!("`{window}` overlaps with an earlier window, {from} to {to}"),
            ));
        }
        for (start, end) in window.weekly() {
            weekly.add(start, end);
        }
    }

    fn opposites(&mut self, uptime: &WindowSet, downtime: &WindowSet) {
        let shared = uptime.weekly.iter().find_map(|(zone, up)| {
            let (_, down) = downtime.weekly.iter().find(|(other, _)| other == zone)?;
            up.overlap(down)
        });
        if let Some((start, end)) = shared {
            let (from, to) = (week_minute_text(start), week_minute_text(end));
            self.warning(
                "downtime",
                format!("uptime and downtime overlap, {from} to {to}; downtime wins there"),
            );
        }
    }

    fn exceptions(&mut self, list: &[ExceptionPart], zone: &Zone) -> Vec<DatedState> {
        let mut compiled: Vec<DatedState> = Vec::with_capacity(list.len());
        for (index, part) in list.iter().enumerate() {
            let path = format!("exceptions[{index}]");
            let hours = match part.hours.as_deref().map(str::parse::<Hours>) {
                None => None,
                Some(Ok(hours)) => Some(hours),
                Some(Err(message)) => {
                    self.problem(format!("{path}.hours"), message);
                    continue;
                }
            };
            let Some(when) = self.when(&part.span, hours, &path, zone) else {
                continue;
            };
            if let When::Interval(start, end) = when {
                if start >= end {
                    self.warning(&path, "it never happens: its hours do not exist on that day");
                }
                let earlier = compiled.iter().enumerate().find(|(_, other)| match other.when {
                    When::Interval(from, to) => start < to && from < end,
                    When::Hours(..) => false,
                });
                if let Some((earlier, _)) = earlier {
                    self.warning(
                        &path,
                        format!("it overlaps with exceptions[{earlier}], which wins where both hold"),
                    );
                }
            }
            compiled.push(DatedState {
                state: part.state,
                reason: part.reason.as_deref().map(Arc::from),
                when,
            });
        }
        compiled
    }

    fn when(&mut self, span: &ExceptionSpan, hours: Option<Hours>, path: &str, zone: &Zone) -> Option<When> {
        match span {
            ExceptionSpan::Date(text) => match text.parse::<DatePattern>() {
                Ok(pattern) => Some(When::new(Days::Pattern(pattern), hours, zone)),
                Err(message) => {
                    self.problem(format!("{path}.date"), message);
                    None
                }
            },
            ExceptionSpan::Range(from, to) => {
                if let (Some(first), Some(last)) = (date(from), date(to)) {
                    if first > last {
                        self.problem(
                            format!("{path}.to"),
                            format!("{} is before {}; swap them", quoted(to), quoted(from)),
                        );
                        return None;
                    }
                    return Some(When::new(Days::Range(first, last), hours, zone));
                }
                if let (Some(start), Some(end)) = (local_date_time(from), local_date_time(to)) {
                    if hours.is_some() {
                        let message = "hours go with whole days; write days in `from` and `to`, or remove the hours";
                        self.problem(format!("{path}.hours"), message);
                        return None;
                    }
                    if start >= end {
                        self.problem(
                            format!("{path}.to"),
                            format!("{} is not after {}; swap them", quoted(to), quoted(from)),
                        );
                        return None;
                    }
                    return Some(When::Interval(zone.instant(start), zone.instant(end)));
                }
                let readable = |text: &str| date(text).is_some() || local_date_time(text).is_some();
                for (name, text) in [("from", from), ("to", to)] {
                    if !readable(text) {
                        let message = format!(
                            "{} is neither a date such as `2026-12-24` nor a local date-time such as `2026-12-24T12:00`",
                            quoted(text)
                        );
                        self.problem(format!("{path}.{name}"), message);
                    }
                }
                if readable(from) && readable(to) {
                    let message = "`from` and `to` are of different forms; write two dates or two date-times";
                    self.problem(format!("{path}.to"), message);
                }
                None
            }
        }
    }

    fn calendars(&mut self, list: &[CalendarPart], zone: &Zone) -> Vec<CalendarRule> {
        let mut rules = Vec::with_capacity(list.len());
        for (index, part) in list.iter().enumerate() {
            let path = format!("calendars[{index}]");
            let calendar = match &part.text {
                Err(reason) => Err(Arc::from(reason.as_str())),
                Ok(text) => match Calendar::parse(text, zone) {
                    Ok(calendar) => {
                        if calendar.is_empty() {
                            self.warning(path, "the calendar has no event that lasts");
                        }
                        Ok(Arc::new(calendar))
                    }
                    Err(messages) => {
                        for message in messages {
                            self.problem(path.clone(), message);
                        }
                        continue;
                    }
                },
            };
            rules.push(CalendarRule {
                state: part.state,
                calendar,
            });
        }
        rules
    }

    /// Warnings that only the finished timeline can give.
    fn look_at(&mut self, timeline: &Timeline, definition: &Definition) {
        let path = if !definition.shutdown.is_empty() || !definition.startup.is_empty() {
            "cron"
        } else if definition.downtime.is_some() {
            "downtime"
        } else if definition.uptime.is_some() {
            "uptime"
        } else {
            ""
        };
        if definition.calendars.iter().any(|part| part.text.is_err()) {
            return;
        }
        let epoch = super::timeline::EARLIEST;
        match timeline.next_transition(SAMPLE_FROM) {
            Err(exhausted) => self.warning(path, exhausted.to_string()),
            Ok(None) if timeline.since(SAMPLE_FROM).is_none() => {
                let state = timeline.state_at(epoch).state;
                self.warning(path, format!("the state never changes: it is always {state}"));
            }
            Ok(None) => {
                if let Rhythm::Cron { .. } = timeline.rhythm()
                    && (definition.shutdown.is_empty() || definition.startup.is_empty())
                {
                    let (missing, state) = if definition.startup.is_empty() {
                        ("startup", State::Down)
                    } else {
                        ("shutdown", State::Up)
                    };
                    self.warning(
                        path,
                        format!("there is no {missing}, so the state stays {state} once it is"),
                    );
                }
            }
            Ok(Some(first)) => self.crowded(timeline, &first, path),
        }
    }

    fn crowded(&mut self, timeline: &Timeline, first: &Transition, path: &str) {
        // A week shows every weekly rhythm.
        let week = SignedDuration::from_mins(i64::from(WEEK));
        let until = first.at.checked_add(week).unwrap_or(LATEST);
        let Ok(transitions) = timeline.transitions(first.at, until, TRANSITIONS_A_DAY * 7 + 1) else {
            return;
        };
        let crowded = transitions
            .iter()
            .zip(transitions.iter().skip(TRANSITIONS_A_DAY))
            .find(|(from, to)| to.at.duration_since(from.at) < SignedDuration::from_mins(i64::from(DAY)));
        if let Some((from, _)) = crowded {
            let message = format!(
                "more than {TRANSITIONS_A_DAY} transitions a day, for example in the day from {}",
                from.local()
            );
            self.warning(path, message);
        }
    }
}
