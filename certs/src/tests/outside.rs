//! Pairs that somebody else makes: files of a mounted Secret, cert-manager's Secret.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use shared::clock::Clock;

use super::world::{World, bundles_of, pass, within};
use crate::{
    facts::pem_of,
    issuer::{Authority, Leaf},
    settings::{Lives, Names, Source},
};

const SECOND: Duration = Duration::from_secs(1);
const TLS_SECRET: &str = "/api/v1/namespaces/offhours/secrets/webhook-tls";

fn leaf(world: &World, authority: &Authority) -> Leaf {
    let names = Names::of_service("offhours-webhook", "offhours");
    authority
        .issue(&names, world.clock.now(), &world.lives, None)
        .expect("issued")
}

fn key_pem(leaf: &Leaf) -> String {
    let body = STANDARD.encode(leaf.key.secret_der());
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}

/// Writes the pair as the kubelet does: a new folder, then `..data` is swapped to it in one rename.
fn mount(folder: &Path, generation: &str, leaf: &Leaf, key: &str) {
    let data = folder.join(generation);
    fs::create_dir(&data).expect("a folder");
    fs::write(data.join("tls.crt"), leaf.certificate.pem()).expect("written");
    fs::write(data.join("tls.key"), key).expect("written");
    fs::write(data.join("ca.crt"), leaf.signer.pem()).expect("written");
    symlink(generation, folder.join("..new")).expect("linked");
    fs::rename(folder.join("..new"), folder.join("..data")).expect("renamed");
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        let _ = symlink(Path::new("..data").join(name), folder.join(name));
    }
}

fn files(folder: &Path, publish: bool) -> Source {
    Source::Files {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        authority: publish.then(|| folder.join("ca.crt")),
        poll: 10 * SECOND,
    }
}

#[tokio::test(start_paused = true)]
async fn case_5_20_a_swapped_mount_is_served_within_a_minute() {
    let world = World::bare(Lives::default());
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    let first = leaf(&world, &authority);
    mount(folder.path(), "..1", &first, &key_pem(&first));
    let mut settings = world.settings("a");
    settings.source = files(folder.path(), false);
    let replica = world.start_with(settings, world.clock.clone(), false);
    within(60 * SECOND, "ready", || replica.certificates.ready()).await;
    let serial = |leaf: &Leaf| Some(leaf.certificate.facts().serial.clone());
    assert_eq!(replica.certificates.serial(), serial(&first));

    let second = leaf(&world, &authority);
    mount(folder.path(), "..2", &second, &key_pem(&second));
    within(60 * SECOND, "the new pair", || {
        replica.certificates.serial() == serial(&second)
    })
    .await;

    // A key of another pair, half a file, nothing at all: what serves goes on, and the reason says what is wrong.
    let third = leaf(&world, &authority);
    mount(folder.path(), "..3", &third, &key_pem(&second));
    pass(60 * SECOND).await;
    assert_eq!(replica.certificates.serial(), serial(&second));
    assert_eq!(replica.certificates.status().leaf.label(), "source_broken");
    fs::remove_file(folder.path().join("tls.crt")).expect("removed");
    pass(60 * SECOND).await;
    assert_eq!(replica.certificates.status().leaf.label(), "source_missing");
    assert!(
        replica.certificates.reason().contains("tls.crt"),
        "{}",
        replica.certificates.reason()
    );
    assert!(replica.certificates.ready(), "what serves goes on");
    mount(folder.path(), "..4", &third, &key_pem(&third));
    within(60 * SECOND, "the mended pair", || {
        replica.certificates.serial() == serial(&third)
    })
    .await;
    assert_eq!(replica.certificates.status().leaf.label(), "source_current");
}

#[tokio::test(start_paused = true)]
async fn an_expired_pair_is_never_served_and_names_that_are_missing_are_told() {
    let world = World::bare(Lives::default());
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    let other = authority
        .issue(
            &Names::of_service("other", "offhours"),
            world.clock.now(),
            &world.lives,
            None,
        )
        .expect("issued");
    mount(folder.path(), "..1", &other, &key_pem(&other));
    let mut settings = world.settings("a");
    settings.source = files(folder.path(), false);
    let replica = world.start_with(settings, world.clock.clone(), false);
    within(60 * SECOND, "ready", || replica.certificates.ready()).await;
    pass(SECOND).await;
    let reason = replica.certificates.reason();
    assert!(
        reason.contains("does not name offhours-webhook.offhours.svc"),
        "{reason}"
    );
    world.clock.jump(40 * 86_400);
    assert!(!replica.certificates.ready());
    pass(120 * SECOND).await;
    assert!(!replica.certificates.ready());
    assert_eq!(replica.certificates.status().leaf.label(), "source_expired");
}

fn tls_secret(leaf: &Leaf) -> Value {
    let encode = |text: String| json!(STANDARD.encode(text));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "webhook-tls", "namespace": "offhours" },
        "data": {
            "tls.crt": encode(leaf.certificate.pem()), "tls.key": encode(key_pem(leaf)),
            "ca.crt": encode(leaf.signer.pem()),
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_new_authority_of_cert_manager_is_published_beside_the_old_one_before_its_leaf_serves() {
    let world = World::new(Lives::default());
    let old = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    world.api.put(TLS_SECRET, tls_secret(&leaf(&world, &old)));
    let replicas = ["a", "b"].map(|name| {
        let mut settings = world.settings(name);
        settings.source = Source::CertManager {
            secret: "webhook-tls".to_owned(),
            publish: true,
        };
        world.start_with(settings, world.clock.clone(), false)
    });
    within(60 * SECOND, "ready", || {
        replicas.iter().all(|replica| replica.certificates.ready())
    })
    .await;
    within(60 * SECOND, "trusted", || world.all_trusted(&replicas)).await;

    let new = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    let next = leaf(&world, &new);
    world.api.put(TLS_SECRET, tls_secret(&next));
    let mut both = false;
    for _ in 0..600 {
        pass(SECOND / 10).await;
        assert!(world.all_trusted(&replicas), "{}", replicas[0].certificates.reason());
        both |= world.bundles().iter().all(|bundle| bundle.len() == 2);
    }
    assert!(both, "old and new together");
    let serial = Some(next.certificate.facts().serial.clone());
    assert!(replicas.iter().all(|replica| replica.certificates.serial() == serial));
    assert_eq!(world.api.writes("/secrets"), (0, 0), "the Secret is not ours to write");
    within(3 * 3_600 * SECOND, "the old one is dropped", || {
        world
            .bundles()
            .iter()
            .all(|bundle| bundle.len() == 1 && bundle[0] == *new.certificate())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn where_cert_manager_injects_bundles_we_write_none_and_follow_them() {
    let world = World::new(Lives::default());
    let old = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    world.api.put(TLS_SECRET, tls_secret(&leaf(&world, &old)));
    world.apply_manifest(Some(&old.certificate().pem()));
    let mut settings = world.settings("a");
    settings.source = Source::CertManager {
        secret: "webhook-tls".to_owned(),
        publish: false,
    };
    let replica = world.start_with(settings, world.clock.clone(), false);
    within(60 * SECOND, "ready", || replica.certificates.ready()).await;
    let first = replica.certificates.serial();

    let new = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    let next = leaf(&world, &new);
    world.api.put(TLS_SECRET, tls_secret(&next));
    pass(60 * SECOND).await;
    assert_eq!(
        replica.certificates.serial(),
        first,
        "its authority is in no bundle yet"
    );
    assert_eq!(replica.certificates.status().leaf.label(), "leaf_waits_for_trust");
    world.apply_manifest(Some(&pem_of(&[new.certificate().clone()])));
    within(5 * SECOND, "followed at once: the old one is trusted no more", || {
        world.trusts(&replica)
    })
    .await;
    assert_eq!(
        replica.certificates.serial(),
        Some(next.certificate.facts().serial.clone())
    );
    assert_eq!(world.api.writes("configurations"), (0, 0));
    assert_eq!(
        bundles_of(&world.api.get(super::world::MUTATING).expect("exists")).len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cert_manager_has_not_made_yet_is_waited_for() {
    let world = World::new(Lives::default());
    let mut settings = world.settings("a");
    settings.source = Source::CertManager {
        secret: "webhook-tls".to_owned(),
        publish: true,
    };
    let replica = world.start_with(settings, world.clock.clone(), false);
    pass(60 * SECOND).await;
    assert!(!replica.certificates.ready());
    assert!(
        replica
            .certificates
            .reason()
            .contains("secret offhours/webhook-tls does not exist")
    );
    let authority = Authority::generate(world.clock.now(), &world.lives).expect("generated");
    world.api.put(TLS_SECRET, tls_secret(&leaf(&world, &authority)));
    within(5 * SECOND, "ready", || replica.certificates.ready()).await;
}

#[tokio::test(start_paused = true)]
async fn in_memory_authorities_rotate_without_any_secret() {
    let world = World::new(super::world::usual());
    let mut settings = world.settings("laptop");
    settings.source = Source::InMemory;
    settings.names = Names::default().with_extra(["192.168.1.7", "laptop.local"]);
    let replica = world.start_with(settings, world.clock.clone(), false);
    within(60 * SECOND, "ready", || replica.certificates.ready()).await;
    assert_eq!(
        replica
            .certificates
            .subject_alternative_names()
            .into_iter()
            .collect::<Vec<_>>(),
        ["192.168.1.7", "laptop.local"]
    );
    let first = replica.certificates.authorities_pem();
    pass(250 * super::world::DAY).await;
    assert_ne!(replica.certificates.authorities_pem(), first);
    assert!(world.trusts(&replica));
    assert!(world.api.seen().iter().all(|seen| !seen.path.contains("secrets")));
}
