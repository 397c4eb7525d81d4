//! Updates of CustomResourceDefinitions by clients other than the pod. Covers E66 to E71, RukPak's
//! `crdvalidator`, of `docs/reference/rukpak-scenarios.md`.

use e2e::host::command::Output;
use e2e::{Cluster, wait};
use serde_json::{Value, json};

use super::{NAMESPACE, PLAIN, deployment, image, log_in, push, stage};
use crate::scenarios::objects::{apply, apply_as, condition, get, kubectl, try_kubectl, until};

const GROUP: &str = "crdguard.example.com";

/// Returns a definition with a field `litres` of this schema.
fn definition(plural: &str, litres: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.trim_end_matches('s').to_uppercase()},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"litres": litres}},
                }}},
            }],
        },
    })
}

/// Patches a definition as `user`, or as the administrator.
async fn patch(cluster: &Cluster, plural: &str, operations: &Value, user: Option<&str>) -> Output {
    let user = user.map_or(String::new(), |user| format!(" --as={user}"));
    let line = format!("patch crd {plural}.{GROUP} --type=json --patch={operations}{user}");
    try_kubectl(cluster, &line).await
}

fn set(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

/// Returns a change that can break existing objects.
fn breaking() -> Value {
    set(&format!("{SPEC}/required"), &json!(["litres"]))
}

/// Returns the change that adds a version with the schema of the existing version.
fn new_version() -> Value {
    let spec = definition("kegs", &json!({"type": "integer"}))["spec"].take();
    let mut version = spec["versions"][0].clone();
    version["name"] = "v1alpha2".into();
    version["storage"] = false.into();
    set("/spec/versions/-", &version)
}

async fn allowed(cluster: &Cluster, plural: &str, operations: &Value) {
    let output = patch(cluster, plural, operations, None).await;
    output.success().unwrap();
}

/// Returns the message of a rejected update of `kegs`.
async fn rejected(cluster: &Cluster, operations: &Value, user: Option<&str>) -> String {
    let output = patch(cluster, "kegs", operations, user).await;
    output.failure(1).unwrap()
}

/// Deploys content with the definition `kegs`, as BundleDeployment `kegs`. Returns the reference of
/// the content.
async fn install(cluster: &Cluster, paused: bool) -> String {
    log_in(cluster).await;
    let kegs = definition("kegs", &json!({"type": "integer", "maximum": 9}));
    let files = [("manifests/kegs.yaml", &*kegs.to_string())];
    let reference = push(cluster, "team/kegs:1", &files).await;
    let mut object = deployment("kegs", PLAIN, &image(&reference));
    apply(cluster, &object).await;
    until(cluster, "bundledeployment kegs", "Installed", "True").await;
    if paused {
        // The pod does not restore the definition between two updates.
        object["spec"]["paused"] = true.into();
        apply(cluster, &object).await;
        until_paused(cluster).await;
    }
    reference
}

async fn until_paused(cluster: &Cluster) {
    let what = "the deployment is paused";
    wait::until_true(std::time::Duration::from_secs(90), what, || async {
        let object = get(cluster, "bundledeployment kegs")
            .await
            .unwrap_or_default();
        let reasons =
            ["Ready", "Progressing"].map(|kind| condition(&object, kind)["reason"].clone());
        Ok(reasons.contains(&json!("Paused")))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_updates_of_installed_definitions_are_rejected_and_of_others_admitted() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(1)).await;
    install(&cluster, true).await;
    let integer = json!({"type": "integer"});
    for plural in ["mugs", "cups"] {
        apply(&cluster, &definition(plural, &integer)).await;
    }

    // E66, E69: updates of definitions that no BundleDeployment has installed are not checked.
    allowed(&cluster, "mugs", &new_version()).await;
    allowed(&cluster, "mugs", &breaking()).await;
    // A forged label does not block the administrator.
    let labels = "core.rukpak.io/owner-kind=BundleDeployment core.rukpak.io/owner-name=kegs";
    kubectl(&cluster, &format!("label crd cups.{GROUP} {labels}")).await;
    allowed(&cluster, "cups", &breaking()).await;

    // E67: a safe update of an installed definition is allowed.
    let maximum = json!([{"op": "remove", "path": format!("{SPEC}/properties/litres/maximum")}]);
    allowed(&cluster, "kegs", &maximum).await;
    allowed(&cluster, "kegs", &new_version()).await;

    // E68: an unsafe update is rejected, also if the update removes the label or if another
    // ServiceAccount sends the update.
    let message = rejected(&cluster, &breaking(), None).await;
    for text in [
        r#"failed to validate safety of UPDATE for CRD "kegs.crdguard.example.com" (NOTE: to disable this validation, set the "core.rukpak.io/safe-crd-upgrade-validation" annotation to "false"): "#,
        r#"error validating existing CRs against new CRD's schema for "kegs.crdguard.example.com": "#,
        "new required fields added: [litres]",
        "BUNDLE-REVIEW-075",
    ] {
        assert!(message.contains(text), "{message}");
    }
    let mut unlabelled = breaking();
    let labels = json!([{"op": "remove", "path": "/metadata/labels"}]);
    unlabelled
        .as_array_mut()
        .unwrap()
        .extend(labels.as_array().unwrap().clone());
    let message = rejected(&cluster, &unlabelled, None).await;
    assert!(message.contains("BUNDLE-REVIEW-075"), "{message}");
    let line = "create clusterrolebinding rogue --clusterrole=cluster-admin --serviceaccount=default:installer";
    kubectl(&cluster, line).await;
    let other = "system:serviceaccount:default:installer";
    let message = rejected(&cluster, &breaking(), Some(other)).await;
    assert!(message.contains("BUNDLE-REVIEW-075"), "{message}");
    let kegs = get(&cluster, "crd kegs.crdguard.example.com")
        .await
        .unwrap();
    assert_eq!(kegs.pointer(&format!("{SPEC}/required")), None);

    // E71: the API server itself rejects the removal of a stored version.
    let renamed = json!([
        {"op": "replace", "path": "/spec/versions/0/name", "value": "v1alpha3"},
    ]);
    let message = rejected(&cluster, &renamed, None).await;
    assert!(message.contains("v1alpha1"), "{message}");

    // An exception of the BundleDeployment is also valid for updates by other users.
    let exception =
        json!({"crd": "kegs.crdguard.example.com", "check": "Required", "reason": "no kegs exist"});
    let exceptions = json!({"spec": {"crdUpgrades": {"exceptions": [exception]}}}).to_string();
    let exceptions = exceptions.replace(' ', "\\u0020");
    let line = format!("patch bundledeployment kegs --type=merge --patch={exceptions}");
    kubectl(&cluster, &line).await;
    let output = patch(&cluster, "kegs", &breaking(), None).await;
    let warnings = output.stderr.clone();
    output.success().unwrap();
    assert!(warnings.contains("no kegs exist"), "{warnings}");

    // E70: the annotation disables the checks.
    let annotation = "core.rukpak.io/safe-crd-upgrade-validation=false";
    let line = format!("annotate crd kegs.{GROUP} {annotation}");
    kubectl(&cluster, &line).await;
    let stricter = set(&format!("{SPEC}/properties/litres/minimum"), &json!(5));
    allowed(&cluster, "kegs", &stricter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_restores_a_definition_that_it_must_make_stricter_again() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(1)).await;
    install(&cluster, false).await;
    let line = format!(
        "create clusterrolebinding other --clusterrole=cluster-admin --serviceaccount={NAMESPACE}:other"
    );
    kubectl(&cluster, &line).await;
    // The installing ServiceAccount adds the limit again, which no other user can do.
    let maximum = json!([{"op": "remove", "path": format!("{SPEC}/properties/litres/maximum")}]);
    allowed(&cluster, "kegs", &maximum).await;
    let restored = format!("{SPEC}/properties/litres/maximum");
    let what = "the definition is restored";
    wait::until_true(std::time::Duration::from_secs(90), what, || async {
        let kegs = get(&cluster, "crd kegs.crdguard.example.com").await;
        Ok(kegs.unwrap_or_default().pointer(&restored) == Some(&json!(9)))
    })
    .await
    .unwrap();
    // A server-side apply of another client with the same field manager is reviewed.
    let mut stricter = definition("kegs", &json!({"type": "integer", "maximum": 3}));
    stricter["metadata"]["labels"] = json!({"core.rukpak.io/owner-kind": "BundleDeployment"});
    let user = format!("system:serviceaccount:{NAMESPACE}:other");
    let message = apply_as(&cluster, &stricter, Some(&user)).await;
    let message = message.failure(1).unwrap();
    assert!(message.contains("BUNDLE-REVIEW-075"), "{message}");
}
