//! Preview of an installation: the objects that installing content would create, change and delete.
//! `diff` and `deploy --show=diff` use this module.
//!
//! Each object is sent as a server-side dry run, with the permissions of the user and the field
//! manager of bundle-webhook. bundle-webhook installs with another identity, so the API server can
//! still reject the content.

mod certificates;
mod dry_run;
mod external;
mod masking;
mod objects;
pub(super) mod origin;
mod removed;
mod report;
pub(super) mod source;
mod summary;
mod text;

use bundle_api::BundleDeployment;
use bundle_core::format::RenderTarget;
use bundle_core::plan::applyset;
use bundle_core::plan::phases::Phase;
use bundle_core::review::deployment::CheckedDeploymentSpec;
use futures::{StreamExt as _, stream};
use serde_json::{Map, Value};

use crate::artifact::content;
use crate::artifact::location::ArtifactLocation;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::registry::RegistrySettings;
use crate::ui::Ui;

pub(crate) use external::ExternalDiff;
use origin::ObjectOrigin;
pub(crate) use report::PreviewOutput;

/// Maximum number of concurrent requests.
const IN_FLIGHT: usize = 16;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeKind {
    /// The object does not exist.
    Created,
    /// The object exists and changes.
    Configured,
    /// An immutable field changes, so the object must be deleted and created again.
    Replaced,
    /// The object is deleted, because the new content does not contain it.
    Deleted,
    /// The object is not deleted, although the new content does not contain it.
    Kept,
}

impl ChangeKind {
    /// Returns kubectl's word for the change.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Replaced => "replaced",
            Self::Deleted => "deleted",
            Self::Kept => "unchanged",
        }
    }
}

/// Change of one object. `before` and `after` omit the fields that every write changes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObjectChange {
    /// Kind, namespace and name: `Deployment.apps/team-a/web`.
    pub(super) key: String,
    /// `apiVersion`.
    api_version: String,
    /// Kind of the change.
    pub(super) kind: ChangeKind,
    /// Object before the change; `None` if the object does not exist.
    before: Option<Value>,
    /// Object after the change; `None` if the object is deleted.
    after: Option<Value>,
    /// Note for the user.
    pub(super) note: Option<ChangeNote>,
    /// Tool that manages the object before its adoption. `None` if the object is not adopted.
    pub(super) origin: Option<ObjectOrigin>,
}

/// Note about the change of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangeNote {
    /// Text.
    pub(super) text: String,
    /// Effect on the installation.
    pub(super) effect: NoteEffect,
}

/// Effect on the installation of the situation that a note describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteEffect {
    /// The installation continues.
    None,
    /// The installation adopts an object that no bundle manages.
    Adoption,
    /// The installation fails.
    Failure,
    /// The check of CustomResourceDefinitions fails. Only some installations include this check.
    UnsafeDefinition,
}

impl ChangeNote {
    /// Returns a note.
    fn new(text: impl Into<String>, effect: NoteEffect) -> Self {
        Self {
            text: text.into(),
            effect,
        }
    }
}

/// Object that could not be previewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PreviewFailure {
    /// Kind, namespace and name.
    pub(super) key: String,
    /// Cause.
    pub(super) message: String,
    /// `true` if a retry can succeed.
    pub(super) is_retryable: bool,
    /// `true` if the user lacks a permission.
    pub(super) is_forbidden: bool,
}

/// Preview of an installation.
#[derive(Debug, Default)]
pub(crate) struct Preview {
    /// Name of the BundleDeployment.
    name: String,
    /// Changes in the order in which they are applied. Deletions are last.
    pub(super) changes: Vec<ObjectChange>,
    /// Number of objects without a change.
    unchanged: usize,
    /// Objects that could not be previewed.
    pub(super) failures: Vec<PreviewFailure>,
    /// Reasons why the preview may lack some of the objects that the installation would delete.
    pub(super) incomplete: Vec<String>,
}

impl Preview {
    /// Returns `true` if nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes
            .iter()
            .all(|change| change.kind == ChangeKind::Kept)
    }
}

/// Content to preview.
pub(crate) struct PreviewedContent<'a> {
    /// Location of the content.
    pub(crate) location: &'a ArtifactLocation,
    /// Registry settings.
    pub(crate) registry: &'a RegistrySettings,
    /// `true` if this content is installed.
    pub(crate) is_installed: bool,
}

/// Returns the preview of the installation of `content` for the BundleDeployment `object`.
pub(crate) async fn preview(
    ui: &mut Ui,
    cluster: &Cluster,
    object: &Value,
    content: &PreviewedContent<'_>,
) -> Outcome<Preview> {
    let item: BundleDeployment = serde_json::from_value(object.clone()).unwrap_or_default();
    let name = item.metadata.name.clone().unwrap_or_default();
    let spec = CheckedDeploymentSpec::parse(&object["spec"])?;
    let namespace = spec.target_namespace.as_deref();
    let config = match &object["spec"]["config"] {
        Value::Null => Value::Object(Map::new()),
        config => config.clone(),
    };
    let target = RenderTarget {
        config: Some(config),
        ..RenderTarget::in_namespace(namespace)
    };
    // The future is boxed because it is large.
    let rendering = content::render(ui, content.location, content.registry, target);
    let rendered = Box::pin(rendering).await?;
    let applyset = applyset::id(&name, "", "BundleDeployment", bundle_api::names::GROUP);
    let progress = ui.progress(&format!("previewing {name}"));
    let placement = objects::ApplySettings {
        name: &name,
        applyset: &applyset,
        spec: &spec,
        format: rendered.format,
    };
    let mut wanted = placement.prepare_objects(cluster, rendered.objects).await?;
    wanted.sort_by_key(|object| Phase::of(&object.id.group, &object.id.kind));
    let status = item.status.as_ref();
    let has_content = status.is_some_and(|status| status.installed.is_some());
    let state = (content.is_installed, has_content);
    let dry_runs = dry_run::DryRuns::new(cluster, &spec, &applyset, state, &wanted);
    let results: Vec<_> = stream::iter(&wanted)
        .map(|object| dry_runs.change(object))
        .buffered(IN_FLIGHT)
        .collect()
        .await;
    let mut preview = Preview {
        name,
        ..Preview::default()
    };
    for result in results {
        match result {
            Ok(Some(change)) => preview.changes.push(change),
            Ok(None) => preview.unchanged += 1,
            Err(failure) => preview.failures.push(failure),
        }
    }
    removed::add(cluster, &item, &wanted, &mut preview).await;
    drop(progress);
    for change in &mut preview.changes {
        masking::mask(change);
    }
    Ok(preview)
}

/// Previews for tests of other verbs.
#[cfg(test)]
pub(super) mod tests_support {
    use super::{
        ChangeKind, ChangeNote, NoteEffect, ObjectChange, ObjectOrigin, Preview, PreviewFailure,
    };

    /// Returns a preview with one failure.
    pub(crate) fn preview_with_failure(is_forbidden: bool, may_pass: bool) -> Preview {
        Preview {
            failures: vec![PreviewFailure {
                key: "ConfigMap/a/web".to_owned(),
                message: "m".to_owned(),
                is_retryable: may_pass,
                is_forbidden,
            }],
            ..Preview::default()
        }
    }

    /// Returns a preview with one change for each tuple: the key of the object, the effect of its
    /// note, and the tool that manages the object.
    pub(crate) fn preview_with_notes(
        changes: Vec<(&str, NoteEffect, Option<ObjectOrigin>)>,
    ) -> Preview {
        let changes = changes.into_iter();
        Preview {
            changes: changes
                .map(|(key, effect, origin)| ObjectChange {
                    key: key.to_owned(),
                    api_version: "v1".to_owned(),
                    kind: ChangeKind::Configured,
                    before: None,
                    after: None,
                    note: Some(ChangeNote::new("a remark", effect)),
                    origin,
                })
                .collect(),
            ..Preview::default()
        }
    }
}
