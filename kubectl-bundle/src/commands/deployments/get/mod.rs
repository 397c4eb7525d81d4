//! `get`: lists BundleDeployments, and the Bundles that no BundleDeployment created.

mod arguments;

use bundle_api::{Bundle, BundleDeployment, names};
use bundle_cluster::ByName;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde_json::Value;

use super::listing::{self, Corrections};
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Time in seconds after which the server closes a watch. The command then opens the watch again.
const WATCH_SECONDS: u32 = 290;

/// Settings of `get`.
pub(crate) struct Get {
    /// Names of objects. An empty list means all objects.
    pub(crate) names: Vec<String>,
    /// `true` if changes are printed until the command is interrupted.
    pub(crate) watch: bool,
    /// `true` if tables have no column names.
    pub(crate) no_headers: bool,
    /// `true` if `managedFields` are printed.
    pub(crate) show_managed_fields: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

/// Objects in the cluster.
struct ListedObjects {
    deployments: Vec<BundleDeployment>,
    bundles: Vec<Bundle>,
    /// Resource version for a watch of the BundleDeployments.
    version: String,
}

impl Get {
    /// Lists the objects and prints them.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let found = self.find(&cluster).await?;
        if self.print_data(ui, &found)? {
            return Ok(());
        }
        if found.deployments.is_empty() && found.bundles.is_empty() {
            ui.note("No resources found");
        }
        let wide = self.format == Some(Format::Wide);
        let mut table = listing::deployments(wide);
        if !found.deployments.is_empty() {
            let corrections = Corrections::read(&cluster, Timestamp::now()).await;
            for item in &found.deployments {
                listing::add(&mut table, item, &corrections, wide, Timestamp::now());
            }
            ui.text(&table.omit_headers(self.no_headers).render())?;
        }
        if !found.bundles.is_empty() {
            if !found.deployments.is_empty() {
                ui.data("")?;
            }
            let table = listing::bundles(&found.bundles, Timestamp::now());
            ui.text(&table.omit_headers(self.no_headers).render())?;
        }
        if self.watch {
            let header = found.deployments.is_empty() && !self.no_headers;
            self.follow(ui, &cluster, found.version, header).await?;
        }
        Ok(())
    }

    async fn find(&self, cluster: &Cluster) -> Outcome<ListedObjects> {
        let deployments: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let bundles: Api<Bundle> = Api::all(cluster.client.clone());
        let all = ListParams::default();
        let mut found = if self.names.is_empty() {
            let list = cluster.send(deployments.list(&all)).await?;
            let made = match cluster.send(bundles.list(&all)).await {
                Ok(list) => list.items.into_iter().filter(is_standalone).collect(),
                // A user without permission to list Bundles gets only the BundleDeployments.
                Err(Failure::Server(status)) if status.code == 403 => Vec::new(),
                Err(failure) => return Err(failure),
            };
            ListedObjects {
                deployments: list.items,
                bundles: made,
                version: list.metadata.resource_version.unwrap_or_default(),
            }
        } else {
            let mut found = ListedObjects {
                deployments: Vec::new(),
                bundles: Vec::new(),
                version: String::new(),
            };
            for name in &self.names {
                match cluster.send(ByName(&deployments).get(name)).await {
                    Ok(item) => found.deployments.push(item),
                    Err(Failure::Server(status)) if status.code == 404 => {
                        match cluster.send(ByName(&bundles).get(name)).await {
                            Ok(item) => found.bundles.push(item),
                            // The name is probably the name of a BundleDeployment. Therefore the
                            // error of the lookup of the BundleDeployment is returned, and not the
                            // error for the Bundle.
                            Err(_) => return Err(Failure::Server(status)),
                        }
                    }
                    Err(failure) => return Err(failure),
                }
            }
            found
        };
        if !self.show_managed_fields {
            for item in &mut found.deployments {
                item.metadata.managed_fields = None;
            }
            for item in &mut found.bundles {
                item.metadata.managed_fields = None;
            }
        }
        Ok(found)
    }

    /// Prints names or whole objects. If the format is a table, prints nothing and returns `false`.
    fn print_data(&self, ui: &mut Ui, found: &ListedObjects) -> Outcome<bool> {
        if self.format == Some(Format::Name) {
            for item in &found.deployments {
                ui.data(super::state::conditions::kind_and_name(item))?;
            }
            for item in &found.bundles {
                let name = item.metadata.name.as_deref().unwrap_or_default();
                ui.data(format!("bundle.{}/{name}", names::GROUP))?;
            }
            return Ok(true);
        }
        let deployments = found.deployments.iter().map(serde_json::to_value);
        let bundles = found.bundles.iter().map(serde_json::to_value);
        let items: Vec<Value> = deployments.chain(bundles).filter_map(Result::ok).collect();
        match (self.names.as_slice(), items.as_slice()) {
            ([_], [one]) => ui.structured(self.format, one),
            _ => ui.structured(
                self.format,
                &serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}),
            ),
        }
    }

    /// Prints a row for each change until the command is interrupted.
    async fn follow(
        &self,
        ui: &mut Ui,
        cluster: &Cluster,
        mut version: String,
        mut header: bool,
    ) -> Outcome {
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        loop {
            if version.is_empty() {
                let list = cluster.send(api.list(&ListParams::default())).await?;
                version = list.metadata.resource_version.unwrap_or_default();
            }
            let parameters = WatchParams::default().timeout(WATCH_SECONDS);
            let stream = cluster.send(api.watch(&parameters, &version)).await?;
            let mut stream = std::pin::pin!(stream);
            while let Ok(Some(event)) = stream.try_next().await {
                let item = match event {
                    WatchEvent::Added(item)
                    | WatchEvent::Modified(item)
                    | WatchEvent::Deleted(item) => item,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => {
                        version.clear();
                        break;
                    }
                };
                version = item.metadata.resource_version.clone().unwrap_or_default();
                let name = item.metadata.name.as_deref().unwrap_or_default();
                if !self.names.is_empty() && !self.names.iter().any(|wanted| wanted == name) {
                    continue;
                }
                let now = Timestamp::now();
                let corrections = Corrections::read(cluster, now).await;
                let mut table = listing::deployments(false);
                listing::add(&mut table, &item, &corrections, false, now);
                let text = table.render();
                // Each change is printed as a separate table with one row. The columns are as wide
                // as the values of this row, as in kubectl.
                let rows = usize::from(!header);
                header = false;
                for line in text.lines().skip(rows) {
                    ui.data(line)?;
                }
            }
        }
    }
}

/// Returns `true` for a Bundle that no BundleDeployment created, according to its owner label. Any
/// user with write access can change this label, but the label affects only this list.
fn is_standalone(bundle: &Bundle) -> bool {
    let labels = bundle.metadata.labels.as_ref();
    let owner = labels.and_then(|labels| labels.get(names::LABEL_OWNER_KIND));
    owner.is_none_or(|kind| kind != "BundleDeployment")
}
