//! Signatures that real cosign 2 and 3 create with keys and with certificates, at registries with
//! and without the referrers API. `verify` and `policy test` verify these signatures.
//! `bundle-trust` has tables of forgeries.

use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::sigstore::{PERSON_ISSUER, Sigstore, WORKFLOW, WORKFLOW_ISSUER, person, workflow};
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles};
use serde_json::Value;

/// Version of cosign, and the format that this version writes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cosign {
    /// cosign 2: a layer of an image, with evidence in annotations.
    Two,
    /// cosign 3: a Sigstore bundle.
    Three,
}

/// Location of a signature.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SignatureLocation {
    /// Referrers API. cosign 2 needs a flag (`--registry-referrers-mode oci-1-1`). cosign 3 always
    /// uses the referrers API.
    Api,
    /// A tag: `sha256-….sig` for cosign 2, and for cosign 3 the fallback tag `sha256-…` of a
    /// registry without the referrers API.
    Tag,
}

struct Scene {
    bench: ToolEnvironment,
    sigstore: Sigstore,
    with_api: Registry,
    without_api: Registry,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let terms = RegistryOptions {
            program: RegistryProgram::WithReferrers,
            ..RegistryOptions::default()
        };
        bundles::greeting(&bench.folder().join("bundle"), "1.0.0", None).unwrap();
        Self {
            with_api: bench.registry_with(terms).await.unwrap(),
            without_api: bench.registry().await.unwrap(),
            sigstore: bench.sigstore().await.unwrap(),
            bench,
        }
    }

    async fn pushed(&self, place: SignatureLocation, name: &str) -> String {
        let registry = match place {
            SignatureLocation::Api => &self.with_api,
            SignatureLocation::Tag => &self.without_api,
        };
        let reference = registry.reference(&format!("{name}:1.0.0"));
        let pushed = self.run_plugin(&format!("push bundle {reference}")).await;
        pushed.success().unwrap().trim().to_owned()
    }

    async fn run_plugin(&self, arguments: &str) -> Output {
        self.bench.run_plugin(arguments).await.unwrap()
    }

    async fn verify(&self, pinned: &str, identity: &str, issuer: &str, more: &str) -> Output {
        let root = self.sigstore.trusted_root().display().to_string();
        self.run_plugin(&format!(
            "verify {pinned} --certificate-identity {identity} --certificate-oidc-issuer {issuer} --trusted-root {root}{more}"
        ))
        .await
    }

    async fn cosign(&self, tool: Tool, arguments: &str) {
        let cosign = self.bench.tool(tool).await.unwrap();
        let environment = match tool {
            Tool::Cosign2 => self.sigstore.cosign2_environment().to_vec(),
            _ => Vec::new(),
        };
        environment
            .into_iter()
            .fold(cosign, |cosign, (name, path)| cosign.env(name, path))
            .env("COSIGN_PASSWORD", "fixture")
            .env("COSIGN_EXPERIMENTAL", "1")
            .args(arguments.split(' '))
            .output()
            .await
            .unwrap()
            .success()
            .unwrap();
    }

    /// Signs with a certificate for these claims. Without claims, signs with the key `cosign.key`.
    async fn sign(
        &self,
        cosign: Cosign,
        place: SignatureLocation,
        claims: Option<&Value>,
        pinned: &str,
    ) {
        let url = self.sigstore.url();
        let who = match claims {
            Some(claims) => {
                let token = self.sigstore.token_file(claims).await.unwrap();
                format!("--identity-token {}", token.display())
            }
            None => "--key cosign.key".to_owned(),
        };
        let (tool, how) = match (cosign, claims) {
            (Cosign::Two, Some(_)) => (
                Tool::Cosign2,
                format!("--fulcio-url {url} --rekor-url {url}"),
            ),
            (Cosign::Two, None) => (Tool::Cosign2, "--tlog-upload=false".to_owned()),
            (Cosign::Three, Some(_)) => (
                Tool::Cosign3,
                format!(
                    "--signing-config {} --trusted-root {}",
                    self.sigstore.signing_config().display(),
                    self.sigstore.trusted_root().display()
                ),
            ),
            (Cosign::Three, None) => (
                Tool::Cosign3,
                "--use-signing-config=false --tlog-upload=false".to_owned(),
            ),
        };
        let mode = match (cosign, place) {
            (Cosign::Two, SignatureLocation::Api) => " --registry-referrers-mode oci-1-1",
            _ => "",
        };
        self.cosign(
            tool,
            &format!("sign {who} {how} -y --allow-http-registry{mode} {pinned}"),
        )
        .await;
    }

    /// Returns two values: `true` if the referrers API lists referrers of the content, and the tags
    /// whose names begin with the digest of the content.
    async fn signature_locations(&self, pinned: &str) -> (bool, Vec<String>) {
        let (name, digest) = pinned.split_once('@').unwrap();
        let (host, repository) = name.split_once('/').unwrap();
        let repository = repository.split(':').next().unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let read = async |path: &str| -> Value {
            let url = format!("http://{host}/v2/{repository}/{path}");
            let answer = client.get(url).send().await.unwrap();
            let text = answer.text().await.unwrap();
            serde_json::from_str(&text).unwrap_or_default()
        };
        let referrers = read(&format!("referrers/{digest}")).await;
        let tags = read("tags/list").await;
        let tags = tags["tags"].as_array().unwrap();
        let tags = tags.iter().filter_map(Value::as_str);
        (
            referrers["manifests"]
                .as_array()
                .is_some_and(|list| !list.is_empty()),
            tags.filter(|tag| tag.starts_with("sha256-"))
                .map(ToOwned::to_owned)
                .collect(),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verifies_each_cosign_version_signer_and_location() {
    let mut scene = Scene::new().await;
    scene.cosign(Tool::Cosign2, "generate-key-pair").await;
    scene
        .run_plugin("keys generate --output-key-prefix other")
        .await
        .success()
        .unwrap();
    let mut cells = Vec::new();
    for cosign in [Cosign::Two, Cosign::Three] {
        for place in [SignatureLocation::Api, SignatureLocation::Tag] {
            for claims in [None, Some(workflow())] {
                let name = format!(
                    "{cosign:?}-{place:?}-{}",
                    if claims.is_some() { "keyless" } else { "key" }
                )
                .to_lowercase();
                let pinned = scene.pushed(place, &name).await;
                scene.sign(cosign, place, claims.as_ref(), &pinned).await;
                let (by_api, tags) = scene.signature_locations(&pinned).await;
                assert_eq!(by_api, place == SignatureLocation::Api, "{name}");
                let expected: &[&str] = match (place, cosign) {
                    (SignatureLocation::Api, _) => &[],
                    (SignatureLocation::Tag, Cosign::Two) => &[".sig"],
                    (SignatureLocation::Tag, Cosign::Three) => &[""],
                };
                let digest = pinned.split_once('@').unwrap().1.replace(':', "-");
                let expected: Vec<_> = expected
                    .iter()
                    .map(|end| format!("{digest}{end}"))
                    .collect();
                assert_eq!(tags, expected, "{name}");
                cells.push((name, claims.is_some(), pinned));
            }
        }
    }
    assert_eq!(cells.len(), 8);
    // The Sigstore instance is stopped: verification must send requests only to the registry.
    scene.sigstore.kill().unwrap();
    for (name, keyless, pinned) in &cells {
        let accepted = if *keyless {
            scene
                .verify(pinned, WORKFLOW, WORKFLOW_ISSUER, " -o json")
                .await
        } else {
            scene
                .run_plugin(&format!("verify {pinned} --key cosign.pub -o json"))
                .await
        };
        let report: Value = serde_json::from_str(&accepted.success().unwrap()).unwrap();
        assert_eq!(report["signaturesFound"], 1, "{name}: {report}");
        if !keyless {
            let refused = scene
                .run_plugin(&format!("verify {pinned} --key other.pub"))
                .await;
            let why = refused.failure(3).unwrap();
            assert!(why.contains("BUNDLE-TRUST-002"), "{name}: {why}");
            continue;
        }
        assert_eq!(report["signedBy"][0]["identity"]["subject"], WORKFLOW);
        let star = WORKFLOW.replace("v1.0.0", "*");
        let upper = WORKFLOW.replace("github", "GitHub");
        for (identity, issuer) in [
            (WORKFLOW, PERSON_ISSUER),
            (WORKFLOW, "https://token.actions.githubusercontent.com/"),
            (&WORKFLOW[..WORKFLOW.len() - 1], WORKFLOW_ISSUER),
            (&upper, WORKFLOW_ISSUER),
            (&star, WORKFLOW_ISSUER),
            ("*", WORKFLOW_ISSUER),
        ] {
            let refused = scene.verify(pinned, identity, issuer, "").await;
            let why = refused.failure(3).unwrap();
            assert!(
                why.contains("by another identity (subject"),
                "{name}: {why}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_both_cosigns_verify_by_identity_and_by_policy() {
    let mut scene = Scene::new().await;
    let pinned = scene.pushed(SignatureLocation::Tag, "both").await;
    let unsigned = scene.verify(&pinned, WORKFLOW, WORKFLOW_ISSUER, "").await;
    let why = unsigned.failure(3).unwrap();
    assert!(why.contains("BUNDLE-TRUST-001"), "{why}");

    let ana = person("ana@example.com");
    scene
        .sign(Cosign::Three, SignatureLocation::Tag, Some(&ana), &pinned)
        .await;
    scene
        .sign(
            Cosign::Two,
            SignatureLocation::Tag,
            Some(&workflow()),
            &pinned,
        )
        .await;
    // The Sigstore instance is stopped: verification must send requests only to the registry.
    scene.sigstore.kill().unwrap();

    let people = scene
        .verify(&pinned, "ana@example.com", PERSON_ISSUER, " -o json")
        .await;
    let report: Value = serde_json::from_str(&people.success().unwrap()).unwrap();
    assert_eq!(report["signaturesFound"], 2);
    assert_eq!(
        report["signedBy"][0]["identity"]["subject"],
        "ana@example.com"
    );
    assert_eq!(report["signedBy"][0]["signedAt"]["source"], "log");
    let workflows = scene
        .verify(&pinned, WORKFLOW, WORKFLOW_ISSUER, " --offline")
        .await;
    let table = workflows.success().unwrap();
    assert!(
        table.contains(WORKFLOW) && table.contains("(log)"),
        "{table}"
    );

    for (identity, issuer) in [
        ("ana@example.co", PERSON_ISSUER),
        ("Ana@example.com", PERSON_ISSUER),
        ("*@example.com", PERSON_ISSUER),
        ("ana@example.com", WORKFLOW_ISSUER),
    ] {
        let refused = scene.verify(&pinned, identity, issuer, "").await;
        let why = refused.failure(3).unwrap();
        assert!(why.contains("by another identity (subject"), "{why}");
    }
    // Verification with the trust root of the public instance fails.
    let public = scene
        .run_plugin(&format!(
            "verify {pinned} --certificate-identity ana@example.com --certificate-oidc-issuer {PERSON_ISSUER}"
        ))
        .await;
    let why = public.failure(3).unwrap();
    assert!(why.contains("an untrusted log"), "{why}");

    let root = fs_err::read_to_string(scene.sigstore.trusted_root()).unwrap();
    let root: Value = serde_json::from_str(&root).unwrap();
    let policy = |name: &str, subject: &str, issuer: &str, threshold: u32| {
        serde_json::json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "SignaturePolicy",
            "metadata": {"name": name},
            "spec": {
                "images": [{"glob": "**"}],
                "threshold": threshold,
                "authorities": [
                    {"name": "named", "keyless": {
                        "identities": [{"issuer": issuer, "subject": subject}],
                        "trustRoot": {"configMapRef": {"name": "our-root"}},
                    }},
                    {"name": "any", "keyless": {
                        "identities": [{"issuerRegExp": "https://.*", "subjectRegExp": ".*"}],
                        "trustRoot": {"configMapRef": {"name": "our-root"}},
                    }},
                ],
            },
        })
        .to_string()
    };
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "our-root"},
        "data": {"trusted_root.json": root.to_string()},
    });
    let file = scene.bench.folder().join("policies.yaml");
    let write = |policy: &str| fs_err::write(&file, format!("{policy}\n---\n{map}\n")).unwrap();
    let test = format!("policy test policies.yaml --image {pinned}");

    write(&policy("both", WORKFLOW, WORKFLOW_ISSUER, 2));
    let table = scene.run_plugin(&test).await.success().unwrap();
    assert!(table.contains("satisfied"), "{table}");
    write(&policy("nobody", "eve@example.com", PERSON_ISSUER, 2));
    let refused = scene.run_plugin(&test).await.failure(3).unwrap();
    assert!(
        refused.contains("signatures by 2 different signers"),
        "{refused}"
    );
}
