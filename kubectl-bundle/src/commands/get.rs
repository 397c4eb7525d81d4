//! `get`: BundleDeployments at one look.
//! Not here: one of them in detail (status).

use bundle_api::BundleDeployment;
use jiff::Timestamp;
use kube::api::{Api, ListParams};

use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Table, Ui, age};

use super::deployment::{condition, qualified, short_digest};

/// What `get` needs to know.
pub(crate) struct Get {
    /// Names; all if empty.
    pub(crate) names: Vec<String>,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// Which cluster.
    pub(crate) cluster: KubeSettings,
}

impl Get {
    /// Asks and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let items = if self.names.is_empty() {
            cluster.ask(api.list(&ListParams::default())).await?.items
        } else {
            let mut items = Vec::new();
            for name in &self.names {
                items.push(cluster.ask(api.get(name)).await?);
            }
            items
        };
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
        let printed = match (self.names.as_slice(), items.as_slice()) {
            ([_], [one]) => ui.structured(self.format, one)?,
            _ => ui.structured(self.format, &list)?,
        };
        if printed {
            return Ok(());
        }
        if self.format == Some(Format::Name) {
            for item in &items {
                ui.data(qualified(item))?;
            }
            return Ok(());
        }
        if items.is_empty() {
            ui.note("No resources found");
            return Ok(());
        }
        ui.text(&table(
            &items,
            self.format == Some(Format::Wide),
            Timestamp::now(),
        ))
    }
}

fn table(items: &[BundleDeployment], wide: bool, now: Timestamp) -> String {
    let mut table = if wide {
        Table::new([
            "NAME",
            "VERSION",
            "DIGEST",
            "INSTALLED",
            "READY",
            "DRIFT",
            "AGE",
            "CLASS",
            "ACTIVE BUNDLE",
            "AS",
            "REQUESTED BY",
        ])
    } else {
        Table::new([
            "NAME",
            "VERSION",
            "DIGEST",
            "INSTALLED",
            "READY",
            "DRIFT",
            "AGE",
        ])
    };
    for item in items {
        let status = item.status.clone().unwrap_or_default();
        let installed = status.installed.clone().unwrap_or_default();
        let shown = [
            item.metadata.name.clone().unwrap_or_default(),
            installed.version.clone().unwrap_or_default(),
            short_digest(&installed.digest),
            condition(item, "Installed"),
            condition(item, "Ready"),
            status.drift.len().to_string(),
            item.metadata
                .creation_timestamp
                .as_ref()
                .map(|created| age::short(now.as_second() - created.0.as_second()))
                .unwrap_or_default(),
        ];
        if wide {
            let [name, version, digest, state, ready, drift, age] = shown;
            table.row([
                name,
                version,
                digest,
                state,
                ready,
                drift,
                age,
                item.spec.provisioner_class_name.clone(),
                status.active_bundle.unwrap_or_default(),
                installed
                    .installed_as
                    .map(|account| format!("{}/{}", account.namespace, account.name))
                    .unwrap_or_default(),
                installed.requested_by.unwrap_or_default(),
            ]);
        } else {
            table.row(shown);
        }
    }
    table.render()
}
