//! Connection pools. One pool uses proxies. Two pools are for loopback, with and without TLS. Two
//! pools are for redirects. Hosts with their own certificates have their own clients. No pool
//! follows redirects automatically.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::{Certificate, Identity, redirect};
use url::{Host, Url};

use crate::registry::http::tls::TlsSettings;
use crate::registry::http::zone::{NetworkZone, ZoneResolver};
use crate::registry::http_error::HttpError;
use crate::registry::limited_map::LimitedMap;
use crate::registry::names::{NameResolver, SystemResolver};
use crate::registry::{ClientOptions, RegistryError, RegistryErrorReason};

/// Maximum number of hosts with idle connections. The server determines the size of the buffer of
/// an idle connection, which can be about 400 KiB.
const MAX_HOSTS: usize = 8;
/// Maximum number of idle connections to one host.
const IDLE_PER_HOST: usize = 4;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Size in bytes with which [`LimitedMap`] counts a client that has its own certificates and
/// connections. With this size, the map stores at most eight clients.
const CLIENT_BYTES: usize = 16 << 10;

/// Trust settings for hosts without their own certificates: no additional certificate, and
/// verification.
const VERIFIED: (&[Certificate], CertificateVerification) =
    (&[], CertificateVerification::Required);

/// All pools of a registry client. Each pool is created at its first use, because reading the
/// certificate authorities of the system takes milliseconds, and commands such as `--help` send no
/// request.
pub(super) struct ConnectionPools {
    trust: TlsSettings,
    user_agent: String,
    connect_timeout: Duration,
    names: Arc<dyn NameResolver>,
    pools: Mutex<Pools>,
    /// Hosts from references. Hosts of redirects are not included.
    registries: Mutex<LimitedMap<String, ()>>,
    /// Clients for hosts that have their own certificates, or whose certificates are not verified.
    /// For other hosts the value is `None`, and a pool is used.
    own: Mutex<LimitedMap<HostClientKey, Option<reqwest::Client>>>,
}

/// Key of a client for one host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostClientKey {
    host: String,
    is_registry: bool,
    /// Network zone of the registry that redirects to the host.
    zone: NetworkZone,
    verification: CertificateVerification,
}

/// Verification of the certificate of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CertificateVerification {
    /// Certificates of trusted certificate authorities are accepted.
    Required,
    /// Every certificate is accepted.
    Skipped,
}

impl fmt::Debug for ConnectionPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPools").finish_non_exhaustive()
    }
}

/// Pool of connections to hosts without their own certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    /// Connections through the proxies of the environment.
    Proxied,
    /// Connections to this machine, without a proxy.
    Direct,
    /// Connections without TLS to registries on this machine. This pool loads no certificate
    /// authorities, which halves the time of a request to such a registry.
    Plain,
    /// Connections to redirect targets of public registries.
    FromPublic,
    /// Connections to redirect targets of private registries.
    FromPrivate,
}

/// The clients of all pools, and the hosts to which they may have connections.
#[derive(Debug, Default)]
struct Pools {
    clients: [Option<reqwest::Client>; 5],
    hosts: HashSet<String>,
}

impl Pools {
    /// Returns the client of `pool` for a request to `host`. Closes all idle connections if `host`
    /// would exceed the maximum number of hosts. Running requests are not affected.
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
        // This call fails only if a provider is installed already. The build contains only this
        // provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

impl ConnectionPools {
    pub(super) fn new(options: &ClientOptions) -> Result<Self, RegistryError> {
        let user_agent = if options.user_agent.is_empty() {
            concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")).to_owned()
        } else {
            options.user_agent.clone()
        };
        Ok(Self {
            trust: TlsSettings::read(options)?,
            user_agent,
            connect_timeout: options.deadlines.connect,
            names: match &options.resolver {
                Some(resolver) => resolver.clone(),
                None => Arc::new(SystemResolver),
            },
            pools: Mutex::default(),
            registries: Mutex::default(),
            own: Mutex::default(),
        })
    }

    /// Records the host of the URL as a registry. Only registries may receive a client certificate.
    pub(super) fn add_registry_host(&self, url: &Url) {
        if self.trust.identity.is_some() {
            let host = authority(url);
            let bytes = host.len();
            lock(&self.registries).insert(host, (), bytes);
        }
    }

    /// Returns the client for requests to this URL.
    pub(super) fn client(
        &self,
        url: &Url,
        verification: CertificateVerification,
    ) -> Result<reqwest::Client, RegistryErrorReason> {
        let loopback = is_loopback(url);
        let zone = NetworkZone::Local;
        if let Some(client) = self.host_client(url, loopback, zone, verification)? {
            return Ok(client);
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
                self.make(loopback, NetworkZone::Local, VERIFIED, None)
            }
        })
    }

    /// Returns the client of `pool`. If the pool has no client, `create` creates it.
    fn pooled(
        &self,
        pool: Pool,
        url: &Url,
        create: impl FnOnce() -> Result<reqwest::Client, RegistryErrorReason>,
    ) -> Result<reqwest::Client, RegistryErrorReason> {
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
    pub(super) fn redirect_client(
        &self,
        url: &Url,
        from: NetworkZone,
        verification: CertificateVerification,
    ) -> Result<reqwest::Client, RegistryErrorReason> {
        let pool = match from {
            NetworkZone::Public => Pool::FromPublic,
            NetworkZone::Private => Pool::FromPrivate,
            NetworkZone::Local => return self.client(url, verification),
        };
        if let Some(why) = from.rejection_reason(url) {
            let to = authority(url);
            return Err(RegistryErrorReason::Redirect { to, why });
        }
        if let Some(client) = self.host_client(url, false, from, verification)? {
            return Ok(client);
        }
        self.pooled(pool, url, || self.make(false, from, VERIFIED, None))
    }

    /// Returns a client for this URL's host alone, if the host has its own certificates, or if its
    /// certificate is not verified.
    fn host_client(
        &self,
        url: &Url,
        loopback: bool,
        zone: NetworkZone,
        verification: CertificateVerification,
    ) -> Result<Option<reqwest::Client>, RegistryErrorReason> {
        if url.scheme() != "https" {
            return Ok(None);
        }
        let host = authority(url);
        let key = HostClientKey {
            is_registry: lock(&self.registries).get(&host).is_some(),
            host,
            zone,
            verification,
        };
        if let Some(known) = lock(&self.own).get(&key) {
            return Ok(known.clone());
        }
        let found = self.trust.of(&key.host)?;
        let general = self.trust.identity.as_ref().filter(|_| key.is_registry);
        let made = match (&found, general, verification) {
            (None, None, CertificateVerification::Required) => None,
            (found, general, _) => {
                let authorities = found.as_ref().map_or(&[][..], |files| &files.authorities);
                let identity = found.as_ref().and_then(|files| files.identity.as_ref());
                let identity = identity.or(general);
                Some(self.make(loopback, zone, (authorities, verification), identity)?)
            }
        };
        let bytes = key.host.len() + made.as_ref().map_or(0, |_| CLIENT_BYTES - 1024);
        lock(&self.own).insert(key, made.clone(), bytes);
        Ok(made)
    }

    /// Returns the common settings of all clients. The caller follows redirects, because each
    /// target may need another client. Host names that resolve to a zone nearer than `nearest` are
    /// rejected.
    fn builder(&self, nearest: NetworkZone) -> reqwest::ClientBuilder {
        let names = self.names.clone();
        reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .redirect(redirect::Policy::none())
            .dns_resolver(Arc::new(ZoneResolver { names, nearest }))
    }

    /// Returns a client without trusted certificate authorities, for plain HTTP.
    fn plain_client(&self) -> Result<reqwest::Client, RegistryErrorReason> {
        install_provider();
        let builder = self.builder(NetworkZone::Local);
        let builder = builder.no_proxy().tls_certs_only([]);
        let made = builder.build();
        made.map_err(|error| RegistryErrorReason::Settings(HttpError::from(error).to_string()))
    }

    fn make(
        &self,
        loopback: bool,
        reach: NetworkZone,
        (authorities, verification): (&[Certificate], CertificateVerification),
        identity: Option<&Identity>,
    ) -> Result<reqwest::Client, RegistryErrorReason> {
        install_provider();
        let builder = || {
            let mut builder = self.builder(reach);
            if verification == CertificateVerification::Skipped {
                builder = builder.tls_danger_accept_invalid_certs(true);
            }
            if loopback {
                builder = builder.no_proxy();
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
            // The system has no certificate authorities, for example in an image from scratch. Only
            // the configured certificate authorities are trusted.
            .or_else(|_| builder().tls_certs_only(certificates()).build())
            .map_err(|error| {
                RegistryErrorReason::Settings(format!(
                    "invalid certificates: {}",
                    HttpError::from(error)
                ))
            })
    }

    /// Returns `true` if a client certificate is configured for this host.
    pub(super) fn has_client_certificate(&self, host: &str) -> bool {
        (self.trust.identity.is_some() && lock(&self.registries).get(host).is_some())
            || matches!(self.trust.of(host), Ok(Some(files)) if files.identity.is_some())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The content is consistent even if another thread panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns host and port of the URL, in the form that references use.
pub(in crate::registry) fn authority(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => url.scheme().to_owned(),
    }
}

/// Returns `true` if a request to `to` may use plain HTTP: neither URL has TLS, and both have the
/// same host or both refer to this machine.
pub(in crate::registry) fn may_stay_plain(from: &Url, to: &Url) -> bool {
    let is_plain = from.scheme() == "http" && to.scheme() == "http";
    is_plain && (from.host() == to.host() || is_loopback(from) && is_loopback(to))
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
