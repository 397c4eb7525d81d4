//! The packed chart on a real node: containerd runs the pods, and the API server reaches the pods
//! through their Service. `lifecycle` installs and removes the chart, `health` checks the health of
//! Pods, `availability` disturbs two replicas under load, `content` sends and receives content,
//! `full_image` installs content that needs external programs, and `tour` runs the commands of the
//! README.

use e2e::image::{ExternalPrograms, WebhookImage};
use e2e::programs;
use e2e::release::NodeRelease;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

mod availability;
mod content;
mod full_image;
mod health;
mod lifecycle;
mod tour;

const CLASS: &str = "core-rukpak-io-plain";

/// Returns a cluster whose registry has the image and the chart.
async fn start() -> NodeRelease {
    let program = programs::get().await.unwrap().webhook.clone();
    let mut image = WebhookImage::of_scenarios(program).unwrap();
    let external = tokio::task::spawn_blocking(ExternalPrograms::of_this_machine).await;
    image.external = Some(external.unwrap().unwrap());
    NodeRelease::start(&image).await.unwrap()
}

/// Builds and pushes a bundle of these manifests, and returns its reference.
async fn publish(node: &NodeRelease, name: &str, manifests: &str) -> String {
    let folder = node.cluster.folder().join("data").join(name);
    super::reconcile::bundle_of(&folder, name, manifests).unwrap();
    let registry = node.cluster.registry(0).unwrap();
    let reference = registry.reference(&format!("{name}:1.0.0"));
    let pushed = plugin(node, &format!("push {} {reference}", folder.display())).await;
    pushed.lines().last().unwrap().to_owned()
}

/// Runs the plugin, and returns its standard output.
async fn plugin(node: &NodeRelease, line: &str) -> String {
    node.plugin(line).await.unwrap().success().unwrap()
}

/// Returns a cluster in which the chart is installed. Only one scenario at a time can use the
/// cluster. At its end, each scenario must leave two ready replicas for the next scenario.
async fn installed() -> MappedMutexGuard<'static, NodeRelease> {
    static NODE: Mutex<Option<NodeRelease>> = Mutex::const_new(None);
    let mut node = NODE.lock().await;
    if node.is_none() {
        let started = start().await;
        started.install().await.unwrap();
        *node = Some(started);
    }
    MutexGuard::map(node, |node| node.as_mut().unwrap())
}
