use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::{
    DEFINITIONS, DEPLOYMENTS,
    double::{Api, Fault, deployment, namespace},
    eventually, follow, follow_with, replicas,
};
use crate::{follow::Scope, reflector::Pace, store::SourceState};

#[tokio::test(start_paused = true)]
async fn case_6_01_a_watch_that_has_expired_is_listed_again_and_what_was_deleted_meanwhile_is_gone() {
    for as_line in [true, false] {
        let api = Api::default();
        api.set(DEPLOYMENTS, deployment("shop", "stays", 3));
        api.set(DEPLOYMENTS, deployment("shop", "goes", 3));
        let (follower, store) = follow(&api);
        follower.view().filled().await;
        eventually("the watch runs", || api.requests(DEPLOYMENTS, true) == 1).await;
        sleep(Duration::from_secs(30)).await;
        follower.view().changes().take();
        api.with(|state| state.deaf = true);
        api.delete(DEPLOYMENTS, "shop", "goes");
        api.set(DEPLOYMENTS, deployment("shop", "stays", 7));
        api.with(|state| state.deaf = false);
        if as_line {
            api.cut(DEPLOYMENTS, Some(410), true);
        } else {
            api.with(|state| state.watch_faults.insert(DEPLOYMENTS.to_owned(), Fault::Status(410)));
            api.cut(DEPLOYMENTS, None, true);
        }
        eventually("the deleted one is gone", || store.get("shop", "goes").is_none()).await;
        assert_eq!(replicas(&store, "shop", "stays"), Some(7));
        assert_eq!(follower.view().changes().take().objects.len(), 2);
        api.with(|state| state.watch_faults.clear());
        sleep(Duration::from_secs(60)).await;
        api.set(DEPLOYMENTS, deployment("shop", "later", 1));
        eventually("the watch goes on", || store.get("shop", "later").is_some()).await;
        assert_eq!(store.state(), SourceState::Filled);
    }
}

/// What it costs in megabytes is shown by the example `memory`.
#[tokio::test(start_paused = true)]
async fn case_6_06_listing_anew_is_paged_and_what_did_not_change_is_kept_as_it_is() {
    let api = Api::default();
    let padding = "much that nobody needs";
    for number in 0..1203 {
        let mut object = deployment("shop", &format!("d{number}"), 3);
        object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(padding);
        object["metadata"]["managedFields"] =
            json!([{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {padding: {}}}}]);
        object["spec"]["template"] = json!({"spec": {"containers": [{"name": "main", "args": [padding]}]}});
        api.set(DEPLOYMENTS, object);
    }
    let (follower, store) = follow(&api);
    follower.view().filled().await;
    let held = |number: usize| store.get("shop", &format!("d{number}")).unwrap();
    let before: Vec<_> = (0..1203).map(held).collect();
    assert!(before.iter().all(|facts| !format!("{facts:?}").contains(padding)));
    for lists in 2..=4 {
        let watches = api.requests(DEPLOYMENTS, true);
        eventually("the watch runs", || {
            api.requests(DEPLOYMENTS, true) > watches.min(lists - 2)
        })
        .await;
        sleep(Duration::from_secs(30)).await;
        api.cut(DEPLOYMENTS, Some(410), true);
        eventually("it is listed anew", || api.requests(DEPLOYMENTS, false) == 3 * lists).await;
    }
    let limits = api.with(|state| {
        let lists = state
            .seen
            .iter()
            .filter(|seen| seen.resource == DEPLOYMENTS && !seen.is_watch());
        lists.map(|seen| seen.query.get("limit").cloned()).collect::<Vec<_>>()
    });
    assert_eq!(limits, vec![Some("500".to_owned()); 12]);
    eventually("the list has ended", || store.state() == SourceState::Filled).await;
    for (number, facts) in before.iter().enumerate() {
        assert!(Arc::ptr_eq(facts, &held(number)), "d{number} was made anew");
    }
}

#[tokio::test(start_paused = true)]
async fn case_6_03_a_server_that_never_answers_costs_one_call_of_thirty_seconds() {
    let api = Api::default();
    api.set("namespaces", namespace("shop"));
    api.with(|state| state.list_faults.insert("namespaces".to_owned(), Fault::Hang));
    let (follower, _) = follow(&api);
    let began = Instant::now();
    let namespaces = follower.view().namespaces();
    eventually("the trouble is told", || {
        matches!(namespaces.state(), SourceState::Unfilled { trouble: Some(_) })
    })
    .await;
    assert!(
        began.elapsed() <= Duration::from_millis(30_200),
        "{:?}",
        began.elapsed()
    );
    api.with(|state| state.list_faults.clear());
    follower.view().filled().await;
    assert!(began.elapsed() <= Duration::from_secs(32));
    assert!(namespaces.get("", "shop").is_some());
}

#[tokio::test(start_paused = true)]
async fn case_6_08_history_that_never_lasts_for_a_paged_list_ends_in_an_unpaged_one() {
    let api = Api::default();
    for number in 0..2000 {
        api.set(DEPLOYMENTS, deployment("shop", &format!("d{number}"), 1));
    }
    // Every page takes so long that the token of the one before is gone.
    api.with(|state| {
        state
            .list_faults
            .insert(DEPLOYMENTS.to_owned(), Fault::Delay(Duration::from_secs(5)))
    });
    let (follower, store) = follow(&api);
    let busy = {
        let api = api.clone();
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(3)).await;
                api.cut(DEPLOYMENTS, Some(410), true);
            }
        })
    };
    eventually("the store is complete", || {
        store.len() == 2000 && store.state() == SourceState::Filled
    })
    .await;
    busy.abort();
    let unpaged = api.with(|state| {
        state
            .seen
            .iter()
            .filter(|seen| seen.resource == DEPLOYMENTS && !seen.is_watch() && !seen.query.contains_key("limit"))
            .count()
    });
    assert_eq!(unpaged, 1);
    assert!(api.with(|state| state.seen.iter().all(|seen| !seen.resource.starts_with("pods"))));
    drop(follower);
}

#[tokio::test(start_paused = true)]
async fn case_7_01_and_6_15_a_kind_without_rights_is_named_and_the_others_go_on() {
    let api = Api::default();
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    api.with(|state| state.list_faults.insert("jobs.batch".to_owned(), Fault::Status(403)));
    let (follower, store) = follow(&api);
    let view = follower.view();
    follower.follow_kind(&Arc::clone(view.kinds().by_kind("batch", "Job").unwrap()));
    view.filled().await;
    let state = view.workload_state("batch", "Job").unwrap();
    let SourceState::Forbidden { message } = &state else {
        panic!("{state:?}")
    };
    assert!(
        message.contains("list") && message.contains("jobs.batch") && message.contains("403"),
        "{message}"
    );
    assert!(!state.is_filled(), "forbidden is not empty");
    assert!(view.is_filled(), "waiting for a right would be waiting for ever");
    assert_eq!(replicas(&store, "shop", "web"), Some(3));

    sleep(Duration::from_secs(3600)).await;
    let asked: Vec<Instant> = api.with(|state| {
        state
            .seen
            .iter()
            .filter(|seen| seen.resource == "jobs.batch")
            .map(|seen| seen.at)
            .collect()
    });
    let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        pauses.iter().skip(1).all(|pause| *pause >= Duration::from_secs(24)),
        "{pauses:?}"
    );
    assert!(asked.len() > 60 && asked.len() < 160, "{}", asked.len());

    view.changes().take();
    api.with(|state| state.list_faults.clear());
    eventually("the right is noticed", || {
        view.workload_state("batch", "Job") == Some(SourceState::Filled)
    })
    .await;
    assert!(view.changes().take().everything);
}

#[tokio::test(start_paused = true)]
async fn rights_taken_away_later_are_told_and_what_was_known_is_no_longer_relied_on() {
    let api = Api::default();
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    let (follower, store) = follow(&api);
    follower.view().filled().await;
    eventually("the watch runs", || api.requests(DEPLOYMENTS, true) == 1).await;
    api.with(|state| state.watch_faults.insert(DEPLOYMENTS.to_owned(), Fault::Status(403)));
    follower.view().changes().take();
    api.cut(DEPLOYMENTS, None, false);
    eventually("it is told", || matches!(store.state(), SourceState::Forbidden { .. })).await;
    assert!(follower.view().changes().take().everything);
}

/// Counts the warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("cluster")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn case_6_16_refused_credentials_are_told_not_repeated_and_recovered_from() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let api = Api::default();
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    let (follower, store) = follow(&api);
    let view = follower.view();
    view.filled().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(view.unauthorized_for(), None);
    let all = [
        DEPLOYMENTS,
        "namespaces",
        DEFINITIONS,
        "horizontalpodautoscalers.autoscaling",
    ];
    for resource in all {
        api.with(|state| state.watch_faults.insert(resource.to_owned(), Fault::Status(401)));
        api.cut(resource, None, false);
    }
    sleep(Duration::from_secs(600)).await;
    let time = view.unauthorized_for().unwrap();
    assert!(
        time > Duration::from_secs(590) && time <= Duration::from_secs(600),
        "{time:?}"
    );
    assert!(matches!(store.state(), SourceState::Failing { .. }));
    assert_eq!(
        replicas(&store, "shop", "web"),
        Some(3),
        "a failed watch is not an empty one"
    );
    let lines = warnings.0.load(Ordering::Relaxed);
    assert!(
        (4..=4 * 6).contains(&lines),
        "each source at most once in two minutes: {lines}"
    );

    let replaced = Instant::now();
    api.with(|state| state.watch_faults.clear());
    eventually("it recovers", || view.unauthorized_for().is_none()).await;
    assert!(replaced.elapsed() <= Duration::from_secs(60));
    api.set(DEPLOYMENTS, deployment("shop", "web", 4));
    eventually("changes are seen", || replicas(&store, "shop", "web") == Some(4)).await;
}

#[tokio::test(start_paused = true)]
async fn case_6_21_a_watch_gone_silent_is_replaced_and_an_edit_is_seen_within_five_minutes() {
    let api = Api::default();
    api.set(DEPLOYMENTS, deployment("shop", "web", 3));
    let (follower, store) = follow(&api);
    follower.view().filled().await;
    sleep(Duration::from_secs(40 * 60)).await;
    // The connection swallows what is sent on it, and nobody closes it.
    let silenced = api.with(super::double::State::silenced);
    api.set(DEPLOYMENTS, deployment("shop", "web", 9));
    let edited = Instant::now();
    eventually("the edit is seen", || replicas(&store, "shop", "web") == Some(9)).await;
    assert!(edited.elapsed() <= Duration::from_secs(300), "{:?}", edited.elapsed());
    drop(silenced);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_server_answers_it_is_not_asked_in_a_hot_loop_and_recovered_from() {
    let faults = [
        Fault::Status(500),
        Fault::Status(429),
        Fault::RetryAfter(503, 5),
        Fault::ErrorLine(500),
        Fault::ErrorLine(410),
        Fault::End,
        Fault::Garbage,
        Fault::Status(404),
    ];
    for fault in faults {
        for on_lists in [true, false] {
            let api = Api::default();
            api.set(DEPLOYMENTS, deployment("shop", "web", 3));
            api.with(|state| {
                let faults = if on_lists {
                    &mut state.list_faults
                } else {
                    &mut state.watch_faults
                };
                faults.insert(DEPLOYMENTS.to_owned(), fault);
            });
            let (follower, store) = follow(&api);
            sleep(Duration::from_secs(600)).await;
            let asked = api.requests(DEPLOYMENTS, true) + api.requests(DEPLOYMENTS, false);
            assert!(
                asked < 110,
                "{fault:?} on lists {on_lists}: {asked} requests in 10 minutes"
            );
            assert!(asked > 10, "{fault:?} on lists {on_lists}: given up after {asked}");
            api.with(|state| {
                state.list_faults.clear();
                state.watch_faults.clear();
            });
            let healed = Instant::now();
            api.set(DEPLOYMENTS, deployment("shop", "web", 8));
            eventually("it recovers", || {
                replicas(&store, "shop", "web") == Some(8) && store.state() == SourceState::Filled
            })
            .await;
            assert!(
                healed.elapsed() <= Duration::from_secs(60),
                "{fault:?}: {:?}",
                healed.elapsed()
            );
            drop(follower);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_patience_gets_it() {
    let api = Api::default();
    api.with(|state| {
        state
            .list_faults
            .insert(DEPLOYMENTS.to_owned(), Fault::RetryAfter(429, 7))
    });
    let pace = Pace {
        longest_pause: Duration::from_secs(20),
        ..Pace::default()
    };
    let (follower, _) = follow_with(&api, Scope::Cluster, pace);
    sleep(Duration::from_secs(28)).await;
    let asked: Vec<Instant> = api.with(|state| {
        state
            .seen
            .iter()
            .filter(|seen| seen.resource == DEPLOYMENTS)
            .map(|seen| seen.at)
            .collect()
    });
    assert!(asked.len() >= 3);
    for pair in asked.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(7));
    }
    drop(follower);
}
