//! Content from an archive at a URL: installed, pinned to its first bytes, and rejected with the
//! reason for each bad response.

use std::path::Path;
use std::sync::Arc;

use bundle_core::reference::Digest;
use bundle_testkit::file_server::{FileResponse, FileServer};
use bytes::Bytes;
use e2e::certs::Authority;
use e2e::webhook::{NAMESPACE, shared};
use e2e::{Cluster, Webhook, WebhookOptions, wait};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::config_maps::{class, until_text};
use crate::scenarios::objects::apply_as;
use crate::scenarios::reconcile::{CLASS, LONG, apply, condition, get, installed, kubectl, until};

/// A class that allows the addresses of the servers in these scenarios.
const LOCAL_CLASS: &str = "httpsource";

/// Returns a gzipped tar of these files.
pub(in crate::scenarios) fn archive(files: &[(&str, &str)]) -> Bytes {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap().into()
}

/// Returns an archive with one ConfigMap `name` in namespace default.
fn bundle_archive(name: &str, text: &str) -> Bytes {
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{text: {text}}}\n"
    );
    let package = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: {name}\nversion: 1.4.0\nformat: plain+v0\n"
    );
    archive(&[("bundle.yaml", &package), ("manifests/all.yaml", &object)])
}

/// Starts a server with a certificate of `authority`.
pub(in crate::scenarios) async fn https_server(authority: &Authority, folder: &Path) -> FileServer {
    server_with(acceptor(authority, folder)).await
}

/// Starts a server with these certificates.
pub(in crate::scenarios::reconcile) async fn tls_server(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> FileServer {
    server_with(tls_acceptor(certificates, key)).await
}

async fn server_with(acceptor: TlsAcceptor) -> FileServer {
    let accept = move |stream| {
        let acceptor = acceptor.clone();
        async move { acceptor.accept(stream).await }
    };
    FileServer::start_with(accept).await.unwrap()
}

/// Accepts TLS connections with a new certificate of `authority`.
pub(in crate::scenarios::reconcile) fn acceptor(
    authority: &Authority,
    folder: &Path,
) -> TlsAcceptor {
    let identity = authority.server(folder, "files").unwrap();
    let certificates = CertificateDer::pem_file_iter(&identity.certificate).unwrap();
    let certificates = certificates.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
    tls_acceptor(certificates, key)
}

fn tls_acceptor(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Starts a cluster, a server, and a webhook that trusts the certificate of the server.
pub(in crate::scenarios::reconcile) async fn stage(
    options: WebhookOptions,
) -> (Cluster, Webhook, FileServer) {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let folder = cluster.folder().join("data").join("files");
    fs_err::create_dir_all(&folder).unwrap();
    let authority = Authority::new(&folder, "files-ca").unwrap();
    let server = https_server(&authority, &folder).await;
    let ca = authority.certificate().display().to_string();
    let mut options = options;
    options.flags.extend(["--registry-ca".to_owned(), ca]);
    let webhook = cluster.start_webhook(options).await.unwrap();
    let allow = json!({"sources": {"privateAddresses": "Allow"}});
    apply(&cluster, &class(LOCAL_CLASS, &allow)).await;
    (cluster, webhook, server)
}

fn spec(class: &str, url: &str, auth: &Value) -> Value {
    let source = json!({"type": "http", "http": {"url": url, "auth": auth}});
    json!({"provisionerClassName": class, "source": source})
}

fn bundle(name: &str, class: &str, url: &str, auth: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": spec(class, url, auth),
    })
}

fn deployment(name: &str, url: &str, auth: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": LOCAL_CLASS, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": spec(LOCAL_CLASS, url, auth),
        }},
    })
}

/// Waits until the Bundle fails with this message.
async fn until_failing_with(cluster: &Cluster, name: &str, expected: &str) {
    wait::until_true(LONG, &format!("{name} fails: {expected}"), || async {
        let found = get(cluster, &format!("bundle {name}")).await;
        let found = found.unwrap_or_default();
        let condition = condition(&found, "Unpacked");
        let reported = condition["message"].as_str().unwrap_or_default();
        if found["status"]["phase"] == "Failing"
            && reported.contains("source bundle content: ")
            && reported.contains(expected)
        {
            return Ok(true);
        }
        anyhow::bail!("{reported}")
    })
    .await
    .unwrap();
}

/// Returns the number of requests for `path`.
fn requests(server: &FileServer, path: &str) -> usize {
    let requests = server.requests();
    requests
        .iter()
        .filter(|request| request.path == path)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_at_a_url_is_installed_and_other_bytes_are_not_followed() {
    let (cluster, mut webhook, server) = stage(WebhookOptions::default()).await;
    let line = format!(
        "create secret generic httpsource-login -n {NAMESPACE} --type=kubernetes.io/basic-auth --from-literal=username=ana --from-literal=password=s3cret"
    );
    kubectl(&cluster, &line).await;
    let login = ("ana".to_owned(), "s3cret".to_owned());
    let serve = |bytes: &Bytes| {
        let response = FileResponse::Protected(bytes.clone(), login.clone());
        server.respond("/web-1.4.0.tgz", response);
    };
    let first = bundle_archive("httpsource", "first");
    serve(&first);
    let target = FileResponse::Redirect("/web-1.4.0.tgz".to_owned());
    server.respond("/web.tgz", target);
    let url = format!("https://{}/web.tgz", server.host());
    let auth = json!({"secret": {"name": "httpsource-login"}});
    apply(&cluster, &deployment("httpsource", &url, &auth)).await;
    installed(&cluster, "httpsource").await;
    until_text(&cluster, "httpsource", "first").await;
    let name = kubectl(&cluster, "get bundles -l app=httpsource -o name").await;
    let name = name.trim().replace("bundle.core.rukpak.io/", "bundle ");
    let unpacked = get(&cluster, &name).await.unwrap();
    let status = &unpacked["status"];
    assert_eq!(status["phase"], "Unpacked");
    assert_eq!(status["resolvedSource"], unpacked["spec"]["source"]);
    assert_eq!(status["content"]["version"], "1.4.0");
    let digest = Digest::of(&first).to_string();
    assert_eq!(status["content"]["digest"], digest);
    assert_eq!(condition(&unpacked, "Verified")["reason"], "NotRequired");

    // If the server returns other bytes, the pod reports the difference and does not install these
    // bytes.
    let second = bundle_archive("httpsource", "second");
    serve(&second);
    let reported = until(&cluster, &name, "SourceMoved", "True").await;
    assert!(reported.contains(&digest), "{reported}");
    let now = Digest::of(&second).to_string();
    assert!(reported.contains(&now), "{reported}");

    // After the loss of the cache, the pod still installs only the recorded bytes.
    webhook.kill().unwrap();
    let cache = format!("webhook-{}", webhook.address().port());
    fs_err::remove_dir_all(cluster.folder().join("data").join(cache)).unwrap();
    kubectl(&cluster, "delete configmap httpsource -n default").await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the other bytes are refused", || async {
        let object = get(&cluster, "bundledeployment httpsource").await;
        let conditions = object.unwrap_or_default()["status"]["conditions"].to_string();
        Ok(conditions.contains("only the recorded content is accepted"))
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, "configmap httpsource -n default").await, None);
    let kept = get(&cluster, &name).await.unwrap();
    assert_eq!(kept["status"]["content"]["digest"], digest);
    assert_eq!(kept["status"]["resolvedSource"], kept["spec"]["source"]);

    // When the server returns the recorded bytes again, the pod installs them.
    serve(&first);
    until_text(&cluster, "httpsource", "first").await;
    until(&cluster, &name, "SourceMoved", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_responses_fail_with_their_reason_and_invalid_files_are_not_read_again() {
    let proxy = FileServer::start().await.unwrap();
    // Public servers are reached through a proxy, so the pod does not check their addresses.
    let (cluster, _webhook, server) = stage(WebhookOptions {
        environment: vec![("HTTP_PROXY".to_owned(), format!("http://{}", proxy.host()))],
        ..WebhookOptions::default()
    })
    .await;
    let public_class = "httpsource-public";
    let listed = json!({"sources": {"insecureHosts": ["files.example.com"]}});
    apply(&cluster, &class(public_class, &listed)).await;
    let valid = bundle_archive("httpsource-late", "hello");
    let half = valid.slice(..valid.len() / 2);
    for (path, response) in [
        ("/page.tgz", FileResponse::Html("<html>log in</html>")),
        ("/cut.tgz", FileResponse::WrongLength(half.clone(), 1 << 20)),
        ("/half.tgz", FileResponse::File(half)),
        ("/endless.tgz", FileResponse::Endless),
        (
            "/escape.tgz",
            FileResponse::File(archive(&[("manifests/a\nb", "")])),
        ),
        (
            "/protected.tgz",
            FileResponse::WithToken(valid.clone(), "t0ken".to_owned()),
        ),
        (
            "/plain.tgz",
            FileResponse::Redirect("http://files.example.com/a.tgz".to_owned()),
        ),
    ] {
        server.respond(path, response);
    }
    for (path, target) in [
        ("metadata", "https://169.254.169.254/latest".to_owned()),
        ("local", format!("https://{}/page.tgz", server.host())),
        ("private", "https://10.0.0.1/a.tgz".to_owned()),
    ] {
        let path = format!("http://files.example.com/{path}.tgz");
        proxy.respond(&path, FileResponse::Redirect(target));
    }
    let none = json!({});
    let local = |path: &str| format!("https://{}/{path}.tgz", server.host());
    let public = |path: &str| format!("http://files.example.com/{path}.tgz");
    for (name, url, auth, expected) in [
        (
            "missing",
            local("missing"),
            &none,
            "missing.tgz: unexpected status \"404 Not Found\"",
        ),
        (
            "protected",
            local("protected"),
            &none,
            "unexpected status \"401 Unauthorized\"",
        ),
        (
            "secret",
            local("protected"),
            &json!({"secret": {"name": "httpsource-gone"}}),
            "secret httpsource-gone: it does not exist",
        ),
        ("cut", local("cut"), &none, "was interrupted"),
        (
            "page",
            local("page"),
            &none,
            "the response is not a gzipped tar archive (media type \"text/html\")",
        ),
        ("half", local("half"), &none, "the archive cannot be read"),
        (
            "endless",
            local("endless"),
            &none,
            "larger than the limit of 128 MiB",
        ),
        ("escape", local("escape"), &none, "control character"),
        (
            "plain",
            local("plain"),
            &none,
            "the target does not use TLS",
        ),
        (
            "metadata",
            public("metadata"),
            &none,
            "the server redirects to 169.254.169.254: the target is a loopback or link-local address",
        ),
        (
            "local",
            public("local"),
            &none,
            "the target is a loopback or link-local address",
        ),
        (
            "private",
            public("private"),
            &none,
            "the target is in a private network",
        ),
    ] {
        let name = format!("httpsource-{name}");
        // Servers behind the proxy are public.
        let is_public = url.starts_with("http://files.example.com/");
        let class = if is_public { public_class } else { LOCAL_CLASS };
        apply(&cluster, &bundle(&name, class, &url, auth)).await;
        until_failing_with(&cluster, &name, expected).await;
    }
    // The pod retries after failures that can be temporary. The pod does not read an invalid file
    // again.
    let pages = requests(&server, "/page.tgz");
    let missing = requests(&server, "/missing.tgz");
    wait::until_true(LONG, "the missing file is requested again", || async {
        Ok(requests(&server, "/missing.tgz") > missing + 1)
    })
    .await
    .unwrap();
    assert_eq!(requests(&server, "/page.tgz"), pages);
    server.respond("/missing.tgz", FileResponse::File(valid.clone()));
    until(&cluster, "bundle httpsource-missing", "Unpacked", "True").await;

    // The scenario executes the next steps that the messages name.
    server.respond("/page.tgz", FileResponse::File(valid));
    kubectl(&cluster, "annotate bundle httpsource-page corrected=true").await;
    until(&cluster, "bundle httpsource-page", "Unpacked", "True").await;
    let line =
        format!("create secret generic httpsource-gone -n {NAMESPACE} --from-literal=token=t0ken");
    kubectl(&cluster, &line).await;
    until(&cluster, "bundle httpsource-secret", "Unpacked", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_urls_and_secrets_at_admission() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "httpsource-refused";
    apply(
        &cluster,
        &class("httpsource-signed", &json!({"signatures": "Required"})),
    )
    .await;
    let none = json!({});
    let valid = "https://files.example.com/a.tgz";
    for (class, url, auth, expected) in [
        (
            CLASS,
            "https://ana:s3cret@files.example.com/a.tgz",
            &none,
            "the URL has credentials",
        ),
        (
            CLASS,
            "ftp://files.example.com/a",
            &none,
            "BUNDLE-REVIEW-006",
        ),
        (CLASS, "https://0x7f.1/a.tgz", &none, "has an invalid host"),
        (
            CLASS,
            "https://169.254.169.254/a.tgz",
            &none,
            "does not allow content from the private address 169.254.169.254",
        ),
        (
            CLASS,
            valid,
            &json!({"insecureSkipVerify": true}),
            "does not allow insecureSkipVerify for files.example.com",
        ),
        (
            CLASS,
            "http://files.example.com/a.tgz",
            &none,
            "does not allow a URL without TLS for files.example.com",
        ),
        ("httpsource-signed", valid, &none, "BUNDLE-TRUST-006"),
    ] {
        let object = bundle(name, class, url, auth);
        wait::until_true(LONG, &format!("{url} is refused"), || async {
            let written = apply_as(&cluster, &object, None).await;
            let refused = written.failure(1)?;
            assert!(!refused.contains("s3cret"), "{refused}");
            Ok(refused.contains(expected))
        })
        .await
        .unwrap();
    }
    // A user without permission to read the Secret cannot make the pod send its credentials to
    // another server.
    let user = "httpsource-mallory";
    for role in ["bundle-editor", "bundle-user"] {
        let line =
            format!("create clusterrolebinding {user}-{role} --clusterrole={role} --user={user}");
        kubectl(&cluster, &line).await;
    }
    let object = bundle(name, CLASS, valid, &json!({"secret": {"name": "regcred"}}));
    wait::until_true(LONG, "the Secret is refused", || async {
        let written = apply_as(&cluster, &object, Some(user)).await;
        let refused = written.failure(1)?;
        Ok(refused.contains("BUNDLE-REVIEW-071"))
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, &format!("bundle {name}")).await, None);
    kubectl(&cluster, "delete provisionerclass httpsource-signed").await;
}
