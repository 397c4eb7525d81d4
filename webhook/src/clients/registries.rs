//! Registry clients with one connection pool: an anonymous client, a client for each pull secret,
//! and a client for the pull secrets of each class.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_oci::registry::{
    Client, ClientOptions, Deadlines, Logins, Mirrors, RegistryError, RegistryErrorReason,
    UNUSABLE_PULL_SECRET, caches_bytes,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use crate::clients::names::LimitedResolver;

/// The type of Secrets with registry credentials.
const PULL_SECRET: &str = "kubernetes.io/dockerconfigjson";
/// The data key of a Secret of type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// Time limit of the transfer of one bundle.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(300);
/// Minimum transfer rate, in bytes per second. A slower transfer is cancelled, because the number
/// of concurrent transfers is limited.
const MIN_TRANSFER_RATE: u64 = 32 << 10;
/// Maximum number of clients in the cache. When this number is reached, all clients are removed
/// from the cache. The only cost is extra requests.
const MAX_CLIENTS: usize = 8;
/// Maximum memory of the caches in the cached clients and in the anonymous client, in bytes. The
/// size of pull secrets is not counted, because only administrators write pull secrets.
pub(crate) const CACHES_BYTES: usize = caches_bytes(MAX_CLIENTS + 1);

/// A pull secret cannot be used.
///
/// The text is the same for all reasons, and contains only names that the requester wrote. A
/// requester must not learn which Secrets exist. The log has the reason.
#[derive(Debug, thiserror::Error)]
#[error("{subject}: {UNUSABLE_PULL_SECRET}")]
pub struct PullSecretError {
    /// The pull secret that the source names, or the class with the pull secret.
    subject: String,
}

impl PullSecretError {
    /// Returns the error for the pull secret `name` of a source.
    pub(crate) fn named(name: &KubeName) -> Self {
        Self {
            subject: format!("pull secret {name}"),
        }
    }

    /// Returns the finding for the requester of the content.
    pub fn finding(&self) -> Finding {
        Finding::error(codes::registry::BAD_CREDENTIALS, self.to_string()).hint(
            "ask an administrator: the log of the pod has the reason, and `kubectl create secret docker-registry` in the system namespace creates a pull secret",
        )
    }
}

/// Returns the finding about a failed request for an image.
pub fn image_finding(error: &RegistryError) -> Finding {
    let finding = error.finding();
    if !matches!(
        error.reason,
        RegistryErrorReason::Certificate { .. } | RegistryErrorReason::Unreachable { .. }
    ) {
        return finding;
    }
    let hint = finding.hint.clone().unwrap_or_default();
    finding.hint(format!(
        "{hint}; for a registry without TLS or with another certificate, an administrator can list the host in spec.sources.insecureHosts of the class"
    ))
}

/// Returns the credentials in a pull secret, or the reason why the pull secret contains no
/// credentials.
fn config_of(secret: Option<Secret>) -> Result<Vec<u8>, &'static str> {
    let secret = secret.ok_or("the Secret does not exist")?;
    if secret.type_.as_deref() != Some(PULL_SECRET) {
        return Err("its type is not kubernetes.io/dockerconfigjson");
    }
    let data = secret.data.and_then(|mut data| data.remove(DOCKER_CONFIG));
    let config = data.ok_or("it has no entry `.dockerconfigjson`")?.0;
    if Logins::are_readable(&config) {
        Ok(config)
    } else {
        Err("its entry `.dockerconfigjson` cannot be read")
    }
}

/// The registry clients of this process.
pub struct Registries {
    anonymous: Client,
    by_secret: Mutex<HashMap<String, CachedClient>>,
    resolver: LimitedResolver,
}

/// A client and the data of the Secrets that it was created from. If a Secret changes, a new client
/// is created.
struct CachedClient {
    configs: Vec<Vec<u8>>,
    client: Client,
}

impl Registries {
    /// Creates the clients. The clients trust the certificate authorities of the system and of
    /// `authorities` (PEM). The clients use the mirrors in the files `mirrors` (registries.conf).
    pub fn new(authorities: Option<PathBuf>, mirrors: &[PathBuf]) -> Result<Self, RegistryError> {
        Self::with_resolver(authorities, mirrors, LimitedResolver::default())
    }

    /// Creates the clients with this resolver of host names.
    pub(super) fn with_resolver(
        authorities: Option<PathBuf>,
        mirrors: &[PathBuf],
        resolver: LimitedResolver,
    ) -> Result<Self, RegistryError> {
        let anonymous = Client::new(ClientOptions {
            mirrors: Mirrors::read(mirrors)?,
            ca_files: authorities.into_iter().collect(),
            user_agent: concat!("bundle-webhook/", env!("CARGO_PKG_VERSION")).to_owned(),
            deadlines: Deadlines {
                transfer: TRANSFER_TIMEOUT,
                min_rate: MIN_TRANSFER_RATE,
                ..Deadlines::default()
            },
            resolver: Some(Arc::new(resolver.clone())),
            ..ClientOptions::default()
        })?;
        Ok(Self {
            anonymous,
            by_secret: Mutex::default(),
            resolver,
        })
    }

    /// Returns the resolver of host names of all clients.
    pub fn resolver(&self) -> &LimitedResolver {
        &self.resolver
    }

    /// Returns the registry client without credentials.
    pub fn anonymous(&self) -> &Client {
        &self.anonymous
    }

    /// Returns the client with the credentials of the Secret `name`.
    pub async fn with_secret(
        &self,
        secrets: &Api<Secret>,
        name: &KubeName,
    ) -> Result<Client, PullSecretError> {
        let config = read(secrets, name).await;
        let config = config.ok_or_else(|| PullSecretError::named(name))?;
        Ok(self.known(name, vec![config]))
    }

    /// Returns the client with the credentials of the Secrets `names` of `class`. The first Secret
    /// with credentials for a repository is used. Fails if one Secret cannot be used. If `names` is
    /// empty, returns the client without credentials.
    pub async fn with_class_secrets(
        &self,
        secrets: &Api<Secret>,
        class: &str,
        names: &[KubeName],
    ) -> Result<Client, PullSecretError> {
        if names.is_empty() {
            return Ok(self.anonymous.clone());
        }
        let configs = join_all(names.iter().map(|name| read(secrets, name))).await;
        let configs: Option<Vec<_>> = configs.into_iter().collect();
        let configs = configs.ok_or_else(|| PullSecretError {
            subject: format!("a pull secret of provisioner class {class}"),
        })?;
        let names: Vec<_> = names.iter().map(KubeName::as_str).collect();
        // A name contains no comma, so different lists of names have different keys.
        Ok(self.known(&names.join(","), configs))
    }

    fn known(&self, key: &str, configs: Vec<Vec<u8>>) -> Client {
        let mut by_secret = self
            .by_secret
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_secret.get(key)
            && known.configs == configs
        {
            return known.client.clone();
        }
        if by_secret.len() >= MAX_CLIENTS {
            by_secret.clear();
        }
        let mut logins = Logins::anonymous();
        logins.secrets.clone_from(&configs);
        let client = self.anonymous.with_logins(logins);
        by_secret.insert(
            key.to_owned(),
            CachedClient {
                configs,
                client: client.clone(),
            },
        );
        client
    }
}

/// Reads the credentials in the Secret `name`. Returns `None` if the Secret cannot be used, and
/// logs the reason.
async fn read(secrets: &Api<Secret>, name: &KubeName) -> Option<Vec<u8>> {
    let config = match ByName(secrets).get_opt(name).await {
        Ok(found) => config_of(found).map_err(str::to_owned),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        // A body that cannot be parsed can contain other data, so only the kind of error is logged.
        Err(kube::Error::SerdeError(_)) => {
            Err("the response of the API server is not a Secret".to_owned())
        }
        Err(other) => Err(crate::chain(&other)),
    };
    match config {
        Ok(config) => Some(config),
        Err(reason) => {
            tracing::warn!(
                namespace = secrets.namespace().unwrap_or_default(),
                name = name.as_str(),
                reason,
                "cannot use a pull secret"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Returns the text of the finding after this response of the API server.
    async fn finding_text(status: StatusCode, body: Value) -> String {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            let (request, reply) = server.next_request().await.unwrap();
            let path = "/api/v1/namespaces/sys/secrets/regcred";
            assert_eq!((request.uri().path(), request.uri().query()), (path, None));
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            reply.send_response(Response::builder().status(status).body(body).unwrap());
        });
        let secrets = Api::namespaced(kube::Client::new(service, "sys"), "sys");
        let name = "regcred".parse().unwrap();
        let registries = Registries::new(None, &[]).unwrap();
        let error = registries.with_secret(&secrets, &name).await.err().unwrap();
        serving.await.unwrap();
        error.finding().to_string()
    }

    #[tokio::test]
    async fn all_unusable_pull_secrets_lead_to_the_same_message() {
        let failure = |code: u16, reason: &str| json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"});
        let secret = |kind: &str, data: Value| json!({"metadata": {"name": "regcred"}, "type": kind, "data": data});
        let answers = [
            (StatusCode::NOT_FOUND, failure(404, "NotFound")),
            (StatusCode::FORBIDDEN, failure(403, "Forbidden")),
            (
                StatusCode::OK,
                secret("Opaque", json!({".dockerconfigjson": "e30="})),
            ),
            (StatusCode::OK, secret(PULL_SECRET, json!({}))),
            (
                StatusCode::OK,
                secret(PULL_SECRET, json!({".dockerconfigjson": "bm8="})),
            ),
            (StatusCode::OK, json!({"data": {"password": 7}})),
        ];
        let mut texts = Vec::new();
        for (status, body) in answers {
            texts.push(finding_text(status, body).await);
        }
        texts.dedup();
        assert_eq!(
            texts,
            [
                "pull secret regcred: it does not exist, is not of type kubernetes.io/dockerconfigjson, or cannot be read"
            ]
        );
    }

    #[tokio::test]
    async fn pull_secrets_of_a_class_are_all_required() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            while let Some((request, reply)) = server.next_request().await {
                let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
                let (status, body) = if name == "gone" {
                    let body = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m"});
                    (StatusCode::NOT_FOUND, body)
                } else {
                    let data = json!({".dockerconfigjson": "e30="});
                    let body =
                        json!({"metadata": {"name": name}, "type": PULL_SECRET, "data": data});
                    (StatusCode::OK, body)
                };
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                reply.send_response(Response::builder().status(status).body(body).unwrap());
            }
        });
        let secrets: Api<Secret> = Api::namespaced(kube::Client::new(service, "sys"), "sys");
        let registries = Registries::new(None, &[]).unwrap();
        let open = async |names: &[&str]| {
            let names: Vec<KubeName> = names.iter().map(|name| name.parse().unwrap()).collect();
            let client = registries.with_class_secrets(&secrets, "plain", &names);
            client.await.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(open(&[]).await, Ok(()));
        assert_eq!(open(&["one", "two"]).await, Ok(()));
        assert_eq!(
            open(&["one", "gone"]).await.unwrap_err(),
            "a pull secret of provisioner class plain: it does not exist, is not of type kubernetes.io/dockerconfigjson, or cannot be read"
        );
        let keys: Vec<String> = registries
            .by_secret
            .lock()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(keys, ["one,two"]);
        drop(secrets);
        serving.abort();
    }
}
