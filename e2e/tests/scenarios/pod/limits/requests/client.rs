//! Clients of the admission port other than the API server. Error messages of the API server
//! contain the path of the webhook. Therefore a client in the cluster can obtain this path.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::task::JoinHandle;

use super::*;

/// Deadline for the process to close a connection whose client does not send or read, with a
/// margin for a busy machine.
pub(super) const CLOSED_WITHIN: Duration = Duration::from_secs(25);
/// Number of connections that the pod keeps open for one client address, if the requests have the
/// correct path.
pub(super) const KNOWN: usize = 192;
/// Number of requests of one connection that the pod processes at the same time.
pub(super) const PARALLEL: usize = 32;

/// Addresses of clients other than the API server.
pub(super) const ELSEWHERE: [Ipv4Addr; 2] =
    [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

pub(super) type TlsStream = StreamOwned<ClientConnection, TcpStream>;
pub(super) type Sender = h2::client::SendRequest<Bytes>;
/// A sent request: the future response, and the stream for the remaining bytes of the request body.
pub(super) type Sent = (h2::client::ResponseFuture, h2::SendStream<Bytes>);

pub(super) fn connected(address: SocketAddr) -> TcpStream {
    with_timeouts(TcpStream::connect(address).unwrap())
}

/// Connects from an address that is not the address of the API server.
pub(super) fn connected_from_elsewhere(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let elsewhere = SocketAddr::from((ELSEWHERE[0], 0));
    socket.bind(&elsewhere.into()).unwrap();
    socket.connect(&address.into()).unwrap();
    with_timeouts(socket.into())
}

fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_write_timeout(Some(CLOSED_WITHIN)).unwrap();
    stream.set_read_timeout(Some(CLOSED_WITHIN)).unwrap();
    stream
}

/// Returns the settings of a client that trusts the certificate of the pod, like an API server.
async fn client_config(cluster: &Cluster) -> ClientConfig {
    let path = "{.webhooks[0].clientConfig.caBundle}";
    let bundle = kubectl(
        cluster,
        &format!("get validatingwebhookconfiguration bundle-webhook -o jsonpath={path}"),
    )
    .await;
    let pem = STANDARD.decode(bundle.trim()).unwrap();
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&pem) {
        roots.add(authority.unwrap()).unwrap();
    }
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Opens TLS connections to the address to which the API server posts its reviews.
pub(super) async fn tls(
    cluster: &Cluster,
    connect: fn(SocketAddr) -> TcpStream,
) -> impl Fn() -> TlsStream + Clone + Send + 'static {
    let config = Arc::new(client_config(cluster).await);
    let url: http::Uri = review_url(cluster).await.parse().unwrap();
    let host = url.host().unwrap().to_owned();
    let port = url.port_u16().unwrap();
    move || {
        let name = ServerName::try_from(host.clone()).unwrap();
        let client = ClientConnection::new(config.clone(), name).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        StreamOwned::new(client, connect(address))
    }
}

/// HTTP/2 client of the admission port.
#[derive(Clone)]
pub(super) struct Target {
    config: Arc<ClientConfig>,
    host: String,
    port: u16,
    /// Address of the client. `None` means the address of the API server.
    source: Option<Ipv4Addr>,
}

impl Target {
    /// Returns the target, and the URL to which the API server posts.
    pub(super) async fn of(cluster: &Cluster) -> (Self, http::Uri) {
        let mut config = client_config(cluster).await;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let url: http::Uri = review_url(cluster).await.parse().unwrap();
        let target = Self {
            config: Arc::new(config),
            host: url.host().unwrap().to_owned(),
            port: url.port_u16().unwrap(),
            source: None,
        };
        (target, url)
    }

    /// Returns the target for a client with the address `source`.
    pub(super) fn with_source(&self, source: Ipv4Addr) -> Self {
        Self {
            source: Some(source),
            ..self.clone()
        }
    }

    /// Opens a connection with default settings. Returns the sender for requests, and the task that
    /// reads the responses and ends with the connection.
    pub(super) async fn connect(&self) -> anyhow::Result<(Sender, JoinHandle<()>)> {
        self.connect_with(&h2::client::Builder::new()).await
    }

    /// Like [`Self::connect`], with these settings.
    pub(super) async fn connect_with(
        &self,
        settings: &h2::client::Builder,
    ) -> anyhow::Result<(Sender, JoinHandle<()>)> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let socket = tokio::net::TcpSocket::new_v4()?;
        if let Some(source) = self.source {
            socket.bind(SocketAddr::from((source, 0)))?;
        }
        let stream = socket.connect(address).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let connector = tokio_rustls::TlsConnector::from(self.config.clone());
        let stream = connector.connect(name, stream).await?;
        let (sender, connection) = settings.handshake(stream).await?;
        Ok((sender, tokio::spawn(async move { drop(connection.await) })))
    }
}

/// Sends the head of a request that announces `length` bytes, and the start of its body.
pub(super) async fn send(
    sender: &Sender,
    url: &http::Uri,
    length: usize,
    start: Bytes,
) -> anyhow::Result<Sent> {
    let mut ready = sender.clone().ready().await?;
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .header("content-length", length)
        .body(())?;
    let is_whole = start.len() == length;
    let (response, mut body) = ready.send_request(request, false)?;
    body.send_data(start, is_whole)?;
    Ok((response, body))
}

/// Returns a URL of the pod with a token that never existed in its path.
pub(super) fn unknown_url(url: &http::Uri) -> http::Uri {
    let token = "0".repeat(64);
    let url = format!("https://{}/validate/{token}", url.authority().unwrap());
    url.parse().unwrap()
}
