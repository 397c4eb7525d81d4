//! Signatures that the plugin creates with keys and with certificates, in both formats and at both
//! kinds of registries. Real cosign 2 and 3 verify these signatures. A failed upload leaves no
//! partial signature.

use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::sigstore::{PERSON_ISSUER, Sigstore, WORKFLOW, WORKFLOW_ISSUER, person, workflow};
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles};
use serde_json::json;

pub(super) struct Scene {
    pub(super) bench: ToolEnvironment,
    pub(super) registry: Registry,
    pub(super) pinned: String,
}

impl Scene {
    pub(super) async fn new(program: RegistryProgram) -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let terms = RegistryOptions {
            program,
            ..RegistryOptions::default()
        };
        let registry = bench.registry_with(terms).await.unwrap();
        bundles::greeting(&bench.folder().join("bundle"), "1.0.0", None).unwrap();
        let mut scene = Self {
            pinned: String::new(),
            bench,
            registry,
        };
        let reference = scene.registry.reference("greeting:1.0.0");
        let pushed = scene.run_plugin(&format!("push bundle {reference}")).await;
        pushed
            .success()
            .unwrap()
            .trim()
            .clone_into(&mut scene.pinned);
        scene
            .cosign(Tool::Cosign3, "trusted-root create --out empty.json")
            .await
            .success()
            .unwrap();
        scene
    }

    pub(super) async fn keys(&self, name: &str, kind: &str) {
        self.run_plugin(&format!(
            "keys generate --output-key-prefix {name} --type {kind}"
        ))
        .await
        .success()
        .unwrap();
    }

    pub(super) async fn run_plugin(&self, arguments: &str) -> Output {
        self.bench.run_plugin(arguments).await.unwrap()
    }

    pub(super) async fn cosign(&self, tool: Tool, arguments: &str) -> Output {
        self.bench.cosign(tool, arguments).await.unwrap()
    }

    pub(super) async fn sign(&self, arguments: &str) -> String {
        let arguments = format!("sign {} {arguments}", self.pinned);
        let output = self.run_plugin(&arguments).await;
        output.success().unwrap()
    }

    async fn cosign2_verifies(&self, key: &str) -> Output {
        let arguments = format!(
            "verify --key {key} --insecure-ignore-tlog=true --allow-http-registry {}",
            self.pinned
        );
        self.cosign(Tool::Cosign2, &arguments).await
    }

    async fn cosign3_verifies(&self, key: &str) -> Output {
        let arguments = format!(
            "verify --key {key} --insecure-ignore-tlog=true --trusted-root empty.json --allow-http-registry {}",
            self.pinned
        );
        self.cosign(Tool::Cosign3, &arguments).await
    }

    /// Verifies the signatures of the image with this key, and returns the number of signatures
    /// that were found.
    async fn count(&self, key: &str) -> u64 {
        let arguments = format!("verify {} --key {key} -o json", self.pinned);
        let report = self.run_plugin(&arguments).await.success().unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["signaturesFound"].as_u64().unwrap()
    }
}

async fn by_key(program: RegistryProgram) {
    let scene = Scene::new(program).await;
    for kind in ["p256", "ed25519"] {
        scene.keys(kind, kind).await;
    }
    // Each signature is stored once, next to the other signatures. Without a Sigstore bundle, both
    // versions of cosign read the `.sig` tag.
    for (count, arguments) in [
        (1, "--key p256.key --format legacy"),
        (1, "--key p256.key --format legacy"),
        (2, "--key ed25519.key --format legacy"),
    ] {
        scene.sign(arguments).await;
        assert_eq!(scene.count("p256.pub").await, count, "{arguments}");
    }
    for key in ["p256.pub", "ed25519.pub"] {
        for claims in [
            scene.cosign2_verifies(key).await,
            scene.cosign3_verifies(key).await,
        ] {
            let claims = claims.success().unwrap();
            assert!(claims.contains("1.0.0"), "{key}: {claims}");
        }
    }

    // cosign 2 adds its own signature and keeps the other signatures. The plugin also keeps the
    // other signatures.
    scene
        .cosign(Tool::Cosign2, "generate-key-pair")
        .await
        .success()
        .unwrap();
    let arguments = format!(
        "sign --key cosign.key --tlog-upload=false -y --allow-http-registry {}",
        scene.pinned
    );
    let signed = scene.cosign(Tool::Cosign2, &arguments).await;
    signed.success().unwrap();
    scene.keys("late", "p256").await;
    scene.sign("--key late.key --format legacy").await;
    for key in ["p256.pub", "ed25519.pub", "cosign.pub", "late.pub"] {
        scene.cosign2_verifies(key).await.success().unwrap();
        assert_eq!(scene.count(key).await, 4);
    }

    for (count, arguments) in [
        (5, "--key p256.key"),
        (5, "--key p256.key"),
        (6, "--key ed25519.key"),
    ] {
        scene.sign(arguments).await;
        assert_eq!(scene.count("p256.pub").await, count, "{arguments}");
    }
    for key in ["p256.pub", "ed25519.pub"] {
        let claims = scene.cosign3_verifies(key).await.success().unwrap();
        assert!(claims.contains("1.0.0"), "{key}: {claims}");
        let arguments = format!(
            "verify --key {key} --new-bundle-format --insecure-ignore-tlog=true --trusted-root empty.json --allow-http-registry {}",
            scene.pinned
        );
        let claims = scene.cosign(Tool::Cosign2, &arguments).await;
        claims.success().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cosign_2_and_3_verify_key_signatures_in_both_formats() {
    by_key(RegistryProgram::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_signatures_in_both_formats_use_the_referrers_api() {
    by_key(RegistryProgram::WithReferrers).await;
}

/// Returns the flags of `sign` for a Sigstore instance.
pub(in crate::scenarios) fn services(sigstore: &Sigstore, token: &std::path::Path) -> String {
    format!(
        "--identity-token {} --signing-config {} --trusted-root {}",
        token.display(),
        sigstore.signing_config().display(),
        sigstore.trusted_root().display()
    )
}

async fn by_certificate(program: RegistryProgram) {
    let scene = Scene::new(program).await;
    let sigstore = scene.bench.sigstore().await.unwrap();
    let token = sigstore.token_file(&workflow()).await.unwrap();
    let root = sigstore.trusted_root();
    let verify = |identity: &str, issuer: &str| {
        format!(
            "verify --certificate-identity {identity} --certificate-oidc-issuer {issuer} --allow-http-registry {}",
            scene.pinned
        )
    };
    let count = |identity: &str, issuer: &str| {
        let arguments = format!(
            "verify {} --certificate-identity {identity} --certificate-oidc-issuer {issuer} --trusted-root {} -o json",
            scene.pinned,
            root.display()
        );
        let scene = &scene;
        async move {
            let report = scene.run_plugin(&arguments).await.success().unwrap();
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            report["signaturesFound"].as_u64().unwrap()
        }
    };

    // The image is signed twice, and the signature is stored once. The format of cosign 2 is first,
    // because both versions of cosign prefer Sigstore bundles.
    for _ in 0..2 {
        let with = services(&sigstore, &token);
        scene.sign(&format!("{with} --format legacy")).await;
        assert_eq!(count(WORKFLOW, WORKFLOW_ISSUER).await, 1);
    }
    let cosign2 = |arguments: String| {
        let (scene, sigstore) = (&scene, &sigstore);
        async move {
            let cosign = scene.bench.tool(Tool::Cosign2).await.unwrap();
            sigstore
                .cosign2_environment()
                .into_iter()
                .fold(cosign, |cosign, (name, path)| cosign.env(name, path))
                .args(arguments.split(' '))
                .output()
                .await
                .unwrap()
        }
    };
    let offline = |identity: &str, issuer: &str| format!("{} --offline", verify(identity, issuer));
    let claims = cosign2(offline(WORKFLOW, WORKFLOW_ISSUER)).await;
    assert!(claims.success().unwrap().contains("1.0.0"));
    let refused = cosign2(offline("eve@example.com", WORKFLOW_ISSUER)).await;
    assert!(!refused.is_success(), "{refused}");
    for (identity, verified) in [(WORKFLOW, true), ("eve@example.com", false)] {
        let arguments = format!(
            "{} --trusted-root {}",
            verify(identity, WORKFLOW_ISSUER),
            root.display()
        );
        let message = scene.cosign(Tool::Cosign3, &arguments).await;
        assert_eq!(message.is_success(), verified, "{message}");
    }

    for _ in 0..2 {
        scene.sign(&services(&sigstore, &token)).await;
        assert_eq!(count(WORKFLOW, WORKFLOW_ISSUER).await, 2);
    }
    let ana = sigstore
        .token_file(&person("ana@example.com"))
        .await
        .unwrap();
    scene.sign(&services(&sigstore, &ana)).await;
    for (identity, issuer) in [
        (WORKFLOW, WORKFLOW_ISSUER),
        ("ana@example.com", PERSON_ISSUER),
    ] {
        assert_eq!(count(identity, issuer).await, 3);
        let arguments = format!(
            "{} --trusted-root {}",
            verify(identity, issuer),
            root.display()
        );
        let claims = scene.cosign(Tool::Cosign3, &arguments).await;
        assert!(claims.success().unwrap().contains("1.0.0"));
        let arguments = format!("{arguments} --new-bundle-format");
        let claims = scene.cosign(Tool::Cosign2, &arguments).await;
        claims.success().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cosign_2_and_3_verify_keyless_signatures_in_both_formats() {
    by_certificate(RegistryProgram::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keyless_signatures_in_both_formats_use_the_referrers_api() {
    by_certificate(RegistryProgram::WithReferrers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_keyless_signing_is_reported_and_uploads_nothing() {
    let scene = Scene::new(RegistryProgram::Distribution).await;
    let mut sigstore = scene.bench.sigstore().await.unwrap();
    let pinned = scene.pinned.clone();
    let with = |claims: serde_json::Value| {
        let mut all = person("ana@example.com");
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        all
    };
    let good = sigstore
        .token_file(&person("ana@example.com"))
        .await
        .unwrap();
    let late = sigstore.token_file(&with(json!({"exp": 1}))).await.unwrap();
    let other = sigstore
        .token_file(&with(json!({"aud": "other"})))
        .await
        .unwrap();
    let text = fs_err::read_to_string(&good).unwrap();
    let (content, _) = text.rsplit_once('.').unwrap();
    let forged = scene.bench.folder().join("forged");
    fs_err::write(&forged, format!("{content}.{}", "A".repeat(86))).unwrap();
    // The trust root belongs to another Sigstore instance. The command verifies a signature before
    // it stores the signature.
    let foreign = scene.bench.sigstore().await.unwrap();
    let nowhere = "http://127.0.0.1:1";
    let flags = |token: &std::path::Path| services(&sigstore, token);
    for (arguments, code, why) in [
        (String::new(), 1, "neither a key nor an identity token"),
        (flags(&late), 1, "it has expired"),
        (flags(&other), 1, "its audience is not `sigstore`"),
        (flags(&forged), 1, "not signed by the issuer"),
        (
            format!("{} --fulcio-url {nowhere}", flags(&good)),
            4,
            "the certificate authority at 127.0.0.1 is unreachable",
        ),
        (
            format!("{} --rekor-url {nowhere}", flags(&good)),
            4,
            "the transparency log at 127.0.0.1 is unreachable",
        ),
        (
            format!("{} --timestamp-server-url {nowhere}", flags(&good)),
            4,
            "the timestamp authority at 127.0.0.1 is unreachable",
        ),
        (
            format!("{} --fulcio-url http://fulcio.example.com", flags(&good)),
            2,
            "must use TLS",
        ),
        (
            format!(
                "--identity-token {} --signing-config {} --trusted-root {}",
                good.display(),
                sigstore.signing_config().display(),
                foreign.trusted_root().display()
            ),
            1,
            "does not verify with the trust root",
        ),
    ] {
        let refused = scene
            .run_plugin(format!("sign {pinned} {arguments}").trim_end())
            .await
            .failure(code)
            .unwrap();
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
    let arguments = services(&sigstore, &good);
    sigstore.kill().unwrap();
    let refused = scene
        .run_plugin(&format!("sign {pinned} {arguments}"))
        .await;
    let refused = refused.failure(4).unwrap();
    assert!(refused.contains("is unreachable"), "{refused}");

    scene.keys("any", "p256").await;
    let refused = scene
        .run_plugin(&format!("verify {pinned} --key any.pub"))
        .await;
    let refused = refused.failure(3).unwrap();
    assert!(
        refused.contains("has no signature for this digest"),
        "{refused}"
    );
}
