//! Cases 5.22 to 5.27 (5.20 is in `outside`).

use std::time::Duration;

use http::Method;

use super::world::{DAY, MUTATING, SECRET, World, configuration, pass, usual, within};
use crate::settings::Lives;

const MINUTE: Duration = Duration::from_secs(60);

fn ninety_days() -> Lives {
    Lives {
        leaf: 90 * DAY,
        authority: 720 * DAY,
        ..usual()
    }
}

#[tokio::test(start_paused = true)]
async fn case_5_22_leaf_is_renewed_on_day_61_and_an_expired_secret_is_never_served() {
    let world = World::new(ninety_days());
    let replica = world.start("a");
    within(MINUTE, "ready", || replica.certificates.ready()).await;
    let first = replica.certificates.not_after().expect("served");
    assert_eq!(replica.certificates.seconds_to_expiry().map(|left| left / 60), Some(89));

    pass(59 * DAY).await;
    assert_eq!(
        replica.certificates.not_after(),
        Some(first),
        "not before two thirds of its life"
    );
    pass(2 * DAY).await;
    let second = replica.certificates.not_after().expect("served");
    assert!(second > first, "renewed: {}", replica.certificates.reason());
    assert!(world.trusts(&replica));
    let (secret_writes, _) = world.api.writes("/secrets");
    assert_eq!(secret_writes, 1, "a leaf is renewed without any write");

    // Nobody runs until everything is past its date; then a replica starts.
    let old = world.authority().expect("stored");
    drop(replica);
    pass(721 * DAY).await;
    let late = world.start("b");
    assert!(!late.certificates.ready());
    within(MINUTE, "ready", || late.certificates.ready()).await;
    assert_ne!(world.authority().expect("stored"), old);
    assert!(late.certificates.seconds_to_expiry().expect("served") > 80 * 60);
    assert!(world.trusts(&late));
}

#[tokio::test(start_paused = true)]
async fn case_5_23_replicas_that_start_at_once_share_one_authority() {
    let world = World::new(usual());
    let replicas = ["a", "b", "c"].map(|name| world.start(name));
    within(MINUTE, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    within(MINUTE, "all trusted", || world.all_trusted(&replicas)).await;
    let created = world
        .api
        .seen()
        .iter()
        .filter(|seen| seen.method == Method::POST && seen.status < 300)
        .count();
    assert_eq!(created, 1, "exactly one create succeeds");
    let bundles = world.bundles();
    assert_eq!(bundles.len(), 3, "every webhook of both configurations has one");
    assert!(
        bundles
            .iter()
            .all(|bundle| bundle.len() == 1 && Some(&bundle[0]) == world.authority().as_ref())
    );
    let serials: std::collections::BTreeSet<_> = replicas.iter().map(|replica| replica.certificates.serial()).collect();
    assert_eq!(serials.len(), 3, "each has a leaf of its own");
}

#[tokio::test(start_paused = true)]
async fn case_5_25_rotation_of_thirty_replicas_costs_at_most_two_secret_writes_without_a_leader() {
    let world = World::new(usual());
    let replicas: Vec<_> = (0..30)
        .map(|index| world.start(&format!("offhours-webhook-7d9f-{index}")))
        .collect();
    within(MINUTE, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    let (accepted, refused) = world.api.writes("/secrets");
    let (patched, _) = world.api.writes("configurations");
    let old = world.authority();
    pass(245 * DAY).await;
    assert_ne!(world.authority(), old, "two thirds of a year have passed");
    assert!(world.all_trusted(&replicas));
    let (accepted_after, refused_after) = world.api.writes("/secrets");
    let writes = accepted_after + refused_after - accepted - refused;
    assert!(writes <= 2, "{writes} Secret writes for one rotation");
    let (patched_after, _) = world.api.writes("configurations");
    assert_eq!(
        patched_after - patched,
        2,
        "one patch for each configuration publishes the new authority"
    );
    pass(40 * DAY).await;
    assert!(
        world.bundles().iter().all(|bundle| bundle.len() == 1),
        "the old one is dropped after its last leaf"
    );
    assert!(world.all_trusted(&replicas));
}

#[tokio::test(start_paused = true)]
async fn case_5_25_only_the_leader_renews_and_others_do_it_when_it_cannot() {
    let world = World::new(usual());
    let replicas: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| world.start_with(world.settings(name), world.clock.clone(), true))
        .collect();
    replicas[1].leads.send_replace(true);
    within(MINUTE, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    let before: Vec<u64> = replicas
        .iter()
        .map(|replica| replica.certificates.secret_writes())
        .collect();
    pass(245 * DAY).await;
    let after: Vec<u64> = replicas
        .iter()
        .map(|replica| replica.certificates.secret_writes())
        .collect();
    assert_eq!(after[1] - before[1], 1, "the leader wrote");
    assert_eq!((after[0], after[2]), (before[0], before[2]), "nobody else did");

    // Nobody leads any more; the rotation happens all the same.
    replicas[1].leads.send_replace(false);
    let old = world.authority();
    pass(255 * DAY).await;
    assert_ne!(world.authority(), old);
    assert!(world.all_trusted(&replicas));
}

#[tokio::test(start_paused = true)]
async fn case_5_26_trust_heals_when_bundles_are_blanked_manifests_reapplied_or_the_secret_deleted() {
    let world = World::new(usual());
    let replicas = ["a", "b", "c"].map(|name| world.start(name));
    within(MINUTE, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    let (writes, _) = world.api.writes("/secrets");
    let limit = Duration::from_secs(30);

    world.apply_manifest(None);
    assert!(!world.all_trusted(&replicas));
    within(limit, "blanked bundles are filled", || world.all_trusted(&replicas)).await;
    world.apply_manifest(Some("not a certificate"));
    within(limit, "garbage is replaced", || world.all_trusted(&replicas)).await;
    world.api.delete(MUTATING);
    world
        .api
        .put(MUTATING, configuration("MutatingWebhookConfiguration", 4));
    within(limit, "a re-created configuration is filled", || {
        world.all_trusted(&replicas)
    })
    .await;
    assert_eq!(
        world.api.writes("/secrets").0,
        writes,
        "none of this is a reason for a new authority"
    );

    let old = world.authority();
    world.api.delete(SECRET);
    assert!(world.all_trusted(&replicas), "what serves is not touched");
    within(limit, "the Secret is back", || world.authority().is_some()).await;
    for _ in 0..600 {
        pass(Duration::from_millis(100)).await;
        assert!(world.all_trusted(&replicas), "no call is refused on the way");
    }
    assert_ne!(world.authority(), old, "deleting it asks for a new authority");
    let signers: Vec<_> = replicas
        .iter()
        .map(|replica| replica.certificates.resolver().usable().expect("served"))
        .collect();
    assert!(
        signers
            .iter()
            .all(|served| served.authorities().first() == world.authority().as_ref()),
        "after the overlap all serve leaves of it"
    );
}

#[tokio::test(start_paused = true)]
async fn case_5_27_absent_configurations_are_fine() {
    let bare = World::bare(usual());
    let only_mutating = World::bare(usual());
    only_mutating
        .api
        .put(MUTATING, configuration("MutatingWebhookConfiguration", 1));
    for world in [&bare, &only_mutating] {
        let replica = world.start("a");
        within(Duration::from_secs(5), "ready", || replica.certificates.ready()).await;
        pass(Duration::from_secs(3_600)).await;
        assert_eq!(
            replica.certificates.failed_calls(),
            0,
            "{}",
            replica.certificates.reason()
        );
        assert_eq!(replica.certificates.status().fault, None);
        let asked = world
            .api
            .seen()
            .iter()
            .filter(|seen| !seen.watch && seen.status == 404)
            .count();
        assert!(
            asked <= 4,
            "asked once each at start and once before the create, then watched: {asked}"
        );
    }
    assert!(only_mutating.bundles().iter().all(|bundle| bundle.len() == 1));

    // One that appears later is filled.
    let replica = bare.start("b");
    bare.api.put(MUTATING, configuration("MutatingWebhookConfiguration", 1));
    within(Duration::from_secs(30), "filled", || {
        bare.all_trusted(std::slice::from_ref(&replica))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn idle_replicas_send_nothing_but_watches() {
    let world = World::new(usual());
    let replicas = ["a", "b"].map(|name| world.start(name));
    within(MINUTE, "all ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    pass(MINUTE).await;
    let before = world.api.seen().len();
    pass(DAY).await;
    let idle: Vec<_> = world
        .api
        .seen()
        .into_iter()
        .skip(before)
        .filter(|seen| !seen.watch)
        .collect();
    assert_eq!(idle, vec![]);
}
