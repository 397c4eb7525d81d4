//! Rekor v2 log: the real server, which stores the log in a folder. A trust root and a signing
//! config for clients contain this log and the services of a Sigstore instance.
//!
//! Entries of this log contain no time, so signatures need a timestamp authority.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Sigstore;
use crate::host::janitor::Janitor;
use crate::host::ports;
use crate::host::process::Process;
use crate::tools::{self, Tool};
use crate::wait;

const NAME: &str = "rekor-tiles";
const START: Duration = Duration::from_secs(90);
/// Name of the log in its checkpoints: the host of its address, without the port, as clients
/// expect.
const ORIGIN: &str = "127.0.0.1";
/// Length of the DER prefix of an Ed25519 public key, in bytes; 32 bytes follow.
const ED25519: usize = 12;

/// Running Rekor v2 log; it ends when dropped.
pub struct TiledLog {
    url: String,
    folder: PathBuf,
    process: Process,
}

impl TiledLog {
    pub(crate) async fn start(sigstore: &Sigstore, root: &Path, janitor: &Janitor) -> Result<Self> {
        let program = tools::path_async(Tool::RekorTiles, None).await?;
        let (http, grpc, metrics) = (ports::free()?, ports::free()?, ports::free()?);
        let folder = root.join("data").join(format!("{NAME}-{http}"));
        fs_err::create_dir_all(&folder)?;
        let key = folder.join("log.key");
        openssl(&["genpkey", "-algorithm", "ed25519", "-out"], &key)?;
        let public = folder.join("log.der");
        let private = key.display().to_string();
        let line = [
            "pkey", "-in", &private, "-pubout", "-outform", "DER", "-out",
        ];
        openssl(&line, &public)?;

        let mut command = Command::new(program);
        command
            .arg("serve")
            .args(["--hostname", ORIGIN])
            .arg("--storage-dir")
            .arg(folder.join("tiles"))
            .arg("--signer-filepath")
            .arg(&key)
            .args(["--http-port", &http.to_string()])
            .args(["--grpc-port", &grpc.to_string()])
            .args(["--http-metrics-port", &metrics.to_string()])
            // A response waits for the next checkpoint, which is written every ten seconds by
            // default.
            .args(["--batch-max-age", "50ms", "--checkpoint-interval", "200ms"]);
        let log = root.join("logs").join(format!("{NAME}-{http}.log"));
        let mut process = Process::start(NAME, command, &log, janitor)?;
        let url = format!("http://{ORIGIN}:{http}");
        let client = reqwest::Client::builder().no_proxy().build()?;
        let health = format!("{url}/healthz");
        wait::until_true(START, &format!("{NAME} serves on port {http}"), || {
            let alive = process.check_alive();
            let asked = client.get(&health).send();
            async move {
                alive?;
                Ok(asked.await.is_ok_and(|answer| answer.status().is_success()))
            }
        })
        .await?;
        let this = Self {
            url,
            folder,
            process,
        };
        this.write(sigstore, &fs_err::read(public)?)?;
        Ok(this)
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the trust root with this log and the log of the Sigstore instance.
    pub fn trusted_root(&self) -> PathBuf {
        self.folder.join("trusted_root.json")
    }

    /// Returns the signing config with this log and the log of the Sigstore instance. This log has
    /// the newer API version.
    pub fn signing_config(&self) -> PathBuf {
        self.folder.join("signing_config.json")
    }

    /// Returns the private key of the log, for forgeries.
    pub fn key(&self) -> PathBuf {
        self.folder.join("log.key")
    }

    fn write(&self, sigstore: &Sigstore, public: &[u8]) -> Result<()> {
        let raw = public.get(ED25519..).context("no key of Ed25519")?;
        let id = Sha256::new()
            .chain_update(ORIGIN)
            .chain_update(b"\n\x01")
            .chain_update(raw)
            .finalize();
        let mut root = read(&sigstore.trusted_root())?;
        let start = root["tlogs"][0]["publicKey"]["validFor"].clone();
        let logs = root["tlogs"]
            .as_array_mut()
            .context("no logs in the root")?;
        logs.push(json!({
            "baseUrl": self.url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": STANDARD.encode(public),
                "keyDetails": "PKIX_ED25519",
                "validFor": start,
            },
            "logId": { "keyId": STANDARD.encode(id) },
        }));
        let mut config = read(&sigstore.signing_config())?;
        let logs = config["rekorTlogUrls"]
            .as_array_mut()
            .context("no logs in the signing configuration")?;
        logs.push(json!({
            "url": self.url,
            "majorApiVersion": 2,
            "validFor": start,
            "operator": "sigstore.example.com",
        }));
        fs_err::write(self.trusted_root(), root.to_string())?;
        Ok(fs_err::write(self.signing_config(), config.to_string())?)
    }

    /// Kills the process, to simulate an outage.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}

fn read(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&fs_err::read(path)?)?)
}

/// Runs `openssl` with these arguments and the output path `out`.
fn openssl(arguments: &[&str], out: &Path) -> Result<()> {
    let done = Command::new("openssl").args(arguments).arg(out).output()?;
    if !done.status.success() {
        bail!("openssl: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
