//! A layer's tar, as a registry may send it: files with paths that are safe everywhere, or an error.
//! Not here: gzip, whose bytes a fuzzer would spend its time on (the property tests of bundle-oci damage those).
#![no_main]

use bundle_core::reference::Digest;
use bundle_oci::Limits;
use bundle_oci::manifest::Descriptor;
use bundle_oci::media;
use bundle_oci::unpack::Unpacking;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let config = format!(
        r#"{{"rootfs":{{"diff_ids":["{}"]}}}}"#,
        Digest::of(data)
    );
    let named = Descriptor::of(media::CONFIG, config.as_bytes());
    let layer = Descriptor::of(media::LAYER_TAR, data);
    let limits = Limits { file: 4096, total: 1 << 16, entries: 16, ..Limits::default() };
    let Ok(mut unpacking) = Unpacking::new(&named, config.as_bytes(), &[layer], limits) else {
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
