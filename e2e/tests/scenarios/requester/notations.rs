//! Updates by users with permission to update objects of other users, but without the verb
//! `manage`. The updates do not change the meaning of an object, but could increment its generation
//! or change the records of its installation.

use e2e::{Output, Tool};

use super::*;

/// Creates the tenants `owner` and `editor`. Both tenants have permission to edit all objects of
/// the project's kinds.
async fn owner_and_editor(cluster: &Cluster, owner: &str, editor: &str) {
    for user in [owner, editor] {
        tenant(cluster, user, &json!([])).await;
    }
}

async fn patch_as(cluster: &Cluster, user: &str, what: [&str; 2], patch: &Value) -> Output {
    let (patch, user) = (format!("--patch={patch}"), format!("--as={user}"));
    let [kind, name] = what;
    let line = ["patch", kind, name, "--type=merge", &patch, &user];
    cluster.kubectl(line).await.unwrap()
}

/// Replaces a BundleDeployment as `user`, with the float `5.0` instead of `5` in
/// `spec.rollout.history`. Retries after conflicts with writes of the pod. Returns the object
/// before the write.
async fn replace_with_float(cluster: &Cluster, name: &str, user: &str) -> Value {
    let path = format!("/apis/core.rukpak.io/v1alpha1/bundledeployments/{name}");
    let (what, user) = (format!("bundledeployment {name}"), format!("--as={user}"));
    wait::until(LONG, "the BundleDeployment is replaced", || async {
        let Some(before) = try_get(cluster, &what).await? else {
            anyhow::bail!("it is not there");
        };
        let mut replacement = before.clone();
        replacement["spec"]["rollout"]["history"] = json!(5.0);
        let text = replacement.to_string();
        assert!(text.contains(r#""history":5.0"#), "{text}");
        let kubectl = cluster.tool(Tool::Kubectl).await?;
        let replaced = kubectl
            .args(["replace", "--raw", &path, "-f", "-", &user])
            .stdin(text);
        replaced.output().await?.success()?;
        Ok(Some(before))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn float_in_the_place_of_an_integer_keeps_the_generation() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (owner, editor) = ("notation-float", "notation-float-editor");
    owner_and_editor(&cluster, owner, editor).await;
    let five = json!({"rollout": {"history": 5}});
    deploy(&cluster, owner, owner, &[note(owner, "one")], &five).await;
    until(&cluster, owner, "Installed", "True").await;
    // The test writes twice, because two increments of the generation would make the seal invalid.
    for _ in 0..2 {
        let before = replace_with_float(&cluster, owner, editor).await;
        let what = format!("bundledeployment {owner}");
        let after = get(&cluster, &what).await.unwrap();
        let generation = |object: &Value| object["metadata"]["generation"].clone();
        assert_eq!(generation(&after), generation(&before), "{after}");
        assert_eq!(after["spec"], before["spec"]);
    }
    until(&cluster, owner, "Installed", "True").await;
    let line = format!("delete bundledeployment {owner} --timeout=60s --as={owner}");
    let deleted = try_kubectl(&cluster, &line).await;
    deleted.success().unwrap();
    let what = format!("configmap one -n {owner}");
    assert_eq!(get(&cluster, &what).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_requester_writes_the_spec_of_a_bundle_in_another_notation() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (owner, editor) = ("notation-bundle", "notation-bundle-editor");
    owner_and_editor(&cluster, owner, editor).await;
    let reference = publish(&cluster, owner, &[note(owner, "one")]).await;
    let bundle = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": owner},
        "spec": {"provisionerClassName": CLASS, "source": {"type": "image", "image": {"ref": reference}}},
    });
    let created = apply_as(&cluster, &bundle, Some(owner)).await;
    created.success().unwrap();
    let what = ["bundle", owner];
    let empty = json!({"spec": {"source": {"image": {"pullSecret": ""}}}});
    let refused = patch_as(&cluster, editor, what, &empty).await;
    let refused = refused.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    let guard = format!("has no permission to delete or change Bundle {owner}");
    assert!(refused.contains(&guard), "{refused}");
    // A change of the meaning is rejected with RukPak's message.
    let other = json!({"spec": {"source": {"image": {"ref": "registry.example.com/other:1"}}}});
    let refused = patch_as(&cluster, editor, what, &other).await;
    let refused = refused.failure(1).unwrap();
    assert!(refused.contains("bundle.spec is immutable"), "{refused}");
    let found = get(&cluster, &format!("bundle {owner}")).await.unwrap();
    assert_eq!(found["metadata"]["generation"], 1);
    let written = patch_as(&cluster, owner, what, &empty).await;
    written.success().unwrap();
    let phase = format!("bundle {owner}");
    until_condition(&cluster, &phase, "Unpacked", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_requester_changes_the_applyset_of_a_deployment() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (owner, editor) = ("notation-applyset", "notation-applyset-editor");
    owner_and_editor(&cluster, owner, editor).await;
    // Nothing is installed, so no inventory exists.
    let paused = json!({"paused": true});
    deploy(&cluster, owner, owner, &[note(owner, "one")], &paused).await;
    let what = ["bundledeployment", owner];
    for metadata in [
        json!({"annotations": {"applyset.kubernetes.io/contains-group-kinds": "ConfigMap"}}),
        json!({"labels": {"applyset.kubernetes.io/id": "another"}}),
    ] {
        let patch = json!({"metadata": metadata});
        let refused = patch_as(&cluster, editor, what, &patch).await;
        let refused = refused.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    }
    let other = json!({"metadata": {"annotations": {"example.com/note": "a"}}});
    let written = patch_as(&cluster, editor, what, &other).await;
    written.success().unwrap();
    let line = format!("delete bundledeployment {owner} --timeout=60s --as={owner}");
    let deleted = try_kubectl(&cluster, &line).await;
    deleted.success().unwrap();
}
