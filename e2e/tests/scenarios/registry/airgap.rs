//! Offline transfer: a package with three images is built on one machine and transferred as one
//! file into a network without internet access. Digests and signatures are unchanged, and other
//! tools can read the file. `copies` tests the single transfers.

use e2e::host::command::Command;
use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::{IsolatedNetwork, Output, Registry, Tool, ToolEnvironment};
use serde_json::Value;

const BUNDLE: &str = "\
apiVersion: bundle.core.rukpak.io/v1alpha1
kind: Package
name: trio
version: 1.4.0
format: plain+v0
images:
- {name: agent, image: HOST/team/agent:2.1.0}
";

const WORKLOAD: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: trio, namespace: default}
spec:
  selector: {matchLabels: {app: trio}}
  template:
    metadata: {labels: {app: trio}}
    spec:
      initContainers:
      - {name: setup, image: HOST/team/setup:1.0.0}
      containers:
      - {name: server, image: HOST/team/server:1.4.0}
";

/// Simulated machine with a registry, on which programs are run.
struct Machine<'a> {
    bench: &'a ToolEnvironment,
    island: Option<&'a IsolatedNetwork>,
    registry: Registry,
}

impl Machine<'_> {
    async fn run(&self, program: Command, arguments: &str) -> Output {
        let command = self
            .bench
            .clean(program)
            .env("BUNDLE_PASSWORD", "fixture")
            .env("COSIGN_PASSWORD", "fixture")
            .args(arguments.split(' '));
        let command = match self.island {
            Some(island) => island.inside(command),
            None => command,
        };
        command.output().await.unwrap()
    }

    async fn run_plugin(&self, arguments: &str) -> String {
        let plugin = self.bench.plugin().await.unwrap();
        self.run(plugin, arguments).await.success().unwrap()
    }

    async fn run_tool(&self, tool: Tool, arguments: &str) -> String {
        let program = self.bench.tool(tool).await.unwrap();
        self.run(program, arguments).await.success().unwrap()
    }

    async fn skopeo(&self, arguments: &str) -> String {
        self.run(Command::new("skopeo"), arguments)
            .await
            .success()
            .unwrap()
    }

    /// Pushes three images. One image has two platforms.
    async fn make_images(&self) {
        let folder = self.bench.folder();
        fs_err::write(folder.join("greeting"), "hello\n").unwrap();
        self.run(Command::new("tar"), "--create --file layer.tar greeting")
            .await
            .success()
            .unwrap();
        for image in [
            "team/agent:2.1.0",
            "team/setup:1.0.0",
            "team/arm:1",
            "team/amd:1",
        ] {
            let reference = self.registry.reference(image);
            self.run_tool(
                Tool::Crane,
                &format!("append --insecure -f layer.tar -t {reference}"),
            )
            .await;
        }
        for (image, platform) in [("team/arm:1", "linux/arm64"), ("team/amd:1", "linux/amd64")] {
            let reference = self.registry.reference(image);
            self.run_tool(
                Tool::Crane,
                &format!("mutate --insecure --set-platform {platform} {reference} -t {reference}"),
            )
            .await;
        }
        let of = |image: &str| self.registry.reference(image);
        self.run_tool(
            Tool::Crane,
            &format!(
                "index append --insecure -m {} -m {} -t {}",
                of("team/arm:1"),
                of("team/amd:1"),
                of("team/server:1.4.0")
            ),
        )
        .await;
    }

    async fn digest(&self, reference: &str) -> String {
        self.run_tool(Tool::Crane, &format!("digest --insecure {reference}"))
            .await
    }
}

async fn carried(program: RegistryProgram) {
    let bench = ToolEnvironment::new().unwrap();
    let out_there = Machine {
        registry: bench.registry().await.unwrap(),
        bench: &bench,
        island: None,
    };
    out_there.make_images().await;

    let host = out_there.registry.host();
    let folder = bench.folder().join("trio");
    fs_err::create_dir_all(folder.join("manifests")).unwrap();
    fs_err::write(folder.join("bundle.yaml"), BUNDLE.replace("HOST", &host)).unwrap();
    fs_err::write(
        folder.join("manifests/trio.yaml"),
        WORKLOAD.replace("HOST", &host),
    )
    .unwrap();
    out_there
        .run_plugin("keys generate --output-key-prefix release")
        .await;
    out_there
        .run_plugin("build trio --lock --to trio.oci")
        .await;
    let reference = out_there.registry.reference("team/trio:1.4.0");
    let pinned = out_there
        .run_plugin(&format!("push trio.oci {reference}"))
        .await;
    let (_, digest) = pinned.rsplit_once('@').unwrap();
    out_there
        .run_plugin(&format!("sign {pinned} --key release.key"))
        .await;
    out_there
        .run_plugin(&format!("save {pinned} --images --to trio.tar"))
        .await;
    let names = ["team/agent:2.1.0", "team/setup:1.0.0", "team/server:1.4.0"];
    let mut digests = Vec::new();
    for name in names {
        digests.push(out_there.digest(&out_there.registry.reference(name)).await);
    }

    // From now on only the file and the public key of the first machine are available.
    drop(out_there);
    let island = bench.island().await.unwrap();
    let terms = RegistryOptions {
        program,
        ..RegistryOptions::default()
    };
    let inside = Machine {
        registry: bench.registry_on(&island, terms).await.unwrap(),
        bench: &bench,
        island: Some(&island),
    };
    let prefix = inside.registry.reference("air-gap");
    let loaded = inside
        .run_plugin(&format!(
            "load trio.tar --to {prefix} --mirrors-out mirrors -o json"
        ))
        .await;
    let loaded: Value = serde_json::from_str(&loaded).unwrap();
    let targets: Vec<&str> = loaded["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["target"].as_str().unwrap())
        .collect();
    assert_eq!(targets.len(), 4, "{loaded:#}");

    let below = format!("{prefix}/{}", host.replace(':', "_"));
    let trio = format!("{below}/team/trio@{digest}");
    inside
        .run_plugin(&format!("verify {trio} --key release.pub"))
        .await;
    let seen = inside.run_plugin(&format!("inspect {trio} -o json")).await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(seen["digest"], digest);
    inside
        .run_tool(Tool::Cosign3, "trusted-root create --out root.json")
        .await;
    inside
        .run_tool(
            Tool::Cosign3,
            &format!("verify --key release.pub --insecure-ignore-tlog=true --trusted-root root.json --allow-http-registry {trio}"),
        )
        .await;
    for (name, digest) in names.iter().zip(&digests) {
        let (repository, _) = name.split_once(':').unwrap();
        let place = format!("{below}/{repository}@{digest}");
        assert_eq!(inside.digest(&place).await, *digest);
        inside
            .run_tool(
                Tool::Crane,
                &format!("validate --insecure --remote {place}"),
            )
            .await;
        inside
            .skopeo(&format!(
                "inspect --tls-verify=false --raw docker://{place}"
            ))
            .await;
    }
    // The plugin also verifies the reference with the old name, because `registries.conf` redirects
    // this name to the new registry.
    inside
        .run_plugin(&format!(
            "verify {host}/team/trio@{digest} --key release.pub --registries-conf mirrors/registries.conf"
        ))
        .await;
    let mirrors = fs_err::read_to_string(bench.folder().join("mirrors/registries.conf")).unwrap();
    assert!(mirrors.contains(&below), "{mirrors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_transferred_offline_to_a_registry_without_referrers() {
    carried(RegistryProgram::Distribution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_transferred_offline_to_a_registry_with_referrers() {
    carried(RegistryProgram::WithReferrers).await;
}
