//! Why something is done, or not: the text people read in the log and in `/readyz`, and a label for metrics.

use std::fmt;

use jiff::Timestamp;

/// Why the certificates are as they are, or change. Texts may change between versions, labels do not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing has been looked at yet.
    Starting,
    /// The Secret does not exist.
    AuthorityMissing,
    /// The Secret holds nothing usable.
    AuthorityBroken {
        /// What is wrong with it.
        fault: String,
    },
    /// The authority's life is over.
    AuthorityExpired {
        /// When it ended.
        not_after: Timestamp,
    },
    /// The authority's life has not begun by our clock.
    AuthorityNotYetValid {
        /// When it begins.
        not_before: Timestamp,
    },
    /// Two thirds of the authority's life have passed.
    AuthorityRenewalDue {
        /// Since when.
        since: Timestamp,
    },
    /// The authority is as it should be.
    AuthorityCurrent {
        /// When it will be renewed.
        renew_at: Timestamp,
    },
    /// A configuration has a webhook without any caBundle, or with one that cannot be read.
    BundleBlank,
    /// A configuration trusts only authorities that are not ours.
    BundleForeign,
    /// A new authority is published beside the old one.
    BundleOverlap,
    /// An authority whose leaves still serve is no longer trusted.
    BundleIncomplete,
    /// The bundle holds authorities whose last leaf has ended.
    BundleSurplus,
    /// Every configuration that exists trusts exactly what it should.
    BundleCurrent,
    /// There is no leaf.
    LeafMissing,
    /// The leaf's life is over.
    LeafExpired {
        /// When it ended.
        not_after: Timestamp,
    },
    /// The leaf's life has not begun by our clock.
    LeafNotYetValid {
        /// When it begins.
        not_before: Timestamp,
    },
    /// The leaf names others than it should.
    LeafNamesChanged,
    /// Two thirds of the leaf's life have passed.
    LeafRenewalDue {
        /// Since when.
        since: Timestamp,
    },
    /// A new authority is trusted everywhere, so its leaf takes over.
    LeafAuthorityReplaced,
    /// The leaf's authority is trusted no more, another one is.
    LeafAuthorityUntrusted,
    /// A new authority exists, but this replica has not seen it in every caBundle for long enough.
    LeafWaitsForTrust,
    /// No authority that is valid now could sign a leaf.
    LeafWithoutSigner,
    /// The leaf is as it should be.
    LeafCurrent {
        /// When it will be renewed.
        renew_at: Timestamp,
    },
    /// The source (Secret or files) delivered a pair that is now served.
    SourceChanged,
    /// The source holds nothing.
    SourceMissing {
        /// What was looked for.
        what: String,
    },
    /// The source holds something that cannot be used; what was served before goes on.
    SourceBroken {
        /// What is wrong with it.
        fault: String,
    },
    /// The source holds a certificate past its date.
    SourceExpired {
        /// When it ended.
        not_after: Timestamp,
    },
    /// The certificate of the source does not name our service.
    SourceNamesMissing {
        /// The names that are missing, joined by commas.
        missing: String,
    },
    /// The source is served as it is.
    SourceCurrent {
        /// When it ends: whoever fills the source renews it before.
        not_after: Timestamp,
    },
    /// A call to the API server failed.
    CallFailed {
        /// Which, and why.
        fault: String,
    },
}

impl Reason {
    /// Stable name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::AuthorityMissing => "authority_missing",
            Self::AuthorityBroken { .. } => "authority_broken",
            Self::AuthorityExpired { .. } => "authority_expired",
            Self::AuthorityNotYetValid { .. } => "authority_not_yet_valid",
            Self::AuthorityRenewalDue { .. } => "authority_renewal_due",
            Self::AuthorityCurrent { .. } => "authority_current",
            Self::BundleBlank => "bundle_blank",
            Self::BundleForeign => "bundle_foreign",
            Self::BundleOverlap => "bundle_overlap",
            Self::BundleIncomplete => "bundle_incomplete",
            Self::BundleSurplus => "bundle_surplus",
            Self::BundleCurrent => "bundle_current",
            Self::LeafMissing => "leaf_missing",
            Self::LeafExpired { .. } => "leaf_expired",
            Self::LeafNotYetValid { .. } => "leaf_not_yet_valid",
            Self::LeafNamesChanged => "leaf_names_changed",
            Self::LeafRenewalDue { .. } => "leaf_renewal_due",
            Self::LeafAuthorityReplaced => "leaf_authority_replaced",
            Self::LeafAuthorityUntrusted => "leaf_authority_untrusted",
            Self::LeafWaitsForTrust => "leaf_waits_for_trust",
            Self::LeafWithoutSigner => "leaf_without_signer",
            Self::LeafCurrent { .. } => "leaf_current",
            Self::SourceChanged => "source_changed",
            Self::SourceMissing { .. } => "source_missing",
            Self::SourceBroken { .. } => "source_broken",
            Self::SourceExpired { .. } => "source_expired",
            Self::SourceNamesMissing { .. } => "source_names_missing",
            Self::SourceCurrent { .. } => "source_current",
            Self::CallFailed { .. } => "call_failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => formatter.write_str("no certificate has been looked at yet"),
            Self::AuthorityMissing => formatter.write_str("the Secret of the authority does not exist"),
            Self::AuthorityBroken { fault } => write!(formatter, "the Secret of the authority is unusable: {fault}"),
            Self::AuthorityExpired { not_after } => write!(formatter, "the authority ended at {not_after}"),
            Self::AuthorityNotYetValid { not_before } => write!(
                formatter,
                "the authority begins at {not_before}, which is later than this machine's clock"
            ),
            Self::AuthorityRenewalDue { since } => {
                write!(formatter, "two thirds of the authority's life passed at {since}")
            }
            Self::AuthorityCurrent { renew_at } => write!(formatter, "the authority is renewed at {renew_at}"),
            Self::BundleBlank => formatter.write_str("a webhook has no readable caBundle"),
            Self::BundleForeign => formatter.write_str("a webhook trusts only authorities that are not ours"),
            Self::BundleOverlap => formatter.write_str("a new authority is published beside the old one"),
            Self::BundleIncomplete => formatter.write_str("a webhook lost an authority whose certificates still serve"),
            Self::BundleSurplus => {
                formatter.write_str("a webhook trusts an authority whose last certificate has ended")
            }
            Self::BundleCurrent => formatter.write_str("every webhook trusts what it should"),
            Self::LeafMissing => formatter.write_str("there was no certificate"),
            Self::LeafExpired { not_after } => write!(formatter, "the certificate ended at {not_after}"),
            Self::LeafNotYetValid { not_before } => write!(
                formatter,
                "the certificate begins at {not_before}, which is later than this machine's clock"
            ),
            Self::LeafNamesChanged => formatter.write_str("the certificate names others than it should"),
            Self::LeafRenewalDue { since } => {
                write!(formatter, "two thirds of the certificate's life passed at {since}")
            }
            Self::LeafAuthorityReplaced => formatter.write_str("the new authority is trusted everywhere"),
            Self::LeafAuthorityUntrusted => {
                formatter.write_str("the webhooks trust another authority than the certificate's")
            }
            Self::LeafWaitsForTrust => {
                formatter.write_str("the old certificate serves until the new authority is trusted everywhere")
            }
            Self::LeafWithoutSigner => formatter.write_str("no authority that is valid now can sign a certificate"),
            Self::LeafCurrent { renew_at } => write!(formatter, "the certificate is renewed at {renew_at}"),
            Self::SourceChanged => formatter.write_str("the source holds a new certificate"),
            Self::SourceMissing { what } => write!(formatter, "{what} does not exist"),
            Self::SourceBroken { fault } => write!(formatter, "the source is unusable: {fault}"),
            Self::SourceExpired { not_after } => {
                write!(formatter, "the certificate in the source ended at {not_after}")
            }
            Self::SourceNamesMissing { missing } => {
                write!(formatter, "the certificate in the source does not name {missing}")
            }
            Self::SourceCurrent { not_after } => write!(formatter, "the certificate in the source ends at {not_after}"),
            Self::CallFailed { fault } => formatter.write_str(fault),
        }
    }
}
