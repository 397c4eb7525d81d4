//! Converts parser errors to findings with code, line and hint.

use serde_saphyr::granit_parser::ScanError;
use serde_saphyr::{Error, budget::BudgetBreach};

use super::limits;
use crate::diagnostic::{Code, Finding, codes};

/// Returns the finding for a parser error in a document that starts at line `first` of the file.
pub(super) fn finding(error: &Error, first: usize, file: &str) -> Finding {
    let line = error
        .location()
        .and_then(|at| usize::try_from(at.line()).ok())
        .map_or(first, |line| first + line.saturating_sub(1));
    at_line(explain(error), line, file)
}

/// Returns the finding for an error of the first pass (`keys::check`) in a document that starts at
/// line `first` of the file.
pub(super) fn scan(error: &ScanError, first: usize, file: &str) -> Finding {
    let line = first + error.marker().line().saturating_sub(1);
    at_line(explain_text(&error.info()), line, file)
}

fn at_line((code, message, hint): (Code, String, &str), line: usize, file: &str) -> Finding {
    Finding::error(code, message)
        .in_file(file)
        .at_line(line)
        .hint(hint)
}

fn explain(error: &Error) -> (Code, String, &'static str) {
    match error {
        Error::WithSnippet { error, .. } | Error::AliasError { error, .. } => explain(error),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("(not text)");
            duplicate(key)
        }
        Error::MultipleDocuments { .. }
        | Error::Budget {
            breach: BudgetBreach::Documents { .. },
            ..
        } => (
            codes::format::UNREADABLE,
            "a separator between two documents is missing".to_owned(),
            "separate documents by a line with `---`",
        ),
        Error::Budget { breach, .. } => too_complex(&match breach {
            BudgetBreach::Depth { .. } => depth_text(),
            BudgetBreach::Nodes { nodes } if *nodes <= limits::MAX_NODES => format!(
                "more than {} values and a merge key (`<<`)",
                limits::MAX_STORED_NODES
            ),
            BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => nodes_text(),
            BudgetBreach::ScalarBytes { .. } => "more text than the file size allows".to_owned(),
            BudgetBreach::RecordedAnchorEvents { .. } => expansion_limit_text(),
            BudgetBreach::RecordedAnchorBytes { .. } => {
                format!(
                    "anchors with more than {} MiB of text",
                    limits::MAX_ANCHOR_BYTES >> 20
                )
            }
            other => format!("{other:?}"),
        }),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_complex(&expansion_limit_text()),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            too_complex("an anchor that refers to itself")
        }
        Error::NonFiniteFloat { value, .. } => (
            codes::format::UNREADABLE,
            format!("the number {value} is not finite, which JSON does not support"),
            "put it in quotes if it is a string",
        ),
        Error::UnsupportedTag { tag, .. } => (
            codes::format::UNREADABLE,
            format!("unknown YAML tag `{tag}`"),
            "remove the tag",
        ),
        other => explain_text(&other.to_string()),
    }
}

/// Explains the message of a parser.
fn explain_text(text: &str) -> (Code, String, &'static str) {
    if let Some(key) = text.strip_prefix(DUPLICATE_KEY_PREFIX) {
        return duplicate(without_place(key));
    }
    if text.starts_with(CANCELLED) {
        return cancelled_text();
    }
    if text.starts_with(TOO_MANY) {
        return too_complex("more values than the limit of a bundle");
    }
    if text.starts_with("recursion limit exceeded") {
        return too_complex(&depth_text());
    }
    (
        codes::format::UNREADABLE,
        format!("invalid YAML: {}", without_place(text)),
        PARSED_AS,
    )
}

/// Message for a key that is a list or map.
pub(super) const COMPLEX_KEY: &str = "a key is a list or map, but keys must be strings";
const PARSED_AS: &str = "manifests are YAML or JSON; `kubectl apply --dry-run=client -f` parses the file in the same way";
/// Prefix of the internal error message for keys that are equal after their conversion to text. The
/// key follows.
pub(super) const DUPLICATE_KEY_PREFIX: &str = "key twice: ";
/// Prefix of the internal error message for an exceeded limit.
pub(super) const TOO_MANY: &str = "allowance spent";
/// Prefix of the internal error message for cancelled parsing.
pub(super) const CANCELLED: &str = "parsing cancelled";

/// Returns the finding for a key that is a list or map. `line` is the line of the key in the file.
pub(super) fn complex_key(line: usize, file: &str) -> Finding {
    at_line(explain_text(COMPLEX_KEY), line, file)
}

/// Returns the finding for a document with more nodes than the limit. `line` is the line of the
/// first node above the limit.
pub(super) fn too_many_nodes(line: usize, file: &str) -> Finding {
    at_line(too_complex(&nodes_text()), line, file)
}

/// Returns the finding for lists and maps that are nested too deeply. `line` is the line of the
/// first list or map above the limit.
pub(super) fn too_deep(line: usize, file: &str) -> Finding {
    at_line(too_complex(&depth_text()), line, file)
}

/// Returns the finding for a file whose parsed documents need more than `limit` bytes of memory.
pub(super) fn too_much_memory(limit: u64, file: &str) -> Finding {
    Finding::error(
        codes::format::TOO_COMPLEX,
        format!(
            "the parsed file needs more than {} MiB of memory",
            limit >> 20
        ),
    )
    .in_file(file)
    .hint("shorten the file")
}

/// Returns the finding for cancelled parsing, outside of a document.
pub(super) fn cancelled() -> Finding {
    let (code, message, hint) = cancelled_text();
    Finding::error(code, message).hint(hint)
}

fn cancelled_text() -> (Code, String, &'static str) {
    (
        codes::format::CANCELLED,
        "parsing of the content was cancelled: the content needs too much CPU time, or the result is no longer needed".to_owned(),
        "if the content is still needed, divide the content into several bundles",
    )
}

fn duplicate(key: &str) -> (Code, String, &'static str) {
    (
        codes::format::DUPLICATE_KEY,
        format!("the key `{key}` appears twice"),
        "remove one of the two: parsers disagree about which one applies",
    )
}

fn depth_text() -> String {
    format!("more than {} nested lists and maps", limits::MAX_DEPTH)
}

fn nodes_text() -> String {
    format!("more than {} values", limits::MAX_NODES)
}

fn expansion_limit_text() -> String {
    format!(
        "anchors and aliases that expand to more than {} values ({} with a merge key)",
        limits::MAX_UNFOLDED,
        limits::MAX_STORED_NODES
    )
}

fn too_complex(what: &str) -> (Code, String, &'static str) {
    (
        codes::format::TOO_COMPLEX,
        format!("the document has {what}"),
        "write the values without aliases, or split the document",
    )
}

/// Removes line and column from the end of a parser message, because the finding has its own
/// location.
fn without_place(text: &str) -> &str {
    text.split_once(" at line ")
        .map_or(text, |(before, _)| before)
}
