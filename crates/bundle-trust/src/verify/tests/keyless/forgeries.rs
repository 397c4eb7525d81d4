//! Forged Sigstore bundles. Each forgery is rejected with its specific error.

use super::*;

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
            &[Fault::Set],
        ),
        (
            "a later log time",
            altered(UNTIMED, late_by(30)),
            &[Fault::Set],
        ),
        (
            "a log time beside a timestamp",
            altered(WORKFLOW, late_by(1)),
            &[Fault::Set],
        ),
        (
            "a promise",
            altered(UNTIMED, |b| {
                flip(&mut entry(b)["inclusionPromise"]["signedEntryTimestamp"]);
            }),
            &[Fault::Set],
        ),
        (
            "the promise of another entry",
            altered(UNTIMED, |b| {
                entry(b)["inclusionPromise"] =
                    person["verificationMaterial"]["tlogEntries"][0]["inclusionPromise"].clone();
            }),
            &[Fault::Set],
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
            &[Fault::InclusionProof, Fault::Set],
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
    // The signatures are valid, but for another digest.
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
    // Without a trust root, only signatures that are made with keys are accepted.
    let keys_only = TrustMaterial {
        roots: Vec::new(),
        ..under(ROOT)
    };
    for raw in [bundle(WORKFLOW), legacy_workflow()] {
        let found = examine(&[raw], &subject(), &keys_only);
        assert_eq!(found[0].0, Err(Rejection::Keyless));
    }
    for unread in [
        NotReadReason::TooLarge {
            bytes: 100 << 20,
            limit: 1 << 20,
        },
        NotReadReason::CountLimit { limit: 256 },
    ] {
        let raw = RawSignature {
            unread: Some(unread),
            ..bundle(WORKFLOW)
        };
        assert!(judge(&raw).is_err());
    }
}
