//! The permissions that roles grant: the memory for calculating them.

use bundle_core::object::{Manifest, ObjectId};
use bundle_core::rights;
use serde_json::{Value, json};

use super::{alone, peak};

/// Maximum memory for calculating the permissions that the roles of one content grant, in bytes.
const PERMISSIONS: usize = 16 << 20;

/// Returns a Role with one rule.
fn role(name: &str, rule: &Value) -> Manifest {
    Manifest {
        id: ObjectId {
            group: "rbac.authorization.k8s.io".to_owned(),
            version: "v1".to_owned(),
            kind: "Role".to_owned(),
            namespace: Some("home".to_owned()),
            name: name.to_owned(),
        },
        value: json!({"rules": [rule]}),
        file: String::new(),
        line: 1,
    }
}

#[test]
fn permissions_of_roles_need_no_more_than_a_constant() {
    let _alone = alone();
    let texts = |count: usize, length: usize| -> Vec<String> {
        let numbers = 0..count;
        numbers.map(|number| format!("{number:0length$}")).collect()
    };
    let rule = |names: Vec<String>| {
        json!({
            "verbs": texts(100, 3), "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names,
        })
    };
    for (name, objects) in [
        (
            "a role with long names",
            vec![role("wide", &rule(texts(100, 10 << 10)))],
        ),
        (
            "many roles with many permissions",
            (0..100)
                .map(|number| role(&format!("r{number}"), &rule(texts(100, 5 + number))))
                .collect(),
        ),
    ] {
        let (used, required) = peak(|| rights::required(&objects));
        assert!(!required.rules.is_empty(), "{name}");
        assert!(used < PERMISSIONS, "{name}: {} KiB", used >> 10);
    }
}
