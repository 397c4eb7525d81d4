//! Keyless signatures of real cosign 2 and 3, and forgeries of each of their parts.

use std::collections::BTreeMap;

use bundle_core::policy::{Fault, Identity, IdentityName, Matcher, TimeSource};
use serde_json::{Value, json};

use super::*;
use crate::{keys::PrivateKey, sign};

pub(super) const ROOT: &str = include_str!("../../testdata/keyless/trusted_root.json");
pub(super) const WORKFLOW: &str = include_str!("../../testdata/keyless/workflow.bundle.json");
pub(super) const UNTIMED: &str = include_str!("../../testdata/keyless/untimed.bundle.json");
const LATE: &str = include_str!("../../testdata/keyless/late.bundle.json");
pub(super) const PERSON: &str = include_str!("../../testdata/keyless/person.bundle.json");
const WITH_KEY: &str = include_str!("../../testdata/keyless/key.bundle.json");
const CI: &str = "https://github.com/example/shop/.github/workflows/release.yaml@refs/tags/v1.0.0";
const CI_ISSUER: &str = "https://token.actions.githubusercontent.com";

pub(super) fn subject() -> Digest {
    include_str!("../../testdata/keyless/subject.txt")
        .trim()
        .parse()
        .unwrap()
}

fn key() -> PublicKey {
    PublicKey::parse(include_str!("../../testdata/keyless/key.pub")).unwrap()
}

/// A day after the fixtures were made: their certificates have long ended.
fn later() -> Timestamp {
    let made: Value = serde_json::from_str(UNTIMED).unwrap();
    let at = &made["verificationMaterial"]["tlogEntries"][0]["integratedTime"];
    Timestamp::from_second(at.as_str().unwrap().parse::<i64>().unwrap() + 86_400).unwrap()
}

pub(super) fn under(root: &str) -> Against {
    Against {
        keys: vec![key()],
        roots: vec![Root::from_text(root).unwrap()],
        now: later(),
    }
}

fn bundle(text: impl Into<String>) -> RawSignature {
    RawSignature {
        bytes: text.into().into_bytes(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}

/// A layer of cosign 2's tag.
fn legacy(manifest: &str, payload: &str) -> RawSignature {
    let manifest: Value = serde_json::from_str(manifest).unwrap();
    let layer = &manifest["layers"][0];
    RawSignature {
        bytes: payload.as_bytes().to_vec(),
        artifact_type: layer["mediaType"].as_str().unwrap().to_owned(),
        annotations: serde_json::from_value(layer["annotations"].clone()).unwrap(),
        unread: None,
    }
}

fn legacy_workflow() -> RawSignature {
    legacy(
        include_str!("../../testdata/keyless/legacy-workflow.manifest.json"),
        include_str!("../../testdata/keyless/legacy-workflow.payload.json"),
    )
}

fn legacy_key() -> RawSignature {
    legacy(
        include_str!("../../testdata/keyless/legacy-key.manifest.json"),
        include_str!("../../testdata/keyless/legacy-key.payload.json"),
    )
}

pub(super) fn judge(raw: &RawSignature) -> Result<Accepted, Rejection> {
    let mut found = examine(std::slice::from_ref(raw), &subject(), &under(ROOT));
    found.remove(0).0
}

fn name(accepted: &Accepted) -> &IdentityName {
    match &accepted.signer {
        Signer::Identity { name, .. } => name,
        Signer::Key(_) => panic!("by a key"),
    }
}

#[test]
fn verifies_every_combination_of_format_and_signer() {
    for (raw, subject, issuer, form) in [
        (bundle(WORKFLOW), CI, CI_ISSUER, "sigstore bundle"),
        (bundle(UNTIMED), CI, CI_ISSUER, "sigstore bundle"),
        (
            bundle(PERSON),
            "ana@example.com",
            "https://accounts.example.com",
            "sigstore bundle",
        ),
        (legacy_workflow(), CI, CI_ISSUER, "cosign 2"),
    ] {
        let accepted = judge(&raw).unwrap();
        assert_eq!(name(&accepted).subject, subject);
        assert_eq!(name(&accepted).issuer, issuer);
        assert_eq!(accepted.form, form);
        assert_eq!(accepted.meaning, Meaning::Signed);
        assert_eq!(accepted.signed_at.unwrap().source, TimeSource::Log);
    }
    for raw in [bundle(WITH_KEY), legacy_key()] {
        let accepted = judge(&raw).unwrap();
        assert_eq!(accepted.signer, Signer::Key(key().id().clone()));
    }
    // The log's evidence is not needed with a key, but says when.
    assert!(judge(&bundle(WITH_KEY)).unwrap().signed_at.is_some());
}

#[test]
fn rejects_other_identities_and_other_roots() {
    let reference: bundle_core::reference::Reference =
        "registry.example.com/team/shop:1".parse().unwrap();
    let pinned = reference.pin(subject());
    let against = under(ROOT);
    let signed = |issuer: Matcher, subject: Matcher| {
        let wanted = [Who::Identities {
            identities: vec![Identity { issuer, subject }],
            root: against.roots[0].id().clone(),
        }];
        by(&[bundle(WORKFLOW)], &pinned, &wanted, &against)
    };
    let exact = |text: &str| Matcher::exact(text).unwrap();
    let pattern = |text: &str| Matcher::pattern(text).unwrap();
    assert!(signed(exact(CI_ISSUER), exact(CI)).is_ok());
    assert!(signed(pattern(r"https://token\..*"), pattern(".*/release.yaml@.*")).is_ok());
    for (issuer, subject) in [
        (exact("https://accounts.example.com"), exact(CI)),
        (exact(CI_ISSUER), exact("https://github.com/example/shop/")),
        (exact(CI_ISSUER), exact(&CI.replace("shop", "Shop"))),
        (exact(CI_ISSUER), exact(&CI.replace("shop", "sh\u{43e}p"))),
        (exact(CI_ISSUER), exact("https://github.com/example/*")),
        (exact(".*"), exact(CI)),
        (pattern("https://token"), pattern(".*")),
        (pattern(".*"), pattern("https://github.com/example/shop")),
    ] {
        let findings = signed(issuer, subject).unwrap_err();
        let told = findings.to_string();
        assert!(told.contains("by another identity (subject "), "{told}");
    }
}

/// A bundle with one value changed.
fn altered(text: &str, change: impl Fn(&mut Value)) -> RawSignature {
    let mut value: Value = serde_json::from_str(text).unwrap();
    change(&mut value);
    bundle(value.to_string())
}

fn entry(value: &mut Value) -> &mut Value {
    &mut value["verificationMaterial"]["tlogEntries"][0]
}

/// Flips one bit in the middle of base64 text.
fn flip(value: &mut Value) {
    let mut bytes = dsse::decode(value.as_str().unwrap()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    *value = json!(dsse::encode(&bytes));
}

/// Changes the JSON inside of base64 text.
fn inside(value: &mut Value, change: impl Fn(&mut Value)) {
    let bytes = dsse::decode(value.as_str().unwrap()).unwrap();
    let mut inner: Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut inner);
    *value = json!(dsse::encode(inner.to_string().as_bytes()));
}

fn root_without(part: &str) -> Against {
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root[part] = json!([]);
    under(&root.to_string())
}

#[test]
fn rejects_each_forged_keyless_bundle_with_its_own_reason() {
    let person: Value = serde_json::from_str(PERSON).unwrap();
    let untimed: Value = serde_json::from_str(UNTIMED).unwrap();
    let late_by = |seconds: i64| {
        move |b: &mut Value| {
            let at = &mut entry(b)["integratedTime"];
            let was: i64 = at.as_str().unwrap().parse().unwrap();
            *at = json!((was + seconds).to_string());
        }
    };
    let cases: Vec<(&str, RawSignature, &[Fault])> = vec![
        (
            "an earlier log time",
            altered(UNTIMED, late_by(-30)),
            &[Fault::Promise],
        ),
        (
            "a later log time",
            altered(UNTIMED, late_by(30)),
            &[Fault::Promise],
        ),
        (
            "a log time beside a timestamp",
            altered(WORKFLOW, late_by(1)),
            &[Fault::Promise],
        ),
        (
            "a promise",
            altered(UNTIMED, |b| {
                flip(&mut entry(b)["inclusionPromise"]["signedEntryTimestamp"]);
            }),
            &[Fault::Promise],
        ),
        (
            "the promise of another entry",
            altered(UNTIMED, |b| {
                entry(b)["inclusionPromise"] =
                    person["verificationMaterial"]["tlogEntries"][0]["inclusionPromise"].clone();
            }),
            &[Fault::Promise],
        ),
        (
            "no promise and no timestamp",
            altered(UNTIMED, |b| entry(b)["inclusionPromise"] = Value::Null),
            &[Fault::NoTime],
        ),
        (
            "a proof",
            altered(WORKFLOW, |b| {
                flip(&mut entry(b)["inclusionProof"]["hashes"][0]);
            }),
            &[Fault::InclusionProof],
        ),
        (
            "another place in the log",
            altered(WORKFLOW, |b| {
                entry(b)["inclusionProof"]["logIndex"] = json!("0");
            }),
            &[Fault::InclusionProof],
        ),
        (
            "a place beyond the log's end",
            altered(WORKFLOW, |b| {
                entry(b)["inclusionProof"]["logIndex"] = json!("9");
            }),
            &[Fault::InclusionProof],
        ),
        (
            "a root of the log",
            altered(WORKFLOW, |b| {
                flip(&mut entry(b)["inclusionProof"]["rootHash"]);
            }),
            &[Fault::Checkpoint, Fault::InclusionProof],
        ),
        (
            "no proof",
            altered(WORKFLOW, |b| entry(b)["inclusionProof"] = Value::Null),
            &[Fault::NoLog],
        ),
        (
            "a checkpoint of another size",
            altered(WORKFLOW, |b| {
                let note = &mut entry(b)["inclusionProof"]["checkpoint"]["envelope"];
                *note = json!(note.as_str().unwrap().replacen("\n2\n", "\n3\n", 1));
            }),
            &[Fault::Checkpoint],
        ),
        (
            "no checkpoint",
            altered(WORKFLOW, |b| {
                entry(b)["inclusionProof"]["checkpoint"] = json!({"envelope": ""});
            }),
            &[Fault::Checkpoint],
        ),
        (
            "another log",
            altered(WORKFLOW, |b| flip(&mut entry(b)["logId"]["keyId"])),
            &[Fault::UnknownLog],
        ),
        (
            "no log entry",
            altered(WORKFLOW, |b| {
                b["verificationMaterial"]["tlogEntries"] = json!([]);
            }),
            &[Fault::NoLog],
        ),
        (
            "an altered entry",
            altered(WORKFLOW, |b| {
                inside(&mut entry(b)["canonicalizedBody"], |body| {
                    body["spec"]["payloadHash"]["value"] = json!("00".repeat(32));
                });
            }),
            &[Fault::InclusionProof, Fault::Promise],
        ),
        (
            "the entry of another signature",
            altered(UNTIMED, |b| {
                *entry(b) = person["verificationMaterial"]["tlogEntries"][0].clone();
            }),
            &[Fault::Entry, Fault::LogTime, Fault::Validity],
        ),
        (
            "another's certificate",
            altered(UNTIMED, |b| {
                b["verificationMaterial"]["certificate"] =
                    person["verificationMaterial"]["certificate"].clone();
            }),
            &[Fault::Forged],
        ),
        (
            "an altered certificate",
            altered(WORKFLOW, |b| {
                flip(&mut b["verificationMaterial"]["certificate"]["rawBytes"]);
            }),
            &[Fault::Chain, Fault::Unreadable],
        ),
        (
            "no certificate at all",
            altered(WORKFLOW, |b| {
                b["verificationMaterial"]["certificate"]["rawBytes"] = json!("AAAA");
            }),
            &[Fault::Unreadable],
        ),
        (
            "a certificate that had ended",
            bundle(LATE),
            &[Fault::Validity, Fault::LogTime],
        ),
        (
            "a timestamp",
            altered(WORKFLOW, |b| {
                let stamps = &mut b["verificationMaterial"]["timestampVerificationData"];
                flip(&mut stamps["rfc3161Timestamps"][0]["signedTimestamp"]);
            }),
            &[Fault::Timestamp],
        ),
        (
            "the timestamp of another signature",
            altered(WORKFLOW, |b| {
                b["verificationMaterial"]["timestampVerificationData"] =
                    person["verificationMaterial"]["timestampVerificationData"].clone();
            }),
            &[Fault::Timestamp],
        ),
        (
            "a signature",
            altered(UNTIMED, |b| {
                flip(&mut b["dsseEnvelope"]["signatures"][0]["sig"]);
            }),
            &[Fault::Forged],
        ),
        (
            "the signature of another bundle",
            altered(UNTIMED, |b| {
                b["dsseEnvelope"] = person["dsseEnvelope"].clone();
            }),
            &[Fault::Forged],
        ),
        (
            "a second signature",
            altered(WORKFLOW, |b| {
                let more = untimed["dsseEnvelope"]["signatures"][0].clone();
                let list = b["dsseEnvelope"]["signatures"].as_array_mut().unwrap();
                list.push(more);
            }),
            &[Fault::Unreadable],
        ),
        (
            "an altered payload",
            altered(UNTIMED, |b| {
                inside(&mut b["dsseEnvelope"]["payload"], |s| {
                    s["predicate"] = json!({"more": true});
                });
            }),
            &[Fault::Forged],
        ),
        (
            "another digest in the payload",
            altered(UNTIMED, |b| {
                inside(&mut b["dsseEnvelope"]["payload"], |s| {
                    s["subject"][0]["digest"]["sha256"] = json!("00".repeat(32));
                });
            }),
            &[Fault::Forged],
        ),
        (
            "another predicate in the payload",
            altered(UNTIMED, |b| {
                inside(&mut b["dsseEnvelope"]["payload"], |s| {
                    s["predicateType"] = json!("https://slsa.dev/provenance/v1");
                });
            }),
            &[Fault::Forged],
        ),
    ];
    for (what, raw, faults) in cases {
        match judge(&raw) {
            Err(Rejection::Certificate { fault, why }) => {
                assert!(faults.contains(&fault), "{what}: {fault:?} ({why})");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn rejects_malformed_bundles_before_reading_certificates() {
    let entries = |count: usize| {
        altered(WORKFLOW, |b| {
            let one = entry(b).clone();
            b["verificationMaterial"]["tlogEntries"] = json!(vec![one; count]);
        })
    };
    assert_eq!(judge(&entries(15)), Err(Rejection::TooMuchEvidence(17)));
    let other = altered(WORKFLOW, |b| {
        b["dsseEnvelope"]["payloadType"] = json!("text/plain");
    });
    assert_eq!(
        judge(&other),
        Err(Rejection::PayloadType("text/plain".into()))
    );
    // The right signature for another digest.
    let elsewhere = Digest::of(b"something else");
    for raw in [
        bundle(WORKFLOW),
        legacy_workflow(),
        bundle(WITH_KEY),
        legacy_key(),
    ] {
        let found = examine(&[raw], &elsewhere, &under(ROOT));
        assert_eq!(
            found[0].0,
            Err(Rejection::OtherDigest(subject().to_string()))
        );
    }
    // Where nobody asked for certificates.
    let keys_only = Against {
        roots: Vec::new(),
        ..under(ROOT)
    };
    for raw in [bundle(WORKFLOW), legacy_workflow()] {
        let found = examine(&[raw], &subject(), &keys_only);
        assert_eq!(found[0].0, Err(Rejection::Keyless));
    }
    for unread in [
        Unread::TooLarge {
            bytes: 100 << 20,
            limit: 1 << 20,
        },
        Unread::Beyond { limit: 256 },
    ] {
        let raw = RawSignature {
            unread: Some(unread),
            ..bundle(WORKFLOW)
        };
        assert!(judge(&raw).is_err());
    }
}

#[test]
fn verdict_depends_on_trust_root_and_time() {
    let fault = |against: &Against, raw: RawSignature| {
        let found = examine(&[raw], &subject(), against).remove(0).0;
        match found {
            Err(Rejection::Certificate { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    };
    let public = Against {
        roots: vec![Root::public().unwrap()],
        ..under(ROOT)
    };
    assert_eq!(fault(&public, bundle(WORKFLOW)), Fault::UnknownLog);
    assert_eq!(fault(&public, legacy_workflow()), Fault::UnknownLog);
    // Beside it, the right one is still found, and nothing counts under the wrong one.
    let both = Against {
        roots: [public.roots.clone(), under(ROOT).roots].concat(),
        ..under(ROOT)
    };
    let accepted = examine(&[bundle(WORKFLOW)], &subject(), &both)
        .remove(0)
        .0
        .unwrap();
    let right = Who::Identities {
        identities: vec![Identity {
            issuer: Matcher::exact(CI_ISSUER).unwrap(),
            subject: Matcher::exact(CI).unwrap(),
        }],
        root: both.roots[1].id().clone(),
    };
    assert!(right.is(&accepted));
    let Who::Identities { identities, .. } = right else {
        unreachable!()
    };
    let wrong = Who::Identities {
        identities,
        root: both.roots[0].id().clone(),
    };
    assert!(!wrong.is(&accepted));

    assert_eq!(
        fault(&root_without("ctlogs"), bundle(WORKFLOW)),
        Fault::Root
    );
    let stamps = root_without("timestampAuthorities");
    assert_eq!(fault(&stamps, bundle(WORKFLOW)), Fault::Timestamp);
    // Before it was made.
    let early = Against {
        now: later() - jiff::SignedDuration::from_hours(48),
        ..under(ROOT)
    };
    assert_eq!(fault(&early, bundle(UNTIMED)), Fault::Future);
    // The authority was not trusted yet.
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root["certificateAuthorities"][0]["validFor"] = json!({"start": later().to_string()});
    assert_eq!(
        fault(&under(&root.to_string()), bundle(WORKFLOW)),
        Fault::Chain
    );
}

#[test]
fn rejects_each_forged_cosign_2_signature() {
    const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
    const LOG: &str = "dev.sigstore.cosign/bundle";
    const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
    let alter = |raw: RawSignature, name: &str, change: &dyn Fn(&str) -> String| {
        let mut raw = raw;
        let text = raw.annotations[name].clone();
        raw.annotations.insert(name.to_owned(), change(&text));
        raw
    };
    let without = |name: &str| {
        let mut raw = legacy_workflow();
        raw.annotations.remove(name);
        raw
    };
    let log = |change: &dyn Fn(&mut Value)| {
        alter(legacy_workflow(), LOG, &|text| {
            let mut log: Value = serde_json::from_str(text).unwrap();
            change(&mut log);
            log.to_string()
        })
    };
    let flipped = |text: &str| {
        let mut value = json!(text);
        flip(&mut value);
        value.as_str().unwrap().to_owned()
    };
    let mut payload = legacy_workflow();
    let text = String::from_utf8(payload.bytes).unwrap();
    payload.bytes = text.replace("greeting", "Greeting").into_bytes();
    for (what, raw, fault) in [
        (
            "a signature",
            alter(legacy_workflow(), SIGNATURE, &flipped),
            Fault::Forged,
        ),
        ("the payload", payload, Fault::Forged),
        ("no log entry", without(LOG), Fault::NoLog),
        (
            "the log's time",
            log(&|log| {
                let at = log["Payload"]["integratedTime"].as_i64().unwrap();
                log["Payload"]["integratedTime"] = json!(at - 5);
            }),
            Fault::Promise,
        ),
        (
            "the promise",
            log(&|log| flip(&mut log["SignedEntryTimestamp"])),
            Fault::Promise,
        ),
        (
            "the place in the log",
            log(&|log| log["Payload"]["logIndex"] = json!(77)),
            Fault::Promise,
        ),
        (
            "the log",
            log(&|log| log["Payload"]["logID"] = json!("00".repeat(32))),
            Fault::UnknownLog,
        ),
        (
            "the certificate of another signature",
            {
                let person: Value = serde_json::from_str(PERSON).unwrap();
                let der = &person["verificationMaterial"]["certificate"]["rawBytes"];
                let der = der.as_str().unwrap().to_owned();
                alter(legacy_workflow(), CERTIFICATE, &|_| {
                    format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n")
                })
            },
            Fault::Forged,
        ),
    ] {
        match judge(&raw) {
            Err(Rejection::Certificate { fault: found, why }) => {
                assert!(found == fault, "{what}: {found:?} ({why})");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    let unreadable = |raw: &RawSignature| matches!(judge(raw), Err(Rejection::Unreadable(_)));
    assert!(unreadable(&without(SIGNATURE)));
    assert!(unreadable(
        &alter(legacy_workflow(), CERTIFICATE, &|_| "x".into())
    ));
    assert!(unreadable(&alter(legacy_workflow(), LOG, &|_| "{}".into())));
    // Without its certificate, it is somebody's signature.
    assert_eq!(judge(&without(CERTIFICATE)), Err(Rejection::NoSuchKey));
    let altered = alter(legacy_key(), SIGNATURE, &flipped);
    assert_eq!(judge(&altered), Err(Rejection::NoSuchKey));
}

#[test]
fn rejects_cosign_2_payload_of_another_type() {
    let key = PrivateKey::unwritten(crate::keys::KeyKind::EcdsaP256);
    let against = Against {
        keys: vec![key.public().clone()],
        roots: Vec::new(),
        now: later(),
    };
    let judge = |change: &dyn Fn(&mut Value)| {
        let mut payload = json!({
            "critical": {
                "identity": {"docker-reference": "elsewhere.example.com/other"},
                "image": {"docker-manifest-digest": subject().as_str()},
                "type": "cosign container image signature",
            },
            "optional": {"version": "1.4.0"},
        });
        change(&mut payload);
        let bytes = payload.to_string().into_bytes();
        let signature = dsse::encode(&key.sign(&bytes).unwrap());
        let raw = RawSignature {
            annotations: BTreeMap::from([(
                "dev.cosignproject.cosign/signature".to_owned(),
                signature,
            )]),
            bytes,
            artifact_type: legacy::SIMPLE_SIGNING.to_owned(),
            unread: None,
        };
        examine(&[raw], &subject(), &against).remove(0).0
    };
    // What it was called when it was signed says nothing: content is signed, wherever it is copied to.
    assert_eq!(judge(&|_| {}).unwrap().annotations["version"], "1.4.0");
    let other = judge(&|p| p["critical"]["type"] = json!("atomic container signature"));
    assert_eq!(
        other,
        Err(Rejection::PayloadKind("atomic container signature".into()))
    );
    let other = judge(&|p| {
        p["critical"]["image"]["docker-manifest-digest"] = json!("sha256:00");
    });
    assert_eq!(other, Err(Rejection::OtherDigest("sha256:00".into())));
    assert!(judge(&|p| *p = json!({})).is_err());
}

#[test]
fn examines_at_most_the_limit_of_ten_thousand_signatures() {
    let numbered = |number: usize| {
        let mut one = bundle(WORKFLOW);
        one.annotations.insert("number".into(), number.to_string());
        one
    };
    let signatures: Vec<_> = (0..10_000).map(numbered).collect();
    let against = under(ROOT);
    let found = examine(&signatures, &subject(), &against);
    let held = found.iter().filter(|found| found.accepted().is_some());
    assert_eq!(held.count(), MAX_SIGNATURES);
    let beyond = Rejection::NotExamined {
        limit: MAX_SIGNATURES,
    };
    assert_eq!(found.last().unwrap().0, Err(beyond));
}
