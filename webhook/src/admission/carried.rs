//! The proof that an object carries: the image as it says it is, so that the registry need not be asked.
//! Not here: reading the annotation (bundle_trust::carried), and what the image and its signatures are worth (bundle_core::review).

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::{Finding, Severity, codes};
use bundle_core::review::{Image, Verdict};
use bundle_oci::manifest::Manifest;
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
    let Some(pinned) = image.reference.pinned() else {
        return Err(
            refused("the reference names a tag, which can mean anything")
                .hint("name the digest: `kubectl bundle deploy` does it by itself"),
        );
    };
    let carried = carried::decode(text, pinned.digest())?;
    let manifest = Manifest::parse(carried.manifest.into(), None)
        .map_err(|why| refused(&format!("its manifest cannot be used: {why}")))?;
    Ok(Looked {
        pinned,
        annotations: manifest.annotations,
        signatures: Ok(carried.signatures),
    })
}

fn refused(why: &str) -> Finding {
    Finding::error(
        codes::trust::PROOF_REFUSED,
        format!("the proof is refused: {why}"),
    )
}

fn field() -> String {
    format!("metadata.annotations[{ANNOTATION_PROOF}]")
}

/// Adds to a verdict that the proof was refused, and that it was reached without it.
pub(super) fn told(verdict: &mut Verdict, mut why: Finding) {
    why.severity = Severity::Warning;
    why.message
        .push_str("; it is left aside, and the registry is asked");
    match verdict {
        Verdict::Admit { warnings, .. } => warnings.push(why),
        Verdict::Refuse(findings) | Verdict::CannotTell(findings) => findings.push(why),
    }
}
