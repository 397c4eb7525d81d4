//! Names of the ApplySet convention (KEP-3659), by which other tools understand what belongs to a BundleDeployment.
//! Not here: what has to be pruned (inventory), or the names of its labels and annotations (bundle-api).

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// The id of the set whose parent is this object; a label value.
pub fn id(name: &str, namespace: &str, kind: &str, group: &str) -> String {
    let hash = Sha256::digest(format!("{name}.{namespace}.{kind}.{group}"));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(hash))
}

/// A group and a kind, `Deployment.apps` or `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

impl GroupKind {
    /// From its parts.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// Reads `Kind.group` or `Kind`.
    pub fn parse(text: &str) -> Self {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        Self::new(group, kind)
    }
}

impl std::fmt::Display for GroupKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The value of the parent's annotation `applyset.kubernetes.io/contains-group-kinds`.
pub fn write_group_kinds(kinds: &BTreeSet<GroupKind>) -> String {
    let mut texts: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.join(",")
}

/// More kinds than any content has. Whoever may write the annotation shall not make us look for a hundred thousand that do not exist.
const KINDS: usize = 1000;

/// Reads what [`write_group_kinds`] wrote.
pub fn read_group_kinds(text: &str) -> BTreeSet<GroupKind> {
    list(text).take(KINDS).map(GroupKind::parse).collect()
}

/// Reads what [`write_namespaces`] wrote.
pub fn read_namespaces(text: &str) -> BTreeSet<String> {
    list(text).map(str::to_owned).collect()
}

/// The value of the parent's annotation `applyset.kubernetes.io/additional-namespaces`.
pub fn write_namespaces(namespaces: &BTreeSet<String>) -> String {
    namespaces.iter().cloned().collect::<Vec<_>>().join(",")
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Kind, namespace and name in a key: the text of a [`crate::object::ObjectId`], such as `Deployment.apps/team-a/web`.
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
    fn the_id_is_that_of_the_convention() {
        // base64url(sha256("web..BundleDeployment.core.rukpak.io")), computed with coreutils.
        assert_eq!(
            id("web", "", "BundleDeployment", "core.rukpak.io"),
            "applyset-4uZSPPIUWPhxLAKC2gPZRT4IA4k52KdJ_byJlyYF7bg-v1"
        );
        assert!(id("web", "", "BundleDeployment", "core.rukpak.io").len() <= 63);
    }

    #[test]
    fn lists_are_written_sorted_and_read_back() {
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
