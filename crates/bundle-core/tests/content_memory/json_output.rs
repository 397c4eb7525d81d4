//! The JSON of an object: the memory for measuring and hashing it.

use bundle_core::json;
use bundle_core::plan::unchanged::RequestHash;
use serde_json::json;

use super::{alone, peak};

#[test]
fn json_of_control_characters_is_measured_and_hashed_without_its_text() {
    let _alone = alone();
    let characters = 1 << 20;
    let value = json!({"a": "\u{7}".repeat(characters)});
    let measure = || {
        let request = RequestHash::of(&value, None, "installer");
        (json::length(&value), json::digest(&value), request)
    };
    let (used, (length, digest, request)) = peak(measure);
    assert!(used < 64 << 10, "{} KiB", used >> 10);
    assert_eq!(length, 6 * characters + r#"{"a":""}"#.len());
    let other = json!({"a": "\u{7}".repeat(characters + 1)});
    assert_ne!(json::digest(&other), digest);
    assert_ne!(RequestHash::of(&other, None, "installer"), request);
}
