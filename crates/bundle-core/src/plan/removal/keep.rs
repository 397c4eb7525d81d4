//! Objects that a prune keeps because objects of the content would go with them.

use std::collections::BTreeSet;

use crate::object::ObjectId;
use crate::plan::phases::Phase;

/// Returns those of `unwanted` that may not go because objects of the content would go with them, with the reason: their namespaces and definitions.
/// `content` are the objects of the content, each with the plural of its kind.
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
                "objects of the content live in it"
            }
            Phase::Crds if definitions.contains(&id.name) => "objects of the content are of it",
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
    fn namespace_and_definition_of_objects_of_the_content_stay() {
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
                (unwanted[0].clone(), "objects of the content live in it"),
                (unwanted[2].clone(), "objects of the content are of it"),
            ]
        );
        assert!(needed(&unwanted, &[]).is_empty());
    }
}
