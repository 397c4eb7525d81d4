//! `render`: prints the objects of a bundle, parsed with the reconciler's code.

mod arguments;

use std::path::Path;

use bundle_api::names;
use bundle_core::check;
use bundle_core::format::{self, Content, RenderInput, RenderTarget};
use bundle_core::images::Allowed;
use bundle_core::plan::applyset;
use bundle_core::plan::normalize::normalize;
use bundle_core::plan::phases::phases;
use bundle_core::yaml;
use bundle_oci::Limits;
use serde_json::{Value, json};

use crate::artifact::folder::{self, BuildOptions};
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Kind of the object that installs content.
const DEPLOYMENT: &str = "BundleDeployment";

/// Settings of `render`.
pub(crate) struct Render {
    /// Location of the bundle.
    pub(crate) location: ArtifactLocation,
    /// Name of the BundleDeployment; defaults to the name of the package.
    pub(crate) name: Option<String>,
    /// Namespace of objects without a namespace, and of an operator bundle.
    pub(crate) namespace: Option<String>,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Render {
    /// Reads the bundle and prints its objects.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let content = self.content(ui).await?;
        let objects = self.normalized_objects(&content);
        if self.format == Some(Format::Json) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            return ui.structured(self.format, &list).map(|_| ());
        }
        for object in objects {
            ui.text(&format!("---\n{}", yaml::to_string(&object)))?;
        }
        Ok(())
    }

    /// Returns the objects in the order and form in which they are applied. Kinds of unknown scope
    /// get no namespace.
    fn normalized_objects(&self, content: &Content) -> Vec<Value> {
        let package = content.package.as_ref();
        let name = self
            .name
            .as_deref()
            .or_else(|| package.map(|package| package.name.as_str()));
        let applyset = name.map(|name| applyset::id(name, "", DEPLOYMENT, names::GROUP));
        let mut labels = Vec::new();
        if let (Some(name), Some(applyset)) = (name, &applyset) {
            labels = vec![
                (names::LABEL_OWNER_KIND, DEPLOYMENT),
                (names::LABEL_OWNER_NAME, name),
                (names::LABEL_APPLYSET_PART_OF, applyset.as_str()),
            ];
        }
        let namespaced = check::namespaced(&content.objects);
        let ordered = phases(&content.objects);
        let ordered = ordered.into_iter().flat_map(|(_, objects)| objects);
        ordered
            .map(|object| {
                let own = object.id.namespace.as_deref();
                let namespace = match namespaced(object) {
                    Some(true) => own.or(self.namespace.as_deref()),
                    Some(false) => None,
                    None => own,
                };
                let mut value = object.value.clone();
                normalize(&mut value, namespace, &labels);
                value
            })
            .collect()
    }

    async fn content(&self, ui: &mut Ui) -> Outcome<Content> {
        let client = registry::client(&self.registry)?;
        let located = {
            let _progress = ui.progress(&format!("reading {}", self.location));
            match self.location.open(&client).await? {
                Some(located) => Some(located.files(&Limits::default()).await?),
                None => None,
            }
        };
        if let Some(files) = located {
            let content = format::render(&RenderInput {
                files: &files,
                target: &RenderTarget::in_namespace(self.namespace.as_deref()),
                output: None,
            })?;
            ui.warnings(&content.warnings);
            return Ok(content);
        }
        let options = BuildOptions {
            // Only `build` rejects names of images.
            allowed: Allowed {
                patterns: vec!["**".to_owned()],
            },
            target: self.namespace.clone(),
            ..BuildOptions::default()
        };
        Ok(folder::open(ui, Path::new(&self.location.to_string()), options)?.content)
    }
}
