use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::annotations::{self, DOWN_REPLICAS, PROTECTED, SCHEDULE, STARTUP_ORDER, Wrong};
use crate::api::{OffHoursScheduleSpec, validate, validate_name};

/// A message, and who makes it.
struct Row {
    name: &'static str,
    kind: &'static str,
    function: &'static str,
    text: String,
}

/// `name, kind, function(arguments);` for each.
macro_rules! rows {
    ($($name:literal, $kind:literal, $function:ident($($argument:expr),*);)*) => {
        vec![$(Row { name: $name, kind: $kind, function: stringify!($function), text: $function($($argument),*) }),*]
    };
}

/// What messages speak of.
struct Cast<'c> {
    subject: Subject<'c>,
    night: Night,
    schedule: &'c str,
    autoscaler: &'c str,
    user: &'c str,
    /// A value or a reason of somebody else's.
    value: &'c str,
}

fn subject<'s>(word: &'s str, name: &'s str, namespace: &'s str) -> Subject<'s> {
    Subject {
        word: word.into(),
        kubectl: word.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn night(schedule: &str, zone: &str) -> Night {
    Night {
        schedule: Some(schedule.to_owned()),
        by_hand: false,
        until: Some(format!("Tue 2026-12-01 08:00 {zone}")),
    }
}

fn usual() -> Cast<'static> {
    Cast {
        subject: subject("deployment", "checkout", "shop"),
        night: night("dev-weekday", "America/Sao_Paulo"),
        schedule: "dev-weekday",
        autoscaler: "checkout",
        user: "ana.maria@example.com",
        value: "namespace shop is not known",
    }
}

/// Every function of this module that makes a message: [`no_function_is_left_out`].
fn all(cast: &Cast<'_>) -> Vec<Row> {
    let Cast {
        subject,
        night,
        schedule,
        autoscaler,
        user,
        value,
    } = cast;
    let kept = "kept at 0 replicas";
    let invalid = ["spec.cron.shutdown[0]: hour `25` is not within 0-23".to_owned()];
    let mut rows = rows! {
        "held", "warning", held(subject, night, kept, Memory::Remembered("5"));
        "held, not remembered", "warning", held(subject, night, kept, Memory::Failed("5"));
        "held, scaled by KEDA", "warning", held(subject, night, kept, Memory::NoPlace("5"));
        "created asleep", "warning", created_asleep(subject, night, kept, Memory::Remembered("2"));
        "denied", "error", denied(subject, night, kept);
        "passes", "warning", passes(subject, night);
        "will sleep", "warning", will_sleep(subject, night);
        "raised after us", "warning", raised_after_us(subject, night);
        "HPA held", "warning", autoscaler_held(autoscaler, subject, night);
        "HPA denied", "error", autoscaler_denied(autoscaler, "deleted", subject, night);
        "HPA passes", "warning", autoscaler_passes(autoscaler, subject, night);
        "record put back", "warning", record_put_back(subject, "3");
        "sleep outside a window", "error", sleep_outside_window(subject, "offhours.platform.io/asleep");
        "wake cut", "warning", wake_cut(subject, "4h", "Tue 2026-12-01 00:00 America/Sao_Paulo");
        "duration from Git", "warning", duration_dropped(subject, AWAKE_UNTIL);
        "no such schedule", "warning", no_such_schedule(schedule);
        "kind left out", "warning", kind_left_out(subject, schedule);
        "a label as an annotation", "warning", wrong_place(SCHEDULE, true);
        "an annotation as a label", "warning", wrong_place(AWAKE_UNTIL, false);
        "override refused", "error", override_refused(user, schedule, AWAKE_UNTIL, "no RBAC rule allows it");
        "override refused, nobody could be asked", "error",
            override_refused(user, schedule, AWAKE_UNTIL, "the API server did not answer in time");
        "uncertain", "warning", uncertain(subject, value);
        "uncertain, refused", "error", uncertain_denied(subject, value);
        "unreadable", "warning", unreadable("metadata is missing");
        "unreadable, refused", "error", unreadable_denied("metadata is missing");
        "held repeatedly", "event", held_repeatedly(subject, 6);
        "schedule invalid", "error", schedule_invalid(schedule, &invalid);
    };
    let mut deed = None;
    while let Some((name, next)) = deed_after(deed) {
        rows.push(Row {
            name,
            kind: "event",
            function: "told",
            text: told(user, next),
        });
        deed = Some(next);
    }
    rows.push(Row {
        name: "self-test",
        kind: "error, seen by nobody but the webhook itself and `offhours check`",
        function: "REACHED",
        text: REACHED.to_owned(),
    });
    rows
}

/// One deed after the other. No wildcard: a new one does not compile until it has its row.
fn deed_after(deed: Option<Deed<'static>>) -> Option<(&'static str, Deed<'static>)> {
    let set = Deed::Set {
        key: AWAKE_UNTIL,
        value: "2026-12-01T01:00:00Z",
    };
    Some(match deed {
        None => ("overridden: woken by the exempt", Deed::Woke),
        Some(Deed::Woke) => ("overridden: created awake by the exempt", Deed::CreatedAwake),
        Some(Deed::CreatedAwake) => ("overridden: HPA by the exempt", Deed::Autoscaler("changed")),
        Some(Deed::Autoscaler(_)) => ("overridden: wake, protection or label", set),
        Some(Deed::Set { .. }) => ("overridden: label removed", Deed::Removed { key: SCHEDULE }),
        Some(Deed::Removed { .. }) => ("record put back, Event", Deed::Record),
        Some(Deed::Record) => ("remembered", Deed::Asked(5)),
        Some(Deed::Asked(_)) => return None,
    })
}

/// One mistake in a label or annotation after the other, with the key that it is made in. No wildcard here either.
fn wrong_after<'v>(wrong: Option<Wrong<'v>>, value: &'v str) -> Option<(&'static str, Wrong<'v>)> {
    Some(match wrong {
        None => (AWAKE_UNTIL, Wrong::Until(value)),
        Some(Wrong::Until(_)) => (annotations::ASLEEP_UNTIL, Wrong::NoTime("0s")),
        Some(Wrong::NoTime(_)) => (PROTECTED, Wrong::Bool(value)),
        Some(Wrong::Bool(_)) => (DOWN_REPLICAS, Wrong::DownReplicas(value)),
        Some(Wrong::DownReplicas(_)) => (STARTUP_ORDER, Wrong::Order(value)),
        Some(Wrong::Order(_)) => (SCHEDULE, Wrong::NoSchedule),
        Some(Wrong::NoSchedule) => ("offhours.platform.io/shedule", Wrong::UnknownKey(Some("schedule"))),
        Some(Wrong::UnknownKey(Some(_))) => ("offhours.platform.io/whatever", Wrong::UnknownKey(None)),
        // Only the product writes instants alone; it is never said of what a request has.
        Some(Wrong::UnknownKey(None)) => (annotations::DOWN_SINCE, Wrong::Instant(value)),
        Some(Wrong::Instant(_)) => return None,
    })
}

/// What is said of labels and annotations with this value in them: what it is about, kind, text.
fn of_keys(value: &str) -> Vec<(&'static str, &'static str, String)> {
    let mut found = Vec::new();
    let mut last = None;
    while let Some((key, wrong)) = wrong_after(last, value) {
        last = Some(wrong);
        if key == annotations::DOWN_SINCE {
            continue;
        }
        let said = match wrong {
            Wrong::UnknownKey(_) => annotations::unknown_key(key),
            Wrong::NoSchedule => annotations::check(key, "").err(),
            Wrong::NoTime(value) => annotations::check(key, value).err(),
            _ => annotations::check(key, value).err(),
        };
        assert_eq!(said.map(|said| said.to_string()), Some(format!("{key}: {wrong}")));
        let kind = if matches!(wrong, Wrong::UnknownKey(_)) {
            "warning"
        } else {
            "error"
        };
        found.push((key, kind, problem(&format!("{key}: {wrong}"))));
    }
    let windows = |uptime, downtime, zone| crate::schedule::from_annotations(uptime, downtime, zone);
    for (key, wrong) in [
        (annotations::UPTIME, windows(Some(value), None, Some("UTC"))),
        (annotations::DOWNTIME, windows(None, Some(value), Some("UTC"))),
        (
            annotations::TIME_ZONE,
            windows(Some("Mon-Fri 08:00-20:00"), None, Some(value)),
        ),
    ] {
        found.extend(wrong.unwrap_err().first().map(|wrong| (key, "error", problem(wrong))));
    }
    let (_, odd) = windows(Some("Mon-Fri 08:00-20:00"), None, None).unwrap();
    found.extend(odd.iter().map(|odd| (annotations::TIME_ZONE, "warning", problem(odd))));
    found
}

/// Specs with one mistake each.
fn wrong_specs() -> Vec<serde_json::Value> {
    let exception = |exception: serde_json::Value| json!({"exceptions": [exception]});
    let range = |from: &str, to: &str| exception(json!({"from": from, "to": to, "state": "Down"}));
    vec![
        json!({"uptime": ["Mon-Fri 08:00-20:00"], "cron": {"shutdown": ["0 20 * * *"], "startup": ["0 8 * * *"]}}),
        json!({"cron": {}}),
        json!({"cron": {"shutdown": ["0 25 * * *"], "startup": ["0 8 * * *"]}}),
        json!({"timeZone": "Europe/Berlim"}),
        json!({"downtime": []}),
        json!({"downtime": ["Mon-Fri 20:00-25:00"]}),
        exception(json!({"state": "Down"})),
        exception(json!({"from": "2026-12-24", "state": "Down"})),
        exception(json!({"date": "2026-02-30", "state": "Down"})),
        exception(json!({"date": "2026-12-24", "hours": "9-12", "state": "Down"})),
        exception(
            json!({"from": "2026-12-24T12:00", "to": "2026-12-26T12:00", "hours": "09:00-12:00", "state": "Down"}),
        ),
        range("2026-12-26", "2026-12-24"),
        range("2026-12-26T12:00", "2026-12-24T12:00"),
        range("Christmas", "2026-12-24"),
        range("2026-12-24", "2026-12-26T12:00"),
        json!({"selector": {}}),
        json!({"downReplicas": -1}),
        json!({"gracePeriod": "soon"}),
        json!({"startup": {"maxConcurrent": 0}}),
    ]
}

/// Specs that are legal and odd.
fn odd_specs() -> Vec<serde_json::Value> {
    let cron = |shutdown: &str, startup: &str| json!({"timeZone": "UTC", "cron": {"shutdown": [shutdown], "startup": [startup]}});
    let down = |list: serde_json::Value| json!({"timeZone": "UTC", "downtime": list});
    vec![
        json!({"downtime": ["Mon-Fri 20:00-08:00"]}),
        cron("0 20 31 2 *", "0 8 * * *"),
        json!({"timeZone": "UTC", "cron": {"shutdown": ["0 20 * * *"]}}),
        cron("*/10 * * * *", "5-59/10 * * * *"),
        down(json!(["Mon-Sun 00:00-24:00"])),
        down(json!(["Mon-Fri 08:00-12:00, Mon 11:00-13:00"])),
        down(json!(["Mon 20:00-23:59, Tue 00:00-08:00"])),
        down(json!([
            "2026-03-29T02:10/2026-03-29T02:50 Europe/Berlin",
            "Mon-Fri 20:00-08:00"
        ])),
        down(json!([
            "2026-03-29T02:10/2026-03-30T02:50, 2026-03-30T01:00/2026-03-31T02:50, Mon-Fri 20:00-08:00"
        ])),
        json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-20:00"], "downtime": ["Mon-Fri 12:00-13:00"]}),
        json!({"timeZone": "UTC", "downtime": ["Mon-Fri 20:00-08:00"], "exceptions": [
            {"from": "2026-12-24", "to": "2026-12-26", "state": "Down"},
            {"date": "2026-12-25", "state": "Up"},
        ]}),
        json!({"timeZone": "Europe/Berlin", "downtime": ["Mon-Fri 20:00-08:00"], "exceptions": [
            {"date": "2026-03-29", "hours": "02:10-02:50", "state": "Down"},
        ]}),
    ]
}

/// What is said of the specs of schedules: kind, text.
fn of_specs() -> Vec<(&'static str, String)> {
    let read = |spec: serde_json::Value| serde_json::from_value::<OffHoursScheduleSpec>(spec).unwrap();
    let refused = |problem: &crate::schedule::Problem| ("error", schedule_invalid("nights", &[problem.to_string()]));
    let mut found = Vec::new();
    for spec in wrong_specs() {
        found.extend(
            validate(&read(spec.clone()))
                .expect_err(&spec.to_string())
                .iter()
                .map(refused),
        );
    }
    for name in ["Nights", &"n".repeat(64)] {
        found.push(refused(&validate_name(name).unwrap_err()));
    }
    for spec in odd_specs() {
        let judged = validate(&read(spec.clone())).unwrap_or_else(|problems| panic!("{spec}: {problems:?}"));
        let warnings = judged.warnings;
        assert!(!warnings.is_empty(), "{spec}");
        found.extend(warnings.iter().map(|warning| ("warning", problem(warning))));
    }
    let mut seen = BTreeSet::new();
    found.retain(|(_, text)| seen.insert(text.clone()));
    found
}

/// The beginning of every message function and the name of every constant text of this module.
fn declared() -> BTreeSet<&'static str> {
    let source = include_str!("../messages.rs");
    let functions = source.split("\npub fn ").skip(1).filter_map(|rest| {
        let (signature, _) = rest.split_once('{')?;
        let name = signature.split(['(', '<']).next()?;
        signature.contains("-> String").then_some(name)
    });
    let constants = source.split("\npub const ").skip(1).filter_map(|rest| {
        let (name, kind) = rest.split_once(':')?;
        kind.trim_start().starts_with("&str").then_some(name)
    });
    // Parts of messages, and what makes a message of somebody else's text.
    let parts = ["line", "instant", "kept", "problem"];
    functions
        .chain(constants)
        .filter(|name| !parts.contains(name))
        .collect()
}

#[test]
fn no_function_is_left_out() {
    let shown: BTreeSet<&str> = all(&usual()).iter().map(|row| row.function).collect();
    assert_eq!(shown, declared());
}

/// Texts of more than two words in the source of what judges schedules, but for comments and what no request can bring about.
fn prose(source: &'static str) -> impl Iterator<Item = &'static str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
    let longest = |text: &'static str| text.split(['{', '}']).max_by_key(|part| part.len()).unwrap_or_default();
    literals
        .filter(|text| text.split(' ').count() > 3)
        .map(longest)
        .filter(|part| {
            !["the calendar has no event", "the calendar in ConfigMap"]
                .iter()
                .any(|known| part.starts_with(known))
        })
}

#[test]
fn no_mistake_in_a_schedule_is_left_out() {
    let shown = of_specs();
    let sources = [
        include_str!("../schedule/compile.rs"),
        include_str!("../api/validate.rs"),
    ];
    for part in sources.into_iter().flat_map(prose) {
        assert!(
            shown.iter().any(|(_, text)| text.contains(part)),
            "no example of {part:?}"
        );
    }
}

#[test]
fn rule_e12_every_message_is_one_line_of_at_most_250_bytes_with_its_end_whatever_the_names() {
    let long = "n".repeat(253);
    let names = ["x", "checkout", &"n".repeat(63), &long, &"ã".repeat(120), ""];
    let texts = ["x", &long, &"\u{200b}\n\"".repeat(90), &"é".repeat(5000)];
    let usual = all(&usual());
    for name in names {
        for namespace in ["y", &"s".repeat(63)] {
            for schedule in ["s", &"schedule-".repeat(7), &long] {
                for (word, value) in ["deployment", &"k".repeat(63)]
                    .into_iter()
                    .flat_map(|word| texts.map(|text| (word, text)))
                {
                    let cast = Cast {
                        subject: subject(word, name, namespace),
                        night: night(schedule, "America/Argentina/ComodRivadavia"),
                        schedule,
                        autoscaler: if name.is_empty() { "x" } else { name },
                        user: value,
                        value,
                    };
                    for (row, usual) in all(&cast).iter().zip(&usual) {
                        let (which, text) = (row.name, &row.text);
                        assert!(text.len() <= LIMIT, "{which}: {} bytes: {text}", text.len());
                        assert!(!text.chars().any(char::is_control), "{which}: {text:?}");
                        // What to do stands at the end, so the end has to be there.
                        let ends = ["=2h", &ending(&usual.text)];
                        let granted = text.contains("override on offhoursschedules/");
                        assert!(
                            granted || ends.iter().any(|end| text.ends_with(*end)),
                            "{which} lost its end: {text}"
                        );
                    }
                }
            }
        }
    }
}

/// The last words of a message.
fn ending(text: &str) -> String {
    text.get(text.len().saturating_sub(9)..).unwrap_or(text).to_owned()
}

#[test]
fn rule_e12_a_refused_value_of_any_length_leaves_room_for_the_remedy() {
    let usual = of_keys("soon");
    for value in ["v".repeat(300), "\u{200b}\n\"é".repeat(5000), "Mon-Fri ".repeat(500)] {
        for ((key, _, text), (_, _, usual)) in of_keys(&value).iter().zip(&usual) {
            assert!(
                text.len() <= LIMIT && !text.chars().any(char::is_control),
                "{key}: {text}"
            );
            // What is wrong with a window depends on the text.
            if ![annotations::UPTIME, annotations::DOWNTIME, annotations::TIME_ZONE].contains(key) {
                assert!(text.ends_with(&ending(usual)), "{key} lost its end: {text}");
            }
        }
        let spec = json!({"downtime": [value], "cron": {"shutdown": [value], "startup": [value]}, "timeZone": value,
            "exceptions": [{"date": value, "state": "Down"}, {"from": value, "to": value, "state": "Down"}]});
        let spec = serde_json::from_value::<OffHoursScheduleSpec>(spec).unwrap();
        for problem in validate(&spec).unwrap_err() {
            let text = schedule_invalid(&"s".repeat(253), &[problem.to_string(), String::new()]);
            assert!(text.len() <= LIMIT, "{text}");
            assert!(text.ends_with(" (and 1 more)"), "{text}");
            let end = ending(&problem.to_string());
            assert!(text.contains(&end), "{end:?} is lost: {text}");
        }
        // What the schema lets pass and the parser does not.
        let odd = json!({"enforcement": {"mode": value}});
        let error = serde_json::from_value::<OffHoursScheduleSpec>(odd).unwrap_err();
        let text = schedule_invalid("nights", &[format!("spec: {error}")]);
        assert!(text.len() <= LIMIT && text.contains("`Deny`"), "{text}");
    }
}

#[test]
fn rule_e12_the_command_is_never_shortened() {
    let (name, namespace) = (
        "checkout-frontend-canary-of-the-second-generation",
        "team-payments-development",
    );
    let subject = subject("deployment", name, namespace);
    let night = night("dev-weekday", "America/Sao_Paulo");
    let command = format!("kubectl annotate --overwrite deployment {name} -n {namespace} {AWAKE_UNTIL}=2h");
    let message = denied(&subject, &night, "kept at 0 replicas");
    assert!(message.ends_with(&command), "{message}");
    // Where it alone would be too long, the annotation is named instead.
    let long = "n".repeat(200);
    let message = denied(
        &Subject {
            name: long.into(),
            ..subject
        },
        &night,
        "kept at 0 replicas",
    );
    assert!(
        message.ends_with("annotate it with offhours.platform.io/awake-until=2h"),
        "{message}"
    );
}

#[test]
fn control_characters_are_removed() {
    assert_eq!(line("a\nb\tc"), "a b c");
}

#[test]
fn warnings_together_stay_under_four_kilobytes() {
    let mut warnings = vec!["w".repeat(250); 30];
    within_budget(&mut warnings);
    assert_eq!(warnings.len(), 16);
}

/// docs/messages.md is what this test renders. `UPDATE_DOCS=1 cargo test -p shared messages` writes it.
#[test]
fn the_reference_of_messages_is_up_to_date() {
    let mut text = String::from(
        "# Messages\n\nEvery warning, refusal and Event that offhours shows, as a kubectl user sees it. Each is one line of at most \
         250 bytes.\nA refusal comes as `Error from server (Forbidden): admission webhook \"...\" denied the request: ...`, a \
         warning as `Warning: ...`.\n\n(Generated from the tests of `shared::messages`; do not edit.)\n",
    );
    let mut rows = all(&usual());
    rows.sort_by_key(|row| row.name);
    for Row {
        name,
        kind,
        text: message,
        ..
    } in rows
    {
        let _ = write!(text, "\n## {name}\n\n{kind}:\n\n```text\n{message}\n```\n");
    }
    text.push_str(
        "\n## In labels and annotations\n\nWhat cannot be parsed is refused where it is written; what has no effect is warned \
         about.\n\n```text\n",
    );
    for (_, kind, message) in of_keys("soon") {
        let _ = writeln!(text, "{kind}: {message}");
    }
    text.push_str(
        "```\n\n## In the spec of an OffHoursSchedule\n\nThe first mistake is named, with the number of further ones. What else may \
         be wrong with a window, a cron expression or a date is said in the same form, with its place.\n\n```text\n",
    );
    for (kind, message) in of_specs() {
        let _ = writeln!(text, "{kind}: {message}");
    }
    text.push_str("```\n");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/messages.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/messages.md is old: run `UPDATE_DOCS=1 cargo test -p shared messages`"
    );
}
