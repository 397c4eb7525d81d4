//! `deploy`: creates or updates a BundleDeployment with the Bundle in its template.

mod arguments;

use bundle_api::ServiceAccountName;
use bundle_api::deployment::{Collision, DeleteCustomResources, DeleteObjects, DriftMode, Replace};
use bundle_api::{BundleDeployment, names};
use serde_json::{Value, json};

use super::bundle_spec::{BundleContent, ResolvedImage, Setting};
use super::preview::{self, PreviewOutput, PreviewedContent};
use super::state::prediction::Goal;
use super::write::{WriteOutcome, WriteSettings};
use crate::artifact::location::ArtifactLocation;
use crate::cluster::apply::{DryRun, FIELD_MANAGER};
use crate::cluster::managed_fields;
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `deploy`.
pub(crate) struct Deploy {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Content.
    pub(crate) content: BundleContent,
    /// Fields of the spec outside of the template.
    pub(crate) settings: DeploymentSettings,
    /// State to wait for.
    pub(crate) goal: Goal,
    /// Output settings of the preview, if one is requested.
    pub(crate) show: Option<PreviewOutput>,
    /// Settings of the write.
    pub(crate) write: WriteSettings,
}

/// Fields of a BundleDeployment that flags set.
#[derive(Debug, Default)]
pub(crate) struct DeploymentSettings {
    /// ServiceAccount for the installation.
    pub(crate) service_account: Setting<ServiceAccountName>,
    /// Namespace for objects without one.
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
    }
}

impl Deploy {
    /// Pins the reference, applies the object, prints the result, and waits if requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let described = self.content.describe(ui).await?;
        let mut last_note = None;
        let written = self
            .write
            .apply_as::<BundleDeployment>(ui, &self.name, None, async |ui, before| {
                let note = before.and_then(|before| self.class_change_note(before));
                if let Some(text) = note.filter(|text| last_note.as_ref() != Some(text)) {
                    ui.note(&text);
                    last_note = Some(text);
                }
                self.compose(&described, before).await
            })
            .await?;
        match (written, &self.show) {
            (Some(written), _) if self.write.dry_run == DryRun::None => {
                let (goal, wait) = (self.goal, self.write.wait);
                written.wait_until(ui, &self.name, goal, wait).await
            }
            (Some(written), Some(output)) => {
                Box::pin(self.preview(ui, &described, output, &written)).await
            }
            _ => Ok(()),
        }
    }

    /// Returns the object to apply: the fields that earlier applies of this field manager set,
    /// overridden by those from flags.
    async fn compose(&self, described: &ResolvedImage, before: Option<&Value>) -> Value {
        let empty = Value::Null;
        let kept = before.and_then(|before| managed_fields::spec(before, FIELD_MANAGER));
        let mut spec = kept.filter(Value::is_object).unwrap_or_else(|| json!({}));
        let old = before.map_or(&empty, |before| &before["spec"]);
        self.content.put_class(described, old, &mut spec).await;
        let (old, bundle) = (&old["template"]["spec"], &mut spec["template"]["spec"]);
        self.content.put(described, old, bundle).await;
        self.settings.set_fields(&mut spec);
        let image = "/spec/template/spec/source/image/ref";
        json!({
            "apiVersion": names::API_VERSION,
            "kind": "BundleDeployment",
            "metadata": described.metadata(&self.name, before, image),
            "spec": spec,
        })
    }

    /// Returns the consequence of changing the class of an existing object.
    fn class_change_note(&self, before: &Value) -> Option<String> {
        let wanted = self.content.class.as_deref()?;
        let old = before["spec"]["provisionerClassName"].as_str()?;
        (old != wanted).then(|| {
            format!(
                "{} changes from class {old} to class {wanted}: this requires verb use on both",
                self.name
            )
        })
    }

    /// Prints the changes of the objects that this write would install.
    async fn preview(
        &self,
        ui: &mut Ui,
        described: &ResolvedImage,
        output: &PreviewOutput,
        written: &WriteOutcome,
    ) -> Outcome {
        let reference = described.reference(&self.content.reference);
        let location = ArtifactLocation::Registry(reference);
        let content = PreviewedContent {
            location: &location,
            registry: &self.content.registry,
            is_installed: false,
        };
        let (cluster, object) = (&written.cluster, &written.applied.after);
        let preview = preview::preview(ui, cluster, object, &content).await?;
        for warning in cluster.take_warnings() {
            ui.server_warning(&warning);
        }
        preview.print(ui, output)
    }
}
