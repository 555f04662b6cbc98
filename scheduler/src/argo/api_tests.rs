//! The HTTP API against a double that answers as Argo CD does.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse;
use cluster::store::Store;
use serde_json::{Value, json};
use shared::settings::{ArgoApi as Settings, ArgoToken, Secret};

use super::facts::{Application, application_ref};
use super::{ArgoApi, ArgoError};

const TOKEN: &str = "eyJ-very-secret";

/// One request: method, path with query, body.
type Asked = (String, String, Value);

#[derive(Clone, Default)]
struct Double {
    asked: Arc<Mutex<Vec<Asked>>>,
    /// What is answered next, before the usual.
    faults: Arc<Mutex<VecDeque<(u16, Value)>>>,
    applications: Arc<Mutex<Vec<Value>>>,
}

async fn answer(
    State(double): State<Double>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let said: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    double
        .asked
        .lock()
        .unwrap()
        .push((method.to_string(), uri.to_string(), said.clone()));
    let reply = |status: u16, body: Value| (StatusCode::from_u16(status).unwrap(), body.to_string());
    if headers["authorization"] != format!("Bearer {TOKEN}") {
        return reply(
            401,
            json!({"error": "invalid session", "code": 16, "message": "invalid session: token is expired"}),
        );
    }
    if method != Method::GET && headers.get("content-type").is_none_or(|it| it != "application/json") {
        return reply(415, json!({"message": "Invalid content type"}));
    }
    if let Some((status, body)) = double.faults.lock().unwrap().pop_front() {
        return reply(status, body);
    }
    let mut all = double.applications.lock().unwrap();
    let name = uri
        .path()
        .trim_start_matches("/api/v1/applications")
        .trim_matches('/')
        .to_owned();
    if name.is_empty() {
        let items = if all.is_empty() { Value::Null } else { json!(*all) };
        return reply(200, json!({"items": items, "metadata": {}}));
    }
    let name = name.trim_end_matches("/sync").trim_end_matches("/operation").to_owned();
    let Some(found) = all.iter_mut().find(|it| it["metadata"]["name"] == *name) else {
        return reply(403, json!({"code": 7, "message": "permission denied"}));
    };
    match method {
        Method::GET => reply(200, found.clone()),
        Method::PATCH => {
            let patch: json_patch::Patch = serde_json::from_str(said["patch"].as_str().unwrap()).unwrap();
            match json_patch::patch(found, &patch) {
                Ok(()) => reply(200, found.clone()),
                Err(error) => reply(500, json!({"code": 2, "message": error.to_string()})),
            }
        }
        _ => reply(200, json!({})),
    }
}

fn application(name: &str, namespace: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "argocd", "uid": format!("uid-{name}"), "resourceVersion": "7"},
        "spec": {"project": "team", "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
            "syncPolicy": {"automated": {"prune": true}}},
        "status": {"resources": []},
    })
}

async fn start(token: &str) -> (Double, ArgoApi) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let double = Double::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(double.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let settings = Settings {
        url,
        token: ArgoToken::Given(Secret::new(token)),
        insecure: false,
        authority_file: None,
        retries: 2,
        retry_base: Duration::from_millis(1),
        retry_max: Duration::from_millis(4),
    };
    (double, ArgoApi::new(&settings, None).unwrap())
}

fn store() -> Store<Application> {
    Store::new("argoproj.io", "Application", "applications", Arc::default())
}

#[tokio::test]
async fn what_concerns_the_namespaces_is_read_whole_and_every_call_names_namespace_and_project() {
    let (double, api) = start(TOKEN).await;
    *double.applications.lock().unwrap() = vec![
        application("shop", "shop"),
        application("other", "other"),
        application("named", "x"),
    ];
    let store = store();
    let places = BTreeSet::from([Arc::from("shop")]);
    let names = BTreeSet::from(["named".to_owned()]);
    assert_eq!(api.fill(&store, &places, &names).await, Ok(2));
    assert!(store.get("argocd", "shop").unwrap().is_automated());
    assert!(store.get("argocd", "other").is_none());
    let asked = double.asked.lock().unwrap().clone();
    assert!(
        asked[0]
            .1
            .starts_with("/api/v1/applications?fields=items.metadata.name,"),
        "{asked:?}"
    );
    for (_, path, _) in &asked[1..] {
        assert!(path.ends_with("?appNamespace=argocd&project=team"), "{path}");
    }
    assert_eq!(asked.len(), 3, "each request once");
}

#[tokio::test]
async fn no_applications_are_no_answer() {
    let (_, api) = start(TOKEN).await;
    assert_eq!(api.list().await, Err(ArgoError::NothingListed));
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_not() {
    for (faults, calls, good) in [
        (vec![(429, json!({})), (503, json!({"code": 14}))], 3, true),
        (vec![(500, json!({"code": 13}))], 2, true),
        (vec![(500, json!({"code": 2, "message": "test failed"}))], 1, false),
        (vec![(400, json!({"code": 3}))], 1, false),
        (vec![(502, json!({})); 3], 3, false),
    ] {
        let (double, api) = start(TOKEN).await;
        *double.applications.lock().unwrap() = vec![application("shop", "shop")];
        *double.faults.lock().unwrap() = faults.into();
        let patch = serde_json::from_value(json!([{"op": "remove", "path": "/spec/syncPolicy/automated"}])).unwrap();
        let outcome = api.patch(&application_ref("argocd", "shop"), &patch).await;
        assert_eq!(outcome.is_ok(), good, "{outcome:?}");
        assert_eq!(double.asked.lock().unwrap().len(), calls, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_sync_is_posted_after_the_patch_and_another_operation_is_as_good() {
    let (double, api) = start(TOKEN).await;
    *double.applications.lock().unwrap() = vec![application("shop", "shop")];
    let patch = serde_json::from_value(json!([
        {"op": "replace", "path": "/spec/syncPolicy/automated", "value": {"prune": true, "enabled": false}},
        {"op": "add", "path": "/operation", "value": {"sync": {}}},
    ]));
    let shop = application_ref("argocd", "shop");
    api.patch(&shop, &patch.unwrap()).await.unwrap();
    let asked = double.asked.lock().unwrap().clone();
    let calls: Vec<_> = asked
        .iter()
        .map(|(method, path, _)| format!("{method} {}", path.split('?').next().unwrap()))
        .collect();
    assert_eq!(
        calls,
        ["PATCH /api/v1/applications/shop", "POST /api/v1/applications/shop/sync"]
    );
    assert_eq!(asked[0].2["patchType"], "json");
    assert!(!asked[0].2["patch"].as_str().unwrap().contains("/operation"));
    assert_eq!(
        (&asked[1].2["prune"], &asked[1].2["dryRun"]),
        (&json!(false), &json!(false))
    );
    let busy = json!({"code": 9, "message": "another operation is already in progress"});
    double.faults.lock().unwrap().push_back((400, busy));
    assert_eq!(api.sync(&shop).await, Ok(()));
}

#[tokio::test]
async fn the_end_of_an_operation_is_asked_for_as_argo_cd_wants_it_and_one_that_is_over_is_as_good() {
    let (double, api) = start(TOKEN).await;
    *double.applications.lock().unwrap() = vec![application("shop", "shop")];
    let patch = serde_json::from_value(json!([
        {"op": "test", "path": "/status/operationState/phase", "value": "Running"},
        {"op": "replace", "path": "/status/operationState/phase", "value": "Terminating"},
    ]));
    let (shop, patch) = (application_ref("argocd", "shop"), patch.unwrap());
    for over in [false, true] {
        if over {
            let message = "Unable to terminate operation. No operation is in progress";
            let answer = json!({"code": 3, "message": message});
            double.faults.lock().unwrap().push_back((400, answer));
        }
        let answer = api.patch(&shop, &patch).await.unwrap();
        let known = Application::read(&serde_json::from_slice(&answer).unwrap()).unwrap();
        assert_eq!(known.reference(), shop);
        let asked = std::mem::take(&mut *double.asked.lock().unwrap());
        let methods: Vec<_> = asked
            .iter()
            .map(|(method, path, _)| (method.as_str(), path.contains("/shop/operation?")))
            .collect();
        assert_eq!(methods, [("DELETE", true), ("GET", false)]);
    }
}

#[tokio::test]
async fn an_expired_token_is_named_and_never_shown() {
    let (_, api) = start("eyJ-old-secret").await;
    let error = api.list().await.unwrap_err();
    let told = format!("{error} {error:?} {api:?}");
    assert!(matches!(error, ArgoError::TokenExpired(_)));
    assert!(told.contains("ARGO_TOKEN"), "{told}");
    assert!(!told.contains("old-secret"), "{told}");
}

#[tokio::test]
async fn what_may_not_be_seen_is_no_error_and_a_server_that_is_not_there_is() {
    let (_, api) = start(TOKEN).await;
    assert_eq!(api.get(&application_ref("argocd", "unknown")).await, Ok(None));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let settings = Settings {
        url,
        token: ArgoToken::Given(Secret::new(TOKEN)),
        insecure: true,
        authority_file: None,
        retries: 1,
        retry_base: Duration::from_millis(1),
        retry_max: Duration::from_millis(1),
    };
    let error = ArgoApi::new(&settings, None).unwrap().list().await.unwrap_err();
    assert!(matches!(error, ArgoError::Unreachable { .. }), "{error}");
}
