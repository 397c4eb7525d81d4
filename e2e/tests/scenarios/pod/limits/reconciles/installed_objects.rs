//! Number of objects that one tenant can have installed.

use bundle_testkit::registry::Registry;

use super::*;
use crate::scenarios::objects::{apply_as, until};

/// Maximum number of installed objects of one requester at the memory limit of the Deployment
/// (`OBJECT_PART` in webhook/src/budget/mod.rs).
const PER_REQUESTER: usize = 8_192;
/// Number of objects of one content. Three such contents exceed the limit.
const OBJECTS: usize = 2_800;
/// Memory that the objects of two contents may add, in KiB.
const GROWTH_LIMIT: u64 = 32 << 10;

/// Deploys `count` ConfigMaps as `user`.
async fn deploy(cluster: &Cluster, registry: &Registry, (user, name): (&str, &str), count: usize) {
    let objects: Vec<String> = (0..count)
        .map(|object| {
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}-{object}, namespace: default}}}}")
        })
        .collect();
    let text = objects.join("\n---\n").into_bytes();
    let (reference, _) = publish(
        registry,
        name,
        &tar([("manifests/all.yaml".to_owned(), text)]),
    );
    let written = apply_as(cluster, &deployment(name, &reference), Some(user)).await;
    written.success().unwrap();
}

async fn until_installed(cluster: &Cluster, name: &str, status: &str) -> String {
    until(
        cluster,
        &format!("bundledeployment {name}"),
        "Installed",
        status,
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_one_tenant_are_limited_and_leave_objects_to_another() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let (mallory, ana) = ("objects-mallory", "objects-ana");
    for user in [mallory, ana] {
        let line =
            format!("create clusterrolebinding {user} --clusterrole=cluster-admin --user={user}");
        kubectl(&cluster, &line).await;
    }
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    for name in ["objects-first", "objects-second"] {
        deploy(&cluster, &registry, (mallory, name), OBJECTS).await;
        let line = format!("wait bundledeployment {name} --for=condition=Installed --timeout=600s");
        kubectl_for_minutes(&cluster, &line).await;
    }
    let installed = anonymous_kib(webhook.pid().unwrap());
    deploy(&cluster, &registry, (mallory, "objects-third"), OBJECTS).await;
    let message = until_installed(&cluster, "objects-third", "False").await;
    let expected = format!(
        "the content adds {OBJECTS} objects to the {} that are installed for requester {mallory:?}, who can have {PER_REQUESTER}",
        2 * OBJECTS
    );
    assert!(message.starts_with(&expected), "{message}");
    let maps = kubectl(&cluster, "get configmaps -n default -o name").await;
    assert!(!maps.contains("objects-third-"));

    deploy(&cluster, &registry, (ana, "objects-ana"), 10).await;
    until_installed(&cluster, "objects-ana", "True").await;
    let attack = format!("{} installed objects", 2 * OBJECTS);
    survived(&attack, &mut webhook, probe).await;
    record(&format!("{idle} KiB idle, {installed} KiB with {attack}"));
    assert!(
        installed < idle + GROWTH_LIMIT,
        "{idle} KiB, then {installed} KiB"
    );
}
