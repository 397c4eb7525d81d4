//! Ambiguous JSON under valid signatures: structs written as lists, keys that differ only by case,
//! unknown keys. An attacker may trick the owner of the key into signing ambiguous JSON. The
//! verifier rejects ambiguous JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::forge::{CertificateRequest, Sigstore};
use super::keys::{OURS, altered, judge, material, raw, reference, signed};
use super::*;
use crate::keys::{KeyKind, PrivateKey};
use crate::{proof_annotation, sign};

/// Returns the names of the variants that the verifier accepts.
fn accepted_variants<'a>(cases: &[(&'a str, Result<ValidSignature, Rejection>)]) -> Vec<&'a str> {
    let held = cases.iter().filter(|(_, found)| found.is_ok());
    held.map(|(name, _)| *name).collect()
}

fn simple(key: &PrivateKey, payload: &str) -> Result<ValidSignature, Rejection> {
    let raw = RawSignature {
        bytes: payload.as_bytes().to_vec(),
        artifact_type: legacy::SIMPLE_SIGNING.to_owned(),
        annotations: sign::annotations(key, payload.as_bytes()).unwrap(),
        unread: None,
    };
    let material = material(std::slice::from_ref(key.public()));
    examine(&[raw], reference().digest(), &material).remove(0).0
}

#[test]
fn rejects_ambiguous_json_in_cosign_2_payloads() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let kind = statement::SIMPLE;
    let good = format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"x"}},"image":{{"docker-manifest-digest":"{OURS}"}},"type":"{kind}"}},"optional":null}}"#
    );
    simple(&key, &good).unwrap();
    let image = format!(r#"{{"docker-manifest-digest":"{OURS}"}}"#);
    let cases: Vec<(&str, String)> = vec![
        ("a list", format!(r#"[[["{OURS}"],"{kind}"],null]"#)),
        (
            "a list of objects",
            format!(r#"[{{"image":{image},"type":"{kind}"}},null]"#),
        ),
        (
            "critical as a list",
            format!(r#"{{"critical":[{image},"{kind}"]}}"#),
        ),
        (
            "image as a list",
            format!(r#"{{"critical":{{"image":["{OURS}"],"type":"{kind}"}}}}"#),
        ),
        (
            "critical in capitals beside it",
            good.replacen('{', r#"{"Critical":{"image":{}},"#, 1),
        ),
        (
            "image in capitals beside it",
            good.replacen(r#""image":"#, r#""IMAGE":{},"image":"#, 1),
        ),
        (
            "something critical that nobody knows",
            good.replacen(r#""image":"#, r#""until":"yesterday","image":"#, 1),
        ),
        (
            "something unknown about the image",
            good.replacen(r#"{"docker-manifest"#, r#"{"arch":"x","docker-manifest"#, 1),
        ),
        (
            "something unknown at the top",
            good.replacen('{', r#"{"noncritical":{},"#, 1),
        ),
        (
            "a key twice, deep in what is optional",
            good.replacen("null", r#"{"a":[{"b":1,"b":2}]}"#, 1),
        ),
        ("a byte order mark", format!("\u{feff}{good}")),
        ("something after it", format!("{good}{{}}")),
    ];
    let found: Vec<_> = cases
        .iter()
        .map(|(name, text)| (*name, simple(&key, text)))
        .collect();
    assert_eq!(accepted_variants(&found), Vec::<&str>::new());
}

#[test]
fn rejects_ambiguous_json_in_statements() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let hex = &OURS["sha256:".len()..];
    let kind = dsse::STATEMENT;
    let means = dsse::SIGNED;
    let good = format!(
        r#"{{"_type":"{kind}","subject":[{{"digest":{{"sha256":"{hex}"}}}}],"predicateType":"{means}","predicate":{{}}}}"#
    );
    let under = |text: &str| judge(&sign::bundle(&key, text.as_bytes()).unwrap(), &key);
    under(&good).unwrap();
    // The in-toto specification requires that unknown fields of a statement are ignored.
    under(&good.replacen('{', r#"{"more":[1],"#, 1)).unwrap();
    let cases: Vec<(&str, String)> = vec![
        (
            "a list",
            format!(r#"["{kind}",[[{{"sha256":"{hex}"}},null]],"{means}"]"#),
        ),
        (
            "the subject as a list",
            good.replacen(
                &format!(r#"{{"digest":{{"sha256":"{hex}"}}}}"#),
                &format!(r#"[{{"sha256":"{hex}"}},null]"#),
                1,
            ),
        ),
        (
            "another subject in capitals",
            good.replacen('{', r#"{"Subject":[],"#, 1),
        ),
        (
            "another type in capitals",
            good.replacen('{', "{\"_TYPE\":\"x\",", 1),
        ),
        (
            "a digest in capitals",
            good.replacen(r#"{"digest":"#, r#"{"Digest":{},"digest":"#, 1),
        ),
        (
            "a key twice in the predicate",
            good.replacen(r#""predicate":{}"#, r#""predicate":{"a":{"b":1,"b":1}}"#, 1),
        ),
        ("a byte order mark", format!("\u{feff}{good}")),
    ];
    let found: Vec<_> = cases
        .iter()
        .map(|(name, text)| (*name, under(text)))
        .collect();
    assert_eq!(accepted_variants(&found), Vec::<&str>::new());
}

#[test]
fn rejects_ambiguous_json_in_bundles() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let bundle: Value = serde_json::from_slice(&signed(&key, |_| {})).unwrap();
    let envelope = &bundle["dsseEnvelope"];
    let (payload, kind) = (&envelope["payload"], &envelope["payloadType"]);
    let sig = &envelope["signatures"][0]["sig"];
    let hint = &bundle["verificationMaterial"]["publicKey"]["hint"];
    let listed = json!([
        dsse::BUNDLE,
        [[hint], null, null],
        [payload, kind, [[sig]]],
        null
    ]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a list", listed.to_string().into_bytes()),
        (
            "the envelope as a list",
            altered(&key, |b| {
                b["dsseEnvelope"] = json!([payload, kind, [{ "sig": sig }]]);
            }),
        ),
        (
            "its signature as a list",
            altered(&key, |b| b["dsseEnvelope"]["signatures"] = json!([[sig]])),
        ),
        (
            "the key as a list",
            altered(&key, |b| {
                b["verificationMaterial"]["publicKey"] = json!([hint]);
            }),
        ),
        (
            "another envelope in capitals",
            altered(&key, |b| b["DsseEnvelope"] = json!({})),
        ),
        (
            "another payload in capitals",
            altered(&key, |b| b["dsseEnvelope"]["Payload"] = json!("e30=")),
        ),
        (
            "the names of protobuf",
            altered(&key, |b| b["media_type"] = json!("x")),
        ),
        (
            "a field that nobody knows",
            altered(&key, |b| b["conditions"] = json!({})),
        ),
        (
            "a field of the envelope that nobody knows",
            altered(&key, |b| b["dsseEnvelope"]["extension"] = json!({})),
        ),
        (
            "material that nobody knows",
            altered(&key, |b| b["verificationMaterial"]["expires"] = json!(1)),
        ),
    ];
    let found: Vec<_> = cases
        .iter()
        .map(|(name, bytes)| (*name, judge(bytes, &key)))
        .collect();
    assert_eq!(accepted_variants(&found), Vec::<&str>::new());
    let id = altered(&key, |b| {
        b["dsseEnvelope"]["signatures"][0]["keyid"] = json!("");
    });
    judge(&id, &key).unwrap();
}

#[test]
fn rejects_ambiguous_json_in_log_entries() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let payload = super::forge::statement();
    let under = |change: &dyn Fn(&mut Value)| {
        let bundle = sigstore.entered(&CertificateRequest::default(), &payload, change);
        let raw = super::forge::raw(&bundle);
        examine(&[raw], &super::forge::subject(), &material)
            .remove(0)
            .0
    };
    under(&|_| {}).unwrap();
    let cases = vec![
        (
            "the body as a list",
            under(&|b| {
                let spec = b["spec"].clone();
                *b = json!(["0.0.1", "dsse", spec]);
            }),
        ),
        (
            "the spec as a list",
            under(&|b| {
                let spec = b["spec"].clone();
                b["spec"] = json!([
                    spec["envelopeHash"],
                    spec["payloadHash"],
                    spec["signatures"]
                ]);
            }),
        ),
        (
            "a hash as a list",
            under(&|b| {
                let hash = b["spec"]["payloadHash"].clone();
                b["spec"]["payloadHash"] = json!([hash["algorithm"], hash["value"]]);
            }),
        ),
        (
            "its signature as a list",
            under(&|b| {
                let one = b["spec"]["signatures"][0].clone();
                b["spec"]["signatures"] = json!([[one["signature"], one["verifier"]]]);
            }),
        ),
        (
            "kind of its entry differs",
            under(&|b| b["kind"] = json!("intoto")),
        ),
        (
            "another version than the bundle says",
            under(&|b| b["apiVersion"] = json!("0.0.2")),
        ),
    ];
    assert_eq!(accepted_variants(&cases), Vec::<&str>::new());
}

#[test]
fn rejects_proofs_that_are_lists() {
    use std::io::Write as _;
    let manifest = r#"{"schemaVersion":2}"#;
    let packed = |json: &Value| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        writer.write_all(json.to_string().as_bytes()).unwrap();
        dsse::encode(&writer.finish().unwrap())
    };
    let digest = Digest::of(manifest.as_bytes());
    proof_annotation::decode(
        &packed(&json!({"manifest": manifest, "signatures": []})),
        &digest,
    )
    .unwrap();
    for (name, list) in [
        ("all of it", json!([manifest, []])),
        (
            "a signature",
            json!({"manifest": manifest, "signatures": [["x", "{}", {}]]}),
        ),
    ] {
        assert!(
            proof_annotation::decode(&packed(&list), &digest).is_err(),
            "{name}"
        );
    }
}

#[test]
fn accepts_predicate_keys_that_differ_only_by_case() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let bytes = signed(&key, |s| s["predicate"] = json!({"PATH": 1, "path": 2}));
    judge(&bytes, &key).unwrap();
    let annotations = BTreeMap::from([("Name".to_owned(), "a".to_owned())]);
    let bytes = sign::sign_digest(&key, &reference(), &annotations).unwrap();
    assert_eq!(judge(&bytes, &key).unwrap().annotations, annotations);
    assert!(examine(&[raw(bytes)], &Digest::of(b"x"), &material(&[])).len() == 1);
}
