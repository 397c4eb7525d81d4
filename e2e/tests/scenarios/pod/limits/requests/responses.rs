//! Memory of responses that a client does not read. The requests of the client have the correct
//! path of the webhook. The pod closes the connections of the client.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::client::{self, CLOSED_WITHIN, KNOWN, PARALLEL, Target, TlsStream, tls};
use super::*;

/// Number of users in the reviews. One user can use only half of the memory for reviews.
const USERS: usize = 4;
/// Size in bytes of the client's receive buffer, which is smaller than a response.
const RECEIVE_BUFFER: usize = 4 << 10;
/// Memory that the responses may add, in KiB: the memory of reviews, of the connections, and of a
/// short response for each further request.
const GROWTH: u64 = 80 << 10;

/// Returns a review. Its rejection has a hundred findings, and each finding contains the name of
/// the object.
fn review(number: usize) -> Bytes {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "name": "n".repeat(4 << 10),
            "kind": {"group": "core.rukpak.io", "version": "v1alpha1", "kind": "ProvisionerClass"},
            "userInfo": {"username": format!("responses-{}", number % USERS)},
            "object": {"spec": {
                "provisioner": "core.rukpak.io/plain",
                "sources": {"types": vec![0; 100]},
            }},
        },
    });
    review.to_string().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_with_http2_stay_within_the_limit_and_end_their_connections() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let (target, url) = Target::of(&cluster).await;
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let mut settings = h2::client::Builder::new();
    // The window of each stream is empty, so the pod cannot send any byte of a response body.
    settings.initial_window_size(0);
    let mut connections = JoinSet::new();
    let mut sent = Vec::new();
    for number in 0..KNOWN {
        // The pod closes a connection if it has no memory for the connection.
        let Ok((sender, ended)) = target.connect_with(&settings).await else {
            continue;
        };
        connections.spawn(ended);
        let (url, review) = (url.clone(), review(number));
        sent.push(tokio::spawn(async move {
            let mut sent = Vec::new();
            for _ in 0..PARALLEL {
                let length = review.len();
                let Ok(one) = client::send(&sender, &url, length, review.clone()).await else {
                    break;
                };
                sent.push(one);
            }
            // The test keeps the response bodies without reading them, so the pod can neither send
            // them nor free their memory.
            join_all(sent.into_iter().map(|(response, _)| response)).await
        }));
    }
    let responses = join_all(sent).await;
    let responses = responses.iter().flat_map(|all| all.as_ref().unwrap());
    let begun = responses.filter(|response| response.is_ok()).count();
    let closed = tokio::time::timeout(CLOSED_WITHIN, connections.join_all()).await;
    assert!(closed.is_ok(), "connections are still open");
    assert!(begun >= KNOWN, "{begun} responses");
    assert_reviewed(&client, "responses").await;
    let attack = format!("{begun} responses that {KNOWN} connections do not read");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(peak < idle + GROWTH, "{idle} KiB, then {peak} KiB");
}

fn connected_with_small_buffer(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_write_timeout(Some(CLOSED_WITHIN)).unwrap();
    stream
}

/// Sends requests and reads nothing. Waits until the pod has closed the connection, and returns
/// `true`. Returns `false` if the connection is open after [`CLOSED_WITHIN`].
fn is_closed_while_sending(mut stream: TlsStream, request: &[u8]) -> bool {
    loop {
        if let Err(error) = stream.write_all(request) {
            return !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_with_http1_stay_within_the_limit_and_end_their_connections() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let url: http::Uri = review_url(&cluster).await.parse().unwrap();
    let open = tls(&cluster, connected_with_small_buffer).await;
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let path: Arc<str> = url.path().into();
    let attacks = (0..KNOWN).map(|number| {
        let (open, path) = (open.clone(), path.clone());
        tokio::task::spawn_blocking(move || {
            let review = review(number);
            let mut request = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                review.len()
            )
            .into_bytes();
            request.extend_from_slice(&review);
            is_closed_while_sending(open(), &request)
        })
    });
    let closed = join_all(attacks).await;
    let open = closed.iter().filter(|closed| !*closed.as_ref().unwrap());
    assert_eq!(open.count(), 0, "connections are still open");
    assert_reviewed(&client, "responses").await;
    let attack = format!("{KNOWN} connections with HTTP/1.1 that read nothing");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(peak < idle + GROWTH, "{idle} KiB, then {peak} KiB");
}
