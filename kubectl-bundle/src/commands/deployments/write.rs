//! Writes an object and prints the result, for `deploy`, `create`, `adopt` and `rollback`.

use bundle_core::diagnostic::{Finding, codes};
use kube::Resource;
use serde_json::Value;

use super::state::prediction::Goal;
use super::state::waiting;
use crate::cluster::apply::{AppliedObject, ApplyResult, DryRun};
use crate::cluster::managed_fields::differences;
use crate::cluster::wait::Wait;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::format::Format;

/// Maximum number of attempts to read and apply an object that other clients, such as
/// bundle-webhook, write concurrently.
const MAX_ATTEMPTS: u32 = 10;

/// Settings of a write.
pub(crate) struct WriteSettings {
    /// Mode of a dry run.
    pub(crate) dry_run: DryRun,
    /// `true` if the write also sets fields of other field managers.
    pub(crate) force: bool,
    /// Wait mode and timeout.
    pub(crate) wait: Wait,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

/// Result of a write.
pub(super) struct WriteOutcome {
    /// Connection.
    pub(super) cluster: Cluster,
    /// Object before and after the write.
    pub(super) applied: AppliedObject,
    /// Warnings of the API server.
    pub(super) warnings: Vec<String>,
}

impl WriteOutcome {
    /// Returns the failure in the status before the write. Returns `None` if the write changed the
    /// spec, because the change may resolve the failure.
    pub(super) fn known_failure(&self) -> Option<String> {
        let before = self.applied.before.as_ref()?;
        let generation = |object: &Value| object["metadata"]["generation"].as_i64();
        if generation(before) != generation(&self.applied.after) {
            return None;
        }
        waiting::known_failure(&serde_json::from_value(before.clone()).ok()?)
    }

    /// Waits until the BundleDeployment `name` reaches `goal`, and prints the result.
    pub(super) async fn wait_until(
        &self,
        ui: &mut Ui,
        name: &str,
        goal: Goal,
        wait: Wait,
    ) -> Outcome {
        if wait == Wait::No {
            return Ok(());
        }
        self.fail_without_class(name)?;
        let known = self.known_failure();
        waiting::wait_until(ui, &self.cluster, name, goal, wait, known.as_deref()).await?;
        ui.note(match goal {
            Goal::Healthy => format!("{name} is installed and healthy"),
            _ => format!("{name} is installed"),
        });
        Ok(())
    }

    /// Returns an error if an admission warning reports that the class does not exist. In this
    /// case, the object would never be reconciled.
    pub(super) fn fail_without_class(&self, name: &str) -> Outcome {
        let code = codes::review::CLASS_UNKNOWN;
        let class = &self.applied.after["spec"]["provisionerClassName"];
        if !self.warnings.iter().any(|text| text.contains(code.id)) {
            return Ok(());
        }
        Err(Finding::error(
            code,
            format!(
                "ProvisionerClass {} does not exist, so {name} is not installed",
                class.as_str().unwrap_or_default()
            ),
        )
        .hint(
            "select another class with --class; `kubectl get provisionerclasses` lists the classes",
        )
        .into())
    }
}

impl WriteSettings {
    /// Applies the object that `compose` returns for the current object. Prints the API server's
    /// warnings, the result as kubectl does, and each changed field.
    ///
    /// Returns `None` for a dry run. With `--dry-run=client`, no request is sent.
    pub(super) async fn apply<K>(
        &self,
        ui: &mut Ui,
        name: &str,
        compose: impl AsyncFnMut(&mut Ui, Option<&Value>) -> Value,
    ) -> Outcome<Option<WriteOutcome>>
    where
        K: Resource<DynamicType = ()>,
    {
        let written = self.apply_as::<K>(ui, name, None, compose).await?;
        Ok(written.filter(|_| self.dry_run == DryRun::None))
    }

    /// Does the same as [`apply`](Self::apply), with two differences. `word` replaces kubectl's
    /// word for a changed object. A server-side dry run also returns a result.
    pub(super) async fn apply_as<K>(
        &self,
        ui: &mut Ui,
        name: &str,
        word: Option<&str>,
        mut compose: impl AsyncFnMut(&mut Ui, Option<&Value>) -> Value,
    ) -> Outcome<Option<WriteOutcome>>
    where
        K: Resource<DynamicType = ()>,
    {
        if self.dry_run == DryRun::Client {
            let object = compose(ui, None).await;
            self.print::<K>(
                ui,
                &object,
                name,
                word.unwrap_or(ApplyResult::Created.word()),
            )?;
            return Ok(None);
        }
        let written = self.send::<K>(ui, name, self.dry_run, compose).await?;
        let applied = &written.applied;
        let mut shown = applied.after.clone();
        if let Some(metadata) = shown["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let change = applied.change();
        let word = word.filter(|_| change == ApplyResult::Configured);
        self.print::<K>(ui, &shown, name, word.unwrap_or(change.word()))?;
        if let Some(before) = &applied.before {
            for line in differences("spec", &before["spec"], &applied.after["spec"]) {
                ui.note(format!("  {line}"));
            }
        }
        Ok(Some(written))
    }

    /// Sends the object that `compose` returns for the current object, and prints the warnings of
    /// the API server.
    pub(super) async fn send<K>(
        &self,
        ui: &mut Ui,
        name: &str,
        dry_run: DryRun,
        mut compose: impl AsyncFnMut(&mut Ui, Option<&Value>) -> Value,
    ) -> Outcome<WriteOutcome>
    where
        K: Resource<DynamicType = ()>,
    {
        let cluster = Cluster::connect(&self.cluster).await?;
        let mut attempts = 1;
        let (before, after) = loop {
            let before = cluster.read::<K>(name).await?;
            let mut object = compose(ui, before.as_ref()).await;
            if let Some(before) = &before {
                // If another client changed the object after this read, the API server rejects the
                // apply because of this resource version. The loop then reads the object again.
                let version = &before["metadata"]["resourceVersion"];
                object["metadata"]["resourceVersion"] = version.clone();
            }
            let after = cluster.apply::<K>(name, &object, dry_run, self.force).await;
            match &after {
                Err(failure) if attempts < MAX_ATTEMPTS && failure.is_stale() => attempts += 1,
                _ => break (before, after),
            }
        };
        // Warnings are also printed if the API server rejects the request, because they often
        // explain the rejection.
        let warnings = cluster.take_warnings();
        for warning in &warnings {
            ui.server_warning(warning);
        }
        let applied = AppliedObject {
            before,
            after: after?,
        };
        Ok(WriteOutcome {
            cluster,
            applied,
            warnings,
        })
    }

    fn print<K>(&self, ui: &mut Ui, object: &Value, name: &str, word: &str) -> Outcome
    where
        K: Resource<DynamicType = ()>,
    {
        if ui.structured(self.format, object)? {
            return Ok(());
        }
        let qualified = format!("{}.{}/{name}", K::kind(&()).to_lowercase(), K::group(&()));
        if self.format == Some(Format::Name) {
            return ui.data(qualified);
        }
        ui.data(format!("{qualified} {word}{}", self.dry_run.suffix()))
    }
}
