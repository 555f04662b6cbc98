//! `offhours timeline`.

use serde_json::Value;

use super::{offhours, stderr, stdout};

const UTC_EVENING: &str = "apiVersion: offhours.platform.io/v1alpha1
kind: OffHoursSchedule
metadata: {name: evening}
spec: {downtime: ['Mon-Sun 18:00-19:00']}
";

#[test]
fn case_1_13_machines_zone_decides_nothing() {
    let mut answers = Vec::new();
    for environment in [&[("TZ", "UTC")][..], &[("TZ", "America/New_York")], &[]] {
        let output = offhours(
            &["timeline", "-f", "-", "--at", "2020-06-23T18:13:00Z"],
            environment,
            UTC_EVENING,
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("Down") && text.contains("UTC"), "{text}");
        assert!(
            stderr(&output).contains("warning: spec.timeZone: "),
            "{}",
            stderr(&output)
        );
        answers.push(text);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[test]
fn broken_file_exits_2_with_the_errors_also_as_json() {
    let broken = UTC_EVENING.replace("19:00", "25:00");
    let output = offhours(&["timeline", "-f", "-"], &[], &broken);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("error: spec.downtime[0]: ") && stdout(&output).is_empty());

    let output = offhours(&["timeline", "-f", "-", "-o", "json"], &[], &broken);
    assert_eq!(output.status.code(), Some(2));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(found["errors"][0]["path"], "spec.downtime[0]");
    assert!(
        found["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("did you mean `24:00`?")
    );
    assert_eq!(found["warnings"], serde_json::json!([]));
    assert!(stderr(&output).contains("error: spec.downtime[0]: "));

    for arguments in [
        &["timeline", "-f", "/does/not/exist"][..],
        &["timeline", "-f", "-", "--zone", "Europe/Berlim"],
        &["timeline", "-f", "-", "--from", "yesterday"],
        &["timeline", "-f", "-", "--from", "2026-01-02", "--to", "2026-01-01"],
        &["timeline", "-f", "-", "--at", "2026-01-02", "-o", "ics"],
        &["timeline", "--nonsense"],
        &["nonsense"],
        &[],
    ] {
        let output = offhours(arguments, &[], UTC_EVENING);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(!stderr(&output).is_empty());
    }
}

#[test]
fn warnings_never_change_the_exit_code_nor_the_output() {
    let output = offhours(
        &[
            "timeline",
            "-f",
            "-",
            "--from",
            "2026-01-01",
            "--to",
            "2026-01-02",
            "--zone",
            "Asia/Tokyo",
            "-o",
            "json",
        ],
        &[],
        UTC_EVENING,
    );
    assert_eq!(output.status.code(), Some(0));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(found["timeZone"], "UTC");
    assert_eq!(
        found["from"], "2025-12-31T15:00:00Z",
        "dates are read in the zone shown"
    );
    assert_eq!(found["transitions"][0]["at"], "2025-12-31T18:00:00Z");
    assert_eq!(
        found["transitions"][0]["local"],
        "2026-01-01T03:00:00+09:00[Asia/Tokyo]"
    );
}

#[test]
fn range_starts_now_and_lasts_a_week_unless_said_otherwise() {
    let output = offhours(&["timeline", "-f", "-", "-o", "json"], &[], UTC_EVENING);
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let instant = |key: &str| found[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(
        instant("to").duration_since(instant("from")),
        jiff::SignedDuration::from_hours(7 * 24)
    );
    assert_eq!(found["transitions"].as_array().unwrap().len(), 14);
}

#[test]
fn missing_cluster_is_a_failure_with_a_remedy() {
    let output = offhours(&["timeline"], &[("KUBECONFIG", "/does/not/exist")], "");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("there is no file (-f)") && said.contains("set KUBECONFIG"),
        "{said}"
    );
}

#[test]
fn help_and_version_are_no_failure() {
    for argument in ["--help", "--version"] {
        let output = offhours(&[argument], &[], "");
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("offhours"));
    }
}
