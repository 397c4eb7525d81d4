//! Wrong key hints, limits, and the message of a rejection.

use super::*;

#[test]
fn rejects_annotations_above_the_size_limit() {
    let key = PrivateKey::unwritten(KeyKind::Ed25519);
    let annotations = BTreeMap::from([("name".to_owned(), "x".repeat(5_000))]);
    let finding = sign::sign_digest(&key, &reference(), &annotations).unwrap_err();
    assert_eq!(finding.code.id, "BUNDLE-TRUST-012");
}

#[test]
fn wrong_key_hint_does_not_reject_a_matching_key() {
    for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
        let key = PrivateKey::unwritten(kind);
        let other = PrivateKey::unwritten(kind);
        let all = material(&[other.public().clone(), key.public().clone()]);
        let judge = |bytes: &[u8], material: &TrustMaterial| {
            let mut found = examine(&[raw(bytes)], reference().digest(), material);
            found.remove(0).0
        };
        let signer = Signer::Key(key.public().id().clone());
        for hint in [
            json!({}),
            json!({"hint": ""}),
            json!({"hint": "AAAA"}),
            json!({"hint": format!("{} ", key.public().id())}),
            json!({"hint": other.public().id().as_str()}),
            json!({"hint": key.public().id().as_str()}),
        ] {
            let said = hint["hint"].as_str().unwrap_or_default().to_owned();
            let bytes = altered(&key, |b| {
                b["verificationMaterial"]["publicKey"] = hint.clone();
            });
            // The reported signer is the key that verifies the signature. The hint has no effect.
            let accepted = judge(&bytes, &all).unwrap();
            assert_eq!(accepted.signer, signer, "{said}");
            // If no key verifies the signature, the message contains the hint.
            let none = material(std::slice::from_ref(other.public()));
            let expected = if said == other.public().id().as_str() {
                Rejection::Forged(KeyId::new(said))
            } else if said.is_empty() {
                Rejection::NoSuchKey
            } else {
                Rejection::OtherKey(KeyId::new(said))
            };
            assert_eq!(judge(&bytes, &none), Err(expected));
        }
    }
}

#[test]
fn wrong_key_hint_does_not_reject_a_message_signature() {
    let content = b"a file".as_slice();
    let digest = Digest::of(content);
    for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
        let (key, other) = (PrivateKey::unwritten(kind), PrivateKey::unwritten(kind));
        let of = Content {
            digest: &digest,
            bytes: Some(content),
        };
        let mut bundle: Value = serde_json::from_slice(&sign::blob(&key, &of).unwrap()).unwrap();
        let wanted = [AcceptedSigner::Key(key.public().id().clone())];
        let all = material(&[other.public().clone(), key.public().clone()]);
        for hint in [
            json!({}),
            json!({"hint": "AAAA"}),
            json!({"hint": other.public().id().as_str()}),
        ] {
            bundle["verificationMaterial"]["publicKey"] = hint;
            let bytes = bundle.to_string().into_bytes();
            blob(bytes.clone(), &of, &wanted, &all).unwrap();
            let none = material(std::slice::from_ref(other.public()));
            blob(bytes, &of, &wanted, &none).unwrap_err();
        }
    }
}

#[test]
fn rejection_lists_the_signatures_that_were_found() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let other = PrivateKey::unwritten(KeyKind::Ed25519);
    let elsewhere = Digest::of(b"something else");
    let signatures = [
        raw(signed(&other, |_| {})),
        raw(signed(&key, |s| {
            s["subject"][0]["digest"]["sha256"] = json!(elsewhere.hex());
        })),
    ];
    let findings = with_keys(&signatures, &reference(), &[key.public().clone()]).unwrap_err();
    assert_eq!(
        findings.to_string(),
        format!(
            "{}: not signed by the given key (key hint {}): the registry has 2 signatures: one by another key (key hint {}), one for another digest ({elsewhere})",
            reference(),
            key.public().id(),
            other.public().id(),
        )
    );
    let findings = with_keys(&[], &reference(), &[key.public().clone()]).unwrap_err();
    assert_eq!(findings.first().unwrap().code.id, "BUNDLE-TRUST-001");
}

#[test]
fn does_not_examine_signatures_beyond_the_limit() {
    let key = PrivateKey::unwritten(KeyKind::Ed25519);
    let mut signatures = vec![raw("{}"); MAX_SIGNATURES];
    signatures.push(raw(signed(&key, |_| {})));
    let material = material(&[key.public().clone()]);
    let found = examine(&signatures, reference().digest(), &material);
    assert!(found.iter().all(|found| found.accepted().is_none()));
    let last = found.last().unwrap();
    assert_eq!(
        last.0,
        Err(Rejection::NotExamined {
            limit: MAX_SIGNATURES
        })
    );
}
