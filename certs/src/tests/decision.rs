//! Properties of the pure decisions, and the corners that a running world does not reach.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::{
    decision::{
        AuthorityAction, Bundle, BundleAction, Leadership, LeafAction, Serving, Signer, Signers, Stored, Trust,
        Urgency, authority, bundle, leaf, patience, rank,
    },
    facts::{Certificate, CertificateFacts},
    issuer::Authority,
    settings::{Lives, Names},
};

fn at(seconds: i64) -> Timestamp {
    "2026-11-30T08:00:00Z".parse::<Timestamp>().expect("an instant") + SignedDuration::from_secs(seconds)
}

fn facts(begin: i64, end: i64) -> CertificateFacts {
    CertificateFacts {
        not_before: at(begin),
        not_after: at(end),
        is_ca: true,
        serial: "01".to_owned(),
        subject: "ca".to_owned(),
        names: Names::of_service("a", "b").texts(),
    }
}

fn made(begin: i64) -> Certificate {
    let lives = Lives {
        backdate: Duration::ZERO,
        ..Lives::default()
    };
    Authority::generate(at(begin), &lives)
        .expect("generated")
        .certificate()
        .clone()
}

proptest! {
    #[test]
    fn an_authority_is_kept_exactly_in_the_first_two_thirds_of_its_life(
        begin in -1_000_000_i64..1_000_000, life in 3_i64..100_000_000, now in -2_000_000_i64..200_000_000,
    ) {
        let facts = facts(begin, begin + life);
        let decided = authority(&Stored::Present(&facts), true, None, &Lives::default(), at(now));
        let fresh = now >= begin && (now - begin) * 3 < life * 2;
        prop_assert_eq!(decided.action == AuthorityAction::Keep, fresh, "{:?}", decided);
        if let Some(next) = decided.next {
            prop_assert!(next > at(now));
        }
    }

    #[test]
    fn no_leaf_past_its_date_is_kept_while_anybody_can_sign(
        begin in -100_000_i64..100_000, life in 1_i64..100_000, now in -200_000_i64..200_000,
        current_trust in 0_u64..40, previous in any::<bool>(),
    ) {
        let lives = Lives::default();
        let (current, old) = (made(-300_000), made(-400_000));
        let trust = |certificate: &Certificate| match (certificate == &current, current_trust) {
            (true, 0) => Trust::Unseen,
            (true, 1) => Trust::NotChecked,
            (true, seconds) => Trust::Seen(Duration::from_secs(seconds)),
            (false, _) => Trust::Seen(Duration::from_secs(1_000)),
        };
        let facts = facts(begin, begin + life);
        let signers = Signers { current: &current, previous: previous.then_some((&old, at(1_000_000))) };
        let decided =
            leaf(Some(Serving { facts: &facts, signer: &old }), signers, &facts.names, trust, &lives, at(now));
        if !facts.is_valid_at(at(now)) {
            prop_assert!(matches!(decided.action, LeafAction::Issue(_)), "{:?}", decided);
        }
        // Nothing new serves by a new authority before it is settled, unless there is no other way.
        if decided.action == LeafAction::Issue(Signer::Current) && !trust(&current).is_settled(&lives) {
            prop_assert!(!previous && !facts.is_valid_at(at(now)), "{:?}", decided);
        }
        if let Some(next) = decided.next {
            prop_assert!(next > at(now), "{:?}", decided);
        }
    }

    #[test]
    fn a_published_bundle_needs_nothing_more_and_always_trusts_what_serves(
        present in proptest::collection::vec(0_usize..5, 0..5), until in -10_i64..10,
    ) {
        let known: Vec<Certificate> = (0..5).map(|index| made(index * 1_000)).collect();
        let (current, previous) = (&known[3], &known[1..3]);
        let now = at(100_000);
        let until = Some(now + SignedDuration::from_secs(until));
        let webhook = Bundle::Certificates(present.iter().map(|index| known[*index].clone()).collect());
        let decided = bundle(&[webhook, Bundle::Blank], current, previous, until, now);
        prop_assert!(decided.desired.contains(current));
        let overlap = until.is_some_and(|until| now < until);
        prop_assert!(!overlap || previous.iter().all(|certificate| decided.desired.contains(certificate)));
        let again = bundle(&[Bundle::Certificates(decided.desired.clone())], current, previous, until, now);
        prop_assert_eq!(again.action, BundleAction::Keep);
        prop_assert_eq!(again.desired, decided.desired);
    }
}

#[test]
fn bundle_actions_have_their_names() {
    let (old, current, stranger) = (made(0), made(10), made(-100_000));
    let now = at(1_000);
    let of = |certificates: &[&Certificate]| {
        Bundle::Certificates(certificates.iter().map(|certificate| (*certificate).clone()).collect())
    };
    let later = Some(at(2_000));
    let decide = |webhook: Bundle, until| {
        let decided = bundle(&[webhook], &current, std::slice::from_ref(&old), until, now);
        (decided.action, decided.reason.label(), decided.urgency)
    };
    assert_eq!(
        decide(Bundle::Blank, later),
        (BundleAction::Publish, "bundle_blank", Urgency::Soon)
    );
    assert_eq!(
        decide(of(&[&stranger]), later),
        (BundleAction::Publish, "bundle_foreign", Urgency::Soon)
    );
    assert_eq!(
        decide(of(&[&old]), later),
        (BundleAction::Overlap, "bundle_overlap", Urgency::Soon)
    );
    assert_eq!(
        decide(of(&[&current]), later),
        (BundleAction::Publish, "bundle_incomplete", Urgency::Soon)
    );
    assert_eq!(
        decide(of(&[&old, &current]), later),
        (BundleAction::Keep, "bundle_current", Urgency::Routine)
    );
    assert_eq!(
        decide(of(&[&old, &current]), Some(at(900))),
        (BundleAction::Drop, "bundle_surplus", Urgency::Routine)
    );
}

#[test]
fn a_replacement_on_grounds_of_time_is_not_repeated_at_once() {
    let lives = Lives::default();
    let ended = facts(-100, -1);
    let decide = |since| authority(&Stored::Present(&ended), true, since, &lives, at(0)).action;
    assert_eq!(decide(None), AuthorityAction::Replace);
    assert_eq!(decide(Some(Duration::from_secs(5))), AuthorityAction::Keep);
    assert_eq!(decide(Some(lives.replacement_pause())), AuthorityAction::Replace);
    let broken = authority(&Stored::Broken("cut off"), true, Some(Duration::ZERO), &lives, at(0));
    assert_eq!(broken.action, AuthorityAction::Replace, "damage is mended at once");
}

#[test]
fn who_acts_first_is_spread_over_the_replicas() {
    let lives = Lives::default();
    let ranks: Vec<f64> = (0..100).map(|index| rank(&format!("offhours-{index}"))).collect();
    assert!(ranks.iter().all(|rank| (0.0..1.0).contains(rank)));
    assert!(ranks.iter().filter(|rank| **rank < 0.5).count().abs_diff(50) < 20);
    for rank in ranks {
        assert_eq!(
            patience(Urgency::Now, Leadership::Follower, rank, &lives),
            Duration::ZERO
        );
        assert_eq!(
            patience(Urgency::Routine, Leadership::Leader, rank, &lives),
            Duration::ZERO
        );
        assert!(patience(Urgency::Soon, Leadership::Follower, rank, &lives) <= Duration::from_secs(4));
        assert!(patience(Urgency::Routine, Leadership::Follower, rank, &lives) >= lives.spread());
        assert!(patience(Urgency::Routine, Leadership::Nobody, rank, &lives) < lives.spread());
    }
}
