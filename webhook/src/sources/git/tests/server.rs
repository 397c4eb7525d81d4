//! Git repositories on loopback, over https with the smart protocol of `git http-backend`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum_server::tls_rustls::RustlsConfig;
use http::StatusCode;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Name of the server in its certificate. DNS servers do not resolve this name.
pub(super) const HOST: &str = "git.example.com";

/// Behavior of the test server.
#[derive(Debug, Clone, Default)]
pub(super) struct Behavior {
    /// User and password that the server requires.
    pub(super) login: Option<(String, String)>,
    /// The server redirects each request to this URL.
    pub(super) redirect: Option<String>,
    /// True if the server accepts requests and never responds.
    pub(super) stalls: bool,
    /// True if the server sends an endless list of refs.
    pub(super) has_endless_refs: bool,
    /// The server serves files without the smart protocol, and names this URL as an alternate
    /// location of its objects.
    pub(super) alternate: Option<String>,
    /// The server sends this file instead of each pack.
    pub(super) pack: Option<PathBuf>,
    /// The server names this URL as the location of a further pack, which the client did not
    /// request.
    pub(super) pack_url: Option<String>,
}

struct ServedRepository {
    root: PathBuf,
    behavior: Mutex<Behavior>,
    requests: Mutex<Vec<String>>,
}

/// A running server with one repository, `web`.
pub(super) struct GitServer {
    pub(super) folder: TempDir,
    served: Arc<ServedRepository>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GitServer {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("served");
        fs_err::create_dir(&root).unwrap();
        run(
            folder.path(),
            &["init", "--quiet", "--initial-branch=main", "work"],
        );
        let (certificate, key) = identity(&folder.path().join("ca.pem"));
        rustls::crypto::aws_lc_rs::default_provider()
            .install_default()
            .ok();
        let tls = RustlsConfig::from_pem(certificate.into(), key.into())
            .await
            .unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(ServedRepository {
            root,
            behavior: Mutex::default(),
            requests: Mutex::default(),
        });
        let router = Router::new().fallback(respond).with_state(served.clone());
        let listening = axum_server::from_tcp_rustls(listener, tls).unwrap();
        let task = tokio::spawn(async move {
            listening.serve(router.into_make_service()).await.ok();
        });
        let repositories = Self {
            folder,
            served,
            address,
            task,
        };
        repositories.write(&[
            ("README.md", "no bundle\n"),
            ("manifests/web.yaml", "a: 1\n"),
        ]);
        repositories.commit("first");
        run(
            &repositories.served.root,
            &["clone", "--quiet", "--bare", "../work", "web.git"],
        );
        repositories.git(&["remote", "add", "served", "../served/web.git"]);
        for setting in ["uploadpack.allowFilter", "http.uploadpack"] {
            repositories.configure(setting, "true");
        }
        repositories
    }

    pub(super) fn configure(&self, name: &str, value: &str) {
        run(&self.served.root.join("web.git"), &["config", name, value]);
    }

    pub(super) fn set(&self, behavior: Behavior) {
        *self.served.behavior.lock().unwrap() = behavior;
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> String {
        format!("https://{HOST}:{}/web.git", self.address.port())
    }

    /// Returns the paths of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.served.requests.lock().unwrap().clone()
    }

    pub(super) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(super) fn write(&self, files: &[(&str, &str)]) {
        let folder = self.work();
        for (path, text) in files {
            let path = folder.join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
    }

    /// Commits all files of the working folder, and returns the commit.
    pub(super) fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Pushes refs of the working folder to the server.
    pub(super) fn push(&self) {
        let heads = "refs/heads/*:refs/heads/*";
        let tags = "refs/tags/*:refs/tags/*";
        self.git(&[
            "push", "--quiet", "--force", "--prune", "served", heads, tags,
        ]);
    }

    /// Commits these files, and pushes the commit.
    pub(super) fn publish(&self, files: &[(&str, &str)]) -> String {
        self.write(files);
        let commit = self.commit("more");
        self.push();
        commit
    }

    pub(super) fn git(&self, arguments: &[&str]) -> String {
        run(&self.work(), arguments)
    }

    /// Removes all objects of the server that are not reachable from a ref.
    pub(super) fn prune(&self) {
        let served = self.served.root.join("web.git");
        run(&served, &["reflog", "expire", "--expire=now", "--all"]);
        run(&served, &["gc", "--quiet", "--prune=now"]);
    }
}

/// Runs git in `folder` with the settings of a commit author.
pub(super) fn run(folder: &Path, arguments: &[&str]) -> String {
    let output: Output = std::process::Command::new("git")
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([
            ("GIT_AUTHOR_NAME", "ana"),
            ("GIT_AUTHOR_EMAIL", "ana@example.com"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "ana"),
            ("GIT_COMMITTER_EMAIL", "ana@example.com"),
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns certificate and key of the server in PEM, and writes the authority.
fn identity(authority: &Path) -> (String, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs_err::write(authority, issuer.pem()).unwrap();
    let params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

async fn respond(State(served): State<Arc<ServedRepository>>, request: Request) -> Response {
    let behavior = served.behavior.lock().unwrap().clone();
    let path = request.uri().path_and_query().unwrap().to_string();
    served.requests.lock().unwrap().push(path);
    let empty = |status| {
        let mut response = Response::new(axum::body::Body::empty());
        *response.status_mut() = status;
        response
    };
    if behavior.stalls {
        std::future::pending::<()>().await;
    }
    if behavior.has_endless_refs {
        return endless_refs();
    }
    if let Some(url) = behavior.alternate {
        return file(&served.root, request.uri().path(), &url);
    }
    if let Some(url) = behavior.redirect {
        let mut response = empty(StatusCode::FOUND);
        let location = format!("{url}{}", request.uri());
        response
            .headers_mut()
            .insert("location", location.parse().unwrap());
        return response;
    }
    if let Some((user, password)) = behavior.login {
        use base64::Engine as _;
        let pair = base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}"));
        let given = request.headers().get("authorization");
        if given.is_none_or(|given| given != format!("Basic {pair}").as_str()) {
            let mut response = empty(StatusCode::UNAUTHORIZED);
            let challenge = "Basic realm=\"git\"".parse().unwrap();
            response.headers_mut().insert("www-authenticate", challenge);
            return response;
        }
    }
    let response = backend(&served.root, request, behavior.pack.as_deref()).await;
    let Some(url) = behavior.pack_url else {
        return response;
    };
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Response::from_parts(parts, with_pack_url(&body, &url).into())
}

/// Returns a file of the repository, as a server without the smart protocol does. The file
/// `http-alternates` contains the URL `alternate`.
fn file(root: &Path, path: &str, alternate: &str) -> Response {
    let path = path.trim_start_matches('/');
    let bytes = match path.strip_prefix("web.git/objects/") {
        Some("info/http-alternates") => Some(format!("{alternate}\n").into_bytes()),
        Some(_) => None,
        None => {
            run(&root.join("web.git"), &["update-server-info"]);
            fs_err::read(root.join(path)).ok()
        }
    };
    let status = match bytes {
        Some(_) => StatusCode::OK,
        None => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(bytes.unwrap_or_default().into());
    *response.status_mut() = status;
    response
}

/// Returns an endless list of refs, in version 0 of the protocol.
fn endless_refs() -> Response {
    let mut text = "001e# service=git-upload-pack\n0000".to_owned();
    let mut number = 0_u64;
    let parts = futures::stream::repeat_with(move || {
        for _ in 0..1000 {
            let line = format!("{:040x} refs/heads/{number:020}\n", number + 1);
            write!(text, "{:04x}{line}", line.len() + 4).unwrap();
            number += 1;
        }
        Ok::<_, std::convert::Infallible>(Bytes::from(std::mem::take(&mut text)))
    });
    let mut response = Response::new(axum::body::Body::from_stream(parts));
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/x-git-upload-pack-advertisement"),
    );
    response
}

/// Adds the section `packfile-uris` of protocol version 2 before the pack of a response.
fn with_pack_url(body: &[u8], url: &str) -> Vec<u8> {
    let section = b"000dpackfile\n";
    let Some(at) = body.windows(section.len()).position(|it| it == section) else {
        return body.to_vec();
    };
    let line = format!("{} {url}\n", "0".repeat(40));
    let uris = format!("0012packfile-uris\n{:04x}{line}0001", line.len() + 4);
    [&body[..at], uris.as_bytes(), &body[at..]].concat()
}

/// Runs `git http-backend` for one request.
async fn backend(root: &Path, request: Request, pack: Option<&Path>) -> Response {
    let mut variables = variables(root, &request);
    if let Some(pack) = pack {
        // Git runs the hook instead of `pack-objects`, and sends the output of the hook.
        // `upload-pack` ends without a pack if the hook ends before it has read its input. The `#`
        // comments out the arguments that git appends.
        let hook = format!("cat >/dev/null; cat {} #", pack.display());
        variables.extend([
            ("GIT_CONFIG_COUNT", "1".to_owned()),
            ("GIT_CONFIG_KEY_0", "uploadpack.packObjectsHook".to_owned()),
            ("GIT_CONFIG_VALUE_0", hook),
        ]);
    }
    let body: Bytes = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let mut child = Command::new("git")
        .arg("http-backend")
        .envs(variables)
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (_, output) = tokio::join!(
        async move { stdin.write_all(&body).await },
        child.wait_with_output()
    );
    let output = output.unwrap().stdout;
    let end = output
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let (head, rest) = output.split_at(end);
    let mut response = Response::builder();
    for line in std::str::from_utf8(head).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = if name == "Status" {
            response.status(value[..3].parse::<u16>().unwrap())
        } else {
            response.header(name, value)
        };
    }
    response.body(rest[4..].to_vec().into()).unwrap()
}

fn variables(root: &Path, request: &Request) -> BTreeMap<&'static str, String> {
    let header = |name: &str| {
        let value = request.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    [
        ("GIT_PROJECT_ROOT", root.display().to_string()),
        ("GIT_HTTP_EXPORT_ALL", "1".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("PATH_INFO", request.uri().path().to_owned()),
        (
            "QUERY_STRING",
            request.uri().query().unwrap_or_default().to_owned(),
        ),
        ("REQUEST_METHOD", request.method().to_string()),
        ("CONTENT_TYPE", header("content-type")),
        ("HTTP_CONTENT_ENCODING", header("content-encoding")),
        ("GIT_PROTOCOL", header("git-protocol")),
    ]
    .into()
}
