//! Valid signatures by keys, and forgeries that are rejected.

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

pub(super) fn judge(bytes: &[u8], key: &PrivateKey) -> Result<Accepted, Rejection> {
    let against = against(std::slice::from_ref(key.public()));
    let mut found = examine(&[raw(bytes)], reference().digest(), &against);
    found.remove(0).0
}

/// These keys, and no certificates.
pub(super) fn against(keys: &[PublicKey]) -> Against {
    Against {
        keys: keys.to_vec(),
        roots: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    }
}

fn with_keys(
    signatures: &[RawSignature],
    reference: &PinnedReference,
    keys: &[PublicKey],
) -> Result<Vec<Accepted>, Findings> {
    let wanted: Vec<Who> = keys.iter().map(|key| Who::Key(key.id().clone())).collect();
    by(signatures, reference, &wanted, &against(keys))
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
    let key = PublicKey::parse(include_str!("../../testdata/cosign.pub")).unwrap();
    let found = examine(
        &[
            raw(include_bytes!("../../testdata/cosign3-signature.json")),
            raw(include_bytes!("../../testdata/cosign3-attestation.json")),
        ],
        reference().digest(),
        &against(&[key]),
    );
    assert_eq!(found[0].accepted().unwrap().annotations["version"], "1.4.0");
    assert_eq!(found[1].accepted(), None);
    assert_eq!(
        found[1].holds().unwrap().meaning,
        Meaning::Attested("https://example.com/p/v1".into())
    );
}

#[test]
fn rejects_annotations_above_the_size_limit() {
    let key = PrivateKey::unwritten(KeyKind::Ed25519);
    let annotations = BTreeMap::from([("name".to_owned(), "x".repeat(5_000))]);
    let finding = sign::sign_digest(&key, &reference(), &annotations).unwrap_err();
    assert_eq!(finding.code.id, "BUNDLE-TRUST-012");
}

/// A statement that is right in everything, for a forger to change.
fn statement() -> Value {
    json!({
        "_type": dsse::STATEMENT,
        "subject": [{"digest": {"sha256": &OURS["sha256:".len()..]}}],
        "predicateType": dsse::SIGNED,
        "predicate": {},
    })
}

/// A bundle that the right key made over a changed statement.
pub(super) fn signed(key: &PrivateKey, change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut statement = statement();
    change(&mut statement);
    sign::bundle(key, &serde_json::to_vec(&statement).unwrap()).unwrap()
}

/// A good bundle, changed afterwards.
pub(super) fn altered(key: &PrivateKey, change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut bundle: Value = serde_json::from_slice(&signed(key, |_| {})).unwrap();
    change(&mut bundle);
    serde_json::to_vec(&bundle).unwrap()
}

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
            Rejection::OtherDigest("not a sha256 one".into()),
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
            unreadable("no in-toto statement inside"),
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
            unreadable("it names both a key and a certificate"),
        ),
        (
            "neither",
            altered(&key, |b| b["verificationMaterial"] = json!({})),
            unreadable("it names neither a key nor a certificate"),
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
            unreadable("not the JSON of a bundle"),
        ),
        (
            "something after it",
            [whole.as_slice(), b"{}"].concat(),
            unreadable("not the JSON of a bundle"),
        ),
        (
            "a field twice",
            String::from_utf8(whole.clone())
                .unwrap()
                .replacen("{\"mediaType\"", "{\"mediaType\":\"x\",\"mediaType\"", 1)
                .into_bytes(),
            unreadable("a key stands twice in its JSON"),
        ),
        (
            "nothing",
            Vec::new(),
            unreadable("not the JSON of a bundle"),
        ),
        (
            "deep nesting",
            "[".repeat(100_000).into_bytes(),
            unreadable("not the JSON of a bundle"),
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

#[test]
fn wrong_key_hint_does_not_reject_a_matching_key() {
    for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
        let key = PrivateKey::unwritten(kind);
        let other = PrivateKey::unwritten(kind);
        let all = against(&[other.public().clone(), key.public().clone()]);
        let judge = |bytes: &[u8], against: &Against| {
            let mut found = examine(&[raw(bytes)], reference().digest(), against);
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
            // Who signed is the key that fits, whatever it is called.
            let accepted = judge(&bytes, &all).unwrap();
            assert_eq!(accepted.signer, signer, "{said}");
            // Where no key fits, it says what the signature calls its own.
            let none = against(std::slice::from_ref(other.public()));
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
        let wanted = [Who::Key(key.public().id().clone())];
        let all = against(&[other.public().clone(), key.public().clone()]);
        for hint in [
            json!({}),
            json!({"hint": "AAAA"}),
            json!({"hint": other.public().id().as_str()}),
        ] {
            bundle["verificationMaterial"]["publicKey"] = hint;
            let bytes = bundle.to_string().into_bytes();
            blob(bytes.clone(), &of, &wanted, &all).unwrap();
            let none = against(std::slice::from_ref(other.public()));
            blob(bytes, &of, &wanted, &none).unwrap_err();
        }
    }
}

/// r and s of a DER signature, without leading zeros.
fn halves(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let r = usize::from(der[3]);
    let number = |bytes: &[u8]| -> Vec<u8> {
        let bytes = bytes.iter().copied();
        bytes.skip_while(|byte| *byte == 0).collect()
    };
    (number(&der[4..4 + r]), number(&der[6 + r..]))
}

fn integer(number: &[u8]) -> Vec<u8> {
    let positive = number.first().is_some_and(|byte| *byte >= 0x80);
    let mut bytes = vec![0; usize::from(positive)];
    bytes.extend_from_slice(number);
    let mut der = vec![0x02, u8::try_from(bytes.len()).unwrap()];
    der.extend(bytes);
    der
}

fn pair(r: &[u8], s: &[u8]) -> Vec<u8> {
    let content = [integer(r), integer(s)].concat();
    [
        &[0x30, u8::try_from(content.len()).unwrap()],
        content.as_slice(),
    ]
    .concat()
}

/// The other signature that ECDSA allows for the same: s from the other end of the group.
pub(super) fn mirrored(der: &[u8]) -> Vec<u8> {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63,
        0x25, 0x51,
    ];
    let (r, s) = halves(der);
    let mut long = vec![0; 32 - s.len()];
    long.extend(s);
    let mut other = [0; 32];
    let mut borrow = 0;
    for at in (0..32).rev() {
        let left = i16::from(ORDER[at]) - i16::from(long[at]) - borrow;
        borrow = i16::from(left < 0);
        other[at] = u8::try_from(left + 256 * borrow).unwrap();
    }
    let other: Vec<u8> = other.into_iter().skip_while(|byte| *byte == 0).collect();
    pair(&r, &other)
}

#[test]
fn rejects_signature_in_another_encoding() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let id = key.public().id().clone();
    let good: Value = serde_json::from_slice(&signed(&key, |_| {})).unwrap();
    let sig = good["dsseEnvelope"]["signatures"][0]["sig"]
        .as_str()
        .unwrap();
    let der = dsse::decode(sig).unwrap();
    let with = |bytes: &[u8]| {
        let mut bundle = good.clone();
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = json!(dsse::encode(bytes));
        judge(bundle.to_string().as_bytes(), &key)
    };
    let (r, s) = halves(&der);
    let fixed = |number: &[u8]| [vec![0; 32 - number.len()], number.to_vec()].concat();
    let mut long_form = vec![0x30, 0x81];
    long_form.extend_from_slice(&der[1..]);
    for (what, bytes) in [
        ("trailing bytes", [der.as_slice(), &[0]].concat()),
        (
            "both numbers without a frame",
            [fixed(&r), fixed(&s)].concat(),
        ),
        ("a longer length than needed", long_form),
        ("s is zero", pair(&r, &[0])),
        ("r is zero", pair(&[0], &s)),
        ("both are one", pair(&[1], &[1])),
        ("r and s changed places", pair(&s, &r)),
        ("an extra zero before r", {
            let r = [&[0, 0], r.as_slice()].concat();
            let r = [&[0x02, u8::try_from(r.len()).unwrap()], r.as_slice()].concat();
            let content = [r, integer(&s)].concat();
            [
                &[0x30, u8::try_from(content.len()).unwrap()],
                content.as_slice(),
            ]
            .concat()
        }),
    ] {
        assert_eq!(with(&bytes), Err(Rejection::Forged(id.clone())), "{what}");
    }
    // ECDSA lets anybody make a second signature out of one. It says the same, and is by the same key: it counts for nothing more.
    assert_eq!(
        with(&mirrored(&der)).unwrap().signer,
        with(&der).unwrap().signer
    );
    // base64 in another form: without its padding, for URLs, with a line end.
    for text in [
        sig.trim_end_matches('=').to_owned() + "A",
        sig.replace('=', ""),
        format!("{sig}\n"),
    ] {
        let mut bundle = good.clone();
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = json!(text);
        let found = judge(bundle.to_string().as_bytes(), &key);
        assert!(found.is_err() || text == sig, "{text}");
    }
}

#[test]
fn rejects_malleable_ed25519_signature() {
    // The order of the group, which added to s makes no difference to a verifier that does not look.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let key = PrivateKey::unwritten(KeyKind::Ed25519);
    let mut bundle: Value = serde_json::from_slice(&signed(&key, |_| {})).unwrap();
    let sig = &mut bundle["dsseEnvelope"]["signatures"][0]["sig"];
    let mut bytes = dsse::decode(sig.as_str().unwrap()).unwrap();
    let mut carry = 0;
    for (byte, add) in bytes[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    *sig = json!(dsse::encode(&bytes));
    let found = judge(bundle.to_string().as_bytes(), &key);
    assert_eq!(found, Err(Rejection::Forged(key.public().id().clone())));
}

#[test]
fn rejects_ambiguous_json_even_if_signed() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let text = statement().to_string();
    let hex = &OURS["sha256:".len()..];
    let zero = "0".repeat(64);
    let payload = |text: String| judge(&sign::bundle(&key, text.as_bytes()).unwrap(), &key);
    payload(text.clone()).unwrap();
    let twice = |found: Result<Accepted, Rejection>| {
        let why = "a key stands twice in its JSON".to_owned();
        assert_eq!(found, Err(Rejection::Unreadable(why)));
    };
    for (from, to) in [
        // First and last, at every depth, and hidden behind an escape.
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
        let why = "no in-toto statement inside".to_owned();
        assert_eq!(payload(changed), Err(Rejection::Unreadable(why)));
    }
    // Around it as well, where a reader that takes the last would see another envelope than one that takes the first.
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
    // Fields that nobody knows could be conditions, and cosign refuses them as well.
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
        let expected = Rejection::OtherDigest("not a sha256 one".into());
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
    let expected = Rejection::OtherDigest("of algorithm SHA1".into());
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
        assert!(told.contains("says nothing about being signed"), "{told}");
    }
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
            "{}: it is not signed by the given key (hint {}): the registry holds 2 signatures: one by another key (hint {}), one for another digest ({elsewhere})",
            reference(),
            key.public().id(),
            other.public().id(),
        )
    );
    let findings = with_keys(&[], &reference(), &[key.public().clone()]).unwrap_err();
    assert_eq!(findings.0[0].code.id, "BUNDLE-TRUST-001");
}

#[test]
fn does_not_examine_signatures_beyond_the_limit() {
    let key = PrivateKey::unwritten(KeyKind::Ed25519);
    let mut signatures = vec![raw("{}"); MAX_SIGNATURES];
    signatures.push(raw(signed(&key, |_| {})));
    let against = against(&[key.public().clone()]);
    let found = examine(&signatures, reference().digest(), &against);
    assert!(found.iter().all(|found| found.accepted().is_none()));
    let last = found.last().unwrap();
    assert_eq!(
        last.0,
        Err(Rejection::NotExamined {
            limit: MAX_SIGNATURES
        })
    );
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
        // Where it still holds, the change was outside of what is signed (white space, an unread field), and what was signed is unchanged.
        if let Ok(accepted) = judge(&bytes, &key) {
            prop_assert_eq!(accepted.annotations, annotations);
        }
    }
}
