//! What becomes of Bundles and BundleDeployments on a real API server: installed in order, kept, replaced, removed; and what is refused.
//! What admission says is in `admission`; the whole story under fire is in `story`.

use std::time::{Duration, Instant};

use e2e::{Cluster, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

const CLASS: &str = "core-rukpak-io-plain";
const LONG: Duration = Duration::from_secs(90);

/// Builds and pushes what `write` makes; the pinned reference.
async fn publish(
    cluster: &Cluster,
    reference: &str,
    write: impl Fn(&std::path::Path) -> anyhow::Result<()>,
) -> String {
    let folder = cluster
        .folder()
        .join("data")
        .join(reference.replace([':', '/'], "-"));
    write(&folder).unwrap();
    let folder = folder.display().to_string();
    let reference = cluster.registry(0).unwrap().reference(reference);
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference, "--overwrite-tag"])
        .await
        .unwrap();
    pushed.success().unwrap().lines().last().unwrap().to_owned()
}

fn deployment(name: &str, reference: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": CLASS,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "provisionerClassName": CLASS,
                "source": {"type": "image", "image": {"ref": reference}},
            }},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

async fn apply(cluster: &Cluster, object: &Value) {
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let applied = kubectl
        .args(["apply", "-f", "-"])
        .stdin(object.to_string())
        .output()
        .await
        .unwrap();
    applied.success().unwrap();
}

async fn kubectl(cluster: &Cluster, line: &str) -> String {
    cluster
        .kubectl(line.split(' '))
        .await
        .unwrap()
        .success()
        .unwrap()
}

async fn get(cluster: &Cluster, what: &str) -> Option<Value> {
    let output = cluster
        .kubectl(what.split(' ').chain(["-o", "json", "--ignore-not-found"]))
        .await
        .unwrap()
        .success()
        .unwrap();
    serde_json::from_str(&output).ok()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    object["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|condition| condition["type"] == kind))
        .unwrap_or(&Value::Null)
}

/// Waits until a condition of an object has this status for its present generation, and returns its message.
async fn until(cluster: &Cluster, what: &str, kind: &str, status: &str) -> String {
    let looked = format!("get {what}");
    wait::until(LONG, &format!("{what}: {kind}={status}"), || async {
        let Some(object) = get(cluster, &looked).await else {
            anyhow::bail!("it is not there");
        };
        let found = condition(&object, kind);
        if found["status"] == status
            && found["observedGeneration"] == object["metadata"]["generation"]
        {
            Ok(Some(
                found["message"].as_str().unwrap_or_default().to_owned(),
            ))
        } else {
            anyhow::bail!("{}", object["status"]["conditions"])
        }
    })
    .await
    .unwrap()
}

async fn installed(cluster: &Cluster, name: &str) {
    until(
        cluster,
        &format!("bundledeployment {name}"),
        "Installed",
        "True",
    )
    .await;
}

async fn stage() -> (Cluster, e2e::Webhook) {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    (cluster, webhook)
}

async fn within_a_second(cluster: &Cluster, what: &str, pointer: &str, expected: &str) {
    let began = Instant::now();
    wait::until_true(Duration::from_secs(5), what, || async {
        Ok(get(cluster, &format!("get {what}"))
            .await
            .and_then(|object| object.pointer(pointer).cloned())
            .is_some_and(|value| value == expected))
    })
    .await
    .unwrap();
    // Looking by a new process of kubectl takes a part of it.
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{what} came back after {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_is_installed_kept_replaced_and_removed() {
    let (cluster, webhook) = stage().await;
    let one = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    let two = publish(&cluster, "team/shop:2.0.0", |f| bundles::shop(f, "2.0.0")).await;
    apply(&cluster, &deployment("shop", &one, &json!({}))).await;
    installed(&cluster, "shop").await;
    let object = get(&cluster, "get bundledeployment shop").await.unwrap();
    let objects = object["status"]["installed"]["objects"].as_u64().unwrap();
    assert!(objects >= 200, "{object}");
    assert!(
        get(&cluster, "get queue -n shop basket-events")
            .await
            .is_some()
    );

    // Behind its back.
    kubectl(
        &cluster,
        "patch configmap basket -n shop --type merge -p {\"data\":{\"LOG_LEVEL\":\"debug\"}}",
    )
    .await;
    within_a_second(
        &cluster,
        "configmap basket -n shop",
        "/data/LOG_LEVEL",
        "info",
    )
    .await;
    kubectl(&cluster, "delete configmap basket -n shop").await;
    within_a_second(
        &cluster,
        "configmap basket -n shop",
        "/data/LOG_LEVEL",
        "info",
    )
    .await;
    kubectl(
        &cluster,
        "label configmap basket -n shop core.rukpak.io/owner-name-",
    )
    .await;
    within_a_second(
        &cluster,
        "configmap basket -n shop",
        "/metadata/labels/core.rukpak.io~1owner-name",
        "shop",
    )
    .await;

    // What is not ours stays.
    kubectl(
        &cluster,
        "annotate deployment basket -n shop team.example.com/on-call=ana",
    )
    .await;
    kubectl(&cluster, "rollout restart deployment basket -n shop").await;
    kubectl(&cluster, "scale deployment basket -n shop --replicas 5").await;
    wait::until_true(LONG, "replicas are restored", || async {
        let object = get(&cluster, "get deployment basket -n shop").await;
        Ok(object.is_some_and(|object| object["spec"]["replicas"] == 2))
    })
    .await
    .unwrap();
    let kept = get(&cluster, "get deployment basket -n shop")
        .await
        .unwrap();
    assert_eq!(
        kept["metadata"]["annotations"]["team.example.com/on-call"],
        "ana"
    );
    let template = &kept["spec"]["template"]["metadata"]["annotations"];
    assert!(
        template["kubectl.kubernetes.io/restartedAt"].is_string(),
        "{template}"
    );

    // A new version.
    apply(&cluster, &deployment("shop", &two, &json!({}))).await;
    installed(&cluster, "shop").await;
    let object = get(&cluster, "get bundledeployment shop").await.unwrap();
    assert_eq!(object["status"]["installed"]["version"], "2.0.0");
    assert_eq!(object["status"]["revisions"][1]["state"], "Superseded");
    assert!(
        get(&cluster, "get deployment wishlist -n shop")
            .await
            .is_some()
    );
    for dropped in ["deployment", "configmap", "secret", "serviceaccount"] {
        assert!(
            get(&cluster, &format!("get {dropped} coupons -n shop"))
                .await
                .is_none(),
            "{dropped} coupons is still there\n{}",
            webhook.log().unwrap()
        );
    }

    // The end.
    kubectl(&cluster, "delete bundledeployment shop --timeout 80s").await;
    assert!(get(&cluster, "get namespace shop").await.is_none());
    assert!(
        get(&cluster, "get crd queues.shop.example.com")
            .await
            .is_none()
    );
    assert!(
        get(&cluster, "get clusterrole shop-features")
            .await
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_ends_in_the_same_state() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    apply(&cluster, &deployment("shop", &one, &json!({}))).await;
    for moment in [100, 400, 900] {
        tokio::time::sleep(Duration::from_millis(moment)).await;
        webhook.kill().unwrap();
        webhook.start().await.unwrap();
    }
    installed(&cluster, "shop").await;
    let before = get(&cluster, "get bundledeployment shop").await.unwrap();

    // What happened while it was away is found, and what did not happen is not applied again.
    webhook.kill().unwrap();
    kubectl(&cluster, "delete secret basket -n shop").await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the Secret is back", || async {
        Ok(get(&cluster, "get secret basket -n shop").await.is_some())
    })
    .await
    .unwrap();
    installed(&cluster, "shop").await;
    webhook.restart().await.unwrap();
    wait::until_true(LONG, "nothing is applied", || async {
        Ok(webhook
            .log()?
            .contains("everything is in place: nothing is applied"))
    })
    .await
    .unwrap();
    let after = get(&cluster, "get bundledeployment shop").await.unwrap();
    assert_eq!(
        before["status"]["installed"]["fieldsDigest"],
        after["status"]["installed"]["fieldsDigest"]
    );

    // In the middle of a pivot.
    let two = publish(&cluster, "team/shop:2.0.0", |f| bundles::shop(f, "2.0.0")).await;
    apply(&cluster, &deployment("shop", &two, &json!({}))).await;
    for moment in [300, 700] {
        tokio::time::sleep(Duration::from_millis(moment)).await;
        webhook.kill().unwrap();
        webhook.start().await.unwrap();
    }
    installed(&cluster, "shop").await;
    assert!(
        get(&cluster, "get deployment wishlist -n shop")
            .await
            .is_some()
    );
    assert!(
        get(&cluster, "get deployment coupons -n shop")
            .await
            .is_none()
    );

    // In the middle of the removal, too.
    kubectl(&cluster, "delete bundledeployment shop --wait=false").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    webhook.kill().unwrap();
    webhook.start().await.unwrap();
    wait::until_true(LONG, "all is gone", || async {
        Ok(get(&cluster, "get bundledeployment shop").await.is_none()
            && get(&cluster, "get crd queues.shop.example.com")
                .await
                .is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moves_changes_nothing_and_is_told() {
    let (cluster, mut webhook) = stage().await;
    publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    let tag = cluster.registry(0).unwrap().reference("team/greeting:1");
    apply(&cluster, &deployment("greeting", &tag, &json!({}))).await;
    installed(&cluster, "greeting").await;
    let bundle = kubectl(&cluster, "get bundles -l app=greeting -o name").await;
    let bundle = bundle
        .trim()
        .trim_start_matches("bundle.core.rukpak.io/")
        .to_owned();
    let first = get(&cluster, &format!("get bundle {bundle}"))
        .await
        .unwrap();
    publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "2.0.0", None)
    })
    .await;
    let said = until(&cluster, &format!("bundle {bundle}"), "SourceMoved", "True").await;
    let digest = first["status"]["content"]["digest"].as_str().unwrap();
    assert!(said.contains(digest), "{said}");
    let now = get(&cluster, &format!("get bundle {bundle}"))
        .await
        .unwrap();
    assert_eq!(now["status"]["content"], first["status"]["content"]);
    let text = get(&cluster, "get configmap greeting -n greeting")
        .await
        .unwrap();
    assert_eq!(text["data"]["text"], "Hello from 1.0.0");

    // A lost cache and a restart do not let the new content in either.
    webhook.kill().unwrap();
    let cache = format!("webhook-{}", webhook.address().port());
    fs_err::remove_dir_all(cluster.folder().join("data").join(cache)).unwrap();
    kubectl(&cluster, "delete configmap greeting -n greeting").await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the ConfigMap is back", || async {
        let text = get(&cluster, "get configmap greeting -n greeting").await;
        Ok(text.is_some_and(|text| text["data"]["text"] == "Hello from 1.0.0"))
    })
    .await
    .unwrap();

    publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    until(
        &cluster,
        &format!("bundle {bundle}"),
        "SourceMoved",
        "False",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_while_admission_was_off_is_reported_and_not_installed() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    webhook.stop().await.unwrap();
    kubectl(
        &cluster,
        "delete validatingwebhookconfiguration bundle-webhook",
    )
    .await;
    kubectl(
        &cluster,
        "delete mutatingwebhookconfiguration bundle-webhook",
    )
    .await;
    apply(&cluster, &deployment("greeting", &one, &json!({}))).await;
    webhook.register().await.unwrap();
    webhook.start().await.unwrap();
    let said = until(&cluster, "bundledeployment greeting", "Installed", "False").await;
    assert!(said.contains("written while admission was off"), "{said}");
    assert!(get(&cluster, "get namespace greeting").await.is_none());
    // The way out that the message names.
    webhook.wait_for_admission().await.unwrap();
    kubectl(
        &cluster,
        "annotate bundledeployment greeting core.rukpak.io/checked=again --overwrite",
    )
    .await;
    installed(&cluster, "greeting").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_and_custom_resources_of_people_are_safe() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    kubectl(&cluster, "create namespace greeting").await;
    apply(&cluster, &deployment("greeting", &one, &json!({}))).await;
    let said = until(&cluster, "bundledeployment greeting", "Installed", "False").await;
    assert!(
        said.contains("Namespace/greeting exists already and belongs to nobody"),
        "{said}"
    );
    assert!(
        get(&cluster, "get configmap greeting -n greeting")
            .await
            .is_none()
    );
    apply(
        &cluster,
        &deployment("greeting", &one, &json!({"collision": "Adopt"})),
    )
    .await;
    installed(&cluster, "greeting").await;
    apply(
        &cluster,
        &deployment("again", &one, &json!({"collision": "Adopt"})),
    )
    .await;
    let said = until(&cluster, "bundledeployment again", "Installed", "False").await;
    assert!(
        said.contains("ConfigMap/greeting/greeting belongs to BundleDeployment greeting"),
        "{said}"
    );

    let shop = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    apply(&cluster, &deployment("shop", &shop, &json!({}))).await;
    installed(&cluster, "shop").await;
    let own = json!({"apiVersion": "shop.example.com/v1", "kind": "Feature", "metadata": {"name": "of-ana"}, "spec": {"enabled": true}});
    apply(&cluster, &own).await;
    kubectl(&cluster, "delete bundledeployment shop --wait=false").await;
    let said = wait::until(LONG, "the deletion is refused", || async {
        let object = get(&cluster, "get bundledeployment shop")
            .await
            .unwrap_or_default();
        let found = condition(&object, "Ready");
        Ok((found["reason"] == "RemovalRefused")
            .then(|| found["message"].as_str().unwrap_or_default().to_owned()))
    })
    .await
    .unwrap();
    assert!(said.contains("of-ana"), "{said}");
    assert!(
        get(&cluster, "get deployment basket -n shop")
            .await
            .is_some()
    );
    kubectl(&cluster, "delete feature of-ana").await;
    wait::until_true(LONG, "the deletion goes on", || async {
        Ok(get(&cluster, "get bundledeployment shop").await.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_gets_what_their_own_rights_allow() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    let ana = cluster
        .kubeconfig_for("ana@example.com", &["developers"])
        .unwrap();
    for role in ["bundle-user", "bundle-editor"] {
        kubectl(
            &cluster,
            &format!(
                "create clusterrolebinding ana-{role} --clusterrole {role} --user ana@example.com"
            ),
        )
        .await;
    }
    let tool = cluster
        .tool(e2e::Tool::Kubectl)
        .await
        .unwrap()
        .kubeconfig(&ana);
    let applied = tool
        .args(["apply", "-f", "-"])
        .stdin(deployment("greeting", &one, &json!({})).to_string())
        .output()
        .await
        .unwrap();
    applied.success().unwrap();
    let said = until(&cluster, "bundledeployment greeting", "Authorized", "False").await;
    for missing in [
        "ana@example.com",
        r#"in the cluster: {apiGroups: [""], resources: ["namespaces"], verbs: ["create", "delete", "patch"]}"#,
        r#"in namespace greeting: {apiGroups: [""], resources: ["configmaps", "serviceaccounts"], verbs: ["create", "delete", "patch"]}"#,
    ] {
        assert!(said.contains(missing), "{missing} is not in {said}");
    }
    assert!(get(&cluster, "get namespace greeting").await.is_none());
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

    // What a role hands on has to be the requester's own.
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
    let tool = cluster
        .tool(e2e::Tool::Kubectl)
        .await
        .unwrap()
        .kubeconfig(&ana);
    let applied = tool
        .args(["apply", "-f", "-"])
        .stdin(deployment("roles", &roles, &json!({})).to_string())
        .output()
        .await
        .unwrap();
    applied.success().unwrap();
    let said = until(&cluster, "bundledeployment roles", "Authorized", "False").await;
    for missing in [
        r#"in namespace greeting: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}"#,
        r#""pods""#,
    ] {
        assert!(said.contains(missing), "{missing} is not in {said}");
    }
    assert!(get(&cluster, "get role reader -n greeting").await.is_none());
    kubectl(
        &cluster,
        "create clusterrolebinding ana-admin --clusterrole admin --user ana@example.com",
    )
    .await;
    installed(&cluster, "roles").await;
}

/// Writes a bundle of just these manifests.
fn bundle_of(folder: &std::path::Path, name: &str, manifests: &str) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder.join("manifests"))?;
    let package = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: {name}\nversion: 1.0.0\nformat: plain+v0\n"
    );
    fs_err::write(folder.join("bundle.yaml"), package)?;
    fs_err::write(folder.join("manifests").join("all.yaml"), manifests)?;
    Ok(())
}

const CONFIG: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: team-a}
data: {text: hello}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_with_rights_in_one_namespace_is_enough() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    kubectl(&cluster, "create serviceaccount deployer -n team-a").await;
    let account = json!({"serviceAccount": {"namespace": "team-a", "name": "deployer"}});
    apply(&cluster, &deployment("web", &one, &account)).await;
    let said = until(&cluster, "bundledeployment web", "Installed", "False").await;
    assert!(
        said.contains("system:serviceaccount:team-a:deployer") && said.contains("forbidden"),
        "{said}"
    );
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
    within_a_second(&cluster, "configmap web -n team-a", "/data/text", "hello").await;

    // Without its rights nothing can be removed, and that is said; with Orphan it is let go.
    kubectl(&cluster, "delete rolebinding deployer -n team-a").await;
    kubectl(&cluster, "delete bundledeployment web --wait=false").await;
    let said = wait::until(LONG, "the failure is told", || async {
        let object = get(&cluster, "get bundledeployment web")
            .await
            .unwrap_or_default();
        let found = condition(&object, "Ready");
        Ok((found["reason"] == "RemovalFailed")
            .then(|| found["message"].as_str().unwrap_or_default().to_owned()))
    })
    .await
    .unwrap();
    assert!(
        said.contains("system:serviceaccount:team-a:deployer"),
        "{said}"
    );
    kubectl(
        &cluster,
        "patch bundledeployment web --type merge -p {\"spec\":{\"deletion\":{\"objects\":\"Orphan\"}}}",
    )
    .await;
    wait::until_true(LONG, "it is let go", || async {
        Ok(get(&cluster, "get bundledeployment web").await.is_none())
    })
    .await
    .unwrap();
    assert!(get(&cluster, "get configmap web -n team-a").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_not_there_yet_is_waited_for() {
    let (cluster, _webhook) = stage().await;
    let manifests = "apiVersion: shop.example.com/v1
kind: Feature
metadata: {name: early}
spec: {enabled: true}
";
    let early = publish(&cluster, "team/early:1", |f| {
        bundle_of(f, "early", manifests)
    })
    .await;
    let shop = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    apply(&cluster, &deployment("early", &early, &json!({}))).await;
    let said = until(&cluster, "bundledeployment early", "Installed", "False").await;
    assert_eq!(
        said,
        r#"required resource not found: no matches for kind "Feature" in version "shop.example.com/v1""#
    );
    apply(&cluster, &deployment("shop", &shop, &json!({}))).await;
    installed(&cluster, "shop").await;
    installed(&cluster, "early").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_only_reported_where_that_is_asked_for() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let report = json!({"drift": {"mode": "Report"}});
    apply(&cluster, &deployment("web", &one, &report)).await;
    installed(&cluster, "web").await;
    let patch = "patch configmap web -n team-a --type merge -p {\"data\":{\"text\":\"changed\"}}";
    kubectl(&cluster, patch).await;
    let said = until(&cluster, "bundledeployment web", "Drifted", "True").await;
    assert!(said.contains("ConfigMap/team-a/web"), "{said}");
    // A restart neither forgets nor restores it.
    webhook.restart().await.unwrap();
    let began = Instant::now();
    wait::until_true(LONG, "it is reported after the restart", || async {
        let object = get(&cluster, "get bundledeployment web")
            .await
            .unwrap_or_default();
        Ok(began.elapsed() > Duration::from_secs(2)
            && object["status"]["drift"][0]["object"] == "ConfigMap/team-a/web")
    })
    .await
    .unwrap();
    let object = get(&cluster, "get configmap web -n team-a").await.unwrap();
    assert_eq!(object["data"]["text"], "changed");
    apply(&cluster, &deployment("web", &one, &json!({"paused": true}))).await;
    until(&cluster, "bundledeployment web", "Drifted", "True").await;
    apply(
        &cluster,
        &deployment("web", &one, &json!({"paused": false})),
    )
    .await;
    within_a_second(&cluster, "configmap web -n team-a", "/data/text", "hello").await;
    until(&cluster, "bundledeployment web", "Drifted", "False").await;

    // Fields that are given to others are neither.
    let ignore = json!({"drift": {"ignore": [{"kind": "ConfigMap", "name": "web", "fields": ["/data/text"]}]}});
    apply(&cluster, &deployment("web", &one, &ignore)).await;
    installed(&cluster, "web").await;
    kubectl(&cluster, patch).await;
    kubectl(
        &cluster,
        "label configmap web -n team-a core.rukpak.io/owner-name-",
    )
    .await;
    within_a_second(
        &cluster,
        "configmap web -n team-a",
        "/metadata/labels/core.rukpak.io~1owner-name",
        "web",
    )
    .await;
    let object = get(&cluster, "get configmap web -n team-a").await.unwrap();
    assert_eq!(object["data"]["text"], "changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_waits_for_another_person_where_the_class_says_so() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    kubectl(
        &cluster,
        &format!("patch provisionerclass {CLASS} --type merge -p {{\"spec\":{{\"approval\":{{\"mode\":\"Required\",\"by\":\"AnotherPerson\"}}}}}}"),
    )
    .await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    let said = until(&cluster, "bundledeployment web", "Approved", "False").await;
    assert!(said.contains("waiting for approval of sha256:"), "{said}");
    let object = get(&cluster, "get bundledeployment web").await.unwrap();
    let digest = one.rsplit('@').next().unwrap();
    let approval = |name: &str| {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleApproval", "metadata": {"name": name},
            "spec": {"bundleDeployment": {"name": "web", "uid": object["metadata"]["uid"]}, "digest": digest},
        })
    };
    apply(&cluster, &approval("by-myself")).await;
    until(&cluster, "bundleapproval by-myself", "Accepted", "False").await;
    assert!(get(&cluster, "get configmap web -n team-a").await.is_none());
    let ben = cluster
        .kubeconfig_for("ben@example.com", &["system:masters"])
        .unwrap();
    let tool = cluster
        .tool(e2e::Tool::Kubectl)
        .await
        .unwrap()
        .kubeconfig(&ben);
    let applied = tool
        .args(["apply", "-f", "-"])
        .stdin(approval("by-ben").to_string())
        .output()
        .await
        .unwrap();
    applied.success().unwrap();
    installed(&cluster, "web").await;
    let object = get(&cluster, "get bundledeployment web").await.unwrap();
    assert_eq!(
        object["status"]["installed"]["approvedBy"],
        "ben@example.com"
    );
    // Withdrawn: that is said, and nothing is torn down.
    kubectl(&cluster, "delete bundleapproval by-ben").await;
    until(&cluster, "bundledeployment web", "Approved", "False").await;
    assert!(get(&cluster, "get configmap web -n team-a").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_content_is_kept_while_the_new_cannot_be_had() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    let before = get(&cluster, "get bundledeployment web").await.unwrap();
    let missing = cluster.registry(0).unwrap().reference("team/web:not-there");
    apply(&cluster, &deployment("web", &missing, &json!({}))).await;
    wait::until_true(LONG, "the failure is told", || async {
        let object = get(&cluster, "get bundledeployment web")
            .await
            .unwrap_or_default();
        let said = condition(&object, "HasValidBundle")["message"].clone();
        Ok(said
            .as_str()
            .is_some_and(|said| said.starts_with("Failed to unpack the web-")))
    })
    .await
    .unwrap();
    for restart in [false, true] {
        if restart {
            webhook.restart().await.unwrap();
        }
        kubectl(&cluster, "delete configmap web -n team-a").await;
        wait::until_true(LONG, "the ConfigMap is back", || async {
            Ok(get(&cluster, "get configmap web -n team-a").await.is_some())
        })
        .await
        .unwrap();
    }
    let now = get(&cluster, "get bundledeployment web").await.unwrap();
    assert_eq!(
        now["status"]["activeBundle"],
        before["status"]["activeBundle"]
    );
    assert_eq!(condition(&now, "Installed")["status"], "True");
    assert_eq!(condition(&now, "Ready")["status"], "False");
    // Back to what is installed: nothing has to be made.
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    until(&cluster, "bundledeployment web", "Ready", "True").await;
}
