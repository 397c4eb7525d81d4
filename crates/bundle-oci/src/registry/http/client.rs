//! HTTP clients: one that uses proxies and one for loopback, with extra certificate authorities,
//! without automatic redirects, and with bounded responses.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Certificate, Identity, redirect};
use rustls::AlertDescription;
use url::{Host, Url};

use crate::registry::error::innermost;
use crate::registry::http::body::BlobPart;
use crate::registry::http::request_log::RequestLog;
use crate::registry::http::tls::TlsSettings;
use crate::registry::http::zone::{NetworkZone, ZoneError, ZoneResolver};
use crate::registry::limited_map::LimitedMap;
use crate::registry::memory::{FORMS, MemoryReservation, SHORT, reserve};
use crate::registry::{ClientOptions, Deadlines, Reason, RegistryError};

/// Bytes per second below which an upload counts as stalled.
const MIN_UPLOAD_RATE: u64 = 64 << 10;

/// Bytes per second below which a registry that has received all bytes counts as stalled.
const MIN_STORE_RATE: u64 = 4 << 20;

/// Maximum number of hosts with idle connections. The server decides the size of the buffer that an
/// idle connection keeps: up to about 400 KiB.
const MAX_HOSTS: usize = 8;
/// Maximum number of idle connections to one host.
const IDLE_PER_HOST: usize = 4;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Size of a client in [`LimitedMap`], in bytes: it has its own certificates and connections, so at
/// most eight are kept.
const CLIENT_BYTES: usize = 16 << 10;

/// Connection pools, created at first use: reading the system's certificate authorities takes
/// milliseconds that `--help` does not need.
pub(in crate::registry) struct HttpClients {
    trust: TlsSettings,
    user_agent: String,
    deadlines: Deadlines,
    pools: Mutex<Pools>,
    /// Hosts that references name, in contrast to hosts of redirects.
    registries: Mutex<LimitedMap<String, ()>>,
    /// Clients for hosts that have their own certificates, and `None` for hosts without; by host,
    /// whether it is a registry, and the zone of the redirecting registry.
    own: Mutex<LimitedMap<(String, bool, NetworkZone), Option<reqwest::Client>>>,
}

impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClients").finish_non_exhaustive()
    }
}

/// Pool of connections without certificates of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    /// Through the proxies of the environment.
    Proxied,
    /// To this machine, without a proxy.
    Direct,
    /// To registries on this machine without TLS. It loads no certificate authorities, which halves
    /// the time of a request to such a registry.
    Plain,
    /// For redirects of public registries.
    FromPublic,
    /// For redirects of private registries.
    FromPrivate,
}

/// The pools, and the hosts that their connections can go to.
#[derive(Debug, Default)]
struct Pools {
    clients: [Option<reqwest::Client>; 5],
    hosts: HashSet<String>,
}

impl Pools {
    /// Returns the client of `pool` for a request to `host`. Closes all idle connections before a
    /// host exceeds the limit; running requests are not affected.
    fn client(&mut self, pool: Pool, host: &str) -> &mut Option<reqwest::Client> {
        if !self.hosts.contains(host) {
            if self.hosts.len() >= MAX_HOSTS {
                *self = Self::default();
            }
            self.hosts.insert(host.to_owned());
        }
        &mut self.clients[pool as usize]
    }
}

fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if a provider is installed, and there is only one in the build.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

impl HttpClients {
    pub(in crate::registry) fn new(options: &ClientOptions) -> Result<Self, RegistryError> {
        let user_agent = if options.user_agent.is_empty() {
            concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")).to_owned()
        } else {
            options.user_agent.clone()
        };
        Ok(Self {
            trust: TlsSettings::read(options)?,
            user_agent,
            deadlines: options.deadlines,
            pools: Mutex::default(),
            registries: Mutex::default(),
            own: Mutex::default(),
        })
    }

    /// Marks this URL's host as a registry, which may receive a client certificate.
    pub(in crate::registry) fn add_registry_host(&self, url: &Url) {
        if self.trust.identity.is_some() {
            let host = authority(url);
            let bytes = host.len();
            lock(&self.registries).insert(host, (), bytes);
        }
    }

    /// Returns the client for requests to this URL.
    pub(in crate::registry) fn client(&self, url: &Url) -> Result<reqwest::Client, Reason> {
        let loopback = is_loopback(url);
        if let Some(own) = self.host_client(url, loopback, NetworkZone::Local)? {
            return Ok(own);
        }
        let plain = loopback && url.scheme() == "http";
        let pool = match (plain, loopback) {
            (true, _) => Pool::Plain,
            (false, true) => Pool::Direct,
            (false, false) => Pool::Proxied,
        };
        self.pooled(pool, url, || {
            if plain {
                self.plain_client()
            } else {
                self.make(loopback, NetworkZone::Local, &[], None)
            }
        })
    }

    /// Returns the client of `pool`, which `create` creates if there is none.
    fn pooled(
        &self,
        pool: Pool,
        url: &Url,
        create: impl FnOnce() -> Result<reqwest::Client, Reason>,
    ) -> Result<reqwest::Client, Reason> {
        let host = authority(url);
        if let Some(client) = lock(&self.pools).client(pool, &host) {
            return Ok(client.clone());
        }
        let made = create()?;
        let mut pools = lock(&self.pools);
        Ok(pools.client(pool, &host).get_or_insert(made).clone())
    }

    /// Returns the client for a URL from a redirect or an upload location of a registry in zone
    /// `from`.
    fn redirect_client(&self, url: &Url, from: NetworkZone) -> Result<reqwest::Client, Reason> {
        let pool = match from {
            NetworkZone::Public => Pool::FromPublic,
            NetworkZone::Private => Pool::FromPrivate,
            NetworkZone::Local => return self.client(url),
        };
        if let Some(why) = from.refuses(url) {
            let to = authority(url);
            return Err(Reason::Redirect { to, why });
        }
        if let Some(own) = self.host_client(url, false, from)? {
            return Ok(own);
        }
        self.pooled(pool, url, || self.make(false, from, &[], None))
    }

    /// Returns a client for this URL's host alone, if it has certificates of its own.
    fn host_client(
        &self,
        url: &Url,
        loopback: bool,
        reach: NetworkZone,
    ) -> Result<Option<reqwest::Client>, Reason> {
        if url.scheme() != "https" {
            return Ok(None);
        }
        let host = authority(url);
        let is_registry = lock(&self.registries).get(&host).is_some();
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
        let bytes = key.0.len() + made.as_ref().map_or(0, |_| CLIENT_BYTES - 1024);
        lock(&self.own).insert(key, made.clone(), bytes);
        Ok(made)
    }

    /// Returns the common settings of all clients. Redirects are followed by the caller, as each
    /// target may need another client.
    fn builder(&self) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .connect_timeout(self.deadlines.connect)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .redirect(redirect::Policy::none())
    }

    /// Returns a client without trusted certificate authorities, for plain HTTP.
    fn plain_client(&self) -> Result<reqwest::Client, Reason> {
        install_provider();
        let builder = self.builder().no_proxy().tls_certs_only([]);
        let made = builder.build();
        made.map_err(|error| Reason::Settings(certificate_message(innermost(&error))))
    }

    fn make(
        &self,
        loopback: bool,
        reach: NetworkZone,
        authorities: &[Certificate],
        identity: Option<&Identity>,
    ) -> Result<reqwest::Client, Reason> {
        install_provider();
        let builder = || {
            let mut builder = self.builder();
            if loopback {
                builder = builder.no_proxy();
            }
            if reach < NetworkZone::Local {
                builder = builder.dns_resolver(Arc::new(ZoneResolver(reach)));
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
            // The system has no certificate authorities, for example in an image from scratch: only
            // the configured ones are trusted.
            .or_else(|_| builder().tls_certs_only(certificates()).build())
            .map_err(|error| {
                Reason::Settings(format!(
                    "invalid certificates: {}",
                    certificate_message(innermost(&error))
                ))
            })
    }

    /// Returns `true` if this host may receive a client certificate.
    fn shows_certificate(&self, host: &str) -> bool {
        (self.trust.identity.is_some() && lock(&self.registries).get(host).is_some())
            || matches!(self.trust.of(host), Ok(Some(own)) if own.identity.is_some())
    }

    /// Sends one request without retries.
    pub(in crate::registry) async fn send(
        &self,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, Reason> {
        let client = self.client(request.url())?;
        self.send_by(&client, request).await
    }

    /// Sends one request to a URL that a registry in zone `from` named.
    pub(in crate::registry) async fn send_from(
        &self,
        request: reqwest::Request,
        from: NetworkZone,
    ) -> Result<reqwest::Response, Reason> {
        let client = self.redirect_client(request.url(), from)?;
        self.send_by(&client, request).await
    }

    async fn send_by(
        &self,
        client: &reqwest::Client,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, Reason> {
        let registry = authority(request.url());
        // The response cannot arrive before the body has been sent: the deadline grows by one
        // second for every 64 KiB.
        let sending = request
            .body()
            .and_then(reqwest::Body::as_bytes)
            .map_or(0, |bytes| bytes.len() as u64 / MIN_UPLOAD_RATE);
        let patience = self.deadlines.stall + Duration::from_secs(sending);
        let log = RequestLog::begin(&request);
        let answer = tokio::time::timeout(patience, client.execute(request)).await;
        let outcome = match answer {
            Ok(answer) => answer.map_err(|error| self.connection_error(&registry, &error)),
            Err(_) => Err(Reason::Stalled { after: patience }),
        };
        if let Some(log) = log {
            log.end(&outcome);
        }
        outcome
    }

    /// Sends one request with a part of a blob. It has no deadline while bytes are sent.
    pub(in crate::registry) async fn send_watched(
        &self,
        request: reqwest::Request,
        part: &BlobPart<'_>,
        from: NetworkZone,
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
        part: &BlobPart<'_>,
        from: NetworkZone,
    ) -> Result<reqwest::Response, Reason> {
        let registry = authority(request.url());
        let client = self.redirect_client(request.url(), from)?;
        let mut answer = std::pin::pin!(client.execute(request));
        loop {
            let before = part.watch.taken();
            let sent = before == part.length;
            let mut after = self.deadlines.stall;
            if sent {
                // The registry has all bytes and stores them.
                after += Duration::from_secs(part.length / MIN_STORE_RATE);
            }
            match tokio::time::timeout(after, answer.as_mut()).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    return Err(part
                        .watch
                        .failure()
                        .map_or_else(|| self.connection_error(&registry, &error), Reason::Source));
                }
                Err(_) if sent => return Err(Reason::Stalled { after }),
                Err(_) if part.watch.taken() == before && !part.watch.is_waiting() => {
                    return Err(Reason::Stalled { after });
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the next piece of a response, and `None` at its end.
    pub(in crate::registry) async fn piece(
        &self,
        response: &mut reqwest::Response,
    ) -> Result<Option<Bytes>, Reason> {
        let after = self.deadlines.stall;
        tokio::time::timeout(after, response.chunk())
            .await
            .map_err(|_| Reason::Stalled { after })?
            .map_err(|error| self.connection_error(&authority(response.url()), &error))
    }

    /// Returns the whole body. Returns an error if it has more than `limit` bytes.
    pub(in crate::registry) async fn body(
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

    /// Returns the reason for an error of the connection.
    fn connection_error(&self, registry: &str, error: &reqwest::Error) -> Reason {
        let registry = registry.to_owned();
        let tls = find_cause::<rustls::Error>(error);
        // The server's alert about our certificate, or about its absence. It arrives with the first
        // response, after the handshake.
        if let Some(rustls::Error::AlertReceived(alert)) = tls
            && ALERTS.contains(alert)
        {
            let given = self.shows_certificate(&registry);
            return Reason::ClientCertificate { registry, given };
        }
        let cause = innermost(error);
        if error.is_connect() {
            if find_cause::<ZoneError>(error).is_some() {
                return Reason::Redirect {
                    to: registry,
                    why: "which is in a private or local network, unlike the registry",
                };
            }
            if let Some(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::InvalidCertRevocationList(_)
                | rustls::Error::NoCertificatesPresented,
            ) = tls
            {
                let cause = certificate_message(cause);
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

/// TLS alerts with which a server rejects its client.
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
    // The content is consistent even if another thread panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the names of rustls' types for the most common errors by words.
fn certificate_message(cause: String) -> String {
    const WORDS: [(&str, &str); 7] = [
        ("UnknownIssuer", "it is signed by an unknown authority"),
        (
            "CaUsedAsEndEntity",
            "it is the certificate of an authority, not of a server",
        ),
        ("NotValidForName", "it is not valid for this host"),
        ("NotValidYet", "it is not valid yet"),
        ("Expired", "it has expired"),
        ("BadEncoding", "it is not a certificate"),
        ("KeyMismatch", "the key does not match the certificate"),
    ];
    WORDS
        .iter()
        .find(|(name, _)| cause.contains(name))
        .map_or(cause, |(_, words)| (*words).to_owned())
}

/// Returns the error of type `T` among `error` and its causes.
fn find_cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // The `source` of an I/O error is that of its inner error.
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inner| inner as &(dyn Error + 'static));
        next = inner.or_else(|| error.source());
    }
    None
}

/// Returns host and port, as references name registries.
pub(in crate::registry) fn authority(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => url.scheme().to_owned(),
    }
}

/// Returns `true` if the URL refers to this machine.
pub(in crate::registry) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
