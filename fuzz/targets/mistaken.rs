//! Fuzzes a file to sign. The file is rejected if any reader parses it as an image manifest, or as
//! the payload that cosign 2 signs for an image. The strict reader accepts no input that serde_json
//! rejects.
#![no_main]

use bundle_trust::sign::{check_attested_not_image, check_not_image};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/bundle-trust/src/sign/mistaken/readers.rs"]
mod readers;

fuzz_target!(|data: &[u8]| {
    for (name, takes) in readers::READERS {
        if takes(data) {
            assert!(check_not_image(data).is_err(), "{name}");
            assert!(check_attested_not_image(data).is_err() || name.ends_with("payload"), "{name}");
        }
    }
    // The strict reader accepts no input that serde_json rejects, and parses the same value.
    if let Ok(object) = bundle_core::json::object(data) {
        let plain: serde_json::Value = serde_json::from_slice(data).expect("JSON");
        assert_eq!(serde_json::Value::Object(object), plain);
    }
});
