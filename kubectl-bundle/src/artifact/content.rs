//! Reads the content of an artifact and renders it for an installation. The reconciler uses the
//! same code.

use std::path::Path;

use bundle_core::format::{Content, RenderTarget};
use bundle_core::images::MutableTagAllowlist;
use bundle_oci::Limits;

use super::folder::{self, BuildOptions};
use super::input;
use super::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

/// Reads the artifact at `location`, and renders its content for `target`. Prints warnings.
pub(crate) async fn render(
    ui: &mut Ui,
    location: &ArtifactLocation,
    settings: &RegistrySettings,
    target: RenderTarget,
) -> Outcome<Content> {
    let client = registry::client(settings)?;
    let located = {
        let _progress = ui.progress(&format!("reading {location}"));
        match location.open(&client).await? {
            Some(located) => Some(located.files(&Limits::default()).await?),
            None => None,
        }
    };
    if let Some(files) = located {
        let content = input::render(&files, &target)?;
        ui.warnings(&content.warnings);
        return Ok(content);
    }
    let options = BuildOptions {
        // Images with a moving tag or without a tag are allowed here, because the content is only
        // read. Verbs that build the folder, such as `build` and `push`, reject these images.
        allowed: MutableTagAllowlist {
            patterns: vec!["**".to_owned()],
        },
        target,
        ..BuildOptions::default()
    };
    Ok(folder::open(ui, Path::new(&location.to_string()), options)?.content)
}
