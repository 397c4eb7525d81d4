//! Texts in a Rust source: doc comments and messages. Items with `#[cfg(test)]` are excluded. The
//! messages of files that contain only tests are excluded too.

use std::path::Path;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::modules::reader::{end_of_item, is_mark, is_test_only};

/// Texts of one source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SourceTexts {
    /// Doc comments with all their lines.
    pub(super) docs: Vec<String>,
    /// String literals of at least two words.
    pub(super) messages: Vec<String>,
}

/// Parses the source at `path`. Returns an error if the source is not valid Rust.
pub(super) fn read(path: &Path, source: &str) -> Result<SourceTexts> {
    let tokens: TokenStream = source
        .parse()
        .map_err(|error| anyhow!("{} is not Rust source: {error}", path.display()))?;
    let mut texts = SourceTexts::default();
    texts.read(tokens);
    if is_test(path) {
        texts.messages.clear();
    }
    Ok(texts)
}

/// Returns `true` for a file that contains only tests.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem == "tests"
        || stem.ends_with("_tests")
        || path.components().any(|part| part.as_os_str() == "tests")
}

impl SourceTexts {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        // `Some(true)` after a line of an inner doc comment, `Some(false)` after a line of an outer
        // doc comment, otherwise `None`.
        let mut open_doc = None;
        while let Some(token) = tokens.get(at) {
            if is_mark(&tokens, at, '#') && is_test_only(&tokens, at) {
                at = end_of_item(&tokens, at + 2);
                open_doc = None;
                continue;
            }
            if let Some((line, end)) = doc_line(&tokens, at) {
                let kind = Some(is_mark(&tokens, at + 1, '!'));
                match self.docs.last_mut().filter(|_| open_doc == kind) {
                    Some(open) => {
                        open.push('\n');
                        open.push_str(&line);
                    }
                    None => self.docs.push(line),
                }
                open_doc = kind;
                at = end;
                continue;
            }
            open_doc = None;
            match token {
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Literal(literal) => {
                    let text = text(&literal.to_string());
                    self.messages
                        .extend(text.filter(|text| text.trim().contains(char::is_whitespace)));
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Returns the text of a doc attribute at `at`, and the index after the attribute. Each line of a
/// doc comment is one attribute.
fn doc_line(tokens: &[TokenTree], at: usize) -> Option<(String, usize)> {
    if !is_mark(tokens, at, '#') {
        return None;
    }
    let group = at + 1 + usize::from(is_mark(tokens, at + 1, '!'));
    let Some(TokenTree::Group(attribute)) = tokens.get(group) else {
        return None;
    };
    let inner: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let is_doc = attribute.delimiter() == Delimiter::Bracket
        && matches!(inner.first(), Some(TokenTree::Ident(name)) if name == "doc");
    match inner.get(2) {
        Some(TokenTree::Literal(literal)) if is_doc => {
            Some((text(&literal.to_string())?, group + 1))
        }
        _ => None,
    }
}

/// Returns the text of a string literal; `None` for other literals.
fn text(literal: &str) -> Option<String> {
    let start = literal.find('"')?;
    let end = literal.rfind('"').filter(|end| *end > start)?;
    if !literal[..start]
        .chars()
        .all(|letter| matches!(letter, 'r' | '#' | 'b' | 'c'))
    {
        return None;
    }
    let inner = &literal[start + 1..end];
    // A backslash before a line break joins the lines; other escapes separate words.
    let joined: Vec<&str> = inner.split("\\\n").map(str::trim_start).collect();
    Some(
        joined
            .concat()
            .replace("\\n", "\n")
            .replace("\\\"", "\"")
            .replace("\\t", " "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str) -> SourceTexts {
        let source = "//! Header.\n\n/// One\n/// two.\nfn f() { g(\"a message \\\n    over lines\", b'x', \"word\"); }\n\
            #[doc = \"Three.\"] const A: &str = r#\"raw text\"#;\n\
            #[cfg(test)] mod tests { /// Four.\n fn t() { g(\"in a test\") } }";
        read(Path::new(path), source).unwrap()
    }

    #[test]
    fn reads_doc_comments_and_messages_without_tests() {
        let found = texts("src/a.rs");
        assert_eq!(found.docs, ["Header.", "One\ntwo.", "Three."]);
        assert_eq!(found.messages, ["a message over lines", "raw text"]);
    }

    #[test]
    fn reads_only_doc_comments_of_test_files() {
        for path in ["src/tests.rs", "src/a_tests.rs", "tests/a.rs"] {
            let found = texts(path);
            assert_eq!(found.docs.len(), 3);
            assert!(found.messages.is_empty(), "{path}");
        }
    }
}
