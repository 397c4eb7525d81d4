//! The executable that speaks the conformance suite's protocol verifies what real cosign 3 made of a file, and cosign what it made.
//! The suite itself is run by whoever has its services at hand: docs/signatures.md says how.

use e2e::command::Command;
use e2e::sigstore::{PERSON_ISSUER, Sigstore, WORKFLOW, WORKFLOW_ISSUER, workflow};
use e2e::{Output, Tool, Workbench};

const FILE: &str = "artifact.txt";
const DIGEST: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

struct Scene {
    bench: Workbench,
    sigstore: Sigstore,
}

impl Scene {
    async fn ours(&self, arguments: &str) -> Output {
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

    async fn verify(&self, bundle: &str, identity: &str, issuer: &str, artifact: &str) -> Output {
        let root = self.sigstore.trusted_root().display().to_string();
        self.ours(&format!(
            "verify-bundle --bundle {bundle} --certificate-identity {identity} --certificate-oidc-issuer {issuer} --trusted-root {root} {artifact}"
        ))
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_of_files_pass_between_cosign_and_the_conformance_executable() {
    let bench = Workbench::new().unwrap();
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
        .ours(&format!(
            "sign-bundle --identity-token {token} --bundle ours.json --trusted-root {root} --signing-config {config} {FILE}"
        ))
        .await
        .success()
        .unwrap();
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
    for bundle in ["message.json", "envelope.json", "ours.json"] {
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
        // Under the public root, it is nobody's.
        let public = scene
            .ours(&format!(
                "verify-bundle --bundle {bundle} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} {FILE}"
            ))
            .await;
        public.failure(1).unwrap();
    }
    let by_key = "verify-bundle --bundle key.json --key cosign.pub";
    for artifact in [FILE, DIGEST] {
        let held = scene.ours(&format!("{by_key} {artifact}")).await;
        held.success().unwrap();
    }
    let refused = scene.ours(&format!("{by_key} other.txt")).await;
    refused.failure(1).unwrap();
}
