//! Authentication and authorization of callers with bearer tokens. The API server authenticates
//! each token (TokenReview) and authorizes each path (SubjectAccessReview). This module grants no
//! permission itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bundle_cluster::access;
use bundle_core::review::Requester;
use bundle_core::rights::AccessReview;
use kube::Client;
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::budget::{Budget, CACHE_ENTRY, Pool};

/// Time for which the identity of a token is cached. A revoked token can still be accepted for this
/// time.
const IDENTITY_TTL: Duration = Duration::from_secs(10);
/// Maximum number of cached tokens, valid and invalid.
const MAX_IDENTITIES: usize = 128;
/// Maximum length of a token, in bytes. The listener limits the total size of the request headers.
const MAX_TOKEN: usize = 12 << 10;
/// Maximum size of a cached identity, in bytes. A larger identity is not cached, so its token is
/// authenticated for each request.
const MAX_IDENTITY: usize = 8 << 10;
/// Maximum memory of all cached identities, in bytes.
pub(crate) const MAX_BYTES: usize = MAX_IDENTITIES * (CACHE_ENTRY + MAX_IDENTITY);
/// Maximum number of concurrent TokenReviews and SubjectAccessReviews. The limit prevents callers
/// with invalid tokens from overloading the API server. One client address can have half of these
/// reviews, a second address half of the rest. The address with the fewest reviews is next.
const CONCURRENT_REVIEWS: u64 = 8;
/// Time limit of one TokenReview or SubjectAccessReview, including the wait for a free slot.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a caller is rejected.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallerError {
    /// The request has no valid bearer token.
    #[error("a valid bearer token is required")]
    Unauthenticated,
    /// The caller does not have a required permission.
    #[error("{user} must have permission {verb} on {path}: bind ClusterRole {role}")]
    Forbidden {
        user: String,
        verb: &'static str,
        path: String,
        role: String,
    },
    /// A request to the API server failed, or did not end in time.
    #[error("cannot check the token and the permissions of the caller; try again")]
    Unavailable,
}

impl IntoResponse for CallerError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = (status, format!("{self}\n")).into_response();
        let (name, value) = match &self {
            Self::Unauthenticated => (header::WWW_AUTHENTICATE, "Bearer"),
            Self::Forbidden { .. } => return response,
            Self::Unavailable => (header::RETRY_AFTER, "5"),
        };
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
        response
    }
}

/// A permission on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathPermission<'a> {
    pub(crate) verb: &'static str,
    /// The ClusterRole that grants the permission for all Bundles.
    pub(crate) role: &'a str,
}

/// Authenticates and authorizes callers.
pub(crate) struct Callers {
    client: Client,
    /// Identities by the hash of the token. The value is `None` for an invalid token.
    identities: Cache<[u8; 32], Option<Arc<Requester>>>,
    reviews: Pool,
}

/// Returns the bearer token of a request. Returns `None` if the request has no token, more than one
/// token, or an invalid token.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_token = !token.is_empty()
        && token.len() <= MAX_TOKEN
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && values.next().is_none();
    (is_bearer && is_token).then_some(token)
}

impl Callers {
    /// Creates the value with an empty cache. `client` needs verb `create` on `tokenreviews` and
    /// `subjectaccessreviews`.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            identities: Cache::builder()
                .max_capacity(MAX_IDENTITIES as u64)
                .time_to_live(IDENTITY_TTL)
                .build(),
            reviews: Pool::divided(CONCURRENT_REVIEWS),
        }
    }

    /// Returns the identity of the caller with the address `from`.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        from: IpAddr,
    ) -> Result<Arc<Requester>, CallerError> {
        let token = bearer_token(headers).ok_or(CallerError::Unauthenticated)?;
        let key: [u8; 32] = Sha256::digest(token).into();
        let review = async {
            let reviewed = access::identity_of_token(&self.client, token);
            let identity = self.run_review(from, reviewed).await?.map(Arc::new);
            match identity {
                Some(identity) if size_of_identity(&identity) > MAX_IDENTITY => {
                    Err(UncachedIdentity::Identity(identity))
                }
                identity => Ok(identity),
            }
        };
        let identity = match self.identities.try_get_with(key, review).await {
            Ok(identity) => {
                // Evicts entries above the maximum number now. Otherwise the cache would evict them
                // later.
                self.identities.run_pending_tasks().await;
                identity
            }
            Err(uncached) => match Arc::unwrap_or_clone(uncached) {
                UncachedIdentity::Identity(identity) => Some(identity),
                UncachedIdentity::Error(error) => return Err(error),
            },
        };
        identity.ok_or(CallerError::Unauthenticated)
    }

    /// Fails if the requester with the address `from` does not have `permission` on `path`.
    pub(crate) async fn authorize(
        &self,
        (requester, from): (&Requester, IpAddr),
        permission: &PathPermission<'_>,
        path: &str,
    ) -> Result<(), CallerError> {
        let PathPermission { verb, role } = *permission;
        let question = AccessReview::Path {
            verb: verb.to_owned(),
            path: path.to_owned(),
        };
        let reviewed = access::has_permission(&self.client, requester, &question);
        if self.run_review(from, reviewed).await? {
            return Ok(());
        }
        Err(CallerError::Forbidden {
            user: requester.user.clone(),
            verb,
            path: path.to_owned(),
            role: role.to_owned(),
        })
    }

    /// Returns the identity of the caller. Fails if the caller does not have `permission` on
    /// `path`. `from` is the address of the caller.
    pub(crate) async fn authenticate_and_authorize(
        &self,
        (headers, from): (&HeaderMap, IpAddr),
        permission: &PathPermission<'_>,
        path: &str,
    ) -> Result<Arc<Requester>, CallerError> {
        let requester = Box::pin(self.authenticate(headers, from)).await?;
        let caller = (&*requester, from);
        self.authorize(caller, permission, path).await?;
        Ok(requester)
    }

    /// Runs a review for a caller with the address `from`.
    async fn run_review<T>(
        &self,
        from: IpAddr,
        review: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallerError> {
        let limited = async {
            let caps = Budget::by_address(&self.reviews, from);
            // Taking cannot fail, because a share of one unit fits into the pool.
            let _turn = self.reviews.take(1, caps).await;
            review.await
        };
        match timeout(REVIEW_TIMEOUT, limited).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => {
                let error = crate::chain(&error);
                tracing::warn!(error, "cannot check the token or a permission of a caller");
                Err(CallerError::Unavailable)
            }
            Err(_) => Err(CallerError::Unavailable),
        }
    }
}

/// A result of an authentication that is not cached.
#[derive(Debug, Clone)]
enum UncachedIdentity {
    Identity(Arc<Requester>),
    Error(CallerError),
}

impl From<CallerError> for UncachedIdentity {
    fn from(error: CallerError) -> Self {
        Self::Error(error)
    }
}

fn size_of_identity(identity: &Requester) -> usize {
    let groups = identity.groups.iter().map(String::len);
    let extra = identity.extra.iter();
    let extra = extra.map(|(name, values)| {
        name.len() + values.iter().map(|value| value.len() + 64).sum::<usize>()
    });
    identity.user.len()
        + identity.uid.len()
        + groups.map(|length| length + 64).sum::<usize>()
        + extra.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn reviews_for_two_addresses_leave_reviews_to_a_third() {
        let (service, _server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let callers = Callers::new(Client::new(service, "default"));
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        let stalled = |host: u8| {
            let review = pending::<Result<(), kube::Error>>();
            Box::pin(callers.run_review(address(host), review))
        };
        let run = |host: u8| {
            let review = ready(Ok::<_, kube::Error>(()));
            Box::pin(callers.run_review(address(host), review))
        };
        let addresses = [1; 100].into_iter().chain([2; 100]);
        let mut reviews: Vec<_> = addresses.map(stalled).collect();
        for review in &mut reviews {
            assert!(review.as_mut().now_or_never().is_none());
        }
        assert_eq!(callers.reviews.used(), CONCURRENT_REVIEWS * 3 / 4);
        assert!(run(3).now_or_never().is_some());
        // All reviews are in use. An address without a review is next, although other reviews have
        // waited longer.
        reviews.extend([3, 4].map(stalled));
        for review in &mut reviews {
            assert!(review.as_mut().now_or_never().is_none());
        }
        let mut next = run(5);
        assert!(next.as_mut().now_or_never().is_none());
        drop(reviews.remove(0));
        assert!(next.now_or_never().is_some());
        drop(reviews);
        assert_eq!(callers.reviews.used(), 0);
    }
}
