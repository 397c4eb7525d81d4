//! Compatibility of transfers: skopeo, crane and both versions of cosign read artifacts of the
//! plugin, and the plugin reads artifacts of these tools.

use e2e::host::command::Command;
use e2e::host::packages;
use e2e::host::prerequisites::RequiredProgram;
use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::{Output, Registry, Tool, ToolEnvironment, bundles};

struct Scene {
    bench: ToolEnvironment,
    cncf: Registry,
    crane: Registry,
}

impl Scene {
    async fn new() -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let cncf = bench.registry().await.unwrap();
        let terms = RegistryOptions {
            program: RegistryProgram::WithReferrers,
            ..RegistryOptions::default()
        };
        let crane = bench.registry_with(terms).await.unwrap();
        bundles::greeting(&bench.folder().join("bundle"), "1.0.0", None).unwrap();
        Self { bench, cncf, crane }
    }

    async fn run(&self, command: Command, line: &str) -> Output {
        command
            .args(line.split(' '))
            .env("BUNDLE_PASSWORD", "fixture")
            .env("COSIGN_PASSWORD", "fixture")
            .output()
            .await
            .unwrap()
    }

    async fn run_plugin(&self, line: &str) -> String {
        let plugin = self.bench.plugin().await.unwrap();
        self.run(plugin, line).await.success().unwrap()
    }

    async fn tool(&self, tool: Tool, line: &str) -> String {
        let tool = self.bench.tool(tool).await.unwrap();
        self.run(tool, line).await.success().unwrap()
    }

    async fn skopeo(&self, line: &str) -> String {
        let skopeo = self.bench.clean(Command::new("skopeo"));
        self.run(skopeo, &format!("--insecure-policy {line}"))
            .await
            .success()
            .unwrap()
    }

    /// Pushes a bundle to the first registry, and returns its reference and digest.
    async fn pushed(&self) -> (String, String) {
        let reference = self.cncf.reference("team/greeting:1.0.0");
        let pinned = self.run_plugin(&format!("push bundle {reference}")).await;
        let digest = pinned.rsplit_once('@').unwrap().1.to_owned();
        (reference, digest)
    }

    /// Pushes an image and signs it with the plugin, with cosign 3, and with cosign 2. Returns its
    /// reference and digest.
    async fn signed(&self) -> (String, String) {
        let (reference, digest) = self.pushed().await;
        self.run_plugin("keys generate --output-key-prefix ours")
            .await;
        self.tool(Tool::Cosign3, "generate-key-pair").await;
        let pinned = format!("{}@{digest}", self.cncf.reference("team/greeting"));
        self.run_plugin(&format!("sign {pinned} --key ours.key"))
            .await;
        self.tool(Tool::Cosign3, &format!("sign --key cosign.key --use-signing-config=false --tlog-upload=false -y --allow-http-registry {pinned}"))
            .await;
        self.tool(
            Tool::Cosign2,
            &format!("sign --key cosign.key --tlog-upload=false -y --allow-http-registry {pinned}"),
        )
        .await;
        self.tool(Tool::Cosign3, "trusted-root create --out root.json")
            .await;
        (reference, digest)
    }

    /// Checks that all three signatures at `reference` are valid and that the digest is unchanged.
    async fn check_signatures(&self, reference: &str, digest: &str) {
        let found = self.tool(Tool::Crane, &format!("digest {reference}")).await;
        assert_eq!(found, digest, "{reference}");
        self.run_plugin(&format!("verify {reference} --key ours.pub"))
            .await;
        self.run_plugin(&format!("verify {reference} --key cosign.pub"))
            .await;
        for key in ["ours.pub", "cosign.pub"] {
            self.tool(Tool::Cosign3, &format!("verify --key {key} --insecure-ignore-tlog=true --trusted-root root.json --allow-http-registry {reference}"))
                .await;
        }
        self.tool(Tool::Cosign2, &format!("verify --key cosign.pub --insecure-ignore-tlog=true --trusted-root root.json --allow-http-registry {reference}"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_signatures_of_every_kind_with_the_artifact() {
    let scene = Scene::new().await;
    let (reference, digest) = scene.signed().await;
    // Four copies: to a registry without the referrers API, to a registry with the referrers API,
    // through a file, and below a prefix.
    let served = scene.crane.reference("copied/greeting:1.0.0");
    scene
        .run_plugin(&format!("copy {reference} {served}"))
        .await;
    scene.check_signatures(&served, &digest).await;
    scene.run_plugin(&format!("copy {served} web.tar")).await;
    let back = scene.cncf.reference("back/greeting:1.0.0");
    scene.run_plugin(&format!("push web.tar {back}")).await;
    scene.check_signatures(&back, &digest).await;
    scene
        .run_plugin(&format!("save {reference} --to all.tar"))
        .await;
    let prefix = scene.crane.reference("air/gap");
    let table = scene
        .run_plugin(&format!("load all.tar --to {prefix} --mirrors-out mirrors"))
        .await;
    let loaded = format!(
        "{prefix}/{}/team/greeting:1.0.0",
        scene.cncf.host().replace(':', "_")
    );
    assert!(
        table.contains(&reference) && table.contains(&digest),
        "{table}"
    );
    scene.check_signatures(&loaded, &digest).await;
    // Existing content is not uploaded again.
    let plugin = scene.bench.plugin().await.unwrap();
    let again = scene
        .run(plugin, &format!("copy {reference} {served}"))
        .await;
    assert!(again.stderr.contains("nothing to do"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn skopeo_and_crane_read_artifacts_of_the_plugin() {
    packages::ensure(&[RequiredProgram::Skopeo]).unwrap();
    let scene = Scene::new().await;
    let (reference, digest) = scene.pushed().await;
    scene
        .run_plugin(&format!("pull {reference} --to web.oci"))
        .await;
    scene
        .run_plugin(&format!("pull {reference} --to web.tar"))
        .await;
    scene
        .run_plugin(&format!("save {reference} --to all.tar"))
        .await;
    for (source, name) in [
        ("oci:web.oci", "1.0.0"),
        ("oci-archive:web.tar", "1.0.0"),
        ("oci-archive:all.tar", &reference),
    ] {
        let raw = scene
            .skopeo(&format!("inspect --raw {source}:{name}"))
            .await;
        assert!(raw.contains("schemaVersion"), "{raw}");
        let to = scene.crane.reference("skopeo/greeting:1.0.0");
        scene
            .skopeo(&format!(
                "copy --preserve-digests --dest-tls-verify=false {source}:{name} docker://{to}"
            ))
            .await;
        assert_eq!(
            scene.tool(Tool::Crane, &format!("digest {to}")).await,
            digest
        );
    }
    let to = scene.cncf.reference("crane/greeting:1.0.0");
    scene.tool(Tool::Crane, &format!("push web.oci {to}")).await;
    assert_eq!(
        scene.tool(Tool::Crane, &format!("digest {to}")).await,
        digest
    );
    scene
        .tool(Tool::Crane, &format!("validate --remote {reference}"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_reads_artifacts_of_skopeo_and_crane() {
    packages::ensure(&[RequiredProgram::Skopeo]).unwrap();
    let scene = Scene::new().await;
    let (reference, digest) = scene.pushed().await;
    let from = format!("--preserve-digests --src-tls-verify=false docker://{reference}");
    scene
        .skopeo(&format!("copy {from} oci:skopeo.oci:1.0.0"))
        .await;
    scene
        .skopeo(&format!("copy {from} oci-archive:skopeo.tar:1.0.0"))
        .await;
    scene
        .tool(
            Tool::Crane,
            &format!("pull --format=oci {reference} crane.oci"),
        )
        .await;
    for (place, name) in [
        ("skopeo.oci", "theirs/a:1.0.0"),
        ("skopeo.tar:1.0.0", "theirs/b:1.0.0"),
        ("crane.oci", "theirs/c:1.0.0"),
    ] {
        let to = scene.crane.reference(name);
        let pinned = scene.run_plugin(&format!("push {place} {to}")).await;
        assert!(pinned.ends_with(&digest), "{place}: {pinned}");
    }
    let copied = scene.crane.reference("theirs/d:1.0.0");
    scene
        .skopeo(&format!("copy --src-tls-verify=false --dest-tls-verify=false --preserve-digests docker://{reference} docker://{copied}"))
        .await;
    scene
        .run_plugin(&format!("pull {copied} --to ./copied.oci"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copied_charts_of_helm_can_be_pulled_by_helm() {
    const CHART: &str = "apiVersion: v2\nname: page\nversion: 0.1.0\n";
    const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\n";
    let scene = Scene::new().await;
    let folder = scene.bench.folder();
    fs_err::create_dir_all(folder.join("page/templates")).unwrap();
    fs_err::write(folder.join("page/Chart.yaml"), CHART).unwrap();
    fs_err::write(folder.join("page/templates/page.yaml"), OBJECT).unwrap();
    scene.tool(Tool::Helm, "package page").await;
    let charts = scene.cncf.reference("charts");
    scene
        .tool(
            Tool::Helm,
            &format!("push page-0.1.0.tgz oci://{charts} --plain-http"),
        )
        .await;
    let original = fs_err::read(folder.join("page-0.1.0.tgz")).unwrap();

    let chart = format!("{charts}/page:0.1.0");
    let seen = scene.run_plugin(&format!("inspect {chart}")).await;
    assert!(seen.contains("vnd.cncf.helm.chart"), "{seen}");
    let copied = scene.crane.reference("mirror");
    scene
        .run_plugin(&format!("copy {chart} {copied}/page:0.1.0"))
        .await;
    scene
        .run_plugin(&format!("save {chart} --to page.tar"))
        .await;
    let loaded = scene.crane.reference("loaded");
    scene
        .run_plugin(&format!("load page.tar --to {loaded}"))
        .await;
    let below = scene.cncf.host().replace(':', "_");
    fs_err::create_dir(folder.join("pulled")).unwrap();
    for place in [copied, format!("{loaded}/{below}/charts")] {
        scene
            .tool(
                Tool::Helm,
                &format!(
                    "pull oci://{place}/page --version 0.1.0 --plain-http --destination pulled"
                ),
            )
            .await;
        let pulled = folder.join("pulled/page-0.1.0.tgz");
        assert_eq!(fs_err::read(&pulled).unwrap(), original, "{place}");
        fs_err::remove_file(pulled).unwrap();
    }
}
