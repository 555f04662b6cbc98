//! What the example installations come to: the timeline of every schedule is what the other product documents, instant by instant.

use shared::api::validate;
use shared::schedule::State;

use super::*;

fn example(name: &str) -> (Objects, Migration) {
    let path = format!(
        "{}/../manifests/examples/migrate/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    of(&std::fs::read_to_string(path).unwrap(), None)
}

fn of(text: &str, from: Option<Product>) -> (Objects, Migration) {
    let objects = Objects(tool::documents(text).unwrap());
    let mut migration = Migration::default();
    let now = "2026-12-01T00:00:00Z".parse().unwrap();
    translate(&objects, &Kinds::default(), from, now, &mut migration);
    (objects, migration)
}

/// States at local instants (with their offsets), as the product documents them.
fn says(migration: &Migration, schedule: &str, table: &[(&str, State)]) {
    let planned = migration
        .schedules
        .iter()
        .find(|planned| planned.name == schedule)
        .unwrap_or_else(|| panic!("no {schedule} in {:?}", migration.schedules));
    let timeline = validate(&planned.spec).unwrap().timeline;
    for (at, state) in table {
        let at: Timestamp = at.parse().unwrap();
        assert_eq!(
            timeline.state_at(at).state,
            *state,
            "{schedule} at {at}: {:?}",
            planned.spec
        );
    }
}

fn names(migration: &Migration) -> Vec<&str> {
    migration
        .schedules
        .iter()
        .map(|planned| planned.name.as_str())
        .collect()
}

/// `kind namespace/name key=value`, sorted.
fn keys(migration: &Migration) -> Vec<String> {
    let mut lines = Vec::new();
    for (place, keys) in &migration.keys {
        let place = match place {
            result::Place::Namespace(name) => format!("Namespace {name}"),
            result::Place::Workload(_, kind, namespace, name) => format!("{kind} {namespace}/{name}"),
        };
        for (key, value) in keys.labels.iter().chain(&keys.annotations) {
            lines.push(format!(
                "{place} {}={value}",
                key.trim_start_matches("offhours.platform.io/")
            ));
        }
    }
    lines
}

fn told(lines: &[String], fragments: &[&str]) {
    for fragment in fragments {
        assert!(
            lines.iter().any(|line| line.contains(fragment)),
            "{fragment}: {lines:#?}"
        );
    }
    assert_eq!(lines.len(), fragments.len(), "{lines:#?}");
}

use State::{Down, Up};

#[test]
fn py_kube_downscaler_becomes_what_it_documents() {
    let (_, migration) = example("py-kube-downscaler");
    assert_eq!(
        names(&migration),
        [
            "downscaler",
            "downscaler-data",
            "downscaler-shop-reports",
            "downscaler-shop-nightly"
        ]
    );
    // Uptime Mon-Fri 07:30-20:30: outside it is scaled down.
    says(
        &migration,
        "downscaler",
        &[
            ("2026-12-01T07:29:59+01:00", Down),
            ("2026-12-01T07:30:00+01:00", Up),
            ("2026-12-01T20:29:59+01:00", Up),
            ("2026-12-01T20:30:00+01:00", Down),
            ("2026-12-05T12:00:00+01:00", Down),
            ("2026-07-01T07:30:00+02:00", Up),
        ],
    );
    // Downtime: outside it is up.
    says(
        &migration,
        "downscaler-data",
        &[
            ("2026-12-04T19:59:59+01:00", Up),
            ("2026-12-04T20:00:00+01:00", Down),
            ("2026-12-05T00:00:00+01:00", Down),
            ("2026-12-06T23:59:59+01:00", Down),
            ("2026-12-07T00:00:00+01:00", Up),
            ("2026-12-03T03:00:00+01:00", Up),
        ],
    );
    // Periods: scaled down from 19:00 until the next upscale period, at 07:00 on weekdays.
    says(
        &migration,
        "downscaler-shop-reports",
        &[
            ("2026-12-01T18:59:59+01:00", Up),
            ("2026-12-01T19:00:00+01:00", Down),
            ("2026-12-02T06:59:59+01:00", Down),
            ("2026-12-02T07:00:00+01:00", Up),
            ("2026-12-05T12:00:00+01:00", Down),
            ("2026-12-07T07:00:00+01:00", Up),
        ],
    );
    // The end is before the start: it never matches there.
    says(
        &migration,
        "downscaler-shop-nightly",
        &[("2026-12-01T21:00:00+01:00", Up), ("2026-12-02T03:00:00+01:00", Up)],
    );
    assert_eq!(
        keys(&migration),
        [
            "Namespace data schedule=downscaler-data",
            "Namespace data down-replicas=1",
            "Namespace demo protected=true",
            "Deployment shop/nightly schedule=downscaler-shop-nightly",
            "Deployment shop/reports schedule=downscaler-shop-reports",
            "Deployment shop/vault protected=true",
            "StatefulSet shop/cache awake-until=2026-12-24T00:00:00Z",
            "StatefulSet shop/cache reason=was downscaler/exclude-until",
        ]
    );
    told(
        &migration.differences,
        &[
            "horizontalpodautoscalers",
            "infra-.*",
            "`Mon-Fri 20:00-06:00` never matches",
        ],
    );
    let default = &migration.schedules[0].spec;
    let expressions = default.selector.as_ref().unwrap().namespace_selector.as_ref().unwrap();
    assert_eq!(
        expressions.match_expressions.as_ref().unwrap()[0]
            .values
            .as_ref()
            .unwrap(),
        &["kube-system", "downscaler", "infra-dns"]
    );
    assert_eq!(default.grace_period.as_deref(), Some("900s"));
    let kinds: Vec<_> = default
        .kinds
        .iter()
        .flatten()
        .map(|filter| filter.kind.as_str())
        .collect();
    assert_eq!(kinds, ["Deployment", "StatefulSet", "CronJob"]);
    assert_eq!(migration.running, ["Deployment downscaler/py-kube-downscaler"]);
}

#[test]
fn gokubedownscaler_becomes_what_it_documents() {
    let (_, migration) = example("gokubedownscaler");
    assert_eq!(
        names(&migration),
        ["downscaler", "downscaler-billing", "downscaler-billing-invoices"]
    );
    // Reversed times: on each of the days from midnight to 08:00, and from 20:00 to midnight. So Monday begins asleep, and
    // Saturday 03:00 is the weekend's.
    says(
        &migration,
        "downscaler",
        &[
            ("2026-11-30T03:00:00+09:00", Down),
            ("2026-11-30T08:00:00+09:00", Up),
            ("2026-11-30T20:00:00+09:00", Down),
            ("2026-12-01T00:00:00+09:00", Down),
            ("2026-12-04T23:59:59+09:00", Down),
            ("2026-12-05T03:00:00+09:00", Down),
            ("2026-12-06T12:00:00+09:00", Down),
        ],
    );
    says(
        &migration,
        "downscaler-billing",
        &[
            ("2026-07-20T08:29:59Z", Up),
            ("2026-07-20T08:30:00Z", Down),
            ("2026-07-31T13:59:59Z", Down),
            ("2026-07-31T14:00:00Z", Up),
        ],
    );
    says(
        &migration,
        "downscaler-billing-invoices",
        &[("2026-12-01T07:59:59+09:00", Down), ("2026-12-01T08:00:00+09:00", Up)],
    );
    let default = &migration.schedules[0].spec;
    let selector = default.selector.as_ref().unwrap();
    assert_eq!(
        selector.label_selector.as_ref().unwrap().match_labels.as_ref().unwrap()["team"],
        "checkout"
    );
    let billing = &migration.schedules[1].spec;
    assert_eq!(billing.grace_period.as_deref(), Some("1h30m"));
    assert_eq!(
        keys(&migration),
        [
            "Namespace billing schedule=downscaler-billing",
            "Deployment billing/invoices schedule=downscaler-billing-invoices",
            "Deployment billing/invoices down-replicas=0",
            "Deployment shop/gateway protected=true",
        ]
    );
    told(&migration.differences, &["downscaler/exclude=sat-sun 10:00-12:00 utc"]);
}

#[test]
fn kube_green_becomes_what_it_documents() {
    let (_, migration) = example("kube-green");
    assert_eq!(names(&migration), ["nights", "working-hours"]);
    // Asleep from 20:00 on weekdays (Friday from 16:30), awake from 08:00 on weekdays, all in Rome: so it sleeps through the weekend.
    says(
        &migration,
        "working-hours",
        &[
            ("2026-12-01T07:59:59+01:00", Down),
            ("2026-12-01T08:00:00+01:00", Up),
            ("2026-12-01T20:00:00+01:00", Down),
            ("2026-12-04T16:29:59+01:00", Up),
            ("2026-12-04T16:30:00+01:00", Down),
            ("2026-12-06T12:00:00+01:00", Down),
            ("2026-12-07T08:00:00+01:00", Up),
        ],
    );
    // No zone: UTC. Every day.
    says(
        &migration,
        "nights",
        &[
            ("2026-12-05T06:59:59Z", Down),
            ("2026-12-05T07:00:00Z", Up),
            ("2026-12-05T19:04:59Z", Up),
            ("2026-12-05T19:05:00Z", Down),
        ],
    );
    assert_eq!(
        keys(&migration),
        [
            "Namespace billing schedule=nights",
            "Namespace shop schedule=working-hours",
            "Deployment billing/invoices asleep=3",
            "Deployment billing/invoices down-since=2026-11-30T19:05:00Z",
            "Deployment billing/invoices original-replicas=3",
            "Deployment shop/gateway protected=true",
            "Deployment shop/helpdesk protected=true",
        ]
    );
    let kinds = |index: usize| -> Vec<&str> {
        let kinds = migration.schedules[index].spec.kinds.iter().flatten();
        kinds.map(|filter| filter.kind.as_str()).collect()
    };
    assert_eq!(kinds(0), ["Deployment"]);
    assert_eq!(kinds(1), ["Deployment", "StatefulSet", "CronJob", "Rollout"]);
    told(&migration.differences, &["Cannon.example.com", "labels of excludeRef"]);
}

#[test]
fn k8s_offhours_becomes_what_it_documents() {
    let (_, migration) = example("k8s-offhours");
    assert_eq!(names(&migration), ["default"]);
    says(
        &migration,
        "default",
        &[
            ("2026-12-01T07:59:59-03:00", Down),
            ("2026-12-01T08:00:00-03:00", Up),
            ("2026-12-01T19:59:59-03:00", Up),
            ("2026-12-01T20:00:00-03:00", Down),
            ("2026-12-06T12:00:00-03:00", Down),
        ],
    );
    let spec = serde_json::to_value(&migration.schedules[0].spec).unwrap();
    // Of two delete modes the one that restores wins.
    assert_eq!(spec["hpa"]["mode"], "DeleteRestore");
    assert_eq!(
        spec["argo"],
        serde_json::json!({"pause": true, "sync": true, "strictProtected": false, "terminate": false})
    );
    assert_eq!(spec["kinds"], serde_json::json!([{"kind": "Deployment"}]));
    assert_eq!(keys(&migration), [""; 0]);
    told(
        &migration.differences,
        &["DEFAULT_STARTUP_REPLICAS=2", "Deployment ledger carries the label"],
    );
}

#[test]
fn what_kube_green_does_not_put_to_sleep_now_gets_no_record() {
    let text = "apiVersion: kube-green.com/v1alpha1\nkind: SleepInfo\nmetadata: {name: nights, namespace: a}\n\
                spec: {weekdays: '*', sleepAt: '19:00', wakeUpAt: '07:00'}\n---\n\
                apiVersion: v1\nkind: Secret\nmetadata: {name: sleepinfo-nights, namespace: a}\n\
                data: {operation-type: V0FLRV9VUA==, deployment-replicas: W3sibmFtZSI6ImIiLCJyZXBsaWNhcyI6M31d}\n";
    let (_, migration) = of(text, None);
    assert_eq!(keys(&migration), ["Namespace a schedule=nights"]);
    // SLEEP, and the format of older versions.
    let asleep = text.replace("V0FLRV9VUA==", "U0xFRVA=");
    let (_, migration) = of(&asleep, None);
    assert_eq!(
        keys(&migration),
        [
            "Namespace a schedule=nights",
            "Deployment a/b asleep=3",
            "Deployment a/b original-replicas=3",
        ]
    );
}

#[test]
fn annotations_alone_are_read_as_the_product_that_is_named() {
    let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    \
                downscaler/uptime: Mon-Fri 20:00-06:00 UTC\n";
    let night = [
        ("2026-12-02T21:00:00Z", Up),
        ("2026-12-02T03:00:00Z", Up),
        ("2026-12-02T12:00:00Z", Down),
    ];
    let (_, migration) = of(text, Some(Product::GoKubeDownscaler));
    says(&migration, "downscaler-a", &night);
    assert!(migration.differences.is_empty(), "{:?}", migration.differences);
    let (_, migration) = of(text, Some(Product::PyKubeDownscaler));
    says(&migration, "downscaler-a", &night.map(|(at, _)| (at, Down)));
    assert_eq!(migration.differences.len(), 1);
    let (_, migration) = of(text, Some(Product::KubeGreen));
    assert!(migration.found.is_empty());
}

#[test]
fn what_cannot_be_read_is_told_and_makes_no_schedule() {
    for (text, said) in [
        ("downscaler/uptime: Mon-Fri 8-20", "no time of theirs"),
        ("downscaler/uptime: Mon-Fri 08:00-20:00 Europe/Berln", "Europe/Berln"),
        ("downscaler/downscale-period: always", "no beginning"),
    ] {
        let (_, migration) = of(
            &format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    {text}\n"),
            None,
        );
        assert_eq!(migration.schedules, [], "{text}");
        assert_eq!(keys(&migration), [""; 0], "{text}");
        told(&migration.differences, &[said]);
    }
}

#[test]
fn zones_that_differ_stay_at_their_times() {
    let (_, migration) = of(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    downscaler/upscale-period: Fri-Mon 07:00-08:00 Asia/Tokyo\n    \
         downscaler/downscale-period: Mon-Sun 19:00-20:00 Europe/Berlin\n",
        None,
    );
    says(
        &migration,
        "downscaler-a",
        &[
            ("2026-12-05T06:59:59+09:00", Down),
            ("2026-12-05T07:00:00+09:00", Up),
            ("2026-12-05T18:59:59+01:00", Up),
            ("2026-12-05T19:00:00+01:00", Down),
            ("2026-12-08T12:00:00+01:00", Down),
        ],
    );
}

#[test]
fn the_answer_for_people_is_yaml_of_the_schedules_with_commands_in_comments() {
    let (_, migration) = example("kube-green");
    let text = result::text(&migration, &Kinds::default(), None).unwrap();
    let documents = tool::documents(&text).unwrap();
    assert_eq!(documents.len(), 2, "{text}");
    for document in documents {
        shared::api::read_document(document).unwrap();
    }
    for line in [
        "#   kubectl label --overwrite namespace shop offhours.platform.io/schedule=working-hours",
        "#   kubectl annotate --overwrite deployment gateway -n shop offhours.platform.io/protected=true",
        "# Nothing was changed; --apply does it.",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
