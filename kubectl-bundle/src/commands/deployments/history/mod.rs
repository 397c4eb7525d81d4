//! `history`: lists the revisions of a BundleDeployment.

mod arguments;

use std::fmt::Write as _;

use bundle_api::{BundleDeployment, names};
use bundle_cluster::ByName;
use bundle_core::plan::revisions::{RecordedConfig, recorded_config};
use bundle_core::yaml;
use jiff::Timestamp;
use kube::api::Api;
use serde_json::{Value, json};

use super::revisions::{self, NumberedRevision};
use super::state::conditions::short_digest;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::escape::visible;
use crate::ui::format::Format;
use crate::ui::{Table, Ui, age, safe};

pub(crate) use arguments::Arguments;

/// Settings of `history`.
pub(crate) struct History {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Number or Bundle of a single revision.
    pub(crate) revision: Option<String>,
    /// `true` if the table has no column names.
    pub(crate) no_headers: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl History {
    /// Reads the BundleDeployment and prints its revisions.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let item = cluster.send(ByName(&api).get(&self.name)).await?;
        if let Some(selector) = &self.revision {
            let one = revisions::find(&item, selector)?;
            if self.format == Some(Format::Name) {
                return ui.data(bundle_kind_and_name(one));
            }
            if ui.structured(self.format, &structured(one))? {
                return Ok(());
            }
            return ui.text(&describe(one));
        }
        let mut all = revisions::numbered(&item);
        all.reverse();
        if self.format == Some(Format::Name) {
            for one in &all {
                ui.data(bundle_kind_and_name(*one))?;
            }
            return Ok(());
        }
        let items: Value = all.iter().map(|one| structured(*one)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        if ui.structured(self.format, &list)? {
            return Ok(());
        }
        if all.is_empty() {
            ui.note(format!(
                "bundledeployment {}: nothing was installed yet",
                self.name
            ));
            return Ok(());
        }
        let table = table(&all, self.format == Some(Format::Wide), Timestamp::now());
        ui.text(&table.omit_headers(self.no_headers).render())
    }
}

fn bundle_kind_and_name(one: NumberedRevision<'_>) -> String {
    format!("bundle.{}/{}", names::GROUP, one.revision.bundle)
}

fn structured(one: NumberedRevision<'_>) -> Value {
    let mut value = serde_json::to_value(one.revision).unwrap_or_default();
    value["number"] = one.number.into();
    value
}

/// Returns a short text about the recorded configuration, such as `too large`.
fn config_word(config: &RecordedConfig<'_>) -> &'static str {
    match config {
        RecordedConfig::Known(Value::Null) => "",
        RecordedConfig::Known(_) => "recorded",
        RecordedConfig::Omitted { .. } => "too large",
        RecordedConfig::Unknown => "unknown",
    }
}

fn table(revisions: &[NumberedRevision<'_>], is_wide: bool, now: Timestamp) -> Table {
    let mut table = if is_wide {
        Table::new([
            "REVISION",
            "VERSION",
            "DIGEST",
            "STATE",
            "INSTALLED",
            "REQUESTED BY",
            "BUNDLE",
            "CONFIG",
        ])
    } else {
        Table::new([
            "REVISION",
            "VERSION",
            "DIGEST",
            "STATE",
            "INSTALLED",
            "REQUESTED BY",
        ])
    };
    for one in revisions {
        let revision = one.revision;
        let installed = revision.installed_at.as_ref().map(|at| {
            let seconds = now.as_second() - at.0.as_second();
            format!("{} ago", age::format(seconds))
        });
        let shown = [
            one.number.to_string(),
            revision.version.clone().unwrap_or_default(),
            short_digest(&revision.digest),
            format!("{:?}", revision.state),
            installed.unwrap_or_default(),
            revision.requested_by.clone().unwrap_or_default(),
        ];
        if is_wide {
            let [number, version, digest, state, installed, requester] = shown;
            table.row([
                number,
                version,
                digest,
                state,
                installed,
                requester,
                revision.bundle.clone(),
                config_word(&recorded_config(revision)).to_owned(),
            ]);
        } else {
            table.row(shown);
        }
    }
    table
}

/// Returns one revision as text.
fn describe(one: NumberedRevision<'_>) -> String {
    let revision = one.revision;
    let config = recorded_config(revision);
    let installed = revision.installed_at.as_ref().map(|at| at.0.to_string());
    let lines = [
        ("Revision", one.number.to_string()),
        ("State", format!("{:?}", revision.state)),
        ("Version", revision.version.clone().unwrap_or_default()),
        ("Digest", revision.digest.clone()),
        ("Bundle", revision.bundle.clone()),
        ("Installed at", installed.unwrap_or_default()),
        (
            "Requested by",
            revision.requested_by.clone().unwrap_or_default(),
        ),
        (
            "Config",
            match config {
                RecordedConfig::Known(Value::Null) => "none".to_owned(),
                RecordedConfig::Known(_) => String::new(),
                RecordedConfig::Omitted { .. } => "not recorded: too large".to_owned(),
                RecordedConfig::Unknown => "not recorded".to_owned(),
            },
        ),
    ];
    let mut text = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15}{}", format!("{label}:"), safe(value));
    }
    if let RecordedConfig::Known(config) = config
        && !config.is_null()
    {
        text.push_str("Config:\n");
        for line in visible(&yaml::to_string(config)).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}
