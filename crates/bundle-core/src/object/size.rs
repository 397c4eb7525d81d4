//! Size limit of an object.

use super::Manifest;
use crate::{
    diagnostic::{Finding, Findings, codes},
    json,
    yaml::Allowance,
};

/// Maximum length of an object as JSON, in bytes. An API server rejects a longer request body, so
/// it cannot store a larger object.
///
/// Source: `k8s.io/apiserver`, `MaxRequestBodyBytes` in `pkg/server/config.go`.
pub const MAX_OBJECT_JSON: usize = 3 << 20;

/// Adds a finding for each object that exceeds [`MAX_OBJECT_JSON`]. Returns an error if parsing was
/// cancelled.
///
/// The memory of parsed content does not limit this length: in JSON, a control character needs up
/// to six bytes.
pub fn check_sizes(
    objects: &[Manifest],
    allowance: &Allowance,
    findings: &mut Findings,
) -> Result<(), Finding> {
    for object in objects {
        allowance.check()?;
        if json::is_longer_than(&object.value, MAX_OBJECT_JSON) {
            findings.push(too_large(object));
        }
    }
    Ok(())
}

fn too_large(object: &Manifest) -> Finding {
    let bytes = json::length(&object.value);
    Finding::error(
        codes::format::OBJECT_TOO_LARGE,
        format!(
            "the object has {bytes} bytes as JSON, more than the limit of {MAX_OBJECT_JSON} (3 MiB)"
        ),
    )
    .in_file(&object.file)
    .at_line(object.line)
    .about(object.id.to_string())
    .hint("split the object, or shorten its values: JSON needs up to six bytes for a control character, and API servers reject objects of this size")
}
