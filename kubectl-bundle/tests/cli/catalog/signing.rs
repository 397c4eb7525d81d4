//! Messages about keys, signatures, trust roots and signing services.

use super::diagnostics;
use crate::context::Context;

fn run(context: &Context, arguments: &[&str]) -> String {
    diagnostics(&context.run(arguments))
}

/// Returns a context with a pushed bundle and two key pairs, and the reference of the bundle.
fn pushed() -> (Context, bundle_testkit::registry::Registry, String) {
    let mut context = Context::new()
        .with_bundle()
        .with("BUNDLE_PASSWORD", "secret");
    for prefix in ["release", "other"] {
        context.stdout(&["keys", "generate", "-q", "--output-key-prefix", prefix]);
    }
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web]);
    (context, registry, web)
}

#[test]
fn reports_signatures_and_attestations_that_are_not_accepted() {
    let (mut context, _registry, web) = pushed();
    context.stdout(&["sign", &web, "--key", "release.key"]);
    for key in ["release", "other"] {
        let public = format!("{key}.pub");
        let output = context.run(&["verify", &web, "--key", &public, "-o", "json"]);
        // Key hints are random, so they are replaced by `[KEY]`.
        let hints = output
            .split(['"', ' ', ')', ','])
            .filter(|word| word.len() == 44);
        for hint in hints.map(str::to_owned).collect::<Vec<_>>() {
            context.replace(hint, "[KEY]");
        }
    }
    insta::assert_snapshot!(run(&context, &["verify", &web, "--key", "other.pub"]), @r"
    error: [REGISTRY]/team/web@sha256:4cc7e585...: not signed by the given key (key hint [KEY]): the registry has 1 signature: one by another key (key hint [KEY]) [BUNDLE-TRUST-002]
      hint: pass the public key of its signer, or sign it: kubectl bundle sign --key KEY [REGISTRY]/team/web@sha256:4cc7e585...
    ");
    let attested = [
        "verify",
        &web,
        "--key",
        "release.pub",
        "--attestation",
        "spdxjson",
    ];
    insta::assert_snapshot!(run(&context, &attested), @r"
    error: [REGISTRY]/team/web@sha256:4cc7e585...: no attestation with predicate type https://spdx.dev/Document by the given key (key hint [KEY]): the registry has 1 signature: one of the image, not of an attestation, by key (key hint [KEY]) [BUNDLE-TRUST-013]
      hint: attest it: kubectl bundle attest [REGISTRY]/team/web@sha256:4cc7e585... --type https://spdx.dev/Document --predicate FILE
    ");
}

#[test]
fn reports_unsupported_private_keys() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.write(
        "rsa.pem",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    );
    insta::assert_snapshot!(run(&context, &["keys", "import", "--key", "rsa.pem"]), @r"
    error: rsa.pem: the private key is not supported: signing keys are ECDSA P-256 or Ed25519 [BUNDLE-TRUST-009]
      hint: generate a key: kubectl bundle keys generate
    ");
}

#[test]
fn reports_an_invalid_trust_root() {
    let context = Context::new();
    context.write("root.json", "{}");
    let verify = [
        "verify",
        "registry.example.com/web:1.4.0",
        "--certificate-identity",
        "ana@example.com",
        "--certificate-oidc-issuer",
        "https://issuer.example.com",
        "--trusted-root",
        "root.json",
    ];
    insta::assert_snapshot!(run(&context, &verify), @r"
    error: root.json: invalid trust root: invalid JSON: missing field `mediaType` [BUNDLE-TRUST-014]
      hint: a trust root is the JSON of a trusted_root.json, as `cosign trusted-root create` writes it
    ");
}

#[test]
fn reports_signing_without_key_and_token() {
    let (context, _registry, web) = pushed();
    insta::assert_snapshot!(run(&context, &["sign", &web]), @r"
    error: neither a key nor an identity token is available for signing [BUNDLE-TRUST-020]
      hint: set --key or --identity-token, or log in with --fulcio-auth-flow normal or device; in CI, set SIGSTORE_ID_TOKEN or allow the job to request a token (GitHub Actions: permissions: id-token: write)
    ");
}

#[test]
fn reports_invalid_settings_and_metadata_of_tuf_repositories() {
    let context = Context::new();
    context.write("root.json", "{}");
    let init = [
        "trust",
        "init",
        "--mirror",
        "http://127.0.0.1:9",
        "--root",
        "root.json",
    ];
    insta::assert_snapshot!(run(&context, &init), @r"
    error: the metadata of the TUF repository at 127.0.0.1 is invalid [BUNDLE-TRUST-053]
      hint: the metadata is not used; check that the --root of `trust init` belongs to this repository
    ");
    context.write("home/.config/kubectl-bundle/trust.json", "{}");
    insta::assert_snapshot!(run(&context, &["trust", "show"]), @r"
    error: [DIR]/home/.config/kubectl-bundle/trust.json: the settings of `trust init` are invalid [BUNDLE-TRUST-054]
      hint: run `kubectl bundle trust reset`, and `trust init` again
    ");
}

#[test]
fn reports_annotations_above_the_limit() {
    let (context, registry, _) = pushed();
    let manifest = registry.manifest("team/web", "1.4.0").unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let version = format!("1.4.0-{}", "x".repeat(5_000));
    manifest["annotations"]["org.opencontainers.image.version"] = version.into();
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let changed = manifest.to_string();
    registry.put_manifest("team/web", "long", media_type, changed.as_bytes());
    let long = registry.reference("team/web:long");
    insta::assert_snapshot!(run(&context, &["sign", &long, "--key", "release.key"]), @r"
    error: [REGISTRY]/team/web@sha256:69b64238...: 2 annotations with 5020 bytes exceed the limit of 32 annotations with 4096 bytes [BUNDLE-TRUST-012]
      hint: use fewer or shorter annotations
    ");
}

#[test]
fn reports_an_unreachable_issuer() {
    let (context, _registry, web) = pushed();
    let sign = [
        "sign",
        &web,
        "--fulcio-auth-flow",
        "device",
        "--oidc-issuer",
        "http://127.0.0.1:9",
    ];
    insta::assert_snapshot!(run(&context, &sign), @r"
    error: the issuer of identity tokens at 127.0.0.1 is unreachable [BUNDLE-TRUST-022]
      hint: nothing was stored; try again
    ");
}
