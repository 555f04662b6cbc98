//! What the commands for people have in common: settings, clients, targets, output.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use cluster::call::CallError;
use cluster::client::{ClientSettings, Clients};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::client::Body;
use serde::Serialize;
use serde_json::Value;
use shared::kinds::{Kind, Kinds};
use shared::settings::{Purpose, Settings};

use crate::flags::{OfTools, Options};
use crate::sources::{self, WrongSettings};

/// What a person says beside the target, as with kubectl.
#[derive(Debug, Args)]
pub struct ToolArguments {
    /// Namespace of the target, and the only one that is shown where there is none [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,

    #[command(flatten)]
    pub options: Options<OfTools>,
}

/// Of commands that show what is in many namespaces.
#[derive(Debug, Default, Args)]
pub struct AllNamespaces {
    /// What is in all namespaces, or an error where one may not see them [default: as far as one may see]
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and files
    Yaml,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Refused {
    /// What was given cannot be used: exit code 2.
    Usage(String),
    /// The settings cannot be used: exit code 2.
    Settings(WrongSettings),
    /// It failed: exit code 1.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<WrongSettings> for Refused {
    fn from(wrong: WrongSettings) -> Self {
        Self::Settings(wrong)
    }
}

/// What commands run on.
///
/// # Errors
/// If the system has no threads left.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start the runtime")
}

/// Runs a command's future; what was refused is told and becomes an exit code.
///
/// # Errors
/// What failed.
pub fn block_on<T>(
    work: impl Future<Output = Result<T, Refused>>,
    then: impl FnOnce(T) -> super::Outcome,
) -> anyhow::Result<super::Outcome> {
    match runtime()?.block_on(work) {
        Ok(value) => Ok(then(value)),
        Err(Refused::Usage(message)) => {
            writeln!(std::io::stderr(), "error: {message}").context("failed to write to standard error")?;
            Ok(super::Outcome::Usage)
        }
        Err(Refused::Settings(wrong)) => {
            wrong.tell();
            Ok(super::Outcome::Usage)
        }
        Err(Refused::Failed(error)) => Err(error),
    }
}

/// Settings and clients of a command.
pub struct Tool {
    /// The settings.
    pub settings: Settings,
    /// The clients.
    pub clients: Clients,
    /// The namespace that is meant where none is written.
    pub namespace: String,
    /// The namespace that was written with `-n`.
    pub only: Option<String>,
    /// How the answer is written.
    pub output: Output,
}

/// The clients that settings ask for.
///
/// # Errors
/// If there is no usable kubeconfig and no pod.
pub async fn connect(settings: &Settings) -> anyhow::Result<Clients> {
    let mut wanted = ClientSettings::new(env!("CARGO_PKG_VERSION"));
    // KUBECONFIG may be a list of files: that is for the client to read.
    wanted.kubeconfig = settings
        .effective()
        .iter()
        .find(|line| line.flag == "kubeconfig" && line.source != shared::settings::Source::Environment)
        .map(|line| PathBuf::from(&line.value));
    wanted.context.clone_from(&settings.cluster.context);
    Ok(Clients::connect(&wanted).await?)
}

/// How long an API server may take to say that it is there.
const REACH: Duration = Duration::from_secs(10);

/// Sees that the API server answers, before many requests wait for it one by one.
///
/// # Errors
/// If it does not, or takes the credentials for none.
pub async fn reach(clients: &Clients) -> anyhow::Result<()> {
    let url = &clients.config().cluster_url;
    let request = Request::get("/version")
        .body(Body::empty())
        .context("failed to make a request")?;
    match cluster::call::call(&clients.calls, request, REACH).await {
        Err(CallError::Refused { code: 401, message, .. }) => Err(anyhow::anyhow!(
            "the API server at {url} does not take these credentials ({message}); log in again, or choose another --context"
        )),
        // Whoever may not see the version may see other things.
        Ok(_) | Err(CallError::Refused { .. }) => Ok(()),
        Err(error) => Err(anyhow::anyhow!(
            "failed to reach the API server at {url}: {error}; is the cluster up, and is this its kubeconfig and --context?"
        )),
    }
}

impl Tool {
    /// Reads settings, makes clients, and sees that the cluster answers.
    ///
    /// # Errors
    /// If settings are wrong or there is no cluster.
    pub async fn start(arguments: &ToolArguments) -> Result<Self, Refused> {
        let settings = sources::settings(Purpose::Tool, &arguments.options)?;
        let clients = connect(&settings).await?;
        reach(&clients).await?;
        let namespace = arguments
            .namespace
            .clone()
            .unwrap_or_else(|| clients.config().default_namespace.clone());
        Ok(Self {
            settings,
            clients,
            namespace,
            only: arguments.namespace.clone(),
            output: arguments.output,
        })
    }

    /// Sends a request; warnings of the API server are shown as kubectl shows them.
    ///
    /// # Errors
    /// What the API server, or the way to it, said.
    pub async fn send(&self, method: Method, url: &str, kind: &str, body: Vec<u8>) -> Result<Value, CallError> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(CONTENT_TYPE, kind)
            .body(Body::from(body))
            .map_err(|error| CallError::Connection(Arc::from(error.to_string())))?;
        let answer = self
            .clients
            .calls
            .send(request)
            .await
            .map_err(|error| cluster::call::connection(&error))?;
        let status = answer.status();
        for warning in answer.headers().get_all("warning") {
            if let Some(text) = warning.to_str().ok().and_then(warning_text) {
                let _ = writeln!(std::io::stderr(), "Warning: {text}");
            }
        }
        let bytes = answer
            .into_body()
            .collect_bytes()
            .await
            .map_err(|error| cluster::call::connection(&error))?;
        if !status.is_success() {
            return Err(cluster::call::refusal(Some(status.as_u16()), None, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| CallError::Unreadable(Arc::from(error.to_string())))
    }
}

/// The text of a `Warning` header: `299 - "text"`.
fn warning_text(header: &str) -> Option<String> {
    let quoted = header.splitn(3, ' ').nth(2)?;
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    Some(inner.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// What a person points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A namespace.
    Namespace(String),
    /// A workload.
    Workload {
        /// Its row.
        kind: Arc<Kind>,
        /// Its name.
        name: String,
        /// Where it is.
        namespace: String,
    },
}

impl Target {
    /// Splits `KIND/NAME`. `Err`: what is wrong and what is allowed, for which no cluster is needed.
    pub fn split(text: &str) -> Result<(&str, &str), Refused> {
        let parts = text.split_once('/');
        let whole = parts.filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'));
        whole.ok_or_else(|| {
            Refused::Usage(format!(
                "{text:?} is no target; write KIND/NAME, such as deployment/checkout or namespace/shop"
            ))
        })
    }

    /// Reads `KIND/NAME`. `Err`: what is wrong and what is allowed.
    pub fn parse(text: &str, kinds: &Kinds, namespace: &str) -> Result<Self, Refused> {
        let (kind, name) = Self::split(text)?;
        if ["namespace", "namespaces", "ns"]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(kind))
        {
            return Ok(Self::Namespace(name.to_owned()));
        }
        let kind = match kind.to_ascii_lowercase().as_str() {
            // The short names of kubectl.
            "deploy" => "deployment",
            "sts" => "statefulset",
            "ds" => "daemonset",
            "rs" => "replicaset",
            "cj" => "cronjob",
            _ => kind,
        };
        let mut found = kinds.named(kind);
        match (found.next(), found.next()) {
            (Some(row), None) => Ok(Self::Workload {
                kind: Arc::clone(row),
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            }),
            (Some(_), Some(_)) => Err(Refused::Usage(format!(
                "{kind:?} means several kinds; write it with its group, such as clusters.postgresql.cnpg.io"
            ))),
            (None, _) => {
                let known: Vec<String> = kinds.rows().iter().map(|row| row.kubectl_name()).collect();
                Err(Refused::Usage(format!(
                    "{kind:?} is no kind that can sleep; known are namespace, {}. Add others under `kinds` of the settings file",
                    known.join(", ")
                )))
            }
        }
    }

    /// As it is told to people.
    pub fn told(&self) -> String {
        match self {
            Self::Namespace(name) => format!("namespace {name:?}"),
            Self::Workload { kind, name, namespace } => {
                format!("{} \"{name}\" in namespace {namespace:?}", kind.kubectl_name())
            }
        }
    }

    /// That it is not there, and where to look.
    pub fn missing(&self) -> String {
        let told = self.told();
        match self {
            Self::Namespace(_) => format!("there is no {told}; see which there are: kubectl get namespaces"),
            Self::Workload { kind, .. } => format!(
                "there is no {told}; name its namespace with -n, or look for it: kubectl get {} -A",
                kind.kubectl_name()
            ),
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match self {
            Self::Namespace(name) => format!("/api/v1/namespaces/{name}"),
            Self::Workload { kind, name, namespace } => format!("{}/{name}", collection(kind, namespace)),
        }
    }
}

/// The URL of a kind's objects in a namespace.
pub fn collection(kind: &Kind, namespace: &str) -> String {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    format!("{root}/namespaces/{namespace}/{}", kind.plural)
}

/// The documents of a YAML or JSON text; of a `List`, its objects.
///
/// # Errors
/// Where it is not YAML.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    Ok(documents.into_iter().flat_map(items).collect())
}

/// The objects of a `List`, or the object itself.
fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut object)
            if object
                .get("kind")
                .and_then(Value::as_str)
                .is_some_and(|kind| kind.ends_with("List")) =>
        {
            match object.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        Value::Null => Vec::new(),
        other => vec![other],
    }
}

/// Writes an answer: a table by `table`, else the value itself.
///
/// # Errors
/// If it cannot be written.
pub fn answer<T: Serialize>(output: Output, value: &T, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    let text = match output {
        Output::Table => table(),
        Output::Json => json(value)?,
        Output::Yaml => yaml(value)?,
    };
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")
}

/// A value for programs.
///
/// # Errors
/// If it has no JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("failed to write JSON")? + "\n")
}

/// A value for programs and files.
///
/// # Errors
/// If it has no YAML.
pub fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(value).context("failed to write YAML")?;
    Ok(format!("{}\n", text.trim_end()))
}

/// Rows with columns as wide as their widest cell, three spaces apart, as kubectl prints them.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut built = String::new();
        for (cell, width) in cells.zip(&widths) {
            built.push_str(cell);
            let missing = width - cell.chars().count();
            built.extend(std::iter::repeat_n(' ', missing + 3));
        }
        text.push_str(built.trim_end());
        text.push('\n');
    };
    line(&mut header.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, Refused> {
        Target::parse(text, &Kinds::default(), "shop")
    }

    #[test]
    fn targets_are_read_as_kubectl_reads_them() {
        assert_eq!(parse("ns/team").unwrap(), Target::Namespace("team".to_owned()));
        for text in ["deploy/a", "deployment/a", "Deployments/a", "deployments.apps/a"] {
            assert_eq!(
                parse(text).unwrap().url(),
                "/apis/apps/v1/namespaces/shop/deployments/a",
                "{text}"
            );
        }
        assert_eq!(
            parse("rollout/a").unwrap().url(),
            "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/a"
        );
    }

    #[test]
    fn a_target_that_is_not_there_says_where_to_look() {
        let missing = |text| parse(text).unwrap().missing();
        assert_eq!(
            missing("deploy/a"),
            "there is no deployment \"a\" in namespace \"shop\"; name its namespace with -n, or look for it: kubectl get deployment -A"
        );
        assert_eq!(
            missing("ns/team"),
            "there is no namespace \"team\"; see which there are: kubectl get namespaces"
        );
    }

    #[test]
    fn a_target_that_cannot_be_read_says_what_is_allowed() {
        for (text, said) in [
            ("checkout", "KIND/NAME"),
            ("deployment/", "KIND/NAME"),
            ("pod/a", "no kind that can sleep"),
        ] {
            let Err(Refused::Usage(message)) = parse(text) else {
                panic!("{text} was taken");
            };
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn warnings_are_taken_out_of_their_header() {
        assert_eq!(
            warning_text(r#"299 - "deployment \"a\" is off hours""#).unwrap(),
            r#"deployment "a" is off hours"#
        );
        assert_eq!(warning_text("299 -"), None);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["a".to_owned(), "long".to_owned()],
            vec!["longer".to_owned(), "b".to_owned()],
        ];
        assert_eq!(table(&["X", "Y"], &rows), "X        Y\na        long\nlonger   b\n");
    }
}
