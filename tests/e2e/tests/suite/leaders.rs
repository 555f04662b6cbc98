//! Two schedulers and one lease, and an API server that goes away: nobody writes outside its lease, and nothing is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use cluster::{
    follow::{Follower, Scope},
    reflector::Pace,
    schedules::ScheduleSource,
};
use harness::{
    AuditQuery, AuditedRequest, Mark, Options, Product, Proxy, SOON, Signal, free_port, holds_for, wait_for,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use scheduler::{
    act::{Act, ActSettings},
    beside::{Beside, Following},
    decide::snapshot::Snapshot,
    engine::{Engine, EngineSettings},
    lease::{Leadership, LeaseRunner, LeaseSettings, lease_client, new_identity},
    observe::Observer,
};
use serde_json::json;
use shared::{clock::Clock, kinds::Kinds};
use tokio::task::AbortHandle;

use crate::{killed::Fleet, roles::product, sleeping::OWN_NAMESPACE, view::clients};

const LEASE: Duration = Duration::from_secs(2);

fn options(name: &str) -> Options {
    Options {
        controllers: false,
        ..Options::named(name)
    }
}

async fn launch(fleet: &Fleet, who: &str, port: u16, rate: u32) -> anyhow::Result<Product> {
    let who = product(who);
    let product = launch_at(fleet, &fleet.plane.kubeconfig_for(&who)?, port, rate)?;
    product.wait_until_ready(port, "/readyz", SOON).await?;
    Ok(product)
}

fn launch_at(fleet: &Fleet, kubeconfig: &std::path::Path, port: u16, rate: u32) -> anyhow::Result<Product> {
    Product::start_with(
        &fleet.plane,
        kubeconfig,
        &[
            "scheduler",
            "--own-namespace",
            OWN_NAMESPACE,
            "--ops-address",
            &format!("127.0.0.1:{port}"),
            "--write-rate",
            &rate.to_string(),
            "--lease-duration=2s",
            "--lease-renew-deadline=1700ms",
            "--lease-retry-period=300ms",
            "--lease-call-timeout=800ms",
            "--write-timeout=800ms",
        ],
        &[],
    )
}

/// Whether this request took or kept the lease for its sender, and not gave it back.
fn is_claim(request: &AuditedRequest) -> bool {
    let holder = request
        .body
        .as_ref()
        .and_then(|body| body["spec"]["holderIdentity"].as_str());
    request.resource == "leases" && request.code < 300 && holder.is_some_and(|holder| !holder.is_empty())
}

/// Sees in the audit log that every write was sent by whoever held the lease then, and within the lease's time.
async fn all_within_their_lease(fleet: &Fleet, since: Mark, users: &[&str]) -> anyhow::Result<usize> {
    let audit = fleet.plane.audit().await?;
    let mut requests = audit.requests(&AuditQuery::new().since(since).writes()).await?;
    requests.retain(|request| users.contains(&request.user.as_str()));
    let (claims, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_claim);
    let mut seen = 0;
    for write in others
        .iter()
        .filter(|write| !["leases", "events"].contains(&write.resource.as_str()) && write.code < 400)
    {
        let before = claims.iter().filter(|claim| claim.answered <= write.received);
        let last = before
            .max_by_key(|claim| claim.answered)
            .with_context(|| format!("{} by {}, before anybody led", write.line(), write.user))?;
        ensure!(
            last.user == write.user,
            "{} by {} at {}, while {} held the lease since {}",
            write.line(),
            write.user,
            write.received,
            last.user,
            last.answered
        );
        let age = write.received.duration_since(last.received);
        ensure!(
            age <= SignedDuration::try_from(LEASE)?,
            "{} by {} at {}, {age:#} after its last renewal",
            write.line(),
            write.user,
            write.received
        );
        seen += 1;
    }
    Ok(seen)
}

#[tokio::test]
async fn rule_l1_a_leader_that_was_frozen_for_longer_than_its_lease_writes_nothing_more() -> anyhow::Result<()> {
    const COUNT: usize = 40;
    let fleet = Fleet::start(options("frozen"), COUNT, &json!({})).await?;
    let start = fleet.plane.audit().await?.mark().await?;
    let ports = [free_port()?, free_port()?];
    // Slow enough to be frozen in the middle.
    let first = launch(&fleet, "first", ports[0], 15).await?;
    let second = launch(&fleet, "second", ports[1], 15).await?;
    let (mut leader, mut follower) = ((&first, "first"), (&second, "second"));
    for night in [true, false, true] {
        fleet.set_night(night).await?;
        fleet.is_under_way(night, 5, SOON).await?;
        leader.0.signal(Signal::STOP)?;
        // The other one goes on where it was left.
        fleet.becomes(night).await?;
        let taken_over = fleet.plane.audit().await?.mark().await?;
        leader.0.signal(Signal::CONT)?;
        wait_for("the frozen one to look at the lease again", SOON, || async {
            let looks = AuditQuery::new()
                .since(taken_over)
                .user(leader.1)
                .resource("leases")
                .verb("get");
            let looks = fleet.plane.audit().await?.requests(&looks).await?;
            ensure!(looks.len() >= 3, "{} looks", looks.len());
            Ok(())
        })
        .await?;
        let late = AuditQuery::new().since(taken_over).user(leader.1).writes();
        let late = fleet.plane.audit().await?.requests(&late).await?;
        // A renewal that was on its way when it was frozen is refused, as it names the version that it relies on.
        let late = late.iter().filter(|one| one.resource != "leases" || one.code != 409);
        let late: Vec<_> = late.map(AuditedRequest::line).collect();
        ensure!(late.is_empty(), "written after it was frozen: {late:?}");
        fleet.becomes(night).await?;
        std::mem::swap(&mut leader, &mut follower);
    }
    fleet.set_night(false).await?;
    fleet.becomes(false).await?;
    for (product, who) in [leader, follower] {
        let status = product.terminate(SOON).await?;
        ensure!(status.success(), "{who} ended with {status}");
    }
    let writes = all_within_their_lease(&fleet, start, &["first", "second"]).await?;
    ensure!(writes >= COUNT * 4, "only {writes} writes seen");
    Ok(())
}

/// A wall clock that is set by the test.
struct Skewed {
    zero: Timestamp,
    started: Instant,
    /// Milliseconds.
    ahead: AtomicI64,
}

impl Skewed {
    fn at(text: &str, ahead: SignedDuration) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            zero: text.parse()?,
            started: Instant::now(),
            ahead: AtomicI64::new(i64::try_from(ahead.as_millis())?),
        }))
    }

    fn set(&self, text: &str) -> anyhow::Result<()> {
        let ahead = text.parse::<Timestamp>()?.duration_since(self.now());
        self.ahead
            .fetch_add(i64::try_from(ahead.as_millis())?, Ordering::SeqCst);
        Ok(())
    }
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or_default();
        self.zero + passed + SignedDuration::from_millis(self.ahead.load(Ordering::SeqCst))
    }
}

/// A scheduler in this process, with a clock of its own. Dropping it is its death.
struct Replica {
    clock: Arc<Skewed>,
    leadership: Leadership,
    tasks: [AbortHandle; 2],
    _follower: Follower,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn replica(fleet: &Fleet, who: &str, clock: Arc<Skewed>) -> anyhow::Result<Replica> {
    let write_timeout = Duration::from_millis(800);
    let clients = clients(&fleet.plane, &product(who)).await?;
    let kinds = Kinds::default();
    let follower = Follower::start(clients.watches.clone(), kinds.clone(), Scope::Cluster, Pace::default());
    let deployment = kinds.by_kind("apps", "Deployment").context("no such kind")?;
    follower.follow_kind(deployment);
    let view = Arc::clone(follower.view());
    let schedules = Arc::new(ScheduleSource::new(Arc::clone(&view), Vec::new(), None));
    let snapshot = Snapshot::new(Arc::new(kinds), OWN_NAMESPACE);
    let beside = Beside::follow(&follower, OWN_NAMESPACE, Following::OwnNamespace);
    let observer = Observer::new(Arc::clone(&view), schedules, snapshot).with(beside);
    let settings = LeaseSettings {
        lease_duration: LEASE,
        renew_deadline: Duration::from_millis(1700),
        retry_period: Duration::from_millis(300),
        call_timeout: Duration::from_millis(800),
        ..LeaseSettings::new(OWN_NAMESPACE, "offhours-scheduler", new_identity(who))
    };
    settings.validate(write_timeout)?;
    let client = lease_client(clients.config().clone(), settings.call_timeout)?;
    let wall: Arc<dyn Clock> = Arc::clone(&clock) as _;
    let (runner, leadership) = LeaseRunner::new(client, settings, Arc::clone(&wall));
    let settings = ActSettings {
        concurrency: 4,
        per_second: None,
        write_timeout,
        dry_run: false,
    };
    let act = Act::new(
        clients.calls.clone(),
        leadership.clone(),
        Arc::clone(&view),
        None,
        settings,
    );
    let settings = EngineSettings {
        write_timeout,
        ..EngineSettings::default()
    };
    let engine = Engine::new(view, observer, act, leadership.clone(), wall, None, None, settings);
    let lease = tokio::spawn(runner.run(std::future::pending()));
    let engine = tokio::spawn(engine.run(std::future::pending()));
    Ok(Replica {
        clock,
        leadership,
        tasks: [lease.abort_handle(), engine.abort_handle()],
        _follower: follower,
    })
}

#[tokio::test]
async fn a_minute_between_two_clocks_costs_a_minute_and_no_number() -> anyhow::Result<()> {
    let fleet = Fleet::start(options("skewed"), 12, &json!({"uptime": ["Mon-Sun 08:00-20:00"]})).await?;
    let start = fleet.plane.audit().await?.mark().await?;
    let namespaces: Api<Namespace> = Api::all(fleet.plane.admin().await?);
    let namespace = fleet.namespace.clone();
    // A clock that is set tells nobody: something that happens in the cluster does.
    let stir = async || -> anyhow::Result<()> {
        let note = format!("{:?}", Instant::now());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/note": note}}}));
        namespaces.patch(&namespace, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    let leads = async |replica: &Replica| -> anyhow::Result<()> {
        ensure!(tokio::time::timeout(SOON, replica.leadership.leads()).await?);
        Ok(())
    };
    let minute = SignedDuration::from_mins(1);
    let fast = replica(&fleet, "fast", Skewed::at("2026-12-07T19:58:30Z", minute)?).await?;
    leads(&fast).await?;
    let slow = replica(
        &fleet,
        "slow",
        Skewed::at("2026-12-07T19:58:30Z", SignedDuration::ZERO)?,
    )
    .await?;
    fleet.becomes(false).await?;
    // Night for the one that leads, and not for the other.
    fast.clock.set("2026-12-07T20:00:05Z")?;
    slow.clock.set("2026-12-07T19:59:05Z")?;
    stir().await?;
    fleet.becomes(true).await?;
    // The slow one takes over and still has its minute of day.
    drop(fast);
    leads(&slow).await?;
    fleet.becomes(false).await?;
    slow.clock.set("2026-12-07T20:00:01Z")?;
    stir().await?;
    fleet.becomes(true).await?;
    // In the morning the fast one is told by its clock first, but does not lead.
    let fast = replica(
        &fleet,
        "fast",
        Skewed::at("2026-12-08T08:00:05Z", SignedDuration::ZERO)?,
    )
    .await?;
    slow.clock.set("2026-12-08T07:59:05Z")?;
    stir().await?;
    wait_for("the fast one to know who leads", SOON, || async {
        let state = fast.leadership.state();
        ensure!(state.holder.is_some_and(|holder| holder.starts_with("slow")));
        Ok(())
    })
    .await?;
    holds_for("everything sleeps on", LEASE, || async {
        let asleep = fleet.asleep().await?;
        ensure!(asleep == 12, "{asleep} of 12 sleep");
        Ok(())
    })
    .await?;
    ensure!(!fast.leadership.state().leading, "a clock that is ahead takes no lease");
    drop(slow);
    leads(&fast).await?;
    fleet.becomes(false).await?;
    drop(fast);
    let writes = all_within_their_lease(&fleet, start, &["fast", "slow"]).await?;
    ensure!(writes == 12 * 4, "{writes} writes for four transitions of 12");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_away_nothing_is_lost_and_nobody_knocks_without_end() -> anyhow::Result<()> {
    const COUNT: usize = 40;
    let away = Duration::from_secs(if std::env::var_os("OFFHOURS_TEST_LONG").is_some() {
        120
    } else {
        12
    });
    let fleet = Fleet::start(options("away"), COUNT, &json!({})).await?;
    let start = fleet.plane.audit().await?.mark().await?;
    let proxy = Proxy::start(&fleet.plane, &product("product")).await?;
    let port = free_port()?;
    let product = launch_at(&fleet, proxy.kubeconfig(), port, 15)?;
    product.wait_until_ready(port, "/readyz", SOON).await?;
    for night in [true, false] {
        fleet.set_night(night).await?;
        fleet.is_under_way(night, 5, SOON).await?;
        proxy.set_away(true);
        let mut calls = 0;
        fleet
            .plane
            .without("kube-apiserver", async || {
                let before = proxy.calls();
                let alive = || async { product.check_running() };
                holds_for("the product lives without an API server", away, alive).await?;
                calls = proxy.calls() - before;
                Ok(())
            })
            .await?;
        proxy.set_away(false);
        // Three looks at the lease in a second, and some ten watches with a growing pause between their tries.
        let most = 6 * away.as_secs() + 120;
        ensure!(
            calls <= most,
            "{calls} calls in {away:?} to an API server that was away"
        );
        fleet.becomes(night).await?;
    }
    product.wait_until_ready(port, "/readyz", SOON).await?;
    let status = product.terminate(SOON).await?;
    ensure!(status.success(), "the product ended with {status}");
    let writes = all_within_their_lease(&fleet, start, &["product"]).await?;
    // What was cut off in the middle may stand there as failed, though it was done.
    ensure!(writes >= COUNT, "only {writes} writes seen");
    Ok(())
}
