//! Memory of removals of many objects.

use super::*;

/// Number of deployments of one requester that are deleted at the same time.
const DEPLOYMENTS: usize = 4;

/// Returns the number of objects of each deployment. In a release build, one requester can install
/// as many objects as all deployments have together. A debug build would need minutes for that
/// number.
fn objects() -> usize {
    if e2e::programs::profile().unwrap() == "release" {
        2000
    } else {
        1000
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_of_thousands_of_objects_at_once_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    kubectl(&cluster, "create namespace removals").await;
    let mut names = Vec::new();
    for number in 0..DEPLOYMENTS {
        let name = format!("removals-{number}");
        let objects: Vec<String> = (0..objects())
            .map(|object| {
                format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}-{object}, namespace: removals}}}}")
            })
            .collect();
        let file = (
            "manifests/all.yaml".to_owned(),
            objects.join("\n---\n").into_bytes(),
        );
        let (reference, _) = publish(&registry, &name, &tar([file]));
        apply(&cluster, &deployment(&name, &reference)).await;
        let line = format!("wait bundledeployment {name} --for=condition=Installed --timeout=600s");
        kubectl_for_minutes(&cluster, &line).await;
        names.push(name);
    }
    let probe = LivenessProbe::start(&webhook);
    let line = format!("delete bundledeployment {} --timeout=600s", names.join(" "));
    kubectl_for_minutes(&cluster, &line).await;
    let left = kubectl(
        &cluster,
        "get configmaps -n removals -l core.rukpak.io/owner-kind -o name",
    )
    .await;
    assert_eq!(left.trim(), "");
    let attack = format!("{DEPLOYMENTS} removals of {} objects", objects());
    survived(&attack, &mut webhook, probe).await;
}
