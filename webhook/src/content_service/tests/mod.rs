mod uploads;

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, to_bytes};
use bundle_core::reference::Digest;
use futures::future::BoxFuture;
use http::{Request, Response as HttpResponse};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tower::ServiceExt as _;

use super::*;
use crate::archives::{BundleArchive, BundleArchives, LeaderArchivesGuard};
use crate::config::content::ContentPath;
use crate::config::stamp_key::{CurrentStampKey, StampKey};
use crate::server::connections::{Connection, Connections, Limits};

/// Content of the fake archive. It is longer than the part that one read returns.
const BYTES: &[u8] = b"0123456789abcdef";
const PART: usize = 6;
/// Number of consecutive rejected requests after which the connection is closed.
const MAX_REJECTED: u32 = 100;

struct FakeArchive(Digest);

impl BundleArchive for FakeArchive {
    fn size(&self) -> u64 {
        BYTES.len() as u64
    }

    fn digest(&self) -> &Digest {
        &self.0
    }

    fn read(&mut self, offset: u64) -> io::Result<Vec<u8>> {
        let from = usize::try_from(offset).unwrap();
        let end = ((from / PART + 1) * PART).min(BYTES.len());
        Ok(BYTES[from..end].to_vec())
    }
}

#[derive(Default)]
struct FakeArchives {
    /// The Bundles that were reconciled after an upload.
    uploaded: Arc<Mutex<Vec<String>>>,
}

impl BundleArchives for FakeArchives {
    fn open<'a>(
        &'a self,
        bundle: &'a KubeName,
        _: &'a Requester,
    ) -> BoxFuture<'a, Result<Box<dyn BundleArchive>, ArchiveError>> {
        Box::pin(async move {
            match &**bundle {
                "web" => {
                    let archive = FakeArchive(Digest::of(BYTES));
                    Ok(Box::new(archive) as Box<dyn BundleArchive>)
                }
                "pending" => Err(ArchiveError::NotUnpacked(bundle.clone())),
                "lost" => Err(ArchiveError::NotCached(bundle.clone())),
                _ => Err(ArchiveError::NoBundle(bundle.clone())),
            }
        })
    }
}

/// Returns a client of an API server, and the number of TokenReviews for each token. The API server
/// authenticates the tokens of ana and eve. The API server allows every request of ana until
/// `withdrawn` is set, and no request of eve.
fn api_server(withdrawn: Arc<AtomicBool>) -> (kube::Client, Arc<Mutex<HashMap<String, usize>>>) {
    type ApiBody = kube::client::Body;
    let reviews: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let (service, mut server) = tower_test::mock::pair::<Request<ApiBody>, HttpResponse<ApiBody>>();
    let counted = reviews.clone();
    tokio::spawn(async move {
        while let Some((request, reply)) = server.next_request().await {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            let sent: Value = serde_json::from_slice(&body).unwrap();
            let status = if path.ends_with("/tokenreviews") {
                let token = sent["spec"]["token"].as_str().unwrap();
                *counted.lock().unwrap().entry(token.to_owned()).or_default() += 1;
                match token {
                    "ana" | "eve" => json!({"authenticated": true, "user": {"username": token}}),
                    // Some authenticators return a user with an error.
                    "odd" => {
                        json!({"authenticated": false, "error": "no", "user": {"username": "ana"}})
                    }
                    _ => json!({"authenticated": false}),
                }
            } else {
                let spec = &sent["spec"];
                let is_ana = spec["user"] == "ana";
                let asked = &spec["nonResourceAttributes"];
                let path = asked["path"].as_str().unwrap();
                let is_upload = path.starts_with("/uploads/");
                assert_eq!(asked["verb"], if is_upload { "update" } else { "get" });
                assert!(is_upload || path.starts_with("/bundles/"), "{path}");
                json!({"allowed": is_ana && !withdrawn.load(Ordering::SeqCst)})
            };
            let answer = json!({"spec": {}, "status": status}).to_string();
            reply.send_response(HttpResponse::new(ApiBody::from(answer.into_bytes())));
        }
    });
    (kube::Client::new(service, "default"), reviews)
}

fn paths() -> ContentPaths {
    let path = |prefix: &str, role: &str| ContentPath {
        prefix: prefix.to_owned(),
        role: role.to_owned(),
    };
    ContentPaths {
        downloads: path("/bundles/", "bundle-reader"),
        uploads: path("/uploads/", "bundle-uploader"),
    }
}

struct Service {
    router: Router,
    archives: Arc<LeaderArchives>,
    reviews: Arc<Mutex<HashMap<String, usize>>>,
    /// True if the permissions of ana were withdrawn.
    withdrawn: Arc<AtomicBool>,
    connection: Connection<DuplexStream>,
    uploads: Arc<UploadStore>,
    uploaded: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
    _other: DuplexStream,
}

impl Service {
    fn new() -> Self {
        let withdrawn = Arc::default();
        let (client, reviews) = api_server(Arc::clone(&withdrawn));
        let archives = Arc::new(LeaderArchives::default());
        let folder = tempfile::tempdir().unwrap();
        let key = CurrentStampKey::new(StampKey::new(b"key".to_vec()));
        let uploads = Arc::new(UploadStore::new(folder.path().to_owned(), key));
        let callers = Callers::new(client);
        let service = ContentService::new(callers, paths(), archives.clone(), uploads.clone());
        let limits = Limits {
            unauthenticated: 1,
            min_age: std::time::Duration::ZERO,
            delayed: 1,
            max_age: std::time::Duration::from_secs(5),
            max_stall: std::time::Duration::from_secs(7),
            received: 1,
            authenticated: 1,
            authenticated_by_address: 1,
            waiting: 0,
            waiting_in_all: 0,
            waiting_by_address: 0,
            rejected: MAX_REJECTED,
        };
        let (stream, other) = duplex(64);
        let connections = Connections::new(limits);
        Self {
            router: router(service),
            archives,
            reviews,
            withdrawn,
            connection: connections.admit(stream, Ipv4Addr::LOCALHOST.into()),
            _other: other,
            uploads,
            uploaded: Arc::default(),
            _folder: folder,
        }
    }

    fn leading() -> (Self, LeaderArchivesGuard) {
        let service = Self::new();
        let uploaded = service.uploaded.clone();
        let leading = service
            .archives
            .provide(Arc::new(FakeArchives { uploaded }));
        (service, leading)
    }

    async fn respond(&self, line: (&str, &str), headers: &[(&str, &str)]) -> Response {
        self.send(line, headers, Body::empty()).await
    }

    async fn send(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body).unwrap();
        request.extensions_mut().insert(self.connection.client());
        if let Err(rejection) = gate(&mut request) {
            return rejection;
        }
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Returns status and body of the response.
    async fn get(&self, path: &str, token: &str) -> (u16, String) {
        let token = format!("Bearer {token}");
        let response = self
            .respond(("GET", path), &[("authorization", &token)])
            .await;
        let status = response.status().as_u16();
        (status, body(response).await)
    }
}

async fn body(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn permitted_callers_get_the_selected_bytes() {
    let (service, _leading) = Service::leading();
    let tag = format!("\"{}\"", Digest::of(BYTES));
    for (method, header, status, fields, expected) in [
        (
            "GET",
            ("accept", "*/*"),
            200,
            [("content-length", "16"), ("etag", &tag)],
            BYTES,
        ),
        (
            "HEAD",
            ("accept", "*/*"),
            200,
            [("content-length", "16"), ("etag", &tag)],
            b"",
        ),
        (
            "GET",
            ("range", "bytes=4-13"),
            206,
            [("content-length", "10"), ("content-range", "bytes 4-13/16")],
            &BYTES[4..14],
        ),
        (
            "GET",
            ("range", "bytes=16-"),
            416,
            [("content-range", "bytes */16"), ("accept-ranges", "bytes")],
            b"",
        ),
        (
            "GET",
            ("if-none-match", &tag),
            304,
            [("etag", &tag), ("cache-control", "private, no-cache")],
            b"",
        ),
    ] {
        let headers = [("authorization", "Bearer ana"), header];
        let response = service
            .respond((method, "/bundles/web.tgz"), &headers)
            .await;
        assert_eq!(response.status().as_u16(), status, "{header:?}");
        for (name, value) in fields {
            assert_eq!(response.headers()[name], value, "{header:?}");
        }
        assert_eq!(body(response).await.as_bytes(), expected, "{header:?}");
    }
}

#[tokio::test]
async fn all_other_requests_are_rejected() {
    let (service, leading) = Service::leading();
    let forbidden =
        "eve must have permission get on /bundles/web.tgz: bind ClusterRole bundle-reader\n";
    for (path, token, status, text) in [
        (
            "/bundles/web.tgz",
            "",
            401,
            "a valid bearer token is required\n",
        ),
        (
            "/bundles/web.tgz",
            "wrong",
            401,
            "a valid bearer token is required\n",
        ),
        (
            "/bundles/web.tgz",
            "odd",
            401,
            "a valid bearer token is required\n",
        ),
        ("/", "wrong", 401, "a valid bearer token is required\n"),
        ("/bundles/web.tgz", "eve", 403, forbidden),
        ("/bundles/", "ana", 404, "no such path\n"),
        ("/bundles/../web.tgz", "ana", 404, "no such path\n"),
        ("/metrics", "ana", 404, "no such path\n"),
        (
            "/bundles/none.tgz",
            "ana",
            404,
            "Bundle none does not exist\n",
        ),
        (
            "/bundles/pending.tgz",
            "ana",
            404,
            "Bundle pending is not unpacked: see its conditions\n",
        ),
        (
            "/bundles/lost.tgz",
            "ana",
            503,
            "the content of Bundle lost is not in the cache: it is fetched again when a BundleDeployment needs it\n",
        ),
    ] {
        let (found, message) = service.get(path, token).await;
        assert_eq!((found, message.as_str()), (status, text), "{path} {token}");
    }
    // A caller without permission does not learn which Bundles exist.
    for path in ["/bundles/none.tgz", "/bundles/pending.tgz"] {
        assert_eq!(service.get(path, "eve").await.0, 403);
    }
    let headers = [("authorization", "Bearer ana")];
    let response = service.respond(("PUT", "/bundles/web.tgz"), &headers).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    for headers in [
        &[("authorization", "Basic YW5hOmFuYQ==")][..],
        &[
            ("authorization", "Bearer ana"),
            ("authorization", "Bearer eve"),
        ],
        &[],
    ] {
        let response = service.respond(("GET", "/bundles/web.tgz"), headers).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
    drop(leading);
    let (status, text) = service.get("/bundles/web.tgz", "ana").await;
    assert_eq!(status, 503);
    assert!(text.starts_with("this replica is not the leader"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn requests_without_permission_close_their_connection() {
    // Each Pod has a valid token, so a valid token without permission is not sufficient.
    for (path, token) in [
        ("/bundles/web.tgz", "eve"),
        ("/other", "ana"),
        ("/uploads/web.tgz", "ana"),
    ] {
        let (mut service, _leading) = Service::leading();
        for _ in 0..=MAX_REJECTED {
            service.get(path, token).await;
        }
        let limit = std::time::Duration::from_secs(1);
        let closed = tokio::time::timeout(limit, service.connection.read_u8()).await;
        assert!(closed.unwrap().is_err(), "{path} {token}");
    }
}

#[tokio::test]
async fn identities_and_unknown_tokens_are_cached() {
    let (service, _leading) = Service::leading();
    for _ in 0..3 {
        assert_eq!(service.get("/bundles/web.tgz", "ana").await.0, 200);
        assert_eq!(service.get("/bundles/web.tgz", "wrong").await.0, 401);
    }
    let reviews = service.reviews.lock().unwrap().clone();
    let expected = [("ana".to_owned(), 1), ("wrong".to_owned(), 1)];
    assert_eq!(reviews, expected.into());
}

#[tokio::test]
async fn one_requester_uses_half_of_the_downloads_until_they_are_sent() {
    let (service, _leading) = Service::leading();
    let headers = [("authorization", "Bearer ana")];
    let mut running = Vec::new();
    for _ in 0..DOWNLOADS / 2 {
        let response = service.respond(("GET", "/bundles/web.tgz"), &headers).await;
        assert_eq!(response.status(), StatusCode::OK);
        running.push(response);
    }
    assert_eq!(service.get("/bundles/web.tgz", "ana").await.0, 429);
    running.pop();
    assert_eq!(service.get("/bundles/web.tgz", "ana").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn download_that_is_not_received_closes_its_connection() {
    let (mut service, _leading) = Service::leading();
    let headers = [("authorization", "Bearer ana")];
    let _unread = service.respond(("GET", "/bundles/web.tgz"), &headers).await;
    let limit = std::time::Duration::from_secs(60);
    let closed = tokio::time::timeout(limit, service.connection.read_u8()).await;
    assert!(closed.unwrap().is_err());
}
