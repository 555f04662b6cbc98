//! Tests of `offhours timeline` below its output.

use jiff::Timestamp;
use serde_json::Value;

use super::output::{Range, instant as show_instant, range as show_range};
use super::source::{Loaded, Refused, from_text};
use super::*;

const SCHEDULE: &str = "apiVersion: offhours.platform.io/v1alpha1
kind: OffHoursSchedule
metadata:
  name: dev-weekday
spec:
  timeZone: Europe/Berlin
  uptime: [\"Mon-Fri 08:00-20:00\"]
  exceptions:
    - date: 2026-03-30
      state: Down
      reason: moving house
";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn load(text: &str) -> Loaded {
    match from_text(text, "test.yaml", None) {
        Ok(loaded) => loaded,
        Err(Refused::Input(problems)) => panic!("{problems:?}"),
        Err(Refused::Settings(wrong)) => panic!("{wrong:?}"),
        Err(Refused::Failed(error)) => panic!("{error:?}"),
    }
}

fn problems(text: &str, wanted: Option<&str>) -> Vec<String> {
    match from_text(text, "test.yaml", wanted) {
        Err(Refused::Input(problems)) => problems.iter().map(ToString::to_string).collect(),
        Err(Refused::Settings(wrong)) => panic!("{wrong:?}"),
        Err(Refused::Failed(error)) => panic!("{error:?}"),
        Ok(loaded) => panic!("{} was accepted", loaded.name),
    }
}

fn shown(format: Format, from: &str, to: &str) -> String {
    let loaded = load(SCHEDULE);
    let (from, to) = (at(from), at(to));
    let transitions = loaded.validated.timeline.transitions(from, to, 100).unwrap();
    let zone = loaded.validated.timeline.zone().clone();
    show_range(
        &loaded,
        &Range {
            from,
            to,
            zone,
            transitions,
        },
        format,
    )
    .unwrap()
}

#[test]
fn json_has_the_documented_form() {
    let found: Value =
        serde_json::from_str(&shown(Format::Json, "2026-03-27T00:00:00Z", "2026-03-31T12:00:00Z")).unwrap();
    let expected: Value = serde_json::json!({
        "schedule": "dev-weekday",
        "timeZone": "Europe/Berlin",
        "from": "2026-03-27T00:00:00Z",
        "to": "2026-03-31T12:00:00Z",
        "stateAtFrom": {"state": "Down", "decidedBy": "uptime", "reason": null},
        "transitions": [
            {"at": "2026-03-27T07:00:00Z", "local": "2026-03-27T08:00:00+01:00[Europe/Berlin]", "to": "Up", "decidedBy": "uptime", "reason": null},
            {"at": "2026-03-27T19:00:00Z", "local": "2026-03-27T20:00:00+01:00[Europe/Berlin]", "to": "Down", "decidedBy": "uptime", "reason": null},
            {"at": "2026-03-31T06:00:00Z", "local": "2026-03-31T08:00:00+02:00[Europe/Berlin]", "to": "Up", "decidedBy": "uptime", "reason": null},
        ],
    });
    assert_eq!(found, expected);
}

#[test]
fn json_of_one_instant_has_the_documented_form() {
    let loaded = load(SCHEDULE);
    let zone = loaded.validated.timeline.zone().clone();
    let text = show_instant(&loaded, at("2026-03-30T10:00:00Z"), &zone, Format::Json).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "at": "2026-03-30T10:00:00Z",
        "local": "2026-03-30T12:00:00+02:00[Europe/Berlin]",
        "state": "Down",
        "decidedBy": "exception",
        "until": "2026-03-31T06:00:00Z",
    });
    assert_eq!(found, expected);
}

#[test]
fn table_names_the_zone_and_marks_days_on_which_clocks_change() {
    let table = shown(Format::Table, "2026-03-27T00:00:00Z", "2026-03-31T12:00:00Z");
    assert!(
        table.starts_with("Schedule dev-weekday, time zone Europe/Berlin\n"),
        "{table}"
    );
    assert!(
        table.contains("DST: clocks go forward 1h (02:00:00 to 03:00:00)"),
        "{table}"
    );
    let up = table
        .lines()
        .find(|line| line.contains("2026-03-31T06:00:00Z"))
        .unwrap();
    assert!(
        up.starts_with("Tue 2026-03-31 08:00:00 +02:00") && up.contains("Up"),
        "{up}"
    );
}

#[test]
fn calendar_has_an_event_for_each_time_down_that_can_be_read_back() {
    let text = shown(Format::Ics, "2026-03-27T12:00:00Z", "2026-03-31T12:00:00Z");
    assert!(text.lines().all(|line| line.len() <= 76), "{text}");
    let calendar = shared::schedule::Calendar::parse(&text, &Zone::UTC).unwrap();
    assert_eq!(calendar.len(), 1, "{text}");
    assert!(
        text.contains("DTSTART:20260327T190000Z\r\nDTEND:20260331T060000Z\r\n"),
        "{text}"
    );
}

#[test]
fn one_of_several_documents_is_chosen_and_calendars_are_found_beside_it() {
    let more = format!(
        "{SCHEDULE}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: shop}}\n---\n{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: holidays}}\ndata:\n  br.ics: |\n    BEGIN:VCALENDAR\n    BEGIN:VEVENT\n    DTSTART;VALUE=DATE:20260421\n    SUMMARY:Tiradentes\n    END:VEVENT\n    END:VCALENDAR\n",
        SCHEDULE.replace("dev-weekday", "other").replace(
            "  exceptions:",
            "  calendars: [{configMap: {name: holidays, key: br.ics}, state: Down}]\n  exceptions:"
        )
    );
    assert_eq!(
        problems(&more, None),
        ["--schedule: there are 2 schedules (dev-weekday, other); choose one"]
    );
    assert_eq!(
        problems(&more, Some("third")),
        ["--schedule: there is no schedule \"third\" here; there is dev-weekday, other"]
    );
    let Ok(loaded) = from_text(&more, "test.yaml", Some("other")) else {
        panic!("not found")
    };
    let moment = loaded.validated.timeline.state_at(at("2026-04-21T10:00:00Z"));
    assert_eq!(moment.reason.as_deref(), Some("Tiradentes"));
}

#[test]
fn absent_calendar_is_a_warning_and_unknown() {
    let text = SCHEDULE.replace(
        "  exceptions:",
        "  calendars: [{configMap: {name: gone, key: a}, state: Down}]\n  exceptions:",
    );
    let loaded = load(&text);
    assert!(
        loaded
            .validated
            .warnings
            .iter()
            .any(|warning| warning.message.contains("\"gone\""))
    );
    assert_eq!(
        loaded.validated.timeline.state_at(at("2026-04-21T10:00:00Z")).state,
        shared::schedule::State::Unknown
    );
}

#[test]
fn mistakes_are_found_with_their_paths() {
    let changed = |from: &str, to: &str| problems(&SCHEDULE.replace(from, to), None);
    assert_eq!(
        changed("uptime:", "uptimes:"),
        ["spec.uptimes: unknown field \"spec.uptimes\"; did you mean `uptime`?"]
    );
    assert_eq!(
        changed("state: Down", "state: Asleep"),
        ["spec.exceptions[0].state: Unsupported value: \"Asleep\": supported values: \"Up\", \"Down\""]
    );
    assert_eq!(
        changed("      state: Down\n", ""),
        ["spec.exceptions[0].state: Required value"]
    );
    assert!(changed("Europe/Berlin", "Europe/Berlim")[0].contains("closest `Europe/Berlin`"));
    assert!(changed("20:00", "25:00")[0].starts_with("spec.uptime[0]: at character 15"));
    assert!(changed("[\"Mon-Fri 08:00-20:00\"]", "5")[0].contains("must be of type array"));
    assert!(changed("/v1alpha1", "/v7")[0].starts_with("apiVersion: "));
    assert!(changed("offhours.platform.io/v1alpha1", "v1")[0].starts_with("apiVersion: "));
    assert!(changed("dev-weekday", &"a".repeat(64))[0].starts_with("metadata.name: "));
    assert!(problems("kind: Namespace\napiVersion: v1\n", None)[0].contains("no OffHoursSchedule"));
    assert!(problems("a: [", None)[0].contains("not YAML"));
}

#[test]
fn every_wrong_example_is_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/examples/wrong");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let found = problems(&std::fs::read_to_string(&path).unwrap(), None);
            assert_eq!(found.len(), 1, "{}: one mistake each: {found:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 15, "only {seen} wrong examples");
}

#[test]
fn every_column_begins_below_its_header() {
    let text = shown(Format::Table, "2026-03-27T00:00:00Z", "2026-03-31T00:00:00Z");
    let header = text.lines().find(|line| line.starts_with("LOCAL")).unwrap();
    let at = header.find("UTC").unwrap();
    let rows: Vec<&str> = text.lines().skip_while(|line| *line != header).skip(1).collect();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row[at..].starts_with("2026-") && &row[at - 2..at] == "  ", "{row}");
    }
}

#[test]
fn yaml_says_what_json_says() {
    let (from, to) = ("2026-03-27T00:00:00Z", "2026-04-01T00:00:00Z");
    let json: Value = serde_json::from_str(&shown(Format::Json, from, to)).unwrap();
    let yaml: Value = serde_saphyr::from_str(&shown(Format::Yaml, from, to)).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(yaml["schedule"], "dev-weekday");
}
