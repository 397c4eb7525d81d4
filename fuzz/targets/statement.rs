//! Fuzzes the parser of signed payloads. A payload with a valid signature must be accepted only if
//! serde_json finds the expected digest as its only subject. The target `bundle` covers invalid
//! signatures.
#![no_main]

use std::sync::LazyLock;

use bundle_core::policy::{Meaning, RawSignature};
use bundle_core::reference::Digest;
use bundle_trust::keys::{PrivateKey, load_private};
use bundle_trust::sign;
use bundle_trust::verify::{TrustMaterial, examine};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const DIGEST: &str = "sha256:43b5773065685e5f2bbb174c527c60aa28e180ceba4801fa2e56c990c1a4f073";
const OLDER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

struct Fixture {
    key: PrivateKey,
    material: TrustMaterial,
    digest: Digest,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let password = zeroize::Zeroizing::new("fixture".to_owned());
    let pem = include_str!("../../crates/bundle-trust/testdata/cosign.key");
    let key = load_private(pem, &password).expect("a key");
    Fixture {
        material: TrustMaterial {
            keys: vec![key.public().clone()],
            roots: Vec::new(),
            now: jiff::Timestamp::UNIX_EPOCH,
        },
        key,
        digest: DIGEST.parse().expect("a digest"),
    }
});

fuzz_target!(|data: &[u8]| {
    let bundle = RawSignature {
        bytes: sign::bundle(&FIXTURE.key, data).expect("signed"),
        ..RawSignature::default()
    };
    let found = examine(&[bundle], &FIXTURE.digest, &FIXTURE.material);
    if let Some(held) = found[0].valid() {
        let plain: Value = serde_json::from_slice(data).expect("JSON");
        let subjects = plain["subject"].as_array().expect("a list");
        assert_eq!(subjects.len(), 1);
        assert_eq!(subjects[0]["digest"]["sha256"], DIGEST["sha256:".len()..]);
        let says = plain["predicateType"].as_str().expect("text");
        let signed = says == sign::PREDICATE_TYPE;
        assert_eq!(held.meaning == Meaning::Signed, signed, "{says}");
        for (name, value) in &held.annotations {
            assert_eq!(subjects[0]["annotations"][name], *value);
        }
    }
    let older = RawSignature {
        bytes: data.to_vec(),
        artifact_type: OLDER.to_owned(),
        annotations: sign::annotations(&FIXTURE.key, data).expect("signed"),
        unread: None,
    };
    let found = examine(&[older], &FIXTURE.digest, &FIXTURE.material);
    if found[0].valid().is_some() {
        let plain: Value = serde_json::from_slice(data).expect("JSON");
        assert_eq!(plain["critical"]["image"]["docker-manifest-digest"], DIGEST);
        assert_eq!(plain["critical"]["type"], "cosign container image signature");
    }
});
