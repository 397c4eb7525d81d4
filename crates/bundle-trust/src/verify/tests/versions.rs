//! Bundles of the versions 0.1 and 0.2: signatures of cosign 3 that are converted to the form of
//! earlier clients, and signatures with an intermediate certificate.

use bundle_core::policy::Fault;
use serde_json::{Value, json};

use super::forge::{CertificateRequest, Sigstore, raw, statement};
use super::keyless::{PERSON, ROOT, UNTIMED, WORKFLOW, judge, subject, under};
use super::*;

const V0_1: &str = "application/vnd.dev.sigstore.bundle+json;version=0.1";
const V0_2: &str = "application/vnd.dev.sigstore.bundle+json;version=0.2";

/// Converts a Sigstore bundle to the version of `media_type`, in which a list contains the
/// certificates.
fn as_version(text: &str, media_type: &str) -> Value {
    let mut bundle: Value = serde_json::from_str(text).unwrap();
    bundle["mediaType"] = json!(media_type);
    let material = bundle["verificationMaterial"].as_object_mut().unwrap();
    let certificate = material.remove("certificate").unwrap();
    material.insert(
        "x509CertificateChain".to_owned(),
        json!({ "certificates": [certificate] }),
    );
    bundle
}

fn entry(bundle: &mut Value) -> &mut Value {
    &mut bundle["verificationMaterial"]["tlogEntries"][0]
}

/// Adds a second entry with another log ID, because a duplicate is rejected before the rules of the
/// version are checked.
fn another_entry(bundle: &mut Value) -> Value {
    let mut another = entry(bundle).clone();
    another["logId"]["keyId"] = json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    another
}

fn chain(bundle: &mut Value) -> &mut Vec<Value> {
    let chain = &mut bundle["verificationMaterial"]["x509CertificateChain"]["certificates"];
    chain.as_array_mut().unwrap()
}

fn found(bundle: &Value) -> Result<ValidSignature, Rejection> {
    judge(&raw(bundle))
}

#[track_caller]
fn fault(bundle: &Value) -> Fault {
    match found(bundle) {
        Err(Rejection::Certificate { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn accepts_bundles_of_every_version_by_certificate() {
    for text in [WORKFLOW, UNTIMED, PERSON] {
        for media_type in [V0_1, V0_2] {
            let accepted = found(&as_version(text, media_type)).unwrap();
            assert_eq!(accepted.meaning, Meaning::Signed);
        }
    }
    // Two bundles: one has only the SET, like the bundles of the first clients. The other has only
    // the inclusion proof.
    let mut promised = as_version(UNTIMED, V0_1);
    entry(&mut promised)["inclusionProof"] = Value::Null;
    let accepted = found(&promised).unwrap();
    assert!(accepted.checked.contains(&"log promise"));
    assert!(!accepted.checked.contains(&"log proof"));
    let mut proved = as_version(WORKFLOW, V0_2);
    entry(&mut proved)["inclusionPromise"] = Value::Null;
    assert!(found(&proved).unwrap().checked.contains(&"log proof"));
}

#[test]
fn version_0_1_requires_set_of_every_entry() {
    let mut bundle = as_version(WORKFLOW, V0_1);
    entry(&mut bundle)["inclusionPromise"] = Value::Null;
    assert_eq!(fault(&bundle), Fault::Set);
    let mut bundle = as_version(WORKFLOW, V0_1);
    let mut second = another_entry(&mut bundle);
    second["inclusionPromise"] = Value::Null;
    let entries = &mut bundle["verificationMaterial"]["tlogEntries"];
    entries.as_array_mut().unwrap().push(second);
    assert_eq!(fault(&bundle), Fault::Set);
    // Version 0.1 does not require an inclusion proof, but an existing proof must be valid.
    let mut bundle = as_version(UNTIMED, V0_1);
    entry(&mut bundle)["inclusionProof"]["logIndex"] = json!("0");
    assert_eq!(fault(&bundle), Fault::InclusionProof);
    let mut bundle = as_version(UNTIMED, V0_1);
    entry(&mut bundle)["inclusionProof"]["checkpoint"] = json!({ "envelope": "" });
    assert_eq!(fault(&bundle), Fault::Checkpoint);
}

#[test]
fn version_0_2_requires_inclusion_proof_and_checkpoint_of_every_entry() {
    let mut bundle = as_version(UNTIMED, V0_2);
    entry(&mut bundle)["inclusionProof"] = Value::Null;
    assert_eq!(fault(&bundle), Fault::NoLog);
    let mut bundle = as_version(UNTIMED, V0_2);
    let mut second = another_entry(&mut bundle);
    second["inclusionProof"] = Value::Null;
    let entries = &mut bundle["verificationMaterial"]["tlogEntries"];
    entries.as_array_mut().unwrap().push(second);
    assert_eq!(fault(&bundle), Fault::NoLog);
    for without in [Value::Null, json!({ "envelope": "" })] {
        let mut bundle = as_version(UNTIMED, V0_2);
        entry(&mut bundle)["inclusionProof"]["checkpoint"] = without;
        assert_eq!(fault(&bundle), Fault::Checkpoint);
    }
    // Version 0.2 does not require an SET, but an existing SET must be valid.
    let mut bundle = as_version(UNTIMED, V0_2);
    entry(&mut bundle)["integratedTime"] = json!("1795276361");
    assert_eq!(fault(&bundle), Fault::Set);
}

#[test]
fn version_0_3_requires_inclusion_proof_of_every_entry() {
    let mut bundle: Value = serde_json::from_str(UNTIMED).unwrap();
    let mut second = another_entry(&mut bundle);
    second["inclusionProof"] = Value::Null;
    let entries = &mut bundle["verificationMaterial"]["tlogEntries"];
    entries.as_array_mut().unwrap().push(second);
    assert_eq!(fault(&bundle), Fault::NoLog);
}

#[test]
fn requires_the_certificate_field_of_each_version() {
    for (media_type, text) in [(V0_1, WORKFLOW), (V0_2, WORKFLOW)] {
        let mut bundle: Value = serde_json::from_str(text).unwrap();
        bundle["mediaType"] = json!(media_type);
        assert!(matches!(found(&bundle), Err(Rejection::Unreadable(_))));
    }
    for media_type in [dsse::BUNDLE, dsse::BUNDLE_OLD_SPELLING] {
        let bundle = as_version(WORKFLOW, media_type);
        assert!(matches!(found(&bundle), Err(Rejection::Unreadable(_))));
    }
    let mut none = as_version(WORKFLOW, V0_2);
    chain(&mut none).clear();
    assert!(matches!(found(&none), Err(Rejection::Unreadable(_))));
    for media_type in [
        "application/vnd.dev.sigstore.bundle+json;version=0.4",
        "application/vnd.dev.sigstore.bundle.v0.4+json",
        "application/vnd.dev.sigstore.bundle.v0.1+json",
        "application/vnd.dev.sigstore.bundle+json;version=0.10",
        "application/vnd.dev.sigstore.bundle+json",
    ] {
        let bundle = as_version(WORKFLOW, media_type);
        assert_eq!(
            found(&bundle),
            Err(Rejection::OtherForm(media_type.to_owned()))
        );
    }
}

#[test]
fn chain_supplies_intermediates_and_never_a_root() {
    let sigstore = Sigstore::below_root();
    let material = sigstore.material(&[]);
    let signed = sigstore.signed(&CertificateRequest::default(), &statement());
    let old = |more: &[&[u8]]| {
        let mut bundle = as_version(&signed.to_string(), V0_2);
        let more = more
            .iter()
            .map(|der| json!({ "rawBytes": dsse::encode(der) }));
        chain(&mut bundle).extend(more);
        bundle
    };
    let judged = |bundle: &Value| {
        let signature = raw(bundle);
        examine(&[signature], &super::forge::subject(), &material)
            .remove(0)
            .0
    };
    let (intermediate, root) = (sigstore.intermediate(), sigstore.root_certificate());
    judged(&old(&[intermediate])).unwrap();
    match judged(&old(&[])) {
        Err(Rejection::Certificate { fault, .. }) => assert_eq!(fault, Fault::Chain),
        other => panic!("{other:?}"),
    }
    for with_root in [&[intermediate, root][..], &[root]] {
        match judged(&old(with_root)) {
            Err(Rejection::Unreadable(why)) => assert!(why.contains("root"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let mut turned = old(&[intermediate]);
    chain(&mut turned).reverse();
    assert!(judged(&turned).is_err());
    // Version 0.3 has space for only one certificate. Therefore the intermediate certificate is
    // missing, and the bundle is rejected.
    assert!(judged(&signed).is_err());
}

#[test]
fn signatures_by_key_count_in_every_version() {
    use crate::keys::{KeyKind, PrivateKey};
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    for media_type in [V0_1, V0_2, dsse::BUNDLE, dsse::BUNDLE_OLD_SPELLING] {
        let bytes = super::keys::altered(&key, |b| b["mediaType"] = json!(media_type));
        super::keys::judge(&bytes, &key).unwrap();
    }
    // In version 0.1, a log entry confirms the time as in version 0.3.
    let mut bundle: Value =
        serde_json::from_str(include_str!("../../../testdata/keyless/key.bundle.json")).unwrap();
    bundle["mediaType"] = json!(V0_1);
    assert!(found(&bundle).unwrap().signed_at.is_some());
    // Version 0.1 requires an SET. Without an SET, the entry does not confirm the time.
    entry(&mut bundle)["inclusionPromise"] = Value::Null;
    assert_eq!(found(&bundle).unwrap().signed_at, None);
}

#[test]
fn files_are_verified_by_bundles_of_every_version() {
    let material = under(ROOT);
    let digest = subject();
    let bundle = as_version(WORKFLOW, V0_2);
    let raw = raw(&bundle);
    examine_one(&raw, &Content::named(&digest), &material)
        .0
        .unwrap();
    // The bundle has a message signature over the file, and an entry of Rekor v2, which issues no
    // SET.
    let mut message = as_version(tiled::MESSAGE, V0_2);
    tiled::judge(&message).unwrap();
    message["mediaType"] = json!(V0_1);
    match tiled::judge(&message) {
        Err(Rejection::Certificate { fault, .. }) => assert_eq!(fault, Fault::Set),
        other => panic!("{other:?}"),
    }
}
