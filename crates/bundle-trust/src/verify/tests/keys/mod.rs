//! Valid signatures that are made with keys, and forgeries that are rejected.

mod encodings;
mod forgeries;
mod limits;
mod strictness;

pub(super) use encodings::mirrored;

use proptest::prelude::*;
use serde_json::{Value, json};

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::{
    keys::{KeyKind, PrivateKey},
    sign,
};

pub(super) const OURS: &str =
    "sha256:43b5773065685e5f2bbb174c527c60aa28e180ceba4801fa2e56c990c1a4f073";

pub(super) fn reference() -> PinnedReference {
    let reference: bundle_core::reference::Reference =
        "registry.example.com/team/web:1".parse().unwrap();
    reference.pin(OURS.parse().unwrap())
}

pub(super) fn raw(bytes: impl Into<Vec<u8>>) -> RawSignature {
    RawSignature {
        bytes: bytes.into(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}

pub(super) fn judge(bytes: &[u8], key: &PrivateKey) -> Result<ValidSignature, Rejection> {
    let material = material(std::slice::from_ref(key.public()));
    let mut found = examine(&[raw(bytes)], reference().digest(), &material);
    found.remove(0).0
}

/// Returns the input of a verification with these keys and no trust root.
pub(super) fn material(keys: &[PublicKey]) -> TrustMaterial {
    TrustMaterial {
        keys: keys.to_vec(),
        roots: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    }
}

fn with_keys(
    signatures: &[RawSignature],
    reference: &PinnedReference,
    keys: &[PublicKey],
) -> Result<Vec<ValidSignature>, Findings> {
    let wanted: Vec<AcceptedSigner> = keys
        .iter()
        .map(|key| AcceptedSigner::Key(key.id().clone()))
        .collect();
    signatures_by(signatures, reference, &wanted, &material(keys))
}

#[test]
fn verifies_own_signatures() {
    let annotations = BTreeMap::from([("name".to_owned(), "web".to_owned())]);
    for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
        let key = PrivateKey::unwritten(kind);
        let bytes = sign::sign_digest(&key, &reference(), &annotations).unwrap();
        let accepted = judge(&bytes, &key).unwrap();
        assert_eq!(accepted.signer, Signer::Key(key.public().id().clone()));
        assert_eq!(accepted.meaning, Meaning::Signed);
        assert_eq!(accepted.annotations, annotations);
        with_keys(&[raw(bytes)], &reference(), &[key.public().clone()]).unwrap();
    }
}

#[test]
fn verifies_cosign_signature_and_rejects_cosign_attestation() {
    let key = PublicKey::parse(include_str!("../../../../testdata/cosign.pub")).unwrap();
    let found = examine(
        &[
            raw(include_bytes!(
                "../../../../testdata/cosign3-signature.json"
            )),
            raw(include_bytes!(
                "../../../../testdata/cosign3-attestation.json"
            )),
        ],
        reference().digest(),
        &material(&[key]),
    );
    assert_eq!(found[0].accepted().unwrap().annotations["version"], "1.4.0");
    assert_eq!(found[1].accepted(), None);
    assert_eq!(
        found[1].valid().unwrap().meaning,
        Meaning::Attested("https://example.com/p/v1".into())
    );
}

/// Returns a valid in-toto statement. Each forgery is a copy of this statement with changes.
fn statement() -> Value {
    json!({
        "_type": dsse::STATEMENT,
        "subject": [{"digest": {"sha256": &OURS["sha256:".len()..]}}],
        "predicateType": dsse::SIGNED,
        "predicate": {},
    })
}

/// Returns a bundle in which the correct key signed a changed statement.
pub(super) fn signed(key: &PrivateKey, change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut statement = statement();
    change(&mut statement);
    sign::bundle(key, &serde_json::to_vec(&statement).unwrap()).unwrap()
}

/// Returns a valid bundle that was changed after signing.
pub(super) fn altered(key: &PrivateKey, change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut bundle: Value = serde_json::from_slice(&signed(key, |_| {})).unwrap();
    change(&mut bundle);
    serde_json::to_vec(&bundle).unwrap()
}

#[test]
fn verifies_message_signature_over_the_manifest() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let manifest = b"manifest";
    let pinned = |content: &[u8]| {
        let reference: bundle_core::reference::Reference =
            "registry.example.com/team/web:1".parse().unwrap();
        reference.pin(Digest::of(content))
    };
    let over = |content: &[u8], signature: &[u8]| {
        raw(json!({
            "mediaType": dsse::BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": key.public().id().as_str()}},
            "messageSignature": {
                "messageDigest": {
                    "algorithm": "SHA2_256",
                    "digest": dsse::encode(&Sha256::digest(content)),
                },
                "signature": dsse::encode(signature),
            },
        })
        .to_string())
    };
    let keys = [key.public().clone()];
    let signature = key.sign(manifest).unwrap();
    let good = over(manifest, &signature);
    with_keys(std::slice::from_ref(&good), &pinned(manifest), &keys).unwrap();
    for (signature, content, told) in [
        (good, b"another!".as_slice(), "for another digest"),
        (
            over(b"another!", &signature),
            b"another!",
            "does not verify",
        ),
        (over(manifest, b""), manifest, "does not verify"),
    ] {
        let findings = with_keys(&[signature], &pinned(content), &keys).unwrap_err();
        assert!(findings.to_string().contains(told), "{findings}");
    }
}

proptest! {
    #[test]
    fn random_bytes_neither_panic_nor_verify(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let key = PrivateKey::unwritten(KeyKind::Ed25519);
        prop_assert!(judge(&bytes, &key).is_err());
        let around = sign::bundle(&key, &bytes).unwrap();
        prop_assert!(judge(&around, &key).is_err());
    }

    #[test]
    fn no_single_byte_change_makes_another_statement_valid(at in 0usize..10_000, with in any::<u8>()) {
        let key = PrivateKey::unwritten(KeyKind::Ed25519);
        let annotations = BTreeMap::from([("version".to_owned(), "1.4.0".to_owned())]);
        let mut bytes = sign::sign_digest(&key, &reference(), &annotations).unwrap();
        let at = at % bytes.len();
        bytes[at] = with;
        // If the signature is still valid, the change was outside of the signed bytes, for example
        // in white space. In that case the annotations are unchanged.
        if let Ok(accepted) = judge(&bytes, &key) {
            prop_assert_eq!(accepted.annotations, annotations);
        }
    }
}
