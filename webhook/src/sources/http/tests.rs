//! Tests of archives from an HTTP server: downloads, their digests, and the findings about bad
//! responses.

use std::io::Write as _;
use std::time::Duration;

use bundle_core::diagnostic::rendered;
use bundle_oci::unpack::InMemory;
use bundle_testkit::file_server::{FileResponse, FileServer};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::budget::Budget;
use crate::clients::registries::Registries;

/// Returns a gzipped tar of one file `manifests/a.yaml`, in the format of tar(5).
fn archive(content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut field =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    field(0, "manifests/a.yaml");
    field(100, "0000644");
    field(108, "0000000");
    field(116, "0000000");
    field(124, &format!("{:011o}", content.len()));
    field(136, "00000000000");
    field(148, "        ");
    field(156, "0");
    field(257, "ustar");
    field(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = header.to_vec();
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

/// A server, and the data to create sources for files of this server, with requester `ana`.
struct SourceFixture {
    server: FileServer,
    folder: tempfile::TempDir,
    budget: Budget,
}

impl SourceFixture {
    async fn new() -> Self {
        Self {
            server: FileServer::start().await.unwrap(),
            folder: tempfile::tempdir().unwrap(),
            budget: Budget::default(),
        }
    }

    fn source(&self, url: &str, private_addresses: bool) -> HttpSource {
        let access = HttpFileAccess {
            private_addresses,
            ..HttpFileAccess::default()
        };
        let registries = Registries::new(None, &[]).unwrap();
        let memory = LookupMemory::of_reconcile(&self.budget, "ana", Duration::from_secs(1));
        HttpSource {
            client: registries.anonymous().clone(),
            request: HttpFileRequest::new(url, None, access).unwrap(),
            url: url.to_owned(),
            auth: Auth::default(),
            folder: self.folder.path().join("new"),
            memory: Arc::new(memory),
            recent: RecentDigests::new(None),
            access,
            received: Mutex::default(),
        }
    }

    /// Returns a source of `/web.tgz`.
    fn web(&self) -> HttpSource {
        self.source(&format!("http://{}/web.tgz", self.server.host()), true)
    }

    fn respond(&self, response: FileResponse) {
        self.server.respond("/web.tgz", response);
    }
}

fn error_of<T>(result: Result<T, SourceError>) -> HttpSourceError {
    match result {
        Err(SourceError::Http(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it succeeds"),
    }
}

/// Resolves and fetches the source like a first unpacking.
async fn unpacked(source: &HttpSource) -> Result<(), SourceError> {
    let id = source.resolve().await?;
    source.fetch(&id, InMemory::default()).await.map(drop)
}

#[tokio::test]
async fn archive_is_downloaded_once_and_other_bytes_are_rejected_later() {
    let stage = SourceFixture::new().await;
    let first = archive(b"a: 1");
    stage.respond(FileResponse::File(first.clone().into()));
    let source = stage.web();
    let id = source.resolve().await.unwrap();
    assert_eq!(id.digest(), &Digest::of(&first));
    let (files, _) = source.fetch(&id, InMemory::default()).await.unwrap();
    assert_eq!(files["manifests/a.yaml"], b"a: 1");
    assert_eq!(stage.server.requests().len(), 1);

    // The content is fetched again later, when the cache has no copy.
    let source = stage.web();
    assert_eq!(source.changed(&id).await.unwrap(), None);
    assert_eq!(stage.server.requests().len(), 2);
    source.fetch(&id, InMemory::default()).await.unwrap();

    let second = archive(b"a: 2");
    stage.respond(FileResponse::File(second.clone().into()));
    let now = stage.web().changed(&id).await.unwrap().unwrap();
    assert_eq!(now.digest(), &Digest::of(&second));
    let error = error_of(source.fetch(&id, InMemory::default()).await);
    assert_eq!(error.finding().code, codes::install::CONTENT_CHANGED);
    assert!(!error.is_terminal());
    let told = error.to_string();
    assert!(told.contains(id.digest().as_str()) && told.contains(now.digest().as_str()));

    // The archive has the recorded bytes again and is accepted.
    stage.respond(FileResponse::File(first.into()));
    source.fetch(&id, InMemory::default()).await.unwrap();
    let left = fs_err::read_dir(stage.folder.path().join("new")).unwrap();
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn recent_digest_of_a_url_is_compared_without_a_download() {
    let stage = SourceFixture::new().await;
    stage.respond(FileResponse::File(archive(b"a: 1").into()));
    let source = stage.web();
    let id = source.resolve().await.unwrap();
    stage.respond(FileResponse::File(archive(b"a: 2").into()));
    let other = HttpSource {
        recent: source.recent.clone(),
        ..stage.web()
    };
    assert_eq!(other.changed(&id).await.unwrap(), None);
    assert_eq!(stage.server.requests().len(), 1);
    // The digest is not returned for another Secret or another class.
    let secret = Some("login".parse().unwrap());
    let others = [
        HttpSource {
            auth: Auth {
                secret,
                ..Auth::default()
            },
            recent: source.recent.clone(),
            ..stage.web()
        },
        HttpSource {
            access: HttpFileAccess::default(),
            recent: source.recent.clone(),
            ..stage.web()
        },
    ];
    for other in others {
        assert!(other.changed(&id).await.unwrap().is_some());
    }
    // The short interval has passed, so the URL is read again.
    let source = HttpSource {
        recent: RecentDigests::new(Some(Duration::ZERO)),
        ..stage.web()
    };
    source.resolve().await.unwrap();
    source.changed(&id).await.unwrap().unwrap();
    assert_eq!(stage.server.requests().len(), 5);
}

#[tokio::test]
async fn bad_responses_are_terminal_only_if_the_file_itself_is_invalid() {
    let stage = SourceFixture::new().await;
    let install = codes::install::HTTP_REFUSED;
    for (response, code, is_terminal) in [
        (FileResponse::Status("404 Not Found"), install, false),
        (FileResponse::Status("401 Unauthorized"), install, false),
        (
            FileResponse::Status("503 Service Unavailable"),
            codes::install::HTTP_UNREACHABLE,
            false,
        ),
        (
            FileResponse::WrongLength(archive(b"a").into(), 1 << 20),
            codes::install::HTTP_UNREACHABLE,
            false,
        ),
        (
            FileResponse::Html("<html>log in</html>"),
            codes::install::HTTP_ARCHIVE,
            true,
        ),
        (FileResponse::Endless, codes::registry::TOO_LARGE, true),
        (
            FileResponse::File(archive(b"a")[..40].to_vec().into()),
            codes::registry::MALFORMED,
            true,
        ),
        (
            FileResponse::Redirect("ftp://files.example.com/a".to_owned()),
            codes::install::HTTP_ADDRESS,
            true,
        ),
    ] {
        stage.respond(response.clone());
        let error = error_of(unpacked(&stage.web()).await);
        let finding = error.finding();
        assert_eq!(finding.code, code, "{response:?}: {finding}");
        assert_eq!(error.is_terminal(), is_terminal, "{finding}");
        assert!(
            finding
                .message
                .starts_with("source bundle content: GET http://127.0.0.1:")
        );
        // A failed download of recorded content is retried, because the server may return the
        // content again.
        let recorded = stage.web().content(Digest::of(b"recorded"));
        let error = error_of(stage.web().fetch(&recorded, InMemory::default()).await);
        assert!(!error.is_terminal(), "{error}");
    }
}

#[tokio::test]
async fn private_addresses_need_a_class_that_allows_them() {
    let stage = SourceFixture::new().await;
    stage.respond(FileResponse::File(archive(b"a").into()));
    let url = format!("https://{}/web.tgz", stage.server.host());
    let error = error_of(stage.source(&url, false).resolve().await);
    assert_eq!(error.finding().code, codes::install::HTTP_ADDRESS);
    assert!(error.is_terminal());
    assert!(stage.server.requests().is_empty());
}

#[test]
fn messages_of_http_sources_are_recorded() {
    let failed = |reason| HttpSourceError::Failed {
        error: HttpFileError {
            url: "https://files.example.com/web.tgz".to_owned(),
            reason,
        },
        is_recorded: false,
    };
    let findings = [
        failed(HttpFileReason::Stalled {
            after: Duration::from_secs(15),
        }),
        failed(HttpFileReason::Status {
            code: 404,
            text: "404 Not Found".to_owned(),
        }),
        failed(HttpFileReason::Redirect {
            to: "169.254.169.254".to_owned(),
            why: "the target is a loopback or link-local address",
        }),
        failed(HttpFileReason::NotGzip {
            media_type: "text/html".to_owned(),
        }),
        HttpSourceError::from(HttpSecretError::new("login".parse().unwrap())),
        HttpSourceError::Changed {
            url: "https://files.example.com/web.tgz".to_owned(),
            expected: Digest::of(b"1"),
            found: Digest::of(b"2"),
        },
    ];
    let findings = findings.map(|error| error.finding());
    let text = rendered(&findings);
    let recorded = include_str!("messages.txt");
    assert_eq!(text, recorded, "copy the left side to messages.txt");
}

/// Starts a server with an untrusted certificate. The server serves `archive` at each path.
async fn untrusted_server(archive: Vec<u8>) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let key = key.serialize_pem().into_bytes();
    let tls = axum_server::tls_rustls::RustlsConfig::from_pem(certificate.into(), key);
    let tls = tls.await.unwrap();
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(async move || archive.clone());
    let listening = axum_server::from_tcp_rustls(listener, tls).unwrap();
    let task = tokio::spawn(async move {
        listening.serve(router.into_make_service()).await.ok();
    });
    (address, task)
}

#[tokio::test]
async fn untrusted_certificates_are_accepted_only_for_a_source_that_may_skip_verification() {
    let stage = SourceFixture::new().await;
    let (address, task) = untrusted_server(archive(b"a: 1")).await;
    let url = format!("https://{address}/web.tgz");
    let error = error_of(unpacked(&stage.source(&url, true)).await);
    assert_eq!(error.finding().code, codes::install::HTTP_REFUSED);
    let access = HttpFileAccess {
        private_addresses: true,
        plain_http: true,
        any_certificate: true,
    };
    let source = HttpSource {
        request: HttpFileRequest::new(&url, None, access).unwrap(),
        access,
        ..stage.source(&url, true)
    };
    unpacked(&source).await.unwrap();
    // A redirect to another server needs a trusted certificate.
    let target = FileResponse::Redirect(url);
    stage.server.respond("/web.tgz", target);
    let url = format!("http://{}/web.tgz", stage.server.host());
    let source = HttpSource {
        request: HttpFileRequest::new(&url, None, access).unwrap(),
        access,
        ..stage.source(&url, true)
    };
    let error = error_of(unpacked(&source).await);
    assert!(error.to_string().contains("is not trusted"), "{error}");
    task.abort();
}
