//! The TLS listener that admission is served on: limits, deadlines, and an end that finishes reviews in flight.
//! Not here: which certificate (certs) and which answer (admission).

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client_authority::ClientAuthority;
use super::connections::{Connections, Limits};
use crate::certs::Resolver;

/// A review of an update carries two objects of up to 3 MiB each, with their managed fields.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes; with HTTP/1, what is held of a body as well. API servers send a path of 60 bytes, a dozen of short headers, and
/// a token of a few KiB where they are configured to.
const HEAD_BYTES: u16 = 32 << 10;
/// Strangers are all who have not named a path of ours yet; each may hold [`HEAD_BYTES`] and as much in TLS.
const CONNECTIONS: Limits = Limits {
    strangers: 128,
    patience: Duration::from_secs(5),
    known: 512,
    waiting: 4,
};
/// Requests of one connection at a time.
const STREAMS: u32 = 100;
/// What a client may send of all requests of a connection before they are read, in bytes. Bodies wait there for their share of the memory.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The same for one request. An API server has one connection for the reviews of all users: bodies that wait must not fill its window, or no other arrives.
const STREAM_WINDOW: u32 = CONNECTION_WINDOW / STREAMS;
/// A silent connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Who is served, and with which certificate.
#[derive(Debug)]
pub struct Access {
    /// The serving certificate.
    pub resolver: Arc<Resolver>,
    /// Clients must present a certificate of an authority in this file (PEM). `None`: clients need no certificate.
    pub client_ca_file: Option<PathBuf>,
}

/// How to end.
#[derive(Debug, Clone, Copy)]
pub struct Drain {
    /// How long to serve on, while the API server learns that we go.
    pub delay: Duration,
    /// How long reviews in flight may take after that.
    pub timeout: Duration,
}

/// Serves `router` until `shutdown`, and then for as long as `drain` says. `deadline` bounds each request from its first
/// byte: the review's own deadline has to be shorter, so that its answer is an answer.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    access: Access,
    deadline: Duration,
    drain: Drain,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let handle: Handle<SocketAddr> = Handle::new();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let load = |file| ClientAuthority::load(file, provider.clone());
    let clients = access.client_ca_file.map(load).transpose()?.map(Arc::new);
    let config = tls(provider.clone(), access.resolver, clients.clone())?;
    let connections = Connections::new(CONNECTIONS);
    let mut server = axum_server::from_tcp_rustls(listener.into_std()?, config)?
        .map(|tls| tls.acceptor(connections))
        .handle(handle.clone());
    let http = server.http_builder();
    http.http1()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES.into())
        .header_read_timeout(HEAD_TIMEOUT);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES.into())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let serving = server.serve(limited(router, deadline).into_make_service());
    let ending = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain.delay).await;
        handle.graceful_shutdown(Some(drain.timeout));
        // The server ends by itself from here.
        std::future::pending::<()>().await;
    };
    let following = async {
        match &clients {
            Some(clients) => clients.follow().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = serving => ended,
        () = ending => Ok(()),
        () = following => Ok(()),
    }
}

/// The limits that hold for every request.
fn limited(router: Router, deadline: Duration) -> Router {
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            within(deadline, request, next)
        }))
}

async fn within(deadline: Duration, request: Request, next: Next) -> Response {
    match tokio::time::timeout(deadline, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response(),
    }
}

fn tls(
    provider: Arc<CryptoProvider>,
    resolver: Arc<Resolver>,
    clients: Option<Arc<ClientAuthority>>,
) -> io::Result<RustlsConfig> {
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = match clients {
        None => builder.with_no_client_auth().with_cert_resolver(resolver),
        Some(clients) => {
            let mut config = builder
                .with_client_cert_verifier(clients)
                .with_cert_resolver(resolver);
            // A resumed session would not be held against authorities that have changed since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::body::Bytes;
    use axum::routing::post;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::super::connections::Client;
    use super::*;
    use crate::certs;

    const NAME: &str = "hook.sys.svc";
    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    struct Running {
        address: SocketAddr,
        resolver: Arc<Resolver>,
        trusted: String,
        shutdown: CancellationToken,
        ended: JoinHandle<io::Result<()>>,
    }

    async fn start(router: Router, deadline: Duration, drain: Drain) -> Running {
        start_for(router, deadline, drain, None).await
    }

    async fn start_for(
        router: Router,
        deadline: Duration,
        drain: Drain,
        client_ca_file: Option<PathBuf>,
    ) -> Running {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (resolver, trusted) = certs::serving(&[NAME]);
        // As the guard does, which is not part of these tests.
        let welcomed = middleware::from_fn(|request: Request, next: Next| async {
            let client = request.extensions().get::<Arc<Client>>();
            client.unwrap().welcome();
            next.run(request).await
        });
        let router = router.layer(welcomed);
        let shutdown = CancellationToken::new();
        let serving = serve(
            listener,
            router,
            Access {
                resolver: resolver.clone(),
                client_ca_file,
            },
            deadline,
            drain,
            shutdown.clone(),
        );
        Running {
            address,
            resolver,
            trusted,
            shutdown,
            ended: tokio::spawn(serving),
        }
    }

    const AT_ONCE: Drain = Drain {
        delay: Duration::ZERO,
        timeout: LONG,
    };

    /// Trusts only `trusted`, and has the Service's name for the address, as an API server has.
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
    async fn large_reviews_pass_and_huge_ones_are_refused() {
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
    async fn a_client_authority_lets_in_only_clients_with_its_certificates() {
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

    /// Opens a TLS connection, sends the beginning of a head of so many bytes, and reads what comes until the other side closes.
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
        // It may be closed before all of it is sent.
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
    async fn unfinished_heads_are_closed_after_a_while_and_long_ones_at_once() {
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
    async fn a_request_that_stalls_is_cut_off() {
        let router = Router::new().route("/", post(std::future::pending::<()>));
        let running = start(router, SHORT, AT_ONCE).await;
        let client = client(running.address, &running.trusted);
        let answer = client.post(url(running.address)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_served_to_the_next_connection() {
        let running = start(echo_length(), LONG, AT_ONCE).await;
        let url = url(running.address);
        let before = client(running.address, &running.trusted);
        assert!(before.post(&url).send().await.is_ok());
        let trusted = certs::serve_anew(&running.resolver, &[NAME]);
        // The connection that stands is not disturbed; a new one needs the new authority.
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
    async fn reviews_in_flight_are_finished_and_new_connections_refused() {
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
    async fn a_review_that_never_ends_does_not_keep_the_process() {
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
        let drain = Drain {
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
}
