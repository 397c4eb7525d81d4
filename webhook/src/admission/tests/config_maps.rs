//! Tests of reviews of ConfigMaps in the system namespace.

use super::*;

fn config_map(operation: &str, namespace: &str, immutable: bool) -> Value {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": immutable,
        "metadata": {"name": "files", "namespace": namespace},
    });
    let mut review = review("ana", None, &object);
    let request = &mut review["request"];
    request["kind"] = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    request["namespace"] = namespace.into();
    request["operation"] = operation.into();
    if operation == "DELETE" {
        // The API server sends an empty name for each object of a deleted collection.
        request["name"] = "".into();
        request["oldObject"] = request["object"].take();
    }
    review
}

#[tokio::test]
async fn referenced_config_maps_are_guarded_in_the_system_namespace_only() {
    let server = server(Fake {
        bundles: Some(vec!["api".to_owned(), "web".to_owned()]),
        ..Fake::default()
    });
    let system = "bundle-system";
    for (operation, namespace, immutable, message) in [
        (
            "CREATE",
            system,
            false,
            Some(
                "configmap \"files\" is referenced in .spec.source.configMaps[].configMap.name by bundles [api web]; referenced configmaps must have .immutable == true",
            ),
        ),
        (
            "DELETE",
            system,
            true,
            Some("configmap \"files\" is in-use by bundle \"api\""),
        ),
        ("CREATE", system, true, None),
        ("UPDATE", system, false, None),
        ("CREATE", "default", false, None),
        ("DELETE", "default", false, None),
    ] {
        let review = config_map(operation, namespace, immutable);
        let answer = server.ask("/validate", &review).await;
        assert_eq!(answer["allowed"], message.is_none(), "{review}");
        if let Some(message) = message {
            // The message is exactly the message of RukPak, because scripts compare this message.
            assert_eq!(answer["status"]["message"], message);
            assert_eq!(answer["status"]["reason"], message);
        }
    }
}

#[tokio::test]
async fn config_map_is_not_written_while_the_bundles_are_unknown() {
    let server = server(Fake::default());
    let answer = server
        .ask("/validate", &config_map("DELETE", "bundle-system", true))
        .await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["code"], 503);
}
