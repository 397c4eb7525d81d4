//! Owner references of BundleDeployments. The garbage collector deletes an object once its owners are gone, and does not ask whoever has taken it over meanwhile.

use serde_json::Value;

use crate::diagnostic::{Finding, codes};

/// Returns the reason against a write by which somebody else becomes a requester of the BundleDeployment `name`, if `new` has an owner reference.
///
/// Whoever may delete the owner would decide about the deletion of content that another requester answers for. Those who create a
/// BundleDeployment may give it owners, as controllers do with the objects that they generate.
pub fn owner_of_another(name: &str, new: &Value) -> Option<Finding> {
    let owner = new["metadata"]["ownerReferences"].as_array()?.first()?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let message = format!(
        "BundleDeployment {name} belongs to another requester, and would be deleted together with {} {}",
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
    fn rejects_any_owner_reference_and_names_the_owner() {
        let object = |owners: Value| json!({"metadata": {"name": "web", "ownerReferences": owners}, "spec": {}});
        for none in [
            json!({"metadata": {"name": "web"}}),
            object(json!([])),
            object(Value::Null),
        ] {
            assert_eq!(owner_of_another("web", &none), None);
        }
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}]);
        let finding = owner_of_another("web", &object(owners)).unwrap();
        assert!(
            finding.to_string().contains("together with ConfigMap a"),
            "{finding}"
        );
        assert!(owner_of_another("web", &object(json!([{}]))).is_some());
    }
}
