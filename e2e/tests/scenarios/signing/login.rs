//! OpenID Connect login in a browser or with a device code, and signing. Real cosign verifies the
//! signature, and logs in at the same issuer.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::host::command::Command;
use e2e::{Output, Registry, Sigstore, Tool, ToolEnvironment, bundles, wait};

const WHO: &str = "ana@example.com";
const LONG: Duration = Duration::from_secs(90);

struct Scene {
    bench: ToolEnvironment,
    registry: Registry,
    sigstore: Sigstore,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        Self {
            registry: bench.registry().await.unwrap(),
            sigstore: bench.sigstore().await.unwrap(),
            bench,
        }
    }

    async fn pushed(&self, version: &str) -> String {
        let folder = self.bench.folder().join(version);
        bundles::greeting(&folder, version, None).unwrap();
        let reference = self.registry.reference(&format!("greeting:{version}"));
        let plugin = self.bench.plugin().await.unwrap();
        let pushed = plugin.args(["push", version, &reference]).output().await;
        pushed.unwrap().success().unwrap().trim().to_owned()
    }

    fn services(&self) -> String {
        format!(
            "--signing-config {}",
            self.sigstore.signing_config().display()
        )
    }

    /// Checks that cosign and the plugin report the same signer.
    async fn verified(&self, pinned: &str) {
        let line = format!(
            "verify {pinned} --certificate-identity {WHO} --certificate-oidc-issuer {} --trusted-root {}",
            self.sigstore.url(),
            self.sigstore.trusted_root().display()
        );
        let plugin = self.bench.plugin().await.unwrap();
        let verified = plugin.args(line.split(' ')).output().await.unwrap();
        verified.success().unwrap();
        let cosign = self.bench.tool(Tool::Cosign3).await.unwrap();
        let line = format!("{line} --allow-http-registry");
        let verified = cosign.args(line.split(' ')).output().await.unwrap();
        verified.success().unwrap();
    }
}

/// Starts a program that signs, in the background.
fn start(command: Command, line: &str) -> tokio::task::JoinHandle<Output> {
    let command = command.args(line.split(' '));
    tokio::spawn(async move { command.output().await.unwrap() })
}

/// Waits for a file and returns its text.
async fn text_of(file: &Path) -> String {
    wait::until_true(LONG, "the browser is opened", || {
        let there = file.is_file();
        async move { Ok(there) }
    })
    .await
    .unwrap();
    fs_err::read_to_string(file).unwrap()
}

/// Creates a replacement for xdg-open that records the URL. Returns its folder, and the file with
/// the URL.
fn opener(bench: &ToolEnvironment) -> (PathBuf, PathBuf) {
    let (folder, note) = (bench.folder().join("bin"), bench.folder().join("address"));
    fs_err::create_dir(&folder).unwrap();
    let program = folder.join("xdg-open");
    let script = format!(
        "#!/bin/sh\nprintf '%s' \"$1\" > {0}.new && mv {0}.new {0}\n",
        note.display()
    );
    fs_err::write(&program, script).unwrap();
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, note)
}

#[tokio::test(flavor = "multi_thread")]
async fn signs_after_browser_login() {
    let scene = Scene::new().await;
    let pinned = scene.pushed("1.0.0").await;
    let (folder, note) = opener(&scene.bench);
    let plugin = scene.bench.plugin().await.unwrap();
    let plugin = plugin
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .env("DISPLAY", ":0");
    let line = format!(
        "sign {pinned} --fulcio-auth-flow normal {} --trusted-root {}",
        scene.services(),
        scene.sigstore.trusted_root().display()
    );
    let signing = start(plugin, &line);
    let address = text_of(&note).await;
    // The client acts like a browser: it opens the issuer, and follows the redirect to the command.
    let browser = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = browser.get(address).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("You are logged in"), "{page}");
    let signed = signing.await.unwrap();
    assert!(
        signed.stderr.contains(&format!("signed as {WHO}")),
        "{signed}"
    );
    signed.success().unwrap();
    scene.verified(&pinned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signs_after_device_code_login() {
    let scene = Scene::new().await;
    let ours = scene.pushed("1.0.0").await;
    let plugin = scene.bench.plugin().await.unwrap();
    let services = scene.services();
    let root = scene.sigstore.trusted_root();
    let line = format!(
        "sign {ours} --fulcio-auth-flow device {services} --trusted-root {}",
        root.display()
    );
    let signing = start(plugin, &line);
    let theirs = scene.pushed("2.0.0").await;
    let cosign = scene.bench.tool(Tool::Cosign3).await.unwrap();
    let line = format!(
        "sign {theirs} --fulcio-auth-flow device {services} --trusted-root {} --allow-http-registry -y",
        root.display()
    );
    let cosigning = start(cosign, &line);
    // The scenario acts like a user who enters every code.
    let page = format!("{}/login/device/page?user_code=", scene.sigstore.url());
    let browser = reqwest::Client::builder().no_proxy().build().unwrap();
    wait::until_true(LONG, "both have signed", || {
        let done = signing.is_finished() && cosigning.is_finished();
        let visit = browser.get(&page).send();
        async move {
            visit.await?;
            Ok(done)
        }
    })
    .await
    .unwrap();
    let signed = signing.await.unwrap();
    assert!(
        signed.stderr.contains("log in at http://127.0.0.1"),
        "{signed}"
    );
    signed.success().unwrap();
    cosigning.await.unwrap().success().unwrap();
    scene.verified(&ours).await;
    scene.verified(&theirs).await;
}
