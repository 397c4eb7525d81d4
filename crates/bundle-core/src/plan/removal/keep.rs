//! Objects that a prune keeps because their deletion would also delete objects of the content.

use std::collections::BTreeSet;

use crate::object::ObjectId;
use crate::plan::phases::Phase;

/// Returns the namespaces and definitions among `unwanted` that contain objects of the content,
/// with the reason to keep them. `content` has the objects of the content, each with the plural of
/// its kind.
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
}
