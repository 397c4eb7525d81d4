//! Output of a plan: tables on stdout, or all of it as data.

use bundle_core::diagnostic::{Finding, codes};
use serde_json::{Value, json};

use super::DeploymentPlan;
use super::checks::CheckResult;
use crate::commands::deployments::preview::ChangeKind;
use crate::failure::Outcome;
use crate::ui::{Table, Ui};

/// Returns the plan as data. The fields `objects`, `failures` and `summary` are the same as in
/// `diff`.
pub(super) fn data(plan: &DeploymentPlan) -> Value {
    let mut data = plan.preview.data();
    let steps = plan.steps.iter();
    data["steps"] = steps
        .map(|(name, effect)| json!({"name": name, "effect": effect}))
        .collect();
    let checks = plan.checks.iter().map(|check| {
        json!({"name": check.name, "result": check.result.word(), "message": check.message})
    });
    data["checks"] = checks.collect();
    if let Some(digest) = &plan.digest {
        data["digest"] = digest.clone().into();
    }
    data
}

impl DeploymentPlan {
    /// Returns the plan as tables: steps, changes and checks.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if !self.steps.is_empty() {
            let mut table = Table::new(["STEP", "EFFECT"]);
            for (name, effect) in &self.steps {
                table.row([name.clone(), (*effect).to_owned()]);
            }
            text.push_str(&table.render());
            text.push('\n');
        }
        if !self.preview.changes.is_empty() {
            let mut table = Table::new(["CHANGE", "OBJECT", "NOTE"]);
            for change in &self.preview.changes {
                let word = match change.kind {
                    ChangeKind::Deleted => "pruned",
                    ChangeKind::Kept => "kept",
                    kind => kind.word(),
                };
                let note = change.note.as_ref();
                table.row([
                    word.to_owned(),
                    change.key.clone(),
                    note.map_or_else(|| "-".to_owned(), |note| note.text.clone()),
                ]);
            }
            text.push_str(&table.render());
            text.push('\n');
        }
        let mut table = Table::new(["CHECK", "RESULT", "MESSAGE"]);
        for check in &self.checks {
            table.row([
                check.name.to_owned(),
                check.result.word().to_owned(),
                check.message.clone(),
            ]);
        }
        text.push_str(&table.render());
        text
    }

    /// Prints the summary.
    pub(super) fn note(&self, ui: &mut Ui) {
        if self.is_inventory_unread {
            ui.note(format!(
                "{}: without permission to get the inventory, the plan starts from the status",
                self.name
            ));
        }
        ui.note(format!("{}: {}", self.name, self.preview.counts()));
    }

    /// Returns an error if a check fails, or if its result is unknown.
    pub(super) fn result(&self) -> Outcome {
        let named = |result| {
            let checks = self.checks.iter().filter(|check| check.result == result);
            let names: Vec<&str> = checks.map(|check| check.name).collect();
            names.join(", ")
        };
        let name = &self.name;
        let failed = named(CheckResult::Fails);
        if !failed.is_empty() {
            let message = format!("bundledeployment {name}: checks fail: {failed}");
            return Err(Finding::error(codes::cluster::PLAN_FAILS, message)
                .hint("the messages of the checks name the cause")
                .into());
        }
        let unknown = named(CheckResult::Unknown);
        if !unknown.is_empty() {
            let message =
                format!("bundledeployment {name}: the results of checks are unknown: {unknown}");
            return Err(Finding::error(codes::cluster::PLAN_UNKNOWN, message)
                .hint("request the permissions that the messages of the checks name, or retry")
                .into());
        }
        Ok(())
    }
}
