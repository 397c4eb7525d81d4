//! Resources of the shared pod that one tenant can use: memory, time, and disk space. Each attack
//! runs against the real process under the memory limit of its Deployment, while `/livez` is
//! polled.

use std::io::Write as _;
use std::time::{Duration, Instant};

use bundle_testkit::registry::{Fault, Registry};
use e2e::{Cluster, Tool, Webhook, WebhookOptions, wait};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future::join_all;
use kube::Client;
use rand::Rng as _;
use serde_json::{Value, json};

use crate::scenarios::objects::{apply, condition, get, kubectl, try_get};
use probe::{LivenessProbe, Observed};

pub(in crate::scenarios) use probe::anonymous_kib;

mod content;
mod hostile_server;
mod probe;
mod reconciles;
mod registries;
mod requests;

const CLASS: &str = "core-rukpak-io-plain";
const LONG: Duration = Duration::from_secs(120);
/// Memory limit in bytes of the container in webhook/deploy/manifests/deployment.yaml.
const MEMORY_LIMIT: u64 = 128 << 20;
/// Longest accepted duration of a probe. A longer probe means that the probe waits for the attack.
/// Shorter times are printed and not asserted, because other scenarios use the same CPUs.
const ALIVE_WITHIN: Duration = Duration::from_secs(5);
/// A public key whose private key has signed nothing.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8efOuCl/zfKKRcVPyHdrowlViDNt
xT0xFrSuwZ4Jw7OBikUwxExff8eNw1ubatu9oZrMjuvBDhTi81JWEUW+gQ==
-----END PUBLIC KEY-----
";

async fn stage() -> (Cluster, Webhook) {
    stage_with(&[]).await
}

async fn stage_with(flags: &[&str]) -> (Cluster, Webhook) {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions {
            memory_limit: Some(MEMORY_LIMIT),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            // These are the environment variables of the Deployment.
            environment: [
                ("BUNDLE_MEMORY_LIMIT", MEMORY_LIMIT.to_string()),
                ("MALLOC_ARENA_MAX", "2".to_owned()),
                ("MALLOC_TRIM_THRESHOLD_", (1 << 20).to_string()),
                ("MALLOC_MMAP_THRESHOLD_", (256 << 10).to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            ..WebhookOptions::default()
        })
        .await
        .unwrap();
    (cluster, webhook)
}

/// Prints a line, visible with `--nocapture`.
fn record(line: &str) {
    let mut terminal = std::io::stderr().lock();
    writeln!(terminal, "{line}").unwrap();
}

/// Checks that the process is running, was not killed, and responded to its probes. Prints the peak
/// memory, for the table in docs/reference/limits.md. Returns the peak of the anonymous memory, in
/// KiB.
async fn survived(attack: &str, webhook: &mut Webhook, probe: LivenessProbe) -> u64 {
    let Observed { longest, anonymous } = probe.stop().await;
    let limit = webhook.memory_limit().unwrap();
    let (peak, kills) = (limit.peak().unwrap(), limit.kills().unwrap());
    record(&format!(
        "{attack}: peak {} MiB without files, {} MiB with the page cache, limit {} MiB; longest /livez {longest:?}",
        anonymous >> 10,
        peak >> 20,
        MEMORY_LIMIT >> 20,
    ));
    assert_eq!(kills, 0, "{attack}: the kernel has killed bundle-webhook");
    assert!(webhook.is_running(), "{attack}: bundle-webhook has ended");
    assert!(longest < ALIVE_WITHIN, "{attack}: /livez took {longest:?}");
    anonymous
}

fn bundle(name: &str, reference: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "source": {"type": "image", "image": {"ref": reference}}},
    })
}

fn deployment(name: &str, reference: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": CLASS,
            "template": {"metadata": {}, "spec": {
                "provisionerClassName": CLASS,
                "source": {"type": "image", "image": {"ref": reference}},
            }},
        },
    })
}

/// Runs kubectl with the words of `line`. The command can wait for thousands of objects for
/// minutes, until its own `--timeout`.
async fn kubectl_for_minutes(cluster: &Cluster, line: &str) {
    let command = cluster.tool(Tool::Kubectl).await.unwrap();
    let command = command.args(line.split(' '));
    let output = command.deadline(Duration::from_mins(11)).output().await;
    output.unwrap().success().unwrap();
}

/// Returns the phase of a Bundle, and the message of its condition `Unpacked`.
async fn phase(cluster: &Cluster, name: &str) -> (String, String) {
    let object = get(cluster, &format!("bundle {name}")).await;
    let object = object.unwrap_or_default();
    let unpacked = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Unpacked");
    (
        object["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        unpacked
            .and_then(|condition| condition["message"].as_str())
            .unwrap_or_default()
            .to_owned(),
    )
}

/// Waits until a Bundle has this phase, and returns the message of its condition `Unpacked`.
async fn until_phase(cluster: &Cluster, name: &str, wanted: &str, deadline: Duration) -> String {
    let what = format!("Bundle {name} is {wanted}");
    wait::until(deadline, &what, || async {
        let (phase, message) = phase(cluster, name).await;
        if phase == wanted {
            return Ok(Some(message));
        }
        anyhow::bail!("it is {phase:?}: {message}")
    })
    .await
    .unwrap()
}

/// Returns a tar of these files.
fn tar(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        builder
            .append_data(&mut header, path, bytes.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// Publishes an image with one compressed layer. Returns its reference by tag, and the size of the
/// layer in bytes.
fn publish(registry: &Registry, name: &str, tar: &[u8]) -> (String, usize) {
    let mut layer = GzEncoder::new(Vec::new(), Compression::default());
    layer.write_all(tar).unwrap();
    let layer = layer.finish().unwrap();
    let size = layer.len();
    let digest = |bytes: &[u8]| bundle_core::reference::Digest::of(bytes).to_string();
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config.as_bytes()), "size": config.len()},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(&layer), "size": size}],
    })
    .to_string();
    registry.put_blob(name, config.into_bytes());
    registry.put_blob(name, layer);
    for tag in ["1", &digest(manifest.as_bytes())] {
        let kind = "application/vnd.oci.image.manifest.v1+json";
        registry.put_manifest(name, tag, kind, manifest.as_bytes());
    }
    (registry.reference(&format!("{name}:1")), size)
}

fn config_map(name: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{text: {text}}}\n"
    )
}

/// Returns the URL to which the API server posts reviews of Bundles.
async fn review_url(cluster: &Cluster) -> String {
    kubectl(
        cluster,
        "get validatingwebhookconfiguration bundle-webhook -o jsonpath={.webhooks[0].clientConfig.url}",
    )
    .await
}

/// Posts the body as a review, and returns the HTTP status. Returns `None` if the connection broke.
async fn post(url: &str, body: Vec<u8>) -> Option<u16> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .danger_accept_invalid_certs(true)
        .timeout(LONG)
        .build()
        .unwrap();
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .body(body);
    Some(request.send().await.ok()?.status().as_u16())
}

/// Creates the object as a dry run, and returns status and message of the response.
async fn create_dry(client: &Client, plural: &str, object: &Value) -> (u16, String) {
    create_dry_with(client, &[], plural, object).await
}

/// Sends a dry-run create as another user with all permissions.
async fn create_dry_as(client: &Client, user: &str, plural: &str, object: &Value) -> (u16, String) {
    let headers = [
        ("impersonate-user", user),
        ("impersonate-group", "system:masters"),
    ];
    create_dry_with(client, &headers, plural, object).await
}

/// Sends a dry-run create as a user with only the permissions of [`grant_tenant`].
async fn create_dry_as_tenant(
    client: &Client,
    user: &str,
    plural: &str,
    object: &Value,
) -> (u16, String) {
    create_dry_with(client, &[("impersonate-user", user)], plural, object).await
}

async fn create_dry_with(
    client: &Client,
    headers: &[(&str, &str)],
    plural: &str,
    object: &Value,
) -> (u16, String) {
    let path = format!("/apis/core.rukpak.io/v1alpha1/{plural}?dryRun=All");
    let mut request = http::Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(object.to_string().into_bytes()).unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => (201, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message),
        Err(error) => panic!("the API server did not answer: {error}"),
    }
}

/// Grants a user permission to write Bundles and BundleDeployments, and to use the shipped classes.
async fn grant_tenant(cluster: &Cluster, user: &str) {
    for role in ["bundle-editor", "bundle-user"] {
        let line =
            format!("create clusterrolebinding {role}-{user} --clusterrole={role} --user={user}");
        kubectl(cluster, &line).await;
    }
}

/// Creates objects as a user of the group `system:masters`.
async fn create_as(cluster: &Cluster, user: &str, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    let user = format!("--as={user}");
    let created = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = created
        .args(["create", "-f", "-", &user, "--as-group=system:masters"])
        .stdin(text.join("\n---\n"))
        .output()
        .await
        .unwrap();
    created.success().unwrap();
}
