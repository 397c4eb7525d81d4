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
        // Hints of keys are random.
        let hints = output
            .split(['"', ' ', ')', ','])
            .filter(|word| word.len() == 44);
        for hint in hints.map(str::to_owned).collect::<Vec<_>>() {
            context.replace(hint, "[KEY]");
        }
    }
    insta::assert_snapshot!(run(&context, &["verify", &web, "--key", "other.pub"]), @"");
    let attested = [
        "verify",
        &web,
        "--key",
        "release.pub",
        "--attestation",
        "spdxjson",
    ];
    insta::assert_snapshot!(run(&context, &attested), @"");
}

#[test]
fn reports_unsupported_private_keys() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.write(
        "rsa.pem",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    );
    insta::assert_snapshot!(run(&context, &["keys", "import", "--key", "rsa.pem"]), @"");
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
    insta::assert_snapshot!(run(&context, &verify), @"");
}

#[test]
fn reports_signing_without_key_and_token() {
    let (context, _registry, web) = pushed();
    insta::assert_snapshot!(run(&context, &["sign", &web]), @"");
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
    insta::assert_snapshot!(run(&context, &init), @"");
    context.write("home/.config/kubectl-bundle/trust.json", "{}");
    insta::assert_snapshot!(run(&context, &["trust", "show"]), @"");
}
