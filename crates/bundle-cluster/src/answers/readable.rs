//! Checks of what the API server sends that Go reads and this process may not: one value of one object must not spoil the answer that it stands in.

use bundle_core::footprint::Footprint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

/// The part of an object that all its readers parse into types.
#[derive(Deserialize)]
struct TypedPart {
    #[serde(default, rename = "metadata")]
    _metadata: ObjectMeta,
}

/// Returns whether the text of an object parses as the types that lists and watches use.
pub(super) fn is_readable(object: &[u8]) -> bool {
    // The first visits every value, without keeping any.
    serde_json::from_slice::<Footprint>(object).is_ok()
        && serde_json::from_slice::<TypedPart>(object).is_ok()
}

/// Returns whether the bytes between two quotes are a time that parses. Go writes years up to 9999 in every offset, which is more than fits into a
/// [`jiff::Timestamp`].
pub(super) fn is_time(text: &[u8]) -> bool {
    let quoted = [b"\"", text, b"\""].concat();
    serde_json::from_slice::<Time>(&quoted).is_ok()
}
