//! Content from a git repository over https, with the credentials in a Secret: user and password,
//! or a token alone. Covers E26 of `docs/reference/rukpak-scenarios.md`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::certs::Authority;
use e2e::webhook::{NAMESPACE, WebhookOptions};
use e2e::{Cluster, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::{Repository, apply_admitted, bundle, deployment, text_of, until_reported};
use crate::scenarios::reconcile::sources::http;
use crate::scenarios::reconcile::{LONG, apply, condition, get, installed, kubectl};

/// Maximum size of the head of a request, in bytes.
const LIMIT: usize = 16 << 10;

/// HTTPS server for the repositories of a folder, which requires basic authentication. The server
/// stops when dropped.
struct GitHttpsServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for GitHttpsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ServedRepositories {
    folder: PathBuf,
    /// Accepted values of the header `Authorization`.
    authorizations: Vec<String>,
}

impl GitHttpsServer {
    /// Starts a server that accepts these logins (`USER:PASSWORD`).
    async fn start(acceptor: TlsAcceptor, folder: PathBuf, logins: &[&str]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let encoded = logins.iter().map(|login| STANDARD.encode(login));
        let served = Arc::new(ServedRepositories {
            folder,
            authorizations: encoded.map(|login| format!("Basic {login}")).collect(),
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, served) = (acceptor.clone(), Arc::clone(&served));
                // A client that disconnects ends only its own response.
                tokio::spawn(async move {
                    let response = async { serve(acceptor.accept(stream).await?, &served).await };
                    response.await.is_ok()
                });
            }
        });
        Self { address, task }
    }

    fn url(&self, repository: &str) -> String {
        format!("https://{}/{repository}", self.address)
    }
}

/// Reads one request, and writes its response.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    served: &ServedRepositories,
) -> anyhow::Result<()> {
    let mut head = Vec::<u8>::new();
    let end = loop {
        if let Some(end) = end_of_head(&head) {
            break end;
        }
        anyhow::ensure!(head.len() < LIMIT, "the head is too large");
        anyhow::ensure!(stream.read_buf(&mut head).await? > 0, "no request");
    };
    let mut body = head.split_off(end);
    let head = String::from_utf8(head)?;
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = words.next().zip(words.next()).context("no request line")?;
    let headers: BTreeMap<String, &str> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let header = |name: &str| headers.get(name).copied().unwrap_or_default();
    let length: usize = header("content-length").parse().unwrap_or_default();
    while body.len() < length {
        anyhow::ensure!(stream.read_buf(&mut body).await? > 0, "no body");
    }
    let authorization = header("authorization");
    let is_allowed = served.authorizations.iter().any(|it| it == authorization);
    let response = if is_allowed {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let folder = served.folder.display().to_string();
        let variables = [
            ("GIT_PROJECT_ROOT", folder.as_str()),
            ("GIT_HTTP_EXPORT_ALL", "1"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("PATH_INFO", path),
            ("QUERY_STRING", query),
            ("REQUEST_METHOD", method),
            ("CONTENT_TYPE", header("content-type")),
            ("CONTENT_LENGTH", header("content-length")),
            ("HTTP_CONTENT_ENCODING", header("content-encoding")),
            ("GIT_PROTOCOL", header("git-protocol")),
        ];
        let set = variables.into_iter().filter(|(_, value)| !value.is_empty());
        backend(set, &body).await?
    } else {
        b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"git\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()
    };
    stream.write_all(&response).await?;
    Ok(stream.shutdown().await?)
}

/// Returns the length of the head of a request, including the empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    end.map(|end| end + 4)
}

/// Runs `git http-backend` for one request, and returns its response for HTTP.
async fn backend(
    variables: impl Iterator<Item = (&str, &str)>,
    body: &[u8],
) -> anyhow::Result<Vec<u8>> {
    let mut child = Command::new("git")
        .arg("http-backend")
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let (_, output) = tokio::join!(
        async move { stdin.write_all(body).await },
        child.wait_with_output()
    );
    let output = output?.stdout;
    let end = end_of_head(&output).context("no head")?;
    let (head, content) = output.split_at(end);
    let head = String::from_utf8(head.to_vec())?;
    let status = head.lines().find_map(|line| line.strip_prefix("Status: "));
    let response = format!(
        "HTTP/1.1 {}\r\ncontent-length: {}\r\nconnection: close\r\n{head}",
        status.unwrap_or("200 OK"),
        content.len()
    );
    Ok([response.as_bytes(), content].concat())
}

/// Returns a Secret with these entries.
fn secret(name: &str, kind: &str, entries: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": entries,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn git_content_over_https_is_installed_with_a_password_or_a_token() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let folder = cluster.folder().join("data").join("githttps-ca");
    fs_err::create_dir_all(&folder).unwrap();
    let authority = Authority::new(&folder, "githttps").unwrap();
    let ca = authority.certificate().display().to_string();
    let flags = ["--memory-limit", "192Mi", "--registry-ca", &ca];
    let options = WebhookOptions {
        flags: flags.map(str::to_owned).into(),
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await.unwrap();
    let class = "githttps";
    let repository = Repository::start(&cluster, class).await;
    let names = ["githttps-password", "githttps-token"];
    for name in names {
        repository.bundle(name, "hello");
    }
    let commit = repository.push(false).await;
    repository.allow(&cluster, class).await;
    // For a token alone, the pod sends the user name `git`.
    let server = GitHttpsServer::start(
        http::acceptor(&authority, &folder),
        repository.server.folder().to_owned(),
        &["ana:s3cret", "git:t0ken"],
    )
    .await;
    let source = |directory: &str, secret: Option<&str>| {
        let mut git = json!({
            "repository": server.url("web.git"), "directory": directory,
            "ref": {"branch": "main"},
        });
        if let Some(secret) = secret {
            git["auth"] = json!({"secret": {"name": secret}});
        }
        json!({"type": "git", "git": git})
    };

    let password = json!({"username": "ana", "password": "s3cret"});
    let token = json!({"password": "t0ken"});
    for (name, kind, entries) in [
        (names[0], "kubernetes.io/basic-auth", &password),
        (names[1], "Opaque", &token),
    ] {
        apply(&cluster, &secret(name, kind, entries)).await;
        let object = deployment(name, class, &source(name, Some(name)));
        apply_admitted(&cluster, &object, None).await;
        installed(&cluster, name).await;
        assert_eq!(text_of(&cluster, name).await, Some(json!("hello")));
        let found = kubectl(&cluster, &format!("get bundles -l app={name} -o name")).await;
        let found = found.trim().replace("bundle.core.rukpak.io/", "bundle ");
        let found = get(&cluster, &found).await.unwrap();
        let resolved = &found["status"]["resolvedSource"]["git"];
        assert_eq!(resolved["ref"], json!({"commit": commit}));
        assert_eq!(resolved["repository"], server.url("web.git"));
    }

    // Without credentials, and with wrong credentials, the server denies access. The message does
    // not contain the credentials.
    let wrong = json!({"username": "ana", "password": "wr0ng"});
    let name = "githttps-wrong";
    apply(&cluster, &secret(name, "Opaque", &wrong)).await;
    for (bundle_name, secret) in [("githttps-none", None), (name, Some(name))] {
        let object = bundle(bundle_name, class, &source(names[0], secret));
        apply_admitted(&cluster, &object, None).await;
        until_reported(&cluster, bundle_name, "the server denies access").await;
        let found = get(&cluster, &format!("bundle {bundle_name}")).await;
        assert!(!found.unwrap()["status"].to_string().contains("wr0ng"));
    }
    // The pod uses corrected credentials without a change of the Bundle.
    apply(&cluster, &secret(name, "Opaque", &password)).await;
    wait::until_true(LONG, "the corrected Secret is used", || async {
        let found = get(&cluster, &format!("bundle {name}")).await;
        Ok(condition(&found.unwrap_or_default(), "Unpacked")["status"] == "True")
    })
    .await
    .unwrap();
}
