//! `Authorization` headers for the challenge of a registry and a login, with a cache of tokens.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::clock::instant;
use crate::limits::TOKEN_BYTES;
use crate::registry::auth::challenge::Challenge;
use crate::registry::auth::credentials::Logins;
use crate::registry::auth::endpoint::Endpoint;
use crate::registry::auth::login::Login;
use crate::registry::credential_error::CredentialError;
use crate::registry::http::client::HttpClient;
use crate::registry::http::error_message::detail_of;
use crate::registry::http::pools::{authority, may_stay_plain};
use crate::registry::http::zone::NetworkZone;
use crate::registry::limited_map::LimitedMap;
use crate::registry::memory::Unlimited;
use crate::registry::{RegistryErrorReason, Repository};

/// Lifetime of a token without `expires_in`, as the token specification defines.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
/// A token is renewed this long before it expires, so that it does not expire during a request.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

/// Key of a cached token: registry, repository, write access, and a second repository to read from.
type TokenKey = (String, String, bool, Option<String>);

/// User name that docker's credential helpers return together with an identity token. It is also
/// sent to token services that support only user names and passwords.
const TOKEN_USER: &str = "<token>";

/// Access for which a token is needed.
#[derive(Debug, Clone, Copy)]
pub(in crate::registry) struct TokenScope<'a> {
    pub(in crate::registry) repository: &'a Repository,
    pub(in crate::registry) push: bool,
    /// Path of a second repository of the same registry. The token must also permit reads of this
    /// repository, because a blob is mounted from this repository.
    pub(in crate::registry) mount: Option<&'a str>,
}

impl TokenScope<'_> {
    fn key(&self) -> TokenKey {
        (
            self.repository.registry.clone(),
            self.repository.path.clone(),
            self.push,
            self.mount.map(ToOwned::to_owned),
        )
    }

    /// Returns the scopes to request. `asked` are the scopes in the challenge of the registry. One
    /// of these scopes is used if it is for this repository and includes the required access.
    fn scopes(&self, asked: Option<&str>) -> Vec<String> {
        let wanted = format!("repository:{}:", self.repository.path);
        let fits =
            |scope: &&str| scope.starts_with(&wanted) && (!self.push || scope.contains("push"));
        let own = asked
            .into_iter()
            .flat_map(str::split_whitespace)
            .find(fits)
            .map_or_else(
                || format!("{wanted}{}", if self.push { "pull,push" } else { "pull" }),
                ToOwned::to_owned,
            );
        let other = self.mount.map(|path| format!("repository:{path}:pull"));
        [Some(own), other].into_iter().flatten().collect()
    }
}

/// Logins, and the tokens that were obtained with these logins.
#[derive(Debug)]
pub(in crate::registry) struct Tokens {
    sources: Logins,
    logins: Mutex<LimitedMap<(String, String), Option<Login>>>,
    obtained: Mutex<LimitedMap<TokenKey, (HeaderValue, Instant)>>,
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    /// Token in the field that OAuth 2 defines. A token service may send `token`, `access_token`,
    /// or both.
    access_token: Option<String>,
    expires_in: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are consistent even if another thread panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tokens {
    pub(in crate::registry) fn new(sources: Logins) -> Self {
        Self {
            sources,
            logins: Mutex::default(),
            obtained: Mutex::default(),
        }
    }

    /// Returns the identity for messages, such as `as NAME`, and the login. The login is `None` if
    /// the repository has no credentials.
    pub(in crate::registry) fn identity_and_login(
        &self,
        repository: &Repository,
    ) -> (String, Option<Login>) {
        let known = lock(&self.logins)
            .get(&login_key(repository))
            .cloned()
            .flatten();
        let who = known
            .as_ref()
            .map_or_else(|| "without a login".to_owned(), Login::who);
        (who, known)
    }

    /// Removes a token from the cache, after the registry rejected the token.
    pub(in crate::registry) fn forget(&self, purpose: TokenScope<'_>) {
        lock(&self.obtained).remove(&purpose.key());
    }

    /// Returns the value of the `Authorization` header. `None` if the registry requires no
    /// authentication.
    pub(in crate::registry) async fn authorize(
        &self,
        http: &HttpClient,
        endpoint: &Endpoint,
        purpose: TokenScope<'_>,
    ) -> Result<Option<HeaderValue>, RegistryErrorReason> {
        let Some(challenge) = &endpoint.challenge else {
            return Ok(None);
        };
        let login = self.login(purpose.repository).await?;
        match (challenge, login) {
            (_, Some(Login::Bearer(token))) => secret(&format!("Bearer {token}")).map(Some),
            (Challenge::Basic, login) => login
                .and_then(|login| login.basic())
                .map(|text| secret(&text))
                .transpose(),
            (
                Challenge::Bearer {
                    realm,
                    service,
                    scope,
                    ..
                },
                login,
            ) => {
                let key = purpose.key();
                if let Some((token, until)) = lock(&self.obtained).get(&key)
                    && *until > instant()
                {
                    return Ok(Some(token.clone()));
                }
                let order = TokenRequest {
                    realm: trusted_realm(realm, endpoint)?,
                    service: service.as_deref(),
                    scopes: purpose.scopes(scope.as_deref()),
                    login: login.as_ref(),
                    reach: endpoint.zone,
                };
                let (token, until) = order.fetch(http).await?;
                let bytes = key_bytes(&key) + token.len();
                lock(&self.obtained).insert(key, (token.clone(), until), bytes);
                Ok(Some(token))
            }
        }
    }

    async fn login(&self, repository: &Repository) -> Result<Option<Login>, RegistryErrorReason> {
        let key = login_key(repository);
        if let Some(known) = lock(&self.logins).get(&key) {
            return Ok(known.clone());
        }
        // A credential helper may run here, so this work runs on a blocking thread.
        let (sources, (registry, path)) = (self.sources.clone(), key.clone());
        let found = tokio::task::spawn_blocking(move || sources.find(&registry, &path))
            .await
            .unwrap_or(Err(CredentialError::Stopped))
            .map_err(|source| RegistryErrorReason::Credentials {
                registry: repository.registry.clone(),
                source,
            })?;
        let bytes = key.0.len() + key.1.len() + found.as_ref().map_or(0, Login::bytes);
        lock(&self.logins).insert(key, found.clone(), bytes);
        Ok(found)
    }
}

/// Returns the key of cached credentials: registry and repository.
fn login_key(repository: &Repository) -> (String, String) {
    (repository.registry.clone(), repository.path.clone())
}

fn key_bytes((registry, repository, _, mount): &TokenKey) -> usize {
    registry.len() + repository.len() + mount.as_ref().map_or(0, String::len)
}

pub(in crate::registry) fn secret(text: &str) -> Result<HeaderValue, RegistryErrorReason> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        RegistryErrorReason::Malformed("the token contains invalid characters".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the URL of the token service. Returns an error if the URL is in a nearer network zone
/// than the registry, or has no TLS. If the registry has no TLS, a token service without TLS is
/// accepted on the same host. Credentials are sent to no other host without TLS.
fn trusted_realm(realm: &str, endpoint: &Endpoint) -> Result<Url, RegistryErrorReason> {
    let url = Url::parse(realm).map_err(|_| {
        RegistryErrorReason::Malformed(format!(
            "the registry's token service `{realm}` is not a URL"
        ))
    })?;
    if let Some(why) = endpoint.zone.rejection_reason(&url) {
        return Err(RegistryErrorReason::Redirect {
            to: authority(&url),
            why,
        });
    }
    if url.scheme() == "https" || may_stay_plain(&endpoint.base, &url) {
        Ok(url)
    } else {
        Err(RegistryErrorReason::Redirect {
            to: authority(&url),
            why: "the token service does not use TLS, and is not on the host of a registry without TLS",
        })
    }
}

/// A request for a token.
struct TokenRequest<'a> {
    realm: Url,
    service: Option<&'a str>,
    scopes: Vec<String>,
    login: Option<&'a Login>,
    /// Network zone of the registry that named the realm.
    reach: NetworkZone,
}

impl TokenRequest<'_> {
    async fn fetch(
        &self,
        http: &HttpClient,
    ) -> Result<(HeaderValue, Instant), RegistryErrorReason> {
        let response = match self.login {
            Some(Login::IdentityToken(token)) => {
                let response = http.send_from(self.post_request(token), self.reach).await?;
                // With 404 or 405, the service supports only the older flow with user name and
                // password.
                if matches!(response.status().as_u16(), 404 | 405) {
                    http.send_from(self.get_request()?, self.reach).await?
                } else {
                    response
                }
            }
            _ => http.send_from(self.get_request()?, self.reach).await?,
        };
        let status = response.status();
        if !status.is_success() {
            let detail = detail_of(http, response).await;
            return Err(self.refusal(status.as_u16(), detail));
        }
        let body = http
            .body(response, TOKEN_BYTES, "the token", &Unlimited)
            .await?;
        let issued: TokenResponse = serde_json::from_slice(&body).map_err(|_| {
            RegistryErrorReason::Malformed(
                "the response of the token service is invalid".to_owned(),
            )
        })?;
        let token = issued
            .token
            .or(issued.access_token)
            .filter(|token| !token.is_empty())
            .ok_or_else(|| {
                RegistryErrorReason::Malformed(
                    "the response of the token service has no token".to_owned(),
                )
            })?;
        let good = issued
            .expires_in
            .map_or(DEFAULT_LIFETIME, Duration::from_secs);
        let until = instant()
            .checked_add(good.saturating_sub(EXPIRY_MARGIN))
            .unwrap_or_else(instant);
        Ok((secret(&format!("Bearer {token}"))?, until))
    }

    /// Returns the OAuth 2 request for an identity token.
    fn post_request(&self, token: &str) -> reqwest::Request {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token")
            .append_pair("client_id", "kubectl-bundle")
            .append_pair("refresh_token", token)
            // Several scopes in one request are separated by spaces.
            .append_pair("scope", &self.scopes.join(" "));
        if let Some(service) = self.service {
            form.append_pair("service", service);
        }
        let mut request = reqwest::Request::new(Method::POST, self.realm.clone());
        request.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        *request.body_mut() = Some(form.finish().into());
        request
    }

    /// Returns the request of docker's token specification: parameters in the query, credentials in
    /// a header.
    fn get_request(&self) -> Result<reqwest::Request, RegistryErrorReason> {
        let mut realm = self.realm.clone();
        if let Some(service) = self.service {
            realm.query_pairs_mut().append_pair("service", service);
        }
        for scope in &self.scopes {
            realm.query_pairs_mut().append_pair("scope", scope);
        }
        let mut request = reqwest::Request::new(Method::GET, realm);
        let basic = match self.login {
            Some(Login::IdentityToken(token)) => Login::Password {
                user: TOKEN_USER.to_owned(),
                password: token.clone(),
            }
            .basic(),
            login => login.and_then(Login::basic),
        };
        if let Some(basic) = basic {
            request.headers_mut().insert(AUTHORIZATION, secret(&basic)?);
        }
        Ok(request)
    }

    fn refusal(&self, status: u16, detail: String) -> RegistryErrorReason {
        match (status, self.login) {
            (429 | 500.., _) => RegistryErrorReason::Busy { status, detail },
            // 400 is OAuth's `invalid_grant`: the identity token has expired or was revoked.
            (400 | 401, Some(login)) => RegistryErrorReason::LoginRefused {
                service: format!("the token service {}", authority(&self.realm)),
                who: login.who(),
                status,
                detail,
            },
            (status, login) => RegistryErrorReason::Denied {
                who: login.map_or_else(|| "without a login".to_owned(), Login::who),
                status,
                detail,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_scopes_of_the_repository_and_of_a_mount() {
        let repository = "registry.example.com/team/web".parse().unwrap();
        let purpose = |push, mount| TokenScope {
            repository: &repository,
            push,
            mount,
        };
        let asked = Some("repository:other:pull repository:team/web:pull,push,delete");
        assert_eq!(
            purpose(true, Some("base")).scopes(asked),
            [
                "repository:team/web:pull,push,delete",
                "repository:base:pull"
            ]
        );
        assert_eq!(
            purpose(true, None).scopes(Some("repository:team/web:pull")),
            ["repository:team/web:pull,push"]
        );
        assert_eq!(
            purpose(false, None).scopes(None),
            ["repository:team/web:pull"]
        );
    }
}
