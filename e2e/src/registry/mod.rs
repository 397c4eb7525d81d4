//! OCI registry as a process on loopback: CNCF distribution with deletion enabled, or
//! `crane registry serve`. `bundle-testkit` has registries with faults; `token_server` has the
//! token server.

pub mod proxy;
pub mod token_server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::certs::Authority;
use crate::host::island::IsolatedNetwork;
use crate::host::janitor::Janitor;
use crate::host::ports;
use crate::host::process::Process;
use crate::tools::{self, Tool};
use crate::wait;

/// User of a registry that requires a password.
pub const USER: &str = "e2e";
/// Password of [`USER`].
pub const PASSWORD: &str = "s3cret";
/// `USER:PASSWORD` in the format of htpasswd(1) (bcrypt with the lowest cost).
const HTPASSWD: &str = "e2e:$2b$04$Xr.j/M06a/z3g6e90FOXM.y0hBc3AdcI806stka9zkh/WKwq1gM1i\n";

const START: Duration = Duration::from_secs(90);

/// TLS, authentication and program of a registry.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// `true` if the registry uses TLS. The authority of the harness issues its certificate.
    pub tls: bool,
    /// `true` if the registry uses TLS and requires client certificates. The authority that issued
    /// the certificate of the registry must also have issued the certificates of the clients.
    pub client_certificate: bool,
    /// Authentication of clients.
    pub access: Access,
    /// Registry program.
    pub program: RegistryProgram,
}

/// Authentication of clients.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// Anonymous access.
    #[default]
    Anyone,
    /// Basic authentication as [`USER`] with [`PASSWORD`].
    Password,
    /// Bearer tokens of this issuer.
    Token(TokenIssuer),
}

/// Token issuer that a registry trusts.
#[derive(Debug, Clone)]
pub struct TokenIssuer {
    /// URL of the token server.
    pub realm: String,
    /// Value of `iss` in tokens.
    pub issuer: String,
    /// Value of `aud` in tokens: the registry.
    pub service: String,
    /// File with the public keys of the issuer (JWKS).
    pub keys: PathBuf,
}

/// Registry program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RegistryProgram {
    /// CNCF distribution, which has no referrers API.
    #[default]
    Distribution,
    /// `crane registry serve`, without referrers API and authentication.
    Crane,
    /// `crane registry serve` with the referrers API.
    WithReferrers,
}

/// Folder for the files of a registry, the authority of the registry's certificate, and the janitor
/// that ends the registry.
#[derive(Clone, Copy)]
pub(crate) struct RegistryContext<'a> {
    pub(crate) root: &'a Path,
    pub(crate) authority: &'a Authority,
    pub(crate) janitor: &'a Janitor,
    /// Network namespace of the registry; `None` means the network namespace of this process.
    pub(crate) island: Option<&'a IsolatedNetwork>,
    /// Address on which the registry listens.
    pub(crate) address: Ipv4Addr,
}

/// Returns a name that no other registry of this process has.
pub(crate) fn unique_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("registry-x{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Running registry; it ends when dropped.
pub struct Registry {
    address: SocketAddr,
    ca: Option<PathBuf>,
    log: PathBuf,
    process: Process,
}

impl Registry {
    pub(crate) async fn start(
        name: &str,
        terms: &RegistryOptions,
        place: RegistryContext<'_>,
    ) -> Result<Self> {
        let address = SocketAddr::from((place.address, ports::free()?));
        let command = match terms.program {
            RegistryProgram::Distribution => distribution(name, terms, address, place).await?,
            RegistryProgram::WithReferrers => {
                let mut command =
                    Command::new(tools::path_async(Tool::ReferrersRegistry, None).await?);
                command.arg(address.to_string());
                command
            }
            RegistryProgram::Crane => {
                let mut command = Command::new(tools::path_async(Tool::Crane, None).await?);
                command.args(["registry", "serve", "--address", &address.to_string()]);
                command
            }
        };
        let log = place.root.join("logs").join(format!("{name}.log"));
        let command = match place.island {
            Some(island) => island.starting_inside(&command),
            None => command,
        };
        let mut process = Process::start(name, command, &log, place.janitor)?;
        wait::until_true(START, &format!("{name} listens on {address}"), || {
            let alive = process.check_alive();
            async move {
                alive?;
                match place.island {
                    Some(island) => island.listens(address.port()),
                    None => Ok(tokio::net::TcpStream::connect(address).await.is_ok()),
                }
            }
        })
        .await?;
        let ca = (terms.tls || terms.client_certificate)
            .then(|| place.authority.certificate().to_owned());
        Ok(Self {
            address,
            ca,
            log,
            process,
        })
    }

    /// Returns `HOST:PORT`, the beginning of references.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the IP address of the registry. Pods of a node can connect to this address.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Returns a reference in this registry. `rest` is repository and tag, such as `team/web:1.0`.
    pub fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    /// Returns the file with the certificate authority of the registry; `None` with plain HTTP.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Returns the log so far. The log contains one line for each request.
    pub fn log(&self) -> Result<String> {
        Ok(fs_err::read_to_string(&self.log)?)
    }

    /// Kills the process, to simulate an outage.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}

/// Writes the configuration of CNCF distribution, and returns the command line of the program.
async fn distribution(
    name: &str,
    terms: &RegistryOptions,
    address: SocketAddr,
    place: RegistryContext<'_>,
) -> Result<Command> {
    let pki = place.root.join("pki");
    let data = place.root.join("data").join(name);
    fs_err::create_dir_all(&data)?;
    let mut http = json!({ "addr": address.to_string(), "secret": "e2e" });
    if terms.tls || terms.client_certificate {
        let identity = place.authority.server(&pki, name)?;
        http["tls"] = json!({ "certificate": identity.certificate, "key": identity.key });
        if terms.client_certificate {
            http["tls"]["clientcas"] = json!([place.authority.certificate()]);
        }
    }
    let mut config = json!({
        "version": "0.1",
        "log": { "level": "info", "accesslog": { "disabled": false } },
        "storage": { "filesystem": { "rootdirectory": data }, "delete": { "enabled": true } },
        "http": http,
    });
    if let Some(auth) = auth(name, &terms.access, &pki)? {
        config["auth"] = auth;
    }
    let file = pki.join(format!("{name}.yml"));
    fs_err::write(
        &file,
        serde_json::to_string_pretty(&config)
            .context("cannot write the registry's configuration")?,
    )?;
    let mut command = Command::new(tools::path_async(Tool::Registry, None).await?);
    command
        .env_clear()
        .env("OTEL_TRACES_EXPORTER", "none")
        .arg("serve")
        .arg(&file);
    Ok(command)
}

fn auth(name: &str, access: &Access, pki: &Path) -> Result<Option<Value>> {
    Ok(match access {
        Access::Anyone => None,
        Access::Password => {
            let file = pki.join(format!("{name}.htpasswd"));
            fs_err::write(&file, HTPASSWD)?;
            Some(json!({ "htpasswd": { "realm": name, "path": file } }))
        }
        Access::Token(issuer) => Some(json!({ "token": {
            "realm": issuer.realm,
            "service": issuer.service,
            "issuer": issuer.issuer,
            "jwks": issuer.keys,
        } })),
    })
}
