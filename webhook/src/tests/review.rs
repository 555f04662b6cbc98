//! The wire format, against kube's own types both ways.

use serde_json::{Value, json};

use super::world::{deployment, sleeping, update};
use crate::review::{Answer, DecodeReview, Denial, decode, encode};

#[test]
fn a_review_is_read_without_copying_its_objects() {
    let body = update(&sleeping("3"), &deployment(5)).to_string();
    let request = decode(body.as_bytes()).unwrap();
    assert_eq!(&*request.uid, "705ab4f5-6393-11e8-b7cc-42010a800002");
    assert_eq!(
        (&*request.kind.kind, &*request.resource.resource),
        ("Deployment", "deployments")
    );
    assert_eq!(&*request.user_info.username, "ana");
    assert_eq!(request.field_manager(), "kubectl-edit");
    let object = request.object.unwrap().get();
    let range = body.as_bytes().as_ptr_range();
    assert!(range.contains(&object.as_ptr()));
}

#[test]
fn text_with_escapes_is_read_too() {
    let mut review = update(&sleeping("3"), &deployment(5));
    review["request"]["userInfo"]["username"] = json!("o\"k\u{7}é");
    let body = review.to_string();
    assert_eq!(&*decode(body.as_bytes()).unwrap().user_info.username, "o\"k\u{7}é");
}

#[test]
fn what_is_no_review_is_told_apart_from_what_cannot_be_read() {
    let no_review = |body: &str| matches!(decode(body.as_bytes()), Err(DecodeReview::NoReview(_)));
    assert!(no_review(""));
    assert!(no_review("[1]"));
    assert!(no_review("{}"));
    assert!(no_review(
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#
    ));
    assert!(no_review(
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}"#
    ));
    assert!(no_review(
        r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}"#
    ));
    let odd = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":7}}"#;
    assert!(matches!(decode(odd.as_bytes()), Err(DecodeReview::Unreadable { uid, .. }) if uid == "u"));
    // Without user, operation or resource: kube's own type refuses it, ours reads what there is.
    let bare = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","userInfo":{"groups":null}}}"#;
    assert_eq!(&*decode(bare.as_bytes()).unwrap().uid, "u");
}

#[test]
fn patch_and_patch_type_come_together_or_not_at_all() {
    let plain: Value = serde_json::from_slice(&encode("u", &Answer::default())).unwrap();
    assert_eq!(
        plain,
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "u", "allowed": true}})
    );
    let patch: json_patch::Patch = serde_json::from_value(json!([{"op": "remove", "path": "/a"}])).unwrap();
    let denied = Answer {
        denial: Some(Denial {
            message: "no".to_owned(),
        }),
        patch: patch.clone(),
        warnings: Vec::new(),
    };
    let denied: Value = serde_json::from_slice(&encode("u", &denied)).unwrap();
    assert!(denied["response"].get("patch").is_none());
    let patched = Answer {
        patch,
        ..Answer::default()
    };
    let patched: Value = serde_json::from_slice(&encode("u", &patched)).unwrap();
    assert_eq!(patched["response"]["patch"], "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=");
}
