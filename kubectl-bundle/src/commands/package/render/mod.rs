//! `render`: prints the objects of a bundle, parsed with the reconciler's code.

mod arguments;

use bundle_api::names;
use bundle_core::check;
use bundle_core::format::{Content, RenderTarget};
use bundle_core::plan::applyset;
use bundle_core::plan::normalize::normalize;
use bundle_core::plan::phases::phases;
use bundle_core::plan::placement::ObjectOwner;
use bundle_core::yaml;
use serde_json::{Value, json};

use crate::artifact::content;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::RegistrySettings;
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Kind of the owner of the rendered objects, for their labels.
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
        let target = RenderTarget {
            name: self.name.clone(),
            ..RenderTarget::in_namespace(self.namespace.as_deref())
        };
        let content = content::render(ui, &self.location, &self.registry, target).await?;
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

    /// Returns the objects in the order and form in which they are applied. Objects get no
    /// namespace if it is unknown whether their kind is namespaced.
    fn normalized_objects(&self, content: &Content) -> Vec<Value> {
        let package = content.package.as_ref();
        let name = self
            .name
            .as_deref()
            .or_else(|| package.map(|package| package.name.as_str()));
        let applyset = name.map(|name| applyset::id(name, "", DEPLOYMENT, names::GROUP));
        let owner = name.zip(applyset.as_deref());
        let labels = owner.map(|(name, applyset)| {
            let owner = ObjectOwner {
                name,
                applyset,
                namespace: None,
            };
            owner.labels()
        });
        let labels = labels.as_ref().map_or(&[][..], |labels| &labels[..]);
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
                normalize(&mut value, namespace, labels);
                value
            })
            .collect()
    }
}
