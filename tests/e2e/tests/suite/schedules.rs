//! What the API server makes of schedules: its structural and CEL rules against our parser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use harness::{ControlPlane, SOON, offhours_binary, wait_for};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::api::{GROUP, VERSION, definition, read_document, validate, validate_name};
use shared::schedule::Problem;
use tokio::sync::OnceCell;

/// The definition, installed once in the shared control plane.
pub async fn with_definition(plane: &ControlPlane) -> anyhow::Result<Api<DynamicObject>> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let client: Client = plane.admin().await?;
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(GROUP, VERSION, "OffHoursSchedule"),
        "offhoursschedules",
    );
    let schedules: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    INSTALLED
        .get_or_try_init(|| async {
            let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
            definitions
                .patch(
                    "offhoursschedules.offhours.platform.io",
                    &PatchParams::apply("test").force(),
                    &Patch::Apply(definition()),
                )
                .await
                .context("failed to install the definition: the API server refuses its schema or its rules")?;
            wait_for("the schedules to be served", SOON, || async {
                schedules.list(&kube::api::ListParams::default()).await?;
                Ok(())
            })
            .await
        })
        .await?;
    Ok(schedules)
}

fn examples(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../manifests/examples")
        .join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

/// Path and message of the first error that `offhours timeline` prints for a file.
fn what_timeline_says(path: &str) -> anyhow::Result<(String, String)> {
    let shown = Command::new(offhours_binary()?)
        .args(["timeline", "-o", "json", "-f", path])
        .output()?;
    ensure!(shown.status.code() == Some(2), "{path}: exit {:?}", shown.status.code());
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    let error = &shown["errors"][0];
    let text = |field: &str| {
        error[field]
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("no {field}"))
    };
    Ok((text("path")?, text("message")?))
}

/// With the product's webhook at work, every wrong example is refused with what `offhours timeline` says about it.
pub async fn wrong_examples_are_refused(plane: &ControlPlane) -> anyhow::Result<()> {
    for file in examples("wrong") {
        let path = file.to_str().context("a path that is no text")?;
        let (_, message) = what_timeline_says(path)?;
        let applied = plane
            .kubectl(&["apply", "--dry-run=server", "-f", path])?
            .fails()
            .await?;
        ensure!(
            applied.stderr.contains(&message),
            "{path}: {message:?} is not in {}",
            applied.stderr
        );
    }
    Ok(())
}

/// Wrong examples that only the webhook's rule can refuse: what is wrong is inside a text that the API server cannot read.
const LEFT_TO_THE_WEBHOOK: &[&str] = &[
    "cron-hour-24.yaml",
    "exception-no-such-day.yaml",
    "window-empty.yaml",
    "window-hour-25.yaml",
    "window-weekday.yaml",
    "zone-unknown.yaml",
];

#[tokio::test]
async fn wrong_examples_are_refused_with_the_message_of_the_timeline_command() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    with_definition(plane).await?;
    let files = examples("wrong");
    ensure!(files.len() >= 15, "only {} wrong examples", files.len());
    let mut left = Vec::new();
    for file in files {
        let path = file.to_str().context("a path that is no text")?;
        let (field, message) = what_timeline_says(path)?;

        let applied = plane
            .kubectl(&["apply", "--dry-run=server", "-f", path])?
            .output()
            .await?;
        if applied.stderr.contains(&message) {
            continue;
        }
        let answer = shared::messages::schedule_invalid("x", &[format!("{field}: {message}")]);
        ensure!(
            answer.contains(&message),
            "{path}: the webhook would say {answer:?} instead of {message:?}"
        );
        ensure!(
            applied.stderr.is_empty(),
            "{path}: refused, but not with {message:?}: {}",
            applied.stderr
        );
        left.push(file.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    ensure!(left == LEFT_TO_THE_WEBHOOK, "accepted by the API server: {left:?}");
    Ok(())
}

/// A small generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick(&mut self, values: &[Value]) -> Value {
        values[self.roll(values.len())].clone()
    }
}

/// Values for every field, right and wrong ones.
const POOLS: &str = r#"{
    "timeZone": ["UTC", "Europe/Berlin", "", 5, null],
    "cron": [
        {"shutdown": ["0 20 * * *"], "startup": ["0 8 * * *"]}, {"shutdown": ["0 20 * * *"]}, {"startup": []}, {}, null,
        {"shutdown": "0 20 * * *"}, {"shutdown": [""]}
    ],
    "uptime": [["Mon-Fri 08:00-20:00"], [], [""], "Mon 08:00-09:00", null, ["always", null]],
    "downtime": [["Sat-Sun 00:00-24:00"], ["never"], []],
    "exceptions": [
        [],
        [{"date": "2026-12-25", "state": "Down"}],
        [{"from": "2026-12-24", "to": "2026-12-26", "hours": "08:00-12:00", "state": "Up", "reason": "x"}],
        [{"date": "2026-12-25", "from": "2026-12-24", "state": "Down"}],
        [{"date": "2026-12-25", "to": null, "state": "Down"}],
        [{"from": "2026-12-24", "state": "Down"}],
        [{"state": "Down"}],
        [{"date": "2026-12-25"}],
        [{"date": "2026-12-25", "state": "down"}]
    ],
    "calendars": [
        [], [{"configMap": {"name": "a", "key": "b"}, "state": "Down"}], [{"configMap": {"name": "a"}, "state": "Down"}]
    ],
    "kinds": [[{"kind": "CronJob"}], [{"kind": "Job", "running": true}], [{"kind": ""}], []],
    "selector": [
        {"namespaceSelector": {"matchLabels": {"a": "b"}}},
        {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "namespaceSelector": {}},
        {}, {"namespaceSelector": {}, "labelSelector": {"matchLabels": {}}}, {"labelSelector": {"matchExpressions": []}}
    ],
    "downReplicas": [0, 3, -1, "50%", "100%", "0%", "101%", "5", "5 %", "", 1.5, true],
    "hpa": [{"mode": "MinZero"}, {}, {"mode": "Zero"}, {"mode": null}],
    "argo": [{}, {"pause": false, "sync": true, "strictProtected": false}, {"pause": "yes"}, {"pause": null}],
    "flux": [{}, {"pause": false}, []],
    "enforcement": [
        {}, {"mode": "deny"}, {"maxWake": "4 h"}, {"maxWake": ""}, {"exempt": {"users": [""]}},
        {"mode": "Deny", "exempt": {"users": ["a"]}, "rewriteFor": {"groups": ["b"]}, "guardOverrides": true, "maxWake": "4h"}
    ],
    "startup": [
        {"maxConcurrent": 5, "perMinute": 60, "waitReady": false, "timeout": "1h30m"},
        {"maxConcurrent": 0}, {"timeout": "30m1h"}, {"perMinute": -3}
    ],
    "gracePeriod": ["15m", "1d2h3m4s", "15", "m15", "1h1h", "1.5h", "-1h"],
    "unfinishedRollouts": ["Sleep", "Wait"],
    "catchUp": ["Once", "Twice"],
    "suspend": [true, false, "true", null]
}"#;

fn pools() -> Vec<(String, Vec<Value>)> {
    let mut pools: serde_json::Map<String, Value> = serde_json::from_str(POOLS).unwrap();
    // What is too long is too long to be written here.
    let mut add = |field: &str, value: Value| pools[field].as_array_mut().unwrap().push(value);
    add("timeZone", json!("a".repeat(65)));
    add("downtime", json!(["x".repeat(1_025)]));
    add(
        "exceptions",
        json!([{"date": "2026-12-25", "state": "Down", "reason": "x".repeat(257)}]),
    );
    pools
        .into_iter()
        .map(|(field, values)| (field, values.as_array().unwrap().clone()))
        .collect()
}

/// Problems that the API server cannot see, because they are inside of a text.
fn is_beyond_structure(problem: &Problem) -> bool {
    let texts = [
        "spec.timeZone",
        "spec.cron.",
        "spec.uptime[",
        "spec.downtime[",
        "spec.exceptions[",
    ];
    let structural = [
        "Invalid value",
        "Required value",
        "Unsupported value",
        "Too long",
        "needs either",
        "go together",
    ];
    texts.iter().any(|text| problem.path.starts_with(text))
        && !structural.iter().any(|words| problem.message.contains(words))
}

#[tokio::test]
async fn structure_and_rules_never_differ_from_the_parser() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let schedules = with_definition(plane).await?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pools = pools();
    let mut dice = Dice(2_026);
    // Every value alone, then mixtures.
    let mut specs: Vec<Value> = pools
        .iter()
        .flat_map(|(field, values)| values.iter().map(move |value| json!({field: value})))
        .collect();
    for _ in 0..300 {
        let mut spec = serde_json::Map::new();
        for _ in 0..=dice.roll(4) {
            let (field, values) = &pools[dice.roll(pools.len())];
            spec.insert(field.clone(), dice.pick(values));
        }
        specs.push(Value::Object(spec));
    }
    let (mut accepted, mut refused) = (0, 0);
    for (index, spec) in specs.into_iter().enumerate() {
        let document = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "OffHoursSchedule",
            "metadata": {"name": format!("generated-{index}")},
            "spec": spec,
        });
        let ours = read_document(document.clone())
            .and_then(|schedule| validate(&schedule.spec).map(|_| ()))
            .map_err(|problems| {
                problems
                    .into_iter()
                    .filter(|problem| !is_beyond_structure(problem))
                    .collect::<Vec<_>>()
            });
        let theirs = match schedules.create(&dry, &serde_json::from_value(document.clone())?).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 422 || status.code == 400 => Err(status.message),
            Err(error) => return Err(error).context("the API server did not judge"),
        };
        match (&ours, &theirs) {
            (Ok(()), Ok(())) => accepted += 1,
            (Err(seen), Err(_)) if !seen.is_empty() => refused += 1,
            // Only the text of a field is wrong: that is the webhook's to see.
            (Err(seen), Ok(())) if seen.is_empty() => {}
            _ => anyhow::bail!("{document}: the parser says {ours:?}, the API server {theirs:?}"),
        }
    }
    ensure!(
        accepted > 50 && refused > 100,
        "{accepted} accepted, {refused} refused: too one-sided"
    );
    // A name is not part of the spec.
    let long = "a".repeat(64);
    ensure!(validate_name(&long).is_err());
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "OffHoursSchedule", "metadata": {"name": long}, "spec": {},
    }))?;
    ensure!(
        schedules.create(&dry, &object).await.is_err(),
        "a name of 64 characters was accepted"
    );
    Ok(())
}

#[tokio::test]
async fn schedules_are_listed_by_their_short_name_with_columns() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let schedules = with_definition(plane).await?;
    let name = plane.unique_name("columns");
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "OffHoursSchedule", "metadata": {"name": name},
        "spec": {"timeZone": "Europe/Berlin", "uptime": ["Mon-Fri 08:00-20:00"]},
    }))?;
    schedules.create(&PostParams::default(), &object).await?;
    let status = json!({"status": {
        "state": "Down", "next": [{"at": "2026-12-01T07:00:00Z", "local": "2026-12-01T08:00:00+01:00[Europe/Berlin]", "to": "Up"}],
        "workloads": {"total": 3, "up": 1, "down": 2, "protected": 0, "failing": 0},
        "conditions": [{"type": "Ready", "status": "True", "reason": "AsPlanned", "message": "", "lastTransitionTime": "2026-12-01T00:00:00Z"}],
    }});
    schedules
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let shown = plane.kubectl(&["get", "ohs", &name])?.ok().await?.stdout;
    for part in [
        "STATE",
        "NEXT",
        "DOWN",
        "TOTAL",
        "AGE",
        "Down",
        "2026-12-01T08:00:00+01:00[Europe/Berlin]",
    ] {
        ensure!(shown.contains(part), "{part} is missing: {shown}");
    }
    let explained = plane.kubectl(&["explain", "ohs.spec.uptime"])?.ok().await?.stdout;
    ensure!(explained.contains("Windows in which workloads are up"), "{explained}");
    Ok(())
}
