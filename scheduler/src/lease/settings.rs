//! The lease's times, and what must hold between them. No client required.

use std::time::Duration;

use thiserror::Error;

/// The longest lease that may be configured, and the longest that a foreign record is believed.
///
/// Without a bound, one mistyped `leaseDurationSeconds` would keep every candidate away for ever.
pub const MAX_LEASE_DURATION: Duration = Duration::from_secs(600);

/// The times of leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the Lease object.
    pub namespace: String,
    /// Name of the Lease object.
    pub name: String,
    /// Who we are; unique per process, see [`super::new_identity`].
    pub identity: String,
    /// For how long after its last renewal nobody else takes the lease. Default 15 s.
    pub lease_duration: Duration,
    /// For how long after its last renewal the holder still starts writes. Default 10 s.
    pub renew_deadline: Duration,
    /// How often a candidate looks, and a holder tries again after a failed renewal. Default 2 s.
    pub retry_period: Duration,
    /// The longest that one call about the lease may take. Default 3 s.
    pub call_timeout: Duration,
    /// Take the lease from whoever holds it and lead after its time has surely ended (`offhours uninstall`).
    pub take_over: bool,
}

impl LeaseSettings {
    /// Settings with the default times.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            call_timeout: Duration::from_secs(3),
            take_over: false,
        }
    }

    /// Time between two renewals that succeed: a third of the lease, so that one may fail without harm.
    pub fn renew_every(&self) -> Duration {
        self.lease_duration / 3
    }

    /// Time after the last renewal at which no write of ours may be under way any more.
    ///
    /// A tenth of the lease is kept back for clocks that run at different speeds and for the way of a cancelled request
    /// to the API server.
    pub fn writes_end(&self) -> Duration {
        self.lease_duration.saturating_sub(self.lease_duration / 10)
    }

    /// Checks that the times fit each other; `write_timeout` is the longest that one write to a workload may take.
    pub fn validate(&self, write_timeout: Duration) -> Result<(), LeaseSettingsError> {
        if self.identity.is_empty() || self.namespace.is_empty() || self.name.is_empty() {
            return Err(LeaseSettingsError::NameMissing);
        }
        if self.lease_duration < Duration::from_secs(1) || self.lease_duration > MAX_LEASE_DURATION {
            return Err(LeaseSettingsError::DurationOutOfBounds {
                got: self.lease_duration,
            });
        }
        if self.retry_period.is_zero() || self.call_timeout.is_zero() {
            return Err(LeaseSettingsError::TimeIsZero);
        }
        if self.renew_deadline >= self.writes_end() {
            return Err(LeaseSettingsError::DeadlineTooLate {
                deadline: self.renew_deadline,
                below: self.writes_end(),
            });
        }
        // A renewal that hangs until its timeout must leave time for another one.
        let needed = self.renew_every().saturating_add(self.call_timeout);
        if self.renew_deadline < needed {
            return Err(LeaseSettingsError::DeadlineTooEarly {
                deadline: self.renew_deadline,
                needed,
            });
        }
        // While renewals succeed the last one is up to a third of the lease old: writes must fit behind that.
        let room = self.writes_end().saturating_sub(self.renew_every());
        if write_timeout >= room {
            return Err(LeaseSettingsError::WriteTooLong {
                write_timeout,
                below: room,
            });
        }
        Ok(())
    }
}

/// Times that cannot work together.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LeaseSettingsError {
    /// A name is empty.
    #[error("lease namespace, lease name and identity must not be empty")]
    NameMissing,
    /// The lease duration is out of bounds.
    #[error("lease duration {got:?} is out of bounds: allowed are 1 s to 10 min")]
    DurationOutOfBounds {
        /// What was configured.
        got: Duration,
    },
    /// A period of zero would be a hot loop.
    #[error("lease retry period and lease call timeout must be longer than zero")]
    TimeIsZero,
    /// The holder would still write when another one may lead.
    #[error(
        "renew deadline {deadline:?} is too late: with this lease duration it must be below {below:?}; lower it or raise the lease duration"
    )]
    DeadlineTooLate {
        /// What was configured.
        deadline: Duration,
        /// The first value that is too late.
        below: Duration,
    },
    /// One slow renewal would already cost the leadership.
    #[error(
        "renew deadline {deadline:?} is too early: a third of the lease duration and one call timeout make {needed:?}; raise it or lower the call timeout"
    )]
    DeadlineTooEarly {
        /// What was configured.
        deadline: Duration,
        /// The least that works.
        needed: Duration,
    },
    /// A write could outlive the lease.
    #[error(
        "write timeout {write_timeout:?} does not fit into the lease: it must be below {below:?}; lower it or raise the lease duration"
    )]
    WriteTooLong {
        /// What was configured.
        write_timeout: Duration,
        /// The first value that is too long.
        below: Duration,
    },
}
