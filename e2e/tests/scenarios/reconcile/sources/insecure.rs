//! Connections without verified TLS: used only for hosts that the class of the Bundle lists.

use bundle_testkit::file_server::{FileResponse, FileServer};
use e2e::certs::Authority;
use e2e::registry::{Registry, RegistryOptions};
use e2e::webhook::{NAMESPACE, WebhookOptions};
use e2e::{Cluster, ToolEnvironment, bundles, wait};
use serde_json::{Value, json};

use super::config_maps::class;
use super::git::Repository;
use super::http::{archive, https_server};
use crate::scenarios::objects::apply_as;
use crate::scenarios::reconcile::{LONG, apply, condition, get, publish, until};

/// Names of two classes: the first lists no host, the second lists the hosts of this scenario.
const STRICT: &str = "insecure-strict";
const LISTED: &str = "insecure-listed";

/// Host of a registry without TLS that the pod reaches through a proxy.
const PLAIN_REGISTRY: &str = "registry.example.com";

fn bundle(name: &str, class: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "source": source},
    })
}

/// Starts a registry whose certificate authority the pod does not trust, with one bundle.
async fn untrusted_registry(bench: &ToolEnvironment) -> (Registry, Value) {
    let options = RegistryOptions {
        tls: true,
        ..RegistryOptions::default()
    };
    let registry = bench.registry_with(options).await.unwrap();
    let folder = bench.folder().join("bundle");
    bundles::greeting(&folder, "1.0.0", None).unwrap();
    let reference = registry.reference("team/greeting:1");
    let pushing = bench.plugin().await.unwrap().args([
        "push",
        &folder.display().to_string(),
        &reference,
        "--registry-ca",
        &registry.ca().unwrap().display().to_string(),
    ]);
    pushing.output().await.unwrap().success().unwrap();
    let source = json!({"type": "image", "image": {"ref": reference}});
    (registry, source)
}

/// Starts a server whose certificate authority the pod does not trust, with one bundle.
async fn untrusted_files(bench: &ToolEnvironment) -> (FileServer, Value) {
    let folder = bench.folder().join("files");
    fs_err::create_dir_all(&folder).unwrap();
    let authority = Authority::new(&folder, "insecure-ca").unwrap();
    let server = https_server(&authority, &folder).await;
    let object =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: insecure, namespace: default}\n";
    let bytes = archive(&[("manifests/all.yaml", object)]);
    server.respond("/web.tgz", FileResponse::File(bytes));
    let url = format!("https://{}/web.tgz", server.host());
    let source = json!({"type": "http", "http": {"url": url}});
    (server, source)
}

/// Starts a git server, and creates a Secret without the host key of the server.
async fn unknown_git(cluster: &Cluster) -> (Repository, Value) {
    let name = "insecure-git";
    let repository = Repository::start(cluster, name).await;
    repository.bundle("web", "hello");
    repository.push(false).await;
    let mut secret = repository.secret(name, NAMESPACE);
    secret["stringData"]["ssh-knownhosts"] = json!("other.example.com ssh-ed25519 AAAA");
    apply(cluster, &secret).await;
    let source = repository.source(name, "web", &json!({"branch": "main"}));
    (repository, source)
}

/// Returns `source` with `insecureSkipVerify: true`.
fn skipping(source: &Value) -> Value {
    let mut source = source.clone();
    let kind = source["type"].as_str().unwrap().to_owned();
    source[kind]["auth"]["insecureSkipVerify"] = json!(true);
    source
}

/// Waits until the Bundle fails with this message.
async fn until_failing_with(cluster: &Cluster, name: &str, expected: &str) {
    wait::until_true(LONG, &format!("{name} fails: {expected}"), || async {
        let found = get(cluster, &format!("bundle {name}")).await;
        let found = found.unwrap_or_default();
        let condition = condition(&found, "Unpacked");
        if condition["status"] == "False" && condition.to_string().contains(expected) {
            return Ok(true);
        }
        anyhow::bail!("{condition}")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn insecure_hosts_of_a_class_are_used_without_verified_tls() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let proxy = cluster.registry(0).unwrap().host();
    let options = WebhookOptions {
        flags: ["--memory-limit", "192Mi"].map(str::to_owned).into(),
        environment: vec![("HTTP_PROXY".to_owned(), format!("http://{proxy}"))],
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await.unwrap();
    let bench = ToolEnvironment::new().unwrap();
    let (_registry, image) = untrusted_registry(&bench).await;
    let (_server, archive) = untrusted_files(&bench).await;
    let (_repository, git) = unknown_git(&cluster).await;
    publish(&cluster, "team/greeting:1", |folder| {
        bundles::greeting(folder, "1.0.0", None)
    })
    .await;
    let reference = format!("{PLAIN_REGISTRY}/team/greeting:1");
    let plain = json!({"type": "image", "image": {"ref": reference}});
    let hosts = json!(["127.0.0.1", PLAIN_REGISTRY]);
    for (name, hosts) in [(STRICT, json!([])), (LISTED, hosts)] {
        let sources = json!({"privateAddresses": "Allow", "insecureHosts": hosts});
        apply(&cluster, &class(name, &json!({ "sources": sources }))).await;
    }

    // Without an entry in the class, the webhook rejects sources that skip the verification.
    for (name, source) in [("archive", &archive), ("git", &git)] {
        let object = bundle(&format!("insecure-{name}"), STRICT, &skipping(source));
        wait::until_true(LONG, "the class is known", || async {
            let written = apply_as(&cluster, &object, None).await;
            let refused = written.failure(1)?;
            Ok(
                refused.contains("does not allow insecureSkipVerify for 127.0.0.1")
                    && refused.contains("insecureHosts"),
            )
        })
        .await
        .unwrap();
    }
    // For an image, the entry in the class is sufficient. Other sources must also set
    // `insecureSkipVerify`.
    for (name, class, source, expected) in [
        ("image", STRICT, &image, "is not trusted"),
        (
            "plain",
            STRICT,
            &plain,
            "registry.example.com is unreachable",
        ),
        ("archive", LISTED, &archive, "is not trusted"),
        ("git", LISTED, &git, "is not in ssh-knownhosts"),
    ] {
        let name = format!("insecure-{name}-refused");
        apply(&cluster, &bundle(&name, class, source)).await;
        until_failing_with(&cluster, &name, expected).await;
    }
    for (name, source) in [
        ("image", &image),
        ("plain", &plain),
        ("archive", &skipping(&archive)),
        ("git", &skipping(&git)),
    ] {
        let name = format!("insecure-{name}-listed");
        apply(&cluster, &bundle(&name, LISTED, source)).await;
        until(&cluster, &format!("bundle {name}"), "Unpacked", "True").await;
    }

    // A source can skip the verification only while the class lists its host.
    let sources = json!({"privateAddresses": "Allow", "insecureHosts": []});
    apply(&cluster, &class(LISTED, &json!({ "sources": sources }))).await;
    let object = bundle("insecure-late", LISTED, &skipping(&archive));
    wait::until_true(LONG, "the class changed", || async {
        let written = apply_as(&cluster, &object, None).await;
        Ok(written.failure(1).is_ok())
    })
    .await
    .unwrap();
}
