//! Ambiguous JSON, and digests of other algorithms.

use super::*;

#[test]
fn rejects_ambiguous_json_even_if_signed() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let text = statement().to_string();
    let hex = &OURS["sha256:".len()..];
    let zero = "0".repeat(64);
    let payload = |text: String| judge(&sign::bundle(&key, text.as_bytes()).unwrap(), &key);
    payload(text.clone()).unwrap();
    let twice = |found: Result<ValidSignature, Rejection>| {
        let why = "duplicate key in JSON".to_owned();
        assert_eq!(found, Err(Rejection::Unreadable(why)));
    };
    for (from, to) in [
        // Duplicate keys: before or after the valid key, at every depth, and with an escape
        // sequence.
        (
            format!(r#""sha256":"{hex}""#),
            format!(r#""sha256":"{zero}","sha256":"{hex}""#),
        ),
        (
            format!(r#""sha256":"{hex}""#),
            format!(r#""sha256":"{hex}","sha256":"{zero}""#),
        ),
        (
            format!(r#""sha256":"{hex}""#),
            format!(r#""sha256":"{hex}","sh\u006125\u0036":"{zero}""#),
        ),
        (
            r#""predicate":{}"#.into(),
            r#""predicate":{"x":[{"a":1,"a":1}]}"#.into(),
        ),
        (
            r#""predicate":{}"#.into(),
            r#""predicate":{},"predicate":{}"#.into(),
        ),
    ] {
        let changed = text.replace(&from, &to);
        assert_ne!(changed, text);
        twice(payload(changed));
    }
    for (from, to) in [
        (
            r#""predicate":{}"#,
            "\"predicate\":{\"a\":\"\\ud800\"}".to_owned(),
        ),
        (
            r#""predicate":{}"#,
            format!(r#""predicate":{}{}"#, "[".repeat(500), "]".repeat(500)),
        ),
        (r#""predicate":{}"#, r#""predicate":1e999"#.to_owned()),
        ("{\"_type\"", "\u{feff}{\"_type\"".to_owned()),
    ] {
        let changed = text.replacen(from, &to, 1);
        assert_ne!(changed, text);
        let why = "not an in-toto statement".to_owned();
        assert_eq!(payload(changed), Err(Rejection::Unreadable(why)));
    }
    // A key of the Sigstore bundle, outside of the signed payload, is duplicated. Some parsers use
    // the first value, and others use the last value.
    let bundle = String::from_utf8(signed(&key, |_| {})).unwrap();
    twice(judge(
        bundle
            .replace(r#""sig":""#, r#""sig":"AAAA","sig":""#)
            .as_bytes(),
        &key,
    ));
    twice(judge(
        bundle
            .replace("{\"publicKey\"", "{\"x\":{\"a\":1,\"a\":2},\"publicKey\"")
            .as_bytes(),
        &key,
    ));
    // Unknown fields could be restrictions, and cosign rejects them as well.
    let more = bundle.replacen('{', r#"{"unknown":[1,2],"#, 1);
    let refused = judge(more.as_bytes(), &key).unwrap_err().to_string();
    assert!(refused.contains("unknown field `unknown`"), "{refused}");
}

#[test]
fn rejects_digest_of_another_algorithm() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let hex = &OURS["sha256:".len()..];
    for (name, value) in [
        ("sha1", &hex[..40]),
        ("md5", &hex[..32]),
        ("SHA256", hex),
        ("sha256 ", hex),
    ] {
        let bytes = signed(&key, |s| s["subject"][0]["digest"] = json!({ name: value }));
        let expected = Rejection::OtherDigest("not a sha256 digest".into());
        assert_eq!(judge(&bytes, &key), Err(expected), "{name}");
    }
    for value in [
        format!("{hex}\n"),
        format!(" {hex}"),
        hex[..63].to_owned(),
        format!("sha256:{hex}"),
        String::new(),
    ] {
        let bytes = signed(&key, |s| s["subject"][0]["digest"]["sha256"] = json!(value));
        assert!(
            matches!(judge(&bytes, &key), Err(Rejection::OtherDigest(_))),
            "{value:?}"
        );
    }
    let sha1 = json!({
        "mediaType": dsse::BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": key.public().id().as_str()}},
        "messageSignature": {
            "messageDigest": {"algorithm": "SHA1", "digest": dsse::encode(&[0; 20])},
            "signature": dsse::encode(&key.sign(b"x").unwrap()),
        },
    });
    let expected = Rejection::OtherDigest("with algorithm SHA1".into());
    assert_eq!(judge(sha1.to_string().as_bytes(), &key), Err(expected));
}

#[test]
fn an_attestation_by_the_right_key_is_no_signature() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    for predicate in [
        "https://slsa.dev/provenance/v1",
        "https://sigstore.dev/cosign/sign/v1x",
        "https://sigstore.dev/cosign/sign/V1",
        "",
    ] {
        let bytes = signed(&key, |s| s["predicateType"] = json!(predicate));
        let accepted = judge(&bytes, &key).unwrap();
        assert_eq!(accepted.meaning, Meaning::Attested(predicate.to_owned()));
        let told = with_keys(&[raw(bytes)], &reference(), &[key.public().clone()]);
        let told = told.unwrap_err().to_string();
        assert!(told.contains("of an attestation"), "{told}");
    }
}
