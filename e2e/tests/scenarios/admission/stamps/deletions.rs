//! Deletions while the registrations were missing. These deletions were not reviewed, so they wait
//! until a user admits them.

use super::*;

const NAME: &str = "ungoverned";

/// Installs a BundleDeployment with one ConfigMap. Grants Mallory only the verb `delete` on
/// BundleDeployments.
async fn prepared(cluster: &Cluster) {
    let (_, one) = publish(cluster, NAME, "1.0.0").await;
    apply(cluster, &deployment(NAME, &one, &json!({}))).await;
    until(
        cluster,
        &format!("bundledeployment {NAME}"),
        "Installed",
        "True",
    )
    .await;
    for line in [
        "create clusterrole deleter --verb=delete --resource=bundledeployments.core.rukpak.io",
        "create clusterrolebinding deleter --clusterrole=deleter --user=mallory",
    ] {
        kubectl(cluster, line).await;
    }
}

async fn message(cluster: &Cluster) -> String {
    let object = get(cluster, &format!("bundledeployment {NAME}")).await;
    let object = object.unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|found| found["type"] == "Ready");
    ready.map_or_else(String::new, |found| {
        found["message"].as_str().unwrap_or_default().to_owned()
    })
}

async fn until_removed(cluster: &Cluster) {
    let what = format!("bundledeployment {NAME}");
    wait::until_true(LONG, "it is removed", || async {
        if get(cluster, &what).await.is_none() {
            return Ok(true);
        }
        anyhow::bail!("{}", message(cluster).await)
    })
    .await
    .unwrap();
    assert_eq!(
        get(cluster, &format!("configmap {NAME} -n team-a")).await,
        None
    );
}

/// Waits until the condition reports an unreviewed deletion, and returns the message. Panics if the
/// ConfigMap is deleted during the wait.
async fn until_reported(cluster: &Cluster) -> String {
    wait::until(LONG, "the deletion waits", || async {
        let note = get(cluster, &format!("configmap {NAME} -n team-a")).await;
        assert!(note.is_some(), "the deletion was carried out");
        let reported = message(cluster).await;
        if reported.contains("BUNDLE-INSTALL-051") && reported.contains("core.rukpak.io/admit=") {
            return Ok(Some(reported));
        }
        anyhow::bail!("{reported}")
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_made_while_admission_was_off_waits_until_a_user_admits_it() {
    let (cluster, mut webhook) = stage().await;
    prepared(&cluster).await;
    admission_off(&cluster).await;
    kubectl(
        &cluster,
        &format!("delete bundledeployment {NAME} --wait=false --as=mallory"),
    )
    .await;
    until_reported(&cluster).await;
    admission_on(&webhook).await;
    webhook.restart().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
    let reported = until_reported(&cluster).await;
    // An edit by an administrator does not admit the deletion.
    let patch = r#"{"spec":{"drift":{"mode":"Report"}}}"#;
    kubectl(
        &cluster,
        &format!("patch bundledeployment {NAME} --type=merge --patch={patch}"),
    )
    .await;
    wait::until_true(LONG, "the hint is for the new spec", || async {
        let now = until_reported(&cluster).await;
        Ok(admit_token(&now) != admit_token(&reported))
    })
    .await
    .unwrap();
    let admit = format!(
        "annotate --overwrite bundledeployment {NAME} core.rukpak.io/admit={}",
        admit_token(&message(&cluster).await)
    );
    kubectl(&cluster, &admit).await;
    until_removed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_made_without_admission_and_webhook_waits_too() {
    let (cluster, mut webhook) = stage().await;
    prepared(&cluster).await;
    webhook.kill().unwrap();
    for kind in ["validating", "mutating"] {
        let line = format!("delete {kind}webhookconfiguration bundle-webhook");
        kubectl(&cluster, &line).await;
    }
    let delete = format!("delete bundledeployment {NAME} --wait=false --as=mallory");
    kubectl(&cluster, &delete).await;
    webhook.register().await.unwrap();
    webhook.start().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
    let reported = until_reported(&cluster).await;
    let admit = format!(
        "annotate bundledeployment {NAME} core.rukpak.io/admit={}",
        admit_token(&reported)
    );
    kubectl(&cluster, &admit).await;
    until_removed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_was_reviewed_is_carried_out_after_a_later_gap_and_a_restart() {
    let (cluster, mut webhook) = stage().await;
    prepared(&cluster).await;
    let finalizers = |list: &str| {
        format!(
            "patch configmap {NAME} -n team-a --type=merge --patch={{\"metadata\":{{\"finalizers\":{list}}}}}"
        )
    };
    kubectl(&cluster, &finalizers(r#"["example.com/hold"]"#)).await;
    kubectl(
        &cluster,
        &format!("delete bundledeployment {NAME} --wait=false"),
    )
    .await;
    wait::until_true(LONG, "the removal waits for the finalizer", || async {
        Ok(message(&cluster).await.contains("example.com/hold"))
    })
    .await
    .unwrap();
    admission_off(&cluster).await;
    admission_on(&webhook).await;
    webhook.restart().await.unwrap();
    kubectl(&cluster, &finalizers("null")).await;
    until_removed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_shortly_after_a_gap_is_rejected_until_it_removes_installed_objects() {
    let (cluster, webhook) = stage().await;
    prepared(&cluster).await;
    let delete = format!("delete bundledeployment {NAME} --wait=false");
    // The webhook rejects deletions only for a few seconds after a gap in the registrations. On a
    // busy machine, the deletion can come later, so each attempt begins with another gap.
    let early = wait::until(LONG, "a deletion is rejected", || async {
        admission_off(&cluster).await;
        admission_on(&webhook).await;
        let tried = try_kubectl(&cluster, &format!("{delete} --dry-run=server")).await;
        anyhow::ensure!(!tried.is_success(), "{tried}");
        Ok(Some(tried))
    })
    .await
    .unwrap();
    for part in ["BUNDLE-REVIEW-064", "delete the BundleDeployment again in"] {
        assert!(early.stderr.contains(part), "{early}");
    }
    wait::until_true(LONG, "a deletion is taken", || async {
        Ok(try_kubectl(&cluster, &delete).await.is_success())
    })
    .await
    .unwrap();
    until_removed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_of_unsealed_content_waits_until_a_user_admits_it() {
    let (cluster, webhook) = stage().await;
    prepared(&cluster).await;
    admission_off(&cluster).await;
    let patch = r#"{"spec":{"deletion":{"customResources":"Delete"}}}"#;
    let line = format!("patch bundledeployment {NAME} --type=merge --patch={patch}");
    kubectl(&cluster, &line).await;
    admission_on(&webhook).await;
    // The clocks of the API server and the pod can differ. The wait is longer than the allowed
    // difference, so the pod can conclude that the deletion came after the gap in the
    // registrations.
    wait_until_stamps_expire().await;
    let line = format!("delete bundledeployment {NAME} --wait=false");
    kubectl(&cluster, &line).await;
    let reported = wait::until(LONG, "the removal waits", || async {
        let note = get(&cluster, &format!("configmap {NAME} -n team-a")).await;
        assert!(note.is_some(), "the objects were removed");
        let object = get(&cluster, &format!("bundledeployment {NAME}")).await;
        let reported = object.unwrap_or_default()["status"]["conditions"].to_string();
        Ok(reported.contains("RemovalRefused").then_some(reported))
    })
    .await
    .unwrap();
    assert!(reported.contains("BUNDLE-REVIEW-025"), "{reported}");
    let admit = format!(
        "annotate bundledeployment {NAME} core.rukpak.io/admit={}",
        admit_token(&reported)
    );
    kubectl(&cluster, &admit).await;
    until_removed(&cluster).await;
}

/// User name of the garbage collector of Kubernetes.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// Creates a ClusterRole, and returns a patch that makes the ClusterRole the owner of an object.
async fn owner(cluster: &Cluster, name: &str) -> Value {
    let line = format!("create clusterrole {name} --verb=get --resource=pods");
    kubectl(cluster, &line).await;
    let found = get(cluster, &format!("clusterrole {name}")).await.unwrap();
    let uid = &found["metadata"]["uid"];
    let kind = ("rbac.authorization.k8s.io/v1", "ClusterRole");
    json!({"metadata": {"ownerReferences": [{"apiVersion": kind.0, "kind": kind.1, "name": name, "uid": uid}]}})
}

async fn patch(cluster: &Cluster, what: &str, patch: &Value) {
    let line = format!("patch {what} --type=merge --patch={patch}");
    kubectl(cluster, &line).await;
}

/// Deletes the ClusterRole, and waits until the garbage collector has deleted a ConfigMap that the
/// ClusterRole owned.
async fn collect(cluster: &Cluster, role: &str, owned: &Value) {
    kubectl(cluster, "create configmap collected -n team-a").await;
    patch(cluster, "configmap collected -n team-a", owned).await;
    kubectl(cluster, &format!("delete clusterrole {role}")).await;
    wait::until_true(LONG, "the garbage collector has seen it", || async {
        let left = get(cluster, "configmap collected -n team-a").await;
        Ok(left.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_set_while_admission_was_off_delete_neither_deployment_nor_bundle() {
    let (cluster, webhook) = stage().await;
    prepared(&cluster).await;
    let line = format!("get bundles -l core.rukpak.io/owner-name={NAME} -o name");
    let bundle = kubectl(&cluster, &line).await.trim().to_owned();
    let owned = owner(&cluster, "passing").await;
    admission_off(&cluster).await;
    patch(&cluster, &format!("bundledeployment {NAME}"), &owned).await;
    patch(&cluster, &bundle, &owned).await;
    admission_on(&webhook).await;
    wait_until_stamps_expire().await;
    collect(&cluster, "passing", &owned).await;
    for what in [format!("bundledeployment {NAME}"), bundle] {
        let line = format!("delete {what} --as={COLLECTOR}");
        let refused = try_kubectl(&cluster, &line).await.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
        let left = get(&cluster, &what).await.unwrap();
        assert_eq!(left["metadata"]["deletionTimestamp"], Value::Null);
    }
    wait::until_true(LONG, "the status warns of the owner", || async {
        let found = get(&cluster, &format!("bundledeployment {NAME}")).await;
        let warnings = found.unwrap_or_default()["status"]["warnings"].to_string();
        Ok(warnings.contains("owner references"))
    })
    .await
    .unwrap();
    let note = get(&cluster, &format!("configmap {NAME} -n team-a")).await;
    assert!(note.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_that_admission_reviewed_delete_the_deployment_and_its_bundle() {
    let (cluster, _webhook) = stage().await;
    let owned = owner(&cluster, "passing").await;
    let (_, one) = publish(&cluster, "born", "1.0.0").await;
    let mut born = deployment("born", &one, &json!({}));
    born["metadata"]["ownerReferences"] = owned["metadata"]["ownerReferences"].clone();
    apply(&cluster, &born).await;
    prepared(&cluster).await;
    until(&cluster, "bundledeployment born", "Installed", "True").await;
    // The webhook sealed the BundleDeployment without owner references. This patch adds owner
    // references.
    patch(&cluster, &format!("bundledeployment {NAME}"), &owned).await;
    collect(&cluster, "passing", &owned).await;
    until_removed(&cluster).await;
    wait::until_true(LONG, "both and their Bundles are removed", || async {
        let lines = ["get bundledeployments -o name", "get bundles -o name"];
        let mut left = String::new();
        for line in lines {
            left += &kubectl(&cluster, line).await;
        }
        anyhow::ensure!(left.is_empty(), "{left}");
        Ok(true)
    })
    .await
    .unwrap();
}
