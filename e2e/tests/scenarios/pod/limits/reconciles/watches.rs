//! Watches that a tenant can cause: content in many namespaces, with a ServiceAccount that can
//! watch no kind in all namespaces.

use bundle_testkit::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::scenarios::objects::{apply_as, until};

/// Number of namespaces of each content.
const NAMESPACES: usize = 10;
/// Number of watches of one requester: half of the watches of the process (`WATCH_PART` in
/// webhook/src/budget/mod.rs).
const PER_REQUESTER: usize = 128;
/// Memory that the watches of one requester may add, in KiB.
const GROWTH_LIMIT: u64 = 24 << 10;
const INSTALLER: &str = "watches-installer";

/// Returns one object of each of eight kinds.
fn objects(namespace: &str, name: &str) -> Vec<Value> {
    [
        ("v1", "ConfigMap", json!({})),
        ("v1", "Secret", json!({})),
        ("v1", "ServiceAccount", json!({})),
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}]}})),
        ("v1", "LimitRange", json!({"spec": {"limits": []}})),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}}}),
        ),
        ("coordination.k8s.io/v1", "Lease", json!({})),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {}})),
    ]
    .map(|(version, kind, mut object)| {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"] = json!({"name": name, "namespace": namespace});
        object
    })
    .into()
}

/// Creates these namespaces with all permissions for the ServiceAccount in them.
async fn prepare(cluster: &Cluster, namespaces: &[String]) {
    let items = namespaces.iter().flat_map(|namespace| {
        [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "installer", "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": INSTALLER, "namespace": "default"}],
            }),
        ]
    });
    let items: Vec<Value> = items.collect();
    apply(
        cluster,
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    )
    .await;
}

/// Deploys objects into these namespaces.
async fn deploy(
    cluster: &Cluster,
    registry: &Registry,
    (user, name): (&str, &str),
    namespaces: &[String],
) {
    let all = namespaces.iter().map(|namespace| objects(namespace, name));
    let all: Vec<Value> = all.flatten().collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string();
    let file = ("manifests/all.yaml".to_owned(), list.into_bytes());
    let (reference, _) = publish(registry, name, &tar([file]));
    let mut object = deployment(name, &reference);
    object["spec"]["serviceAccount"] = json!({"namespace": "default", "name": INSTALLER});
    let written = apply_as(cluster, &object, Some(user)).await;
    written.success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_one_tenant_are_limited_and_leave_watches_to_another() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    for user in ["watches-mallory", "watches-ana"] {
        let line =
            format!("create clusterrolebinding {user} --clusterrole=cluster-admin --user={user}");
        kubectl(&cluster, &line).await;
    }
    for line in [
        format!("create serviceaccount {INSTALLER} -n default"),
        format!(
            "create role bundle-impersonator -n default --verb=impersonate --resource=serviceaccounts --resource-name={INSTALLER}"
        ),
        "create rolebinding bundle-impersonator -n default --role=bundle-impersonator --serviceaccount=bundle-system:bundle-webhook".to_owned(),
    ] {
        kubectl(&cluster, &line).await;
    }
    let namespaces: Vec<_> = (0..=2 * NAMESPACES)
        .map(|number| format!("watches-{number}"))
        .collect();
    prepare(&cluster, &namespaces).await;
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);

    let mallory = "watches-mallory";
    let (first, rest) = namespaces.split_at(NAMESPACES);
    let (second, last) = rest.split_at(NAMESPACES);
    deploy(&cluster, &registry, (mallory, "watches-first"), first).await;
    until(
        &cluster,
        "bundledeployment watches-first",
        "Installed",
        "True",
    )
    .await;
    // Each BundleDeployment watches eight kinds in ten namespaces.
    deploy(&cluster, &registry, (mallory, "watches-second"), second).await;
    let message = until(
        &cluster,
        "bundledeployment watches-second",
        "Installed",
        "False",
    )
    .await;
    let limit = format!(r#"80 more watches, and requester "{mallory}" can have {PER_REQUESTER}"#);
    assert!(message.contains(&limit), "{message}");
    let object = format!("configmap watches-second -n {}", second[0]);
    assert_eq!(get(&cluster, &object).await, None);

    deploy(&cluster, &registry, ("watches-ana", "watches-ana"), last).await;
    until(
        &cluster,
        "bundledeployment watches-ana",
        "Installed",
        "True",
    )
    .await;
    // 88 watches: eight kinds in ten namespaces, and eight kinds in one namespace.
    let peak = survived("88 watches", &mut webhook, probe).await;
    record(&format!(
        "{idle} KiB before the watches, then at most {peak} KiB"
    ));
    assert!(peak < idle + GROWTH_LIMIT, "{idle} KiB, then {peak} KiB");
}
