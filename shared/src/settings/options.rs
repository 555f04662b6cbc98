//! The table of all options: one row makes a flag, an environment variable, a key of the settings file, and a line of the
//! reference.

use std::time::Duration;

use crate::annotations;

/// What the text of an option must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Text,
    /// Text that is never shown.
    Secret,
    /// Exactly `true` or `false`.
    Boolean,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number in these bounds.
    Whole {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Seconds, with a fraction or without.
    Seconds,
    /// A duration such as `15s`.
    Duration,
    /// `ADDRESS:PORT`, or `off`.
    Address,
    /// Words between commas.
    List,
    /// Cron expressions between semicolons.
    CronList,
    /// A name as Kubernetes gives them to objects: at most 63 of `a-z`, `0-9` and `-`.
    Name,
}

impl Form {
    /// What is allowed, in words that go into a message.
    pub fn allowed(self) -> String {
        match self {
            Self::Text | Self::Secret => "a text that is not empty".to_owned(),
            Self::Boolean => "exactly `true` or `false`".to_owned(),
            Self::OneOf(words) => one_of(words),
            Self::Whole { least, most } => format!("a whole number from {least} to {most}"),
            Self::Seconds => "a number of seconds from 0 to 3600, such as `0.2`".to_owned(),
            Self::Duration => "a duration such as `90s`, `15m` or `2h30m`".to_owned(),
            Self::Address => "an address and port such as `0.0.0.0:8080`, or `off`".to_owned(),
            Self::List => "words with commas between them".to_owned(),
            Self::CronList => "cron expressions such as `0 20 * * 1-5`, with `;` between several".to_owned(),
            Self::Name => {
                "at most 63 characters of `a-z`, `0-9` and `-`, with a letter or digit at both ends".to_owned()
            }
        }
    }

    /// Whether `text` has this form.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Self::Text | Self::Secret => !text.trim().is_empty(),
            Self::Boolean => matches!(text, "true" | "false"),
            Self::OneOf(words) => words.contains(&text),
            Self::Whole { least, most } => {
                annotations::whole(text).is_some_and(|number| (least..=most).contains(&number))
            }
            Self::Seconds => seconds(text).is_some(),
            Self::Duration => duration(text).is_some(),
            Self::Address => text == "off" || text.parse::<std::net::SocketAddr>().is_ok(),
            Self::List => list(text).next().is_some(),
            Self::CronList => text.split(';').any(|part| !part.trim().is_empty()),
            Self::Name => is_name(text),
        }
    }
}

fn one_of(words: &[&str]) -> String {
    match words.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => format!("`{last}`"),
        Some((last, others)) => {
            let others: Vec<_> = others.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", others.join(", "))
        }
    }
}

/// Seconds with a fraction, at most an hour.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    // `f64` also reads "inf", "1e3" and "+1".
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    (number <= 3600.0)
        .then(|| Duration::try_from_secs_f64(number).ok())
        .flatten()
}

/// A duration that is longer than nothing.
pub(super) fn duration(text: &str) -> Option<Duration> {
    Duration::try_from(annotations::parse_duration(text)?)
        .ok()
        .filter(|duration| !duration.is_zero())
}

/// The words of a list.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn is_name(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Under which heading an option is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// How to reach the cluster.
    Cluster,
    /// What the process prints.
    Output,
    /// The long-running servers.
    Servers,
    /// The webhook.
    Webhook,
    /// Leader election and writes.
    Scheduler,
    /// One schedule without a custom resource.
    Schedule,
    /// Argo CD.
    Argo,
    /// One pass and exit.
    OneShot,
}

impl Group {
    /// Its heading.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Output => "Output",
            Self::Servers => "Servers",
            Self::Webhook => "Webhook",
            Self::Scheduler => "Scheduler",
            Self::Schedule => "A schedule without a custom resource",
            Self::Argo => "Argo CD",
            Self::OneShot => "One pass",
        }
    }
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The flag without its dashes; also the name by which code asks for the value.
    pub flag: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// What its text must look like.
    pub form: Form,
    /// The value where nobody gives one.
    pub default: Option<&'static str>,
    /// Where it is shown.
    pub group: Group,
    /// One sentence.
    pub help: &'static str,
}

impl Row {
    /// Its key in the settings file: the flag in camel case.
    pub fn file_key(&self) -> String {
        let mut key = String::with_capacity(self.flag.len());
        let mut upper = false;
        for character in self.flag.chars() {
            if character == '-' {
                upper = true;
            } else if upper {
                key.push(character.to_ascii_uppercase());
                upper = false;
            } else {
                key.push(character);
            }
        }
        key
    }

    /// Whether its value is where a file or a directory is.
    pub fn is_path(&self) -> bool {
        self.flag == "kubeconfig" || self.flag.ends_with("-file") || self.flag.ends_with("-directory")
    }

    /// Whether its value must never be shown.
    pub fn is_secret(&self) -> bool {
        self.form == Form::Secret
    }
}

const fn row(
    flag: &'static str,
    variable: &'static str,
    form: Form,
    default: Option<&'static str>,
    group: Group,
    help: &'static str,
) -> Row {
    Row {
        flag,
        variable,
        form,
        default,
        group,
        help,
    }
}

const BOOLEAN: Form = Form::Boolean;

/// All options.
#[rustfmt::skip]
pub const OPTIONS: &[Row] = &[
    row("kubeconfig", "KUBECONFIG", Form::Text, None, Group::Cluster,
        "Path of the kubeconfig. Default: the pod's service account inside a cluster, else ~/.kube/config"),
    row("context", "OFFHOURS_CONTEXT", Form::Text, None, Group::Cluster,
        "Context of the kubeconfig. Default: its current one"),
    row("own-namespace", "POD_NAMESPACE", Form::Name, None, Group::Cluster,
        "Namespace of the product itself: lease, certificates, backups. It is never put to sleep. Default: the pod's, else offhours-system"),

    row("log-format", "OFFHOURS_LOG_FORMAT", Form::OneOf(&["text", "json", "k8s-offhours"]), None, Group::Output,
        "Form of the log lines; k8s-offhours gives `[INFO]` lines. Default: json for servers outside a terminal, else text"),
    row("log-level", "OFFHOURS_LOG_LEVEL", Form::Text, Some("info"), Group::Output,
        "error, warn, info, debug or trace, or a list such as `info,scheduler=debug`"),
    row("verbose", "VERBOSE", BOOLEAN, Some("false"), Group::Output,
        "The same as log level debug"),

    row("ops-address", "OFFHOURS_OPS_ADDRESS", Form::Address, Some("0.0.0.0:8080"), Group::Servers,
        "Where /healthz, /readyz and /metrics are served, without TLS"),
    row("drain-timeout", "OFFHOURS_DRAIN_TIMEOUT", Form::Duration, Some("10s"), Group::Servers,
        "How long work in flight may take to finish after SIGTERM"),
    row("namespaces", "OFFHOURS_NAMESPACES", Form::List, None, Group::Servers,
        "Only these namespaces, for an install without cluster rights (scheduler alone, no custom resources). Default: all"),
    row("own-identities", "OFFHOURS_OWN_IDENTITIES", Form::List, None, Group::Servers,
        "User names of the product's own accounts, which the webhook lets pass. Default: the account that it runs under"),
    row("argo-cluster-names", "OFFHOURS_ARGO_CLUSTER_NAMES", Form::List, Some("in-cluster,https://kubernetes.default.svc"), Group::Servers,
        "Names and URLs under which Argo CD knows this cluster; Applications of other clusters are never touched"),

    row("webhook-address", "OFFHOURS_WEBHOOK_ADDRESS", Form::Address, Some("0.0.0.0:9443"), Group::Webhook,
        "Where the webhook is served, with TLS"),
    row("webhook-service", "OFFHOURS_WEBHOOK_SERVICE", Form::Name, Some("offhours-webhook"), Group::Webhook,
        "Name of the Service in front of the webhook; its certificate is for this name"),
    row("webhook-name", "OFFHOURS_WEBHOOK_NAME", Form::Name, Some("offhours"), Group::Webhook,
        "Name of the two webhook configurations whose caBundle is kept right"),
    row("webhook-install", "OFFHOURS_WEBHOOK_INSTALL", BOOLEAN, Some("false"), Group::Webhook,
        "Create the webhook configurations at start instead of expecting them from a chart"),
    row("webhook-install-service", "OFFHOURS_WEBHOOK_INSTALL_SERVICE", BOOLEAN, Some("false"), Group::Webhook,
        "With --webhook-install: also a Service that points at this machine, for a product that runs beside the cluster"),
    row("on-uncertainty", "OFFHOURS_ON_UNCERTAINTY", Form::OneOf(&["allow", "deny"]), Some("allow"), Group::Webhook,
        "What happens to requests that cannot be judged, because something is not known yet"),
    row("certificate-secret", "OFFHOURS_CERTIFICATE_SECRET", Form::Name, Some("offhours-webhook-ca"), Group::Webhook,
        "Secret of the webhook's own certificate authority"),
    row("certificate-directory", "OFFHOURS_CERTIFICATE_DIRECTORY", Form::Text, None, Group::Webhook,
        "Directory with tls.crt and tls.key made by somebody else (cert-manager), instead of an authority of our own"),
    row("webhook-client-authority", "OFFHOURS_WEBHOOK_CLIENT_AUTHORITY", Form::Text, None, Group::Webhook,
        "PEM file with the authority of the API server's client certificate; who shows none of it is not served. Default: all are"),
    row("dev", "OFFHOURS_DEV", BOOLEAN, Some("false"), Group::Webhook,
        "Serve a cluster from this machine: configurations of its own that point here and go away at the end; the webhook in the cluster stands aside"),
    row("dev-host", "OFFHOURS_DEV_HOST", Form::Text, None, Group::Webhook,
        "With --dev: name or address under which the API server reaches this machine. Default: the address by which this machine reaches it"),

    row("identity", "POD_NAME", Form::Text, None, Group::Scheduler,
        "What this process is called in the lease. Default: made up at start"),
    row("lease-name", "OFFHOURS_LEASE_NAME", Form::Name, Some("offhours-scheduler"), Group::Scheduler,
        "Name of the Lease in the product's namespace"),
    row("lease-duration", "OFFHOURS_LEASE_DURATION", Form::Duration, Some("15s"), Group::Scheduler,
        "How long after its last renewal nobody else takes the lease"),
    row("lease-renew-deadline", "OFFHOURS_LEASE_RENEW_DEADLINE", Form::Duration, Some("10s"), Group::Scheduler,
        "How long after its last renewal the leader still starts writes"),
    row("lease-retry-period", "OFFHOURS_LEASE_RETRY_PERIOD", Form::Duration, Some("2s"), Group::Scheduler,
        "How often a follower looks at the lease"),
    row("lease-call-timeout", "OFFHOURS_LEASE_CALL_TIMEOUT", Form::Duration, Some("3s"), Group::Scheduler,
        "The longest that one call about the lease may take"),
    row("write-timeout", "OFFHOURS_WRITE_TIMEOUT", Form::Duration, Some("5s"), Group::Scheduler,
        "The longest that one write may take"),
    row("write-concurrency", "OFFHOURS_WRITE_CONCURRENCY", Form::Whole { least: 1, most: 1_000 }, Some("64"), Group::Scheduler,
        "Writes under way at a time, at most; fewer while the API server answers that they are too many"),
    row("write-rate", "OFFHOURS_WRITE_RATE", Form::Whole { least: 0, most: 1_000_000 }, Some("0"), Group::Scheduler,
        "Writes started in a second, at most; 0: as many as the cluster takes"),

    row("schedule-name", "SCHEDULE_NAME", Form::Text, None, Group::Schedule,
        "Value of the label offhours.platform.io/schedule that this is about"),
    row("schedule-scope", "SCHEDULE_SCOPE", Form::OneOf(&["namespace", "deployment"]), Some("namespace"), Group::Schedule,
        "namespace: labelled namespaces, with all that is in them; deployment: labelled workloads, in any namespace"),
    row("schedule-shutdown", "SCHEDULE_SHUTDOWN", Form::CronList, None, Group::Schedule,
        "For servers: when to shut down, as cron expressions with `;` between several"),
    row("schedule-startup", "SCHEDULE_STARTUP", Form::CronList, None, Group::Schedule,
        "For servers: when to start up, as cron expressions with `;` between several"),
    row("schedule-timezone", "SCHEDULE_TIMEZONE", Form::Text, None, Group::Schedule,
        "For servers: IANA zone of the two, such as America/Sao_Paulo. Default: UTC, with a warning"),
    row("enforcement-mode", "ENFORCEMENT_MODE", Form::OneOf(&["Off", "Warn", "Rewrite", "Deny"]), Some("Rewrite"), Group::Schedule,
        "For servers: what the webhook does with requests that would wake"),
    row("hpa-min-zero-enabled", "HPA_MIN_ZERO_ENABLED", BOOLEAN, Some("false"), Group::Schedule,
        "HPAs of what sleeps get minReplicas 0, where the cluster allows it"),
    row("hpa-delete-restore-enabled", "HPA_DELETE_RESTORE_ENABLED", BOOLEAN, Some("false"), Group::Schedule,
        "HPAs of what sleeps are saved and deleted, and created again at startup"),
    row("hpa-delete-only-enabled", "HPA_DELETE_ONLY_ENABLED", BOOLEAN, Some("false"), Group::Schedule,
        "HPAs of what sleeps are deleted for good"),
    row("default-startup-replicas", "DEFAULT_STARTUP_REPLICAS", Form::Whole { least: 0, most: 2_147_483_647 }, Some("1"), Group::Schedule,
        "Replicas where the saved number cannot be read"),

    row("argo-enabled", "ARGO_ENABLED", BOOLEAN, None, Group::Argo,
        "Pause the Argo CD Applications of what sleeps. One pass with ACTION needs it; for servers false if absent"),
    row("argo-server", "ARGO_SERVER", Form::Text, None, Group::Argo,
        "host:port of the Argo CD API, or a full URL"),
    row("argo-token", "ARGO_TOKEN", Form::Secret, None, Group::Argo,
        "Bearer token of the Argo CD API. Better in a file: flags are seen by everybody on the machine"),
    row("argo-token-file", "ARGO_TOKEN_FILE", Form::Text, None, Group::Argo,
        "File with the bearer token, read anew when it changes"),
    row("argo-scheme", "ARGO_SCHEME", Form::OneOf(&["https", "http"]), Some("https"), Group::Argo,
        "Scheme of the Argo CD API where ARGO_SERVER names none"),
    row("argo-insecure", "ARGO_INSECURE", BOOLEAN, Some("false"), Group::Argo,
        "Do not check the certificate of the Argo CD API"),
    row("argo-ca-file", "ARGO_CA_FILE", Form::Text, None, Group::Argo,
        "PEM file with the authorities that the certificate of the Argo CD API is checked against, beside the public ones"),
    row("argo-discovery-use-automatic", "ARGO_DISCOVERY_USE_AUTOMATIC", BOOLEAN, Some("true"), Group::Argo,
        "Find Applications by what they list, by tracking id and label, and by destination namespace"),
    row("argo-discovery-use-manual", "ARGO_DISCOVERY_USE_MANUAL", BOOLEAN, Some("false"), Group::Argo,
        "Find Applications by the list in offhours.platform.io/argopp on the namespace"),
    row("argo-api-retries", "ARGO_API_RETRIES", Form::Whole { least: 0, most: 100 }, Some("2"), Group::Argo,
        "Retries after the first try of a call to the Argo CD API"),
    row("argo-api-retry-base-seconds", "ARGO_API_RETRY_BASE_SECONDS", Form::Seconds, Some("0.2"), Group::Argo,
        "Wait before the first retry; it doubles each time"),
    row("argo-api-retry-max-seconds", "ARGO_API_RETRY_MAX_SECONDS", Form::Seconds, Some("1.0"), Group::Argo,
        "The longest wait between retries"),
    row("protected-app-strict-mode", "PROTECTED_APP_STRICT_MODE", BOOLEAN, Some("true"), Group::Argo,
        "An Application with a protected workload is left alone, with all its workloads"),

    row("action", "ACTION", Form::OneOf(&["shutdown", "startup"]), None, Group::OneShot,
        "What the one pass does; the commands `shutdown` and `startup` say it themselves"),
    row("dry-run", "DRY_RUN", BOOLEAN, Some("false"), Group::OneShot,
        "Print the plan and change nothing"),
];

/// The row of a flag.
pub fn option(flag: &str) -> Option<&'static Row> {
    OPTIONS.iter().find(|row| row.flag == flag)
}
