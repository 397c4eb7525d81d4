//! Keyless signatures of cosign 2 and their forgeries.

use super::*;

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
            Fault::Set,
        ),
        (
            "the promise",
            log(&|log| flip(&mut log["SignedEntryTimestamp"])),
            Fault::Set,
        ),
        (
            "the place in the log",
            log(&|log| log["Payload"]["logIndex"] = json!(77)),
            Fault::Set,
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
    // Without a certificate, the signer is unknown.
    assert_eq!(judge(&without(CERTIFICATE)), Err(Rejection::NoSuchKey));
    let altered = alter(legacy_key(), SIGNATURE, &flipped);
    assert_eq!(judge(&altered), Err(Rejection::NoSuchKey));
}

#[test]
fn rejects_cosign_2_payload_of_another_type() {
    let key = PrivateKey::unwritten(crate::keys::KeyKind::EcdsaP256);
    let material = TrustMaterial {
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
        examine(&[raw], &subject(), &material).remove(0).0
    };
    // The image name in the payload is not compared, because a signature is valid for all copies of
    // its content.
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
