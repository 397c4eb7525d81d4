//! Tests of decisions on real signatures. The result of a decision is `Verified<T>` or a rejection.

use std::collections::BTreeMap;

use bundle_core::{
    diagnostic::{Finding, codes},
    policy::ReferencedText,
    reference::Reference,
};
use serde_json::json;

use super::*;
use crate::{
    keys::{KeyKind, PrivateKey},
    sign,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn reference() -> PinnedReference {
    let reference: Reference = "registry.example.com/team/web:1".parse().unwrap();
    reference.pin(bundle_core::reference::Digest::of(b"content"))
}

type Found = Result<Vec<RawSignature>, Unavailable>;

fn signed_by(keys: &[&PrivateKey]) -> Found {
    keys.iter()
        .map(|key| {
            Ok(RawSignature {
                bytes: sign::sign_digest(key, &reference(), &BTreeMap::new())?,
                artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
                ..RawSignature::default()
            })
        })
        .collect::<Result<_, _>>()
        .map_err(Unavailable)
}

fn policy(name: &str, threshold: usize, keys: &[&PrivateKey]) -> Policy {
    let authorities: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(i, key)| json!({"name": format!("key-{i}"), "key": {"data": key.public().to_pem()}}))
        .collect();
    let spec = json!({
        "images": [{"glob": "registry.example.com/team/**"}],
        "threshold": threshold,
        "authorities": authorities,
    });
    Policy::read(name, &spec)
}

#[test]
fn admits_signature_by_policy_key_and_rejects_others() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let other = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let policies = [policy("releases", 1, &[&key])];
    let class = ClassSignatures::Required;

    let decided = decide(
        reference(),
        &signed_by(&[&other, &key]),
        &policies,
        class,
        NOW,
    )
    .unwrap();
    assert_eq!(*decided.content.get(), reference());
    assert_eq!(decided.signed_by[0].policy, "releases");
    assert_eq!(decided.signed_by[0].authority, "key-0");
    assert!(decided.is_cacheable && decided.warnings.is_empty());

    let refusal = decide(reference(), &signed_by(&[&other]), &policies, class, NOW).unwrap_err();
    assert!(!refusal.is_unknown);
    assert_eq!(
        refusal.findings.to_string(),
        format!(
            "{}: SignaturePolicy/releases requires a signature by `key-0`, but the registry has 1 signature: one by another key (key hint {})",
            reference(),
            other.public().id()
        )
    );
    let refusal = decide(reference(), &Ok(Vec::new()), &policies, class, NOW).unwrap_err();
    assert_eq!(
        refusal.findings.first().unwrap().code,
        codes::trust::UNSIGNED
    );
}

#[test]
fn one_key_under_two_names_counts_once_for_the_threshold() {
    let a = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let b = PrivateKey::unwritten(KeyKind::Ed25519);
    let class = ClassSignatures::IfPolicy;
    let policies = [policy("two", 2, &[&a, &a, &b])];
    assert!(decide(reference(), &signed_by(&[&a, &a]), &policies, class, NOW).is_err());
    assert!(decide(reference(), &signed_by(&[&a, &b]), &policies, class, NOW).is_ok());

    let never = [policy("never", 2, &[&a, &a])];
    let refusal = decide(reference(), &signed_by(&[&a]), &never, class, NOW).unwrap_err();
    assert!(
        refusal
            .findings
            .to_string()
            .contains("the authorities have only")
    );
}

#[test]
fn every_matching_policy_must_be_satisfied() {
    let a = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let b = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let policies = [policy("one", 1, &[&a]), policy("two", 1, &[&b])];
    let class = ClassSignatures::IfPolicy;
    let refusal = decide(reference(), &signed_by(&[&a]), &policies, class, NOW).unwrap_err();
    let told = refusal.findings.to_string();
    assert!(told.contains("SignaturePolicy/two") && !told.contains("SignaturePolicy/one"));
    let decided = decide(reference(), &signed_by(&[&a, &b]), &policies, class, NOW).unwrap();
    assert_eq!(decided.signed_by.len(), 2);
}

#[test]
fn policy_with_invalid_key_rejects() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let spec = json!({
        "images": [{"glob": "**"}],
        "authorities": [
            {"name": "good", "key": {"data": key.public().to_pem()}},
            {"name": "bad", "key": {"data": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"}},
        ],
    });
    let policy = Policy::read("releases", &spec);
    assert!(problems(&policy, NOW).has_errors());
    let refusal = decide(
        reference(),
        &signed_by(&[&key]),
        &[policy],
        ClassSignatures::IfPolicy,
        NOW,
    )
    .unwrap_err();
    assert_eq!(
        refusal.findings.first().unwrap().code,
        codes::trust::POLICY_UNREADABLE
    );
    assert_eq!(
        refusal.findings.first().unwrap().place.field.as_deref(),
        Some("spec.authorities[1].key")
    );
}

#[test]
fn key_in_secret_is_found_missing_or_unavailable() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let spec = json!({
        "images": [{"glob": "**"}],
        "authorities": [{"key": {"secretRef": {"name": "release"}}}],
    });
    let with = |found: ReferencedText| {
        let policy = Policy::parse("releases", &spec)
            .unwrap()
            .with_secrets(&BTreeMap::from([("release".to_owned(), found)]));
        decide(
            reference(),
            &signed_by(&[&key]),
            &[policy],
            ClassSignatures::IfPolicy,
            NOW,
        )
    };
    assert!(with(ReferencedText::Found(key.public().to_pem())).is_ok());
    assert!(
        !with(ReferencedText::Missing("gone".into()))
            .unwrap_err()
            .is_unknown
    );
    let down = Finding::error(codes::registry::UNREACHABLE, "no answer");
    assert!(
        with(ReferencedText::Unavailable(down))
            .unwrap_err()
            .is_unknown
    );

    let untouched = [Policy::parse("releases", &spec).unwrap()];
    let refusal = decide(
        reference(),
        &signed_by(&[&key]),
        &untouched,
        ClassSignatures::IfPolicy,
        NOW,
    )
    .unwrap_err();
    assert!(refusal.findings.to_string().contains("was not read"));
}

#[test]
fn unavailable_registry_results_in_cannot_tell() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let down = Err(Unavailable(Finding::error(
        codes::registry::UNREACHABLE,
        "registry.example.com does not answer",
    )));
    let policies = [policy("releases", 1, &[&key])];
    let refusal = decide(
        reference(),
        &down,
        &policies,
        ClassSignatures::IfPolicy,
        NOW,
    )
    .unwrap_err();
    assert!(refusal.is_unknown);
    assert!(refusal.findings.to_string().contains("does not answer"));

    // If no policy matches, an unavailable registry has no effect.
    let decided = decide(reference(), &down, &[], ClassSignatures::IfPolicy, NOW).unwrap();
    assert_eq!(
        decided.warnings.first().unwrap().code,
        codes::trust::UNCHECKED
    );
    let refusal = decide(reference(), &down, &[], ClassSignatures::Required, NOW).unwrap_err();
    assert!(!refusal.is_unknown);
    assert_eq!(
        refusal.findings.first().unwrap().code,
        codes::trust::NO_POLICY
    );
}

#[test]
fn rejects_unsignable_content_where_signatures_are_required() {
    let files = bundle_core::reference::Digest::of(b"files");
    let content = ContentId::new(&Source::Upload, files);
    let refusal = decide_unsignable(content.clone(), ClassSignatures::Required).unwrap_err();
    assert_eq!(
        refusal.findings.first().unwrap().code,
        codes::trust::UNSIGNABLE
    );
    let decided = decide_unsignable(content, ClassSignatures::IfPolicy).unwrap();
    assert_eq!(
        decided.warnings.first().unwrap().code,
        codes::trust::UNCHECKED
    );
}

#[test]
fn image_never_passes_as_content_that_cannot_be_signed() {
    let source = Source::Image {
        reference: reference().reference().clone(),
        credentials: PullCredentials::Class("plain".parse().unwrap()),
    };
    let content = ContentId::new(&source, reference().digest().clone());
    let refusal = decide_unsignable(content, ClassSignatures::IfPolicy).unwrap_err();
    assert_eq!(
        refusal.findings.first().unwrap().code,
        codes::trust::UNSIGNABLE
    );
}
