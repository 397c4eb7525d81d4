//! Retries of content that does not exist: every few seconds by tag, and rarely by digest.

use e2e::{Cluster, bundles, wait};
use serde_json::json;

use crate::scenarios::reconcile::{LONG, apply, get, kubectl, publish, stage, until};

/// Returns the number of requests of the pod for manifests of a repository.
fn requests(cluster: &Cluster, repository: &str) -> usize {
    let log = cluster.registry(0).unwrap().log().unwrap();
    let path = format!("/v2/{repository}/manifests/");
    log.lines()
        .filter(|line| line.contains(&path) && line.contains("bundle-webhook/"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_digest_is_requested_again_after_an_annotation_and_a_missing_tag_without_one() {
    let (cluster, _webhook) = stage().await;
    let write = |folder: &std::path::Path| bundles::greeting(folder, "1.0.0", None);
    let pinned = publish(&cluster, "team/origin:1", write).await;
    let (_, digest) = pinned.split_once('@').unwrap();
    let registry = cluster.registry(0).unwrap();
    for (name, reference) in [
        ("retries-digest", format!("team/by-digest@{digest}")),
        ("retries-tag", "team/by-tag:1".to_owned()),
    ] {
        let bundle = json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
            "metadata": {"name": name},
            "spec": {
                "provisionerClassName": "core-rukpak-io-plain",
                "source": {"type": "image", "image": {"ref": registry.reference(&reference)}},
            },
        });
        apply(&cluster, &bundle).await;
        let what = format!("bundle {name}");
        let message = until(&cluster, &what, "Unpacked", "False").await;
        assert!(message.contains("not found in the registry"), "{message}");
        let is_rare = message.contains("change an annotation of the Bundle");
        assert_eq!(is_rare, name == "retries-digest", "{message}");
    }
    let by_digest = requests(&cluster, "team/by-digest");
    let by_tag = requests(&cluster, "team/by-tag");
    wait::until_true(LONG, "the tag is requested again", || async {
        Ok(requests(&cluster, "team/by-tag") > by_tag + 2)
    })
    .await
    .unwrap();
    assert_eq!(requests(&cluster, "team/by-digest"), by_digest);
    // Many writes of annotations, also of the proof, start at most one immediate attempt.
    for number in 0..5 {
        let annotations = format!("attempt={number} core.rukpak.io/proof={number}");
        let line = format!("annotate bundle retries-digest {annotations} --overwrite");
        kubectl(&cluster, &line).await;
    }
    let written = requests(&cluster, "team/by-digest");
    assert!(written <= by_digest * 2, "{written} after {by_digest}");

    // The scenario executes the next step that the message names.
    publish(&cluster, "team/by-digest:1", write).await;
    kubectl(&cluster, "annotate bundle retries-digest pushed=true").await;
    until(&cluster, "bundle retries-digest", "Unpacked", "True").await;
    publish(&cluster, "team/by-tag:1", write).await;
    until(&cluster, "bundle retries-tag", "Unpacked", "True").await;
    let unpacked = get(&cluster, "bundle retries-tag").await.unwrap();
    assert_eq!(unpacked["status"]["content"]["digest"], digest);
}
