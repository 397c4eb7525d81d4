//! Owner references of Bundles and BundleDeployments. The garbage collector deletes an object once its owners are gone, and asks nobody who has taken it over
//! meanwhile.

use serde_json::Value;

use super::facts::Kind;
use crate::diagnostic::{Finding, codes};

/// Returns the reason against a write of `new` by anybody but the pod, if it adds an owner reference to a Bundle or BundleDeployment.
///
/// The pod may add one: the Bundles that it generates belong to their BundleDeployment. References that the object has already stay allowed, also
/// with another `controller` or `blockOwnerDeletion`, which the garbage collector itself changes.
pub fn added_owner(kind: Kind, name: &str, old: Option<&Value>, new: &Value) -> Option<Finding> {
    if kind == Kind::BundleApproval {
        return None;
    }
    let before: Vec<[&Value; 4]> = old.map_or_else(Vec::new, owners);
    let added = owners(new)
        .into_iter()
        .find(|owner| !before.contains(owner))?;
    let [_, owner_kind, owner, _] = added.map(|part| part.as_str().unwrap_or_default());
    Some(
        Finding::error(
            codes::review::OWNER_REFERENCE,
            format!("{kind} {name} would be deleted together with {owner_kind} {owner}"),
        )
        .at_field("metadata.ownerReferences")
        .hint("remove the owner reference, and delete the object when it is no longer needed"),
    )
}

/// The API version, kind, name and uid of each owner.
fn owners(object: &Value) -> Vec<[&Value; 4]> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .map(|owner| ["apiVersion", "kind", "name", "uid"].map(|field| &owner[field]))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(name: &str, uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    }

    fn object(owners: &[&Value]) -> Value {
        json!({"metadata": {"name": "web", "ownerReferences": owners}, "spec": {}})
    }

    #[test]
    fn rejects_added_owner_references() {
        let (a, b) = (owner("a", "1"), owner("b", "2"));
        let (renewed, mut controller) = (owner("a", "3"), a.clone());
        controller["controller"] = json!(true);
        let none = json!({"metadata": {"name": "web"}});
        let with = object;
        for (old, new, is_allowed) in [
            (None, none.clone(), true),
            (None, with(&[]), true),
            (None, with(&[&a]), false),
            (Some(none.clone()), with(&[&a]), false),
            (Some(with(&[&a])), with(&[&a]), true),
            (Some(with(&[&a])), with(&[&controller]), true),
            (Some(with(&[&a, &b])), with(&[&b]), true),
            (Some(with(&[&a])), none.clone(), true),
            (Some(with(&[&a])), with(&[&a, &b]), false),
            (Some(with(&[&a])), with(&[&renewed]), false),
            (None, json!({"metadata": {"ownerReferences": [{}]}}), false),
        ] {
            for (kind, is_checked) in [
                (Kind::BundleDeployment, true),
                (Kind::Bundle, true),
                (Kind::BundleApproval, false),
            ] {
                let is_refused = added_owner(kind, "web", old.as_ref(), &new).is_some();
                assert_eq!(
                    is_refused,
                    is_checked && !is_allowed,
                    "{kind} {old:?} {new}"
                );
            }
        }
    }
}
