//! The HTTP clients below: one that respects proxies, one for loopback; no redirects, extra authorities, bounded reading.
//! Not here: which requests are made, and in whose name.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Certificate, Identity, redirect};
use rustls::AlertDescription;
use url::{Host, Url};

use super::error::innermost;
use super::feed::Part;
use super::memory::{FORMS, MemoryReservation, SHORT, reserve};
use super::reach::{Reach, TooNear, Within};
use super::remembered::{REMEMBERED, make_room};
use super::request_log::RequestLog;
use super::tls::Trust;
use super::{ClientOptions, Deadlines, Reason, RegistryError};

/// Bytes per second below which sending counts as stalled.
const SLOWEST: u64 = 64 << 10;

/// Bytes per second below which a registry that has everything counts as stalled.
const STORING: u64 = 4 << 20;

/// The connection pools, made when first used: reading the system's authorities takes milliseconds that `--help` need not pay.
pub(super) struct Pools {
    trust: Trust,
    user_agent: String,
    deadlines: Deadlines,
    proxied: OnceLock<reqwest::Client>,
    direct: OnceLock<reqwest::Client>,
    /// For what is on this machine and speaks no TLS: without any authorities, which are half of the time that a look at such a registry takes.
    plain: OnceLock<reqwest::Client>,
    /// Where public and private registries lead.
    away: [OnceLock<reqwest::Client>; 2],
    /// Hosts that references name, in contrast to those that registries name.
    registries: Mutex<HashSet<String>>,
    /// Those with certificates of their own, and `None` for those without; by host, whether it is a registry, and who led there.
    own: Mutex<HashMap<(String, bool, Reach), Option<reqwest::Client>>>,
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may be quicker, with the same provider: there is only one in the tree.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

impl Pools {
    pub(super) fn new(options: &ClientOptions) -> Result<Self, RegistryError> {
        let user_agent = if options.user_agent.is_empty() {
            concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")).to_owned()
        } else {
            options.user_agent.clone()
        };
        Ok(Self {
            trust: Trust::read(options)?,
            user_agent,
            deadlines: options.deadlines,
            proxied: OnceLock::new(),
            direct: OnceLock::new(),
            plain: OnceLock::new(),
            away: [OnceLock::new(), OnceLock::new()],
            registries: Mutex::default(),
            own: Mutex::default(),
        })
    }

    /// From now on this URL's host counts as a registry: it may be shown a client certificate.
    pub(super) fn introduce(&self, url: &Url) {
        if self.trust.identity.is_some() {
            let mut registries = lock(&self.registries);
            if registries.len() >= REMEMBERED {
                registries.clear();
            }
            registries.insert(authority(url));
        }
    }

    /// The client for requests to this URL.
    pub(super) fn client(&self, url: &Url) -> Result<reqwest::Client, Reason> {
        let loopback = is_loopback(url);
        if let Some(own) = self.own(url, loopback, Reach::Local)? {
            return Ok(own);
        }
        let plain = loopback && url.scheme() == "http";
        let pool = match (plain, loopback) {
            (true, _) => &self.plain,
            (false, true) => &self.direct,
            (false, false) => &self.proxied,
        };
        if let Some(client) = pool.get() {
            return Ok(client.clone());
        }
        let made = if plain {
            self.make_plain()?
        } else {
            self.make(loopback, Reach::Local, &[], None)?
        };
        Ok(pool.get_or_init(|| made).clone())
    }

    /// The client for requests to a URL that a registry so far away has named, in a redirect or for an upload.
    fn client_away(&self, url: &Url, from: Reach) -> Result<reqwest::Client, Reason> {
        let pool = match from {
            Reach::Public => &self.away[0],
            Reach::Private => &self.away[1],
            Reach::Local => return self.client(url),
        };
        if let Some(why) = from.refuses(url) {
            let to = authority(url);
            return Err(Reason::Redirect { to, why });
        }
        if let Some(own) = self.own(url, false, from)? {
            return Ok(own);
        }
        if let Some(client) = pool.get() {
            return Ok(client.clone());
        }
        let made = self.make(false, from, &[], None)?;
        Ok(pool.get_or_init(|| made).clone())
    }

    /// A client for this URL's host alone, where it has certificates of its own.
    fn own(
        &self,
        url: &Url,
        loopback: bool,
        reach: Reach,
    ) -> Result<Option<reqwest::Client>, Reason> {
        if url.scheme() != "https" {
            return Ok(None);
        }
        let host = authority(url);
        let is_registry = lock(&self.registries).contains(&host);
        let key = (host, is_registry, reach);
        if let Some(known) = lock(&self.own).get(&key) {
            return Ok(known.clone());
        }
        let found = self.trust.of(&key.0)?;
        let general = self.trust.identity.as_ref().filter(|_| is_registry);
        let made = match (&found, general) {
            (None, None) => None,
            (found, general) => {
                let authorities = found.as_ref().map_or(&[][..], |own| &own.authorities);
                let identity = found.as_ref().and_then(|own| own.identity.as_ref());
                Some(self.make(loopback, reach, authorities, identity.or(general))?)
            }
        };
        let mut own = lock(&self.own);
        make_room(&mut own);
        own.insert(key, made.clone());
        Ok(made)
    }

    /// What all clients have in common. Redirects are followed by us, each with the client for where it leads.
    fn builder(&self) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .connect_timeout(self.deadlines.connect)
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(8)
            .redirect(redirect::Policy::none())
    }

    /// A client that could not speak TLS to anybody: it trusts no authority.
    fn make_plain(&self) -> Result<reqwest::Client, Reason> {
        install_provider();
        let builder = self.builder().no_proxy().tls_certs_only([]);
        let made = builder.build();
        made.map_err(|error| Reason::Settings(in_words(innermost(&error))))
    }

    fn make(
        &self,
        loopback: bool,
        reach: Reach,
        authorities: &[Certificate],
        identity: Option<&Identity>,
    ) -> Result<reqwest::Client, Reason> {
        install_provider();
        let builder = || {
            let mut builder = self.builder();
            if loopback {
                builder = builder.no_proxy();
            }
            if reach < Reach::Local {
                builder = builder.dns_resolver(Arc::new(Within(reach)));
            }
            if let Some(identity) = identity {
                builder = builder.identity(identity.clone());
            }
            builder
        };
        let certificates = || self.trust.authorities.iter().chain(authorities).cloned();
        builder()
            .tls_certs_merge(certificates())
            .build()
            // A system without any authorities, such as an image from scratch: then only ours count.
            .or_else(|_| builder().tls_certs_only(certificates()).build())
            .map_err(|error| {
                Reason::Settings(format!(
                    "certificates that were given cannot be used: {}",
                    in_words(innermost(&error))
                ))
            })
    }

    /// Whether this host is shown a client certificate.
    fn shows_certificate(&self, host: &str) -> bool {
        (self.trust.identity.is_some() && lock(&self.registries).contains(host))
            || matches!(self.trust.of(host), Ok(Some(own)) if own.identity.is_some())
    }

    /// Sends one request as it is.
    pub(super) async fn send(
        &self,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, Reason> {
        let client = self.client(request.url())?;
        self.send_by(&client, request).await
    }

    /// Sends one request to where a registry that is so far away has led.
    pub(super) async fn send_away(
        &self,
        request: reqwest::Request,
        from: Reach,
    ) -> Result<reqwest::Response, Reason> {
        let client = self.client_away(request.url(), from)?;
        self.send_by(&client, request).await
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
        let log = RequestLog::begin(&request);
        let answer = tokio::time::timeout(patience, client.execute(request)).await;
        let outcome = match answer {
            Ok(answer) => answer.map_err(|error| self.explain(&registry, &error)),
            Err(_) => Err(Reason::Stalled { after: patience }),
        };
        if let Some(log) = log {
            log.end(&outcome);
        }
        outcome
    }

    /// Sends one request with a part of a blob in it. It has all the time that it needs while it moves.
    pub(super) async fn send_watched(
        &self,
        request: reqwest::Request,
        part: &Part<'_>,
        from: Reach,
    ) -> Result<reqwest::Response, Reason> {
        let log = RequestLog::begin(&request);
        let outcome = self.watch(request, part, from).await;
        if let Some(log) = log {
            log.end(&outcome);
        }
        outcome
    }

    async fn watch(
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
        memory: &dyn MemoryReservation,
    ) -> Result<Bytes, Reason> {
        let too_large = || Reason::TooLarge {
            what: what.to_owned(),
            limit,
        };
        let announced = response.content_length();
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut taken = announced.unwrap_or(SHORT).min(limit);
        reserve(memory, taken * FORMS).await?;
        let mut body = BytesMut::new();
        while let Some(piece) = self.piece(&mut response).await? {
            let length = (body.len() + piece.len()) as u64;
            if length > limit {
                return Err(too_large());
            }
            if length > taken {
                reserve(memory, (limit - taken) * FORMS).await?;
                taken = limit;
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }

    /// What an error of the connection means.
    fn explain(&self, registry: &str, error: &reqwest::Error) -> Reason {
        let registry = registry.to_owned();
        let tls = held::<rustls::Error>(error);
        // What the other side says of our certificate, or of its absence; it comes with the first answer, after the connection stands.
        if let Some(rustls::Error::AlertReceived(alert)) = tls
            && ALERTS.contains(alert)
        {
            let given = self.shows_certificate(&registry);
            return Reason::ClientCertificate { registry, given };
        }
        let cause = innermost(error);
        if error.is_connect() {
            if held::<TooNear>(error).is_some() {
                return Reason::Redirect {
                    to: registry,
                    why: "which is in a network nearer than its own",
                };
            }
            if let Some(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::InvalidCertRevocationList(_)
                | rustls::Error::NoCertificatesPresented,
            ) = tls
            {
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

/// The alerts of TLS by which a server refuses its client.
const ALERTS: [AlertDescription; 7] = [
    AlertDescription::CertificateRequired,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they hold is whole at every moment, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// rustls names the commonest reasons by its own types.
fn in_words(cause: String) -> String {
    const WORDS: [(&str, &str); 7] = [
        ("UnknownIssuer", "its issuer is not a known authority"),
        (
            "CaUsedAsEndEntity",
            "it is the certificate of an authority, used as that of a server",
        ),
        ("NotValidForName", "it is for another host"),
        ("NotValidYet", "it is not valid yet"),
        ("Expired", "it has expired"),
        ("BadEncoding", "it is not a certificate"),
        ("KeyMismatch", "the key is not that of the certificate"),
    ];
    WORDS
        .iter()
        .find(|(name, _)| cause.contains(name))
        .map_or(cause, |(_, words)| (*words).to_owned())
}

/// The error of that type among `error` and its causes.
fn held<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // The `source` of an I/O error is that of the error in it.
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inner| inner as &(dyn Error + 'static));
        next = inner.or_else(|| error.source());
    }
    None
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
