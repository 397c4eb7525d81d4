//! Memory that a client can use with many HTTP/2 requests on the admission port, without and with
//! the path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use e2e::wait;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::floods::client_config;
use super::*;

/// Clients that connect again and again.
const CLIENTS: usize = 500;
/// Requests on each connection, as many as API servers send.
const REQUESTS: usize = 100;
/// Connections that the unknown clients open in all. The pod closes many of them early.
const OPENED: usize = 5_000;
/// Connections of the client that knows the path.
const KNOWN: usize = 192;
/// Announced length of each body, and the part that is sent.
const LENGTH: usize = 64 << 10;
const PART: usize = 10 << 10;
/// Memory that unknown clients may add, in KiB.
const UNKNOWN_GROWTH: u64 = 32 << 10;

type Sender = h2::client::SendRequest<Bytes>;
type Sent = (h2::client::ResponseFuture, h2::SendStream<Bytes>);

/// The admission port, as a client with HTTP/2.
#[derive(Clone)]
struct Target {
    config: Arc<ClientConfig>,
    host: String,
    port: u16,
}

impl Target {
    /// Returns the target, and the URL to which the API server posts.
    async fn of(cluster: &Cluster) -> (Self, http::Uri) {
        let mut config = client_config(cluster).await;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let url: http::Uri = review_url(cluster).await.parse().unwrap();
        let target = Self {
            config: Arc::new(config),
            host: url.host().unwrap().to_owned(),
            port: url.port_u16().unwrap(),
        };
        (target, url)
    }

    async fn connect(&self) -> anyhow::Result<Sender> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let connector = tokio_rustls::TlsConnector::from(self.config.clone());
        let stream = connector.connect(name, stream).await?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// Sends the heads of many requests on a new connection, and a part of each body, until the
    /// connection ends.
    async fn send_many(&self, url: &http::Uri) -> anyhow::Result<Vec<Sent>> {
        let sender = self.connect().await?;
        let part = Bytes::from(vec![b' '; PART]);
        let mut sent = Vec::new();
        while sent.len() < REQUESTS {
            let Ok(mut ready) = sender.clone().ready().await else {
                break;
            };
            let request = http::Request::post(url)
                .header("content-type", "application/json")
                .header("content-length", LENGTH)
                .body(())?;
            let Ok((response, mut body)) = ready.send_request(request, false) else {
                break;
            };
            if body.send_data(part.clone(), false).is_err() {
                break;
            }
            sent.push((response, body));
        }
        Ok(sent)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_requests_of_clients_without_the_path_use_little_memory_and_reviews_continue() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let (target, url) = Target::of(&cluster).await;
    // The first waits until the tokens were read again, the second is rejected at once.
    let urls = [format!("validate/{}", "0".repeat(64)), "x".to_owned()].map(|path| {
        let url = format!("https://{}/{path}", url.authority().unwrap());
        url.parse::<http::Uri>().unwrap()
    });
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let opened = Arc::new(AtomicUsize::new(0));
    let mut attack = JoinSet::new();
    for url in urls.iter().cycle().take(CLIENTS) {
        let (target, url, opened) = (target.clone(), url.clone(), opened.clone());
        attack.spawn(async move {
            loop {
                opened.fetch_add(1, Ordering::Relaxed);
                if let Ok(sent) = target.send_many(&url).await {
                    join_all(sent.into_iter().map(|(response, _body)| response)).await;
                }
            }
        });
    }
    let reference = "registry.example.com/streams@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    wait::until_true(LONG, "unknown clients have connected often", || async {
        let (status, message) = create_dry(&client, "bundles", &bundle("streams", reference)).await;
        // A response of the webhook: admitted, or rejected with a diagnostic code.
        assert!(
            status == 201 || message.contains("BUNDLE-"),
            "{status} {message}"
        );
        Ok(opened.load(Ordering::Relaxed) >= OPENED)
    })
    .await
    .unwrap();
    attack.shutdown().await;
    let count = opened.load(Ordering::Relaxed);
    let attack = format!("{count} connections with {REQUESTS} requests to an unknown path");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(peak < idle + UNKNOWN_GROWTH, "{idle} KiB, then {peak} KiB");
}

/// Error messages of the API server contain the path, so that a client in the cluster can know it.
#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_of_a_client_that_knows_the_path_stay_within_the_limit() {
    let (cluster, mut webhook) = stage().await;
    let (target, url) = Target::of(&cluster).await;
    let probe = LivenessProbe::start(&webhook);
    let mut held = Vec::new();
    for _ in 0..KNOWN {
        held.push(target.send_many(&url).await.unwrap());
    }
    let requests: usize = held.iter().map(Vec::len).sum();
    let answered = join_all(held.into_iter().flatten().map(|(response, _body)| response)).await;
    let answered = answered.iter().filter(|answer| answer.is_ok()).count();
    record(&format!(
        "{answered} of {requests} requests have a response"
    ));
    let attack = format!("{requests} requests of one client to a known path");
    survived(&attack, &mut webhook, probe).await;
}
