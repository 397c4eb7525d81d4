//! Installed objects in the output of `kubectl bundle status`: version, last correction and health,
//! with the permissions of the caller.

use crate::scenarios::requester::policies::{policy, resource_rule, until_enforced};
use crate::scenarios::requester::*;

fn web(namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            // No node has this label, so the Pods of the Deployment never run.
            "spec": {"nodeSelector": {"installed-objects": "never"}, "containers": [{"name": "web", "image": "registry.example.com/web:1"}]},
        }},
    })
}

/// Returns the cells of the row that begins with the cells in `begin`.
fn row(shown: &str, begin: &[&str]) -> Vec<String> {
    let mut rows = shown
        .lines()
        .map(|line| {
            line.split("   ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
        })
        .map(|cells| cells.map(str::to_owned).collect::<Vec<_>>());
    rows.find(|cells| cells.starts_with(&begin.iter().map(ToString::to_string).collect::<Vec<_>>()))
        .unwrap_or_else(|| panic!("{begin:?}: {shown}"))
}

async fn status(cluster: &Cluster, more: &[&str]) -> e2e::Output {
    let line = ["status", "objects"].iter().chain(more);
    cluster.kubectl_bundle(line).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_version_correction_and_health_within_the_permissions_of_the_caller() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "objects", &json!([])).await;
    let same = note("objects", "same");
    let before = [same.clone(), note("objects", "old"), web("objects")];
    deploy(&cluster, "objects", "objects", &before, &json!({})).await;
    until(&cluster, "objects", "Installed", "True").await;

    let line = "patch configmap same -n objects --type=merge --patch={\"data\":{\"a\":\"evil\"}} --field-manager=mallory";
    // Times in `managedFields` have a resolution of one second. In the second of an apply by the
    // webhook, the last writer is unknown.
    wait::until(LONG, "the correction is shown", || async {
        try_kubectl(&cluster, line).await.success()?;
        let shown = status(&cluster, &[]).await.success()?;
        let cells = row(&shown, &["ConfigMap", "objects", "same"]);
        Ok((cells[5] == "mallory" && cells[4].ends_with(" ago")).then_some(()))
    })
    .await
    .unwrap();

    // The dry runs as the requester succeed. The policy rejects only the apply by the
    // ServiceAccount, after the ConfigMaps were applied.
    let services = resource_rule("", "services", &["CREATE"]);
    let expression = "request.userInfo.username == 'objects'";
    let guard = policy("objects-guard", &services, "objects", expression);
    put(&cluster, &guard).await;
    let role = binding("objects-prober", Some("objects"), "admin", "objects-prober");
    put(&cluster, &[role]).await;
    let line = "create service clusterip probe --tcp=80 -n objects";
    until_enforced(&cluster, "objects-guard", "objects-prober", line).await;
    let late = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "late", "namespace": "objects"}, "spec": {"ports": [{"port": 80}]},
    });
    let after = [same, note("objects", "new"), late, web("objects")];
    let after = publish(&cluster, "objects:2.0.0", &after).await;
    let upgraded = deployment("objects", &after, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some("objects")).await;
    upgraded.success().unwrap();
    let shown = wait::until(LONG, "the upgrade is shown", || async {
        let shown = status(&cluster, &[]).await.success()?;
        Ok(shown
            .contains("2 of 4 objects are applied")
            .then_some(shown))
    })
    .await
    .unwrap();

    for (name, version) in [("new", "2.0.0"), ("same", "2.0.0"), ("old", "1.0.0")] {
        let cells = row(&shown, &["ConfigMap", "objects", name]);
        assert_eq!((&*cells[3], &*cells[6]), (version, "-"), "{shown}");
    }
    let cells = row(&shown, &["Deployment.apps", "objects", "web", "1.0.0"]);
    assert!(cells[6].starts_with("Waiting: "), "{shown}");
    assert!(!shown.contains("late   "), "{shown}");

    // This user has permission to read only the BundleDeployment and its ConfigMaps.
    let config_maps =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let deployments = json!([{"apiGroups": ["core.rukpak.io"], "resources": ["bundledeployments"], "verbs": ["get"]}]);
    let user = "objects-viewer";
    let viewer = [
        cluster_role(user, &deployments),
        binding(user, None, user, user),
        cluster_role("objects-configmaps", &config_maps),
        binding(
            "objects-configmaps",
            Some("objects"),
            "objects-configmaps",
            user,
        ),
    ];
    put(&cluster, &viewer).await;
    let seen = wait::until(LONG, "the viewer may read", || async {
        let seen = status(&cluster, &["--as", user]).await;
        let is_listed = seen
            .stdout
            .lines()
            .any(|line| line.starts_with("ConfigMap ") && line.contains(" same "));
        Ok(is_listed.then_some(seen))
    })
    .await
    .unwrap();
    let cells = row(&seen.stdout, &["Deployment.apps", "objects", "?"]);
    assert_eq!(cells[6], "?", "{}", seen.stdout);
    let cells = row(&seen.stdout, &["ConfigMap", "objects", "same", "2.0.0"]);
    assert_eq!(cells[4], "?", "{}", seen.stdout);
    for right in [
        "deployments.apps in namespace objects",
        "no permission to list events in namespace default",
        "BUNDLE-CLUSTER-008",
    ] {
        assert!(seen.stderr.contains(right), "{}", seen.stderr);
    }

    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let line = format!("delete {kind} objects-guard");
        try_kubectl(&cluster, &line).await.success().unwrap();
    }
    until(&cluster, "objects", "Installed", "True").await;
    let data = status(&cluster, &["-o", "json"]).await.success().unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    let objects = data["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 4, "{objects:?}");
    assert!(objects.iter().all(|object| object["version"] == "2.0.0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_of_drift_ignore_without_effect_is_a_warning_that_status_shows() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "objects-ignore", &json!([])).await;
    let ignore = json!({"drift": {"ignore": [
        {"kind": "ConfigMap", "name": "nowhere", "fields": ["/data/a"]},
        {"kind": "ConfigMap", "name": "one", "fields": ["/data/missing"]},
        {"kind": "ConfigMap", "name": "one", "fields": ["/data/a"]},
    ]}});
    let objects = [note("objects-ignore", "one")];
    deploy(
        &cluster,
        "objects-ignore",
        "objects-ignore",
        &objects,
        &ignore,
    )
    .await;
    until(&cluster, "objects-ignore", "Installed", "True").await;
    let object = get(&cluster, "bundledeployment objects-ignore").await;
    let warnings = object.unwrap()["status"]["warnings"].clone();
    let line = ["status", "objects-ignore"];
    let shown = cluster.kubectl_bundle(line).await.unwrap();
    let shown = shown.success().unwrap();
    for text in [
        "spec.drift.ignore[0] matches no object of the content",
        "spec.drift.ignore[1]: no matching object sets /data/missing",
    ] {
        let message = warnings.as_array().into_iter().flatten();
        let message: Vec<_> = message.filter_map(Value::as_str).collect();
        assert!(
            message
                .iter()
                .any(|message| message.starts_with(text) && message.contains("BUNDLE-INSTALL-024")),
            "{warnings}"
        );
        assert!(shown.contains(&format!("Warning: {text}")), "{shown}");
    }
    assert!(!shown.contains("ignore[2]"), "{shown}");
}
