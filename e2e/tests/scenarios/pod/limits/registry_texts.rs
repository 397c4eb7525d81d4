//! Memory that the operator of registries can take from the pod with what their servers send beside
//! content: tokens, challenges and headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Number of dry runs, each for another repository or registry.
const DRY_RUNS: usize = 400;
const PARALLEL: usize = 8;
/// Memory that the reviews may add, in KiB: far less than all texts together.
const GROWTH_LIMIT: u64 = 24 << 10;

/// A server that answers each request with a response of its author, and keeps connections open.
#[derive(Clone)]
pub(super) struct HostileServer {
    /// Returns the response to a request with this head.
    answer: Arc<dyn Fn(&str) -> String + Send + Sync>,
    answered: Arc<AtomicUsize>,
}

impl HostileServer {
    pub(super) fn new(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            answered: Arc::default(),
        }
    }

    /// Listens on a new port, and returns it.
    pub(super) async fn listen(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(connection));
            }
        });
        port
    }

    async fn serve(self, mut connection: TcpStream) {
        let (mut head, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(read) = connection.read(&mut piece).await {
            if read == 0 {
                return;
            }
            head.extend_from_slice(&piece[..read]);
            if head.ends_with(b"\r\n\r\n") {
                let answer = (self.answer)(&String::from_utf8_lossy(&head));
                head.clear();
                if connection.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

/// Sends a dry run of a BundleDeployment for each reference, and checks the memory of the pod.
async fn dry_runs_survive(attack: &str, server: &HostileServer, references: &[String]) {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    for some in references.chunks(PARALLEL) {
        let objects: Vec<_> = some
            .iter()
            .map(|reference| deployment("registry-texts", reference))
            .collect();
        let dry_runs = objects
            .iter()
            .map(|object| create_dry(&client, "bundledeployments", object));
        join_all(dry_runs).await;
    }
    let answered = server.answered();
    assert!(answered >= references.len() / 2, "{answered} requests");
    let peak = survived(attack, &mut webhook, probe).await;
    assert!(peak < idle + GROWTH_LIMIT, "{idle} KiB, then {peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_many_registries_with_large_headers_do_not_exhaust_memory() {
    // Below the limit of the HTTP library for all headers of a response.
    let padding = "a".repeat(300 << 10);
    let server = HostileServer::new(move |_| {
        format!("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nx-padding: {padding}\r\n\r\n")
    });
    let mut references = Vec::new();
    for _ in 0..DRY_RUNS {
        references.push(format!("127.0.0.1:{}/web:1.0.0", server.listen().await));
    }
    let attack = format!("{DRY_RUNS} registries with headers of 300 KiB");
    dry_runs_survive(&attack, &server, &references).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_tokens_of_many_repositories_do_not_exhaust_memory() {
    // One just within the limit of a token service's response, one beyond.
    let tokens = [60, 250].map(|kib| {
        format!(
            r#"{{"token":"{}","expires_in":100000}}"#,
            "a".repeat(kib << 10)
        )
    });
    let server = HostileServer::new(move |head| {
        let host = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("host").then_some(value)
        });
        let host = host.unwrap_or_default();
        if head.starts_with("GET /token") {
            let body = &tokens[usize::from(head.contains("large"))];
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        } else if head.to_ascii_lowercase().contains("\r\nauthorization: ") {
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            format!(
                "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"http://{host}/token\"\r\ncontent-length: 0\r\n\r\n"
            )
        }
    });
    let port = server.listen().await;
    let references: Vec<_> = (0..DRY_RUNS)
        .map(|number| {
            let size = if number % 2 == 0 { "small" } else { "large" };
            format!("127.0.0.1:{port}/{size}-{number}:1.0.0")
        })
        .collect();
    let attack = format!("{DRY_RUNS} repositories with tokens of 60 and 250 KiB");
    dry_runs_survive(&attack, &server, &references).await;
}
