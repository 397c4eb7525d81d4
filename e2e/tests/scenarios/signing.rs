//! What we sign, by key and by certificate, in both forms and at both kinds of registries: real cosign 2 and 3 verify it, and nothing is half-stored.
//! What we make of cosign's own signatures is elsewhere (cosign, sigstore).

use e2e::registry::{Program, Terms};
use e2e::{Output, Registry, Tool, Workbench, bundles};

struct Scene {
    bench: Workbench,
    registry: Registry,
    pinned: String,
}

impl Scene {
    async fn new(program: Program) -> Self {
        let bench = Workbench::new().unwrap();
        let terms = Terms {
            program,
            ..Terms::default()
        };
        let registry = bench.registry_with(terms).await.unwrap();
        bundles::greeting(&bench.folder().join("bundle"), "1.0.0", None).unwrap();
        let mut scene = Self {
            pinned: String::new(),
            bench,
            registry,
        };
        let reference = scene.registry.reference("greeting:1.0.0");
        let pushed = scene.ours(&format!("push bundle {reference}")).await;
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

    async fn keys(&self, name: &str, kind: &str) {
        self.ours(&format!(
            "keys generate --output-key-prefix {name} --type {kind}"
        ))
        .await
        .success()
        .unwrap();
    }

    async fn ours(&self, arguments: &str) -> Output {
        let plugin = self.bench.plugin().await.unwrap();
        plugin
            .args(arguments.split(' '))
            .env("BUNDLE_PASSWORD", "fixture")
            .output()
            .await
            .unwrap()
    }

    async fn cosign(&self, tool: Tool, arguments: &str) -> Output {
        let cosign = self.bench.tool(tool).await.unwrap();
        cosign
            .args(arguments.split(' '))
            .env("COSIGN_PASSWORD", "fixture")
            .output()
            .await
            .unwrap()
    }

    async fn sign(&self, arguments: &str) -> String {
        let arguments = format!("sign {} {arguments}", self.pinned);
        let output = self.ours(&arguments).await;
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

    /// How many signatures there are, and that one is by this key.
    async fn count(&self, key: &str) -> u64 {
        let arguments = format!("verify {} --key {key} -o json", self.pinned);
        let report = self.ours(&arguments).await.success().unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["signaturesFound"].as_u64().unwrap()
    }
}

async fn by_key(program: Program) {
    let scene = Scene::new(program).await;
    for kind in ["p256", "ed25519"] {
        scene.keys(kind, kind).await;
    }
    // Beside each other, and each once. While there is no bundle, the cosigns look at the tag.
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

    // cosign 2 puts its own beside them, and takes none away; nor do we take its.
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
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_sign_in_both_forms_and_cosign_2_and_3_verify() {
    by_key(Program::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_sign_in_both_forms_where_there_is_a_referrers_api() {
    by_key(Program::Crane).await;
}
