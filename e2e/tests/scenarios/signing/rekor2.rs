//! Real Rekor v2 log: the plugin verifies entries of cosign 3, and cosign 3 verifies entries of the
//! plugin. A failed request leaves no partial signature. `bundle-trust` has tables of forgeries;
//! `keyless` and `images` test Rekor v1.

use e2e::host::command::Command;
use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::sigstore::{
    PERSON_ISSUER, Sigstore, TiledLog, WORKFLOW, WORKFLOW_ISSUER, person, workflow,
};
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct Scene {
    bench: ToolEnvironment,
    sigstore: Sigstore,
    log: TiledLog,
    registry: Registry,
    pinned: String,
}

impl Scene {
    async fn new(program: RegistryProgram) -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let terms = RegistryOptions {
            program,
            ..RegistryOptions::default()
        };
        let sigstore = bench.sigstore().await.unwrap();
        let mut scene = Self {
            log: bench.tiled_log(&sigstore).await.unwrap(),
            registry: bench.registry_with(terms).await.unwrap(),
            sigstore,
            pinned: String::new(),
            bench,
        };
        bundles::greeting(&scene.bench.folder().join("bundle"), "1.0.0", None).unwrap();
        let reference = scene.registry.reference("greeting:1.0.0");
        let pushed = scene.run_plugin(&format!("push bundle {reference}")).await;
        pushed
            .success()
            .unwrap()
            .trim()
            .clone_into(&mut scene.pinned);
        scene
    }

    async fn run_plugin(&self, arguments: &str) -> Output {
        let plugin = self.bench.plugin().await.unwrap();
        plugin.args(arguments.split(' ')).output().await.unwrap()
    }

    async fn cosign(&self, arguments: &str) -> Output {
        let cosign = self.bench.tool(Tool::Cosign3).await.unwrap();
        cosign.args(arguments.split(' ')).output().await.unwrap()
    }

    async fn conformance(&self, arguments: &str) -> Output {
        let program = Command::new(env!("CARGO_BIN_EXE_conformance"));
        let program = self.bench.clean(program).args(arguments.split(' '));
        program.output().await.unwrap()
    }

    /// Returns the flags of both programs for the signer and the services.
    async fn services(&self, claims: &Value) -> String {
        let token = self.sigstore.token_file(claims).await.unwrap();
        format!(
            "--identity-token {} --signing-config {} --trusted-root {}",
            token.display(),
            self.log.signing_config().display(),
            self.root()
        )
    }

    fn root(&self) -> String {
        self.log.trusted_root().display().to_string()
    }

    /// Returns the report of `verify`.
    async fn report(&self, identity: &str, issuer: &str) -> Value {
        let arguments = format!(
            "verify {} --certificate-identity {identity} --certificate-oidc-issuer {issuer} --trusted-root {} -o json",
            self.pinned,
            self.root()
        );
        let report = self.run_plugin(&arguments).await.success().unwrap();
        serde_json::from_str(&report).unwrap()
    }
}

const ANA: &str = "ana@example.com";

async fn both_ways(program: RegistryProgram) {
    let mut scene = Scene::new(program).await;
    let pinned = scene.pinned.clone();
    let services = scene.services(&workflow()).await;
    let signed = format!("sign {services} -y --allow-http-registry {pinned}");
    scene.cosign(&signed).await.success().unwrap();
    let services = scene.services(&person(ANA)).await;
    // The image is signed twice. The second call of `sign` changes nothing.
    for _ in 0..2 {
        let signed = scene.run_plugin(&format!("sign {pinned} {services}")).await;
        signed.success().unwrap();
    }
    // The Sigstore instance and the log are stopped: verification must send requests only to the
    // registry.
    scene.sigstore.kill().unwrap();
    scene.log.kill().unwrap();
    let root = scene.root();
    for (identity, issuer) in [(WORKFLOW, WORKFLOW_ISSUER), (ANA, PERSON_ISSUER)] {
        let report = scene.report(identity, issuer).await;
        assert_eq!(report["signaturesFound"], 2, "{report}");
        let by = &report["signedBy"][0];
        assert_eq!(by["identity"]["subject"], identity);
        assert_eq!(by["signedAt"]["source"], "timestamp-authority");
        let checked = by["checked"].to_string();
        assert!(checked.contains("log proof") && checked.contains("timestamp"));
        assert!(!checked.contains("log promise"), "{checked}");
        let arguments = format!(
            "verify --certificate-identity {identity} --certificate-oidc-issuer {issuer} --trusted-root {root} --allow-http-registry {pinned}"
        );
        scene.cosign(&arguments).await.success().unwrap();
    }
    // The trust root without the Rekor v2 log accepts no signature of this log.
    let without = scene.sigstore.trusted_root().display().to_string();
    let arguments = format!(
        "verify {pinned} --certificate-identity {ANA} --certificate-oidc-issuer {PERSON_ISSUER} --trusted-root {without}"
    );
    let why = scene.run_plugin(&arguments).await.failure(3).unwrap();
    assert!(why.contains("an untrusted log"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rekor_2_entries_are_compatible_with_cosign() {
    both_ways(RegistryProgram::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rekor_2_entries_are_compatible_with_cosign_with_referrers_api() {
    both_ways(RegistryProgram::WithReferrers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rekor_2_file_signatures_are_compatible_with_cosign() {
    let scene = Scene::new(RegistryProgram::Distribution).await;
    fs_err::write(scene.bench.folder().join("artifact"), "hello").unwrap();
    let services = scene.services(&workflow()).await;
    let signed = scene
        .cosign(&format!(
            "sign-blob --bundle theirs.json {services} -y artifact"
        ))
        .await;
    signed.success().unwrap();
    let token = scene.sigstore.token(&workflow()).await.unwrap();
    let (root, config) = (scene.root(), scene.log.signing_config());
    let signed = scene
        .conformance(&format!(
            "sign-bundle --identity-token {token} --bundle ours.json --trusted-root {root} --signing-config {} artifact",
            config.display()
        ))
        .await;
    signed.success().unwrap();
    let who =
        format!("--certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER}");
    for bundle in ["theirs.json", "ours.json"] {
        let text = fs_err::read_to_string(scene.bench.folder().join(bundle)).unwrap();
        assert!(text.contains("0.0.2"), "{bundle}: {text}");
        let with = format!("--bundle {bundle} --trusted-root {root} {who} artifact");
        for held in [
            scene.conformance(&format!("verify-bundle {with}")).await,
            scene.cosign(&format!("verify-blob {with}")).await,
        ] {
            assert!(held.is_success(), "{bundle}: {held}");
        }
    }
}

/// Starts a server that returns `answer` for every request.
async fn always(answer: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = vec![0; 64 * 1024];
            // One read receives the whole request. The content of the request does not matter.
            let _ = stream.read(&mut read).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rekor_2_request_is_reported_and_uploads_nothing() {
    let scene = Scene::new(RegistryProgram::Distribution).await;
    let pinned = &scene.pinned;
    let services = scene.services(&person(ANA)).await;
    let (old, tiles) = (scene.sigstore.url().to_owned(), scene.log.url().to_owned());
    let token = scene.sigstore.token_file(&person(ANA)).await.unwrap();
    let by_flags = format!(
        "--identity-token {} --fulcio-url {old} --trusted-root {}",
        token.display(),
        scene.root()
    );
    let busy =
        always("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .await;
    let broken = always(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\nconnection: close\r\n\r\nlate",
    )
    .await;
    let garbage =
        always("HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>").await;
    let empty = always("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
    let cut =
        always("HTTP/1.1 200 OK\r\ncontent-length: 99\r\nconnection: close\r\n\r\n{\"logIndex\"")
            .await;
    let v2 = |url: &str| format!("{services} --rekor-url {url} --rekor-version 2");
    for (arguments, code, why) in [
        (v2(&busy), 4, "is overloaded or failing (429"),
        (v2(&broken), 4, "is overloaded or failing (503"),
        (v2(&cut), 4, "is unreachable"),
        (
            v2("http://127.0.0.1:1"),
            4,
            "the transparency log at 127.0.0.1 is unreachable",
        ),
        (
            v2(&garbage),
            1,
            "not the JSON of an entry with inclusion proof and checkpoint",
        ),
        (
            v2(&empty),
            1,
            "not the JSON of an entry with inclusion proof and checkpoint",
        ),
        // The configured version is not the version of the log.
        (v2(&old), 1, "--rekor-version"),
        (
            format!("{services} --rekor-url {tiles} --rekor-version 1"),
            1,
            "--rekor-version",
        ),
        (
            format!("{by_flags} --rekor-url {tiles} --rekor-version 2"),
            2,
            "Rekor v2 returns no signing time",
        ),
        (
            format!("{by_flags} --rekor-version 2"),
            2,
            "the transparency log is not set",
        ),
        (
            format!("{services} --rekor-version 2 --format legacy"),
            2,
            "cannot store log entries of Rekor v2",
        ),
        (format!("{services} --rekor-version 3"), 2, "rekor-version"),
    ] {
        let refused = scene
            .run_plugin(&format!("sign {pinned} {arguments}"))
            .await;
        let refused = refused.failure(code).unwrap();
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
    let verify = format!(
        "verify {pinned} --certificate-identity {ANA} --certificate-oidc-issuer {PERSON_ISSUER} --trusted-root {}",
        scene.root()
    );
    let why = scene.run_plugin(&verify).await.failure(3).unwrap();
    assert!(why.contains("has no signature for this digest"), "{why}");

    // All services are set by flags. For the format of cosign 2, the command uses the older log of
    // the same signing config.
    let signed = scene
        .run_plugin(&format!(
            "sign {pinned} {by_flags} --rekor-url {tiles} --rekor-version 2 --timestamp-server-url {old}/api/v1/timestamp"
        ))
        .await;
    signed.success().unwrap();
    let signed = format!("sign {pinned} {services} --format legacy");
    scene.run_plugin(&signed).await.success().unwrap();
    let report = scene.report(ANA, PERSON_ISSUER).await;
    assert_eq!(report["signaturesFound"], 2, "{report}");
    let sources: Vec<_> = report["signedBy"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["signedAt"]["source"].as_str().unwrap())
        .collect();
    assert!(sources.contains(&"timestamp-authority") && sources.contains(&"log"));
}
