//! Scheme and authentication of each registry, discovered with one `GET /v2/` and cached.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Method, StatusCode};
use tokio::sync::OnceCell;
use url::Url;

use crate::registry::RegistryErrorReason;
use crate::registry::auth::challenge::{Challenge, challenge};
use crate::registry::http::client::HttpClient;
use crate::registry::http::pools::is_loopback;
use crate::registry::http::zone::NetworkZone;
use crate::registry::limited_map::LimitedMap;

/// Scheme and authentication of a registry.
#[derive(Debug, Clone)]
pub(in crate::registry) struct Endpoint {
    /// Base URL: `https://registry.example.com/v2/`.
    pub(in crate::registry) base: Url,
    pub(in crate::registry) challenge: Option<Challenge>,
    /// Network zone of the registry. The zone limits the realms of token services.
    pub(in crate::registry) zone: NetworkZone,
}

/// Security of the connections to one registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(in crate::registry) enum ConnectionSecurity {
    /// Security as in the settings of the client.
    #[default]
    Settings,
    /// TLS with verified certificates.
    Verified,
    /// TLS without verification, or plain HTTP if the registry has no TLS.
    Insecure,
}

/// Key of an endpoint: registry, and security of its connections.
type EndpointKey = (String, ConnectionSecurity);

/// Cache of the endpoints of registries.
#[derive(Debug)]
pub(in crate::registry) struct Endpoints {
    plain: BTreeSet<String>,
    /// Registries for which plain HTTP is allowed if they do not support TLS, by host and port.
    tolerated: BTreeSet<String>,
    known: Mutex<LimitedMap<EndpointKey, Arc<Endpoint>>>,
}

/// Result of a discovery in progress.
type DiscoveryCell = OnceCell<Result<Arc<Endpoint>, RegistryErrorReason>>;

/// Discoveries in progress. Concurrent requests to a registry share one discovery. Different
/// callers must not share a group, because a request would wait for the limits of another caller.
#[derive(Debug, Default)]
pub(in crate::registry) struct DiscoveryGroup {
    running: Mutex<HashMap<EndpointKey, Arc<DiscoveryCell>>>,
}

impl DiscoveryGroup {
    /// Returns the endpoint of a registry, like [`Endpoints::get`]. If a discovery of this endpoint
    /// is in progress, returns its result.
    pub(in crate::registry) async fn discover(
        &self,
        endpoints: &Endpoints,
        http: &HttpClient,
        registry: &str,
        security: ConnectionSecurity,
    ) -> Result<Arc<Endpoint>, RegistryErrorReason> {
        let key = (registry.to_owned(), security);
        let cell = Arc::clone(self.lock().entry(key).or_default());
        let get = || endpoints.get(http, registry, security);
        let endpoint = cell.get_or_init(get).await.clone();
        // An endpoint that is not cached is discovered again by the next request.
        self.lock()
            .retain(|_, running| !Arc::ptr_eq(running, &cell));
        endpoint
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EndpointKey, Arc<DiscoveryCell>>> {
        // The map is consistent even if another thread panicked.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoints {
    pub(in crate::registry) fn new(plain: BTreeSet<String>, tolerated: BTreeSet<String>) -> Self {
        Self {
            plain,
            tolerated,
            known: Mutex::default(),
        }
    }

    /// Returns `true` if the cache has the endpoint of a registry.
    pub(in crate::registry) fn is_known(
        &self,
        registry: &str,
        security: ConnectionSecurity,
    ) -> bool {
        let key = (registry.to_owned(), security);
        self.lock().get(&key).is_some()
    }

    /// Returns the base URL that [`Self::get`] tries first.
    pub(in crate::registry) fn first_base(
        &self,
        registry: &str,
    ) -> Result<Url, RegistryErrorReason> {
        let secure = base("https", registry)?;
        if self.plain.contains(registry) || is_loopback(&secure) {
            base("http", registry)
        } else {
            Ok(secure)
        }
    }

    /// Returns the endpoint of a registry. If the cache has no endpoint, a request discovers it.
    pub(in crate::registry) async fn get(
        &self,
        http: &HttpClient,
        registry: &str,
        security: ConnectionSecurity,
    ) -> Result<Arc<Endpoint>, RegistryErrorReason> {
        let key = (registry.to_owned(), security);
        if let Some(endpoint) = self.lock().get(&key) {
            return Ok(Arc::clone(endpoint));
        }
        let secure = base("https", registry)?;
        let plain = base("http", registry)?;
        let (endpoint, sure) = if self.plain.contains(registry) {
            ping(http, plain).await?
        } else if is_loopback(&secure) {
            // On loopback, plain HTTP is tried before TLS. This is safe, because the request
            // contains no secrets. A server with TLS responds with 400 or closes the connection.
            match ping(http, plain).await {
                Ok((endpoint, sure)) if sure => (endpoint, sure),
                Err(
                    reason @ (RegistryErrorReason::Unreachable { .. }
                    | RegistryErrorReason::Stalled { .. }),
                ) => {
                    return Err(reason);
                }
                other => match (ping(http, secure).await, other) {
                    (Ok(answer), _) => answer,
                    (
                        Err(
                            reason @ (RegistryErrorReason::Certificate { .. }
                            | RegistryErrorReason::ClientCertificate { .. }
                            | RegistryErrorReason::Settings(_)),
                        ),
                        _,
                    ) => return Err(reason),
                    (Err(_), other) => other?,
                },
            }
        } else if self.may_use_plain_http(registry, security) {
            match ping(http, secure).await {
                Err(RegistryErrorReason::Unreachable { .. } | RegistryErrorReason::Cut { .. }) => {
                    ping(http, plain).await?
                }
                other => other?,
            }
        } else {
            ping(http, secure).await?
        };
        let endpoint = Arc::new(endpoint);
        if sure {
            self.insert(key, &endpoint);
        }
        Ok(endpoint)
    }

    /// Returns `true` if plain HTTP is allowed for a registry that does not support TLS.
    fn may_use_plain_http(&self, registry: &str, security: ConnectionSecurity) -> bool {
        match security {
            ConnectionSecurity::Settings => self.tolerated.contains(registry),
            ConnectionSecurity::Verified => false,
            ConnectionSecurity::Insecure => true,
        }
    }

    /// Replaces the cached challenge of a registry, and returns the changed endpoint. `None` if the
    /// registry has no cached endpoint.
    pub(in crate::registry) fn update(
        &self,
        registry: &str,
        security: ConnectionSecurity,
        challenge: Challenge,
    ) -> Option<Arc<Endpoint>> {
        let key = (registry.to_owned(), security);
        let earlier = self.lock().get(&key).cloned()?;
        let endpoint = Arc::new(Endpoint {
            base: earlier.base.clone(),
            challenge: Some(challenge),
            zone: earlier.zone,
        });
        self.insert(key, &endpoint);
        Some(endpoint)
    }

    fn insert(&self, key: EndpointKey, endpoint: &Arc<Endpoint>) {
        let challenge = endpoint.challenge.as_ref();
        let bytes =
            key.0.len() + endpoint.base.as_str().len() + challenge.map_or(0, Challenge::bytes);
        self.lock().insert(key, Arc::clone(endpoint), bytes);
    }

    fn lock(&self) -> MutexGuard<'_, LimitedMap<EndpointKey, Arc<Endpoint>>> {
        // The map is consistent even if another thread panicked.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(in crate::registry) fn base(scheme: &str, registry: &str) -> Result<Url, RegistryErrorReason> {
    // Docker Hub is the only registry with different names in references and in URLs.
    let host = match registry {
        "docker.io" | "index.docker.io" => "registry-1.docker.io",
        registry => registry,
    };
    Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| {
        RegistryErrorReason::Settings(format!("`{registry}` is not a host: {error}"))
    })
}

/// Sends one `GET /v2/`. The returned flag is `true` if the response certainly comes from a
/// registry. Only then is the endpoint cached.
pub(in crate::registry) async fn ping(
    http: &HttpClient,
    base: Url,
) -> Result<(Endpoint, bool), RegistryErrorReason> {
    http.add_registry_host(&base);
    let response = http
        .send(reqwest::Request::new(Method::GET, base.clone()))
        .await?;
    let sure = matches!(
        response.status(),
        StatusCode::OK | StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::FORBIDDEN
    );
    let endpoint = Endpoint {
        zone: NetworkZone::of_response(&base, response.remote_addr()),
        base,
        challenge: challenge_of(response.headers()),
    };
    Ok((endpoint, sure))
}

/// Returns the challenge in the headers of a response with status 401.
pub(in crate::registry) fn challenge_of(headers: &HeaderMap) -> Option<Challenge> {
    let all: Vec<&str> = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    challenge(&all.join(", "))
}
