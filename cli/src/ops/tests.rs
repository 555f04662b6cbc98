use axum::body::Body;
use axum::http::Request;
use prometheus_client::metrics::counter::Counter;
use tower::ServiceExt;

use super::*;

async fn ask(ops: &Ops, path: &str) -> (StatusCode, String, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = router(ops.clone()).oneshot(request).await.unwrap();
    let status = answer.status();
    let kind = answer.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, kind, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn alive_says_nothing_about_readiness() {
    let ops = Ops {
        gates: Gates::default(),
        alive: Gates::default(),
        registry: Arc::new(Registry::default()),
    };
    ops.gates.add("view", || Err("nothing is listed yet".to_owned()));
    assert_eq!(ask(&ops, "/healthz").await.0, StatusCode::OK);
    let (status, _, text) = ask(&ops, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text, "[-] view: nothing is listed yet\n");
    ops.alive.add("credentials", || Err("refused".to_owned()));
    let (status, _, text) = ask(&ops, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text, "[-] credentials: refused\n");
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let mut registry = Registry::with_prefix("offhours");
    let counter = Counter::<u64>::default();
    registry.register("things", "Things that happened", counter.clone());
    counter.inc();
    let ops = Ops {
        gates: Gates::default(),
        alive: Gates::default(),
        registry: Arc::new(registry),
    };
    let (status, kind, text) = ask(&ops, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(
        text.contains("offhours_things_total 1\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = listen(address, "probes", "ops-address", "OFFHOURS_OPS_ADDRESS")
        .await
        .unwrap_err();
    let text = format!("{error:#}");
    for part in [
        address.to_string().as_str(),
        "--ops-address",
        "OFFHOURS_OPS_ADDRESS",
        "in use",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
