//! A set of minutes of the week, in wall-clock space.

use jiff::civil::DateTime;

use super::civil::{DAY, WEEK, add_days, at_minute, minute_of_week, monday};

/// Disjoint, sorted, non-adjacent intervals of minutes since Monday midnight; one that runs over the week's end is cut there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeekSet {
    intervals: Vec<(i32, i32)>,
}

impl WeekSet {
    /// Adds `[start, end)` in minutes since Monday midnight; `end` may lie in the week after.
    pub(crate) fn add(&mut self, start: i32, end: i32) {
        if end - start >= WEEK {
            self.intervals = vec![(0, WEEK)];
            return;
        }
        let from = start.rem_euclid(WEEK);
        let to = from + (end - start);
        self.insert(from, to.min(WEEK));
        if to > WEEK {
            self.insert(0, to - WEEK);
        }
    }

    /// Puts an interval in its place, joined with those that it touches.
    fn insert(&mut self, start: i32, end: i32) {
        let first = self.intervals.partition_point(|&(_, other)| other < start);
        let after = self.intervals.partition_point(|&(other, _)| other <= end);
        let touched = self.intervals.get(first..after).unwrap_or_default();
        let joined = touched.iter().fold((start, end), |joined, other| {
            (joined.0.min(other.0), joined.1.max(other.1))
        });
        self.intervals.splice(first..after.max(first), [joined]);
    }

    /// Whether it is the whole week.
    pub(crate) fn is_whole(&self) -> bool {
        self.intervals == [(0, WEEK)]
    }

    /// Whether `wall` lies in it.
    pub(crate) fn contains(&self, wall: DateTime) -> bool {
        let minute = minute_of_week(wall);
        let after = self.intervals.partition_point(|&(start, _)| start <= minute);
        after
            .checked_sub(1)
            .and_then(|index| self.intervals.get(index))
            .is_some_and(|&(_, end)| minute < end)
    }

    /// The first change strictly after `wall`. `None` if it never changes.
    pub(crate) fn next_edge(&self, wall: DateTime) -> Option<DateTime> {
        // A change at this very minute is not after `wall`, whatever the seconds.
        let minute = minute_of_week(wall);
        let start_of_week = monday(wall.date());
        let in_this_week = self.edges().find(|&edge| edge > minute);
        let (edge, weeks) = match in_this_week {
            Some(edge) => (edge, 0),
            None => (self.edges().next()?, 1),
        };
        Some(at_minute(add_days(start_of_week, weeks * 7), edge))
    }

    /// The last change at or before `wall`. `None` if it never changes.
    pub(crate) fn previous_edge(&self, wall: DateTime) -> Option<DateTime> {
        let minute = minute_of_week(wall);
        let start_of_week = monday(wall.date());
        let in_this_week = self.edges().filter(|&edge| edge <= minute).last();
        let (edge, weeks) = match in_this_week {
            Some(edge) => (edge, 0),
            None => (self.edges().last()?, -1),
        };
        Some(at_minute(add_days(start_of_week, weeks * 7), edge))
    }

    /// Minutes at which it changes, in order, each in [0, WEEK).
    fn edges(&self) -> impl Iterator<Item = i32> + '_ {
        let wraps = self.wraps();
        let opens = (self.intervals.last().is_some_and(|&(_, end)| end == WEEK) && !wraps).then_some(0);
        let inner = self
            .intervals
            .iter()
            .flat_map(|&(start, end)| [start, end])
            .filter(move |&edge| edge != WEEK && !(wraps && edge == 0));
        // An interval that ends with the week changes at the next week's minute 0.
        opens.into_iter().chain(inner)
    }

    /// Whether what ends with the week goes on at its start.
    fn wraps(&self) -> bool {
        self.intervals.first().is_some_and(|&(start, _)| start == 0)
            && self.intervals.last().is_some_and(|&(_, end)| end == WEEK)
    }

    /// Holes of at most `minutes` between two intervals, as (start, end) in minutes since Monday midnight.
    pub(crate) fn holes_up_to(&self, minutes: i32) -> Vec<(i32, i32)> {
        let mut holes: Vec<(i32, i32)> = self
            .intervals
            .windows(2)
            .filter_map(|pair| match pair {
                [(_, end), (start, _)] if start - end <= minutes => Some((*end, *start)),
                _ => None,
            })
            .collect();
        if let (Some(first), Some(last)) = (self.intervals.first(), self.intervals.last()) {
            let hole = first.0 + WEEK - last.1;
            if hole > 0 && hole <= minutes {
                holes.push((last.1, first.0 + WEEK));
            }
        }
        holes
    }

    /// The first stretch that two sets share.
    pub(crate) fn overlap(&self, other: &Self) -> Option<(i32, i32)> {
        other.intervals.iter().find_map(|&(from, to)| {
            let first = self.intervals.partition_point(|&(_, end)| end <= from);
            let &(start, end) = self.intervals.get(first)?;
            (start < to).then_some((start.max(from), end.min(to)))
        })
    }
}

/// `Tue 13:05` of minutes since Monday midnight.
pub(crate) fn week_minute_text(minute: i32) -> String {
    let minute = minute.rem_euclid(WEEK);
    let day = super::civil::weekday_name((minute / DAY) as u8);
    format!("{day} {:02}:{:02}", minute % DAY / 60, minute % 60)
}
