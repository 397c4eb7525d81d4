//! Tests of log entries that name another log, and of the validity periods in a trust root.

use bundle_core::policy::Fault;
use serde_json::{Value, json};

use super::keyless as older;
use super::tiled::{self, judge_under, root};
use super::*;

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn entry(bundle: &mut Value) -> &mut Value {
    &mut bundle["verificationMaterial"]["tlogEntries"][0]
}

/// Adds a line to the signatures under the checkpoint.
fn add_signature(bundle: &mut Value, name: &str, key_id: &str) {
    let id = dsse::decode(key_id).unwrap();
    let signature = dsse::encode(&[&id[..4], &[7; 64]].concat());
    let note = &mut entry(bundle)["inclusionProof"]["checkpoint"]["envelope"];
    *note = json!(format!(
        "{}\u{2014} {name} {signature}\n",
        note.as_str().unwrap()
    ));
}

#[track_caller]
fn fault(found: Result<ValidSignature, Rejection>) -> Fault {
    match found {
        Err(Rejection::Certificate { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rejects_rekor_2_entry_that_names_another_log() {
    let root = root();
    let other = root["tlogs"][0]["logId"].clone();
    let id = other["keyId"].as_str().unwrap().to_owned();
    // The log entry names another log of the trust root. The checkpoint has an additional signature
    // line in the name of that log.
    for name in ["127.0.0.1", "127.0.0.1:21049"] {
        let mut bundle = read(tiled::WORKFLOW);
        add_signature(&mut bundle, name, &id);
        assert!(judge_under(&root, &bundle).is_ok());
        entry(&mut bundle)["logId"] = other.clone();
        assert_eq!(fault(judge_under(&root, &bundle)), Fault::Checkpoint);
    }
    // The trust root has the key of the log with another URL.
    for address in [
        "https://log.example.com",
        "https://127.0.0.1.example.com",
        "https://127.0.0.1/log",
        "127.0.0.1.",
        "",
    ] {
        let mut renamed = root.clone();
        renamed["tlogs"][1]["baseUrl"] = json!(address);
        let found = judge_under(&renamed, &read(tiled::WORKFLOW));
        assert_eq!(fault(found), Fault::Checkpoint, "{address}");
    }
    for address in [
        "https://127.0.0.1",
        "http://127.0.0.1:8080/",
        "https://127.0.0.1/",
    ] {
        let mut renamed = root.clone();
        renamed["tlogs"][1]["baseUrl"] = json!(address);
        judge_under(&renamed, &read(tiled::WORKFLOW)).unwrap();
    }
    // The signature line of the log has another name than the checkpoint.
    let mut bundle = read(tiled::WORKFLOW);
    let note = &mut entry(&mut bundle)["inclusionProof"]["checkpoint"]["envelope"];
    *note = json!(
        note.as_str()
            .unwrap()
            .replace("\u{2014} 127.0.0.1 ", "\u{2014} 127.0.0.2 ")
    );
    assert_eq!(fault(judge_under(&root, &bundle)), Fault::Checkpoint);
}

#[test]
fn rejects_rekor_1_entry_that_names_another_log() {
    // Without a signed entry timestamp (SET), no signature covers the log ID.
    let root = root();
    let tiled = root["tlogs"][1].clone();
    let mut both = read(older::ROOT);
    both["tlogs"].as_array_mut().unwrap().push(tiled.clone());
    let mut bundle = read(older::WORKFLOW);
    let fields = entry(&mut bundle).as_object_mut().unwrap();
    fields.remove("inclusionPromise");
    fields.remove("integratedTime");
    assert!(judge_under(&both, &bundle).is_ok());
    add_signature(
        &mut bundle,
        "127.0.0.1",
        tiled["logId"]["keyId"].as_str().unwrap(),
    );
    entry(&mut bundle)["logId"] = tiled["logId"].clone();
    assert_eq!(fault(judge_under(&both, &bundle)), Fault::Checkpoint);
}

#[test]
fn log_is_trusted_only_in_its_validity_window() {
    let ended = |root: &Value, log: usize, start: &str, end: &str| {
        let mut changed = root.clone();
        changed["tlogs"][log]["publicKey"]["validFor"] = json!({ "start": start, "end": end });
        changed
    };
    let (before, after) = ("2020-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    let early = "2026-11-01T00:00:00Z";
    // In Rekor v2, the time of an entry is the time in its timestamp.
    let tiles = root();
    judge_under(&ended(&tiles, 1, before, after), &read(tiled::WORKFLOW)).unwrap();
    let found = judge_under(&ended(&tiles, 1, before, early), &read(tiled::WORKFLOW));
    assert_eq!(fault(found), Fault::LogTime);
    let accepted = judge_under(&tiles, &read(tiled::WORKFLOW)).unwrap();
    let at: Timestamp = accepted.signed_at.unwrap().at.parse().unwrap();
    let later = at + jiff::SignedDuration::from_secs(1);
    let found = judge_under(
        &ended(&tiles, 1, &later.to_string(), after),
        &read(tiled::WORKFLOW),
    );
    assert_eq!(fault(found), Fault::LogTime);
    // The start and the end belong to the validity period.
    let exactly = at.to_string();
    judge_under(
        &ended(&tiles, 1, &exactly, &exactly),
        &read(tiled::WORKFLOW),
    )
    .unwrap();
    // For Rekor v1, the validity period is checked with and without an SET.
    let old = read(older::ROOT);
    judge_under(&ended(&old, 0, before, after), &read(older::WORKFLOW)).unwrap();
    let found = judge_under(&ended(&old, 0, before, early), &read(older::WORKFLOW));
    assert_eq!(fault(found), Fault::Set);
    let mut unpromised = read(older::WORKFLOW);
    entry(&mut unpromised)["inclusionPromise"] = Value::Null;
    judge_under(&ended(&old, 0, before, after), &unpromised).unwrap();
    let found = judge_under(&ended(&old, 0, before, early), &unpromised);
    assert_eq!(fault(found), Fault::LogTime);
    // A signature that is made with a key stays valid if its evidence is outside of the validity
    // period. The evidence is ignored, so the signing time is unknown.
    let by_key = read(tiled::WITH_KEY);
    assert!(judge_under(&tiles, &by_key).unwrap().signed_at.is_some());
    let accepted = judge_under(&ended(&tiles, 1, before, early), &by_key).unwrap();
    assert_eq!(accepted.signed_at, None);
}

#[test]
fn authorities_are_trusted_only_in_their_validity_windows() {
    let early = json!({ "start": "2020-01-01T00:00:00Z", "end": "2026-11-01T00:00:00Z" });
    for (path, expected) in [
        ("/ctlogs/0/publicKey/validFor", &[Fault::Sct][..]),
        (
            "/certificateAuthorities/0/validFor",
            &[Fault::Chain, Fault::Validity],
        ),
        ("/timestampAuthorities/0/validFor", &[Fault::Timestamp]),
    ] {
        for (mut changed, bundle) in [
            (root(), tiled::WORKFLOW),
            (read(older::ROOT), older::WORKFLOW),
        ] {
            *changed.pointer_mut(path).unwrap() = early.clone();
            let found = fault(judge_under(&changed, &read(bundle)));
            assert!(expected.contains(&found), "{path}: {found:?}");
        }
    }
}
