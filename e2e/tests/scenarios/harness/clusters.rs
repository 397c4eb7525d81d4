//! Tests of the harness: parallel clusters, each with its version, controllers and registries,
//! removed without leftovers.

use std::process::Command;
use std::time::Duration;

use e2e::cluster::Cluster;
use e2e::{Tool, wait};
use serde_json::{Value, json};

/// Returns the processes with `needle` in their command line.
fn processes_about(needle: &str) -> Vec<String> {
    let output = Command::new("ps")
        .args(["-eo", "pid=,args="])
        .output()
        .expect("ps");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| line.contains(needle))
        .map(ToOwned::to_owned)
        .collect()
}

/// Checks that [`Cluster::get`], which reads objects with a client, returns the same objects as
/// kubectl. This cluster has no kinds of the project.
async fn read_objects_equal_the_output_of_kubectl(cluster: &Cluster) {
    for what in [
        "namespace team-a",
        "serviceaccount default -n team-a",
        "configmap greeting",
        "configmaps/greeting -n default",
        "service kubernetes",
        "clusterrole.rbac.authorization.k8s.io/system:discovery",
    ] {
        let words = what.split(' ').chain(["-o", "json"]);
        let words = ["get"].into_iter().chain(words);
        // A controller can change the object between the two reads.
        wait::until_true(Duration::from_secs(60), what, || async {
            let printed = cluster.kubectl(words.clone()).await?.success()?;
            let expected: Value = serde_json::from_str(&printed)?;
            let found = cluster.get(what).await?;
            anyhow::ensure!(found.as_ref() == Some(&expected), "{found:?} {expected}");
            Ok(true)
        })
        .await
        .unwrap();
    }
    for what in [
        "namespace absent",
        "configmap greeting -n absent",
        "crd a.b",
    ] {
        assert_eq!(cluster.get(what).await.unwrap(), None, "{what}");
    }
    let unserved = cluster.get("bundledeployment web").await;
    assert!(unserved.is_err(), "{unserved:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_run_in_parallel_and_are_removed() {
    let eks = Cluster::builder()
        .server_version("v1.36.3-eks-abcdef0")
        .registries(1)
        .registry_tls(true);
    let k3s = Cluster::builder()
        .server_version("v1.36.3+k3s1")
        .registries(2)
        .registry_password(true)
        .audit(true);
    let (eks, k3s) = tokio::join!(eks.start(), k3s.start());
    let (eks, k3s) = (eks.unwrap(), k3s.unwrap());

    for (cluster, version) in [(&eks, "v1.36.3-eks-abcdef0"), (&k3s, "v1.36.3+k3s1")] {
        let client = cluster.client().await.unwrap();
        assert_eq!(
            client.apiserver_version().await.unwrap().git_version,
            version
        );
        let config_map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "greeting" }, "data": { "hello": version } });
        e2e::cluster::manifests::apply(&client, &[config_map])
            .await
            .unwrap();
        let read = cluster
            .kubectl([
                "get",
                "configmap",
                "greeting",
                "-o",
                "jsonpath={.data.hello}",
            ])
            .await
            .unwrap();
        assert_eq!(read.success().unwrap(), version);
    }

    // A namespace of one cluster does not exist in the other cluster. The controllers of its
    // cluster create objects in the namespace.
    eks.kubectl(["create", "namespace", "team-a"])
        .await
        .unwrap()
        .success()
        .unwrap();
    wait::until_true(
        Duration::from_secs(90),
        "team-a has its ServiceAccount",
        || async {
            let account = eks.get("serviceaccount default -n team-a").await?;
            Ok(account.is_some())
        },
    )
    .await
    .unwrap();
    let absent = k3s
        .kubectl(["get", "namespace", "team-a"])
        .await
        .unwrap()
        .failure(1)
        .unwrap();
    assert_eq!(
        absent,
        r#"Error from server (NotFound): namespaces "team-a" not found"#
    );

    read_objects_equal_the_output_of_kubectl(&eks).await;

    assert!(k3s.audit().unwrap().iter().any(|event| {
        event["requestURI"] == "/api/v1/namespaces/team-a" && event["responseStatus"]["code"] == 404
    }));

    let folders = [eks.folder().to_owned(), k3s.folder().to_owned()];
    for folder in &folders {
        assert!(processes_about(&folder.display().to_string()).len() >= 4);
    }
    drop((eks, k3s));
    for folder in &folders {
        assert_eq!(
            processes_about(&folder.display().to_string()),
            Vec::<String>::new()
        );
        assert!(!folder.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfigs_authenticate_users_and_service_accounts() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let ana = cluster
        .kubeconfig_for("ana@example.com", &["team-a", "developers"])
        .unwrap();
    let robot = cluster
        .service_account_kubeconfig("default", "default")
        .await
        .unwrap();
    let who = |kubeconfig: std::path::PathBuf| {
        let cluster = &cluster;
        async move {
            let kubectl = cluster
                .tool(Tool::Kubectl)
                .await
                .unwrap()
                .kubeconfig(&kubeconfig);
            kubectl
                .args([
                    "auth",
                    "whoami",
                    "-o",
                    "jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
                ])
                .output()
                .await
                .unwrap()
        }
    };
    assert_eq!(
        who(ana).await.success().unwrap(),
        r#"ana@example.com ["team-a","developers","system:authenticated"]"#
    );
    let robot = who(robot).await.success().unwrap();
    assert!(
        robot.starts_with("system:serviceaccount:default:default "),
        "{robot}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_artifact_between_registries() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let source = cluster.registry(0).unwrap().reference("team/empty:1");
    let target = cluster.registry(1).unwrap().reference("team/empty:1");
    let layer = cluster.folder().join("home").join("layer.tar.gz");
    fs_err::write(&layer, b"not really an archive").unwrap();
    let crane = async |arguments: Vec<String>| {
        cluster
            .tool(Tool::Crane)
            .await
            .unwrap()
            .args(arguments)
            .output()
            .await
            .unwrap()
            .success()
            .unwrap()
    };
    crane(vec![
        "append".into(),
        "--new_layer".into(),
        layer.display().to_string(),
        "--new_tag".into(),
        source.clone(),
    ])
    .await;
    crane(vec!["copy".into(), source.clone(), target.clone()]).await;
    assert_eq!(
        crane(vec!["digest".into(), source]).await,
        crane(vec!["digest".into(), target]).await
    );
    assert!(
        cluster
            .registry(1)
            .unwrap()
            .log()
            .unwrap()
            .contains("team/empty")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_impossible_cluster_options_before_start() {
    let error = Cluster::builder()
        .server_version("1.36")
        .start()
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "`1.36` is no version of a server: write it as v1.36.3 or v1.33.0-eks-abcdef0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_is_applied_together_with_its_definition() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let manifests = r"
apiVersion: e2e.example.com/v1
kind: Gadget
metadata: {name: first}
spec: {size: 1}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.e2e.example.com}
spec:
  group: e2e.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
    let objects = e2e::cluster::manifests::parse(manifests.as_bytes(), "gadget.yaml").unwrap();
    let client = cluster.client().await.unwrap();
    e2e::cluster::manifests::apply(&client, &objects)
        .await
        .unwrap();
    let read = cluster
        .kubectl(["get", "gadgets", "-o", "name"])
        .await
        .unwrap();
    assert_eq!(read.success().unwrap(), "gadget.e2e.example.com/first");
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_scenario_leaves_only_its_logs() {
    let builder = Cluster::builder().registries(0).controller_manager(false);
    let cluster = builder.start().await.unwrap();
    let folder = cluster.folder().to_owned();
    let scenario = tokio::spawn(async move {
        let version = cluster.kubectl(["version", "-o", "name"]).await.unwrap();
        version.success().expect("the scenario fails on purpose");
    });
    assert!(scenario.await.unwrap_err().is_panic());
    assert!(folder.join("logs").join("kube-apiserver.log").exists());
    assert!(!folder.join("data").exists());
    assert_eq!(
        processes_about(&folder.display().to_string()),
        Vec::<String>::new()
    );
    fs_err::remove_dir_all(&folder).unwrap();
}

/// Scenarios without network access depend on this isolation.
#[tokio::test]
async fn island_has_only_its_own_loopback() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let island = cluster.island("harness-island").await.unwrap();
    let reference = cluster.registry(0).unwrap().reference("nobody/nothing:1");
    let look = || async {
        let plugin = cluster.plugin().await.unwrap();
        plugin.args(["inspect", reference.as_str()])
    };
    let here = look().await.output().await.unwrap();
    assert!(here.stderr.contains("not found in the registry"), "{here}");
    let there = island.inside(look().await).output().await.unwrap();
    assert!(there.stderr.contains("Connection refused"), "{there}");

    let show = |what: [&'static str; 2]| {
        island.inside(
            e2e::host::command::Command::new("ip")
                .args(["-oneline"])
                .args(what),
        )
    };
    let routes = show(["route", "show"]).output().await.unwrap();
    assert_eq!(routes.success().unwrap(), "");
    let links = show(["link", "show"]).output().await.unwrap();
    assert_eq!(links.success().unwrap().lines().count(), 1);
}
