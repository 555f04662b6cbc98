//! What to do about the lease now: a pure function of what was seen and of a monotonic time. No client required.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};

use super::settings::{LeaseSettings, MAX_LEASE_DURATION};

/// The part of a Lease whose change shows that its holder lives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Who holds it; nobody when absent or empty.
    pub holder: Option<String>,
    /// The duration that the holder promised to renew within; seconds.
    pub duration_seconds: Option<i32>,
    /// How often the holder changed.
    pub transitions: i32,
    /// Written by the holder's wall clock: only compared with its former self, never with a clock.
    pub renew_time: Option<Timestamp>,
    /// As `renew_time`.
    pub acquire_time: Option<Timestamp>,
}

impl Record {
    /// The record of a Lease object.
    pub fn of(lease: &Lease) -> Self {
        let Some(spec) = &lease.spec else {
            return Self::default();
        };
        Self {
            holder: spec.holder_identity.clone().filter(|holder| !holder.is_empty()),
            duration_seconds: spec.lease_duration_seconds,
            transitions: spec.lease_transitions.unwrap_or(0),
            renew_time: spec.renew_time.as_ref().map(|time| time.0),
            acquire_time: spec.acquire_time.as_ref().map(|time| time.0),
        }
    }

    /// For how long without a change this record keeps others away from it.
    ///
    /// Never shorter than our own lease duration, and never longer than a mistyped number may be believed.
    pub fn keeps_others_away(&self, settings: &LeaseSettings) -> Duration {
        let promised = self
            .duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(Duration::ZERO, Duration::from_secs)
            .min(MAX_LEASE_DURATION);
        promised.max(settings.lease_duration)
    }

    /// The spec to write when `identity` takes or renews this lease; `wall` only informs people.
    pub(super) fn claimed(&self, settings: &LeaseSettings, wall: Timestamp) -> LeaseSpec {
        let ours_already = self.holder.as_deref() == Some(settings.identity.as_str());
        let whole_seconds = settings.lease_duration.as_secs() + u64::from(settings.lease_duration.subsec_nanos() > 0);
        LeaseSpec {
            acquire_time: Some(MicroTime(self.acquire_time.filter(|_| ours_already).unwrap_or(wall))),
            holder_identity: Some(settings.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(whole_seconds).unwrap_or(i32::MAX)),
            lease_transitions: Some(if ours_already {
                self.transitions
            } else {
                self.transitions.saturating_add(1)
            }),
            renew_time: Some(MicroTime(wall)),
            ..LeaseSpec::default()
        }
    }
}

/// What this process last saw of the lease. Times are monotonic, counted from the runner's start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// The record; absent when there is no Lease object.
    pub record: Option<Record>,
    /// When it was first seen as it is now.
    pub changed_at: Duration,
    /// A holder whose Lease object was deleted may still lead until then.
    pub deleted_holder_until: Option<Duration>,
}

impl Observed {
    /// Takes a new look in; the time of the last change moves only when the record differs.
    pub fn see(&mut self, record: Option<Record>, settings: &LeaseSettings, now: Duration) {
        if self.record == record && (record.is_some() || self.deleted_holder_until.is_some()) {
            return;
        }
        let former = std::mem::replace(&mut self.record, record);
        if self.record.is_some() {
            self.deleted_holder_until = None;
        } else if let Some(former) = former
            && former
                .holder
                .as_ref()
                .is_some_and(|holder| *holder != settings.identity)
        {
            // Somebody deleted the object under a living holder, who learns of it at its next renewal.
            self.deleted_holder_until = Some(self.changed_at + former.keeps_others_away(settings));
        }
        self.changed_at = now;
    }
}

/// Our hold on the lease. Times are monotonic, counted from the runner's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Just before the last successful renewal was sent.
    pub renewed_at: Duration,
    /// From when we lead: after a take-over the former holder's time must have ended first.
    pub leads_from: Duration,
}

/// Why the lease may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireBecause {
    /// There is no Lease object.
    Absent,
    /// Its holder gave it back.
    Released,
    /// Its record has not changed for its duration.
    Expired,
    /// It names us, but we do not count it as held: the answer of our write was lost, or we were late.
    OursUnconfirmed,
    /// We were told to take it from its holder.
    TakeOver,
}

/// Why we lead no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostBecause {
    /// No renewal succeeded within the renew deadline.
    DeadlinePassed,
    /// Somebody else holds it now.
    TakenBy(String),
    /// Somebody emptied or deleted it: others may take it at any time.
    Gone,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Write our claim.
    Acquire(AcquireBecause),
    /// Write a renewal.
    Renew,
    /// Nothing to do before this monotonic time, unless something is seen.
    Wait(Duration),
    /// Stop leading at once.
    Lost(LostBecause),
}

/// Decides from what was seen. Total; reads no clock but `now`.
pub fn evaluate(observed: &Observed, held: Option<&Held>, settings: &LeaseSettings, now: Duration) -> Decision {
    let holder = observed.record.as_ref().and_then(|record| record.holder.as_deref());
    let ours = holder == Some(settings.identity.as_str());
    if let Some(held) = held {
        return match holder {
            _ if now >= held.renewed_at + settings.renew_deadline => Decision::Lost(LostBecause::DeadlinePassed),
            Some(other) if !ours => Decision::Lost(LostBecause::TakenBy(other.to_owned())),
            None => Decision::Lost(LostBecause::Gone),
            Some(_) if now >= held.renewed_at + settings.renew_every() => Decision::Renew,
            Some(_) => Decision::Wait(held.renewed_at + settings.renew_every()),
        };
    }
    match &observed.record {
        None => match observed.deleted_holder_until {
            Some(until) if now < until => Decision::Wait(until),
            _ => Decision::Acquire(AcquireBecause::Absent),
        },
        Some(_) if holder.is_none() => Decision::Acquire(AcquireBecause::Released),
        Some(_) if ours => Decision::Acquire(AcquireBecause::OursUnconfirmed),
        Some(_) if settings.take_over => Decision::Acquire(AcquireBecause::TakeOver),
        Some(record) => {
            let free_at = observed.changed_at + record.keeps_others_away(settings);
            if now >= free_at {
                Decision::Acquire(AcquireBecause::Expired)
            } else {
                Decision::Wait(free_at)
            }
        }
    }
}
