//! Arguments of `copy`.

use clap::Args;

use super::Copy;
use crate::artifact::location::ArtifactLocation;
use crate::commands::transfer::arguments::CopyFlags;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags, invalid_flag};

/// Copy an artifact between registries, OCI layouts and archives, with its signatures and
/// attestations.
///
/// The content and the digest stay the same. Existing content is not sent again. A manifest is
/// written after the content that it refers to, and the tag is written last. Therefore a name never
/// refers to an incomplete artifact after an interrupted copy.
///
/// A text that is an existing path is read as a path. A path that does not exist is recognized by
/// its form (./…, /…, ….oci, ….tar) or by oci:PATH and oci-archive:PATH. PATH:NAME or PATH@DIGEST
/// selects one of several images in a layout or archive.
///
/// With --platform an index keeps its digest, so the index still refers to the images that are not
/// copied. Layouts and archives accept such an index. Most registries reject such an index.
///
/// With --images, the command reads each image in the lock file of the package with your
/// credentials for the registry of the image. The author of the package chooses these images.
/// Therefore do not write images of an untrusted package to a target that other users can read. The
/// command prints each registry that is not the registry of the package.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Between registries, with signatures
  kubectl bundle copy registry.example.com/team/web:1.4.0 other.example.com/mirror/web:1.4.0

  # To an archive, and from there to a registry
  kubectl bundle copy registry.example.com/team/web:1.4.0 web.tar
  kubectl bundle copy web.tar other.example.com/web:1.4.0

  # With every image of the package
  kubectl bundle copy registry.example.com/team/web:1.4.0 other.example.com/web:1.4.0 --images --images-to other.example.com/mirror")]
pub(crate) struct Arguments {
    /// Source: reference, OCI layout or archive, or folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Target: reference, OCI layout or archive
    #[arg(value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) target: String,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) selection: CopyFlags,
    /// Also copy every container image that the lock file of the package lists
    #[arg(long)]
    pub(crate) images: bool,
    /// Registry and path below which the images are copied, if the target is a registry
    #[arg(long, value_name = "REGISTRY[/PREFIX]", requires = "images")]
    pub(crate) images_to: Option<String>,
    /// Move the tag if it refers to other content
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `copy`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Copy> {
        let target = ArtifactLocation::target(&self.target)?;
        let images_to = self.images_to.as_deref().map(str::parse).transpose()?;
        if self.images && images_to.is_none() && matches!(target, ArtifactLocation::Registry(_)) {
            return Err(
                invalid_flag("--images", "the target of the images is missing")
                    .hint("set a registry and a prefix for them: --images-to REGISTRY/PREFIX")
                    .into(),
            );
        }
        Ok(Copy {
            source: ArtifactLocation::source(&self.source)?,
            target,
            selection: self.selection.options()?,
            images: self.images,
            images_to,
            overwrite_tag: self.overwrite_tag,
            format: self.output.format(),
            registry: self.registry.settings(environment)?,
        })
    }
}
