//! Registries that respond slowly or not at all: only the Bundles of the tenant with these
//! registries wait.

mod manifests;
mod texts;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn slow_registries_delay_only_their_own_bundles() {
    let (cluster, mut webhook) = stage().await;
    let mut slow = Vec::new();
    let mut content = config_map("a", "b").into_bytes();
    // The text is random, so that it does not compress.
    let noise: String = (0..256 << 10)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    content.extend_from_slice(format!("# {noise}\n").as_bytes());
    let image = tar([("manifests/a.yaml".to_owned(), content)]);
    for _ in 0..10 {
        let registry = Registry::without_faults().await.unwrap();
        let (reference, _) = publish(&registry, "slow", &image);
        registry.set_fault(Some(Fault::SlowBlob {
            piece: 1,
            pause: Duration::from_secs(1),
        }));
        slow.push((registry, reference));
    }
    let honest = Registry::without_faults().await.unwrap();
    let (reference, _) = publish(&honest, "quick", &image);
    let probe = LivenessProbe::start(&webhook);
    for (number, (_, reference)) in slow.iter().enumerate() {
        apply(&cluster, &bundle(&format!("slow-{number}"), reference)).await;
    }
    wait::until_true(LONG, "slow transfers have begun", || async {
        Ok(slow
            .iter()
            .any(|(registry, _)| registry.slow_transfers() > 0))
    })
    .await
    .unwrap();
    // The user `ana` has no Bundles from the slow registries.
    let kubectl_as = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = kubectl_as
        .args(["create", "-f", "-", "--as=ana", "--as-group=system:masters"])
        .stdin(bundle("quick", &reference).to_string())
        .output()
        .await
        .unwrap();
    created.success().unwrap();
    until_phase(&cluster, "quick", "Unpacked", LONG).await;

    for number in 0..slow.len() {
        kubectl(
            &cluster,
            &format!("delete bundle slow-{number} --timeout=60s"),
        )
        .await;
    }
    wait::until_true(
        Duration::from_secs(60),
        "the transfers of deleted Bundles end",
        || async {
            Ok(slow
                .iter()
                .all(|(registry, _)| registry.slow_transfers() == 0))
        },
    )
    .await
    .unwrap();
    survived("ten slow registries", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_at_a_registry_that_hangs_do_not_delay_the_bundle_of_another_tenant() {
    let (cluster, mut webhook) = stage().await;
    let image = tar([(
        "manifests/a.yaml".to_owned(),
        config_map("hanging", "b").into_bytes(),
    )]);
    let hanging = Registry::without_faults().await.unwrap();
    let (reference, _) = publish(&hanging, "hanging", &image);
    hanging.set_fault(Some(Fault::StallingBlob));
    let honest = Registry::without_faults().await.unwrap();
    let (quick, _) = publish(&honest, "quick", &image);
    let probe = LivenessProbe::start(&webhook);
    let bundles: Vec<Value> = (0..120)
        .map(|number| bundle(&format!("hanging-{number}"), &reference))
        .collect();
    create_as(&cluster, "hanging-mallory", &bundles).await;
    let created = Instant::now();
    create_as(&cluster, "hanging-ana", &[bundle("hanging-quick", &quick)]).await;
    // The pod handles only a few hanging Bundles at a time, so the first attempts of all of them
    // take minutes.
    let within = Duration::from_secs(60);
    until_phase(&cluster, "hanging-quick", "Unpacked", within).await;
    record(&format!(
        "unpacked beside 120 hanging Bundles after {:?}",
        created.elapsed()
    ));
    survived("120 Bundles at a registry that hangs", &mut webhook, probe).await;
}
