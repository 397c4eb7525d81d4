//! Sigstore instance on loopback: certificates for any identity, a transparency log, SCTs,
//! timestamps, and the files that clients need to trust the instance. The services are in
//! `e2e/tools/sigstore`.

mod tiles;
mod tuf;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::host::janitor::Janitor;
use crate::host::ports;
use crate::host::process::Process;
use crate::{tools, wait};

pub use crate::host::file_server::ServerBehavior;
pub use tiles::TiledLog;
pub use tuf::TufRepository;

const NAME: &str = "sigstore";
const START: Duration = Duration::from_secs(90);
/// Issuer of the tokens of [`workflow`].
pub const WORKFLOW_ISSUER: &str = "https://token.actions.githubusercontent.com";
/// Identity in the certificates for tokens of [`workflow`].
pub const WORKFLOW: &str =
    "https://github.com/example/shop/.github/workflows/release.yaml@refs/tags/v1.0.0";
/// Issuer of the tokens of [`person`].
pub const PERSON_ISSUER: &str = "https://accounts.example.com";

/// Returns the claims of a CI job: the certificate's identity is [`WORKFLOW`], a URI.
pub fn workflow() -> Value {
    json!({
        "iss": WORKFLOW_ISSUER,
        "sub": "repo:example/shop:ref:refs/tags/v1.0.0",
        "repository": "example/shop",
        "repository_owner": "example",
        "ref": "refs/tags/v1.0.0",
        "sha": "0123456789abcdef0123456789abcdef01234567",
        "event_name": "push",
        "workflow": "release",
        "job_workflow_ref": "example/shop/.github/workflows/release.yaml@refs/tags/v1.0.0",
        "runner_environment": "github-hosted",
    })
}

/// Returns the claims of a person: the certificate's identity is the email address.
pub fn person(email: &str) -> Value {
    json!({ "iss": PERSON_ISSUER, "sub": email, "email": email, "email_verified": true })
}

/// Clock offsets in seconds; a negative offset is in the past.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clocks {
    /// Clock of the certificate authority and the CT log.
    pub ca: i64,
    /// Clock of the transparency log.
    pub log: i64,
}

/// The running services; they end when dropped.
pub struct Sigstore {
    url: String,
    folder: PathBuf,
    client: reqwest::Client,
    process: Process,
}

impl Sigstore {
    pub(crate) async fn start(root: &Path, janitor: &Janitor) -> Result<Self> {
        crate::use_own_tls_provider();
        let program = tokio::task::spawn_blocking(tools::sigstore)
            .await
            .context("the thread that installs sigstore ended early")??;
        let port = ports::free()?;
        let folder = root.join("data").join(format!("{NAME}-{port}"));
        fs_err::create_dir_all(&folder)?;
        let mut command = Command::new("node");
        command
            .arg(program.join("server.mjs"))
            .arg(port.to_string())
            .arg(&folder);
        let log = root.join("logs").join(format!("{NAME}-{port}.log"));
        let mut process = Process::start(NAME, command, &log, janitor)?;
        wait::until_true(START, &format!("{NAME} listens on port {port}"), || {
            let alive = process.check_alive();
            async move {
                alive?;
                Ok(tokio::net::TcpStream::connect(("127.0.0.1", port))
                    .await
                    .is_ok())
            }
        })
        .await?;
        Ok(Self {
            url: format!("http://127.0.0.1:{port}"),
            folder,
            client: reqwest::Client::builder().no_proxy().build()?,
            process,
        })
    }

    /// Returns the URL of Fulcio, Rekor, the issuer and (below `/api/v1/timestamp`) the timestamp
    /// authority.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the trust root, as for cosign's `--trusted-root`.
    pub fn trusted_root(&self) -> PathBuf {
        self.file("trusted_root.json")
    }

    /// Returns the signing config, as for cosign's `--signing-config`.
    pub fn signing_config(&self) -> PathBuf {
        self.file("signing_config.json")
    }

    /// Returns the path of another file: `fulcio.pem`, `rekor.pub`, `ctlog.pub`; and, for
    /// forgeries, `rekor.key`, `ctlog.key`, `tsa.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the environment variables for cosign 2 to trust this instance.
    pub fn cosign2_environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("SIGSTORE_ROOT_FILE", self.file("fulcio.pem")),
            ("SIGSTORE_REKOR_PUBLIC_KEY", self.file("rekor.pub")),
            ("SIGSTORE_CT_LOG_PUBLIC_KEY_FILE", self.file("ctlog.pub")),
        ]
    }

    /// Returns an identity token with these claims, valid for ten minutes.
    pub async fn token(&self, claims: &Value) -> Result<String> {
        self.post("token", claims).await
    }

    /// Writes an identity token that has these claims to a file, and returns the path of the file.
    /// Some versions of cosign accept only a file.
    pub async fn token_file(&self, claims: &Value) -> Result<PathBuf> {
        let file = tempfile::Builder::new()
            .prefix("token-")
            .tempfile_in(&self.folder)?;
        fs_err::write(file.path(), self.token(claims).await?)?;
        let (_, path) = file.keep().context("cannot keep a token")?;
        Ok(path)
    }

    /// Sets the clocks.
    pub async fn set_clocks(&self, clocks: Clocks) -> Result<()> {
        self.post("clocks", &json!({ "ca": clocks.ca, "log": clocks.log }))
            .await
            .map(drop)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<String> {
        let answer = self
            .client
            .post(format!("{}/{path}", self.url))
            .body(body.to_string())
            .send()
            .await
            .with_context(|| format!("{NAME} does not respond"))?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("{NAME} rejects {path}: {text}");
        }
        Ok(text)
    }

    /// Kills the process, to simulate an outage.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}
