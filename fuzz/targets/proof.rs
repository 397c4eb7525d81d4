//! Fuzzes the parser of the proof annotation. A proof must be accepted only for the digest of its
//! manifest. A written proof must be parsed to the same signatures. The target `bundle` covers the
//! verification of these signatures.
#![no_main]

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_core::policy::RawSignature;
use bundle_core::reference::Digest;
use bundle_trust::proof_annotation;
use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;

const MANIFEST: &str = r#"{"schemaVersion":2}"#;

fn packed(data: &[u8]) -> String {
    let mut writer = GzEncoder::new(Vec::new(), Compression::none());
    writer.write_all(data).expect("memory");
    STANDARD.encode(writer.finish().expect("memory"))
}

fuzz_target!(|data: &[u8]| {
    let content = Digest::of(MANIFEST.as_bytes());
    let damaged = STANDARD.encode(data);
    for text in [packed(data), damaged, String::from_utf8_lossy(data).into_owned()] {
        if let Ok(found) = proof_annotation::decode(&text, &content) {
            assert_eq!(found.manifest, MANIFEST.as_bytes());
            assert!(found.signatures.iter().all(|signature| signature.unread.is_none()));
        }
    }
    let signature = RawSignature {
        bytes: data.to_vec(),
        ..RawSignature::default()
    };
    if let Ok(written) = proof_annotation::encode(MANIFEST.as_bytes(), std::slice::from_ref(&signature)) {
        assert!(written.len() <= proof_annotation::LIMIT);
        let read = proof_annotation::decode(&written, &content).expect("what is written is read");
        assert_eq!(read.signatures, [signature]);
        assert!(proof_annotation::decode(&written, &Digest::of(b"other")).is_err());
    }
});
