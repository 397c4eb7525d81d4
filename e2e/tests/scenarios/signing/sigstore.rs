//! The Sigstore instance of the tests works with real cosign: both versions of cosign sign with
//! certificates of this instance, and verify their signatures offline.

use e2e::sigstore::{Clocks, PERSON_ISSUER, Sigstore, WORKFLOW, WORKFLOW_ISSUER, person, workflow};
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles};
use serde_json::Value;

struct Scene {
    bench: ToolEnvironment,
    sigstore: Sigstore,
    pinned: String,
    _registry: Registry,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let registry = bench.registry().await.unwrap();
        let sigstore = bench.sigstore().await.unwrap();
        bundles::greeting(&bench.folder().join("bundle"), "1.0.0", None).unwrap();
        let pushed = bench
            .plugin()
            .await
            .unwrap()
            .args(["push", "bundle", &registry.reference("greeting:1.0.0")])
            .output()
            .await
            .unwrap();
        Self {
            pinned: pushed.success().unwrap().trim().to_owned(),
            bench,
            sigstore,
            _registry: registry,
        }
    }

    async fn sign3(&self, claims: &Value) -> Output {
        self.cosign3(&format!(
            "sign --identity-token {} --signing-config {} --trusted-root {} -y --allow-http-registry {}",
            self.sigstore.token_file(claims).await.unwrap().display(),
            self.sigstore.signing_config().display(),
            self.sigstore.trusted_root().display(),
            self.pinned,
        ))
        .await
    }

    async fn verify3(&self, identity: &str, issuer: &str) -> Output {
        self.cosign3(&format!(
            "verify --trusted-root {} --certificate-identity {identity} --certificate-oidc-issuer {issuer} --allow-http-registry {}",
            self.sigstore.trusted_root().display(),
            self.pinned,
        ))
        .await
    }

    async fn cosign3(&self, arguments: &str) -> Output {
        let cosign = self.bench.tool(Tool::Cosign3).await.unwrap();
        cosign.args(arguments.split(' ')).output().await.unwrap()
    }

    async fn cosign2(&self, arguments: &str) -> Output {
        let cosign = self.bench.tool(Tool::Cosign2).await.unwrap();
        self.sigstore
            .cosign2_environment()
            .into_iter()
            .fold(cosign, |cosign, (name, path)| cosign.env(name, path))
            .args(arguments.split(' '))
            .output()
            .await
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cosign_3_signs_by_certificate_and_verifies_offline() {
    let mut scene = Scene::new().await;
    // The log gets several entries, so that inclusion proofs are not empty.
    for email in ["ana@example.com", "ben@example.com"] {
        scene.sign3(&person(email)).await.success().unwrap();
    }
    scene.sign3(&workflow()).await.success().unwrap();
    scene.sigstore.kill().unwrap();
    for (identity, issuer) in [
        ("ana@example.com", PERSON_ISSUER),
        ("ben@example.com", PERSON_ISSUER),
        (WORKFLOW, WORKFLOW_ISSUER),
    ] {
        scene.verify3(identity, issuer).await.success().unwrap();
    }
    for (identity, issuer) in [
        ("eve@example.com", PERSON_ISSUER),
        ("ana@example.com", WORKFLOW_ISSUER),
    ] {
        let refused = scene.verify3(identity, issuer).await;
        assert!(!refused.is_success(), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cosign_2_signs_by_certificate_and_verifies_offline() {
    let mut scene = Scene::new().await;
    let token = scene.sigstore.token_file(&workflow()).await.unwrap();
    let url = scene.sigstore.url().to_owned();
    scene
        .cosign2(&format!(
            "sign --identity-token {} --fulcio-url {url} --rekor-url {url} -y --allow-http-registry {}",
            token.display(),
            scene.pinned,
        ))
        .await
        .success()
        .unwrap();
    scene.sigstore.kill().unwrap();
    let verify = |identity: &str| {
        format!(
            "verify --offline --certificate-identity {identity} --certificate-oidc-issuer {WORKFLOW_ISSUER} --allow-http-registry {}",
            scene.pinned
        )
    };
    let claims = scene.cosign2(&verify(WORKFLOW)).await.success().unwrap();
    assert!(claims.contains("SignedEntryTimestamp"), "{claims}");
    let refused = scene.cosign2(&verify("eve@example.com")).await;
    assert!(!refused.is_success(), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_invalid_token_and_log_with_wrong_time() {
    let scene = Scene::new().await;
    let forged = scene.bench.folder().join("forged");
    let token = scene.sigstore.token(&workflow()).await.unwrap();
    let (content, _) = token.rsplit_once('.').unwrap();
    fs_err::write(&forged, format!("{content}.{}", "A".repeat(86))).unwrap();
    let refused = scene
        .cosign3(&format!(
            "sign --identity-token forged --signing-config {} -y --allow-http-registry {}",
            scene.sigstore.signing_config().display(),
            scene.pinned
        ))
        .await;
    let why = refused.failure(1).unwrap();
    assert!(why.contains("not signed by the issuer"), "{why}");

    // The certificate had expired at the time of the log entry.
    let clocks = Clocks {
        log: 3600,
        ..Clocks::default()
    };
    scene.sigstore.set_clocks(clocks).await.unwrap();
    let token = scene.sigstore.token_file(&workflow()).await.unwrap();
    let url = scene.sigstore.url().to_owned();
    let signed = scene
        .cosign2(&format!(
            "sign --identity-token {} --fulcio-url {url} --rekor-url {url} -y --allow-http-registry {}",
            token.display(),
            scene.pinned,
        ))
        .await;
    signed.success().unwrap();
    let refused = scene
        .cosign2(&format!(
            "verify --offline --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --allow-http-registry {}",
            scene.pinned
        ))
        .await;
    assert!(!refused.is_success(), "{refused}");
}
