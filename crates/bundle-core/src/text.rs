//! Shortening of texts and lists in messages, and escapes for untrusted text.

/// Returns `text`, truncated at a character boundary to at most `limit` bytes. The mark ` …` shows
/// that the text was truncated.
pub fn bounded(text: &str, limit: usize) -> String {
    const MARK: &str = " …";
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
}

/// Returns the first `most` of `items`, separated by commas, and the number of the remaining items.
pub fn some_of<T: std::fmt::Display>(items: &[T], most: usize) -> String {
    let shown: Vec<_> = items.iter().take(most).map(ToString::to_string).collect();
    let rest = items.len().saturating_sub(most);
    if rest == 0 {
        shown.join(", ")
    } else {
        format!("{} and {rest} more", shown.join(", "))
    }
}

/// Returns `text` with hidden characters escaped. Line breaks are kept.
pub fn visible(text: &str) -> String {
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
pub fn is_hidden(letter: char) -> bool {
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
    fn long_messages_are_cut_at_character_boundaries() {
        let cut = bounded(&"ü".repeat(20), 15);
        assert!(cut.len() <= 15 && cut.ends_with('…'), "{cut}");
        assert_eq!(bounded("short", 15), "short");
    }

    #[test]
    fn long_lists_end_with_the_number_of_omitted_items() {
        assert_eq!(some_of(&[1, 2, 3], 3), "1, 2, 3");
        assert_eq!(some_of(&[1, 2, 3], 1), "1 and 2 more");
    }
}
