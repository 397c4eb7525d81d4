//! Comparison of whole CustomResourceDefinitions: scope, stored versions, conversion, and the
//! schemas of their versions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::steps::{ComparisonSteps, TooManySteps};
use super::{CrdCheck, Failures, schema};

/// Maximum number of versions of a definition whose fields are compared.
pub(super) const MAX_VERSIONS: usize = 32;

/// Compares the specs of the live and the new definition. `status` is the status of the live
/// definition.
pub(super) fn compare(
    crd: &str,
    live: &Value,
    status: &Value,
    new: &Value,
    failures: &mut Failures<'_>,
) {
    let count = version_count(live, new);
    if count > MAX_VERSIONS {
        failures.add(CrdCheck::UnknownChange, || {
            format!("{count} versions, and only {MAX_VERSIONS} are compared")
        });
    }
    let (before, after) = (text(live, "scope"), text(new, "scope"));
    if before != after {
        failures.add(CrdCheck::NoScopeChange, || {
            format!("scope changed from {before:?} to {after:?}")
        });
    }
    stored_versions(status, new, failures);
    conversion(live, new, failures);
    let steps = &mut ComparisonSteps::default();
    let result = fields(crd, (live, new), steps, failures)
        .and_then(|()| served_versions((live, status), new, steps, failures));
    if let Err(error) = result {
        failures.add(CrdCheck::UnknownChange, || error.to_string());
    }
}

pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

pub(super) fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"].as_array().into_iter().flatten()
}

/// Returns the number of versions of that definition which has more versions.
pub(super) fn version_count(live: &Value, new: &Value) -> usize {
    versions(live).count().max(versions(new).count())
}

/// Returns the versions whose fields are compared.
fn compared(spec: &Value) -> impl Iterator<Item = &Value> {
    versions(spec).take(MAX_VERSIONS)
}

pub(super) fn version<'v>(spec: &'v Value, name: &str) -> Option<&'v Value> {
    versions(spec).find(|version| text(version, "name") == name)
}

pub(super) fn is_served(version: &Value) -> bool {
    version["served"].as_bool().unwrap_or_default()
}

pub(super) fn root(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

/// Returns the versions in which objects can be stored.
pub(super) fn stored(status: &Value) -> BTreeSet<&str> {
    let stored = status["storedVersions"].as_array().into_iter().flatten();
    stored.filter_map(Value::as_str).collect()
}

fn stored_versions(status: &Value, new: &Value, failures: &mut Failures<'_>) {
    let names: BTreeSet<&str> = versions(new).map(|version| text(version, "name")).collect();
    for name in stored(status) {
        if !names.contains(name) {
            failures.add(CrdCheck::NoStoredVersionRemoved, || {
                format!("stored version {name:?} removed")
            });
        }
    }
}

/// Returns the conversion strategy. The default is `None`, as in the API server.
pub(super) fn strategy(spec: &Value) -> &str {
    spec["conversion"]["strategy"].as_str().unwrap_or("None")
}

/// Adds a failure if the new definition removes the conversion between several versions.
fn conversion(live: &Value, new: &Value, failures: &mut Failures<'_>) {
    let (before, after) = (strategy(live), strategy(new));
    let names: Vec<&str> = versions(new).map(|version| text(version, "name")).collect();
    if before != "None" && after == "None" && names.len() > 1 {
        failures.add(CrdCheck::NoConversionRemoved, || {
            format!(
                "conversion strategy changed from {before:?} to {after:?}, and the versions are [{}]",
                names.join(" ")
            )
        });
    }
}

/// Compares the schema of each version that both definitions have: first all removed fields, then
/// all other changes.
fn fields(
    crd: &str,
    (live, new): (&Value, &Value),
    steps: &mut ComparisonSteps,
    failures: &mut Failures<'_>,
) -> Result<(), TooManySteps> {
    let pairs = || {
        compared(live).filter_map(|old| {
            let name = text(old, "name");
            Some((name, (root(old), root(version(new, name)?))))
        })
    };
    for (name, schemas) in pairs() {
        schema::compare(schemas, steps, &mut |path, change| {
            if let schema::Change::Removed = change {
                failures.add(CrdCheck::NoExistingFieldRemoved, || {
                    format!("crd/{crd} version/{name} field/{path} may not be removed")
                });
            }
        })?;
    }
    for (name, schemas) in pairs() {
        schema::compare(schemas, steps, &mut |path, change| {
            if let schema::Change::Unsafe(check, text) = change {
                failures.add(check, || {
                    let field = path.to_string();
                    let joint = if check == CrdCheck::UnknownChange {
                        " "
                    } else {
                        ": "
                    };
                    format!("version {name:?}, field {field:?}{joint}{text}")
                });
            }
        })?;
    }
    Ok(())
}

/// Compares each version with the versions that are newly served. Without conversion, the API
/// server serves the same objects in all versions.
fn served_versions(
    (live, status): (&Value, &Value),
    new: &Value,
    steps: &mut ComparisonSteps,
    failures: &mut Failures<'_>,
) -> Result<(), TooManySteps> {
    if strategy(new) != "None" {
        return Ok(());
    }
    let stored = stored(status);
    let check = CrdCheck::ServedVersionValidator;
    let is_new = |name: &str| !version(live, name).is_some_and(is_served);
    for added in compared(new).filter(|added| is_served(added) && is_new(text(added, "name"))) {
        let to = text(added, "name");
        for old in compared(live) {
            let from = text(old, "name");
            if from == to || !(is_served(old) || stored.contains(from)) {
                continue;
            }
            let schemas = (root(old), root(added));
            schema::compare(schemas, steps, &mut |path, change| {
                failures.add(check, || {
                    let field = path.to_string();
                    match change {
                        schema::Change::Removed => format!(
                            "calculating schema diff between CRD versions {from:?} and {to:?}: field {field:?} in existing not found in new"
                        ),
                        schema::Change::Unsafe(CrdCheck::UnknownChange, text) => {
                            format!("version upgrade {from:?} to {to:?}, field {field:?} {text}")
                        }
                        schema::Change::Unsafe(_, text) => {
                            format!("version upgrade {from:?} to {to:?}, field {field:?}: {text}")
                        }
                    }
                });
            })?;
        }
    }
    Ok(())
}
