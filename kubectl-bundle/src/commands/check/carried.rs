//! The proof that an object in a file carries: the image as it says it is, read as admission reads it.
//! Not here: reading the annotation (bundle_trust::carried), and what the image and its signatures are worth (bundle_core::review).

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::Finding;
use bundle_core::review::Image;
use bundle_oci::registry::Looked;
use bundle_trust::carried;
use serde_json::Value;

/// What the proof on `object` says of `image`; an error where it is not a proof for that. `None` without a proof.
pub(super) fn looked(object: &Value, image: &Image) -> Option<Result<Looked, Finding>> {
    let text = object["metadata"]["annotations"][ANNOTATION_PROOF].as_str()?;
    let field = format!("metadata.annotations[{ANNOTATION_PROOF}]");
    Some(read(text, image).map_err(|why| why.at_field(field)))
}

fn read(text: &str, image: &Image) -> Result<Looked, Finding> {
    let (pinned, carried) = carried::open(text, &image.reference)?;
    Looked::brought(pinned, carried.manifest, carried.signatures)
        .map_err(|why| carried::unusable(format!("its manifest cannot be used: {why}")))
}
