//! Validation of texts that several parts of `bundle.yaml` use.

use crate::diagnostic::{Finding, codes};

/// Returns the error for an invalid field.
pub(super) fn bad(message: String) -> Finding {
    Finding::error(codes::format::BAD_PACKAGE, message)
}

/// Validates a JSON pointer to a field.
pub(super) fn pointer(text: &str) -> Result<String, Finding> {
    let escapes_are_valid = text
        .split('~')
        .skip(1)
        .all(|rest| rest.starts_with(['0', '1']));
    if text.len() > 1 && text.starts_with('/') && escapes_are_valid {
        return Ok(text.to_owned());
    }
    Err(bad(format!("invalid JSON pointer `{text}`"))
        .hint("write a JSON pointer such as /spec/replicas"))
}

/// Validates one line of text without control characters.
pub(super) fn one_line(text: &str) -> Result<String, Finding> {
    let trimmed = text.trim();
    if trimmed.contains(char::is_control) {
        return Err(
            bad("the text has several lines or control characters".to_owned())
                .hint("write one line"),
        );
    }
    Ok(trimmed.to_owned())
}

/// Validates one line of text that is not empty.
pub(super) fn title(text: &str) -> Result<String, Finding> {
    let line = one_line(text)?;
    if line.is_empty() {
        return Err(bad("the text is empty".to_owned()).hint("write a word, or remove the item"));
    }
    Ok(line)
}
