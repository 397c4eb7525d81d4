//! What several verbs say about a BundleDeployment.
//! Not here: the verbs.

use bundle_api::BundleDeployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// `bundledeployment.core.rukpak.io/web`
pub(super) fn qualified(item: &BundleDeployment) -> String {
    named(item.metadata.name.as_deref().unwrap_or_default())
}

/// The same, from a name.
pub(super) fn named(name: &str) -> String {
    format!("bundledeployment.core.rukpak.io/{name}")
}

/// The first twelve digits of a digest, as registries and git show them.
pub(super) fn short_digest(digest: &str) -> String {
    digest
        .strip_prefix("sha256:")
        .map_or(digest, |hex| hex.get(..12).unwrap_or(hex))
        .to_owned()
}

/// The condition called `kind`.
pub(super) fn find<'a>(item: &'a BundleDeployment, kind: &str) -> Option<&'a Condition> {
    item.status
        .as_ref()?
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// Its status, and the reason where it is not simply true.
pub(super) fn condition(item: &BundleDeployment, kind: &str) -> String {
    match find(item, kind) {
        None => "Unknown".to_owned(),
        Some(condition) if condition.status == "True" || condition.reason.is_empty() => {
            condition.status.clone()
        }
        Some(condition) => format!("{} ({})", condition.status, condition.reason),
    }
}

/// Whether what `spec` asks for now is installed.
pub(super) fn is_installed(item: &BundleDeployment) -> bool {
    let observed = item
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed.is_some()
        && observed >= item.metadata.generation
        && find(item, "Installed").is_some_and(|installed| {
            installed.status == "True"
                && installed
                    .observed_generation
                    .is_none_or(|seen| Some(seen) >= item.metadata.generation)
        })
}

/// What stands in the way, as the conditions say it: each message once, and what is false before what is not known yet.
pub(super) fn obstacles(item: &BundleDeployment) -> Vec<String> {
    let conditions = item.status.iter().flat_map(|status| &status.conditions);
    let mut found: Vec<&Condition> = conditions
        .filter(|condition| {
            let expected = if condition.type_ == "Drifted" {
                "False"
            } else {
                "True"
            };
            condition.type_ != "Progressing"
                && condition.status != expected
                && !condition.message.is_empty()
        })
        .collect();
    if found.iter().any(|condition| condition.status != "Unknown") {
        found.retain(|condition| condition.status != "Unknown");
    }
    let mut lines = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for condition in found {
        if !told.contains(&condition.message.as_str()) {
            told.push(&condition.message);
            lines.push(format!(
                "{}={} {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            ));
        }
    }
    lines
}
