//! What people and machines do to the Secret, and API servers that fail.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};
use shared::clock::Clock;

use super::world::{SECRET, World, pass, within};
use crate::{
    issuer::Authority,
    settings::{Lives, Names},
};

const SECOND: Duration = Duration::from_secs(1);

fn damaged(world: &World, damage: &str) -> Value {
    let mut secret = world.api.get(SECRET).expect("stored");
    let now = world.clock.now();
    let encode = |text: &str| json!(STANDARD.encode(text));
    let other = Authority::generate(now, &world.lives).expect("generated");
    let data = secret["data"].as_object_mut().expect("data");
    match damage {
        "empty" => data.clear(),
        "no data" => {
            secret.as_object_mut().expect("an object").remove("data");
        }
        "key missing" => {
            data.remove("ca.key");
        }
        "truncated certificate" => {
            let pem = other.certificate().pem();
            data.insert("ca.crt".to_owned(), encode(&pem[..pem.len() / 2]));
        }
        "key of another" => {
            data.insert("ca.key".to_owned(), encode(other.key_pem()));
        }
        "not an authority" => {
            let leaf = other
                .issue(&Names::of_service("s", "n"), now, &world.lives, None)
                .expect("issued");
            data.insert("ca.crt".to_owned(), encode(&leaf.certificate.pem()));
        }
        "garbage" => {
            data.insert("ca.crt".to_owned(), encode("\u{0}\u{1}hello"));
            data.insert("ca.key".to_owned(), encode("world"));
        }
        _ => panic!("unknown damage"),
    }
    secret
}

#[tokio::test(start_paused = true)]
async fn a_damaged_secret_is_replaced_within_five_seconds_and_no_call_is_refused_on_the_way() {
    for damage in [
        "empty",
        "no data",
        "key missing",
        "truncated certificate",
        "key of another",
        "not an authority",
        "garbage",
    ] {
        let world = World::new(Lives::default());
        let replicas = ["a", "b", "c"].map(|name| world.start(name));
        within(60 * SECOND, "all ready", || {
            replicas.iter().all(|replica| replica.certificates.ready())
        })
        .await;
        let (before, refused) = world.api.writes("/secrets");
        world.api.put(SECRET, damaged(&world, damage));
        within(5 * SECOND, damage, || world.api.writes("/secrets").0 > before).await;
        for _ in 0..300 {
            pass(SECOND / 10).await;
            assert!(
                world.all_trusted(&replicas),
                "{damage}: {}",
                replicas[0].certificates.reason()
            );
        }
        let (after, refused_after) = world.api.writes("/secrets");
        assert_eq!(
            (after - before, refused_after - refused),
            (1, 0),
            "{damage}: one replica replaces it"
        );
        let authority = world.authority().expect("healed");
        for replica in &replicas {
            let served = replica.certificates.resolver().usable().expect("served");
            assert_eq!(served.authorities().first(), Some(&authority), "{damage}");
            assert!(
                replica
                    .certificates
                    .status()
                    .authority
                    .as_ref()
                    .is_some_and(|reason| reason.label() == "authority_current")
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn others_data_in_the_secret_survives_a_rotation() {
    let world = World::new(Lives::default());
    let replica = world.start("a");
    within(60 * SECOND, "ready", || replica.certificates.ready()).await;
    let mut secret = world.api.get(SECRET).expect("stored");
    secret["metadata"]["labels"] = json!({ "team": "platform" });
    secret["data"]["note"] = json!(STANDARD.encode("ours"));
    secret["data"]["ca.key"] = json!("");
    world.api.put(SECRET, secret);
    within(10 * SECOND, "healed", || {
        world
            .api
            .get(SECRET)
            .is_some_and(|secret| secret["data"]["ca.key"] != json!(""))
    })
    .await;
    let secret = world.api.get(SECRET).expect("stored");
    assert_eq!(secret["metadata"]["labels"]["team"], "platform");
    assert_eq!(secret["data"]["note"], json!(STANDARD.encode("ours")));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_at_start_is_asked_again_with_pauses() {
    let world = World::new(Lives::default());
    world.api.fail(Method::GET, "", 503, 40);
    world.api.fail(Method::POST, "", 500, 3);
    let replica = world.start("a");
    pass(SECOND).await;
    assert!(!replica.certificates.ready());
    assert_ne!(replica.certificates.status().fault, None);
    within(600 * SECOND, "ready", || replica.certificates.ready()).await;
    within(120 * SECOND, "trusted", || world.trusts(&replica)).await;
    pass(120 * SECOND).await;
    assert_eq!(
        replica.certificates.status().fault,
        None,
        "a fault that is over is not told any more"
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_patch_a_replica_becomes_ready_and_says_why_it_is_not_trusted() {
    let world = World::new(Lives::default());
    world.api.fail(Method::PATCH, "configurations", 403, usize::MAX);
    let replica = world.start("a");
    pass(10 * SECOND).await;
    assert!(!replica.certificates.ready(), "its authority is not published");
    within(120 * SECOND, "ready", || replica.certificates.ready()).await;
    let reason = replica.certificates.reason();
    assert!(
        reason.contains("failed to patch") && reason.contains("offhours"),
        "{reason}"
    );
    let before = world.api.seen().len();
    pass(600 * SECOND).await;
    let patches = world.api.seen().len() - before;
    assert!(patches <= 80, "{patches} requests in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_loses_a_race_is_decided_again() {
    let world = World::new(Lives::default());
    world.api.fail(Method::PATCH, "mutating", 422, 1);
    world.api.fail(Method::PATCH, "validating", 409, 1);
    let replica = world.start("a");
    within(60 * SECOND, "trusted", || world.trusts(&replica)).await;
}

#[tokio::test(start_paused = true)]
async fn a_bundle_published_by_a_replica_that_knows_a_newer_secret_is_left_alone() {
    let world = World::new(Lives::default());
    let replica = world.start("a");
    within(60 * SECOND, "trusted", || world.trusts(&replica)).await;
    pass(3_600 * SECOND).await;
    let newer = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    let both = format!(
        "{}{}",
        newer.certificate().pem(),
        world.authority().expect("stored").pem()
    );
    world.apply_manifest(Some(&both));
    pass(3_600 * SECOND).await;
    assert!(
        world
            .bundles()
            .iter()
            .all(|bundle| bundle.contains(newer.certificate()))
    );
    // What is older than the present authority and in no Secret is nobody's.
    let older =
        Authority::generate(world.clock.now() - jiff::SignedDuration::from_hours(9), &world.lives).expect("generated");
    world.apply_manifest(Some(&format!(
        "{}{}",
        world.authority().expect("stored").pem(),
        older.certificate().pem()
    )));
    within(600 * SECOND, "dropped", || {
        world.bundles().iter().all(|bundle| bundle.len() == 1)
    })
    .await;
    assert!(world.trusts(&replica));
}
