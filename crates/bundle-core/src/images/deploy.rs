//! Sets the digests of a lock in objects, only at the fields in which images were found.

use serde_json::Value;

use super::{
    Evidence, ImageReference, Lock,
    find::{Allowance, of_object},
};
use crate::{diagnostic::Finding, object::Manifest};

/// Pins each image in the lock to its digest: `web:1.4.0` becomes `web:1.4.0@sha256:…`. A text that
/// is only probably an image is changed only if the lock lists its field. A second call does not
/// change the result. Returns the error of [`find`](super::find) if there are too many images.
pub fn deploy(objects: &mut [Manifest], lock: &Lock) -> Result<(), Finding> {
    if lock.images.is_empty() {
        return Ok(());
    }
    let mut allowance = Allowance::default();
    for object in objects {
        let name = object.id.to_string();
        for hit in of_object(object, &mut allowance)? {
            let Some(locked) = lock.get(&hit.image) else {
                continue;
            };
            let listed = || locked.is_found_in(Some(&name), &hit.field.to_string());
            if hit.evidence != Evidence::Field && !listed() {
                continue;
            }
            let Ok(image) = ImageReference::parse(&hit.image) else {
                continue;
            };
            if image.digest().is_some() {
                continue;
            }
            if let Some(field) = hit.field.of(&mut object.value) {
                let pinned = image.pinned(&locked.digest);
                *field = Value::String(format!("{}{pinned}", hit.field.before()));
            }
        }
    }
    Ok(())
}
