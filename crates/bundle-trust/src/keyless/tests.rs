//! Tests of identity tokens that are rejected before any request, and of responses that are
//! rejected.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    Certificates, Ephemeral, IdentityName, KeylessSignature, LogVersion, SigningInput, Token,
    check_timestamp,
};

fn token(claims: &Value) -> String {
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("e30.{claims}.c2ln")
}

fn good() -> Value {
    json!({"iss": "https://accounts.example.com", "sub": "1234", "email": "ana@example.com", "aud": "sigstore", "exp": 2000})
}

#[test]
fn rejects_expired_tokens_and_tokens_of_another_audience() {
    let read = Token::parse(&format!(" {}\n", token(&good())), "sigstore", 1000).unwrap();
    assert_eq!(
        read.names(),
        ("ana@example.com", "https://accounts.example.com")
    );
    let altered = |name: &str, value: Value| {
        let mut claims = good();
        claims[name] = value;
        token(&claims)
    };
    for (text, why) in [
        (altered("exp", json!(1000)), "expired"),
        (altered("aud", json!("other")), "audience is not"),
        (altered("aud", json!(["a", "b"])), "audience is not"),
        (altered("iss", json!(7)), "claims are malformed"),
        ("a.b".to_owned(), "not a JWT"),
        ("a.b.c.d".to_owned(), "not a JWT"),
        ("a.%%.c".to_owned(), "claims are malformed"),
        ("x".repeat(70_000), "longer"),
    ] {
        let refused = Token::parse(&text, "sigstore", 1000).err().unwrap();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    Token::parse(&altered("aud", json!(["a", "sigstore"])), "sigstore", 0).unwrap();
}

#[test]
fn rejects_answers_that_are_lists() {
    let mut held = Vec::new();
    let claims = json!([
        "https://accounts.example.com",
        "1234",
        "sigstore",
        2000,
        null,
        null
    ]);
    let repeated = r#"{"iss":"a","sub":"b","aud":"sigstore","exp":2000,"x":{"y":1,"y":2}}"#;
    for text in [claims.to_string(), repeated.to_owned()] {
        let text = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(&text));
        if Token::parse(&text, "sigstore", 0).is_ok() {
            held.push("claims");
        }
    }
    let mut listed = answer();
    listed["logId"] = json!(["AAAA"]);
    let listed = listed.to_string();
    if signed().entered(LogVersion::Two, listed.as_bytes()).is_ok() {
        held.push("an entry of tiles");
    }
    let config = json!([super::services::MEDIA_TYPE, [], [], [], {}, [], {}]);
    if super::SigningConfig::parse(config.to_string().as_bytes()).is_ok() {
        held.push("a signing config");
    }
    let proof = json!(["log", [], 0, "AAAA", 1]);
    let one = json!({"id": ["e30=", 1, "AAAA", 1, ["AAAA", proof]]});
    if signed()
        .entered(LogVersion::One, one.to_string().as_bytes())
        .is_ok()
    {
        held.push("an entry");
    }
    assert_eq!(held, Vec::<&str>::new());
}

#[test]
fn rejects_invalid_responses_of_services() {
    let other = include_str!("../../testdata/keyless/person.bundle.json");
    let other: Value = serde_json::from_str(other).unwrap();
    let der = other["verificationMaterial"]["certificate"]["rawBytes"]
        .as_str()
        .unwrap();
    let other_pem = format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
    let chain = |certificates: Value| json!({"signedCertificateEmbeddedSct": {"chain": {"certificates": certificates}}});
    for (answer, why) in [
        (json!({}), "signed certificate timestamp"),
        (chain(json!([])), "no certificate"),
        (chain(json!(["x"])), "not PEM"),
        (chain(json!([other_pem])), "another key"),
        (json!("x"), "not the JSON"),
    ] {
        let key = Ephemeral::new().unwrap();
        let refused = key
            .sign(
                SigningInput::Bytes(b"x".to_vec()),
                answer.to_string().as_bytes(),
            )
            .err()
            .unwrap();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    check_timestamp(&[0x30, 5, 0x30, 3, 2, 1, 0]).unwrap();
    for refused in [
        &b""[..],
        &[0x30, 5, 0x30, 3, 2, 1, 2],
        b"<html>",
        &[0x30, 0x82],
    ] {
        assert!(check_timestamp(refused).is_err());
    }
}

/// Returns a signature with a certificate that no authority issued.
fn signed() -> KeylessSignature {
    let name = IdentityName {
        subject: "ana@example.com".to_owned(),
        issuer: "https://accounts.example.com".to_owned(),
    };
    KeylessSignature {
        what: SigningInput::Statement(b"{}".to_vec()),
        signature: vec![1, 2, 3],
        certificates: Certificates(vec![vec![4, 5, 6]], name),
    }
}

/// Returns the response of a Rekor v2 log for [`signed`].
fn answer() -> Value {
    let request = signed().entry_request(LogVersion::Two);
    let request: Value = serde_json::from_slice(&request).unwrap();
    let request = &request["hashedRekordRequestV002"];
    let body = json!({
        "apiVersion": "0.0.2",
        "kind": "hashedrekord",
        "spec": { "hashedRekordV002": {
            "data": { "algorithm": "SHA2_256", "digest": request["digest"] },
            "signature": request["signature"],
        } },
    });
    json!({
        "logIndex": "7",
        "logId": { "keyId": "AAAA" },
        "kindVersion": { "kind": "hashedrekord", "version": "0.0.2" },
        "integratedTime": "0",
        "inclusionPromise": null,
        "inclusionProof": {
            "logIndex": "7", "rootHash": "AAAA", "treeSize": "8", "hashes": ["AAAA"],
            "checkpoint": { "envelope": "log\n" },
        },
        "canonicalizedBody": crate::dsse::encode(body.to_string().as_bytes()),
    })
}

#[test]
fn rejects_log_entries_for_another_signature() {
    let read = |log, answer: &[u8]| signed().entered(log, answer);
    for garbage in [&b"{}"[..], b"{\"a\": {}}", b"<html>", b"[]", b""] {
        assert!(read(LogVersion::One, garbage).is_err());
        assert!(read(LogVersion::Two, garbage).is_err());
    }
    let entry = read(LogVersion::Two, answer().to_string().as_bytes()).unwrap();
    assert!(entry.in_annotation().is_none());
    let kept = entry.in_bundle().unwrap();
    assert_eq!(kept["logIndex"], "7");
    assert_eq!(kept.get("integratedTime"), None);
    assert_eq!(kept.get("inclusionPromise"), None);

    let altered = |change: &dyn Fn(&mut Value)| {
        let mut value = answer();
        change(&mut value);
        read(LogVersion::Two, value.to_string().as_bytes())
            .err()
            .unwrap()
            .to_string()
    };
    let inside = |change: &dyn Fn(&mut Value)| {
        altered(&|value| {
            let body = &mut value["canonicalizedBody"];
            let bytes = crate::dsse::decode(body.as_str().unwrap()).unwrap();
            let mut inner: Value = serde_json::from_slice(&bytes).unwrap();
            change(&mut inner["spec"]["hashedRekordV002"]);
            *body = json!(crate::dsse::encode(inner.to_string().as_bytes()));
        })
    };
    for (told, why) in [
        (
            altered(&|a| a["inclusionProof"] = Value::Null),
            "not the JSON",
        ),
        (
            altered(&|a| a["kindVersion"]["version"] = json!("0.0.1")),
            "kind of the entry",
        ),
        (
            altered(&|a| a["canonicalizedBody"] = json!("%")),
            "malformed",
        ),
        (
            altered(&|a| a["inclusionProof"]["hashes"] = json!(vec!["AAAA"; 65])),
            "size limit",
        ),
        (
            inside(&|record| record["data"]["digest"] = json!("AAAA")),
            "another signature",
        ),
        (
            inside(&|record| record["signature"]["content"] = json!("AAAA")),
            "another signature",
        ),
        (
            inside(&|record| record["signature"]["verifier"]["x509Certificate"] = json!({})),
            "another signature",
        ),
    ] {
        assert!(told.contains(why), "{told}");
    }
}
