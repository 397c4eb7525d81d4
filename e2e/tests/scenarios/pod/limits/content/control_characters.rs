//! Objects whose JSON needs much more memory than their parsed form. YAML writes the control
//! character U+0007 with two bytes, the parsed form needs one byte, and JSON needs six bytes.

use super::*;
use crate::scenarios::objects::{until, until_reason};

/// Number of values of one object. The manifest contains the first value, and aliases repeat it.
const VALUES: usize = 20;

/// Returns the path and the manifest of a ConfigMap. Each value consists of this number of control
/// characters.
fn escaped(name: &str, characters: usize) -> (String, Vec<u8>) {
    let text = "\\a".repeat(characters);
    let aliases: Vec<String> = (1..VALUES)
        .map(|number| format!("  k{number:02}: *a\n"))
        .collect();
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata:\n  k00: &a \"{text}\"\n{}",
        aliases.concat()
    );
    (format!("manifests/{name}.yaml"), object.into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn object_whose_json_needs_the_memory_of_the_pod_is_rejected_and_named() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    // The parsed object needs 19 MiB, and its JSON needs 114 MiB.
    let (reference, _) = publish(&registry, "escaped", &tar([escaped("escaped", 1_000_000)]));
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &deployment("escaped", &reference)).await;
    let what = "bundledeployment escaped";
    let message = until_reason(&cluster, what, "HasValidBundle", "UnpackFailed").await;
    for expected in [
        "ConfigMap/default/escaped: the object has 120000",
        "more than the limit of 3145728 (3 MiB)",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    survived("an object with 114 MiB of JSON", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_with_long_json_below_the_limit_are_installed_within_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    // Each parsed object needs 0.5 MiB, and its JSON needs 2.7 MiB. The pod applies 16 objects at
    // the same time, and the reserve has 10 MiB for large requests.
    let files = (0..20).map(|number| escaped(&format!("escaped-{number}"), 24_000));
    let (reference, _) = publish(&registry, "many-escaped", &tar(files));
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &deployment("many-escaped", &reference)).await;
    let what = "bundledeployment many-escaped";
    until(&cluster, what, "Installed", "True").await;
    survived("20 objects with 2.7 MiB of JSON each", &mut webhook, probe).await;
}
