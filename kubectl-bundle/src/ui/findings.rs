//! Output of findings on a terminal: `error:`, `warning:`, `caused by:`, `hint:`, with the code in
//! brackets.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use bundle_core::diagnostic::{Finding, Findings, Severity};

use super::escape::visible;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const CODE: Style = Style::new().dimmed();

/// Returns all findings as text. `causes` are the causes of the last error.
pub(crate) fn findings(findings: &Findings, causes: &[String]) -> String {
    let mut text = String::new();
    let last_error = findings
        .iter()
        .rposition(|finding| finding.severity == Severity::Error);
    for (index, one) in findings.iter().enumerate() {
        let causes = if Some(index) == last_error {
            causes
        } else {
            &[]
        };
        text.push_str(&finding(one, causes));
    }
    text
}

/// Returns one finding as text.
pub(crate) fn finding(finding: &Finding, causes: &[String]) -> String {
    let (style, word) = match finding.severity {
        Severity::Error => (ERROR, "error"),
        Severity::Warning => (WARNING, "warning"),
    };
    let mut text = format!(
        "{style}{word}:{style:#} {} {CODE}[{}]{CODE:#}\n",
        visible(&finding.to_string()),
        finding.code
    );
    for cause in causes {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  caused by: {}", indented(cause));
    }
    if let Some(words) = &finding.hint {
        text.push_str(&hint(words));
    }
    text
}

/// Returns a hint as text.
pub(crate) fn hint(text: &str) -> String {
    format!("  {HINT}hint:{HINT:#} {}\n", indented(text))
}

/// Returns a warning of the API server in the format of kubectl.
pub(crate) fn server_warning(text: &str) -> String {
    format!("{WARNING}Warning:{WARNING:#} {}\n", visible(text))
}

fn indented(text: &str) -> String {
    visible(text).trim_end().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::codes;

    use super::*;
    use crate::ui::escape::is_hidden;

    #[test]
    fn control_characters_of_untrusted_text_are_escaped() {
        let one = Finding::error(
            codes::usage::FILE_UNREADABLE,
            "\u{1b}[2Jfine\u{202e}\n  next",
        )
        .hint("\u{7}ring");
        let text = anstream::adapter::strip_str(&finding(&one, &["\rgone".to_owned()])).to_string();
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text:?}");
        assert!(
            text.contains("fine") && text.contains("\n  next"),
            "{text:?}"
        );
    }

    #[test]
    fn prints_location_code_causes_and_hint() {
        let one = Finding::error(codes::usage::FILE_UNREADABLE, "cannot be read")
            .in_file("bundle.yaml")
            .at_line(3)
            .hint("create it");
        let text =
            anstream::adapter::strip_str(&finding(&one, &["no such file".to_owned()])).to_string();
        insta::assert_snapshot!(text, @r"
        error: bundle.yaml:3: cannot be read [BUNDLE-USAGE-002]
          caused by: no such file
          hint: create it
        ");
    }
}
