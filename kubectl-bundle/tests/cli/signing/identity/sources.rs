//! Available tokens: from flags, the environment, or a CI system.

use std::process::Stdio;

use serde_json::{Value, json};

use super::service::{Service, token};
use crate::context::Context;

/// Bundle in a registry, and a service that is CI system and certificate authority. The authority
/// rejects every request and returns its content.
struct Scene {
    context: Context,
    service: Service,
    reference: String,
    // It runs until it is dropped.
    _registry: bundle_testkit::registry::Registry,
}

/// Token of the CI system for requests.
const AGENT: &str = "agent-secret-0123456789";

impl Scene {
    fn new() -> Self {
        let mut context = Context::new().with_bundle();
        let registry = context.registry();
        let reference = registry.reference("team/web:1.4.0");
        context.stdout(&["push", "web", &reference]);
        let service = Service::start(&mut context);
        let there = token("https://issuer.example.com", &Value::Null);
        service.answer(move |received| match received.path.as_str() {
            "/api/v2/signingCert" => {
                let why = format!("no: {} {} {AGENT}", received.body, received.authorization);
                (403, json!({ "message": why }))
            }
            "/github?api=1&audience=sigstore" => (200, json!({ "value": there })),
            "/v3/jobs/job%2F1/oidc/tokens" => (200, json!({ "token": there })),
            _ => (
                401,
                json!({ "message": format!("{} is wrong", received.authorization) }),
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

    /// Asserts that the certificate authority received this token, and that no other service and no
    /// output contain any of it.
    fn saw(&self, printed: &str, token: &str) {
        let received = self.service.received();
        let last = received.last().unwrap();
        assert_eq!(last.path, "/api/v2/signingCert", "{printed}");
        let body: Value = serde_json::from_str(&last.body).unwrap();
        assert_eq!(body["credentials"]["oidcIdentityToken"], token, "{printed}");
        assert!(printed.starts_with("exit code: 1\n"), "{printed}");
        assert!(
            printed.contains("the certificate authority at 127.0.0.1 rejects the request: 403"),
            "{printed}"
        );
        hidden(printed, token);
    }
}

/// Asserts that no part of a token is printed.
fn hidden(printed: &str, token: &str) {
    for part in token.split('.').chain([AGENT]) {
        assert!(!printed.contains(part), "{printed}");
    }
}

#[test]
fn uses_the_token_of_each_source_and_never_prints_it() {
    let scene = Scene::new();
    let there = token("https://issuer.example.com", &Value::Null);
    let file = token("https://files.example.com", &Value::Null);
    scene.context.write("token.jwt", format!("{file}\n"));
    let url = format!("{}/github?api=1", scene.service.url);
    let endpoint = format!("{}/v3", scene.service.url);
    let github = [
        ("ACTIONS_ID_TOKEN_REQUEST_URL", url.as_str()),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", AGENT),
    ];
    let buildkite = [
        ("BUILDKITE_AGENT_ENDPOINT", endpoint.as_str()),
        ("BUILDKITE_AGENT_ACCESS_TOKEN", AGENT),
        ("BUILDKITE_JOB_ID", "job/1"),
    ];
    let gitlab = [("SIGSTORE_ID_TOKEN", there.as_str())];

    scene.saw(
        &scene.sign(&["--identity-token", &file], &gitlab, None),
        &file,
    );
    scene.saw(
        &scene.sign(&["--identity-token", "token.jwt"], &gitlab, None),
        &file,
    );
    let piped = scene.sign(&["--identity-token", "-"], &gitlab, Some("token.jwt"));
    scene.saw(&piped, &file);
    scene.saw(&scene.sign(&[], &gitlab, None), &there);
    scene.saw(
        &scene.sign(&["--fulcio-auth-flow", "token"], &gitlab, None),
        &there,
    );
    scene.saw(&scene.sign(&[], &github, None), &there);
    let shown = |path: &str| {
        let received = scene.service.received();
        let found = received
            .iter()
            .rfind(|received| received.path.starts_with(path));
        let found = found.unwrap().clone();
        (found.authorization, found.body)
    };
    assert_eq!(shown("/github"), (format!("Bearer {AGENT}"), String::new()));
    scene.saw(&scene.sign(&[], &buildkite, None), &there);
    let received = (
        format!("Token {AGENT}"),
        json!({"audience": "sigstore"}).to_string(),
    );
    assert_eq!(shown("/v3"), received);
}

#[test]
fn errors_of_token_services_are_reported_without_secrets() {
    let scene = Scene::new();
    let wrong = format!("{}/elsewhere", scene.service.url);
    let github = |url: &str, token: &str| {
        let variables = [
            ("ACTIONS_ID_TOKEN_REQUEST_URL", url),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", token),
        ];
        let printed = scene.sign(&[], &variables, None);
        hidden(&printed, AGENT);
        printed
    };
    let printed = github(&wrong, AGENT);
    assert!(
        printed.contains(
            "GitHub Actions at 127.0.0.1 rejects the request: 401 Unauthorized: Bearer (token) is wrong"
        ),
        "{printed}"
    );
    let printed = github("http://issuer.example.com/", AGENT);
    assert!(printed.contains("must use TLS"), "{printed}");
    let printed = github("http://127.0.0.1:1/", AGENT);
    assert!(
        printed.starts_with("exit code: 4\n") && printed.contains("is unreachable"),
        "{printed}"
    );
    let printed = github(&wrong, "agent\nsecret");
    assert!(printed.contains("contain invalid characters"), "{printed}");

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
        let printed = scene.sign(&[], &[("SIGSTORE_ID_TOKEN", &token)], None);
        assert!(
            printed.contains("[BUNDLE-TRUST-020]") && printed.contains(why),
            "{printed}"
        );
        hidden(&printed, &token);
    }
    // A token for another client is rejected.
    let other = token(
        "https://issuer.example.com",
        &json!({"aud": ["a", "other"]}),
    );
    let variables = [("SIGSTORE_ID_TOKEN", other.as_str())];
    let printed = scene.sign(&["--oidc-client-id", "other"], &variables, None);
    scene.saw(&printed, &other);
}

#[test]
fn login_for_a_private_authority_requires_an_issuer() {
    let scene = Scene::new();
    let printed = scene.sign(&["--fulcio-auth-flow", "device"], &[], None);
    assert!(
        printed.contains("the issuer for this certificate authority is unknown"),
        "{printed}"
    );
    assert!(scene.service.received().is_empty());
}

#[test]
fn login_requires_a_terminal() {
    let scene = Scene::new();
    for more in [&[][..], &["--fulcio-auth-flow", "token"]] {
        let printed = scene.sign(more, &[], None);
        assert!(
            printed.contains("neither a key nor an identity token is available for signing"),
            "{printed}"
        );
    }
    let printed = scene.sign(
        &["--fulcio-auth-flow", "device", "--identity-token", "a.b.c"],
        &[],
        None,
    );
    assert!(printed.starts_with("exit code: 2\n"), "{printed}");
    assert!(
        printed.contains("a login and an identity token exclude each other"),
        "{printed}"
    );
}
