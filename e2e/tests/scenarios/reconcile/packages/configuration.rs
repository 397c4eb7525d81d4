//! Plain packages with a configuration: its values are validated and written into the objects.

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{KEY, apply_with};
use crate::scenarios::reconcile::{
    CONFIG, LONG, apply, bundle_of, condition, deployment, get, installed, kubectl, publish, stage,
    until_reason,
};

const SCHEMA: &str = r#"{"type": "object", "properties": {"text": {"type": "string", "maxLength": 8}}, "additionalProperties": false}"#;

/// Writes a package with one object. The configuration sets the text of this object.
fn write(folder: &std::path::Path) -> anyhow::Result<()> {
    bundle_of(folder, "web", CONFIG)?;
    let file = folder.join("bundle.yaml");
    let package = fs_err::read_to_string(&file)?;
    let config = "config: {schema: config.schema.json, default: config.yaml, patches: [{kind: ConfigMap, name: web, path: /data/text, value: /text}]}\n";
    fs_err::write(&file, package + config)?;
    fs_err::write(folder.join("config.schema.json"), SCHEMA)?;
    fs_err::write(folder.join("config.yaml"), "text: default\n")?;
    Ok(())
}

async fn has_text(cluster: &Cluster, text: &str) {
    wait::until_true(LONG, &format!("the object has the text {text}"), || async {
        let object = get(cluster, "configmap web -n team-a").await;
        Ok(object.is_some_and(|object| object["data"]["text"] == text))
    })
    .await
    .unwrap();
}

async fn configure(cluster: &Cluster, config: &Value) {
    let patch = json!({"spec": {"config": config}});
    let line = format!("patch bundledeployment web --type merge -p {patch}");
    kubectl(cluster, &line.replace(": ", ":")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_validated_and_changes_objects_in_place() {
    let (cluster, _webhook) = stage().await;
    let reference = publish(&cluster, "team/configured:1", write).await;
    kubectl(&cluster, "create namespace team-a").await;
    apply(&cluster, &deployment("web", &reference, &json!({}))).await;
    installed(&cluster, "web").await;
    has_text(&cluster, "default").await;
    let bundles = || async {
        let found = get(&cluster, "bundles").await.unwrap_or_default();
        let items = found["items"].as_array().cloned().unwrap_or_default();
        let names = items.iter().map(|item| item["metadata"]["name"].clone());
        names.collect::<Vec<_>>()
    };
    let before = bundles().await;

    configure(&cluster, &json!({"text": "first"})).await;
    has_text(&cluster, "first").await;

    configure(&cluster, &json!({"text": "much-too-long", "colour": "red"})).await;
    let what = "bundledeployment web";
    let message = until_reason(&cluster, what, "Installed", "InvalidConfiguration").await;
    for expected in [
        "spec.config.text: \"much-too-long\" is longer than 8 characters",
        "spec.config: Additional properties are not allowed ('colour' was unexpected)",
        "the schema of the configuration is config.schema.json in the bundle",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    has_text(&cluster, "first").await;

    configure(&cluster, &json!({"text": "second", "colour": null})).await;
    installed(&cluster, "web").await;
    has_text(&cluster, "second").await;
    let found = get(&cluster, what).await.unwrap();
    let warnings = &found["status"]["warnings"];
    assert!(warnings.is_null() || warnings == &json!([]), "{warnings}");
    assert_eq!(condition(&found, "Installed")["status"], "True");

    // A restored object has the configured value.
    kubectl(&cluster, "delete configmap web -n team-a").await;
    has_text(&cluster, "second").await;
    assert_eq!(bundles().await, before, "the content has not changed");

    // The content `other` has no configuration schema.
    let other = publish(&cluster, "team/plain:1", |folder| {
        let other = CONFIG.replace("name: web", "name: other");
        bundle_of(folder, "other", &other)
    });
    let more = json!({"config": {"text": "unused"}});
    apply(&cluster, &deployment("other", &other.await, &more)).await;
    installed(&cluster, "other").await;
    let found = get(&cluster, "bundledeployment other").await.unwrap();
    let warnings = found["status"]["warnings"].to_string();
    assert!(
        warnings.contains("spec.config is set and has no effect"),
        "{warnings}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_of_content_whose_key_was_removed_cannot_change() {
    let (cluster, _webhook) = stage().await;
    let reference = publish(&cluster, "team/revoked:1", write).await;
    kubectl(&cluster, "create namespace team-a").await;
    let first = json!({"config": {"text": "first"}});
    apply(&cluster, &deployment("web", &reference, &first)).await;
    installed(&cluster, "web").await;
    has_text(&cluster, "first").await;

    // The content has no signature of the only key that is accepted from now on.
    let host = cluster.registry(0).unwrap().host();
    let policy = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicy",
        "metadata": {"name": "revoked"},
        "spec": {
            "images": [{"glob": format!("{host}/team/revoked")}], "mode": "enforce",
            "authorities": [{"key": {"data": KEY}}],
        },
    });
    apply(&cluster, &policy).await;
    let second = deployment("web", &reference, &json!({"config": {"text": "second"}}));
    wait::until_true(LONG, "another configuration is rejected", || async {
        let written = apply_with(&cluster, &second, &["--dry-run=server"]).await;
        Ok(!written.is_success())
    })
    .await
    .unwrap();
    let refused = apply_with(&cluster, &second, &[]).await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-TRUST-"), "{refused}");

    // Other settings can change, and drift is corrected.
    let third = json!({"config": {"text": "first"}, "rollout": {"history": 1}});
    apply(&cluster, &deployment("web", &reference, &third)).await;
    kubectl(&cluster, "delete configmap web -n team-a").await;
    has_text(&cluster, "first").await;
    installed(&cluster, "web").await;
}
