//! Forwards a port of a pod to a loopback address, through the API server, like `kubectl
//! port-forward`. The listener accepts one connection of this process, and is closed afterwards.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bundle_cluster::ObjectUrl;
use bundle_core::diagnostic::{Finding, codes};
use futures::future::{self, Either};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::core::Status;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::websocket::{self, Opcode};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};

/// Subprotocol of API servers: the first byte of each message is its channel.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// Channel of the bytes of the first port.
const DATA: u8 = 0;
/// Channel of an error of the first port.
const ERROR: u8 = 1;
/// Size of the messages that are sent, in bytes.
const CHUNK: usize = 32 << 10;
/// Maximum size of an error response of the API server, in bytes.
const MAX_STATUS: usize = 64 << 10;
/// Maximum length of an error message of the node, in characters.
const MAX_MESSAGE: usize = 300;

/// A forwarded port. The forwarding ends when this value is dropped.
#[derive(Debug)]
pub(super) struct PortForward {
    /// Local address, which accepts one connection.
    pub(super) address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for PortForward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PortForward {
    /// Connects to `port` of a pod.
    pub(super) async fn open(cluster: &Cluster, pod: &ObjectUrl, port: u16) -> Outcome<Self> {
        let no_loopback = |error: io::Error| {
            let finding = Finding::error(
                codes::usage::NO_RESOURCES,
                "cannot listen on a loopback address",
            );
            Failure::caused(finding, &error)
        };
        let stream = upgrade(cluster, &format!("{}/portforward?ports={port}", pod.path())).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(no_loopback)?;
        let address = listener.local_addr().map_err(no_loopback)?;
        let task = tokio::spawn(async move {
            let (local, _) = listener.accept().await?;
            drop(listener);
            forward(stream, local, port).await
        });
        Ok(Self { address, task })
    }

    /// Returns the error that ended the forwarding. Returns `None` if the forwarding has not ended,
    /// or has ended without an error.
    pub(super) async fn failure(mut self) -> Option<io::Error> {
        if !self.task.is_finished() {
            return None;
        }
        (&mut self.task).await.ok()?.err()
    }
}

/// Returns the stream of a WebSocket connection to the API server.
async fn upgrade(cluster: &Cluster, path: &str) -> Outcome<impl AsyncRead + AsyncWrite + use<>> {
    let invalid = |error: &dyn std::error::Error| {
        let finding = Finding::error(
            codes::cluster::BAD_ANSWER,
            format!("the API server {} forwards no ports", cluster.name),
        )
        .hint("check whether a proxy between this machine and the API server supports WebSockets; --content-url connects to bundle-webhook directly");
        Failure::caused(finding, error)
    };
    let key = websocket::handshake_key().map_err(|error| invalid(&error))?;
    let request = Request::get(path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .header(header::SEC_WEBSOCKET_KEY, &key)
        .body(Body::empty())
        .map_err(|error| invalid(&error))?;
    let response = cluster.send(cluster.client.send(request)).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(rejected(response)
            .await
            .unwrap_or_else(|status| invalid(&io::Error::other(status.to_string()))));
    }
    if !is_accepted(response.headers(), &key) {
        return Err(invalid(&io::Error::other(
            "the response is not that of a WebSocket server",
        )));
    }
    let upgraded = hyper::upgrade::on(response).await;
    Ok(TokioIo::new(upgraded.map_err(|error| invalid(&error))?))
}

/// Returns `true` if the response headers accept the handshake key and the subprotocol.
fn is_accepted(headers: &HeaderMap, key: &str) -> bool {
    let has = |name, value: &str| headers.get(name).is_some_and(|found| found == value);
    has(header::SEC_WEBSOCKET_ACCEPT, &websocket::accepted_key(key))
        && headers.get(header::SEC_WEBSOCKET_PROTOCOL) == Some(&HeaderValue::from_static(PROTOCOL))
}

/// Returns the failure in the body of an error response. Returns the HTTP status as the error if
/// the body is not a Kubernetes `Status`.
async fn rejected(response: Response<Body>) -> Result<Failure, StatusCode> {
    let code = response.status();
    let body = Limited::new(response.into_body(), MAX_STATUS);
    let bytes = body.collect().await.map_err(|_| code)?.to_bytes();
    let status: Status = serde_json::from_slice(&bytes).map_err(|_| code)?;
    Ok(Failure::Server(Box::new(status)))
}

/// Copies bytes in both directions until one of the two streams is closed.
async fn forward(
    remote: impl AsyncRead + AsyncWrite,
    local: impl AsyncRead + AsyncWrite,
    port: u16,
) -> io::Result<()> {
    let (remote_input, remote_output) = tokio::io::split(remote);
    let (local_input, local_output) = tokio::io::split(local);
    // Replies to pings wait in this channel while another message is sent.
    let (pings, replies) = mpsc::channel(4);
    let received = std::pin::pin!(receive(remote_input, local_output, pings, port));
    let sent = std::pin::pin!(send(local_input, remote_output, replies));
    match future::select(received, sent).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    }
}

async fn receive(
    mut remote: impl AsyncRead + Unpin,
    mut local: impl AsyncWrite + Unpin,
    pings: mpsc::Sender<Vec<u8>>,
    port: u16,
) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "an unexpected message");
    // The first message of each channel contains the port number, and is skipped.
    let mut is_open = [false; 2];
    let mut channel = None;
    loop {
        let frame = websocket::read(&mut remote).await?;
        let bytes = match frame.opcode {
            Opcode::Binary => {
                let Some((first, bytes)) = frame.payload.split_first() else {
                    continue;
                };
                channel = Some(*first);
                bytes
            }
            Opcode::Continuation => &frame.payload,
            Opcode::Ping => {
                // The future of `send` has ended, so no reply can be sent.
                if pings.send(frame.payload).await.is_err() {
                    return Ok(());
                }
                continue;
            }
            Opcode::Pong => continue,
            Opcode::Close => return local.shutdown().await,
        };
        let channel = channel.ok_or_else(invalid)?;
        let is_open = is_open.get_mut(usize::from(channel)).ok_or_else(invalid)?;
        if !*is_open {
            if bytes != port.to_le_bytes() {
                return Err(invalid());
            }
            *is_open = true;
        } else if channel == ERROR {
            let text = String::from_utf8_lossy(bytes);
            let text = text.chars().filter(|letter| !letter.is_control());
            return Err(io::Error::other(text.take(MAX_MESSAGE).collect::<String>()));
        } else {
            local.write_all(bytes).await?;
        }
    }
}

async fn send(
    mut local: impl AsyncRead + Unpin,
    mut remote: impl AsyncWrite + Unpin,
    mut replies: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    let mut message = vec![DATA; 1 + CHUNK];
    loop {
        tokio::select! {
            read = local.read(&mut message[1..]) => match read? {
                0 => return websocket::write(&mut remote, Opcode::Close, &[]).await,
                count => websocket::write(&mut remote, Opcode::Binary, &message[..=count]).await?,
            },
            Some(ping) = replies.recv() => {
                websocket::write(&mut remote, Opcode::Pong, &ping).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    const PORT: u16 = 8443;

    /// Starts a port-forward. Returns the stream of the API server, the stream of the local client,
    /// and the task.
    fn forwarded() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let (server, remote) = tokio::io::duplex(1 << 16);
        let (client, local) = tokio::io::duplex(1 << 16);
        let task = tokio::spawn(forward(remote, local, PORT));
        (server, client, task)
    }

    /// Returns an unmasked frame, as servers send it.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind, u8::try_from(payload.len()).unwrap()];
        frame.extend(payload);
        frame
    }

    fn opened() -> Vec<u8> {
        [
            frame(0x82, &[DATA, 0xfb, 0x20]),
            frame(0x82, &[ERROR, 0xfb, 0x20]),
        ]
        .concat()
    }

    /// Returns type and payload of the next frame of the client.
    async fn sent(server: &mut DuplexStream) -> (u8, Vec<u8>) {
        let kind = server.read_u8().await.unwrap();
        let length = server.read_u8().await.unwrap() & 0x7f;
        let mut mask = [0; 4];
        server.read_exact(&mut mask).await.unwrap();
        let mut payload = vec![0; usize::from(length)];
        server.read_exact(&mut payload).await.unwrap();
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        (kind, payload)
    }

    #[tokio::test]
    async fn copies_bytes_in_both_directions_and_replies_to_pings() {
        let (mut server, mut client, task) = forwarded();
        server.write_all(&opened()).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        assert_eq!(sent(&mut server).await, (0x82, b"\0hello".to_vec()));
        server.write_all(&frame(0x89, b"ping")).await.unwrap();
        assert_eq!(sent(&mut server).await, (0x8a, b"ping".to_vec()));
        // One message in two frames.
        let parts = [frame(0x02, b"\0wor"), frame(0x80, b"ld")].concat();
        server.write_all(&parts).await.unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"world");
        drop(client);
        assert_eq!(sent(&mut server).await, (0x88, Vec::new()));
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn ends_with_the_error_of_the_node() {
        let (mut server, mut client, task) = forwarded();
        let message = frame(0x82, b"\x01dial tcp4 127.0.0.1:8443: \nconnection refused");
        server
            .write_all(&[opened(), message].concat())
            .await
            .unwrap();
        let error = task.await.unwrap().unwrap_err().to_string();
        assert_eq!(error, "dial tcp4 127.0.0.1:8443: connection refused");
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn rejects_other_ports_and_channels() {
        for message in [
            frame(0x82, &[DATA, 0xfc, 0x20]),
            frame(0x82, &[DATA, 0xfb]),
            frame(0x82, &[2, 0xfb, 0x20]),
            frame(0x80, b"continuation"),
        ] {
            let (mut server, _client, task) = forwarded();
            server.write_all(&message).await.unwrap();
            let error = task.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[tokio::test]
    async fn close_of_the_server_ends_the_local_connection() {
        let (mut server, mut client, task) = forwarded();
        server
            .write_all(&[opened(), frame(0x88, &[])].concat())
            .await
            .unwrap();
        task.await.unwrap().unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[test]
    fn only_the_response_to_the_own_key_is_accepted() {
        let mut headers = HeaderMap::new();
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL.parse().unwrap());
        assert!(!is_accepted(&headers, key));
        let accepted = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".parse().unwrap();
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
        assert!(is_accepted(&headers, key));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, "v5".parse().unwrap());
        assert!(!is_accepted(&headers, key));
    }
}
