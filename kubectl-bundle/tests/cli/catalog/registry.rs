//! Messages about registries, OCI layouts and archives.

use std::process::{Command, Stdio};

use bundle_testkit::registry::{Fault, Login, Registry, Settings, UploadFault};
use serde_json::json;

use super::diagnostics;
use crate::context::{Context, PACKAGE};

fn run(context: &Context, arguments: &[&str]) -> String {
    diagnostics(&context.run(arguments))
}

#[test]
fn reports_an_invalid_layout() {
    let context = Context::new();
    context.write("web.oci/oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}");
    context.write("web.oci/index.json", "[]");
    insta::assert_snapshot!(run(&context, &["inspect", "web.oci"]), @r"
    error: `web.oci` is not a valid OCI layout: index.json is not an index: not a JSON object [BUNDLE-REGISTRY-014]
      hint: create a layout or archive with `kubectl bundle build --to FOLDER` or `kubectl bundle pull --to FOLDER|FILE.tar`
    ");
}

#[test]
fn reports_rejected_uploads_and_unsafe_redirects() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    registry.set_fault(Some(Fault::Upload(UploadFault::Small(200))));
    insta::assert_snapshot!(run(&context, &["push", "web", &web]), @r"
    error: cannot upload [REGISTRY]/team/web@sha256:6a2f0b6f...: the registry rejects the request (413: too large) [BUNDLE-REGISTRY-016]
      hint: see the log of the registry for the reason
    ");
    registry.set_fault(None);
    context.stdout(&["push", "web", &web]);
    registry.set_fault(Some(Fault::RedirectBlobs("ftp://files.example.com".into())));
    insta::assert_snapshot!(run(&context, &["inspect", &web]), @r"
    error: cannot pull [REGISTRY]/team/web@sha256:4cc7e585...: the registry redirects to files.example.com: the target does not use TLS [BUNDLE-REGISTRY-017]
      hint: no request was sent to the target; correct the configuration of the registry
    ");
}

#[test]
fn reports_a_list_of_signatures_that_another_client_overwrites() {
    let mut context = Context::new()
        .with_bundle()
        .with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "-q"]);
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web]);
    context.stdout(&["sign", &web, "--key", "bundle.key", "--format", "legacy"]);
    context.stdout(&["keys", "generate", "-q", "--output-key-prefix", "other"]);
    registry.set_fault(Some(Fault::LostUpdates(99)));
    let sign = ["sign", &web, "--key", "other.key", "--format", "legacy"];
    insta::assert_snapshot!(run(&context, &sign), @r"
    error: cannot sign [REGISTRY]/team/web@sha256:4cc7e585...: other clients kept overwriting tag sha256-4cc7e5851afb019dfaebef7e1f01d8dd6fa2bd0059836b4eef75e8ade4458e5f.sig, which lists the signatures [BUNDLE-REGISTRY-015]
      hint: sign again
    ");
}

/// Starts a registry that requires a login.
fn with_login(context: &mut Context) -> Registry {
    let login = Login {
        user: "ana".to_owned(),
        password: "right".to_owned(),
        token: false,
    };
    let settings = Settings {
        login: Some(login),
        ..Settings::default()
    };
    let started = context.runtime().block_on(Registry::start(settings));
    let registry = started.unwrap();
    context.replace(registry.host(), "[REGISTRY]");
    registry
}

#[test]
fn reports_a_rejected_login() {
    let mut context = Context::new();
    let registry = with_login(&mut context);
    let web = registry.reference("team/web:1.4.0");
    let password = context.write("password", "wrong\n");
    let mut inspect: Command = context.command(&[
        "inspect",
        &web,
        "--registry-username",
        "ana",
        "--registry-password-stdin",
    ]);
    inspect.stdin(Stdio::from(std::fs::File::open(password).unwrap()));
    insta::assert_snapshot!(diagnostics(&context.finish(&mut inspect)), @r"
    error: cannot read the manifest of [REGISTRY]/team/web:1.4.0: [REGISTRY] rejects the login as ana (401: authentication required) [BUNDLE-REGISTRY-025]
      hint: check name and password, and log in again (docker login)
    ");
}

#[test]
fn reports_a_blocked_registry() {
    let context = Context::new();
    context.write(
        "registries.conf",
        "[[registry]]\nprefix = \"registry.example.com\"\nblocked = true\n",
    );
    let web = "registry.example.com/team/web:1.4.0";
    let inspect = ["inspect", web, "--registries-conf", "registries.conf"];
    insta::assert_snapshot!(run(&context, &inspect), @r"
    error: cannot read the manifest of registry.example.com/team/web:1.4.0: registries.conf blocks `registry.example.com` [BUNDLE-REGISTRY-027]
      hint: use another registry, or ask the administrator of registries.conf to unblock it
    ");
}

#[test]
fn reports_an_index_without_the_platform() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    let pinned = context.stdout(&["push", "web", &web]);
    let (_, digest) = pinned.rsplit_once('@').unwrap();
    let manifest = registry.manifest("team/web", digest).unwrap();
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest,
            "size": manifest.len(),
            "platform": {"os": "linux", "architecture": "amd64"},
        }],
    });
    let media_type = "application/vnd.oci.image.index.v1+json";
    registry.put_manifest("team/web", "all", media_type, index.to_string().as_bytes());
    let all = registry.reference("team/web:all");
    insta::assert_snapshot!(run(&context, &["pull", &all, "--platform", "windows/amd64"]), @r"
    error: sha256:88ea8979... has no image for the selected platforms; it has linux/amd64 [BUNDLE-REGISTRY-031]
      hint: select other platforms with --platform, or omit the flag for all
    ");
}

#[test]
fn reports_saved_content_without_reference_or_lock() {
    let mut context = Context::new();
    let registry = context.registry();
    context.write("web/bundle.yaml", PACKAGE);
    context.write(
        "web/manifests/web.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\nspec: {containers: [{name: web, image: 'registry.example.com/web:1.4.0'}]}\n",
    );
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web]);
    insta::assert_snapshot!(run(&context, &["save", &web, "--images", "--to", "web.tar"]), @r"
    error: [REGISTRY]/team/web:1.4.0: the package has no images.lock.yaml, so its images are unknown [BUNDLE-REGISTRY-034]
      hint: build the package with `kubectl bundle build --lock`, or pass its images separately
    ");
    context.stdout(&["build", "web", "--to", "web.oci"]);
    let mirror = registry.reference("mirror");
    insta::assert_snapshot!(run(&context, &["load", "web.oci", "--to", &mirror]), @r"
    error: the original reference of `1.4.0` is unknown [BUNDLE-REGISTRY-033]
      hint: push the image separately: kubectl bundle push FILE:NAME REGISTRY/REPOSITORY:TAG
    ");
}

#[test]
fn reports_an_invalid_file_of_credentials() {
    let mut context = Context::new();
    let registry = with_login(&mut context);
    context.write("home/.docker/config.json", "{");
    let web = registry.reference("team/web:1.4.0");
    insta::assert_snapshot!(run(&context, &["inspect", &web]), @r"
    error: cannot read the manifest of [REGISTRY]/team/web:1.4.0: cannot read the stored credentials for [REGISTRY]: `[DIR]/home/.docker/config.json`: the file is not a docker configuration [BUNDLE-REGISTRY-012]
      hint: correct the file or the credential helper that the message names
    ");
}

#[test]
fn reports_invalid_annotations_of_a_manifest() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    let pinned = context.stdout(&["push", "web", &web]);
    let (_, digest) = pinned.rsplit_once('@').unwrap();
    let manifest = registry.manifest("team/web", digest).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    manifest["annotations"]["io.rukpak.core.bundle.kubernetes"] = "many".into();
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let changed = manifest.to_string();
    registry.put_manifest("team/web", "changed", media_type, changed.as_bytes());
    let changed = registry.reference("team/web:changed");
    insta::assert_snapshot!(run(&context, &["inspect", &changed]), @r"
    error: annotations[io.rukpak.core.bundle.kubernetes]: invalid annotation of the OCI manifest: expected value at line 1 column 1 [BUNDLE-FORMAT-019]
      hint: build the bundle again with `kubectl bundle build`, then push it
    ");
}
