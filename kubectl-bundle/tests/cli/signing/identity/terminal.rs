//! Tests at a terminal, provided by `script` of util-linux. The program prompts only at a terminal.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::service::Service;
use crate::context::Context;

/// Returns the output at a terminal on which `typed` is entered.
fn at_terminal(
    context: &Context,
    arguments: &[&str],
    more: &[(&str, &str)],
    typed: &str,
) -> String {
    in_shell(context, "", arguments, more, typed)
}

/// Runs a program at a terminal, after a shell command.
fn in_shell(
    context: &Context,
    before: &str,
    arguments: &[&str],
    more: &[(&str, &str)],
    typed: &str,
) -> String {
    let program = context.command(arguments);
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    let words = words.map(|word| word.to_str().unwrap());
    let line: Vec<_> = std::iter::once(before).chain(words).collect();
    let typed = context.write("typed", typed);
    let output = Command::new("script")
        .args(["-qec", &line.join(" "), "/dev/null"])
        .env_clear()
        .env("HOME", context.path().join("home"))
        .env(
            "PATH",
            format!("{}/bin:/usr/bin:/bin", context.path().display()),
        )
        .env("NO_COLOR", "1")
        .envs(more.iter().copied())
        .current_dir(context.path())
        .stdin(Stdio::from(std::fs::File::open(typed).unwrap()))
        .output()
        .map_err(|error| format!("`script` of util-linux (Debian: bsdutils) is needed: {error}"))
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn login_starts_at_a_terminal_but_not_in_ci() {
    let mut context = Context::new();
    let service = Service::start(&mut context);
    let (discovery, url) = (service.discovery(), service.url.clone());
    service.answer(move |asked| match asked.path.as_str() {
        "/.well-known/openid-configuration" => (200, discovery.clone()),
        _ => (400, Value::Null),
    });
    let digest = "0".repeat(64);
    let reference = format!("127.0.0.1:1/team/web@sha256:{digest}");
    let line = ["sign", &reference, "--oidc-issuer", &url];
    let told = at_terminal(&context, &line, &[("CI", "true")], "");
    assert!(
        told.contains("neither a key nor an identity token is available"),
        "{told}"
    );
    assert!(service.asked().is_empty());
    // Without a display, the login uses a code.
    let told = at_terminal(&context, &line, &[], "");
    assert!(
        told.contains("the issuer of identity tokens at 127.0.0.1 rejects the request: 400"),
        "{told}"
    );
    assert_eq!(service.asked().last().unwrap().path, "/device");
}

#[test]
fn plugin_can_prompt_for_a_pin_at_a_terminal() {
    let context = Context::new();
    let script = "#!/bin/sh\nprintf 'PIN: ' > /dev/tty; read pin < /dev/tty; printf '{\"errorMessage\":\"%s is wrong\"}' \"$pin\"\n";
    let path = context.write("bin/sigstore-kms-test", script);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = ["keys", "public", "--key", "test://slot/1"];
    let told = at_terminal(&context, &line, &[], "1234\n");
    assert!(
        told.contains("returned an error for test://slot/1: 1234 is wrong"),
        "{told}"
    );
}

/// Standard input provides the key, so the prompt uses the terminal itself.
#[test]
fn prompts_for_a_password_at_the_terminal_while_stdin_provides_the_key() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    let export = [
        "keys",
        "export",
        "--key",
        "release.key",
        "--to",
        "release.pem",
    ];
    context.stdout(&[&export[..], &["--unencrypted-private-key"]].concat());
    let import = [
        "keys",
        "import",
        "--key",
        "-",
        "--output-key-prefix",
        "again",
    ];
    let told = in_shell(
        &context,
        "cat release.pem |",
        &import,
        &[],
        "typed\ntyped\n",
    );
    assert!(
        told.contains("Password for the private key: ")
            && told.contains("private key written to again.key"),
        "{told}"
    );
    let typed = context.with("BUNDLE_PASSWORD", "typed");
    let public = typed.stdout(&["keys", "public", "--key", "again.key"]);
    let expected = std::fs::read_to_string(typed.path().join("release.pub")).unwrap();
    assert_eq!(public.trim(), expected.trim());
}
