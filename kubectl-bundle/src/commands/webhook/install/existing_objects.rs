//! Objects of an installation that exist in the cluster already: upgraded, kept, or a conflict.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, codes};

use super::findings;
use super::manifests::{EmbeddedManifest, InstallPhase};
use super::origin::InstallOrigin;
use super::target::InstallTarget;
use crate::failure::Outcome;

/// Maximum number of objects in an error message.
const NAMED: usize = 5;

/// Existing objects of an installation.
pub(crate) struct ExistingObjects {
    found: BTreeMap<String, (InstallPhase, InstallOrigin)>,
    namespaces: Vec<String>,
}

impl ExistingObjects {
    /// Reads each object.
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

    /// Returns an error if objects of another installation exist. CustomResourceDefinitions,
    /// namespaces and ProvisionerClasses are no conflict, as they outlive an installation.
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
            let (origin, hint) = origin.describe();
            let more = titles.len().saturating_sub(NAMED);
            let mut names = titles[..titles.len() - more].join(", ");
            if more > 0 {
                names = format!("{names} and {more} more");
            }
            Finding::error(
                codes::cluster::ALREADY_INSTALLED,
                format!("{names} exist already; {origin}"),
            )
            .hint(hint)
        });
        Err(findings(all).into())
    }

    /// Returns one note for each existing object.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.found
            .iter()
            .map(|(title, (phase, origin))| match (phase, origin) {
                (InstallPhase::Definitions, InstallOrigin::Plugin) => {
                    format!("{title} exists and is upgraded")
                }
                (InstallPhase::Definitions, _) => {
                    format!("{title} exists and is upgraded; uninstall keeps it")
                }
                _ => format!("{title} exists and is not changed"),
            })
            .collect()
    }

    /// Returns `true` for objects that exist and are not changed.
    pub(crate) fn is_kept(&self, manifest: &EmbeddedManifest) -> bool {
        self.found.contains_key(&key(manifest)) && manifest.phase() != InstallPhase::Definitions
    }

    /// Returns `true` for CustomResourceDefinitions that exist and are upgraded.
    pub(crate) fn is_upgraded(&self, manifest: &EmbeddedManifest) -> bool {
        self.found.contains_key(&key(manifest)) && manifest.phase() == InstallPhase::Definitions
    }

    /// Returns `true` for objects that `uninstall` removes: new ones, and those of an earlier
    /// `install`.
    pub(crate) fn is_managed(&self, manifest: &EmbeddedManifest) -> bool {
        let found = self.found.get(&key(manifest));
        found.is_none_or(|(_, origin)| *origin == InstallOrigin::Plugin)
    }

    /// Returns `true` if the namespace exists.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|found| found == name)
    }
}

/// Returns the title with the namespace, unique among the objects of an installation.
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
    fn new_objects_and_those_of_an_earlier_install_are_managed() {
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
        let managed: Vec<bool> = crds[..3].iter().map(|crd| found.is_managed(crd)).collect();
        assert_eq!(managed, [true, false, true]);
    }

    #[test]
    fn objects_that_outlive_an_installation_are_no_second_one() {
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
