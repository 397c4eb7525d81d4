//! Identifiers and lists of the ApplySet specification (KEP-3659). Other tools use these values to
//! find the objects of a BundleDeployment. Label and annotation names are in `bundle_api::names`.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use crate::object::GroupKind;

/// Returns the ApplySet id for this parent object, in the form of a label value.
pub fn id(name: &str, namespace: &str, kind: &str, group: &str) -> String {
    let hash = Sha256::digest(format!("{name}.{namespace}.{kind}.{group}"));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(hash))
}

/// Returns the value of the parent's annotation `applyset.kubernetes.io/contains-group-kinds`.
pub fn write_group_kinds(kinds: &BTreeSet<GroupKind>) -> String {
    let mut texts: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.join(",")
}

/// Maximum number of kinds that are read. A user with write permission on the annotation could
/// otherwise cause requests for any number of kinds.
const KINDS: usize = 1000;

/// Parses the result of [`write_group_kinds`].
pub fn read_group_kinds(text: &str) -> BTreeSet<GroupKind> {
    list(text).take(KINDS).map(GroupKind::parse).collect()
}

/// Parses the result of [`write_namespaces`].
pub fn read_namespaces(text: &str) -> BTreeSet<String> {
    list(text).map(str::to_owned).collect()
}

/// Returns the value of the parent's annotation `applyset.kubernetes.io/additional-namespaces`.
pub fn write_namespaces(namespaces: &BTreeSet<String>) -> String {
    namespaces.iter().cloned().collect::<Vec<_>>().join(",")
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Returns kind, namespace and name of a key, which is the text of a [`crate::object::ObjectId`],
/// such as `Deployment.apps/team-a/web`. Returns `None` for other texts.
pub fn parts(key: &str) -> Option<(GroupKind, Option<&str>, &str)> {
    let mut parts = key.split('/');
    let kind = GroupKind::parse(parts.next()?);
    let (first, second) = (parts.next()?, parts.next());
    if parts.next().is_some() {
        return None;
    }
    Some(match second {
        Some(name) => (kind, Some(first), name),
        None => (kind, None, first),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_matches_the_applyset_specification() {
        // base64url(sha256("web..BundleDeployment.core.rukpak.io")), computed with coreutils.
        assert_eq!(
            id("web", "", "BundleDeployment", "core.rukpak.io"),
            "applyset-4uZSPPIUWPhxLAKC2gPZRT4IA4k52KdJ_byJlyYF7bg-v1"
        );
        assert!(id("web", "", "BundleDeployment", "core.rukpak.io").len() <= 63);
    }

    #[test]
    fn lists_are_sorted_and_round_trip() {
        let kinds: BTreeSet<_> = ["Role.rbac.authorization.k8s.io", "ConfigMap"]
            .map(GroupKind::parse)
            .into();
        let text = write_group_kinds(&kinds);
        assert_eq!(text, "ConfigMap,Role.rbac.authorization.k8s.io");
        assert_eq!(read_group_kinds(&text), kinds);
        assert_eq!(read_group_kinds(" ,"), BTreeSet::new());
        let flood: Vec<_> = (0..50_000).map(|n| format!("K{n}")).collect();
        assert_eq!(read_group_kinds(&flood.join(",")).len(), KINDS);
        assert_eq!(
            read_namespaces("team-b,team-a"),
            ["team-a".to_owned(), "team-b".to_owned()].into()
        );
    }
}
