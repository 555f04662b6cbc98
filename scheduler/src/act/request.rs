//! From an action to the HTTP request. No client required.

use http::{Request as HttpRequest, header::CONTENT_TYPE};
use kube::client::Body;
use serde_json::json;
use shared::workload::FIELD_MANAGER;

use crate::decide::action::{Request, Target};

/// The verb of RBAC.
pub(super) fn verb(request: &Request) -> &'static str {
    match request {
        Request::Patch { .. } => "patch",
        Request::Create(_) => "create",
        Request::Delete => "delete",
    }
}

/// `deployments.apps`, as RBAC and people name it.
pub(super) fn resource(target: &Target) -> String {
    let dot = if target.object.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", target.plural, target.object.group)
}

/// The request that carries an action out.
pub(super) fn build(target: &Target, request: &Request) -> Result<HttpRequest<Body>, String> {
    let object = &target.object;
    let root = if object.group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{}", object.group)
    };
    let place = if object.namespace.is_empty() {
        String::new()
    } else {
        format!("/namespaces/{}", object.namespace)
    };
    let collection = format!("{root}/{}{place}/{}", target.version, target.plural);
    let (builder, body) = match request {
        Request::Patch {
            body,
            subresource,
            dry_run,
        } => {
            let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
            let dry_run = if *dry_run { "&dryRun=All" } else { "" };
            let uri = format!(
                "{collection}/{}{subresource}?fieldManager={FIELD_MANAGER}{dry_run}",
                object.name
            );
            let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
            (
                HttpRequest::patch(uri).header(CONTENT_TYPE, "application/json-patch+json"),
                body,
            )
        }
        Request::Create(value) => {
            let body = serde_json::to_vec(value).map_err(|error| error.to_string())?;
            let uri = format!("{collection}?fieldManager={FIELD_MANAGER}");
            (HttpRequest::post(uri).header(CONTENT_TYPE, "application/json"), body)
        }
        Request::Delete => {
            let uid = Some(&*target.uid).filter(|uid| !uid.is_empty());
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
            let uri = format!("{collection}/{}", object.name);
            (
                HttpRequest::delete(uri).header(CONTENT_TYPE, "application/json"),
                options.to_string().into_bytes(),
            )
        }
    };
    builder.body(Body::from(body)).map_err(|error| error.to_string())
}
