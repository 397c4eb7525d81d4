//! Objects of an installation that already exist in the cluster. For each of these objects,
//! `install` upgrades the object, keeps the object, or fails.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, codes};

use super::findings;
use super::manifests::{EmbeddedManifest, InstallPhase};
use super::origin::InstallOrigin;
use super::target::InstallTarget;
use crate::failure::Outcome;

/// Maximum number of objects in an error.
const MAX_NAMED: usize = 5;

/// Objects of an installation that exist in the cluster.
pub(crate) struct ExistingObjects {
    found: BTreeMap<String, (InstallPhase, InstallOrigin)>,
    namespaces: Vec<String>,
}

impl ExistingObjects {
    /// Looks up each object.
    pub(crate) async fn find(
        target: &InstallTarget,
        manifests: &[EmbeddedManifest],
    ) -> Outcome<Self> {
        let mut found = BTreeMap::new();
        let mut namespaces = Vec::new();
        for manifest in manifests {
            if let Some(object) = target.get(manifest).await? {
                if manifest.phase() == InstallPhase::Namespaces {
                    namespaces.push(manifest.name().to_owned());
                }
                found.insert(
                    key(manifest),
                    (manifest.phase(), InstallOrigin::of(&object)),
                );
            }
        }
        Ok(Self { found, namespaces })
    }

    /// Returns an error if another installation exists. Existing CRDs, namespaces and classes are
    /// no error, because they are kept when an installation is removed.
    pub(crate) fn reject_second_installation(&self) -> Outcome {
        let mut by_origin: BTreeMap<&InstallOrigin, Vec<&str>> = BTreeMap::new();
        for (title, (phase, origin)) in &self.found {
            if !phase.outlives_installation() {
                by_origin.entry(origin).or_default().push(title);
            }
        }
        if by_origin.is_empty() {
            return Ok(());
        }
        let all = by_origin.into_iter().map(|(origin, titles)| {
            let (words, hint) = origin.describe();
            let more = titles.len().saturating_sub(MAX_NAMED);
            let mut names = titles[..titles.len() - more].join(", ");
            if more > 0 {
                names = format!("{names} and {more} more");
            }
            Finding::error(
                codes::cluster::ALREADY_INSTALLED,
                format!("the cluster already has {names}; {words}"),
            )
            .hint(hint)
        });
        Err(findings(all).into())
    }

    /// Returns lines about objects that are not created.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.found
            .iter()
            .map(|(title, (phase, origin))| match (phase, origin) {
                (InstallPhase::Definitions, InstallOrigin::Plugin) => {
                    format!("{title} exists, and is upgraded")
                }
                (InstallPhase::Definitions, _) => {
                    format!(
                        "{title} exists: it is upgraded, and `kubectl bundle uninstall` does \
                     not remove it"
                    )
                }
                _ => format!("{title} exists and is not changed"),
            })
            .collect()
    }

    /// Returns `true` for existing objects that are not changed.
    pub(crate) fn is_unchanged(&self, manifest: &EmbeddedManifest) -> bool {
        self.found.contains_key(&key(manifest)) && manifest.phase() != InstallPhase::Definitions
    }

    /// Returns `true` for existing CRDs that are upgraded.
    pub(crate) fn is_upgraded(&self, manifest: &EmbeddedManifest) -> bool {
        self.found.contains_key(&key(manifest)) && manifest.phase() == InstallPhase::Definitions
    }

    /// Returns `true` for objects that `uninstall` will remove: objects that do not exist yet, and
    /// objects that an earlier `install` created.
    pub(crate) fn is_managed(&self, manifest: &EmbeddedManifest) -> bool {
        let found = self.found.get(&key(manifest));
        found.is_none_or(|(_, origin)| *origin == InstallOrigin::Plugin)
    }

    /// Returns `true` if the namespace exists.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|found| found == name)
    }
}

/// Returns the title of the object as its key. Titles are unique among the objects of an
/// installation.
fn key(manifest: &EmbeddedManifest) -> String {
    match manifest.namespace() {
        Some(namespace) => format!("{} in {namespace}", manifest.title()),
        None => manifest.title(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing(entries: &[(&str, InstallPhase, InstallOrigin)]) -> ExistingObjects {
        ExistingObjects {
            found: entries
                .iter()
                .map(|(title, phase, origin)| ((*title).to_owned(), (*phase, origin.clone())))
                .collect(),
            namespaces: Vec::new(),
        }
    }

    #[test]
    fn sets_mark_on_new_objects_and_keeps_it_on_objects_of_the_plugin() {
        let manifests = crate::commands::webhook::install::manifests::all("bundle-system").unwrap();
        let crds: Vec<_> = manifests
            .iter()
            .filter(|manifest| manifest.phase() == InstallPhase::Definitions)
            .collect();
        let found = existing(&[
            (
                &key(crds[0]),
                InstallPhase::Definitions,
                InstallOrigin::Plugin,
            ),
            (
                &key(crds[1]),
                InstallPhase::Definitions,
                InstallOrigin::Other,
            ),
        ]);
        let marked: Vec<bool> = crds[..3].iter().map(|crd| found.is_managed(crd)).collect();
        assert_eq!(marked, [true, false, true]);
    }

    #[test]
    fn ignores_remaining_crds_of_an_earlier_installation() {
        let left = existing(&[
            ("crd", InstallPhase::Definitions, InstallOrigin::Other),
            ("namespace", InstallPhase::Namespaces, InstallOrigin::Other),
            ("class", InstallPhase::Classes, InstallOrigin::Other),
        ]);
        assert!(left.reject_second_installation().is_ok());
        let second = existing(&[(
            "clusterrole",
            InstallPhase::Permissions,
            InstallOrigin::Plugin,
        )]);
        assert!(second.reject_second_installation().is_err());
    }
}
