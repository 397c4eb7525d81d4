//! `render`: the objects of a bundle, as the pod reads them.
//! Not here: reading content (bundle-core), and fetching it (bundle-oci).

use std::path::Path;

use bundle_core::format::{self, Content};
use bundle_core::images::Allowed;
use bundle_core::plan::phases::phases;
use bundle_core::yaml;
use bundle_oci::Limits;
use serde_json::{Value, json};

use crate::content::{self, Terms};
use crate::failure::Outcome;
use crate::place::Place;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `render` needs to know.
pub(crate) struct Render {
    /// The place of the bundle.
    pub(crate) place: Place,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

impl Render {
    /// Reads and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let content = self.content(ui).await?;
        let objects: Vec<&Value> = phases(&content.objects)
            .into_iter()
            .flat_map(|(_, objects)| objects)
            .map(|object| &object.value)
            .collect();
        if self.format == Some(Format::Json) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            return ui.structured(self.format, &list).map(|_| ());
        }
        for object in objects {
            ui.text(&format!("---\n{}", yaml::to_string(object)))?;
        }
        Ok(())
    }

    async fn content(&self, ui: &mut Ui) -> Outcome<Content> {
        let client = registry::client(&self.registry)?;
        let located = {
            let _progress = ui.progress(&format!("reading {}", self.place));
            match self.place.open(&client).await? {
                Some(located) => Some(located.files(&Limits::default()).await?),
                None => None,
            }
        };
        if let Some(files) = located {
            let content = format::read(&files)?;
            ui.warnings(&content.warnings);
            return Ok(content);
        }
        let terms = Terms {
            // Names of images are build's to refuse.
            allowed: Allowed {
                patterns: vec!["**".to_owned()],
            },
            ..Terms::default()
        };
        Ok(content::open(ui, Path::new(&self.place.to_string()), terms)?.content)
    }
}
