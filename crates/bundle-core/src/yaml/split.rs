//! Splits a file into documents at lines that start with `---`, as kubectl does.

use std::{iter, mem};

/// Text of one document with its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Text between two separators. A separator line belongs to the part after it if the line has
    /// content other than a comment.
    pub(super) text: &'a str,
    /// Line of the first character, from 1.
    pub(super) line: usize,
}

/// Splits a file into documents, including documents without content. The iterator does not store
/// the documents, because a file can have a separator for every four bytes.
pub(super) fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut lines = text.split_inclusive('\n').enumerate();
    let (mut start, mut first, mut end) = (0, 1, 0);
    let mut is_finished = false;
    iter::from_fn(move || {
        for (index, line) in lines.by_ref() {
            let begin = end;
            end += line.len();
            let separator = line.strip_prefix("---");
            let separator =
                separator.filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
            let Some(rest) = separator else {
                continue;
            };
            let part = Part {
                text: &text[start..begin],
                line: first,
            };
            // In `--- {a: 1}` the line of the separator has content, which belongs to the document.
            let content = rest.trim_start();
            let bare = content.is_empty() || content.starts_with('#');
            start = if bare { end } else { begin };
            first = if bare { index + 2 } else { index + 1 };
            return Some(part);
        }
        let is_last = !mem::replace(&mut is_finished, true);
        is_last.then(|| Part {
            text: &text[start..],
            line: first,
        })
    })
}

impl Part<'_> {
    /// Returns the line of the first character that is neither white space nor part of a comment;
    /// `None` if there is no such character.
    pub(super) fn content_line(&self) -> Option<usize> {
        self.text
            .lines()
            .position(|line| {
                let line = line.trim();
                !(line.is_empty() || line.starts_with('#') || line == "...")
            })
            .map(|index| self.line + index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(&str, usize)> {
        parts(text).map(|part| (part.text, part.line)).collect()
    }

    #[test]
    fn splits_where_a_line_starts_with_the_separator() {
        assert_eq!(split("a: 1\n---\nb: 2\n"), [("a: 1\n", 1), ("b: 2\n", 3)]);
        assert_eq!(split("---\na: 1"), [("", 1), ("a: 1", 2)]);
        assert_eq!(
            split("a: 1\n--- # next\r\nb: 2"),
            [("a: 1\n", 1), ("b: 2", 3)]
        );
        assert_eq!(
            split("a: 1\n--- {b: 2}\n"),
            [("a: 1\n", 1), ("--- {b: 2}\n", 2)]
        );
        assert_eq!(
            split("a: |\n  ---\n---b: 1\n"),
            [("a: |\n  ---\n---b: 1\n", 1)]
        );
        assert_eq!(split(""), [("", 1)]);
    }

    #[test]
    fn finds_the_first_line_with_content() {
        let first_line = |text| parts(text).next().unwrap().content_line();
        assert_eq!(first_line("\n# hello\n\na: 1\n"), Some(4));
        assert_eq!(first_line("\n# hello\n...\n"), None);
    }
}
