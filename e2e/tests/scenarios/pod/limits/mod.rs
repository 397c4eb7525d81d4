//! Resources that one tenant can take from the shared pod: memory, time, and disk space. Each
//! attack runs against the real process under the memory limit of its Deployment, while `/livez` is
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

use crate::scenarios::objects::{apply, kubectl};
use probe::{LivenessProbe, Observed, anonymous_kib};

mod answers;
mod attempts;
mod floods;
mod own_objects;
mod probe;
mod reads;
mod registry_texts;
mod removals;
mod restarts;
mod reviews;
mod slots;

const CLASS: &str = "core-rukpak-io-plain";
const LONG: Duration = Duration::from_secs(120);
/// The limit of the container in webhook/deploy/manifests/deployment.yaml.
const MEMORY_LIMIT: u64 = 128 << 20;
/// A probe that takes longer waits for the attack. Below that, times are printed and not asserted:
/// other scenarios share the processors.
const ALIVE_WITHIN: Duration = Duration::from_secs(5);

async fn stage() -> (Cluster, Webhook) {
    stage_with(&[]).await
}

async fn stage_with(flags: &[&str]) -> (Cluster, Webhook) {
    let cluster = Cluster::builder().start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions {
            memory_limit: Some(MEMORY_LIMIT),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            // As in the Deployment.
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
/// memory, for the table in docs/reference/limits.md. Returns the peak without files, in KiB.
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

/// The phase of a Bundle and the message of its condition `Unpacked`.
async fn phase(cluster: &Cluster, name: &str) -> (String, String) {
    let text = kubectl(cluster, &format!("get bundle {name} -o json")).await;
    let object: Value = serde_json::from_str(&text).unwrap();
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

/// A tar of these files.
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

/// Publishes an image with one compressed layer, and returns its reference by tag.
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

/// Posts the body as a review. `None`: the connection broke.
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

#[tokio::test(flavor = "multi_thread")]
async fn review_bodies_of_empty_lists_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let url = review_url(&cluster).await;
    let probe = LivenessProbe::start(&webhook);
    for unit in ["[],", "{\"\":0},", "[[]],", "0,"] {
        let head = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","kind":{{"group":"core.rukpak.io","version":"v1alpha1","kind":"Bundle"}},"name":"a","operation":"CREATE","userInfo":{{"username":"mallory"}},"object":{{"spec":[{}"#,
            unit.repeat(((8 << 20) - 400) / unit.len())
        );
        let body = format!("{head}0]}}}}}}").into_bytes();
        assert!(body.len() <= 8 << 20);
        let answers = join_all((0..4).map(|_| post(&url, body.clone()))).await;
        assert!(
            answers.iter().all(Option::is_some),
            "{unit}: no answer: {answers:?}"
        );
    }
    survived(
        "8 MiB bodies of tiny values, four at a time",
        &mut webhook,
        probe,
    )
    .await;
}

/// Creates the object as a dry run, and returns status and message of the response.
async fn create_dry(client: &Client, plural: &str, object: &Value) -> (u16, String) {
    create_dry_as(client, None, plural, object).await
}

/// Sends a dry-run create as another user with all permissions.
async fn create_dry_as(
    client: &Client,
    user: Option<&str>,
    plural: &str,
    object: &Value,
) -> (u16, String) {
    let path = format!("/apis/core.rukpak.io/v1alpha1/{plural}?dryRun=All");
    let mut request = http::Request::post(path).header("content-type", "application/json");
    if let Some(user) = user {
        request = request
            .header("impersonate-user", user)
            .header("impersonate-group", "system:masters");
    }
    let request = request.body(object.to_string().into_bytes()).unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => (201, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message),
        Err(error) => panic!("the API server did not answer: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_reviews_of_the_largest_objects_wait_for_memory() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    let mut object = deployment(
        "large",
        "registry.example.com/a@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    );
    // The API server takes requests of 3 MiB.
    let objects: Vec<Value> = (0..8)
        .map(|number| {
            let text = "x".repeat(100);
            object["metadata"]["name"] = format!("large-{number}").into();
            object["spec"]["config"] = match number % 2 {
                0 => json!({"a": vec![json!([]); 900_000]}),
                _ => json!({"a": vec![Value::String(text); 26_000]}),
            };
            object.clone()
        })
        .collect();
    let answers = join_all(
        objects
            .iter()
            .map(|object| create_dry(&client, "bundledeployments", object)),
    )
    .await;
    // Let in, refused for good reason, or asked to come back later; a pod that died would show as a broken connection.
    for (status, message) in &answers {
        let good = match status {
            201 => true,
            403 => ["BUNDLE-REVIEW-042", "BUNDLE-REVIEW-063"]
                .iter()
                .any(|code| message.contains(code)),
            503 => message.contains("BUNDLE-REVIEW-043"),
            // 408: its body did not arrive in the time that it has, on a machine that is busy.
            _ => ["too many", "deadline exceeded", "status code 408"]
                .iter()
                .any(|words| message.contains(words)),
        };
        assert!(good, "{status}: {message}");
    }
    survived("eight objects of 3 MiB at once", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_layer_that_unpacks_to_a_hundred_mebibytes_does_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::honest().await.unwrap();
    let mut noise = vec![0; 700 << 10];
    rand::rng().fill(&mut noise[..]);
    let comments = format!("# {}\n", "a".repeat(97)).repeat((1 << 20) / 100);
    let manifests = (0..117).map(|number| {
        let text = format!("{}{comments}", config_map(&format!("c{number}"), "a"));
        (format!("manifests/{number:03}.yaml"), text.into_bytes())
    });
    // First, so that the ratio stays below its limit while the rest is unpacked.
    let files = [("noise.bin".to_owned(), noise)]
        .into_iter()
        .chain(manifests);
    let (reference, size) = publish(&registry, "bomb", &tar(files));
    record(&format!("the layer has {} KiB", size >> 10));
    let probe = LivenessProbe::start(&webhook);
    for number in 0..3 {
        let name = format!("bomb-{number}");
        apply(&cluster, &bundle(&name, &reference)).await;
    }
    for number in 0..3 {
        let name = format!("bomb-{number}");
        wait::until_true(LONG, "the Bundle is unpacked or refused", || async {
            let (phase, _) = phase(&cluster, &name).await;
            Ok(phase == "Unpacked" || phase == "Failing")
        })
        .await
        .unwrap();
    }
    survived(
        "a layer of 1 MiB that unpacks to 120 MiB",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_registries_delay_only_their_own_bundles() {
    let (cluster, mut webhook) = stage().await;
    let mut slow = Vec::new();
    let mut content = config_map("a", "b").into_bytes();
    // Random, so that it does not shrink.
    let noise: String = (0..256 << 10)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    content.extend_from_slice(format!("# {noise}\n").as_bytes());
    let image = tar([("manifests/a.yaml".to_owned(), content)]);
    for _ in 0..10 {
        let registry = Registry::honest().await.unwrap();
        let (reference, _) = publish(&registry, "slow", &image);
        registry.set_fault(Some(Fault::SlowBlob {
            piece: 1,
            pause: Duration::from_secs(1),
        }));
        slow.push((registry, reference));
    }
    let honest = Registry::honest().await.unwrap();
    let (reference, _) = publish(&honest, "quick", &image);
    let probe = LivenessProbe::start(&webhook);
    for (number, (_, reference)) in slow.iter().enumerate() {
        apply(&cluster, &bundle(&format!("slow-{number}"), reference)).await;
    }
    wait::until_true(LONG, "slow transfers have begun", || async {
        Ok(slow
            .iter()
            .any(|(registry, _)| registry.slow_transfers() > 0))
    })
    .await
    .unwrap();
    // Somebody else, who has nothing to do with those registries.
    let kubectl_as = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = kubectl_as
        .args(["create", "-f", "-", "--as=ana", "--as-group=system:masters"])
        .stdin(bundle("quick", &reference).to_string())
        .output()
        .await
        .unwrap();
    created.success().unwrap();
    until_phase(&cluster, "quick", "Unpacked", Duration::from_secs(15)).await;

    for number in 0..slow.len() {
        kubectl(
            &cluster,
            &format!("delete bundle slow-{number} --timeout=10s"),
        )
        .await;
    }
    wait::until_true(
        Duration::from_secs(10),
        "the transfers of deleted Bundles end",
        || async {
            Ok(slow
                .iter()
                .all(|(registry, _)| registry.slow_transfers() == 0))
        },
    )
    .await
    .unwrap();
    survived("ten slow registries", &mut webhook, probe).await;
}

/// Creates an object as a user of the group of administrators.
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

#[tokio::test(flavor = "multi_thread")]
async fn bundles_at_a_registry_that_hangs_do_not_hold_up_the_bundle_of_another_tenant() {
    let (cluster, mut webhook) = stage().await;
    let image = tar([(
        "manifests/a.yaml".to_owned(),
        config_map("hanging", "b").into_bytes(),
    )]);
    let hanging = Registry::honest().await.unwrap();
    let (reference, _) = publish(&hanging, "hanging", &image);
    hanging.set_fault(Some(Fault::StallingBlob));
    let honest = Registry::honest().await.unwrap();
    let (quick, _) = publish(&honest, "quick", &image);
    let probe = LivenessProbe::start(&webhook);
    let bundles: Vec<Value> = (0..120)
        .map(|number| bundle(&format!("hanging-{number}"), &reference))
        .collect();
    create_as(&cluster, "hanging-mallory", &bundles).await;
    let created = Instant::now();
    create_as(&cluster, "hanging-ana", &[bundle("hanging-quick", &quick)]).await;
    let within = Duration::from_secs(20);
    until_phase(&cluster, "hanging-quick", "Unpacked", within).await;
    record(&format!(
        "unpacked beside 120 hanging Bundles after {:?}",
        created.elapsed()
    ));
    survived("120 Bundles at a registry that hangs", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bundles_do_not_starve_the_probes() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::honest().await.unwrap();
    let noise: String = (0..600 << 10)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    let probe = LivenessProbe::start(&webhook);
    for number in 0..6 {
        let files = (0..22).map(|file| {
            let name = format!("large-{number}-{file}");
            let path = format!("manifests/{name}.yaml");
            (path, config_map(&name, &noise).into_bytes())
        });
        let (reference, _) = publish(&registry, &format!("large{number}"), &tar(files));
        apply(&cluster, &bundle(&format!("large-{number}"), &reference)).await;
    }
    for number in 0..6 {
        until_phase(&cluster, &format!("large-{number}"), "Unpacked", LONG).await;
    }
    survived("six bundles of 13 MiB", &mut webhook, probe).await;
}

/// Bytes in the folder of the cache.
fn cached_bytes(cluster: &Cluster, webhook: &Webhook) -> u64 {
    let cache = format!("webhook-{}", webhook.address().port());
    let folder = cluster.folder().join("data").join(cache).join("content");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_failing_bundles_is_not_kept() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::honest().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    let mut noise = vec![0; 2 << 20];
    rand::rng().fill(&mut noise[..]);
    for number in 0..4u8 {
        noise[0] = number;
        let files = [
            ("manifests/a.yaml".to_owned(), b"kind: [".to_vec()),
            ("noise.bin".to_owned(), noise.clone()),
        ];
        let (reference, _) = publish(&registry, &format!("failing{number}"), &tar(files));
        let name = format!("failing-{number}");
        apply(&cluster, &bundle(&name, &reference)).await;
        let message = until_phase(&cluster, &name, "Failing", LONG).await;
        assert!(message.contains("invalid YAML"), "{message}");
    }
    // Its own status wakes a Bundle once more, and it is unpacked a second time.
    wait::until_true(LONG, "nothing of it is kept", || async {
        Ok(cached_bytes(&cluster, &webhook) == 0)
    })
    .await
    .unwrap();
    survived("failing Bundles", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_content_above_the_limit_with_both_sizes() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::honest().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    // 9 MiB of text that would take hundreds once it is parsed.
    let lists = "- []\n".repeat((9 << 20) / 5);
    let object =
        format!("apiVersion: example.com/v1\nkind: Tiny\nmetadata: {{name: tiny}}\nspec:\n{lists}");
    // YAML of so many nodes is refused by itself; several files of fewer are not.
    let part: String = object.chars().take(2_000_000).collect();
    let part = &part[..part.rfind("- []").unwrap()];
    let files = (0..4).map(|number| {
        let text = part.replace("name: tiny", &format!("name: tiny-{number}"));
        (format!("manifests/{number}.yaml"), text.into_bytes())
    });
    let (reference, _) = publish(&registry, "tiny", &tar(files));
    apply(&cluster, &bundle("tiny", &reference)).await;
    let message = until_phase(&cluster, "tiny", "Failing", LONG).await;
    assert!(
        message.contains("MiB of memory once it is parsed, and at most"),
        "{message}"
    );
    wait::until_true(LONG, "nothing of it is kept", || async {
        Ok(cached_bytes(&cluster, &webhook) == 0)
    })
    .await
    .unwrap();
    survived("content of tiny values", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_stays_within_its_limit_and_evicted_content_is_fetched_again() {
    let (cluster, mut webhook) = stage_with(&["--cache-limit", "5Mi"]).await;
    let registry = Registry::honest().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    let mut noise = vec![0; 2 << 20];
    rand::rng().fill(&mut noise[..]);
    let mut references = Vec::new();
    for number in 0..4u8 {
        noise[0] = number;
        let name = format!("cached-{number}");
        let files = [
            (
                "manifests/a.yaml".to_owned(),
                config_map(&name, "a").into_bytes(),
            ),
            ("noise.bin".to_owned(), noise.clone()),
        ];
        let (reference, _) = publish(&registry, &name, &tar(files));
        apply(&cluster, &bundle(&name, &reference)).await;
        until_phase(&cluster, &name, "Unpacked", LONG).await;
        assert!(cached_bytes(&cluster, &webhook) <= 5 << 20);
        references.push(reference);
    }
    // Two fit; the first was evicted, and its BundleDeployment needs it.
    apply(&cluster, &deployment("cached", &references[0])).await;
    wait::until_true(LONG, "the content is installed", || async {
        let output = cluster
            .kubectl(["get", "configmap", "cached-0", "-n", "default"])
            .await?;
        Ok(output.is_success())
    })
    .await
    .unwrap();
    survived("a full cache", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_content_is_installed_while_reviews_are_attacked() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::honest().await.unwrap();
    let url = review_url(&cluster).await;
    let noise: String = (0..500 << 10)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    // 19 MiB of text, which take 38 MiB with their tree: the share of content is 41 MiB.
    let files = (0..38).map(|file| {
        let name = format!("largest-{file}");
        let path = format!("manifests/{name}.yaml");
        (path, config_map(&name, &noise).into_bytes())
    });
    let (reference, _) = publish(&registry, "largest", &tar(files));
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &deployment("largest", &reference)).await;
    let body = {
        let lists = "[],".repeat((2 << 20) / 3);
        let text = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","kind":{{"group":"core.rukpak.io","version":"v1alpha1","kind":"Bundle"}},"name":"a","operation":"CREATE","userInfo":{{"username":"mallory"}},"object":{{"spec":[{lists}0]}}}}}}"#
        );
        text.into_bytes()
    };
    let attack = tokio::spawn(async move {
        loop {
            join_all((0..4).map(|_| post(&url, body.clone()))).await;
        }
    });
    wait::until_true(LONG, "the content is installed", || async {
        let output = cluster
            .kubectl([
                "get",
                "bundledeployment",
                "largest",
                "-o",
                "jsonpath={.status.conditions[?(@.type==\"Installed\")].status}",
            ])
            .await?;
        Ok(output.stdout.trim() == "True")
    })
    .await
    .unwrap();
    attack.abort();
    survived(
        "the largest content, with reviews of lists",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_objects_above_the_memory_limit_are_not_parsed() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::honest().await.unwrap();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "heaps.limits.example.com"},
        "spec": {
            "group": "limits.example.com",
            "names": {"kind": "Heap", "listKind": "HeapList", "plural": "heaps", "singular": "heap"},
            "scope": "Cluster",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let heap = |number: usize| {
        json!({
            "apiVersion": "limits.example.com/v1",
            "kind": "Heap",
            "metadata": {"name": format!("heap-{number}")},
        })
    };
    let mut objects = vec![definition];
    objects.extend((0..3).map(heap));
    let files = objects.iter().enumerate().map(|(number, object)| {
        let path = format!("manifests/{number}.yaml");
        (path, object.to_string().into_bytes())
    });
    let (reference, _) = publish(&registry, "heaps", &tar(files));
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &deployment("heaps", &reference)).await;
    let healthy = |status: &'static str, told: &'static str| {
        let cluster = &cluster;
        wait::until(LONG, told, move || async move {
            let text = kubectl(cluster, "get bundledeployment heaps -o json").await;
            let object: Value = serde_json::from_str(&text)?;
            let conditions = object["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let found = conditions.find(|condition| condition["type"] == "Healthy");
            let found = found.cloned().unwrap_or_default();
            let message = found["message"].as_str().unwrap_or_default();
            if found["status"] == status && message.contains(told) {
                return Ok(Some(()));
            }
            anyhow::bail!("{found}")
        })
    };
    healthy("True", "every object is healthy").await.unwrap();
    let maps = vec![json!({"a": 0}); 120_000];
    for number in 0..3 {
        let mut heap = heap(number);
        heap["maps"] = json!(maps);
        let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
        let applied = kubectl
            .args(["apply", "--server-side", "--field-manager=mallory"])
            .args(["-f", "-"])
            .stdin(heap.to_string())
            .output()
            .await
            .unwrap();
        applied.success().unwrap();
    }
    healthy("False", "too large to be looked at").await.unwrap();
    survived("installed objects of small maps", &mut webhook, probe).await;
}
