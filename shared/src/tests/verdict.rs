use serde_json::{Value, json};

use super::*;
use crate::api::{CalendarTexts, OffHoursScheduleSpec};
use crate::policy::Origin;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Tuesday evening in UTC.
const NIGHT: &str = "2026-12-01T21:00:00Z";
const DAY: &str = "2026-12-01T12:00:00Z";

fn schedule(name: &str, spec: Value) -> Arc<Schedule> {
    let spec: OffHoursScheduleSpec = serde_json::from_value(spec).unwrap();
    Arc::new(Schedule::from_spec(
        name,
        Origin::Resource,
        &spec,
        &CalendarTexts::new(),
    ))
}

fn weekdays(name: &str) -> Arc<Schedule> {
    schedule(name, json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-20:00"]}))
}

struct World {
    kinds: Kinds,
    schedules: Schedules,
    namespace: Namespace,
}

impl World {
    fn new(schedules: impl IntoIterator<Item = Arc<Schedule>>) -> Self {
        Self {
            kinds: Kinds::default(),
            schedules: Schedules::new(schedules),
            namespace: namespace(&json!({})),
        }
    }

    fn ask(&self, workload: &Workload, now: &str) -> Verdict {
        let around = Surroundings {
            kinds: &self.kinds,
            schedules: &self.schedules,
            namespace: Some(&self.namespace),
            own_namespace: "offhours-system",
            scaled_by: None,
        };
        verdict(workload, &around, at(now))
    }
}

fn namespace(metadata: &Value) -> Namespace {
    let mut object = json!({"metadata": {"name": "shop"}});
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    Namespace::read(&object).unwrap()
}

fn object(kind: &str, group: &str, metadata: &Value) -> Workload {
    let mut object = json!({"metadata": {"name": "checkout", "namespace": "shop", "creationTimestamp": "2026-11-01T00:00:00Z"},
                            "spec": {"replicas": 3}});
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    Workload::read(Kinds::default().by_kind(group, kind).unwrap(), &object).unwrap()
}

fn deployment(metadata: &Value) -> Workload {
    object("Deployment", "apps", metadata)
}

fn labelled(name: &str) -> Value {
    json!({"labels": {SCHEDULE: name}})
}

#[test]
fn a_schedule_decides_and_says_which_rule_and_until_when() {
    let world = World::new([weekdays("dev")]);
    let night = world.ask(&deployment(&labelled("dev")), NIGHT);
    assert_eq!(
        (night.state, &night.decided_by),
        (State::Down, &Rule::Schedule(DecidedBy::Uptime))
    );
    assert_eq!(night.since, Some(at("2026-12-01T20:00:00Z")));
    assert_eq!(night.until, Some(at("2026-12-02T08:00:00Z")));
    assert_eq!(world.ask(&deployment(&labelled("dev")), DAY).state, State::Up);
}

#[test]
fn rule_v1_the_workloads_own_claim_wins_over_its_namespaces_over_selectors() {
    let always_down = |name, selector: Value| {
        schedule(
            name,
            json!({"timeZone": "UTC", "downtime": ["always"], "selector": selector}),
        )
    };
    let mut world = World::new([
        schedule("up", json!({"timeZone": "UTC", "uptime": ["always"]})),
        schedule("down", json!({"timeZone": "UTC", "downtime": ["always"]})),
        always_down("by-label", json!({"labelSelector": {"matchLabels": {"tier": "web"}}})),
        schedule(
            "by-namespace",
            json!({"timeZone": "UTC", "uptime": ["always"], "selector":
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}}),
        ),
    ]);
    world.namespace = namespace(&json!({"labels": {SCHEDULE: "down", "team": "a"}}));
    let names = |verdict: &Verdict| verdict.schedule.as_ref().map(|schedule| schedule.name.to_string());
    let own = world.ask(&deployment(&labelled("up")), DAY);
    assert_eq!((own.state, names(&own)), (State::Up, Some("up".into())));
    let inherited = world.ask(&deployment(&json!({})), DAY);
    assert_eq!((inherited.state, names(&inherited)), (State::Down, Some("down".into())));
    world.namespace = namespace(&json!({"labels": {"team": "a"}}));
    let selected = world.ask(&deployment(&json!({"labels": {"tier": "web"}})), DAY);
    assert_eq!(
        (selected.state, names(&selected)),
        (State::Down, Some("by-label".into()))
    );
    let widely = world.ask(&deployment(&json!({})), DAY);
    assert_eq!((widely.state, names(&widely)), (State::Up, Some("by-namespace".into())));
}

#[test]
fn rule_v1_tied_schedules_are_down_only_together_and_that_is_told() {
    let select = json!({"labelSelector": {"matchLabels": {"tier": "web"}}});
    let world = World::new([
        schedule(
            "a",
            json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-20:00"], "selector": select}),
        ),
        schedule(
            "b",
            json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-22:00"], "selector": select}),
        ),
    ]);
    let workload = deployment(&json!({"labels": {"tier": "web"}}));
    let verdict = world.ask(&workload, NIGHT);
    assert_eq!(verdict.state, State::Up);
    assert!(matches!(verdict.notes.as_slice(), [Note::Ambiguous(names)] if names.len() == 2));
    let late = world.ask(&workload, "2026-12-01T23:00:00Z");
    assert_eq!(
        (late.state, late.since),
        (State::Down, Some(at("2026-12-01T22:00:00Z")))
    );
}

#[test]
fn rule_v2_precedence_first_match_wins() {
    let suspended = schedule(
        "off",
        json!({"timeZone": "UTC", "downtime": ["always"], "suspend": true}),
    );
    let graceful = schedule(
        "new",
        json!({"timeZone": "UTC", "downtime": ["always"], "gracePeriod": "15m"}),
    );
    let mut world = World::new([suspended, graceful]);
    let ask = |world: &World, name: &str, annotations: Value, created: &str| {
        let mut metadata =
            json!({"labels": {SCHEDULE: name}, "annotations": annotations, "creationTimestamp": created});
        if created.is_empty() {
            metadata.as_object_mut().unwrap().remove("creationTimestamp");
        }
        world.ask(&deployment(&metadata), NIGHT)
    };
    let old = "2026-11-01T00:00:00Z";
    let fresh = "2026-12-01T20:50:00Z";
    let wake = json!({AWAKE_UNTIL: "2026-12-01T23:00:00Z"});
    let sleep = json!({ASLEEP_UNTIL: "2026-12-01T23:00:00Z"});
    let protect = json!({PROTECTED: "true", ASLEEP_UNTIL: "2026-12-01T23:00:00Z"});
    assert_eq!(
        ask(&world, "off", protect, old).decided_by,
        Rule::Protected(On::Workload)
    );
    assert_eq!(ask(&world, "off", sleep.clone(), old).decided_by, Rule::Suspended);
    let awake = ask(&world, "new", wake, fresh);
    assert_eq!(
        (awake.decided_by, awake.until),
        (Rule::Awake(On::Workload), Some(at("2026-12-01T23:00:00Z")))
    );
    let asleep = ask(&world, "new", sleep, fresh);
    assert_eq!(
        (asleep.state, asleep.decided_by),
        (State::Down, Rule::Asleep(On::Workload))
    );
    let grace = ask(&world, "new", json!({}), fresh);
    assert_eq!(
        (grace.state, grace.decided_by, grace.until),
        (State::Up, Rule::Grace, Some(at("2026-12-01T21:05:00Z")))
    );
    assert_eq!(ask(&world, "new", json!({}), old).state, State::Down);
    world.namespace.terminating = true;
    let terminating = ask(&world, "off", json!({PROTECTED: "true"}), old);
    assert_eq!(
        (terminating.state, terminating.decided_by),
        (State::Unknown, Rule::Terminating)
    );
}

#[test]
fn rule_v3_what_cannot_be_known_is_unknown_and_a_name_that_nobody_bears_is_out_of_scope() {
    let broken = schedule("broken", json!({"timeZone": "UTC", "uptime": ["Mon-Fri 08:00-25:00"]}));
    let world = World::new([weekdays("dev"), broken]);
    let invalid = world.ask(&deployment(&labelled("broken")), NIGHT);
    assert_eq!(invalid.state, State::Unknown);
    assert!(
        invalid.decided_by.to_string().contains("25:00"),
        "{}",
        invalid.decided_by
    );
    // the good one still acts
    assert_eq!(world.ask(&deployment(&labelled("dev")), NIGHT).state, State::Down);
    let nobody = world.ask(&deployment(&labelled("nobody")), NIGHT);
    assert_eq!(nobody.state, State::Up);
    assert!(
        nobody.decided_by.to_string().contains("schedule nobody"),
        "{}",
        nobody.decided_by
    );
    assert_eq!(
        world.ask(&deployment(&json!({})), NIGHT).decided_by,
        Rule::OutOfScope(None)
    );

    let blind = World {
        schedules: Schedules::new([]).unavailable("the CRD is not installed"),
        ..World::new([])
    };
    for metadata in [labelled("dev"), json!({})] {
        assert_eq!(
            blind.ask(&deployment(&metadata), NIGHT).state,
            State::Unknown,
            "{metadata}"
        );
    }
}

#[test]
fn rule_v4_some_things_are_never_touched() {
    let world = World::new([schedule("dev", json!({"timeZone": "UTC", "downtime": ["always"]}))]);
    let never = |metadata: Value| {
        let mut with = labelled("dev");
        with.as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        let verdict = world.ask(&object("ReplicaSet", "apps", &with), NIGHT);
        assert!(
            matches!(verdict.decided_by, Rule::NeverTouched(_)),
            "{metadata}: {}",
            verdict.decided_by
        );
        assert!(!verdict.may_write());
    };
    for name in ["kube-system", "kube-public", "kube-node-lease", "offhours-system"] {
        never(json!({"namespace": name}));
    }
    never(
        json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "controller": true}]}),
    );
    never(json!({"annotations": {"helm.sh/hook": "pre-install"}}));
    never(json!({"annotations": {"argocd.argoproj.io/hook": "PreSync"}}));
}

#[test]
fn rule_v5_kinds_that_nobody_named_stay_up() {
    let world = World::new([
        schedule("dev", json!({"timeZone": "UTC", "downtime": ["always"]})),
        schedule(
            "jobs",
            json!({"timeZone": "UTC", "downtime": ["always"], "kinds": [{"kind": "cronjob"}, {"kind": "Job", "running": true}]}),
        ),
    ]);
    assert_eq!(
        world.ask(&object("StatefulSet", "apps", &labelled("dev")), DAY).state,
        State::Down
    );
    let job = world.ask(&object("CronJob", "batch", &labelled("dev")), DAY);
    assert_eq!(job.state, State::Up);
    assert!(
        job.decided_by.to_string().contains("does not include the kind CronJob"),
        "{}",
        job.decided_by
    );
    assert_eq!(
        world.ask(&object("CronJob", "batch", &labelled("jobs")), DAY).state,
        State::Down
    );
    assert!(
        world
            .ask(&object("Job", "batch", &labelled("jobs")), DAY)
            .included
            .running
    );
    assert_eq!(world.ask(&deployment(&labelled("jobs")), DAY).state, State::Up);
}

#[test]
fn case_7_04_a_schedule_in_place_works_alone() {
    let mut world = World::new([]);
    let annotations = json!({"annotations": {UPTIME: "Mon-Fri 08:00-20:00", TIME_ZONE: "Europe/Berlin"}});
    let own = deployment(&annotations);
    assert_eq!(world.ask(&own, "2026-12-01T19:30:00Z").state, State::Down);
    assert_eq!(world.ask(&own, "2026-12-01T18:30:00Z").state, State::Up);
    assert_eq!(world.ask(&deployment(&json!({})), NIGHT).state, State::Up);
    let wrong = deployment(&json!({"annotations": {UPTIME: "Mon-Fri 08:00-25:00"}}));
    assert_eq!(world.ask(&wrong, NIGHT).state, State::Unknown);
    world.namespace = namespace(&annotations);
    assert_eq!(
        world.ask(&deployment(&json!({})), "2026-12-01T19:30:00Z").state,
        State::Down
    );
}

#[test]
fn case_2_09_a_value_that_is_no_boolean_is_ignored_and_told() {
    let world = World::new([weekdays("dev")]);
    for (text, protected, noted) in [
        ("true", true, false),
        ("false", false, false),
        ("yes", false, true),
        ("", false, true),
    ] {
        let workload = deployment(&json!({"labels": {SCHEDULE: "dev"}, "annotations": {PROTECTED: text}}));
        let verdict = world.ask(&workload, NIGHT);
        assert_eq!(verdict.decided_by == Rule::Protected(On::Workload), protected, "{text}");
        assert_eq!(
            verdict
                .notes
                .iter()
                .any(|note| matches!(note, Note::Ignored(On::Workload, problem) if problem.key == PROTECTED)),
            noted,
            "{text}"
        );
    }
}

#[test]
fn case_2_19_a_wake_of_a_namespace_expires_by_itself() {
    let mut world = World::new([schedule(
        "dev",
        json!({"timeZone": "UTC", "downtime": ["Sat-Sun 00:00-24:00"]}),
    )]);
    world.namespace =
        namespace(&json!({"labels": {SCHEDULE: "dev"}, "annotations": {AWAKE_UNTIL: "2026-01-10T12:00:00Z"}}));
    let workload = deployment(&json!({"creationTimestamp": "2026-01-01T00:00:00Z"}));
    assert_eq!(world.ask(&workload, "2026-01-10T11:59:59Z").state, State::Up);
    assert_eq!(world.ask(&workload, "2026-01-10T12:00:00Z").state, State::Down);
    world.namespace = namespace(&json!({"labels": {SCHEDULE: "dev"}, "annotations": {AWAKE_UNTIL: "noon"}}));
    let verdict = world.ask(&workload, "2026-01-10T11:59:59Z");
    assert_eq!(verdict.state, State::Down);
    assert!(matches!(verdict.notes.as_slice(), [Note::Ignored(On::Namespace, _)]));
}

#[test]
fn rule_e6_a_duration_asks_for_its_instant_and_a_long_wake_is_cut() {
    let world = World::new([schedule(
        "dev",
        json!({"timeZone": "UTC", "downtime": ["always"], "enforcement": {"maxWake": "1h"}}),
    )]);
    let workload = deployment(&json!({"labels": {SCHEDULE: "dev"}, "annotations": {AWAKE_UNTIL: "2h"}}));
    let verdict = world.ask(&workload, NIGHT);
    assert_eq!(verdict.state, State::Up);
    let expected = Note::Duration {
        on: On::Workload,
        key: AWAKE_UNTIL,
        instant: at("2026-12-01T22:00:00Z"),
        cut: true,
    };
    assert_eq!(verdict.notes, [expected]);
}

#[test]
fn rule_a2_the_target_of_a_scaled_object_is_left_to_it() {
    let world = World::new([weekdays("dev")]);
    let workload = deployment(&labelled("dev"));
    let target = ScaleTarget::read(&json!({"name": "checkout"})).unwrap();
    let scaled_by = scaled_by(&workload, [("scaler", &target)]);
    assert_eq!(scaled_by, Some("scaler"));
    let around = Surroundings {
        kinds: &world.kinds,
        schedules: &world.schedules,
        namespace: Some(&world.namespace),
        own_namespace: "offhours-system",
        scaled_by,
    };
    let verdict = verdict(&workload, &around, at(NIGHT));
    assert!(
        verdict.decided_by.to_string().contains("ScaledObject scaler"),
        "{}",
        verdict.decided_by
    );
}

#[test]
fn a_namespace_sent_to_sleep_by_hand_takes_along_what_sleeps_anyway() {
    let mut world = World::new([]);
    world.namespace = namespace(&json!({"annotations": {ASLEEP_UNTIL: "2026-12-02T08:00:00Z"}}));
    assert_eq!(world.ask(&deployment(&json!({})), DAY).state, State::Down);
    assert_eq!(world.ask(&object("CronJob", "batch", &json!({})), DAY).state, State::Up);
    let own = object(
        "CronJob",
        "batch",
        &json!({"annotations": {ASLEEP_UNTIL: "2026-12-02T08:00:00Z"}}),
    );
    assert_eq!(world.ask(&own, DAY).state, State::Down);
}
