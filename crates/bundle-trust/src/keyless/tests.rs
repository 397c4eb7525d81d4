//! Tokens and answers that are refused before anything is asked or stored.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Entry, Ephemeral, Token, What, check_timestamp};

fn token(claims: &Value) -> String {
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("e30.{claims}.c2ln")
}

fn good() -> Value {
    json!({"iss": "https://accounts.example.com", "sub": "1234", "email": "ana@example.com", "aud": "sigstore", "exp": 2000})
}

#[test]
fn tokens_are_for_us_and_in_time() {
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
        (altered("aud", json!("other")), "another audience"),
        (altered("aud", json!(["a", "b"])), "another audience"),
        (altered("iss", json!(7)), "claims cannot be read"),
        ("a.b".to_owned(), "not a JWT"),
        ("a.b.c.d".to_owned(), "not a JWT"),
        ("a.%%.c".to_owned(), "claims cannot be read"),
        ("x".repeat(70_000), "longer"),
    ] {
        let refused = Token::parse(&text, "sigstore", 1000).err().unwrap();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    Token::parse(&altered("aud", json!(["a", "sigstore"])), "sigstore", 0).unwrap();
}

#[test]
fn answers_of_services_are_not_trusted() {
    let other = include_str!("../../testdata/keyless/person.bundle.json");
    let other: Value = serde_json::from_str(other).unwrap();
    let der = other["verificationMaterial"]["certificate"]["rawBytes"]
        .as_str()
        .unwrap();
    let foreign = format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
    let chain = |certificates: Value| json!({"signedCertificateEmbeddedSct": {"chain": {"certificates": certificates}}});
    for (answer, why) in [
        (json!({}), "certificate log's promise"),
        (chain(json!([])), "no certificate"),
        (chain(json!(["x"])), "not PEM"),
        (chain(json!([foreign])), "another key"),
        (json!("x"), "not the JSON"),
    ] {
        let key = Ephemeral::new().unwrap();
        let refused = key
            .sign(What::Bytes(b"x".to_vec()), answer.to_string().as_bytes())
            .err()
            .unwrap();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert!(Entry::read(b"{}").is_err());
    assert!(Entry::read(b"{\"a\": {}}").is_err());
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
