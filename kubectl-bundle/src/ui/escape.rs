//! Escapes untrusted text for a terminal. The text must not move the cursor, change colours or
//! reverse the reading order.

/// Maximum length of a field, in characters.
const MAX_CHARS: usize = 400;

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

/// Returns `text` with hidden characters escaped. Line breaks are kept.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '\n' && is_hidden(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Returns `true` for control characters, and for Unicode characters that change the display of the
/// following text.
pub(crate) fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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
        assert_eq!(safe(&"x".repeat(1000)).chars().count(), MAX_CHARS + 1);
    }
}
