//! Fuzzes the unpacker of tar layers. The result must be files with safe paths, or an error. The
//! property tests of bundle-oci cover damaged gzip data.
#![no_main]

use bundle_core::reference::Digest;
use bundle_oci::Limits;
use bundle_oci::manifest::Descriptor;
use bundle_oci::media;
use bundle_oci::unpack::Unpacker;
use libfuzzer_sys::fuzz_target;

/// Sets the correct checksum in every header, because the fuzzer cannot guess checksums.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for block in data.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    data
}

fuzz_target!(|data: &[u8]| {
    let data = with_checksums(data);
    let data = data.as_slice();
    let config = format!(
        r#"{{"rootfs":{{"diff_ids":["{}"]}}}}"#,
        Digest::of(data)
    );
    let named = Descriptor::of(media::CONFIG, config.as_bytes());
    let layer = Descriptor::of(media::LAYER_TAR, data);
    let limits = Limits { file: 4096, total: 1 << 16, entries: 16, ..Limits::default() };
    let Ok(mut unpacking) = Unpacker::new(&named, config.as_bytes(), &[layer], limits) else {
        return;
    };
    if unpacking.layer(0, data).is_err() {
        return;
    }
    for (path, content) in unpacking.finish() {
        assert!(!path.is_empty() && !path.starts_with('/'), "{path:?}");
        assert!(!path.contains(['\\', '\0', '\n']), "{path:?}");
        assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
        assert!(content.len() <= 4096);
    }
});
