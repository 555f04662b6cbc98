//! Every message and warning that people see: one line, at most 250 bytes.
//!
//! A message says what happened, which schedule, until when (zone named), and what to do. Names in prose are shortened where
//! there is no room, commands never are.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use crate::annotations::{AWAKE_UNTIL, PREFIX};
use crate::kinds::{Form, Kind, Knob};
use crate::schedule::Zone;
use crate::short::{clip, escaped, squeeze};
use crate::verdict::{Rule, Verdict};
use crate::workload::Workload;

/// Longest message. Kubernetes asks for at most 256 characters.
pub const LIMIT: usize = 250;

/// Names in prose are cut to these lengths, one after the other, until the line fits.
const NAME_LENGTHS: [usize; 5] = [usize::MAX, 40, 24, 12, 6];

/// A word for a kind is never cut to less than this.
const WORD_LENGTH: usize = 24;

/// One line without control characters, at most [`LIMIT`] bytes. A newline makes the API server drop a warning silently.
pub fn line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clip(&text, LIMIT).into_owned()
}

/// The first of the lines that fits, with names cut shorter and shorter; else the last one, cut off.
fn fit(build: impl Fn(usize) -> String) -> String {
    let mut shortest = String::new();
    for length in NAME_LENGTHS {
        shortest = build(length);
        if shortest.len() <= LIMIT {
            break;
        }
    }
    line(&shortest)
}

/// The object that a message speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject<'s> {
    /// What it is, in prose: `deployment`.
    pub word: Cow<'s, str>,
    /// What it is, for kubectl: `deployment`, `rollouts.argoproj.io`.
    pub kubectl: Cow<'s, str>,
    /// Its namespace; empty for what has none.
    pub namespace: Cow<'s, str>,
    /// Its name; empty where the API server has still to make one.
    pub name: Cow<'s, str>,
}

impl<'s> Subject<'s> {
    /// A workload.
    pub fn workload(workload: &'s Workload) -> Self {
        Self::named(&workload.kind, &workload.namespace, &workload.name)
    }

    /// An object of this kind.
    pub fn named(kind: &Kind, namespace: &'s str, name: &'s str) -> Self {
        Self {
            word: kind.kind.to_ascii_lowercase().into(),
            kubectl: kind.kubectl_name().into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// A namespace.
    pub fn namespace(name: &'s str) -> Self {
        Self {
            word: "namespace".into(),
            kubectl: "namespace".into(),
            namespace: "".into(),
            name: name.into(),
        }
    }

    fn prose(&self, length: usize) -> String {
        let word = clip(&self.word, length.max(WORD_LENGTH));
        if self.name.is_empty() {
            format!("this {word}")
        } else {
            format!("{word} \"{}\"", clip(&self.name, length))
        }
    }

    /// The command that wakes it.
    pub fn wake_command(&self) -> String {
        let mut command = format!("kubectl annotate --overwrite {} {}", self.kubectl, self.name);
        if !self.namespace.is_empty() {
            let _ = write!(command, " -n {}", self.namespace);
        }
        let _ = write!(command, " {AWAKE_UNTIL}=2h");
        command
    }
}

/// The night that a workload is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Night {
    /// The schedule; `None` for a sleep by hand without one.
    pub schedule: Option<String>,
    /// It sleeps because somebody asked for it.
    pub by_hand: bool,
    /// When it ends, such as `Tue 2026-12-01 08:00 America/Sao_Paulo`.
    pub until: Option<String>,
}

impl Night {
    /// The night that a verdict speaks of.
    pub fn of(verdict: &Verdict) -> Self {
        let schedule = verdict.schedule.as_ref();
        let zone = schedule.and_then(|schedule| schedule.timeline.as_ref().ok());
        let zone = zone.map_or(Zone::UTC, |timeline| timeline.zone().clone());
        Self {
            schedule: schedule.map(|schedule| schedule.name.to_string()),
            by_hand: matches!(verdict.decided_by, Rule::Asleep(_)),
            until: verdict.until.map(|at| instant(at, &zone)),
        }
    }

    fn prose(&self, length: usize) -> String {
        let mut text = String::from(if self.by_hand { "asleep by hand" } else { "off hours" });
        if let Some(schedule) = self.schedule.as_ref().filter(|_| !self.by_hand) {
            let _ = write!(text, " (schedule {})", clip(schedule, length));
        }
        if let Some(until) = &self.until {
            let _ = write!(text, " until {until}");
        }
        text
    }
}

/// An instant as people read it: `Tue 2026-12-01 08:00 America/Sao_Paulo`.
pub fn instant(at: Timestamp, zone: &Zone) -> String {
    let zoned = at.to_zoned(zone.time_zone().clone());
    format!("{} {}", zoned.strftime("%a %Y-%m-%d %H:%M"), zone.name())
}

/// `; what happened`, with the command that wakes it. Where the command alone is too long, the annotation that does it.
fn asleep(subject: &Subject<'_>, night: &Night, outcome: &str) -> String {
    let command = (!subject.name.is_empty()).then(|| subject.wake_command());
    let annotation = format!("annotate it with {AWAKE_UNTIL}=2h");
    for remedy in command.iter().chain([&annotation]) {
        let whole = NAME_LENGTHS
            .into_iter()
            .map(|length| format!("{} is {}", subject.prose(length), night.prose(length)));
        for beginning in whole.chain([night.prose(6), "off hours".to_owned()]) {
            let text = format!("{beginning}; {outcome}. Wake it: {remedy}");
            if text.len() <= LIMIT {
                return line(&text);
            }
        }
    }
    line(&format!("off hours; {outcome}. Wake it: {annotation}"))
}

fn replicas(count: &str) -> String {
    if count == "1" {
        "1 replica".to_owned()
    } else {
        format!("{count} replicas")
    }
}

/// `kept at 0 replicas`, `kept suspended`, `kept asleep`.
pub fn kept(knob: &Knob, held: &Value) -> String {
    let text = crate::kinds::value_text(Some(held));
    match &knob.form {
        Form::Count | Form::CountText if knob.name.ends_with("replicas") => format!("kept at {}", replicas(&text)),
        Form::Count | Form::CountText | Form::Guard { .. } => format!("{} kept at {text}", knob.name),
        Form::Flag(_) if knob.name == "suspend" => "kept suspended".to_owned(),
        Form::Flag(_) | Form::Text(_) => "kept asleep".to_owned(),
    }
}

/// What was asked for, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory<'m> {
    /// Nothing is to be remembered.
    Nothing,
    /// This is remembered for opening time.
    Remembered(&'m str),
    /// This could not be remembered.
    Failed(&'m str),
    /// There is no place to remember this: what scales it says how many there will be.
    NoPlace(&'m str),
}

impl Memory<'_> {
    fn prose(self) -> String {
        // A count as text may be any text.
        let short = |asked| clip(asked, 24);
        match self {
            Self::Nothing => String::new(),
            Self::Remembered(asked) => format!(", {} remembered", short(asked)),
            Self::Failed(asked) => format!(", {} NOT remembered (ask again)", short(asked)),
            Self::NoPlace(asked) => format!(", {} not remembered", short(asked)),
        }
    }
}

/// Rewrite: a held knob was put back.
pub fn held(subject: &Subject<'_>, night: &Night, kept: &str, memory: Memory<'_>) -> String {
    asleep(subject, night, &format!("{kept}{}", memory.prose()))
}

/// Rewrite: a new workload came down at once.
pub fn created_asleep(subject: &Subject<'_>, night: &Night, kept: &str, memory: Memory<'_>) -> String {
    let kept = match kept.strip_prefix("kept ") {
        Some(how) => format!("created {how}"),
        None => format!("created, {kept}"),
    };
    asleep(subject, night, &format!("{kept}{}", memory.prose()))
}

/// Deny: the request was refused.
pub fn denied(subject: &Subject<'_>, night: &Night, kept: &str) -> String {
    asleep(subject, night, kept)
}

/// Warn: the request passed.
pub fn passes(subject: &Subject<'_>, night: &Night) -> String {
    asleep(subject, night, "it wakes, as its schedule only warns")
}

/// Warn: a new workload will be put to sleep by the scheduler.
pub fn will_sleep(subject: &Subject<'_>, night: &Night) -> String {
    asleep(subject, night, "it will be put to sleep soon")
}

/// Rewrite: another webhook raised it after us.
pub fn raised_after_us(subject: &Subject<'_>, night: &Night) -> String {
    asleep(
        subject,
        night,
        "another admission webhook wakes it, the scheduler puts it down again",
    )
}

/// Rewrite: an autoscaler of something that sleeps was put back.
pub fn autoscaler_held(autoscaler: &str, target: &Subject<'_>, night: &Night) -> String {
    let outcome = format!("HPA \"{}\" kept, the change is remembered", clip(autoscaler, 24));
    asleep(target, night, &outcome)
}

/// Deny: a change of an autoscaler of something that sleeps was refused. `verb`: `changed`, `created`, `deleted`.
pub fn autoscaler_denied(autoscaler: &str, verb: &str, target: &Subject<'_>, night: &Night) -> String {
    let outcome = format!("HPA \"{}\" cannot be {verb} meanwhile", clip(autoscaler, 24));
    asleep(target, night, &outcome)
}

/// Warn: a change of an autoscaler of something that sleeps passed.
pub fn autoscaler_passes(autoscaler: &str, target: &Subject<'_>, night: &Night) -> String {
    let outcome = format!("HPA \"{}\" changes all the same", clip(autoscaler, 24));
    asleep(target, night, &outcome)
}

/// The record had been stripped or edited by the request.
pub fn record_put_back(subject: &Subject<'_>, record: &str) -> String {
    fit(|length| {
        format!(
            "{} sleeps: the record of what it wakes to ({}) was kept; to change it, ask for the number itself, for example with kubectl scale",
            subject.prose(length),
            clip(record, length.max(12)),
        )
    })
}

/// A selector key of ours in a pod template, outside a window.
pub fn sleep_outside_window(subject: &Subject<'_>, key: &str) -> String {
    fit(|length| {
        format!(
            "{} would be put to sleep outside its off hours by {key} (an old revision brings it back); remove that key from the template",
            subject.prose(length),
        )
    })
}

/// A wake was longer than the schedule allows.
pub fn wake_cut(subject: &Subject<'_>, limit: &str, until: &str) -> String {
    fit(|length| {
        format!(
            "{} wakes until {until}: its schedule allows at most {limit} at a time (maxWake)",
            subject.prose(length)
        )
    })
}

/// A duration came from Git.
pub fn duration_dropped(subject: &Subject<'_>, key: &str) -> String {
    fit(|length| {
        format!(
            "{key} of {} is a duration, which would start anew at every sync; dropped. In Git, write an instant such as \"2026-12-01T08:00:00Z\"",
            subject.prose(length)
        )
    })
}

/// The label names a schedule that is not there yet.
pub fn no_such_schedule(name: &str) -> String {
    fit(|length| {
        format!(
            "there is no schedule \"{}\" yet; nothing sleeps by this label until it is created (kubectl get ohs)",
            clip(name, length)
        )
    })
}

/// The label names a schedule whose kinds leave this one out.
pub fn kind_left_out(subject: &Subject<'_>, schedule: &str) -> String {
    fit(|length| {
        format!(
            "schedule \"{}\" does not include the kind of {}; add it to the schedule's kinds, or the label has no effect",
            clip(schedule, length),
            subject.prose(length)
        )
    })
}

/// A key or value under our prefix, or a field of a schedule, is wrong or odd. What to do about it stands at the end.
pub fn problem(problem: &impl std::fmt::Display) -> String {
    line(&squeeze(&problem.to_string(), LIMIT))
}

/// A key was written as an annotation where a label is read, or the other way round.
pub fn wrong_place(key: &str, label: bool) -> String {
    if label {
        line(&format!(
            "{key} is read from a label; as an annotation it has no effect"
        ))
    } else {
        line(&format!(
            "{key} is read from an annotation; as a label it has no effect"
        ))
    }
}

/// The answer to the webhook's own self-test.
pub const REACHED: &str =
    "the webhook of offhours is reached: this dry run is its own self-test, and is refused by design";

/// A schedule cannot be understood.
pub fn schedule_invalid(name: &str, problems: &[String]) -> String {
    let first = problems.first().map_or("", String::as_str);
    let more = match problems.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let beginning = format!("schedule \"{}\": ", clip(name, 40));
    let room = LIMIT.saturating_sub(beginning.len() + more.len());
    line(&format!("{beginning}{}{more}", squeeze(first, room)))
}

/// A change of wake, protection or label needs the verb `override`.
pub fn override_refused(user: &str, schedule: &str, key: &str, why: &str) -> String {
    // The name of a schedule is at most 63 long, and whoever grants the verb needs it whole.
    let schedule = clip(schedule, 63);
    fit(|length| {
        format!(
            "user \"{}\" may not change {} (guardOverrides): {}. It needs the verb override on offhoursschedules/{schedule}",
            clip(user, length),
            clip(key, length.max(40)),
            clip(why, length.clamp(40, 60)),
        )
    })
}

/// Whether a thing is down could not be told.
pub fn uncertain(subject: &Subject<'_>, why: &str) -> String {
    fit(|length| {
        format!(
            "offhours cannot tell whether {} is off hours: {}; not held",
            subject.prose(length),
            clip(why, 120)
        )
    })
}

/// The same, and the installation refuses what it cannot judge.
pub fn uncertain_denied(subject: &Subject<'_>, why: &str) -> String {
    fit(|length| {
        format!(
            "offhours cannot tell whether {} is off hours: {}; refused (--on-uncertainty=deny), try again",
            subject.prose(length),
            clip(why, 100)
        )
    })
}

/// A review that could not be read.
pub fn unreadable(why: &str) -> String {
    line(&format!(
        "offhours could not read this request: {}; not held",
        clip(why, 150)
    ))
}

/// The same, and the installation refuses what it cannot judge.
pub fn unreadable_denied(why: &str) -> String {
    line(&format!(
        "offhours could not read this request: {}; refused (--on-uncertainty=deny)",
        clip(why, 140)
    ))
}

/// What somebody did that is told in an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed<'d> {
    /// Woke what is held, by an exemption.
    Woke,
    /// Created a workload awake, by an exemption.
    CreatedAwake,
    /// `changed`, `created` or `deleted` the autoscaler of something that sleeps, by an exemption.
    Autoscaler(&'d str),
    /// Set a key that opens a hold.
    Set {
        /// The key.
        key: &'d str,
        /// Its value.
        value: &'d str,
    },
    /// Removed a key, which opens a hold.
    Removed {
        /// The key.
        key: &'d str,
    },
    /// Stripped or edited a record, which was put back.
    Record,
    /// Asked for so many replicas through `/scale`; they are remembered.
    Asked(u64),
}

impl std::fmt::Display for Deed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Woke => f.write_str("woke it, by an exemption"),
            Self::CreatedAwake => f.write_str("created it awake, by an exemption"),
            Self::Autoscaler(verb) => write!(f, "{verb} it while its target sleeps, by an exemption"),
            Self::Set { key, value } => write!(f, "set {} to \"{}\"", short_key(key), escaped(value)),
            Self::Removed { key } => write!(f, "removed {}", short_key(key)),
            Self::Record => f.write_str("removed or changed the record of what it wakes to; it was kept"),
            Self::Asked(count) => write!(
                f,
                "asked for {} while it is off hours; remembered for opening time",
                replicas(&count.to_string())
            ),
        }
    }
}

/// Event: somebody passed a hold, opened one, or asked for something that is remembered.
pub fn told(user: &str, deed: Deed<'_>) -> String {
    fit(|length| format!("\"{}\" {deed}", clip(user, length.max(24))))
}

/// Event and condition: one workload was held again and again.
pub fn held_repeatedly(subject: &Subject<'_>, times: usize) -> String {
    fit(|length| {
        format!(
            "{} in {} was held {times} times in ten minutes: something fights its sleep. Pause it (argo: {{pause: true}}), or let Argo CD compare with ServerSideDiff",
            subject.prose(length),
            clip(&subject.namespace, length),
        )
    })
}

/// Keeps the first warnings whose texts together stay under 4 KB: beyond, the API server drops them.
pub fn within_budget(warnings: &mut Vec<String>) {
    let mut total = 0;
    warnings.retain(|warning| {
        total += warning.len();
        total <= 4000
    });
}

/// The key without our prefix, for prose.
fn short_key(key: &str) -> &str {
    key.strip_prefix(PREFIX).unwrap_or(key)
}

#[cfg(test)]
#[path = "tests/messages.rs"]
mod tests;
