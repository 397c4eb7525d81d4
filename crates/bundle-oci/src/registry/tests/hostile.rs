//! Pulls of hostile images from a registry. The images are the test cases of the unpacker.

use super::*;
use crate::manifest::Descriptor;
use crate::media;
use crate::unpack::UnpackError;
use crate::unpack::hostile::{self, ImageCase};

/// Stores the image of a test case in the registry.
fn published(registry: &Registry, case: &ImageCase) -> PinnedReference {
    registry.put_blob("team/web", case.config.clone());
    for (_, bytes) in &case.layers {
        registry.put_blob("team/web", bytes.clone());
    }
    let layers: Vec<_> = case.layers.iter().map(|(layer, _)| layer).collect();
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": media::MANIFEST,
        "config": Descriptor::of(media::CONFIG, &case.config),
        "layers": layers,
    });
    let manifest = manifest.to_string();
    let digest = Digest::of(manifest.as_bytes());
    let name = digest.as_str();
    registry.put_manifest("team/web", name, media::MANIFEST, manifest.as_bytes());
    let reference: Reference = registry.reference("team/web:1").parse().unwrap();
    reference.pin(digest)
}

#[tokio::test]
async fn rejects_hostile_images_like_the_unpacker() {
    let registry = Registry::without_faults().await.unwrap();
    let client = client();
    let mut count = 0;
    for case in hostile::images() {
        let name = case.name;
        let pinned = published(&registry, &case);
        let pulled = client.pull_files(&pinned, &Limits::default()).await;
        let pulled: Result<Vec<String>, UnpackError> = match pulled {
            Ok(files) => Ok(files.into_keys().collect()),
            Err(error) => match error.reason {
                RegistryErrorReason::Content(error) => Err(error),
                other => panic!("{name}: {other}"),
            },
        };
        assert_eq!(pulled, case.expected, "{name}");
        count += 1;
    }
    assert!(count > 40, "{count} attacks");
}
