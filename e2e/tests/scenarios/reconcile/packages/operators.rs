//! The namespace that an operator's bundle (registry+v1) is installed into.
//! `formats` tests the conversion of such bundles.

use e2e::{Cluster, wait};

use crate::scenarios::content::formats::{self, ANNOTATIONS, CRD, CSV, SERVICE};
use crate::scenarios::reconcile::{LONG, get, kubectl, publish, stage};

/// Namespaced objects of the operator.
const NAMESPACED: [&str; 3] = [
    "serviceaccount cache",
    "service cache",
    "deployment cache-operator",
];

async fn deploy(cluster: &Cluster, reference: &str, more: &str) {
    let line = format!("deploy operator {reference} --wait {more}");
    let words = line.split(' ').filter(|word| !word.is_empty());
    let output = cluster.kubectl_bundle(words).await.unwrap();
    output.success().unwrap();
}

async fn is_in(cluster: &Cluster, namespace: &str) -> bool {
    for object in NAMESPACED {
        let found = get(cluster, &format!("{object} -n {namespace}")).await;
        if found.is_none() {
            return false;
        }
    }
    true
}

/// Returns the namespaces of the subjects of the operator's bindings, without duplicates.
async fn bound_in(cluster: &Cluster) -> Vec<String> {
    let line = "clusterrolebindings -l core.rukpak.io/owner-name=operator";
    let found = get(cluster, line).await.unwrap_or_default();
    let bindings = found["items"].as_array().into_iter().flatten();
    let mut namespaces: Vec<String> = bindings
        .map(|binding| {
            let namespace = &binding["subjects"][0]["namespace"];
            namespace.as_str().unwrap_or_default().to_owned()
        })
        .collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
}

async fn is_gone(cluster: &Cluster, namespace: &str) {
    wait::until_true(LONG, &format!("namespace {namespace} is gone"), || async {
        let found = get(cluster, &format!("namespace {namespace}")).await;
        Ok(found.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_is_installed_into_the_target_namespace_and_into_the_suggested_one_without() {
    let (cluster, _webhook) = stage().await;
    let suggested = CSV.replace(
        "alm-examples: \"[]\"",
        "operatorframework.io/suggested-namespace: caches",
    );
    let reference = publish(&cluster, "team/operator:0.3.0", |folder| {
        formats::write(
            folder,
            &[
                ("metadata/annotations.yaml", ANNOTATIONS),
                ("manifests/csv.yaml", &suggested),
                ("manifests/crd.yaml", CRD),
                ("manifests/service.yaml", SERVICE),
            ],
        );
        Ok(())
    })
    .await;

    // As in RukPak: the content contains the suggested namespace.
    deploy(&cluster, &reference, "").await;
    assert!(is_in(&cluster, "caches").await);
    assert_eq!(bound_in(&cluster).await, ["caches"]);

    // An existing namespace; that of the content is deleted.
    kubectl(&cluster, "create namespace operator-own").await;
    deploy(&cluster, &reference, "-n operator-own").await;
    assert!(is_in(&cluster, "operator-own").await);
    assert_eq!(bound_in(&cluster).await, ["operator-own"]);
    is_gone(&cluster, "caches").await;

    // One that is created for it.
    let more = "-n operator-made --create-namespace";
    deploy(&cluster, &reference, more).await;
    assert!(is_in(&cluster, "operator-made").await);
    assert_eq!(bound_in(&cluster).await, ["operator-made"]);
    assert!(!is_in(&cluster, "operator-own").await);
    let own = get(&cluster, "namespace operator-own").await;
    assert!(own.is_some(), "it is not of the bundle");

    // It still serves all namespaces.
    let line = "deployment cache-operator -n operator-made";
    let found = get(&cluster, line).await.unwrap();
    let annotations = &found["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["olm.targetNamespaces"], "", "{annotations}");

    // `render` shows the installed objects.
    let words = ["render", &reference, "-n", "operator-made"];
    let rendered = cluster.kubectl_bundle(words).await.unwrap();
    let rendered = rendered.success().unwrap();
    assert!(
        rendered.contains("\n  namespace: operator-made\n")
            && !rendered.contains("\n  namespace: caches\n"),
        "{rendered}"
    );

    kubectl(&cluster, "delete bundledeployment operator").await;
    is_gone(&cluster, "operator-made").await;
}
