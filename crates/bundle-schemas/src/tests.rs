//! Checks of the whole table.

use super::*;

#[test]
fn every_schema_of_every_version_is_complete() {
    let versions = BuiltinSchemas.versions();
    assert_eq!(
        versions,
        [Minor(1, 33), Minor(1, 34), Minor(1, 35), Minor(1, 36)]
    );
    let mut schemas = 0;
    for name in LOADED.stored.kinds.keys() {
        let parts: Vec<&str> = name.split('/').collect();
        let [group, version, kind] = parts[..] else {
            panic!("{name}");
        };
        for minor in versions {
            let Some(schema) = BuiltinSchemas.schema(*minor, group, version, kind) else {
                continue;
            };
            schemas += 1;
            assert!(
                schema["properties"]["metadata"]["properties"]["name"].is_object(),
                "{name}"
            );
            assert!(!schema.to_string().contains("$ref"), "{name}");
        }
    }
    assert!(schemas > 300, "{schemas}");
}

#[test]
fn has_enumerations_keys_and_only_what_the_server_requires() {
    let schema = |kind, group| {
        BuiltinSchemas
            .schema(Minor(1, 33), group, "v1", kind)
            .unwrap()
    };
    let pod = schema("Pod", "");
    let container = &pod["properties"]["spec"]["properties"]["containers"]["items"];
    let policy = &container["properties"]["imagePullPolicy"]["enum"];
    assert!(
        policy.as_array().unwrap().contains(&"IfNotPresent".into()),
        "{policy}"
    );
    assert_eq!(
        container["properties"]["ports"]["x-kubernetes-list-map-keys"],
        serde_json::json!(["containerPort", "protocol"])
    );
    assert_eq!(container["required"], serde_json::json!(["name"]));
    let role = schema("RoleBinding", "rbac.authorization.k8s.io");
    assert_eq!(
        role["properties"]["roleRef"]["required"],
        serde_json::json!(["kind", "name"]),
        "the group has a default"
    );
}

/// Names of maps that occur only in the status of objects.
const OF_STATUS: &[&str] = &[
    "allocatable",
    "allocatedResourceStatuses",
    "allocatedResources",
    "attachmentMetadata",
    "consumedCapacity",
    "disruptedPods",
    "nodeAllocatableResourceMappings",
    "resources",
    "used",
];

#[test]
fn every_map_of_the_author_keeps_its_nulls() {
    for definition in &LOADED.stored.definitions {
        let fields = definition.get("properties").and_then(Value::as_object);
        for (name, field) in fields.into_iter().flatten() {
            let is_map = field.get("additionalProperties").is_some();
            assert!(
                !is_map
                    || bundle_core::object::MAPS.contains(&name.as_str())
                    || OF_STATUS.contains(&name.as_str()),
                "{name}"
            );
        }
    }
}
