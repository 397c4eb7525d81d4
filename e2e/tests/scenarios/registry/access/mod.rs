//! Access to real registries: passwords, tokens, certificates and credential helpers, with the
//! message of each failure.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::registry::token_server::IDENTITY_TOKEN;
use e2e::registry::{Access, PASSWORD, RegistryOptions, USER};
use e2e::{Output, ToolEnvironment, bundles};
use serde_json::{Value, json};

mod mirrors;

struct Scene {
    bench: ToolEnvironment,
}

impl Scene {
    fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        bundles::greeting(&bench.folder().join("bundle"), "1.0.0", None).unwrap();
        Self { bench }
    }

    async fn run(&self, arguments: &str) -> Output {
        self.run_with(arguments, &[], "").await
    }

    async fn run_with(&self, arguments: &str, variables: &[(&str, &str)], input: &str) -> Output {
        let plugin = self.bench.plugin().await.unwrap();
        variables
            .iter()
            .fold(plugin, |plugin, (name, value)| plugin.env(name, value))
            .args(arguments.split(' '))
            .stdin(input)
            .output()
            .await
            .unwrap()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let file = self.bench.folder().join(name);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(&file, content).unwrap();
        file
    }

    /// Writes the configuration of docker.
    fn docker(&self, configuration: &Value) {
        self.write("home/.docker/config.json", configuration.to_string());
    }
}

fn auth(user: &str, password: &str) -> Value {
    json!({ "auth": STANDARD.encode(format!("{user}:{password}")) })
}

#[track_caller]
fn refused(output: Output, code: i32, texts: &[&str]) {
    let printed = output.failure(code).unwrap();
    for text in texts {
        assert!(printed.contains(text), "`{text}` is missing in:\n{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_passwords_from_files_helpers_and_standard_input() {
    let scene = Scene::new();
    let registry = scene
        .bench
        .registry_with(RegistryOptions {
            access: Access::Password,
            ..RegistryOptions::default()
        })
        .await
        .unwrap();
    let host = registry.host();
    let push = format!("push bundle {}", registry.reference("team/web:1"));
    refused(
        scene.run(&push).await,
        1,
        &["denies access without a login", "REGISTRY-003"],
    );

    scene.docker(&json!({ "auths": { &host: auth(USER, "guess") } }));
    let printed = format!("{host} rejects the login as {USER} (401");
    refused(scene.run(&push).await, 1, &[&printed, "REGISTRY-025"]);
    scene.docker(&json!({ "auths": { &host: auth(USER, PASSWORD) } }));
    scene.run(&push).await.success().unwrap();

    // In podman's file, an entry can name a namespace. The entry with the longest matching name is
    // used.
    scene.docker(&json!({}));
    let namespaced = json!({ "auths": {
        &host: auth(USER, "guess"),
        format!("{host}/team"): auth(USER, PASSWORD),
    } });
    let file = scene.write("auth.json", namespaced.to_string());
    let file = file.to_str().unwrap().to_owned();
    let inspect = |rest: &str| format!("inspect {} --manifest-only", registry.reference(rest));
    for (arguments, variables) in [
        (
            inspect("team/web:1"),
            vec![("REGISTRY_AUTH_FILE", file.as_str())],
        ),
        (
            format!("{} --authfile {file}", inspect("team/web:1")),
            vec![],
        ),
    ] {
        scene
            .run_with(&arguments, &variables, "")
            .await
            .success()
            .unwrap();
    }
    let other = format!("{} --authfile {file}", inspect("teams/web:1"));
    refused(scene.run(&other).await, 1, &["rejects the login"]);
    let none = format!("{} --authfile nowhere.json", inspect("team/web:1"));
    refused(scene.run(&none).await, 1, &["nowhere.json"]);

    // The password comes from standard input. The flags have helm's names, then the names of this
    // project.
    for flags in [
        "--username e2e --password-stdin",
        "--registry-username e2e --registry-password-stdin",
    ] {
        let line = format!("{} {flags}", inspect("team/web:1"));
        scene
            .run_with(&line, &[], "s3cret\n")
            .await
            .success()
            .unwrap();
        refused(
            scene.run_with(&line, &[], "guess\n").await,
            1,
            &["rejects the login"],
        );
    }

    // This credential helper has docker's format.
    let helper = scene.write(
        "bin/docker-credential-e2e",
        format!("#!/bin/sh\nread -r server\n[ \"$server\" = {host} ] || {{ echo 'credentials not found in native keychain'; exit 1; }}\necho '{{\"Username\":\"{USER}\",\"Secret\":\"{PASSWORD}\"}}'\n"),
    );
    fs_err::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", helper.parent().unwrap().display());
    for configuration in [
        json!({ "credHelpers": { &host: "e2e" } }),
        json!({ "credsStore": "e2e", "auths": { &host: {} } }),
    ] {
        scene.docker(&configuration);
        let line = inspect("team/web:1");
        scene
            .run_with(&line, &[("PATH", &path)], "")
            .await
            .success()
            .unwrap();
        refused(
            scene.run(&line).await,
            1,
            &["docker-credential-e2e", "REGISTRY-012"],
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_tokens_with_available_credentials() {
    let scene = Scene::new();
    let tokens = scene.bench.token_server().await.unwrap();
    let registry = scene
        .bench
        .registry_with(RegistryOptions {
            access: Access::Token(tokens.issuer()),
            ..RegistryOptions::default()
        })
        .await
        .unwrap();
    let host = registry.host();
    let push = |rest: &str| format!("push bundle {}", registry.reference(rest));
    let inspect = |rest: &str| format!("inspect {} --manifest-only", registry.reference(rest));
    refused(
        scene.run(&push("public/web:1")).await,
        1,
        &[
            "denies access without a login",
            "no permission to push here",
        ],
    );
    scene.docker(&json!({ "auths": { &host: auth(USER, PASSWORD) } }));
    scene.run(&push("public/web:1")).await.success().unwrap();
    scene
        .run(&push("deeply/nested/team/web:1"))
        .await
        .success()
        .unwrap();
    assert!(
        tokens.asked().contains(&format!(
            "GET {USER} repository:deeply/nested/team/web:pull,push"
        )),
        "{:?}",
        tokens.asked()
    );

    // Anonymous clients can pull public repositories, and get an error for other repositories.
    scene.docker(&json!({}));
    scene.run(&inspect("public/web:1")).await.success().unwrap();
    refused(
        scene.run(&inspect("deeply/nested/team/web:1")).await,
        1,
        &[
            "without a login",
            "no permission to pull here",
            "REGISTRY-003",
        ],
    );

    // A missing permission is not reported as a wrong password.
    tokens.allow("read/only", &["pull"]);
    scene.docker(&json!({ "auths": { &host: auth(USER, PASSWORD) } }));
    refused(
        scene.run(&push("read/only:1")).await,
        1,
        &[
            "denies access as e2e (401: no permission to push here)",
            "REGISTRY-003",
        ],
    );
    scene.docker(&json!({ "auths": { &host: auth(USER, "guess") } }));
    refused(
        scene.run(&inspect("public/web:1")).await,
        1,
        &[
            "the token service 127.0.0.1:",
            "rejects the login as e2e (401: wrong user or password)",
            "REGISTRY-025",
        ],
    );

    // The next commands use identity tokens, with and without OAuth's token exchange.
    scene.docker(&json!({ "auths": { &host: { "identitytoken": IDENTITY_TOKEN } } }));
    scene
        .run(&inspect("deeply/nested/team/web:1"))
        .await
        .success()
        .unwrap();
    tokens.answer_post(false);
    scene
        .run(&inspect("deeply/nested/team/web:1"))
        .await
        .success()
        .unwrap();
    tokens.answer_post(true);
    scene.docker(&json!({ "auths": { &host: { "identitytoken": "old" } } }));
    refused(
        scene.run(&inspect("public/web:1")).await,
        1,
        &[
            "with an identity token (401: unknown identity token)",
            "REGISTRY-025",
        ],
    );

    // The next commands use registry tokens: a valid token and an expired token.
    let scope = ["repository:deeply/nested/team/web:pull"];
    let line = format!(
        "{} --registry-token-stdin",
        inspect("deeply/nested/team/web:1")
    );
    scene.docker(&json!({}));
    let good = tokens.token(&scope).unwrap();
    scene.run_with(&line, &[], &good).await.success().unwrap();
    tokens.shift(-3600);
    let expired = tokens.token(&scope).unwrap();
    refused(
        scene.run_with(&line, &[], &expired).await,
        1,
        &["rejects the token: it has expired", "REGISTRY-025"],
    );
    tokens.shift(0);
    scene.docker(&json!({ "auths": { &host: { "registrytoken": good } } }));
    scene
        .run(&inspect("deeply/nested/team/web:1"))
        .await
        .success()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_client_and_ca_certificates_from_flags_and_folders() {
    let scene = Scene::new();
    let registry = scene
        .bench
        .registry_with(RegistryOptions {
            client_certificate: true,
            ..RegistryOptions::default()
        })
        .await
        .unwrap();
    let pki = scene.bench.pki();
    let client = scene
        .bench
        .authority()
        .client(&pki, "client", "ana", &[])
        .unwrap();
    let (certificate, key) = (client.certificate.display(), client.key.display());
    let ca = registry.ca().unwrap().display();
    let push = format!("push bundle {}", registry.reference("team/web:1"));
    refused(
        scene.run(&push).await,
        1,
        &["it is signed by an unknown authority", "REGISTRY-013"],
    );
    let trusting = format!("{push} --registry-ca {ca}");
    refused(
        scene.run(&trusting).await,
        1,
        &["requires a client certificate", "REGISTRY-026"],
    );
    let complete = format!("{trusting} --registry-cert {certificate} --registry-key {key}");
    scene.run(&complete).await.success().unwrap();

    // The client trusts the authority of another registry.
    fs_err::create_dir(scene.bench.folder().join("other")).unwrap();
    let stranger = ToolEnvironment::new().unwrap();
    let other = stranger
        .authority()
        .client(&stranger.pki(), "other", "eve", &[])
        .unwrap();
    let (other, other_key) = (other.certificate.display(), other.key.display());
    let line = format!("{trusting} --registry-cert {other} --registry-key {other_key}");
    refused(
        scene.run(&line).await,
        1,
        &["rejects the client certificate", "REGISTRY-026"],
    );
    let line = format!("{trusting} --registry-cert {certificate} --registry-key {other_key}");
    refused(
        scene.run(&line).await,
        2,
        &["the key does not match the certificate"],
    );
    let line = format!("{trusting} --registry-cert {certificate} --registry-key {ca}");
    refused(scene.run(&line).await, 2, &["contains no PEM private key"]);
    let broken = scene.write(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let line = format!("{push} --registry-ca {}", broken.display());
    refused(scene.run(&line).await, 2, &["it is not a certificate"]);
    let line = format!(
        "{push} --registry-ca {}",
        scene.bench.folder().join("other").display()
    );
    refused(
        scene.run(&line).await,
        2,
        &["contains neither certificates"],
    );

    // The certificates are in two folders like docker's `certs.d`: a flag names one folder, and
    // podman reads the other folder by default.
    let folder = PathBuf::from("certs.d").join(registry.host());
    let copy =
        |from: &Path, to: &Path| scene.write(to.to_str().unwrap(), fs_err::read(from).unwrap());
    for base in [Path::new(""), Path::new("home/.config/containers")] {
        let folder = base.join(&folder);
        copy(registry.ca().unwrap(), &folder.join("ca.crt"));
        copy(&client.certificate, &folder.join("client.cert"));
        if base == Path::new("") {
            let line = format!("{push} --registry-ca certs.d");
            refused(
                scene.run(&line).await,
                2,
                &["client.cert", "its key, a file"],
            );
        }
        copy(&client.key, &folder.join("client.key"));
    }
    scene
        .run(&format!("{push} --registry-ca certs.d"))
        .await
        .success()
        .unwrap();
    scene.run(&push).await.success().unwrap();
}
