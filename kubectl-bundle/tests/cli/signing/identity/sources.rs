//! Tests of the sources of identity tokens: flags, the environment, or a CI system.

use std::process::Stdio;

use serde_json::{Value, json};

use super::service::{Service, token};
use crate::context::Context;

/// A bundle in a registry, and a service that acts as CI system and as certificate authority. The
/// certificate authority rejects every request, and the error contains the request.
struct SigningFixture {
    context: Context,
    service: Service,
    reference: String,
    // The registry runs until this field is dropped.
    _registry: bundle_testkit::registry::Registry,
}

/// Token with which a job authenticates to the CI system.
const CI_TOKEN: &str = "agent-secret-0123456789";

impl SigningFixture {
    fn new() -> Self {
        let mut context = Context::new().with_bundle();
        let registry = context.registry();
        let reference = registry.reference("team/web:1.4.0");
        context.stdout(&["push", "web", &reference]);
        let service = Service::start(&mut context);
        let there = token("https://issuer.example.com", &Value::Null);
        service.answer(move |asked| match asked.path.as_str() {
            "/api/v2/signingCert" => {
                let why = format!("no: {} {} {CI_TOKEN}", asked.body, asked.authorization);
                (403, json!({ "message": why }))
            }
            "/github?api=1&audience=sigstore" => (200, json!({ "value": there })),
            "/v3/jobs/job%2F1/oidc/tokens" => (200, json!({ "token": there })),
            _ => (
                401,
                json!({ "message": format!("{} is wrong", asked.authorization) }),
            ),
        });
        Self {
            context,
            service,
            reference,
            _registry: registry,
        }
    }

    /// Signs with these variables and returns the output.
    fn sign(&self, more: &[&str], variables: &[(&str, &str)], stdin: Option<&str>) -> String {
        let mut line = vec!["sign", &self.reference, "-v"];
        line.extend(["--fulcio-url", &self.service.url]);
        line.extend(["--rekor-url", &self.service.url]);
        line.extend(more);
        let mut command = self.context.command(&line);
        command.envs(variables.iter().copied());
        if let Some(path) = stdin {
            let file = std::fs::File::open(self.context.path().join(path)).unwrap();
            command.stdin(Stdio::from(file));
        }
        self.context.finish(&mut command)
    }

    /// Asserts that the last request sent this token to the certificate authority, and that the
    /// output contains no part of the token.
    fn assert_token_received(&self, told: &str, token: &str) {
        let asked = self.service.asked();
        let last = asked.last().unwrap();
        assert_eq!(last.path, "/api/v2/signingCert", "{told}");
        let body: Value = serde_json::from_str(&last.body).unwrap();
        assert_eq!(body["credentials"]["oidcIdentityToken"], token, "{told}");
        assert!(told.starts_with("exit code: 1\n"), "{told}");
        assert!(
            told.contains("the certificate authority at 127.0.0.1 rejects the request: 403"),
            "{told}"
        );
        assert_token_not_printed(told, token);
    }
}

/// Asserts that no part of a token is printed.
fn assert_token_not_printed(told: &str, token: &str) {
    for part in token.split('.').chain([CI_TOKEN]) {
        assert!(!told.contains(part), "{told}");
    }
}

#[test]
fn uses_the_token_of_each_source_and_never_prints_it() {
    let scene = SigningFixture::new();
    let there = token("https://issuer.example.com", &Value::Null);
    let file = token("https://files.example.com", &Value::Null);
    scene.context.write("token.jwt", format!("{file}\n"));
    let url = format!("{}/github?api=1", scene.service.url);
    let endpoint = format!("{}/v3", scene.service.url);
    let github = [
        ("ACTIONS_ID_TOKEN_REQUEST_URL", url.as_str()),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", CI_TOKEN),
    ];
    let buildkite = [
        ("BUILDKITE_AGENT_ENDPOINT", endpoint.as_str()),
        ("BUILDKITE_AGENT_ACCESS_TOKEN", CI_TOKEN),
        ("BUILDKITE_JOB_ID", "job/1"),
    ];
    let gitlab = [("SIGSTORE_ID_TOKEN", there.as_str())];

    scene.assert_token_received(
        &scene.sign(&["--identity-token", &file], &gitlab, None),
        &file,
    );
    scene.assert_token_received(
        &scene.sign(&["--identity-token", "token.jwt"], &gitlab, None),
        &file,
    );
    let piped = scene.sign(&["--identity-token", "-"], &gitlab, Some("token.jwt"));
    scene.assert_token_received(&piped, &file);
    scene.assert_token_received(&scene.sign(&[], &gitlab, None), &there);
    scene.assert_token_received(
        &scene.sign(&["--fulcio-auth-flow", "token"], &gitlab, None),
        &there,
    );
    scene.assert_token_received(&scene.sign(&[], &github, None), &there);
    let shown = |path: &str| {
        let asked = scene.service.asked();
        let found = asked.iter().rfind(|asked| asked.path.starts_with(path));
        let found = found.unwrap().clone();
        (found.authorization, found.body)
    };
    assert_eq!(
        shown("/github"),
        (format!("Bearer {CI_TOKEN}"), String::new())
    );
    scene.assert_token_received(&scene.sign(&[], &buildkite, None), &there);
    let asked = (
        format!("Token {CI_TOKEN}"),
        json!({"audience": "sigstore"}).to_string(),
    );
    assert_eq!(shown("/v3"), asked);
}

#[test]
fn errors_of_token_services_are_reported_without_secrets() {
    let scene = SigningFixture::new();
    let wrong = format!("{}/elsewhere", scene.service.url);
    let github = |url: &str, token: &str| {
        let variables = [
            ("ACTIONS_ID_TOKEN_REQUEST_URL", url),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", token),
        ];
        let told = scene.sign(&[], &variables, None);
        assert_token_not_printed(&told, CI_TOKEN);
        told
    };
    let told = github(&wrong, CI_TOKEN);
    assert!(
        told.contains(
            "GitHub Actions at 127.0.0.1 rejects the request: 401 Unauthorized: Bearer (token) is wrong"
        ),
        "{told}"
    );
    let told = github("http://issuer.example.com/", CI_TOKEN);
    assert!(told.contains("must use TLS"), "{told}");
    let told = github("http://127.0.0.1:1/", CI_TOKEN);
    assert!(
        told.starts_with("exit code: 4\n") && told.contains("is unreachable"),
        "{told}"
    );
    let told = github(&wrong, "agent\nsecret");
    assert!(told.contains("contain invalid characters"), "{told}");

    for (change, why) in [
        (json!({"aud": "other"}), "audience is not `sigstore`"),
        (json!({"exp": 1}), "it has expired"),
        (
            json!({"email": "", "sub": ""}),
            "it has no subject or email",
        ),
        (json!({"iss": null}), "its claims are malformed"),
    ] {
        let token = token("https://issuer.example.com", &change);
        let told = scene.sign(&[], &[("SIGSTORE_ID_TOKEN", &token)], None);
        assert!(
            told.contains("[BUNDLE-TRUST-020]") && told.contains(why),
            "{told}"
        );
        assert_token_not_printed(&told, &token);
    }
    // A token for another client ID is rejected.
    let other = token(
        "https://issuer.example.com",
        &json!({"aud": ["a", "other"]}),
    );
    let variables = [("SIGSTORE_ID_TOKEN", other.as_str())];
    let told = scene.sign(&["--oidc-client-id", "other"], &variables, None);
    scene.assert_token_received(&told, &other);
}

#[test]
fn login_for_a_private_authority_requires_an_issuer() {
    let scene = SigningFixture::new();
    let told = scene.sign(&["--fulcio-auth-flow", "device"], &[], None);
    assert!(
        told.contains("the issuer for this certificate authority is unknown"),
        "{told}"
    );
    assert!(scene.service.asked().is_empty());
}

#[test]
fn login_requires_a_terminal() {
    let scene = SigningFixture::new();
    for more in [&[][..], &["--fulcio-auth-flow", "token"]] {
        let told = scene.sign(more, &[], None);
        assert!(
            told.contains("neither a key nor an identity token is available for signing"),
            "{told}"
        );
    }
    let told = scene.sign(
        &["--fulcio-auth-flow", "device", "--identity-token", "a.b.c"],
        &[],
        None,
    );
    assert!(told.starts_with("exit code: 2\n"), "{told}");
    assert!(
        told.contains("a login is not necessary with a token"),
        "{told}"
    );
}
