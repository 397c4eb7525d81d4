//! HTTP server for files, with basic authentication, redirects and faults. The server writes the
//! bytes of responses itself, because HTTP libraries cannot send most of the faults.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Maximum size of a request, in bytes.
const LIMIT: usize = 16 << 10;

/// Response to a request for one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileResponse {
    /// Status 200 with these bytes.
    File(Bytes),
    /// Requests that have this user name and password get these bytes. All other requests get
    /// status 401.
    Protected(Bytes, (String, String)),
    /// Requests that have this bearer token get these bytes. All other requests get status 401.
    WithToken(Bytes, String),
    /// A status line such as `503 Service Unavailable`, and no content.
    Status(&'static str),
    /// A redirect to this URL.
    Redirect(String),
    /// An HTML page.
    Html(&'static str),
    /// Status 200 with these bytes. The header `Content-Length` has this value.
    WrongLength(Bytes, u64),
    /// Content that never ends. The response declares no length.
    Endless,
    /// The first bytes of a response. After these bytes the server sends nothing, and keeps the
    /// connection open.
    Stalled,
}

/// Received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRequest {
    /// Path and query.
    pub path: String,
    /// Value of the header `Authorization`; `None` if the request has no such header.
    pub authorization: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    responses: BTreeMap<String, FileResponse>,
    requests: Vec<FileRequest>,
}

/// Running server, which stops when dropped.
#[derive(Debug)]
pub struct FileServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileServer {
    /// Starts a server without TLS on a free loopback port.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(|stream| async move { Ok(stream) }).await
    }

    /// Starts a server. `accept` prepares each connection, for example with a TLS handshake.
    pub async fn start_with<S, F>(
        accept: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (accepted, state) = (accept(stream), Arc::clone(&shared));
                // A client that disconnects ends only its own response.
                tokio::spawn(async move {
                    let served = async { serve(accepted.await?, &state).await };
                    served.await.is_ok()
                });
            }
        });
        Ok(Self {
            address,
            state,
            task,
        })
    }

    /// Returns `HOST:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Sets the response to all later requests for a path such as `/web.tgz`.
    pub fn respond(&self, path: &str, response: FileResponse) {
        lock(&self.state)
            .responses
            .insert(path.to_owned(), response);
    }

    /// Returns all requests that the server has received.
    pub fn requests(&self) -> Vec<FileRequest> {
        lock(&self.state).requests.clone()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one request, and writes its response.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &Mutex<State>,
) -> io::Result<()> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") && read.len() < LIMIT {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&read);
    let path = text.split(' ').nth(1).unwrap_or("/").to_owned();
    let authorization = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        (name.eq_ignore_ascii_case("authorization")).then(|| value.to_owned())
    });
    let response = {
        let mut state = lock(state);
        state.requests.push(FileRequest {
            path: path.clone(),
            authorization: authorization.clone(),
        });
        let path = path.split('?').next().unwrap_or_default();
        state.responses.get(path).cloned()
    };
    respond(&mut stream, response, authorization.as_deref()).await?;
    stream.shutdown().await
}

async fn respond(
    stream: &mut (impl AsyncWrite + Unpin),
    response: Option<FileResponse>,
    authorization: Option<&str>,
) -> io::Result<()> {
    let denied = FileResponse::Status("401 Unauthorized");
    let response = match response {
        None => FileResponse::Status("404 Not Found"),
        Some(FileResponse::Protected(bytes, (user, password))) => {
            let expected = STANDARD.encode(format!("{user}:{password}"));
            let is_allowed = authorization == Some(&format!("Basic {expected}"));
            if is_allowed {
                FileResponse::File(bytes)
            } else {
                denied
            }
        }
        Some(FileResponse::WithToken(bytes, token)) => {
            let is_allowed = authorization == Some(&format!("Bearer {token}"));
            if is_allowed {
                FileResponse::File(bytes)
            } else {
                denied
            }
        }
        Some(other) => other,
    };
    match response {
        FileResponse::File(bytes)
        | FileResponse::Protected(bytes, _)
        | FileResponse::WithToken(bytes, _) => {
            let head = head("200 OK", "application/gzip", bytes.len() as u64);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&bytes).await
        }
        FileResponse::Status(status) => {
            stream
                .write_all(head(status, "text/plain", 0).as_bytes())
                .await
        }
        FileResponse::Redirect(url) => {
            let head = format!(
                "HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await
        }
        FileResponse::Html(page) => {
            let head = head("200 OK", "text/html; charset=utf-8", page.len() as u64);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(page.as_bytes()).await
        }
        FileResponse::WrongLength(bytes, length) => {
            let head = head("200 OK", "application/gzip", length);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&bytes).await
        }
        FileResponse::Endless => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\x1f\x8b")
                .await?;
            let zeros = vec![0; 64 << 10];
            loop {
                stream.write_all(&zeros).await?;
            }
        }
        FileResponse::Stalled => {
            let head = head("200 OK", "application/gzip", 1 << 20);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(b"\x1f\x8b").await?;
            stream.flush().await?;
            std::future::pending().await
        }
    }
}

fn head(status: &str, media_type: &str, length: u64) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    )
}
