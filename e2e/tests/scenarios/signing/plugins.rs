//! Keys in a KMS plugin with sigstore's protocol: the same KMS plugin works with this project and
//! with real cosign 3, and each program verifies the signatures of the other program.

use e2e::host::command;
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles, tools};

struct Scene {
    bench: ToolEnvironment,
    registry: Registry,
    path: String,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let plugins = tokio::task::spawn_blocking(|| tools::folder(&[Tool::KmsPlugin]));
        let plugins = plugins.await.unwrap().unwrap();
        let scene = Self {
            registry: bench.registry().await.unwrap(),
            path: format!("{}:/usr/bin:/bin", plugins.display()),
            bench,
        };
        let cosign = scene.cosign("trusted-root create --out root.json").await;
        cosign.success().unwrap();
        scene
    }

    /// Creates a key file with openssl, and returns its key reference for the KMS plugin
    /// (`files://PATH`).
    async fn key(&self, name: &str, kind: &str) -> String {
        let file = self.bench.folder().join(name);
        let openssl = self.bench.clean(command::Command::new("openssl"));
        openssl
            .args(format!("genpkey {kind} -out {}", file.display()).split(' '))
            .output()
            .await
            .unwrap()
            .success()
            .unwrap();
        format!("files://{}", file.display())
    }

    async fn pushed(&self, version: &str) -> String {
        let folder = self.bench.folder().join(version);
        bundles::greeting(&folder, version, None).unwrap();
        let reference = self.registry.reference(&format!("greeting:{version}"));
        let pushed = self
            .run_plugin(&format!("push {version} {reference}"))
            .await;
        pushed.success().unwrap().trim().to_owned()
    }

    async fn run_plugin(&self, arguments: &str) -> Output {
        self.run(self.bench.plugin().await.unwrap(), arguments)
            .await
    }

    async fn cosign(&self, arguments: &str) -> Output {
        let cosign = self.bench.tool(Tool::Cosign3).await.unwrap();
        self.run(cosign, arguments).await
    }

    async fn run(&self, command: command::Command, arguments: &str) -> Output {
        let command = command.env("PATH", &self.path);
        command.args(arguments.split(' ')).output().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_plugin_signatures_are_compatible_with_cosign() {
    let scene = Scene::new().await;
    for (version, kind) in [
        ("1.0.0", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
        ("2.0.0", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
    ] {
        let key = scene.key(&format!("{version}.pem"), kind).await;
        let pinned = scene.pushed(version).await;
        let public = scene.run_plugin(&format!("keys public --key {key}")).await;
        let public = public.success().unwrap();
        assert_eq!(
            public,
            scene
                .cosign(&format!("public-key --key {key}"))
                .await
                .success()
                .unwrap()
        );
        fs_err::write(scene.bench.folder().join("release.pub"), public).unwrap();
        let by_cosign =
            "--insecure-ignore-tlog=true --trusted-root root.json --allow-http-registry";

        // This project signs in both formats. Each signature is stored once.
        for form in ["legacy", "legacy", "bundle", "bundle"] {
            let signed = scene
                .run_plugin(&format!("sign {pinned} --key {key} --format {form}"))
                .await;
            signed.success().unwrap();
            for key in [&*key, "release.pub"] {
                let line = format!("verify --key {key} {by_cosign} {pinned}");
                let claims = scene.cosign(&line).await.success().unwrap();
                assert!(claims.contains(version), "{claims}");
            }
        }
        let report = scene
            .run_plugin(&format!("verify {pinned} --key {key} -o json"))
            .await;
        let report: serde_json::Value = serde_json::from_str(&report.success().unwrap()).unwrap();
        assert_eq!(report["signaturesFound"], 2, "{report}");

        // cosign signs with the same KMS plugin.
        let pinned = scene.pushed(&version.replace(".0.0", ".1.0")).await;
        let line = format!(
            "sign --key {key} --use-signing-config=false --tlog-upload=false -y --allow-http-registry {pinned}"
        );
        scene.cosign(&line).await.success().unwrap();
        for key in [&*key, "release.pub"] {
            let verified = scene
                .run_plugin(&format!("verify {pinned} --key {key}"))
                .await;
            verified.success().unwrap();
        }

        // A file is signed by its digest, and attested.
        fs_err::write(scene.bench.folder().join("file"), version).unwrap();
        let line = format!("sign file --bundle file.json --force --key {key}");
        scene.run_plugin(&line).await.success().unwrap();
        let line = format!(
            "verify-blob file --bundle file.json --key {key} --insecure-ignore-tlog=true --trusted-root root.json"
        );
        scene.cosign(&line).await.success().unwrap();
        fs_err::write(
            scene.bench.folder().join("predicate.json"),
            "{\"tested\": true}",
        )
        .unwrap();
        let line = format!(
            "attest {pinned} --type https://example.com/tested/v1 --predicate predicate.json --key {key}"
        );
        scene.run_plugin(&line).await.success().unwrap();
        let line = format!(
            "verify-attestation --type https://example.com/tested/v1 --key {key} {by_cosign} {pinned}"
        );
        scene.cosign(&line).await.success().unwrap();

        let other = scene.key("other.pem", kind).await;
        let refused = scene
            .run_plugin(&format!("verify {pinned} --key {other}"))
            .await;
        refused.failure(3).unwrap();
    }
    // The command reports the message of the KMS plugin.
    let nowhere = scene
        .run_plugin("keys public --key files:///no/such/key")
        .await;
    let reported = nowhere.failure(1).unwrap();
    assert!(reported.contains("no such file or directory"), "{reported}");
}
