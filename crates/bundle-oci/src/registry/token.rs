//! Turning a challenge and a login into an `Authorization` header, and keeping tokens while they are good.
//! Not here: where logins come from (auth) and when a new token is needed (transport).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use super::auth::{Login, Logins};
use super::challenge::Challenge;
use super::endpoint::{Endpoint, make_room};
use super::http::{Pools, authority};
use super::transport::said;
use super::{Reason, Repository};
use crate::limits::TOKEN_BYTES;

/// How long a token is good for if its issuer does not say (the specification's value).
const UNSAID: Duration = Duration::from_secs(60);
/// A token is renewed this long before its end, so that none ends on the way.
const MARGIN: Duration = Duration::from_secs(10);

/// Registry, repository, and whether it is for writing.
type Key = (String, String, bool);

/// Logins and the tokens that they bought.
#[derive(Debug)]
pub(super) struct Tokens {
    sources: Logins,
    logins: Mutex<HashMap<String, Option<Login>>>,
    bought: Mutex<HashMap<Key, (HeaderValue, Instant)>>,
}

#[derive(Deserialize)]
struct Issued {
    #[serde(alias = "access_token")]
    token: Option<String>,
    expires_in: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are whole at every moment, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tokens {
    pub(super) fn new(sources: Logins) -> Self {
        Self {
            sources,
            logins: Mutex::default(),
            bought: Mutex::default(),
        }
    }

    /// In whose name a registry is spoken to, for messages.
    pub(super) fn who(&self, registry: &str) -> String {
        match lock(&self.logins).get(registry) {
            Some(Some(login)) => login.who(),
            _ => "without a login".to_owned(),
        }
    }

    /// Drops the token for a repository, which the registry did not take.
    pub(super) fn forget(&self, repository: &Repository, push: bool) {
        lock(&self.bought).remove(&key(repository, push));
    }

    /// The header to send, if any.
    pub(super) async fn authorize(
        &self,
        pools: &Pools,
        endpoint: &Endpoint,
        repository: &Repository,
        push: bool,
    ) -> Result<Option<HeaderValue>, Reason> {
        let Some(challenge) = &endpoint.challenge else {
            return Ok(None);
        };
        let login = self.login(&repository.registry).await?;
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
                },
                login,
            ) => {
                let key = key(repository, push);
                if let Some((token, until)) = lock(&self.bought).get(&key)
                    && *until > Instant::now()
                {
                    return Ok(Some(token.clone()));
                }
                let wanted = format!("repository:{}:", repository.path);
                let scope = match scope {
                    Some(scope)
                        if scope.starts_with(&wanted) && (!push || scope.contains("push")) =>
                    {
                        scope.clone()
                    }
                    _ => format!("{wanted}{}", if push { "pull,push" } else { "pull" }),
                };
                let realm = trusted_realm(realm, endpoint)?;
                let (token, until) =
                    buy(pools, realm, service.as_deref(), &scope, login.as_ref()).await?;
                let mut bought = lock(&self.bought);
                make_room(&mut bought);
                bought.insert(key, (token.clone(), until));
                Ok(Some(token))
            }
        }
    }

    async fn login(&self, registry: &str) -> Result<Option<Login>, Reason> {
        if let Some(known) = lock(&self.logins).get(registry) {
            return Ok(known.clone());
        }
        // May run a helper program: not on a thread that serves others.
        let (sources, host) = (self.sources.clone(), registry.to_owned());
        let found = tokio::task::spawn_blocking(move || sources.find(&host))
            .await
            .unwrap_or_else(|_| Err("the lookup ended early".to_owned()))
            .map_err(|cause| Reason::Credentials {
                registry: registry.to_owned(),
                cause,
            })?;
        let mut logins = lock(&self.logins);
        make_room(&mut logins);
        logins.insert(registry.to_owned(), found.clone());
        Ok(found)
    }
}

fn key(repository: &Repository, push: bool) -> Key {
    (repository.registry.clone(), repository.path.clone(), push)
}

fn secret(text: &str) -> Result<HeaderValue, Reason> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Reason::Malformed("the token has characters that no token has".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Passwords go to the token service over TLS, or in the clear only where the registry itself is spoken to in the clear.
fn trusted_realm(realm: &str, endpoint: &Endpoint) -> Result<Url, Reason> {
    let url = Url::parse(realm).map_err(|_| {
        Reason::Malformed(format!(
            "the registry's token service `{realm}` is not a URL"
        ))
    })?;
    if url.scheme() == "https" || url.scheme() == endpoint.base.scheme() {
        Ok(url)
    } else {
        Err(Reason::Redirect {
            to: authority(&url),
            why: "for a token, without TLS",
        })
    }
}

async fn buy(
    pools: &Pools,
    mut realm: Url,
    service: Option<&str>,
    scope: &str,
    login: Option<&Login>,
) -> Result<(HeaderValue, Instant), Reason> {
    let request = if let Some(Login::IdentityToken(token)) = login {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token")
            .append_pair("client_id", "kubectl-bundle")
            .append_pair("refresh_token", token)
            .append_pair("scope", scope);
        if let Some(service) = service {
            form.append_pair("service", service);
        }
        let mut request = reqwest::Request::new(Method::POST, realm);
        request.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        *request.body_mut() = Some(form.finish().into());
        request
    } else {
        if let Some(service) = service {
            realm.query_pairs_mut().append_pair("service", service);
        }
        realm.query_pairs_mut().append_pair("scope", scope);
        let mut request = reqwest::Request::new(Method::GET, realm);
        if let Some(basic) = login.and_then(Login::basic) {
            request.headers_mut().insert(AUTHORIZATION, secret(&basic)?);
        }
        request
    };
    let response = pools.send(request).await?;
    let status = response.status();
    if !status.is_success() {
        let detail = said(pools, response).await;
        return Err(match status.as_u16() {
            429 | 500.. => Reason::Busy {
                status: status.as_u16(),
                detail,
            },
            status => Reason::Denied {
                who: login.map_or_else(|| "without a login".to_owned(), Login::who),
                status,
                detail,
            },
        });
    }
    let body = pools.body(response, TOKEN_BYTES, "the token").await?;
    let issued: Issued = serde_json::from_slice(&body)
        .map_err(|_| Reason::Malformed("the token service's answer cannot be read".to_owned()))?;
    let token = issued
        .token
        .ok_or_else(|| Reason::Malformed("the token service's answer has no token".to_owned()))?;
    let good = issued.expires_in.map_or(UNSAID, Duration::from_secs);
    let until = Instant::now()
        .checked_add(good.saturating_sub(MARGIN))
        .unwrap_or_else(Instant::now);
    Ok((secret(&format!("Bearer {token}"))?, until))
}
