//! TUF repository on loopback, written by go-tuf role by role, so that tests can make each role
//! expired, old, or signed with a wrong key.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::tools::{self, Tool};

/// Longest request that is read.
const LIMIT: usize = 16 << 10;

/// Behavior of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// Serves the files.
    Plain,
    /// Closes each connection without a response.
    Dead,
    /// Returns an error status.
    Broken,
    /// Serves the files. The response for the file with this suffix never ends.
    Endless(&'static str),
}

/// TUF repository, whose server ends when dropped.
pub struct TufRepository {
    folder: PathBuf,
    program: PathBuf,
    address: SocketAddr,
    /// Metadata to write next: for each of `root`, `timestamp`, `snapshot` and `targets` its
    /// `version`, `expires`, `keys`, `threshold` and `signers`.
    pub state: Value,
    manner: Arc<Mutex<Manner>>,
    task: JoinHandle<()>,
}

impl TufRepository {
    /// Starts an empty repository in this folder, with expiry dates years ahead.
    pub async fn start(folder: &Path) -> Result<Self> {
        let program = tools::path_async(Tool::TufRepository, None).await?;
        let folder = tempfile::Builder::new()
            .prefix("tuf-")
            .tempdir_in(folder)?
            .keep();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let manner = Arc::new(Mutex::new(Manner::Plain));
        let (out, how) = (folder.join("repository"), Arc::clone(&manner));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let now = how.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A client that disconnects ends only its own response.
                let (out, answering) = (out.clone(), now);
                tokio::spawn(async move { answer(stream, &out, &answering).await.is_ok() });
            }
        });
        let role = |name: &str| json!({"version": 1, "expires": "2090-01-01T00:00:00Z", "keys": [name], "threshold": 1, "signers": [name]});
        Ok(Self {
            state: json!({
                "keys": folder.join("keys"),
                "out": folder.join("repository"),
                "root": role("root"),
                "timestamp": role("timestamp"),
                "snapshot": role("snapshot"),
                "targets": role("targets"),
                "files": {},
            }),
            folder,
            program,
            address,
            manner,
            task,
        })
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the path of the first `root.json`, the initial trust root.
    pub fn root(&self) -> PathBuf {
        self.folder.join("repository").join("1.root.json")
    }

    /// Sets the behavior of the mirror.
    pub fn answer(&self, manner: Manner) {
        *self.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// Adds a target with the content of a file.
    pub fn target(&mut self, name: &str, file: &Path) {
        self.state["files"][name] = json!(file);
    }

    /// Writes the repository according to `state`. Existing files with other names are kept.
    pub fn write(&self) -> Result<()> {
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        stdin.write_all(self.state.to_string().as_bytes())?;
        drop(stdin);
        let done = child.wait_with_output()?;
        if !done.status.success() {
            bail!("tuf-repository: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(())
    }

    /// Changes `state` and writes the repository.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        change(&mut self.state);
        self.write()
    }
}

impl Drop for TufRepository {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, folder: &Path, manner: &Manner) -> Result<()> {
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
    if *manner == Manner::Dead {
        return Ok(());
    }
    let (status, body) = match fs_err::read(folder.join(path)) {
        _ if *manner == Manner::Broken => ("503 Service Unavailable", Vec::new()),
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    if let Manner::Endless(name) = manner
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
