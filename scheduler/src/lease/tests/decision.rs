use std::time::Duration;

use proptest::prelude::*;

use super::double::settings;
use crate::lease::{
    AcquireBecause, Decision, Held, LeaseSettings, LeaseSettingsError, LostBecause, Observed, Record, evaluate,
};
use crate::lease::{runner::lease_config, settings::MAX_LEASE_DURATION};

fn held_by(holder: &str) -> Record {
    Record {
        holder: Some(holder.to_owned()),
        duration_seconds: Some(2),
        ..Record::default()
    }
}

fn seen(record: Option<Record>, at: u64) -> Observed {
    let mut observed = Observed::default();
    observed.see(record, &settings("a"), Duration::from_millis(at));
    observed
}

fn ask(observed: &Observed, held: Option<u64>, now: u64) -> Decision {
    let held = held.map(|at| Held {
        renewed_at: Duration::from_millis(at),
        leads_from: Duration::ZERO,
    });
    evaluate(observed, held.as_ref(), &settings("a"), Duration::from_millis(now))
}

#[test]
fn a_free_lease_is_taken_and_a_living_one_is_waited_for() {
    assert_eq!(ask(&seen(None, 0), None, 5), Decision::Acquire(AcquireBecause::Absent));
    assert_eq!(
        ask(&seen(Some(Record::default()), 0), None, 5),
        Decision::Acquire(AcquireBecause::Released)
    );
    assert_eq!(
        ask(&seen(Some(held_by("b")), 100), None, 2099),
        Decision::Wait(Duration::from_millis(2100))
    );
    assert_eq!(
        ask(&seen(Some(held_by("b")), 100), None, 2100),
        Decision::Acquire(AcquireBecause::Expired)
    );
    assert_eq!(
        ask(&seen(Some(held_by("a")), 100), None, 200),
        Decision::Acquire(AcquireBecause::OursUnconfirmed)
    );
}

#[test]
fn a_change_of_the_record_starts_the_wait_anew_and_a_repeat_does_not() {
    let mut observed = seen(Some(held_by("b")), 0);
    observed.see(Some(held_by("b")), &settings("a"), Duration::from_millis(1500));
    assert_eq!(observed.changed_at, Duration::ZERO);
    let renewed = Record {
        renew_time: Some(jiff::Timestamp::UNIX_EPOCH),
        ..held_by("b")
    };
    observed.see(Some(renewed), &settings("a"), Duration::from_millis(1600));
    assert_eq!(ask(&observed, None, 3599), Decision::Wait(Duration::from_millis(3600)));
}

#[test]
fn a_holder_renews_every_third_and_stops_at_its_deadline() {
    let ours = seen(Some(held_by("a")), 0);
    assert_eq!(
        ask(&ours, Some(1000), 1100),
        Decision::Wait(Duration::from_nanos(1_666_666_666))
    );
    assert_eq!(ask(&ours, Some(1000), 1667), Decision::Renew);
    assert_eq!(ask(&ours, Some(1000), 2199), Decision::Renew);
    assert_eq!(
        ask(&ours, Some(1000), 2200),
        Decision::Lost(LostBecause::DeadlinePassed)
    );
    assert_eq!(
        ask(&seen(Some(held_by("b")), 0), Some(0), 1),
        Decision::Lost(LostBecause::TakenBy("b".into()))
    );
    assert_eq!(ask(&seen(None, 0), Some(0), 1), Decision::Lost(LostBecause::Gone));
    assert_eq!(
        ask(&seen(Some(Record::default()), 0), Some(0), 1),
        Decision::Lost(LostBecause::Gone)
    );
}

#[test]
fn a_lease_deleted_under_another_holder_is_not_taken_before_that_holder_must_have_stopped() {
    let mut observed = seen(Some(held_by("b")), 1000);
    observed.see(None, &settings("a"), Duration::from_millis(1200));
    observed.see(None, &settings("a"), Duration::from_millis(1400));
    assert_eq!(ask(&observed, None, 2999), Decision::Wait(Duration::from_secs(3)));
    assert_eq!(ask(&observed, None, 3000), Decision::Acquire(AcquireBecause::Absent));
}

#[test]
fn a_mistyped_duration_keeps_nobody_away_for_ever() {
    for (written, seconds) in [(i32::MAX, 600), (-5, 2), (0, 2), (1, 2), (30, 30)] {
        let record = Record {
            duration_seconds: Some(written),
            ..held_by("b")
        };
        assert_eq!(
            record.keeps_others_away(&settings("a")),
            Duration::from_secs(seconds),
            "{written}"
        );
    }
}

#[test]
fn times_that_do_not_fit_are_refused_with_the_bound() {
    let defaults = LeaseSettings::new("ns", "name", "me");
    assert_eq!(defaults.validate(Duration::from_secs(5)), Ok(()));
    let refused = |change: &dyn Fn(&mut LeaseSettings), write: u64| {
        let mut settings = defaults.clone();
        change(&mut settings);
        settings.validate(Duration::from_millis(write)).unwrap_err()
    };
    assert!(matches!(
        refused(&|s| s.identity.clear(), 1),
        LeaseSettingsError::NameMissing
    ));
    assert!(matches!(
        refused(&|s| s.lease_duration = Duration::from_millis(900), 1),
        LeaseSettingsError::DurationOutOfBounds { .. }
    ));
    assert!(matches!(
        refused(&|s| s.lease_duration = Duration::MAX, 1),
        LeaseSettingsError::DurationOutOfBounds { .. }
    ));
    assert!(matches!(
        refused(&|s| s.retry_period = Duration::ZERO, 1),
        LeaseSettingsError::TimeIsZero
    ));
    assert!(matches!(
        refused(&|s| s.renew_deadline = Duration::from_millis(13_500), 1),
        LeaseSettingsError::DeadlineTooLate { .. }
    ));
    assert!(matches!(
        refused(&|s| s.renew_deadline = Duration::from_secs(7), 1),
        LeaseSettingsError::DeadlineTooEarly { .. }
    ));
    let error = refused(&|_| {}, 8500);
    assert_eq!(
        error.to_string(),
        "write timeout 8.5s does not fit into the lease: it must be below 8.5s; lower it or raise the lease duration"
    );
}

#[test]
fn the_lease_client_tries_nothing_twice_and_keeps_its_connection_between_renewals() {
    let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    let config = lease_config(config, Duration::from_millis(300));
    assert!(!config.default_retry && config.reset_reader_on_write);
    assert_eq!(config.connect_timeout, Some(Duration::from_millis(300)));
    assert!(config.read_timeout.unwrap() > MAX_LEASE_DURATION / 3);
}

proptest! {
    /// Whatever happens, a holder's last allowed write ends before any candidate that saw the last renewal may start.
    #[test]
    fn the_holder_always_stops_before_a_candidate_starts(
        lease in 1_000_u64..60_000, call in 1_u64..300, deadline in 0_u64..1000, write in 0_u64..1000,
        sent in 0_u64..1_000_000, seen_after in 0_u64..100_000,
    ) {
        // The deadline and the write timeout anywhere between their bounds.
        let settings = LeaseSettings {
            lease_duration: Duration::from_millis(lease), call_timeout: Duration::from_millis(call), ..settings("a")
        };
        let earliest = settings.renew_every() + settings.call_timeout;
        let room = settings.writes_end().saturating_sub(earliest);
        let settings = LeaseSettings { renew_deadline: earliest + room * deadline as u32 / 1000, ..settings };
        let write = settings.writes_end().saturating_sub(settings.renew_every()) * write as u32 / 1000;
        prop_assert_eq!(settings.validate(write), Ok(()));
        let other = LeaseSettings { identity: "b".into(), ..settings.clone() };
        let record = Record { holder: Some("a".into()), ..Record::default() };
        let mut observed = Observed::default();
        observed.see(Some(record), &other, Duration::from_millis(sent + seen_after));
        let Decision::Wait(free_at) = evaluate(&observed, None, &other, Duration::from_millis(sent + seen_after)) else {
            return Err(TestCaseError::fail("taken at once"));
        };
        prop_assert!(Duration::from_millis(sent) + settings.writes_end() < free_at);
    }
}
