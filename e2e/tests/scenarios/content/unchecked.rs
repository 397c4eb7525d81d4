//! Content that another tool has pushed without the checks of the plugin.

use e2e::{Cluster, Tool};
use serde_json::Value;

/// Pushes an image to the repository `name` with the tag `1.0.0`. The image contains one manifest,
/// `object`. Returns the reference with the digest.
pub(in crate::scenarios) async fn push_unchecked(
    cluster: &Cluster,
    name: &str,
    object: &Value,
) -> String {
    let layer = cluster.folder().join("data").join(format!("{name}.tar"));
    let mut archive = tar::Builder::new(fs_err::File::create(&layer).unwrap());
    let bytes = object.to_string().into_bytes();
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive
        .append_data(&mut header, "manifests/objects.yaml", bytes.as_slice())
        .unwrap();
    archive.finish().unwrap();
    let registry = cluster.registry(0).unwrap();
    let reference = registry.reference(&format!("{name}:1.0.0"));
    let layer = layer.display().to_string();
    let crane = cluster.tool(Tool::Crane).await.unwrap();
    let pushed = crane
        .args(["append", "-f", &layer, "-t", &reference])
        .output()
        .await
        .unwrap();
    pushed.success().unwrap().trim().to_owned()
}
