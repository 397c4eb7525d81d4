//! Findings: errors and warnings of all rules.

use std::fmt;

use serde::Serialize;

use super::{Code, Outcome};
use crate::text::bounded;

/// Maximum number of findings of each severity in [`Findings`].
const MAX_FINDINGS_PER_SEVERITY: usize = 100;
/// Maximum length of each text of a finding, in bytes.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Message of the finding that replaces the findings above the limit.
const OMITTED_FINDINGS_MESSAGE: &str = "more findings exist, which are not listed";

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Stops the command or request.
    Error,
    /// Is reported and does not stop the command or request.
    Warning,
}

/// Location of a finding: a file (with a line), a field path, and an object or reference. All
/// fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FindingLocation {
    /// Path of the file: as the user passed it, or within the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Path of the field, in the form of Kubernetes messages: `spec.source.image.ref`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Object (`ConfigMap/team-a/web`) or reference of the finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl fmt::Display for FindingLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(file) = &self.file {
            f.write_str(file)?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            separator = ": ";
        }
        for part in [&self.subject, &self.field].into_iter().flatten() {
            write!(f, "{separator}{part}")?;
            separator = ": ";
        }
        Ok(())
    }
}

/// An error or a warning about content, an object, a file or a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Code in the catalogue.
    pub code: Code,
    /// `Error` stops the command or request. `Warning` does not.
    pub severity: Severity,
    /// Location of the problem.
    #[serde(rename = "where", skip_serializing_if = "is_empty_location")]
    pub place: FindingLocation,
    /// Problem and the values that cause it, as one sentence without full stop.
    pub message: String,
    /// Next step for the user; `None` if no step is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

fn is_empty_location(place: &FindingLocation) -> bool {
    *place == FindingLocation::default()
}

impl Finding {
    /// Creates an error.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            place: FindingLocation::default(),
            message: message.into(),
            hint: None,
        }
    }

    /// Creates a warning.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, message)
        }
    }

    /// Sets the file of the location.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.place.file = Some(file.into());
        self
    }

    /// Sets the line of the location, from 1.
    #[must_use]
    pub fn at_line(mut self, line: usize) -> Self {
        self.place.line = Some(line);
        self
    }

    /// Sets the field path of the location.
    #[must_use]
    pub fn at_field(mut self, field: impl Into<String>) -> Self {
        self.place.field = Some(field.into());
        self
    }

    /// Sets the object or reference of the location.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.place.subject = Some(subject.into());
        self
    }

    /// Sets the next step for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn cut(&mut self) {
        let FindingLocation {
            file,
            field,
            subject,
            ..
        } = &mut self.place;
        let optional = [file, field, subject, &mut self.hint];
        for text in optional.into_iter().flatten().chain([&mut self.message]) {
            if text.len() > MAX_TEXT_BYTES {
                *text = bounded(text, MAX_TEXT_BYTES);
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != FindingLocation::default() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Finding {}

/// Findings in the order in which a person should read them. If this type is used as an error, it
/// contains at least one finding of severity `Error`. [`Findings::push`] limits the number of
/// findings and the length of their texts, because untrusted content and specs can cause any number
/// of long findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Returns `true` if at least one finding is an error.
    pub fn has_errors(&self) -> bool {
        self.0
            .iter()
            .any(|finding| finding.severity == Severity::Error)
    }

    /// Returns the errors.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.0
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.0
            .iter()
            .filter(|finding| finding.severity == Severity::Warning)
    }

    /// Returns the findings in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Returns the number of findings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no findings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first finding; `None` if there are no findings.
    pub fn first(&self) -> Option<&Finding> {
        self.0.first()
    }

    /// Sorts the findings by a key. Findings with equal keys keep their order. A finding that
    /// reports omitted findings is last.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&Finding) -> K) {
        self.0.sort_by_cached_key(|finding| {
            (finding.message == OMITTED_FINDINGS_MESSAGE, key(finding))
        });
    }

    /// Returns `true` if further findings of this severity are not listed.
    pub(crate) fn is_full(&self, severity: Severity) -> bool {
        let same = self.0.iter().filter(|one| one.severity == severity);
        same.count() > MAX_FINDINGS_PER_SEVERITY
    }

    /// Adds a finding, and truncates each of its texts to 4 KiB. Only the first 100 findings of
    /// each severity are kept. One summary finding replaces all further findings of that severity.
    /// Its code is the code of the replaced finding with the most permanent outcome, see
    /// [`Self::outcome`].
    pub fn push(&mut self, mut finding: Finding) {
        if self.0.len() >= MAX_FINDINGS_PER_SEVERITY {
            let severity = finding.severity;
            let mut same = self.0.iter_mut().filter(|one| one.severity == severity);
            if let Some(more) = same.nth(MAX_FINDINGS_PER_SEVERITY) {
                if permanence(finding.code.outcome) < permanence(more.code.outcome) {
                    more.code = finding.code;
                }
                return;
            }
            let kept = self.0.iter().filter(|one| one.severity == severity);
            if kept.count() == MAX_FINDINGS_PER_SEVERITY {
                let more = Finding {
                    severity,
                    ..Finding::error(finding.code, OMITTED_FINDINGS_MESSAGE)
                        .hint("correct the listed findings first")
                };
                self.0.push(more);
                return;
            }
        }
        finding.cut();
        self.0.push(finding);
    }

    /// Returns the most permanent outcome of all errors, in the order `Usage`, `Failed`, `Refused`,
    /// `Unknown`; `None` without errors. A retry helps only if every error is `Unknown`.
    pub fn outcome(&self) -> Option<Outcome> {
        self.errors()
            .map(|finding| finding.code.outcome)
            .min_by_key(|outcome| permanence(*outcome))
    }
}

/// Returns a smaller number for a more permanent outcome.
fn permanence(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Usage => 0,
        Outcome::Failed => 1,
        Outcome::Refused => 2,
        Outcome::Unknown => 3,
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Self::from_iter([finding])
    }
}

/// Adds each finding with [`Findings::push`].
impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        for finding in findings {
            self.push(finding);
        }
    }
}

impl FromIterator<Finding> for Findings {
    fn from_iter<I: IntoIterator<Item = Finding>>(iter: I) -> Self {
        let mut findings = Self::default();
        findings.extend(iter);
        findings
    }
}

impl IntoIterator for Findings {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::codes;

    fn size(findings: &Findings) -> usize {
        findings.0.iter().map(|one| format!("{one:?}").len()).sum()
    }

    #[test]
    fn push_keeps_a_bounded_number_of_findings_with_bounded_texts() {
        let mut findings = Findings::default();
        let long = "x".repeat(64 << 10);
        for severity in [Severity::Warning, Severity::Error] {
            for _ in 0..1_000 {
                let finding = Finding::error(codes::format::BAD_NAME, &long)
                    .in_file(&long)
                    .at_field(&long)
                    .about(&long)
                    .hint(&long);
                findings.push(Finding {
                    severity,
                    ..finding
                });
            }
        }
        assert!(size(&findings) < 5 << 20, "{}", size(&findings));
        assert_eq!(findings.errors().count(), MAX_FINDINGS_PER_SEVERITY + 1);
        assert_eq!(findings.warnings().count(), MAX_FINDINGS_PER_SEVERITY + 1);
        assert_eq!(
            findings.0[MAX_FINDINGS_PER_SEVERITY].message,
            OMITTED_FINDINGS_MESSAGE
        );
    }

    #[test]
    fn push_keeps_errors_after_many_warnings_and_the_most_permanent_outcome() {
        let mut findings = Findings::default();
        findings.extend((0..500).map(|_| Finding::warning(codes::format::EMPTY_FILE, "a")));
        assert!(!findings.has_errors());
        let unknown = codes::install::CONTENT_LOST;
        assert_eq!(unknown.outcome, Outcome::Unknown);
        findings.extend((0..500).map(|_| Finding::error(unknown, "b")));
        assert_eq!(findings.outcome(), Some(Outcome::Unknown));
        findings.push(Finding::error(codes::format::BAD_NAME, "c"));
        assert_eq!(findings.outcome(), Some(Outcome::Refused));
        assert_eq!(findings.0.len(), 2 * (MAX_FINDINGS_PER_SEVERITY + 1));
    }

    #[test]
    fn collect_extend_and_map_bound_findings() {
        let long = "x".repeat(64 << 10);
        let one = || Finding::error(codes::format::BAD_NAME, &long);
        let many = || std::iter::repeat_with(one).take(1_000);
        let collected: Findings = many().collect();
        let mut extended = Findings::from(one());
        extended.extend(collected.clone());
        extended.extend(many());
        let mapped: Findings = (collected.clone().into_iter())
            .map(|finding| finding.about(&long))
            .collect();
        for findings in [collected, extended, mapped] {
            assert_eq!(findings.len(), MAX_FINDINGS_PER_SEVERITY + 1);
            assert!(size(&findings) < 2 << 20, "{}", size(&findings));
        }
        assert!(size(&Findings::from(one())) < 2 * MAX_TEXT_BYTES);
    }

    #[test]
    fn finding_that_replaces_others_is_last_after_sorting() {
        let numbers = (0..150).rev();
        let mut findings: Findings = numbers
            .map(|n| Finding::error(codes::format::BAD_NAME, "a").at_line(n))
            .collect();
        findings.sort_by_key(|finding| finding.place.line);
        assert_eq!(findings.first().unwrap().place.line, Some(50));
        assert_eq!(
            findings.iter().last().unwrap().message,
            OMITTED_FINDINGS_MESSAGE
        );
    }
}
