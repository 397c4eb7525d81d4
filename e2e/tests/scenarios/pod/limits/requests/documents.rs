//! Memory of proofs and manifests of a tenant. Parsed proofs and manifests need far more memory
//! than their text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::scenarios::pod::limits::hostile_server::HostileServer;

/// Number of parallel dry runs with the same kind of document.
const PARALLEL: usize = 4;
/// Memory that the documents may add, in KiB: less than one parsed document needs.
const GROWTH: u64 = 24 << 10;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Returns list items of about `bytes` bytes in total. Each item consists of nested maps, and each
/// map needs a tree node when parsed.
fn nested_maps(bytes: usize) -> String {
    let depth = 110;
    let one = format!("{}0{}", r#"{"":"#.repeat(depth), "}".repeat(depth));
    vec![one.as_str(); bytes / (one.len() + 1)].join(",")
}

/// Returns a proof of a few KiB that unpacks to a mebibyte.
fn proof() -> String {
    let maps = nested_maps((1 << 20) - 100);
    let text = format!(r#"{{"manifest":"","signatures":[{maps}]}}"#);
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(text.as_bytes()).unwrap();
    STANDARD.encode(writer.finish().unwrap())
}

fn response(kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_nested_maps_in_dry_runs_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    grant_tenant(&cluster, "mallory").await;
    let client = cluster.client().await.unwrap();
    let large = nested_maps(1_250_000);
    let large = format!(r#"{{"schemaVersion":2,"x":[{large}]}}"#);
    let config = json!({
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": bundle_core::reference::Digest::of(b"{}").to_string(),
        "size": 2,
    });
    let small = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [],
    })
    .to_string();
    let digest = bundle_core::reference::Digest::of(small.as_bytes());
    let server = {
        let large = response(MANIFEST, &large);
        let small = response(MANIFEST, &small);
        let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned();
        HostileServer::new(move |head| {
            if head.contains("/large") && head.contains("/manifests/") {
                large.clone()
            } else if head.contains("/large") {
                missing.clone()
            } else {
                small.clone()
            }
        })
    };
    let host = format!("127.0.0.1:{}", server.listen().await);
    apply(
        &cluster,
        &json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "SignaturePolicy",
            "metadata": {"name": "documents"},
            "spec": {
                "mode": "enforce",
                "images": [{"glob": format!("{host}/large-*")}],
                "authorities": [{"name": "key", "key": {"data": KEY}}],
            },
        }),
    )
    .await;
    let idle = anonymous_kib(webhook.pid().unwrap());
    for (what, name) in [("proofs", "proof"), ("manifests", "large")] {
        let probe = LivenessProbe::start(&webhook);
        let objects: Vec<Value> = (0..PARALLEL)
            .map(|number| {
                let reference = match name {
                    "large" => format!("{host}/large-{number}:1"),
                    name => format!("{host}/{name}-{number}@{digest}"),
                };
                let mut object = bundle(&format!("{name}-{number}"), &reference);
                if name == "proof" {
                    object["metadata"]["annotations"] = json!({"core.rukpak.io/proof": proof()});
                }
                object
            })
            .collect();
        let dry_runs = objects
            .iter()
            .map(|object| create_dry_as_tenant(&client, "mallory", "bundles", object));
        for (status, message) in join_all(dry_runs).await {
            // Without a policy, an image with an invalid proof is admitted.
            let is_rejected = message.contains("bytes when parsed");
            let expected = if name == "proof" { 201 } else { 403 };
            assert!(
                status == expected && (status == 201 || is_rejected),
                "{status}: {message}"
            );
        }
        let peak = survived(&format!("{what} of nested maps"), &mut webhook, probe).await;
        assert!(peak < idle + GROWTH, "{idle} KiB, then {peak} KiB");
    }
}
