//! Attestations of cosign 2 that are made with a key, and content that is not accepted as an
//! attestation.

use bundle_core::policy::Rejection;
use bundle_core::reference::Reference;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::keys::{KeyKind, PrivateKey};
use crate::{dsse, legacy, sign};

const KIND: &str = "https://example.com/kind";

fn pinned() -> PinnedReference {
    let reference: Reference = "registry.example.com/team/web:1".parse().unwrap();
    reference.pin(Digest::of(b"manifest"))
}

fn statement(change: impl Fn(&mut Value)) -> Value {
    let mut statement = json!({
        "_type": dsse::STATEMENT_OLD,
        "subject": [{"digest": {"sha256": pinned().digest().hex()}}],
        "predicateType": KIND,
        "predicate": {"tested": true},
    });
    change(&mut statement);
    statement
}

fn envelope(key: &PrivateKey, statement: &Value, change: impl Fn(&mut Value)) -> RawSignature {
    let payload = statement.to_string();
    let signature = key
        .sign(&dsse::pre_authentication(payload.as_bytes()))
        .unwrap();
    let mut envelope = json!({
        "payloadType": dsse::PAYLOAD,
        "payload": dsse::encode(payload.as_bytes()),
        "signatures": [{"keyid": "", "sig": dsse::encode(&signature)}],
    });
    change(&mut envelope);
    RawSignature {
        bytes: envelope.to_string().into_bytes(),
        artifact_type: legacy::ENVELOPE.to_owned(),
        ..RawSignature::default()
    }
}

fn ask(raw: &RawSignature, key: &PrivateKey) -> Result<Vec<Attestation>, String> {
    let material = TrustMaterial {
        keys: vec![key.public().clone()],
        roots: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    };
    let wanted = [AcceptedSigner::Key(key.public().id().clone())];
    let kinds = [PredicateType::parse(KIND).unwrap()];
    let signatures = std::slice::from_ref(raw);
    // `signatures_by` accepts no attestation as a signature, valid or invalid.
    assert!(super::super::signatures_by(signatures, &pinned(), &wanted, &material).is_err());
    attested(signatures, &pinned(), &wanted, &kinds, &material)
        .map_err(|findings| findings.to_string())
}

#[test]
fn cosign_2_attestation_counts_only_for_its_predicate_type() {
    for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
        let key = PrivateKey::unwritten(kind);
        let good = ask(&envelope(&key, &statement(|_| {}), |_| {}), &key).unwrap();
        assert_eq!(good[0].predicate, json!({"tested": true}));
        assert_eq!(good[0].accepted.form, super::super::LEGACY);
        let other = PrivateKey::unwritten(kind);
        let refused = ask(&envelope(&other, &statement(|_| {}), |_| {}), &key).unwrap_err();
        assert!(refused.contains("by another key, or altered"), "{refused}");
    }
}

type Change = fn(&mut Value);

#[test]
fn rejects_altered_attestations() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let nothing: Change = |_| {};
    let rows: [(Change, Change, &str); 9] = [
        (
            |s| s["predicateType"] = json!(dsse::SIGNED),
            nothing,
            "with a statement of another type",
        ),
        (
            |s| {
                s["predicateType"] = json!(dsse::SIGNED);
                s["_type"] = json!(dsse::STATEMENT);
            },
            nothing,
            "a signature in the place of attestations of cosign 2",
        ),
        (
            |s| s["predicateType"] = json!("https://example.com/other"),
            nothing,
            "of an attestation (https://example.com/other)",
        ),
        (
            |s| s["subject"][0]["digest"]["sha256"] = json!("0".repeat(64)),
            nothing,
            "for another digest",
        ),
        (
            |s| {
                let again = s["subject"][0].clone();
                s["subject"].as_array_mut().unwrap().push(again);
            },
            nothing,
            "about 2 subjects",
        ),
        (
            nothing,
            |e| e["payload"] = json!(dsse::encode(b"{}")),
            "by another key, or altered",
        ),
        (
            nothing,
            |e| e["payloadType"] = json!("text/plain"),
            "over a payload of another type",
        ),
        (
            nothing,
            |e| {
                let again = e["signatures"][0].clone();
                e["signatures"].as_array_mut().unwrap().push(again);
            },
            "with 2 signatures",
        ),
        (
            nothing,
            |e| *e = json!([]),
            "not the JSON of a DSSE envelope",
        ),
    ];
    for (said, around, why) in rows {
        let refused = ask(&envelope(&key, &statement(said), around), &key).unwrap_err();
        assert!(refused.contains(why), "{why}: {refused}");
    }
    // An attestation is rejected if its annotations are too long.
    let mut flood = envelope(&key, &statement(|_| {}), |_| {});
    flood
        .annotations
        .insert("a".to_owned(), "x".repeat(300 << 10));
    assert!(
        ask(&flood, &key)
            .unwrap_err()
            .contains("more than the limit")
    );
}

#[test]
fn rejects_attestation_in_the_format_of_the_other_cosign() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let material = TrustMaterial {
        keys: vec![key.public().clone()],
        roots: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    };
    let payload = statement(|_| {}).to_string();
    let bundle = sign::bundle(&key, payload.as_bytes()).unwrap();
    for artifact_type in [legacy::ENVELOPE, legacy::SIMPLE_SIGNING] {
        let raw = RawSignature {
            bytes: bundle.clone(),
            artifact_type: artifact_type.to_owned(),
            ..RawSignature::default()
        };
        let found = super::super::examine(&[raw], pinned().digest(), &material);
        assert!(
            matches!(found[0].0, Err(Rejection::Unreadable(_))),
            "{artifact_type}"
        );
    }
    let mut raw = envelope(&key, &statement(|_| {}), |_| {});
    raw.artifact_type = sign::BUNDLE_MEDIA_TYPE.to_owned();
    let found = super::super::examine(&[raw], pinned().digest(), &material);
    assert!(found[0].valid().is_none());
}
