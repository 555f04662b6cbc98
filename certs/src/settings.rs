//! What the operator chooses: where the certificate comes from, how long it lives, whom it names.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, time::Duration};

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    /// The leaf's life leaves no room to rotate its authority.
    #[error(
        "unable to use a leaf life of {leaf:?} under an authority life of {authority:?}: a leaf may live at most a quarter \
         of its authority; shorten the leaf's life or lengthen the authority's"
    )]
    FitLeafLife {
        /// Life asked for the leaf.
        leaf: Duration,
        /// Life asked for the authority.
        authority: Duration,
    },
    /// A life is shorter than certificates can express.
    #[error("unable to use a life of {life:?}: certificates count in seconds, at least 2 are needed")]
    FitShortestLife {
        /// The life asked for.
        life: Duration,
    },
    /// The overlap would outlast the leaf that it protects.
    #[error(
        "unable to wait {propagation:?} for a bundle to spread with a leaf life of {leaf:?}: the wait must be below a \
         quarter of the leaf's life"
    )]
    FitPropagation {
        /// The wait asked for.
        propagation: Duration,
        /// Life asked for the leaf.
        leaf: Duration,
    },
}

/// How long things live and how long we wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lives {
    /// Life of an authority (CA).
    pub authority: Duration,
    /// Life of a leaf; never longer than what is left of its authority.
    pub leaf: Duration,
    /// How long a new authority must have been seen in every caBundle before a leaf of it serves: the time API servers
    /// take to learn a changed webhook configuration.
    pub propagation: Duration,
    /// The wall clock is looked at this often, whatever timers say (a suspended machine's timers stand still).
    pub recheck: Duration,
    /// Certificates start this long before they are made, for API servers whose clock is behind ours.
    pub backdate: Duration,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            authority: Duration::from_secs(365 * 86_400),
            leaf: Duration::from_secs(30 * 86_400),
            propagation: Duration::from_secs(10),
            recheck: Duration::from_secs(60),
            backdate: Duration::from_secs(300),
        }
    }
}

impl Lives {
    /// Lives with everything else derived: what tests and short-lived installs want.
    pub fn of(authority: Duration, leaf: Duration) -> Self {
        let usual = Self::default();
        Self {
            authority,
            leaf,
            propagation: usual.propagation.min(leaf / 8),
            recheck: usual.recheck.min(leaf / 8),
            backdate: usual.backdate.min(leaf / 20),
        }
    }

    /// Refuses lives that would make a certificate lapse.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if let Some(life) = [self.authority, self.leaf]
            .into_iter()
            .find(|life| *life < Duration::from_secs(2))
        {
            return Err(SettingsError::FitShortestLife { life });
        }
        if self.leaf > self.authority / 4 {
            return Err(SettingsError::FitLeafLife {
                leaf: self.leaf,
                authority: self.authority,
            });
        }
        if self.propagation > self.leaf / 4 {
            return Err(SettingsError::FitPropagation {
                propagation: self.propagation,
                leaf: self.leaf,
            });
        }
        Ok(())
    }

    /// Over how long replicas spread work that all of them see due at once, where no leader exists.
    pub fn spread(&self) -> Duration {
        (self.authority / 24).min(Duration::from_secs(300))
    }

    /// The same for work that must not wait (a Secret that is gone, a blank bundle).
    pub fn urgent_spread(&self) -> Duration {
        (self.authority / 24).min(Duration::from_secs(2))
    }

    /// A replica replaces an authority on grounds of time at most this often: two replicas whose clocks disagree by more
    /// than a life must not write against each other.
    pub fn replacement_pause(&self) -> Duration {
        (self.authority / 8).min(Duration::from_secs(3_600))
    }
}

/// Whom the leaf is valid for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Names {
    /// DNS names.
    pub dns: BTreeSet<String>,
    /// IP addresses (development mode: `clientConfig.url` with an address).
    pub addresses: BTreeSet<IpAddr>,
}

impl Names {
    /// `<service>.<namespace>.svc` (what the API server asks for) and `<service>.<namespace>.svc.cluster.local`.
    pub fn of_service(service: &str, namespace: &str) -> Self {
        Self {
            dns: [
                format!("{service}.{namespace}.svc"),
                format!("{service}.{namespace}.svc.cluster.local"),
            ]
            .into(),
            addresses: BTreeSet::new(),
        }
    }

    /// Adds names or addresses: each text that parses as an IP address is one.
    #[must_use]
    pub fn with_extra<T: AsRef<str>>(mut self, extra: impl IntoIterator<Item = T>) -> Self {
        for name in extra {
            match name.as_ref().parse() {
                Ok(address) => {
                    self.addresses.insert(address);
                }
                Err(_) => {
                    self.dns.insert(name.as_ref().to_owned());
                }
            }
        }
        self
    }

    /// All of them as texts, as they appear in a certificate's facts.
    pub fn texts(&self) -> BTreeSet<String> {
        self.dns
            .iter()
            .cloned()
            .chain(self.addresses.iter().map(ToString::to_string))
            .collect()
    }
}

/// Where the serving certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Our own authority in a Secret shared by all replicas; each replica signs a leaf for itself.
    SelfSigned {
        /// Name of the Secret in our namespace.
        secret: String,
    },
    /// Our own authority in this process's memory only: development mode.
    InMemory,
    /// A Secret that cert-manager (or anyone) fills with `tls.crt`, `tls.key` and `ca.crt`.
    CertManager {
        /// Name of the Secret in our namespace.
        secret: String,
        /// Whether we write `ca.crt` into the webhook configurations; `false` where cert-manager's injector does.
        publish: bool,
    },
    /// Files, normally a mounted Secret; looked at every `poll`.
    Files {
        /// PEM chain, leaf first.
        certificate: PathBuf,
        /// PEM private key.
        key: PathBuf,
        /// PEM authorities to publish in the webhook configurations; without it somebody else fills caBundle.
        authority: Option<PathBuf>,
        /// How often the files are compared.
        poll: Duration,
    },
}

impl Source {
    /// Stable label for metrics and `/readyz`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::SelfSigned { .. } => "self_signed",
            Self::InMemory => "in_memory",
            Self::CertManager { .. } => "cert_manager",
            Self::Files { .. } => "files",
        }
    }
}

/// Which webhook configurations carry our caBundle. A configuration that does not exist is nothing to worry about.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Configurations {
    /// Name of our `MutatingWebhookConfiguration`.
    pub mutating: Option<String>,
    /// Name of our `ValidatingWebhookConfiguration`.
    pub validating: Option<String>,
}

/// Everything the manager needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the certificate comes from.
    pub source: Source,
    /// Our namespace.
    pub namespace: String,
    /// Whom the leaf names.
    pub names: Names,
    /// The configurations whose caBundle we keep.
    pub configurations: Configurations,
    /// How long things live.
    pub lives: Lives,
    /// This replica (pod name): gives it its place in the order in which replicas act where no leader exists.
    pub identity: String,
    /// Longest wait for one API call.
    pub call_timeout: Duration,
}
