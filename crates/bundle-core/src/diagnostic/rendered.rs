//! Plain text of findings. Tests of all crates record messages in this form, and `cargo xtask gen`
//! copies them to the page about diagnostics.

use std::fmt::Write as _;

use super::{Finding, Severity};

/// Returns the findings as `kubectl bundle` prints them, without colours.
pub fn rendered<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> String {
    let mut text = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let _ = writeln!(text, "{severity}: {finding} [{}]", finding.code);
        if let Some(hint) = &finding.hint {
            let _ = writeln!(text, "  hint: {hint}");
        }
    }
    text
}
