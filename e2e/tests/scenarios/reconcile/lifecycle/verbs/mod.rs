//! Verbs of the plugin for installed content: previews, the tree of objects, adoption and release,
//! and pauses.

use e2e::{Cluster, Output};

mod adopt;
mod pause;
mod preview;
mod tree;

/// Runs the plugin with the arguments of `line`.
async fn plugin(cluster: &Cluster, line: &str) -> Output {
    cluster.kubectl_bundle(line.split(' ')).await.unwrap()
}
