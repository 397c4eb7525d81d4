//! TUF repository on loopback, written by go-tuf role by role, so that tests can make each role
//! expired, old, or signed with a wrong key.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::host::file_server::{FileServer, ServerBehavior};
use crate::tools::{self, Tool};

/// TUF repository. Its server ends when this value is dropped.
pub struct TufRepository {
    folder: PathBuf,
    program: PathBuf,
    server: FileServer,
    /// Metadata that the next write contains: `version`, `expires`, `keys`, `threshold` and
    /// `signers` for each of `root`, `timestamp`, `snapshot` and `targets`.
    pub state: Value,
}

impl TufRepository {
    /// Starts an empty repository in this folder. Its metadata is valid for years.
    pub async fn start(folder: &Path) -> Result<Self> {
        let program = tools::path_async(Tool::TufRepository, None).await?;
        let folder = tempfile::Builder::new()
            .prefix("tuf-")
            .tempdir_in(folder)?
            .keep();
        let server = FileServer::start(folder.join("repository")).await?;
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
            server,
        })
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the path of the first `root.json`, the initial trust root.
    pub fn root(&self) -> PathBuf {
        self.folder.join("repository").join("1.root.json")
    }

    /// Sets the behavior of the server.
    pub fn answer(&self, manner: ServerBehavior) {
        self.server.answer(manner);
    }

    /// Adds a target with the content of a file to `state`.
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
