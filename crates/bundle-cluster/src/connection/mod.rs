//! Connections to the API server: with the identity of the process, and as the ServiceAccounts that
//! install bundles.

mod guard;
mod impersonation;
mod retry;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tower::timeout::{Timeout, TimeoutLayer};
use tower::util::BoxService;
use tower::{BoxError, service_fn};

use crate::responses;

pub(crate) use self::guard::guarded;
pub use self::impersonation::{missing_right, with_missing_right};
pub use self::retry::RetryAfter;
pub use bundle_core::service_account::ServiceAccount;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the head of a response, including the head of a watch. The timeout is longer than
/// the limit of API servers for one request, which is one minute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// The tower service stack of the Kubernetes client, with a timeout for responses.
pub type Transport = Timeout<BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>>;

/// Header with the impersonated user.
pub const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
/// Largest number of cached clients of ServiceAccounts. A client that is not cached is created
/// again, which is cheap.
const ACCOUNTS: usize = 256;

/// Error of a connection to the API server.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum ClusterError {
    #[error("cannot read kubeconfig {path}")]
    Kubeconfig {
        path: String,
        source: kube::config::KubeconfigError,
    },
    #[error("not in a pod, and no --kubeconfig given")]
    NotInCluster {
        source: kube::config::InClusterError,
    },
    #[error("cannot use the settings for the connection to the API server")]
    Client { source: kube::Error },
    #[error("`{}` cannot be the name of a ServiceAccount", account.user_name())]
    Account { account: ServiceAccount },
}

/// Returns a builder of clients for the cluster of `kubeconfig`. `None` means the cluster of this
/// pod. Sends no request.
pub async fn builder(kubeconfig: Option<&Path>) -> Result<ClientBuilder<Transport>, ClusterError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unreadable = |source| ClusterError::Kubeconfig {
                path: path.display().to_string(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(unreadable)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(unreadable)?
        }
        None => Config::incluster().map_err(|source| ClusterError::NotInCluster { source })?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let builder =
        ClientBuilder::try_from(config).map_err(|source| ClusterError::Client { source })?;
    Ok(builder.with_layer(&TimeoutLayer::new(ANSWER_TIMEOUT)))
}

/// Clients of this process, which share one connection pool and one credential.
pub struct Clients {
    own: Client,
    by_account: Mutex<HashMap<ServiceAccount, Client>>,
}

impl Clients {
    /// Returns clients that use `own`. The impersonation guard and the response limits apply to all
    /// requests of these clients.
    pub fn new(own: Client) -> Self {
        Self {
            own: responses::bounded(guarded(own)),
            by_account: Mutex::default(),
        }
    }

    /// Returns clients that send their requests through the client that `wrap` returns. `wrap`
    /// receives the client with the pod's own identity, so the connections are shared.
    #[must_use]
    pub fn through(&self, wrap: impl FnOnce(Client) -> Client) -> Self {
        Self {
            own: wrap(self.own.clone()),
            by_account: Mutex::default(),
        }
    }

    /// Returns the client with the pod's own identity. This client can read this project's kinds,
    /// but it cannot write installed objects.
    pub fn own(&self) -> Client {
        self.own.clone()
    }

    /// Returns a client that impersonates `account`. The API server requires verb `impersonate` on
    /// `account`.
    pub fn acting_as(&self, account: &ServiceAccount) -> Result<Client, ClusterError> {
        let mut known = self
            .by_account
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(account) {
            return Ok(client.clone());
        }
        let user =
            HeaderValue::try_from(account.user_name()).map_err(|_| ClusterError::Account {
                account: account.clone(),
            })?;
        let client = impersonating(self.own.clone(), user);
        if known.len() >= ACCOUNTS {
            known.clear();
        }
        known.insert(account.clone(), client.clone());
        Ok(client)
    }
}

/// Returns a client that sends all requests through `base`, as `user`. The API server adds the
/// groups of a ServiceAccount.
fn impersonating(base: Client, user: HeaderValue) -> Client {
    let namespace = base.default_namespace().to_owned();
    let service = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(IMPERSONATE_USER, user.clone());
        let base = base.clone();
        async move { base.send(request).await }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;

    use super::*;
    use crate::ByName;

    #[tokio::test]
    async fn only_account_clients_send_impersonation_headers() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let clients = Clients::new(Client::new(service, "default"));
        let answering = tokio::spawn(async move {
            let mut users = Vec::new();
            for _ in 0..3 {
                let (request, reply) = server.next_request().await.unwrap();
                users.push(request.headers().get(IMPERSONATE_USER).cloned());
                let body = br#"{"metadata":{"name":"a"}}"#.to_vec();
                reply.send_response(Response::new(Body::from(body)));
            }
            users
        });
        let account = ServiceAccount::parse("team-a", "deployer").unwrap();
        let first = clients.acting_as(&account).unwrap();
        let again = clients.acting_as(&account).unwrap();
        for client in [first, clients.own(), again] {
            let api: Api<ConfigMap> = Api::namespaced(client, "team-a");
            ByName(&api).get("a").await.unwrap();
        }
        let account = HeaderValue::from_static("system:serviceaccount:team-a:deployer");
        assert_eq!(
            answering.await.unwrap(),
            [Some(account.clone()), None, Some(account)]
        );
    }

    #[tokio::test]
    async fn clients_of_more_accounts_than_are_kept_are_forgotten() {
        let (service, _server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let clients = Clients::new(Client::new(service, "default"));
        for number in 0..3 * ACCOUNTS {
            let account = ServiceAccount::parse("team-a", &format!("deployer-{number}")).unwrap();
            clients.acting_as(&account).unwrap();
            assert!(clients.by_account.lock().unwrap().len() <= ACCOUNTS);
        }
    }
}
