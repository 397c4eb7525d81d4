//! Plans; `adopt`, which makes existing objects part of a BundleDeployment; and `unmanage`, which
//! deletes a BundleDeployment without its objects.

use e2e::{Cluster, Tool};
use serde_json::{Value, json};

use super::plugin;
use crate::scenarios::reconcile::{
    CONFIG, apply, bundle_of, deployment, get, kubectl, publish, stage,
};

/// Returns name and result of each check of a plan.
fn checks(plan: &Value) -> Vec<(&str, &str)> {
    let checks = plan["checks"].as_array().unwrap().iter();
    checks
        .map(|check| {
            (
                check["name"].as_str().unwrap(),
                check["result"].as_str().unwrap(),
            )
        })
        .collect()
}

async fn plan(cluster: &Cluster, line: &str, code: i32) -> Value {
    let output = plugin(cluster, &format!("plan {line} -o json")).await;
    assert_eq!(output.code, Some(code), "{output}");
    serde_json::from_str(&output.stdout).unwrap()
}

fn steps(plan: &Value) -> Vec<&str> {
    let steps = plan["steps"].as_array().unwrap().iter();
    steps.map(|step| step["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_has_the_steps_of_the_upgrade_and_none_after_it() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let changed = CONFIG.replace("hello", "changed");
    let two = publish(&cluster, "team/web:2", |f| bundle_of(f, "web", &changed)).await;
    let deployed = plugin(&cluster, &format!("deploy web {one} --wait")).await;
    deployed.success().unwrap();

    let installed = plan(&cluster, "web", 0).await;
    assert_eq!(
        steps(&installed),
        ["ReportApproval", "Maintain", "CheckPermissions"]
    );
    let upgrade = plan(&cluster, &format!("web {two}"), 0).await;
    let names = steps(&upgrade);
    for step in [
        "CheckContent",
        "Verify",
        "CheckDefinitions",
        "Authorize",
        "Apply",
        "Prune",
    ] {
        assert!(names.contains(&step), "{step}: {names:?}");
    }
    assert_eq!(upgrade["objects"][0]["change"], "configured");
    // A deployment of the installed content needs no check of the package.
    let former = plan(&cluster, &format!("web {one}"), 0).await;
    assert_eq!(steps(&former), steps(&installed));

    let upgraded = plugin(&cluster, &format!("deploy web {two} --wait")).await;
    upgraded.success().unwrap();
    assert_eq!(steps(&plan(&cluster, "web", 0).await), steps(&installed));

    // Without permission to read the inventory, the plan starts from the status. For a user without
    // permission to write the objects, the plan contains a failed check.
    for line in [
        "create clusterrole reader --verb get,list --resource bundledeployments.core.rukpak.io,bundles.core.rukpak.io,provisionerclasses.core.rukpak.io",
        "create clusterrolebinding reader --clusterrole reader --user vera",
    ] {
        kubectl(&cluster, line).await;
    }
    let denied = plan(&cluster, &format!("web {one} --as vera"), 3).await;
    assert!(
        checks(&denied).contains(&("Permissions", "fails")),
        "{denied:#}"
    );

    // The plan of a paused BundleDeployment has no steps.
    kubectl(
        &cluster,
        "patch bundledeployment web --type merge -p {\"spec\":{\"paused\":true}}",
    )
    .await;
    let paused = plan(&cluster, &format!("web {one}"), 3).await;
    assert!(steps(&paused).is_empty(), "{paused:#}");
    assert_eq!(checks(&paused)[0], ("Paused", "fails"));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_kubectl_and_helm_are_adopted_and_stay_after_unmanage() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let existing = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team-a"}, "data": data});
    apply(
        &cluster,
        &existing("web", json!({"text": "hello", "old": "x"})),
    )
    .await;
    // Another field manager sets a field.
    kubectl(
        &cluster,
        "patch configmap web -n team-a --type merge --field-manager team -p {\"data\":{\"team\":\"a\"}}",
    )
    .await;
    let chart = cluster.folder().join("data/shop-chart");
    fs_err::create_dir_all(chart.join("templates")).unwrap();
    fs_err::write(
        chart.join("Chart.yaml"),
        "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
    )
    .unwrap();
    let shop = existing("shop", json!({"text": "hello"})).to_string();
    fs_err::write(chart.join("templates/shop.yaml"), &shop).unwrap();
    let helm = cluster.tool(Tool::Helm).await.unwrap();
    let installed = helm.args(["install", "shop"]).args([&chart]);
    let installed = installed.args(["--namespace", "team-a"]).output().await;
    installed.unwrap().success().unwrap();

    let manifests = format!("{}---\n{shop}\n", CONFIG.replace("hello", "adopted"));
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", &manifests)).await;
    let unconfirmed = plugin(&cluster, &format!("adopt web {one}")).await;
    let message = unconfirmed.failure(1).unwrap();
    assert!(message.contains("[BUNDLE-CLUSTER-036]"), "{message}");
    assert!(get(&cluster, "bundledeployment web").await.is_none());

    let adopted = plugin(&cluster, &format!("adopt web {one} --yes --wait")).await;
    for expected in [
        "managed by kubectl apply: ConfigMap/team-a/web",
        "managed by Helm release team-a/shop: ConfigMap/team-a/shop",
        "kubectl delete secret -n team-a -l owner=helm,name=shop",
    ] {
        assert!(adopted.stderr.contains(expected), "{expected}\n{adopted}");
    }
    // The preview shows that one field is removed. The field of the other manager is kept, so the
    // preview does not show it as removed.
    assert!(adopted.stdout.contains("-  old: x\n"), "{adopted}");
    assert!(!adopted.stdout.contains("-  team: a\n"), "{adopted}");
    adopted.success().unwrap();
    let web = get(&cluster, "configmap web -n team-a").await.unwrap();
    assert_eq!(web["data"], json!({"text": "adopted", "team": "a"}));
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    assert_eq!(object["status"]["installed"]["objects"], 2);

    // Objects of another BundleDeployment are not adopted.
    let again = plugin(&cluster, &format!("adopt again {one} --yes")).await;
    let message = again.failure(3).unwrap();
    assert!(
        message.contains("belongs to bundledeployment web"),
        "{message}"
    );
    assert!(message.contains("[BUNDLE-CLUSTER-034]"), "{message}");
    assert!(get(&cluster, "bundledeployment again").await.is_none());

    let dry = plugin(&cluster, "unmanage web --dry-run=server").await;
    dry.success().unwrap();
    assert!(get(&cluster, "bundledeployment web").await.is_some());
    let done = plugin(&cluster, "unmanage web").await;
    assert!(done.stderr.contains("web: 2 objects stay"), "{done}");
    done.success().unwrap();
    assert!(get(&cluster, "bundledeployment web").await.is_none());
    for name in ["web", "shop"] {
        let kept = get(&cluster, &format!("configmap {name} -n team-a")).await;
        let kept = kept.unwrap();
        assert_eq!(kept["metadata"]["labels"], Value::Null, "{kept}");
    }
    // The objects can be adopted again.
    let again = plugin(&cluster, &format!("adopt again {one} --yes --wait")).await;
    again.success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn adoption_requires_the_permission_to_update_the_objects() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    apply(
        &cluster,
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "team-a"}, "data": {"text": "own"}}),
    )
    .await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let ana = crate::scenarios::reconcile::bundle_editor(&cluster, "ana", &[]).await;
    kubectl(
        &cluster,
        "create clusterrolebinding ana-view --clusterrole view --user ana@example.com",
    )
    .await;
    let plugin = cluster.plugin().await.unwrap().kubeconfig(&ana);
    let adopted = plugin.args(["adopt", "web", &one, "--yes"]).output().await;
    let message = adopted.unwrap().failure(3).unwrap();
    assert!(message.contains("[BUNDLE-CLUSTER-021]"), "{message}");
    // The BundleDeployment adopts the objects without the preview of the plugin.
    let object = deployment("web", &one, &json!({"collision": "Adopt"}));
    crate::scenarios::reconcile::apply_with_kubeconfig(&cluster, &object, &ana).await;
    crate::scenarios::reconcile::until(&cluster, "bundledeployment web", "Authorized", "False")
        .await;
    let kept = get(&cluster, "configmap web -n team-a").await.unwrap();
    assert_eq!(kept["data"]["text"], "own");
}
