//! Memory of a View of many large Deployments: how much it keeps, and how much more it takes while it lists anew.
//!
//! `cargo run --release -p cluster --example memory -- 20000 12` prints one line per relist. The API server is made up in
//! process, page by page, so its own share is one page of text.

use std::{convert::Infallible, io::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use cluster::{
    follow::{Follower, Scope},
    reflector::Pace,
    store::SourceState,
};
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use shared::kinds::Kinds;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn deployment(number: usize, padding: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"app-{number}","namespace":"team-{}","uid":"00000000-0000-0000-0000-{number:012}","resourceVersion":"{number}","generation":3,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"app-{number}","team":"team-{}","tier":"web","app.kubernetes.io/managed-by":"Helm"}},"annotations":{{"deployment.kubernetes.io/revision":"3","offhours.platform.io/startup-order":"10","kubectl.kubernetes.io/last-applied-configuration":"{padding}"}},"managedFields":[{{"manager":"kubectl","operation":"Update","fieldsV1":{{"f:spec":{{"f:replicas":{{}},"f:template":{{"f:spec":{{"f:x":"{padding}"}}}}}}}}}}]}},"spec":{{"replicas":3,"template":{{"spec":{{"containers":[{{"name":"c","image":"i","args":["{padding}"]}}]}}}}}},"status":{{"observedGeneration":3,"replicas":3,"readyReplicas":3,"availableReplicas":3,"updatedReplicas":3,"conditions":[{{"type":"Available","status":"True","reason":"MinimumReplicasAvailable","message":"Deployment has minimum availability.","lastUpdateTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#,
        number % 200,
        number % 200
    )
}

fn page(uri: &http::Uri, total: usize, padding: &str) -> String {
    let query = uri.query().unwrap_or_default();
    let value = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let (from, limit) = (
        value("continue").and_then(|text| text.parse().ok()).unwrap_or(0_usize),
        value("limit").and_then(|text| text.parse().ok()).unwrap_or(total),
    );
    let total = if uri.path().ends_with("/deployments") { total } else { 0 };
    let end = (from + limit).min(total);
    let next = if end < total { end.to_string() } else { String::new() };
    let items: Vec<String> = (from..end).map(|number| deployment(number, padding)).collect();
    format!(
        r#"{{"metadata":{{"resourceVersion":"900000","continue":"{next}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

/// Lists at once; a watch ends as too old after a while, so that everything is listed anew.
fn serve(request: &Request<Body>, total: usize, padding: &str) -> Answer {
    let uri = request.uri();
    if !uri.query().unwrap_or_default().contains("watch=true") {
        return Response::new(Full::new(Bytes::from(page(uri, total, padding))).boxed_unsync());
    }
    let lines = stream::unfold(0, |step| async move {
        if step > 0 {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        Some((Ok(Frame::data(Bytes::from(format!("{line}\n")))), step + 1))
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

/// Resident memory in MB: now, and the most so far.
fn memory() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok())
            .unwrap_or(0.0)
            / 1024.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (total, kilobytes) = (number(20_000), number(12));
    // A third each in the annotation, in managedFields and in the template.
    let padding: Arc<str> = "x".repeat(kilobytes * 1024 / 3 - 500).into();
    let service = tower::service_fn(move |request: Request<Body>| {
        let padding = Arc::clone(&padding);
        async move { Ok::<_, Infallible>(serve(&request, total, &padding)) }
    });
    let mut out = std::io::stdout();
    let (before, _) = memory();
    writeln!(out, "before: {before:.1} MB")?;
    let follower = Follower::start(
        Client::new(service, "default"),
        Kinds::default(),
        Scope::Cluster,
        Pace::default(),
    );
    let view = Arc::clone(follower.view());
    if let Some(kind) = view.kinds().by_kind("apps", "Deployment") {
        follower.follow_kind(&Arc::clone(kind));
    }
    let Some(store) = view.workloads("apps", "Deployment") else {
        return Ok(());
    };
    while store.state() != SourceState::Filled {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (filled, peak) = memory();
    writeln!(
        out,
        "filled with {} objects of {kilobytes} KB: {filled:.1} MB, most so far {peak:.1} MB",
        store.len()
    )?;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(8)).await;
        let (steady, peak) = memory();
        writeln!(
            out,
            "after a relist: {steady:.1} MB, most so far {peak:.1} MB ({:.2} x)",
            peak / steady
        )?;
    }
    Ok(())
}
