//! Shortening of texts and lists in messages, and escapes for untrusted text.

use std::collections::BTreeSet;

/// Largest number of messages that a [`MessageList`] keeps.
pub const MAX_MESSAGES: usize = 20;
/// Maximum length of one message of a [`MessageList`], and limit for the total length of its
/// messages, in bytes.
const MESSAGES_LIMIT: usize = 8 << 10;

/// Messages about many objects: sorted, without duplicates, and with bounded memory. The list keeps
/// the first messages in sorted order: at most [`MAX_MESSAGES`], and no more after their total
/// length reaches 8 KiB. It counts the messages that it does not keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageList {
    first: BTreeSet<String>,
    /// Size of the messages in `first`, in bytes.
    bytes: usize,
    /// Number of messages that were not kept.
    omitted: usize,
}

impl MessageList {
    /// Adds a message. Only the beginning of a long message is kept.
    pub fn insert(&mut self, message: String) {
        let message = if message.len() > MESSAGES_LIMIT {
            bounded(&message, MESSAGES_LIMIT)
        } else {
            message
        };
        let size = message.len();
        if !self.first.insert(message) {
            return;
        }
        self.bytes += size;
        while let Some(last) = self.first.last()
            && (self.first.len() > MAX_MESSAGES || self.bytes - last.len() >= MESSAGES_LIMIT)
        {
            self.bytes -= last.len();
            self.first.pop_last();
            self.omitted += 1;
        }
    }

    /// Adds the messages of another list. The messages that the other list did not keep count too.
    pub fn merge(&mut self, other: Self) {
        self.extend(other.first);
        self.omitted += other.omitted;
    }

    /// Returns true if no message was added.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Returns the number of messages. A duplicate of a message that was not kept counts again.
    pub fn len(&self) -> usize {
        self.first.len() + self.omitted
    }

    /// Returns the kept messages in sorted order.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.first.iter().map(String::as_str)
    }

    /// Joins the first `most` messages that the list keeps, and adds the number of all other
    /// messages.
    pub fn joined(&self, most: usize) -> String {
        let shown: Vec<&str> = self.messages().take(most).collect();
        let rest = self.len() - shown.len();
        let text = bounded(&shown.join("; "), MESSAGES_LIMIT);
        if rest == 0 {
            text
        } else {
            format!("{text}; and {rest} more")
        }
    }
}

impl Extend<String> for MessageList {
    fn extend<I: IntoIterator<Item = String>>(&mut self, messages: I) {
        for message in messages {
            self.insert(message);
        }
    }
}

impl FromIterator<String> for MessageList {
    fn from_iter<I: IntoIterator<Item = String>>(messages: I) -> Self {
        let mut list = Self::default();
        list.extend(messages);
        list
    }
}

/// Returns `text`, truncated at a character boundary to at most `limit` bytes. The mark ` …` shows
/// that the text was truncated.
pub fn bounded(text: &str, limit: usize) -> String {
    const MARK: &str = " …";
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(MARK.len()));
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
    fn messages_are_joined_in_sorted_order_and_without_duplicates() {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let joined = |texts: &[&str], most| MessageList::joined(&list(texts), most);
        assert_eq!(joined(&["b", "a", "b"], 5), "a; b");
        assert_eq!(joined(&["b", "a", "c"], 1), "a; and 2 more");
        assert_eq!(joined(&[], 1), "");
    }

    #[test]
    fn memory_of_messages_about_many_objects_is_bounded() {
        let text = "x".repeat(400 << 10);
        let messages = (0..300).rev().map(|number| format!("{number:03}: {text}"));
        let list: MessageList = messages.collect();
        let kept: usize = list.messages().map(str::len).sum();
        assert!(kept <= 2 * MESSAGES_LIMIT, "{kept}");
        assert_eq!(list.len(), 300);
        let joined = list.joined(MAX_MESSAGES);
        assert!(joined.starts_with("000: x") && joined.ends_with("; and 299 more"));
        assert!(joined.len() < MESSAGES_LIMIT + 50, "{}", joined.len());
        let short: MessageList = (0..300).map(|number| format!("{number:03}")).collect();
        assert_eq!((short.messages().count(), short.len()), (MAX_MESSAGES, 300));
    }

    #[test]
    fn messages_that_are_omitted_because_of_their_size_are_counted() {
        let text = "x".repeat(4 << 10);
        let messages = (0..5).map(|number| format!("{number}{}", &text[1..]));
        let list: MessageList = messages.collect();
        assert_eq!((list.messages().count(), list.len()), (2, 5));
        assert!(list.joined(MAX_MESSAGES).ends_with("; and 3 more"));
        assert!(list.joined(1).ends_with("x; and 4 more"));
    }

    #[test]
    fn merged_list_counts_the_omitted_messages_of_both_lists() {
        let list = |from: usize, to: usize| -> MessageList {
            (from..to).map(|number| format!("{number:03}")).collect()
        };
        let mut merged = list(0, 25);
        merged.merge(list(100, 130));
        assert_eq!(
            (merged.messages().count(), merged.len()),
            (MAX_MESSAGES, 55)
        );
        assert!(merged.joined(MAX_MESSAGES).ends_with("; and 35 more"));
    }

    #[test]
    fn long_lists_end_with_the_number_of_omitted_items() {
        assert_eq!(some_of(&[1, 2, 3], 3), "1, 2, 3");
        assert_eq!(some_of(&[1, 2, 3], 1), "1 and 2 more");
    }
}
