//! Clients for the API server, from a kubeconfig or from inside a Pod. Client made here.

use std::{path::PathBuf, time::Duration};

use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;

/// How to reach the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Path of a kubeconfig. Without it: `KUBECONFIG`, then `~/.kube/config`, then the service account of the Pod.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one by default.
    pub context: Option<String>,
    /// Longest time for a call that is no watch. At most 30 s.
    pub call_timeout: Duration,
    /// Longest time without any byte on a watch.
    pub watch_silence: Duration,
    /// What we call ourselves, such as `offhours/0.1.0`.
    pub user_agent: String,
}

impl ClientSettings {
    /// The longest call timeout: a dead connection must not cost more.
    pub const LONGEST_CALL: Duration = Duration::from_secs(30);

    /// Defaults for a version of the product.
    pub fn new(version: &str) -> Self {
        Self {
            kubeconfig: None,
            context: None,
            call_timeout: Self::LONGEST_CALL,
            watch_silence: Duration::from_secs(180),
            user_agent: format!("offhours/{version}"),
        }
    }
}

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a Pod.
    #[error(
        "no cluster to talk to: there is no kubeconfig at {tried}, and this is no Pod with a service account; pass --kubeconfig or set KUBECONFIG"
    )]
    NoConfig {
        /// The paths that were tried and where they come from.
        tried: String,
    },
    /// A kubeconfig that cannot be used.
    #[error("failed to use the kubeconfig {place}: {reason}; pass another one with --kubeconfig or set KUBECONFIG")]
    Kubeconfig {
        /// Path, and where it comes from.
        place: String,
        /// What is wrong with it.
        reason: String,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// The service account of the Pod cannot be used.
    #[error(
        "failed to use the service account of this Pod; check that its token is mounted (automountServiceAccountToken)"
    )]
    InCluster(#[source] kube::config::InClusterError),
    /// A value that no header can carry.
    #[error("unable to use {0:?} as User-Agent")]
    UserAgent(String),
    /// TLS or another part of the client failed.
    #[error("failed to make a client for {url}: {source}; check the certificates and the proxy in the kubeconfig")]
    Client {
        /// The API server's URL.
        url: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The clients of one process.
#[derive(Clone)]
pub struct Clients {
    /// For calls that are answered at once: no retries of its own, a short timeout.
    pub calls: Client,
    /// For lists and watches.
    pub watches: Client,
    config: Config,
    silence: Duration,
}

impl Clients {
    /// Makes the clients. Needs a rustls provider, installed before. Talks to nobody yet.
    pub async fn connect(settings: &ClientSettings) -> Result<Self, ConnectError> {
        let environment = std::env::var_os("KUBECONFIG")
            .map(PathBuf::from)
            .filter(|path| !path.as_os_str().is_empty());
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube").join("config"));
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let config = load(settings, environment, home, in_pod).await?;
        Self::with_config(config, settings)
    }

    /// Makes the clients from a configuration of somebody else's, such as a test's.
    pub fn with_config(mut config: Config, settings: &ClientSettings) -> Result<Self, ConnectError> {
        let agent = HeaderValue::from_str(&settings.user_agent)
            .map_err(|_| ConnectError::UserAgent(settings.user_agent.clone()))?;
        config.headers.retain(|(name, _)| name != USER_AGENT);
        config.headers.push((USER_AGENT, agent));
        // Retries are decided where the reason for the call is known: a write may have to be decided anew.
        config.default_retry = false;
        let limit = settings.call_timeout.min(ClientSettings::LONGEST_CALL);
        config.connect_timeout = Some(limit);
        config.read_timeout = Some(limit);
        config.write_timeout = Some(limit);
        // Else the time that a connection waited for its next call counts against that call's answer.
        config.reset_reader_on_write = true;
        crate::roots::trust(&mut config);
        let calls = client(&config)?;
        let silence = settings.watch_silence.max(limit);
        let watches = watching(&config, silence)?;
        Ok(Self {
            calls,
            watches,
            config,
            silence,
        })
    }

    /// A client for lists and watches that has read its token file anew.
    pub(crate) fn renewed_watches(&self) -> Result<Client, ConnectError> {
        watching(&self.config, self.silence)
    }

    /// The configuration, for a client with times of its own (the lease's).
    pub fn config(&self) -> &Config {
        &self.config
    }
}

fn watching(config: &Config, silence: Duration) -> Result<Client, ConnectError> {
    let mut config = config.clone();
    config.read_timeout = Some(silence);
    client(&config)
}

fn client(config: &Config) -> Result<Client, ConnectError> {
    Client::try_from(config.clone()).map_err(|source| ConnectError::Client {
        url: config.cluster_url.to_string(),
        source: Box::new(source),
    })
}

/// Finds the configuration. What comes from the environment is passed in, so that it can be tested.
async fn load(
    settings: &ClientSettings,
    environment: Option<PathBuf>,
    home: Option<PathBuf>,
    in_pod: bool,
) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut tried = Vec::new();
    let named = settings.kubeconfig.clone().map(|path| (path, "from --kubeconfig"));
    let named = named.or(environment.map(|path| (path, "from KUBECONFIG")));
    if let Some((path, origin)) = named {
        let place = format!("{} ({origin})", path.display());
        let read = if origin == "from KUBECONFIG" {
            read_joined(&path)
        } else {
            Kubeconfig::read_from(&path)
        };
        return use_kubeconfig(read, &options, place).await;
    }
    if let Some(path) = home {
        if path.exists() {
            let place = path.display().to_string();
            return use_kubeconfig(Kubeconfig::read_from(&path), &options, place).await;
        }
        tried.push(path.display().to_string());
    } else {
        tried.push("~/.kube/config (HOME is not set)".to_owned());
    }
    if !in_pod {
        tried.push("KUBECONFIG (not set)".to_owned());
        return Err(ConnectError::NoConfig {
            tried: tried.join(", "),
        });
    }
    Config::incluster().map_err(ConnectError::InCluster)
}

/// `KUBECONFIG` may be a list of files, merged in its order as `kubectl` does; absent ones are skipped.
fn read_joined(list: &std::path::Path) -> Result<Kubeconfig, KubeconfigError> {
    let paths: Vec<PathBuf> = std::env::split_paths(list)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    let present: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    match (present.split_first(), paths.first()) {
        (Some((first, others)), _) => others.iter().try_fold(Kubeconfig::read_from(first)?, |merged, path| {
            merged.merge(Kubeconfig::read_from(path)?)
        }),
        (None, Some(path)) => Kubeconfig::read_from(path),
        (None, None) => Err(KubeconfigError::FindPath),
    }
}

async fn use_kubeconfig(
    read: Result<Kubeconfig, KubeconfigError>,
    options: &KubeConfigOptions,
    place: String,
) -> Result<Config, ConnectError> {
    let loaded = match read {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, options).await,
        Err(error) => Err(error),
    };
    loaded.map_err(|source| {
        let reason = match &source {
            KubeconfigError::ReadConfig(error, _) => error.to_string(),
            other => other.to_string(),
        };
        ConnectError::Kubeconfig { place, reason, source }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}, {name: d, cluster: {server: 'https://127.0.0.1:7443'}}]
users: [{name: u, user: {tokenFile: /nowhere/token}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: d, user: u}}]
";

    fn settings(path: Option<&Path>) -> ClientSettings {
        ClientSettings {
            kubeconfig: path.map(Path::to_path_buf),
            ..ClientSettings::new("1.2.3")
        }
    }

    async fn failure(settings: ClientSettings, environment: Option<&str>, home: Option<&str>, in_pod: bool) -> String {
        load(
            &settings,
            environment.map(PathBuf::from),
            home.map(PathBuf::from),
            in_pod,
        )
        .await
        .err()
        .unwrap()
        .to_string()
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_with_its_origin_and_the_remedy() {
        let message = failure(settings(Some(Path::new("/no/such/file"))), Some("/other"), None, false).await;
        assert!(
            message.contains("/no/such/file (from --kubeconfig)") && message.contains("No such file"),
            "{message}"
        );
        let message = failure(settings(None), Some("/no/such/env"), None, true).await;
        assert!(
            message.contains("/no/such/env (from KUBECONFIG)") && message.contains("set KUBECONFIG"),
            "{message}"
        );
        let message = failure(settings(None), None, Some("/no/home/.kube/config"), false).await;
        assert!(
            message.contains("/no/home/.kube/config") && message.contains("pass --kubeconfig"),
            "{message}"
        );
        let message = failure(settings(None), None, None, true).await;
        assert!(message.contains("service account"), "{message}");
    }

    #[tokio::test]
    async fn the_context_and_the_list_of_files_are_as_in_kubectl() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, KUBECONFIG).unwrap();
        let config = load(&settings(Some(&file)), None, None, false).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:6443/");
        let list = std::env::join_paths([Path::new("/absent"), &file]).unwrap();
        let two = ClientSettings {
            context: Some("two".to_owned()),
            ..settings(None)
        };
        let config = load(&two, Some(list.into()), None, false).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:7443/");
        let three = ClientSettings {
            context: Some("three".to_owned()),
            ..settings(Some(&file))
        };
        let message = failure(three, None, None, false).await;
        assert!(
            message.contains("three") && message.contains(&file.display().to_string()),
            "{message}"
        );
        std::fs::write(&file, "a: [").unwrap();
        let message = failure(settings(Some(&file)), None, None, false).await;
        assert!(message.contains("parse"), "{message}");
    }

    #[tokio::test]
    async fn clients_have_short_timeouts_no_retries_and_our_name() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::new("https://127.0.0.1:1".parse().unwrap());
        let mut settings = settings(None);
        settings.call_timeout = Duration::from_secs(300);
        let clients = Clients::with_config(config, &settings).unwrap();
        let made = clients.config();
        assert!(!made.default_retry);
        assert!(made.reset_reader_on_write);
        assert_eq!(made.read_timeout, Some(Duration::from_secs(30)));
        assert_eq!(
            made.headers.iter().find(|(name, _)| name == USER_AGENT).unwrap().1,
            "offhours/1.2.3"
        );
        settings.user_agent = "a\nb".to_owned();
        assert!(matches!(
            Clients::with_config(made.clone(), &settings),
            Err(ConnectError::UserAgent(_))
        ));
    }
}
