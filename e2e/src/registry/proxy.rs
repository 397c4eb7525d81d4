//! HTTP proxy with `CONNECT` for TLS, on loopback. For every requested host, the proxy connects to
//! the requested port on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Running proxy; it ends when dropped.
pub struct Proxy {
    address: SocketAddr,
    /// Requested hosts with their ports.
    requested: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let requested = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&requested);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let list = Arc::clone(&list);
                tokio::spawn(async move {
                    if let Err(error) = tunnel(stream, &list).await {
                        eprintln!("e2e: the proxy cannot connect: {error:#}");
                    }
                });
            }
        });
        Ok(Self {
            address,
            requested,
            task,
        })
    }

    /// Returns the URL for clients, `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requested hosts with their ports.
    pub fn requested_hosts(&self) -> Vec<String> {
        let requested = self.requested.lock();
        requested.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(stream: TcpStream, requested: &Mutex<Vec<String>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while stream.read_line(&mut head).await? > 2 {}
    let mut words = head.split_whitespace();
    let (Some("CONNECT"), Some(host)) = (words.next(), words.next()) else {
        bail!(
            "only CONNECT is known, not `{}`",
            head.lines().next().unwrap_or_default()
        );
    };
    requested
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(host.to_owned());
    let port: u16 = host
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok())
        .context("a host without a port")?;
    let mut other = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream
        .get_mut()
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    tokio::io::copy_bidirectional(&mut stream, &mut other).await?;
    Ok(())
}
