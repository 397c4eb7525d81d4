//! Fuzzes the check of files before they are signed. The check must reject a file that any of the
//! readers parses as an image manifest or as a cosign 2 payload for an image. The strict JSON
//! parser of bundle-core must accept no input that serde_json rejects.
#![no_main]

use bundle_trust::sign::{check_attested_not_image, check_not_image};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/bundle-trust/src/sign/type_confusion/readers.rs"]
mod readers;

fuzz_target!(|data: &[u8]| {
    for (name, takes) in readers::READERS {
        if takes(data) {
            assert!(check_not_image(data).is_err(), "{name}");
            assert!(check_attested_not_image(data).is_err() || name.ends_with("payload"), "{name}");
        }
    }
    // The strict JSON parser accepts only input that serde_json accepts, and returns the same
    // value.
    if let Ok(object) = bundle_core::json::object(data) {
        let plain: serde_json::Value = serde_json::from_slice(data).expect("JSON");
        assert_eq!(serde_json::Value::Object(object), plain);
    }
});
