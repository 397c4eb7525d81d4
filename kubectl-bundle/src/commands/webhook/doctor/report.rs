//! Output of the results: one line for each check, or data.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use bundle_core::doctor::{CheckResult, CheckState};
use serde::Serialize;

use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Ui, findings, safe};

/// Results of all checks as data, for `-o json` and `-o yaml`.
#[derive(Serialize)]
struct DoctorReport<'a> {
    checks: &'a [CheckResult],
    summary: DoctorSummary,
}

/// Number of checks by result: ok, warning, problem and unknown.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct DoctorSummary {
    ok: usize,
    warning: usize,
    problem: usize,
    unknown: usize,
}

impl DoctorSummary {
    fn of(results: &[CheckResult]) -> Self {
        let count = |state| results.iter().filter(|one| one.state == state).count();
        Self {
            ok: count(CheckState::Ok),
            warning: count(CheckState::Warning),
            problem: count(CheckState::Problem),
            unknown: count(CheckState::Unknown),
        }
    }
}

/// Prints the results.
pub(super) fn print(ui: &mut Ui, format: Option<Format>, results: &[CheckResult]) -> Outcome {
    let report = DoctorReport {
        checks: results,
        summary: DoctorSummary::of(results),
    };
    if ui.structured(format, &report)? {
        return Ok(());
    }
    for result in results {
        ui.text(&line(result))?;
    }
    let DoctorSummary {
        ok,
        warning,
        problem,
        unknown,
    } = report.summary;
    ui.note(format!(
        "{ok} ok, {warning} warning, {problem} problem, {unknown} unknown"
    ));
    Ok(())
}

/// Returns the line of a result, and its hint.
fn line(result: &CheckResult) -> String {
    let (style, word) = match result.state {
        CheckState::Ok => (AnsiColor::Green.on_default(), "ok"),
        CheckState::Warning => (AnsiColor::Yellow.on_default().bold(), "warning"),
        CheckState::Problem => (AnsiColor::Red.on_default().bold(), "problem"),
        CheckState::Unknown => (Style::new().bold(), "unknown"),
    };
    let mut text = format!("{style}{word:<7}{style:#}  {:<13} ", result.check);
    if !result.subject.is_empty() {
        text.push_str(&safe(&result.subject));
        text.push_str(": ");
    }
    text.push_str(&safe(&result.message));
    if let Some(code) = result.code {
        // Writing to a String cannot fail.
        let _ = write!(text, " [{code}]");
    }
    text.push('\n');
    if let Some(hint) = &result.hint {
        text.push_str("       ");
        text.push_str(&findings::hint(hint));
    }
    text
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::{Finding, codes};

    use super::*;

    #[test]
    fn line_has_state_check_subject_message_code_and_hint() {
        let finding = Finding::error(codes::doctor::NOT_READY, "0 of 2 pods are ready\u{1b}[2J")
            .about("deployment a/b")
            .hint("look at its pods");
        let lines = [
            line(&CheckResult::ok("clock", "API server", "same time")),
            line(&CheckResult::of("pods", finding)),
        ]
        .concat();
        let plain = anstream::adapter::strip_str(&lines).to_string();
        insta::assert_snapshot!(plain, @r"
        ok       clock         API server: same time
        problem  pods          deployment a/b: 0 of 2 pods are ready\u{1b}[2J [BUNDLE-DOCTOR-007]
                 hint: look at its pods
        ");
    }

    #[test]
    fn summary_counts_each_state() {
        let ok = CheckResult::ok("a", "", "b");
        let unknown = CheckResult::skipped("a", "", "b");
        let summary = DoctorSummary::of(&[ok.clone(), ok, unknown]);
        let expected = DoctorSummary {
            ok: 2,
            warning: 0,
            problem: 0,
            unknown: 1,
        };
        assert_eq!(summary, expected);
    }
}
