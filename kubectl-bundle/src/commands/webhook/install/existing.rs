//! Objects of an installation that the cluster has already: upgraded, left alone, or the reason to refuse.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, codes};

use super::findings;
use super::manifests::{Manifest, Phase};
use super::origin::Origin;
use super::target::Target;
use crate::failure::Outcome;

/// Most objects that a refusal names.
const NAMED: usize = 5;

/// Objects of an installation that the cluster has already.
pub(crate) struct Existing {
    found: BTreeMap<String, (Phase, Origin)>,
    namespaces: Vec<String>,
}

impl Existing {
    /// Looks for each object.
    pub(crate) async fn find(target: &Target, manifests: &[Manifest]) -> Outcome<Self> {
        let mut found = BTreeMap::new();
        let mut namespaces = Vec::new();
        for manifest in manifests {
            if let Some(object) = target.get(manifest).await? {
                if manifest.phase() == Phase::Namespaces {
                    namespaces.push(manifest.name().to_owned());
                }
                found.insert(key(manifest), (manifest.phase(), Origin::of(&object)));
            }
        }
        Ok(Self { found, namespaces })
    }

    /// Refuses if anything exists that would be taken over. Definitions, namespaces and classes outlive an installation and count as none.
    pub(crate) fn refuse_second_installation(&self) -> Outcome {
        let mut by_origin: BTreeMap<&Origin, Vec<&str>> = BTreeMap::new();
        for (title, (phase, origin)) in &self.found {
            if !phase.outlives_installation() {
                by_origin.entry(origin).or_default().push(title);
            }
        }
        if by_origin.is_empty() {
            return Ok(());
        }
        let all = by_origin.into_iter().map(|(origin, titles)| {
            let (words, hint) = origin.told();
            let more = titles.len().saturating_sub(NAMED);
            let mut names = titles[..titles.len() - more].join(", ");
            if more > 0 {
                names = format!("{names} and {more} more");
            }
            Finding::error(
                codes::cluster::ALREADY_INSTALLED,
                format!("the cluster has {names} already; {words}"),
            )
            .hint(hint)
        });
        Err(findings(all).into())
    }

    /// Lines about what is not created.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.found
            .iter()
            .map(|(title, (phase, origin))| match (phase, origin) {
                (Phase::Definitions, Origin::Plugin) => {
                    format!("{title} exists, and is upgraded")
                }
                (Phase::Definitions, _) => {
                    format!("{title} exists: it is upgraded, and uninstall will leave it")
                }
                _ => format!("{title} exists and stays as it is"),
            })
            .collect()
    }

    /// `true` for objects that exist and are not touched.
    pub(crate) fn is_left_alone(&self, manifest: &Manifest) -> bool {
        self.found.contains_key(&key(manifest)) && manifest.phase() != Phase::Definitions
    }

    /// `true` for definitions that exist and are upgraded.
    pub(crate) fn is_upgraded(&self, manifest: &Manifest) -> bool {
        self.found.contains_key(&key(manifest)) && manifest.phase() == Phase::Definitions
    }

    /// `true` for objects that `uninstall` is to remove: those that do not exist yet, or that an earlier `install` created.
    pub(crate) fn is_marked(&self, manifest: &Manifest) -> bool {
        let found = self.found.get(&key(manifest));
        found.is_none_or(|(_, origin)| *origin == Origin::Plugin)
    }

    /// `true` if the namespace exists.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|found| found == name)
    }
}

/// The title, unique among the objects of an installation.
fn key(manifest: &Manifest) -> String {
    match manifest.namespace() {
        Some(namespace) => format!("{} in {namespace}", manifest.title()),
        None => manifest.title(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing(entries: &[(&str, Phase, Origin)]) -> Existing {
        Existing {
            found: entries
                .iter()
                .map(|(title, phase, origin)| ((*title).to_owned(), (*phase, origin.clone())))
                .collect(),
            namespaces: Vec::new(),
        }
    }

    #[test]
    fn mark_is_set_on_new_objects_and_kept_on_our_own() {
        let manifests = crate::commands::webhook::install::manifests::all("bundle-system").unwrap();
        let crds: Vec<_> = manifests
            .iter()
            .filter(|manifest| manifest.phase() == Phase::Definitions)
            .collect();
        let found = existing(&[
            (&key(crds[0]), Phase::Definitions, Origin::Plugin),
            (&key(crds[1]), Phase::Definitions, Origin::Other),
        ]);
        let marked: Vec<bool> = crds[..3].iter().map(|crd| found.is_marked(crd)).collect();
        assert_eq!(marked, [true, false, true]);
    }

    #[test]
    fn leftovers_of_an_installation_are_no_second_one() {
        let left = existing(&[
            ("crd", Phase::Definitions, Origin::Other),
            ("namespace", Phase::Namespaces, Origin::Other),
            ("class", Phase::Classes, Origin::Other),
        ]);
        assert!(left.refuse_second_installation().is_ok());
        let second = existing(&[("clusterrole", Phase::Rights, Origin::Plugin)]);
        assert!(second.refuse_second_installation().is_err());
    }
}
