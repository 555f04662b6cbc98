//! Authorities and leaves, read back by the same eyes that read a stranger's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::{
    facts::{Certificate, FactsError},
    issuer::{AUTHORITY_NAME, Authority, IssuerError},
    settings::{Lives, Names, SettingsError},
    source::verifies,
};

fn now() -> Timestamp {
    "2026-11-30T08:00:00Z".parse().expect("an instant")
}

#[test]
fn a_leaf_names_its_service_and_is_verified_by_its_authority_alone() {
    let lives = Lives::default();
    let authority = Authority::generate(now(), &lives).expect("generated");
    let other = Authority::generate(now(), &lives).expect("generated");
    let names = Names::of_service("webhook", "offhours").with_extra(["10.0.0.1", "::1", "laptop.local"]);
    let leaf = authority.issue(&names, now(), &lives, None).expect("issued");
    let facts = leaf.certificate.facts();
    assert_eq!(facts.names, names.texts());
    for name in [
        "webhook.offhours.svc",
        "webhook.offhours.svc.cluster.local",
        "10.0.0.1",
        "::1",
        "laptop.local",
    ] {
        assert!(facts.names.contains(name), "{name} in {:?}", facts.names);
    }
    assert!(!facts.is_ca);
    assert!(authority.certificate().facts().is_ca);
    assert!(authority.certificate().facts().subject.starts_with(AUTHORITY_NAME));
    let chain = [leaf.certificate.clone()];
    assert!(verifies(&[authority.certificate().clone()], &chain, now()));
    assert!(verifies(
        &[other.certificate().clone(), authority.certificate().clone()],
        &chain,
        now()
    ));
    assert!(!verifies(&[other.certificate().clone()], &chain, now()));
    assert!(!verifies(
        &[authority.certificate().clone()],
        &chain,
        now() + SignedDuration::from_hours(31 * 24)
    ));
}

#[test]
fn a_leaf_ends_no_later_than_its_authority_or_the_limit() {
    let lives = Lives::default();
    let authority = Authority::generate(now(), &lives).expect("generated");
    let end = authority.certificate().facts().not_after;
    let late = end - SignedDuration::from_hours(1);
    let names = Names::of_service("a", "b");
    assert_eq!(
        authority
            .issue(&names, late, &lives, None)
            .expect("issued")
            .certificate
            .facts()
            .not_after,
        end
    );
    let limit = now() + SignedDuration::from_hours(1);
    let limited = authority.issue(&names, now(), &lives, Some(limit)).expect("issued");
    assert_eq!(limited.certificate.facts().not_after, limit);
}

#[test]
fn an_authority_is_read_back_only_with_its_own_key_and_only_if_it_is_one() {
    let lives = Lives::default();
    let authority = Authority::generate(now(), &lives).expect("generated");
    let other = Authority::generate(now(), &lives).expect("generated");
    let pem = authority.certificate().pem();
    assert_eq!(
        Authority::from_pem(pem.as_bytes(), authority.key_pem()).expect("read"),
        authority
    );
    assert!(matches!(
        Authority::from_pem(pem.as_bytes(), other.key_pem()),
        Err(IssuerError::MatchKey { .. })
    ));
    assert!(matches!(
        Authority::from_pem(pem.as_bytes(), "nonsense"),
        Err(IssuerError::ReadKey(_))
    ));
    assert!(matches!(
        Authority::from_pem(b"", authority.key_pem()),
        Err(IssuerError::ReadCertificate(FactsError::FindCertificate))
    ));
    let leaf = authority
        .issue(&Names::of_service("a", "b"), now(), &lives, None)
        .expect("issued");
    assert!(matches!(
        Authority::from_pem(leaf.certificate.pem().as_bytes(), authority.key_pem()),
        Err(IssuerError::AcceptAuthority { .. })
    ));
    let debug = format!("{authority:?}");
    assert!(!debug.contains("PRIVATE"), "{debug}");
}

#[test]
fn pem_survives_the_way_there_and_back_and_broken_pem_is_an_error() {
    let authority = Authority::generate(now(), &Lives::default()).expect("generated");
    let pem = authority.certificate().pem();
    assert!(pem.lines().all(|line| line.len() <= 64));
    assert_eq!(
        Certificate::from_pem(pem.as_bytes()).expect("read"),
        *authority.certificate()
    );
    assert_eq!(Certificate::all_from_pem(b"").expect("nothing is no error"), vec![]);
    for cut in 1..pem.len() {
        // No cut yields another certificate, and none panics.
        if let Ok(read) = Certificate::from_pem(&pem.as_bytes()[..cut]) {
            assert_eq!(read, *authority.certificate());
        }
    }
}

#[test]
fn lives_that_would_lapse_are_refused_with_a_remedy() {
    Lives::default().validate().expect("the defaults hold");
    Lives::of(Duration::from_secs(24), Duration::from_secs(6))
        .validate()
        .expect("seconds are fine");
    let day = Duration::from_secs(86_400);
    let long_leaf = Lives {
        leaf: 200 * day,
        ..Lives::default()
    }
    .validate()
    .expect_err("too long");
    assert!(matches!(long_leaf, SettingsError::FitLeafLife { .. }));
    assert!(long_leaf.to_string().contains("shorten the leaf's life"));
    assert!(matches!(
        Lives {
            leaf: Duration::ZERO,
            ..Lives::default()
        }
        .validate(),
        Err(SettingsError::FitShortestLife { .. })
    ));
    assert!(matches!(
        Lives {
            propagation: 10 * day,
            ..Lives::default()
        }
        .validate(),
        Err(SettingsError::FitPropagation { .. })
    ));
}
