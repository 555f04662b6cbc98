//! The look at a pair that somebody else makes.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    decision::{self, SourceAction, Trust},
    facts::Certificate,
    manager::{Look, Manager, sooner},
    reason::Reason,
    resolver::Served,
    settings::Source,
    source::{PairText, SourceError, verifies},
};

/// An authority that we replaced stays published this long: other replicas get the new pair later than we do (the kubelet
/// refreshes mounted Secrets within about two minutes).
const RETIRED_FOR: Duration = Duration::from_secs(3_600);
/// A pair that does not match was probably read while it was being replaced.
const BROKEN_RETRY: Duration = Duration::from_secs(1);

/// What is remembered of an outside source between looks.
#[derive(Default)]
pub(crate) struct Outside {
    text: Option<PairText>,
    candidate: Option<Served>,
    fault: Option<Reason>,
    retired: Vec<(Certificate, Instant)>,
    read_at: Option<Instant>,
}

impl Manager {
    pub(crate) async fn look_at_outside(&mut self) -> Look {
        self.status.fault = None;
        self.refresh().await;
        let source = self.settings.source.clone();
        let (publish, read_again) = match &source {
            Source::Files { authority, poll, .. } => (authority.is_some(), *poll),
            Source::CertManager { publish, .. } => (*publish, Duration::MAX),
            Source::SelfSigned { .. } | Source::InMemory => (false, Duration::MAX),
        };
        let mut look = Look::Wait(read_again);
        let due = self.outside.fault.is_some()
            || read_again == Duration::MAX
            || self.outside.read_at.is_none_or(|at| at.elapsed() >= read_again);
        if due {
            let read = self.read_source(&source).await;
            self.outside.read_at = Some(Instant::now());
            self.learn(read);
        }
        if self.outside.fault.is_some() && matches!(source, Source::Files { .. }) {
            look = Look::Wait(BROKEN_RETRY.min(read_again));
        }

        if publish && let Some(candidate) = self.outside.candidate.clone() {
            let kept = self.publish_authorities(&candidate).await;
            if kept == Look::Again {
                return kept;
            }
            look = sooner(look, kept);
        }
        sooner(look, self.keep_pair())
    }

    async fn read_source(&self, source: &Source) -> Result<PairText, Reason> {
        if let Source::Files {
            certificate,
            key,
            authority,
            ..
        } = source
        {
            let (certificate, key, authority) = (certificate.clone(), key.clone(), authority.clone());
            return tokio::task::spawn_blocking(move || PairText::read(&certificate, &key, authority.as_deref()))
                .await
                .map_err(|error| Reason::SourceBroken {
                    fault: error.to_string(),
                })?
                .map_err(|error| match &error {
                    SourceError::ReadFile { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                        Reason::SourceMissing {
                            what: format!("file {}", path.display()),
                        }
                    }
                    _ => Reason::SourceBroken {
                        fault: error.to_string(),
                    },
                });
        }
        let Some(secret) = self.secret.object() else {
            let name = self
                .store
                .as_ref()
                .map(|store| store.name().to_owned())
                .unwrap_or_default();
            return Err(Reason::SourceMissing {
                what: format!("secret {}/{name}", self.settings.namespace),
            });
        };
        PairText::from_secret(secret).map_err(|error| Reason::SourceBroken {
            fault: error.to_string(),
        })
    }

    /// Takes over what was read, if it differs from what was read before.
    fn learn(&mut self, read: Result<PairText, Reason>) {
        match read {
            Ok(text) if self.outside.text.as_ref() == Some(&text) && self.outside.fault.is_none() => {}
            Ok(text) => match text.pair() {
                Ok(pair) => {
                    self.outside.text = Some(text);
                    self.outside.candidate = Some(pair);
                    self.outside.fault = None;
                }
                Err(error) => {
                    self.outside.fault = Some(Reason::SourceBroken {
                        fault: error.to_string(),
                    });
                }
            },
            Err(reason) => self.outside.fault = Some(reason),
        }
    }

    async fn publish_authorities(&mut self, candidate: &Served) -> Look {
        let Some((current, rest)) = candidate.authorities().split_first() else {
            return Look::Wait(Duration::MAX);
        };
        self.outside.retired.retain(|(_, since)| since.elapsed() < RETIRED_FOR);
        let mut previous = rest.to_vec();
        if let Some(served) = self.certificates.resolver.usable() {
            previous.extend(served.authorities().iter().cloned());
        }
        previous.extend(self.outside.retired.iter().map(|(certificate, _)| certificate.clone()));
        let mut distinct: Vec<Certificate> = Vec::new();
        for certificate in previous {
            if certificate != *current && !distinct.contains(&certificate) {
                distinct.push(certificate);
            }
        }
        self.keep_bundles(current, &distinct, Some(Timestamp::MAX)).await
    }

    fn keep_pair(&mut self) -> Look {
        let now = self.now();
        let served = self.certificates.resolver.served();
        let chains: Vec<Vec<Certificate>> = [self.outside.candidate.as_ref(), served.as_deref()]
            .into_iter()
            .flatten()
            .map(|pair| pair.chain().to_vec())
            .collect();
        let leaves: Vec<Certificate> = chains.iter().filter_map(|chain| chain.first().cloned()).collect();
        self.track_trust(&leaves, |leaf, bundle| {
            chains
                .iter()
                .find(|chain| chain.first() == Some(leaf))
                .is_some_and(|chain| verifies(bundle.certificates(), chain, now))
        });
        let absent = Reason::SourceMissing {
            what: "a certificate".to_owned(),
        };
        let candidate = match (&self.outside.fault, &self.outside.candidate) {
            (Some(fault), _) => Err(fault),
            (None, Some(candidate)) => Ok(candidate.leaf()),
            (None, None) => Err(&absent),
        };
        let trust = |pair: Option<&Served>| pair.map_or(Trust::Unseen, |pair| self.trust(pair.leaf()));
        let decided = decision::source(
            served.as_deref().map(Served::leaf),
            trust(served.as_deref()),
            candidate,
            trust(self.outside.candidate.as_ref()),
            &self.settings.names.texts(),
            &self.settings.lives,
            now,
        );
        self.status.leaf = decided.reason.clone();
        if decided.action == SourceAction::Keep {
            return Look::Wait(decided.next.map_or(Duration::MAX, |next| self.until(next)));
        }
        if let Some(candidate) = self.outside.candidate.clone() {
            if let Some(served) = served {
                let since = Instant::now();
                let retired = served
                    .authorities()
                    .iter()
                    .filter(|old| !candidate.authorities().contains(old));
                self.outside.retired.extend(retired.map(|old| (old.clone(), since)));
            }
            self.take_into_service(candidate, &decided.reason);
        }
        Look::Again
    }
}
