//! The preset `rukpak` of the chart. A client that uses only RukPak's names finds the Service and
//! its certificate authority, and referenced ConfigMaps must be immutable. The pod needs only the
//! permissions that the preset grants.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::host::command::{Command, Output};
use e2e::{Cluster, Webhook, wait};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::{NAMESPACE, PLAIN, bundle, deployment, layer, object, stage};
use crate::scenarios::objects::{
    apply, apply_with_kubeconfig, get, kubectl, try_kubectl, until, until_reason,
};

const LONG: Duration = Duration::from_secs(90);
const POD: &str = "system:serviceaccount:rukpak-system:bundle-webhook";

/// A client that uses only the names of RukPak. The client connects to the process of the webhook
/// instead of the host in the URL, such as `core.rukpak-system.svc`.
struct RukPakClient<'a> {
    cluster: &'a Cluster,
    webhook: &'a Webhook,
    token: String,
}

impl<'a> RukPakClient<'a> {
    async fn new(cluster: &'a Cluster, webhook: &'a Webhook) -> Self {
        kubectl(cluster, "create serviceaccount ci -n default").await;
        for role in [
            "bundle-reader",
            "bundle-uploader",
            "bundle-editor",
            "bundle-user",
        ] {
            let line = format!(
                "create clusterrolebinding {role} --clusterrole={role} --serviceaccount=default:ci"
            );
            kubectl(cluster, &line).await;
        }
        let token = kubectl(cluster, "create token ci -n default").await;
        Self {
            cluster,
            webhook,
            token: token.trim().to_owned(),
        }
    }

    /// Runs curl, which trusts the authority in Secret `rukpak-ca`. curl prints the HTTP status
    /// after the body.
    async fn curl(&self, arguments: &[&str], url: &str) -> Output {
        let ca = self.cluster.folder().join("data").join("rukpak-ca.crt");
        fs_err::write(&ca, authorities(self.cluster).await.unwrap()).unwrap();
        let to = format!("::{}", self.webhook.content_address());
        let header = format!("Authorization: Bearer {}", self.token);
        let command = Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--connect-to", &to, "-H", &header])
            .args(["--cacert", &ca.display().to_string(), "-w", "%{http_code}"])
            .args(arguments)
            .args([url]);
        command.output().await.unwrap()
    }

    /// Repeats the request while the response has status 503, because the replica is not the leader
    /// yet. Returns the status of the first other response.
    async fn status(&self, arguments: &[&str], url: &str) -> String {
        wait::until(LONG, "the leader answers", || async {
            let output = self.curl(arguments, url).await.success()?;
            let status = output.trim()[output.trim().len() - 3..].to_owned();
            Ok((status != "503").then_some(status))
        })
        .await
        .unwrap()
    }
}

/// Returns `ca.crt` of Secret `rukpak-ca`. Returns an error if the Secret has other entries.
async fn authorities(cluster: &Cluster) -> anyhow::Result<String> {
    let secret = format!("secret rukpak-ca -n {NAMESPACE}");
    let secret = get(cluster, &secret).await.unwrap_or_default();
    let data = secret["data"].as_object().cloned().unwrap_or_default();
    let keys: Vec<_> = data.keys().collect();
    anyhow::ensure!(keys == ["ca.crt"], "{keys:?}");
    let pem = STANDARD.decode(data["ca.crt"].as_str().unwrap())?;
    let pem = String::from_utf8(pem)?;
    anyhow::ensure!(!pem.contains("PRIVATE KEY"));
    Ok(pem)
}

/// Waits until the Secret has this number of authorities, and returns the authorities.
async fn until_authorities(cluster: &Cluster, expected: usize) -> String {
    let what = format!("rukpak-ca has {expected} authorities");
    wait::until(LONG, &what, || async {
        let pem = authorities(cluster).await?;
        let found = CertificateDer::pem_slice_iter(pem.as_bytes()).count();
        Ok((found == expected).then_some(pem))
    })
    .await
    .unwrap()
}

/// Checks the classes of the preset.
async fn check_classes(cluster: &Cluster) {
    for class in ["plain", "registry", "helm"] {
        let what = format!("provisionerclass core-rukpak-io-{class}");
        let spec = get(cluster, &what).await.unwrap()["spec"].take();
        assert_eq!(spec["authorization"], "Class", "{class}");
        assert_eq!(spec["sources"]["privateAddresses"], "Allow", "{class}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_of_rukpak_uploads_downloads_and_follows_the_authority() {
    let (cluster, mut webhook) = stage(Cluster::builder().registries(0).audit(true)).await;
    check_classes(&cluster).await;
    let service = format!("service core -n {NAMESPACE}");
    let service = get(&cluster, &service).await.unwrap();
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        (&port["name"], &port["port"]),
        (&json!("https"), &json!(443))
    );
    let first = until_authorities(&cluster, 1).await;

    // Like `rukpakctl run`, the scenario sets the digest of the folder as a label of the template.
    let mut combo = deployment("combo", PLAIN, &json!({"type": "upload", "upload": {}}));
    combo["spec"]["template"]["metadata"]["labels"]["bundleDigest"] = json!("7fdb455bf7");
    let script = RukPakClient::new(&cluster, &webhook).await;
    // Only the requester of a Bundle can upload its content, so the ServiceAccount creates the
    // BundleDeployment.
    let ci = cluster.service_account_kubeconfig("default", "ci").await;
    apply_with_kubeconfig(&cluster, &combo, &ci.unwrap()).await;
    let name = generated(&cluster).await;
    let waiting = until_reason(
        &cluster,
        &format!("bundle {name}"),
        "Unpacked",
        "UnpackPending",
    )
    .await;
    assert_eq!(waiting, "waiting for bundle to be uploaded");
    let file = cluster.folder().join("data").join("combo.tgz");
    let files = [("manifests/all.yaml", &*object("combo", "hello"))];
    fs_err::write(&file, layer(&files)).unwrap();
    let file = file.display().to_string();
    let url = format!("https://core.{NAMESPACE}.svc/uploads/{name}.tgz");
    assert_eq!(script.status(&["-T", &file], &url).await, "201");
    until(&cluster, "bundledeployment combo", "Installed", "True").await;
    assert_eq!(script.status(&["-T", &file], &url).await, "204");
    let unpacked = get(&cluster, &format!("bundle {name}")).await.unwrap();
    let content = format!("https://core.{NAMESPACE}.svc/bundles/{name}.tgz");
    assert_eq!(unpacked["status"]["contentURL"], content);
    assert_eq!(script.status(&["-o", "/dev/null"], &content).await, "200");

    // The Secret contains a new authority before this authority signs certificates. If a client
    // changes the Secret, the pod restores its content.
    let tls = format!("secret bundle-webhook-tls -n {NAMESPACE}-state");
    let empty = r#"--patch=[{"op":"remove","path":"/data"}]"#;
    kubectl(&cluster, &format!("patch {tls} --type=json {empty}")).await;
    let both = until_authorities(&cluster, 2).await;
    assert!(both.contains(first.trim()));
    assert_eq!(script.status(&["-o", "/dev/null"], &content).await, "200");
    let ours = format!("secret rukpak-ca -n {NAMESPACE}");
    let other = r#"--patch={"data":{"ca.crt":"YQ==","tls.key":"YQ=="}}"#;
    kubectl(&cluster, &format!("patch {ours} {other}")).await;
    assert_eq!(until_authorities(&cluster, 2).await, both);

    webhook.stop().await.unwrap();
    check_requests(&cluster);
}

/// Returns the only Bundle of the cluster.
async fn generated(cluster: &Cluster) -> String {
    wait::until(LONG, "the Bundle of the template", || async {
        let names = kubectl(cluster, "get bundles -o jsonpath={.items[*].metadata.name}").await;
        Ok((!names.is_empty()).then_some(names))
    })
    .await
    .unwrap()
}

/// Checks that no request of the pod was denied. Checks that updates of `rukpak-ca` are the only
/// writes of the pod to Secrets of the system namespace.
fn check_requests(cluster: &Cluster) {
    let events = cluster.audit().unwrap();
    let of_pod = events
        .iter()
        .filter(|event| event["user"]["username"] == POD);
    let denied = |event: &&Value| event["responseStatus"]["code"] == 403;
    let denied: Vec<_> = of_pod.clone().filter(denied).collect();
    assert!(denied.is_empty(), "{denied:?}");
    let written: Vec<_> = of_pod
        .filter(|event| {
            let about = &event["objectRef"];
            let reads = ["get", "list", "watch"].map(Value::from);
            about["resource"] == "secrets"
                && about["namespace"] == NAMESPACE
                && !reads.contains(&event["verb"])
        })
        .map(|event| (&event["verb"], &event["objectRef"]["name"]))
        .collect();
    assert!(!written.is_empty());
    let expected = (&json!("update"), &json!("rukpak-ca"));
    assert!(
        written.iter().all(|found| *found == expected),
        "{written:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_of_the_namespace_of_rukpak_are_guarded() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(0)).await;
    let parts = json!([{"configMap": {"name": "guarded"}, "path": "manifests"}]);
    let source = json!({"type": "configMaps", "configMaps": parts});
    apply(&cluster, &bundle("guarded", &source)).await;
    let text = format!(
        "source bundle content: get configmap {NAMESPACE}/guarded: ConfigMap \"guarded\" not found"
    );
    let message = until(&cluster, "bundle guarded", "Unpacked", "False").await;
    assert!(message.contains(&text), "{message}");

    let create = format!("create configmap guarded --from-literal=all.yaml=a -n {NAMESPACE}");
    let rejected = try_kubectl(&cluster, &create).await.failure(1).unwrap();
    assert!(
        rejected.contains(
            "configmap \"guarded\" is referenced in .spec.source.configMaps[].configMap.name by bundles [guarded]; referenced configmaps must have .immutable == true"
        ),
        "{rejected}"
    );
    // In other namespaces, ConfigMaps can be mutable.
    let elsewhere = create.replace(NAMESPACE, "default");
    kubectl(&cluster, &elsewhere).await;

    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"name": "guarded", "namespace": NAMESPACE},
        "data": {"all.yaml": object("guarded", "hello")},
    });
    apply(&cluster, &config_map).await;
    until(&cluster, "bundle guarded", "Unpacked", "True").await;
    let delete = format!("delete configmap guarded -n {NAMESPACE}");
    let rejected = try_kubectl(&cluster, &delete).await.failure(1).unwrap();
    assert!(
        rejected.contains("configmap \"guarded\" is in-use by bundle \"guarded\""),
        "{rejected}"
    );
}
