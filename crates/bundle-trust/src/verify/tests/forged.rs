//! Forgeries by a test certificate authority and log. In each test, one part is invalid and all
//! other parts are valid.

use bundle_core::policy::Fault;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, SigningKey, SubjectPublicKeyInfo};
use serde_json::{Value, json};

use super::forge::{
    CertificateRequest, ISSUER, SUBJECT, SctKind, Sigstore, email, raw, statement, subject, uri,
};
use super::*;

fn judge(material: &TrustMaterial, bundle: &Value) -> Result<ValidSignature, Rejection> {
    examine(&[raw(bundle)], &subject(), material).remove(0).0
}

#[track_caller]
fn fault(found: Result<ValidSignature, Rejection>, what: &str) -> Fault {
    match found {
        Err(Rejection::Certificate { fault, .. }) => fault,
        other => panic!("{what}: {other:?}"),
    }
}

fn identity_of(accepted: &ValidSignature) -> (&str, &str) {
    match &accepted.signer {
        Signer::Identity { name, .. } => (&name.subject, &name.issuer),
        Signer::Key(_) => panic!("by a key"),
    }
}

#[test]
fn rejects_certificates_with_any_invalid_part() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let signed =
        |wanted: CertificateRequest| judge(&material, &sigstore.signed(&wanted, &statement()));
    let good = signed(CertificateRequest::default()).unwrap();
    assert_eq!(identity_of(&good), (SUBJECT, ISSUER));
    let promise = |promise| CertificateRequest {
        promise,
        ..CertificateRequest::default()
    };
    for (what, wanted, expected) in [
        ("no promise", promise(SctKind::None), Fault::Sct),
        ("an altered promise", promise(SctKind::Altered), Fault::Sct),
        (
            "a promise for another",
            promise(SctKind::Borrowed),
            Fault::Sct,
        ),
        ("a forged promise", promise(SctKind::Forged), Fault::Sct),
        ("an unknown log", promise(SctKind::Unknown), Fault::Sct),
        ("two promises", promise(SctKind::Twice), Fault::Sct),
        (
            "it had ended",
            CertificateRequest {
                years: (2024, 2025),
                ..CertificateRequest::default()
            },
            Fault::Validity,
        ),
        (
            "it had not begun",
            CertificateRequest {
                years: (2027, 2028),
                ..CertificateRequest::default()
            },
            Fault::Validity,
        ),
        (
            "it is for servers",
            CertificateRequest {
                usage: ExtendedKeyUsagePurpose::ServerAuth,
                ..CertificateRequest::default()
            },
            Fault::Chain,
        ),
        (
            "nobody vouched",
            CertificateRequest {
                issuer: None,
                ..CertificateRequest::default()
            },
            Fault::NoIdentity,
        ),
        (
            "an empty issuer",
            CertificateRequest {
                issuer: Some(String::new()),
                ..CertificateRequest::default()
            },
            Fault::NoIdentity,
        ),
        (
            "nobody is named",
            CertificateRequest {
                names: Vec::new(),
                ..CertificateRequest::default()
            },
            Fault::NoIdentity,
        ),
    ] {
        assert_eq!(fault(signed(wanted), what), expected, "{what}");
    }
}

#[test]
fn rejects_authority_with_equal_name_and_other_key() {
    let (ours, theirs) = (Sigstore::new(), Sigstore::new());
    let bundle = theirs.signed(&CertificateRequest::default(), &statement());
    assert_eq!(
        fault(judge(&ours.material(&[]), &bundle), "theirs"),
        Fault::UnknownLog
    );
    // The certificate is from another authority. Its evidence is from the trusted log.
    let key = KeyPair::generate().unwrap();
    let certificate = theirs.certificate(&key, &CertificateRequest::default());
    let signature = key.sign(&dsse::pre_authentication(&statement())).unwrap();
    let mixed = ours.bundle(&certificate, &statement(), &signature);
    assert_eq!(
        fault(judge(&ours.material(&[]), &mixed), "mixed"),
        Fault::Chain
    );
}

#[test]
fn first_subject_alternative_name_is_compared_exactly() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let signed = |names, issuer: &str| {
        let wanted = CertificateRequest {
            names,
            issuer: Some(issuer.to_owned()),
            ..CertificateRequest::default()
        };
        judge(&material, &sigstore.signed(&wanted, &statement())).unwrap()
    };
    let two = signed(vec![email("eve@example.com"), email(SUBJECT)], ISSUER);
    assert_eq!(identity_of(&two).0, "eve@example.com");
    let wanted = AcceptedSigner::Identities {
        identities: vec![bundle_core::policy::Identity {
            issuer: bundle_core::policy::Matcher::exact(ISSUER).unwrap(),
            subject: bundle_core::policy::Matcher::exact(SUBJECT).unwrap(),
        }],
        root: material.roots[0].id().clone(),
    };
    assert!(!wanted.made(&two));
    assert!(wanted.made(&signed(vec![email(SUBJECT)], ISSUER)));
    for (name, issuer) in [
        (email("ana@example.co"), ISSUER),
        (email("ana@example.com.evil.com"), ISSUER),
        (email("Ana@example.com"), ISSUER),
        (email("ana@example.com "), ISSUER),
        (email("ana@example.com\n"), ISSUER),
        (email("ana@example.com\0"), ISSUER),
        (uri("mailto:ana@example.com"), ISSUER),
        (email(SUBJECT), "https://accounts.example.com/"),
        (email(SUBJECT), "http://accounts.example.com"),
        (email(SUBJECT), "HTTPS://accounts.example.com"),
        (email(SUBJECT), "https://\u{430}ccounts.example.com"),
        (email(SUBJECT), "https://accounts.example.com\u{200b}"),
        (email(SUBJECT), "https://accounts.ex\u{e4}mple.com"),
        (email(SUBJECT), "https://accounts.example.com\n"),
    ] {
        assert!(!wanted.made(&signed(vec![name], issuer)), "{issuer}");
    }
}

#[test]
fn rejects_certificate_signed_with_sha1() {
    const CA: &[u8] = include_bytes!("../../../testdata/weak/ca.der");
    const SIGNATURE: &[u8] = include_bytes!("../../../testdata/weak/leaf.sig");
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[CA]);
    let by = |certificate: &[u8]| {
        let bundle = sigstore.bundle(certificate, &statement(), SIGNATURE);
        fault(judge(&material, &bundle), "weak")
    };
    // The same certificate, signed with SHA-256 instead of SHA-1, passes this check. It is rejected
    // later, because it has no SCT.
    assert_eq!(
        by(include_bytes!("../../../testdata/weak/leaf-sha256.der")),
        Fault::Sct
    );
    assert_eq!(
        by(include_bytes!("../../../testdata/weak/leaf-sha1.der")),
        Fault::Chain
    );
}

#[test]
fn rejects_certificate_with_short_rsa_key() {
    const KEY: &[u8] = include_bytes!("../../../testdata/weak/rsa1024.spki.der");
    const SIGNATURE: &[u8] = include_bytes!("../../../testdata/weak/rsa1024.sig");
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let short = SubjectPublicKeyInfo::from_der(KEY).unwrap();
    let certificate = sigstore.certificate(&short, &CertificateRequest::default());
    let bundle = sigstore.bundle(&certificate, &statement(), SIGNATURE);
    assert_eq!(fault(judge(&material, &bundle), "short"), Fault::Forged);

    // A signature by a key of sufficient length is valid.
    let long = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let certificate = sigstore.certificate(&long, &CertificateRequest::default());
    let signature = long.sign(&dsse::pre_authentication(&statement())).unwrap();
    judge(
        &material,
        &sigstore.bundle(&certificate, &statement(), &signature),
    )
    .unwrap();
}

#[test]
fn payload_rules_apply_to_certificates_as_to_keys() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let text = String::from_utf8(statement()).unwrap();
    let hex = subject().hex().to_owned();
    let signed = |payload: &str| {
        judge(
            &material,
            &sigstore.signed(&CertificateRequest::default(), payload.as_bytes()),
        )
    };
    signed(&text).unwrap();
    let twice = "duplicate key in JSON";
    for (payload, expected) in [
        (
            text.replace(&hex, &"0".repeat(64)),
            Rejection::OtherDigest(format!("sha256:{}", "0".repeat(64))),
        ),
        (
            text.replace(
                r#""subject":["#,
                &format!(
                    r#""subject":[{{"digest":{{"sha256":"{}"}}}},"#,
                    "0".repeat(64)
                ),
            ),
            Rejection::SubjectCount(2),
        ),
        (
            text.replace("Statement/v1", "Statement/v2"),
            Rejection::StatementType("https://in-toto.io/Statement/v2".into()),
        ),
        (
            text.replace(
                r#"{"sha256":"#,
                &format!(r#"{{"sha256":"{}","sha256":"#, "0".repeat(64)),
            ),
            Rejection::Unreadable(twice.into()),
        ),
        (
            text.replace(r#""predicate":{}"#, r#""predicate":{"a":1,"a":2}"#),
            Rejection::Unreadable(twice.into()),
        ),
    ] {
        match signed(&payload) {
            Err(found) if found == expected => {}
            // sigstore-verify may detect the problem first and return its own error.
            Err(Rejection::Certificate {
                fault: Fault::Content | Fault::Unreadable,
                ..
            }) => {}
            other => panic!("{payload}: {other:?}"),
        }
    }
    let attested = text.replace(
        "https://sigstore.dev/cosign/sign/v1",
        "https://slsa.dev/provenance/v1",
    );
    let accepted = signed(&attested).unwrap();
    assert_eq!(
        accepted.meaning,
        Meaning::Attested("https://slsa.dev/provenance/v1".into())
    );
}

#[test]
fn rejects_checkpoint_with_too_many_signatures() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let mut bundle = sigstore.signed(&CertificateRequest::default(), &statement());
    let note = &mut bundle["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]["checkpoint"]
        ["envelope"];
    let text = note.as_str().unwrap().to_owned();
    let line = text.lines().last().unwrap().to_owned();
    *note = json!(format!("{text}{}", format!("{line}\n").repeat(5)));
    judge(&material, &bundle).unwrap();
    let note = &mut bundle["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]["checkpoint"]
        ["envelope"];
    *note = json!(format!("{text}{}", format!("{line}\n").repeat(5_000)));
    assert_eq!(
        fault(judge(&material, &bundle), "a flood"),
        Fault::Checkpoint
    );
}

#[test]
fn rejects_additional_message_signature_and_malleable_signature() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let mut bundle = sigstore.signed(&CertificateRequest::default(), &statement());
    bundle["messageSignature"] = json!({
        "messageDigest": { "algorithm": "SHA2_256", "digest": dsse::encode(&[0; 32]) },
        "signature": "MAYCAQECAQE=",
    });
    let why = "it has both a DSSE envelope and a message signature".to_owned();
    assert_eq!(judge(&material, &bundle), Err(Rejection::Unreadable(why)));
    // The log entry has another encoding of the same signature.
    let mut bundle = sigstore.signed(&CertificateRequest::default(), &statement());
    let sig = &mut bundle["dsseEnvelope"]["signatures"][0]["sig"];
    let other = super::keys::mirrored(&dsse::decode(sig.as_str().unwrap()).unwrap());
    *sig = json!(dsse::encode(&other));
    assert_eq!(fault(judge(&material, &bundle), "mirrored"), Fault::Entry);
}
