//! `status`: one BundleDeployment in detail.
//! Not here: many of them (get).

use std::fmt::Write as _;

use bundle_api::BundleDeployment;
use bundle_api::deployment_status::Upgrade;
use bundle_cluster::ByName;
use jiff::Timestamp;
use kube::api::Api;

use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Table, Ui, age, safe};

use super::deployment::qualified;
use super::listing;

/// What `status` needs to know.
pub(crate) struct Status {
    /// The BundleDeployment.
    pub(crate) name: String,
    /// Print `managedFields` as well.
    pub(crate) show_managed_fields: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// Which cluster.
    pub(crate) cluster: KubeSettings,
}

impl Status {
    /// Asks and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let mut item = cluster.ask(ByName(&api).get(&self.name)).await?;
        if !self.show_managed_fields {
            item.metadata.managed_fields = None;
        }
        if self.format == Some(Format::Name) {
            return ui.data(qualified(&item));
        }
        if ui.structured(self.format, &item)? {
            return Ok(());
        }
        let now = Timestamp::now();
        let mut text = describe(&item, now);
        for line in listing::last_corrections(&cluster, &self.name, now).await {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "Corrected: {}", safe(&line));
        }
        ui.text(&text)
    }
}

/// `1.1.0, not installed completely: 3 of 20 objects are of it`
fn upgrade(upgrade: &Upgrade) -> String {
    let version = listing::upgraded(upgrade);
    match (upgrade.applied, upgrade.objects) {
        (Some(applied), Some(objects)) => {
            format!("{version}, not installed completely: {applied} of {objects} objects are of it")
        }
        _ => format!("{version}, of which nothing is applied yet"),
    }
}

fn describe(item: &BundleDeployment, now: Timestamp) -> String {
    let status = item.status.clone().unwrap_or_default();
    let installed = status.installed.clone().unwrap_or_default();
    let source = &item.spec.template.spec.source;
    let lines = [
        ("Name", item.metadata.name.clone().unwrap_or_default()),
        ("Class", item.spec.provisioner_class_name.clone()),
        (
            "Wanted",
            source
                .image
                .as_ref()
                .map_or_else(|| source.kind.clone(), |image| image.reference.clone()),
        ),
        ("Version", installed.version.unwrap_or_default()),
        ("Digest", installed.digest),
        (
            "Objects",
            installed
                .objects
                .map(|count| count.to_string())
                .unwrap_or_default(),
        ),
        ("Active bundle", status.active_bundle.unwrap_or_default()),
        (
            "Installed as",
            installed
                .installed_as
                .map(|account| format!("{}/{}", account.namespace, account.name))
                .unwrap_or_default(),
        ),
        (
            "Upgrade to",
            status.upgrade.as_ref().map(upgrade).unwrap_or_default(),
        ),
        ("Requested by", installed.requested_by.unwrap_or_default()),
        ("Approved by", installed.approved_by.unwrap_or_default()),
    ];
    let mut text = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15}{value}", format!("{label}:"));
    }
    if !status.conditions.is_empty() {
        let mut table = Table::new(["CONDITION", "STATUS", "REASON", "MESSAGE"]);
        for condition in status.conditions {
            table.row([
                condition.type_,
                condition.status,
                condition.reason,
                condition.message,
            ]);
        }
        let _ = write!(text, "\n{}", table.render());
    }
    if let Some(upgrade) = &status.upgrade {
        let version = listing::upgraded(upgrade);
        for object in &upgrade.applied_objects {
            let _ = writeln!(text, "Of {version}: {}", safe(object));
        }
    }
    for object in &status.drift {
        let since = object.since.as_ref().map_or_else(String::new, |since| {
            let seconds = now.as_second() - since.0.as_second();
            format!(" (for {})", age::short(seconds))
        });
        let _ = writeln!(text, "Drifted: {}{since}", safe(&object.object));
    }
    for warning in &status.warnings {
        let _ = writeln!(text, "Warning: {warning}");
    }
    text
}
