//! Rotations watched closely: at no moment does a replica serve what an API server, even one that is late, does not trust.

use std::{collections::VecDeque, time::Duration};

use shared::clock::Clock;

use super::world::{DAY, Replica, TestClock, World, pass, trusted, usual, within};
use crate::{facts::Certificate, settings::Lives};

const SECOND: Duration = Duration::from_secs(1);

fn short() -> Lives {
    Lives {
        authority: 400 * SECOND,
        leaf: 100 * SECOND,
        propagation: 10 * SECOND,
        recheck: 5 * SECOND,
        backdate: SECOND,
    }
}

/// Lets `seconds` pass; each second every replica must serve what the bundles of now and of `late` seconds ago trust.
async fn watch_closely(world: &World, replicas: &[Replica], seconds: usize, late: usize) {
    let mut history: VecDeque<Vec<Vec<Certificate>>> = VecDeque::new();
    // Signatures are checked once for each pair of leaf and bundles; dates each second.
    let mut verified: Vec<(Certificate, Vec<Vec<Certificate>>)> = Vec::new();
    for second in 0..seconds {
        pass(SECOND).await;
        let now = world.clock.now();
        history.push_back(world.bundles());
        if history.len() > late {
            history.pop_front();
        }
        for replica in replicas {
            let served = replica.certificates.resolver().usable();
            let served = served.unwrap_or_else(|| panic!("second {second}: {}", replica.certificates.reason()));
            let leaf = served.leaf().facts();
            assert!(leaf.is_valid_at(now), "second {second}: past its date");
            assert!(
                leaf.not_after <= served.authorities()[0].facts().not_after,
                "a leaf never outlives its authority"
            );
            for bundles in [history.front(), history.back()].into_iter().flatten() {
                if verified
                    .iter()
                    .any(|(leaf, known)| leaf == served.leaf() && known == bundles)
                {
                    continue;
                }
                verified.push((served.leaf().clone(), bundles.clone()));
                assert!(
                    trusted(bundles, &replica.certificates, now),
                    "second {second}: {}",
                    replica.certificates.reason()
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ten_rotations_never_serve_what_a_late_api_server_does_not_trust() {
    let world = World::new(short());
    let replicas = ["a", "b", "c"].map(|name| world.start(name));
    within(30 * SECOND, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    let (before, refused) = world.api.writes("/secrets");
    watch_closely(&world, &replicas, 2_700, 9).await;
    let (after, refused_after) = world.api.writes("/secrets");
    assert!((9..=11).contains(&(after - before)), "{} rotations", after - before);
    assert!(
        refused_after - refused <= 10,
        "about one write for each rotation: {} refused",
        refused_after - refused
    );
    assert!(world.bundles().iter().all(|bundle| bundle.len() <= 2));
}

#[tokio::test(start_paused = true)]
async fn replicas_restarted_in_the_middle_of_a_rotation_are_trusted_at_once() {
    let world = World::new(short());
    let mut replicas = vec![world.start("a"), world.start("b")];
    within(30 * SECOND, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    let old = world.authority();
    within(400 * SECOND, "rotation", || world.authority() != old).await;
    replicas.remove(0);
    let fresh = world.start("c");
    within(SECOND, "ready", || fresh.certificates.ready()).await;
    let served = fresh.certificates.resolver().usable().expect("served");
    assert_eq!(
        served.authorities().first(),
        old.as_ref(),
        "the old authority signs until the new one is known"
    );
    replicas.push(fresh);
    watch_closely(&world, &replicas, 60, 9).await;
    let served = replicas[1].certificates.resolver().usable().expect("served");
    assert_eq!(served.authorities().first(), world.authority().as_ref());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_forward_by_years_leaves_nothing_expired_in_service() {
    let world = World::new(Lives::default());
    let replicas = ["a", "b", "c"].map(|name| world.start(name));
    within(60 * SECOND, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    world.clock.jump(3 * 365 * 86_400);
    assert!(
        replicas.iter().all(|replica| !replica.certificates.ready()),
        "an expired one is not served"
    );
    within(90 * SECOND, "all trusted again", || world.all_trusted(&replicas)).await;

    world.clock.jump(-3 * 365 * 86_400);
    within(90 * SECOND, "valid by the clock that went back", || {
        replicas.iter().all(|replica| {
            let served = replica.certificates.resolver().usable().expect("served");
            served.leaf().facts().is_valid_at(world.clock.now())
        }) && world.all_trusted(&replicas)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replicas_whose_clocks_disagree_by_years_do_not_write_against_each_other() {
    let world = World::new(Lives::default());
    let right = world.start("right");
    let wrong = world.start_with(world.settings("wrong"), TestClock::ahead(10 * 365 * 86_400), false);
    within(60 * SECOND, "ready", || right.certificates.ready()).await;
    for _ in 0..6 * 60 {
        watch_closely(&world, std::slice::from_ref(&right), 1, 0).await;
        pass(59 * SECOND).await;
    }
    let (accepted, refused) = world.api.writes("/secrets");
    assert!(
        accepted + refused <= 16,
        "{accepted} + {refused} Secret writes in six hours"
    );
    assert!(world.trusts(&right), "{}", right.certificates.reason());
    drop(wrong);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_is_cut_to_its_authoritys_end_without_being_signed_again_and_again() {
    // Nobody may write: the authority runs out.
    let world = World::new(usual());
    let replica = world.start("a");
    within(60 * SECOND, "ready", || replica.certificates.ready()).await;
    world.api.fail(http::Method::PUT, "/secrets", 403, usize::MAX);
    pass(364 * DAY).await;
    let authority = world.authority().expect("stored").facts().not_after;
    assert_eq!(replica.certificates.not_after(), Some(authority));
    let taken = replica.certificates.certificates_taken();
    assert!(taken <= 20, "{taken} leaves in a year");
    assert!(replica.certificates.reason().contains("403") || replica.certificates.reason().contains("injected"));
    pass(2 * DAY).await;
    assert!(!replica.certificates.ready(), "never an expired one");
}
