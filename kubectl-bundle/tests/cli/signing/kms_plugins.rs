//! KMS plugins that are missing, broken or hostile. Each fault causes a specific error, and no
//! signature is stored.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::context::Context;
use crate::kb_snapshot;

/// Returns a context with a folder `bin` first on PATH.
fn context() -> Context {
    let context = Context::new();
    let path = format!("{}/bin:/usr/bin:/bin", context.path().display());
    context
        .with("PATH", &path)
        .with("BUNDLE_PASSWORD", "secret")
}

/// Writes a program `sigstore-kms-test` with this script.
fn plugin(context: &Context, script: &str) {
    let path = context.write("bin/sigstore-kms-test", format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns a script with these responses for each method.
fn answers(public: &str, signature: &str) -> String {
    let (public, signature) = (STANDARD.encode(public), STANDARD.encode(signature));
    format!(
        "case \"$2\" in\n*'\"publicKey\"'*) echo '{{\"publicKey\":{{\"publicKeyPEM\":\"{public}\"}}}}';;\n*) cat > /dev/null; echo '{{\"signMessage\":{{\"signature\":\"{signature}\"}}}}';;\nesac"
    )
}

const PUBLIC: [&str; 4] = ["keys", "public", "--key", "test://slot/1"];

#[test]
fn plugin_must_exist_and_be_executable() {
    let context = context();
    kb_snapshot!(context, ["keys", "public", "--key", "test://slot/1"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: `sigstore-kms-test` is required for test://slot/1 and was not found on PATH [BUNDLE-USAGE-008]
      hint: install the plugin of your KMS: an executable with this name that implements sigstore's KMS plugin protocol; if the key is a file, write ./ before its name
    ");
    let path = context.write("bin/sigstore-kms-test", "");
    kb_snapshot!(context, ["keys", "public", "--key", "test://slot/1"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: `[DIR]/bin/sigstore-kms-test` is required for test://slot/1, but is not executable [BUNDLE-USAGE-008]
      hint: make it executable: chmod +x
    ");
    std::fs::write(&path, "\u{0}\u{1}neither a script nor a program").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    kb_snapshot!(context, ["keys", "public", "--key", "test://slot/1"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: `sigstore-kms-test`, which is required for test://slot/1, cannot be run: Exec format error (os error 8) [BUNDLE-USAGE-009]
      hint: nothing was stored; check that the plugin is an executable for this platform
    ");
    kb_snapshot!(context, ["keys", "public", "--key", "awskms:///alias/release"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: `sigstore-kms-awskms` is required for awskms:///alias/release and was not found on PATH [BUNDLE-USAGE-008]
      hint: unlike cosign, `kubectl bundle` supports this KMS only through a plugin: an executable with this name that implements sigstore's KMS plugin protocol
    ");
    kb_snapshot!(context, ["keys", "public", "--key", "../../bin/evil://x"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: the key `../../bin/evil://x` is invalid: the name of a plugin consists of a-z, 0-9 and `-` [BUNDLE-USAGE-001]
      hint: pass a file, or NAME://RESOURCE for a key of the KMS plugin sigstore-kms-NAME on PATH
    ");
}

#[test]
fn rejects_responses_of_a_plugin_to_another_request() {
    let context = context();
    for (script, why) in [
        ("yes", "wrote more than 256 KiB"),
        (
            "echo hello",
            "it exited with exit status: 0 and without a response",
        ),
        (
            "echo 'no such device' >&2; exit 7",
            "it exited with exit status: 7: no such device",
        ),
        ("kill -9 $$", "it exited with signal: 9"),
        ("echo '[]'", "without a response"),
        ("echo '{}'", "it is the response to another request"),
        (
            "echo '{\"signMessage\":{\"signature\":\"AAAA\"}}'",
            "it is the response to another request",
        ),
        (
            "echo '{\"publicKey\":{\"publicKeyPEM\":\"\"}}'",
            "it is the response to another request",
        ),
        (
            "echo '{\"publicKey\":{\"publicKeyPEM\":\"***\"}}'",
            "it is not base64",
        ),
        (
            "echo '{\"publicKey\":{\"publicKeyPEM\":\"/w==\"}}'",
            "its public key is not UTF-8",
        ),
    ] {
        plugin(&context, script);
        let told = context.run(&PUBLIC);
        assert!(told.starts_with("exit code: 1\n"), "{script}: {told}");
        assert!(
            told.contains("[BUNDLE-USAGE-009]") && told.contains(why),
            "{script}: {told}"
        );
    }
    // The plugin returns an error that contains an escape sequence. Its exit status is ignored.
    plugin(
        &context,
        "printf '%s' '{\"errorMessage\":\"\\u001b[31mlocked\"}'; exit 0",
    );
    let told = context.run(&PUBLIC);
    assert!(
        told.contains("test://slot/1: \\u{1b}[31mlocked [BUNDLE-TRUST-040]"),
        "{told}"
    );
    // The plugin does not support the protocol version in its first argument.
    plugin(
        &context,
        "printf '{\"errorMessage\":\"unsupported protocol version: %s\"}' \"$1\"; exit 0",
    );
    kb_snapshot!(context, ["keys", "public", "--key", "test://slot/1"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: `sigstore-kms-test` returned an error for test://slot/1: unsupported protocol version: v1 [BUNDLE-TRUST-040]
      hint: nothing was stored; check the name of the key, and the credentials and settings of the plugin
    ");
}

#[test]
fn rejects_keys_of_unsupported_types() {
    let context = context();
    // The plugin returns an ECDSA P-384 key, or a private key instead of a public key.
    let other = "-----BEGIN PUBLIC KEY-----\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEQbjGzkV5XfGGJUGHoqXe+hcIi9z2HY+9\n-----END PUBLIC KEY-----\n";
    plugin(&context, &answers(other, ""));
    let told = context.run(&PUBLIC);
    assert!(
        told.contains("it is an ECDSA P-384 key") && told.contains("test://slot/1"),
        "{told}"
    );
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    plugin(&context, &answers(private, ""));
    let told = context.run(&PUBLIC);
    assert!(
        told.contains("it is a private key, but a public key is required"),
        "{told}"
    );
}

#[test]
fn invalid_signature_of_a_plugin_is_not_stored_and_secrets_are_withheld() {
    let mut context = context().with_bundle().with("SIGSTORE_ID_TOKEN", "token");
    let registry = context.registry();
    let reference = format!("{}/team/web:1.4.0", registry.host());
    context.stdout(&["push", "web", &reference]);
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    let public = std::fs::read_to_string(context.path().join("release.pub")).unwrap();
    plugin(
        &context,
        &format!(
            "env > {}/seen\n{}",
            context.path().display(),
            answers(&public, "no signature")
        ),
    );
    assert_eq!(context.stdout(&PUBLIC), public.trim_end());
    kb_snapshot!(context, ["sign", &reference, "--key", "test://slot/1"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    error: the new signature does not verify with the public key of the signer [BUNDLE-TRUST-011]
      hint: nothing was stored; check the signing device or plugin, which returned a wrong signature
    ");
    let told = context.run(&["verify", &reference, "--key", "test://slot/1"]);
    assert!(told.contains("has no signature for this digest"), "{told}");
    let seen = std::fs::read_to_string(context.path().join("seen")).unwrap();
    assert!(seen.contains("PATH="), "{seen}");
    for secret in ["BUNDLE_PASSWORD", "SIGSTORE_ID_TOKEN"] {
        assert!(!seen.contains(secret), "{seen}");
    }
    // The plugin returns the public key, but fails when it signs.
    plugin(
        &context,
        &answers(&public, "").replace(
            "\"signMessage\":{\"signature\":\"\"}",
            "\"errorMessage\":\"locked\"",
        ),
    );
    let told = context.run(&["sign", &reference, "--key", "test://slot/1"]);
    assert!(
        told.contains(
            "`sigstore-kms-test` returned an error for test://slot/1: locked [BUNDLE-TRUST-040]"
        ),
        "{told}"
    );
}

#[test]
fn prints_the_public_key_of_a_file() {
    let context = context();
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    let public = std::fs::read_to_string(context.path().join("release.pub")).unwrap();
    let printed = context.stdout(&["keys", "public", "--key", "release.key"]);
    assert_eq!(printed, public.trim_end());
}
