//! The control plane, its objects, and the product beside it.

use std::{
    convert::Infallible,
    path::PathBuf,
    pin::pin,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use cluster::client::{ClientSettings, Clients};
use futures::StreamExt as _;
use harness::{
    AuditLog, AuditQuery, AuditedRequest, ControlPlane, Identity, Mark, Options, Product, free_port, http_get,
    offhours_binary,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Client,
    api::{ListParams, ObjectList, PartialObjectMeta, WatchEvent, WatchParams},
    core::Request,
};
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    raw::{Ready, bodies, deployment, send_all},
    report::{Requests, say},
};

const OWN_NAMESPACE: &str = "offhours-system";
const SCHEDULE: &str = "bench";
const NAMESPACES: usize = 50;
const PATIENCE: Duration = Duration::from_secs(300);

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// To sleep.
    Down,
    /// Awake.
    Up,
}

/// Who follows what the raw loop writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nobody.
    Nothing,
    /// One watch of all Deployments, which is read and thrown away.
    Watch,
}

/// One way of all objects.
pub struct Measured {
    /// From the beginning to the last answer.
    pub seconds: f64,
    /// CPU time, in microseconds.
    pub cpu_per_write: f64,
    /// What was sent meanwhile.
    pub requests: Requests,
}

/// All that is needed.
pub struct Stage {
    plane: ControlPlane,
    objects: usize,
    raw: Client,
    /// One that does not give up on an answer that goes on.
    watches: Client,
    raw_namespaces: Vec<String>,
    /// Who sent what.
    pub audit: AuditLog,
}

fn product_identity() -> Identity {
    Identity::service_account(OWN_NAMESPACE, "offhours")
}

fn raw_identity() -> Identity {
    Identity::service_account(OWN_NAMESPACE, "raw")
}

#[allow(
    clippy::disallowed_methods,
    reason = "a bench of real programs, whose clock is the machine's"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Follows all Deployments from now on as the product does, until it is aborted: where the API server closes the watch (it
/// does so to those who read too slowly while it is busy), it goes on from where it was.
async fn follow(client: Client) -> anyhow::Result<JoinHandle<anyhow::Result<Infallible>>> {
    type Met = PartialObjectMeta<Deployment>;
    const PATH: &str = "/apis/apps/v1/deployments";
    let newest = ListParams::default().limit(1);
    let list: ObjectList<Met> = client.request(Request::new(PATH).list(&newest)?).await?;
    let mut version = list.metadata.resource_version.context("a list has a version")?;
    Ok(tokio::spawn(async move {
        loop {
            let request = Request::new(PATH).watch(&WatchParams::default(), &version)?;
            let mut events = pin!(client.request_events::<Met>(request).await?);
            while let Some(Ok(event)) = events.next().await {
                version = match event {
                    WatchEvent::Added(met) | WatchEvent::Modified(met) | WatchEvent::Deleted(met) => {
                        met.metadata.resource_version.context("an object has a version")?
                    }
                    WatchEvent::Bookmark(mark) => mark.metadata.resource_version,
                    WatchEvent::Error(status) => bail!("the watch from {version}: {status:?}"),
                };
            }
        }
    }))
}

/// CPU time of a process until now.
fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/…/stat has a name")?;
    let field = |index: usize| -> anyhow::Result<u64> {
        let text = fields.split_whitespace().nth(index).context("/proc/…/stat is short")?;
        Ok(text.parse()?)
    };
    // In hundredths of a second, on every Linux.
    Ok(Duration::from_millis((field(11)? + field(12)?) * 10))
}

impl Stage {
    /// Starts a control plane, with so many Deployments for each side.
    pub async fn set_up(objects: usize) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(Options::bench("bench-scheduler")).await?;
        plane.kubectl(&["create", "namespace", OWN_NAMESPACE])?.ok().await?;
        for who in [product_identity(), raw_identity()] {
            let (name, user) = (who.user.replace(':', "-"), format!("--user={}", who.user));
            let call = [
                "create",
                "clusterrolebinding",
                &name,
                "--clusterrole=cluster-admin",
                &user,
            ];
            plane.kubectl(&call)?.ok().await?;
        }
        let crd = Command::new(offhours_binary()?).arg("crd").output()?;
        plane.apply(&String::from_utf8(crd.stdout)?).await?;
        let name = "crd/offhoursschedules.offhours.platform.io";
        plane
            .kubectl(&["wait", "--for=condition=Established", name])?
            .ok()
            .await?;
        plane
            .apply(&format!(
                "apiVersion: offhours.platform.io/v1alpha1\nkind: OffHoursSchedule\nmetadata: {{name: {SCHEDULE}}}\nspec: \
                 {{timeZone: UTC, uptime: [\"Mon-Sun 00:00-24:00\"]}}\n"
            ))
            .await?;
        let settings = ClientSettings {
            kubeconfig: Some(plane.kubeconfig_for(&raw_identity())?),
            ..ClientSettings::new("0.0.0")
        };
        let Clients {
            calls: raw, watches, ..
        } = Clients::connect(&settings).await?;
        let audit = plane.audit().await?;
        let mut stage = Self {
            plane,
            objects,
            raw,
            watches,
            raw_namespaces: Vec::new(),
            audit,
        };
        stage.raw_namespaces = stage.create("raw", objects, &[]).await?;
        let label = [("offhours.platform.io/schedule", SCHEDULE)];
        stage.create("ours", objects, &label).await?;
        Ok(stage)
    }

    async fn create(&self, prefix: &str, objects: usize, labels: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
        let began = Instant::now();
        let mut namespaces = Vec::new();
        for _ in 0..NAMESPACES {
            namespaces.push(self.plane.namespace(prefix, labels).await?);
        }
        let requests = (0..objects).zip(namespaces.iter().cycle()).map(|(number, namespace)| {
            let uri = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
            Ready::create(uri, &deployment(&format!("web-{number}")))
        });
        send_all(&self.raw, requests.collect(), 16).await?;
        say(&format!("{objects} Deployments made in {:.0?}", began.elapsed()))?;
        Ok(namespaces)
    }

    /// More Deployments, of nobody's.
    pub async fn add_bystanders(&self, objects: usize) -> anyhow::Result<()> {
        self.create("others", objects, &[]).await.map(drop)
    }

    /// The number of requests at a time that serves the raw loop best, of two rounds each.
    pub async fn best_concurrency(&self) -> anyhow::Result<usize> {
        let mut tried = [(0.0, 8), (0.0, 16), (0.0, 32), (0.0, 64)];
        for _ in 0..2 {
            for (seconds, concurrency) in &mut tried {
                for one in self.raw_both(*concurrency, Beside::Nothing).await? {
                    *seconds += one.seconds / 2.0;
                }
            }
        }
        for (seconds, concurrency) in tried {
            say(&format!(
                "raw loop, {concurrency} at a time: {seconds:.2} s down and up"
            ))?;
        }
        let best = tried.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
        best.map(|(_, concurrency)| concurrency).context("several are tried")
    }

    /// The raw loop, down and up.
    pub async fn raw_both(&self, concurrency: usize, beside: Beside) -> anyhow::Result<[Measured; 2]> {
        let watch = match beside {
            Beside::Nothing => None,
            Beside::Watch => Some(follow(self.watches.clone()).await?),
        };
        let both = [
            self.raw(Turn::Down, concurrency).await?,
            self.raw(Turn::Up, concurrency).await?,
        ];
        if let Some(watch) = watch {
            watch.abort();
            match watch.await {
                Ok(failed) => failed.map(drop).context("the watch beside the raw loop")?,
                Err(aborted) => ensure!(aborted.is_cancelled(), "{aborted}"),
            }
        }
        Ok(both)
    }

    /// The scheduler, down and up.
    pub async fn product_both(&self) -> anyhow::Result<[Measured; 2]> {
        let product = self.start_product().await?;
        let both = [
            self.ours(&product, Turn::Down).await?,
            self.ours(&product, Turn::Up).await?,
        ];
        product.stop().await?;
        Ok(both)
    }

    /// The raw loop, once over all of its objects.
    async fn raw(&self, turn: Turn, concurrency: usize) -> anyhow::Result<Measured> {
        let ready = bodies(&self.raw, &self.raw_namespaces, turn).await?;
        ensure!(ready.len() == self.objects, "{} bodies", ready.len());
        let mark = self.audit.mark().await?;
        let (began, worked) = (now(), cpu(std::process::id())?);
        send_all(&self.raw, ready, concurrency).await?;
        let worked = cpu(std::process::id())?.saturating_sub(worked);
        let user = raw_identity().user;
        let requests = self.audit.requests(&AuditQuery::new().since(mark).user(&user)).await?;
        self.measured(began, worked, &requests)
    }

    fn measured(&self, began: Timestamp, cpu: Duration, requests: &[AuditedRequest]) -> anyhow::Result<Measured> {
        let patches = requests
            .iter()
            .filter(|request| request.verb == "patch" && request.resource == "deployments");
        let last = patches.map(|request| request.answered).max();
        let last = last.context("no Deployment was patched")?;
        Ok(Measured {
            seconds: last.duration_since(began).as_secs_f64(),
            cpu_per_write: cpu.as_secs_f64() * 1e6 / self.objects as f64,
            requests: Requests::of(requests),
        })
    }

    /// Starts the scheduler and waits until it is ready and leads.
    pub async fn start_product(&self) -> anyhow::Result<Running> {
        let port = free_port()?;
        let ops = format!("127.0.0.1:{port}");
        let environment = [
            ("OFFHOURS_OPS_ADDRESS", ops.as_str()),
            ("POD_NAMESPACE", OWN_NAMESPACE),
            ("OFFHOURS_LOG_FORMAT", "text"),
        ];
        let product = Product::start(&self.plane, &product_identity(), &["scheduler"], &environment)?;
        product.wait_until_ready(port, "/readyz", PATIENCE).await?;
        let running = Running { product, port };
        running.until("leader", &[], 1).await?;
        // What follows the start (a status, a finalizer) is not what is measured.
        sleep(Duration::from_secs(2)).await;
        Ok(running)
    }

    async fn set(&self, windows: serde_json::Value) -> anyhow::Result<()> {
        let body = json!({ "spec": windows }).to_string();
        let call = ["patch", "offhoursschedule", SCHEDULE, "--type=merge", "-p", &body];
        self.plane.kubectl(&call)?.ok().await.map(drop)
    }

    /// The scheduler, once over all of its objects: from the moment that its schedule changes.
    async fn ours(&self, running: &Running, turn: Turn) -> anyhow::Result<Measured> {
        let whole = json!(["Mon-Sun 00:00-24:00"]);
        let (windows, purpose) = match turn {
            Turn::Down => (json!({"uptime": null, "downtime": whole}), "down"),
            Turn::Up => (json!({"uptime": whole, "downtime": null}), "restore"),
        };
        let before = running.writes(purpose).await?;
        let mark = self.audit.mark().await?;
        let worked = cpu(running.product.pid())?;
        self.set(windows).await?;
        running.until_writes(purpose, before + self.objects).await?;
        let worked = cpu(running.product.pid())?.saturating_sub(worked);
        let requests = self.requests_of_product(mark).await?;
        // The schedule's own write: from when the API server had answered it, nobody could know earlier.
        let schedule = AuditQuery::new()
            .since(mark)
            .verb("patch")
            .resource("offhoursschedules");
        let writes = self.audit.requests(&schedule.subresource("")).await?;
        let began = writes.iter().find(|request| request.user != product_identity().user);
        let began = began.context("the schedule was not changed")?.answered;
        self.measured(began, worked, &requests)
    }

    /// What the product sent.
    pub async fn requests_of_product(&self, mark: Mark) -> anyhow::Result<Vec<AuditedRequest>> {
        let query = AuditQuery::new().since(mark).user(&product_identity().user);
        self.audit.requests(&query).await
    }

    /// Waits until the product has patched so many Deployments; what it sent.
    async fn until_patched(&self, mark: Mark, wanted: usize) -> anyhow::Result<Vec<AuditedRequest>> {
        let began = Instant::now();
        loop {
            let requests = self.requests_of_product(mark).await?;
            let done = requests
                .iter()
                .filter(|request| request.resource == "deployments" && request.verb == "patch" && request.code == 200);
            let done = done.count();
            if done >= wanted {
                return Ok(requests);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{done} of {wanted} writes within {PATIENCE:?}"
            );
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Milliseconds from boundaries of the clock to the first write after them.
    pub async fn first_writes(&self, nights: usize) -> anyhow::Result<Vec<i64>> {
        let mut found = Vec::new();
        for _ in 0..nights {
            let minute = |later: i64| -> anyhow::Result<Timestamp> {
                let second = now().as_second().div_euclid(60) * 60 + later * 60;
                Ok(Timestamp::from_second(second)?)
            };
            // Not so near that it is over before the schedule is known.
            if minute(1)?.duration_since(now()) < SignedDuration::from_secs(20) {
                sleep(Duration::from_secs(20)).await;
            }
            let (down, up) = (minute(1)?, minute(2)?);
            let text = |at: Timestamp| at.strftime("%H:%M").to_string();
            let mark = self.audit.mark().await?;
            let window = format!("Mon-Sun {}-{}", text(down), text(up));
            self.set(json!({"uptime": null, "downtime": [window]})).await?;
            let requests = self.until_patched(mark, self.objects * 2).await?;
            for boundary in [down, up] {
                let first = requests
                    .iter()
                    .filter(|request| request.resource == "deployments" && request.verb == "patch")
                    .map(|request| request.received)
                    .filter(|at| *at >= boundary)
                    .min();
                let first = first.context("nothing was written after the boundary")?;
                found.push(first.duration_since(boundary).as_millis() as i64);
            }
        }
        Ok(found)
    }
}

/// The product, running.
pub struct Running {
    product: Product,
    port: u16,
}

impl Running {
    async fn sum(&self, name: &str, labels: &[&str]) -> anyhow::Result<usize> {
        let (status, text) = http_get(self.port, "/metrics").await?;
        ensure!(status == 200, "/metrics answers {status}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let fits = lines.filter(|line| line.contains(name) && labels.iter().all(|label| line.contains(label)));
        let values = fits.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum::<f64>() as usize)
    }

    async fn until(&self, name: &str, labels: &[&str], wanted: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.sum(name, labels).await? < wanted {
            if began.elapsed() > PATIENCE {
                bail!("{name} {labels:?} is not {wanted}; the log: {}", self.product.log());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn writes(&self, purpose: &str) -> anyhow::Result<usize> {
        let purpose = format!("purpose=\"{purpose}\"");
        self.sum("writes", &[&purpose, "result=\"done\""]).await
    }

    async fn until_writes(&self, purpose: &str, wanted: usize) -> anyhow::Result<()> {
        let purpose = format!("purpose=\"{purpose}\"");
        self.until("writes", &[&purpose, "result=\"done\""], wanted).await
    }

    /// Resident memory now and at its highest, in MB.
    pub fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{}/status", self.product.pid())))?;
        let of = |name: &str| -> anyhow::Result<u64> {
            let line = status.lines().find(|line| line.starts_with(name));
            let text = line.and_then(|line| line.split_whitespace().nth(1));
            Ok(text
                .with_context(|| format!("/proc/…/status has no {name}"))?
                .parse::<u64>()?
                / 1024)
        };
        Ok((of("VmRSS:")?, of("VmHWM:")?))
    }

    /// Ends it.
    pub async fn stop(self) -> anyhow::Result<()> {
        let status = self.product.terminate(PATIENCE).await?;
        ensure!(status.success(), "{status}: {}", self.product.log());
        Ok(())
    }
}
