//! The look at our own authority: Secret, bundles, leaf, in this order.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::{
    decision::{self, AuthorityAction, LeafAction, Serving, Signer, Signers, Stored, Urgency},
    facts::Certificate,
    issuer::{Authority, IssuerError},
    manager::{Look, Manager, sooner},
    reason::Reason,
    resolver::Served,
    status::Counters,
    store::{StoredAuthority, StoredFault, Written},
    turn::Need,
};

/// What is known of the Secret.
enum Held {
    /// It could not be read.
    Unknown,
    Missing,
    Broken(StoredFault),
    Present(Box<StoredAuthority>),
}

impl Manager {
    pub(crate) async fn look_at_own(&mut self) -> Look {
        self.status.fault = None;
        self.refresh().await;
        let held = self.held();
        let look = match self.keep_authority(&held).await {
            Look::Again => return Look::Again,
            wait @ Look::Wait(_) => wait,
        };
        let Held::Present(held) = held else {
            return look;
        };
        self.status.authority_not_after = Some(held.current.certificate().facts().not_after);
        let look = sooner(
            look,
            self.keep_bundles(held.current.certificate(), &held.previous, held.previous_until)
                .await,
        );
        if look == Look::Again {
            return look;
        }
        sooner(look, self.keep_leaf(&held))
    }

    fn held(&mut self) -> Held {
        if self.store.is_none() {
            return self
                .memory
                .clone()
                .map_or(Held::Missing, |stored| Held::Present(Box::new(stored)));
        }
        if !self.secret.is_synced() {
            return Held::Unknown;
        }
        let Some(secret) = self.secret.object() else {
            return Held::Missing;
        };
        let version = secret.metadata.resource_version.clone();
        // Reading keys costs more than all the rest of a look, and most looks find the same version.
        let parsed = match self.parsed.take() {
            Some((of, parsed)) if of.is_some() && of == version => parsed,
            _ => StoredAuthority::from_secret(secret),
        };
        self.parsed = Some((version, parsed.clone()));
        match parsed {
            Ok(stored) => Held::Present(Box::new(stored)),
            Err(fault) => Held::Broken(fault),
        }
    }

    async fn keep_authority(&mut self, held: &Held) -> Look {
        let now = self.now();
        let text;
        let stored = match held {
            Held::Unknown => {
                // Felt as a need so that repeated failures are spaced out.
                let leadership = self.leadership();
                let _ = self.turns.wait(Need::Authority, Urgency::Now, leadership);
                self.turns.failed(Need::Authority);
                let wait = self
                    .turns
                    .wait(Need::Authority, Urgency::Now, leadership)
                    .unwrap_or_default();
                return Look::Wait(wait);
            }
            Held::Missing => Stored::Missing,
            Held::Broken(fault) => {
                text = fault.to_string();
                Stored::Broken(&text)
            }
            Held::Present(stored) => Stored::Present(stored.current.certificate().facts()),
        };
        let serving = self.certificates.resolver.usable().is_some();
        let since = self.replaced_at.map(|at| at.elapsed());
        let decided = decision::authority(&stored, serving, since, &self.settings.lives, now);
        self.status.authority = Some(decided.reason.clone());
        let rest = decided.next.map_or(Duration::MAX, |next| self.until(next));
        if decided.action == AuthorityAction::Keep {
            self.turns.met(Need::Authority);
            return Look::Wait(rest);
        }
        if let Some(wait) = self.turns.wait(Need::Authority, decided.urgency, self.leadership()) {
            return Look::Wait(wait);
        }
        match self.replace_authority(held, decided.action, &decided.reason).await {
            Ok(()) => {
                self.turns.met(Need::Authority);
                Look::Again
            }
            Err(fault) => {
                self.note_fault(&fault);
                self.turns.failed(Need::Authority);
                Look::Wait(
                    self.turns
                        .wait(Need::Authority, decided.urgency, self.leadership())
                        .unwrap_or_default(),
                )
            }
        }
    }

    /// Makes a new authority and stores it beside what is trusted so far, unless somebody else was first.
    async fn replace_authority(&mut self, held: &Held, action: AuthorityAction, reason: &Reason) -> Result<(), String> {
        if let Some(store) = self.store.clone() {
            // One read saves a write that is bound to fail.
            let present = store.read().await.map_err(|error| error.to_string())?;
            let version = |secret: Option<&k8s_openapi::api::core::v1::Secret>| {
                secret.map(|secret| (secret.metadata.uid.clone(), secret.metadata.resource_version.clone()))
            };
            if version(present.as_ref()) != version(self.secret.object()) {
                self.secret.set(present);
                return Ok(());
            }
        }
        let stored = self.successor(held).map_err(|error| error.to_string())?;
        let Some(store) = self.store.clone() else {
            self.memory = Some(stored);
            return Ok(());
        };
        let written = match (action, self.secret.object()) {
            (AuthorityAction::Replace, Some(secret)) => store.replace(secret, &stored).await,
            _ => store.create(&stored).await,
        };
        match written.map_err(|error| error.to_string())? {
            Written::Stored(secret) => {
                info!(
                    secret = store.name(),
                    authority = stored.current.certificate().facts().subject,
                    carried = stored.previous.len(),
                    label = reason.label(),
                    "new authority stored: {reason}"
                );
                Counters::count(&self.certificates.counters.secret_writes);
                self.replaced_at = Some(Instant::now());
                self.publishing = true;
                self.secret.set(Some(*secret));
            }
            Written::Lost => {
                Counters::count(&self.certificates.counters.secret_races_lost);
                self.secret.set(store.read().await.map_err(|error| error.to_string())?);
            }
        }
        Ok(())
    }

    fn successor(&mut self, held: &Held) -> Result<StoredAuthority, IssuerError> {
        let now = self.now();
        let lives = self.settings.lives.clone();
        let new = Authority::generate(now, &lives)?;
        let mut known: Vec<Certificate> = Vec::new();
        let mut old = self.signing.clone();
        if let Held::Present(stored) = held {
            known.push(stored.current.certificate().clone());
            if stored.previous_until.is_some_and(|until| now < until) {
                known.extend(stored.previous.iter().cloned());
            }
            old = Some(stored.current.clone());
        }
        known.extend(self.signing.iter().map(|signing| signing.certificate().clone()));
        let trusted: Vec<Certificate> = self
            .all_bundles()
            .iter()
            .flat_map(|bundle| bundle.certificates().to_vec())
            .collect();
        let carried = decision::carried(&known, &trusted);
        Ok(StoredAuthority::successor(
            new,
            old,
            carried,
            decision::carried_until(now, &lives),
        ))
    }

    fn keep_leaf(&mut self, held: &StoredAuthority) -> Look {
        let now = self.now();
        let served = self.certificates.resolver.served();
        let signer = served.as_ref().and_then(|served| served.authorities().first());
        let tracked: Vec<Certificate> = [Some(held.current.certificate()), signer]
            .into_iter()
            .flatten()
            .chain(&held.previous)
            .cloned()
            .collect();
        self.track_trust(&tracked, |certificate, bundle| {
            bundle.certificates().contains(certificate)
        });
        let previous = held.previous_signer.as_ref().zip(held.previous_until);
        let decided = decision::leaf(
            served.as_ref().zip(signer).map(|(served, signer)| Serving {
                facts: served.leaf().facts(),
                signer,
            }),
            Signers {
                current: held.current.certificate(),
                previous: previous.map(|(authority, until)| (authority.certificate(), until)),
            },
            &self.settings.names.texts(),
            |certificate| self.trust(certificate),
            &self.settings.lives,
            now,
        );
        self.status.leaf = decided.reason.clone();
        let LeafAction::Issue(signer) = decided.action else {
            return Look::Wait(decided.next.map_or(Duration::MAX, |next| self.until(next)));
        };
        let (authority, limit) = match (signer, previous) {
            (Signer::Previous, Some((authority, until))) => (authority.clone(), Some(until)),
            _ => (held.current.clone(), None),
        };
        match self.issue(&authority, limit, &decided.reason) {
            Ok(()) => {
                self.signing = Some(authority);
                Look::Again
            }
            Err(fault) => {
                warn!(%fault, "unable to make a certificate");
                self.note_fault(&fault);
                Look::Wait(self.settings.lives.recheck)
            }
        }
    }

    fn issue(&self, authority: &Authority, limit: Option<jiff::Timestamp>, reason: &Reason) -> Result<(), String> {
        let leaf = authority
            .issue(&self.settings.names, self.now(), &self.settings.lives, limit)
            .map_err(|error| error.to_string())?;
        let served =
            Served::new(vec![leaf.certificate], leaf.key, vec![leaf.signer]).map_err(|error| error.to_string())?;
        self.take_into_service(served, reason);
        Ok(())
    }
}
