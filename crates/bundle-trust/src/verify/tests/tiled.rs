//! Keyless signatures of real cosign 3 with a real Rekor v2 log, and forgeries of each of their
//! parts. A Rekor v2 log returns no SET and no time.

use bundle_core::policy::{Fault, TimeSource};
use serde_json::{Value, json};

use sha2::{Digest as _, Sha256};

use super::*;
use crate::sign;

const ROOT: &str = include_str!("../../../testdata/keyless/tiled/trusted_root.json");
pub(super) const WORKFLOW: &str =
    include_str!("../../../testdata/keyless/tiled/workflow.bundle.json");
const PERSON: &str = include_str!("../../../testdata/keyless/tiled/person.bundle.json");
pub(super) const MESSAGE: &str =
    include_str!("../../../testdata/keyless/tiled/message.bundle.json");
const LATE: &str = include_str!("../../../testdata/keyless/tiled/late.bundle.json");
pub(super) const WITH_KEY: &str = include_str!("../../../testdata/keyless/tiled/key.bundle.json");

fn subject() -> Digest {
    include_str!("../../../testdata/keyless/subject.txt")
        .trim()
        .parse()
        .unwrap()
}

fn key() -> PublicKey {
    PublicKey::parse(include_str!("../../../testdata/keyless/tiled/key.pub")).unwrap()
}

/// Returns trust material with this root. Its time is long after the certificates of the fixtures
/// expired.
fn material(root: &Value) -> TrustMaterial {
    TrustMaterial {
        keys: vec![key()],
        roots: vec![Root::from_text(&root.to_string()).unwrap()],
        now: "2100-01-01T00:00:00Z".parse().unwrap(),
    }
}

pub(super) fn root() -> Value {
    serde_json::from_str(ROOT).unwrap()
}

pub(super) fn judge_under(root: &Value, bundle: &Value) -> Result<ValidSignature, Rejection> {
    let raw = RawSignature {
        bytes: bundle.to_string().into_bytes(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    };
    examine(&[raw], &subject(), &material(root)).remove(0).0
}

pub(super) fn judge(bundle: &Value) -> Result<ValidSignature, Rejection> {
    judge_under(&root(), bundle)
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn entry(bundle: &mut Value) -> &mut Value {
    &mut bundle["verificationMaterial"]["tlogEntries"][0]
}

fn proof(bundle: &mut Value) -> &mut Value {
    &mut entry(bundle)["inclusionProof"]
}

fn timestamps(bundle: &mut Value) -> &mut Value {
    &mut bundle["verificationMaterial"]["timestampVerificationData"]
}

/// Flips one bit in the middle of base64 text.
fn flip(value: &mut Value) {
    let mut bytes = dsse::decode(value.as_str().unwrap()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    *value = json!(dsse::encode(&bytes));
}

fn note(bundle: &mut Value, change: impl Fn(&str) -> String) {
    let note = &mut proof(bundle)["checkpoint"]["envelope"];
    *note = json!(change(note.as_str().unwrap()));
}

fn body(bundle: &mut Value, change: impl Fn(&mut Value)) {
    let body = &mut entry(bundle)["canonicalizedBody"];
    let bytes = dsse::decode(body.as_str().unwrap()).unwrap();
    let mut inner: Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut inner["spec"]["hashedRekordV002"]);
    *body = json!(dsse::encode(inner.to_string().as_bytes()));
}

#[test]
fn verifies_cosign_3_signature_with_rekor_2_entry() {
    for (text, who) in [
        (PERSON, "ana@example.com"),
        (
            WORKFLOW,
            "https://github.com/example/shop/.github/workflows/release.yaml@refs/tags/v1.0.0",
        ),
        (
            MESSAGE,
            "https://github.com/example/shop/.github/workflows/release.yaml@refs/tags/v1.0.0",
        ),
    ] {
        let accepted = judge(&read(text)).unwrap();
        let Signer::Identity { name, .. } = &accepted.signer else {
            panic!("by a key")
        };
        assert_eq!(name.subject, who);
        assert_eq!(accepted.meaning, Meaning::Signed);
        let at = accepted.signed_at.unwrap();
        assert_eq!(at.source, TimeSource::TimestampAuthority);
        assert!(accepted.checked.contains(&"log proof"));
        assert!(accepted.checked.contains(&"timestamp"));
        assert!(!accepted.checked.contains(&"log promise"));
    }
    let accepted = judge(&read(WITH_KEY)).unwrap();
    assert_eq!(accepted.signer, Signer::Key(key().id().clone()));
    let at = accepted.signed_at.unwrap();
    assert_eq!(at.source, TimeSource::TimestampAuthority);
}

#[test]
fn rejects_each_forged_rekor_2_entry_with_its_own_reason() {
    type Change = Box<dyn Fn(&mut Value)>;
    let person = read(PERSON);
    let theirs = move |name: &str| person["verificationMaterial"][name].clone();
    let other_log = root()["tlogs"][0]["logId"].clone();
    let (entries, stamps, certificate) = (
        theirs("tlogEntries"),
        theirs("timestampVerificationData"),
        theirs("certificate"),
    );
    let entries_again = entries.clone();
    let cases: Vec<(&str, Change, &[Fault])> = vec![
        (
            "a proof",
            Box::new(|b| flip(&mut proof(b)["hashes"][0])),
            &[Fault::InclusionProof],
        ),
        (
            "a proof that is too short",
            Box::new(|b| proof(b)["hashes"] = json!([])),
            &[Fault::InclusionProof],
        ),
        (
            "a proof that is too long",
            Box::new(|b| {
                let one = proof(b)["hashes"][0].clone();
                proof(b)["hashes"].as_array_mut().unwrap().push(one);
            }),
            &[Fault::InclusionProof],
        ),
        (
            "another place in the log",
            Box::new(|b| entry(b)["logIndex"] = json!("0")),
            &[Fault::InclusionProof],
        ),
        (
            "a place beyond the log's end",
            Box::new(|b| entry(b)["logIndex"] = json!("9")),
            &[Fault::InclusionProof],
        ),
        (
            "no proof",
            Box::new(|b| *proof(b) = Value::Null),
            &[Fault::NoLog],
        ),
        (
            "no proof, and a promise that such a log does not give",
            Box::new(|b| {
                *proof(b) = Value::Null;
                entry(b)["inclusionPromise"] = json!({"signedEntryTimestamp": "AAAA"});
            }),
            &[Fault::NoLog],
        ),
        (
            "a promise beside the proof",
            Box::new(|b| {
                entry(b)["integratedTime"] = json!("1700000000");
                entry(b)["inclusionPromise"] = json!({"signedEntryTimestamp": "AAAA"});
            }),
            &[Fault::Set],
        ),
        (
            "a checkpoint of another size",
            Box::new(|b| note(b, |note| note.replacen("\n2\n", "\n3\n", 1))),
            &[Fault::Checkpoint, Fault::InclusionProof],
        ),
        (
            "a checkpoint of another root, which the proof leads to",
            Box::new(|b| {
                let entries = entry(b)["canonicalizedBody"].clone();
                let leaf = Sha256::new()
                    .chain_update([0])
                    .chain_update(dsse::decode(entries.as_str().unwrap()).unwrap())
                    .finalize();
                let root = dsse::encode(&leaf);
                entry(b)["logIndex"] = json!("0");
                proof(b)["hashes"] = json!([]);
                note(b, |note| {
                    let lines: Vec<&str> = note.lines().collect();
                    format!("{}\n1\n{root}\n\n{}\n", lines[0], lines[4])
                });
            }),
            &[Fault::Checkpoint],
        ),
        (
            "a checkpoint by another name",
            Box::new(|b| note(b, |note| note.replacen("127.0.0.1", "127.0.0.2", 1))),
            &[Fault::Checkpoint],
        ),
        (
            "a checkpoint with another signature",
            Box::new(|b| {
                note(b, |note| {
                    let (head, signature) = note.trim_end().rsplit_once(' ').unwrap();
                    let mut signature = json!(signature);
                    flip(&mut signature);
                    format!("{head} {}\n", signature.as_str().unwrap())
                });
            }),
            &[Fault::Checkpoint],
        ),
        (
            "a checkpoint without a signature",
            Box::new(|b| {
                note(b, |note| {
                    format!("{}\n\n", note.split_once("\n\n").unwrap().0)
                });
            }),
            &[Fault::Checkpoint, Fault::Unreadable],
        ),
        (
            "no checkpoint",
            Box::new(|b| proof(b)["checkpoint"] = json!({"envelope": ""})),
            &[Fault::Checkpoint],
        ),
        (
            "another log",
            Box::new(|b| flip(&mut entry(b)["logId"]["keyId"])),
            &[Fault::UnknownLog],
        ),
        (
            "another log of the root",
            Box::new(move |b| entry(b)["logId"] = other_log.clone()),
            &[Fault::Checkpoint],
        ),
        (
            "an entry that calls itself the older version",
            Box::new(|b| entry(b)["kindVersion"]["version"] = json!("0.0.1")),
            &[Fault::NoTime, Fault::Entry, Fault::Unreadable, Fault::Set],
        ),
        (
            "an entry that calls itself another kind",
            Box::new(|b| {
                entry(b)["kindVersion"] = json!({"kind": "dsse", "version": "0.0.2"});
            }),
            &[Fault::Unreadable, Fault::Entry],
        ),
        (
            "an altered digest in the entry",
            Box::new(|b| body(b, |record| flip(&mut record["data"]["digest"]))),
            &[Fault::InclusionProof],
        ),
        (
            "an altered signature in the entry",
            Box::new(|b| body(b, |record| flip(&mut record["signature"]["content"]))),
            &[Fault::InclusionProof],
        ),
        (
            "the entry of another signature",
            Box::new(move |b| *entry(b) = entries[0].clone()),
            &[Fault::Entry, Fault::Content],
        ),
        (
            "the entry of another signature beside its own",
            Box::new(move |b| {
                let list = b["verificationMaterial"]["tlogEntries"].as_array_mut();
                list.unwrap().push(entries_again[0].clone());
            }),
            &[Fault::Entry, Fault::Content],
        ),
        (
            "no log entry",
            Box::new(|b| b["verificationMaterial"]["tlogEntries"] = json!([])),
            &[Fault::NoLog],
        ),
        (
            "no timestamp",
            Box::new(|b| *timestamps(b) = json!({})),
            &[Fault::NoTime],
        ),
        (
            "no timestamp, and a time that nobody signed",
            Box::new(|b| {
                *timestamps(b) = json!({});
                entry(b)["integratedTime"] = json!("1795288000");
            }),
            &[Fault::NoTime],
        ),
        (
            "an altered timestamp",
            Box::new(|b| flip(&mut timestamps(b)["rfc3161Timestamps"][0]["signedTimestamp"])),
            &[Fault::Timestamp],
        ),
        (
            "the timestamp of another signature",
            Box::new(move |b| *timestamps(b) = stamps.clone()),
            &[Fault::Timestamp],
        ),
        (
            "the timestamp that was there, and one that is none",
            Box::new(|b| {
                let list = timestamps(b)["rfc3161Timestamps"].as_array_mut().unwrap();
                list.push(json!({"signedTimestamp": "AAAA"}));
            }),
            &[Fault::Timestamp, Fault::Unreadable],
        ),
        (
            "another's certificate",
            Box::new(move |b| b["verificationMaterial"]["certificate"] = certificate.clone()),
            &[Fault::Forged, Fault::Entry],
        ),
        (
            "another predicate in the payload",
            Box::new(|b| {
                let payload = &mut b["dsseEnvelope"]["payload"];
                let text = dsse::decode(payload.as_str().unwrap()).unwrap();
                let text = String::from_utf8(text).unwrap();
                let text = text.replace("cosign/sign/v1", "cosign/sign/v2");
                *payload = json!(dsse::encode(text.as_bytes()));
            }),
            &[Fault::Forged, Fault::Content],
        ),
    ];
    for (what, change, faults) in cases {
        let mut bundle = read(WORKFLOW);
        change(&mut bundle);
        match judge(&bundle) {
            Err(Rejection::Certificate { fault, why }) => {
                assert!(faults.contains(&fault), "{what}: {fault:?} ({why})");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    // The certificate had expired before the signature got its timestamp.
    match judge(&read(LATE)) {
        Err(Rejection::Certificate { fault, .. }) => assert_eq!(fault, Fault::Validity),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rekor_2_log_is_trusted_only_in_its_validity_window() {
    let fault = |change: &dyn Fn(&mut Value)| {
        let mut changed = root();
        change(&mut changed);
        match judge_under(&changed, &read(WORKFLOW)) {
            Err(Rejection::Certificate { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    };
    let forget = |root: &mut Value| drop(root["tlogs"].as_array_mut().unwrap().remove(1));
    assert_eq!(fault(&forget), Fault::UnknownLog);
    let another_key = |root: &mut Value| flip(&mut root["tlogs"][1]["publicKey"]["rawBytes"]);
    assert_eq!(fault(&another_key), Fault::Checkpoint);
    let not_yet = json!({"start": "2099-01-01T00:00:00Z"});
    let start = |root: &mut Value| root["tlogs"][1]["publicKey"]["validFor"] = not_yet.clone();
    assert_eq!(fault(&start), Fault::Checkpoint);
    let stamps = |root: &mut Value| root["timestampAuthorities"][0]["validFor"] = not_yet.clone();
    assert_eq!(fault(&stamps), Fault::Timestamp);
    let nobody = |root: &mut Value| root["timestampAuthorities"] = json!([]);
    assert_eq!(fault(&nobody), Fault::Timestamp);
}

#[test]
fn invalid_evidence_of_a_key_signature_only_removes_its_time() {
    let mut bundle = read(WITH_KEY);
    flip(&mut proof(&mut bundle)["hashes"][0]);
    let accepted = judge(&bundle).unwrap();
    assert_eq!(accepted.signed_at, None);
}
