//! Bundles of the etcd operator (registry+v1), as its project published them. `formats` tests the
//! conversion.

use std::path::{Path, PathBuf};

use e2e::tools::published;
use e2e::{Cluster, Output};

use crate::scenarios::reconcile::{condition, get, publish, stage, until};

/// Bundles of three versions. These bundles have no `metadata/annotations.yaml`, because they are
/// older than bundle images.
const BUNDLES: &str =
    "operator-courier-2.1.11/tests/test_files/bundles/api/etcd_valid_nested_bundle";

fn write(bundle: &Path, folder: &Path) -> anyhow::Result<()> {
    let annotations = "annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.package.v1: etcd
";
    fs_err::create_dir_all(folder.join("manifests"))?;
    fs_err::create_dir_all(folder.join("metadata"))?;
    fs_err::write(folder.join("metadata/annotations.yaml"), annotations)?;
    for entry in fs_err::read_dir(bundle)? {
        let file = entry?;
        fs_err::copy(file.path(), folder.join("manifests").join(file.file_name()))?;
    }
    Ok(())
}

async fn bundles() -> PathBuf {
    let packages = published::python_packages().await.unwrap();
    packages.join(BUNDLES)
}

async fn run(cluster: &Cluster, line: &str) -> Output {
    let words = line.split(' ').filter(|word| !word.is_empty());
    cluster.kubectl_bundle(words).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn published_operator_is_installed_and_removed_and_one_for_its_own_namespace_is_rendered() {
    let bundles = bundles().await;
    let (cluster, _webhook) = stage().await;

    // An operator that watches all namespaces is rendered and installed.
    let reference = publish(&cluster, "real/etcd-operator:0.6.1", |folder| {
        write(&bundles.join("0.6"), folder)
    })
    .await;
    let rendered = run(&cluster, &format!("render {reference} -n real-etcd")).await;
    let rendered = rendered.success().unwrap();
    for kind in [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
    ] {
        assert!(rendered.contains(&format!("kind: {kind}\n")), "{rendered}");
    }
    let line = format!("deploy real-etcd {reference} --wait -n real-etcd --create-namespace");
    run(&cluster, &line).await.success().unwrap();
    let found = get(&cluster, "bundledeployment real-etcd").await.unwrap();
    assert_eq!(condition(&found, "Drifted")["status"], "False", "{found}");
    let deployment = "deployment etcd-operator -n real-etcd";
    assert!(get(&cluster, deployment).await.is_some());

    // The next version has definitions in an API version that is no longer served. The command
    // reports this API version without waiting for its timeout.
    let next = publish(&cluster, "real/etcd-operator:0.9.0", |folder| {
        write(&bundles.join("0.8"), folder)
    })
    .await;
    let refused = run(
        &cluster,
        &format!("deploy real-etcd {next} --wait --timeout 60s"),
    )
    .await;
    let refused = refused.failure(3).unwrap();
    assert!(
        refused.contains(
            "Kubernetes 1.22 removed apiextensions.k8s.io/v1beta1/CustomResourceDefinition"
        ) && refused.contains("apiextensions.k8s.io/v1/CustomResourceDefinition"),
        "{refused}"
    );
    let message = until(&cluster, "bundledeployment real-etcd", "Ready", "False").await;
    assert!(
        message.contains("apiextensions.k8s.io/v1beta1"),
        "{message}"
    );
    // Version 0.6.1 is still installed after the rejected upgrade.
    assert!(get(&cluster, deployment).await.is_some());
    let removed = run(&cluster, "delete real-etcd --wait").await;
    removed.success().unwrap();
    assert!(get(&cluster, deployment).await.is_none());
    assert!(get(&cluster, "namespace real-etcd").await.is_none());

    // The last version watches its own namespace only.
    let folder = cluster.folder().join("data/real-etcd-own");
    write(&bundles.join("0.9"), &folder).unwrap();
    let line = format!("render {} -n real-etcd", folder.display());
    let rendered = run(&cluster, &line).await.success().unwrap();
    for expected in [
        "kind: Role\n",
        "kind: RoleBinding\n",
        "olm.targetNamespaces: real-etcd\n",
    ] {
        assert!(rendered.contains(expected), "{rendered}");
    }
    assert!(!rendered.contains("kind: ClusterRole\n"), "{rendered}");
}
