//! Memory of the reconciler that a tenant can use with Bundles: the registry of the Bundles returns
//! the largest manifests and signatures that the reconciler reads.

use bundle_testkit::registry::{Fault, Registry};
use e2e::wait;
use serde_json::{Value, json};

use super::*;

/// Number of tenants, each with its own registry. The number equals the maximum number of
/// concurrent transfers with this memory limit. One requester can use a quarter of the transfers.
const TENANTS: usize = 4;
/// Number of Bundles of each tenant.
const BUNDLES: usize = 3;
/// Length of the text in a manifest. The whole manifest is just below the maximum size
/// (`bundle_oci::limits::MANIFEST_BYTES`).
const MANIFEST_TEXT: usize = 4_100_000;
/// Size of one signature in bytes, and number of signatures of one image. Both are the maximum that
/// the reconciler reads (`SIGNATURE_BYTES`, `SIGNATURES_BYTES`).
const SIGNATURE: usize = 1 << 20;
const SIGNATURES: u8 = 16;
/// Memory in KiB: the reserved memory plus the memory for responses of registries
/// (docs/reference/limits.md).
const SHARES: u64 = (32 + 32) << 10;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn digest(bytes: &[u8]) -> String {
    bundle_core::reference::Digest::of(bytes).to_string()
}

fn document(layers: &[Value], text: &str) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": layers,
        "annotations": {"a": text},
    })
    .to_string()
}

/// Puts an image with the largest manifest and no content into `repository`, with invalid
/// signatures. Returns its pinned reference.
fn put(registry: &Registry, repository: &str, manifest: &str) -> String {
    let subject = digest(manifest.as_bytes());
    registry.put_manifest(repository, &subject, MANIFEST, manifest.as_bytes());
    let signatures: Vec<Value> = (0..SIGNATURES)
        .map(|number| {
            let mut payload = vec![b' '; SIGNATURE];
            payload[0] = number;
            let layer = registry.put_blob(repository, payload);
            json!({
                "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": layer, "size": SIGNATURE,
                "annotations": {"dev.cosignproject.cosign/signature": "AAAA"},
            })
        })
        .collect();
    let tag = format!("{}.sig", subject.replace(':', "-"));
    let signatures = document(&signatures, "");
    registry.put_manifest(repository, &tag, MANIFEST, signatures.as_bytes());
    registry.reference(&format!("{repository}@{subject}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_with_the_largest_manifests_and_signatures_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(b"a"), "size": 10});
    let manifest = document(&[layer], &"x".repeat(MANIFEST_TEXT));
    let mut registries = Vec::new();
    let mut images = Vec::new();
    for tenant in 0..TENANTS {
        let registry = Registry::without_faults().await.unwrap();
        images.push(put(&registry, "reads", &manifest));
        // The registry returns 503 until all Bundles and the policy for their signatures exist.
        registry.set_fault(Some(Fault::Busy {
            status: 503,
            times: u32::MAX,
        }));
        registries.push((format!("reads-{tenant}"), registry));
    }
    let probe = LivenessProbe::start(&webhook);
    for ((tenant, _), image) in registries.iter().zip(&images) {
        for number in 0..BUNDLES {
            let object = bundle(&format!("{tenant}-{number}"), image);
            let request = http::Request::post("/apis/core.rukpak.io/v1alpha1/bundles")
                .header("content-type", "application/json")
                .header("impersonate-user", tenant)
                .header("impersonate-group", "system:masters")
                .body(object.to_string().into_bytes())
                .unwrap();
            client.request::<Value>(request).await.unwrap();
        }
    }
    let globs = registries.iter();
    let globs = globs.map(|(_, registry)| json!({"glob": format!("{}/*", registry.host())}));
    let policy = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": {"name": "reads"},
        "spec": {
            "mode": "warn",
            "images": globs.collect::<Vec<_>>(),
            "authorities": [{"key": {"data": KEY}}],
        },
    });
    apply(&cluster, &policy).await;
    for (_, registry) in &registries {
        registry.set_fault(None);
    }
    // While the registries of the tenants return 503, the Bundle of another user is unpacked.
    let other = Registry::without_faults().await.unwrap();
    let file = (
        "manifests/reads.yaml".to_owned(),
        config_map("reads", "a").into_bytes(),
    );
    let (reference, _) = publish(&other, "reads-other", &tar([file]));
    let asked = Instant::now();
    apply(&cluster, &bundle("reads-other", &reference)).await;
    until_phase(&cluster, "reads-other", "Unpacked", LONG).await;
    record(&format!(
        "the Bundle of another requester was unpacked after {:?}",
        asked.elapsed()
    ));
    let signatures = format!(
        "/manifests/{}.sig",
        digest(manifest.as_bytes()).replace(':', "-")
    );
    let times_read = |registry: &Registry| {
        let lines = registry.lines();
        let of_signatures = lines.iter().filter(|line| line.contains(&signatures));
        of_signatures.count()
    };
    wait::until_true(LONG, "signatures were read for each Bundle", || async {
        Ok(registries
            .iter()
            .all(|(_, registry)| times_read(registry) >= BUNDLES))
    })
    .await
    .unwrap();
    let peak = survived(
        "12 Bundles of 4 tenants with manifests of 4 MiB and signatures of 16 MiB",
        &mut webhook,
        probe,
    )
    .await;
    assert!(peak < SHARES, "{peak} KiB");
}
