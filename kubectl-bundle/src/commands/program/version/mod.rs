//! `version`: versions of this program and the cluster.

mod arguments;

use bundle_cluster::ByName;
use bundle_core::diagnostic::Severity;
use bundle_core::doctor::client::skew_finding;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use serde::Serialize;

use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Ui, safe};

pub(crate) use arguments::Arguments;

/// Name of the Deployment of bundle-webhook.
const WEBHOOK: &str = "bundle-webhook";

/// Settings of `version`.
pub(crate) struct Version {
    /// Cluster settings; `None` for the client version only.
    pub(crate) cluster: Option<KubeSettings>,
    /// Namespace of bundle-webhook.
    pub(crate) system_namespace: String,
    /// Output format.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_field_names,
    reason = "the names are those in the output of kubectl"
)]
struct Versions {
    client_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_version: Option<String>,
}

impl Version {
    /// Reads and prints the versions.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let mut versions = Versions {
            client_version: env!("CARGO_PKG_VERSION"),
            server_version: None,
            webhook_version: None,
        };
        // Known versions are printed even if the cluster is unreachable.
        let mut failed = None;
        if let Some(settings) = &self.cluster {
            match self.read_cluster_versions(settings, &mut versions).await {
                Ok(()) => {}
                Err(failure) => failed = Some(failure),
            }
        }
        if !ui.structured(self.format, &versions)? {
            ui.data(format!("Client Version: v{}", versions.client_version))?;
            if let Some(server) = &versions.server_version {
                ui.data(format!("Server Version: {}", safe(server)))?;
            }
            if let Some(webhook) = &versions.webhook_version {
                ui.data(format!("Webhook Version: {}", safe(webhook)))?;
            }
        }
        let webhook = versions.webhook_version.as_deref();
        let skew = webhook.and_then(|webhook| skew_finding(versions.client_version, webhook));
        if let Some(mut finding) = skew {
            finding.severity = Severity::Warning;
            ui.finding(&finding);
        }
        failed.map_or(Ok(()), Err)
    }

    async fn read_cluster_versions(
        &self,
        settings: &KubeSettings,
        versions: &mut Versions,
    ) -> Outcome {
        let cluster = Cluster::connect(settings).await?;
        let info = cluster.send(cluster.client.apiserver_version()).await?;
        versions.server_version = Some(info.git_version);
        // The version is optional. Many users have no permission to read the Deployment, and a
        // cluster may have no Deployment.
        let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), &self.system_namespace);
        let found = cluster.send(ByName(&api).get(WEBHOOK)).await;
        versions.webhook_version = found.ok().as_ref().and_then(version_of);
        Ok(())
    }
}

/// Returns the version of the image of this Deployment: the tag, or the digest if the image has no
/// tag.
pub(crate) fn version_of(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let image = pod.containers.first()?.image.as_deref()?;
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let tag = named
        .rsplit('/')
        .next()?
        .split_once(':')
        .map(|(_, tag)| tag);
    tag.map(|tag| format!("v{}", tag.trim_start_matches('v')))
        .or_else(|| digest.map(str::to_owned))
}
