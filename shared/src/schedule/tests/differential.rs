//! Our answers against those of others: cron forms against croner, windows against a walk through the minutes that shares no
//! code with them.
//!
//! Sampled here with a fixed seed. With `OFFHOURS_TEST_LONG=1` every clock change of every zone from 1970 to 2037 is looked at:
//! hours without optimisation, so `make test-long` has a profile for it.

use std::collections::HashSet;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Unit};

use super::super::{CronExpression, Definition, State, Timeline, compile, parse_zone};
use super::at;

/// A small generator with a fixed seed (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides.max(1) as u64) as usize
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.roll(from.len())]
    }
}

pub(crate) fn is_long() -> bool {
    std::env::var("OFFHOURS_TEST_LONG").is_ok_and(|value| value == "1")
}

pub(crate) fn zone_names() -> Vec<String> {
    jiff::tz::db()
        .available()
        .map(|name| name.as_str().to_owned())
        .filter(|name| parse_zone(name).is_ok())
        .collect()
}

/// Every instant from 1970 to 2037 at which a zone's clocks jump.
fn clock_changes(zone: &TimeZone) -> Vec<Timestamp> {
    zone.following(at("1970-01-03T00:00:00Z"))
        .map(|change| change.timestamp())
        .take_while(|change| *change < at("2038-01-01T00:00:00Z"))
        .filter(|change| zone.to_offset(*change) != zone.to_offset(*change - SignedDuration::from_secs(1)))
        .collect()
}

/// (zone, instant) pairs to look around: all changes in the long run, else some of each zone, and one ordinary instant.
fn places(dice: &mut Dice, of_each: usize, zones_of: usize) -> Vec<(String, Timestamp)> {
    let mut places = Vec::new();
    let mut seen = HashSet::new();
    for name in zone_names() {
        if !is_long() && dice.roll(zones_of) != 0 {
            continue;
        }
        let zone = TimeZone::get(&name).unwrap();
        let changes = clock_changes(&zone);
        if is_long() {
            // Half of the names are others' second names: the same clocks.
            let offsets = changes.iter().map(|change| zone.to_offset(*change)).collect::<Vec<_>>();
            if !seen.insert((zone.to_offset(Timestamp::UNIX_EPOCH), changes.clone(), offsets)) {
                continue;
            }
            places.extend(changes.into_iter().map(|change| (name.clone(), change)));
        } else if !changes.is_empty() {
            places.extend((0..of_each).map(|_| (name.clone(), *dice.pick(&changes))));
        }
        let ordinary = at("1971-01-01T00:00:00Z") + SignedDuration::from_hours(dice.roll(66 * 365 * 24) as i64);
        places.push((name, ordinary));
    }
    places
}

/// Expressions, and the single times of day that each consists of (empty: too many to list).
///
/// Croner has two conventions. A single time of day is treated as here: once in a repeated hour, at the end of a gap. Anything
/// with several hours or minutes it calls an interval, which it lets fire in both passes of a repeated hour and not at all in a
/// gap, as Vixie's cron does. So a list of hours is compared with the union of its single times; a step over every hour of the
/// day only where no clock changes.
const EXPRESSIONS: &[(&str, &[&str])] = &[
    ("30 2 * * *", &["30 2 * * *"]),
    ("0 0 * * *", &["0 0 * * *"]),
    ("*/15 * * * *", &[]),
    ("7 */3 * * *", &[]),
    ("0 8 * * 1-5", &["0 8 * * 1-5"]),
    ("0 20 * * MON-FRI", &["0 20 * * MON-FRI"]),
    ("59 23 * * 7", &["59 23 * * 0"]),
    ("15 1,2,3 * * *", &["15 1 * * *", "15 2 * * *", "15 3 * * *"]),
    ("0 3 1-7 * 0", &["0 3 1-7 * 0"]),
    ("30 0 31 * *", &["30 0 31 * *"]),
    (
        "7 1-4 * MAR,OCT,NOV *",
        &[
            "7 1 * 3,10,11 *",
            "7 2 * 3,10,11 *",
            "7 3 * 3,10,11 *",
            "7 4 * 3,10,11 *",
        ],
    ),
    ("10-50/20 2 * * *", &["10 2 * * *", "30 2 * * *", "50 2 * * *"]),
    ("0 2 29 2 *", &["0 2 29 2 *"]),
];

/// What croner cannot do: it has no answer (an error) in a gap of more than two hours, such as the three of some stations in
/// Antarctica, or Apia's whole day on 2011-12-30. In one that ends on another day than it begins (Algiers 1971-04-25, an hour
/// before midnight) it takes the time for lost.
fn long_gaps(zone: &TimeZone) -> Vec<Timestamp> {
    let mut changes = clock_changes(zone);
    changes.retain(|change| {
        let before = zone.to_offset(*change - SignedDuration::from_secs(1));
        let after = zone.to_offset(*change);
        let forward = after.seconds() - before.seconds();
        let ends_on_another_day = before.to_datetime(*change).date() != after.to_datetime(*change).date();
        forward > 2 * 3_600 || (forward > 0 && ends_on_another_day)
    });
    changes
}

trait Seconds {
    fn get_seconds_total(self) -> i64;
}

impl Seconds for jiff::Span {
    fn get_seconds_total(self) -> i64 {
        self.total(Unit::Second).unwrap() as i64
    }
}

#[test]
fn cron_agrees_with_croner_around_every_clock_change() {
    let mut dice = Dice(4);
    let mut compared = 0u32;
    let mut disagreements = Vec::new();
    for (name, around) in places(&mut dice, 2, 2) {
        let zone = parse_zone(&name).unwrap();
        let changes = clock_changes(zone.time_zone());
        let gaps = long_gaps(zone.time_zone());
        let is_near = |gap: &Timestamp| (*gap - around).get_seconds_total().abs() < 4 * 86_400;
        if gaps.iter().any(is_near) {
            continue;
        }
        let chosen: Vec<_> = if is_long() {
            EXPRESSIONS.iter().collect()
        } else {
            vec![dice.pick(EXPRESSIONS)]
        };
        for (text, singles) in chosen {
            let ours = CronExpression::parse(text).unwrap();
            let is_interval = singles.is_empty();
            let singles = if is_interval {
                std::slice::from_ref(text)
            } else {
                *singles
            };
            let theirs: Vec<_> = singles
                .iter()
                .map(|text| croner::Cron::from_str(text).unwrap())
                .collect();
            let end = around + SignedDuration::from_hours(24);
            let mut now = around - SignedDuration::from_hours(24);
            while now < end {
                let next = ours.next(now, &zone).unwrap();
                let previous = ours.previous(now, &zone);
                let zoned = now.to_zoned(zone.time_zone().clone());
                let found = theirs.iter().map(|cron| cron.find_next_occurrence(&zoned, false));
                let expected: Result<Vec<_>, _> = found.map(|found| Ok(found?.timestamp())).collect();
                let expected = match expected {
                    Ok(found) => found.into_iter().min().unwrap(),
                    // The next one may be years ahead, and in such a gap.
                    Err(error @ croner::errors::CronError::TimeSearchLimitExceeded) => {
                        assert!(gaps.iter().any(|gap| *gap > now), "{name} {text} after {now}: {error}");
                        now = next;
                        continue;
                    }
                    Err(error) => panic!("{name} {text} after {now}: {error}"),
                };
                let found = theirs.iter().map(|cron| cron.find_previous_occurrence(&zoned, true));
                // Croner gives up where nothing fired since the year 1.
                let expected_previous = found.filter_map(Result::ok).map(|found| found.timestamp()).max();
                let near = SignedDuration::from_hours(5);
                // From this change, and from any other that is not far from an ordinary instant.
                let is_away = |instant: Timestamp| {
                    let distance = |change: &Timestamp| (*change - instant).get_seconds_total().abs();
                    let near = near.as_secs();
                    distance(&around) > near && !changes.iter().any(|change| distance(change) <= near)
                };
                if !is_interval || (is_away(now) && is_away(next) && (now > around) == (next > around)) {
                    compared += 1;
                    if expected != next {
                        disagreements.push(format!("{name} {text} after {now}: {next}, croner {expected}"));
                    }
                }
                let is_comparable =
                    |previous: Timestamp| is_away(now) && is_away(previous) && (now > around) == (previous > around);
                if !is_interval || previous.is_some_and(is_comparable) {
                    compared += 1;
                    if expected_previous != previous
                        && previous.is_some_and(|previous| previous > at("1970-01-05T00:00:00Z"))
                    {
                        disagreements.push(format!(
                            "{name} {text} until {now}: {previous:?}, croner {expected_previous:?}"
                        ));
                    }
                }
                now = next;
            }
        }
    }
    println!("{compared} answers compared, {} disagreements", disagreements.len());
    assert!(compared > 2_000, "only {compared} answers were compared");
    assert!(
        disagreements.is_empty(),
        "{}",
        disagreements[..disagreements.len().min(12)].join("\n")
    );
}

/// A weekly window as the walk understands it: days from Monday, start and end in minutes.
struct Plain {
    days: Vec<i64>,
    start: i64,
    end: i64,
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

fn plain_window(dice: &mut Dice) -> (Plain, String) {
    let count = 1 + dice.roll(7);
    let days: Vec<i64> = (0..count).map(|_| dice.roll(7) as i64).collect();
    // Nights are where clocks change.
    let start = if dice.roll(2) == 0 {
        dice.roll(4 * 60)
    } else {
        dice.roll(24 * 60)
    } as i64;
    let longest = if dice.roll(2) == 0 { 90 } else { 24 * 60 - 1 };
    let mut end = (start + 1 + dice.roll(longest) as i64) % (24 * 60);
    if end == start {
        end = (end + 1) % (24 * 60);
    }
    let names: Vec<&str> = days.iter().map(|&day| DAYS[day as usize]).collect();
    let text = format!(
        "{} {:02}:{:02}-{:02}:{:02}",
        names.join(","),
        start / 60,
        start % 60,
        end / 60,
        end % 60
    );
    (Plain { days, start, end }, text)
}

impl Plain {
    /// Whether a wall clock that has got as far as `reached` (minutes since 1970-01-01T00:00, a Thursday) is inside.
    fn holds(&self, reached: i64) -> bool {
        let today = reached.div_euclid(1440);
        let length = if self.end > self.start {
            self.end - self.start
        } else {
            self.end + 1440 - self.start
        };
        [today, today - 1].iter().any(|day| {
            let start = day * 1440 + self.start;
            self.days.contains(&(day + 3).rem_euclid(7)) && start <= reached && reached < start + length
        })
    }
}

#[test]
fn windows_agree_with_a_walk_through_the_minutes() {
    let mut dice = Dice(7);
    let mut minutes = 0u32;
    for (name, around) in places(&mut dice, 1, 4) {
        let zone = parse_zone(&name).unwrap();
        let (mut plains, mut texts) = (Vec::new(), Vec::new());
        for _ in 0..=dice.roll(3) {
            let (plain, text) = plain_window(&mut dice);
            plains.push(plain);
            texts.push(text);
        }
        let is_uptime = dice.roll(2) == 0;
        let list = Some(vec![texts.join(", ")]);
        let (uptime, downtime) = if is_uptime { (list, None) } else { (None, list) };
        let definition = Definition {
            time_zone: Some(name.clone()),
            uptime,
            downtime,
            ..Definition::default()
        };
        let timeline = compile(&definition).unwrap().0;

        // The walk: how far the wall clock has ever got. In a repeated stretch it stands; over a gap it jumps.
        let minute_of = |instant: Timestamp| {
            let local = instant.as_second() + i64::from(zone.time_zone().to_offset(instant).seconds());
            local.div_euclid(60)
        };
        let start = around.as_second() / 60 * 60 - 24 * 3_600;
        let steps = 48 * 60;
        let mut reached = (start - 26 * 3_600..start)
            .step_by(600)
            .map(|second| minute_of(Timestamp::constant(second, 0)))
            .max()
            .unwrap();
        let mut before = None;
        let mut walked = Vec::new();
        for step in 0..=steps {
            let now = Timestamp::constant(start + step * 60, 0);
            // The second before matters where a zone's offset has odd seconds.
            reached = reached
                .max(minute_of(now - SignedDuration::from_secs(1)))
                .max(minute_of(now));
            let inside = plains.iter().any(|plain| plain.holds(reached));
            let expected = if inside == is_uptime { State::Up } else { State::Down };
            let found = timeline.state_at(now).state;
            assert_eq!(found, expected, "{name} at {now}: {texts:?}, uptime {is_uptime}");
            minutes += 1;
            if before.is_some_and(|before| before != expected) {
                walked.push((now, expected));
            }
            before = Some(expected);
        }
        // Offsets of whole minutes put every change on a minute: then the lists are the same.
        let odd = (0..=steps).any(|step| {
            zone.time_zone()
                .to_offset(Timestamp::constant(start + step * 60, 0))
                .seconds()
                % 60
                != 0
        });
        if !odd {
            let first = Timestamp::constant(start + 60, 0);
            let end = Timestamp::constant(start + steps * 60 + 1, 0);
            let listed: Vec<(Timestamp, State)> = match timeline.transitions(first, end, 10_000) {
                Ok(found) => found.iter().map(|found| (found.at, found.to)).collect(),
                // Windows that leave nothing out change no state, at many instants.
                Err(_) => Vec::new(),
            };
            assert_eq!(listed, walked, "{name}: {texts:?}, uptime {is_uptime}");
        }
    }
    assert!(minutes > 100_000, "only {minutes} minutes were walked");
}

/// The state that a cron schedule has, by looking at each minute's local time.
#[test]
fn cron_state_agrees_with_a_walk_through_the_minutes() {
    let mut dice = Dice(11);
    for (name, around) in places(&mut dice, 1, 8) {
        let zone = parse_zone(&name).unwrap();
        // Two times of each kind, so that lists of hours are walked too.
        let mut times = || {
            let (minute, hour) = (dice.roll(60) as i64, dice.roll(4) as i64);
            [minute + hour * 60, minute + (hour + 1) * 60]
        };
        let (down_at, up_at) = (times(), times());
        let expression = |[first, second]: [i64; 2]| format!("{} {},{} * * *", first % 60, first / 60, second / 60);
        let definition = Definition {
            time_zone: Some(name.clone()),
            shutdown: vec![expression(down_at)],
            startup: vec![expression(up_at)],
            ..Definition::default()
        };
        let timeline = compile(&definition).unwrap().0;
        let minute_of = |instant: Timestamp| {
            let local = instant.as_second() + i64::from(zone.time_zone().to_offset(instant).seconds());
            local.div_euclid(60)
        };
        // Three days before, both have fired whatever the clocks did.
        let start = around.as_second() / 60 * 60 - 72 * 3_600;
        let mut reached = minute_of(Timestamp::constant(start, 0));
        let (mut last_down, mut last_up) = (None, None);
        for step in 1..=96 * 60 {
            let now = Timestamp::constant(start + step * 60, 0);
            let shown = minute_of(now).max(minute_of(now - SignedDuration::from_secs(1)));
            // All that the clock passed or jumped over since the last minute has fired, for the first time.
            for passed in reached + 1..=shown {
                if down_at.contains(&passed.rem_euclid(1440)) {
                    last_down = Some(step);
                }
                if up_at.contains(&passed.rem_euclid(1440)) {
                    last_up = Some(step);
                }
            }
            reached = reached.max(shown);
            if step > 48 * 60 {
                let expected = if last_down > last_up { State::Down } else { State::Up };
                assert_eq!(
                    timeline.state_at(now).state,
                    expected,
                    "{name} at {now}: down {down_at:?}, up {up_at:?}"
                );
            }
        }
    }
}

#[test]
fn whole_missing_day_has_no_window_and_no_error() {
    // Croner has no answer here; Samoa went from the 29th to the 31st of December 2011.
    let timeline = compile(&Definition {
        time_zone: Some("Pacific/Apia".to_owned()),
        downtime: Some(vec!["Fri 00:00-24:00".to_owned()]),
        ..Definition::default()
    })
    .unwrap()
    .0;
    let found = timeline
        .transitions(at("2011-12-24T12:00:00Z"), at("2012-01-05T00:00:00Z"), 10)
        .unwrap();
    assert_eq!(found.len(), 0, "{found:?}");
    let zone = parse_zone("Pacific/Apia").unwrap();
    let expression = CronExpression::parse("0 12 30 12 *").unwrap();
    assert_eq!(
        expression.next(at("2011-12-01T00:00:00Z"), &zone),
        Some(at("2011-12-30T10:00:00Z"))
    );
}

#[test]
fn the_last_change_of_a_zone_is_a_change_though_a_rule_follows() {
    // Ciudad Juárez left central time on 2022-11-30: the hour before midnight came twice, and was over after the first.
    let zone = parse_zone("America/Ciudad_Juarez").unwrap();
    let wall = zone.wall(at("2022-11-30T06:30:00Z"));
    assert_eq!(wall, DateTime::constant(2022, 11, 29, 23, 59, 59, 999_999_999));
    // Nuuk has had summers again since 2023-10-29, and did not come back from one on that day.
    let zone = parse_zone("America/Nuuk").unwrap();
    let wall = zone.wall(at("2023-10-29T01:00:00Z"));
    assert_eq!(wall, DateTime::constant(2023, 10, 28, 23, 0, 0, 0));
    assert_eq!(zone.instant(wall), at("2023-10-29T01:00:00Z"));
}

#[test]
fn the_years_weekdays_are_right() {
    // The walk's weekday arithmetic, checked once against the calendar itself.
    let date = Date::constant(2026, 1, 5);
    let days = (date - Date::constant(1970, 1, 1)).get_days();
    assert_eq!((i64::from(days) + 3).rem_euclid(7), 0);
    assert_eq!(
        DateTime::constant(2026, 1, 5, 0, 0, 0, 0).date() + 1.day(),
        Date::constant(2026, 1, 6)
    );
    let _: Option<Timeline> = None;
}
