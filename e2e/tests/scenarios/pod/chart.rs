//! The Helm chart of the pod with real Helm 4 and Helm 3: installed, upgraded, rolled back and
//! uninstalled on a real API server. The cluster has no node, so the pods never start.
//! `chart_values` tests the values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::host::command::Command;
use e2e::{Cluster, Tool, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{apply, get, kubectl, try_kubectl};

const RELEASE: &str = "bundle-webhook";
const NAMESPACE: &str = "bundle-system";
const IMAGE: &str = "image.repository=registry.example.com/bundle-webhook,image.tag=chart-test";
/// Deadline for the deletion of the objects of a release.
const GONE: Duration = Duration::from_secs(300);
/// The two supported major versions of Helm.
pub(super) const HELMS: [Tool; 2] = [Tool::Helm, Tool::Helm3];

/// Returns the folder of the chart.
pub(in crate::scenarios) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/bundle-webhook")
}

/// Returns a command of `helm` with the words of `line`; `CHART` is replaced by the path of the
/// chart.
pub(in crate::scenarios) async fn helm(cluster: &Cluster, helm: Tool, line: &str) -> Command {
    let chart = folder().display().to_string();
    let words = line
        .split(' ')
        .map(|word| if word == "CHART" { &chart } else { word });
    cluster.tool(helm).await.unwrap().args(words)
}

/// Runs helm and returns its standard output.
async fn run(cluster: &Cluster, tool: Tool, line: &str) -> String {
    let command = helm(cluster, tool, line).await;
    command.output().await.unwrap().success().unwrap()
}

/// Returns the names of objects with the label of the project, in the format of kubectl.
async fn labelled_objects(cluster: &Cluster, kinds: &str) -> Vec<String> {
    let line = format!("get {kinds} -A -l app.kubernetes.io/part-of=kubectl-bundle -o name");
    let found = kubectl(cluster, &line).await;
    found.lines().map(str::to_owned).collect()
}

/// Writes a copy of the chart as an earlier version: one CRD has another description, and one
/// ClusterRole is missing.
fn earlier_version(target: &Path) {
    let mut folders = vec![(folder(), target.to_owned())];
    while let Some((from, to)) = folders.pop() {
        fs_err::create_dir_all(&to).unwrap();
        for entry in fs_err::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let copy = to.join(path.file_name().unwrap());
            if path.is_dir() {
                folders.push((path, copy));
            } else {
                fs_err::copy(path, copy).unwrap();
            }
        }
    }
    let edit = |file: &str, from: &str, to: &str| {
        let path = target.join(file);
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        fs_err::write(path, text.replace(from, to)).unwrap();
    };
    edit("Chart.yaml", "version: 0.1.0", "version: 0.0.9");
    edit(
        "templates/manifests/crds-signaturepolicies.yaml",
        "\"`enforce` rejects content",
        "\"Earlier: `enforce` rejects content",
    );
    edit(
        "templates/manifests/12-rbac-people.yaml",
        "name: bundle-approver",
        "name: bundle-earlier",
    );
}

/// Returns the description of `spec.mode` in the CRD of SignaturePolicies.
async fn description_of_mode(cluster: &Cluster) -> String {
    let crd = get(cluster, "crd signaturepolicies.core.rukpak.io").await;
    let schema = &crd.unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mode = &schema["properties"]["spec"]["properties"]["mode"];
    mode["description"].as_str().unwrap().to_owned()
}

/// Sets `caBundle` and path of each webhook, like the pod.
async fn fill_in_registration(cluster: &Cluster) {
    let found = get(cluster, "validatingwebhookconfiguration bundle-webhook").await;
    let found = found.unwrap();
    let count = found["webhooks"].as_array().unwrap().len();
    let bundle = STANDARD.encode(fs_err::read(cluster.authority_file()).unwrap());
    let patch: Vec<Value> = (0..count)
        .flat_map(|index| {
            let at = format!("/webhooks/{index}/clientConfig");
            [
                json!({"op": "add", "path": format!("{at}/caBundle"), "value": bundle}),
                json!({"op": "add", "path": format!("{at}/service/path"), "value": "/validate/token"}),
            ]
        })
        .collect();
    cluster
        .kubectl([
            "patch",
            "validatingwebhookconfiguration",
            "bundle-webhook",
            "--type=json",
            "--patch",
            &Value::from(patch).to_string(),
        ])
        .await
        .unwrap()
        .success()
        .unwrap();
}

async fn check_release_lifecycle(tool: Tool) {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;
    let earlier = cluster.folder().join("earlier");
    earlier_version(&earlier);

    let install =
        format!("install {RELEASE} CHART --namespace {NAMESPACE} --create-namespace --set {IMAGE}");
    let notes = run(
        cluster,
        tool,
        &install.replace("CHART", &earlier.display().to_string()),
    )
    .await;
    assert!(
        notes.contains("The ProvisionerClasses are not created yet"),
        "{notes}"
    );
    assert!(notes.contains("as powerful as cluster-admin"), "{notes}");
    assert!(
        notes.contains("The image is named by a tag, which can move"),
        "{notes}"
    );
    assert_eq!(
        labelled_objects(cluster, "deploy,pdb,networkpolicy,service").await,
        [
            "deployment.apps/bundle-webhook",
            "poddisruptionbudget.policy/bundle-webhook",
            "networkpolicy.networking.k8s.io/bundle-webhook",
            "service/bundle-webhook",
            "service/bundle-webhook-content",
        ]
    );
    assert!(description_of_mode(cluster).await.starts_with("Earlier"));
    fill_in_registration(cluster).await;
    // One registration is missing, and the upgrade creates it again.
    kubectl(
        cluster,
        "delete mutatingwebhookconfiguration bundle-webhook",
    )
    .await;

    // Classes need a review by the pods, and no pods run in this cluster. The reinstallation below
    // creates the classes.
    let upgrade = format!(
        "upgrade {RELEASE} CHART --namespace {NAMESPACE} --reuse-values --set classes.enabled=false"
    );
    run(cluster, tool, &upgrade).await;
    assert!(!description_of_mode(cluster).await.starts_with("Earlier"));
    let roles = labelled_objects(cluster, "clusterrole").await;
    assert!(
        roles.iter().any(|name| name.ends_with("/bundle-approver")),
        "{roles:?}"
    );
    assert!(
        !roles.iter().any(|name| name.ends_with("/bundle-earlier")),
        "{roles:?}"
    );
    assert!(
        get(cluster, "mutatingwebhookconfiguration bundle-webhook")
            .await
            .is_some()
    );
    let registration = get(cluster, "validatingwebhookconfiguration bundle-webhook")
        .await
        .unwrap();
    for webhook in registration["webhooks"].as_array().unwrap() {
        let client = &webhook["clientConfig"];
        assert_eq!(client["service"]["path"], "/validate/token");
        assert!(client["caBundle"].is_string(), "{webhook}");
    }
    let rollback = format!("rollback {RELEASE} 1 --namespace {NAMESPACE}");
    run(cluster, tool, &rollback).await;
    let roles = labelled_objects(cluster, "clusterrole").await;
    assert!(
        roles.iter().any(|name| name.ends_with("/bundle-earlier")),
        "{roles:?}"
    );

    let second =
        format!("install second CHART --namespace default --set namespace=second-system,{IMAGE}");
    let refused = helm(cluster, tool, &second).await.output().await.unwrap();
    let refused = refused.failure(1).unwrap();
    assert!(
        refused.contains("core.rukpak.io")
            && refused.contains("current value is \"bundle-webhook\""),
        "{refused}"
    );

    let uninstall = format!("uninstall {RELEASE} --namespace {NAMESPACE}");
    run(cluster, tool, &uninstall).await;
    assert_eq!(
        labelled_objects(
            cluster,
            "deploy,pdb,networkpolicy,service,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding,validatingwebhookconfigurations,mutatingwebhookconfigurations"
        )
        .await,
        Vec::<String>::new()
    );
    for kept in [
        "crd bundles.core.rukpak.io",
        "crd signaturepolicies.core.rukpak.io",
        "namespace bundle-system-state",
    ] {
        assert!(get(cluster, kept).await.is_some(), "{kept} is gone");
    }

    // The SignaturePolicy is stored without a review, and exists when the chart is installed again.
    let policy = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicy",
        "metadata": {"name": "chart-policy"},
        "spec": {"images": [{"glob": "registry.example.com/**"}], "authorities": [{"name": "a", "key": {"secretRef": {"name": "a"}}}]},
    });
    apply(cluster, &policy).await;
    let before = get(cluster, "signaturepolicy chart-policy").await.unwrap();
    run(cluster, tool, &install).await;
    let classes = kubectl(cluster, "get provisionerclasses -o name").await;
    assert_eq!(classes.lines().count(), 3, "{classes}");
    let after = get(cluster, "signaturepolicy chart-policy").await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    run(cluster, tool, &uninstall).await;
    let classes = kubectl(cluster, "get provisionerclasses -o name").await;
    assert_eq!(classes.lines().count(), 3, "{classes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_helm_4_survives_upgrade_rollback_and_reinstallation() {
    check_release_lifecycle(Tool::Helm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_helm_3_survives_upgrade_rollback_and_reinstallation() {
    check_release_lifecycle(Tool::Helm3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_without_kept_objects_leaves_no_crds_and_no_namespaces() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    for tool in HELMS {
        let line = format!(
            "install {RELEASE} CHART --namespace default --set keepOnUninstall=false,{IMAGE}"
        );
        run(&cluster, tool, &line).await;
        let line = format!("uninstall {RELEASE} --namespace default --cascade foreground");
        run(&cluster, tool, &line).await;
        // The namespace controller pauses for minutes if kinds are deleted while it lists their
        // objects.
        wait::until_true(
            GONE,
            "CRDs, namespaces and ClusterRoles are gone",
            || async {
                let left = labelled_objects(&cluster, "crd,namespaces,clusterrole").await;
                let crds = try_kubectl(&cluster, "get crd -o name").await.success()?;
                anyhow::ensure!(left.is_empty() && crds.is_empty(), "{left:?} {crds}");
                Ok(true)
            },
        )
        .await
        .unwrap();
    }
}
