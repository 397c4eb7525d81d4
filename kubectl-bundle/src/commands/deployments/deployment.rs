//! Writes a BundleDeployment and waits for it, for `deploy`, `adopt` and `run`.

use bundle_api::ServiceAccountName;
use bundle_api::deployment::{
    Collision, DeleteCustomResources, DeleteObjects, DriftMode, Replace, WaitFor,
};
use bundle_api::{BundleDeployment, names};
use serde_json::{Value, json};

use super::bundle_spec::Setting;
use super::state::prediction::Goal;
use super::write::{WriteOutcome, WriteSettings};
use crate::cluster::apply::{DryRun, FIELD_MANAGER};
use crate::cluster::managed_fields;
use crate::failure::Outcome;
use crate::ui::Ui;

/// Settings for writing a BundleDeployment.
pub(crate) struct DeploymentWrite {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Fields of the spec outside of the template.
    pub(crate) settings: DeploymentSettings,
    /// State to wait for.
    pub(crate) goal: Goal,
    /// Settings of the write.
    pub(crate) write: WriteSettings,
}

/// Fields of a BundleDeployment that flags set.
#[derive(Debug, Default)]
pub(crate) struct DeploymentSettings {
    /// ServiceAccount for the installation.
    pub(crate) service_account: Setting<ServiceAccountName>,
    /// Namespace for objects without a namespace.
    pub(crate) target_namespace: Option<String>,
    /// `true` creates a missing namespace.
    pub(crate) create_namespace: Option<bool>,
    /// Treatment of existing objects without an owner.
    pub(crate) collision: Option<Collision>,
    /// Treatment of drift.
    pub(crate) drift: Option<DriftMode>,
    /// `true` pauses reconciliation.
    pub(crate) paused: Option<bool>,
    /// Treatment of the objects on deletion.
    pub(crate) deletion: Option<DeleteObjects>,
    /// Treatment of CRDs with custom resources on deletion.
    pub(crate) custom_resources: Option<DeleteCustomResources>,
    /// Treatment of objects with immutable fields that change.
    pub(crate) replace: Option<Replace>,
    /// Condition under which the next phase of an installation starts.
    pub(crate) wait_for: Option<WaitFor>,
    /// Range of versions that may be installed.
    pub(crate) versions: Setting<String>,
}

impl DeploymentSettings {
    /// Sets the fields in a spec.
    fn set_fields(&self, spec: &mut Value) {
        match &self.service_account {
            Setting::Keep => {}
            Setting::Unset => {
                if let Some(spec) = spec.as_object_mut() {
                    spec.remove("serviceAccount");
                }
            }
            Setting::Set(account) => spec["serviceAccount"] = json!(account),
        }
        if let Some(namespace) = &self.target_namespace {
            spec["targetNamespace"] = json!(namespace);
        }
        if let Some(creates) = self.create_namespace {
            spec["createNamespace"] = json!(creates);
        }
        if let Some(collision) = self.collision {
            spec["collision"] = json!(collision);
        }
        if let Some(mode) = self.drift {
            spec["drift"]["mode"] = json!(mode);
        }
        if let Some(paused) = self.paused {
            spec["paused"] = json!(paused);
        }
        if let Some(objects) = self.deletion {
            spec["deletion"]["objects"] = json!(objects);
        }
        if let Some(resources) = self.custom_resources {
            spec["deletion"]["customResources"] = json!(resources);
        }
        if let Some(replace) = self.replace {
            spec["rollout"]["replace"] = json!(replace);
        }
        if let Some(condition) = self.wait_for {
            spec["rollout"]["waitFor"] = json!(condition);
        }
        match &self.versions {
            Setting::Keep => {}
            Setting::Unset => {
                let rollout = spec.get_mut("rollout").and_then(Value::as_object_mut);
                if let Some(rollout) = rollout {
                    rollout.remove("versions");
                }
            }
            Setting::Set(range) => spec["rollout"]["versions"] = json!(range),
        }
    }
}

impl DeploymentWrite {
    /// Applies the object, and prints the result. The spec contains all fields that this field
    /// manager applied before, overridden by the fields from flags. `compose` sets class and
    /// template in the spec, and returns the metadata of the object.
    ///
    /// Returns `None` if no request was sent. For a server-side dry run, returns the result of the
    /// dry run.
    pub(super) async fn apply(
        &self,
        ui: &mut Ui,
        class: Option<&str>,
        compose: impl AsyncFn(Option<&Value>, &mut Value) -> Value,
    ) -> Outcome<Option<WriteOutcome>> {
        let mut last_note = None;
        self.write
            .apply_as::<BundleDeployment>(ui, &self.name, None, async |ui, before| {
                let note = before.and_then(|before| self.class_change_note(class?, before));
                if let Some(text) = note.filter(|text| last_note.as_ref() != Some(text)) {
                    ui.note(&text);
                    last_note = Some(text);
                }
                self.object(before, &compose).await
            })
            .await
    }

    /// Sends the object as a server-side dry run, and does not print the result.
    pub(super) async fn dry_run(
        &self,
        ui: &mut Ui,
        compose: impl AsyncFn(Option<&Value>, &mut Value) -> Value,
    ) -> Outcome<WriteOutcome> {
        self.write
            .send::<BundleDeployment>(ui, &self.name, DryRun::Server, async |_, before| {
                self.object(before, &compose).await
            })
            .await
    }

    /// Returns the object to apply.
    async fn object(
        &self,
        before: Option<&Value>,
        compose: &impl AsyncFn(Option<&Value>, &mut Value) -> Value,
    ) -> Value {
        let kept = before.and_then(|before| managed_fields::spec(before, FIELD_MANAGER));
        let mut spec = kept.filter(Value::is_object).unwrap_or_else(|| json!({}));
        let metadata = compose(before, &mut spec).await;
        self.settings.set_fields(&mut spec);
        json!({
            "apiVersion": names::API_VERSION,
            "kind": "BundleDeployment",
            "metadata": metadata,
            "spec": spec,
        })
    }

    /// Returns a note about the permissions that a change of the class requires. Returns `None` if
    /// the class does not change.
    fn class_change_note(&self, wanted: &str, before: &Value) -> Option<String> {
        let old = before["spec"]["provisionerClassName"].as_str()?;
        (old != wanted).then(|| {
            format!(
                "{} changes from class {old} to class {wanted}: this requires verb use on both \
                classes",
                self.name
            )
        })
    }

    /// Waits for the goal, if requested.
    pub(super) async fn wait(&self, ui: &mut Ui, written: &WriteOutcome) -> Outcome {
        let (goal, wait) = (self.goal, self.write.wait);
        written.wait_until(ui, &self.name, goal, wait).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_set_removed_or_unchanged() {
        let before = json!({"rollout": {"versions": "^1.4", "waitFor": "Ready"}});
        let keeps = json!({"rollout": {"waitFor": "Ready"}});
        let sets = json!({"rollout": {"versions": "^2.0", "waitFor": "Ready"}});
        for (versions, expected) in [
            (Setting::Keep, before.clone()),
            (Setting::Unset, keeps),
            (Setting::Set("^2.0".to_owned()), sets),
        ] {
            let settings = DeploymentSettings {
                versions,
                ..DeploymentSettings::default()
            };
            let mut spec = before.clone();
            settings.set_fields(&mut spec);
            assert_eq!(spec, expected);
        }
        let settings = DeploymentSettings {
            versions: Setting::Unset,
            ..DeploymentSettings::default()
        };
        let mut spec = json!({});
        settings.set_fields(&mut spec);
        assert_eq!(spec, json!({}));
    }
}
