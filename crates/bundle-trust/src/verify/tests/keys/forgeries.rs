//! Forged statements and Sigstore bundles. Each forgery is rejected with its specific error.

use super::*;

#[test]
fn rejects_each_forgery_with_its_own_reason() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let other = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let id = key.public().id().clone();
    assert!(judge(&signed(&key, |_| {}), &key).is_ok());
    assert!(judge(&altered(&key, |_| {}), &key).is_ok());

    let elsewhere = Digest::of(b"something else");
    let reencoded = |change: &dyn Fn(&mut Value)| {
        altered(&key, |bundle| {
            let payload = &mut bundle["dsseEnvelope"]["payload"];
            let mut statement: Value =
                serde_json::from_slice(&dsse::decode(payload.as_str().unwrap()).unwrap()).unwrap();
            change(&mut statement);
            *payload = json!(dsse::encode(&serde_json::to_vec(&statement).unwrap()));
        })
    };
    let whole = signed(&key, |_| {});
    let unreadable = |why: &str| Rejection::Unreadable(why.to_owned());
    let forged = || Rejection::Forged(id.clone());

    let cases: Vec<(&str, Vec<u8>, Rejection)> = vec![
        (
            "another digest",
            signed(&key, |s| {
                s["subject"][0]["digest"]["sha256"] = json!(elsewhere.hex());
            }),
            Rejection::OtherDigest(elsewhere.to_string()),
        ),
        (
            "the digest in capitals",
            signed(&key, |s| {
                s["subject"][0]["digest"]["sha256"] = json!(OURS["sha256:".len()..].to_uppercase());
            }),
            Rejection::OtherDigest(format!("sha256:{}", OURS["sha256:".len()..].to_uppercase())),
        ),
        (
            "only a sha512 digest",
            signed(&key, |s| {
                s["subject"][0]["digest"] = json!({"sha512": "00"});
            }),
            Rejection::OtherDigest("not a sha256 digest".into()),
        ),
        (
            "another statement type",
            signed(&key, |s| {
                s["_type"] = json!("https://in-toto.io/Statement/v0.1");
            }),
            Rejection::StatementType("https://in-toto.io/Statement/v0.1".into()),
        ),
        (
            "two subjects",
            signed(&key, |s| {
                let subject = s["subject"][0].clone();
                s["subject"] = json!([subject, {"digest": {"sha256": elsewhere.hex()}}]);
            }),
            Rejection::SubjectCount(2),
        ),
        (
            "no subject",
            signed(&key, |s| s["subject"] = json!([])),
            Rejection::SubjectCount(0),
        ),
        (
            "a payload that is no statement",
            sign::bundle(&key, b"[]").unwrap(),
            unreadable("not an in-toto statement"),
        ),
        (
            "an altered payload",
            reencoded(&|s| s["predicate"] = json!({"more": true})),
            forged(),
        ),
        (
            "an altered annotation",
            reencoded(&|s| s["subject"][0]["annotations"] = json!({"version": "9.9.9"})),
            forged(),
        ),
        (
            "an altered signature",
            altered(&key, |b| {
                let sig = &mut b["dsseEnvelope"]["signatures"][0]["sig"];
                let mut bytes = dsse::decode(sig.as_str().unwrap()).unwrap();
                bytes[20] ^= 1;
                *sig = json!(dsse::encode(&bytes));
            }),
            forged(),
        ),
        (
            "an empty signature",
            altered(&key, |b| {
                b["dsseEnvelope"]["signatures"][0]["sig"] = json!("");
            }),
            forged(),
        ),
        (
            "the right hint over another key's signature",
            {
                let mut bundle: Value = serde_json::from_slice(&signed(&other, |_| {})).unwrap();
                bundle["verificationMaterial"]["publicKey"]["hint"] = json!(id.as_str());
                serde_json::to_vec(&bundle).unwrap()
            },
            forged(),
        ),
        (
            "another key",
            signed(&other, |_| {}),
            Rejection::OtherKey(other.public().id().clone()),
        ),
        (
            "a certificate instead of a key",
            altered(&key, |b| {
                b["verificationMaterial"] = json!({"certificate": {"rawBytes": "AAAA"}});
            }),
            Rejection::Keyless,
        ),
        (
            "a certificate beside the key",
            altered(&key, |b| {
                b["verificationMaterial"]["certificate"] = json!({"rawBytes": "AAAA"});
            }),
            unreadable("it has both a key and a certificate"),
        ),
        (
            "neither",
            altered(&key, |b| b["verificationMaterial"] = json!({})),
            unreadable("it has neither a key nor a certificate"),
        ),
        (
            "two signatures",
            altered(&key, |b| {
                let one = b["dsseEnvelope"]["signatures"][0].clone();
                b["dsseEnvelope"]["signatures"] = json!([one.clone(), one]);
            }),
            Rejection::SignatureCount(2),
        ),
        (
            "no signature",
            altered(&key, |b| b["dsseEnvelope"]["signatures"] = json!([])),
            Rejection::SignatureCount(0),
        ),
        (
            "another payload type",
            altered(&key, |b| {
                b["dsseEnvelope"]["payloadType"] = json!("text/plain");
            }),
            Rejection::PayloadType("text/plain".into()),
        ),
        (
            "another media type, by case",
            altered(&key, |b| {
                b["mediaType"] = json!(dsse::BUNDLE.to_uppercase());
            }),
            Rejection::OtherForm(dsse::BUNDLE.to_uppercase()),
        ),
        (
            "another payload type, by case",
            altered(&key, |b| {
                b["dsseEnvelope"]["payloadType"] = json!(dsse::PAYLOAD.to_uppercase());
            }),
            Rejection::PayloadType(dsse::PAYLOAD.to_uppercase()),
        ),
        (
            "no media type",
            b"{}".to_vec(),
            Rejection::OtherForm(String::new()),
        ),
        (
            "a message signature beside the envelope",
            altered(&key, |b| {
                b["messageSignature"] = json!({"signature": "AAAA"});
            }),
            unreadable("it has both a DSSE envelope and a message signature"),
        ),
        (
            "no content",
            altered(&key, |b| b["dsseEnvelope"] = Value::Null),
            unreadable("it has no DSSE envelope"),
        ),
        (
            "a payload that is not base64",
            altered(&key, |b| b["dsseEnvelope"]["payload"] = json!("*")),
            unreadable("its payload is not base64"),
        ),
        (
            "truncated",
            whole[..whole.len() / 2].to_vec(),
            unreadable("not the JSON of a Sigstore bundle"),
        ),
        (
            "something after it",
            [whole.as_slice(), b"{}"].concat(),
            unreadable("not the JSON of a Sigstore bundle"),
        ),
        (
            "a field twice",
            String::from_utf8(whole.clone())
                .unwrap()
                .replacen("{\"mediaType\"", "{\"mediaType\":\"x\",\"mediaType\"", 1)
                .into_bytes(),
            unreadable("duplicate key in JSON"),
        ),
        (
            "nothing",
            Vec::new(),
            unreadable("not the JSON of a Sigstore bundle"),
        ),
        (
            "deep nesting",
            "[".repeat(100_000).into_bytes(),
            unreadable("not the JSON of a Sigstore bundle"),
        ),
        (
            "too large",
            vec![b' '; MAX_BYTES + 1],
            Rejection::TooLarge {
                bytes: MAX_BYTES as u64 + 1,
                limit: MAX_BYTES as u64,
            },
        ),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(judge(&bytes, &key), Err(expected), "{name}");
    }
}
