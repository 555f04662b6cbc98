//! Text made short enough for a message. What people read has little room, and other people's text may be of any length.

use std::borrow::Cow;

/// The longest that a quoted value may become, in bytes.
const QUOTED: usize = 60;

/// At most `limit` bytes, the last of them `...` where something was cut off.
pub fn clip(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}...", beginning(text, limit.saturating_sub(3))))
}

/// At most `limit` bytes. What is cut out is the middle: the beginning says where, the end what to do.
pub fn squeeze(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let room = limit.saturating_sub(3);
    let start = beginning(text, room / 3);
    let mut from = text.len().saturating_sub(room - start.len());
    while !text.is_char_boundary(from) {
        from += 1;
    }
    Cow::Owned(format!("{start}...{}", text.get(from..).unwrap_or_default()))
}

/// A value with its control characters escaped, and no longer than a message has room for.
pub fn escaped(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        let before = text.len();
        // A combining mark at the beginning would stick to the quote.
        text.extend(letter.escape_debug());
        if text.len() > QUOTED {
            text.truncate(before);
            text.push('…');
            break;
        }
    }
    text
}

fn beginning(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_says_so_and_stays_within_its_bound() {
        for text in ["", "abc", &"é".repeat(200), &"x".repeat(1000)] {
            for limit in [3, 10, 61, 250] {
                assert!(clip(text, limit).len() <= limit);
                assert!(squeeze(text, limit).len() <= limit);
            }
            assert!(escaped(text).len() <= QUOTED + '…'.len_utf8());
        }
        assert_eq!(clip("abcdefgh", 6), "abc...");
        assert_eq!(squeeze("abcdefghijkl", 9), "ab...ijkl");
        assert_eq!(escaped("a\n\"b\u{200b}"), "a\\n\\\"b\\u{200b}");
        assert!(escaped(&"\u{200b}".repeat(60)).ends_with('…'));
    }
}
