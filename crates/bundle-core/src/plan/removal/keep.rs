//! Objects that are not deleted. A prune keeps an object if its deletion would also delete objects
//! of the content. No removal deletes the namespaces of the webhook.

use std::collections::BTreeSet;
use std::fmt;

use crate::object::ObjectId;
use crate::plan::phases::Phase;
use crate::review::target::in_reserved_namespaces;
use crate::text::bounded;

/// Maximum length of a reason, in bytes. A removal keeps the reasons of all its objects, and
/// admission webhooks choose the texts.
const MAX_REASON: usize = 512;

/// Reason why an object is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDeletionReason {
    /// The object is a namespace of the webhook that the class does not name.
    Reserved,
    /// Any other reason, as text.
    Other(String),
}

impl fmt::Display for NoDeletionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserved => "it is a namespace of bundle-webhook",
            Self::Other(why) => why,
        })
    }
}

impl From<String> for NoDeletionReason {
    fn from(why: String) -> Self {
        Self::Other(bounded(&why, MAX_REASON))
    }
}

/// Returns the Namespaces among `unwanted` that are the `system` or `state` namespace of the
/// webhook. A Namespace is not returned if `allowed`, the namespaces of the class, contains its
/// exact name. The same rule rejects content with such Namespaces, but earlier versions of this
/// project installed such content. The deletion of such a Namespace would delete the webhook with
/// its keys and records.
pub fn reserved<'a>(
    unwanted: impl IntoIterator<Item = &'a ObjectId>,
    allowed: &[String],
    system: &str,
    state: &str,
) -> Vec<&'a ObjectId> {
    let namespaces = unwanted.into_iter().filter(|id| id.is_namespace());
    in_reserved_namespaces(namespaces, allowed, system, state)
}

/// Returns the Namespaces and CustomResourceDefinitions among `unwanted` whose deletion would also
/// delete objects of the content, with the reason to keep them. `content` has the objects of the
/// content, each with the plural of its kind.
pub fn needed<'a>(
    unwanted: impl IntoIterator<Item = &'a ObjectId>,
    content: &[(&ObjectId, &str)],
) -> Vec<(ObjectId, &'static str)> {
    let namespaces: BTreeSet<&str> = content
        .iter()
        .filter_map(|(id, _)| id.namespace.as_deref())
        .collect();
    let definitions: BTreeSet<String> = content
        .iter()
        .map(|(id, plural)| format!("{plural}.{}", id.group))
        .collect();
    let needed = unwanted.into_iter().filter_map(|id| {
        let why = match Phase::of(&id.group, &id.kind) {
            Phase::Namespaces if namespaces.contains(id.name.as_str()) => {
                "it contains objects of the content"
            }
            Phase::Crds if definitions.contains(&id.name) => "it defines objects of the content",
            _ => return None,
        };
        Some((id.clone(), why))
    });
    needed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id((group, kind): (&str, &str), namespace: Option<&str>, name: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn namespaces_and_definitions_of_objects_of_the_content_are_kept() {
        let crd = ("apiextensions.k8s.io", "CustomResourceDefinition");
        let unwanted = [
            id(("", "Namespace"), None, "team-a"),
            id(("", "Namespace"), None, "team-b"),
            id(crd, None, "queues.shop.example.com"),
            id(crd, None, "topics.shop.example.com"),
            id(("", "ConfigMap"), Some("team-a"), "team-a"),
        ];
        let queue = id(("shop.example.com", "Queue"), Some("team-a"), "x");
        let kept = needed(&unwanted, &[(&queue, "queues")]);
        assert_eq!(
            kept,
            [
                (unwanted[0].clone(), "it contains objects of the content"),
                (unwanted[2].clone(), "it defines objects of the content"),
            ]
        );
        assert!(needed(&unwanted, &[]).is_empty());
    }

    #[test]
    fn long_reasons_are_shortened() {
        let reason = NoDeletionReason::from("x".repeat(400 << 10));
        assert_eq!(reason.to_string().len(), MAX_REASON);
    }

    #[test]
    fn namespaces_of_the_webhook_are_kept_unless_the_class_names_them() {
        let unwanted = [
            id(("", "Namespace"), None, "sys"),
            id(("", "Namespace"), None, "sys-state"),
            id(("", "Namespace"), None, "team-a"),
            // Objects inside these namespaces are not reserved: only permissions are checked for
            // such objects.
            id(("", "ConfigMap"), Some("sys"), "sys"),
        ];
        let kept = |allowed: &[&str]| {
            let allowed: Vec<_> = allowed.iter().map(|&name| name.to_owned()).collect();
            reserved(&unwanted, &allowed, "sys", "sys-state")
        };
        assert_eq!(kept(&[]), [&unwanted[0], &unwanted[1]]);
        assert_eq!(kept(&["*", "sys*"]), [&unwanted[0], &unwanted[1]]);
        assert_eq!(kept(&["*", "sys"]), [&unwanted[1]]);
    }
}
