//! A Helm release of the packed chart on a node. Image and chart are in the registry of the
//! cluster. The pods run on the node.
#![expect(
    clippy::disallowed_methods,
    reason = "the code of the tests chooses all object names"
)]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::chart;
use crate::cluster::node::Container;
use crate::image::{ImageSet, WebhookImage};
use crate::tools::KubernetesRelease;
use crate::{Cluster, Output, Tool};

/// Name of the release, and of its Deployment, Service and Lease.
pub const RELEASE: &str = "bundle-webhook";
/// The release's own namespace. The chart creates the system namespace, with pod security.
pub const RELEASE_NAMESPACE: &str = "default";
/// The system namespace.
pub const NAMESPACE: &str = "bundle-system";
/// Deadline of helm commands, longer than the deadline of `helm --wait`.
const HELM: Duration = Duration::from_secs(300);

/// A cluster with a node, and the image and the chart of this project in its registry.
pub struct NodeRelease {
    /// The cluster, which has an audit log.
    pub cluster: Cluster,
    /// Values of the chart.
    pub values: Value,
    /// Reference of the packed chart.
    chart: String,
}

impl NodeRelease {
    /// Starts the cluster, and pushes `image` and the chart. Installs nothing.
    pub async fn start(image: &WebhookImage) -> Result<Self> {
        let set = ImageSet::new(vec![(image.platform, image.pack()?)]);
        let cluster = Cluster::builder()
            .release(KubernetesRelease::Newest)
            .node(true)
            .audit(true)
            .start()
            .await?;
        let layout = cluster.folder().join("data").join("image.oci");
        set.write(&layout, "test")?;
        let registry = cluster.registry(0)?;
        let repository = registry.reference("kubectl-bundle/bundle-webhook");
        let chart = format!("oci://{}", registry.reference("charts/bundle-webhook"));
        let busybox = registry.reference("busybox:1");
        let mut node = Self {
            cluster,
            values: Value::Null,
            chart,
        };
        node.values = json!({
            "image": {"repository": repository, "digest": set.digest().to_string()},
            "registries": {"ca": fs_err::read_to_string(node.ca()?)?},
            "test": {"image": busybox},
            "keepOnUninstall": false,
            // The ports are the default values of the chart. They have no effect here, because the
            // network of the node does not enforce NetworkPolicies.
            "networkPolicy": {"egressPorts": [443, 6443]},
        });
        let copy = format!("copy {} {repository}:test", layout.display());
        node.plugin(&copy).await?.success()?;
        node.publish_chart().await?;
        Ok(node)
    }

    /// Packs and pushes the chart with Helm.
    async fn publish_chart(&self) -> Result<()> {
        let run = async |arguments: Vec<String>| self.both_outputs(&arguments.join(" ")).await;
        let archive = chart::pack(&self.cluster.folder().join("data"), &run).await?;
        let folder = self.cluster.registry(0)?.reference("charts");
        let flags = ["--ca-file".to_owned(), self.ca()?.display().to_string()];
        chart::push(&archive, &folder, &flags, &run).await.map(drop)
    }

    /// Runs Helm, and returns standard output and standard error.
    async fn both_outputs(&self, line: &str) -> Result<String> {
        let output = self.helm(line, None).await?;
        let both = format!("{}\n{}", output.stdout, output.stderr);
        output.success().map(|_| both)
    }

    fn ca(&self) -> Result<&Path> {
        let ca = self.cluster.registry(0)?.ca();
        ca.context("the registry of a node has no TLS")
    }

    /// Runs Helm with the words of `line` and these values on standard input.
    pub async fn helm(&self, line: &str, values: Option<&Value>) -> Result<Output> {
        let command = self.cluster.tool(Tool::Helm).await?;
        let command = command.args(line.split(' ')).deadline(HELM);
        let command = match values {
            Some(values) => command.args(["--values", "-"]).stdin(values.to_string()),
            None => command,
        };
        command.output().await
    }

    /// Runs `helm install` or `helm upgrade` with the packed chart, and waits until the pods are
    /// ready.
    pub async fn release(&self, verb: &str, values: &Value) -> Result<String> {
        let line = format!(
            "{verb} {RELEASE} {} --namespace {RELEASE_NAMESPACE} --ca-file {} --wait --timeout 4m",
            self.chart,
            self.ca()?.display()
        );
        self.helm(&line, Some(values)).await?.success()
    }

    /// Installs the release and then upgrades it. The upgrade creates the classes, because their
    /// CRD exists only after the installation.
    pub async fn install(&self) -> Result<()> {
        self.release("install", &self.values).await?;
        self.release("upgrade", &self.values).await.map(drop)
    }

    /// Runs the plugin with the words of `line`. The plugin trusts the certificate of the registry.
    pub async fn plugin(&self, line: &str) -> Result<Output> {
        let plugin = self.cluster.plugin().await?;
        let ca = self.ca()?.display().to_string();
        let command = plugin.args(line.split(' '));
        let command = if line.starts_with("push") || line.starts_with("copy") {
            command.args(["--registry-ca", &ca])
        } else {
            command
        };
        command.deadline(HELM).output().await
    }

    /// Returns the pods of the release.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await?, NAMESPACE);
        let label = format!("app.kubernetes.io/name={RELEASE}");
        Ok(pods
            .list(&ListParams::default().labels(&label))
            .await?
            .items)
    }

    /// Returns the running container of a pod.
    pub async fn container(&self, pod: &str) -> Result<Container> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await?, NAMESPACE);
        let status = pods.get(pod).await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let id = containers.first().and_then(|one| one.container_id.clone());
        let id = id.with_context(|| format!("pod {pod} has no container"))?;
        Container::find(id.trim_start_matches("containerd://"))
    }

    /// Returns the lease of the leader, if it exists.
    pub async fn lease(&self) -> Result<Option<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client().await?, NAMESPACE);
        Ok(leases.get_opt(RELEASE).await?)
    }

    /// Returns the name of the pod that holds the lease. For a short time, no pod may hold the
    /// lease.
    pub async fn holder(&self) -> Result<Option<String>> {
        let lease = self.lease().await?.and_then(|lease| lease.spec);
        let holder = lease.and_then(|spec| spec.holder_identity);
        let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
            return Ok(None);
        };
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await?, NAMESPACE);
        Ok(pods.get_opt(&holder).await?.map(|_| holder))
    }
}
