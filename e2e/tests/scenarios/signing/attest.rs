//! Attestations: real cosign verifies attestations of the plugin, and the plugin verifies
//! attestations of cosign. An attestation is never accepted as a signature, and a signature is
//! never accepted as an attestation.

use e2e::registry::RegistryProgram;
use e2e::sigstore::{WORKFLOW, WORKFLOW_ISSUER, workflow};
use e2e::{Output, Tool};
use serde_json::Value;

use super::images::{Scene, services};

const OWN: &str = "https://example.com/approval/v1";

/// Predicate types that cosign supports, with predicates, and an unknown type.
const PREDICATES: &[(&str, &str)] = &[
    (
        "spdxjson",
        r#"{"spdxVersion":"SPDX-2.3","name":"greeting","packages":[]}"#,
    ),
    (
        "cyclonedx",
        r#"{"bomFormat":"CycloneDX","specVersion":"1.5"}"#,
    ),
    (
        "slsaprovenance1",
        r#"{"buildDefinition":{"buildType":"https://example.com/build"},"runDetails":{"builder":{"id":"https://example.com/ci"}}}"#,
    ),
    (
        "slsaprovenance",
        r#"{"builder":{"id":"https://example.com/ci"},"buildType":"https://example.com/build"}"#,
    ),
    (
        "vuln",
        r#"{"scanner":{"uri":"https://example.com/scanner"},"metadata":{"scanStartedOn":"2026-01-01T00:00:00Z","scanFinishedOn":"2026-01-01T00:00:00Z"}}"#,
    ),
    (
        "openvex",
        r#"{"@context":"https://openvex.dev/ns/v0.2.0","statements":[]}"#,
    ),
    ("custom", r#"{"tested":true}"#),
    (OWN, r#"{"approved":"yes","count":3}"#),
];

fn write_predicates(scene: &Scene) {
    for (index, (_, text)) in PREDICATES.iter().enumerate() {
        fs_err::write(scene.bench.folder().join(format!("{index}.json")), text).unwrap();
    }
}

async fn cosign3_verifies(scene: &Scene, key: &str, kind: &str) -> Output {
    let arguments = format!(
        "verify-attestation --key {key} --type {kind} --insecure-ignore-tlog=true --trusted-root empty.json --allow-http-registry {}",
        scene.pinned
    );
    scene.cosign(Tool::Cosign3, &arguments).await
}

async fn report(scene: &Scene, arguments: &str) -> Value {
    let arguments = format!("verify {} {arguments} -o json", scene.pinned);
    let report = scene.run_plugin(&arguments).await.success().unwrap();
    serde_json::from_str(&report).unwrap()
}

async fn by_key(program: RegistryProgram) {
    let scene = Scene::new(program).await;
    write_predicates(&scene);
    for kind in ["p256", "ed25519"] {
        scene.keys(kind, kind).await;
    }
    for (index, (kind, text)) in PREDICATES.iter().enumerate() {
        let key = if index % 2 == 0 { "p256" } else { "ed25519" };
        let attest = format!(
            "attest {} --type {kind} --predicate {index}.json --key {key}.key",
            scene.pinned
        );
        scene.run_plugin(&attest).await.success().unwrap();
        let again = scene.run_plugin(&format!("{attest} -o json")).await;
        let again: Value = serde_json::from_str(&again.success().unwrap()).unwrap();
        assert_eq!(again["unchanged"], true, "{kind}");
        cosign3_verifies(&scene, &format!("{key}.pub"), kind)
            .await
            .success()
            .unwrap();
        let found = report(&scene, &format!("--key {key}.pub --attestation {kind}")).await;
        assert_eq!(found["signaturesFound"], index + 1, "{kind}");
        let printed = &found["signedBy"][0]["predicate"];
        let wanted: Value = serde_json::from_str(text).unwrap();
        match *kind {
            "custom" => assert_eq!(printed["Data"], *text),
            _ => assert_eq!(*printed, wanted),
        }
    }

    // No attestation has the other type, and no attestation is signed with the other key. The
    // message reports both.
    let arguments = format!(
        "verify {} --key p256.pub --attestation cyclonedx --attestation https://example.com/other",
        scene.pinned
    );
    let refused = scene.run_plugin(&arguments).await.failure(3).unwrap();
    assert_eq!(refused.matches("BUNDLE-TRUST-013").count(), 2, "{refused}");
    let refused = cosign3_verifies(&scene, "p256.pub", "cyclonedx").await;
    assert!(!refused.is_success(), "{refused}");

    // An attestation is no signature, and a signature is no attestation.
    let refused = scene
        .run_plugin(&format!("verify {} --key p256.pub", scene.pinned))
        .await;
    let refused = refused.failure(3).unwrap();
    assert!(refused.contains("of an attestation"), "{refused}");
    scene.keys("signer", "p256").await;
    for form in ["bundle", "legacy"] {
        scene
            .sign(&format!("--key signer.key --format {form}"))
            .await;
    }
    let arguments = format!(
        "verify {} --key signer.pub --attestation custom",
        scene.pinned
    );
    let refused = scene.run_plugin(&arguments).await.failure(3).unwrap();
    assert!(
        refused.contains("2 of the image, not of an attestation, by key"),
        "{refused}"
    );

    // cosign attests the same image.
    scene
        .cosign(Tool::Cosign3, "generate-key-pair")
        .await
        .success()
        .unwrap();
    for (index, (kind, _)) in PREDICATES.iter().enumerate() {
        let arguments = format!(
            "attest --key cosign.key --type {kind} --predicate {index}.json --use-signing-config=false --tlog-upload=false -y --allow-http-registry {}",
            scene.pinned
        );
        let attested = scene.cosign(Tool::Cosign3, &arguments).await;
        attested.success().unwrap();
        report(&scene, &format!("--key cosign.pub --attestation {kind}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attestations_are_compatible_with_cosign() {
    by_key(RegistryProgram::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attestations_are_compatible_with_cosign_with_referrers_api() {
    by_key(RegistryProgram::WithReferrers).await;
}

/// Returns a policy that requires a signature and an attestation of the workflow.
fn policy() -> String {
    serde_json::json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": { "name": "built" },
        "spec": {
            "images": [{ "glob": "**" }],
            "authorities": [{
                "name": "workflow",
                "keyless": {
                    "identities": [{ "issuer": WORKFLOW_ISSUER, "subject": WORKFLOW }],
                },
                "attestations": [{ "predicateType": "https://slsa.dev/provenance/v1" }],
            }],
        },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_requires_attestation_of_a_workflow() {
    let scene = Scene::new(RegistryProgram::Distribution).await;
    write_predicates(&scene);
    let sigstore = scene.bench.sigstore().await.unwrap();
    let token = sigstore.token_file(&workflow()).await.unwrap();
    let with = services(&sigstore, &token);
    let root = sigstore.trusted_root();
    let who = format!(
        "--certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --trusted-root {}",
        root.display()
    );
    fs_err::write(scene.bench.folder().join("policy.yaml"), policy()).unwrap();
    let test = format!(
        "policy test policy.yaml --image {} --trusted-root {}",
        scene.pinned,
        root.display()
    );

    scene.sign(&with).await;
    let refused = scene.run_plugin(&test).await.failure(3).unwrap();
    assert!(refused.contains("BUNDLE-TRUST-013"), "{refused}");
    let attest = format!(
        "attest {} --type slsaprovenance1 --predicate 2.json {with}",
        scene.pinned
    );
    for count in [2, 2] {
        scene.run_plugin(&attest).await.success().unwrap();
        let found = report(&scene, &format!("{who} --attestation slsaprovenance1")).await;
        assert_eq!(found["signaturesFound"], count);
        assert_eq!(found["signedBy"][0]["identity"]["subject"], WORKFLOW);
        assert_eq!(found["signedBy"][0]["signedAt"]["source"], "log");
    }
    scene.run_plugin(&test).await.success().unwrap();
    let arguments = format!(
        "verify-attestation --type slsaprovenance1 {who} --allow-http-registry {}",
        scene.pinned
    );
    scene
        .cosign(Tool::Cosign3, &arguments)
        .await
        .success()
        .unwrap();

    // cosign attests the image as the same workflow.
    let arguments = format!(
        "attest --identity-token {} --signing-config {} --trusted-root {} --type spdxjson --predicate 0.json -y --allow-http-registry {}",
        token.display(),
        sigstore.signing_config().display(),
        root.display(),
        scene.pinned
    );
    let attested = scene.cosign(Tool::Cosign3, &arguments).await;
    attested.success().unwrap();
    report(&scene, &format!("{who} --attestation spdxjson")).await;
}

async fn by_cosign_2(program: RegistryProgram) {
    let scene = Scene::new(program).await;
    write_predicates(&scene);
    let sigstore = scene.bench.sigstore().await.unwrap();
    let token = sigstore.token_file(&workflow()).await.unwrap();
    let cosign2 = async |arguments: String| {
        let cosign = scene.bench.tool(Tool::Cosign2).await.unwrap();
        sigstore
            .cosign2_environment()
            .into_iter()
            .fold(cosign, |cosign, (name, path)| cosign.env(name, path))
            .env("COSIGN_PASSWORD", "fixture")
            .args(arguments.split(' '))
            .output()
            .await
            .unwrap()
            .success()
            .unwrap();
    };
    cosign2("generate-key-pair".to_owned()).await;
    let attest = |kind: &str, index: usize| {
        format!(
            "attest --type {kind} --predicate {index}.json -y --allow-http-registry {}",
            scene.pinned
        )
    };
    cosign2(format!(
        "{} --key cosign.key --tlog-upload=false",
        attest("spdxjson", 0)
    ))
    .await;
    let url = sigstore.url();
    cosign2(format!(
        "{} --fulcio-url {url} --rekor-url {url} --identity-token {}",
        attest("slsaprovenance1", 2),
        token.display()
    ))
    .await;
    let who = format!(
        "--certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --trusted-root {}",
        sigstore.trusted_root().display()
    );
    let found = report(&scene, "--key cosign.pub --attestation spdxjson").await;
    assert_eq!(found["signedBy"][0]["predicate"]["spdxVersion"], "SPDX-2.3");
    let found = report(&scene, &format!("{who} --attestation slsaprovenance1")).await;
    assert_eq!(found["signedBy"][0]["identity"]["subject"], WORKFLOW);
    assert_eq!(found["signedBy"][0]["signedAt"]["source"], "log");
    for (who, kind) in [("--key cosign.pub", "slsaprovenance1"), (&who, "spdxjson")] {
        let verify = format!("verify {} {who}", scene.pinned);
        scene.run_plugin(&verify).await.failure(3).unwrap();
        let other = format!("{verify} --attestation {kind}");
        scene.run_plugin(&other).await.failure(3).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verifies_attestations_of_cosign_2() {
    by_cosign_2(RegistryProgram::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verifies_attestations_of_cosign_2_with_referrers_api() {
    by_cosign_2(RegistryProgram::WithReferrers).await;
}
