//! Permissions and approvals that installing content requires. `tenant` tests attempts to bypass
//! these permissions and approvals.

use e2e::{bundles, wait};
use serde_json::json;

use super::{
    CLASS, CONFIG, LONG, apply, apply_with_kubeconfig, bundle_editor, bundle_of, deployment, get,
    installed, kubectl, publish, soon, stage, until, until_reason,
};

#[tokio::test(flavor = "multi_thread")]
async fn requester_installs_only_objects_they_may_write() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    let ana = bundle_editor(&cluster, "ana", &["developers"]).await;
    apply_with_kubeconfig(&cluster, &deployment("greeting", &one, &json!({})), &ana).await;
    let printed = until(&cluster, "bundledeployment greeting", "Authorized", "False").await;
    for missing in [
        "ana@example.com",
        r#"in the cluster: {apiGroups: [""], resources: ["namespaces"], verbs: ["create", "delete", "patch"]}"#,
        r#"in namespace greeting: {apiGroups: [""], resources: ["configmaps", "serviceaccounts"], verbs: ["create", "delete", "patch"]}"#,
    ] {
        assert!(printed.contains(missing), "{missing} is not in {printed}");
    }
    assert!(get(&cluster, "namespace greeting").await.is_none());
    kubectl(
        &cluster,
        "create clusterrole everything-here --verb create,patch,delete --resource namespaces,configmaps,serviceaccounts",
    )
    .await;
    kubectl(
        &cluster,
        "create clusterrolebinding ana-everything --clusterrole everything-here --user ana@example.com",
    )
    .await;
    installed(&cluster, "greeting").await;
    until(&cluster, "bundledeployment greeting", "Authorized", "True").await;

    // A binding can grant only permissions that the requester has.
    let manifests = "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: greeting}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: greeting}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects:
- {kind: ServiceAccount, name: greeting, namespace: greeting}
";
    let roles = publish(&cluster, "team/roles:1", |f| {
        bundle_of(f, "roles", manifests)
    })
    .await;
    kubectl(
        &cluster,
        "create clusterrole roles --verb create,patch,delete --resource roles,rolebindings",
    )
    .await;
    kubectl(
        &cluster,
        "create clusterrolebinding ana-roles --clusterrole roles --user ana@example.com",
    )
    .await;
    apply_with_kubeconfig(&cluster, &deployment("roles", &roles, &json!({})), &ana).await;
    let printed = until(&cluster, "bundledeployment roles", "Authorized", "False").await;
    // The message contains only the name of the ClusterRole, because the requester has no
    // permission to read the ClusterRole.
    for missing in [
        r#"in namespace greeting: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}"#,
        "ClusterRole view",
    ] {
        assert!(printed.contains(missing), "{missing} is not in {printed}");
    }
    assert!(!printed.contains("\"pods\""), "{printed}");
    assert!(get(&cluster, "role reader -n greeting").await.is_none());
    kubectl(
        &cluster,
        "create clusterrolebinding ana-admin --clusterrole admin --user ana@example.com",
    )
    .await;
    installed(&cluster, "roles").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_needs_permissions_in_target_namespace_only() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    kubectl(&cluster, "create serviceaccount deployer -n team-a").await;
    let account = json!({"serviceAccount": {"namespace": "team-a", "name": "deployer"}});
    apply(&cluster, &deployment("web", &one, &account)).await;
    // The pod cannot impersonate `deployer` before an administrator creates the role that the
    // condition names. Without this role, the pod can impersonate only the ServiceAccount of the
    // class.
    let printed = until(&cluster, "bundledeployment web", "Installed", "False").await;
    let commands = [
        "kubectl create role bundle-impersonator-deployer -n team-a --verb=impersonate --resource=serviceaccounts --resource-name=deployer",
        "kubectl create rolebinding bundle-impersonator-deployer -n team-a --role=bundle-impersonator-deployer --serviceaccount=bundle-system:bundle-webhook",
    ];
    for command in commands {
        assert!(printed.contains(&format!("`{command}`")), "{printed}");
        kubectl(&cluster, command.trim_start_matches("kubectl ")).await;
    }
    wait::until_true(LONG, "the missing rights of the ServiceAccount", || async {
        let printed = until(&cluster, "bundledeployment web", "Installed", "False").await;
        Ok(printed.contains("system:serviceaccount:team-a:deployer")
            && printed.contains("forbidden")
            && !printed.contains("impersonate"))
    })
    .await
    .unwrap();
    kubectl(
        &cluster,
        "create role deployer -n team-a --verb get,list,watch,create,patch,delete --resource configmaps",
    )
    .await;
    kubectl(
        &cluster,
        "create rolebinding deployer -n team-a --role deployer --serviceaccount team-a:deployer",
    )
    .await;
    installed(&cluster, "web").await;
    kubectl(&cluster, "delete configmap web -n team-a").await;
    soon(&cluster, "configmap web -n team-a", "/data/text", "hello").await;

    // Without permissions, the installing ServiceAccount cannot remove the objects, and the
    // condition reports the missing permissions. With `Orphan`, the removal ends.
    kubectl(&cluster, "delete rolebinding deployer -n team-a").await;
    kubectl(&cluster, "delete bundledeployment web --wait=false").await;
    let printed = until_reason(&cluster, "bundledeployment web", "Ready", "RemovalFailed").await;
    assert!(
        printed.contains("system:serviceaccount:team-a:deployer"),
        "{printed}"
    );
    kubectl(
        &cluster,
        "patch bundledeployment web --type merge -p {\"spec\":{\"deletion\":{\"objects\":\"Orphan\"}}}",
    )
    .await;
    wait::until_true(LONG, "it is let go", || async {
        Ok(get(&cluster, "bundledeployment web").await.is_none())
    })
    .await
    .unwrap();
    assert!(get(&cluster, "configmap web -n team-a").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn content_waits_for_approval_by_another_person_if_the_class_requires_it() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    kubectl(
        &cluster,
        &format!("patch provisionerclass {CLASS} --type merge -p {{\"spec\":{{\"approval\":{{\"mode\":\"Required\",\"by\":\"AnotherPerson\"}}}}}}"),
    )
    .await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    let printed = until(&cluster, "bundledeployment web", "Approved", "False").await;
    assert!(
        printed.contains("waiting for approval of sha256:"),
        "{printed}"
    );
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let digest = one.rsplit('@').next().unwrap();
    let approval = |name: &str| {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleApproval", "metadata": {"name": name},
            "spec": {"bundleDeployment": {"name": "web", "uid": object["metadata"]["uid"]}, "digest": digest},
        })
    };
    apply(&cluster, &approval("by-myself")).await;
    until(&cluster, "bundleapproval by-myself", "Accepted", "False").await;
    assert!(get(&cluster, "configmap web -n team-a").await.is_none());
    let ben = cluster
        .kubeconfig_for("ben@example.com", &["system:masters"])
        .unwrap();
    apply_with_kubeconfig(&cluster, &approval("by-ben"), &ben).await;
    installed(&cluster, "web").await;
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    assert_eq!(
        object["status"]["installed"]["approvedBy"],
        "ben@example.com"
    );
    // A withdrawn approval is reported, and nothing is removed.
    kubectl(&cluster, "delete bundleapproval by-ben").await;
    until(&cluster, "bundledeployment web", "Approved", "False").await;
    assert!(get(&cluster, "configmap web -n team-a").await.is_some());
}
