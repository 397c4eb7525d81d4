//! The TLS listener of admission: limits, deadlines, and graceful shutdown. `certs` provides the
//! certificate.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{self, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::future::RouteFuture;
use axum::{Router, ServiceExt};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use futures::future::Either;
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::client_authority::ClientAuthority;
use super::connections::{Client, Connections, Limits};
use super::responses::{self, SEND_TIMEOUT};
use crate::certs::Resolver;

/// Maximum size of a body. The review of an update has two objects of up to 3 MiB each, with their
/// managed fields.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request, in bytes; with HTTP/1 also of the buffered body. API
/// servers send a path of 60 bytes, about twelve short headers, and, if configured, a token of a
/// few KiB.
const HEAD_BYTES: u16 = 16 << 10;
/// Connection limits. Unauthenticated clients have not sent a valid path yet.
const CONNECTIONS: Limits = Limits {
    // An API server opens a connection for each of its first requests.
    unauthenticated: 192,
    max_age: Duration::from_secs(5),
    max_stall: SEND_TIMEOUT,
    // A handshake with client certificates, and the largest head or one record of TLS.
    received: 32 << 10,
    authenticated: 256,
    authenticated_by_address: 192,
    // An API server can have that many requests on a connection when another replica rotates.
    waiting: STREAMS as usize,
    waiting_in_all: 256,
    waiting_by_address: 192,
    rejected: 2 * STREAMS,
};
/// Concurrent requests of one connection. API servers open more connections if they need them.
const STREAMS: u32 = 32;
/// HTTP/2 flow-control window of a request, in bytes. Bodies wait there for their share of memory.
const STREAM_WINDOW: u32 = 10 << 10;
/// HTTP/2 flow-control window of a connection, in bytes. An API server uses one connection for the
/// reviews of many users, so waiting bodies must not fill the window of the connection.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS;
/// Interval of keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The serving certificate, and the accepted clients.
#[derive(Debug)]
pub struct Access {
    /// The serving certificate.
    pub resolver: Arc<Resolver>,
    /// Clients must present a certificate of an authority in this file (PEM). `None`: no client
    /// certificate is required.
    pub client_ca_file: Option<PathBuf>,
}

/// The phases of a graceful shutdown.
#[derive(Debug, Clone, Copy)]
pub struct Drain {
    /// Time to serve requests until the API server knows that this replica ends.
    pub delay: Duration,
    /// Time limit after that for reviews in flight.
    pub timeout: Duration,
}

/// A router behind a gate. The gate returns the response to a rejected request at once, so that
/// nothing of the request is stored: a client can send many before a connection closes.
#[derive(Debug, Clone)]
struct Gated<G> {
    gate: G,
    router: Router,
}

impl<G, B> Service<http::Request<B>> for Gated<G>
where
    G: Fn(&mut Request) -> Result<(), Response>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, RouteFuture<Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        match (self.gate)(&mut request) {
            Ok(()) => Either::Right(self.router.call(request)),
            Err(rejection) => Either::Left(ready(Ok(rejection))),
        }
    }
}

/// Serves `router` until `shutdown`, then drains as configured. `gate` sees each request before
/// `router`, and returns the response if it rejects the request. `deadline` limits each request
/// from its first byte. The deadline of a review must be shorter, so that the response has a
/// reason.
pub async fn serve<G>(
    listener: TcpListener,
    (gate, router): (G, Router),
    access: Access,
    deadline: Duration,
    drain: Drain,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    G: Fn(&mut Request) -> Result<(), Response> + Clone + Send + Sync + 'static,
{
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
    let router = limited(router, deadline);
    let gated = Gated { gate, router };
    let serving = server.serve(ServiceExt::<Request>::into_make_service(gated));
    let ending = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain.delay).await;
        handle.graceful_shutdown(Some(drain.timeout));
        // The server ends after its connections.
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

/// Adds the limits for all requests.
fn limited(router: Router, deadline: Duration) -> Router {
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            within(deadline, request, next)
        }))
}

async fn within(deadline: Duration, request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Arc<Client>>().cloned();
    let response = tokio::time::timeout(deadline, next.run(request)).await;
    let response = response.unwrap_or_else(|_| {
        let message = "the request exceeded its deadline\n";
        (StatusCode::REQUEST_TIMEOUT, message).into_response()
    });
    match client {
        Some(client) => responses::bounded(response, client, SEND_TIMEOUT).await,
        // Each connection has a client.
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
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
            // A resumed session would skip the check against changed authorities.
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

    use axum::routing::post;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

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
        // The guard does this, and is not part of these tests.
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
        // The connection can be closed before all of it is sent.
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

    #[tokio::test]
    async fn renewed_certificate_is_served_to_the_next_connection() {
        let running = start(echo_length(), LONG, AT_ONCE).await;
        let url = url(running.address);
        let before = client(running.address, &running.trusted);
        assert!(before.post(&url).send().await.is_ok());
        let trusted = certs::serve_new_certificate(&running.resolver, &[NAME]);
        // The existing connection continues; a new one needs the new authority.
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
