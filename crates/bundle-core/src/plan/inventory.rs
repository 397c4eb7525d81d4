//! What belongs to an installation, and what of it is no longer wanted.
//! Not here: asking the cluster what is there, or deleting it.

use std::collections::{BTreeSet, HashSet};

use crate::object::{Manifest, ObjectId};

use super::applyset::GroupKind;

/// Those of `present` that `wanted` has not, by group, kind, namespace and name: a version alone is no difference.
pub fn to_prune<'a>(
    present: impl IntoIterator<Item = &'a ObjectId>,
    wanted: impl IntoIterator<Item = &'a ObjectId>,
) -> Vec<&'a ObjectId> {
    let wanted: HashSet<_> = wanted.into_iter().map(ObjectId::identity).collect();
    present
        .into_iter()
        .filter(|id| !wanted.contains(&id.identity()))
        .collect()
}

/// The kinds that these objects are of.
pub fn group_kinds<'a>(objects: impl IntoIterator<Item = &'a Manifest>) -> BTreeSet<GroupKind> {
    objects
        .into_iter()
        .map(|object| GroupKind::new(&object.id.group, &object.id.kind))
        .collect()
}

/// The namespaces that these objects live in.
pub fn namespaces<'a>(objects: impl IntoIterator<Item = &'a Manifest>) -> BTreeSet<String> {
    objects
        .into_iter()
        .filter_map(|object| object.id.namespace.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(kind: &str, version: &str, name: &str) -> ObjectId {
        ObjectId {
            group: String::new(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: Some("team-a".to_owned()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn another_version_of_the_same_object_is_kept() {
        let present = [id("A", "v1", "x"), id("A", "v1", "y"), id("B", "v1", "x")];
        let wanted = [id("A", "v2", "x")];
        assert_eq!(
            to_prune(&present, &wanted),
            [&id("A", "v1", "y"), &id("B", "v1", "x")]
        );
    }

    proptest! {
        #[test]
        fn pruning_keeps_all_that_is_wanted_and_nothing_else(
            present in proptest::collection::vec((0_u8..3, 0_u8..12), 0..40),
            wanted in proptest::collection::vec((0_u8..3, 0_u8..12), 0..40),
        ) {
            let make = |pairs: &[(u8, u8)]| pairs.iter().map(|(k, n)| id(&format!("K{k}"), "v1", &format!("n{n}"))).collect::<Vec<_>>();
            let (present, wanted) = (make(&present), make(&wanted));
            let pruned = to_prune(&present, &wanted);
            for id in &present {
                prop_assert_eq!(pruned.contains(&id), !wanted.contains(id));
            }
            prop_assert!(pruned.iter().all(|id| present.contains(id)));
        }
    }
}
