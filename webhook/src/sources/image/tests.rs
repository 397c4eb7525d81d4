//! Tests of the memory of image lookups by requester, with registries that send responses of the
//! maximum size.

use std::sync::Arc;
use std::time::Duration;

use bundle_core::reference::Digest;
use bundle_oci::limits::{MANIFEST_BYTES, SIGNATURE_BYTES};
use bundle_oci::unpack::InMemory;
use bundle_testkit::registry::{Fault, Registry};
use serde_json::{Value, json};

use super::*;
use crate::budget::lookups::LookupMemory;
use crate::budget::{Budget, Pool};
use crate::clients::registries::Registries;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn document(layers: &[Value], text: usize) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": Digest::of(b"{}"), "size": 2},
        "layers": layers,
        "annotations": {"a": "x".repeat(text)},
    })
    .to_string()
}

/// Stores an image with the largest manifest and no content. Returns its reference and the length
/// of the manifest.
fn put(registry: &Registry) -> (Reference, u64) {
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": Digest::of(b"a"), "size": 10});
    let manifest = document(&[layer], 4_100_000);
    let digest = Digest::of(manifest.as_bytes());
    registry.put_manifest("web", digest.as_str(), MANIFEST, manifest.as_bytes());
    let reference = registry.reference(&format!("web@{digest}"));
    (reference.parse().unwrap(), manifest.len() as u64)
}

/// Opens an image for `requester`, as the reconciler does.
fn open(
    budget: &Budget,
    requester: &str,
    reference: &Reference,
) -> (ImageSource, Arc<LookupMemory>) {
    let memory = Arc::new(LookupMemory::of_reconcile(
        budget,
        requester,
        Duration::from_millis(50),
    ));
    let registries = Registries::new(None, &[]).unwrap();
    let source = ImageSource::new(
        registries.anonymous(),
        reference,
        &PullCredentials::Class("plain".parse().unwrap()),
        memory.clone(),
    );
    (source, memory)
}

async fn fetch(source: &ImageSource) -> Result<(), SourceError> {
    let content = source.resolve().await.unwrap();
    source.fetch(&content, InMemory::default()).await.map(drop)
}

#[tokio::test]
async fn largest_manifests_of_one_requester_use_at_most_half_of_the_memory() {
    let registry = Registry::without_faults().await.unwrap();
    let (reference, length) = put(&registry);
    let budget = Budget::default();
    let pool = &budget.content;
    let half = pool.capacity() / 2;
    let mut held = Vec::new();
    loop {
        let (source, memory) = open(&budget, "ana", &reference);
        fetch(&source).await.unwrap_err();
        if memory.is_refused() {
            break;
        }
        held.push(source);
        assert!(pool.used() <= half, "{} bytes", pool.used());
    }
    // Each manifest is in memory twice: as received and as parsed. The other responses are small.
    let manifests = held.len() as u64 * 2 * length;
    assert_eq!(held.len() as u64, half / (2 * length));
    assert!((manifests..manifests + (64 << 10)).contains(&pool.used()));
    let (other, memory) = open(&budget, "bob", &reference);
    fetch(&other).await.unwrap_err();
    assert!(!memory.is_refused());
    drop((held, other, memory));
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn manifest_of_unknown_length_reserves_at_most_the_largest_size() {
    let registry = Registry::without_faults().await.unwrap();
    let (reference, _) = put(&registry);
    registry.set_fault(Some(Fault::HugeManifest));
    let budget = Budget::default();
    let pool = &budget.content;
    let (source, memory) = open(&budget, "ana", &reference);
    let error = fetch(&source).await.unwrap_err();
    assert!(!memory.is_refused(), "{error}");
    assert!(pool.used() <= 2 * MANIFEST_BYTES, "{} bytes", pool.used());
}

#[tokio::test]
async fn rejects_signatures_above_the_memory_of_their_requester() {
    let registry = Registry::without_faults().await.unwrap();
    let (reference, _) = put(&registry);
    let layers: Vec<Value> = (0..16)
        .map(|number| {
            let mut payload = vec![b' '; usize::try_from(SIGNATURE_BYTES).unwrap()];
            payload[0] = number;
            let digest = registry.put_blob("web", payload);
            json!({
                "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": digest, "size": SIGNATURE_BYTES,
                "annotations": {"dev.cosignproject.cosign/signature": "AAAA"},
            })
        })
        .collect();
    let tag = format!(
        "{}.sig",
        reference.digest().unwrap().to_string().replace(':', "-")
    );
    registry.put_manifest("web", &tag, MANIFEST, document(&layers, 0).as_bytes());
    for (capacity, is_read) in [(64 << 20, true), (8 << 20, false)] {
        let mut budget = Budget::default();
        budget.content = Pool::new(capacity);
        let pool = &budget.content;
        let (source, memory) = open(&budget, "ana", &reference);
        let content = source.resolve().await.unwrap();
        let read = source.signatures(&content).await;
        assert_eq!(read.is_ok(), is_read, "{read:?}");
        assert_eq!(memory.is_refused(), !is_read);
        assert!(pool.used() <= capacity / 2, "{} bytes", pool.used());
        let read: usize = read.iter().flatten().map(|found| found.bytes.len()).sum();
        assert_eq!(read as u64 > 8 * SIGNATURE_BYTES, is_read, "{read} bytes");
        assert!(pool.used() >= read as u64, "{} bytes", pool.used());
    }
}
