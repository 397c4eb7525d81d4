//! A file that is to be signed: what any reader takes for the manifest of an image, or for what cosign 2 signs for one, is refused; ours included, which takes
//! nothing that the plainest reader does not.
//! Not here: payloads whose signature holds (statement).
#![no_main]

use bundle_trust::sign::{mistaken, mistaken_attested};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/bundle-trust/src/sign/mistaken/readers.rs"]
mod readers;

fuzz_target!(|data: &[u8]| {
    for (name, takes) in readers::READERS {
        if takes(data) {
            assert!(mistaken(data).is_err(), "{name}");
            assert!(mistaken_attested(data).is_err() || name.ends_with("payload"), "{name}");
        }
    }
    // The strict reader takes nothing that serde_json does not, and reads the same in it.
    if let Ok(object) = bundle_core::json::object(data) {
        let plain: serde_json::Value = serde_json::from_slice(data).expect("JSON");
        assert_eq!(serde_json::Value::Object(object), plain);
    }
});
