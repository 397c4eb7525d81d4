//! Escapes untrusted text for a terminal. The text must not move the cursor, change colours or
//! reverse the reading order.

pub(crate) use bundle_core::text::{is_hidden, visible};

/// Maximum length of a field, in characters.
const MAX_CHARS: usize = 400;

/// Returns the whole `text` on one line, with hidden characters escaped, for data that scripts
/// read.
pub(crate) fn one_line(text: &str) -> String {
    visible(text).replace('\n', r"\n")
}

/// Returns `text` on one line, with hidden characters escaped, truncated to a maximum length.
pub(crate) fn safe(text: &str) -> String {
    let mut shown = String::new();
    for (index, letter) in text.chars().enumerate() {
        if index == MAX_CHARS {
            shown.push('…');
            break;
        }
        if is_hidden(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(safe("größer 大 → ok"), "größer 大 → ok");
        assert_eq!(
            safe("a\x1b[31m\r\nb\u{9b}2J\x7f"),
            "a\\u{1b}[31m\\r\\nb\\u{9b}2J\\u{7f}"
        );
        assert_eq!(safe("abc\u{202e}txt\u{2066}"), "abc\\u{202e}txt\\u{2066}");
        let long = "x".repeat(1000);
        assert_eq!(
            one_line(&format!("{long}\n\x1b")),
            format!(r"{long}\n\u{{1b}}")
        );
        assert_eq!(safe(&long).chars().count(), MAX_CHARS + 1);
    }
}
