//! Writes that RukPak rejects, and objects whose class does not exist. Covers E1 to E13, E16 and
//! E17 of `docs/reference/rukpak-scenarios.md`.

use e2e::{Cluster, Tool};
use serde_json::{Value, json};

use super::{PLAIN, bundle, deployment, image, stage};
use crate::scenarios::objects::{apply, get, until};

/// Applies an object that must be rejected, and returns the message.
async fn rejected(cluster: &Cluster, object: &Value) -> String {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let written = kubectl.args(["apply", "-f", "-"]).stdin(object.to_string());
    written.output().await.unwrap().failure(1).unwrap()
}

fn git(reference: &Value) -> Value {
    json!({"type": "git", "git": {
        "repository": "https://git.example.com/combo", "ref": reference,
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_and_changed_objects_are_rejected_with_the_texts_of_rukpak() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(0)).await;
    let web = image("registry.example.com/web:1");
    let class = "Invalid value: \"invalid/class-name\"";
    let mut wrong_bundle = bundle("combo", &web);
    wrong_bundle["spec"]["provisionerClassName"] = json!("invalid/class-name");
    let mut wrong_deployment = deployment("combo", PLAIN, &web);
    wrong_deployment["spec"]["provisionerClassName"] = json!("invalid/class-name");
    let mut two = web.clone();
    two["git"] = git(&json!({"branch": "main"}))["git"].take();
    let one_of =
        |found: &str| format!("must validate one and only one schema (oneOf). Found {found}");
    for (object, texts) in [
        (
            bundle(&"b".repeat(53), &web),
            vec!["may not be longer than 52".to_owned()],
        ),
        (bundle("combo", &two), vec![one_of("2 valid alternatives")]),
        (
            bundle("combo", &json!({"type": "image"})),
            vec![one_of("none valid")],
        ),
        (
            bundle("combo", &git(&json!({"branch": "main", "tag": "v1"}))),
            vec![
                "spec.source.git.ref".to_owned(),
                one_of("2 valid alternatives"),
            ],
        ),
        (
            bundle("combo", &git(&json!({}))),
            vec!["spec.source.git.ref".to_owned(), one_of("none valid")],
        ),
        (
            wrong_bundle,
            vec!["spec.provisionerClassName".to_owned(), class.to_owned()],
        ),
        (
            deployment(&"d".repeat(46), PLAIN, &web),
            vec!["may not be longer than 45".to_owned()],
        ),
        (
            wrong_deployment,
            vec!["spec.provisionerClassName".to_owned(), class.to_owned()],
        ),
        (
            deployment("combo", "invalid/class-name", &web),
            vec![
                "spec.template.spec.provisionerClassName".to_owned(),
                class.to_owned(),
            ],
        ),
        (
            bundle("combo", &json!({"type": "git", "image": web["image"]})),
            vec!["bundle.spec.source.git must be set for source type \"git\"".to_owned()],
        ),
        (
            bundle(
                "combo",
                &json!({"type": "image", "git": git(&json!({"tag": "v1"}))["git"]}),
            ),
            vec!["bundle.spec.source.image must be set for source type \"image\"".to_owned()],
        ),
    ] {
        let printed = rejected(&cluster, &object).await;
        for text in texts {
            assert!(printed.contains(&text), "expected `{text}` in `{printed}`");
        }
    }

    apply(&cluster, &bundle("combo", &web)).await;
    let other_source = bundle("combo", &image("registry.example.com/web:2"));
    let mut other_class = bundle("combo", &web);
    other_class["spec"]["provisionerClassName"] = json!("core-rukpak-io-helm");
    for changed in [other_source, other_class] {
        let printed = rejected(&cluster, &changed).await;
        assert!(
            printed.contains(
                "admission webhook \"vbundles.core.rukpak.io\" denied the request: bundle.spec is immutable"
            ),
            "{printed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_foreign_class_are_left_without_status() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(0)).await;
    let mut foreign = bundle("foreign", &image("registry.example.com/web:1"));
    foreign["spec"]["provisionerClassName"] = json!("non-existent-class-name");
    apply(&cluster, &foreign).await;
    // The Bundle `own` is reconciled after the Bundle `foreign`. Its condition shows that the pod
    // has processed the Bundle `foreign`.
    apply(&cluster, &bundle("own", &image("127.0.0.1:1/web:1"))).await;
    until(&cluster, "bundle own", "Unpacked", "False").await;
    let found = get(&cluster, "bundle foreign").await.unwrap();
    // The status has only the record of the admission, which RukPak does not have.
    let fields: Vec<&String> = found["status"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["admission"]);
}
