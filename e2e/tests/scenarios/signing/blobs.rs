//! Files with a Sigstore bundle, signed with a key or with a certificate: cosign 3 verifies
//! Sigstore bundles of the plugin, and the plugin verifies Sigstore bundles of cosign.

use e2e::host::command::Command;
use e2e::sigstore::{PERSON_ISSUER, WORKFLOW, WORKFLOW_ISSUER, workflow};
use e2e::{Output, Tool, ToolEnvironment};
use serde_json::Value;

const FILE: &str = "web.tar";

struct Scene {
    bench: ToolEnvironment,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        fs_err::write(bench.folder().join(FILE), "content of a file").unwrap();
        fs_err::write(bench.folder().join("other.tar"), "content of another").unwrap();
        let scene = Self { bench };
        scene.cosign("trusted-root create --out empty.json").await;
        scene
    }

    async fn run_plugin(&self, arguments: &str) -> Output {
        self.bench.run_plugin(arguments).await.unwrap()
    }

    async fn try_cosign(&self, arguments: &str) -> Output {
        self.try_tool(Tool::Cosign3, arguments).await
    }

    async fn try_tool(&self, tool: Tool, arguments: &str) -> Output {
        self.bench.cosign(tool, arguments).await.unwrap()
    }

    async fn cosign(&self, arguments: &str) {
        let output = self.try_cosign(arguments).await;
        output.success().unwrap();
    }

    async fn refused(&self, arguments: &str, why: &str) {
        let refused = self.run_plugin(arguments).await.failure(3).unwrap();
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_signed_with_keys_and_cosign_verifies_them() {
    let scene = Scene::new().await;
    for kind in ["p256", "ed25519"] {
        let generate = format!("keys generate --output-key-prefix {kind} --type {kind}");
        scene.run_plugin(&generate).await.success().unwrap();
        let bundle = format!("{kind}.sigstore.json");
        let sign = format!("sign {FILE} --bundle {bundle} --key {kind}.key");
        let printed = scene.run_plugin(&sign).await.success().unwrap();
        assert_eq!(printed.trim(), bundle);
        let offline = "--insecure-ignore-tlog=true --trusted-root empty.json";
        let cosign = format!("verify-blob --key {kind}.pub --bundle {bundle} {offline}");
        scene.cosign(&format!("{cosign} {FILE}")).await;
        let refused = scene.try_cosign(&format!("{cosign} other.tar")).await;
        assert!(!refused.is_success(), "{refused}");

        // cosign 2 reads the format of cosign 3 only with a flag.
        let cosign2 = format!("{cosign} --new-bundle-format {FILE}");
        let verified = scene.try_tool(Tool::Cosign2, &cosign2).await;
        verified.success().unwrap();

        let theirs = format!("{kind}.cosign.json");
        scene
            .cosign(&format!(
                "sign-blob --key {kind}.key --bundle {theirs} --use-signing-config=false --tlog-upload=false -y {FILE}"
            ))
            .await;
        // cosign 3 does not verify its own Ed25519 signatures without a log.
        let own = format!("verify-blob --key {kind}.pub --bundle {theirs} {offline} {FILE}");
        let own = scene.try_cosign(&own).await;
        assert_eq!(own.is_success(), kind == "p256", "{own}");
        for bundle in [&bundle, &theirs] {
            let verify = |file: &str| format!("verify {file} --bundle {bundle} --key {kind}.pub");
            let report = scene.run_plugin(&format!("{} -o json", verify(FILE))).await;
            let report: Value = serde_json::from_str(&report.success().unwrap()).unwrap();
            assert_eq!(report["verified"], true, "{bundle}");
            // An Ed25519 signature of cosign does not contain the digest of the file.
            let why = if *bundle == "ed25519.cosign.json" {
                "does not verify with it"
            } else {
                "for another digest"
            };
            scene.refused(&verify("other.tar"), why).await;
        }

        // Existing files are overwritten only with a flag.
        let again = scene.run_plugin(&sign).await.failure(1).unwrap();
        assert!(again.contains("--force overwrites it"), "{again}");
        let forced = scene.run_plugin(&format!("{sign} --force")).await;
        forced.success().unwrap();
    }
    let verify = format!("verify {FILE} --bundle p256.sigstore.json --key ed25519.pub");
    scene.refused(&verify, "by another key").await;

    // The file is larger than the memory limit, so it can only be signed by its digest.
    let large = fs_err::File::create(scene.bench.folder().join("large.tar")).unwrap();
    large.set_len(40 << 20).unwrap();
    let sign = "sign large.tar --bundle large.json --key";
    scene
        .run_plugin(&format!("{sign} p256.key"))
        .await
        .success()
        .unwrap();
    scene
        .run_plugin("verify large.tar --bundle large.json --key p256.pub")
        .await
        .success()
        .unwrap();
    let refused = scene
        .run_plugin(&format!("{sign} ed25519.key --force"))
        .await;
    let refused = refused.failure(1).unwrap();
    assert!(refused.contains("too large for the memory"), "{refused}");

    // An attestation of the file that is signed with the right key is not accepted as a signature
    // of the file.
    fs_err::write(scene.bench.folder().join("predicate.json"), "{}").unwrap();
    scene
        .cosign(&format!(
            "attest-blob --key p256.key --bundle attested.json --predicate predicate.json --type https://example.com/kind --use-signing-config=false --tlog-upload=false -y {FILE}"
        ))
        .await;
    let verify = format!("verify {FILE} --bundle attested.json --key p256.pub");
    scene
        .refused(
            &verify,
            "contains an attestation (https://example.com/kind)",
        )
        .await;

    // As an attestation, the bundle is valid. cosign accepts the attestation of the plugin.
    for key in ["p256", "ed25519"] {
        let arguments = format!(
            "attest {FILE} --bundle {key}.attested.json --predicate predicate.json --type https://example.com/kind --key {key}.key"
        );
        scene.run_plugin(&arguments).await.success().unwrap();
        scene
            .cosign(&format!(
                "verify-blob-attestation --key {key}.pub --bundle {key}.attested.json --type https://example.com/kind --insecure-ignore-tlog=true --trusted-root empty.json {FILE}"
            ))
            .await;
    }
    for (bundle, kind, file, why) in [
        ("attested", "https://example.com/kind", FILE, None),
        ("p256.attested", "https://example.com/kind", FILE, None),
        (
            "p256.attested",
            "https://example.com/kind",
            "other.tar",
            Some("for another digest"),
        ),
        (
            "p256.attested",
            "spdxjson",
            FILE,
            Some("of type https://example.com/kind"),
        ),
        (
            "p256.sigstore",
            "https://example.com/kind",
            FILE,
            Some("a signature and not an attestation"),
        ),
        (
            "ed25519.attested",
            "https://example.com/kind",
            FILE,
            Some("by another key"),
        ),
    ] {
        let verify =
            format!("verify {file} --bundle {bundle}.json --attestation {kind} --key p256.pub");
        match why {
            None => drop(scene.run_plugin(&verify).await.success().unwrap()),
            Some(why) => scene.refused(&verify, why).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_signed_by_certificate_and_cosign_verifies_them() {
    let scene = Scene::new().await;
    let sigstore = scene.bench.sigstore().await.unwrap();
    let token = sigstore.token_file(&workflow()).await.unwrap();
    let services = format!(
        "--identity-token {} --signing-config {} --trusted-root {}",
        token.display(),
        sigstore.signing_config().display(),
        sigstore.trusted_root().display()
    );
    let root = sigstore.trusted_root().display().to_string();
    let who = |issuer: &str| {
        format!(
            "--certificate-identity {WORKFLOW} --certificate-oidc-issuer {issuer} --trusted-root {root}"
        )
    };
    let sign = format!("sign {FILE} --bundle ours.json {services}");
    scene.run_plugin(&sign).await.success().unwrap();
    let sign = format!("sign-blob --bundle theirs.json {services} -y {FILE}");
    scene.cosign(&sign).await;
    for bundle in ["ours.json", "theirs.json"] {
        let verify =
            |file: &str, issuer: &str| format!("verify {file} --bundle {bundle} {}", who(issuer));
        let report = scene
            .run_plugin(&format!("{} -o json", verify(FILE, WORKFLOW_ISSUER)))
            .await;
        let report: Value = serde_json::from_str(&report.success().unwrap()).unwrap();
        let signer = &report["signedBy"][0];
        assert_eq!(signer["identity"]["subject"], WORKFLOW, "{bundle}");
        assert_eq!(signer["signedAt"]["source"], "log", "{bundle}");
        scene
            .refused(&verify("other.tar", WORKFLOW_ISSUER), "BUNDLE-TRUST-002")
            .await;
        scene
            .refused(&verify(FILE, PERSON_ISSUER), "by another identity")
            .await;
    }
    let verify = format!(
        "verify-blob --bundle ours.json {} {FILE}",
        who(WORKFLOW_ISSUER)
    );
    scene.cosign(&verify).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openssl_keys_are_imported_and_exported() {
    let scene = Scene::new().await;
    let openssl = async |arguments: &str| {
        let program = scene.bench.clean(Command::new("openssl"));
        let output = program.args(arguments.split(' ')).output().await.unwrap();
        output.success().unwrap()
    };
    for (name, make) in [
        (
            "pkcs8",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out pkcs8.pem",
        ),
        ("sec1", "ecparam -name prime256v1 -genkey -out sec1.pem"),
        ("ed25519", "genpkey -algorithm ed25519 -out ed25519.pem"),
    ] {
        openssl(make).await;
        let import = format!("keys import --key {name}.pem --output-key-prefix {name}");
        scene.run_plugin(&import).await.success().unwrap();
        openssl(&format!("pkey -in {name}.pem -pubout -out {name}.expected")).await;
        let read = |file: String| fs_err::read_to_string(scene.bench.folder().join(file)).unwrap();
        assert_eq!(
            read(format!("{name}.pub")),
            read(format!("{name}.expected"))
        );
        // cosign reads the imported key.
        scene
            .cosign(&format!(
                "sign-blob --key {name}.key --bundle {name}.json --use-signing-config=false --tlog-upload=false -y {FILE}"
            ))
            .await;
        let verify = format!("verify {FILE} --bundle {name}.json --key {name}.pub");
        scene.run_plugin(&verify).await.success().unwrap();

        let export =
            format!("keys export --key {name}.key --unencrypted-private-key --to {name}.out");
        scene.run_plugin(&export).await.success().unwrap();
        let public = openssl(&format!("pkey -in {name}.out -pubout")).await;
        assert_eq!(public.trim(), read(format!("{name}.pub")).trim());
    }
    for (make, why) in [
        ("ecparam -name secp384r1 -genkey -out other.pem", "P-256"),
        ("genpkey -algorithm RSA -out other.pem", "RSA"),
        (
            "pkcs8 -topk8 -in pkcs8.pem -passout pass:x -out other.pem",
            "openssl pkey",
        ),
    ] {
        openssl(make).await;
        let import = "keys import --key other.pem --output-key-prefix other";
        let refused = scene.run_plugin(import).await.failure(1).unwrap();
        assert!(refused.contains(why), "{make}: {refused}");
    }
}
