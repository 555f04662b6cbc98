//! One control plane, one proxy, one product: nights with a fault in them.

use std::collections::BTreeSet;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use harness::{AuditQuery, ControlPlane, Fault, Identity, Options, Product, Proxy, SOON, wait_for};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use shared::{
    api::definition,
    kinds::Kinds,
    rules::rights::{Part, Place, Right, rights},
};
use tokio::task::JoinHandle;

use super::worlds::{APPLICATION, DEPLOYMENT, ENGINE, Night, SETTINGS, Sort, Thing, World};

const OWN_NAMESPACE: &str = "offhours-system";
/// Who the product is; its calls are held against what the roles grant.
const WHO: &str = "product";
/// The longest wait of the product's own is a minute's part; the rest is a busy machine.
const LATER: Duration = Duration::from_secs(120);
/// Written by controllers at each change.
const OF_CONTROLLERS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
];

/// An object in the cluster.
struct Placed {
    what: String,
    api: Api<DynamicObject>,
    name: String,
    night: Night,
    day: Value,
}

/// How a closing or an opening ended.
pub struct Ended {
    /// The writes that it took.
    pub writes: usize,
    /// Whether the fault was met.
    pub struck: bool,
}

pub struct Lane {
    plane: ControlPlane,
    client: Client,
    proxy: Proxy,
    product: Product,
    schedules: Vec<String>,
    placed: Vec<Placed>,
    settings: String,
    healers: Vec<JoinHandle<()>>,
    /// Times that Argo CD would have undone a sleep.
    heals: Arc<AtomicU32>,
    world: &'static str,
    started: Instant,
    nights: u32,
}

fn resource(client: &Client, kind: Sort, namespace: Option<&str>) -> Api<DynamicObject> {
    let row = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let row = ApiResource::from_gvk_with_plural(&row, kind.plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &row),
        None => Api::all_with(client.clone(), &row),
    }
}

const DEFINITION: Sort = Sort {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};
const SCHEDULE: Sort = Sort {
    group: "offhours.platform.io",
    version: "v1alpha1",
    kind: "OffHoursSchedule",
    plural: "offhoursschedules",
};

/// What of an object its owner wrote.
fn written(object: &DynamicObject) -> Value {
    let mut annotations = object.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !OF_CONTROLLERS.contains(&key.as_str()));
    json!({
        "labels": object.metadata.labels, "annotations": annotations, "owners": object.metadata.owner_references,
        "finalizers": object.metadata.finalizers, "spec": object.data["spec"],
    })
}

/// Self-heal of Argo CD: what is automated is put back. Counted, for it must never have a reason.
async fn heal(
    applications: Api<DynamicObject>,
    deployments: Api<DynamicObject>,
    replicas: Value,
    heals: Arc<AtomicU32>,
) {
    let mut beat = tokio::time::interval(Duration::from_millis(300));
    loop {
        beat.tick().await;
        let Ok(shop) = applications.get("shop").await else {
            continue;
        };
        let automated = &shop.data["spec"]["syncPolicy"]["automated"];
        let Ok(web) = deployments.get("web").await else {
            continue;
        };
        if automated.is_object() && automated["enabled"] != false && web.data["spec"]["replicas"] != replicas {
            heals.fetch_add(1, Ordering::SeqCst);
            let git = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let _ = deployments.patch("web", &PatchParams::default(), &git).await;
        }
    }
}

impl Lane {
    pub async fn start(world: World) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(Options {
            controllers: world.controllers,
            feature_gates: world.feature_gates.clone(),
            ..Options::named(&format!("faults-{}", world.name))
        })
        .await?;
        let client = plane.admin().await?;
        let definitions = resource(&client, DEFINITION, None);
        for definition in world.definitions.iter().chain([&serde_json::to_value(definition())?]) {
            definitions
                .create(&PostParams::default(), &serde_json::from_value(definition.clone())?)
                .await
                .with_context(|| format!("failed to define {}", definition["metadata"]["name"]))?;
        }
        plane.kubectl(&["create", "namespace", OWN_NAMESPACE])?.ok().await?;
        let settings = plane.folder().join("settings.yaml");
        std::fs::write(&settings, SETTINGS)?;
        let who = Identity::user(WHO, &["system:masters"]);
        let proxy = Proxy::start(&plane, &who).await?;
        let settings = settings.display().to_string();
        let product = launch(&plane, &proxy, &settings)?;
        let mut lane = Self {
            plane,
            client,
            proxy,
            product,
            schedules: Vec::new(),
            placed: Vec::new(),
            settings,
            healers: Vec::new(),
            heals: Arc::default(),
            world: world.name,
            started: Instant::now(),
            nights: 0,
        };
        for part in world.parts {
            lane.add_schedule(part.name, &part.spec).await?;
            let namespace = lane
                .plane
                .namespace(part.name, &[("offhours.platform.io/schedule", part.name)])
                .await?;
            for thing in part.things {
                lane.add(&namespace, thing).await?;
            }
        }
        lane.becomes(false).await?;
        Ok(lane)
    }

    async fn add_schedule(&mut self, name: &str, spec: &Value) -> anyhow::Result<()> {
        let mut object = json!({"apiVersion": "offhours.platform.io/v1alpha1", "kind": "OffHoursSchedule",
            "metadata": {"name": name}, "spec": {"timeZone": "UTC", "unfinishedRollouts": "Sleep"}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        let object = serde_json::from_value(object)?;
        let schedules = resource(&self.client, SCHEDULE, None);
        // Its definition may be served only in a moment.
        wait_for("the schedule to be taken", SOON, || async {
            schedules
                .create(&PostParams::default(), &object)
                .await
                .context("not taken")
        })
        .await?;
        self.schedules.push(name.to_owned());
        Ok(())
    }

    async fn add(&mut self, namespace: &str, thing: Thing) -> anyhow::Result<()> {
        let text = thing.manifest.to_string().replace("NAMESPACE", namespace);
        let manifest: DynamicObject = serde_json::from_str(&text)?;
        let api = resource(&self.client, thing.kind, Some(namespace));
        let name = manifest.metadata.name.clone().context("a thing has a name")?;
        let what = format!("{} {namespace}/{name}", thing.kind.kind);
        let made = wait_for(&format!("{what} to be taken"), SOON, || async {
            api.create(&PostParams::default(), &manifest).await.context("not taken")
        })
        .await?;
        if thing.kind.kind == APPLICATION.kind {
            let deployments = resource(&self.client, DEPLOYMENT, Some(namespace));
            let replicas = deployments.get("web").await?.data["spec"]["replicas"].clone();
            let heals = Arc::clone(&self.heals);
            self.healers
                .push(tokio::spawn(heal(api.clone(), deployments, replicas, heals)));
        }
        let day = written(&made);
        self.placed.push(Placed {
            what,
            api,
            name,
            night: thing.night,
            day,
        });
        Ok(())
    }

    /// Moves the schedules so that it is night, or day, from now on, with a fault at the n-th write; waits until all is as it
    /// should be then.
    pub async fn phase(&mut self, night: bool, fault: Option<(Fault, usize)>) -> anyhow::Result<Ended> {
        let name = if night { "closing" } else { "opening" };
        self.nights += u32::from(night);
        self.pass(night, fault).await.with_context(|| {
            let writes: Vec<String> = self
                .proxy
                .log()
                .iter()
                .rev()
                .take(30)
                .map(|write| format!("{write:?}"))
                .collect();
            format!(
                "night {}, {name}, {fault:?}; logs in {}; last writes:\n{}",
                self.nights,
                self.plane.folder().display(),
                writes.join("\n")
            )
        })
    }

    async fn pass(&mut self, night: bool, fault: Option<(Fault, usize)>) -> anyhow::Result<Ended> {
        let mut strikes = self.proxy.strikes();
        strikes.mark_unchanged();
        match fault {
            Some((fault, nth)) => self.proxy.arm(fault, nth),
            None => drop(self.proxy.disarm()),
        }
        let window = if night {
            json!(["Mon-Sun 00:00-24:00"])
        } else {
            Value::Null
        };
        let patch = Patch::Merge(json!({"spec": {"downtime": window}}));
        let schedules = resource(&self.client, SCHEDULE, None);
        for schedule in &self.schedules {
            schedules.patch(schedule, &PatchParams::default(), &patch).await?;
        }
        let mut struck = tokio::select! {
            biased;
            struck = strikes.changed() => struck.is_ok(),
            outcome = self.becomes(night) => {
                outcome?;
                false
            }
        };
        // The effect of a write can be seen before its fault has happened.
        if !struck && self.proxy.is_met() {
            tokio::time::timeout(SOON, strikes.changed()).await??;
            struck = true;
        }
        if struck {
            if fault.is_some_and(|(fault, _)| fault.is_death()) {
                self.product.kill()?;
                self.proxy.revive();
                self.product = launch(&self.plane, &self.proxy, &self.settings)?;
            }
            self.becomes(night).await?;
        }
        let heals = self.heals.load(Ordering::SeqCst);
        ensure!(heals == 0, "Argo CD had {heals} reasons to put replicas back");
        Ok(Ended {
            writes: self.proxy.disarm(),
            struck,
        })
    }

    /// Waits until everything is as it should be by night, or exactly as it was before, with nothing of ours left.
    async fn becomes(&self, night: bool) -> anyhow::Result<()> {
        let backups: Api<ConfigMap> = Api::namespaced(self.client.clone(), OWN_NAMESPACE);
        let backups_of_ours = ListParams::default().labels("offhours.platform.io/type");
        wait_for(
            if night { "all to sleep" } else { "all to be as it was" },
            LATER,
            || async {
                if let Err(ended) = self.product.check_running() {
                    return Ok(Err(ended));
                }
                for placed in &self.placed {
                    let object = placed.api.get_opt(&placed.name).await?;
                    placed.check(night, object.as_ref())?;
                }
                if !night {
                    let left = backups.list_metadata(&backups_of_ours).await?.items;
                    ensure!(left.is_empty(), "{} backups are left", left.len());
                }
                Ok(Ok(()))
            },
        )
        .await?
    }

    /// What a run has shown, for people.
    #[allow(clippy::print_stdout, reason = "the figures of a long run")]
    pub fn report(&self, what: &str) {
        println!("faults: {}: {what}, {} s", self.world, self.started.elapsed().as_secs());
    }

    /// Every call that was made, be it refused, is one that the roles grant, and so is every feature's.
    async fn case_7_02_what_is_called_is_what_roles_grant(&self) -> anyhow::Result<()> {
        let granted = rights(&Kinds::default());
        let audit = self.plane.audit().await?;
        let mut calls = audit.requests(&AuditQuery::new().user(WHO).with_dry_runs()).await?;
        // A kind of the user's own gets its rights from the user's values.
        calls.retain(|call| !call.resource.is_empty() && call.group != ENGINE.group);
        ensure!(calls.len() > 20, "only {} calls are in the audit log", calls.len());
        let mut missing = BTreeSet::new();
        for call in &calls {
            let mut resource = call.resource.clone();
            if !call.subresource.is_empty() {
                resource = format!("{resource}/{}", call.subresource);
            }
            let covers = |right: &&Right| {
                right.parts.contains(&Part::Scheduler)
                    && (right.group == call.group && right.resource == resource)
                    && right.verbs.contains(&call.verb.as_str())
                    && (right.place != Place::Own || call.namespace == OWN_NAMESPACE)
            };
            if !granted.iter().any(|right| covers(&right)) {
                missing.insert(format!(
                    "{} {resource}.{} in {:?}",
                    call.verb, call.group, call.namespace
                ));
            }
        }
        ensure!(missing.is_empty(), "called, and granted by no role: {missing:#?}");
        Ok(())
    }

    /// A last good end.
    pub async fn end(self) -> anyhow::Result<()> {
        self.healers.iter().for_each(JoinHandle::abort);
        self.case_7_02_what_is_called_is_what_roles_grant().await?;
        let status = self.product.terminate(SOON).await?;
        if !status.success() {
            bail!("the product ended with {status}");
        }
        Ok(())
    }
}

/// Starts the product behind the proxy, with a lease that is soon over and calls that are soon given up.
fn launch(plane: &ControlPlane, proxy: &Proxy, settings: &str) -> anyhow::Result<Product> {
    Product::start_with(
        plane,
        proxy.kubeconfig(),
        &[
            "scheduler",
            "--settings",
            settings,
            "--own-namespace",
            OWN_NAMESPACE,
            "--ops-address=off",
            "--log-level=info,scheduler=debug",
            "--lease-duration=2s",
            "--lease-renew-deadline=1700ms",
            "--lease-retry-period=100ms",
            "--lease-call-timeout=500ms",
            "--write-timeout=300ms",
        ],
        &[],
    )
}

impl Placed {
    fn check(&self, night: bool, object: Option<&DynamicObject>) -> anyhow::Result<()> {
        let what = &self.what;
        let fields = match (night, &self.night) {
            (true, Night::Gone) => {
                ensure!(object.is_none(), "{what} is still there");
                return Ok(());
            }
            (true, Night::Fields(fields)) => Some(fields),
            (false, _) => None,
        };
        let object = object.with_context(|| format!("{what} is gone"))?;
        let Some(fields) = fields else {
            let now = written(object);
            ensure!(now == self.day, "{what} was {} and is {now}", self.day);
            return Ok(());
        };
        let whole = serde_json::to_value(object)?;
        for (pointer, wanted) in fields {
            let value = whole.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(value == wanted, "{what}: {pointer} is {value}, not {wanted}");
        }
        Ok(())
    }
}
