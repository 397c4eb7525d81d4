//! Upgrades of CRDs: unsafe changes are rejected before any object is applied.

use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    apply, bundle_of, condition, deployment, get, installed, kubectl, publish, stage, until,
};

const DEFINITION: &str = "crd jugs.crdup.example.com";

/// Returns a ConfigMap with the number of the content, and a CRD. `head` is a part of the `spec` of
/// the CRD, up to the name of its version. `schema` is the schema of `spec` in its custom
/// resources.
fn content(number: u32, annotations: &str, head: &str, schema: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: marker, namespace: crdup}}
data: {{number: '{number}'}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: jugs.crdup.example.com, annotations: {{{annotations}}}}}
spec:
  group: crdup.example.com
  names: {{kind: Jug, listKind: JugList, plural: jugs, singular: jug}}
{head}
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {schema}
"
    )
}

/// Returns the exceptions for these checks.
fn except(checks: &[&str]) -> Value {
    let exceptions = checks.iter().map(|check| {
        json!({"crd": "jugs.crdup.example.com", "check": check, "reason": format!("no jugs, so no {check}")})
    });
    json!({"crdUpgrades": {"exceptions": exceptions.collect::<Vec<Value>>()}})
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_upgrade_of_a_definition_is_rejected_until_an_exception_allows_it() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace crdup").await;
    let push = async |number: u32, content: &str| {
        publish(&cluster, &format!("team/crdup:{number}"), |f| {
            bundle_of(f, "crdup", content)
        })
        .await
    };
    let v1 = "  scope: Namespaced\n  versions:\n  - name: v1";
    let schema =
        "{type: object, properties: {litres: {type: integer, minimum: 1}, colour: {type: string}}}";
    let one = push(1, &content(1, "", v1, schema)).await;
    let stricter = "{type: object, required: [litres], properties: {litres: {type: integer, minimum: 2, maximum: 9}}}";
    let two = push(2, &content(2, "", v1, stricter)).await;
    let other = "  scope: Cluster\n  versions:\n  - name: v2";
    let three = push(3, &content(3, "", other, schema)).await;
    let off = "core.rukpak.io/safe-crd-upgrade-validation: 'false'";
    let four = push(4, &content(4, off, v1, "{type: object}")).await;

    apply(&cluster, &deployment("crdup", &one, &json!({}))).await;
    installed(&cluster, "crdup").await;
    let versions = async || {
        let mut versions = Vec::new();
        for what in [DEFINITION, "configmap marker -n crdup"] {
            let object = get(&cluster, what).await.unwrap();
            versions.push(object["metadata"]["resourceVersion"].clone());
        }
        versions
    };
    let before = versions().await;

    apply(&cluster, &deployment("crdup", &two, &json!({}))).await;
    let message = until(&cluster, "bundledeployment crdup", "Installed", "False").await;
    let begin = r#"validating upgrade for CRD "jugs.crdup.example.com" failed: CustomResourceDefinition jugs.crdup.example.com failed upgrade safety validation. "NoExistingFieldRemoved" validation failed: crd/jugs.crdup.example.com version/v1 field/^.spec.colour may not be removed; CustomResourceDefinition jugs.crdup.example.com failed upgrade safety validation. "ChangeValidator" validation failed: version "v1", field "^.spec": new required fields added: [litres]; version "v1", field "^.spec.litres": maximum constraint added when one did not exist previously: 9; version "v1", field "^.spec.litres": minimum constraint increased from 1 to 2"#;
    assert!(message.starts_with(begin), "{message}");
    assert!(
        message.ends_with(
            "jugs.crdup.example.com: NoExistingFieldRemoved, Required, Maximum, Minimum)"
        ),
        "{message}"
    );
    let object = get(&cluster, "bundledeployment crdup").await.unwrap();
    assert_eq!(condition(&object, "Installed")["reason"], "UpgradeFailed");
    let ready = condition(&object, "Ready")["message"].to_string();
    assert!(ready.contains("BUNDLE-INSTALL-100"), "{ready}");
    assert_eq!(versions().await, before);

    // Changes that the API server would also reject are reported by the checks of the upgrade.
    apply(&cluster, &deployment("crdup", &three, &json!({}))).await;
    let message = until(&cluster, "bundledeployment crdup", "Installed", "False").await;
    for text in [
        r#""NoScopeChange" validation failed: scope changed from "Namespaced" to "Cluster""#,
        r#""NoStoredVersionRemoved" validation failed: stored version "v1" removed"#,
    ] {
        assert!(message.contains(text), "{message}");
    }

    // An exception covers only the check that it names.
    let some = except(&["NoExistingFieldRemoved", "Required"]);
    apply(&cluster, &deployment("crdup", &two, &some)).await;
    let message = until(&cluster, "bundledeployment crdup", "Installed", "False").await;
    assert!(
        message.contains(
            r#""ChangeValidator" validation failed: version "v1", field "^.spec.litres": maximum"#
        ),
        "{message}"
    );
    assert!(!message.contains("may not be removed"), "{message}");
    assert_eq!(versions().await, before);
    let all = except(&["NoExistingFieldRemoved", "ChangeValidator"]);
    apply(&cluster, &deployment("crdup", &two, &all)).await;
    installed(&cluster, "crdup").await;
    let object = get(&cluster, "bundledeployment crdup").await.unwrap();
    let warnings = object["status"]["warnings"].to_string();
    for check in ["NoExistingFieldRemoved", "ChangeValidator"] {
        assert!(
            warnings.contains(&format!("no jugs, so no {check}")),
            "{warnings}"
        );
    }
    let required = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/required";
    let definition = get(&cluster, DEFINITION).await.unwrap();
    assert_eq!(definition.pointer(required), Some(&json!(["litres"])));

    // The new CRD has RukPak's annotation, so the webhook does not compare it with the old CRD.
    apply(&cluster, &deployment("crdup", &four, &json!({}))).await;
    installed(&cluster, "crdup").await;
    let definition = get(&cluster, DEFINITION).await.unwrap();
    assert_eq!(definition.pointer(required), None);

    // Admission rejects a name that is not the name of a check.
    let object = deployment("crdup", &four, &except(&["NoFieldRemoved"]));
    let refused = crate::scenarios::objects::apply_as(&cluster, &object, None).await;
    let refused = refused.failure(1).unwrap();
    assert!(
        refused.contains("`NoFieldRemoved` is not a check"),
        "{refused}"
    );
}

fn jug(namespace: &str, name: &str, litres: u32) -> Value {
    json!({
        "apiVersion": "crdup.example.com/v1", "kind": "Jug",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"litres": litres, "colour": "S3cret"},
    })
}

/// Creates ServiceAccount `crdup/installer`, which has permissions for CRDs and ConfigMaps, but not
/// for the custom resources `jugs`.
async fn create_installer(cluster: &e2e::Cluster) {
    for line in [
        "create serviceaccount installer -n crdup",
        "create clusterrole crdup --verb=* --resource=customresourcedefinitions.apiextensions.k8s.io,configmaps",
        "create clusterrolebinding crdup --clusterrole=crdup --serviceaccount=crdup:installer",
        "create role impersonator -n crdup --verb=impersonate --resource=serviceaccounts --resource-name=installer",
        "create rolebinding impersonator -n crdup --role=impersonator --serviceaccount=bundle-system:bundle-webhook",
    ] {
        kubectl(cluster, line).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_upgrade_of_a_definition_with_existing_objects_is_rejected() {
    let (cluster, _webhook) = stage().await;
    for namespace in ["crdup", "other"] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
    }
    let push = async |number: u32, litres: &str| {
        let v1 = "  scope: Namespaced\n  versions:\n  - name: v1";
        let schema =
            format!("{{type: object, properties: {{litres: {litres}, colour: {{type: string}}}}}}");
        let content = content(number, "", v1, &schema);
        publish(&cluster, &format!("team/crdup:{number}"), |f| {
            bundle_of(f, "crdup", &content)
        })
        .await
    };
    let one = push(1, "{type: integer}").await;
    let two = push(2, "{type: integer, maximum: 9}").await;
    apply(&cluster, &deployment("crdup", &one, &json!({}))).await;
    installed(&cluster, "crdup").await;
    let line = format!("wait --for=condition=Established {DEFINITION}");
    kubectl(&cluster, &line.replacen("crd ", "crd/", 1)).await;
    for (namespace, name, litres) in [
        ("crdup", "small", 1),
        ("crdup", "large", 41),
        ("other", "hidden", 42),
    ] {
        apply(&cluster, &jug(namespace, name, litres)).await;
    }
    let message = async |exceptions: &Value| {
        apply(&cluster, &deployment("crdup", &two, exceptions)).await;
        until(&cluster, "bundledeployment crdup", "Installed", "False").await
    };

    // An exception allows the change of the schema. The reason in the exception is wrong, because
    // jugs exist.
    let found = message(&except(&["Maximum"])).await;
    let begin = r#"error validating existing CRs against new CRD's schema for "jugs.crdup.example.com": existing custom object crdup/large failed validation for new schema version v1: ^.spec.litres: maximum; existing custom objects in other namespaces (1) failed validation for new schema version v1: ^.spec.litres: maximum (to allow the upgrade, "#;
    assert!(found.starts_with(begin), "{found}");
    for secret in ["41", "42", "S3cret", "hidden"] {
        assert!(!found.contains(secret), "{found}");
    }
    let object = get(&cluster, "bundledeployment crdup").await.unwrap();
    let ready = condition(&object, "Ready")["message"].to_string();
    assert!(ready.contains("BUNDLE-INSTALL-130"), "{ready}");
    let maximum =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/litres/maximum";
    let definition = get(&cluster, DEFINITION).await.unwrap();
    assert_eq!(definition.pointer(maximum), None);
    // The plugin prints all names that its user has permission to read.
    let preview = cluster
        .kubectl_bundle(["diff", "crdup", &two, "-o", "json"])
        .await
        .unwrap();
    for name in ["crdup/large", "other/hidden"] {
        assert!(preview.stdout.contains(name), "{preview}");
    }

    // This ServiceAccount has no permission to list jugs.
    create_installer(&cluster).await;
    let mut settings = except(&["Maximum"]);
    settings["serviceAccount"] = json!({"namespace": "crdup", "name": "installer"});
    let found = message(&settings).await;
    assert!(
        found.contains("error validating existing CRs") && found.contains("crdup:installer"),
        "{found}"
    );

    // If no object is invalid, the exception for the change of the schema is sufficient.
    apply(&cluster, &jug("crdup", "large", 9)).await;
    kubectl(&cluster, "delete jug hidden -n other").await;
    let mut exceptions = except(&["Maximum"]);
    exceptions["crdUpgrades"]["exceptions"][0]["reason"] = "all jugs are small now".into();
    apply(&cluster, &deployment("crdup", &two, &exceptions)).await;
    installed(&cluster, "crdup").await;
    let definition = get(&cluster, DEFINITION).await.unwrap();
    assert_eq!(definition.pointer(maximum), Some(&json!(9)));

    // With an exception from the validation of existing objects, the upgrade is allowed.
    let three = push(3, "{type: integer, maximum: 5}").await;
    let all = except(&["Maximum", "ExistingCustomResources"]);
    apply(&cluster, &deployment("crdup", &three, &all)).await;
    installed(&cluster, "crdup").await;
    let object = get(&cluster, "bundledeployment crdup").await.unwrap();
    let warnings = object["status"]["warnings"].to_string();
    assert!(
        warnings.contains("no jugs, so no ExistingCustomResources (BUNDLE-INSTALL-130)"),
        "{warnings}"
    );
}
