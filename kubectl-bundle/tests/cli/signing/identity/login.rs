//! Logins: issuers with errors, and requests from other processes.
#![cfg(unix)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use url::Url;

use super::service::{ReceivedRequest, Service, field, token};
use crate::catalog::diagnostics;
use crate::context::Context;

/// Reference in a registry that does not exist. A failed login sends no request to this registry.
const REFERENCE: &str =
    "127.0.0.1:1/team/web@sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn sign(context: &Context, service: &Service, flow: &str) -> std::process::Command {
    context.command(&[
        "sign",
        REFERENCE,
        "-q",
        "--fulcio-auth-flow",
        flow,
        "--oidc-issuer",
        &service.url,
        "--fulcio-url",
        &service.url,
        "--rekor-url",
        &service.url,
    ])
}

/// Starts a valid issuer. The responses in `changes` replace its default responses.
fn issuer(
    service: &Service,
    changes: impl Fn(&ReceivedRequest) -> Option<(u16, Value)> + Send + 'static,
) {
    let discovery = service.discovery();
    let url = service.url.clone();
    service.answer(move |asked| {
        changes(asked).unwrap_or_else(|| match asked.path.as_str() {
            "/.well-known/openid-configuration" => (200, discovery.clone()),
            "/device" => (200, device_authorization(&url)),
            "/token" => (200, json!({ "id_token": token(&url, &Value::Null) })),
            _ => (404, Value::Null),
        })
    });
}

fn device_authorization(url: &str) -> Value {
    json!({
        "device_code": "device-secret",
        "user_code": "ABCD-EFGH",
        "verification_uri": format!("{url}/device/verify"),
        "verification_uri_complete": format!("{url}/device/verify?user_code=ABCD-EFGH"),
        "expires_in": 300,
        "interval": 0,
    })
}

#[test]
fn each_fault_of_an_issuer_has_its_own_error() {
    let mut context = Context::new();
    let service = Service::start(&mut context);
    let refused = |path: &'static str, answer: (u16, Value)| {
        issuer(&service, move |asked| {
            (asked.path == path).then(|| answer.clone())
        });
        let told = context.finish(&mut sign(&context, &service, "device"));
        assert!(!told.contains("device-secret"), "{told}");
        told
    };
    let change = |whole: &Value, change: Value| {
        let mut whole = whole.clone();
        if let (Value::Object(whole), Value::Object(change)) = (&mut whole, change) {
            whole.extend(change);
        }
        (200, whole)
    };
    let (discovery, begun) = (service.discovery(), device_authorization(&service.url));
    let about = "/.well-known/openid-configuration";
    for (path, answer, why) in [
        (about, (404, Value::Null), "rejects the request: 404"),
        (about, (503, Value::Null), "is overloaded or failing"),
        (
            about,
            change(&discovery, json!({"issuer": "https://evil.example.com"})),
            "its issuer is `https://evil.example.com`",
        ),
        (
            about,
            change(&discovery, json!({"device_authorization_endpoint": null})),
            "has no device_authorization_endpoint",
        ),
        (
            about,
            change(&discovery, json!({"code_challenge_methods_supported": []})),
            "PKCE",
        ),
        (
            "/device",
            (400, json!({"error": "invalid_client"})),
            "rejects the request: 400",
        ),
        (
            "/device",
            change(&begun, json!({"device_code": null})),
            "it is not a device authorization response",
        ),
        (
            "/device",
            change(&begun, json!({"user_code": "A\u{1b}[31m"})),
            "its code cannot be typed",
        ),
        (
            "/device",
            change(&begun, json!({"verification_uri": "javascript:alert(1)"})),
            "the URL for the code does not use TLS",
        ),
        (
            "/device",
            change(&begun, json!({"verification_uri_complete": "file:///etc"})),
            "the URL for the code does not use TLS",
        ),
        (
            "/device",
            change(&begun, json!({"expires_in": 0})),
            "the code has expired [BUNDLE-TRUST-041]",
        ),
        // The program polls again after this status, up to a maximum number of polls.
        (
            "/token",
            (503, Value::Null),
            "is overloaded or failing (503 Service Unavailable)",
        ),
        (
            "/token",
            (400, json!({"error": "access_denied"})),
            "the login was denied [BUNDLE-TRUST-041]",
        ),
        (
            "/token",
            (400, json!({"error": "expired_token"})),
            "the code has expired [BUNDLE-TRUST-041]",
        ),
        (
            "/token",
            (
                400,
                json!({"error": "unauthorized_client", "error_description": "who?"}),
            ),
            "rejects the login: unauthorized_client: who?",
        ),
        (
            "/token",
            (200, json!({"access_token": "x"})),
            "it contains no identity token",
        ),
        ("/token", (200, json!({"id_token": "x"})), "it is not a JWT"),
        (
            "/token",
            (
                200,
                json!({"id_token": token("https://evil.example.com", &Value::Null)}),
            ),
            "its issuer is `https://evil.example.com`",
        ),
        (
            "/token",
            (
                200,
                json!({"id_token": token(&service.url, &json!({"aud": "other"}))}),
            ),
            "audience is not",
        ),
        (
            "/token",
            (
                200,
                json!({"id_token": token(&service.url, &json!({"exp": 1}))}),
            ),
            "it has expired",
        ),
    ] {
        let told = refused(path, answer.clone());
        assert!(told.contains(why), "{path} {answer:?}: {told}");
    }
    let denied = refused("/token", (400, json!({"error": "access_denied"})));
    insta::assert_snapshot!(diagnostics(&denied), @r"
    error: the login failed: the login was denied [BUNDLE-TRUST-041]
      hint: nothing was signed: try again, or pass a token (--identity-token)
    ");
    let unknown = refused("/device", (400, json!({"error": "invalid_client"})));
    insta::assert_snapshot!(diagnostics(&unknown), @r#"
    error: the issuer of identity tokens at 127.0.0.1 rejects the request: 400 Bad Request: {"error":"invalid_client"} [BUNDLE-TRUST-021]
      hint: nothing was stored; check the URL of the issuer (--oidc-issuer) and the client ID (--oidc-client-id)
    "#);
}

#[test]
fn polls_until_the_code_is_used() {
    let mut context = Context::new();
    let service = Service::start(&mut context);
    let answers = Mutex::new(vec!["authorization_pending"]);
    let url = service.url.clone();
    issuer(&service, move |asked| {
        let left = (asked.path == "/token").then(|| answers.lock().unwrap().pop())?;
        Some(match left {
            Some(error) => (400, json!({ "error": error })),
            // The token is from another issuer, so the login fails here.
            None => (
                200,
                json!({"id_token": token(&url, &json!({"email": "", "sub": ""}))}),
            ),
        })
    });
    let told = context.finish(&mut sign(&context, &service, "device"));
    // The text is printed despite -q, because the login depends on it.
    assert!(
        told.contains(
            "log in at http://[SERVICE]/device/verify?user_code=ABCD-EFGH\nwith the code ABCD-EFGH"
        ),
        "{told}"
    );
    assert!(told.contains("it has no subject or email"), "{told}");
    let asked = service.asked();
    let paths: Vec<_> = asked.iter().map(|asked| asked.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/.well-known/openid-configuration",
            "/device",
            "/token",
            "/token"
        ]
    );
    assert_eq!(field(&asked[1].body, "scope").unwrap(), "openid email");
    assert_eq!(
        field(&asked[2].body, "device_code").unwrap(),
        "device-secret"
    );
    assert_eq!(
        field(&asked[2].body, "grant_type").unwrap(),
        "urn:ietf:params:oauth:grant-type:device_code"
    );
    assert_eq!(asked[2].body, asked[3].body);
}

/// A running login of the program, and the URL that its browser opens.
struct Browser {
    child: Child,
    url: Url,
}

impl Browser {
    /// Starts the program and waits until the program opens the browser.
    fn open(context: &Context, service: &Service) -> Self {
        let note = context.path().join("opened");
        let script = format!(
            "#!/bin/sh\nprintf '%s' \"$*\" > {0}.new && mv {0}.new {0}\nenv > {0}.env\n",
            note.display()
        );
        let opener = context.write("bin/xdg-open", script);
        std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
        let _ = std::fs::remove_file(&note);
        let child = sign(context, service, "normal")
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", context.path().join("bin").display()),
            )
            .env("DISPLAY", ":0")
            .env("BUNDLE_PASSWORD", "secret")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let url = Url::parse(&awaited(&note)).unwrap();
        Self { child, url }
    }

    fn parameter(&self, name: &str) -> String {
        field(self.url.query().unwrap(), name).unwrap()
    }

    /// Sends the redirect with this query, and returns the page.
    fn send_redirect(&self, query: &str) -> String {
        let redirect = Url::parse(&self.parameter("redirect_uri")).unwrap();
        let port = redirect.port().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(
            stream,
            "GET {}?{query} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n",
            redirect.path()
        )
        .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    fn stderr(self) -> String {
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    }
}

fn awaited(path: &Path) -> String {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        assert!(Instant::now() < end, "{} is not there", path.display());
        std::thread::yield_now();
    }
}

#[test]
fn accepts_the_redirect_with_the_right_state_and_exchanges_the_code() {
    let mut context = Context::new();
    let service = Service::start(&mut context);
    let url = service.url.clone();
    let nonce = Arc::new(Mutex::new(String::new()));
    let said = Arc::clone(&nonce);
    issuer(&service, move |asked| {
        (asked.path == "/token").then(|| {
            let nonce = said.lock().unwrap().clone();
            (
                200,
                json!({"id_token": token(&url, &json!({ "nonce": nonce }))}),
            )
        })
    });
    let browser = Browser::open(&context, &service);
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "sigstore"),
        ("scope", "openid email"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(browser.parameter(name), value);
    }
    let state = browser.parameter("state");
    *nonce.lock().unwrap() = browser.parameter("nonce");
    // Two clients that must not end the login: a connection without data, and a redirect with a
    // guessed state.
    let idle = TcpStream::connect((
        "127.0.0.1",
        Url::parse(&browser.parameter("redirect_uri"))
            .unwrap()
            .port()
            .unwrap(),
    ));
    let refused = browser.send_redirect("code=evil&state=guessed");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    let page = browser.send_redirect(&format!("code=secret-code&state={state}"));
    drop(idle);
    assert!(
        page.contains("You are logged in") && page.contains("default-src 'none'"),
        "{page}"
    );
    let redirect = browser.parameter("redirect_uri");
    let challenge = browser.parameter("code_challenge");
    let told = browser.stderr();
    assert!(
        told.contains("log in with the browser that opens now"),
        "{told}"
    );
    // The command fails after the login, because the registry does not exist.
    assert!(told.contains("127.0.0.1:1"), "{told}");
    assert!(
        !told.contains("secret-code") && !told.contains("BUNDLE-TRUST"),
        "{told}"
    );
    let redeemed = service.asked().pop().unwrap().body;
    let redeemed = |name| field(&redeemed, name).unwrap();
    assert_eq!(redeemed("code"), "secret-code");
    assert_eq!(redeemed("redirect_uri"), redirect);
    assert_ne!(redeemed("code_verifier"), challenge);
    let environment = awaited(&context.path().join("opened.env"));
    assert!(!environment.contains("BUNDLE_PASSWORD"), "{environment}");
}

#[test]
fn failed_login_is_an_error() {
    let mut context = Context::new();
    let service = Service::start(&mut context);
    for (answer, query, why) in [
        (
            Value::Null,
            "error=access_denied&error_description=not%20you",
            "the login failed: access_denied: not you",
        ),
        (json!({"error": "invalid_grant"}), "code=c", "invalid_grant"),
        (
            json!({"id_token": token(&service.url, &json!({"nonce": "another"}))}),
            "code=c",
            "it belongs to another login (nonce)",
        ),
        (
            json!({"id_token": token(&service.url, &Value::Null)}),
            "code=c",
            "it belongs to another login (nonce)",
        ),
        (json!({}), "code=c", "it contains no identity token"),
    ] {
        let status = if answer.get("error").is_some() {
            400
        } else {
            200
        };
        issuer(&service, move |asked| {
            (asked.path == "/token").then(|| (status, answer.clone()))
        });
        let browser = Browser::open(&context, &service);
        let state = browser.parameter("state");
        browser.send_redirect(&format!("{query}&state={state}"));
        let told = browser.stderr();
        assert!(told.contains(why), "{query}: {told}");
    }
}
