use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use shared::prune::Keep;

use crate::{
    call::{CallError, refusal},
    gate::Named,
    wire::{ListMeta, WatchLine, parse_line, parse_list},
};

fn list(text: &str) -> Result<(ListMeta, Vec<String>), serde_json::Error> {
    let mut names = Vec::new();
    let meta = parse_list(text.as_bytes(), &Named::keep(), &mut |object| {
        names.push(
            object
                .pointer("/metadata/name")
                .map_or_else(|| "?".to_owned(), ToString::to_string),
        );
    })?;
    Ok((meta, names))
}

#[test]
fn a_page_is_read_whatever_the_order_of_its_fields() {
    let expected = ListMeta {
        resource_version: "7".to_owned(),
        next: Some("n".to_owned()),
    };
    for text in [
        r#"{"kind":"L","metadata":{"resourceVersion":"7","continue":"n","remainingItemCount":3},"items":[{"metadata":{"name":"a"},"spec":{}},{"metadata":{"name":"b"}}]}"#,
        r#"{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{"continue":"n","resourceVersion":"7"}}"#,
    ] {
        assert_eq!(
            list(text).unwrap(),
            (expected.clone(), vec!["\"a\"".to_owned(), "\"b\"".to_owned()])
        );
    }
    let (meta, names) = list(r#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#).unwrap();
    assert_eq!((meta.next, names.len()), (None, 0));
}

#[test]
fn half_a_page_is_an_error_and_not_a_short_list() {
    for text in [
        "",
        "{}",
        r#"{"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":[]} trailing"#,
        "<html>",
    ] {
        assert!(list(text).is_err(), "{text}");
    }
}

#[test]
fn lines_of_a_watch_are_told_apart() {
    let keep = Keep::All;
    let read = |text: &str| parse_line(text.as_bytes(), &keep).unwrap();
    assert_eq!(
        read(r#"{"type":"ADDED","object":{"a":1}}"#),
        Some(WatchLine::Set(json!({"a": 1})))
    );
    assert_eq!(
        read(r#"{"object":{"a":1},"type":"MODIFIED"}"#),
        Some(WatchLine::Set(json!({"a": 1})))
    );
    assert_eq!(
        read(r#"{"type":"DELETED","object":{}}"#),
        Some(WatchLine::Gone(json!({})))
    );
    assert_eq!(
        read(r#"{"type":"BOOKMARK","object":{}}"#),
        Some(WatchLine::Bookmark(json!({})))
    );
    assert_eq!(read(r#"{"type":"NEWS","object":{}}"#), None);
    assert!(matches!(
        read(r#"{"type":"ERROR","object":{"code":410}}"#),
        Some(WatchLine::Error(_))
    ));
    assert!(parse_line(b"{", &keep).is_err());
    assert!(parse_line(br#"{"type":"ADDED"}"#, &keep).is_err());
}

#[test]
fn a_refusal_is_told_with_what_the_server_said() {
    let body = json!({"message": "slow down", "reason": "TooManyRequests", "code": 429,
        "details": {"retryAfterSeconds": 3}});
    let error = refusal(None, None, body.to_string().as_bytes());
    assert_eq!(error.to_string(), "429 TooManyRequests: slow down");
    assert_eq!(error.label(), "too-many-requests");
    let CallError::Refused { retry_after, .. } = error else {
        panic!()
    };
    assert_eq!(retry_after, Some(Duration::from_secs(3)));
    let error = refusal(Some(502), None, b"<html>bad gateway</html>");
    assert_eq!((error.code(), error.label()), (Some(502), "server-error"));
    assert!(error.to_string().contains("bad gateway"));
    let long = refusal(Some(500), None, "x".repeat(100_000).as_bytes());
    assert!(long.to_string().len() < 1100);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_list(&bytes, &Keep::All, &mut |_| {});
        let _ = parse_line(&bytes, &Keep::All);
        let _ = refusal(None, None, &bytes);
    }
}
