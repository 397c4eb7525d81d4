//! BundleDeployments whose class differs from the class of their Bundle.

use e2e::{Tool, tools};

use crate::scenarios::requester::*;

const NAME: &str = "forged-chart";
const DEPLOYMENT: &str = "bundledeployment forged-chart";

/// Files of a chart. The chart renders one of its objects only for API servers that serve
/// BundleDeployments.
const CHART: [(&str, &str); 3] = [
    (
        "Chart.yaml",
        "apiVersion: v2\nname: forged-chart\nversion: 1.0.0\n",
    ),
    ("values.yaml", "greeting: none\n"),
    (
        "templates/all.yaml",
        r#"apiVersion: v1
kind: ConfigMap
metadata: {name: always}
data: {greeting: {{ .Values.greeting | quote }}}
{{- if .Capabilities.APIVersions.Has "core.rukpak.io/v1alpha1/BundleDeployment" }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: guarded}
{{- end }}
"#,
    ),
];

/// Writes a BundleDeployment of the plain class with a Bundle of the class for charts, and waits
/// until the objects of the chart are installed with this value.
async fn install(cluster: &Cluster, reference: &str, greeting: &str) {
    let more = json!({"targetNamespace": NAME, "config": {"greeting": greeting}});
    let mut object = deployment(NAME, reference, &more);
    object["spec"]["template"]["spec"]["provisionerClassName"] = "core-rukpak-io-helm".into();
    put(cluster, &[object]).await;
    wait::until_true(LONG, "the value is installed", || async {
        let found = get(cluster, &format!("configmap always -n {NAME}")).await;
        if found.unwrap_or_default()["data"]["greeting"] == greeting {
            return Ok(true);
        }
        let object = get(cluster, DEPLOYMENT).await.unwrap_or_default();
        anyhow::bail!("{}", object["status"])
    })
    .await
    .unwrap();
    until(cluster, NAME, "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn format_written_into_the_status_of_a_bundle_does_not_change_the_objects_of_its_chart() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let options = WebhookOptions {
        flags: ["--memory-limit", "512Mi"].map(str::to_owned).into(),
        programs: vec![tools::folder(&[Tool::Helm]).unwrap()],
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await.unwrap();
    // The plugin finds helm in the same folder as the other programs of the cluster.
    cluster.tool(Tool::Helm).await.unwrap();
    let folder = cluster.folder().join("data").join(NAME);
    for (path, text) in CHART {
        let file = folder.join(path);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, text).unwrap();
    }
    let reference = push(&cluster, NAME, &folder.display().to_string()).await;
    put(&cluster, &[namespace(NAME)]).await;
    install(&cluster, &reference, "first").await;
    let guarded = format!("configmap guarded -n {NAME}");
    assert!(get(&cluster, &guarded).await.is_some());

    let object = get(&cluster, DEPLOYMENT).await.unwrap();
    let bundle = object["status"]["activeBundle"].as_str().unwrap();
    let status = json!({"status": {"content": {"format": "plain+v0"}}});
    let line = format!("patch bundle {bundle} --subresource=status --type=merge --patch={status}");
    try_kubectl(&cluster, &line).await.success().unwrap();
    // Another value needs another rendering.
    install(&cluster, &reference, "second").await;
    assert!(get(&cluster, &guarded).await.is_some(), "it was pruned");
    let line = format!("delete {guarded}");
    try_kubectl(&cluster, &line).await.success().unwrap();
    wait::until_true(LONG, "the object is restored", || async {
        Ok(get(&cluster, &guarded).await.is_some())
    })
    .await
    .unwrap();
}
