//! Content is not parsed again for one hour after the process ended twice while it parsed this
//! content.

use std::path::Path;

use super::*;

/// Number of values in one file, below the limit of 500,000. The parser takes long enough for the
/// test to kill the process.
const VALUES: usize = 400_000;

fn large(name: &str) -> (String, Vec<u8>) {
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\nvalues: [{}]\n",
        "0,".repeat(VALUES)
    );
    (format!("manifests/{name}.yaml"), object.into_bytes())
}

/// Returns the file names of the records of attempts.
fn records(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder.join("attempts"));
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// Kills the process while attempt `number` runs.
async fn kill_during_attempt(webhook: &mut Webhook, number: u32) {
    let suffix = format!(".{number}");
    let folder = webhook.cache_folder().to_owned();
    let is_recorded = || {
        let mut records = records(&folder).into_iter();
        records.any(|name| name.ends_with(&suffix))
    };
    let what = format!("attempt {number} is recorded");
    wait::until_true(LONG, &what, || std::future::ready(Ok(is_recorded())))
        .await
        .unwrap();
    webhook.kill().unwrap();
    assert!(is_recorded(), "attempt {number} ended before the process");
}

async fn unpacks(cluster: &Cluster, registry: &Registry, name: &str) {
    let file = (format!("manifests/{name}.yaml"), config_map(name, "a"));
    let (reference, _) = publish(registry, name, &tar([(file.0, file.1.into_bytes())]));
    apply(cluster, &bundle(name, &reference)).await;
    until_phase(cluster, name, "Unpacked", LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_during_which_the_process_ends_twice_is_paused() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let files = (0..4).map(|number| large(&format!("ends-{number}")));
    let (reference, _) = publish(&registry, "ends", &tar(files));
    apply(&cluster, &bundle("ends", &reference)).await;
    for number in 1..=2 {
        kill_during_attempt(&mut webhook, number).await;
        webhook.start().await.unwrap();
    }
    let refused = until_phase(&cluster, "ends", "Failing", LONG).await;
    assert!(
        refused.contains("was terminated at least 2 times while it parsed"),
        "{refused}"
    );
    unpacks(&cluster, &registry, "ends-beside").await;

    webhook.restart().await.unwrap();
    unpacks(&cluster, &registry, "ends-later").await;
    assert_eq!(phase(&cluster, "ends").await.1, refused);
    let mut left = records(webhook.cache_folder());
    left.sort();
    assert!(
        left.len() == 2 && left[0].ends_with(".1") && left[1].ends_with(".2"),
        "{left:?}"
    );

    // The attempts of a new object are counted from zero. Without a kill, the pod rejects the
    // content as too large.
    kubectl(&cluster, "delete bundle ends").await;
    apply(&cluster, &bundle("ends", &reference)).await;
    let too_large = until_phase(&cluster, "ends", "Failing", LONG).await;
    assert!(
        too_large.contains("the parsed content needs"),
        "{too_large}"
    );
}
