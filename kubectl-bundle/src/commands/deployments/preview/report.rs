//! Output of a preview. Diffs are printed on stdout, the summary and failures on stderr. With a
//! data format, all of them are printed as data.

use anstream::adapter::strip_str;
use bundle_core::diagnostic::{Finding, Findings, codes};
use serde_json::{Value, json};

use super::summary::Summary;
use super::{ChangeKind, ExternalDiff, ObjectChange, Preview, text};
use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Ui, one_line, safe};

/// Output settings of a preview.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreviewOutput {
    /// Output format; `None` prints unified diffs.
    pub(crate) format: Option<Format>,
    /// Program that prints the differences.
    pub(crate) external: Option<ExternalDiff>,
}

impl Preview {
    /// Prints the preview. Returns an error if some objects could not be previewed.
    pub(crate) fn print(&self, ui: &mut Ui, output: &PreviewOutput) -> Outcome {
        let summary = Summary::of(self);
        if output.format == Some(Format::Name) {
            for change in self.changed() {
                ui.data(one_line(&change.key))?;
            }
        } else if !ui.structured(output.format, &self.structured(&summary))? {
            match &output.external {
                Some(_) if self.is_empty() => {}
                Some(program) => program.run(&self.changes)?,
                None => {
                    for change in &self.changes {
                        ui.text(&text::unified(change))?;
                    }
                }
            }
            self.print_summary(ui, &summary);
        }
        self.warn_of_missing_deletions(ui);
        self.check()
    }

    /// Prints a warning if deletions may be missing.
    pub(in super::super) fn warn_of_missing_deletions(&self, ui: &mut Ui) {
        if !self.incomplete.is_empty() {
            let message = format!(
                "some deletions may be missing: {}",
                self.incomplete.join("; ")
            );
            let finding = Finding::warning(codes::cluster::OBJECTS_UNREAD, message);
            ui.finding(&finding.hint("request a role with permission to list these objects"));
        }
    }

    /// Returns the changes, without objects that are kept.
    fn changed(&self) -> impl Iterator<Item = &ObjectChange> {
        let changes = self.changes.iter();
        changes.filter(|change| change.kind != ChangeKind::Kept)
    }

    fn print_summary(&self, ui: &mut Ui, summary: &Summary) {
        for change in &self.changes {
            if let Some(note) = &change.note {
                ui.note(format!("{}: {}", safe(&change.key), safe(&note.text)));
            }
        }
        for line in summary.lines() {
            ui.note(safe(&line));
        }
        ui.note(format!("{}: {}", self.name, summary.counts()));
    }

    /// Returns the preview as data.
    pub(in super::super) fn data(&self) -> Value {
        self.structured(&Summary::of(self))
    }

    /// Returns the numbers of changed objects in one line.
    pub(in super::super) fn counts(&self) -> String {
        Summary::of(self).counts()
    }

    fn structured(&self, summary: &Summary) -> Value {
        let objects = self.changes.iter().map(|change| {
            let mut value = json!({
                "object": change.key,
                "apiVersion": change.api_version,
                "change": change.kind.word(),
                "diff": strip_str(&text::unified(change)).to_string(),
            });
            for (key, known) in [
                ("before", change.before.clone()),
                ("after", change.after.clone()),
                (
                    "note",
                    change.note.as_ref().map(|note| note.text.clone().into()),
                ),
            ] {
                if let Some(known) = known {
                    value[key] = known;
                }
            }
            value
        });
        let failures = self
            .failures
            .iter()
            .map(|failure| json!({"object": failure.key, "message": failure.message}));
        json!({
            "bundleDeployment": self.name,
            "objects": objects.collect::<Value>(),
            "failures": failures.collect::<Value>(),
            "summary": summary,
        })
    }

    /// Returns an error that lists each object that could not be previewed.
    pub(in super::super) fn check(&self) -> Outcome {
        let findings: Findings = self
            .failures
            .iter()
            .map(|failure| {
                let (code, hint) = if failure.is_retryable {
                    (codes::cluster::NOT_PREVIEWED, "run the command again")
                } else {
                    (
                        codes::cluster::PREVIEW_REJECTED,
                        "correct the object, or request the permission: the preview uses your permissions",
                    )
                };
                let message = format!("{}: {}", failure.key, failure.message);
                Finding::error(code, message).hint(hint)
            })
            .collect();
        if findings.has_errors() {
            return Err(findings.into());
        }
        Ok(())
    }
}
