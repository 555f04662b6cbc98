//! What a server says when it cannot start, and that nothing panics.

use std::net::TcpListener;

use super::{offhours, stderr, stdout};

/// No port is taken, no home is looked into.
const QUIET: (&str, &str) = ("OFFHOURS_OPS_ADDRESS", "off");

/// Exit code and standard error of a start that is refused.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let output = offhours(arguments, environment, "");
    let text = stderr(&output);
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text)
}

#[test]
fn wrong_settings_are_told_all_at_once_with_exit_code_2() {
    for server in ["run", "scheduler", "webhook"] {
        let (code, text) = refused(
            &[server, "--lease-duration", "soon"],
            &[
                ("SCHEDULE_NAME", "dev"),
                ("SCHEDULE_SHUTDOWN", "61 20 * * *"),
                ("SCHEDULE_TIMEZONE", "Europe/Berln"),
                ("DRY_RUN", "yes"),
            ],
        );
        assert_eq!(code, 2, "{text}");
        for said in [
            "error: --lease-duration is \"soon\": allowed is a duration such as",
            "error: SCHEDULE_SHUTDOWN is \"61 20 * * *\"",
            "error: SCHEDULE_TIMEZONE is \"Europe/Berln\"",
            "error: DRY_RUN is \"yes\": allowed is exactly `true` or `false`",
        ] {
            assert!(text.contains(said), "{said}:\n{text}");
        }
    }
}

#[test]
fn k8s_offhours_environment_ends_with_1_whatever_is_wrong_and_a_command_with_2() {
    let environment = [
        ("SCHEDULE_NAME", "dev"),
        ("ARGO_ENABLED", "yes"),
        ("HPA_MIN_ZERO_ENABLED", "TRUE"),
        ("ARGO_API_RETRIES", "many"),
    ];
    let with_action = [&environment[..], &[("ACTION", "stop")]].concat();
    let (code, text) = refused(&[], &with_action);
    assert_eq!(code, 1, "{text}");
    for said in [
        "ACTION is \"stop\"",
        "ARGO_ENABLED is \"yes\": allowed is exactly `true` or `false`",
        "HPA_MIN_ZERO_ENABLED is \"TRUE\"",
        "ARGO_API_RETRIES is \"many\"",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    let (code, text) = refused(&["shutdown"], &environment);
    assert_eq!(code, 2, "{text}");
}

#[test]
fn a_settings_file_that_is_not_there_is_named_with_where_it_was_asked_for() {
    let (code, text) = refused(&["run"], &[("OFFHOURS_SETTINGS", "/no/such/file.yaml")]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("/no/such/file.yaml") && text.contains("OFFHOURS_SETTINGS"),
        "{text}"
    );
    let (code, text) = refused(&["run", "--settings", "/no/such/file.yaml"], &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("--settings"), "{text}");
}

#[test]
fn a_wrong_key_of_the_settings_file_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.yaml");
    std::fs::write(
        &path,
        "schedules:\n- name: dev\n  spec:\n    timeZone: UTC\n    uptime: [\"Moon 08:00-09:00\"]\n",
    )
    .unwrap();
    let path = path.display().to_string();
    let (code, text) = refused(&["run", "--settings", &path], &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains(&path) && text.contains("schedules[0].spec.uptime[0]"),
        "{text}"
    );
}

#[test]
fn a_log_level_that_is_none_is_refused() {
    let (code, text) = refused(&["run"], &[("OFFHOURS_LOG_LEVEL", "loud"), QUIET]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("\"loud\"") && text.contains("debug"), "{text}");
}

#[test]
fn a_missing_kubeconfig_is_named_with_the_remedy() {
    let (code, text) = refused(&["run"], &[("KUBECONFIG", "/no/such/kubeconfig"), QUIET]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("/no/such/kubeconfig") && text.contains("KUBECONFIG") && text.contains("--kubeconfig"),
        "{text}"
    );
    let (code, text) = refused(&["wake", "deployment/a", "--kubeconfig", "/no/such/kubeconfig"], &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("/no/such/kubeconfig (from --kubeconfig)"), "{text}");
    let (code, text) = refused(&["run"], &[QUIET]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("no cluster to talk to"), "{text}");
}

#[test]
fn a_port_in_use_is_named_with_the_setting_that_chooses_another() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, text) = refused(&["run", "--ops-address", &address], &[]);
    assert_eq!(code, 1, "{text}");
    for said in [address.as_str(), "--ops-address", "OFFHOURS_OPS_ADDRESS", "in use"] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
}

#[test]
fn secrets_are_in_no_line() {
    let (_, text) = refused(
        &["run"],
        &[
            ("ARGO_ENABLED", "true"),
            ("ARGO_SERVER", "argo.example"),
            ("ARGO_TOKEN", "hush-hush"),
            ("OFFHOURS_LOG_LEVEL", "trace"),
            QUIET,
        ],
    );
    assert!(text.contains("(secret)") && !text.contains("hush-hush"), "{text}");
}

#[test]
fn a_target_that_cannot_be_read_says_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(
        &path,
        "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], \
         users: [], contexts: [{name: a, context: {cluster: a, user: ''}}]}",
    )
    .unwrap();
    let kubeconfig = path.display().to_string();
    let (code, text) = refused(&["wake", "checkout"], &[("KUBECONFIG", &kubeconfig)]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("KIND/NAME"), "{text}");
    let (code, text) = refused(&["sleep", "deployment/a", "--for", "2"], &[("KUBECONFIG", &kubeconfig)]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("--for"), "{text}");
    // Nobody listens there: an error, and no hang.
    let (code, text) = refused(
        &["protect", "deployment/a", "-n", "shop"],
        &[("KUBECONFIG", &kubeconfig)],
    );
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("failed to reach the API server at https://127.0.0.1:1/") && text.contains("--context"),
        "{text}"
    );
}

#[test]
fn completion_man_pages_and_reference_are_made_from_the_commands() {
    let script = offhours(&["completion", "bash"], &[], "");
    assert!(script.status.success() && stdout(&script).contains("timeline"));
    let plugin = offhours(&["completion", "zsh", "--plugin"], &[], "");
    assert!(stdout(&plugin).contains("kubectl-offhours"));
    let folder = tempfile::tempdir().unwrap();
    let man = offhours(&["man", &folder.path().display().to_string()], &[], "");
    assert!(man.status.success(), "{}", stderr(&man));
    assert!(folder.path().join("offhours-wake.1").is_file());
    let options = stdout(&offhours(&["reference", "options"], &[], ""));
    assert!(options.contains("| `--schedule-name` | `SCHEDULE_NAME` | `scheduleName` |"));
    let commands = stdout(&offhours(&["reference", "cli"], &[], ""));
    assert!(commands.contains("## offhours wake") && !commands.contains("## offhours reference"));
}

#[test]
fn under_its_plugin_name_it_speaks_as_kubectl_offhours() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-offhours");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_offhours"), &plugin).unwrap();
    let output = std::process::Command::new(plugin)
        .args(["wake", "--help"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(
        stdout(&output).contains("Usage: kubectl offhours wake"),
        "{}",
        stdout(&output)
    );
}
