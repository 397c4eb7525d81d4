//! Table of installed objects: version, last correction and health. `-` is an unknown value, `?` a
//! value that the user has no permission to read.

use std::collections::BTreeMap;

use bundle_api::BundleDeploymentStatus;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::plan::health::Health;
use bundle_core::plan::inventory;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::corrections::Correction;
use crate::commands::deployments::listing;
use crate::commands::deployments::state::objects::{
    InstalledObjects, LiveObject, UnreadCause, UnreadList,
};
use crate::ui::{Table, age};

/// Maximum length of `status.upgrade.appliedObjects`; a list of this length may be truncated.
const MAX_APPLIED: usize = 20;
/// Cell of an unknown value.
const UNKNOWN: &str = "-";
/// Cell of a value that the user has no permission to read.
const UNREAD: &str = "?";

/// Row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObjectRow {
    /// Kind: `Deployment.apps`.
    kind: String,
    namespace: Option<String>,
    /// Name; `None` for objects that could not be listed.
    name: Option<String>,
    version: Option<String>,
    correction: Option<Correction>,
    api_version: Option<String>,
    created: Option<Time>,
    health: RowHealth,
}

/// Health of a row.
#[derive(Debug, Clone, PartialEq)]
enum RowHealth {
    Known(Health),
    /// The kind has no health.
    None,
    /// The object does not exist.
    Missing,
    /// The object was not read. The text is the cause. `None` means a missing permission.
    Unread(Option<String>),
}

impl RowHealth {
    /// Returns the health as one word, and its message. `None` means that there is no message.
    fn parts(&self) -> (&str, Option<&str>) {
        match self {
            Self::Known(Health::Ready) => ("Ready", None),
            Self::Known(Health::Waiting(why)) => ("Waiting", Some(why)),
            Self::Known(Health::Failed(why)) => ("Failed", Some(why)),
            Self::None => (UNKNOWN, None),
            Self::Missing => ("Missing", None),
            Self::Unread(why) => (UNREAD, why.as_deref()),
        }
    }

    fn cell(&self) -> String {
        match self.parts() {
            (word, Some(why)) if !why.is_empty() => format!("{word}: {why}"),
            (word, _) => word.to_owned(),
        }
    }
}

/// Returns the rows of the objects, sorted by key, followed by one row for each list that could not
/// be read.
pub(super) fn rows(
    found: &InstalledObjects,
    status: &BundleDeploymentStatus,
    named: impl IntoIterator<Item = String>,
    corrections: &BTreeMap<String, Correction>,
) -> Vec<ObjectRow> {
    let mut keyed: BTreeMap<String, ObjectRow> = BTreeMap::new();
    for object in &found.live {
        let health = object
            .health
            .clone()
            .map_or(RowHealth::None, RowHealth::Known);
        insert(&mut keyed, &object.key, health, Some(object));
    }
    for key in named {
        if !keyed.contains_key(&key) {
            let health = if found.missing.contains(&key) {
                RowHealth::Missing
            } else {
                RowHealth::Unread(None)
            };
            insert(&mut keyed, &key, health, None);
        }
    }
    for (key, row) in &mut keyed {
        row.version = version(status, key);
        row.correction = corrections.get(key).cloned();
    }
    let mut rows: Vec<_> = keyed.into_values().collect();
    rows.extend(found.unread.iter().filter_map(unread_row));
    rows
}

fn insert(
    rows: &mut BTreeMap<String, ObjectRow>,
    key: &str,
    health: RowHealth,
    object: Option<&LiveObject>,
) {
    let Some((kind, namespace, name)) = inventory::parts(key) else {
        return;
    };
    let row = ObjectRow {
        kind: kind.to_string(),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        version: None,
        correction: None,
        api_version: object.map(|object| object.api_version.clone()),
        created: object.and_then(|object| object.created.clone()),
        health,
    };
    rows.insert(key.to_owned(), row);
}

/// Returns a row for a list that could not be read. Returns `None` for a single object that the
/// user has no permission to get, because this object already has a row.
fn unread_row(list: &UnreadList) -> Option<ObjectRow> {
    let why = match &list.cause {
        UnreadCause::Forbidden("get", _) => return None,
        UnreadCause::Forbidden(..) => None,
        UnreadCause::NotServed => Some("the API server does not serve this kind".to_owned()),
        UnreadCause::Failed(why) => Some(why.clone()),
    };
    Some(ObjectRow {
        kind: list.kind.to_string(),
        namespace: list.namespace.clone(),
        name: None,
        version: None,
        correction: None,
        api_version: None,
        created: None,
        health: RowHealth::Unread(why),
    })
}

/// Returns the package version whose content was last applied to the object, according to the
/// status.
fn version(status: &BundleDeploymentStatus, key: &str) -> Option<String> {
    let installed = status.installed.as_ref();
    let installed = installed.and_then(|installed| installed.version.clone());
    let Some(upgrade) = &status.upgrade else {
        return installed;
    };
    if upgrade.applied_objects.iter().any(|applied| applied == key) {
        return Some(listing::upgraded(upgrade));
    }
    // If the list may be truncated, the version of an object that is not in the list is unknown.
    (upgrade.applied_objects.len() < MAX_APPLIED)
        .then_some(installed)
        .flatten()
}

/// Returns the table. `corrections` is `false` if the user has no permission to list Events.
pub(super) fn table(rows: &[ObjectRow], corrections: bool, wide: bool, now: Timestamp) -> String {
    let mut table = if wide {
        Table::new([
            "KIND",
            "NAMESPACE",
            "NAME",
            "VERSION",
            "CORRECTED",
            "BY",
            "APIVERSION",
            "AGE",
            "HEALTH",
        ])
    } else {
        Table::new([
            "KIND",
            "NAMESPACE",
            "NAME",
            "VERSION",
            "CORRECTED",
            "BY",
            "HEALTH",
        ])
    };
    let unknown = || UNKNOWN.to_owned();
    let since = |at: Timestamp| age::format(now.as_second() - at.as_second());
    for row in rows {
        let (corrected, by) = match &row.correction {
            Some(correction) => (
                format!("{} ago", since(correction.at)),
                correction.writer.clone().unwrap_or_else(unknown),
            ),
            None if !corrections => (UNREAD.to_owned(), UNREAD.to_owned()),
            None => (unknown(), unknown()),
        };
        let cells = [
            row.kind.clone(),
            match (&row.namespace, &row.name) {
                (None, None) => unknown(),
                (namespace, _) => namespace.clone().unwrap_or_default(),
            },
            row.name.clone().unwrap_or_else(|| UNREAD.to_owned()),
            row.version.clone().unwrap_or_else(unknown),
            corrected,
            by,
        ];
        let health = row.health.cell();
        let [kind, namespace, name, version, corrected, by] = cells;
        if wide {
            let api_version = row.api_version.clone().unwrap_or_else(unknown);
            let created = row.created.as_ref();
            let age = created.map_or_else(unknown, |created| since(created.0));
            table.row([
                kind,
                namespace,
                name,
                version,
                corrected,
                by,
                api_version,
                age,
                health,
            ]);
        } else {
            table.row([kind, namespace, name, version, corrected, by, health]);
        }
    }
    table.render()
}

/// Returns the rows for `-o json` and `-o yaml`. Fields with unknown values are omitted.
pub(super) fn structured(rows: &[ObjectRow]) -> Value {
    let rows = rows.iter().map(|row| {
        let (health, message) = row.health.parts();
        let mut value = json!({"kind": row.kind});
        let correction = row.correction.as_ref();
        for (key, known) in [
            ("namespace", row.namespace.clone()),
            ("name", row.name.clone()),
            ("apiVersion", row.api_version.clone()),
            ("version", row.version.clone()),
            (
                "health",
                (health != UNKNOWN && health != UNREAD).then(|| health.to_owned()),
            ),
            ("message", message.map(str::to_owned)),
            (
                "lastCorrection",
                correction.map(|correction| correction.at.to_string()),
            ),
            (
                "lastWriter",
                correction.and_then(|correction| correction.writer.clone()),
            ),
        ] {
            if let Some(known) = known {
                value[key] = known.into();
            }
        }
        value
    });
    rows.collect()
}

/// Returns a sentence about the number of listed objects. Returns `None` if all objects are listed.
pub(super) fn count(
    rows: &[ObjectRow],
    is_truncated: bool,
    status: &BundleDeploymentStatus,
) -> Option<String> {
    let listed = rows.iter().filter(|row| row.name.is_some()).count() as u64;
    let installed = status.installed.as_ref();
    let installed = installed
        .and_then(|installed| installed.objects)
        .filter(|_| status.upgrade.is_none());
    match installed {
        Some(installed) if listed < installed => Some(format!(
            "{listed} of {installed} installed objects are listed ({} more)",
            installed - listed
        )),
        _ if is_truncated => Some(format!(
            "{listed} objects are listed; there are more objects or namespaces"
        )),
        _ => None,
    }
}

/// Returns one warning that lists all objects and Events that could not be read.
pub(super) fn warning(found: &InstalledObjects, corrections: bool) -> Option<Finding> {
    let (causes, lacks_permission) = found.unread_causes(!corrections);
    if causes.is_empty() {
        return None;
    }
    let text = format!(
        "values shown as `?` could not be read: {}",
        causes.join("; ")
    );
    let finding = Finding::warning(codes::cluster::OBJECTS_UNREAD, text);
    Some(if lacks_permission {
        finding.hint("request a role with these permissions; `status` uses your permissions")
    } else {
        finding
    })
}

#[cfg(test)]
mod tests;
