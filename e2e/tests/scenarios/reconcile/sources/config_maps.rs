//! Content from ConfigMaps of the system namespace: installed, pinned to the first version, and
//! rejected if a ConfigMap is mutable.

use e2e::webhook::NAMESPACE;
use e2e::webhook::shared;
use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{apply_as, try_kubectl};
use crate::scenarios::reconcile::{
    CLASS, LONG, apply, condition, get, installed, kubectl, stage, until,
};

/// Returns a ConfigMap of the system namespace.
fn config_map(name: &str, immutable: bool, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "immutable": immutable.then_some(true),
        "data": data,
    })
}

/// Returns the manifests of a bundle with one ConfigMap `name` in namespace default.
fn manifests(name: &str, text: &str) -> Value {
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{text: {text}}}\n"
    );
    json!({ "all.yaml": object })
}

fn spec(class: &str, parts: &[(&str, &str)]) -> Value {
    let parts = parts
        .iter()
        .map(|(name, path)| json!({"configMap": {"name": name}, "path": path}));
    let source = json!({"type": "configMaps", "configMaps": parts.collect::<Vec<_>>()});
    json!({"provisionerClassName": class, "source": source})
}

fn bundle(name: &str, class: &str, parts: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": spec(class, parts),
    })
}

fn deployment(name: &str, parts: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "template": {"metadata": {"labels": {"app": name}}, "spec": spec(CLASS, parts)}},
    })
}

pub(super) async fn until_text(cluster: &Cluster, name: &str, text: &str) {
    wait::until_true(LONG, &format!("{name} has the text {text}"), || async {
        let found = get(cluster, &format!("configmap {name} -n default")).await;
        Ok(found.is_some_and(|found| found["data"]["text"] == text))
    })
    .await
    .unwrap();
}

/// Returns a class for plain manifests with additional fields.
pub(super) fn class(name: &str, more: &Value) -> Value {
    let mut spec = json!({
        "provisioner": "core.rukpak.io/plain",
        "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass", "metadata": {"name": name}, "spec": spec})
}

/// Waits until the Bundle fails, and returns the message of its condition.
async fn until_failing(cluster: &Cluster, name: &str) -> String {
    let what = format!("bundle {name}");
    let message = until(cluster, &what, "Unpacked", "False").await;
    let found = get(cluster, &what).await.unwrap();
    assert_eq!(found["status"]["phase"], "Failing", "{message}");
    assert_eq!(found["status"]["resolvedSource"], Value::Null);
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_config_maps_is_installed_and_recreated_ones_are_not_followed() {
    let (cluster, mut webhook) = stage().await;
    let package = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: cmsource\nversion: 1.4.0\nformat: plain+v0\n";
    let first = config_map("cmsource-files", true, &manifests("cmsource", "first"));
    let more = config_map("cmsource-package", true, &json!({"bundle.yaml": package}));
    apply(&cluster, &first).await;
    apply(&cluster, &more).await;
    let parts = [("cmsource-files", "manifests"), ("cmsource-package", "")];
    apply(&cluster, &deployment("cmsource", &parts)).await;
    installed(&cluster, "cmsource").await;
    until_text(&cluster, "cmsource", "first").await;
    let name = kubectl(&cluster, "get bundles -l app=cmsource -o name").await;
    let name = name.trim().replace("bundle.core.rukpak.io/", "bundle ");
    let unpacked = get(&cluster, &name).await.unwrap();
    let status = &unpacked["status"];
    assert_eq!(status["phase"], "Unpacked");
    assert_eq!(status["resolvedSource"], unpacked["spec"]["source"]);
    assert_eq!(status["content"]["version"], "1.4.0");
    assert_eq!(condition(&unpacked, "Verified")["reason"], "NotRequired");
    let digest = status["content"]["digest"].as_str().unwrap().to_owned();
    let object = get(&cluster, "bundledeployment cmsource").await.unwrap();
    assert_eq!(object["status"]["installed"]["digest"], digest);

    // A user deletes the ConfigMap and creates it with other data. The other data is reported and
    // not installed.
    kubectl(
        &cluster,
        &format!("delete configmap cmsource-files -n {NAMESPACE}"),
    )
    .await;
    let reported = until(&cluster, &name, "SourceMoved", "Unknown").await;
    assert!(
        reported.contains(r#"ConfigMap "cmsource-files" not found"#),
        "{reported}"
    );
    let second = config_map("cmsource-files", true, &manifests("cmsource", "second"));
    apply(&cluster, &second).await;
    let reported = until(&cluster, &name, "SourceMoved", "True").await;
    assert!(reported.contains(&digest), "{reported}");

    // After the loss of the cache, the pod still does not install the changed data.
    webhook.kill().unwrap();
    let cache = format!("webhook-{}", webhook.address().port());
    fs_err::remove_dir_all(cluster.folder().join("data").join(cache)).unwrap();
    kubectl(&cluster, "delete configmap cmsource -n default").await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the other data is refused", || async {
        let object = get(&cluster, "bundledeployment cmsource").await;
        let conditions = object.unwrap_or_default()["status"]["conditions"].to_string();
        Ok(conditions.contains("only the recorded content is accepted"))
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, "configmap cmsource -n default").await, None);
    let now = get(&cluster, &name).await.unwrap();
    assert_eq!(now["status"]["content"]["digest"], digest);

    // A ConfigMap with the same data and another uid has the same content.
    kubectl(
        &cluster,
        &format!("delete configmap cmsource-files -n {NAMESPACE}"),
    )
    .await;
    apply(&cluster, &first).await;
    until_text(&cluster, "cmsource", "first").await;
    until(&cluster, &name, "SourceMoved", "False").await;

    // Other ConfigMaps are other content, which is installed like an upgrade.
    let other = config_map("cmsource-files-2", true, &manifests("cmsource", "third"));
    apply(&cluster, &other).await;
    let parts = [("cmsource-files-2", "manifests"), ("cmsource-package", "")];
    apply(&cluster, &deployment("cmsource", &parts)).await;
    until_text(&cluster, "cmsource", "third").await;
    installed(&cluster, "cmsource").await;
    kubectl(&cluster, "delete bundledeployment cmsource").await;
    assert_eq!(get(&cluster, "configmap cmsource -n default").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_missing_config_map_fails_until_it_exists_and_is_immutable() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "cmsource-late";
    apply(&cluster, &bundle(name, CLASS, &[(name, "manifests")])).await;
    let reported = until_failing(&cluster, name).await;
    let text = format!(
        r#"source bundle content: get configmap {NAMESPACE}/{name}: ConfigMap "{name}" not found"#
    );
    assert!(reported.contains(&text), "{reported}");
    // A mutable ConfigMap that was created after the review is rejected.
    let data = manifests(name, "hello");
    apply(&cluster, &config_map(name, false, &data)).await;
    wait::until_true(LONG, "the mutable ConfigMap is refused", || async {
        let found = get(&cluster, &format!("bundle {name}")).await;
        let reported = condition(&found.unwrap_or_default(), "Unpacked").to_string();
        Ok(reported.contains("is not immutable"))
    })
    .await
    .unwrap();
    apply(&cluster, &config_map(name, true, &data)).await;
    until(&cluster, &format!("bundle {name}"), "Unpacked", "True").await;
    kubectl(&cluster, &format!("delete bundle {name}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_config_maps_without_valid_content_fails() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let text = json!({"all.yaml": "no object\n"});
    apply(&cluster, &config_map("cmsource-text", true, &text)).await;
    let one = "cmsource-invalid";
    apply(
        &cluster,
        &bundle(one, CLASS, &[("cmsource-text", "manifests")]),
    )
    .await;
    let reported = until_failing(&cluster, one).await;
    assert!(reported.contains("manifests/all.yaml"), "{reported}");
    let data = manifests("cmsource-twice", "hello");
    for name in ["cmsource-one", "cmsource-two"] {
        apply(&cluster, &config_map(name, true, &data)).await;
    }
    let parts = [("cmsource-two", "manifests"), ("cmsource-one", "manifests")];
    apply(&cluster, &bundle("cmsource-twice", CLASS, &parts)).await;
    let reported = until_failing(&cluster, "cmsource-twice").await;
    let text =
        r#"duplicate path "manifests/all.yaml" found in configmaps [cmsource-one cmsource-two]"#;
    assert!(reported.contains(text), "{reported}");
    kubectl(&cluster, "delete bundle cmsource-invalid cmsource-twice").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_mutable_config_maps_and_those_under_required_signatures() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "cmsource-refused";
    apply(
        &cluster,
        &config_map(name, false, &manifests(name, "hello")),
    )
    .await;
    for (name, more) in [
        ("cmsource-signed", json!({"signatures": "Required"})),
        ("cmsource-images", json!({"sources": {"types": ["image"]}})),
    ] {
        apply(&cluster, &class(name, &more)).await;
    }
    for (class, code) in [
        (CLASS, "is not immutable"),
        ("cmsource-signed", "BUNDLE-TRUST-006"),
        ("cmsource-images", "configMaps"),
    ] {
        let object = bundle(name, class, &[(name, "manifests")]);
        wait::until_true(LONG, &format!("{class} refuses it"), || async {
            let written = apply_as(&cluster, &object, None).await;
            let refused = written.failure(1);
            Ok(refused.is_ok_and(|reported| reported.contains(code)))
        })
        .await
        .unwrap();
    }
    assert_eq!(get(&cluster, &format!("bundle {name}")).await, None);
    try_kubectl(
        &cluster,
        "delete provisionerclass cmsource-signed cmsource-images",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_config_map_that_the_requester_cannot_read() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "cmsource-secret";
    let user = "cmsource-mallory";
    for role in ["bundle-editor", "bundle-user"] {
        let line =
            format!("create clusterrolebinding {user}-{role} --clusterrole={role} --user={user}");
        kubectl(&cluster, &line).await;
    }
    let object = bundle(name, CLASS, &[(name, "manifests")]);
    // The response must not reveal whether the ConfigMap exists.
    let refusal = async || {
        wait::until(LONG, "the Bundle is refused", || async {
            let written = apply_as(&cluster, &object, Some(user)).await;
            let reported = written.failure(1)?;
            Ok(reported.contains("BUNDLE-REVIEW-070").then_some(reported))
        })
        .await
        .unwrap()
    };
    let missing = refusal().await;
    apply(
        &cluster,
        &config_map(name, false, &manifests(name, "hello")),
    )
    .await;
    assert_eq!(refusal().await, missing);
    kubectl(&cluster, &format!("delete configmap {name} -n {NAMESPACE}")).await;

    // Permissions that were withdrawn between review and unpacking are not used.
    let grant = [
        format!(
            "create role {name} -n {NAMESPACE} --verb=get --resource=configmaps --resource-name={name}"
        ),
        format!("create rolebinding {name} -n {NAMESPACE} --role={name} --user={user}"),
    ];
    for line in &grant {
        kubectl(&cluster, line).await;
    }
    wait::until_true(LONG, "the Bundle is admitted", || async {
        Ok(apply_as(&cluster, &object, Some(user)).await.is_success())
    })
    .await
    .unwrap();
    let reported = until_failing(&cluster, name).await;
    assert!(reported.contains("not found"), "{reported}");
    kubectl(
        &cluster,
        &format!("delete rolebinding {name} -n {NAMESPACE}"),
    )
    .await;
    let line = format!("auth can-i get configmaps/{name} -n {NAMESPACE} --as={user}");
    wait::until_true(LONG, "the right is withdrawn", || async {
        Ok(!try_kubectl(&cluster, &line).await.is_success())
    })
    .await
    .unwrap();
    apply(&cluster, &config_map(name, true, &manifests(name, "hello"))).await;
    wait::until_true(LONG, "the missing permission is reported", || async {
        let found = get(&cluster, &format!("bundle {name}")).await;
        let reported = condition(&found.unwrap_or_default(), "Unpacked").to_string();
        Ok(reported.contains("has no permission to read the source"))
    })
    .await
    .unwrap();
    kubectl(&cluster, &grant[1]).await;
    until(&cluster, &format!("bundle {name}"), "Unpacked", "True").await;

    // A user without permission to read the ConfigMap must not obtain its current data. The
    // comparison with the source would reveal this data.
    let line = format!("delete rolebinding {name} -n {NAMESPACE}");
    kubectl(&cluster, &line).await;
    wait::until_true(LONG, "the comparison is refused", || async {
        let found = get(&cluster, &format!("bundle {name}")).await;
        let reported = condition(&found.unwrap_or_default(), "SourceMoved").to_string();
        Ok(reported.contains("has no permission to read the source"))
    })
    .await
    .unwrap();
    kubectl(&cluster, &format!("delete bundle {name}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admitted_config_maps_are_rejected_after_the_class_requires_signatures() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "cmsource-stricter";
    apply(&cluster, &class(name, &json!({}))).await;
    let object = bundle(name, name, &[(name, "manifests")]);
    wait::until_true(LONG, "the Bundle is admitted", || async {
        Ok(apply_as(&cluster, &object, None).await.is_success())
    })
    .await
    .unwrap();
    until_failing(&cluster, name).await;
    apply(&cluster, &class(name, &json!({"signatures": "Required"}))).await;
    apply(&cluster, &config_map(name, true, &manifests(name, "hello"))).await;
    let what = format!("bundle {name}");
    wait::until_true(LONG, "the Bundle is refused", || async {
        let found = get(&cluster, &what).await.unwrap_or_default();
        let reported = condition(&found, "Unpacked").to_string();
        Ok(reported.contains("cannot be signed")
            && condition(&found, "Verified")["status"] == "False")
    })
    .await
    .unwrap();
    assert_eq!(
        get(&cluster, &what).await.unwrap()["status"]["content"],
        Value::Null
    );
    apply(&cluster, &class(name, &json!({"signatures": "IfPolicy"}))).await;
    until(&cluster, &what, "Unpacked", "True").await;
    kubectl(&cluster, &format!("delete {what}")).await;
    kubectl(&cluster, &format!("delete provisionerclass {name}")).await;
}
