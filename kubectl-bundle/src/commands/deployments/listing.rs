//! Tables of `get`.

use std::collections::BTreeMap;

use bundle_api::deployment::status::{Installed, Upgrade};
use bundle_api::{Bundle, BundleDeployment, BundleDeploymentStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::state::conditions::{condition, short_digest};
use crate::cluster::Cluster;
use crate::ui::{Table, age};

/// Reason of the Events that bundle-webhook creates when it restores objects.
const CORRECTED: &str = "DriftCorrected";
/// Only corrections within this time before now are counted. By default, API servers keep Events
/// for one hour.
const CORRECTION_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of corrections that are printed for a BundleDeployment.
const MAX_CORRECTIONS: usize = 5;

/// Number of corrections in the last hour, by BundleDeployment; `None` if the user has no
/// permission to list Events.
pub(super) struct Corrections(Option<BTreeMap<String, i64>>);

impl Corrections {
    /// Reads the Events about corrections, and counts the Events in the [`CORRECTION_PERIOD`]
    /// before `now`.
    pub(super) async fn read(cluster: &Cluster, now: Timestamp) -> Self {
        let events = cluster.events(&format!("reason={CORRECTED}")).await;
        Self(events.map(|events| Self::count(&events, now)))
    }

    fn count(events: &[Event], now: Timestamp) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for event in events {
            let Some(name) = event.involved_object.name.clone() else {
                continue;
            };
            if last_seen(event).is_some_and(|last| now.duration_since(last) <= CORRECTION_PERIOD) {
                let times = event
                    .series
                    .as_ref()
                    .and_then(|series| series.count)
                    .or(event.count);
                *counts.entry(name).or_default() += i64::from(times.unwrap_or(1).max(1));
            }
        }
        counts
    }

    fn of(&self, name: &str) -> String {
        match &self.0 {
            Some(counts) => counts.get(name).copied().unwrap_or_default().to_string(),
            None => "<unknown>".to_owned(),
        }
    }
}

/// Returns the time of the last occurrence of an Event.
pub(super) fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    series
        .and_then(|series| series.last_observed_time.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
}

/// Returns the Events about corrections of a BundleDeployment; `None` if the user has no permission
/// to list Events.
pub(super) async fn corrections(cluster: &Cluster, name: &str) -> Option<Vec<Event>> {
    let selector = format!("reason={CORRECTED},involvedObject.name={name}");
    cluster.events(&selector).await
}

/// Returns the last corrections of a BundleDeployment, newest first: `2m ago: restored
/// ConfigMap/a/web`.
pub(super) fn last_corrections(events: Vec<Event>, now: Timestamp) -> Vec<String> {
    let mut corrections: Vec<(Timestamp, String)> = events
        .into_iter()
        .filter_map(|event| Some((last_seen(&event)?, event.message?)))
        .collect();
    corrections.sort_by(|one, other| other.cmp(one));
    corrections.truncate(MAX_CORRECTIONS);
    corrections
        .into_iter()
        .map(|(at, message)| {
            let ago = age::format(now.as_second() - at.as_second());
            format!("{ago} ago: {message}")
        })
        .collect()
}

/// Returns an empty table of BundleDeployments.
pub(super) fn deployments(wide: bool) -> Table {
    if wide {
        Table::new([
            "NAME",
            "VERSION",
            "DIGEST",
            "INSTALLED",
            "READY",
            "DRIFT",
            "CORRECTED",
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
            "CORRECTED",
            "AGE",
        ])
    }
}

/// Returns the installed version. During an upgrade, also returns the version of the new content.
fn version(status: &BundleDeploymentStatus, installed: &Installed) -> String {
    let installed = installed.version.clone().unwrap_or_default();
    match &status.upgrade {
        Some(upgrade) => format!("{installed} -> {}", upgraded(upgrade)),
        None => installed,
    }
}

/// Returns the version of the new content. For content without a version, returns the digest.
pub(super) fn upgraded(upgrade: &Upgrade) -> String {
    upgrade
        .version
        .clone()
        .unwrap_or_else(|| short_digest(&upgrade.digest))
}

/// Adds the row of a BundleDeployment.
pub(super) fn add(
    table: &mut Table,
    item: &BundleDeployment,
    corrections: &Corrections,
    wide: bool,
    now: Timestamp,
) {
    let status = item.status.clone().unwrap_or_default();
    let installed = status.installed.clone().unwrap_or_default();
    let name = item.metadata.name.clone().unwrap_or_default();
    let shown = [
        name.clone(),
        version(&status, &installed),
        short_digest(&installed.digest),
        condition(item, "Installed"),
        condition(item, "Ready"),
        status.drift.len().to_string(),
        corrections.of(&name),
        age_of(item.metadata.creation_timestamp.as_ref(), now),
    ];
    if wide {
        let [name, version, digest, state, ready, drift, corrected, age] = shown;
        table.row([
            name,
            version,
            digest,
            state,
            ready,
            drift,
            corrected,
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

/// Returns the table of Bundles that no BundleDeployment created.
pub(super) fn bundles(items: &[Bundle], now: Timestamp) -> Table {
    let mut table = Table::new(["BUNDLE", "VERSION", "DIGEST", "PHASE", "AGE"]);
    for item in items {
        let status = item.status.clone().unwrap_or_default();
        let content = status.content.unwrap_or_default();
        table.row([
            item.metadata.name.clone().unwrap_or_default(),
            content.version.unwrap_or_default(),
            short_digest(&content.digest),
            status.phase.unwrap_or_default(),
            age_of(item.metadata.creation_timestamp.as_ref(), now),
        ]);
    }
    table
}

fn age_of(created: Option<&Time>, now: Timestamp) -> String {
    created
        .map(|created| age::format(now.as_second() - created.0.as_second()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_corrections_of_the_last_hour() {
        let event = |name: &str, at: &str, series: Option<i32>| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {"name": name}, "eventTime": at,
                "series": series.map(|count| json!({"count": count, "lastObservedTime": at})),
            }))
            .unwrap()
        };
        let events = [
            event("web", "2026-01-01T10:30:00.000000Z", None),
            event("web", "2026-01-01T10:40:00.000000Z", Some(4)),
            event("web", "2026-01-01T09:00:00.000000Z", None),
            event("shop", "2026-01-01T09:00:00.000000Z", None),
        ];
        let now = "2026-01-01T11:00:00Z".parse().unwrap();
        let corrections = Corrections(Some(Corrections::count(&events, now)));
        assert_eq!(corrections.of("web"), "5");
        assert_eq!(corrections.of("shop"), "0");
        assert_eq!(Corrections(None).of("web"), "<unknown>");
    }
}
