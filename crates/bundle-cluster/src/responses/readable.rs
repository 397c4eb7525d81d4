//! Checks for values that an API server sends and that this process cannot parse. One invalid value
//! in one object must not make the whole response unreadable.

use bundle_core::footprint::Footprint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

/// Part of an object that all readers parse into types.
#[derive(Deserialize)]
struct TypedPart {
    #[serde(default, rename = "metadata")]
    _metadata: ObjectMeta,
}

/// Returns true if the text of an object can be parsed as an item of a list or an event of a watch.
pub(super) fn is_readable(object: &[u8]) -> bool {
    // `Footprint` parses every value without storing the value.
    serde_json::from_slice::<Footprint>(object).is_ok()
        && serde_json::from_slice::<TypedPart>(object).is_ok()
}

/// Returns true if `text`, the bytes between two quotes, is a valid timestamp. Go writes years up
/// to 9999 with any UTC offset. Some of these timestamps exceed the range of [`jiff::Timestamp`].
pub(super) fn is_time(text: &[u8]) -> bool {
    let quoted = [b"\"", text, b"\""].concat();
    serde_json::from_slice::<Time>(&quoted).is_ok()
}
