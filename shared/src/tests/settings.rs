use super::*;
use crate::schedule::State;

fn sources<const N: usize>(environment: [(&str, &str); N]) -> Sources {
    Sources {
        environment: environment
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        ..Sources::default()
    }
}

fn with_file(text: &str) -> Sources {
    Sources {
        file: Some(("/etc/offhours.yaml".to_owned(), text.to_owned())),
        ..Sources::default()
    }
}

const ONE_SHOT: Purpose = Purpose::OneShot(None);

/// What K8s-OffHours needs, and `more`.
fn drop_in(more: &[(&str, &str)]) -> Sources {
    let mut sources = sources([
        ("SCHEDULE_NAME", "default"),
        ("ACTION", "shutdown"),
        ("ARGO_ENABLED", "false"),
    ]);
    for (key, value) in more {
        sources.environment.insert((*key).to_owned(), (*value).to_owned());
    }
    sources
}

fn messages(purpose: Purpose, sources: &Sources) -> Vec<String> {
    resolve(purpose, sources)
        .expect_err("must be refused")
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_table_has_one_row_per_flag_and_variable_and_legal_defaults() {
    for (index, row) in OPTIONS.iter().enumerate() {
        for other in &OPTIONS[index + 1..] {
            assert_ne!(row.flag, other.flag);
            assert_ne!(row.variable, other.variable);
        }
        if let Some(default) = row.default {
            assert!(row.form.accepts(default), "{}", row.flag);
        }
    }
}

#[test]
fn all_variables_of_k8s_offhours_are_known() {
    for variable in [
        "SCHEDULE_NAME",
        "SCHEDULE_SCOPE",
        "ACTION",
        "ARGO_ENABLED",
        "ARGO_SERVER",
        "ARGO_TOKEN",
        "ARGO_SCHEME",
        "ARGO_INSECURE",
        "ARGO_DISCOVERY_USE_AUTOMATIC",
        "ARGO_DISCOVERY_USE_MANUAL",
        "ARGO_API_RETRIES",
        "ARGO_API_RETRY_BASE_SECONDS",
        "ARGO_API_RETRY_MAX_SECONDS",
        "DEFAULT_STARTUP_REPLICAS",
        "HPA_MIN_ZERO_ENABLED",
        "HPA_DELETE_RESTORE_ENABLED",
        "HPA_DELETE_ONLY_ENABLED",
        "PROTECTED_APP_STRICT_MODE",
        "VERBOSE",
        "DRY_RUN",
    ] {
        assert!(OPTIONS.iter().any(|row| row.variable == variable), "{variable}");
    }
}

#[test]
fn one_pass_has_the_defaults_of_k8s_offhours() {
    let settings = resolve(ONE_SHOT, &drop_in(&[])).unwrap();
    let one_shot = settings.one_shot.unwrap();
    assert_eq!(one_shot.action, OneShotAction::Shutdown);
    assert!(one_shot.from_environment);
    assert_eq!(one_shot.schedule.name, "default");
    assert_eq!(one_shot.schedule.scope, Scope::Namespace);
    assert_eq!(one_shot.schedule.spec.argo, None);
    assert_eq!(one_shot.schedule.spec.hpa.unwrap().mode, HpaMode::Keep);
    assert_eq!(one_shot.schedule.spec.kinds.unwrap()[0].kind, "Deployment");
    assert_eq!(settings.default_startup_replicas, 1);
    assert!(settings.argo.discovery.automatic);
    assert!(!settings.argo.discovery.manual);
    assert!(settings.argo.strict);
    assert!(!settings.dry_run);
    assert_eq!(settings.log_level, "info");
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn one_pass_is_down_or_up_at_every_instant() {
    for (action, state) in [("shutdown", State::Down), ("startup", State::Up)] {
        let settings = resolve(ONE_SHOT, &drop_in(&[("ACTION", action)])).unwrap();
        let schedule = settings.one_shot.unwrap().schedule.compile(&CalendarTexts::new());
        for at in ["2026-03-29T01:30:00Z", "2026-12-31T23:59:59Z", "2030-06-02T00:00:00Z"] {
            let present = schedule.present(at.parse().unwrap()).unwrap();
            assert_eq!(present.moment.state, state, "{action} {at}");
            assert_eq!(present.until, None);
        }
    }
}

#[test]
fn argo_of_one_pass_pauses_syncs_and_knows_its_api() {
    let settings = resolve(
        ONE_SHOT,
        &drop_in(&[
            ("ARGO_ENABLED", "true"),
            ("ARGO_SERVER", "argocd-server.argocd:443"),
            ("ARGO_TOKEN", "very-secret"),
            ("ARGO_API_RETRIES", "5"),
            ("ARGO_API_RETRY_BASE_SECONDS", "0.5"),
            ("ARGO_API_RETRY_MAX_SECONDS", "3"),
            ("PROTECTED_APP_STRICT_MODE", "false"),
            ("ARGO_INSECURE", "true"),
            ("ARGO_CA_FILE", "/etc/argo/ca.crt"),
        ]),
    )
    .unwrap();
    let api = settings.argo.api.as_ref().unwrap();
    assert_eq!(api.url, "https://argocd-server.argocd:443");
    assert_eq!(api.retries, 5);
    assert_eq!(api.retry_base, Duration::from_millis(500));
    assert_eq!(api.retry_max, Duration::from_secs(3));
    assert!(api.insecure);
    assert_eq!(api.authority_file.as_deref(), Some("/etc/argo/ca.crt"));
    let argo = settings.one_shot.as_ref().unwrap().schedule.spec.argo.clone().unwrap();
    assert!(argo.pause && argo.sync && !argo.strict_protected);
    assert_eq!(ArgoToken::Given(Secret::new("very-secret")), api.token);
    // Neither debug output nor the effective configuration shows it.
    assert!(!format!("{settings:?}").contains("very-secret"));
    assert!(
        settings
            .effective()
            .iter()
            .all(|line| !line.value.contains("very-secret"))
    );
    assert!(
        settings
            .effective()
            .iter()
            .any(|line| line.flag == "argo-token" && line.value == "(secret)" && line.source == Source::Environment)
    );
}

#[test]
fn a_server_url_may_carry_its_own_scheme() {
    for (server, scheme, url) in [
        ("argo.example", "http", "http://argo.example"),
        ("https://argo.example/argo/", "http", "https://argo.example/argo"),
    ] {
        let settings = resolve(
            ONE_SHOT,
            &drop_in(&[
                ("ARGO_ENABLED", "true"),
                ("ARGO_SERVER", server),
                ("ARGO_SCHEME", scheme),
                ("ARGO_TOKEN_FILE", "/run/token"),
            ]),
        )
        .unwrap();
        assert_eq!(settings.argo.api.unwrap().url, url);
    }
}

#[test]
fn hpa_modes_have_the_precedence_of_k8s_offhours() {
    let mode = |more: &[(&str, &str)]| {
        let settings = resolve(ONE_SHOT, &drop_in(more)).unwrap();
        (
            settings.one_shot.unwrap().schedule.spec.hpa.unwrap().mode,
            settings.warnings.len(),
        )
    };
    let (zero, restore, only) = (
        ("HPA_MIN_ZERO_ENABLED", "true"),
        ("HPA_DELETE_RESTORE_ENABLED", "true"),
        ("HPA_DELETE_ONLY_ENABLED", "true"),
    );
    assert_eq!(mode(&[zero]), (HpaMode::MinZero, 0));
    assert_eq!(mode(&[zero, only]), (HpaMode::DeleteOnly, 1));
    assert_eq!(mode(&[zero, restore]), (HpaMode::DeleteRestore, 0));
    assert_eq!(mode(&[zero, restore, only]), (HpaMode::DeleteRestore, 1));
}

#[test]
fn a_wrong_value_names_variable_value_and_what_is_allowed() {
    for (variable, value, allowed) in [
        ("DRY_RUN", "yes", "exactly `true` or `false`"),
        ("DRY_RUN", "True", "exactly `true` or `false`"),
        ("VERBOSE", "", "exactly `true` or `false`"),
        ("ARGO_ENABLED", "1", "exactly `true` or `false`"),
        ("SCHEDULE_SCOPE", "cluster", "`namespace` or `deployment`"),
        ("ACTION", "stop", "`shutdown` or `startup`"),
        ("ARGO_SCHEME", "ftp", "`https` or `http`"),
        ("ARGO_API_RETRIES", "-1", "a whole number from 0 to 100"),
        ("ARGO_API_RETRIES", "two", "a whole number from 0 to 100"),
        ("ARGO_API_RETRY_BASE_SECONDS", "inf", "a number of seconds"),
        ("ARGO_API_RETRY_MAX_SECONDS", "1e3", "a number of seconds"),
        ("DEFAULT_STARTUP_REPLICAS", "1.5", "a whole number from 0 to 2147483647"),
        (
            "DEFAULT_STARTUP_REPLICAS",
            "2147483648",
            "a whole number from 0 to 2147483647",
        ),
        ("SCHEDULE_NAME", "my schedule", "a label value"),
        ("OFFHOURS_LEASE_DURATION", "15", "a duration such as"),
        ("OFFHOURS_OPS_ADDRESS", "8080", "an address and port"),
        ("POD_NAMESPACE", "Off_Hours", "at most 63 characters"),
    ] {
        let messages = messages(ONE_SHOT, &drop_in(&[(variable, value)]));
        assert_eq!(messages.len(), 1, "{messages:?}");
        let message = &messages[0];
        assert!(
            message.starts_with(&format!("{variable} is {value:?}: allowed is ")) && message.contains(allowed),
            "{message}"
        );
    }
}

/// K8s-OffHours' variables, each with what it takes of a list of oddities; all others are refused by name, and none panics.
#[test]
fn odd_values_of_k8s_offhours_variables_are_refused_by_name_or_taken_as_they_are() {
    const ODDITIES: [&str; 15] = [
        "true",
        "TRUE",
        "0",
        "1",
        "-1",
        "1.5",
        "NaN",
        "inf",
        "1e300",
        "99999999999999999999",
        "shutdown",
        "a b",
        "é",
        "http://",
        "\u{1f319}",
    ];
    let words = [
        "true",
        "TRUE",
        "0",
        "1",
        "-1",
        "1.5",
        "NaN",
        "inf",
        "1e300",
        "99999999999999999999",
        "shutdown",
    ];
    let texts = [&words[..], &["a b", "é", "http://", "\u{1f319}"]].concat();
    let names = [
        "true",
        "TRUE",
        "0",
        "1",
        "1.5",
        "NaN",
        "inf",
        "1e300",
        "99999999999999999999",
        "shutdown",
    ];
    let wanted: [(&str, &[&str]); 20] = [
        ("SCHEDULE_NAME", &names),
        ("SCHEDULE_SCOPE", &[]),
        ("ACTION", &["shutdown"]),
        ("ARGO_ENABLED", &["true"]),
        ("ARGO_SERVER", &[&words[..], &["é", "\u{1f319}"]].concat()),
        ("ARGO_TOKEN", &texts),
        ("ARGO_SCHEME", &[]),
        ("ARGO_INSECURE", &["true"]),
        ("ARGO_DISCOVERY_USE_AUTOMATIC", &["true"]),
        ("ARGO_DISCOVERY_USE_MANUAL", &["true"]),
        ("ARGO_API_RETRIES", &["0", "1"]),
        ("ARGO_API_RETRY_BASE_SECONDS", &["0", "1", "1.5"]),
        ("ARGO_API_RETRY_MAX_SECONDS", &["0", "1", "1.5"]),
        ("DEFAULT_STARTUP_REPLICAS", &["0", "1"]),
        ("HPA_MIN_ZERO_ENABLED", &["true"]),
        ("HPA_DELETE_RESTORE_ENABLED", &["true"]),
        ("HPA_DELETE_ONLY_ENABLED", &["true"]),
        ("PROTECTED_APP_STRICT_MODE", &["true"]),
        ("VERBOSE", &["true"]),
        ("DRY_RUN", &["true"]),
    ];
    let base = [
        ("ARGO_ENABLED", "true"),
        ("ARGO_SERVER", "argo.example"),
        ("ARGO_TOKEN", "t"),
    ];
    for (variable, wanted) in wanted {
        let mut taken = Vec::new();
        for value in ODDITIES {
            match resolve(ONE_SHOT, &drop_in(&[&base[..], &[(variable, value)]].concat())) {
                Ok(_) => taken.push(value),
                Err(wrong) => {
                    let told: Vec<_> = wrong.iter().map(ToString::to_string).collect();
                    assert!(
                        told.iter().any(|line| line.contains(variable)),
                        "{variable}={value:?}: {told:?}"
                    );
                }
            }
        }
        assert_eq!(taken, wanted, "{variable}");
        // Empty is absent, or refused by name.
        for empty in ["", " "] {
            let result = resolve(ONE_SHOT, &drop_in(&[&base[..], &[(variable, empty)]].concat()));
            let told: Vec<_> = result.err().iter().flatten().map(ToString::to_string).collect();
            assert!(
                told.iter().all(|line| line.contains(variable)),
                "{variable}={empty:?}: {told:?}"
            );
        }
    }
}

#[test]
fn every_mistake_is_told_at_once() {
    let messages = messages(
        ONE_SHOT,
        &sources([("DRY_RUN", "maybe"), ("ARGO_ENABLED", "true"), ("SCHEDULE_SCOPE", "x")]),
    );
    for named in [
        "DRY_RUN",
        "SCHEDULE_SCOPE",
        "ACTION",
        "SCHEDULE_NAME",
        "ARGO_SERVER",
        "ARGO_TOKEN",
    ] {
        assert!(
            messages.iter().any(|message| message.starts_with(named)),
            "{named}: {messages:?}"
        );
    }
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let mut all = with_file("dryRun: true\nscheduleScope: deployment\nlogLevel: warn\n");
    all.environment = drop_in(&[("SCHEDULE_SCOPE", "namespace"), ("DEFAULT_STARTUP_REPLICAS", "3")]).environment;
    all.flags.insert("default-startup-replicas".to_owned(), "7".to_owned());
    let settings = resolve(ONE_SHOT, &all).unwrap();
    assert!(settings.dry_run);
    assert_eq!(settings.one_shot.unwrap().schedule.scope, Scope::Namespace);
    assert_eq!(settings.default_startup_replicas, 7);
    assert_eq!(settings.log_level, "warn");

    all.flags.insert("dry-run".to_owned(), "perhaps".to_owned());
    assert_eq!(
        messages(ONE_SHOT, &all),
        ["--dry-run is \"perhaps\": allowed is exactly `true` or `false`"]
    );
}

#[test]
fn a_command_that_contradicts_the_environment_is_refused() {
    let startup = Purpose::OneShot(Some(OneShotAction::Startup));
    let refused = messages(startup, &drop_in(&[]));
    assert!(refused[0].contains("ACTION is \"shutdown\""), "{refused:?}");
    // The commands do not ask for ARGO_ENABLED: only K8s-OffHours' own way does.
    let settings = resolve(startup, &sources([("SCHEDULE_NAME", "dev")])).unwrap();
    assert!(!settings.one_shot.unwrap().from_environment);
}

#[test]
fn a_command_pauses_applications_by_their_custom_resources_unless_the_api_is_named() {
    let shutdown = Purpose::OneShot(Some(OneShotAction::Shutdown));
    let argo = [("SCHEDULE_NAME", "dev"), ("ARGO_ENABLED", "true")];
    let settings = resolve(shutdown, &sources(argo)).unwrap();
    assert_eq!(settings.argo.api, None);
    assert!(settings.one_shot.unwrap().schedule.spec.argo.is_some());
    for (given, missing) in [("ARGO_SERVER", "ARGO_TOKEN"), ("ARGO_TOKEN", "ARGO_SERVER")] {
        let mut half = sources(argo);
        half.environment.insert(given.to_owned(), "argo.example".to_owned());
        let messages = messages(shutdown, &half);
        assert!(messages.len() == 1 && messages[0].starts_with(missing), "{messages:?}");
    }
}

#[test]
fn a_server_makes_a_schedule_of_the_environment() {
    let settings = resolve(
        Purpose::Server,
        &sources([
            ("SCHEDULE_NAME", "dev"),
            ("SCHEDULE_SHUTDOWN", "0 20 * * 1-5"),
            ("SCHEDULE_STARTUP", "0 8 * * 1-5; 0 10 * * 6"),
            ("SCHEDULE_TIMEZONE", "America/Sao_Paulo"),
            ("ENFORCEMENT_MODE", "Deny"),
            ("SCHEDULE_SCOPE", "deployment"),
        ]),
    )
    .unwrap();
    let [schedule] = settings.compile_schedules(&CalendarTexts::new()).try_into().unwrap();
    assert_eq!(&*schedule.name, "dev");
    assert_eq!(schedule.origin, Origin::Settings);
    assert_eq!(schedule.scope, Scope::Workload);
    assert_eq!(schedule.enforcement.mode, EnforcementMode::Deny);
    assert_eq!(schedule.zone_name(), "America/Sao_Paulo");
    // Tuesday 2026-12-01 07:59 and 08:00 local time
    for (at, state) in [
        ("2026-12-01T10:59:59Z", State::Down),
        ("2026-12-01T11:00:00Z", State::Up),
    ] {
        assert_eq!(schedule.present(at.parse().unwrap()).unwrap().moment.state, state);
    }
}

#[test]
fn a_broken_expression_or_zone_in_the_environment_is_named() {
    for (variable, value) in [
        ("SCHEDULE_SHUTDOWN", "61 20 * * *"),
        ("SCHEDULE_STARTUP", "often"),
        ("SCHEDULE_TIMEZONE", "Europe/Berln"),
    ] {
        let mut sources = sources([
            ("SCHEDULE_NAME", "dev"),
            ("SCHEDULE_SHUTDOWN", "0 20 * * *"),
            ("SCHEDULE_STARTUP", "0 8 * * *"),
        ]);
        sources.environment.insert(variable.to_owned(), value.to_owned());
        let messages = messages(Purpose::Server, &sources);
        assert!(
            messages.len() == 1 && messages[0].starts_with(&format!("{variable} is {value:?}")),
            "{messages:?}"
        );
    }
}

#[test]
fn a_name_without_times_and_times_without_a_name_are_refused() {
    let refused = messages(Purpose::Server, &sources([("SCHEDULE_NAME", "dev")]));
    assert!(refused[0].starts_with("SCHEDULE_SHUTDOWN"), "{refused:?}");
    let refused = messages(Purpose::Server, &sources([("SCHEDULE_STARTUP", "0 8 * * *")]));
    assert!(refused[0].starts_with("SCHEDULE_NAME"), "{refused:?}");
}

#[test]
fn a_server_without_any_schedule_is_fine() {
    let settings = resolve(Purpose::Server, &Sources::default()).unwrap();
    assert!(settings.schedules.is_empty());
    assert_eq!(settings.webhook.address.unwrap().port(), 9443);
    assert_eq!(settings.ops_address.unwrap().port(), 8080);
    assert_eq!(settings.scheduler.write_rate, None);
}

#[test]
fn an_empty_variable_counts_as_not_set_where_any_text_is_allowed() {
    let settings = resolve(
        Purpose::Server,
        &sources([
            ("SCHEDULE_NAME", ""),
            ("SCHEDULE_SHUTDOWN", " "),
            ("OFFHOURS_OPS_ADDRESS", ""),
        ]),
    )
    .unwrap();
    assert!(settings.schedules.is_empty());
    assert!(settings.ops_address.is_some());
}

#[test]
fn a_file_brings_schedules_and_kinds() {
    let settings = resolve(
        Purpose::Server,
        &with_file(
            "# of the dev team\n\
             opsAddress: 127.0.0.1:0\n\
             argoClusterNames: [in-cluster, dev]\n\
             schedules:\n\
             - name: dev\n  scope: Namespace\n  spec:\n    timeZone: Europe/Berlin\n    uptime: [\"Mon-Fri 08:00-20:00\"]\n    downReplicas: 25%\n\
             kinds:\n\
             - group: example.com\n  version: v1\n  kind: Engine\n  plural: engines\n  byDefault: true\n  readyReplicas: readyWorkers\n  scale: true\n  \
               knobs:\n  - path: /spec/minWorkers\n  - path: /spec/paused\n    down: true\n",
        ),
    )
    .unwrap();
    let schedule = &settings.compile_schedules(&CalendarTexts::new())[0];
    assert_eq!(schedule.scope, Scope::Namespace);
    assert_eq!(schedule.down_replicas, crate::annotations::DownReplicas::Percent(25));
    assert_eq!(settings.argo.cluster_names, ["in-cluster", "dev"]);
    let kind = settings.kinds.by_kind("example.com", "Engine").unwrap();
    assert_eq!(
        kind.knobs.iter().map(|knob| &*knob.name).collect::<Vec<_>>(),
        ["min-workers", "paused"]
    );
    assert_eq!(kind.knobs[1].form, crate::kinds::Form::Flag(true));
    assert_eq!(kind.readiness, crate::kinds::Readiness::Replicas("readyWorkers"));
    assert!(settings.kinds.by_kind("apps", "Deployment").is_some());
}

#[test]
fn a_file_is_checked_to_its_last_key() {
    for (text, said) in [
        ("schedules: 3", "schedules: expected a list"),
        ("- a", "top level: expected keys"),
        ("dryrun: true", "dryrun: unknown key; did you mean `dryRun`?"),
        ("dryRun: {a: b}", "dryRun: expected a single value"),
        (
            "schedules: [{name: a_b, spec: {}}]",
            "schedules[0].name: the name of a schedule",
        ),
        (
            "schedules: [{name: a, spec: {timeZone: UTC, uptim: [\"Mon 08:00-09:00\"]}}]",
            "schedules[0].spec.uptim: unknown key",
        ),
        (
            "schedules: [{name: a, spec: {timeZone: Nowhere/City, uptime: [\"Mon 08:00-09:00\"]}}]",
            "schedules[0].spec.timeZone",
        ),
        (
            "schedules: [{name: a, spec: {timeZone: UTC, uptime: [\"Moon 08:00-09:00\"]}}]",
            "schedules[0].spec.uptime[0]",
        ),
        (
            "schedules: [{name: a, spec: {timeZone: UTC}}, {name: a, spec: {timeZone: UTC}}]",
            "two schedules are named \"a\"",
        ),
        (
            "kinds: [{version: v1, kind: A, plural: as, knobs: [{path: spec.replicas}]}]",
            "kinds[0].knobs[0].path: \"spec.replicas\" is no JSON pointer",
        ),
        (
            "kinds: [{version: v1, kind: A, plural: as, knobs: []}]",
            "kinds[0].knobs: a kind needs",
        ),
        (
            "kinds: [{version: v1, kind: A, plural: as, knobs: [{path: /spec/a}, {path: /spec/b/a}]}]",
            "kinds[0].knobs[1].name: two knobs",
        ),
        ("a: [", "YAML"),
    ] {
        let messages = messages(Purpose::Server, &with_file(text));
        assert!(
            messages
                .iter()
                .any(|message| message.contains("/etc/offhours.yaml") && message.contains(said)),
            "{text}: {messages:?}"
        );
    }
}

#[test]
fn an_empty_file_says_nothing() {
    for text in ["", "\n", "# nothing yet\n"] {
        assert!(resolve(Purpose::Server, &with_file(text)).is_ok(), "{text:?}");
    }
}
