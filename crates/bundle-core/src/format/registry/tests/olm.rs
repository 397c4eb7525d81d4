//! The objects of operators in several shapes, compared with the objects that operator-controller
//! (OLM v1) creates. The expected objects follow the rules of OLM v1. `formats.md` lists the
//! differences.

use serde_json::{Value, json};

use super::*;
use crate::format::CommandOutput;
use crate::yaml;

/// Objects of cert-manager, which issues the certificates for OLM v1.
const CERT_MANAGER: &str = "cert-manager.io/v1";
/// Length of the hash at the end of the name of a role.
const HASH: usize = 10;

/// Columns: name of the shape, bundle, expected objects, configuration.
const SHAPES: [(&str, &str, &str, &str); 6] = [
    (
        "all namespaces",
        include_str!("shapes/all-namespaces.yaml"),
        include_str!("shapes/all-namespaces.expected.yaml"),
        "{}",
    ),
    (
        "own namespace",
        include_str!("shapes/own-namespace.yaml"),
        include_str!("shapes/own-namespace.expected.yaml"),
        r#"{"watchNamespace": "operators"}"#,
    ),
    (
        "another namespace",
        include_str!("shapes/single-namespace.yaml"),
        include_str!("shapes/single-namespace.expected.yaml"),
        r#"{"watchNamespace": "watched"}"#,
    ),
    (
        "several namespaces",
        include_str!("shapes/multi-namespace.yaml"),
        include_str!("shapes/multi-namespace.expected.yaml"),
        r#"{"watchNamespaces": ["operators", "watched"]}"#,
    ),
    (
        "admission webhooks and deploymentConfig",
        include_str!("shapes/webhooks.yaml"),
        include_str!("shapes/webhooks.expected.yaml"),
        r#"{"watchNamespace": "watched", "deploymentConfig": {
            "selector": {"matchLabels": {"has": "no-effect"}},
            "env": [{"name": "MODE", "value": "fast"}, {"name": "LEVEL", "value": "debug"}],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "resources": {"requests": {"memory": "64Mi"}},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
            "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
            "volumes": [{"name": "more", "emptyDir": {}}],
            "volumeMounts": [{"name": "more", "mountPath": "/more"}],
            "annotations": {"team": "a", "capabilities": "mine"}
        }}"#,
    ),
    (
        "conversion webhook",
        include_str!("shapes/conversion.yaml"),
        include_str!("shapes/conversion.expected.yaml"),
        "{}",
    ),
];

/// Returns the objects by group, kind, namespace and name, without the parts that differ by design.
fn comparable(objects: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    let of_ours = objects.into_iter().filter(|object| {
        let is_certificate = object["type"] == "kubernetes.io/tls";
        object["apiVersion"] != CERT_MANAGER && !is_certificate
    });
    of_ours
        .map(|mut object| {
            let kind = object["kind"].as_str().unwrap().to_owned();
            if kind.contains("Role") {
                for field in ["/metadata/name", "/roleRef/name"] {
                    if let Some(Value::String(name)) = object.pointer_mut(field) {
                        let end = name.rfind('-').unwrap() + 1;
                        assert!(name.ends_with("HASH") || name.len() - end == HASH);
                        name.replace_range(end.., "HASH");
                    }
                }
            }
            let metadata = object["metadata"].as_object_mut().unwrap();
            if kind.ends_with("WebhookConfiguration") {
                metadata.remove("namespace");
            }
            let annotations = metadata.get_mut("annotations");
            if let Some(Value::Object(annotations)) = annotations {
                let theirs = annotations.remove("cert-manager.io/inject-ca-from");
                let ours = annotations.remove("core.rukpak.io/inject-authority");
                if theirs.or(ours).is_some() {
                    annotations.insert("authority".to_owned(), json!("injected"));
                }
            }
            let rules = object.get("rules").map(Value::to_string);
            let key = format!(
                "{kind} {} {} {}",
                object["metadata"]["namespace"],
                object["metadata"]["name"],
                rules.unwrap_or_default()
            );
            (key, object)
        })
        .collect()
}

#[test]
fn objects_equal_those_of_olm_v1_for_each_shape() {
    for (name, bundle, expected, config) in SHAPES {
        let files = [(ANNOTATIONS, META), ("manifests/all.yaml", bundle)];
        let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
        let target = RenderTarget {
            config: Some(serde_json::from_str(config).unwrap()),
            ..RenderTarget::in_namespace(Some("operators"))
        };
        let input = RenderInput {
            files: &Files::from(files),
            target: &target,
            output: CommandOutput::Missing,
        };
        let content = format::render(&input).unwrap_or_else(|findings| panic!("{findings}"));
        let expected = yaml::documents(expected.as_bytes(), "expected.yaml").unwrap();
        let expected = comparable(expected.into_iter().map(|document| document.value));
        let found = comparable(content.objects.into_iter().map(|object| object.value));
        for (key, object) in &expected {
            let found = found.get(key);
            assert_eq!(found, Some(object), "{name}: {key}");
        }
        let more: Vec<_> = found
            .keys()
            .filter(|key| !expected.contains_key(*key))
            .collect();
        assert!(more.is_empty(), "{name}: {more:?}");
    }
}
