//! `AdmissionReview` v1, as it goes over the wire: our own lean types, so that the format is wholly under test.
//!
//! The objects in a request stay text until somebody knows which of their fields are needed. No client required.

mod text;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

pub use text::Text;

/// The only version that we register for.
pub const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What the API server sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    request: Option<Request<'a>>,
}

/// One admission request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Names this call; echoed in the answer.
    #[serde(borrow, default)]
    pub uid: Text<'a>,
    /// Of the object below. (What the client spoke of is in `requestKind`, which decides nothing.)
    #[serde(borrow, default)]
    pub kind: GroupVersionKind<'a>,
    /// Of the object below.
    #[serde(borrow, default)]
    pub resource: GroupVersionResource<'a>,
    /// `scale`, or nothing.
    #[serde(borrow, default)]
    pub sub_resource: Text<'a>,
    /// Name. Empty in a CREATE with `generateName`.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    /// Namespace. Empty for what has none.
    #[serde(borrow, default)]
    pub namespace: Text<'a>,
    /// What is to happen.
    #[serde(borrow, default)]
    pub operation: Text<'a>,
    /// Who asks.
    #[serde(borrow, default)]
    pub user_info: UserInfo<'a>,
    /// The new object; none on DELETE.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The present object; none on CREATE.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// Nothing may be written because of this request.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// Options of the request.
    #[serde(borrow, default)]
    pub options: Option<Options<'a>>,
}

impl Request<'_> {
    /// Whether this is a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or(false)
    }

    /// The field manager that the client named.
    pub fn field_manager(&self) -> &str {
        self.options.as_ref().map_or("", |options| &options.field_manager)
    }
}

/// Group, version and kind.
#[derive(Debug, Default, Deserialize)]
pub struct GroupVersionKind<'a> {
    /// API group.
    #[serde(borrow, default)]
    pub group: Text<'a>,
    /// API version.
    #[serde(borrow, default)]
    pub version: Text<'a>,
    /// Kind.
    #[serde(borrow, default)]
    pub kind: Text<'a>,
}

/// Group, version and resource.
#[derive(Debug, Default, Deserialize)]
pub struct GroupVersionResource<'a> {
    /// API group.
    #[serde(borrow, default)]
    pub group: Text<'a>,
    /// API version.
    #[serde(borrow, default)]
    pub version: Text<'a>,
    /// Resource name.
    #[serde(borrow, default)]
    pub resource: Text<'a>,
}

/// Who asks, as the API server authenticated them.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo<'a> {
    /// User name.
    #[serde(borrow, default)]
    pub username: Text<'a>,
    /// UID.
    #[serde(borrow, default)]
    pub uid: Text<'a>,
    /// Groups.
    #[serde(borrow, default, deserialize_with = "text::list")]
    pub groups: Vec<Text<'a>>,
}

/// Of `CreateOptions`, `UpdateOptions` and `PatchOptions` the one field that we read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Options<'a> {
    /// The field manager that the client named.
    #[serde(borrow, default)]
    pub field_manager: Text<'a>,
}

/// Why a body is no request that can be judged.
#[derive(Debug, Error)]
pub enum DecodeReview {
    /// It is no `AdmissionReview` at all: a 4xx is the answer.
    #[error("failed to read the body as an AdmissionReview of {API_VERSION}: {0}")]
    NoReview(String),
    /// It names itself, but cannot be read: it still gets an answer.
    #[error("failed to read the review {uid:?}: {why}")]
    Unreadable {
        /// Its uid.
        uid: String,
        /// What is wrong.
        why: String,
    },
}

/// Reads a body.
pub fn decode(body: &[u8]) -> Result<Request<'_>, DecodeReview> {
    let review: Review<'_> = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return Err(explain(body, &error)),
    };
    if &*review.kind != KIND || &*review.api_version != API_VERSION {
        return Err(DecodeReview::NoReview(format!(
            "it is a {:?} of {:?}",
            text::short(&review.kind),
            text::short(&review.api_version)
        )));
    }
    match review.request {
        Some(request) if !request.uid.is_empty() => Ok(request),
        Some(_) => Err(DecodeReview::NoReview("its request has no uid".to_owned())),
        None => Err(DecodeReview::NoReview("it has no request".to_owned())),
    }
}

/// A body that did not parse: whether it names itself all the same.
#[cold]
fn explain(body: &[u8], error: &serde_json::Error) -> DecodeReview {
    let why = error.to_string();
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
        return DecodeReview::NoReview(why);
    };
    let is_review = value.get("kind").and_then(serde_json::Value::as_str) == Some(KIND)
        && value.get("apiVersion").and_then(serde_json::Value::as_str) == Some(API_VERSION);
    match value.pointer("/request/uid").and_then(serde_json::Value::as_str) {
        Some(uid) if is_review && !uid.is_empty() => DecodeReview::Unreadable {
            uid: uid.to_owned(),
            why,
        },
        _ => DecodeReview::NoReview(why),
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What a person reads.
    pub message: String,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// Present: refused.
    pub denial: Option<Denial>,
    /// What to change. Empty: nothing.
    pub patch: Patch,
    /// What else a person reads.
    pub warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    #[serde(rename = "status")]
    result: &'static str,
    message: &'a str,
    reason: &'static str,
    code: u16,
}

/// Writes an answer. A refusal is always 403 Forbidden: of a 409, clients would make retries for minutes.
pub fn encode(uid: &str, answer: &Answer) -> Vec<u8> {
    let patch = (answer.denial.is_none() && !answer.patch.0.is_empty())
        .then(|| serde_json::to_vec(&answer.patch).ok())
        .flatten()
        .map(|operations| STANDARD.encode(operations));
    let envelope = Envelope {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid,
            allowed: answer.denial.is_none(),
            status: answer.denial.as_ref().map(|denial| Status {
                result: "Failure",
                message: &denial.message,
                reason: "Forbidden",
                code: 403,
            }),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
            warnings: &answer.warnings,
        },
    };
    // Nothing in it can fail to serialise; an empty body would be an error of the webhook for the API server.
    serde_json::to_vec(&envelope).unwrap_or_default()
}
