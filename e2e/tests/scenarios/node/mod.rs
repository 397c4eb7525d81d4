//! The packed chart on a real node: containerd runs the pods, and the API server reaches them
//! through their Service. `release` installs and removes it, `health` judges Pods, `replicas`
//! kills one of two pods.

use std::path::Path;
use std::time::Duration;

use e2e::image::{ImageSet, Platform, WebhookImage};
use e2e::tools::KubernetesRelease;
use e2e::{Cluster, Output, Tool, programs};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::pod::chart::{folder as chart, helm};

mod health;
mod release;
mod replicas;

const RELEASE: &str = "bundle-webhook";
/// Namespace of the release. The chart creates the system namespace, with pod security labels.
const RELEASE_NAMESPACE: &str = "default";
const NAMESPACE: &str = "bundle-system";
const CLASS: &str = "core-rukpak-io-plain";
/// Time limit, above that of `helm --wait`.
const HELM: Duration = Duration::from_secs(300);

/// Cluster with a node, and with the image and the chart of this project in its registry.
struct NodeCluster {
    cluster: Cluster,
    /// Values of the chart.
    values: Value,
    /// Reference of the packed chart.
    chart: String,
}

impl NodeCluster {
    async fn start() -> Self {
        let platform = Platform::of_this_machine().unwrap();
        let program = programs::get().await.unwrap().webhook.clone();
        let packed = WebhookImage::of_scenarios(program).unwrap().pack().unwrap();
        let set = ImageSet::new(vec![(platform, packed)]);
        let cluster = Cluster::builder()
            .release(KubernetesRelease::Newest)
            .node(true)
            .start()
            .await
            .unwrap();
        let layout = cluster.folder().join("data").join("image.oci");
        set.write(&layout, "test").unwrap();
        let registry = cluster.registry(0).unwrap();
        let repository = registry.reference("kubectl-bundle/bundle-webhook");
        let ca = fs_err::read_to_string(registry.ca().unwrap()).unwrap();
        let values = json!({
            "image": {"repository": repository, "digest": set.digest().to_string()},
            "registries": {"ca": ca},
            "test": {"image": registry.reference("busybox:1")},
            "keepOnUninstall": false,
            // Names are addresses here.
            "networkPolicy": {"egressPorts": [443, 6443]},
        });
        let chart = format!("oci://{}", registry.reference("charts/bundle-webhook"));
        let node = Self {
            cluster,
            values,
            chart,
        };
        let copy = format!("copy {} {repository}:test", layout.display());
        node.plugin(&copy).await.success().unwrap();
        node.publish_chart().await;
        node
    }

    /// Packs the chart with Helm, and pushes it.
    async fn publish_chart(&self) {
        let data = self.cluster.folder().join("data");
        let line = format!(
            "package {} --destination {}",
            chart().display(),
            data.display()
        );
        self.helm(&line, None).await.success().unwrap();
        let archive = data.join(format!("{RELEASE}-{}.tgz", env!("CARGO_PKG_VERSION")));
        let folder = self.chart.trim_end_matches("/bundle-webhook");
        let line = format!(
            "push {} {folder} --ca-file {}",
            archive.display(),
            self.ca().display()
        );
        self.helm(&line, None).await.success().unwrap();
    }

    fn ca(&self) -> &Path {
        self.cluster.registry(0).unwrap().ca().unwrap()
    }

    /// Runs Helm with the words of `line` and these values on standard input.
    async fn helm(&self, line: &str, values: Option<&Value>) -> Output {
        let command = helm(&self.cluster, Tool::Helm, line).await.deadline(HELM);
        let command = match values {
            Some(values) => command.args(["--values", "-"]).stdin(values.to_string()),
            None => command,
        };
        command.output().await.unwrap()
    }

    /// Runs `helm install` or `helm upgrade` with the packed chart, and waits until the pods are
    /// ready.
    async fn release(&self, verb: &str, values: &Value) -> String {
        let line = format!(
            "{verb} {RELEASE} {} --namespace {RELEASE_NAMESPACE} --ca-file {} --wait --timeout 4m",
            self.chart,
            self.ca().display()
        );
        self.helm(&line, Some(values)).await.success().unwrap()
    }

    /// Runs the plugin. It trusts the registry.
    async fn plugin(&self, line: &str) -> Output {
        let plugin = self.cluster.plugin().await.unwrap();
        let ca = self.ca().display().to_string();
        let command = plugin.args(line.split(' '));
        let command = if line.starts_with("push") || line.starts_with("copy") {
            command.args(["--registry-ca", &ca])
        } else {
            command
        };
        command.deadline(HELM).output().await.unwrap()
    }

    /// Builds and pushes a bundle of these manifests, and returns its reference.
    async fn publish(&self, name: &str, manifests: &str) -> String {
        let folder = self.cluster.folder().join("data").join(name);
        super::reconcile::bundle_of(&folder, name, manifests).unwrap();
        let reference = self
            .cluster
            .registry(0)
            .unwrap()
            .reference(&format!("{name}:1.0.0"));
        let line = format!("push {} {reference}", folder.display());
        let pushed = self.plugin(&line).await.success().unwrap();
        pushed.lines().last().unwrap().to_owned()
    }
}

/// Returns a cluster in which the chart is installed. Scenarios must not change the release.
async fn installed() -> &'static NodeCluster {
    static NODE: OnceCell<NodeCluster> = OnceCell::const_new();
    NODE.get_or_init(|| async {
        let node = NodeCluster::start().await;
        node.release("install", &node.values).await;
        // The classes, whose kind the cluster knows now.
        node.release("upgrade", &node.values).await;
        node
    })
    .await
}
