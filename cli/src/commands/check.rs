//! `offhours check`: looks over an installation, and says what is wrong with it and how to mend it.

use std::fmt::Write as _;

use ::webhook::reach::Reach;
use certs::facts::Certificate;
use clap::Args;
use cluster::call::CallError;
use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::client::Body;
use serde::Serialize;
use serde_json::{Value, json};
use shared::annotations::{self, SCHEDULE};
use shared::clock::Clock;
use shared::kinds::ByDefault;
use shared::workload::Keys;

use super::Outcome;
use super::look::Look;
use super::tool::{self, AllNamespaces, Refused, Tool, ToolArguments};
use crate::sources;

/// The clocks of a cluster and of this machine may differ by so many seconds.
const SKEW: i64 = 5;

/// Arguments of `offhours check`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The account that the product runs under [default: system:serviceaccount:<own namespace>:offhours]
    #[arg(long, value_name = "USER")]
    account: Option<String>,

    #[command(flatten)]
    tool: ToolArguments,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Severity {
    Ok,
    Warning,
    Error,
}

/// The documented form of `-o json`: a list of these.
#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    check: &'static str,
    message: String,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, check: &'static str, message: impl Into<String>) {
        self.0.push(Finding {
            severity,
            check,
            message: message.into(),
        });
    }

    fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(Severity::Ok, check, message);
    }

    fn warning(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(Severity::Warning, check, message);
    }

    fn error(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(Severity::Error, check, message);
    }
}

/// Runs the command.
///
/// # Errors
/// What failed.
pub fn run(arguments: &Arguments, clock: &dyn Clock) -> anyhow::Result<Outcome> {
    tool::block_on(check(arguments, clock), |outcome| outcome)
}

async fn check(arguments: &Arguments, clock: &dyn Clock) -> Result<Outcome, Refused> {
    let tool = Tool::start(&arguments.tool).await?;
    let own_namespace = sources::own_namespace(&tool.settings)?;
    let mut found = Findings::default();
    api_server(&tool, clock, &mut found).await?;
    crd(&tool, &mut found).await;
    webhook(&tool, clock.now(), &mut found).await;
    lease(&tool, &own_namespace, clock.now(), &mut found).await;
    let account = arguments
        .account
        .clone()
        .unwrap_or_else(|| format!("system:serviceaccount:{own_namespace}:offhours"));
    rights(&tool, &account, &own_namespace, &mut found).await;
    let mut look = Look::as_far_as_one_may(&tool, &AllNamespaces::default()).await?;
    look.decide(clock.now());
    for blind in look.blind_spots() {
        found.warning("read", format!("cannot read {blind}"));
    }
    keys(&look, &mut found);
    schedules(&look, clock.now(), &mut found);
    let failed = found.0.iter().any(|finding| finding.severity == Severity::Error);
    tool::answer(tool.output, &found.0, || table(&found.0))?;
    Ok(if failed { Outcome::Failed } else { Outcome::Done })
}

/// The webhook's registration alone.
///
/// # Errors
/// What failed.
pub async fn registration(arguments: &ToolArguments, clock: &dyn Clock) -> Result<Outcome, Refused> {
    let tool = Tool::start(arguments).await?;
    let mut found = Findings::default();
    webhook(&tool, clock.now(), &mut found).await;
    let failed = found.0.iter().any(|finding| finding.severity == Severity::Error);
    tool::answer(tool.output, &found.0, || table(&found.0))?;
    Ok(if failed { Outcome::Failed } else { Outcome::Done })
}

async fn api_server(tool: &Tool, clock: &dyn Clock, found: &mut Findings) -> Result<(), Refused> {
    let unreachable = |why: String| {
        Refused::Failed(anyhow::anyhow!(
            "failed to reach the API server at {}: {why}",
            tool.clients.config().cluster_url
        ))
    };
    let request = Request::get("/version")
        .body(Body::empty())
        .map_err(|error| unreachable(error.to_string()))?;
    let answer = tool
        .clients
        .calls
        .send(request)
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let date = answer
        .headers()
        .get("date")
        .and_then(|date| date.to_str().ok())
        .and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    if let Some(date) = date {
        let skew = clock.now().duration_since(date.timestamp()).as_secs();
        // The header has whole seconds.
        if skew.abs() > SKEW {
            found.error(
                "clock",
                format!("this machine's clock and the API server's differ by {skew} s; synchronise them (NTP)"),
            );
        } else {
            found.ok("clock", "this machine and the API server agree on the time");
        }
    }
    let bytes = answer
        .into_body()
        .collect_bytes()
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let version: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let version = version
        .pointer("/gitVersion")
        .and_then(Value::as_str)
        .unwrap_or("of unknown version");
    found.ok("api server", format!("Kubernetes {version}"));
    Ok(())
}

async fn get(tool: &Tool, url: &str) -> Result<Value, CallError> {
    tool.send(Method::GET, url, "application/json", Vec::new()).await
}

async fn crd(tool: &Tool, found: &mut Findings) {
    const CHECK: &str = "crd";
    let url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/offhoursschedules.offhours.platform.io";
    match get(tool, url).await {
        Ok(definition) => {
            let served = definition
                .pointer("/spec/versions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .any(|version| version["name"] == shared::api::VERSION && version["served"] == true);
            if served {
                found.ok(CHECK, format!("OffHoursSchedule {} is served", shared::api::VERSION));
            } else {
                found.error(
                    CHECK,
                    format!(
                        "the CustomResourceDefinition does not serve {}; renew it with `offhours crd | kubectl apply -f -`",
                        shared::api::VERSION
                    ),
                );
            }
        }
        Err(error) if error.code() == Some(404) => found.error(
            CHECK,
            "the CustomResourceDefinition is not installed; install it with `offhours crd | kubectl apply -f -`",
        ),
        Err(error) => found.warning(CHECK, format!("cannot be looked at: {error}")),
    }
}

async fn webhook(tool: &Tool, now: Timestamp, found: &mut Findings) {
    const CHECK: &str = "webhook";
    let name = &tool.settings.webhook.configuration;
    let mut registered = true;
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let url = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{name}");
        let value = match get(tool, &url).await {
            Ok(value) => value,
            Err(error) if error.code() == Some(404) => {
                registered = false;
                found.warning(
                    CHECK,
                    format!(
                        "there is no {kind} {name:?}: nothing is held; install the chart, or run with --webhook-install"
                    ),
                );
                continue;
            }
            Err(error) => {
                found.warning(CHECK, format!("{kind} {name:?} cannot be looked at: {error}"));
                continue;
            }
        };
        let problems = if kind.starts_with("mutating") {
            serde_json::from_value::<MutatingWebhookConfiguration>(value.clone())
                .map(|configuration| ::webhook::check::check_mutating(&configuration))
        } else {
            serde_json::from_value::<ValidatingWebhookConfiguration>(value.clone())
                .map(|configuration| ::webhook::check::check_validating(&configuration))
        };
        match problems {
            Ok(problems) if problems.is_empty() => {
                found.ok(CHECK, format!("{kind} {name:?} is registered as it should be"));
            }
            Ok(problems) => {
                for problem in problems {
                    let severity = match problem.severity {
                        ::webhook::check::Severity::Error => Severity::Error,
                        ::webhook::check::Severity::Warning => Severity::Warning,
                    };
                    found.add(
                        severity,
                        CHECK,
                        format!("{kind} {name:?}: {}: {}", problem.place, problem.message),
                    );
                }
            }
            Err(error) => found.warning(CHECK, format!("{kind} {name:?} cannot be read: {error}")),
        }
        bundle(&value, kind, now, found);
    }
    if registered {
        match ::webhook::reach::probe(tool.clients.calls.clone()).await {
            Reach::Reached => found.ok(CHECK, "the API server reaches it"),
            Reach::Unreached(why) => found.error(CHECK, format!("ApiServerCannotReachWebhook: {why}")),
            Reach::Unknown(why) => {
                found.warning(CHECK, format!("whether the API server reaches it is not known: {why}"));
            }
        }
    }
    match ::webhook::install::of_dev_mode(&tool.clients.calls).await {
        Ok(names) => {
            for name in names {
                found.warning(
                    CHECK,
                    format!(
                        "{name:?} points to a machine in dev mode; if nobody serves from there any more, every change waits for \
                         it: remove it with `offhours webhook uninstall`"
                    ),
                );
            }
        }
        Err(error) => found.warning(CHECK, format!("{error}")),
    }
}

fn bundle(configuration: &Value, kind: &str, now: Timestamp, found: &mut Findings) {
    const CHECK: &str = "certificate";
    let webhooks = configuration.pointer("/webhooks").and_then(Value::as_array);
    for webhook in webhooks.into_iter().flatten() {
        let name = webhook.pointer("/name").and_then(Value::as_str).unwrap_or("?");
        let pem = webhook
            .pointer("/clientConfig/caBundle")
            .cloned()
            .and_then(|text| serde_json::from_value::<k8s_openapi::ByteString>(text).ok());
        let Some(pem) = pem.filter(|pem| !pem.0.is_empty()) else {
            found.error(
                CHECK,
                format!(
                    "{kind}: {name} has no caBundle: the API server cannot call it; see the log of the webhook's pods"
                ),
            );
            continue;
        };
        match Certificate::all_from_pem(&pem.0) {
            Ok(all) if all.iter().any(|one| one.facts().is_valid_at(now)) => {}
            Ok(_) => found.error(
                CHECK,
                format!("{kind}: {name}: no authority in its caBundle is valid now"),
            ),
            Err(error) => found.error(CHECK, format!("{kind}: {name}: its caBundle cannot be read: {error}")),
        }
    }
}

async fn lease(tool: &Tool, own_namespace: &str, now: Timestamp, found: &mut Findings) {
    const CHECK: &str = "lease";
    let name = &tool.settings.scheduler.lease_name;
    let url = format!("/apis/coordination.k8s.io/v1/namespaces/{own_namespace}/leases/{name}");
    let lease = match get(tool, &url).await {
        Ok(lease) => lease,
        Err(error) if error.code() == Some(404) => {
            found.error(
                CHECK,
                format!("there is no Lease {own_namespace}/{name}: no scheduler has ever run there"),
            );
            return;
        }
        Err(error) => {
            found.warning(
                CHECK,
                format!("Lease {own_namespace}/{name} cannot be looked at: {error}"),
            );
            return;
        }
    };
    let holder = lease
        .pointer("/spec/holderIdentity")
        .and_then(Value::as_str)
        .unwrap_or("");
    let renewed: Option<Timestamp> = lease
        .pointer("/spec/renewTime")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok());
    let seconds = lease
        .pointer("/spec/leaseDurationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(15);
    let age = renewed.map(|renewed| now.duration_since(renewed).as_secs());
    match age {
        _ if holder.is_empty() => found.error(CHECK, "nobody holds the lease: no scheduler is running"),
        Some(age) if age <= seconds + SKEW => found.ok(CHECK, format!("{holder} leads")),
        _ => found.error(
            CHECK,
            format!(
                "{holder} holds the lease and has not renewed it for {} s: no scheduler is running",
                age.unwrap_or(-1)
            ),
        ),
    }
}

/// Whether the product's account may do what it must.
async fn rights(tool: &Tool, account: &str, own_namespace: &str, found: &mut Findings) {
    const CHECK: &str = "rights";
    let mut wanted: Vec<(String, String, Option<&str>, &str)> = Vec::new();
    let mut want = |group: &str, resource: &str, namespace: Option<&'static str>, verbs: &[&'static str]| {
        for verb in verbs {
            wanted.push((group.to_owned(), resource.to_owned(), namespace, verb));
        }
    };
    for kind in tool.settings.kinds.rows() {
        if kind.by_default == ByDefault::Yes && kind.built_in {
            want(&kind.group, &kind.plural, None, &["list", "watch", "patch"]);
        }
    }
    want("", "namespaces", None, &["list", "watch", "patch"]);
    want(
        shared::api::GROUP,
        "offhoursschedules",
        None,
        &["list", "watch", "patch"],
    );
    want(shared::api::GROUP, "offhoursschedules/status", None, &["patch"]);
    want("autoscaling", "horizontalpodautoscalers", None, &["list", "watch"]);
    want("events.k8s.io", "events", None, &["create"]);
    want(
        "coordination.k8s.io",
        "leases",
        Some("own"),
        &["get", "create", "update"],
    );
    let mut missing = Vec::new();
    for (group, resource, namespace, verb) in wanted {
        let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "groups": ["system:authenticated", "system:serviceaccounts"], "resourceAttributes": {
                "group": group, "resource": resource, "subresource": subresource, "verb": verb,
                "namespace": namespace.map_or("", |_| own_namespace),
                // It may be granted for this one alone.
                "name": if resource == "leases" && verb != "create" { tool.settings.scheduler.lease_name.as_str() } else { "" },
            }},
        });
        let url = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        match tool
            .send(Method::POST, url, "application/json", review.to_string().into_bytes())
            .await
        {
            Ok(answer) if answer.pointer("/status/allowed") == Some(&Value::Bool(true)) => {}
            Ok(_) => missing.push(format!(
                "{verb} {resource}{}",
                if subresource.is_empty() { "" } else { "/status" }
            )),
            Err(error) => {
                found.warning(CHECK, format!("cannot be asked for: {error}"));
                return;
            }
        }
    }
    if missing.is_empty() {
        found.ok(CHECK, format!("{account} may do what it must"));
    } else {
        found.error(
            CHECK,
            format!("{account} may not: {}; see the chart's roles", missing.join(", ")),
        );
    }
}

/// Labels and annotations under our prefix that have no effect or cannot be read.
fn keys(look: &Look, found: &mut Findings) {
    let schedules = look.snapshot().schedules();
    let mut look_at = |place: String, labels: Option<&Keys>, annotations: Option<&Keys>| {
        let all = labels.into_iter().chain(annotations).flatten();
        for (key, value) in all {
            if let Some(problem) = annotations::unknown_key(key) {
                found.warning("keys", format!("{place}: {problem}"));
            } else if let Err(problem) = annotations::check(key, value) {
                found.error("keys", format!("{place}: {problem}"));
            }
        }
        let named = labels.and_then(|labels| labels.get(SCHEDULE));
        if let Some(name) = named
            && schedules.get(name).is_none()
            && schedules.unavailability().is_none()
        {
            found.warning(
                "keys",
                format!("{place}: its label names the schedule {name:?}, which does not exist"),
            );
        }
    };
    for namespace in look.view.namespaces().all() {
        look_at(
            format!("namespace {}", namespace.name),
            namespace.labels.as_ref(),
            namespace.annotations.as_ref(),
        );
    }
    for (object, workload) in look.snapshot().workloads() {
        look_at(
            object.to_string(),
            workload.labels.as_ref(),
            workload.annotations.as_ref(),
        );
    }
}

fn schedules(look: &Look, now: Timestamp, found: &mut Findings) {
    const CHECK: &str = "schedules";
    let schedules = look.snapshot().schedules();
    if let Some(why) = schedules.unavailability() {
        found.error(CHECK, why.to_string());
    }
    for schedule in schedules.iter() {
        match schedule.present(now) {
            Ok(present) => found.ok(CHECK, format!("{}: {}", schedule.name, present.moment.state.as_str())),
            Err(why) => found.error(CHECK, format!("{}: {why}", schedule.name)),
        }
    }
    for (object, assessment) in look.assessments() {
        if let Some(trouble) = &assessment.trouble {
            found.warning(
                "workloads",
                format!("{object}: {} ({})", trouble.message, trouble.reason),
            );
        }
    }
}

fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = match finding.severity {
            Severity::Ok => "ok",
            Severity::Warning => "WARN",
            Severity::Error => "ERROR",
        };
        let _ = writeln!(text, "{word:<6} {:<12} {}", finding.check, finding.message);
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let _ = writeln!(
        text,
        "\n{} errors, {} warnings",
        count(Severity::Error),
        count(Severity::Warning)
    );
    text
}
