//! An OCI registry as a process on loopback: CNCF distribution, files in the cluster's folder, deletion allowed.
//! Registries that lie or stall are in `bundle-testkit`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::certs::Authority;
use crate::janitor::Janitor;
use crate::ports;
use crate::process::Process;
use crate::wait;

/// The one user of a registry that asks for a password.
pub const USER: &str = "e2e";
/// The password of [`USER`].
pub const PASSWORD: &str = "s3cret";
/// `USER:PASSWORD` as htpasswd(1) keeps it (bcrypt of least cost).
const HTPASSWD: &str = "e2e:$2b$04$Xr.j/M06a/z3g6e90FOXM.y0hBc3AdcI806stka9zkh/WKwq1gM1i\n";

const START: Duration = Duration::from_secs(20);

/// What a registry asks of its clients.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    pub(crate) tls: bool,
    pub(crate) password: bool,
}

/// A running registry; ends when dropped.
pub struct Registry {
    address: SocketAddr,
    ca: Option<PathBuf>,
    log: PathBuf,
    process: Process,
}

impl Registry {
    pub(crate) async fn start(
        name: &str,
        terms: Terms,
        root: &Path,
        program: &Path,
        authority: &Authority,
        janitor: &Janitor,
    ) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let data = root.join("data").join(name);
        fs_err::create_dir_all(&data)?;
        let mut http = json!({ "addr": address.to_string(), "secret": "e2e" });
        if terms.tls {
            let identity = authority.server(&root.join("pki"), name)?;
            http["tls"] = json!({ "certificate": identity.certificate, "key": identity.key });
        }
        let mut config = json!({
            "version": "0.1",
            "log": { "level": "info", "accesslog": { "disabled": false } },
            "storage": { "filesystem": { "rootdirectory": data }, "delete": { "enabled": true } },
            "http": http,
        });
        if terms.password {
            let file = root.join("pki").join(format!("{name}.htpasswd"));
            fs_err::write(&file, HTPASSWD)?;
            config["auth"] = json!({ "htpasswd": { "realm": name, "path": file } });
        }
        let file = root.join("pki").join(format!("{name}.yml"));
        fs_err::write(
            &file,
            serde_json::to_string_pretty(&config)
                .context("cannot write the registry's configuration")?,
        )?;
        let log = root.join("logs").join(format!("{name}.log"));
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("OTEL_TRACES_EXPORTER", "none")
            .arg("serve")
            .arg(&file);
        let mut process = Process::start(name, command, &log, janitor)?;
        wait::until_true(START, &format!("{name} listens on {address}"), || {
            let alive = process.check_alive();
            async move {
                alive?;
                Ok(tokio::net::TcpStream::connect(address).await.is_ok())
            }
        })
        .await?;
        let ca = terms.tls.then(|| authority.certificate().to_owned());
        Ok(Self {
            address,
            ca,
            log,
            process,
        })
    }

    /// `HOST:PORT`, as references begin.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// A reference in this registry: `registry.reference("team/web:1.0")`.
    pub fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    /// The authority that signed its certificate; `None` where it speaks plain HTTP.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Everything it has written so far, one line per request among it.
    pub fn log(&self) -> Result<String> {
        Ok(fs_err::read_to_string(&self.log)?)
    }

    /// Takes it away, as an outage does.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}
