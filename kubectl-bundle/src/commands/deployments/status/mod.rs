//! `status`: describes one BundleDeployment and its installed objects.

mod arguments;
mod corrections;
mod rows;

use std::fmt::Write as _;

use bundle_api::deployment::status::Upgrade;
use bundle_api::{BundleDeployment, BundleDeploymentStatus};
use bundle_cluster::ByName;
use jiff::Timestamp;
use kube::api::Api;

use super::listing;
use super::state::conditions::{first_cause, kind_and_name};
use super::state::objects;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Table, Ui, age, safe};

pub(crate) use arguments::Arguments;

/// Maximum number of listed objects.
const MAX_OBJECTS: usize = 500;

/// Settings of `status`.
pub(crate) struct Status {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// `true` if `managedFields` are printed.
    pub(crate) show_managed_fields: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl Status {
    /// Reads the objects and prints the description.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let mut item = cluster.send(ByName(&api).get(&self.name)).await?;
        if !self.show_managed_fields {
            item.metadata.managed_fields = None;
        }
        if self.format == Some(Format::Name) {
            return ui.data(kind_and_name(&item));
        }
        let status = item.status.clone().unwrap_or_default();
        let named = objects::keys_in_status(&status);
        let (found, events) = futures::join!(
            objects::read(&cluster, &item, &named, MAX_OBJECTS),
            listing::corrections(&cluster, &self.name),
        );
        let may_list_events = events.is_some();
        let events = events.unwrap_or_default();
        let corrections = corrections::by_object(&events, item.metadata.uid.as_deref());
        let rows = rows::rows(&found, &status, named, &corrections);
        let warning = rows::warning(&found, may_list_events || rows.is_empty());

        let mut data = serde_json::to_value(&item).unwrap_or_default();
        data["objects"] = rows::structured(&rows);
        if ui.structured(self.format, &data)? {
            if let Some(warning) = &warning {
                ui.finding(warning);
            }
            return Ok(());
        }
        let now = Timestamp::now();
        let mut text = describe(&item, &status);
        if !rows.is_empty() {
            let is_wide = self.format == Some(Format::Wide);
            let table = rows::table(&rows, may_list_events, is_wide, now);
            let _ = write!(text, "\n{table}");
            if let Some(count) = rows::count(&rows, found.is_truncated, &status) {
                let _ = writeln!(text, "{count}");
            }
        }
        text.push_str(&lists(&status, now));
        for line in listing::last_corrections(events, now) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "Corrected: {}", safe(&line));
        }
        ui.text(&text)?;
        if let Some(warning) = &warning {
            ui.finding(warning);
        }
        Ok(())
    }
}

/// Returns a text such as `1.1.0, not installed completely: 3 of 20 objects are applied`.
fn upgrade(upgrade: &Upgrade) -> String {
    let version = listing::upgraded(upgrade);
    match (upgrade.applied, upgrade.objects) {
        (Some(applied), Some(objects)) => {
            format!(
                "{version}, not installed completely: {applied} of {objects} objects are applied"
            )
        }
        _ => format!("{version}, no object is applied yet"),
    }
}

/// Returns the installed content and the conditions as text.
fn describe(item: &BundleDeployment, status: &BundleDeploymentStatus) -> String {
    let status = status.clone();
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
        ("Not ready", first_cause(item).unwrap_or_default()),
    ];
    let mut text = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15}{}", format!("{label}:"), safe(value));
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
    text
}

/// Returns drift and warnings as text.
fn lists(status: &BundleDeploymentStatus, now: Timestamp) -> String {
    let mut text = String::new();
    for object in &status.drift {
        let since = object.since.as_ref().map_or_else(String::new, |since| {
            let seconds = now.as_second() - since.0.as_second();
            format!(" (for {})", age::format(seconds))
        });
        let _ = writeln!(text, "Drifted: {}{since}", safe(&object.object));
    }
    for warning in &status.warnings {
        let _ = writeln!(text, "Warning: {}", safe(warning));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_the_status_are_escaped() {
        let hostile = "1.0\u{1b}]0;title\u{7}\nReady: True";
        let status = serde_json::json!({
            "activeBundle": hostile,
            "installed": {
                "digest": hostile, "version": hostile, "requestedBy": hostile, "approvedBy": hostile,
                "as": {"namespace": hostile, "name": hostile},
            },
            "conditions": [{
                "type": hostile, "status": "True", "reason": hostile, "message": hostile,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let status = serde_json::from_value(status).unwrap();
        let item = serde_json::from_value(serde_json::json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
            "metadata": {"name": "web"},
            "spec": {"provisionerClassName": "plain", "template": {"spec": {
                "provisionerClassName": "plain", "source": {"type": hostile},
            }}},
        }));
        let text = describe(&item.unwrap(), &status);
        assert!(text.contains("Requested by:  1.0\\u{1b}]0;title"), "{text}");
        let is_hidden = |letter| letter != '\n' && crate::ui::escape::is_hidden(letter);
        assert!(!text.contains(is_hidden), "{text}");
        assert!(!text.contains("\nReady: True"), "{text}");
    }
}
