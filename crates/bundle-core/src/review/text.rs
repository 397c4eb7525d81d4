//! Text of a decision in an admission response. kubectl shows this text in a few lines.

use super::judge::Verdict;
use crate::diagnostic::{Code, Finding, codes};
use crate::text::visible;

/// Maximum length of a warning, in characters. If all warnings of a request together exceed 4096
/// characters, the API server truncates each warning to 256 characters. The API server then drops
/// the warnings after 4096 characters.
///
/// Source: `k8s.io/apiserver` `pkg/endpoints/filters/warning.go`, `truncateItemRunes` and
/// `truncateAtTotalRunes`.
const WARNING_LIMIT: usize = 256;
/// Maximum number of warnings in a response. Other webhooks return warnings too, and the API server
/// limits all warnings together.
const WARNINGS_SHOWN: usize = 12;

/// `status` of the response to a rejected write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `status.reason`, which kubectl prints in brackets.
    pub reason: String,
    /// Value of `status.message`.
    pub message: String,
    /// Value of `status.code`.
    pub status: u16,
    /// Value of `status.details.causes`: code, field and message of each error.
    pub causes: Vec<Cause>,
}

/// Error in machine-readable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Diagnostic code.
    pub code: Code,
    /// Path of the field; `None` if the error is not about one field.
    pub field: Option<String>,
    /// Message of the error.
    pub message: String,
}

/// Returns `true` for messages of RukPak, which scripts and tests compare. These messages are used
/// unchanged as reason and message.
fn is_verbatim(code: Code) -> bool {
    [
        codes::review::SPEC_IMMUTABLE,
        codes::review::APPROVAL_IMMUTABLE,
        codes::review::SOURCE_MEMBER,
        codes::review::SOURCE_PATH,
        codes::review::CONFIGMAP_MUTABLE,
        codes::review::CONFIGMAP_IN_USE,
    ]
    .contains(&code)
}

/// Returns one warning as text, with its code and with hidden characters escaped. If the text is
/// longer than `WARNING_LIMIT`, the location is omitted. If the text is still too long, it is
/// truncated.
pub fn warning(finding: &Finding) -> String {
    let whole = one_line(&format!("{}: {finding}", finding.code));
    if whole.chars().count() <= WARNING_LIMIT {
        return whole;
    }
    cut(&format!("{}: {}", finding.code, finding.message))
}

/// Returns all warnings of a decision.
pub fn warnings(verdict: &Verdict) -> Vec<String> {
    let all: Vec<_> = verdict.findings().warnings().collect();
    let mut texts: Vec<String> = all
        .iter()
        .take(WARNINGS_SHOWN)
        .map(|finding| warning(finding))
        .collect();
    if all.len() > WARNINGS_SHOWN {
        texts.push(format!("and {} more warnings", all.len() - WARNINGS_SHOWN));
    }
    texts
}

fn one_line(text: &str) -> String {
    visible(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn cut(text: &str) -> String {
    let one_line = one_line(text);
    if one_line.chars().count() <= WARNING_LIMIT {
        return one_line;
    }
    let mut cut: String = one_line.chars().take(WARNING_LIMIT - 1).collect();
    cut.push('…');
    cut
}

/// Returns the `status` for a rejected write; `None` for an admitted write. Hidden characters are
/// escaped: the status contains text of bundles and users, and kubectl prints it on the terminal.
pub fn refusal(verdict: &Verdict) -> Option<Refusal> {
    let (findings, reason, status) = match verdict {
        Verdict::Admit { .. } => return None,
        Verdict::Refuse(findings) => (findings, "Forbidden", 403),
        Verdict::Unknown(findings) => (findings, "ServiceUnavailable", 503),
    };
    let errors: Vec<&Finding> = findings.errors().collect();
    let causes = errors
        .iter()
        .map(|finding| Cause {
            code: finding.code,
            field: finding.place.field.as_deref().map(visible),
            message: visible(&finding.message),
        })
        .collect();
    if let [only] = errors[..]
        && is_verbatim(only.code)
    {
        let message = visible(&only.message);
        return Some(Refusal {
            reason: message.clone(),
            message,
            status,
            causes,
        });
    }
    let mut lines = Vec::new();
    for finding in errors {
        if is_verbatim(finding.code) {
            lines.push(format!("{}: {}", finding.code, finding.message));
        } else {
            lines.push(format!("{}: {finding}", finding.code));
        }
        if let Some(hint) = &finding.hint {
            lines.push(format!("hint: {hint}"));
        }
    }
    Some(Refusal {
        reason: reason.to_owned(),
        message: visible(&lines.join("\n")),
        status,
        causes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Findings;
    use crate::text::is_hidden;

    #[test]
    fn warnings_are_one_line() {
        let short =
            Finding::warning(codes::review::CLASS_UNKNOWN, "there is no class").at_field("spec.x");
        assert_eq!(
            warning(&short),
            "BUNDLE-REVIEW-009: spec.x: there is no class"
        );
        for message in ["x".repeat(500), "ü\n".repeat(300)] {
            let text = warning(&Finding::warning(codes::review::CLASS_UNKNOWN, message));
            assert_eq!(text.chars().count(), 256);
            assert!(
                text.ends_with('…')
                    && text.starts_with("BUNDLE-REVIEW-009: ")
                    && !text.contains('\n')
            );
        }
    }

    #[test]
    fn message_of_a_warning_comes_before_a_place_that_is_long() {
        let place = format!("registry.example.com/{}", "a".repeat(240));
        let finding = Finding::warning(codes::trust::UNCHECKED, "not signed").about(place);
        assert!(warning(&finding).ends_with(": not signed"));
    }

    #[test]
    fn warnings_of_a_verdict_are_not_cut_by_the_api_server() {
        let one = Finding::warning(codes::review::CLASS_UNKNOWN, "x".repeat(500));
        let verdict = Verdict::Refuse(vec![one; 40].into_iter().collect());
        let texts = warnings(&verdict);
        let characters: usize = texts.iter().map(|text| text.chars().count()).sum();
        assert!(characters < 4096, "{characters}");
        assert_eq!(texts.last().unwrap(), "and 28 more warnings");
    }

    #[test]
    fn message_of_rukpak_has_neither_code_nor_hint() {
        let findings: Findings =
            Finding::error(codes::review::SPEC_IMMUTABLE, "bundle.spec is immutable")
                .hint("no")
                .into();
        let refusal = refusal(&Verdict::Refuse(findings)).unwrap();
        assert_eq!(
            (
                refusal.reason.as_str(),
                refusal.message.as_str(),
                refusal.status
            ),
            ("bundle.spec is immutable", "bundle.spec is immutable", 403)
        );
        assert_eq!(refusal.causes[0].code, codes::review::SPEC_IMMUTABLE);
    }

    #[test]
    fn hidden_characters_are_escaped() {
        let hidden = "1\u{1b}]52;c;\u{7}\u{202e}\u{9b}x";
        let finding = |code| {
            Finding::error(code, format!("`{hidden}` is not a version"))
                .at_field(format!("spec.{hidden}"))
                .hint(hidden)
        };
        let verbatim = vec![finding(codes::review::SPEC_IMMUTABLE)];
        let several = vec![
            finding(codes::review::SPEC_IMMUTABLE),
            finding(codes::trust::UNSIGNED),
        ];
        let is_shown = |text: &str| !text.contains(|c: char| c != '\n' && is_hidden(c));
        for findings in [verbatim, several] {
            let verdict = Verdict::Refuse(findings.into_iter().collect());
            let refusal = refusal(&verdict).unwrap();
            assert!(is_shown(&refusal.message) && is_shown(&refusal.reason));
            for cause in refusal.causes {
                assert!(is_shown(&cause.message) && is_shown(&cause.field.unwrap()));
            }
        }
        let warned = warning(&finding(codes::review::CLASS_UNKNOWN));
        assert!(is_shown(&warned) && warned.contains("\\u{1b}"), "{warned}");
    }

    #[test]
    fn rejection_contains_every_error_and_hint() {
        let findings = Findings::from_iter([
            Finding::error(
                codes::review::USE_NOT_ALLOWED,
                "user \"ana\" is not allowed",
            )
            .hint("ask"),
            Finding::error(codes::trust::UNSIGNED, "not signed").about("registry.example.com/a"),
            Finding::warning(codes::review::CLASS_UNKNOWN, "and more"),
        ]);
        let refusal = refusal(&Verdict::Unknown(findings)).unwrap();
        assert_eq!(
            refusal.message,
            "BUNDLE-REVIEW-012: user \"ana\" is not allowed\nhint: ask\nBUNDLE-TRUST-001: registry.example.com/a: not signed"
        );
        assert_eq!(
            (refusal.reason.as_str(), refusal.status),
            ("ServiceUnavailable", 503)
        );
    }
}
