//! Fuzzes the parser of image manifests.
#![no_main]

use bundle_core::reference::Digest;
use bundle_oci::manifest::Manifest;
use bundle_oci::media;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for said in [None, Some(media::MANIFEST), Some(media::DOCKER_MANIFEST)] {
        if let Ok(manifest) = Manifest::parse(Bytes::copy_from_slice(data), said) {
            assert_eq!(manifest.digest, Digest::of(data));
            assert!(media::is_manifest(&manifest.media_type));
            assert!(said.is_none_or(|said| said == manifest.media_type));
        }
    }
});
