//! Converts parser errors to findings with code, line and hint.

use serde_saphyr::{Error, budget::BudgetBreach};

use super::limits;
use crate::diagnostic::{Code, Finding, codes};

/// The finding for an error of the parser in a document that starts at line `first` of the file.
pub(super) fn finding(error: &Error, first: usize, file: &str) -> Finding {
    let line = error
        .location()
        .and_then(|at| usize::try_from(at.line()).ok())
        .map_or(first, |line| first + line.saturating_sub(1));
    let (code, message, hint) = explain(error);
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
            BudgetBreach::Depth { .. } => {
                format!("more than {} nested lists and maps", limits::MAX_DEPTH)
            }
            BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
                format!("more than {} values", limits::MAX_NODES)
            }
            BudgetBreach::ScalarBytes { .. } => "more text than the file size allows".to_owned(),
            BudgetBreach::RecordedAnchorEvents { .. } => unfolded(),
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
        | Error::AliasReplayStackDepthExceeded { .. } => too_complex(&unfolded()),
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
        other => {
            let text = other.to_string();
            if let Some(key) = text.strip_prefix(TWICE) {
                return duplicate(without_place(key));
            }
            if text.starts_with(TOO_MANY) {
                return too_complex("more values than the limit of a bundle");
            }
            if text.starts_with("recursion limit exceeded") {
                return too_complex(&format!(
                    "more than {} nested lists and maps",
                    limits::MAX_DEPTH
                ));
            }
            (
                codes::format::UNREADABLE,
                format!("invalid YAML: {}", without_place(&text)),
                "manifests are YAML or JSON; `kubectl apply --dry-run=client -f` parses the file in the same way",
            )
        }
    }
}

/// Starts the message of the internal error for keys that are equal once they are text; the key follows.
pub(super) const TWICE: &str = "key twice: ";
/// Starts the message of the internal error for a spent allowance.
pub(super) const TOO_MANY: &str = "allowance spent";

fn duplicate(key: &str) -> (Code, String, &'static str) {
    (
        codes::format::DUPLICATE_KEY,
        format!("the key `{key}` appears twice"),
        "remove one of the two: parsers disagree about which one applies",
    )
}

fn unfolded() -> String {
    format!(
        "anchors and aliases that expand to more than {} values",
        limits::MAX_UNFOLDED
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
