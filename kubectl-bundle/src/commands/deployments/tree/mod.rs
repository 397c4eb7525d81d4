//! `tree`: prints the objects of a BundleDeployment below their owners.

mod arguments;
mod model;
mod print;
mod read;
mod watch;

use bundle_core::names::KubeName;
use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;
use crate::ui::format::Format;
pub(crate) use arguments::Arguments;
use read::TreeReader;

/// Settings of `tree`.
pub(crate) struct Tree {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// `true` if the tree is printed again after each change.
    pub(crate) watch: bool,
    /// Namespace of the inventories.
    pub(crate) state_namespace: Option<KubeName>,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl Tree {
    /// Reads the objects and prints the tree.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let state_namespace = cluster.state_namespace(self.state_namespace.as_ref()).await;
        let reader = TreeReader {
            cluster: &cluster,
            state_namespace: &state_namespace,
            watches: self.watch,
        };
        let mut last: Option<Value> = None;
        loop {
            let tree = match Box::pin(reader.read(&self.name)).await {
                Err(Failure::Server(status)) if status.code == 404 && last.is_some() => {
                    ui.note(format!("bundledeployment {} was deleted", self.name));
                    return Ok(());
                }
                read => read?,
            };
            let data = print::structured(&tree);
            if last.as_ref() != Some(&data) {
                if last.is_some() {
                    ui.data("")?;
                }
                if !ui.structured(self.format, &data)? {
                    ui.text(&print::text(&tree, Timestamp::now()))?;
                }
                for finding in print::findings(&tree) {
                    ui.finding(&finding);
                }
            }
            if !self.watch {
                return Ok(());
            }
            last = Some(data);
            watch::wait_for_change(&cluster, &tree).await;
        }
    }
}
