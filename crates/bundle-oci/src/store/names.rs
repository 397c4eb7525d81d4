//! Names of images in layouts.
//! Not here: references of registries (bundle_core::reference).

use std::fmt;

use bundle_core::reference::Digest;

/// Where containerd looks for an image's whole name; tools that import archives give it that name.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Which image of a layout is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pick {
    /// The only one.
    Only,
    /// The one of that name.
    Name(String),
    /// The one of that digest.
    Digest(Digest),
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("anything"),
            Self::Name(name) => f.write_str(name),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}
