//! Disk space: the cache contains no content of failing Bundles, and its size remains below the
//! limit.

use super::*;

/// Returns the number of bytes in the folder of the cache.
fn cached_bytes(cluster: &Cluster, webhook: &Webhook) -> u64 {
    let cache = format!("webhook-{}", webhook.address().port());
    let folder = cluster.folder().join("data").join(cache).join("content");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_failing_bundles_is_not_kept() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    let mut noise = vec![0; 2 << 20];
    rand::rng().fill(&mut noise[..]);
    for number in 0..4u8 {
        noise[0] = number;
        let files = [
            ("manifests/a.yaml".to_owned(), b"kind: [".to_vec()),
            ("noise.bin".to_owned(), noise.clone()),
        ];
        let (reference, _) = publish(&registry, &format!("failing{number}"), &tar(files));
        let name = format!("failing-{number}");
        apply(&cluster, &bundle(&name, &reference)).await;
        let message = until_phase(&cluster, &name, "Failing", LONG).await;
        assert!(message.contains("invalid YAML"), "{message}");
    }
    // The write of the status of a Bundle triggers another reconcile, which unpacks the content a
    // second time.
    wait::until_true(LONG, "nothing of it is kept", || async {
        Ok(cached_bytes(&cluster, &webhook) == 0)
    })
    .await
    .unwrap();
    survived("failing Bundles", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_content_above_the_limit_with_both_sizes() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    // 9 MiB of text, which would need hundreds of MiB of memory when parsed.
    let lists = "- []\n".repeat((9 << 20) / 5);
    let object =
        format!("apiVersion: example.com/v1\nkind: Tiny\nmetadata: {{name: tiny}}\nspec:\n{lists}");
    // A single file with all these values would exceed the limit for the values of one file.
    // Therefore the values are split into several files, which together need more memory than one
    // content may use.
    let part: String = object.chars().take(2_000_000).collect();
    let part = &part[..part.rfind("- []").unwrap()];
    let files = (0..4).map(|number| {
        let text = part.replace("name: tiny", &format!("name: tiny-{number}"));
        (format!("manifests/{number}.yaml"), text.into_bytes())
    });
    let (reference, _) = publish(&registry, "tiny", &tar(files));
    apply(&cluster, &bundle("tiny", &reference)).await;
    let message = until_phase(&cluster, "tiny", "Failing", LONG).await;
    assert!(message.contains("MiB of memory, and at most"), "{message}");
    wait::until_true(LONG, "nothing of it is kept", || async {
        Ok(cached_bytes(&cluster, &webhook) == 0)
    })
    .await
    .unwrap();
    survived("content of tiny values", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_stays_within_its_limit_and_evicted_content_is_fetched_again() {
    let (cluster, mut webhook) = stage_with(&["--cache-limit", "5Mi"]).await;
    let registry = Registry::without_faults().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    let mut noise = vec![0; 2 << 20];
    rand::rng().fill(&mut noise[..]);
    let mut references = Vec::new();
    for number in 0..4u8 {
        noise[0] = number;
        let name = format!("cached-{number}");
        let files = [
            (
                "manifests/a.yaml".to_owned(),
                config_map(&name, "a").into_bytes(),
            ),
            ("noise.bin".to_owned(), noise.clone()),
        ];
        let (reference, _) = publish(&registry, &name, &tar(files));
        apply(&cluster, &bundle(&name, &reference)).await;
        until_phase(&cluster, &name, "Unpacked", LONG).await;
        assert!(cached_bytes(&cluster, &webhook) <= 5 << 20);
        references.push(reference);
    }
    // The cache has space for two contents, so the first content was evicted. The BundleDeployment
    // refers to the first content, so the pod fetches this content again.
    apply(&cluster, &deployment("cached", &references[0])).await;
    wait::until_true(LONG, "the content is installed", || async {
        let found = try_get(&cluster, "configmap cached-0 -n default").await?;
        Ok(found.is_some())
    })
    .await
    .unwrap();
    survived("a full cache", &mut webhook, probe).await;
}
