//! Keyless signatures of real cosign 2 and 3, and forgeries of each of their parts.

mod cosign2;
mod forgeries;

use std::collections::BTreeMap;

use bundle_core::policy::{Fault, Identity, IdentityName, Matcher, TimeSource};
use serde_json::{Value, json};

use super::*;
use crate::{keys::PrivateKey, sign};

pub(super) const ROOT: &str = include_str!("../../../../testdata/keyless/trusted_root.json");
pub(super) const WORKFLOW: &str = include_str!("../../../../testdata/keyless/workflow.bundle.json");
pub(super) const UNTIMED: &str = include_str!("../../../../testdata/keyless/untimed.bundle.json");
const LATE: &str = include_str!("../../../../testdata/keyless/late.bundle.json");
pub(super) const PERSON: &str = include_str!("../../../../testdata/keyless/person.bundle.json");
const WITH_KEY: &str = include_str!("../../../../testdata/keyless/key.bundle.json");
const CI: &str = "https://github.com/example/shop/.github/workflows/release.yaml@refs/tags/v1.0.0";
const CI_ISSUER: &str = "https://token.actions.githubusercontent.com";

pub(super) fn subject() -> Digest {
    include_str!("../../../../testdata/keyless/subject.txt")
        .trim()
        .parse()
        .unwrap()
}

fn key() -> PublicKey {
    PublicKey::parse(include_str!("../../../../testdata/keyless/key.pub")).unwrap()
}

/// Returns a time one day after the fixtures were signed, when their certificates have expired.
fn later() -> Timestamp {
    let made: Value = serde_json::from_str(UNTIMED).unwrap();
    let at = &made["verificationMaterial"]["tlogEntries"][0]["integratedTime"];
    Timestamp::from_second(at.as_str().unwrap().parse::<i64>().unwrap() + 86_400).unwrap()
}

pub(super) fn under(root: &str) -> TrustMaterial {
    TrustMaterial {
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

/// Returns a layer of a `.sig` tag of cosign 2.
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
        include_str!("../../../../testdata/keyless/legacy-workflow.manifest.json"),
        include_str!("../../../../testdata/keyless/legacy-workflow.payload.json"),
    )
}

fn legacy_key() -> RawSignature {
    legacy(
        include_str!("../../../../testdata/keyless/legacy-key.manifest.json"),
        include_str!("../../../../testdata/keyless/legacy-key.payload.json"),
    )
}

pub(super) fn judge(raw: &RawSignature) -> Result<ValidSignature, Rejection> {
    let mut found = examine(std::slice::from_ref(raw), &subject(), &under(ROOT));
    found.remove(0).0
}

fn name(accepted: &ValidSignature) -> &IdentityName {
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
    // A signature that is made with a key requires no log entry. If it has a log entry, the result
    // contains the time of the entry.
    assert!(judge(&bundle(WITH_KEY)).unwrap().signed_at.is_some());
}

#[test]
fn rejects_other_identities_and_other_roots() {
    let reference: bundle_core::reference::Reference =
        "registry.example.com/team/shop:1".parse().unwrap();
    let pinned = reference.pin(subject());
    let material = under(ROOT);
    let signed = |issuer: Matcher, subject: Matcher| {
        let wanted = [AcceptedSigner::Identities {
            identities: vec![Identity { issuer, subject }],
            root: material.roots[0].id().clone(),
        }];
        signatures_by(&[bundle(WORKFLOW)], &pinned, &wanted, &material)
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

/// Returns a bundle in which `change` changed one value.
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

/// Changes the JSON text in a Base64 value.
fn inside(value: &mut Value, change: impl Fn(&mut Value)) {
    let bytes = dsse::decode(value.as_str().unwrap()).unwrap();
    let mut inner: Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut inner);
    *value = json!(dsse::encode(inner.to_string().as_bytes()));
}

fn root_without(part: &str) -> TrustMaterial {
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root[part] = json!([]);
    under(&root.to_string())
}

#[test]
fn verdict_depends_on_trust_root_and_time() {
    let fault = |material: &TrustMaterial, raw: RawSignature| {
        let found = examine(&[raw], &subject(), material).remove(0).0;
        match found {
            Err(Rejection::Certificate { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    };
    let public = TrustMaterial {
        roots: vec![Root::public().unwrap()],
        ..under(ROOT)
    };
    assert_eq!(fault(&public, bundle(WORKFLOW)), Fault::UnknownLog);
    assert_eq!(fault(&public, legacy_workflow()), Fault::UnknownLog);
    // With both roots, the signature is valid under one root only.
    let both = TrustMaterial {
        roots: [public.roots.clone(), under(ROOT).roots].concat(),
        ..under(ROOT)
    };
    let accepted = examine(&[bundle(WORKFLOW)], &subject(), &both)
        .remove(0)
        .0
        .unwrap();
    let right = AcceptedSigner::Identities {
        identities: vec![Identity {
            issuer: Matcher::exact(CI_ISSUER).unwrap(),
            subject: Matcher::exact(CI).unwrap(),
        }],
        root: both.roots[1].id().clone(),
    };
    assert!(right.made(&accepted));
    let AcceptedSigner::Identities { identities, .. } = right else {
        unreachable!()
    };
    let wrong = AcceptedSigner::Identities {
        identities,
        root: both.roots[0].id().clone(),
    };
    assert!(!wrong.made(&accepted));

    assert_eq!(
        fault(&root_without("ctlogs"), bundle(WORKFLOW)),
        Fault::Root
    );
    let stamps = root_without("timestampAuthorities");
    assert_eq!(fault(&stamps, bundle(WORKFLOW)), Fault::Timestamp);
    // The time of the verification is before the time of the signature.
    let early = TrustMaterial {
        now: later() - jiff::SignedDuration::from_hours(48),
        ..under(ROOT)
    };
    assert_eq!(fault(&early, bundle(UNTIMED)), Fault::Future);
    // The certificate authority was not trusted yet when the signature was made.
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root["certificateAuthorities"][0]["validFor"] = json!({"start": later().to_string()});
    assert_eq!(
        fault(&under(&root.to_string()), bundle(WORKFLOW)),
        Fault::Chain
    );
}

#[test]
fn examines_at_most_the_limit_of_ten_thousand_signatures() {
    let numbered = |number: usize| {
        let mut one = bundle(WORKFLOW);
        one.annotations.insert("number".into(), number.to_string());
        one
    };
    let signatures: Vec<_> = (0..10_000).map(numbered).collect();
    let material = under(ROOT);
    let found = examine(&signatures, &subject(), &material);
    let held = found.iter().filter(|found| found.accepted().is_some());
    assert_eq!(held.count(), MAX_SIGNATURES);
    let beyond = Rejection::NotExamined {
        limit: MAX_SIGNATURES,
    };
    assert_eq!(found.last().unwrap().0, Err(beyond));
}
