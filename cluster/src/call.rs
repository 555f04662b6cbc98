//! One HTTP call to the API server, with its time limit and an error that tells what to do. Client required.

use std::{sync::Arc, time::Duration};

use http::{Request, Response, header::RETRY_AFTER};
use kube::{Client, client::Body};
use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout;

/// Why a call failed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CallError {
    /// The API server refused it.
    #[error("{code} {reason}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// `reason` of the Status, may be empty.
        reason: Arc<str>,
        /// `message` of the Status, or the beginning of the body.
        message: Arc<str>,
        /// What the server asks us to wait (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// No answer within this time; the outcome is unknown.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection failed; the outcome is unknown.
    #[error("connection failed: {0}")]
    Connection(Arc<str>),
    /// The answer could not be read.
    #[error("unable to read the answer: {0}")]
    Unreadable(Arc<str>),
}

impl CallError {
    /// HTTP status, if the API server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// A stable word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused { code, .. } => match code {
                400 => "bad-request",
                401 => "unauthorized",
                403 => "forbidden",
                404 => "not-found",
                409 => "conflict",
                410 => "expired",
                422 => "invalid",
                429 => "too-many-requests",
                500..=599 => "server-error",
                _ => "refused",
            },
            Self::TimedOut(_) => "timeout",
            Self::Connection(_) => "connection",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    details: Option<StatusDetails>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusDetails {
    retry_after_seconds: Option<u64>,
}

/// Longest text of a refusal that is kept; characters.
const MESSAGE_LIMIT: usize = 1024;

/// Reads a Status, as the body of a refusal or as the object of a watch's ERROR event.
pub fn refusal(http_code: Option<u16>, retry_after: Option<Duration>, body: &[u8]) -> CallError {
    let short = |text: &str| Arc::from(text.chars().take(MESSAGE_LIMIT).collect::<String>());
    match serde_json::from_slice::<StatusBody>(body) {
        Ok(status) => CallError::Refused {
            code: http_code.unwrap_or(status.code),
            reason: short(&status.reason),
            message: short(&status.message),
            retry_after: retry_after
                .or_else(|| Some(Duration::from_secs(status.details.as_ref()?.retry_after_seconds?)))
                .filter(|wait| !wait.is_zero()),
        },
        Err(_) => CallError::Refused {
            code: http_code.unwrap_or(500),
            reason: Arc::from(""),
            message: short(&String::from_utf8_lossy(body)),
            retry_after,
        },
    }
}

/// Sends a request and returns the whole body of a successful answer, all within `limit`.
pub async fn call(client: &Client, request: Request<Body>, limit: Duration) -> Result<bytes::Bytes, CallError> {
    let whole = async {
        let response = open(client, request).await?;
        response
            .into_body()
            .collect_bytes()
            .await
            .map_err(|error| connection(&error))
    };
    timeout(limit, whole).await.map_err(|_| CallError::TimedOut(limit))?
}

/// Sends a request and returns the answer when its head is there and successful. Without a time limit of its own.
pub(crate) async fn open(client: &Client, request: Request<Body>) -> Result<Response<Body>, CallError> {
    let response = client.send(request).await.map_err(|error| connection(&error))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs)
        .filter(|wait| !wait.is_zero());
    let body = response.into_body().collect_bytes().await.unwrap_or_default();
    Err(refusal(Some(code), retry_after, &body))
}

/// An error below HTTP, as that of a call.
pub fn connection(error: &kube::Error) -> CallError {
    CallError::Connection(Arc::from(with_causes(error)))
}

/// An error below HTTP, with its causes: the outermost text alone says only "client error".
pub fn with_causes(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
