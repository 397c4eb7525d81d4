//! Uploads of content: only the requester of the Bundle can upload, and a later upload must have
//! the same content. Covers E31 and E32 of `docs/reference/rukpak-scenarios.md`.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::host::command::Command;
use e2e::webhook::NAMESPACE;
use e2e::{Cluster, Tool, Webhook, WebhookOptions, wait};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::downloads::Caller;
use crate::scenarios::objects::{
    apply, apply_with_kubeconfig, condition, get, kubectl, try_kubectl, until, until_reason,
};

const LONG: Duration = Duration::from_secs(90);
const CLASS: &str = "core-rukpak-io-plain";
const WAITING: &str = "waiting for bundle to be uploaded";
const CHANGED: &str =
    "bundle has already been unpacked, cannot change content of existing bundle\n";

/// Returns a gzipped tar of these files.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        // Unlike `append_data`, this assignment accepts invalid paths.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Returns the archive of a bundle with ConfigMap `web`.
fn content(value: &str) -> Vec<u8> {
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web, namespace: default}}\ndata: {{value: {value}}}\n"
    );
    archive(&[("manifests/all.yaml", &object)])
}

fn spec() -> Value {
    json!({"provisionerClassName": CLASS, "source": {"type": "upload", "upload": {}}})
}

fn bundle(name: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle", "metadata": {"name": name},
        "spec": spec(),
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": CLASS, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": spec(),
        }},
    })
}

/// Starts a cluster with ServiceAccount `ci`, which can install and upload.
pub(super) async fn stage() -> (Cluster, Webhook, Caller) {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let options = WebhookOptions::default();
    let webhook = cluster.start_webhook(options).await.unwrap();
    let roles = ["bundle-uploader", "bundle-editor", "bundle-user", "edit"];
    let ci = Caller::new(&cluster, "ci", &roles).await;
    // The pod needs this permission for dry runs as the ServiceAccount.
    let role = "create role impersonator -n default --verb=impersonate --resource=serviceaccounts --resource-name=ci";
    kubectl(&cluster, role).await;
    let subject = format!("--serviceaccount={NAMESPACE}:bundle-webhook");
    let binding = "create rolebinding impersonator -n default --role=impersonator";
    kubectl(&cluster, &format!("{binding} {subject}")).await;
    (cluster, webhook, ci)
}

async fn apply_as_ci(cluster: &Cluster, object: &Value) {
    let kubeconfig = cluster.service_account_kubeconfig("default", "ci").await;
    apply_with_kubeconfig(cluster, object, &kubeconfig.unwrap()).await;
}

/// Uploads content, and retries until the replica is the leader. Returns status and text of the
/// response.
async fn upload(ci: &Caller, webhook: &Webhook, name: &str, bytes: &[u8]) -> (u16, String) {
    let path = format!("/uploads/{name}.tgz");
    wait::until(LONG, "the leader receives uploads", || async {
        let found = ci.put(webhook, &path, bytes).await;
        Ok((found.0 != 503).then_some(found))
    })
    .await
    .unwrap()
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

async fn until_value(cluster: &Cluster, value: &str) {
    wait::until_true(LONG, "the ConfigMap has the uploaded value", || async {
        let object = get(cluster, "configmap web -n default").await;
        Ok(object.unwrap_or_default()["data"]["value"] == value)
    })
    .await
    .unwrap();
}

fn files(folder: &Path) -> usize {
    fs_err::read_dir(folder).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_uploaded_once_and_survives_a_restart() {
    let (cluster, mut webhook, ci) = stage().await;
    apply_as_ci(&cluster, &deployment()).await;
    let name = generated(&cluster).await;
    let what = format!("bundle {name}");
    let told = until_reason(&cluster, &what, "Unpacked", "UnpackPending").await;
    assert_eq!(told, WAITING);
    let found = get(&cluster, &what).await.unwrap();
    assert_eq!(found["status"]["phase"], "Pending");

    let (first, second) = (content("first"), content("second"));
    let created = (201, String::new());
    let identical = (204, String::new());
    assert_eq!(upload(&ci, &webhook, &name, &first).await, created);
    until(&cluster, "bundledeployment web", "Installed", "True").await;
    until_value(&cluster, "first").await;
    let found = get(&cluster, &what).await.unwrap();
    assert_eq!(found["status"]["phase"], "Unpacked");
    assert_eq!(found["status"]["resolvedSource"]["type"], "upload");
    assert_eq!(upload(&ci, &webhook, &name, &first).await, identical);
    let rejected = upload(&ci, &webhook, &name, &second).await;
    assert_eq!(rejected, (409, CHANGED.to_owned()));

    webhook.restart().await.unwrap();
    assert_eq!(upload(&ci, &webhook, &name, &first).await, identical);
    kubectl(&cluster, "delete configmap web -n default").await;
    until_value(&cluster, "first").await;

    // After the loss of the volume, only the same archive is accepted.
    webhook.stop().await.unwrap();
    fs_err::remove_dir_all(webhook.cache_folder()).unwrap();
    webhook.start().await.unwrap();
    kubectl(&cluster, "delete configmap web -n default").await;
    wait::until_true(LONG, "a condition asks for the lost content", || async {
        let object = get(&cluster, "bundledeployment web").await;
        let conditions = object.unwrap_or_default()["status"]["conditions"].to_string();
        Ok(conditions.contains("is lost (upload the same archive again"))
    })
    .await
    .unwrap();
    let rejected = upload(&ci, &webhook, &name, &second).await;
    assert_eq!(rejected, (409, CHANGED.to_owned()));
    assert_eq!(upload(&ci, &webhook, &name, &first).await, created);
    until_value(&cluster, "first").await;
    until(&cluster, "bundledeployment web", "Installed", "True").await;

    let uploads = webhook.cache_folder().join("uploads");
    assert_eq!(files(&uploads), 1);
    kubectl(&cluster, "delete bundledeployment web").await;
    wait::until_true(LONG, "the upload is removed", || async {
        Ok(files(&uploads) == 0)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_cannot_upload_content_of_a_bundle() {
    let (cluster, webhook, ci) = stage().await;
    // The administrator is the requester of this Bundle.
    apply(&cluster, &bundle("web")).await;
    until_reason(&cluster, "bundle web", "Unpacked", "UnpackPending").await;
    let bytes = content("first");
    let (status, told) = upload(&ci, &webhook, "web", &bytes).await;
    assert_eq!(status, 403);
    let user = "system:serviceaccount:default:ci";
    assert!(
        told.starts_with(&format!(
            "{user} cannot upload content of Bundle web, which "
        )),
        "{told}"
    );
    let reader = Caller::new(&cluster, "reader", &["bundle-reader"]).await;
    let path = "/uploads/web.tgz";
    let (status, told) = reader.put(&webhook, path, &bytes).await;
    let expected = format!(
        "system:serviceaccount:default:reader must have permission update on {path}: bind ClusterRole bundle-uploader\n"
    );
    assert_eq!((status, told), (403, expected));
    let url = format!("https://{}{path}", webhook.content_address());
    let anonymous = ci.client().put(url).body(bytes.clone()).send().await;
    assert_eq!(anonymous.unwrap().status(), 401);
    assert_eq!(files(&webhook.cache_folder().join("uploads")), 0);

    upload_as_impersonator(&cluster, (&webhook, &ci), "web", &bytes).await;
    until(&cluster, "bundle web", "Unpacked", "True").await;
}

/// Grants `ci` permission to impersonate all users and groups, and then uploads content.
async fn upload_as_impersonator(
    cluster: &Cluster,
    (webhook, ci): (&Webhook, &Caller),
    bundle: &str,
    bytes: &[u8],
) {
    let role = "create clusterrole impersonator --verb=impersonate --resource=users,groups";
    kubectl(cluster, role).await;
    let binding = "create clusterrolebinding impersonator --clusterrole=impersonator --serviceaccount=default:ci";
    kubectl(cluster, binding).await;
    wait::until_true(LONG, "the permission is effective", || async {
        Ok(upload(ci, webhook, bundle, bytes).await.0 == 201)
    })
    .await
    .unwrap();
}

/// Makes the administrator the requester of BundleDeployment `web`.
async fn admit_as_administrator(cluster: &Cluster) {
    let admission = async || {
        let found = get(cluster, "bundledeployment web").await;
        found.unwrap_or_default()["status"]["admission"].clone()
    };
    let before = wait::until(LONG, "the BundleDeployment is sealed", || async {
        let admission = admission().await;
        Ok(admission["seal"].is_string().then_some(admission))
    })
    .await
    .unwrap();
    let token = before["admit"].as_str().unwrap();
    let line = format!("annotate bundledeployment web core.rukpak.io/admit={token}");
    kubectl(cluster, &line).await;
    wait::until_true(LONG, "the seal contains the new requester", || async {
        Ok(admission().await["seal"] != before["seal"])
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn former_requester_of_a_deployment_cannot_upload_content_for_its_new_requester() {
    let (cluster, webhook, ci) = stage().await;
    apply_as_ci(&cluster, &deployment()).await;
    let name = generated(&cluster).await;
    let what = format!("bundle {name}");
    until_reason(&cluster, &what, "Unpacked", "UnpackPending").await;
    // `ci` is the requester of the Bundle, and the administrator becomes the requester of the
    // BundleDeployment.
    admit_as_administrator(&cluster).await;
    let bytes = content("first");
    let (status, told) = upload(&ci, &webhook, &name, &bytes).await;
    assert_eq!(status, 403, "{told}");
    let user = "system:serviceaccount:default:ci";
    assert!(
        told.starts_with(&format!(
            "{user} cannot upload content of Bundle {name}, which "
        )),
        "{told}"
    );
    assert_eq!(files(&webhook.cache_folder().join("uploads")), 0);
    assert_eq!(generated(&cluster).await, name);
    until_reason(&cluster, &what, "Unpacked", "UnpackPending").await;
    assert!(get(&cluster, "configmap web -n default").await.is_none());

    upload_as_impersonator(&cluster, (&webhook, &ci), &name, &bytes).await;
    until(&cluster, "bundledeployment web", "Installed", "True").await;
    until_value(&cluster, "first").await;
}

/// Creates a Bundle as ServiceAccount `ci`, which is also in the group `admins`.
async fn create_as_ci_of_admins(cluster: &Cluster, object: &Value) {
    let line = "get serviceaccount ci -n default -o jsonpath=--as-uid={.metadata.uid}";
    let uid = kubectl(cluster, line).await;
    let created = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = created
        .args(["create", "-f", "-", "--as=system:serviceaccount:default:ci"])
        .args([uid.as_str()])
        .args([
            "--as-group=system:serviceaccounts",
            "--as-group=system:serviceaccounts:default",
            "--as-group=system:authenticated",
            "--as-group=admins",
        ])
        .stdin(object.to_string());
    created.output().await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requester_without_its_former_groups_cannot_upload() {
    let (cluster, webhook, ci) = stage().await;
    create_as_ci_of_admins(&cluster, &bundle("web")).await;
    until_reason(&cluster, "bundle web", "Unpacked", "UnpackPending").await;
    let (status, told) = upload(&ci, &webhook, "web", &content("first")).await;
    let expected = "system:serviceaccount:default:ci cannot upload content of Bundle web, which was requested with further groups (admins): upload with a token that has them, or get permission to impersonate this user and its groups\n";
    assert_eq!((status, told.as_str()), (403, expected));
    assert_eq!(files(&webhook.cache_folder().join("uploads")), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_cannot_upload_content_in_a_class_that_decides() {
    let (cluster, webhook, ci) = stage().await;
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
        "metadata": {"name": "delegated"},
        "spec": {
            "provisioner": "core.rukpak.io/plain", "authorization": "Class",
            "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
        },
    });
    apply(&cluster, &class).await;
    let mut bundle = bundle("web");
    bundle["spec"]["provisionerClassName"] = "delegated".into();
    // The administrator is the requester of this Bundle.
    apply(&cluster, &bundle).await;
    until_reason(&cluster, "bundle web", "Unpacked", "UnpackPending").await;
    let (status, told) = upload(&ci, &webhook, "web", &content("first")).await;
    assert_eq!(status, 403, "{told}");
    assert_eq!(files(&webhook.cache_folder().join("uploads")), 0);
}

/// Returns a body and a sender. The body sends its second half only after the sender was used.
fn slow(bytes: &[u8]) -> (reqwest::Body, oneshot::Sender<()>) {
    let (end, ended) = oneshot::channel();
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let (first, rest) = (first.to_vec(), rest.to_vec());
    let pieces = stream::once(async move { Ok::<_, std::io::Error>(first) });
    let pieces = pieces.chain(stream::once(async move {
        ended.await.unwrap();
        Ok(rest)
    }));
    (reqwest::Body::wrap_stream(pieces), end)
}

/// Starts an upload of content of Bundle `web` as ServiceAccount `ci`. Recreates the Bundle as
/// `object` before the upload ends. Returns the response to the upload.
async fn recreated(
    cluster: &Cluster,
    (webhook, ci): (&Webhook, &Caller),
    (object, is_by_ci): (&Value, bool),
) -> (u16, String) {
    let uploads = webhook.cache_folder().join("uploads");
    let arriving = |number: usize| {
        let uploads = &uploads;
        async move {
            let what = "the number of uploads on the volume";
            wait::until_true(LONG, what, || async { Ok(files(uploads) == number) })
                .await
                .unwrap();
        }
    };
    apply_as_ci(cluster, &bundle("web")).await;
    until_reason(cluster, "bundle web", "Unpacked", "UnpackPending").await;
    // A replica that is not yet the leader would immediately reject the upload.
    assert_eq!(upload(ci, webhook, "web", b"<html>").await.0, 400);
    let (body, end) = slow(&content("first"));
    let recreating = async {
        arriving(1).await;
        kubectl(cluster, "delete bundle web").await;
        if is_by_ci {
            apply_as_ci(cluster, object).await;
        } else {
            apply(cluster, object).await;
        }
        end.send(()).unwrap();
    };
    let uploading = ci.put_body(webhook, "/uploads/web.tgz", body);
    let (found, ()) = tokio::join!(uploading, recreating);
    kubectl(cluster, "delete bundle web").await;
    arriving(0).await;
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_that_is_recreated_during_an_upload_gets_no_content_of_another_user() {
    let (cluster, webhook, ci) = stage().await;
    let by = (&webhook, &ci);
    let (status, told) = recreated(&cluster, by, (&bundle("web"), false)).await;
    assert_eq!(status, 403, "{told}");
    let mut other = bundle("web");
    other["spec"]["source"] =
        json!({"type": "image", "image": {"ref": format!("127.0.0.1:1/web@sha256:{:064}", 0)}});
    let (status, told) = recreated(&cluster, by, (&other, true)).await;
    assert_eq!(status, 409, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_at_the_same_time_end_with_the_content_of_one() {
    let (cluster, webhook, ci) = stage().await;
    apply_as_ci(&cluster, &bundle("web")).await;
    until_reason(&cluster, "bundle web", "Unpacked", "UnpackPending").await;
    assert_eq!(upload(&ci, &webhook, "web", b"<html>").await.0, 400);
    let (first, first_end) = slow(&content("first"));
    let (second, second_end) = slow(&content("second"));
    let path = "/uploads/web.tgz";
    let ending = async {
        wait::until_true(LONG, "both uploads arrive", || async {
            Ok(files(&webhook.cache_folder().join("uploads")) == 2)
        })
        .await
        .unwrap();
        first_end.send(()).unwrap();
        second_end.send(()).unwrap();
    };
    let (first, second, ()) = tokio::join!(
        ci.put_body(&webhook, path, first),
        ci.put_body(&webhook, path, second),
        ending
    );
    for (status, told) in [&first, &second] {
        assert!(matches!(status, 201 | 409), "{status} {told}");
    }
    until(&cluster, "bundle web", "Unpacked", "True").await;
    let digest = get(&cluster, "bundle web").await.unwrap()["status"]["content"]["digest"].clone();
    // Two uploads with different content have ended. The Bundle accepts only the content that was
    // unpacked, and the pod removes the other upload.
    let again = [content("first"), content("second")];
    let mut found = Vec::new();
    for bytes in &again {
        found.push(upload(&ci, &webhook, "web", bytes).await.0);
    }
    found.sort_unstable();
    assert_eq!(found, [204, 409]);
    wait::until_true(LONG, "one upload is left", || async {
        Ok(files(&webhook.cache_folder().join("uploads")) == 1)
    })
    .await
    .unwrap();
    let now = get(&cluster, "bundle web").await.unwrap()["status"]["content"]["digest"].clone();
    assert_eq!(now, digest);
}

/// curl sends HTTP/2, and the archive is larger than the flow-control windows of the connection.
#[tokio::test(flavor = "multi_thread")]
async fn curl_uploads_an_archive_of_several_mebibytes() {
    let (cluster, webhook, ci) = stage().await;
    apply_as_ci(&cluster, &bundle("web")).await;
    until_reason(&cluster, "bundle web", "Unpacked", "UnpackPending").await;
    let data: Vec<u8> = (0..3 << 20).map(|_| rand::random()).collect();
    let data = STANDARD.encode(data);
    let lines: Vec<String> = (0..4)
        .map(|number| {
            let part = &data[number << 20..(number + 1) << 20];
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web-{number}, namespace: default}}\ndata: {{value: {part}}}\n"
            )
        })
        .collect();
    let file = cluster.folder().join("data").join("web.tgz");
    fs_err::write(&file, archive(&[("manifests/all.yaml", &lines.concat())])).unwrap();
    let url = format!("https://{}/uploads/web.tgz", webhook.content_address());
    let header = format!("Authorization: Bearer {}", ci.token());
    wait::until_true(LONG, "the upload ends", || async {
        let output = Command::new("curl")
            .args([
                "-sS",
                "--insecure",
                "-H",
                &header,
                "-w",
                "%{http_code}",
                "-T",
            ])
            .args([file.display().to_string(), url.clone()])
            .output()
            .await?;
        let told = output.success()?;
        let status = &told[told.len() - 3..];
        anyhow::ensure!(matches!(status, "503" | "201"), "{told}");
        Ok(status == "201")
    })
    .await
    .unwrap();
    until(&cluster, "bundle web", "Unpacked", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_without_valid_content_is_replaced_by_another_upload() {
    let (cluster, webhook, ci) = stage().await;
    apply_as_ci(&cluster, &bundle("web")).await;
    until_reason(&cluster, "bundle web", "Unpacked", "UnpackPending").await;
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n";
    for (files, text) in [
        (
            ("manifests/folder/all.yaml", object),
            "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"manifests/folder\"",
        ),
        (("../outside.yaml", object), "has `..` in its path"),
        (("manifests/all.yaml", "kind: ["), "manifests/all.yaml"),
    ] {
        let (status, told) = upload(&ci, &webhook, "web", &archive(&[files])).await;
        assert_eq!(status, 201, "{told}");
        wait::until_true(LONG, text, || async {
            let found = get(&cluster, "bundle web").await.unwrap_or_default();
            let unpacked = condition(&found, "Unpacked");
            let message = unpacked["message"].as_str().unwrap_or_default();
            anyhow::ensure!(message.contains(text), "{unpacked}");
            assert_eq!(unpacked["reason"], "UnpackFailed");
            assert_eq!(found["status"]["phase"], "Failing");
            Ok(true)
        })
        .await
        .unwrap();
    }
    let (status, told) = upload(&ci, &webhook, "web", b"<html>").await;
    assert_eq!(
        (status, told.as_str()),
        (400, "the body is not a gzipped tar archive\n")
    );
    assert_eq!(upload(&ci, &webhook, "web", &content("a")).await.0, 201);
    until(&cluster, "bundle web", "Unpacked", "True").await;
    let deleted = try_kubectl(&cluster, "delete bundle web").await;
    deleted.success().unwrap();
    assert_eq!(upload(&ci, &webhook, "web", &content("a")).await.0, 404);
}
