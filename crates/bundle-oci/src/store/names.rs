//! Names of images in layouts.

use std::fmt;

use bundle_core::reference::Digest;

/// Annotation with the full name of an image. containerd imports the image under this name.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Selects an image of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ImageSelector {
    /// The only image.
    Only,
    /// The image with this name.
    Name(String),
    /// The image with this digest.
    Digest(Digest),
}

impl fmt::Display for ImageSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("anything"),
            Self::Name(name) => f.write_str(name),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}
