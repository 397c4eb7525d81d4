//! Output of `check`: one line per object on stdout and findings on stderr. With an output format,
//! objects and findings are data on stdout.

use bundle_core::diagnostic::{Finding, Findings, Outcome as Meaning};
use serde::Serialize;

use super::documents::ReviewedObject;
use crate::failure::Outcome;
use crate::failure::exit::Exit;
use crate::ui::format::Format;
use crate::ui::{Ui, one_line};

/// Result of the review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum ReviewResult {
    Admitted,
    Rejected,
    Unknown,
    /// The file itself has no errors. Data outside of the file was not checked.
    NotVerified,
    /// Admission does not review objects of this kind.
    NotReviewed,
}

impl ReviewResult {
    fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Rejected => "refused",
            Self::Unknown => "unknown",
            Self::NotVerified => "nothing found",
            Self::NotReviewed => "not reviewed",
        }
    }
}

/// Result for one object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReport {
    object: String,
    file: String,
    line: usize,
    verdict: ReviewResult,
    findings: Findings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_checked: Vec<String>,
}

impl ObjectReport {
    /// Returns the report of an object with these findings. The findings determine the result.
    pub(super) fn new(
        found: &ReviewedObject,
        findings: Findings,
        not_checked: Vec<String>,
    ) -> Self {
        let verdict = match findings.outcome() {
            None => ReviewResult::Admitted,
            Some(Meaning::Unknown) => ReviewResult::Unknown,
            Some(_) => ReviewResult::Rejected,
        };
        Self {
            object: found.title(),
            file: found.file.clone(),
            line: found.line,
            verdict,
            findings,
            not_checked,
        }
    }

    /// Sets the result of the review, instead of the result that follows from the findings.
    pub(super) fn with_verdict(self, verdict: ReviewResult) -> Self {
        Self { verdict, ..self }
    }

    /// Adds the findings on the content of the object. Errors in the content override the result of
    /// the review. A rejection overrides an unknown result.
    pub(super) fn with_content(mut self, findings: Findings) -> Self {
        self.verdict = match (self.verdict, findings.outcome()) {
            (ReviewResult::Rejected, _) | (_, None) => self.verdict,
            (_, Some(Meaning::Unknown)) => ReviewResult::Unknown,
            (_, Some(_)) => ReviewResult::Rejected,
        };
        self.findings.extend(findings);
        self
    }

    /// Returns the result for an object that admission does not review.
    pub(super) fn not_reviewed(found: &ReviewedObject) -> Self {
        Self::new(found, Findings::default(), Vec::new()).with_verdict(ReviewResult::NotReviewed)
    }

    fn located(&self) -> impl Iterator<Item = Finding> {
        self.findings.iter().map(|finding| {
            let mut finding = finding.clone();
            // If the finding already has a file, the file is in the content. In this case, file and
            // line are not replaced.
            if finding.place.file.is_none() {
                finding.place.file = Some(self.file.clone());
                finding.place.line.get_or_insert(self.line);
            }
            finding
        })
    }
}

/// Prints all results and returns the exit code. A rejection overrides an unknown result.
pub(super) fn print(
    ui: &mut Ui,
    format: Option<Format>,
    reports: &[ObjectReport],
) -> Outcome<Exit> {
    let any = |answer| reports.iter().any(|report| report.verdict == answer);
    let exit = if any(ReviewResult::Rejected) {
        Exit::Rejected
    } else if any(ReviewResult::Unknown) {
        Exit::Unknown
    } else {
        Exit::Done
    };
    if ui.structured(format, &reports)? {
        return Ok(exit);
    }
    for report in reports {
        let word = report.verdict.word();
        ui.data(format!("{} {word}", one_line(&report.object)))?;
        for finding in report.located() {
            ui.finding(&finding);
        }
        for text in &report.not_checked {
            ui.note(format!("not checked: {text}"));
        }
    }
    Ok(exit)
}
