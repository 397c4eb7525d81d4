//! Built-in APIs of Kubernetes. For each API, the table has the first and the last version that
//! serves the API, and the replacement of the API.

use std::{collections::BTreeMap, sync::LazyLock};

use super::Minor;

/// Generated table of APIs (`cargo xtask apis`).
const SERVED: &str = include_str!("served.tsv");
/// Manually maintained table of APIs that were removed from the sources of Kubernetes.
const GONE: &str = include_str!("gone.tsv");

/// Built-in API of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// First minor version that serves the API; `None` if the sources of the table do not contain
    /// this version.
    pub introduced: Option<Minor>,
    /// Minor version in which the API was or will be deprecated; `None` if the API is not
    /// deprecated.
    pub deprecated: Option<Minor>,
    /// First minor version that does not serve the API; `None` if no known version removes the API.
    pub removed: Option<Minor>,
    /// API that replaces this API, such as `apps/v1/Deployment`; `None` if no API replaces it.
    pub replacement: Option<&'static str>,
    /// `true` if the objects have a namespace.
    pub namespaced: bool,
}

/// Version, kind and API.
type Entry = (&'static str, &'static str, Api);

/// APIs by group. The core group has the key `core`.
static TABLE: LazyLock<BTreeMap<&'static str, Vec<Entry>>> = LazyLock::new(|| {
    let mut table: BTreeMap<&'static str, Vec<Entry>> = BTreeMap::new();
    for (group, entry) in SERVED.lines().chain(GONE.lines()).filter_map(line) {
        table.entry(group).or_default().push(entry);
    }
    table
});

/// Parses a line of a table. Returns `None` if the line is invalid. A test checks that all lines
/// are valid.
fn line(text: &'static str) -> Option<(&'static str, Entry)> {
    if text.starts_with('#') {
        return None;
    }
    let cells: Vec<&str> = text.split('\t').collect();
    let [
        group,
        version,
        kind,
        introduced,
        deprecated,
        removed,
        replacement,
        scope,
    ] = cells[..]
    else {
        return None;
    };
    let api = Api {
        introduced: introduced.parse().ok(),
        deprecated: deprecated.parse().ok(),
        removed: removed.parse().ok(),
        replacement: (replacement != "-").then_some(replacement),
        namespaced: scope == "Namespaced",
    };
    Some((group, (version, kind, api)))
}

/// Returns all APIs of a group (empty for the core group), with version and kind. The list is empty
/// if the group is not built-in.
pub fn of(group: &str) -> &'static [(&'static str, &'static str, Api)] {
    let group = match group {
        "" => "core",
        // The table uses the name `core` for the core group. No API group has this name.
        "core" => return &[],
        group => group,
    };
    TABLE.get(group).map_or(&[], Vec::as_slice)
}

/// Returns `true` if Kubernetes itself has the group (empty for the core group).
///
/// The domain of a group is not sufficient for this decision: `gateway.networking.k8s.io` is a
/// group of CustomResourceDefinitions.
pub fn is_built_in(group: &str) -> bool {
    !of(group).is_empty()
}

/// Returns `true` if the group can belong to CustomResourceDefinitions or to an aggregated API
/// server. Such a group is not built-in, and has a dot, which the API server requires.
pub fn is_custom(group: &str) -> bool {
    group.contains('.') && !is_built_in(group)
}

/// Returns `true` if any version of Kubernetes, including versions newer than this table, may have
/// the group. Such a group is in the table, has no dot, or has the domain `k8s.io`. Some groups of
/// CustomResourceDefinitions also have this domain. Use this function for checks that must not miss
/// a built-in group.
pub fn may_be_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io") || is_built_in(group)
}

/// Returns the API of this group (empty for the core group), version and kind; `None` if the table
/// does not contain the API.
pub fn api(group: &str, version: &str, kind: &str) -> Option<&'static Api> {
    of(group)
        .iter()
        .find(|(own, named, _)| *own == version && *named == kind)
        .map(|(_, _, api)| api)
}

/// Oldest minor version that checks consider: the first version with apiextensions.k8s.io/v1. A
/// range without lower bound starts with this version.
pub const OLDEST: Minor = Minor(1, 16);

/// Returns the newest minor version in the table.
pub fn newest() -> Minor {
    let first = SERVED.lines().next().unwrap_or_default();
    let version = first.rsplit(' ').next().unwrap_or_default();
    let minor = version.split('.').nth(1).and_then(|text| text.parse().ok());
    Minor(1, minor.unwrap_or_default())
}

/// Returns `true` if the objects of a built-in kind have a namespace; `None` if the kind is
/// unknown. The result is the same for all versions of a kind.
pub fn is_namespaced(group: &str, kind: &str) -> Option<bool> {
    of(group)
        .iter()
        .find(|(_, own, _)| *own == kind)
        .map(|(_, _, api)| api.namespaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_table_parses_and_has_no_duplicates() {
        let mut seen = std::collections::BTreeSet::new();
        for text in SERVED.lines().chain(GONE.lines()) {
            if text.starts_with('#') {
                continue;
            }
            let (group, (version, kind, api)) = line(text).unwrap();
            assert!(seen.insert((group, version, kind)), "{text}");
            for cell in text.split('\t').skip(3).take(3) {
                assert!(cell == "-" || cell.parse::<Minor>().is_ok(), "{text}");
            }
            assert!(
                api.introduced < api.removed || api.removed.is_none(),
                "{text}"
            );
            let group = if group == "core" { "" } else { group };
            assert_eq!(is_namespaced(group, kind), Some(api.namespaced), "{text}");
        }
        assert!(seen.len() > 150);
        assert!(newest() >= Minor(1, 36), "{}", newest());
    }

    #[test]
    fn groups_of_definitions_in_the_domain_of_kubernetes_are_not_built_in() {
        for (group, built_in, custom, may_be) in [
            ("", true, false, true),
            ("apps", true, false, true),
            ("extensions", true, false, true),
            ("networking.k8s.io", true, false, true),
            ("flowcontrol.apiserver.k8s.io", true, false, true),
            ("gateway.networking.k8s.io", false, true, true),
            ("snapshot.storage.k8s.io", false, true, true),
            ("kueue.x-k8s.io", false, true, false),
            ("example.com", false, true, false),
            // No CustomResourceDefinition can have a group without a dot.
            ("core", false, false, true),
            ("shop", false, false, true),
        ] {
            let found = (is_built_in(group), is_custom(group), may_be_built_in(group));
            assert_eq!(found, (built_in, custom, may_be), "{group}");
        }
    }

    #[test]
    fn finds_replacements_of_removed_apis() {
        let removed = |group, version, kind| api(group, version, kind).unwrap().removed;
        for (group, version, kind, minor) in [
            ("extensions", "v1beta1", "Ingress", 22),
            ("networking.k8s.io", "v1beta1", "Ingress", 22),
            ("policy", "v1beta1", "PodSecurityPolicy", 25),
            ("batch", "v1beta1", "CronJob", 25),
            ("autoscaling", "v2beta2", "HorizontalPodAutoscaler", 26),
            (
                "apiextensions.k8s.io",
                "v1beta1",
                "CustomResourceDefinition",
                22,
            ),
            ("apps", "v1beta2", "Deployment", 16),
        ] {
            assert_eq!(
                removed(group, version, kind),
                Some(Minor(1, minor)),
                "{kind}"
            );
        }
        assert_eq!(removed("", "v1", "ConfigMap"), None);
        assert_eq!(api("example.com", "v1", "ConfigMap"), None);
        assert!(!of("apps").is_empty() && of("example.com").is_empty());
        assert_eq!(is_namespaced("", "Namespace"), Some(false));
    }
}
