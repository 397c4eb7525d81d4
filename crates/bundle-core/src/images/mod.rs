//! Container images of objects: search, rejection of mutable references, lock file, and deployment
//! with locked digests. This module sends no requests to registries.

mod deploy;
mod find;
mod hygiene;
mod known;
mod lock;
mod path;
mod reference;
mod resemblance;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::diagnostic::Finding;

pub use deploy::deploy;
pub use find::find;
pub use hygiene::{MutableTagAllowlist, check_references};
pub use lock::{ANNOTATION, FILE as LOCK_FILE, Lock, LockedImage, annotation, locked};
pub use path::{FieldPath, Step};
pub use reference::ImageReference;

/// Image reference as written, with all of its locations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundImage {
    /// Reference as written.
    pub image: String,
    /// Locations of the image, ordered by object and field.
    pub places: Vec<ImageLocation>,
}

impl FoundImage {
    /// Returns `true` if no location is certain to contain an image.
    pub fn is_probable(&self) -> bool {
        self.places
            .iter()
            .all(|place| place.evidence != Evidence::Field)
    }

    /// Returns the finding with the location of the image.
    pub fn at(&self, finding: Finding) -> Finding {
        hygiene::placed(finding, &self.places)
    }
}

/// Location of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageLocation {
    /// Object in the form of messages: `Deployment.apps/team-a/web`. `None` for the list in
    /// `bundle.yaml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Path of the field.
    pub field: FieldPath,
    /// File in the bundle.
    pub file: String,
    /// First line of the object, from 1.
    pub line: usize,
    /// Evidence that the location contains an image.
    pub evidence: Evidence,
}

impl ImageLocation {
    /// Returns object and field, as stored in a lock.
    pub fn stored_location(&self) -> StoredLocation {
        StoredLocation {
            object: self.object.clone(),
            field: self.field.to_string(),
        }
    }
}

/// Location as stored in a lock. The location stays valid if files are renamed or lines move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredLocation {
    /// Object; `None` for the list in `bundle.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Path of the field.
    pub field: String,
}

/// Evidence that a location contains an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// The definition of the kind specifies that the field contains images.
    Field,
    /// The name of the variable, argument or field suggests an image: `RELATED_IMAGE_PROXY`,
    /// `--sidecar-image=`. The text is not necessarily an image reference.
    Name,
    /// The text has the form of an image reference: a registry, a path, and a tag or digest. Other
    /// values can have this form too.
    Look,
}
