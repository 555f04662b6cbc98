//! Time zones by name, and the two monotone maps between real time and a zone's wall clock.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::problem::quoted;

/// A time zone and the name it goes by. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    zone: TimeZone,
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self { zone: TimeZone::UTC };

    /// The IANA name, such as `America/Sao_Paulo`.
    pub fn name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The zone itself.
    pub fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// `at` as this zone's clocks show it, with offset and zone name: `2026-12-01T08:00:00-03:00[America/Sao_Paulo]`.
    pub fn display(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).to_string()
    }

    /// The greatest wall-clock time whose instant is not after `at`.
    ///
    /// That is what a clock on the wall shows, except in the second pass through a repeated stretch: all its times have had
    /// their (first) occurrence, so the answer is the last moment of the stretch.
    pub(crate) fn wall(&self, at: Timestamp) -> DateTime {
        let offset = self.zone.to_offset(at);
        let shown = offset.to_datetime(at);
        match self.reading(shown) {
            AmbiguousOffset::Fold { before, after } if offset == after => {
                let turned_back = self.change_at_or_before(at, before, after);
                let end = before.to_datetime(turned_back);
                end.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(shown)
            }
            _ => shown,
        }
    }

    /// The instant of a wall-clock time: the first of two, or the first one after the gap that swallowed it.
    pub fn instant(&self, wall: DateTime) -> Timestamp {
        let at = |offset: Offset| {
            // Only date-times at the very ends of the calendar have no instant.
            offset.to_timestamp(wall).unwrap_or(if wall.year() > 0 {
                Timestamp::MAX
            } else {
                Timestamp::MIN
            })
        };
        match self.reading(wall) {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            AmbiguousOffset::Fold { before, .. } => at(before),
            // Read with the offset from before the gap, a missing time lies after the change (or on it).
            AmbiguousOffset::Gap { before, after } => self.change_at_or_before(at(before), before, after),
        }
    }

    /// The offsets with which a wall-clock time can be read.
    ///
    /// Where the listed changes of a zone end and a rule goes on, the library may name an offset that the rule would have had
    /// before: what was not in force is left out.
    fn reading(&self, wall: DateTime) -> AmbiguousOffset {
        let holds = |offset: Offset| {
            let at = offset.to_timestamp(wall);
            at.is_ok_and(|at| self.zone.to_offset(at) == offset)
        };
        match self.zone.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Fold { before, after } if !holds(before) => AmbiguousOffset::Unambiguous { offset: after },
            AmbiguousOffset::Fold { before, after } if !holds(after) => AmbiguousOffset::Unambiguous { offset: before },
            AmbiguousOffset::Gap { before, .. } if holds(before) => AmbiguousOffset::Unambiguous { offset: before },
            AmbiguousOffset::Gap { after, .. } if holds(after) => AmbiguousOffset::Unambiguous { offset: after },
            found => found,
        }
    }

    /// The instant, at or before `at`, at which the offset `before` was left for `after`; `at` is nearer to it than the two
    /// offsets are to each other, as it is in the stretch that they repeat or leave out.
    ///
    /// Offsets are asked, and no list of changes: that of the library leaves out the last one that the database has, where
    /// a rule for the years after it follows.
    fn change_at_or_before(&self, at: Timestamp, before: Offset, after: Offset) -> Timestamp {
        let instant = |second: i64| Timestamp::from_second(second).unwrap_or(at);
        // Clocks change on whole seconds.
        let mut changed = at.as_second();
        let mut not_yet = changed - i64::from(after.seconds() - before.seconds()).abs();
        while changed - not_yet > 1 {
            let middle = not_yet.midpoint(changed);
            if self.zone.to_offset(instant(middle)) == before {
                not_yet = middle;
            } else {
                changed = middle;
            }
        }
        instant(changed)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Zone({})", self.name())
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The names of all zones that [`parse_zone`] takes.
pub fn zone_names() -> Vec<String> {
    let names = jiff::tz::db().available();
    let mut names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
    names.retain(|name| parse_zone(name).is_ok());
    names.sort_unstable();
    names
}

/// The zone of an IANA name (in any case), from the database built into the program.
///
/// # Errors
/// A message with the closest names, if there is no such zone.
pub fn parse_zone(name: &str) -> Result<Zone, String> {
    let unknown = || {
        if name.is_empty() {
            return "the zone is empty; write an IANA name such as `Europe/Berlin`".to_owned();
        }
        let database = jiff::tz::db();
        let names: Vec<String> = database.available().map(|name| name.as_str().to_owned()).collect();
        match closest_word(name, names.iter().map(String::as_str)) {
            Some(close) => format!("unknown zone {}, closest `{close}`", quoted(name)),
            None => format!(
                "unknown zone {}; write an IANA name such as `Europe/Berlin`",
                quoted(name)
            ),
        }
    };
    // The database knows this one as "no zone known", which is not what anybody wants to schedule by.
    if name.len() > 64 || name.eq_ignore_ascii_case("Etc/Unknown") {
        return Err(unknown());
    }
    match jiff::tz::db().get(name) {
        Ok(zone) if zone.iana_name().is_some() => Ok(Zone { zone }),
        _ => Err(unknown()),
    }
}

/// The word among `words` that `text` is most probably a slip of: at most a third of it differs.
pub fn closest_word<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    // Nobody misspells a name of more than this length, and the distance costs the square of it.
    if text.is_empty() || text.len() > 64 {
        return None;
    }
    let lower = text.to_lowercase();
    let length = lower.chars().count();
    words
        .map(|word| (strsim::osa_distance(&lower, &word.to_lowercase()), word))
        .min()
        .filter(|(distance, _)| distance * 3 <= length)
        .map(|(_, word)| word)
}
