//! Tests of files with their Sigstore bundles, and of Sigstore bundles that are not valid for a
//! file.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::keys::{KeyKind, PrivateKey};
use crate::sign;

const FILE: &[u8] = b"content of a file";

fn verify(
    bundle: &[u8],
    file: &[u8],
    whole: bool,
    key: &PrivateKey,
) -> Result<ValidSignature, String> {
    let digest = Digest::of(file);
    let content = Content {
        digest: &digest,
        bytes: whole.then_some(file),
    };
    let material = TrustMaterial {
        keys: vec![key.public().clone()],
        roots: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    };
    let wanted = [AcceptedSigner::Key(key.public().id().clone())];
    blob(bundle.to_vec(), &content, &wanted, &material).map_err(|finding| finding.to_string())
}

fn signed(key: &PrivateKey, change: impl Fn(&mut Value)) -> Vec<u8> {
    let digest = Digest::of(FILE);
    let content = Content {
        digest: &digest,
        bytes: Some(FILE),
    };
    let mut bundle: Value = serde_json::from_slice(&sign::blob(key, &content).unwrap()).unwrap();
    change(&mut bundle["messageSignature"]);
    bundle.to_string().into_bytes()
}

#[test]
fn verifies_by_digest_unless_algorithm_signs_content() {
    let p256 = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let ed25519 = PrivateKey::unwritten(KeyKind::Ed25519);
    let digest = Digest::of(FILE);
    let named = Content::named(&digest);
    for whole in [true, false] {
        let bundle = sign::blob(&p256, &named).unwrap();
        assert_eq!(
            verify(&bundle, FILE, whole, &p256).unwrap().meaning,
            Meaning::Signed
        );
    }
    let bundle = signed(&ed25519, |_| {});
    verify(&bundle, FILE, true, &ed25519).unwrap();
    let refused = verify(&bundle, FILE, false, &ed25519).unwrap_err();
    assert!(refused.contains("only the digest is known"), "{refused}");
    let refused = sign::blob(&ed25519, &named).unwrap_err();
    assert_eq!(refused.code.id, "BUNDLE-TRUST-009");
}

#[test]
fn ignores_claimed_digest_of_message_signature() {
    let sha512 = dsse::encode(&Sha512::digest(FILE));
    let other = dsse::encode(&Sha256::digest(b"other"));
    for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
        let key = PrivateKey::unwritten(kind);
        let ed25519 = kind == KeyKind::Ed25519;
        for (said, holds) in [
            (Value::Null, true),
            (json!({}), true),
            (json!({"algorithm": "SHA2_512", "digest": sha512}), ed25519),
            (json!({"algorithm": "SHA2_512", "digest": other}), false),
            (json!({"algorithm": "SHA2_256", "digest": other}), false),
            (json!({"algorithm": "SHA2_256", "digest": "AAAA"}), false),
            (json!({"algorithm": "SHA2_256"}), false),
            (json!({"algorithm": "SHA1", "digest": other}), false),
            (json!({"algorithm": "", "digest": other}), false),
        ] {
            let bundle = signed(&key, |message| message["messageDigest"] = said.clone());
            let result = verify(&bundle, FILE, true, &key);
            assert_eq!(result.is_ok(), holds, "{kind:?} {said}: {result:?}");
            // The bundle is never valid for another file.
            assert!(verify(&bundle, b"other", true, &key).is_err(), "{said}");
        }
        let other_key = PrivateKey::unwritten(kind);
        let bundle = signed(&key, |message| {
            message["signature"] = json!(dsse::encode(&other_key.sign(FILE).unwrap()));
        });
        let refused = verify(&bundle, FILE, true, &key).unwrap_err();
        assert!(refused.contains("does not verify with it"), "{refused}");
        let refused = verify(&signed(&key, |_| {}), FILE, true, &other_key).unwrap_err();
        assert!(refused.contains("by another key"), "{refused}");
    }
}

#[test]
fn attestation_of_a_file_is_not_a_signature() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let statement = |kind: &str| {
        json!({
            "_type": dsse::STATEMENT,
            "subject": [{"digest": {"sha256": Digest::of(FILE).hex()}}],
            "predicateType": kind,
            "predicate": {},
        })
        .to_string()
    };
    let bundle = |kind| sign::bundle(&key, statement(kind).as_bytes()).unwrap();
    verify(&bundle(dsse::SIGNED), FILE, false, &key).unwrap();
    let refused = verify(&bundle("https://example.com/kind"), FILE, false, &key).unwrap_err();
    assert!(refused.contains("not a signature"), "{refused}");
}
