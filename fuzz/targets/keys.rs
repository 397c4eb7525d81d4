//! Fuzzes the parsers of keys and trust roots. A parsed public key is written as PEM, and this PEM
//! must be parsed to the same key. Encrypted private keys with the usual scrypt costs are excluded,
//! because one key derivation takes 0.1 s.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_trust::keys::{PublicKey, load_private};
use bundle_trust::root::Root;
use libfuzzer_sys::fuzz_target;

fn same(pem: &str) {
    if let Ok(key) = PublicKey::parse(pem) {
        let written = key.to_pem();
        let again = PublicKey::parse(&written).expect("what is written is read");
        assert_eq!(key, again);
        assert_eq!(key.id(), again.id());
        assert_eq!(written, again.to_pem());
    }
}

fn block(tag: &str, data: &[u8]) -> String {
    format!("-----BEGIN {tag}-----\n{}\n-----END {tag}-----\n", STANDARD.encode(data))
}

fuzz_target!(|data: &[u8]| {
    same(&block("PUBLIC KEY", data));
    let contains = |number: &[u8]| data.windows(number.len()).any(|window| window == number);
    let costs: [&[u8]; 3] = [b"32768", b"65536", b"131072"];
    if !costs.into_iter().any(contains) {
        let sealed = block("ENCRYPTED SIGSTORE PRIVATE KEY", data);
        assert!(load_private(&sealed, &Default::default()).is_err());
    }
    if let Ok(text) = std::str::from_utf8(data) {
        same(text);
        if !text.contains("ENCRYPTED") {
            assert!(load_private(text, &Default::default()).is_err());
        }
        let _ = Root::from_text(text);
    }
});
