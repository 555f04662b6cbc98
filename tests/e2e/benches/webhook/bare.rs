//! The yardstick: the leanest server on the same libraries that can answer at all. It reads a review's uid and nothing else.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::tls_rustls::RustlsConfig;
use harness::Program;
use serde::Deserialize;

/// Where the server looks for the port and the folder of its certificate.
const VARIABLE: &str = "OFFHOURS_BENCH_BARE";

/// What the webhook answers to a raise of a sleeping Deployment: knob, record, label.
const PATCH: &str = r#"[{"op":"replace","path":"/spec/replicas","value":0},{"op":"replace","path":"/metadata/annotations/offhours.platform.io~1original-replicas","value":"5"},{"op":"replace","path":"/metadata/labels/offhours.platform.io~1asleep","value":"5"}]"#;
const ZERO: &str = r#"[{"op":"replace","path":"/spec/replicas","value":0}]"#;

/// The path that answers with [`PATCH`].
pub const HELD: &str = "/held";
/// The path that answers with [`ZERO`].
pub const SCALE: &str = "/scale";
/// The path that lets everything pass.
pub const PASS: &str = "/pass";

pub struct Bare {
    port: u16,
    folder: PathBuf,
}

/// The server that this process is to be, if any.
pub fn asked_for() -> anyhow::Result<Option<Bare>> {
    let Ok(text) = std::env::var(VARIABLE) else {
        return Ok(None);
    };
    let (port, folder) = text.split_once(' ').context("no port and folder")?;
    Ok(Some(Bare {
        port: port.parse()?,
        folder: folder.into(),
    }))
}

/// This program again, as that server. The folder has `bare.crt` and `bare.key`.
pub fn program(port: u16, folder: &std::path::Path) -> anyhow::Result<Program> {
    Ok(Program::new(std::env::current_exe()?).env(VARIABLE, format!("{port} {}", folder.display())))
}

#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: &'a str,
}

fn answer(body: &Bytes, more: &str) -> Response {
    match serde_json::from_slice::<Review<'_>>(body) {
        Ok(review) => {
            let uid = review.request.uid;
            let text = format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true{more}}}}}"#
            );
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

fn patching(patch: &str) -> String {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    format!(r#","patchType":"JSONPatch","patch":"{patch}""#)
}

impl Bare {
    pub async fn serve(self) -> anyhow::Result<()> {
        let constant = |more: String| post(move |body: Bytes| std::future::ready(answer(&body, &more)));
        let router = Router::new()
            .route(HELD, constant(patching(PATCH)))
            .route(SCALE, constant(patching(ZERO)))
            .route(PASS, constant(String::new()))
            // Three objects of the API server's limit are no more than that.
            .layer(axum::extract::DefaultBodyLimit::max(7 * 1024 * 1024));
        let certificate =
            RustlsConfig::from_pem_file(self.folder.join("bare.crt"), self.folder.join("bare.key")).await?;
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        axum_server::bind_rustls(address, certificate)
            .serve(router.into_make_service())
            .await?;
        Ok(())
    }
}
