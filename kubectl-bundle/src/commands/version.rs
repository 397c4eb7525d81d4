//! `version`: of this program and of the cluster.
//! Not here: whether a bundle fits that version (bundle-core).

use serde::Serialize;

use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `version` needs to know.
pub(crate) struct Version {
    /// The cluster to ask, if one is to be asked.
    pub(crate) cluster: Option<KubeSettings>,
    /// How to print it.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<String>,
}

impl Version {
    /// Asks and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let mut versions = Versions {
            client_version: env!("CARGO_PKG_VERSION"),
            server_version: None,
        };
        // What is known here is printed even if the cluster does not answer.
        let mut trouble = None;
        if let Some(settings) = &self.cluster {
            match server(settings).await {
                Ok(version) => versions.server_version = Some(version),
                Err(failure) => trouble = Some(failure),
            }
        }
        if !ui.structured(self.format, &versions)? {
            ui.data(format!("Client Version: v{}", versions.client_version))?;
            if let Some(server) = &versions.server_version {
                ui.data(format!("Server Version: {server}"))?;
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

async fn server(settings: &KubeSettings) -> Outcome<String> {
    let cluster = Cluster::connect(settings).await?;
    let info = cluster.ask(cluster.client.apiserver_version()).await?;
    Ok(info.git_version)
}
