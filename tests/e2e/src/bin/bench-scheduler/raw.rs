//! The raw loop, and the bodies that it sends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use cluster::call::call;
use http::{Request, header::CONTENT_TYPE};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use shared::{
    annotations::DownReplicas,
    kinds::Kinds,
    patch::{self, Preconditions},
    record::{self, Record},
    workload::{FIELD_MANAGER, Workload},
};
use tokio::task::JoinSet;

use crate::stage::Turn;

const LIMIT: Duration = Duration::from_secs(60);

/// One request, ready to be sent.
pub struct Ready {
    patch: bool,
    uri: String,
    body: Vec<u8>,
}

impl Ready {
    /// A POST.
    pub fn create(uri: impl Into<String>, object: &Value) -> Self {
        Self {
            patch: false,
            uri: uri.into(),
            body: object.to_string().into_bytes(),
        }
    }

    fn request(&self) -> anyhow::Result<Request<Body>> {
        let (builder, kind) = if self.patch {
            (Request::patch(&self.uri), "application/json-patch+json")
        } else {
            (Request::post(&self.uri), "application/json")
        };
        Ok(builder.header(CONTENT_TYPE, kind).body(Body::from(self.body.clone()))?)
    }
}

/// Sends all of them, so many at a time.
pub async fn send_all(client: &Client, ready: Vec<Ready>, concurrency: usize) -> anyhow::Result<()> {
    let (ready, next) = (Arc::new(ready), Arc::new(AtomicUsize::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..concurrency {
        let (client, ready, next) = (client.clone(), Arc::clone(&ready), Arc::clone(&next));
        workers.spawn(async move {
            while let Some(one) = ready.get(next.fetch_add(1, Ordering::Relaxed)) {
                call(&client, one.request()?, LIMIT)
                    .await
                    .with_context(|| format!("failed to send to {}", one.uri))?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

/// What the product would send now for these namespaces.
pub async fn bodies(client: &Client, namespaces: &[String], turn: Turn) -> anyhow::Result<Vec<Ready>> {
    let kinds = Kinds::default();
    let kind = kinds.by_kind("apps", "Deployment").context("Deployments are known")?;
    let mut ready = Vec::new();
    for namespace in namespaces {
        let uri = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let list = call(client, Request::get(&uri).body(Body::empty())?, LIMIT).await?;
        let list: Value = serde_json::from_slice(&list)?;
        for object in list.get("items").and_then(Value::as_array).into_iter().flatten() {
            let workload = shared::workload::parse(&kinds, kind, &serde_json::to_vec(object)?)?;
            let edits = match turn {
                Turn::Down => down(&workload)?,
                Turn::Up => up(&workload)?,
            };
            ready.push(Ready {
                patch: true,
                uri: format!("{uri}/{}?fieldManager={FIELD_MANAGER}", workload.name),
                body: serde_json::to_vec(&edits.patch(&workload, Preconditions::State))?,
            });
        }
    }
    Ok(ready)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a bench of real programs, whose clock is the machine's"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn down(workload: &Workload) -> anyhow::Result<patch::Edits> {
    let plan = record::plan(workload, DownReplicas::Count(0), None).context("it is down already")?;
    Ok(patch::down(workload, &plan, now()))
}

fn up(workload: &Workload) -> anyhow::Result<patch::Edits> {
    let record = Record::read(workload).context("it has no record")?;
    Ok(patch::restore(workload, &record, None, 1, now()))
}

/// A Deployment of about 8 KB.
pub fn deployment(name: &str) -> Value {
    let variables: Vec<Value> = (0..60)
        .map(|number| json!({"name": format!("SETTING_{number:03}"), "value": format!("{number:064}")}))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {"team": "bench"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/c:1", "env": variables}]},
            },
        },
    })
}
