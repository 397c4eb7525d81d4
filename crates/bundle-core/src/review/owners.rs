//! Owner references of the reviewed objects. The garbage collector deletes an object when its
//! owners are deleted, even if another user has become the requester of the object.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::canonical;
use crate::diagnostic::{Finding, codes};
use crate::reference::Digest;

/// Returns the digest of the owner references of `object`: the apiVersion, kind, name and uid of
/// each reference. The digest ignores the order, duplicates, and the fields `controller` and
/// `blockOwnerDeletion`, which do not affect deletion. Returns `None` if the object has no owner
/// references.
pub fn owners_digest(object: &Value) -> Option<Digest> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let distinct: BTreeSet<String> = owners
        .iter()
        .map(|owner| {
            let fields = ["apiVersion", "kind", "name", "uid"].map(|field| &owner[field]);
            json!(fields).to_string()
        })
        .collect();
    (!distinct.is_empty()).then(|| canonical::spec_digest(&json!(distinct)))
}

/// Returns an error if `new` has an owner reference. The caller uses this function only for a write
/// that makes another user a requester of the BundleDeployment `name`.
///
/// A user who may delete the owner could otherwise delete content of another requester. The creator
/// of a BundleDeployment may set owners, as controllers do for objects that they generate.
pub fn reject_owner_reference(name: &str, new: &Value) -> Option<Finding> {
    let owner = new["metadata"]["ownerReferences"].as_array()?.first()?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let message = format!(
        "this write changes the requester of BundleDeployment {name}, and the garbage collector would delete {name} together with its owner, {} \"{}\"",
        text("kind"),
        text("name")
    );
    let finding = Finding::error(codes::review::OWNER_REFERENCE, message)
        .at_field("metadata.ownerReferences")
        .hint("remove the owner references in the same write");
    Some(finding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_digest_covers_each_owner_and_nothing_else() {
        let owner =
            |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid});
        let digest =
            |owners: Value| owners_digest(&json!({"metadata": {"ownerReferences": owners}}));
        assert_eq!(owners_digest(&json!({"metadata": {}})), None);
        assert_eq!(digest(json!([])), None);
        let both = digest(json!([owner("1"), owner("2")]));
        assert!(both.is_some());
        assert_eq!(digest(json!([owner("2"), owner("1"), owner("2")])), both);
        let mut blocking = owner("1");
        blocking["blockOwnerDeletion"] = true.into();
        assert_eq!(digest(json!([blocking])), digest(json!([owner("1")])));
        for field in ["apiVersion", "kind", "name", "uid"] {
            let mut other = owner("1");
            other[field] = "b".into();
            assert_ne!(
                digest(json!([other])),
                digest(json!([owner("1")])),
                "{field}"
            );
        }
        assert_ne!(digest(json!([owner("1")])), both);
    }

    #[test]
    fn rejects_any_owner_reference_and_names_the_owner() {
        let object = |owners: Value| json!({"metadata": {"name": "web", "ownerReferences": owners}, "spec": {}});
        for none in [
            json!({"metadata": {"name": "web"}}),
            object(json!([])),
            object(Value::Null),
        ] {
            assert_eq!(reject_owner_reference("web", &none), None);
        }
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}]);
        let finding = reject_owner_reference("web", &object(owners)).unwrap();
        assert!(
            finding
                .to_string()
                .contains("together with its owner, ConfigMap \"a\""),
            "{finding}"
        );
        assert!(reject_owner_reference("web", &object(json!([{}]))).is_some());
    }
}
