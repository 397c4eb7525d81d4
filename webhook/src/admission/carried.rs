//! The proof that an object carries: the image as it says it is, so that the registry need not be asked.
//! Not here: reading the annotation (bundle_trust::carried), and what the image and its signatures are worth (bundle_core::review).

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::Finding;
use bundle_core::review::{Image, Verdict};
use bundle_oci::registry::Looked;
use bundle_trust::carried;
use serde_json::Value;

/// The text of the proof on `object`, if there is one.
pub(crate) fn text(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_PROOF].as_str()
}

/// What the proof on `object` says of `image`; an error where it is not a proof for that. `None` without a proof.
pub(super) fn looked(object: &Value, image: &Image) -> Option<Result<Looked, Finding>> {
    let text = text(object)?;
    Some(read(text, image).map_err(|finding| finding.at_field(field())))
}

fn read(text: &str, image: &Image) -> Result<Looked, Finding> {
    let (pinned, carried) = carried::open(text, &image.reference)?;
    Looked::brought(pinned, carried.manifest, carried.signatures)
        .map_err(|why| carried::unusable(format!("its manifest cannot be used: {why}")))
}

fn field() -> String {
    format!("metadata.annotations[{ANNOTATION_PROOF}]")
}

/// Adds to a verdict that the proof was refused, and that it was reached without it.
pub(super) fn told(verdict: &mut Verdict, why: Finding) {
    let why = carried::left_aside(why);
    match verdict {
        Verdict::Admit { warnings, .. } => warnings.push(why),
        Verdict::Refuse(findings) | Verdict::CannotTell(findings) => findings.push(why),
    }
}
