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
            "another document follows without a separator".to_owned(),
            "separate documents by a line with `---`",
        ),
        Error::Budget { breach, .. } => too_complex(&match breach {
            BudgetBreach::Depth { .. } => {
                format!(
                    "more than {} lists and maps within each other",
                    limits::MAX_DEPTH
                )
            }
            BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
                format!("more than {} values", limits::MAX_NODES)
            }
            BudgetBreach::ScalarBytes { .. } => "more text than its file could hold".to_owned(),
            BudgetBreach::RecordedAnchorEvents { .. } => unfolded(),
            other => format!("{other:?}"),
        }),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_complex(&unfolded()),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            too_complex("an anchor that contains itself")
        }
        Error::NonFiniteFloat { value, .. } => (
            codes::format::UNREADABLE,
            format!("the number {value} is not finite, and JSON has no such number"),
            "put it in quotes if it is meant as text",
        ),
        Error::UnsupportedTag { tag, .. } => (
            codes::format::UNREADABLE,
            format!("the tag `{tag}` means nothing in a manifest"),
            "remove the tag",
        ),
        other => {
            let text = other.to_string();
            if let Some(key) = text.strip_prefix(TWICE) {
                return duplicate(without_place(key));
            }
            if text.starts_with(TOO_MANY) {
                return too_complex("more values than a bundle may hold");
            }
            if text.starts_with("recursion limit exceeded") {
                return too_complex(&format!(
                    "more than {} lists and maps within each other",
                    limits::MAX_DEPTH
                ));
            }
            (
                codes::format::UNREADABLE,
                format!("this is not YAML: {}", without_place(&text)),
                "manifests are YAML or JSON; `kubectl apply --dry-run=client -f` on the file reads it in the same way",
            )
        }
    }
}

/// Starts the message of our own error for keys that are equal once they are text; the key follows.
pub(super) const TWICE: &str = "key twice: ";
/// Starts the message of our own error for a spent allowance.
pub(super) const TOO_MANY: &str = "allowance spent";

fn duplicate(key: &str) -> (Code, String, &'static str) {
    (
        codes::format::DUPLICATE_KEY,
        format!("the key `{key}` is there twice"),
        "remove one of the two: readers disagree on which one counts",
    )
}

fn unfolded() -> String {
    format!(
        "anchors and aliases that unfold to more than {} values",
        limits::MAX_UNFOLDED
    )
}

fn too_complex(what: &str) -> (Code, String, &'static str) {
    (
        codes::format::TOO_COMPLEX,
        format!("the document has {what}"),
        "write the values out instead of repeating them by alias, and split what is too large",
    )
}

/// Removes line and column from the end of a parser message, because the finding has its own
/// location.
fn without_place(text: &str) -> &str {
    text.split_once(" at line ")
        .map_or(text, |(before, _)| before)
}
