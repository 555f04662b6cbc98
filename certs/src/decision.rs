//! What is to be done about authority, bundle and leaf, and why: pure functions of facts and `now`.
//!
//! The order that keeps every call trusted during a rotation: the Secret gets the new authority and keeps the old one
//! beside it (one write); both are published together; a replica's leaf moves to the new one only when that replica has
//! itself seen it in every caBundle for a while; the old one is dropped when the last leaf that it can have signed has
//! ended. Every step is decided from what is there, so a replica that dies between two steps loses nothing.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use crate::{
    facts::{Certificate, CertificateFacts},
    issuer::{AUTHORITY_NAME, later, leaf_end},
    reason::Reason,
    settings::Lives,
};

/// More authorities than this are never carried over into a bundle (the newest win).
const MOST_CARRIED: usize = 8;

/// How long the work may wait for the replica whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// This replica serves nothing without it.
    Now,
    /// Calls fail, or would after a restart, until it is done.
    Soon,
    /// There is plenty of time.
    Routine,
}

/// Whether this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It does.
    Leader,
    /// Another one should.
    Follower,
    /// The install elects nobody (webhook only).
    Nobody,
}

/// What is to be done about the authority in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityAction {
    /// Leave it.
    Keep,
    /// Create the Secret with a new one.
    Create,
    /// Put a new one into the Secret, the old one beside it.
    Replace,
}

/// The decision about the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityDecision {
    /// What to do.
    pub action: AuthorityAction,
    /// Why.
    pub reason: Reason,
    /// How long it may wait.
    pub urgency: Urgency,
    /// When to decide again at the latest.
    pub next: Option<Timestamp>,
}

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// It does not exist.
    Missing,
    /// Nothing usable.
    Broken(&'a str),
    /// An authority whose key is its own.
    Present(&'a CertificateFacts),
}

/// Decides about the authority. `serving` says whether this replica has a leaf that is valid now; `since_replacement` is
/// how long ago (monotonic) this replica last replaced an authority.
pub fn authority(
    stored: &Stored<'_>,
    serving: bool,
    since_replacement: Option<Duration>,
    lives: &Lives,
    now: Timestamp,
) -> AuthorityDecision {
    let pressing = if serving { Urgency::Soon } else { Urgency::Now };
    let act = |action, reason, urgency| AuthorityDecision {
        action,
        reason,
        urgency,
        next: None,
    };
    let facts = match stored {
        Stored::Missing => return act(AuthorityAction::Create, Reason::AuthorityMissing, pressing),
        Stored::Broken(fault) => {
            let reason = Reason::AuthorityBroken {
                fault: (*fault).to_owned(),
            };
            return act(AuthorityAction::Replace, reason, pressing);
        }
        Stored::Present(facts) => facts,
    };
    let renew_at = facts.renew_at();
    let (reason, urgency) = if now < facts.not_before {
        (
            Reason::AuthorityNotYetValid {
                not_before: facts.not_before,
            },
            pressing,
        )
    } else if now >= facts.not_after {
        (
            Reason::AuthorityExpired {
                not_after: facts.not_after,
            },
            pressing,
        )
    } else if now >= renew_at {
        (Reason::AuthorityRenewalDue { since: renew_at }, Urgency::Routine)
    } else {
        return AuthorityDecision {
            action: AuthorityAction::Keep,
            reason: Reason::AuthorityCurrent { renew_at },
            urgency: Urgency::Routine,
            next: Some(renew_at),
        };
    };
    match since_replacement {
        // Our own replacement was replaced by somebody whose clock reads otherwise: not every second, please.
        Some(since) if since < lives.replacement_pause() => AuthorityDecision {
            action: AuthorityAction::Keep,
            reason,
            urgency,
            next: Some(later(now, lives.replacement_pause().saturating_sub(since))),
        },
        _ => act(AuthorityAction::Replace, reason, urgency),
    }
}

/// The authorities that a new one must not displace: those known so far and those that a configuration trusts now, newest
/// first. Whether they are past their date is not asked: the clock that would answer may be the one that is wrong, and an
/// ended authority in a bundle harms nobody.
pub fn carried(known: &[Certificate], trusted: &[Certificate]) -> Vec<Certificate> {
    let mut carried: Vec<Certificate> = Vec::new();
    for certificate in known.iter().chain(trusted) {
        if certificate.facts().is_ca && !carried.contains(certificate) {
            carried.push(certificate.clone());
        }
    }
    carried.sort_by_key(|certificate| std::cmp::Reverse(certificate.facts().not_before));
    carried.truncate(MOST_CARRIED);
    carried
}

/// When the last leaf of an authority that is replaced now will have ended.
pub fn carried_until(now: Timestamp, lives: &Lives) -> Timestamp {
    // One more propagation: a replica may sign with the old one while it has not yet heard of the new one.
    later(later(now, lives.leaf), lives.propagation)
}

/// How this replica sees an authority trusted by the configurations that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// No configuration exists, or somebody else keeps their bundles and we cannot look.
    NotChecked,
    /// At least one webhook does not trust it.
    Unseen,
    /// Every webhook has trusted it for this long, by our own reads.
    Seen(Duration),
}

impl Trust {
    /// Whether every API server may be taken to know it.
    pub fn is_settled(self, lives: &Lives) -> bool {
        match self {
            Self::NotChecked => true,
            Self::Unseen => false,
            Self::Seen(since) => since >= lives.propagation,
        }
    }
}

/// Which authority signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The one that the Secret holds as present.
    Current,
    /// The one before, while the present one is not trusted everywhere yet.
    Previous,
}

/// The authorities that a leaf could be signed by.
#[derive(Clone, Copy, Debug)]
pub struct Signers<'a> {
    /// The present one.
    pub current: &'a Certificate,
    /// The one before, if its key is still known, and until when its leaves may serve.
    pub previous: Option<(&'a Certificate, Timestamp)>,
}

/// The leaf that serves now.
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// Its facts.
    pub facts: &'a CertificateFacts,
    /// Who signed it.
    pub signer: &'a Certificate,
}

/// What is to be done about the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafAction {
    /// Serve it on (or nothing, where there is none).
    Keep,
    /// Sign a new one and serve it.
    Issue(Signer),
}

/// The decision about the leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafDecision {
    /// What to do.
    pub action: LeafAction,
    /// Why.
    pub reason: Reason,
    /// When to decide again at the latest.
    pub next: Option<Timestamp>,
}

/// Decides about this replica's leaf. `trust` answers for any authority.
pub fn leaf(
    serving: Option<Serving<'_>>,
    signers: Signers<'_>,
    wanted: &BTreeSet<String>,
    trust: impl Fn(&Certificate) -> Trust,
    lives: &Lives,
    now: Timestamp,
) -> LeafDecision {
    let current_trust = trust(signers.current);
    let settled_at = settles_at(current_trust, lives, now);
    let current_valid = signers.current.facts().is_valid_at(now);
    let previous = signers.previous.filter(|(certificate, until)| {
        now < *until && certificate.facts().is_valid_at(now) && trust(certificate) != Trust::Unseen
    });
    let chosen = if current_valid && current_trust.is_settled(lives) {
        Some(Signer::Current)
    } else if previous.is_some() {
        Some(Signer::Previous)
    } else {
        current_valid.then_some(Signer::Current)
    };
    let Some(chosen) = chosen else {
        let next = serving.map(|serving| serving.facts.not_after);
        return LeafDecision {
            action: LeafAction::Keep,
            reason: Reason::LeafWithoutSigner,
            next,
        };
    };
    let issue = |reason| LeafDecision {
        action: LeafAction::Issue(chosen),
        reason,
        next: None,
    };
    let (signer, limit) = match (chosen, previous) {
        (Signer::Previous, Some((certificate, until))) => (certificate, Some(until)),
        _ => (signers.current, None),
    };

    let Some(serving) = serving else {
        return issue(Reason::LeafMissing);
    };
    let facts = serving.facts;
    if now >= facts.not_after {
        return issue(Reason::LeafExpired {
            not_after: facts.not_after,
        });
    }
    if now < facts.not_before {
        return issue(Reason::LeafNotYetValid {
            not_before: facts.not_before,
        });
    }
    if facts.names != *wanted {
        return issue(Reason::LeafNamesChanged);
    }
    if serving.signer != signer {
        if chosen == Signer::Current && current_trust.is_settled(lives) {
            return issue(Reason::LeafAuthorityReplaced);
        }
        // Whatever waits, waits only while the old leaf still works.
        if trust(serving.signer) == Trust::Unseen && trust(signer) != Trust::Unseen {
            return issue(Reason::LeafAuthorityUntrusted);
        }
        if chosen == Signer::Current {
            let next = settled_at.map_or(facts.not_after, |settled| settled.min(facts.not_after));
            return LeafDecision {
                action: LeafAction::Keep,
                reason: Reason::LeafWaitsForTrust,
                next: Some(next),
            };
        }
    }
    let renew_at = facts.renew_at();
    // A leaf that its signer's end cuts short cannot be prolonged by signing again.
    let longer = leaf_end(now, lives.leaf, signer, limit).as_second() > facts.not_after.as_second();
    if now >= renew_at && longer {
        return issue(Reason::LeafRenewalDue { since: renew_at });
    }
    let waits = signers.current != serving.signer;
    let next = if now < renew_at { renew_at } else { facts.not_after };
    LeafDecision {
        action: LeafAction::Keep,
        reason: if waits {
            Reason::LeafWaitsForTrust
        } else {
            Reason::LeafCurrent { renew_at }
        },
        next: Some(if waits {
            settled_at.map_or(next, |settled| settled.min(next))
        } else {
            next
        }),
    }
}

/// What one webhook of a configuration carries as caBundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bundle {
    /// Nothing, or nothing that can be read.
    Blank,
    /// These authorities.
    Certificates(Vec<Certificate>),
}

impl Bundle {
    /// The authorities in it.
    pub fn certificates(&self) -> &[Certificate] {
        match self {
            Self::Blank => &[],
            Self::Certificates(certificates) => certificates,
        }
    }
}

/// What is to be done about the caBundle of one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleAction {
    /// Leave it.
    Keep,
    /// Write what we need where nothing of ours is trusted.
    Publish,
    /// Add the new authority beside the old one.
    Overlap,
    /// Take away what nobody serves with any more.
    Drop,
}

/// The decision about one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleDecision {
    /// What to do.
    pub action: BundleAction,
    /// Why.
    pub reason: Reason,
    /// How long it may wait.
    pub urgency: Urgency,
    /// What every webhook of the configuration should carry, newest first.
    pub desired: Vec<Certificate>,
    /// When to decide again at the latest.
    pub next: Option<Timestamp>,
}

/// Decides about one configuration that carries `webhooks`, given the present authority and those that must stay trusted
/// until an instant.
pub fn bundle(
    webhooks: &[Bundle],
    current: &Certificate,
    previous: &[Certificate],
    until: Option<Timestamp>,
    now: Timestamp,
) -> BundleDecision {
    let until = until.filter(|until| now < *until);
    let needed: Vec<&Certificate> = previous
        .iter()
        .filter(|certificate| until.is_some() && *certificate != current)
        .collect();
    let mut desired = vec![current.clone()];
    desired.extend(needed.iter().map(|certificate| (*certificate).clone()));
    for certificate in webhooks.iter().flat_map(Bundle::certificates) {
        let facts = certificate.facts();
        // Published by a replica that knows a newer Secret than we do: our view is late, not theirs.
        let newer = facts.not_before > current.facts().not_before
            && facts.is_valid_at(now)
            && facts.is_ca
            && facts.subject.starts_with(AUTHORITY_NAME);
        if newer && !desired.contains(certificate) {
            desired.push(certificate.clone());
        }
    }
    desired.sort_by(|left, right| {
        (right.facts().not_before, right.der().as_ref()).cmp(&(left.facts().not_before, left.der().as_ref()))
    });

    let lacks = |certificate: &Certificate| {
        webhooks
            .iter()
            .any(|webhook| !webhook.certificates().contains(certificate))
    };
    let (action, reason, urgency) = if webhooks.contains(&Bundle::Blank) {
        (BundleAction::Publish, Reason::BundleBlank, Urgency::Soon)
    } else if lacks(current) {
        let ours = webhooks.iter().all(|webhook| {
            let present = webhook.certificates();
            present.contains(current) || needed.iter().any(|certificate| present.contains(*certificate))
        });
        if ours {
            (BundleAction::Overlap, Reason::BundleOverlap, Urgency::Soon)
        } else {
            (BundleAction::Publish, Reason::BundleForeign, Urgency::Soon)
        }
    } else if desired.iter().any(lacks) {
        (BundleAction::Publish, Reason::BundleIncomplete, Urgency::Soon)
    } else if webhooks
        .iter()
        .flat_map(Bundle::certificates)
        .any(|certificate| !desired.contains(certificate))
    {
        (BundleAction::Drop, Reason::BundleSurplus, Urgency::Routine)
    } else {
        (BundleAction::Keep, Reason::BundleCurrent, Urgency::Routine)
    };
    BundleDecision {
        action,
        reason,
        urgency,
        desired,
        next: until,
    }
}

/// What is to be done with a pair that somebody else made (cert-manager, files).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceAction {
    /// Serve on what is served (or nothing).
    Keep,
    /// Serve the pair of the source.
    Serve,
}

/// The decision about such a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDecision {
    /// What to do.
    pub action: SourceAction,
    /// Why.
    pub reason: Reason,
    /// When to decide again at the latest.
    pub next: Option<Timestamp>,
}

/// Decides whether the pair of an outside source is served instead of `serving`.
pub fn source(
    serving: Option<&Certificate>,
    serving_trust: Trust,
    candidate: Result<&Certificate, &Reason>,
    candidate_trust: Trust,
    wanted: &BTreeSet<String>,
    lives: &Lives,
    now: Timestamp,
) -> SourceDecision {
    let keep = |reason, next| SourceDecision {
        action: SourceAction::Keep,
        reason,
        next,
    };
    let serving_valid = serving.is_some_and(|serving| serving.facts().is_valid_at(now));
    let candidate = match candidate {
        Ok(candidate) => candidate,
        Err(reason) => return keep(reason.clone(), None),
    };
    let facts = candidate.facts();
    if now >= facts.not_after {
        return keep(
            Reason::SourceExpired {
                not_after: facts.not_after,
            },
            None,
        );
    }
    if serving == Some(candidate) {
        let missing: Vec<&str> = wanted.difference(&facts.names).map(String::as_str).collect();
        let reason = if missing.is_empty() {
            Reason::SourceCurrent {
                not_after: facts.not_after,
            }
        } else {
            Reason::SourceNamesMissing {
                missing: missing.join(", "),
            }
        };
        return keep(reason, Some(facts.not_after));
    }
    if serving_valid && now < facts.not_before {
        return keep(
            Reason::LeafNotYetValid {
                not_before: facts.not_before,
            },
            Some(facts.not_before),
        );
    }
    let settled = candidate_trust.is_settled(lives);
    let old_is_lost = serving_trust == Trust::Unseen && candidate_trust != Trust::Unseen;
    if !serving_valid || settled || old_is_lost {
        return SourceDecision {
            action: SourceAction::Serve,
            reason: Reason::SourceChanged,
            next: None,
        };
    }
    let settled_at = settles_at(candidate_trust, lives, now);
    let end = serving.map(|serving| serving.facts().not_after);
    keep(Reason::LeafWaitsForTrust, settled_at.into_iter().chain(end).min())
}

/// When trust that is still young will be settled; `None` where time alone changes nothing.
fn settles_at(trust: Trust, lives: &Lives, now: Timestamp) -> Option<Timestamp> {
    match trust {
        Trust::Seen(since) if since < lives.propagation => Some(later(now, lives.propagation.saturating_sub(since))),
        _ => None,
    }
}

/// How long this replica lets others go first. `rank` in `[0, 1)` is its place among them.
pub fn patience(urgency: Urgency, leadership: Leadership, rank: f64, lives: &Lives) -> Duration {
    let spread = match urgency {
        Urgency::Now => return Duration::ZERO,
        Urgency::Soon => lives.urgent_spread(),
        Urgency::Routine => lives.spread(),
    };
    match leadership {
        Leadership::Leader => Duration::ZERO,
        Leadership::Nobody => spread.mul_f64(rank),
        // The leader may be dead or cut off: what it should have done is done all the same, a little later.
        Leadership::Follower => spread.mul_f64(1.0 + rank),
    }
}

/// The place of a replica in the order in which replicas act: a number in `[0, 1)` from its name.
pub fn rank(identity: &str) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}
