//! Fuzzes the verification of a signature that a registry returns. All signatures except those of
//! the fixtures must be rejected with a reason. The target `statement` covers payloads with a valid
//! signature.
#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bundle_core::policy::{RawSignature, ValidSignature};
use bundle_core::reference::Digest;
use bundle_trust::keys::PublicKey;
use bundle_trust::root::Root;
use bundle_trust::verify::{TrustMaterial, examine};
use libfuzzer_sys::fuzz_target;

const ROOT: &str = include_str!("../../crates/bundle-trust/testdata/keyless/trusted_root.json");
const KEYLESS_KEY: &str = include_str!("../../crates/bundle-trust/testdata/keyless/key.pub");
const KEY: &str = include_str!("../../crates/bundle-trust/testdata/cosign.pub");
const SUBJECT: &str = include_str!("../../crates/bundle-trust/testdata/keyless/subject.txt");
const OLDER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

static MATERIAL: LazyLock<TrustMaterial> = LazyLock::new(|| TrustMaterial {
    keys: [KEY, KEYLESS_KEY]
        .map(|pem| PublicKey::parse(pem).expect("a key"))
        .to_vec(),
    roots: vec![Root::from_text(ROOT).expect("a root")],
    now: "2030-01-01T00:00:00Z".parse().expect("a time"),
});
static DIGESTS: LazyLock<[Digest; 2]> = LazyLock::new(|| {
    let cosign = "sha256:43b5773065685e5f2bbb174c527c60aa28e180ceba4801fa2e56c990c1a4f073";
    [SUBJECT.trim(), cosign].map(|text| text.parse().expect("a digest"))
});

/// Parses the input of the fuzzer. Before the first NUL, the input contains annotations
/// `name=value`, separated by U+0001. After the NUL, it contains the payload. An input without a
/// NUL is a Sigstore bundle.
fn read(data: &[u8]) -> RawSignature {
    let Some(end) = data.iter().position(|byte| *byte == 0) else {
        return RawSignature { bytes: data.to_vec(), ..RawSignature::default() };
    };
    let head = String::from_utf8_lossy(&data[..end]);
    let annotations: BTreeMap<String, String> = head
        .split('\u{1}')
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    RawSignature {
        bytes: data[end + 1..].to_vec(),
        artifact_type: OLDER.to_owned(),
        annotations,
        unread: None,
    }
}

fuzz_target!(|data: &[u8]| {
    let raw = read(data);
    for digest in &*DIGESTS {
        let found = examine(std::slice::from_ref(&raw), digest, &MATERIAL);
        match found[0].valid() {
            // Only the signatures of the fixtures can be valid, because the fuzzer has no private
            // key.
            Some(ValidSignature { annotations, checked, .. }) => {
                assert!(checked.contains(&"digest"));
                assert!(annotations.get("version").is_none_or(|text| text == "1.4.0"));
            }
            None => assert!(!found[0].0.as_ref().expect_err("refused").to_string().contains('\u{1b}')),
        }
    }
});
