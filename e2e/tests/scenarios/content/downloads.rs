//! Downloads of the content of Bundles: a user with permission on the path gets the same bytes each
//! time, and other users get nothing.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use e2e::webhook::NAMESPACE;
use e2e::{Cluster, Webhook, WebhookOptions};
use flate2::read::GzDecoder;
use serde_json::json;

use crate::scenarios::admission::callers::another_user;
use crate::scenarios::objects::{apply, get, kubectl, until};

const LONG: Duration = Duration::from_secs(90);

/// Calls the content service as one ServiceAccount.
pub(super) struct Caller {
    client: reqwest::Client,
    token: String,
}

impl Caller {
    /// Creates ServiceAccount `name` with these ClusterRoles.
    pub(super) async fn new(cluster: &Cluster, name: &str, roles: &[&str]) -> Self {
        kubectl(cluster, &format!("create serviceaccount {name} -n default")).await;
        for role in roles {
            let subject = format!("--serviceaccount=default:{name}");
            let binding = format!("clusterrolebinding {name}-{role} --clusterrole={role}");
            kubectl(cluster, &format!("create {binding} {subject}")).await;
        }
        let token = kubectl(cluster, &format!("create token {name} -n default")).await;
        Self {
            client: another_user(cluster).await,
            token: token.trim().to_owned(),
        }
    }

    /// Returns the token of the ServiceAccount.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the client, which sends no token.
    pub(super) fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Returns status and text of the response to PUT.
    pub(super) async fn put(&self, webhook: &Webhook, path: &str, bytes: &[u8]) -> (u16, String) {
        self.put_body(webhook, path, bytes.to_vec()).await
    }

    /// Returns status and text of the response to PUT with this body.
    pub(super) async fn put_body(
        &self,
        webhook: &Webhook,
        path: &str,
        body: impl Into<reqwest::Body>,
    ) -> (u16, String) {
        let url = format!("https://{}{path}", webhook.content_address());
        let request = self.client.put(url).bearer_auth(&self.token);
        let response = request.body(body).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    }

    /// Returns status and body of the response to GET.
    async fn get(&self, webhook: &Webhook, path: &str, range: Option<&str>) -> (u16, Vec<u8>) {
        let url = format!("https://{}{path}", webhook.content_address());
        let mut request = self.client.get(url).bearer_auth(&self.token);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.bytes().await.unwrap().to_vec())
    }

    /// Returns the status of the response to GET.
    async fn status(&self, webhook: &Webhook, path: &str) -> u16 {
        self.get(webhook, path, None).await.0
    }
}

/// Returns the files of a gzipped tar.
fn files(archive: &[u8]) -> BTreeMap<String, String> {
    let mut tar = tar::Archive::new(GzDecoder::new(archive));
    let mut files = BTreeMap::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path, text);
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn permitted_callers_download_the_same_bytes_also_after_a_restart() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let options = WebhookOptions::default();
    let mut webhook = cluster.start_webhook(options).await.unwrap();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: default}\n";
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"name": "web-files", "namespace": NAMESPACE},
        "data": {"all.yaml": object},
    });
    apply(&cluster, &config_map).await;
    let parts = [json!({"configMap": {"name": "web-files"}, "path": "manifests"})];
    let bundle = |name: &str, parts: &[serde_json::Value]| {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle", "metadata": {"name": name},
            "spec": {
                "provisionerClassName": "core-rukpak-io-plain",
                "source": {"type": "configMaps", "configMaps": parts},
            },
        })
    };
    apply(&cluster, &bundle("web", &parts)).await;
    until(&cluster, "bundle web", "Unpacked", "True").await;
    let found = get(&cluster, "bundle web").await.unwrap();
    assert_eq!(
        found["status"]["contentURL"],
        format!("https://bundle-webhook-content.{NAMESPACE}.svc/bundles/web.tgz")
    );

    let reader = Caller::new(&cluster, "reader", &["bundle-reader"]).await;
    let path = "/bundles/web.tgz";
    let (status, archive) = reader.get(&webhook, path, None).await;
    assert_eq!(status, 200);
    let expected = [("manifests/", ""), ("manifests/all.yaml", object)];
    let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(files(&archive), expected.into());
    let (status, part) = reader.get(&webhook, path, Some("bytes=10-19")).await;
    assert_eq!((status, &part[..]), (206, &archive[10..20]));
    for (path, status) in [
        ("/bundles/", 404),
        ("/bundles/none.tgz", 404),
        ("/bundles/..%2fweb.tgz", 404),
        ("/", 404),
    ] {
        assert_eq!(reader.status(&webhook, path).await, status, "{path}");
    }

    // Permission to read Bundles is not permission to read their content.
    let viewer = Caller::new(&cluster, "viewer", &["view"]).await;
    for path in [path, "/bundles/none.tgz"] {
        let (status, text) = viewer.get(&webhook, path, None).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(status, 403);
        assert_eq!(
            text,
            format!(
                "system:serviceaccount:default:viewer must have permission get on {path}: bind ClusterRole bundle-reader\n"
            )
        );
    }
    let forged = Caller {
        client: another_user(&cluster).await,
        token: format!("{}x", reader.token),
    };
    assert_eq!(forged.status(&webhook, path).await, 401);
    let url = format!("https://{}{path}", webhook.content_address());
    let anonymous = forged.client.get(url).send().await.unwrap();
    assert_eq!(anonymous.status(), 401);

    webhook.restart().await.unwrap();
    assert_eq!(until_served(&reader, &webhook, path).await, archive);

    // A deleted Bundle has no content. A new Bundle with the same name also has no content.
    kubectl(&cluster, "delete bundle web").await;
    assert_eq!(reader.status(&webhook, path).await, 404);
    let missing = [json!({"configMap": {"name": "none"}, "path": "manifests"})];
    apply(&cluster, &bundle("web", &missing)).await;
    assert_eq!(reader.status(&webhook, path).await, 404);
}

/// Waits until the content is served, and returns the content.
async fn until_served(reader: &Caller, webhook: &Webhook, path: &str) -> Vec<u8> {
    e2e::wait::until_true(LONG, "the content is served", || async {
        Ok(reader.status(webhook, path).await == 200)
    })
    .await
    .unwrap();
    let (status, archive) = reader.get(webhook, path, None).await;
    assert_eq!(status, 200);
    archive
}
