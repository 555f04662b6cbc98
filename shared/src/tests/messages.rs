use std::collections::BTreeMap;

use super::*;

fn subject<'s>(name: &'s str, namespace: &'s str) -> Subject<'s> {
    Subject {
        word: "deployment".into(),
        kubectl: "deployment".into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn night() -> Night {
    Night {
        schedule: Some("dev-weekday".to_owned()),
        by_hand: false,
        until: Some("Tue 2026-12-01 08:00 America/Sao_Paulo".to_owned()),
    }
}

/// Every message, by its name, for this object.
fn all(subject: &Subject<'_>, night: &Night) -> BTreeMap<&'static str, (&'static str, String)> {
    let kept = "kept at 0 replicas";
    let user = "ana.maria@example.com";
    BTreeMap::from([
        ("held", ("warning", held(subject, night, kept, Memory::Remembered("5")))),
        (
            "held, not remembered",
            ("warning", held(subject, night, kept, Memory::Failed("5"))),
        ),
        (
            "held, scaled by KEDA",
            ("warning", held(subject, night, kept, Memory::NoPlace("5"))),
        ),
        (
            "created asleep",
            ("warning", created_asleep(subject, night, kept, Memory::Remembered("2"))),
        ),
        ("denied", ("error", denied(subject, night, kept))),
        ("passes", ("warning", passes(subject, night))),
        ("will sleep", ("warning", will_sleep(subject, night))),
        ("raised after us", ("warning", raised_after_us(subject, night))),
        ("HPA held", ("warning", autoscaler_held("checkout", subject, night))),
        (
            "HPA denied",
            ("error", autoscaler_denied("checkout", "deleted", subject, night)),
        ),
        ("HPA passes", ("warning", autoscaler_passes("checkout", subject, night))),
        ("record put back", ("warning", record_put_back(subject, "3"))),
        (
            "sleep outside a window",
            ("error", sleep_outside_window(subject, "offhours.platform.io/asleep")),
        ),
        (
            "wake cut",
            (
                "warning",
                wake_cut(subject, "4h", "Tue 2026-12-01 00:00 America/Sao_Paulo"),
            ),
        ),
        ("duration from Git", ("warning", duration_dropped(subject, AWAKE_UNTIL))),
        ("no such schedule", ("warning", no_such_schedule("dev-weekdays"))),
        ("kind left out", ("warning", kind_left_out(subject, "dev-weekday"))),
        (
            "label or annotation",
            ("warning", wrong_place(crate::annotations::SCHEDULE, true)),
        ),
        (
            "override refused",
            (
                "error",
                override_refused(user, "dev-weekday", AWAKE_UNTIL, "no RBAC rule allows it"),
            ),
        ),
        (
            "uncertain",
            ("warning", uncertain(subject, "namespace shop is not known")),
        ),
        (
            "uncertain, refused",
            ("error", uncertain_denied(subject, "namespace shop is not known")),
        ),
        ("unreadable", ("warning", unreadable("metadata is missing"))),
        (
            "unreadable, refused",
            ("error", unreadable_denied("metadata is missing")),
        ),
        (
            "overridden",
            ("event", overridden(user, "set awake-until to \"2026-12-01T01:00:00Z\"")),
        ),
        ("held repeatedly", ("event", held_repeatedly(subject, 6))),
        (
            "schedule invalid",
            (
                "error",
                schedule_invalid(
                    "nights",
                    &["spec.cron.shutdown[0]: hour `25` is not within 0-23".to_owned()],
                ),
            ),
        ),
    ])
}

#[test]
fn rule_e12_every_message_is_one_line_of_at_most_250_bytes_whatever_the_names() {
    for (name, namespace) in [
        ("x", "y"),
        ("checkout", "shop"),
        (&"n".repeat(63), &"s".repeat(63)),
        (&"ã".repeat(120), "shop"),
    ] {
        for schedule in ["s", &"schedule-".repeat(7)] {
            let night = Night {
                schedule: Some(schedule.to_owned()),
                ..night()
            };
            for (which, (_, message)) in all(&subject(name, namespace), &night) {
                assert!(message.len() <= LIMIT, "{which}: {} bytes: {message}", message.len());
                assert!(!message.chars().any(char::is_control), "{which}");
            }
        }
    }
}

#[test]
fn rule_e12_the_command_is_never_shortened() {
    let (name, namespace) = (
        "checkout-frontend-canary-of-the-second-generation",
        "team-payments-development",
    );
    let subject = subject(name, namespace);
    let command = format!("kubectl annotate --overwrite deployment {name} -n {namespace} {AWAKE_UNTIL}=2h");
    let message = denied(&subject, &night(), "kept at 0 replicas");
    assert!(message.ends_with(&command), "{message}");
    // Where it alone would be too long, the annotation is named instead.
    let long = "n".repeat(200);
    let message = denied(
        &Subject {
            name: long.into(),
            ..subject
        },
        &night(),
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
    for (name, (kind, message)) in all(&subject("checkout", "shop"), &night()) {
        let _ = write!(text, "\n## {name}\n\n{kind}:\n\n```text\n{message}\n```\n");
    }
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
