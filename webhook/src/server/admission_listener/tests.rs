use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::body::Bytes;
use axum::routing::post;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::certs::{self, Resolver};
use crate::server::tls_listener::HEAD_BYTES;

const NAME: &str = "hook.sys.svc";
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

struct RunningListener {
    address: SocketAddr,
    resolver: Arc<Resolver>,
    trusted: String,
    shutdown: CancellationToken,
    ended: JoinHandle<io::Result<()>>,
}

async fn start(router: Router, deadline: Duration, drain: ShutdownPeriods) -> RunningListener {
    start_for(router, deadline, drain, None).await
}

async fn start_for(
    router: Router,
    deadline: Duration,
    drain: ShutdownPeriods,
    client_ca_file: Option<PathBuf>,
) -> RunningListener {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (resolver, trusted) = certs::resolver_for(&[NAME]);
    // In production, the guard accepts requests. The guard is not part of these tests.
    let accept_all = |request: &mut Request| {
        let client = request.extensions().get::<Arc<Client>>();
        let accepted = client.unwrap().accept();
        request.extensions_mut().insert(Arc::new(accepted));
        Ok(())
    };
    let shutdown = CancellationToken::new();
    let serving = serve(
        listener,
        (accept_all, router),
        TlsCertificates {
            resolver: resolver.clone(),
            client_ca_file,
        },
        deadline,
        drain,
        shutdown.clone(),
    );
    RunningListener {
        address,
        resolver,
        trusted,
        shutdown,
        ended: tokio::spawn(serving),
    }
}

const AT_ONCE: ShutdownPeriods = ShutdownPeriods {
    delay: Duration::ZERO,
    timeout: LONG,
};

/// Returns a client that trusts only `trusted`, and resolves the name of the Service to the
/// address, like an API server.
fn client(address: SocketAddr, trusted: &str) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(trusted.as_bytes()).unwrap();
    reqwest::Client::builder()
        .tls_certs_only([authority])
        .resolve(NAME, address)
        .no_proxy()
        .build()
        .unwrap()
}

fn url(address: SocketAddr) -> String {
    format!("https://{NAME}:{}/", address.port())
}

fn echo_length() -> Router {
    Router::new().route(
        "/",
        post(|body: Bytes| async move { body.len().to_string() }),
    )
}

#[tokio::test]
async fn accepts_large_reviews_and_rejects_larger_ones() {
    let running = start(echo_length(), LONG, AT_ONCE).await;
    let client = client(running.address, &running.trusted);
    let url = url(running.address);
    let answer = client
        .post(&url)
        .body(vec![b'x'; BODY_LIMIT])
        .send()
        .await
        .unwrap();
    assert_eq!(answer.text().await.unwrap(), BODY_LIMIT.to_string());
    let refused = client
        .post(&url)
        .body(vec![b'x'; BODY_LIMIT + 1])
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn client_authority_accepts_only_clients_with_its_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertifiedIssuer::self_signed(params, key).unwrap()
    };
    let (ours, others) = (authority("ours"), authority("others"));
    let file = folder.path().join("clients.pem");
    fs_err::write(&file, ours.pem()).unwrap();
    let running = start_for(echo_length(), LONG, AT_ONCE, Some(file)).await;
    let with = |issuer: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>| {
        let mut params = rcgen::CertificateParams::new(["api-server".to_owned()]).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        let pem = format!("{}{}", certificate.pem(), key.serialize_pem());
        let identity = reqwest::Identity::from_pem(pem.as_bytes()).unwrap();
        let trusted = reqwest::Certificate::from_pem(running.trusted.as_bytes()).unwrap();
        reqwest::Client::builder()
            .tls_certs_only([trusted])
            .identity(identity)
            .resolve(NAME, running.address)
            .no_proxy()
            .build()
            .unwrap()
    };
    let url = url(running.address);
    for (client, expected) in [
        (with(&ours), true),
        (with(&others), false),
        (client(running.address, &running.trusted), false),
    ] {
        let answer = client.post(&url).body("x").send().await;
        assert_eq!(answer.is_ok(), expected, "{answer:?}");
    }
}

/// Opens a TLS connection, sends an unfinished head of `bytes` bytes, and reads until the
/// server closes the connection.
fn unfinished_head(address: SocketAddr, trusted: &str, bytes: usize) -> Vec<u8> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = rustls::ClientConnection::new(Arc::new(config), NAME.try_into().unwrap());
    let stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut stream = rustls::StreamOwned::new(client.unwrap(), stream);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nx: {}", "a".repeat(bytes));
    // The server may close the connection before the whole head is sent.
    drop(stream.write_all(head.as_bytes()));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            panic!("still open after {LONG:?}")
        }
        _ => answer,
    }
}

#[tokio::test]
async fn unfinished_heads_are_closed_after_the_timeout_and_long_ones_immediately() {
    let running = start(echo_length(), LONG, AT_ONCE).await;
    let (address, trusted) = (running.address, running.trusted.clone());
    let long = tokio::task::spawn_blocking(move || {
        unfinished_head(address, &trusted, 2 * usize::from(HEAD_BYTES))
    });
    drop(long.await.unwrap());
    let trusted = running.trusted.clone();
    let short = tokio::task::spawn_blocking(move || unfinished_head(address, &trusted, 100));
    assert_eq!(String::from_utf8(short.await.unwrap()).unwrap(), "");
    let client = client(running.address, &running.trusted);
    assert!(client.post(url(running.address)).send().await.is_ok());
}

#[tokio::test]
async fn stalled_request_ends_at_its_deadline() {
    let router = Router::new().route("/", post(std::future::pending::<()>));
    let running = start(router, SHORT, AT_ONCE).await;
    let client = client(running.address, &running.trusted);
    let answer = client.post(url(running.address)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_occupies_a_thread_does_not_delay_the_response() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let work = move || {
        let ended = ended.clone();
        async move {
            crate::blocking::run(|| ended.lock().unwrap().recv().ok());
            "reviewed"
        }
    };
    let running = start(Router::new().route("/", post(work)), SHORT, AT_ONCE).await;
    let client = client(running.address, &running.trusted);
    let answer = client.post(url(running.address)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    drop(end);
}

#[tokio::test]
async fn review_that_panics_gets_a_response() {
    let is_valid = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let review = move || {
        let is_valid = is_valid.clone();
        async move {
            assert!(is_valid.load(std::sync::atomic::Ordering::Relaxed));
            "reviewed"
        }
    };
    let running = start(Router::new().route("/", post(review)), LONG, AT_ONCE).await;
    let client = client(running.address, &running.trusted);
    let answer = client.post(url(running.address)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn renewed_certificate_is_served_to_the_next_connection() {
    let running = start(echo_length(), LONG, AT_ONCE).await;
    let url = url(running.address);
    let before = client(running.address, &running.trusted);
    assert!(before.post(&url).send().await.is_ok());
    let trusted = certs::serve_new_certificate(&running.resolver, &[NAME]);
    // The existing connection stays usable. A new connection must trust the new authority.
    assert!(before.post(&url).send().await.is_ok());
    assert!(
        client(running.address, &running.trusted)
            .post(&url)
            .send()
            .await
            .is_err()
    );
    let after = client(running.address, &trusted);
    assert!(after.post(&url).send().await.is_ok());
}

#[tokio::test]
async fn shutdown_finishes_reviews_in_flight_and_rejects_new_connections() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let router = {
        let (arrived, go) = (arrived.clone(), go.clone());
        Router::new().route(
            "/",
            post(move || async move {
                arrived.notify_one();
                go.notified().await;
                "reviewed"
            }),
        )
    };
    let running = start(router, LONG, AT_ONCE).await;
    let url = url(running.address);
    let in_flight = tokio::spawn(client(running.address, &running.trusted).post(&url).send());
    arrived.notified().await;
    running.shutdown.cancel();
    let late = client(running.address, &running.trusted);
    let refused = async {
        loop {
            match late.post(&url).timeout(SHORT).send().await {
                Err(error) if error.is_connect() => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(LONG, refused).await.unwrap();
    assert!(!running.ended.is_finished());
    go.notify_one();
    let answer = in_flight.await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "reviewed");
    tokio::time::timeout(LONG, running.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn shutdown_ends_despite_a_review_that_never_ends() {
    let arrived = Arc::new(Notify::new());
    let router = {
        let arrived = arrived.clone();
        Router::new().route(
            "/",
            post(move || async move {
                arrived.notify_one();
                std::future::pending::<()>().await;
            }),
        )
    };
    let drain = ShutdownPeriods {
        delay: Duration::ZERO,
        timeout: SHORT,
    };
    let running = start(router, LONG, drain).await;
    let stuck = tokio::spawn(
        client(running.address, &running.trusted)
            .post(url(running.address))
            .send(),
    );
    arrived.notified().await;
    running.shutdown.cancel();
    tokio::time::timeout(LONG, running.ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(stuck.await.unwrap().is_err());
}
