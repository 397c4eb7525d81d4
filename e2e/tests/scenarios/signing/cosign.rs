//! Compatibility with real cosign 3: each program reads the keys and verifies the signatures of the
//! other program. No program accepts an attestation as a signature.

use std::path::PathBuf;

use e2e::webhook::SharedCluster;
use e2e::{Output, Tool, bundles};

/// Both programs with the same registry, folder and password.
struct Bench {
    cluster: SharedCluster,
    folder: PathBuf,
}

impl Bench {
    async fn new(name: &str) -> Self {
        let cluster = e2e::webhook::shared().await.unwrap();
        let folder = cluster.folder().join(name);
        fs_err::create_dir_all(&folder).unwrap();
        let bench = Self { cluster, folder };
        // The trust root is empty. Verification with a key needs no trust root, and cosign must not
        // download one.
        bench
            .cosign("trusted-root create --out root.json")
            .await
            .success()
            .unwrap();
        bench
    }

    async fn run_plugin(&self, arguments: &str) -> Output {
        let plugin = self.cluster.plugin().await.unwrap();
        plugin
            .args(arguments.split(' '))
            .env("BUNDLE_PASSWORD", "fixture")
            .current_dir(&self.folder)
            .output()
            .await
            .unwrap()
    }

    async fn cosign(&self, arguments: &str) -> Output {
        let cosign = self.cluster.tool(Tool::Cosign3).await.unwrap();
        cosign
            .args(arguments.split(' '))
            .env("COSIGN_PASSWORD", "fixture")
            .current_dir(&self.folder)
            .output()
            .await
            .unwrap()
    }

    async fn cosign_verifies(&self, key: &str, reference: &str) -> Output {
        self.cosign(&format!(
            "verify --key {key} --insecure-ignore-tlog=true --trusted-root root.json --allow-http-registry {reference}"
        ))
        .await
    }

    async fn cosign_writes(&self, verb: &str, key: &str, reference: &str) {
        self.cosign(&format!(
            "{verb} --key {key} --use-signing-config=false --tlog-upload=false -y --allow-http-registry {reference}"
        ))
        .await
        .success()
        .unwrap();
    }

    /// Pushes a bundle, and returns its pinned reference.
    async fn pushed(&self, version: &str) -> String {
        bundles::greeting(&self.folder.join(version), version, None).unwrap();
        let name = self.folder.file_name().unwrap().to_string_lossy();
        let reference = self
            .cluster
            .registry(0)
            .unwrap()
            .reference(&format!("{name}/greeting:{version}"));
        let pinned = self
            .run_plugin(&format!("push {version} {reference}"))
            .await
            .success()
            .unwrap();
        assert!(pinned.contains("@sha256:"), "{pinned}");
        pinned
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cosign_verifies_signatures_of_the_plugin() {
    let bench = Bench::new("cosign-reads").await;
    for kind in ["p256", "ed25519"] {
        bench
            .run_plugin(&format!(
                "keys generate --output-key-prefix {kind} --type {kind}"
            ))
            .await
            .success()
            .unwrap();
    }
    for (kind, other, version) in [("p256", "ed25519", "1.0.0"), ("ed25519", "p256", "2.0.0")] {
        let pinned = bench.pushed(version).await;
        bench
            .run_plugin(&format!("sign {pinned} --key {kind}.key"))
            .await
            .success()
            .unwrap();
        let claims = bench
            .cosign_verifies(&format!("{kind}.pub"), &pinned)
            .await
            .success()
            .unwrap();
        // The signed statement contains the version.
        assert!(claims.contains(version), "{claims}");
        let refused = bench
            .cosign_verifies(&format!("{other}.pub"), &pinned)
            .await;
        assert!(!refused.is_success(), "{refused}");
        let refused = bench
            .run_plugin(&format!("verify {pinned} --key {other}.pub"))
            .await
            .failure(3)
            .unwrap();
        assert!(
            refused.contains("one by another key (key hint "),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verifies_signatures_of_cosign() {
    let bench = Bench::new("cosign-writes").await;
    bench.cosign("generate-key-pair").await.success().unwrap();
    bench
        .run_plugin("keys generate --output-key-prefix ours")
        .await
        .success()
        .unwrap();

    // The signatures of both programs are stored side by side, in any order.
    let pinned = bench.pushed("1.0.0").await;
    bench.cosign_writes("sign", "cosign.key", &pinned).await;
    bench
        .run_plugin(&format!("sign {pinned} --key ours.key"))
        .await
        .success()
        .unwrap();
    for key in ["cosign.pub", "ours.pub"] {
        bench
            .run_plugin(&format!("verify {pinned} --key {key}"))
            .await
            .success()
            .unwrap();
        bench.cosign_verifies(key, &pinned).await.success().unwrap();
    }

    // Each program reads the key file of the other program.
    let pinned = bench.pushed("2.0.0").await;
    bench
        .run_plugin(&format!("sign {pinned} --key cosign.key"))
        .await
        .success()
        .unwrap();
    bench.cosign_writes("sign", "ours.key", &pinned).await;
    for key in ["cosign.pub", "ours.pub"] {
        bench
            .run_plugin(&format!("verify {pinned} --key {key}"))
            .await
            .success()
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attestation_by_the_right_key_is_no_signature() {
    let bench = Bench::new("cosign-attests").await;
    bench.cosign("generate-key-pair").await.success().unwrap();
    fs_err::write(bench.folder.join("predicate.json"), "{\"tested\": true}").unwrap();
    let pinned = bench.pushed("1.0.0").await;
    let verify = format!("verify {pinned} --key cosign.pub");
    let refused = bench.run_plugin(&verify).await.failure(3).unwrap();
    assert!(
        refused.contains("the registry has no signature for this digest"),
        "{refused}"
    );
    bench
        .cosign_writes(
            "attest --predicate predicate.json --type https://example.com/tested/v1",
            "cosign.key",
            &pinned,
        )
        .await;
    let refused = bench.run_plugin(&verify).await.failure(3).unwrap();
    assert!(
        refused.contains("one of an attestation (https://example.com/tested/v1)"),
        "{refused}"
    );
}
