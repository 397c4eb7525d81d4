//! The HTTP clients below: one that respects proxies, one for loopback; no redirects, extra authorities, bounded reading.
//! Not here: which requests are made, and in whose name.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Certificate, redirect};
use url::{Host, Url};

use super::feed::Part;
use super::reach::{Reach, TooNear, Within};
use super::{ClientOptions, Deadlines, Reason, RegistryError};

/// Bytes per second below which sending counts as stalled.
const SLOWEST: u64 = 64 << 10;

/// Bytes per second below which a registry that has everything counts as stalled.
const STORING: u64 = 4 << 20;

/// The two connection pools, made when first used: reading the system's authorities takes milliseconds that `--help` need not pay.
pub(super) struct Pools {
    certificates: Vec<Certificate>,
    user_agent: String,
    deadlines: Deadlines,
    proxied: OnceLock<reqwest::Client>,
    direct: OnceLock<reqwest::Client>,
    /// Where public and private registries lead.
    away: [OnceLock<reqwest::Client>; 2],
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

impl Pools {
    pub(super) fn new(options: &ClientOptions) -> Result<Self, RegistryError> {
        let mut certificates = Vec::new();
        for file in &options.ca_files {
            let failed = |why: String| RegistryError {
                doing: "read the authorities of registries in",
                subject: file.display().to_string(),
                reason: Reason::Settings(why),
            };
            let pem = fs_err::read(file).map_err(|error| failed(error.to_string()))?;
            let found =
                Certificate::from_pem_bundle(&pem).map_err(|error| failed(innermost(&error)))?;
            if found.is_empty() {
                return Err(failed("it holds no PEM certificate".to_owned()));
            }
            certificates.extend(found);
        }
        let user_agent = if options.user_agent.is_empty() {
            concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")).to_owned()
        } else {
            options.user_agent.clone()
        };
        Ok(Self {
            certificates,
            user_agent,
            deadlines: options.deadlines,
            proxied: OnceLock::new(),
            direct: OnceLock::new(),
            away: [OnceLock::new(), OnceLock::new()],
        })
    }

    /// The client for requests to this URL.
    pub(super) fn client(&self, url: &Url) -> Result<&reqwest::Client, Reason> {
        let loopback = is_loopback(url);
        let pool = if loopback {
            &self.direct
        } else {
            &self.proxied
        };
        if let Some(client) = pool.get() {
            return Ok(client);
        }
        let made = self.make(loopback, Reach::Local)?;
        Ok(pool.get_or_init(|| made))
    }

    /// The client for requests to a URL that a registry so far away has named, in a redirect or for an upload.
    fn client_away(&self, url: &Url, from: Reach) -> Result<&reqwest::Client, Reason> {
        let pool = match from {
            Reach::Public => &self.away[0],
            Reach::Private => &self.away[1],
            Reach::Local => return self.client(url),
        };
        if let Some(why) = from.refuses(url) {
            let to = authority(url);
            return Err(Reason::Redirect { to, why });
        }
        if let Some(client) = pool.get() {
            return Ok(client);
        }
        let made = self.make(false, from)?;
        Ok(pool.get_or_init(|| made))
    }

    fn make(&self, loopback: bool, reach: Reach) -> Result<reqwest::Client, Reason> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may be quicker, with the same provider: there is only one in the tree.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let builder = || {
            let mut builder = reqwest::Client::builder()
                .user_agent(&self.user_agent)
                .connect_timeout(self.deadlines.connect)
                .pool_idle_timeout(Duration::from_secs(60))
                .pool_max_idle_per_host(8)
                .redirect(redirect::Policy::none());
            if loopback {
                builder = builder.no_proxy();
            }
            if reach < Reach::Local {
                builder = builder.dns_resolver(Arc::new(Within(reach)));
            }
            builder
        };
        builder()
            .tls_certs_merge(self.certificates.iter().cloned())
            .build()
            // A system without any authorities, such as an image from scratch: then only ours count.
            .or_else(|_| {
                builder()
                    .tls_certs_only(self.certificates.iter().cloned())
                    .build()
            })
            .map_err(|error| Reason::Settings(format!("no HTTP client: {}", innermost(&error))))
    }

    /// Sends one request as it is.
    pub(super) async fn send(
        &self,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, Reason> {
        let client = self.client(request.url())?;
        self.send_by(client, request).await
    }

    /// Sends one request to where a registry that is so far away has led.
    pub(super) async fn send_away(
        &self,
        request: reqwest::Request,
        from: Reach,
    ) -> Result<reqwest::Response, Reason> {
        let client = self.client_away(request.url(), from)?;
        self.send_by(client, request).await
    }

    async fn send_by(
        &self,
        client: &reqwest::Client,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, Reason> {
        let registry = authority(request.url());
        // No answer can come before what we send has arrived: slow lines get a second for every 64 KiB.
        let sending = request
            .body()
            .and_then(reqwest::Body::as_bytes)
            .map_or(0, |bytes| bytes.len() as u64 / SLOWEST);
        let patience = self.deadlines.stall + Duration::from_secs(sending);
        tokio::time::timeout(patience, client.execute(request))
            .await
            .map_err(|_| Reason::Stalled { after: patience })?
            .map_err(|error| self.explain(&registry, &error))
    }

    /// Sends one request with a part of a blob in it. It has all the time that it needs while it moves.
    pub(super) async fn send_watched(
        &self,
        request: reqwest::Request,
        part: &Part<'_>,
        from: Reach,
    ) -> Result<reqwest::Response, Reason> {
        let registry = authority(request.url());
        let client = self.client_away(request.url(), from)?;
        let mut answer = std::pin::pin!(client.execute(request));
        loop {
            let before = part.watch.taken();
            let sent = before == part.length;
            let mut after = self.deadlines.stall;
            if sent {
                // It has everything, and puts it where it stays.
                after += Duration::from_secs(part.length / STORING);
            }
            match tokio::time::timeout(after, answer.as_mut()).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    return Err(part
                        .watch
                        .failure()
                        .map_or_else(|| self.explain(&registry, &error), Reason::Source));
                }
                Err(_) if sent => return Err(Reason::Stalled { after }),
                Err(_) if part.watch.taken() == before && !part.watch.is_waiting() => {
                    return Err(Reason::Stalled { after });
                }
                Err(_) => {}
            }
        }
    }

    /// The next piece of an answer; `None` at its end.
    pub(super) async fn piece(
        &self,
        response: &mut reqwest::Response,
    ) -> Result<Option<Bytes>, Reason> {
        let after = self.deadlines.stall;
        tokio::time::timeout(after, response.chunk())
            .await
            .map_err(|_| Reason::Stalled { after })?
            .map_err(|error| self.explain(&authority(response.url()), &error))
    }

    /// The whole body, if it is no longer than `limit`.
    pub(super) async fn body(
        &self,
        mut response: reqwest::Response,
        limit: u64,
        what: &str,
    ) -> Result<Bytes, Reason> {
        let too_large = || Reason::TooLarge {
            what: what.to_owned(),
            limit,
        };
        if response
            .content_length()
            .is_some_and(|length| length > limit)
        {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(piece) = self.piece(&mut response).await? {
            if (body.len() + piece.len()) as u64 > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }

    /// What an error of the connection means.
    fn explain(&self, registry: &str, error: &reqwest::Error) -> Reason {
        let registry = registry.to_owned();
        let cause = innermost(error);
        if error.is_connect() {
            if is_too_near(error) {
                return Reason::Redirect {
                    to: registry,
                    why: "which is in a network nearer than its own",
                };
            }
            // rustls words all of its verdicts about the other side's certificate so.
            if cause.contains("certificate") {
                let cause = in_words(cause);
                return Reason::Certificate { registry, cause };
            }
            return Reason::Unreachable { registry, cause };
        }
        if error.is_timeout() {
            return Reason::Stalled {
                after: self.deadlines.stall,
            };
        }
        Reason::Cut { registry, cause }
    }
}

/// rustls names the commonest reasons by its own types.
fn in_words(cause: String) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("UnknownIssuer", "its issuer is not a known authority"),
        (
            "CaUsedAsEndEntity",
            "it is the certificate of an authority, used as that of a server",
        ),
        ("NotValidForName", "it is for another host"),
        ("NotValidYet", "it is not valid yet"),
        ("Expired", "it has expired"),
    ];
    WORDS
        .iter()
        .find(|(name, _)| cause.contains(name))
        .map_or(cause, |(_, words)| (*words).to_owned())
}

fn is_too_near(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(next) = cause {
        if next.is::<TooNear>() {
            return true;
        }
        cause = next.source();
    }
    false
}

/// The last cause, which has the system's words.
fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

/// Host and port, as references name registries.
pub(super) fn authority(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => url.scheme().to_owned(),
    }
}

/// Whether the URL names this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
