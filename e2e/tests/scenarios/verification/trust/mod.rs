//! Trust roots from a TUF repository that go-tuf writes: `trust init`, and `sign` and `verify` with
//! the trust root, in comparison with real cosign 3. Each error of the repository, the mirror or
//! the cache has its own message.

use std::path::{Path, PathBuf};

use e2e::sigstore::{ServerBehavior, Sigstore, TufRepository, WORKFLOW, WORKFLOW_ISSUER, workflow};
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles};
use serde_json::{Value, json};

mod cache;
mod rejected;

const PAST: &str = "2020-01-01T00:00:00Z";

/// A change of the state of the TUF repository.
type Change = Box<dyn Fn(&mut Value)>;

struct Scene {
    bench: ToolEnvironment,
    sigstore: Sigstore,
    repository: TufRepository,
    registry: Registry,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let sigstore = bench.sigstore().await.unwrap();
        Self {
            repository: bench.tuf_repository(&sigstore).await.unwrap(),
            registry: bench.registry().await.unwrap(),
            sigstore,
            bench,
        }
    }

    async fn run_plugin(&self, arguments: &str) -> Output {
        let plugin = self.bench.plugin().await.unwrap();
        plugin.args(arguments.split(' ')).output().await.unwrap()
    }

    async fn init(&self) -> Output {
        let (url, root) = (self.repository.url(), self.repository.root());
        let root = root.display();
        self.run_plugin(&format!("trust init --mirror {url} --root {root} -o json"))
            .await
    }

    /// Returns the only folder with cached metadata of the TUF repository.
    fn cache_folder(&self) -> PathBuf {
        let tuf = self.bench.folder().join("home/.cache/kubectl-bundle/tuf");
        let mut folders = fs_err::read_dir(tuf).unwrap();
        folders.next().unwrap().unwrap().path()
    }

    /// Changes the cache as if the repository had last been read at the time `at`.
    fn asked(&self, at: &str) {
        let text = json!({ "at": at }).to_string();
        fs_err::write(self.cache_folder().join("asked.json"), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tuf_repository_supplies_trust_root_and_signing_config() {
    let mut scene = Scene::new().await;
    bundles::greeting(&scene.bench.folder().join("bundle"), "1.0.0", None).unwrap();
    let reference = scene.registry.reference("greeting:1.0.0");
    let pushed = scene.run_plugin(&format!("push bundle {reference}")).await;
    let pinned = pushed.success().unwrap().trim().to_owned();

    let shown = scene
        .run_plugin("trust show -o json")
        .await
        .success()
        .unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["source"], "built-in");
    let refused = scene.run_plugin("trust update").await.failure(2).unwrap();
    assert!(refused.contains("no TUF repository is set"), "{refused}");

    let report: Value = serde_json::from_str(&scene.init().await.success().unwrap()).unwrap();
    assert_eq!(report["source"], "repository");
    assert_eq!(report["mirror"], scene.repository.url());
    assert_eq!(report["expires"], "2090-01-01T00:00:00Z");
    assert_eq!(report["signingConfig"], true);
    let text = scene
        .run_plugin("trust show --root-file")
        .await
        .success()
        .unwrap();
    let root = fs_err::read_to_string(scene.sigstore.trusted_root()).unwrap();
    assert_eq!(text.trim_end(), root.trim_end());

    // Neither a trust root nor a URL is set.
    let token = scene.sigstore.token_file(&workflow()).await.unwrap();
    let signed = scene
        .run_plugin(&format!(
            "sign {pinned} --identity-token {}",
            token.display()
        ))
        .await;
    signed.success().unwrap();
    let verify = format!(
        "verify {pinned} --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER}"
    );
    let report = scene.run_plugin(&format!("{verify} -o json")).await;
    let report: Value = serde_json::from_str(&report.success().unwrap()).unwrap();
    assert_eq!(report["trustRoot"]["source"], "repository");
    assert_eq!(report["trustRoot"]["mirror"], scene.repository.url());

    // cosign reads the same repository.
    let cosign = async |arguments: &str| {
        let cosign = scene.bench.tool(Tool::Cosign3).await.unwrap();
        cosign.args(arguments.split(' ')).output().await.unwrap()
    };
    let (url, first) = (scene.repository.url(), scene.repository.root());
    let initialized = cosign(&format!(
        "initialize --mirror {url} --root {}",
        first.display()
    ))
    .await;
    initialized.success().unwrap();
    let verified = cosign(&format!(
        "verify --certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --allow-http-registry {pinned}"
    ))
    .await;
    verified.success().unwrap();

    // Keys change, one version after the other, and new metadata is accepted.
    let rotate = |version: u32| {
        move |state: &mut Value| {
            let (old, new) = (format!("root-{}", version - 1), format!("root-{version}"));
            let old = if version == 2 { "root" } else { &old };
            state["root"]["version"] = json!(version);
            state["root"]["keys"] = json!([new, format!("{new}-second")]);
            state["root"]["threshold"] = json!(2);
            let mut signers = vec![json!(old), json!(new), json!(format!("{new}-second"))];
            if version > 2 {
                signers.push(json!(format!("{old}-second")));
            }
            state["root"]["signers"] = json!(signers);
            state["timestamp"]["version"] = json!(version);
        }
    };
    scene.repository.rewrite(rotate(2)).unwrap();
    scene.repository.rewrite(rotate(3)).unwrap();
    let updated = scene
        .run_plugin("trust update -o json")
        .await
        .success()
        .unwrap();
    let updated: Value = serde_json::from_str(&updated).unwrap();
    assert_eq!(updated["version"], 3, "{updated}");

    // The mirror gets no requests while the metadata is fresh, and no requests with `--offline`.
    scene.repository.answer(ServerBehavior::Dead);
    let reported = scene.run_plugin(&verify).await;
    reported.success().unwrap();
    scene.asked("2026-01-01T00:00:00Z");
    let reported = scene.run_plugin(&format!("{verify} --offline")).await;
    assert!(
        !reported.to_string().contains("BUNDLE-TRUST-050"),
        "{reported}"
    );
    reported.success().unwrap();
    let reported = scene.run_plugin(&verify).await;
    assert!(
        reported.to_string().contains("BUNDLE-TRUST-050"),
        "{reported}"
    );
    reported.success().unwrap();

    scene.run_plugin("trust reset").await.success().unwrap();
    let refused = scene.run_plugin(&verify).await.failure(3).unwrap();
    assert!(refused.contains("an untrusted log"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tuf_repository_is_reported_and_changes_nothing() {
    let mut scene = Scene::new().await;
    let good = scene.repository.state.clone();
    let mut other = TufRepository::start(scene.bench.folder()).await.unwrap();
    other.target("trusted_root.json", &scene.sigstore.trusted_root());
    other.write().unwrap();
    // The following cases are errors before the first successful refresh.
    let mirror = scene.repository.url();
    let root = scene.repository.root().display().to_string();
    let foreign = other.root().display().to_string();
    let file = scene.sigstore.trusted_root().display().to_string();
    for (arguments, code, why) in [
        (
            format!("--mirror {mirror} --root {foreign}"),
            3,
            "BUNDLE-TRUST-053",
        ),
        (
            format!("--mirror {mirror} --root {file}"),
            3,
            "BUNDLE-TRUST-053",
        ),
        (
            format!("--mirror {mirror}/elsewhere --root {root}"),
            4,
            "a file is missing",
        ),
        (
            format!("--mirror http://127.0.0.1:1 --root {root}"),
            4,
            "BUNDLE-TRUST-050",
        ),
        (
            format!("--mirror file:///tmp --root {root}"),
            2,
            "is not a valid URL of a TUF repository",
        ),
        (format!("--mirror {mirror}"), 2, "--root"),
    ] {
        let refused = scene.run_plugin(&format!("trust init {arguments}")).await;
        let refused = refused.failure(code).unwrap();
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
    let shown = scene
        .run_plugin("trust show -o json")
        .await
        .success()
        .unwrap();
    assert!(shown.contains("built-in"), "{shown}");

    scene
        .repository
        .rewrite(|state| {
            for role in ["timestamp", "snapshot", "targets"] {
                state[role]["version"] = json!(5);
            }
        })
        .unwrap();
    scene.init().await.success().unwrap();

    let set = |role: &'static str, field: &'static str, value: Value| {
        Box::new(move |state: &mut Value| {
            for newer in ["timestamp", "snapshot", "targets"] {
                state[newer]["version"] = json!(6);
            }
            state[role][field] = value.clone();
        }) as Change
    };
    let root_2 = |more: &'static [(&'static str, &'static str)]| {
        Box::new(move |state: &mut Value| {
            state["root"]["version"] = json!(2);
            for (field, value) in more {
                state["root"][*field] = serde_json::from_str(value).unwrap();
            }
            state["timestamp"]["version"] = json!(6);
        }) as Change
    };
    let cases: Vec<(&str, Change, i32, &str, &str)> = vec![
        (
            "a timestamp that has ended",
            set("timestamp", "expires", json!(PAST)),
            3,
            "BUNDLE-TRUST-051",
            "expired on",
        ),
        (
            "a snapshot that has ended",
            set("snapshot", "expires", json!(PAST)),
            3,
            "BUNDLE-TRUST-051",
            "expired on",
        ),
        (
            "targets that have ended",
            set("targets", "expires", json!(PAST)),
            3,
            "BUNDLE-TRUST-051",
            "expired on",
        ),
        (
            "an older timestamp",
            set("timestamp", "version", json!(4)),
            3,
            "BUNDLE-TRUST-052",
            "has version 4, older than the trusted version 5",
        ),
        (
            "an older snapshot",
            set("snapshot", "version", json!(4)),
            3,
            "BUNDLE-TRUST-052",
            "snapshot",
        ),
        (
            "older targets",
            set("targets", "version", json!(4)),
            3,
            "BUNDLE-TRUST-052",
            "targets.json",
        ),
        (
            "a timestamp by another key",
            set("timestamp", "signers", json!(["eve"])),
            3,
            "BUNDLE-TRUST-053",
            "0/1 valid signatures",
        ),
        (
            "a snapshot by another key",
            set("snapshot", "signers", json!(["eve"])),
            3,
            "BUNDLE-TRUST-053",
            "0/1 valid signatures",
        ),
        (
            "targets by another role's key",
            set("targets", "signers", json!(["snapshot"])),
            3,
            "BUNDLE-TRUST-053",
            "0/1 valid signatures",
        ),
        (
            "targets that nobody signed",
            set("targets", "signers", json!([])),
            3,
            "BUNDLE-TRUST-053",
            "0/1 valid signatures",
        ),
        (
            "a root that the old one did not sign",
            root_2(&[("keys", r#"["eve"]"#), ("signers", r#"["eve"]"#)]),
            3,
            "BUNDLE-TRUST-053",
            "0/1 valid signatures",
        ),
        (
            "a root that its own keys did not sign",
            root_2(&[("keys", r#"["new"]"#)]),
            3,
            "BUNDLE-TRUST-053",
            "0/1 valid signatures",
        ),
        (
            "a root that too few signed",
            root_2(&[("keys", r#"["root", "new"]"#), ("threshold", "2")]),
            3,
            "BUNDLE-TRUST-053",
            "1/2 valid signatures",
        ),
        (
            "no trust root",
            Box::new(|state| {
                for newer in ["timestamp", "snapshot", "targets"] {
                    state[newer]["version"] = json!(6);
                }
                state["files"] = json!({});
            }),
            3,
            "BUNDLE-TRUST-053",
            "has no trusted_root.json",
        ),
    ];
    // The cache is restored for each case, so that each case has one fault.
    let kept = scene.cache_folder();
    let saved = scene.bench.folder().join("saved");
    copy(&kept, &saved);
    let base = {
        let mut base = good.clone();
        for role in ["timestamp", "snapshot", "targets"] {
            base[role]["version"] = json!(5);
        }
        base
    };
    for (what, change, code, name, why) in cases {
        fs_err::remove_dir_all(&kept).unwrap();
        copy(&saved, &kept);
        drop(fs_err::remove_file(
            scene.repository.root().with_file_name("2.root.json"),
        ));
        scene.repository.state = base.clone();
        scene.repository.rewrite(|state| change(state)).unwrap();
        let refused = scene
            .run_plugin("trust update")
            .await
            .failure(code)
            .unwrap();
        assert!(
            refused.contains(name) && refused.contains(why),
            "{what}: {refused}"
        );
        // Other commands report the same error when a refresh is due.
        scene.asked("2026-01-01T00:00:00Z");
        let refused = scene.run_plugin("trust show").await.failure(code).unwrap();
        assert!(refused.contains(name), "{what}: {refused}");
    }

    // The first root has expired, and the second root is missing.
    drop(fs_err::remove_file(
        scene.repository.root().with_file_name("2.root.json"),
    ));
    let mut ended = good.clone();
    ended["root"]["expires"] = json!(PAST);
    scene.repository.state = ended;
    scene.repository.write().unwrap();
    let refused = scene.init().await.failure(3).unwrap();
    assert!(refused.contains("expired on"), "{refused}");
}

/// Copies a folder with its content.
fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs_err::copy(&path, &target).unwrap();
        }
    }
}
