//! HTTP server on loopback for the files of a folder. The server can simulate the failures of a
//! mirror.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Maximum size of a request, in bytes.
const LIMIT: usize = 16 << 10;

/// Behavior of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerBehavior {
    /// Serves the files.
    Plain,
    /// Serves each file after this delay.
    Slow(Duration),
    /// Closes each connection without a response.
    Dead,
    /// Returns an error status.
    Broken,
    /// Serves the files. The response for the file with this suffix never ends.
    Endless(&'static str),
}

/// Running server; it ends when dropped.
pub struct FileServer {
    address: SocketAddr,
    manner: Arc<Mutex<ServerBehavior>>,
    requests: Arc<Requests>,
    task: JoinHandle<()>,
}

/// Current number of concurrent requests, and the highest number so far.
#[derive(Debug, Default)]
struct Requests {
    open: AtomicUsize,
    peak: AtomicUsize,
}

impl FileServer {
    /// Starts a server for the files of `folder`.
    pub async fn start(folder: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let manner = Arc::new(Mutex::new(ServerBehavior::Plain));
        let how = Arc::clone(&manner);
        let requests = Arc::new(Requests::default());
        let counted = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let now = how.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A client that disconnects ends only its own response.
                let (folder, answering) = (folder.clone(), now);
                let requests = Arc::clone(&counted);
                tokio::spawn(async move {
                    let open = requests.open.fetch_add(1, Ordering::SeqCst) + 1;
                    requests.peak.fetch_max(open, Ordering::SeqCst);
                    let answered = answer(stream, &folder, &answering).await;
                    requests.open.fetch_sub(1, Ordering::SeqCst);
                    answered.is_ok()
                });
            }
        });
        Ok(Self {
            address,
            manner,
            requests,
            task,
        })
    }

    /// Returns the URL of the folder, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the highest number of concurrent requests.
    pub fn peak(&self) -> usize {
        self.requests.peak.load(Ordering::SeqCst)
    }

    /// Sets the behavior of the server.
    pub fn answer(&self, manner: ServerBehavior) {
        *self.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, folder: &Path, manner: &ServerBehavior) -> Result<()> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") && read.len() < LIMIT {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&read);
    let path = text
        .split(' ')
        .nth(1)
        .unwrap_or("/")
        .trim_start_matches('/');
    if let ServerBehavior::Slow(delay) = manner {
        tokio::time::sleep(*delay).await;
    }
    if *manner == ServerBehavior::Dead {
        return Ok(());
    }
    let (status, body) = match fs_err::read(folder.join(path)) {
        _ if *manner == ServerBehavior::Broken => ("503 Service Unavailable", Vec::new()),
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    if let ServerBehavior::Endless(name) = manner
        && path.ends_with(name)
    {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
            .await?;
        loop {
            stream.write_all(&[b' '; 4096]).await?;
        }
    }
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    Ok(stream.write_all(&body).await?)
}
