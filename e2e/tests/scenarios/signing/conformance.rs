//! The conformance executable and real cosign 3: each program verifies the file signatures of the
//! other program. `docs/explanation/signatures.md` describes how to run the conformance suite
//! itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::host::command::Command;
use e2e::sigstore::{PERSON_ISSUER, Sigstore, WORKFLOW, WORKFLOW_ISSUER, workflow};
use e2e::{Output, Tool, ToolEnvironment};
use serde_json::{Value, json};

const FILE: &str = "artifact.txt";
const DIGEST: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

struct Scene {
    bench: ToolEnvironment,
    sigstore: Sigstore,
}

impl Scene {
    async fn run_plugin(&self, arguments: &str) -> Output {
        let program = Command::new(env!("CARGO_BIN_EXE_conformance"));
        let program = self.bench.clean(program).args(arguments.split(' '));
        program.output().await.unwrap()
    }

    async fn cosign(&self, arguments: &str) {
        let cosign = self.bench.tool(Tool::Cosign3).await.unwrap();
        cosign
            .env("COSIGN_PASSWORD", "fixture")
            .args(arguments.split(' '))
            .output()
            .await
            .unwrap()
            .success()
            .unwrap();
    }

    fn bundle(&self, name: &str) -> Value {
        let text = fs_err::read_to_string(self.bench.folder().join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    async fn verify(&self, bundle: &str, identity: &str, issuer: &str, artifact: &str) -> Output {
        let root = self.sigstore.trusted_root().display().to_string();
        self.run_plugin(&format!(
            "verify-bundle --bundle {bundle} --certificate-identity {identity} --certificate-oidc-issuer {issuer} --trusted-root {root} {artifact}"
        ))
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_of_files_pass_between_cosign_and_the_conformance_executable() {
    let bench = ToolEnvironment::new().unwrap();
    let sigstore = bench.sigstore().await.unwrap();
    let mut scene = Scene { bench, sigstore };
    fs_err::write(scene.bench.folder().join(FILE), "hello").unwrap();
    fs_err::write(scene.bench.folder().join("other.txt"), "hullo").unwrap();
    let (root, config) = (
        scene.sigstore.trusted_root().display().to_string(),
        scene.sigstore.signing_config().display().to_string(),
    );
    let file = scene.sigstore.token_file(&workflow()).await.unwrap();
    let services = format!(
        "--identity-token {} --signing-config {config} --trusted-root {root} -y",
        file.display()
    );
    scene
        .cosign(&format!(
            "sign-blob --bundle message.json {services} {FILE}"
        ))
        .await;
    fs_err::write(scene.bench.folder().join("predicate.json"), "{}").unwrap();
    scene
        .cosign(&format!(
            "attest-blob --bundle envelope.json --predicate predicate.json --type https://example.com/tested/v1 {services} {FILE}"
        ))
        .await;
    let token = scene.sigstore.token(&workflow()).await.unwrap();
    scene
        .run_plugin(&format!(
            "sign-bundle --identity-token {token} --bundle ours.json --trusted-root {root} --signing-config {config} {FILE}"
        ))
        .await
        .success()
        .unwrap();
    let statement = format!(
        r#"{{"_type":"https://in-toto.io/Statement/v1","subject":[{{"name":"{FILE}","digest":{{"sha256":"{}"}}}}], "predicateType":"https://example.com/tested/v1","predicate":{{}}}}"#,
        &DIGEST["sha256:".len()..]
    );
    fs_err::write(scene.bench.folder().join("statement.json"), &statement).unwrap();
    let token = scene.sigstore.token(&workflow()).await.unwrap();
    scene
        .run_plugin(&format!(
            "sign-bundle --in-toto --identity-token {token} --bundle stated.json --trusted-root {root} --signing-config {config} statement.json"
        ))
        .await
        .success()
        .unwrap();
    let stated = scene.bundle("stated.json");
    let payload = stated["dsseEnvelope"]["payload"].as_str().unwrap();
    assert_eq!(STANDARD.decode(payload).unwrap(), statement.as_bytes());
    assert!(stated.get("messageSignature").is_none());
    scene.cosign("generate-key-pair").await;
    scene
        .cosign(&format!(
            "sign-blob --key cosign.key --bundle key.json --use-signing-config=false --tlog-upload=false -y {FILE}"
        ))
        .await;
    scene.sigstore.kill().unwrap();

    scene
        .cosign(&format!(
            "verify-blob --bundle ours.json --trusted-root {root} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} {FILE}"
        ))
        .await;
    scene
        .cosign(&format!(
            "verify-blob-attestation --bundle stated.json --trusted-root {root} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --type https://example.com/tested/v1 {FILE}"
        ))
        .await;
    // This project and cosign accept the formats of earlier versions.
    for version in ["0.1", "0.2"] {
        let mut bundle = scene.bundle("message.json");
        bundle["mediaType"] = json!(format!(
            "application/vnd.dev.sigstore.bundle+json;version={version}"
        ));
        let material = bundle["verificationMaterial"].as_object_mut().unwrap();
        let certificate = material.remove("certificate").unwrap();
        let chain = json!({ "certificates": [certificate] });
        material.insert("x509CertificateChain".to_owned(), chain);
        let file = scene.bench.folder().join(format!("message-{version}.json"));
        fs_err::write(file, bundle.to_string()).unwrap();
        scene
            .cosign(&format!(
                "verify-blob --bundle message-{version}.json --trusted-root {root} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} {FILE}"
            ))
            .await;
    }
    for bundle in [
        "message.json",
        "message-0.1.json",
        "message-0.2.json",
        "envelope.json",
        "ours.json",
        "stated.json",
    ] {
        for artifact in [FILE, DIGEST] {
            let held = scene
                .verify(bundle, WORKFLOW, WORKFLOW_ISSUER, artifact)
                .await;
            assert!(held.is_success(), "{bundle} {artifact}: {held}");
        }
        let shorter = &WORKFLOW[..WORKFLOW.len() - 1];
        let other = DIGEST.replace("2cf2", "2cf3");
        for (identity, issuer) in [(shorter, WORKFLOW_ISSUER), (WORKFLOW, PERSON_ISSUER)] {
            let refused = scene.verify(bundle, identity, issuer, FILE).await;
            let why = refused.failure(1).unwrap();
            assert!(why.contains("by another identity (subject"), "{why}");
        }
        for (identity, issuer, artifact) in [
            (WORKFLOW, WORKFLOW_ISSUER, "other.txt"),
            (WORKFLOW, WORKFLOW_ISSUER, &other),
            (WORKFLOW, WORKFLOW_ISSUER, "sha256:2cf2"),
        ] {
            let refused = scene.verify(bundle, identity, issuer, artifact).await;
            refused.failure(1).unwrap();
        }
        // Verification with the trust root of the public instance fails.
        let public = scene
            .run_plugin(&format!(
                "verify-bundle --bundle {bundle} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} {FILE}"
            ))
            .await;
        public.failure(1).unwrap();
    }
    let mut unnamed = scene.bundle("key.json");
    unnamed["verificationMaterial"]["publicKey"] = json!({});
    let file = scene.bench.folder().join("unnamed.json");
    fs_err::write(file, unnamed.to_string()).unwrap();
    for bundle in ["key.json", "unnamed.json"] {
        let by_key = format!("verify-bundle --bundle {bundle} --key cosign.pub");
        for artifact in [FILE, DIGEST] {
            let held = scene.run_plugin(&format!("{by_key} {artifact}")).await;
            held.success().unwrap();
        }
        let refused = scene.run_plugin(&format!("{by_key} other.txt")).await;
        refused.failure(1).unwrap();
        // A key together with an identity is a usage error.
        let both = format!(
            "verify-bundle --bundle {bundle} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --key cosign.pub {FILE}"
        );
        scene.run_plugin(&both).await.failure(2).unwrap();
    }
}
