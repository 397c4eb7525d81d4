//! The tour of README.md with the packed chart on a node. The scenario `readme` runs the same
//! commands with the pod as a process.

use super::super::cli::{page, readme};
use super::start;

#[tokio::test(flavor = "multi_thread")]
async fn node_tour_of_the_readme_has_the_shown_output() {
    // `kubectl bundle get` shows all BundleDeployments, so no other scenario can use this cluster.
    let node = start().await;
    node.install().await.unwrap();
    let cluster = &node.cluster;
    // The commands of the tour name no certificate authority. The plugin reads the certificate
    // authority of a registry from this folder of podman.
    let registry = cluster.registry(0).unwrap();
    let folder = cluster.folder().join("home/.config/containers/certs.d");
    let folder = folder.join(registry.host());
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::copy(registry.ca().unwrap(), folder.join("ca.crt")).unwrap();
    let sigstore = cluster.sigstore().await.unwrap();
    let variables = readme::variables(cluster, &sigstore);
    let steps = page::follow(cluster, &variables, &readme::readme()).await;
    assert!(steps.unwrap() > 20);
}
