//! `push`: a bundle on this disk goes to a registry.
//! Not here: the transfer (bundle-oci).

use std::path::PathBuf;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use bundle_oci::registry::TagPolicy;
use serde::Serialize;

use crate::content;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `push` needs to know.
pub(crate) struct Push {
    /// A layout or a folder.
    pub(crate) source: PathBuf,
    /// Where to.
    pub(crate) reference: Reference,
    /// Whether a tag may be moved.
    pub(crate) overwrite_tag: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
struct Report {
    reference: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    new: bool,
}

impl Push {
    /// Pushes, and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        if self.reference.tag().is_none() {
            return Err(
                Finding::error(codes::usage::BAD_ARGUMENT, "a tag is needed to push to")
                    .about(self.reference.to_string())
                    .hint("write REGISTRY/REPOSITORY:TAG; the digest follows from the content")
                    .into(),
            );
        }
        let packed = content::load(ui, &self.source)?;
        if self
            .reference
            .digest()
            .is_some_and(|wanted| *wanted != packed.digest)
        {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!(
                    "the content of {} has another digest, {}",
                    self.source.display(),
                    packed.digest
                ),
            )
            .about(self.reference.to_string())
            .hint("leave the digest out, or build the content that it names")
            .into());
        }
        let client = registry::client(&self.registry)?;
        let policy = if self.overwrite_tag {
            TagPolicy::Move
        } else {
            TagPolicy::Keep
        };
        let pushed = {
            let _progress = ui.progress(&format!("pushing to {}", self.reference));
            client
                .push(&packed, &self.reference, policy)
                .await
                .map_err(|error| error.finding())?
        };
        let tag = self.reference.tag().unwrap_or_default();
        if pushed.new {
            ui.note(format!(
                "pushed {} ({} bytes)",
                self.reference,
                packed.size()
            ));
        } else {
            ui.note(format!(
                "nothing to do: {} is there already, and {tag} names it",
                pushed.pinned.digest()
            ));
        }
        let report = Report {
            reference: pushed.pinned.without_tag(),
            digest: pushed.pinned.digest().to_string(),
            tag: self.reference.tag().map(str::to_owned),
            new: pushed.new,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.reference)?;
        }
        Ok(())
    }
}
