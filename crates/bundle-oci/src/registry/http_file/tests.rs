use std::future::ready;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bundle_core::reference::Digest;
use bundle_core::review::CheckedBundleSpec;
use bundle_testkit::file_server::{FileResponse, FileServer};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::*;
use crate::registry::{ClientOptions, Deadlines, HostAddresses, NameResolver};
use crate::unpack::{InMemory, hostile};

/// Access to servers on this machine.
const LOCAL: HttpFileAccess = HttpFileAccess {
    private_addresses: true,
    plain_http: false,
    any_certificate: false,
};

/// Returns a gzipped tar of one file.
fn archive(path: &str, content: &[u8]) -> Bytes {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, path, content).unwrap();
    tar.into_inner().unwrap().finish().unwrap().into()
}

fn client(deadlines: Deadlines) -> Client {
    Client::new(ClientOptions {
        deadlines,
        ..ClientOptions::default()
    })
    .unwrap()
}

async fn receive(
    client: &Client,
    url: &str,
    login: Option<&Login>,
    private_addresses: bool,
) -> Result<ReceivedFile, HttpFileError> {
    let access = HttpFileAccess {
        private_addresses,
        ..HttpFileAccess::default()
    };
    receive_with(client, url, login, access).await
}

async fn receive_with(
    client: &Client,
    url: &str,
    login: Option<&Login>,
    access: HttpFileAccess,
) -> Result<ReceivedFile, HttpFileError> {
    let request = HttpFileRequest::new(url, login, access)?;
    let folder = tempfile::tempdir().unwrap();
    let received = client
        .receive_file(&request, &Limits::default(), folder.path())
        .await;
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
    received
}

async fn failed(client: &Client, url: &str) -> (HttpFileReason, String) {
    let error = receive(client, url, None, true).await.unwrap_err();
    let text = error.to_string();
    (error.reason, text)
}

#[tokio::test]
async fn unpacks_an_archive_and_records_the_digest_of_its_bytes() {
    let server = FileServer::start().await.unwrap();
    let bytes = archive("manifests/a.yaml", b"a: 1\n");
    server.respond("/web.tgz", FileResponse::File(bytes.clone()));
    let url = format!("http://{}/web.tgz", server.host());
    let client = client(Deadlines::default());
    let received = receive(&client, &url, None, true).await.unwrap();
    assert_eq!(received.descriptor().digest, Digest::of(&bytes));
    assert_eq!(received.descriptor().size, bytes.len() as u64);
    let (files, _) = received
        .unpack(Limits::default(), InMemory::default())
        .await
        .unwrap();
    assert_eq!(files["manifests/a.yaml"], b"a: 1\n");
    let request = HttpFileRequest::new(&url, None, LOCAL).unwrap();
    let described = client.describe_file(&request, &Limits::default()).await;
    assert_eq!(described.unwrap().digest, Digest::of(&bytes));
}

#[tokio::test]
async fn credentials_are_sent_to_the_server_and_never_to_another_host() {
    let (server, other) = (
        FileServer::start().await.unwrap(),
        FileServer::start().await.unwrap(),
    );
    let bytes = archive("a", b"");
    let login = ("ana".to_owned(), "s3cret".to_owned());
    server.respond("/a", FileResponse::Protected(bytes.clone(), login));
    server.respond(
        "/b",
        FileResponse::WithToken(bytes.clone(), "t0ken".to_owned()),
    );
    server.respond("/same", FileResponse::Redirect("/a".to_owned()));
    let target = format!("http://{}/c?signature=1", other.host());
    server.respond("/other", FileResponse::Redirect(target));
    other.respond("/c", FileResponse::File(bytes));
    let client = client(Deadlines::default());
    let url = |path: &str| format!("http://{}{path}", server.host());
    let password = Login::Password {
        user: "ana".to_owned(),
        password: "s3cret".to_owned(),
    };
    let token = Login::Bearer("t0ken".to_owned());
    for (path, login) in [
        ("/a", &password),
        ("/b", &token),
        ("/same", &password),
        ("/other", &password),
    ] {
        receive(&client, &url(path), Some(login), true)
            .await
            .unwrap();
    }
    let (error, text) = failed(&client, &url("/a")).await;
    assert!(matches!(error, HttpFileReason::Status { code: 401, .. }));
    assert!(text.contains("unexpected status \"401 Unauthorized\""));
    let to_other = other.requests();
    assert_eq!(to_other.len(), 1);
    assert_eq!(to_other[0].path, "/c?signature=1");
    assert_eq!(to_other[0].authorization, None);
}

#[tokio::test]
async fn reports_each_bad_response() {
    let server = FileServer::start().await.unwrap();
    let bytes = archive("a", b"");
    let half = bytes.slice(..bytes.len() / 2);
    let away = "ftp://files.example.com/a".to_owned();
    let length = bytes.len() as u64;
    for (path, response) in [
        ("/busy", FileResponse::Status("503 Service Unavailable")),
        ("/part", FileResponse::Status("206 Partial Content")),
        ("/html", FileResponse::Html("<html>log in</html>")),
        ("/loop", FileResponse::Redirect("/loop".to_owned())),
        ("/away", FileResponse::Redirect(away)),
        ("/short", FileResponse::WrongLength(half.clone(), length)),
        ("/huge", FileResponse::WrongLength(half, 1 << 40)),
        ("/endless", FileResponse::Endless),
        ("/stalled", FileResponse::Stalled),
    ] {
        server.respond(path, response);
    }
    let client = client(Deadlines {
        stall: Duration::from_millis(500),
        ..Deadlines::default()
    });
    for (path, expected, is_passing) in [
        (
            "/none?token=s3cret",
            "/none: unexpected status \"404 Not Found\"",
            false,
        ),
        (
            "/busy",
            "unexpected status \"503 Service Unavailable\"",
            true,
        ),
        ("/part", "unexpected status \"206 Partial Content\"", false),
        ("/loop", "too many redirects", false),
        (
            "/away",
            "the server redirects to files.example.com: the target does not use TLS",
            false,
        ),
        ("/short", "was interrupted", true),
        ("/huge", "larger than the limit of 128 MiB", false),
        ("/endless", "larger than the limit of 128 MiB", false),
        ("/stalled", "the server stopped responding (500 ms)", true),
    ] {
        let url = format!("http://{}{path}", server.host());
        let (reason, text) = failed(&client, &url).await;
        assert!(text.contains(expected), "{path}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(reason.is_passing(), is_passing, "{path}: {text}");
    }
    let url = format!("http://{}/html", server.host());
    let page = receive(&client, &url, None, true).await.unwrap();
    let expected = "the response is not a gzipped tar archive (media type \"text/html\")";
    assert!(page.check().unwrap_err().to_string().ends_with(expected));
    let unpacked = page.unpack(Limits::default(), InMemory::default()).await;
    assert!(unpacked.unwrap_err().to_string().ends_with(expected));
    let request = HttpFileRequest::new(&url, None, LOCAL).unwrap();
    let described = client.describe_file(&request, &Limits::default()).await;
    assert!(described.unwrap_err().to_string().ends_with(expected));
}

#[tokio::test]
async fn rejects_a_rate_below_the_minimum() {
    let server = FileServer::start().await.unwrap();
    server.respond("/a", FileResponse::Endless);
    let client = client(Deadlines {
        min_rate: u64::MAX,
        window: Duration::from_millis(1),
        ..Deadlines::default()
    });
    let url = format!("http://{}/a", server.host());
    let (reason, text) = failed(&client, &url).await;
    assert!(matches!(reason, HttpFileReason::TooSlow { .. }), "{text}");
    assert!(reason.is_passing());
}

#[tokio::test]
async fn rejects_hostile_archives_like_layers() {
    let server = FileServer::start().await.unwrap();
    let client = client(Deadlines::default());
    let mut count = 0;
    for case in hostile::archives() {
        let name = case.name;
        let response = FileResponse::File(case.bytes.clone().into());
        server.respond("/a", response);
        let url = format!("http://{}/a", server.host());
        let received = receive(&client, &url, None, true).await.unwrap();
        let unpacked = received
            .unpack(Limits::default(), InMemory::default())
            .await;
        case.check(match unpacked {
            Ok((files, _)) => Ok(files),
            Err(error) => match error.reason {
                HttpFileReason::Content(error) => Err(error),
                other => panic!("{name}: {other}"),
            },
        });
        count += 1;
    }
    assert!(count > 30, "{count} attacks");
}

/// A resolver that maps each name to a loopback address.
#[derive(Debug)]
struct Loopback;

impl NameResolver for Loopback {
    fn resolve(&self, _: &str) -> BoxFuture<'static, HostAddresses> {
        ready(Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()])).boxed()
    }
}

#[tokio::test]
async fn dials_private_addresses_only_if_the_class_allows_them() {
    let server = FileServer::start().await.unwrap();
    let bytes = archive("a", b"");
    server.respond("/a", FileResponse::File(bytes));
    let client = client(Deadlines::default());
    let port = server.host().rsplit_once(':').unwrap().1.to_owned();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("https://{host}:{port}/a");
        let error = receive(&client, &url, None, false).await.unwrap_err();
        assert!(
            matches!(error.reason, HttpFileReason::Address { .. }),
            "{error}"
        );
        let expected = "is not allowed: the target is a loopback or link-local address";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    let resolving = Client::new(ClientOptions {
        resolver: Some(Arc::new(Loopback)),
        ..ClientOptions::default()
    });
    let url = format!("https://files.example.com:{port}/a");
    let error = receive(&resolving.unwrap(), &url, None, false).await;
    let text = error.unwrap_err().to_string();
    let expected = "is not allowed: the target is in a private or local network";
    assert!(text.ends_with(expected), "{text}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn plain_http_is_limited_to_the_server_that_the_caller_allows() {
    let server = FileServer::start().await.unwrap();
    let port = server.host().rsplit_once(':').unwrap().1.to_owned();
    let other = format!("http://other.example.com:{port}/a");
    server.respond("/a", FileResponse::File(archive("a", b"")));
    server.respond("/same", FileResponse::Redirect("/a".to_owned()));
    server.respond("/other", FileResponse::Redirect(other));
    let client = Client::new(ClientOptions {
        resolver: Some(Arc::new(Loopback)),
        ..ClientOptions::default()
    });
    let client = client.unwrap();
    let plain = HttpFileAccess {
        plain_http: true,
        ..LOCAL
    };
    let url = |path: &str| format!("http://files.example.com:{port}{path}");
    for path in ["/a", "/same"] {
        let received = receive_with(&client, &url(path), None, plain).await;
        received.unwrap();
    }
    let requests = server.requests().len();
    let not_allowed =
        format!("files.example.com:{port} is not an allowed insecure host, and the URL has no TLS");
    let redirected = "the target does not use TLS".to_owned();
    for (path, access, expected) in [("/a", LOCAL, not_allowed), ("/other", plain, redirected)] {
        let error = receive_with(&client, &url(path), None, access).await;
        let text = error.unwrap_err().to_string();
        assert!(text.ends_with(&expected), "{text}");
    }
    // Only the request that was redirected reached the server. The other requests were rejected
    // before they were sent.
    assert_eq!(server.requests().len(), requests + 1);
}

#[test]
fn hosts_of_admitted_urls_are_those_that_are_dialed() {
    for (url, host) in [
        ("https://Files.Example.com/a", Some("files.example.com")),
        (
            "https://files.example.com:8443?a=@b",
            Some("files.example.com:8443"),
        ),
        ("https://192.0.2.1/a@b", Some("192.0.2.1")),
        ("https://[2001:db8::1]:8443/a", Some("[2001:db8::1]:8443")),
        // The host of each URL is 127.0.0.1, or the URL has no host.
        ("https://0x7f.1/a", None),
        ("https://files.example.com\\@127.0.0.1/a", None),
        ("https://files.example.com@127.0.0.1/a", None),
        ("https://127.0.0.1\t/a", None),
    ] {
        let spec = serde_json::json!({"provisionerClassName": "plain", "source": {"type": "http", "http": {"url": url}}});
        let admitted = CheckedBundleSpec::parse(&spec).ok();
        let found = admitted.as_ref().and_then(|spec| spec.source.host());
        let found = found.map(str::to_ascii_lowercase);
        assert_eq!(found.as_deref(), host, "{url}");
        if let Some(host) = host {
            let dialed = HttpFileRequest::new(url, None, HttpFileAccess::default()).unwrap();
            assert_eq!(authority(&dialed.url), host, "{url}");
        }
    }
}
